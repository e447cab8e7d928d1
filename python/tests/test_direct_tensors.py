"""Tensors that weightmap.torch.load() and Tensor.torch() make by DLPack, without torch's own functions.

Such a tensor has version 0, one that torch's functions made has 1, which is how the tests tell which
way was taken; everything else about the two must be equal.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import os
import pathlib
import random
import sys
import threading
import zipfile

import pytest

torch = pytest.importorskip("torch", reason="compares with torch, which is not installed")

import weightmap  # noqa: E402

import weightmap.torch  # noqa: E402
from conftest import torch_version  # noqa: E402
from same_objects import Comparison, assert_same, by_torch, save  # noqa: E402
from weightmap._torch import direct as _direct
from weightmap._torch import private, way

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
sys.path.insert(0, str(ROOT / "tests" / "interop"))
import random_test  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"), pytest.mark.usefixtures("only_new_objects")
]


def without_door(path, *arguments, **options):
    """weightmap.torch.load() as if nothing could be made directly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_direct, "are_allowed", lambda *ignored: False)
        return weightmap.torch.load(path, *arguments, **options)


def is_direct(tensor):
    assert tensor._version in (0, 1)
    return tensor._version == 0


class Rebuilt:
    """Pickled as a call with these arguments, which may be more than torch.save would write."""

    def __init__(self, *arguments, function=torch._utils._rebuild_tensor_v2):
        self._call = function, arguments

    def __reduce__(self):
        return self._call


def typed(tensor):
    return tensor._typed_storage()


# --- which tensors are made so, and that they are the same

DIRECT = {
    "float64": torch.arange(3, dtype=torch.float64),
    "float32": torch.arange(6.0).reshape(2, 3),
    "float16": torch.ones(2, dtype=torch.float16),
    "bfloat16": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "int64": torch.tensor([-(2**62), 7]),
    "int32": torch.tensor([-7], dtype=torch.int32),
    "int16": torch.tensor([-7], dtype=torch.int16),
    "int8": torch.tensor([-7], dtype=torch.int8),
    "uint8": torch.tensor([7, 255], dtype=torch.uint8),
    "bool": torch.tensor([True, False]),
    "complex64": torch.tensor([1 + 2j]),
    "complex128": torch.tensor([1 - 2j], dtype=torch.complex128),
    "uint16": torch.tensor([1, 65535], dtype=torch.uint16),
    "uint32": torch.tensor([1, 2**32 - 1], dtype=torch.uint32),
    "uint64": torch.tensor([1, 2**63 - 1], dtype=torch.uint64),
    "scalar": torch.tensor(3.0),
    "transposed": torch.arange(6.0).reshape(2, 3).t(),
    "permuted": torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
    "channels_last": torch.ones(1, 2, 3, 4).to(memory_format=torch.channels_last),
    "rank_8": torch.ones(1, 1, 1, 1, 1, 1, 1, 2),
    "odd_stride": torch.arange(3.0).as_strided((1, 3), (7, 1)),
    "expanded": torch.ones(1).expand(4, 3),
    "every_second": torch.arange(5.0)[::2],
    "requires_grad": torch.ones(2, requires_grad=True),
    "parameter": torch.nn.Parameter(torch.ones(2, 2)),
    "frozen_parameter": torch.nn.Parameter(torch.ones(2), requires_grad=False),
    "integer_parameter": torch.nn.Parameter(torch.ones(2, dtype=torch.int8), requires_grad=False),
}
BASE = torch.arange(10.0)
NOT_DIRECT = {
    "empty": torch.ones(0),
    "empty_matrix": torch.ones(3, 0, 2),
    "head": torch.arange(10.0)[:4],
    "tail": torch.arange(10.0)[4:],
    "conjugate": torch.tensor([1 + 2j]).conj(),
    "negative": torch._neg_view(torch.ones(2)),
    "rank_9": torch.ones(1, 1, 1, 1, 1, 1, 1, 1, 2),
    "quantized": torch.quantize_per_tensor(torch.ones(2), 0.1, 1, torch.qint8),
    "complex32": torch.ones(2, dtype=torch.complex32),
}
# The DLPack of older torches has no word for these.
FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
(DIRECT if torch_version() >= (2, 10) else NOT_DIRECT).update(
    {name: torch.ones(3).to(getattr(torch, name)) for name in FLOAT8 if hasattr(torch, name)}
)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    tied = torch.arange(4.0)
    state = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).state_dict()
    attributed = torch.nn.Parameter(torch.ones(3))
    attributed.tag = {"rank": 1}
    value = {
        **DIRECT,
        **NOT_DIRECT,
        "tied": [tied, tied, tied.view(2, 2), tied[1:]],
        "tied_parameters": [torch.nn.Parameter(tied), torch.nn.Parameter(tied)],
        "module": state,
        "with_state": attributed,
        "buffer": torch.nn.Buffer(torch.ones(2)),
        "sparse": torch.eye(3).to_sparse(),
        "storages": [BASE._typed_storage(), BASE, torch.ones(3).untyped_storage()],
        "nested": {"deep": [(torch.ones(1), 1, "x"), {2: torch.zeros(1)}]},
    }
    return save(value, tmp_path_factory.mktemp("mixed"))


def test_a_file_of_everything_gives_what_torch_gives(mixed):
    ours, theirs = weightmap.torch.load(mixed), by_torch(mixed)
    assert assert_same(theirs, ours).tensors > len(DIRECT) + len(NOT_DIRECT)


def test_a_file_of_everything_gives_the_same_by_both_ways(mixed):
    assert_same(without_door(mixed), weightmap.torch.load(mixed))


@pytest.mark.parametrize("name", [*DIRECT, *NOT_DIRECT])
def test_is_made_directly_or_by_torchs_functions(mixed, name):
    assert is_direct(weightmap.torch.load(mixed)[name]) == (name in DIRECT)
    assert not is_direct(without_door(mixed)[name])


def test_each_fact_that_torch_tells_of_a_tensor_is_the_same(mixed):
    ours, theirs = weightmap.torch.load(mixed), by_torch(mixed)
    for name in DIRECT:
        left, right = (facts_of(loaded[name]) for loaded in (ours, theirs))
        assert (left.pop("_version"), right.pop("_version")) == (0, 1)
        assert left == right, name


def facts_of(tensor):
    storage = tensor.untyped_storage()
    return {
        "type": type(tensor), "dtype": tensor.dtype, "shape": tensor.shape,
        "stride": tensor.stride(), "offset": tensor.storage_offset(), "attributes": vars(tensor),
        "requires_grad": tensor.requires_grad, "grad": tensor.grad, "grad_fn": tensor.grad_fn,
        "is_leaf": tensor.is_leaf, "is_view": tensor._is_view(), "base": tensor._base,
        "backward_hooks": (type(tensor._backward_hooks), tensor._backward_hooks),
        "is_shared": tensor.is_shared(), "is_inference": tensor.is_inference(),
        "is_contiguous": tensor.is_contiguous(), "layout": tensor.layout,
        "keys": str(torch._C._dispatch_keys(tensor)), "output_nr": tensor.output_nr,
        "storage": (type(storage), storage.nbytes(), storage.resizable(), storage.filename,
                    storage.device),
        "bytes": bytes(storage), "_version": tensor._version,
    }


def test_backward_hooks_are_a_dict_of_each_tensor(mixed):
    loaded = weightmap.torch.load(mixed)
    one, other = loaded["float32"]._backward_hooks, loaded["float64"]._backward_hooks
    assert type(one) is type(other) is collections.OrderedDict
    assert one is not other


def test_a_gradient_flows_into_what_was_made_directly(mixed):
    weight = weightmap.torch.load(mixed)["parameter"]
    (weight * torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert weight.grad.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    with torch.no_grad():
        weight.add_(1)
    assert weight.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_random_objects_are_the_same_by_both_ways(tmp_path):
    seed = int(os.environ.get("INTEROP_SEED", random.randrange(2**32)))
    count = int(os.environ.get("INTEROP_FILES", 20))
    print(f"seed {seed}")
    source = random.Random(seed)
    for number in range(count):
        value = random_test.make_object(number, source)
        path, _ = random_test.save(value, tmp_path, number, source)
        fault = Comparison().difference(without_door(path), weightmap.torch.load(path))
        assert fault is None, f"file {number} of seed {seed}: {fault}"
        path.unlink()


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("*.pt") if path.name
                                        not in ("module.pt", "torchscript.pt", "scripted.pt",
                                                "rezipped_deflated.pt", "from_cuda.pt")))
def test_fixtures_are_the_same_by_both_ways(name):
    assert_same(outcome(without_door, DATA / name), outcome(weightmap.torch.load, DATA / name))


def test_in_inference_mode_tensors_are_inference_tensors(tmp_path):
    path = save({"a": torch.ones(2)}, tmp_path)
    with torch.inference_mode():
        ours, theirs = weightmap.torch.load(path), by_torch(path)
        assert ours["a"].is_inference() and theirs["a"].is_inference()
    assert_same(theirs, ours)


# --- storages that others use, too

WHOLE = torch.arange(6.0)
PATTERNS = {
    "twice": [WHOLE, WHOLE.view(6)],
    "whole, part": [WHOLE, WHOLE[2:]],
    "part, whole": [WHOLE[2:], WHOLE],
    "whole, storage": [WHOLE, WHOLE._typed_storage()],
    "storage, whole": [WHOLE._typed_storage(), WHOLE],
    "parameters": [torch.nn.Parameter(WHOLE), torch.nn.Parameter(WHOLE)],
    "parameter, part, whole": [torch.nn.Parameter(WHOLE), WHOLE[:3], WHOLE],
    "other shapes": [WHOLE, WHOLE.view(2, 3), WHOLE.view(2, 3).t(), WHOLE[::5]],
}


@pytest.mark.parametrize("name", PATTERNS)
def test_one_storage_stays_one(tmp_path, name):
    loaded = weightmap.torch.load(save(PATTERNS[name], tmp_path))
    assert_same(by_torch(tmp_path / "model.pt"), loaded)
    pointers = {thing.data_ptr() - 4 * getattr(thing, "storage_offset", int)() for thing in loaded}
    assert len(pointers) == 1
    tensors = [thing for thing in loaded if isinstance(thing, torch.Tensor)]
    tensors[0].untyped_storage()[0] = 77
    assert {thing.untyped_storage()[0] for thing in tensors} == {77}


def test_untyped_tensors_that_share_a_storage_still_do(tmp_path):
    numbers = torch.tensor([1, 2, 3, 4], dtype=torch.uint16)
    path = save([numbers, numbers.view(torch.uint32), numbers.untyped_storage()], tmp_path)
    loaded = weightmap.torch.load(path)
    assert_same(by_torch(path), loaded)
    assert is_direct(loaded[0]) and not is_direct(loaded[1])
    assert loaded[0].data_ptr() == loaded[1].data_ptr() == loaded[2].data_ptr()


def test_hooks_that_are_mentioned_elsewhere_are_the_same_object(tmp_path):
    hooks = collections.OrderedDict()

    def one(fill):
        return Rebuilt(typed(torch.full((2,), fill)), 0, (2,), (1,), False, hooks)

    path = save([hooks, one(1.0), one(2.0), {"again": hooks}], tmp_path)
    for load in (by_torch, weightmap.torch.load, without_door):
        first, a, b, last = load(path)
        assert a._backward_hooks is first and b._backward_hooks is first and last["again"] is first
    assert is_direct(weightmap.torch.load(path)[1])
    path = save([one(1.0), hooks], tmp_path)
    for load in (by_torch, weightmap.torch.load):
        a, last = load(path)
        assert a._backward_hooks is last


def outcome(load, path):
    """What came of it: the objects, or the error."""
    try:
        return load(path)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("state", [(typed(torch.zeros(3)), 0, (3,), (1,)), {"tag": 1}, None])
def test_a_state_that_a_tensor_is_given_is_not_lost(tmp_path, state):
    class WithState(Rebuilt):
        def __reduce__(self):
            return *super().__reduce__(), state

    call = WithState(typed(torch.ones(2)), 0, (2,), (1,), False, collections.OrderedDict())
    path = save([call, torch.ones(1)], tmp_path)
    left, right = outcome(without_door, path), outcome(weightmap.torch.load, path)
    assert_same(left, right)
    assert (state is None) == (type(right) is list and is_direct(right[0]))


def parameter_of(tensor, *arguments):
    return Rebuilt(tensor, *arguments, function=torch._utils._rebuild_parameter)


def test_a_parameters_tensor_that_is_mentioned_elsewhere_is_the_same_object(tmp_path):
    def inner():
        return Rebuilt(typed(torch.ones(2)), 0, (2,), (1,), False, collections.OrderedDict())

    before, behind = inner(), inner()
    hooks = collections.OrderedDict()
    path = save(
        [before, parameter_of(before, True, collections.OrderedDict()),
         parameter_of(behind, False, hooks), behind, hooks, parameter_of(behind, True, hooks)],
        tmp_path,
    )
    theirs, ours = by_torch(path), weightmap.torch.load(path)
    assert_same(theirs, ours)
    for one, parameter, frozen, other, empty, again in (theirs, ours):
        assert type(one) is type(other) is torch.Tensor
        assert one.data_ptr() == parameter.data_ptr()
        assert other.data_ptr() == frozen.data_ptr() == again.data_ptr()
        assert frozen._backward_hooks is empty is again._backward_hooks
    assert [is_direct(tensor) for tensor in (ours[1], ours[2])] == [True, True]


def hooks():
    return collections.OrderedDict()


@pytest.mark.parametrize("value", [
    parameter_of(torch.ones(4)[1:], True, hooks()),
    parameter_of(torch.ones(2), True, None),
    parameter_of(torch.ones(2), False, {}),
    parameter_of(torch.nn.Parameter(torch.ones(2)), True, hooks()),
    *(Rebuilt(typed(torch.arange(2.0)), *arguments) for arguments in [
        (0, (2,), (1,), False, None),
        (0, torch.Size([2]), (1,), False, hooks()),
        (0, (2,), (1,), False, {}),
        (0, (2,), (1,), False, hooks(), None),
        (0, (2,), (1,), False, hooks(), {}),
        (1, (1,), (1,), False, hooks()),
        (0, (1,), (1,), False, hooks()),
        (0, (2, 2), (1, 0), False, hooks()),
        (0, (), (), False, hooks()),
    ]),
])
def test_what_torch_save_would_not_write_is_what_torch_makes(tmp_path, value):
    path = save([value, torch.ones(1)], tmp_path)
    theirs, ours = by_torch(path), weightmap.torch.load(path)
    assert_same(theirs, ours)
    assert ours[0]._backward_hooks == theirs[0]._backward_hooks
    assert type(ours[0]._backward_hooks) is type(theirs[0]._backward_hooks)


INTEGERS_WITH_GRADIENT = Rebuilt(
    typed(torch.arange(2)), 0, (2,), (1,), True, collections.OrderedDict()
)


@pytest.mark.parametrize("value, message", [
    (INTEGERS_WITH_GRADIENT, "can require gradients"),
    (torch.ones(2).to(torch.float8_e4m3fn).requires_grad_(), "a leaf Variable that requires"),
])
def test_a_tensor_that_cannot_require_a_gradient_fails_as_with_torch(tmp_path, value, message):
    path = save([value], tmp_path)
    errors = []
    for load in (by_torch, weightmap.torch.load):
        with pytest.raises(RuntimeError, match=message) as caught:
            load(path)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def test_a_tensor_that_lies_at_an_odd_address_is_made_by_torchs_functions(tmp_path):
    source = save({"w": torch.arange(4.0), "b": torch.ones(3, dtype=torch.uint8)}, tmp_path)
    path = tmp_path / "again.pt"
    for pad in range(4):
        with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
            new.writestr("model/" + "pad"[:pad], "")
            for name in old.namelist():
                new.writestr(name, old.read(name))
        loaded = weightmap.torch.load(path)
        assert is_direct(loaded["w"]) == (loaded["w"].data_ptr() % 4 == 0)
        assert loaded["w"].tolist() == [0.0, 1.0, 2.0, 3.0]
        assert is_direct(loaded["b"])


# --- when it is switched off

class Watching(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), options=None):
        return function(*arguments, **(options or {}))


class Dispatching(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        return function(*arguments, **(options or {}))


@contextlib.contextmanager
def own_package():
    before = list(torch.serialization._package_registry)
    torch.serialization.register_package(0, lambda storage: None, lambda storage, location: None)
    try:
        yield
    finally:
        torch.serialization._package_registry[:] = before


@contextlib.contextmanager
def replaced(owner, name):
    original = getattr(owner, name)

    @functools.wraps(original)
    def replacement(*arguments, **options):
        return original(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, replacement)
        yield


SWITCHES = {
    "TorchFunctionMode": Watching,
    "TorchDispatchMode": Dispatching,
    "a device": lambda: torch.device("cpu"),
    "a package": own_package,
    "_rebuild_tensor": lambda: replaced(torch._utils, "_rebuild_tensor"),
    "_rebuild_tensor_v2": lambda: replaced(torch._utils, "_rebuild_tensor_v2"),
    "_rebuild_tensor_v3": lambda: replaced(torch._utils, "_rebuild_tensor_v3"),
    **({} if torch_version() < (2, 7) else {
        "_restore_device_fake_mode": lambda: replaced(torch._utils, "_restore_device_fake_mode")}),
    "default_restore_location": lambda: replaced(torch.serialization, "default_restore_location"),
    "_get_restore_location": lambda: replaced(torch.serialization, "_get_restore_location"),
    "_cpu_deserialize": lambda: replaced(torch.serialization, "_cpu_deserialize"),
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_is_switched_off_by(tmp_path, switch):
    path = save({"a": torch.ones(2), "b": torch.zeros(3, dtype=torch.int8)}, tmp_path)
    with SWITCHES[switch]():
        ours, theirs = weightmap.torch.load(path), by_torch(path)
    assert not is_direct(ours["a"]) and not is_direct(ours["b"])
    assert_same(theirs, ours)
    assert is_direct(weightmap.torch.load(path)["a"])  # and on again


@pytest.mark.parametrize("location", [None, "cpu", torch.device("cpu")])
def test_is_on_where_tensors_stay_on_the_cpu(tmp_path, location):
    path = save({"a": torch.ones(2)}, tmp_path)
    loaded = weightmap.torch.load(path, location)
    assert is_direct(loaded["a"])
    assert_same(by_torch(path, map_location=location), loaded)


@pytest.mark.parametrize(
    "location",
    [{"cpu": "cpu"}, lambda storage, where: storage, lambda storage, where: None, b"cpu", "cpu:0",
     torch.device("cpu", 0)],
)
def test_is_switched_off_by_map_location(tmp_path, location):
    path = save({"a": torch.ones(2)}, tmp_path)
    try:
        theirs = by_torch(path, map_location=location)
    except Exception as error:
        with pytest.raises(type(error)):
            weightmap.torch.load(path, location)
        return
    loaded = weightmap.torch.load(path, location)
    assert not is_direct(loaded["a"])
    assert_same(theirs, loaded)


def test_is_switched_off_for_meta_and_fake_tensors_and_skipped_data(tmp_path):
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    path = save({"a": torch.ones(2)}, tmp_path)
    assert weightmap.torch.load(path, "meta")["a"].is_meta
    with FakeTensorMode():
        assert isinstance(weightmap.torch.load(path)["a"], FakeTensor)
    with FakeTensorMode() as mode, torch._guards.tracing(torch._guards.TracingContext(mode)):
        pass
    context = torch._guards.TracingContext(FakeTensorMode())
    with torch._guards.tracing(context):
        assert not _direct.are_allowed(None, False)
    with torch.serialization.skip_data():
        assert not _direct.are_allowed(None, False)
        skipped = weightmap.torch.load(path)["a"]
    assert not is_direct(skipped)
    assert _direct.are_allowed(None, False)


def test_is_switched_off_for_the_other_byte_order():
    assert not _direct.are_allowed(None, True)
    loaded = weightmap.torch.load(DATA / "big_endian.pt")
    tensors = [value for value in loaded.values() if isinstance(value, torch.Tensor)]
    assert tensors and not any(is_direct(tensor) for tensor in tensors if tensor.numel())


@pytest.mark.parametrize("run", [
    lambda function: torch.vmap(function)(torch.ones(2, 3)),
    lambda function: torch.jit.trace(function, torch.ones(1), check_trace=False),
], ids=["a transform", "a trace"])
def test_is_switched_off_inside_of(tmp_path, run):
    path = save({"a": torch.ones(2)}, tmp_path)
    seen = []

    def function(x):
        seen.append(is_direct(weightmap.torch.load(path)["a"]))
        return x + 1

    run(function)
    assert seen == [False]


def test_a_replaced_rebuild_function_is_called(tmp_path):
    path = save({"a": torch.ones(2), "b": torch.ones(3)}, tmp_path)
    original = torch._utils._rebuild_tensor_v2
    calls = []

    @functools.wraps(original)
    def replacement(*arguments):
        calls.append(len(arguments))
        return original(*arguments)

    allowed = torch._weights_only_unpickler._get_allowed_globals
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch._utils, "_rebuild_tensor_v2", replacement)
        allowed.cache_clear()
        assert_same(by_torch(path), weightmap.torch.load(path))
    allowed.cache_clear()
    assert calls == [6, 6, 6, 6]


def test_a_function_that_the_list_of_allowed_names_has_instead_is_called(tmp_path, monkeypatch):
    path = save({"a": torch.ones(2)}, tmp_path)
    original = torch._utils._rebuild_tensor_v2
    calls = []

    def other(*arguments):
        calls.append(len(arguments))
        return original(*arguments)

    allowed = torch._weights_only_unpickler._get_allowed_globals()
    monkeypatch.setitem(allowed, "torch._utils._rebuild_tensor_v2", other)
    assert not is_direct(weightmap.torch.load(path)["a"])
    assert calls == [6]


def test_a_type_of_storage_that_is_not_allowed_is_refused(tmp_path, monkeypatch):
    path = save({"a": torch.ones(2)}, tmp_path)
    monkeypatch.delitem(torch._weights_only_unpickler._get_allowed_globals(), "torch.FloatStorage")
    with pytest.raises(weightmap.UnsafePickleError, match="torch.FloatStorage"):
        weightmap.torch.load(path)


# --- a torch that has not what it needs

# Imports torch once, and makes each change in a process of its own.
LOAD_AND_TELL = """
import os
import sys
import torch
door = torch._C._from_dlpack

def tell(change):
    exec(change, globals())
    import weightmap.torch
    loaded = weightmap.torch.load(sys.argv[1])["a"]
    taken = weightmap.open(sys.argv[1])["a"].torch()
    print(type(loaded).__name__, loaded.tolist(), loaded._version, taken.tolist(), taken._version)

for change in sys.argv[2:]:
    child = os.fork()
    if child == 0:
        tell(change)
        sys.exit()
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(1)
"""


def test_a_torch_without_a_door_is_used_as_ever(tmp_path, python):
    changes = {
        "": 0,
        "torch.utils.dlpack.from_dlpack = door\ndel torch._C._from_dlpack": 0,
        "torch.utils.dlpack.from_dlpack = door\n"
        "torch._C._from_dlpack = lambda capsule: 'another type'": 0,
        "def refuse(capsule): raise RuntimeError('unsupported dtype')\n"
        "torch.utils.dlpack.from_dlpack = door\n"
        "torch._C._from_dlpack = refuse": 0,
        # The other function calls it, in older torches by a name of its own.
        "del torch._C._from_dlpack": 1 if torch_version() >= (2, 9) else 0,
        "del torch._C._from_dlpack, torch.utils.dlpack.from_dlpack": 1,
        "torch._C._from_dlpack = torch.utils.dlpack.from_dlpack = lambda capsule: None": 1,
        "torch._C._from_dlpack = lambda capsule: door(capsule).clone()\n"
        "torch.utils.dlpack.from_dlpack = lambda capsule: door(capsule).to(torch.float64)": 1,
        "del torch._C._len_torch_dispatch_stack": 1,
        "del torch._C._functorch.peek_interpreter_stack": 1,
    }
    run = python(LOAD_AND_TELL, save({"a": torch.ones(2)}, tmp_path), *changes)
    assert run.stderr == ""
    assert dict(zip(changes, run.stdout.splitlines(), strict=True)) == {
        change: f"Tensor [1.0, 1.0] {version} [1.0, 1.0] {version}"
        for change, version in changes.items()}


def test_an_error_of_torchs_that_is_not_about_the_type_is_passed_on(tmp_path, python):
    path = save({"a": torch.ones(2)}, tmp_path)
    change = ("def fail(capsule): raise KeyboardInterrupt('now')\n"
              "torch._C._from_dlpack = fail")
    run = python(LOAD_AND_TELL, path, change)
    assert run.returncode != 0 and "KeyboardInterrupt: now" in run.stderr


# --- memory and its owner


def test_the_mapping_goes_with_the_last_tensor(copy_of, mappings_of):
    path = copy_of("state_dict.pt")
    before = mappings_of(path)
    loaded = weightmap.torch.load(path)
    tensors = [value for value in loaded.values() if isinstance(value, torch.Tensor)]
    assert tensors and any(is_direct(tensor) for tensor in tensors)
    del loaded
    while tensors:
        assert mappings_of(path) > before
        float(tensors[-1].sum())
        tensors.pop()
    gc.collect()
    assert mappings_of(path) == before == 0


def test_a_failed_load_leaves_nothing_behind(tmp_path, mappings_of):
    path = save([torch.ones(2), torch.zeros(3), INTEGERS_WITH_GRADIENT], tmp_path)
    with pytest.raises(RuntimeError):
        weightmap.torch.load(path)
    gc.collect()
    assert mappings_of(path) == 0


@pytest.mark.parametrize("options, reaches_file", [
    ({}, False),
    ({"sharing": "private", "writable": True}, False),
    ({"sharing": "shared", "writable": False}, False),
    ({"sharing": "shared", "writable": True}, True),
])
def test_a_write_goes_where_it_did_before(tmp_path, options, reaches_file):
    path = save({"a": torch.ones(4), "b": torch.ones(4)}, tmp_path)
    loaded = weightmap.torch.load(path, **options)
    assert is_direct(loaded["a"])
    loaded["a"].mul_(3)
    assert loaded["a"].tolist() == [3.0] * 4
    assert loaded["b"].tolist() == [1.0] * 4
    assert torch.load(path)["a"].tolist() == [3.0 if reaches_file else 1.0] * 4


def resident_kib():
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def test_nothing_is_left_of_tensors_that_are_dropped(tmp_path, mappings_of):
    """WEIGHTMAP_LEAK_TENSORS: how many are made; scripts/test --long makes a million."""
    count = int(os.environ.get("WEIGHTMAP_LEAK_TENSORS", 20_000))
    state = {f"t{number}": torch.ones(2) for number in range(600)}
    state |= {f"p{number}": torch.nn.Parameter(torch.ones(2)) for number in range(200)}
    state |= {f"v{number}": torch.ones(4)[1:] for number in range(100)}
    state |= {f"s{number}": state[f"t{number}"] for number in range(100)}
    path = save(state, tmp_path)
    opened = weightmap.open(path)

    def load_once():
        loaded = weightmap.torch.load(path)
        taken = [tensor.torch() for tensor in opened.values()]
        assert len(loaded) == len(taken) == 1000

    def alive():
        gc.collect()
        kinds = (torch.Tensor, torch.nn.Parameter, torch.UntypedStorage, collections.OrderedDict)
        return sum(type(thing) in kinds for thing in gc.get_objects())

    rounds = max(count // 2000, 4)
    for _ in range(rounds // 2):
        load_once()
    before = alive(), resident_kib()
    for _ in range(rounds):
        load_once()
    after = alive(), resident_kib()
    assert after[0] == before[0]
    # A lease that is not ended would keep its 200 bytes, and the mapping.
    assert after[1] - before[1] < 4096 + rounds * 2000 * 100 // 1024
    opened.close()
    del opened
    gc.collect()
    assert mappings_of(path) == 0


def test_threads_load_the_same_file_and_different_ones(tmp_path):
    state = {f"t{number}": torch.full((3,), float(number)) for number in range(300)}
    state["tied"] = state["t0"]
    paths = [save(state, tmp_path, f"{number}.pt") for number in range(3)]
    errors, loaded = [], {}
    barrier = threading.Barrier(6)

    def work(number):
        try:
            barrier.wait()
            for _ in range(5):
                for path in (paths[0], paths[number % 3]):
                    mine = weightmap.torch.load(path)
                    assert [mine[f"t{i}"][0].item() for i in range(300)] == list(range(300))
                    assert mine["tied"] is mine["t0"]
                    assert sum(is_direct(mine[f"t{i}"]) for i in range(300)) == 300
            loaded[number] = mine
        except Exception as error:  # shown by the main thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    pointers = {number: mine["t1"].data_ptr() for number, mine in loaded.items()}
    assert len(set(pointers.values())) == 6  # each load has a mapping of its own


def test_a_thread_without_the_interpreter_may_drop_the_last_reference(tmp_path, mappings_of):
    path = save({"a": torch.ones(1000)}, tmp_path)
    holder = [weightmap.torch.load(path)["a"]]
    output = torch.nn.functional.relu(holder[0].requires_grad_())  # autograd's thread keeps it
    holder.clear()
    output.sum().backward()
    del output
    gc.collect()
    assert mappings_of(path) == 0


# --- Tensor.torch()


def test_torch_of_a_whole_tensor_is_direct_and_the_same(mixed):
    with weightmap.open(mixed) as checkpoint:
        for name in DIRECT:
            if name == "float8_e8m0fnu" and not hasattr(torch, name):
                continue
            tensor = checkpoint[name]
            direct = tensor.torch()
            with Watching():
                as_before = tensor.torch()
            assert (direct._version, as_before._version) == (0, 1), name
            left, right = facts_of(direct), facts_of(as_before)
            del left["_version"], right["_version"]
            assert left == right, name


def test_torch_of_a_part_keeps_the_whole_storage(mixed):
    with weightmap.open(mixed) as checkpoint:
        part = checkpoint["float32"][0:1].torch()
        assert not is_direct(part)
        assert part.untyped_storage().nbytes() == 24
        assert is_direct(checkpoint["float32"][0:2].torch())
        assert not is_direct(checkpoint["head"].torch())
        assert not is_direct(checkpoint["empty"].torch())
        conjugate = checkpoint["conjugate"].torch()
        assert conjugate.is_conj() and conjugate.tolist() == [1 - 2j]


def test_the_door_is_the_first_function_of_torchs_that_works():
    assert private.importers() == ["_C._from_dlpack", "utils.dlpack.from_dlpack"]


def refused(*ignored):
    raise TypeError("another signature")


def test_doctor_says_by_which_function_of_torchs_tensors_are_made(monkeypatch, capsys):
    def told():
        way.tell()
        state, found, advice = capsys.readouterr().out.splitlines()
        return state, found.partition("makes tensors by ")[2].partition(";")[0], advice

    assert told() == ("good", "torch._C._from_dlpack", "")
    monkeypatch.setattr(torch.utils.dlpack, "from_dlpack", torch._C._from_dlpack)
    monkeypatch.setattr(torch._C, "_from_dlpack", refused)
    assert told() == ("good", "torch.utils.dlpack.from_dlpack", "")
    monkeypatch.setattr(torch.utils.dlpack, "from_dlpack", refused)
    upgrade = "python -m pip install --upgrade weightmap"
    assert told() == ("slow", "torch.frombuffer", upgrade)
    monkeypatch.undo()
    monkeypatch.delattr(torch._C, "_len_torch_dispatch_stack")
    assert told() == ("slow", "torch.frombuffer", upgrade)


def test_doctor_advises_what_makes_a_refused_torch_work(python):
    lost = "import torch; del torch._utils._rebuild_tensor_v2"
    old = "import torch; torch.__version__ = '2.5.1'"
    for change, advice in ((lost, "--upgrade weightmap"), (old, "'torch>=2.6'")):
        told = python(f"{change}\nfrom weightmap._torch import way\nway.tell()")
        state, _, last = told.stdout.splitlines()
        assert (state, last) == ("slow", f"python -m pip install {advice}"), told.stderr
