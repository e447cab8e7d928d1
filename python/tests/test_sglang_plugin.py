"""weightmap.sglang, with a stand-in for SGLang. tests/engines/sglang_test.py has the real one.

What both plug-ins have of weightmap._engines.load is tested in test_vllm_plugin.py.
"""

import concurrent.futures
import logging
import sys
import types

import fake_sglang
import pytest
from engine_files import (
    check_import_is_light, file_with_dtype_beyond_torch, imported_anew, names, write,
)
from memory_maps import permissions

import weightmap

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture
def sglang(torch, monkeypatch):
    """The stand-in, with its hooks applied as when SGLang has called all plug-ins."""
    seen = fake_sglang.install(monkeypatch)
    with imported_anew("sglang"):
        import weightmap.sglang

        weightmap.sglang.register()
        seen.hooks.apply_hooks()
        yield seen


@pytest.fixture
def loader(sglang):
    def make(extra=None, **config):
        config = fake_sglang.LoadConfig("weightmap", extra or {}, **config)
        return fake_sglang.get_model_loader(config)

    return make


@pytest.fixture
def load(loader):
    """Loads a folder as SGLang would at a start; gives the names and tensors in their order."""

    def run(folder, extra=None, *, model=None, hf_config=None, **config):
        taken = []
        model = model or types.SimpleNamespace()
        model.load_weights = lambda weights: taken.extend(weights)
        model_config = types.SimpleNamespace(
            model_path=str(folder), hf_config=hf_config, make=lambda: model
        )
        loader(extra, **config).load_model(model_config=model_config, device_config="cpu")
        return taken

    return run


def source(folder, **more):
    return fake_sglang.DefaultModelLoader.Source(str(folder), None, **more)


def values(pairs):
    return [(name, tensor.tolist()) for name, tensor in pairs]


# --- registration -----------------------------------------------------------------------------


def test_import_takes_neither_torch_nor_sglang():
    check_import_is_light("sglang")


def test_registers_once(sglang):
    import weightmap.sglang

    weightmap.sglang.register()
    assert sglang.choices == ["auto", "dummy", "weightmap"]
    assert [target for target, _ in sglang.hooks.registered] == [
        "sglang.srt.configs.load_config.LoadConfig._verify_load_format"
    ]


@pytest.mark.parametrize(
    ("module", "part"),
    [
        ("server_args", "add_load_format_choices"),
        ("configs.load_config", "LoadConfig"),
        ("plugins.hook_registry", "HookRegistry"),
    ],
)
def test_a_sglang_of_other_parts_goes_on_without_the_format(monkeypatch, caplog, module, part):
    seen = fake_sglang.install(monkeypatch)
    delattr(sys.modules[f"sglang.srt.{module}"], part)
    with imported_anew("sglang"):
        import weightmap.sglang

        weightmap.sglang.register()
    assert seen.choices == ["auto", "dummy"] and seen.hooks.registered == []
    assert part in caplog.text


def test_a_sglang_without_the_check_goes_on_without_the_format(monkeypatch, caplog):
    seen = fake_sglang.install(monkeypatch)
    monkeypatch.delattr(fake_sglang.LoadConfig, "_verify_load_format")
    with imported_anew("sglang"):
        import weightmap.sglang

        weightmap.sglang.register()
    assert seen.choices == ["auto", "dummy"] and seen.hooks.registered == []
    assert "_verify_load_format" in caplog.text


def test_the_string_becomes_the_loader(sglang):
    import weightmap.sglang

    for given in ("weightmap", "Weightmap"):
        config = fake_sglang.LoadConfig(given)
        assert config.load_format is weightmap.sglang.WeightmapModelLoader


def test_other_formats_stay_and_import_no_loader(sglang):
    assert fake_sglang.LoadConfig("Dummy").load_format is fake_sglang.LoadFormat.DUMMY
    assert "weightmap._engines.sglang_loader" not in sys.modules
    with pytest.raises(ValueError, match="weightmap2"):
        fake_sglang.LoadConfig("weightmap2")


def test_constructor_leaves_the_config_alone(sglang):
    import weightmap.sglang

    given = {"warm": "off"}
    config = fake_sglang.LoadConfig("weightmap", given)
    for _ in range(3):
        loader = fake_sglang.get_model_loader(config)
        assert type(loader) is weightmap.sglang.WeightmapModelLoader
    assert config.load_format is weightmap.sglang.WeightmapModelLoader
    assert config.model_loader_extra_config is given and given == {"warm": "off"}


def test_sglangs_own_loader_takes_the_same_config(sglang, tmp_path):
    # As it does for adapters.
    config = fake_sglang.LoadConfig("weightmap", {"warm": "off"})
    write(tmp_path, "adapter_model.safetensors", {})
    own = fake_sglang.DefaultModelLoader(config)
    assert list(own._get_weights_iterator(source(tmp_path))) == [("stock", "")]
    assert config.model_loader_extra_config == {"warm": "off"}


def test_sglangs_own_loader_of_another_format_is_as_it_was(sglang):
    fake_sglang.LoadConfig("weightmap")
    config = fake_sglang.LoadConfig("dummy")
    assert fake_sglang.DefaultModelLoader(config).load_config is config


def test_unknown_key_is_refused_by_name(loader):
    with pytest.raises(weightmap.InvalidArgumentError) as refused:
        loader({"num_threads": 8})
    assert refused.value.message == (
        "the loader has no key 'num_threads'; it has warm, reader, window_bytes, "
        "upload, release, strict"
    )
    with pytest.raises(weightmap.InvalidArgumentError, match="the loader has no key 'slices'"):
        loader({"slices": "on"})


# --- what is yielded --------------------------------------------------------------------------


def test_small_tensors_may_be_written_to(load, torch, tmp_path):
    # As models for gemma and gpt_oss do.
    write(tmp_path, "model.safetensors", {"norm.weight": torch.ones(4)})
    ((_, norm),) = load(tmp_path)
    norm += 1
    assert norm.tolist() == [2.0] * 4
    assert values(load(tmp_path)) == [("norm.weight", [1.0] * 4)]


@pytest.mark.parametrize(
    ("upload", "is_npu", "expected"),
    [("auto", False, "r--s"), ("mapped", True, "r--s"), ("copied", False, "rw-p"),
     ("auto", True, "rw-p")],
)
def test_upload_says_what_tensors_lie_in(load, sglang, torch, tmp_path, upload, is_npu, expected):
    sglang.is_npu = is_npu
    torch.save({"large": torch.ones(1 << 19)}, tmp_path / "model.bin")
    ((_, large),) = load(tmp_path, {"upload": upload})
    assert permissions(large) == expected


def test_a_tensor_is_there_before_it_is_yielded(loader, torch, tmp_path, monkeypatch):
    import weightmap._engines.load as module

    there = []
    wait_for = module.WarmingAhead.wait_for

    def noted(warming, position, index):
        wait_for(warming, position, index)
        there.append((position, index))

    monkeypatch.setattr(module.WarmingAhead, "wait_for", noted)
    write(tmp_path, "model-1.safetensors", {"a": torch.ones(4), "b": torch.ones(4)})
    write(tmp_path, "model-2.safetensors", {"c": torch.ones(4)})
    there_when_yielded = [
        (name, there.copy()) for name, _ in loader()._get_weights_iterator(source(tmp_path))
    ]
    assert there_when_yielded == [
        ("a", [(0, 0)]),
        ("b", [(0, 0), (0, 1)]),
        ("c", [(0, 0), (0, 1), (1, 0)]),
    ]


def test_secondary_weights_come_after_with_their_prefix(load, torch, tmp_path):
    (tmp_path / "vision").mkdir()
    write(tmp_path, "model.safetensors", {"a": torch.ones(1)})
    write(tmp_path / "vision", "model.safetensors", {"a": torch.zeros(1)})
    vision = source(tmp_path / "vision", prefix="vision.")
    taken = load(tmp_path, model=types.SimpleNamespace(secondary_weights=[vision]))
    assert values(taken) == [("a", [1.0]), ("vision.a", [0.0])]


def test_patterns_of_the_source_are_taken(loader, torch, tmp_path):
    (tmp_path / "transformer").mkdir()
    write(tmp_path, "model.safetensors", {"a": torch.ones(1)})
    write(tmp_path / "transformer", "model.safetensors", {"b": torch.ones(1)})
    some = source(tmp_path, allow_patterns_overrides=["transformer/*.safetensors"])
    assert names(loader()._get_weights_iterator(some)) == ["b"]


def test_a_file_beside_the_index_is_taken(load, torch, tmp_path):
    (tmp_path / "more").mkdir()
    write(tmp_path, "model.safetensors", {"a": torch.ones(1)})
    write(tmp_path / "more", "mtp.safetensors", {"b": torch.ones(1)})
    taken = load(tmp_path, hf_config=types.SimpleNamespace(mtp_file="more/mtp.safetensors"))
    assert names(taken) == ["a", "b"]


def test_files_that_sglang_has_chosen_are_taken(loader, torch, tmp_path):
    write(tmp_path, "model-1.safetensors", {"a": torch.ones(1)})
    write(tmp_path, "model-2.safetensors", {"b": torch.ones(1)})
    chosen = fake_sglang.DefaultModelLoader.ResolvedSource(
        None, str(tmp_path), (str(tmp_path / "model-2.safetensors"),), True
    )
    weights = loader()._get_weights_iterator(
        source(tmp_path), resolved_source=chosen, startup_prefetch_started=True
    )
    assert names(weights) == ["b"]


def test_of_draft_layers_one_is_taken(load, torch, tmp_path):
    write(tmp_path, "model.safetensors", {
        "model.mtp.layers.0.w": torch.tensor([0.0]),
        "model.mtp.layers.1.w": torch.tensor([1.0]),
        "model.norm": torch.tensor([2.0]),
    })
    taken = load(tmp_path, draft_model_idx=1)
    assert sorted(values(taken)) == [("model.mtp.layers.0.w", [1.0]), ("model.norm", [2.0])]


def test_draft_layers_of_others_are_not_counted(load, torch, tmp_path, caplog):
    caplog.set_level(logging.INFO, "sglang.weightmap")
    layers = {f"model.mtp.layers.{layer}.w": torch.ones(1) for layer in range(3)}
    write(tmp_path, "model.safetensors", layers)
    load(tmp_path, draft_model_idx=2)
    assert "weightmap, rank 0: 4 bytes from 1 mapped files" in caplog.messages[-1]


def test_progress_is_shown(load, sglang, torch, tmp_path):
    write(tmp_path, "model-2.safetensors", {"a": torch.ones(1)})
    write(tmp_path, "model-1.safetensors", {"b": torch.ones(1)})
    load(tmp_path)
    assert sglang.progress == [(["model-1.safetensors", "model-2.safetensors"], False)]


def test_progress_is_shown_by_one_rank(load, sglang, torch, tmp_path, monkeypatch):
    write(tmp_path, "model.safetensors", {"a": torch.ones(1)})
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    for rank in (0, 3):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        load(tmp_path)
    assert [is_off for _, is_off in sglang.progress] == [False, True]


def test_threads_may_copy_while_others_are_yielded(loader, torch, tmp_path):
    for shard in range(3):
        tensors = {f"{shard}.{name}": torch.full((64,), shard + name / 8) for name in range(8)}
        write(tmp_path, f"model-{shard}.safetensors", tensors)
    target = {}
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        for name, tensor in loader()._get_weights_iterator(source(tmp_path)):
            threads.submit(lambda name, tensor: target.update({name: tensor.sum().item()}),
                           name, tensor)
    assert target == {f"{shard}.{name}": 64 * (shard + name / 8)
                      for shard in range(3) for name in range(8)}


# --- what weightmap refuses -------------------------------------------------------------------


def test_the_rest_of_a_file_comes_from_sglang(load, sglang, torch, tmp_path, caplog):
    file_with_dtype_beyond_torch(tmp_path / "model-1.safetensors")
    write(tmp_path, "model-2.safetensors", {"next": torch.tensor([8.0])})
    sglang.stock["model-1.safetensors"] = {"known": torch.tensor([0.0]), "strange": torch.ones(4)}
    caplog.set_level(logging.INFO, "sglang.weightmap")
    taken = load(tmp_path)
    assert values(taken) == [("known", [7.0]), ("strange", [1.0] * 4), ("next", [8.0])]
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "model-1.safetensors: read by SGLang's own loader: " in warnings[0].getMessage()
    assert "model-1.safetensors by SGLang's own loader: " in caplog.messages[-1]


def test_a_file_that_does_not_open_comes_from_sglang(load, sglang, torch, tmp_path, caplog):
    (tmp_path / "model.bin").write_bytes(b"no checkpoint")
    sglang.stock["model.bin"] = {"w": torch.tensor([3.0])}
    secondary = types.SimpleNamespace(secondary_weights=[source(tmp_path, prefix="again.")])
    assert values(load(tmp_path, model=secondary)) == [("w", [3.0]), ("again.w", [3.0])]
    assert len(caplog.records) == 2


# --- the end of a load ------------------------------------------------------------------------


def test_one_line_per_source_says_what_was_done(load, torch, tmp_path, caplog):
    caplog.set_level(logging.INFO, "sglang.weightmap")
    write(tmp_path, "model-1.safetensors", {"a": torch.ones(256)})
    write(tmp_path, "model-2.safetensors", {"b": torch.ones(256)})
    again = types.SimpleNamespace(secondary_weights=[source(tmp_path)])
    load(tmp_path, {"warm": "off"}, model=again)
    assert len(caplog.records) == 2
    for message in caplog.messages:
        assert message.startswith(
            "weightmap, rank 0: 2048 bytes from 2 mapped files; cold bytes not known; "
            "0 read by this rank, 0 by another; seconds: 0.00 reading, 0.00 waiting, "
        )


def test_an_update_says_so_too(loader, torch, tmp_path, caplog):
    # SGLang asks for the iterator itself then.
    caplog.set_level(logging.INFO, "sglang.weightmap")
    write(tmp_path, "model.safetensors", {"a": torch.ones(256)})
    taken = []
    loader = loader()
    weights = loader._get_weights_iterator(source(tmp_path))
    model = types.SimpleNamespace(load_weights=lambda weights: taken.extend(weights))
    loader.load_weights_and_postprocess(model, weights, "cpu")
    assert names(taken) == ["a"]
    assert "weightmap, rank 0: 1024 bytes from 1 mapped files" in caplog.messages[-1]


@pytest.fixture
def evicted(monkeypatch):
    """The files that were to be evicted; the first time something of it stays cached."""
    import weightmap._engines.release as module

    asked = []

    def evict(file):
        asked.append(file)
        return types.SimpleNamespace(cached_after=1 if len(asked) == 1 else 0)

    monkeypatch.setattr(module, "evict", evict)
    monkeypatch.setattr(module, "processes", lambda *_: types.SimpleNamespace(mapped=[]))
    return asked


def test_release_asks_again_when_no_thread_has_tensors(load, torch, tmp_path, evicted):
    write(tmp_path, "model.safetensors", {"a": torch.ones(1)})
    load(tmp_path, {"release": "node"})
    assert evicted == [str(tmp_path / "model.safetensors")] * 2
