"""weightmap.vllm, with a stand-in for vLLM. tests/engines/vllm_test.py has the real one."""

import logging
import os
import sys
import threading
import types
import weakref

import fake_vllm
import pytest
from engine_files import (
    check_import_is_light, file_with_dtype_beyond_torch, imported_anew, names, write,
)
from memory_maps import permissions

import weightmap
from weightmap._engines.options import parse_engine_options
from weightmap._engines.warming import WarmingAhead, WarmingCounts

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture
def vllm(torch, monkeypatch):
    """The stand-in, with the load format registered."""
    seen = fake_vllm.install(monkeypatch)
    with imported_anew("vllm"):
        import weightmap.vllm

        weightmap.vllm.register()
        yield seen


@pytest.fixture
def load(vllm):
    """Loads a folder as vLLM would; gives the names and tensors in their order."""

    def run(folder, extra=None, *, model=None, expert_ids=None, **config):
        config = fake_vllm.LoadConfig(model_loader_extra_config=extra or {}, **config)
        loader = vllm.registered["weightmap"](config)
        loader.local_expert_ids = expert_ids
        taken = []
        model = model or types.SimpleNamespace()
        model.load_weights = lambda weights: taken.extend(weights)
        loader.load_weights(model, types.SimpleNamespace(model=str(folder)))
        return taken

    return run


# --- registration -----------------------------------------------------------------------------


def test_import_takes_neither_torch_nor_vllm():
    check_import_is_light("vllm")


def test_registers_once(vllm):
    import weightmap.vllm

    weightmap.vllm.register()  # the stand-in refuses a second registration
    assert vllm.registered == {"weightmap": weightmap.vllm.WeightmapModelLoader}


def test_a_vllm_of_other_parts_goes_on_without_the_format(torch, monkeypatch, caplog):
    seen = fake_vllm.install(monkeypatch)
    del sys.modules["vllm.model_executor.model_loader.weight_utils"].enable_tqdm
    with imported_anew("vllm"):
        import weightmap.vllm

        weightmap.vllm.register()
    assert seen.registered == {}
    assert "enable_tqdm" in caplog.text


def test_constructor_leaves_the_config_alone(vllm):
    given = {"warm": "off"}
    config = fake_vllm.LoadConfig(model_loader_extra_config=given)
    for _ in range(3):
        vllm.registered["weightmap"](config)
    assert config.load_format == "weightmap"
    assert config.model_loader_extra_config is given and given == {"warm": "off"}


# --- options ----------------------------------------------------------------------------------


def test_options_have_defaults():
    options = parse_engine_options({})
    assert options._values() == ("auto", "node", None, "auto", "keep", "auto", False)


def test_options_are_taken():
    given = {"warm": "off", "reader": "rank", "window_bytes": 3 << 29, "upload": "copied",
             "release": "node", "slices": "off", "strict": True}
    assert parse_engine_options(given)._values() == tuple(given.values())
    assert parse_engine_options({"window_bytes": None}).window_bytes is None
    assert parse_engine_options({"window_bytes": 8 << 30}).window_bytes == 8 << 30


def test_unknown_key_is_refused_by_name(load, tmp_path):
    with pytest.raises(weightmap.InvalidArgumentError) as refused:
        load(tmp_path, {"wram": "auto"})
    assert refused.value.message == (
        "the loader has no key 'wram'; it has warm, reader, window_bytes, upload, release, slices, "
        "strict"
    )


@pytest.mark.parametrize(
    ("key", "value", "choices"),
    [
        ("warm", "on", "'auto' or 'off' or 'stage'"),
        ("reader", 1, "'node' or 'rank'"),
        ("window_bytes", True, "None or a number of bytes"),
        ("window_bytes", 0, "None or a number of bytes"),
        ("window_bytes", -1, "None or a number of bytes"),
        ("window_bytes", 1.5, "None or a number of bytes"),
        ("window_bytes", "8", "None or a number of bytes"),
        ("upload", "device", "'auto' or 'mapped' or 'copied' or 'pinned'"),
        ("slices", "yes", "'auto' or 'on' or 'off'"),
        ("release", None, "'keep' or 'node' or 'hold'"),
        ("strict", 0, "False or True"),
        ("strict", "yes", "False or True"),
    ],
)
def test_wrong_value_is_refused(key, value, choices):
    with pytest.raises(weightmap.InvalidArgumentError) as refused:
        parse_engine_options({key: value})
    assert refused.value.message == f"{key} is {value!r}, expected {choices}"


def test_holding_what_was_staged_is_refused():
    with pytest.raises(weightmap.InvalidArgumentError) as refused:
        parse_engine_options({"warm": "stage", "release": "hold"})
    assert refused.value.message == (
        "release is 'hold', which keeps files in the page cache, but warm is 'stage', which reads "
        "them past it"
    )


def test_what_is_no_dict_is_refused():
    with pytest.raises(weightmap.InvalidArgumentError) as refused:
        parse_engine_options("warm")
    assert refused.value.message == "the loader's keys are a dict, not a str"


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


@pytest.mark.parametrize(
    ("upload", "platform", "expected"),
    [
        ("auto", "cpu", ["r--s", "rw-p"]), ("mapped", "npu", ["r--s", "rw-p"]),
        ("copied", "cpu", ["rw-p", "rw-p"]), ("auto", "npu", ["rw-p", "rw-p"]),
    ],
)
def test_upload_says_what_large_and_small_tensors_lie_in(
    load, vllm, torch, tmp_path, upload, platform, expected
):
    vllm.platform.device_type = platform
    torch.save({"large": torch.ones(1 << 19), "small": torch.ones(8)}, tmp_path / "model.bin")
    taken = dict(load(tmp_path, {"upload": upload}))
    assert [permissions(taken[name]) for name in ("large", "small")] == expected
    assert taken["large"].sum() == 1 << 19


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
    config = fake_vllm.LoadConfig(model_loader_extra_config={"upload": "copied"})
    weights = vllm.registered["weightmap"](config).get_all_weights(
        types.SimpleNamespace(model=str(tmp_path)), types.SimpleNamespace()
    )
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


def test_secondary_weights_come_after_with_their_prefix(load, torch, tmp_path):
    (tmp_path / "vision").mkdir()
    write(tmp_path, "model.safetensors", {"a": torch.ones(1)})
    write(tmp_path / "vision", "model.safetensors", {"a": torch.zeros(1)})
    source = fake_vllm.DefaultModelLoader.Source
    vision = source(str(tmp_path), None, subfolder="vision", prefix="vision.")
    taken = load(tmp_path, model=types.SimpleNamespace(secondary_weights=[vision]))
    assert [(name, tensor.item()) for name, tensor in taken] == [("a", 1.0), ("vision.a", 0.0)]


def test_shards_that_the_model_has_no_use_for_are_left_out(load, torch, tmp_path):
    write(tmp_path, "model.safetensors", {"a": torch.ones(1)})
    write(tmp_path, "mtp.safetensors", {"b": torch.ones(1)})
    source = fake_vllm.DefaultModelLoader.Source
    again = source(str(tmp_path), None, is_unused_weight=lambda file: file.startswith("mtp"))
    taken = load(tmp_path, model=types.SimpleNamespace(secondary_weights=[again]))
    assert names(taken) == ["a", "b", "a"]


def test_shards_of_the_language_model_alone_are_left_out(vllm, torch, tmp_path):
    write(tmp_path, "language.safetensors", {"a": torch.ones(1)})
    write(tmp_path, "vision.safetensors", {"b": torch.ones(1)})
    loader = vllm.registered["weightmap"](fake_vllm.LoadConfig())
    loader._encoder_only_lm_prefixes = ("language",)
    config = types.SimpleNamespace(model=str(tmp_path))
    assert names(loader.get_all_weights(config, types.SimpleNamespace())) == ["b"]


def test_progress_is_shown_as_vllm_says(load, vllm, torch, tmp_path):
    write(tmp_path, "model-2.safetensors", {"a": torch.ones(1)})
    write(tmp_path, "model-1.safetensors", {"b": torch.ones(1)})
    load(tmp_path)
    load(tmp_path, use_tqdm_on_load=False)
    files = ["model-1.safetensors", "model-2.safetensors"]
    assert vllm.progress == [(files, False), (files, True)]


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
    loader = vllm.registered["weightmap"](fake_vllm.LoadConfig())
    config = types.SimpleNamespace(model=str(tmp_path))
    weights = loader.get_all_weights(config, types.SimpleNamespace())
    next(weights)
    assert ended == []
    weights.close()
    assert ended == [True]
    assert mappings_of(tmp_path / "model.safetensors") == 0


# --- what weightmap refuses -------------------------------------------------------------------


def test_the_rest_of_a_file_comes_from_vllm(load, vllm, torch, tmp_path, caplog):
    file_with_dtype_beyond_torch(tmp_path / "model-1.safetensors")
    write(tmp_path, "model-2.safetensors", {"next": torch.tensor([8.0])})
    vllm.stock["model-1.safetensors"] = {"known": torch.tensor([0.0]), "strange": torch.ones(4)}
    caplog.set_level(logging.INFO, "vllm.weightmap")
    taken = load(tmp_path)
    assert [(name, tensor.tolist()) for name, tensor in taken] == [
        ("known", [7.0]),
        ("strange", [1.0] * 4),
        ("next", [8.0]),
    ]
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "model-1.safetensors: read by vLLM's own loader: " in warnings[0].getMessage()
    assert "model-1.safetensors by vLLM's own loader: " in caplog.records[-1].getMessage()


def test_a_file_that_does_not_open_comes_from_vllm(load, vllm, torch, tmp_path, caplog):
    (tmp_path / "model.bin").write_bytes(b"no checkpoint")
    vllm.stock["model.bin"] = {"w": torch.tensor([3.0])}
    assert [(name, tensor.tolist()) for name, tensor in load(tmp_path)] == [("w", [3.0])]
    assert len(caplog.records) == 1


def test_a_bin_that_is_no_dict_comes_from_vllm(load, vllm, torch, tmp_path, caplog):
    torch.save([torch.ones(1)], tmp_path / "model.bin")
    vllm.stock["model.bin"] = {"w": torch.tensor([3.0])}
    assert names(load(tmp_path)) == ["w"]
    assert "has a list, not a dict of tensors" in caplog.text


def test_a_bin_with_more_than_tensors_comes_from_vllm(load, vllm, torch, tmp_path, caplog):
    torch.save({"w": torch.ones(1), "epoch": 3}, tmp_path / "model.bin")
    vllm.stock["model.bin"] = {"w": torch.tensor([3.0])}
    assert [(name, tensor.tolist()) for name, tensor in load(tmp_path)] == [("w", [3.0])]
    assert "has a int of the name 'epoch'" in caplog.text


def test_torchao_is_vllms(load, torch, tmp_path, caplog):
    write(tmp_path, "model.safetensors", {"a": torch.ones(1)})
    assert load(tmp_path, safetensors_load_strategy="torchao") == [("stock", "")]
    assert "torchao puts its tensors together from several files" in caplog.text


def test_strict_raises_for_a_dtype(load, torch, tmp_path):
    file_with_dtype_beyond_torch(tmp_path / "model.safetensors")
    with pytest.raises(weightmap.UnsupportedError):
        load(tmp_path, {"strict": True})


def test_strict_raises_for_a_file(load, tmp_path):
    (tmp_path / "model.bin").write_bytes(b"no checkpoint")
    with pytest.raises(weightmap.NotACheckpointError):
        load(tmp_path, {"strict": True})


def test_strict_raises_for_torchao(load, torch, tmp_path):
    write(tmp_path, "model.safetensors", {"a": torch.ones(1)})
    with pytest.raises(weightmap.UnsupportedError):
        load(tmp_path, {"strict": True}, safetensors_load_strategy="torchao")


# --- the log ----------------------------------------------------------------------------------


def test_one_line_says_what_was_done(load, torch, tmp_path, caplog):
    caplog.set_level(logging.INFO, "vllm.weightmap")
    write(tmp_path, "model-1.safetensors", {"a": torch.ones(256)})
    write(tmp_path, "model-2.safetensors", {"b": torch.ones(256)})
    load(tmp_path, {"warm": "off"})
    assert len(caplog.records) == 1
    assert caplog.records[0].getMessage().startswith(
        "weightmap, rank 0: 2048 bytes from 2 mapped files; cold bytes not known; "
        "0 read by this rank, 0 by another; seconds: 0.00 reading, 0.00 waiting, "
    )


# --- release ----------------------------------------------------------------------------------


@pytest.fixture
def released(vllm, monkeypatch):
    """Loads with release="node" while these processes have a file mapped; the files evicted."""
    import weightmap._engines.release as module

    evicted = []

    def run(load, folder, mapped):
        def evict(file):
            evicted.append(os.path.basename(file))
            return types.SimpleNamespace(cached_after=0)

        monkeypatch.setattr(module, "evict", evict)
        monkeypatch.setattr(module, "processes", lambda *files: types.SimpleNamespace(mapped=[
            types.SimpleNamespace(file=str(file), process=process) for file, process in mapped
        ]))
        load(folder, {"release": "node"})
        return evicted

    return run


def test_last_process_evicts(released, load, torch, tmp_path):
    write(tmp_path, "model-1.safetensors", {"a": torch.ones(1)})
    write(tmp_path, "model-2.safetensors", {"b": torch.ones(1)})
    mine, another = os.getpid(), os.getpid() + 1
    mapped = [(tmp_path / "model-1.safetensors", mine), (tmp_path / "model-2.safetensors", another)]
    assert released(load, tmp_path, mapped) == ["model-1.safetensors"]


def test_what_another_still_has_is_asked_for_again(vllm, load, torch, tmp_path, monkeypatch):
    import weightmap._engines.release as module

    file = tmp_path / "model.safetensors"
    write(tmp_path, file.name, {"a": torch.ones(1)})
    another = [types.SimpleNamespace(file=str(file), process=os.getpid() + 1)]
    answers = [another, []]
    evicted = []
    monkeypatch.setattr(
        module, "processes", lambda *files: types.SimpleNamespace(mapped=answers.pop(0))
    )
    monkeypatch.setattr(
        module, "evict", lambda file: evicted.append(file) or types.SimpleNamespace(cached_after=0)
    )
    load(tmp_path, {"release": "node"})
    assert evicted == [str(file)]


def test_keep_evicts_nothing(load, torch, tmp_path, monkeypatch):
    import weightmap._engines.release as module

    write(tmp_path, "model.safetensors", {"a": torch.ones(1)})
    monkeypatch.setattr(module, "evict", lambda file: pytest.fail("evicted"))
    assert names(load(tmp_path)) == ["a"]


# --- reading ahead ----------------------------------------------------------------------------


class FakeCheckpoint:
    """Tensors of 200 MiB each, of which those at `cold` are not cached."""

    def __init__(self, count, cold, error=None, warm=None):
        self._core = self
        self.count, self.cold, self.error = count, cold, error
        self.warmed = []  # (positions, one_reader)
        self.before_warming = warm or (lambda: None)

    def is_remote(self):
        return False

    def at(self, index):
        return types.SimpleNamespace(index=index, nbytes=200 << 20)

    def residency(self):
        if self.error:
            raise self.error
        size = 200 << 20
        return types.SimpleNamespace(tensors=[
            types.SimpleNamespace(
                file_offset=index * size,
                extent_bytes=size,
                cached_bytes=0 if index in self.cold else size,
            )
            for index in range(self.count)
        ])

    def warm(self, indices, parts, threads, budget, crc, one_reader, progress):
        self.before_warming()
        progress(0, 1)
        self.warmed.append((indices or parts, one_reader))
        return {
            "bytes": 200 << 20, "bytes_read": 5, "bytes_waited_for": 7, "takeovers": len(indices) - 1,
            "why_alone": "", "bytes_left_out": 0, "budget_reason": "",
            "budget_bytes": 2 << 30,
        }


def test_only_what_is_cold_and_wanted_is_read_in_order():
    first, second = FakeCheckpoint(6, {0, 2, 3, 5}), FakeCheckpoint(2, set())
    third = FakeCheckpoint(1, {0})
    counts = WarmingCounts()
    plan = [(first, range(5)), (second, range(2)), (third, [0])]
    with WarmingAhead(plan, True, counts) as warming:
        warming.wait_for(2, None)
    assert first.warmed == [([0, 2], True), ([3], True)]  # two reach 256 MiB
    assert second.warmed == []
    assert third.warmed == [([0], True)]
    assert counts.cold_bytes == 4 * (200 << 20)
    assert (counts.bytes_read, counts.bytes_waited_for) == (3 * 5, 3 * 7)
    assert list(counts.remarks) == ["took the reading over from another rank"]


def test_of_parts_only_these_are_read_by_each_for_itself():
    parts = {index: [types.SimpleNamespace(nbytes=100, index=index)] for index in (1, 3, 4)}
    checkpoint, counts = FakeCheckpoint(5, {0, 3, 4}), WarmingCounts()
    with WarmingAhead([(checkpoint, parts)], True, counts) as warming:
        warming.wait_for(0, None)
    assert checkpoint.warmed == [([*parts[3], *parts[4]], False)]
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
    assert checkpoint.warmed == [([2], False)]
    assert counts.bytes_read == 200 << 20  # nobody was elected, so all of it


def test_all_is_read_where_the_system_does_not_tell_what_is_cached():
    error = weightmap.FilePermissionError("may not be asked")
    checkpoint = FakeCheckpoint(1, set(), error)
    counts = WarmingCounts()
    with WarmingAhead([(checkpoint, [0])], True, counts) as warming:
        warming.wait_for(0, 0)
    assert checkpoint.warmed == [([0], True)]
    assert counts.cold_bytes is None


def test_what_cannot_be_read_ahead_holds_nobody_up():
    def fail():
        raise weightmap.FileError("the disk is gone")

    failing, whole = FakeCheckpoint(1, {0}, warm=fail), FakeCheckpoint(1, {0})
    counts = WarmingCounts()
    with WarmingAhead([(failing, [0]), (whole, [0])], True, counts) as warming:
        warming.wait_for(0, 0)
        warming.wait_for(1, 0)
    assert whole.warmed == [([0], True)]
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
    assert checkpoint.warmed == []
