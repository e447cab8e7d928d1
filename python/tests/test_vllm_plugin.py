"""weightmap.vllm, with a stand-in for vLLM. tests/engines/vllm_test.py has the real one."""

import logging
import os
import threading
import types
import weakref

import fake_vllm
import pytest
from engine_files import (
    FakeCheckpoint, file_with_dtype_beyond_torch, names, watched_release, write,
)

import weightmap
from weightmap._engines.options import parse_engine_options
from weightmap._engines.warming import WarmingAhead, WarmingCounts

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture
def vllm(torch, monkeypatch):
    with fake_vllm.registered(monkeypatch) as seen:
        yield seen


@pytest.fixture
def load(vllm):
    return vllm.load


# --- registration -----------------------------------------------------------------------------


def test_registers_once(vllm):
    import weightmap.vllm

    weightmap.vllm.register()  # the stand-in refuses a second registration
    assert vllm.registered == {"weightmap": weightmap.vllm.WeightmapModelLoader}


# --- options ----------------------------------------------------------------------------------


def test_options_have_defaults():
    options = parse_engine_options({})
    assert options._values() == ("auto", "node", None, "auto", "keep", "auto", False, None)


def test_options_are_taken():
    given = {"warm": "off", "reader": "rank", "window_bytes": 3 << 29, "upload": "copied",
             "release": "node", "slices": "off", "strict": True, "access": {"*ngram*": "random"}}
    assert parse_engine_options(given)._values() == tuple(given.values())
    assert parse_engine_options({"window_bytes": None}).window_bytes is None
    assert parse_engine_options({"window_bytes": 8 << 30}).window_bytes == 8 << 30


BYTES = "None or a number of bytes"


@pytest.mark.parametrize("given, message", [
    *(({key: value}, f"{key} is {value!r}, expected {choices}") for key, value, choices in [
        ("warm", "on", "'auto' or 'off' or 'stage'"),
        ("reader", 1, "'node' or 'rank'"),
        ("window_bytes", True, BYTES),
        ("window_bytes", 0, BYTES),
        ("window_bytes", -1, BYTES),
        ("window_bytes", 1.5, BYTES),
        ("window_bytes", "8", BYTES),
        ("upload", "device", "'auto' or 'mapped' or 'copied' or 'pinned'"),
        ("slices", "yes", "'auto' or 'on' or 'off'"),
        ("release", None, "'keep' or 'node' or 'hold'"),
        ("strict", 0, "False or True"),
        ("strict", "yes", "False or True"),
        ("access", ["*"], "None or a dict of patterns and 'normal' or 'random'"),
        ("access", {"*": "rand"}, "None or a dict of patterns and 'normal' or 'random'"),
    ]),
    ({"warm": "stage", "release": "hold"},
     "release is 'hold', which keeps files in the page cache, but warm is 'stage', which reads them "
     "past it"),
    ({"warm": "stage", "access": {"*": "random"}},
     "access is for parts of files, but warm is 'stage', which reads whole files"),
    ({"release": "hold", "access": {"*": "random"}},
     "access is for parts of files, but release is 'hold', which reads whole files"),
    ("warm", "the loader's keys are a dict, not a str"),
], ids=str)
def test_wrong_keys_are_refused(given, message):
    with pytest.raises(weightmap.InvalidArgumentError) as refused:
        parse_engine_options(given)
    assert refused.value.message == message


# --- what is yielded --------------------------------------------------------------------------


@pytest.mark.parametrize("extra", [{}, {"warm": "off"}, {"reader": "rank"}])
def test_shards_in_natural_order_and_names_in_file_order(load, torch, tmp_path, extra):
    write(tmp_path, "model-10-of-10.safetensors", {"z": torch.tensor([4.0])})
    write(tmp_path, "model-2-of-10.safetensors", {"b": torch.zeros(2), "a": torch.ones(3)})
    write(tmp_path, "model-1-of-10.safetensors", {"y": torch.tensor([[1, 2]])})
    in_file = list(weightmap.open(tmp_path / "model-2-of-10.safetensors"))
    taken = load(tmp_path, extra)
    assert names(taken) == ["y", *in_file, "z"]
    assert torch.equal(dict(taken)["a"], torch.ones(3))
    assert torch.equal(dict(taken)["y"], torch.tensor([[1, 2]]))
    assert torch.equal(dict(taken)["z"], torch.tensor([4.0]))


def test_bin_is_what_torch_load_gives(load, torch, tmp_path):
    bias = torch.nn.Parameter(torch.tensor([5.0]))
    torch.save({"w.0": torch.arange(6).reshape(2, 3), "b": bias}, tmp_path / "pytorch_model.bin")
    taken = load(tmp_path)
    assert names(taken) == ["w.0", "b"]
    assert taken[0][1].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert isinstance(taken[1][1], torch.nn.Parameter) and taken[1][1].tolist() == [5.0]


def test_copied_is_in_no_mapping_of_the_file(load, torch, tmp_path, mappings_of):
    write(tmp_path, "model.safetensors", {"a": torch.ones(1 << 19), "b": torch.ones(4)})
    mapped = load(tmp_path, {"upload": "mapped"})
    assert mappings_of(tmp_path / "model.safetensors") > 0
    del mapped
    copied = load(tmp_path, {"upload": "copied"})
    assert mappings_of(tmp_path / "model.safetensors") == 0
    assert dict(copied)["b"].tolist() == [1.0] * 4


def test_a_copy_is_gone_before_the_next_is_made(vllm, torch, tmp_path, monkeypatch):
    write(tmp_path, "model.safetensors", {"a": torch.ones(4), "b": torch.ones(4)})
    living = []  # copies, each time when another is made
    copies = weakref.WeakSet()
    clone = torch.Tensor.clone

    def counted_clone(tensor):
        living.append(len(copies))
        copy = clone(tensor)
        copies.add(copy)
        return copy

    monkeypatch.setattr(torch.Tensor, "clone", counted_clone)
    weights = vllm.weights(tmp_path, {"upload": "copied"})
    next(weights)
    next(weights)
    assert living == [0, 0]


def test_experts_of_other_ranks_are_left_out(load, torch, tmp_path):
    experts = {f"layers.0.experts.{number}.weight": torch.ones(2) for number in range(4)}
    write(tmp_path, "model.safetensors", {**experts, "router.weight": torch.ones(1)})
    taken = names(load(tmp_path, expert_ids={1, 2}))
    assert sorted(taken) == [
        "layers.0.experts.1.weight",
        "layers.0.experts.2.weight",
        "router.weight",
    ]


def test_shards_that_the_model_has_no_use_for_are_left_out(load, torch, tmp_path):
    write(tmp_path, "model.safetensors", {"a": torch.ones(1)})
    write(tmp_path, "mtp.safetensors", {"b": torch.ones(1)})
    again = fake_vllm.source(tmp_path, is_unused_weight=lambda file: file.startswith("mtp"))
    taken = load(tmp_path, model=types.SimpleNamespace(secondary_weights=[again]))
    assert names(taken) == ["a", "b", "a"]


def test_shards_of_the_language_model_alone_are_left_out(vllm, torch, tmp_path):
    write(tmp_path, "language.safetensors", {"a": torch.ones(1)})
    write(tmp_path, "vision.safetensors", {"b": torch.ones(1)})
    loader = vllm.registered["weightmap"](fake_vllm.LoadConfig())
    loader._encoder_only_lm_prefixes = ("language",)
    config = types.SimpleNamespace(model=str(tmp_path))
    assert names(loader.get_all_weights(config, types.SimpleNamespace())) == ["b"]


def test_progress_is_not_shown_if_vllm_says_so(load, vllm, torch, tmp_path):
    write(tmp_path, "model.safetensors", {"a": torch.ones(1)})
    load(tmp_path, use_tqdm_on_load=False)
    assert vllm.progress == [(["model.safetensors"], True)]


def test_reload_from_another_folder(vllm, torch, tmp_path, caplog):
    caplog.set_level(logging.INFO, "vllm.weightmap")
    for folder, value in (("old", 1.0), ("new", 2.0)):
        (tmp_path / folder).mkdir()
        torch.save({"w": torch.tensor([value])}, tmp_path / folder / "model.bin")
    loader = vllm.registered["weightmap"](fake_vllm.LoadConfig())
    for folder, value in (("old", 1.0), ("new", 2.0)):
        config = types.SimpleNamespace(model=str(tmp_path / folder))
        taken = list(loader.get_all_weights(config, types.SimpleNamespace()))
        assert [(name, tensor.item()) for name, tensor in taken] == [("w", value)]
        assert "weightmap, rank 0: 4 bytes from 1 mapped files" in caplog.messages[-1]


def test_a_load_that_is_given_up_ends_the_reading(vllm, torch, tmp_path, monkeypatch, mappings_of):
    import weightmap._engines.load as module

    ended = []
    close = WarmingAhead.close
    monkeypatch.setattr(
        module.WarmingAhead, "close", lambda warming: ended.append(True) or close(warming)
    )
    write(tmp_path, "model.safetensors", {"a": torch.ones(4), "b": torch.ones(4)})
    weights = vllm.weights(tmp_path)
    next(weights)
    assert ended == []
    weights.close()
    assert ended == [True]
    assert mappings_of(tmp_path / "model.safetensors") == 0


# --- what weightmap refuses -------------------------------------------------------------------


@pytest.mark.parametrize("value, said", [
    (["w"], "has a list, not a dict of tensors"),
    ({"epoch": 3}, "has a int of the name 'epoch'"),
], ids=["no dict", "more than tensors"])
def test_a_bin_of_other_things_comes_from_vllm(load, vllm, torch, tmp_path, caplog, value, said):
    torch.save(value, tmp_path / "model.bin")
    vllm.stock["model.bin"] = {"w": torch.tensor([3.0])}
    assert [(name, tensor.tolist()) for name, tensor in load(tmp_path)] == [("w", [3.0])]
    assert said in caplog.text


def test_torchao_is_vllms(load, torch, tmp_path, caplog):
    write(tmp_path, "model.safetensors", {"a": torch.ones(1)})
    assert load(tmp_path, safetensors_load_strategy="torchao") == [("stock", "")]
    assert "torchao puts its tensors together from several files" in caplog.text


@pytest.mark.parametrize("make, config, error", [
    (file_with_dtype_beyond_torch, {}, weightmap.UnsupportedError),
    (lambda path: path.write_bytes(b"no checkpoint"), {}, weightmap.NotACheckpointError),
    (lambda path: weightmap.save_safetensors({}, path),
     {"safetensors_load_strategy": "torchao"}, weightmap.UnsupportedError),
], ids=["a dtype", "a file", "torchao"])
def test_strict_raises_for(load, tmp_path, make, config, error):
    make(tmp_path / "model.safetensors")
    with pytest.raises(error):
        load(tmp_path, {"strict": True}, **config)


# --- release ----------------------------------------------------------------------------------


def test_last_process_evicts(load, torch, tmp_path, monkeypatch):
    one, two = tmp_path / "model-1.safetensors", tmp_path / "model-2.safetensors"
    write(tmp_path, one.name, {"a": torch.ones(1)})
    write(tmp_path, two.name, {"b": torch.ones(1)})
    evicted = watched_release(monkeypatch, [[(one, os.getpid()), (two, os.getpid() + 1)]])
    load(tmp_path, {"release": "node"})
    assert evicted == [str(one)]


def test_what_another_still_has_is_asked_for_again(load, torch, tmp_path, monkeypatch):
    file = tmp_path / "model.safetensors"
    write(tmp_path, file.name, {"a": torch.ones(1)})
    evicted = watched_release(monkeypatch, [[(file, os.getpid() + 1)], []])
    load(tmp_path, {"release": "node"})
    assert evicted == [str(file)]


def test_keep_evicts_nothing(load, torch, tmp_path, monkeypatch):
    write(tmp_path, "model.safetensors", {"a": torch.ones(1)})
    evicted = watched_release(monkeypatch)
    assert names(load(tmp_path)) == ["a"]
    assert evicted == []


# --- reading ahead ----------------------------------------------------------------------------


def test_only_what_is_cold_and_wanted_is_read_in_order():
    first, second = FakeCheckpoint(6, {0, 2, 3, 5}), FakeCheckpoint(2, set())
    third = FakeCheckpoint(1, {0})
    counts = WarmingCounts()
    plan = [(first, range(5)), (second, range(2)), (third, [0])]
    with WarmingAhead(plan, True, counts) as warming:
        warming.wait_for(2, None)
    assert first.calls == [([0, 2], True), ([3], True)]  # two reach 256 MiB
    assert second.calls == []
    assert third.calls == [([0], True)]
    assert counts.cold_bytes == 4 * (200 << 20)
    assert (counts.bytes_read, counts.bytes_waited_for) == (3 * 5, 3 * 7)
    assert list(counts.remarks) == ["took the reading over from another rank"]


def test_of_parts_only_these_are_read_by_each_for_itself():
    parts = {index: [types.SimpleNamespace(nbytes=100, index=index)] for index in (1, 3, 4)}
    checkpoint, counts = FakeCheckpoint(5, {0, 3, 4}), WarmingCounts()
    with WarmingAhead([(checkpoint, parts)], True, counts) as warming:
        warming.wait_for(0, None)
    assert checkpoint.calls == [([*parts[3], *parts[4]], False)]
    assert (counts.cold_bytes, counts.bytes_read) == (200, 200 << 20)  # all that it was told


def test_consumer_waits_for_what_is_cold_alone():
    may_read = threading.Event()
    checkpoint = FakeCheckpoint(3, {2}, warm=may_read.wait)
    counts = WarmingCounts()
    with WarmingAhead([(checkpoint, range(3))], False, counts) as warming:
        warming.wait_for(0, 0)  # returns, while nothing can be read
        waiter = threading.Thread(target=warming.wait_for, args=(0, 2))
        waiter.start()
        waiter.join(0.05)
        was_waiting = waiter.is_alive()
        may_read.set()
        waiter.join()
    assert was_waiting
    assert checkpoint.calls == [([2], False)]
    assert counts.bytes_read == 200 << 20  # nobody was elected, so all of it


def test_all_is_read_where_the_system_does_not_tell_what_is_cached():
    checkpoint = FakeCheckpoint(1)
    counts = WarmingCounts()
    with WarmingAhead([(checkpoint, [0])], True, counts) as warming:
        warming.wait_for(0, 0)
    assert checkpoint.calls == [([0], True)]
    assert counts.cold_bytes is None


def test_what_cannot_be_read_ahead_holds_nobody_up():
    def fail():
        raise weightmap.FileError("the disk is gone")

    failing, whole = FakeCheckpoint(1, {0}, warm=fail), FakeCheckpoint(1, {0})
    counts = WarmingCounts()
    with WarmingAhead([(failing, [0]), (whole, [0])], True, counts) as warming:
        warming.wait_for(0, 0)
        warming.wait_for(1, 0)
    assert whole.calls == [([0], True)]
    assert list(counts.remarks) == ["not all of it was read ahead: the disk is gone"]


def test_reading_ends_with_the_consumer():
    reading, closing = threading.Event(), threading.Event()

    def hold():
        reading.set()
        closing.wait()

    checkpoint = FakeCheckpoint(4, {0, 1, 2, 3}, warm=hold)
    warming = WarmingAhead([(checkpoint, range(4))], True, WarmingCounts())
    reading.wait()
    warming._cancelled = True
    closing.set()
    warming.close()
    assert checkpoint.calls == []
