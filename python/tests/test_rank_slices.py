"""What a rank of an engine needs of a model's files: learned in one load, read in the next."""

import logging
import types

import fake_vllm
import pytest
from engine_files import write

from weightmap import SlicePart, SlicePlan

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture
def model(torch, tmp_path):
    """A folder of two files."""
    write(tmp_path, "model-1.safetensors", {"a": torch.arange(4096.0).reshape(64, 64)})
    write(tmp_path, "model-2.safetensors", {"b": torch.ones(64, 64), "c": torch.ones(8)})
    return tmp_path


@pytest.fixture
def vllm(torch, monkeypatch):
    """The stand-in, as rank 1 of 2 on two nodes."""
    for name, value in {"is_initialized": True, "get_rank": 1, "get_world_size": 2}.items():
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    with fake_vllm.registered(monkeypatch) as seen:
        seen.nodes = 2
        seen.config = types.SimpleNamespace(
            parallel_config=types.SimpleNamespace(
                tensor_parallel_size=2,
                pipeline_parallel_size=1,
                enable_expert_parallel=False,
                data_parallel_size=1,
                data_parallel_rank=0,
            )
        )
        yield seen


def described(folder, text):
    return types.SimpleNamespace(
        model=str(folder),
        quantization=None,
        hf_config=types.SimpleNamespace(to_json_string=lambda: text),
    )


@pytest.fixture
def load(torch, vllm, monkeypatch):
    """Loads a folder; takes the lower half of the rows of "a", and all of "b". Gives what was to be
    read ahead: of each file the tensors, and of how many of their bytes."""
    import weightmap._engines.load as module

    class NoWarming:
        def __init__(self, plan, one_reader, counts, window):
            self.close = window.close
            planned.append([
                {
                    checkpoint._core.name(index): (
                        sum(part.nbytes for part in wanted[index])
                        if isinstance(wanted, dict) else None
                    )
                    for index in wanted
                }
                for checkpoint, wanted in plan
            ])

        def wait_for(self, position, index):
            pass

        def leave(self, file):
            pass

    planned = []
    monkeypatch.setattr(module, "WarmingAhead", NoWarming)

    def take(weights):
        for name, tensor in weights:
            if name == "a":
                torch.empty(32, 64).copy_(tensor.narrow(0, 32, 32))
            if name == "b":
                torch.empty(64, 64).copy_(tensor)

    def run(folder, extra=None, take=take, text="config"):
        loader = vllm.make(fake_vllm.config_of(extra or {"slices": "on"}))
        loader.load_weights(types.SimpleNamespace(load_weights=take), described(folder, text))
        return planned.pop()

    return run


WHOLE = [{"a": None}, {"b": None, "c": None}]
SLICES = [{"a": 32 * 64 * 4}, {"b": 64 * 64 * 4}]


def plans(folder):
    return sorted(folder.glob("weightmap-slices-*.json"))


def test_the_second_start_reads_what_the_first_one_used(load, model):
    assert load(model) == WHOLE
    (kept,) = plans(model)
    assert kept.name.endswith("-tp2-rank1.json")
    assert dict(SlicePlan.load(kept)) == {"a": (SlicePart(32 * 64, (32, 64), (64, 1)),), "b": None}
    before = kept.stat()
    assert load(model) == SLICES
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_ranks_of_one_node_read_whole_tensors(load, model, vllm):
    vllm.nodes = 1
    assert load(model, {"slices": "auto"}) == WHOLE
    assert load(model, {"slices": "on"}) == WHOLE
    assert load(model, {"slices": "on"}) == SLICES


def test_the_folder_of_a_model_is_written_to_if_told_so(load, model):
    assert load(model, {"slices": "auto"}) == WHOLE
    assert plans(model) == []
    load(model, {"slices": "on"})
    assert load(model, {"slices": "auto"}) == SLICES


def test_off_neither_learns_nor_reads_slices(load, model):
    load(model)
    assert load(model, {"slices": "off"}) == WHOLE
    plans(model)[0].unlink()
    load(model, {"slices": "off"})
    assert plans(model) == []


def test_a_copied_tensor_is_needed_whole(load, model):
    load(model)
    assert load(model, {"upload": "copied"}) == WHOLE
    plans(model)[0].unlink()
    load(model, {"upload": "copied"})
    assert plans(model) == []


def test_another_configuration_has_another_plan(load, model, vllm):
    load(model)
    assert load(model, text="other") == WHOLE
    assert load(model, text="other") == SLICES
    vllm.config.parallel_config.enable_expert_parallel = True
    assert load(model) == WHOLE
    vllm.config.parallel_config.data_parallel_rank = 1
    assert load(model) == WHOLE
    assert len(plans(model)) == 4


def test_a_plan_of_other_files_is_not_followed(load, model, torch):
    load(model)
    write(model, "model-1.safetensors", {"a": torch.ones(3)})
    assert load(model, take=list) == [{"a": None}, SLICES[1]]


def test_a_plan_that_cannot_be_read_is_learned_anew(load, model, caplog):
    caplog.set_level(logging.INFO)
    load(model)
    (kept,) = plans(model)
    kept.write_text("{}")
    assert load(model) == WHOLE
    assert "the plan of slices is not used: " in caplog.text
    assert dict(SlicePlan.load(kept))["b"] is None


def test_a_plan_that_cannot_be_kept_is_said(load, model, monkeypatch, caplog):
    caplog.set_level(logging.INFO)

    def refuse(self, path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(SlicePlan, "save", refuse)
    load(model)
    assert plans(model) == []
    assert "slices are not kept: " in caplog.text


def test_a_load_that_fails_is_not_learned_from(load, model):
    def fail(weights):
        for _, tensor in weights:
            tensor.clone()
            raise KeyError("a weight that the model has not")

    with pytest.raises(KeyError):
        load(model, take=fail)
    assert plans(model) == []


def test_a_reload_learns_nothing(vllm, load, model):
    load(model)
    loader = vllm.make(fake_vllm.config_of())
    reloaded = described(model, "of a reload")
    for _, tensor in loader.get_all_weights(reloaded, types.SimpleNamespace()):
        tensor.clone()
    assert len(plans(model)) == 1
