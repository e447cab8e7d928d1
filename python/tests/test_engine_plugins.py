"""What weightmap.vllm and weightmap.sglang have in common, with stand-ins for both engines."""

import contextlib
import importlib
import logging
import pkgutil
import types

import fake_sglang
import fake_vllm
import pytest
from engine_files import (
    asked_to_warm, check_import_is_light, file_with_dtype_beyond_torch, imported_anew, names, write,
)
from memory_maps import mapping_at, permissions

import weightmap

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture(params=[fake_vllm, fake_sglang], ids=["vllm", "sglang"])
def fake(request, torch):
    return request.param


@pytest.fixture
def engine(fake, monkeypatch):
    with fake.registered(monkeypatch) as engine:
        yield engine


def values(pairs):
    return [(name, tensor.tolist()) for name, tensor in pairs]


def test_import_takes_neither_torch_nor_the_engine(fake):
    check_import_is_light(fake.ENGINE)


SRT = "sglang.srt"


@pytest.mark.parametrize("fake, owner, part", [
    (fake_vllm, f"{fake_vllm.MODEL_LOADER}.weight_utils", "enable_tqdm"),
    (fake_sglang, f"{SRT}.server_args", "add_load_format_choices"),
    (fake_sglang, f"{SRT}.configs.load_config", "LoadConfig"),
    (fake_sglang, f"{SRT}.configs.load_config:LoadConfig", "_verify_load_format"),
    (fake_sglang, f"{SRT}.plugins.hook_registry", "HookRegistry"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_an_engine_of_other_parts_goes_on_without_the_format(
    torch, monkeypatch, caplog, fake, owner, part
):
    seen = fake.install(monkeypatch)
    monkeypatch.delattr(pkgutil.resolve_name(owner), part)
    with imported_anew(fake.ENGINE):
        importlib.import_module(f"weightmap.{fake.ENGINE}").register()
    if fake is fake_vllm:
        assert seen.registered == {}
    else:
        assert seen.choices == ["auto", "dummy"] and seen.hooks.registered == []
    assert part in caplog.text


def test_constructor_leaves_the_config_alone(fake, engine):
    given = {"warm": "off"}
    config = fake.config_of(given)
    load_format = config.load_format
    for _ in range(3):
        assert type(engine.make(config)).__name__ == "WeightmapModelLoader"
    assert config.load_format is load_format
    assert config.model_loader_extra_config is given and given == {"warm": "off"}


def test_what_is_random_is_not_warmed(engine, torch, tmp_path, monkeypatch):
    write(tmp_path, "model.safetensors",
          {"a": torch.ones(4), "ngram": torch.ones(1 << 19), "z": torch.ones(1 << 19)})
    asked = asked_to_warm(monkeypatch)
    taken = dict(engine.load(tmp_path, {"access": {"ng*": "random"}}))
    in_file = list(weightmap.open(tmp_path / "model.safetensors"))
    assert asked == [[in_file.index(name) for name in in_file if name != "ngram"]]
    assert "rr" in mapping_at(taken["ngram"][1 << 18:].data_ptr())["flags"]
    assert "rr" not in mapping_at(taken["z"][1 << 18:].data_ptr())["flags"]


def test_a_pattern_of_access_that_matches_nothing_is_an_error(engine, torch, tmp_path):
    write(tmp_path, "model-1.safetensors", {"a": torch.ones(4)})
    write(tmp_path, "model-2.safetensors", {"b": torch.ones(4)})
    assert names(engine.load(tmp_path, {"access": {"a": "random", "b": "normal"}})) == ["a", "b"]
    with pytest.raises(weightmap.InvalidArgumentError) as refused:
        engine.load(tmp_path, {"access": {"a": "random", "c*": "random"}})
    assert refused.value.message == "access has 'c*', which matches the name of no tensor"


def test_unknown_key_is_refused_by_name(fake, engine):
    with pytest.raises(weightmap.InvalidArgumentError) as refused:
        engine.make(fake.config_of({"num_threads": 8}))
    slices = "slices, " if fake is fake_vllm else ""
    assert refused.value.message == (
        "the loader has no key 'num_threads'; it has warm, reader, window_bytes, upload, release, "
        f"{slices}strict, access"
    )
    refusal = pytest.raises(weightmap.InvalidArgumentError, match="the loader has no key 'slices'")
    with refusal if fake is fake_sglang else contextlib.nullcontext():
        engine.make(fake.config_of({"slices": "on"}))


def test_small_tensors_may_be_written_to(engine, torch, tmp_path):
    # As models for gemma and gpt_oss do.
    write(tmp_path, "model.safetensors", {"norm.weight": torch.ones(4)})
    ((_, norm),) = engine.load(tmp_path)
    norm += 1
    assert norm.tolist() == [2.0] * 4
    assert values(engine.load(tmp_path)) == [("norm.weight", [1.0] * 4)]


@pytest.mark.parametrize("upload, is_npu, expected", [
    ("auto", False, ["r--s", "rw-p"]), ("mapped", True, ["r--s", "rw-p"]),
    ("copied", False, ["rw-p", "rw-p"]), ("auto", True, ["rw-p", "rw-p"]),
])
def test_upload_says_what_large_and_small_tensors_lie_in(
    engine, torch, tmp_path, upload, is_npu, expected
):
    if is_npu:
        engine.be_npu()
    torch.save({"large": torch.ones(1 << 19), "small": torch.ones(8)}, tmp_path / "model.bin")
    taken = dict(engine.load(tmp_path, {"upload": upload}))
    assert [permissions(taken[name]) for name in ("large", "small")] == expected
    assert taken["large"].sum() == 1 << 19


def test_a_tensor_is_there_before_it_is_yielded(engine, torch, tmp_path, monkeypatch):
    import weightmap._engines.load as module

    there = []
    wait_for = module.WarmingAhead.wait_for

    def noted(warming, position, index):
        wait_for(warming, position, index)
        there.append((position, index))

    monkeypatch.setattr(module.WarmingAhead, "wait_for", noted)
    write(tmp_path, "model-1.safetensors", {"a": torch.ones(4), "b": torch.ones(4)})
    write(tmp_path, "model-2.safetensors", {"c": torch.ones(4)})
    there_when_yielded = [(name, there.copy()) for name, _ in engine.weights(tmp_path)]
    assert there_when_yielded == [
        ("a", [(0, 0)]),
        ("b", [(0, 0), (0, 1)]),
        ("c", [(0, 0), (0, 1), (1, 0)]),
    ]


def test_secondary_weights_come_after_with_their_prefix(fake, engine, torch, tmp_path):
    (tmp_path / "vision").mkdir()
    write(tmp_path, "model.safetensors", {"a": torch.ones(1)})
    write(tmp_path / "vision", "model.safetensors", {"a": torch.zeros(1)})
    if fake is fake_vllm:
        vision = fake.source(tmp_path, subfolder="vision", prefix="vision.")
    else:
        vision = fake.source(tmp_path / "vision", prefix="vision.")
    taken = engine.load(tmp_path, model=types.SimpleNamespace(secondary_weights=[vision]))
    assert values(taken) == [("a", [1.0]), ("vision.a", [0.0])]


def test_progress_is_shown(engine, torch, tmp_path):
    write(tmp_path, "model-2.safetensors", {"a": torch.ones(1)})
    write(tmp_path, "model-1.safetensors", {"b": torch.ones(1)})
    engine.load(tmp_path)
    assert engine.progress == [(["model-1.safetensors", "model-2.safetensors"], False)]


def test_the_rest_of_a_file_comes_from_the_engine(engine, torch, tmp_path, caplog):
    file_with_dtype_beyond_torch(tmp_path / "model-1.safetensors")
    write(tmp_path, "model-2.safetensors", {"next": torch.tensor([8.0])})
    engine.stock["model-1.safetensors"] = {"known": torch.tensor([0.0]), "strange": torch.ones(4)}
    caplog.set_level(logging.INFO, engine.logger)
    taken = engine.load(tmp_path)
    assert values(taken) == [("known", [7.0]), ("strange", [1.0] * 4), ("next", [8.0])]
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warnings) == 1
    own = f"{engine.name}'s own loader: "
    assert f"model-1.safetensors: read by {own}" in warnings[0].getMessage()
    assert f"model-1.safetensors by {own}" in caplog.messages[-1]


def test_a_file_that_does_not_open_comes_from_the_engine(engine, torch, tmp_path, caplog):
    (tmp_path / "model.bin").write_bytes(b"no checkpoint")
    engine.stock["model.bin"] = {"w": torch.tensor([3.0])}
    assert values(engine.load(tmp_path)) == [("w", [3.0])]
    assert len(caplog.records) == 1


def test_one_line_says_what_was_done(engine, torch, tmp_path, caplog):
    caplog.set_level(logging.INFO, engine.logger)
    write(tmp_path, "model-1.safetensors", {"a": torch.ones(256)})
    write(tmp_path, "model-2.safetensors", {"b": torch.ones(256)})
    assert len(names(engine.load(tmp_path, {"warm": "off"}))) == 2
    assert len(caplog.records) == 1
    assert caplog.messages[0].startswith(
        "weightmap, rank 0: 2048 bytes from 2 mapped files; cold bytes not known; "
        "0 read by this rank, 0 by another; seconds: 0.00 reading, 0.00 waiting, "
    )
