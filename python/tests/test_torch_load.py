"""weightmap.torch.load() against torch.load(mmap=True, weights_only=True)."""

from __future__ import annotations

import argparse
import collections
import gc
import inspect
import io
import mmap
import os
import pathlib
import pickle
import random
import sys
import zipfile

import pytest

torch = pytest.importorskip("torch", reason="compares with torch, which is not installed")

import weightmap  # noqa: E402
import weightmap.torch  # noqa: E402
from conftest import torch_since, torch_version  # noqa: E402
from memory_maps import mapping_of  # noqa: E402
from same_objects import Comparison, assert_same, by_torch, save  # noqa: E402
from weightmap import _core  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
sys.path.insert(0, str(ROOT / "tests" / "interop"))
import random_test  # noqa: E402

# What torch itself cannot load with weights_only=True, or loads wrong; each has a test below.
PROTOCOLS = ("protocol1.pt", "protocol3.pt", "protocol4.pt", "protocol5.pt")
EXCEPTIONS = (*PROTOCOLS, "module.pt", "torchscript.pt", "scripted.pt", "rezipped_deflated.pt",
              "big_endian.pt", "from_cuda.pt")
FIXTURES = sorted(path.name for path in DATA.glob("*.pt") if path.name not in EXCEPTIONS)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.mark.parametrize("name", PROTOCOLS)
def test_reads_pickle_protocols_that_torch_reads_only_with_code(name):
    with pytest.raises(pickle.UnpicklingError):
        by_torch(DATA / name)
    assert_same(torch.load(DATA / name, weights_only=False), weightmap.torch.load(DATA / name))


@pytest.mark.parametrize("name", FIXTURES)
def test_returns_what_torch_returns_for_every_fixture(name):
    try:
        expected = by_torch(DATA / name)
    except pickle.UnpicklingError:
        if name == "dtypes.pt" and torch_version() < (2, 8):
            with pytest.raises(weightmap.UnsupportedError, match="this torch has no float"):
                weightmap.torch.load(DATA / name)
            return
        assert name == "nested_tensor.pt"  # which torch 2.15 refuses
        assert "_rebuild_nested_tensor" in refusal(weightmap.torch.load, DATA / name)
        return
    assert_same(expected, weightmap.torch.load(DATA / name))


def test_the_comparison_tells_differences(tmp_path):
    def differs(left, right):
        return Comparison().difference(left, right) is not None

    one, two = torch.ones(3), torch.ones(3)
    assert differs({"a": one}, {"a": torch.zeros(3)})
    assert differs({"a": one}, {"a": one.to(torch.float64)})
    assert differs({"a": one, "b": one}, {"a": one, "b": two})
    assert differs([one, one[:2]], [one, two[:2]])
    assert differs(one.expand(2, 3), torch.ones(2, 3))
    assert differs(one, torch.nn.Parameter(one))
    assert differs({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert differs(collections.OrderedDict(), {})
    assert differs([1], [True])
    assert differs(torch.Size([2]), (2,))
    tagged = torch.ones(3)
    tagged.tag = 1
    assert differs(tagged, torch.ones(3))
    assert not differs({"a": one, "b": [one]}, {"a": two, "b": [two]})


def test_returns_what_torch_returns_for_random_objects(tmp_path):
    seed = int(os.environ.get("INTEROP_SEED", random.randrange(2**32)))
    count = int(os.environ.get("INTEROP_FILES", 30))
    print(f"seed {seed}")
    source = random.Random(seed)
    tensors = 0
    for number in range(count):
        value = random_test.make_object(number, source)
        path, _ = random_test.save(value, tmp_path, number, source)
        loaded = weightmap.torch.load(path)
        try:
            expected = by_torch(path)
        except pickle.UnpicklingError:
            # Protocols 3 to 5 have opcodes that torch's weights-only machine does not know.
            expected = torch.load(path, mmap=True, weights_only=False)
        comparison = Comparison()
        fault = comparison.difference(expected, loaded)
        assert fault is None, f"file {number} of seed {seed}: {fault}"
        tensors += comparison.tensors
        path.unlink()
    assert tensors > count


def test_swaps_every_tensor_of_the_other_byte_order():
    loaded = weightmap.torch.load(DATA / "big_endian.pt")
    opened = weightmap.open(DATA / "big_endian.pt")
    for name, tensor in opened.items():
        value = loaded[name]
        size = value.element_size() * value.numel()
        assert bytes(value.contiguous().untyped_storage())[:size] == tensor.tobytes(), name


def test_swaps_each_of_the_tensors_that_share_a_storage_by_its_own_dtype(tmp_path):
    numbers = torch.tensor([1, 2, 3, 4], dtype=torch.uint16)
    little = save(
        {"a": numbers, "b": numbers.view(torch.uint32), "c": numbers.view(torch.uint8),
         "d": numbers[2:]},
        tmp_path,
        "little.pt",
    )
    path = tmp_path / "big.pt"
    with zipfile.ZipFile(little) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("/byteorder"):
                content = b"big"
            if name.endswith("/data/0"):
                content = bytes([0, 1, 0, 2, 0, 3, 0, 4])
            target.writestr(name, content)
    loaded = weightmap.torch.load(path)
    assert loaded["a"].tolist() == [1, 2, 3, 4]
    assert loaded["b"].tolist() == [0x00010002, 0x00030004]
    assert loaded["c"].tolist() == [0, 1, 0, 2, 0, 3, 0, 4]
    assert loaded["d"].tolist() == [3, 4]
    assert loaded["a"].data_ptr() + 4 == loaded["d"].data_ptr()


def test_answers_the_types_of_a_state_dict(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    loaded = weightmap.torch.load(save(module.state_dict(), tmp_path))
    assert type(loaded) is collections.OrderedDict
    assert list(loaded) == list(module.state_dict())
    assert loaded._metadata == module.state_dict()._metadata
    assert loaded._metadata["1"] == {"version": 2}


# --- where tensors go


def test_map_location_meta_makes_tensors_without_bytes(tmp_path):
    path = save({"w": torch.ones(2, 3, dtype=torch.bfloat16)}, tmp_path)
    loaded = weightmap.torch.load(path, map_location="meta")
    assert loaded["w"].is_meta
    assert (loaded["w"].shape, loaded["w"].dtype) == ((2, 3), torch.bfloat16)
    assert_same(by_torch(path, map_location="meta"), loaded)


@pytest.mark.parametrize("location", ["cpu", torch.device("cpu"), {"cuda:1": "cpu"}])
def test_map_location_brings_a_cuda_checkpoint_to_the_cpu(location):
    path = DATA / "from_cuda.pt"
    assert_same(by_torch(path, map_location=location), weightmap.torch.load(path, location))


def test_a_cuda_checkpoint_without_map_location_fails_as_with_torch():
    errors = []
    for load in (by_torch, weightmap.torch.load):
        with pytest.raises(RuntimeError, match="CUDA") as caught:
            load(DATA / "from_cuda.pt")
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def test_map_location_function_sees_each_storage_and_its_tag(tmp_path):
    path = save({"a": torch.ones(2), "b": torch.zeros(3, dtype=torch.int16)}, tmp_path)
    seen = {}
    for load in (by_torch, weightmap.torch.load):
        calls = seen.setdefault(load, [])

        def place(storage, tag):
            calls.append((storage.nbytes(), tag))
            return storage

        load(path, map_location=place)
    assert seen[weightmap.torch.load] == seen[by_torch] == [(8, "cpu"), (6, "cpu")]


@torch_since((2, 7), "place of a fake tensor in the file")
def test_a_fake_tensor_mode_gets_fake_tensors_with_their_place_in_the_file(tmp_path):
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    path = save({"w": torch.ones(4)}, tmp_path)
    offsets = []
    for load in (by_torch, weightmap.torch.load):
        with FakeTensorMode():
            tensor = load(path)["w"]
        assert isinstance(tensor, FakeTensor)
        offsets.append(tensor.untyped_storage()._checkpoint_offset)
    assert offsets[0] == offsets[1]


# --- memory


def test_tensors_lie_in_the_mapped_file(tmp_path):
    path = save({"w": torch.ones(1 << 20)}, tmp_path)
    tensor = weightmap.torch.load(path)["w"]
    mapping = mapping_of(tensor)
    assert mapping["file"] == str(path)
    assert mapping["permissions"] == "rw-p"  # private, as torch maps


def test_the_garbage_collector_rests_while_objects_are_made_and_goes_on_as_it_was():
    seen = []

    def place(storage, tag):
        seen.append(gc.isenabled())
        return storage

    assert gc.isenabled()
    weightmap.torch.load(DATA / "tensor_root.pt", place)
    assert gc.isenabled()
    with pytest.raises(pickle.UnpicklingError):
        weightmap.torch.load(DATA / "module.pt")
    assert gc.isenabled()
    gc.disable()
    try:
        weightmap.torch.load(DATA / "tensor_root.pt", place)
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert seen == [False, False]


# --- refusals


class Unknown:
    def __init__(self):
        self.weight = torch.ones(2)


class Plain:
    def __init__(self, value=1):
        self.value = value


class Slotted:
    __slots__ = ("left", "right")


class Stateful:
    def __init__(self):
        self.state = None

    def __getstate__(self):
        return {"given": 7}

    def __setstate__(self, state):
        self.state = ("restored", state)


class CallsSystem:
    def __reduce__(self):
        return os.system, ("touch weightmap-was-here",)


def refusal(load, path):
    with pytest.raises(pickle.UnpicklingError) as caught:
        load(path)
    return str(caught.value)


def test_a_refusal_names_the_file_every_name_and_what_works(tmp_path):
    value = [Unknown(), collections.deque([1]), argparse.Namespace(), Unknown(), Plain()]
    path = save(value, tmp_path)
    with torch.serialization.safe_globals([argparse.Namespace]):
        with pytest.raises(weightmap.UnsafePickleError) as caught:
            weightmap.torch.load(path)
    first, plain = f"{__name__}.Unknown", f"{__name__}.Plain"
    usable = f"{first}, {plain}"
    assert caught.value.file == str(path)
    assert str(caught.value) == (
        f"{path}: Weights only load failed. Unsupported global: GLOBAL {first} was not an allowed "
        f"global by default, nor collections.deque, {plain}. Please use "
        f"`torch.serialization.add_safe_globals([{usable}])` or the "
        f"`torch.serialization.safe_globals([{usable}])` context manager to allowlist these globals "
        "if you trust these classes/functions. collections.deque is not loaded even if "
        'registered. Nothing was run. on_unknown="object" loads the rest, only="KEY" what does not '
        "need these names, and weightmap.open() the tensors"
    )


@pytest.mark.parametrize("names, said, unsaid", [
    pytest.param([f"name{number}" for number in range(60)], ", module.name50 and 9 more. Please",
                 ["module.name51"], id="fifty"),
    pytest.param(["na\x1bme" + "x" * 300], "na", ["\x1b", "x" * 200], id="what can be printed"),
])
def test_a_refusal_lists_names(archive, names, said, unsaid):
    globals = b"".join(b"cmodule\n%s\n" % name.encode() for name in names)
    message = refusal(weightmap.torch.load, archive(b"\x80\x02](" + globals + b"e."))
    assert said in message
    assert not any(each in message for each in unsaid)


class Watched:
    restored = 0

    def __setstate__(self, state):
        Watched.restored += 1


def test_nothing_was_run_is_said_only_where_it_is_so(tmp_path):
    watched = Watched()
    watched.value = 1
    path = save({"first": watched, "second": argparse.Namespace()}, tmp_path)
    with torch.serialization.safe_globals([Watched]):
        message = refusal(weightmap.torch.load, path)
    assert Watched.restored == 1
    assert "Nothing was run" not in message
    assert f"Of what is registered as safe, this may have run: {__name__}.Watched." in message
    assert "Nothing was run." in refusal(weightmap.torch.load, path)


def test_other_errors_of_a_load_name_the_file_too(archive):
    path = archive(b"\x80\x02X\x01\x00\x00\x00xQ.")
    with pytest.raises(weightmap.UnsafePickleError, match="a persistent id of type") as caught:
        weightmap.torch.load(path)
    assert caught.value.file == str(path)


def test_runs_nothing_from_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = save({"w": torch.ones(1), "x": CallsSystem()}, tmp_path)
    for load in (by_torch, weightmap.torch.load):
        refusal(load, path)
    assert not (tmp_path / "weightmap-was-here").exists()


@pytest.mark.parametrize("make", [Plain, Unknown, Stateful])
def test_makes_objects_of_registered_classes(tmp_path, make):
    path = save([make(), torch.ones(1)], tmp_path)
    refusal(weightmap.torch.load, path)
    with torch.serialization.safe_globals([make]):
        assert_same(by_torch(path), weightmap.torch.load(path))


def test_gives_slots_back(tmp_path):
    value = Slotted()
    value.left, value.right = 1, [2]
    path = save(value, tmp_path)
    with torch.serialization.safe_globals([Slotted]):
        loaded = weightmap.torch.load(path)
    assert (type(loaded), loaded.left, loaded.right) == (Slotted, 1, [2])


@torch_since((2, 10), "such refusal")
class Filled(dict):
    """A dict of its own class."""


def test_refuses_to_fill_what_is_no_plain_container(tmp_path):
    path = save(collections.deque([1, 2]), tmp_path)
    filled = save(Filled(a=[1]), tmp_path, "filled.pt")
    with torch.serialization.safe_globals([collections.deque, Filled]):
        for load in (by_torch, weightmap.torch.load):
            assert "Can only extend lists" in refusal(load, path)
            assert "Can only SETITEM" in refusal(load, filled)


@pytest.mark.parametrize("name", ["torchscript.pt", "scripted.pt"])
def test_gives_the_state_dict_of_a_torchscript_archive(name):
    expected = torch.jit.load(DATA / name).state_dict()
    loaded = weightmap.torch.load(DATA / name)
    assert list(loaded) == list(expected)
    for key, tensor in expected.items():
        assert loaded[key].dtype == tensor.dtype and not loaded[key].requires_grad
        assert loaded[key].shape == tensor.shape and loaded[key].stride() == tensor.stride()
        assert torch.equal(loaded[key].view(torch.uint8), tensor.view(torch.uint8)), key


def test_tied_tensors_of_a_torchscript_archive_share_memory():
    loaded = weightmap.torch.load(DATA / "scripted.pt")
    assert loaded["tied"].data_ptr() == loaded["linear.weight"].data_ptr()


def test_sparse_buffers_of_a_torchscript_archive(tmp_path):
    class Sparse(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("coo", torch.eye(3).to_sparse())
            self.register_buffer("csr", torch.eye(3).to_sparse_csr())

        def forward(self, x):
            return x

    torch.jit.script(Sparse()).save(str(tmp_path / "sparse.pt"))
    loaded = weightmap.torch.load(tmp_path / "sparse.pt")
    assert [tensor.layout for tensor in loaded.values()] == [torch.sparse_coo, torch.sparse_csr]
    assert all(torch.equal(tensor.to_dense(), torch.eye(3)) for tensor in loaded.values())


def test_a_patch_leaves_torchscript_to_torch():
    with weightmap.patch(files="mmap"):
        with pytest.raises(RuntimeError, match="TorchScript"):
            torch.load(DATA / "scripted.pt", mmap=True)


def test_compressed_storages_are_inflated_where_torch_takes_them_for_tensors():
    loaded = weightmap.torch.load(DATA / "rezipped_deflated.pt")
    for name, tensor in torch.load(DATA / "state_dict.pt").items():
        assert torch.equal(loaded[name], tensor), name
    with pytest.raises(weightmap.UnsupportedError, match="is compressed"):
        weightmap.torch.load(DATA / "rezipped_deflated.pt", zero_copy_only=True)
    with pytest.raises(weightmap.UnsupportedError, match="no place in the file"):
        weightmap.torch.load(DATA / "rezipped_deflated.pt", map_location="meta")


def test_refuses_a_file_object_that_is_not_at_its_beginning():
    with open(DATA / "state_dict.pt", "rb") as stream:
        stream.seek(7)
        with pytest.raises(weightmap.InvalidArgumentError, match="is at byte 7") as caught:
            weightmap.torch.load(stream)
        assert caught.value.file == f"descriptor {stream.fileno()}"


def test_loads_from_descriptors_and_staged_files():
    expected = by_torch(DATA / "state_dict.pt")
    with open(DATA / "state_dict.pt", "rb") as stream:
        assert_same(expected, weightmap.torch.load(stream))
        assert_same(expected, weightmap.torch.load(stream.fileno()))
    with weightmap.stage(DATA / "state_dict.pt") as staged:
        loaded = weightmap.torch.load(staged)
    assert_same(expected, loaded)


@pytest.mark.parametrize(
    "options", [{}, {"sharing": "private", "writable": True}, {"protection": "guard"}]
)
def test_loads_from_a_checkpoint_that_is_open(tmp_path, options):
    path = save({"w": torch.ones(4)}, tmp_path)
    checkpoint = weightmap.open(path, **options)
    loaded = weightmap.torch.load(checkpoint)
    assert_same(by_torch(path), loaded)
    loaded["w"].mul_(3)
    assert torch.load(path)["w"].tolist() == [1.0] * 4
    checkpoint.close()
    assert loaded["w"].tolist() == [3.0] * 4
    with pytest.raises(weightmap.InvalidArgumentError, match="is closed"):
        weightmap.torch.load(checkpoint)


STATE = DATA / "state_dict.pt"
SCRIPTED = DATA / "scripted.pt"
NEITHER = "^a file is mapped by its path or descriptor, and a {} has neither$"


def load_open(**options):
    with weightmap.open(STATE) as checkpoint:
        weightmap.torch.load(checkpoint, sharing=None)
        weightmap.torch.load(checkpoint, **options)


@pytest.mark.parametrize("call, error, message, file", [
    pytest.param(lambda: weightmap.torch.load(STATE, weights_only=False),
                 weightmap.UnsupportedError, "never", ..., id="weights_only"),
    pytest.param(lambda: weightmap.torch.load(STATE, None, pickle), weightmap.UnsupportedError,
                 "^pickle_module=pickle would run code", ..., id="pickle_module"),
    pytest.param(lambda: weightmap.torch.load(STATE, mmap=False), weightmap.UnsupportedError,
                 "^mmap=False would read the file", ..., id="mmap"),
    *(pytest.param(lambda thing=thing: weightmap.torch.load(thing), weightmap.InvalidArgumentError,
                   NEITHER.format(type(thing).__name__), None, id=type(thing).__name__)
      for thing in (io.BytesIO(b"bytes"), 1.5, True, None)),
    pytest.param(lambda: load_open(sharing="private", writable=True),
                 weightmap.InvalidArgumentError,
                 "is open already, so sharing, writable cannot be chosen any more$", str(STATE),
                 id="options of what is open"),
    pytest.param(lambda: weightmap.torch.load(STATE, protection="guard"),
                 weightmap.UnsupportedError, r"look at checkpoint.state\(\)", str(STATE), id="guard"),
    pytest.param(lambda: weightmap.torch.load(STATE, on_unknown="ignore"),
                 weightmap.InvalidArgumentError, "expected 'refuse' or 'object'", ...,
                 id="on_unknown"),
    pytest.param(lambda: weightmap.torch.load(STATE, only=7), TypeError, "a str or a tuple of keys",
                 ..., id="only"),
    pytest.param(lambda: weightmap.torch.load(SCRIPTED, only="linear"), weightmap.UnsupportedError,
                 "only= chooses no part", ..., id="only of a program"),
])
def test_refuses(call, error, message, file):
    with pytest.raises(error, match=message) as caught:
        call()
    assert file is ... or caught.value.file == file


def test_refuses_a_guard_of_the_configuration():
    with weightmap.config.override("load.protection", "guard"):
        with pytest.raises(weightmap.UnsupportedError, match="only a Checkpoint can tell"):
            weightmap.torch.load(STATE)


def test_a_guarded_checkpoint_tells_that_what_was_loaded_is_lost(tmp_path, python):
    path = save({"w": torch.ones(1 << 20)}, tmp_path)
    run = python("""
import os, sys, weightmap
checkpoint = weightmap.open(sys.argv[1], protection="guard")
loaded = weightmap.torch.load(checkpoint)["w"]
os.truncate(sys.argv[1], 4096)
print(float(loaded[1 << 19:].sum()), checkpoint.state())
""", path)
    assert (run.returncode, run.stdout) == (0, "0.0 lost\n"), run.stderr


def test_takes_torchs_signature():
    path = DATA / "state_dict.pt"
    expected = by_torch(path)
    assert_same(expected, weightmap.torch.load(path, None, None, weights_only=None, mmap=None))
    assert_same(expected, weightmap.torch.load(path, "cpu", None, weights_only=True, mmap=True))
    ours = list(inspect.signature(weightmap.torch.load).parameters.values())
    theirs = list(inspect.signature(torch.load).parameters.values())[:-1]
    assert [(p.name, p.kind, p.default) for p in ours[: len(theirs)]] == [
        (p.name, p.kind, p.default) for p in theirs
    ]


def test_leaves_no_map_location_behind_when_it_fails(tmp_path):
    with pytest.raises(pickle.UnpicklingError):
        weightmap.torch.load(DATA / "module.pt", map_location="cpu")
    assert torch.serialization._serialization_tls.map_location is None


def test_registered_tensor_subclasses_keep_their_state(tmp_path):
    path = save({"t": torch.ones(2).as_subclass(Tagged)}, tmp_path)
    with torch.serialization.safe_globals([Tagged]):
        loaded = weightmap.torch.load(path)
        assert_same(by_torch(path), loaded)
    assert type(loaded["t"]) is Tagged


class Tagged(torch.Tensor):
    pass


# --- a part of a file


@pytest.fixture
def training(tmp_path):
    """A checkpoint of a training run, with what torch refuses."""
    weight = torch.arange(6.0)
    value = {
        "epoch": 3,
        "model": collections.OrderedDict({"a.b": weight, "tied": weight, "row": weight[2:4]}),
        "optimizer": {"state": {0: {"step": torch.tensor(7.0)}}, "param_groups": [{"lr": 0.5}]},
        "args": argparse.Namespace(lr=0.5),
        "best": collections.defaultdict(list, {"loss": [1.0]}),
        "extra": Unknown(),
    }
    return save(value, tmp_path)


@pytest.mark.parametrize("only, keys", [
    ("model", ["model"]),
    (("model",), ["model"]),
    ("epoch", ["epoch"]),
    ("model.a.b", ["model", "a.b"]),
    ("optimizer.state.0", ["optimizer", "state", 0]),
    (("optimizer", "state", 0, "step"), ["optimizer", "state", 0, "step"]),
    ("optimizer.param_groups.0.lr", ["optimizer", "param_groups", 0, "lr"]),
])
def test_only_loads_one_part(training, only, keys):
    expected = torch.load(training, mmap=True, weights_only=False)
    for key in keys:
        expected = expected[key]
    assert_same(expected, weightmap.torch.load(training, only=only))


@pytest.mark.parametrize("only, hint", [
    ("none", ""), ("model.a", ""), ("model.", ""), ("", ""), ("epoch.real", ""), ("a" * 500, ""),
    (".model", '; did you mean "model"?'), ("model..a.b", '; did you mean "model.a.b"?'),
    ("modell", '; did you mean "model"?'), ("optimizer.stat", '; did you mean "optimizer.state"?'),
    ("epoc", '; did you mean "epoch"?'),
])
def test_only_names_what_is_not_there(training, only, hint):
    for places in (only, ["model", only]):
        with pytest.raises(weightmap.TensorNotFoundError) as caught:
            weightmap.torch.load(training, only=places)
        assert caught.value.message == f"has nothing called {only!r}{hint}"
        assert caught.value.file == str(training)


@pytest.mark.parametrize("only, error, message", [
    (("model", 7), weightmap.InvalidArgumentError, "has nothing at .*model.*7"),
    (("modell",), weightmap.TensorNotFoundError, "modell.*did you mean \"model\""),
    (("model", "optimizer"), weightmap.TensorNotFoundError,
     r"a tuple is one path: several places are a list, \['model', 'optimizer'\]"),
], ids=["a number", "a hint", "several places"])
def test_a_path_that_leads_nowhere_is_told(training, only, error, message):
    with pytest.raises(error, match=message) as caught:
        weightmap.torch.load(training, only=only)
    assert caught.value.file == str(training)


def test_a_hint_names_three_at_most(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({name: torch.ones(1) for name in ("ema_1", "ema_2", "ema_3", "ema_4")}, path)
    with pytest.raises(weightmap.TensorNotFoundError) as caught:
        weightmap.open(path).subtree("ema_5")
    assert caught.value.message == (
        "has nothing called 'ema_5'; did you mean \"ema_4\", \"ema_3\" or \"ema_2\"?"
    )


def test_only_takes_several_parts(training):
    whole = torch.load(training, mmap=True, weights_only=False)
    parts = weightmap.torch.load(training, only=["model", "optimizer.param_groups", ("epoch",)])
    assert list(parts) == ["model", "optimizer.param_groups", ("epoch",)]
    assert_same(whole["model"], parts["model"])
    assert_same(whole["optimizer"]["param_groups"], parts["optimizer.param_groups"])
    assert parts[("epoch",)] == whole["epoch"]
    assert weightmap.torch.load(training, only=[]) == {}


def test_parts_share_the_storages_that_they_share_in_the_file(tmp_path):
    path = tmp_path / "model.pt"
    w = torch.arange(4.0)
    torch.save({"model": {"w": w}, "ema": {"w": w[1:]}}, path)
    parts = weightmap.torch.load(path, only=["model", "ema"])
    parts["model"]["w"][1] = 7
    assert parts["ema"]["w"].tolist() == [7, 2, 3]


@pytest.mark.parametrize("only", ["extra", ["model", "extra"]])
def test_only_refuses_what_the_part_itself_needs(training, only):
    with pytest.raises(weightmap.UnsafePickleError) as caught:
        weightmap.torch.load(training, only=only)
    with pytest.raises(weightmap.UnsafePickleError):
        weightmap.torch.load(training, on_unknown="refuse")
    assert f"GLOBAL {__name__}.Unknown was not" in str(caught.value)
    assert "Namespace" not in str(caught.value)


def test_data_of_numpy_is_what_pickle_makes_of_it(tmp_path):
    numpy = pytest.importorskip("numpy")
    path = tmp_path / "arrays.pt"
    torch.save(
        [numpy.arange(10), numpy.ones((2, 3), order="F"), numpy.arange(3, dtype=">i4"), numpy.array(3.0),
         numpy.array(["a", "bcd"]), numpy.float32(1), numpy.str_("abc"), numpy.zeros((0, 3)),
         numpy.ones(3, dtype=bool), numpy.dtype("f4"), numpy.dtype(">f8"), numpy.dtype("U3"), b""],
        path,
    )
    expected = torch.load(path, weights_only=False)
    for one, other in zip(expected, weightmap.torch.load(path), strict=True):
        assert type(one) is type(other)
        assert numpy.array_equal(one, other)
        if isinstance(one, numpy.ndarray):
            assert (one.dtype, one.strides) == (other.dtype, other.strides)
            assert other.flags.writeable


class Reduced:
    def __init__(self, *reduced):
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


@pytest.mark.parametrize("make", [
    lambda numpy: numpy.array([None], dtype=object),
    lambda numpy: numpy.zeros(2, dtype="M8[Y]"),
    lambda numpy: numpy.zeros(2, dtype=[("a", "f4")]),
    lambda numpy: Reduced(numpy._core.multiarray._reconstruct, (numpy.ndarray, (1 << 40,), b"b")),
    lambda numpy: Reduced(numpy._core.multiarray._reconstruct, (numpy.ndarray, (0,), b"b"),
                          (1, (1 << 20,), numpy.dtype("f4"), False, b"abcd")),
    lambda numpy: Reduced(numpy._core.multiarray.scalar, (numpy.dtype("f4"), b"abc")),
    lambda numpy: Reduced(numpy.dtype, ("f4", False, True), (3, "<", None, ("a",), {}, 4, 4, 63)),
    lambda numpy: Reduced(numpy.dtype, ("O8", False, True)),
    lambda numpy: Reduced(numpy.ndarray, ((1 << 40,),)),
], ids=range(9))
def test_other_data_of_numpy_is_refused(make, tmp_path):
    numpy = pytest.importorskip("numpy")
    path = tmp_path / "arrays.pt"
    torch.save([make(numpy)], path)
    with pytest.raises(weightmap.UnsafePickleError, match="only its arrays, numbers and dtypes of numbers"):
        weightmap.torch.load(path)


def test_a_name_that_leads_along_very_many_ways_is_given_up(archive):
    # {"a": itself, "a.a": itself}
    path = archive(b"\x80\x02}q\x00(X\x01\x00\x00\x00ah\x00X\x03\x00\x00\x00a.ah\x00u.")
    with pytest.raises(weightmap.TensorNotFoundError, match="has nothing called"):
        weightmap.torch.load(path, only=".".join("a" * 1000) + ".b")


def test_what_is_unknown_may_become_an_object(training):
    loaded = weightmap.torch.load(training, on_unknown="object")
    known = ("epoch", "model", "optimizer")
    theirs = torch.load(training, mmap=True, weights_only=False)
    assert_same({key: theirs[key] for key in known}, {key: loaded[key] for key in known})
    assert list(loaded) == [*known, "args", "best", "extra"]
    assert loaded["args"] == argparse.Namespace(lr=0.5)
    assert loaded["best"] == {"loss": [1.0]} and loaded["best"].default_factory is list
    assert type(loaded["extra"]) is weightmap.Object
    assert loaded["extra"].callable == weightmap.Global(__name__, "Unknown")
    assert loaded["extra"].state["weight"].tolist() == [1.0, 1.0]
    assert type(loaded["extra"].state["weight"]) is torch.Tensor


@pytest.mark.parametrize("name", FIXTURES)
def test_loads_the_same_whether_unknown_names_are_refused_or_not(name):
    try:
        expected = weightmap.torch.load(DATA / name)
    except (pickle.UnpicklingError, weightmap.UnsupportedError):  # a dtype that torch lacks
        return
    assert_same(expected, weightmap.torch.load(DATA / name, on_unknown="object"))


# --- patch()


def test_patch_takes_mmap_loads_over_and_gives_torch_back():
    original = torch.load
    with weightmap.patch(files="mmap") as report:
        state = torch.load(STATE, mmap=True)
        torch.serialization.load(str(STATE), mmap=True, weights_only=True)
    assert len(report.served) == 2
    assert torch.load is original and torch.serialization.load is original
    assert_same(by_torch(STATE), state)


def test_patch_leaves_the_rest_to_torch():
    with weightmap.patch(files="mmap") as report:
        torch.load(STATE)
        torch.load(STATE, mmap=True, weights_only=False)
        with open(STATE, "rb") as stream:
            with pytest.raises(ValueError, match="f must be a file path"):
                torch.load(stream, mmap=True)
            stream.seek(0)
            assert "steps" in torch.load(stream)
        torch.load(DATA / "legacy" / "dict.pt")
        assert report.served == []
        with pytest.raises(FileNotFoundError):
            torch.load(DATA / "missing.pt", mmap=True)


@pytest.mark.parametrize("name, kind, message", [
    ("page.pt", weightmap.NotACheckpointError, "is a web page"),
    ("lfs_pointer.pt", weightmap.NotACheckpointError, "Git LFS pointer"),
    ("truncated.pt", weightmap.CorruptError, "is truncated"),
])
def test_patch_says_what_the_file_is(name, kind, message):
    with weightmap.patch(files="mmap"):
        with pytest.raises(kind, match=message):
            torch.load(DATA / "strangers" / name, mmap=True)


@torch_since((2, 13), "torch.load of safetensors files")
def test_patch_leaves_safetensors_to_torch(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch", reason="writes a safetensors file")
    path = tmp_path / "model.safetensors"
    safetensors.save_file({"w": torch.arange(3)}, path)
    with weightmap.patch(files="mmap"):
        assert torch.load(path, mmap=True)["w"].tolist() == [0, 1, 2]


@torch_since((2, 7), "torch.utils.serialization.config")
def test_patch_follows_torchs_own_settings(tmp_path):
    path = save({"w": torch.ones(4)}, tmp_path)
    from torch.utils.serialization import config

    with weightmap.patch(files="mmap") as report:
        with config.patch("load.mmap", True):
            torch.load(path)
        assert len(report.served) == 1
        with torch.serialization.set_default_mmap_options(mmap.MAP_SHARED):
            torch.load(path, mmap=True)["w"].mul_(2)
    assert torch.load(path)["w"].tolist() == [2.0] * 4


def test_patch_ends_with_an_exception():
    original, original_save = torch.load, torch.save
    with pytest.raises(KeyError):
        with weightmap.patch(files="mmap", save=True):
            raise KeyError("x")
    assert torch.load is original and torch.save is original_save


def test_a_torch_without_a_name_that_is_needed_is_an_import_error(python):
    program = """
import torch
del torch._utils._rebuild_tensor_v3
try:
    import weightmap.torch
except ImportError as error:
    print(error)
"""
    run = python(program)
    assert run.returncode == 0, run.stderr
    assert f"needs torch 2.6, or a later one that has what it uses; torch {torch.__version__} has not" in run.stdout
    assert run.stdout.endswith(": torch._utils._rebuild_tensor_v3\n")


# --- together with a model


def test_an_optimizer_goes_on_from_a_mapped_checkpoint(tmp_path):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    path = save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path)
    loaded = weightmap.torch.load(path)
    again = torch.nn.Linear(3, 2)
    again.load_state_dict(loaded["model"])
    resumed = torch.optim.AdamW(again.parameters())
    resumed.load_state_dict(loaded["optimizer"])
    for module, steps in ((model, optimizer), (again, resumed)):
        steps.zero_grad()
        module(torch.ones(1, 3)).sum().backward()
        steps.step()
    assert torch.equal(model.weight, again.weight)


def test_help_shows_each_option_of_load():
    parameters = inspect.signature(weightmap.torch.load).parameters
    own = ["f", "map_location", "pickle_module", "weights_only", "mmap", "only", "on_unknown"]
    own += ["safe_globals", "variant", "dtypes", "access"]
    assert list(parameters) == [*own, *_core.option_values()]


def test_the_environment_is_read_by_the_library_and_named_where_it_is_wrong(tmp_path, monkeypatch):
    path = save({"w": torch.ones(4)}, tmp_path)
    monkeypatch.setenv("WEIGHTMAP_SHARING", "perhaps")
    with pytest.raises(weightmap.InvalidArgumentError, match="variable WEIGHTMAP_SHARING must be"):
        weightmap.torch.load(path)
    monkeypatch.setenv("WEIGHTMAP_SHARING", "shared")
    loaded = weightmap.torch.load(path)
    loaded["w"].mul_(3)  # on a page of its own: shared memory is not mapped for writing unasked
    assert torch.load(path)["w"].tolist() == [1.0] * 4


@pytest.mark.parametrize("metadata", [
    b"}X\x03\0\0\0negX\x03\0\0\0yess", b"}X\x03\0\0\0neg}s", b"}X\x03\0\0\0\xed\xa0\x80\x88s",
], ids=["text", "dict", "surrogate"])
def test_metadata_that_torch_does_not_take_is_an_error_of_weightmap(archive, metadata):
    from conftest import _tensor, _text

    tensor = _tensor("0", 4)[:-2] + metadata + b"tR"
    path = archive(b"\x80\x02}" + _text("w") + tensor + b"s.", {"0": bytes(16)})
    with pytest.raises(weightmap.Error):
        weightmap.torch.load(path)


def test_patch_under_skip_data_does_what_torch_does(tmp_path):
    path = save({"w": torch.ones(4)}, tmp_path)
    with weightmap.patch(files="mmap"), torch.serialization.skip_data():
        if torch_version() >= (2, 7):
            assert torch.load(path, mmap=True)["w"].shape == (4,)
        else:
            with pytest.raises(RuntimeError, match="skip_data"):
                torch.load(path, mmap=True)
