"""weightmap.sglang, with a stand-in for SGLang. tests/engines/sglang_test.py has the real one.

What both plug-ins have in common is tested in test_engine_plugins.py.
"""

import concurrent.futures
import logging
import sys
import types

import fake_sglang
import pytest
from engine_files import names, watched_release, write
from fake_sglang import source

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture
def sglang(torch, monkeypatch):
    with fake_sglang.registered(monkeypatch) as seen:
        yield seen


@pytest.fixture
def loader(sglang):
    return lambda: fake_sglang.get_model_loader(fake_sglang.config_of())


@pytest.fixture
def load(sglang):
    return sglang.load


def values(pairs):
    return [(name, tensor.tolist()) for name, tensor in pairs]


# --- registration -----------------------------------------------------------------------------


def test_registers_once(sglang):
    import weightmap.sglang

    weightmap.sglang.register()
    assert sglang.choices == ["auto", "dummy", "weightmap"]
    assert [target for target, _ in sglang.hooks.registered] == [
        "sglang.srt.configs.load_config.LoadConfig._verify_load_format"
    ]


def test_the_string_becomes_the_loader(sglang):
    import weightmap.sglang

    for given in ("weightmap", "Weightmap"):
        config = fake_sglang.LoadConfig(given)
        assert config.load_format is weightmap.sglang.WeightmapModelLoader
        assert type(fake_sglang.get_model_loader(config)) is config.load_format


def test_other_formats_stay_and_import_no_loader(sglang):
    assert fake_sglang.LoadConfig("Dummy").load_format is fake_sglang.LoadFormat.DUMMY
    assert "weightmap._engines.sglang_loader" not in sys.modules
    with pytest.raises(ValueError, match="weightmap2"):
        fake_sglang.LoadConfig("weightmap2")


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


# --- what is yielded --------------------------------------------------------------------------


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


# --- the end of a load ------------------------------------------------------------------------


def test_each_source_has_a_line(load, torch, tmp_path, caplog):
    caplog.set_level(logging.INFO, "sglang.weightmap")
    write(tmp_path, "model.safetensors", {"a": torch.ones(256)})
    again = types.SimpleNamespace(secondary_weights=[source(tmp_path)])
    load(tmp_path, {"warm": "off"}, model=again)
    assert [line[:54] for line in caplog.messages] == [
        "weightmap, rank 0: 1024 bytes from 1 mapped files; col"
    ] * 2


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


def test_release_asks_again_when_no_thread_has_tensors(load, torch, tmp_path, monkeypatch):
    write(tmp_path, "model.safetensors", {"a": torch.ones(1)})
    evicted = watched_release(monkeypatch, stays=[1])
    load(tmp_path, {"release": "node"})
    assert evicted == [str(tmp_path / "model.safetensors")] * 2
