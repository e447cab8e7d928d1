"""copy_on_write: which memory torch tensors lie in, and what a write to it does."""

import ctypes
import faulthandler
import gc
import os
import signal

import pytest
from conftest import torch_since
from memory_maps import mapping_of, permissions

import weightmap

torch = pytest.importorskip("torch", reason="these tests take torch tensors")

LARGE = 1 << 20  # bytes from which on "small" is read-only
KIB = 1024


@pytest.fixture
def model(tmp_path):
    """A small and a large tensor, in torch's format."""
    path = tmp_path / "model.pt"
    torch.save({"norm": torch.ones(8), "weight": torch.arange(LARGE // 4.0 * 2)}, path)
    return path


@pytest.fixture
def shard(tmp_path):
    """The same in a safetensors file."""
    safetensors = pytest.importorskip("safetensors.torch", reason="it writes the file")
    path = tmp_path / "model.safetensors"
    tensors = {"norm": torch.ones(8), "weight": torch.arange(LARGE // 4.0 * 2)}
    safetensors.save_file(tensors, path)
    return path


@pytest.mark.parametrize("copies", [True, False])
def test_huge_pages_are_asked_for_where_that_is_wanted(model, copies):
    if not os.path.exists("/sys/kernel/mm/transparent_hugepage"):
        pytest.skip("this kernel has no transparent huge pages")
    for wanted in (True, False):
        with weightmap.open(model, huge_pages=wanted, copy_on_write=copies) as opened:
            flags = mapping_of(opened["weight"].torch())["flags"]
        assert ("hg" in flags) is wanted


def anonymous_bytes(tensor):
    return mapping_of(tensor)["Anonymous"] * KIB


def ends_with(child):
    """By which signal a forked process ends that calls `child`; 0 if it ends by itself."""
    process = os.fork()
    if process == 0:
        faulthandler.disable()
        try:
            child()
        finally:
            os._exit(0)
    status = os.waitpid(process, 0)[1]
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


# --- Tensor.torch() ----------------------------------------------------------------------------


def test_a_tensor_is_copied_on_write_unless_it_is_told_otherwise(model):
    opened = weightmap.open(model)
    assert permissions(opened["weight"].torch()) == "rw-p"
    assert permissions(opened["weight"].torch(copy_on_write=True)) == "rw-p"


def test_a_tensor_lies_in_the_shared_mapping(model):
    opened = weightmap.open(model)
    tensor = opened["weight"].torch(copy_on_write=False)
    assert permissions(tensor) == "r--s"
    assert tensor.data_ptr() == opened["weight"].numpy().__array_interface__["data"][0]
    assert torch.equal(tensor, torch.arange(LARGE // 4.0 * 2))


def test_only_small_storages_are_copied_on_write(model):
    opened = weightmap.open(model, copy_on_write="small")
    assert permissions(opened["norm"].torch()) == "rw-p"
    assert permissions(opened["weight"].torch()) == "r--s"
    # What counts is the storage, of which tied tensors and parts see the same memory.
    assert permissions(opened["weight"][:2].torch()) == "r--s"


@torch_since((2, 9), "torch.from_dlpack() of read-only tensors")
def test_what_the_open_was_told_holds_for_slices_and_dlpack(model):
    opened = weightmap.open(model, copy_on_write=False)
    assert permissions(opened["weight"][4:].torch()) == "r--s"
    assert permissions(torch.from_dlpack(opened["weight"])) == "r--s"
    assert permissions(opened["weight"].torch(copy_on_write=True)) == "rw-p"


def test_read_only_tensors_need_no_second_mapping(model, mappings_of):
    opened = weightmap.open(model, copy_on_write=False)
    taken = [tensor.torch() for tensor in opened.values()]
    assert mappings_of(model) == 1
    opened.close()
    assert float(taken[0].sum()) == 8
    del taken
    gc.collect()
    assert mappings_of(model) == 0


def test_a_write_ends_the_process(model):
    tensor = weightmap.open(model, copy_on_write=False)["weight"].torch()
    # Of one element: torch's threads do not outlive a fork.
    assert ends_with(lambda: tensor[0].add_(1)) == signal.SIGSEGV
    assert ends_with(lambda: tensor[0].add(1)) == 0


def test_a_writable_checkpoint_has_no_read_only_tensors(model):
    opened = weightmap.open(model, sharing="private", writable=True, copy_on_write=False)
    assert permissions(opened["weight"].torch()) == "rw-p"
    with pytest.raises(weightmap.InvalidArgumentError, match="was opened writable"):
        opened["weight"].torch(copy_on_write=False)


@pytest.mark.parametrize("word", ["large", "0", "1", 0, 1, 1.0])
def test_other_words_are_refused(model, word):
    expected = 'expected one of False, True, "small"'
    with pytest.raises(weightmap.InvalidArgumentError, match=expected):
        weightmap.open(model, copy_on_write=word)
    with pytest.raises(weightmap.InvalidArgumentError, match=expected):
        weightmap.open(model)["weight"].torch(copy_on_write=word)


def test_the_option_is_given_by_its_name(model):
    with pytest.raises(TypeError, match=r"torch\(\) takes no positional arguments"):
        weightmap.open(model)["weight"].torch(False)
    with pytest.raises(TypeError, match=r"torch\(\) takes no keyword arguments but copy_on_write"):
        weightmap.open(model)["weight"].torch(copy=False)


# --- what loads whole checkpoints --------------------------------------------------------------


@pytest.mark.parametrize("word, small, large", [
    (None, "rw-p", "rw-p"), (True, "rw-p", "rw-p"), ("small", "rw-p", "r--s"),
    (False, "r--s", "r--s"),
])
@pytest.mark.parametrize("file", ["model", "shard"])
def test_torch_load(request, file, word, small, large):
    path = request.getfixturevalue(file)
    state = weightmap.torch.load(path, copy_on_write=word)
    assert (permissions(state["norm"]), permissions(state["weight"])) == (small, large)
    assert torch.equal(state["weight"], torch.arange(LARGE // 4.0 * 2))
    whole = weightmap.open(path, copy_on_write=word).torch()
    assert (permissions(whole["norm"]), permissions(whole["weight"])) == (small, large)


def test_torch_load_of_tensors_that_share_a_storage(tmp_path):
    path = tmp_path / "tied.pt"
    weight = torch.arange(LARGE / 4)
    torch.save({"whole": weight, "tied": weight, "part": weight[5:9], "norm": torch.ones(3)}, path)
    state = weightmap.torch.load(path, copy_on_write="small")
    assert {permissions(state[name]) for name in ("whole", "tied", "part")} == {"r--s"}
    assert state["whole"].data_ptr() == state["tied"].data_ptr()
    assert state["part"].data_ptr() == state["whole"].data_ptr() + 5 * 4
    assert permissions(state["norm"]) == "rw-p"


def test_safe_open(shard):
    with weightmap.safe_open(shard, framework="pt", copy_on_write="small") as opened:
        assert permissions(opened.get_tensor("norm")) == "rw-p"
        assert permissions(opened.get_tensor("weight")) == "r--s"
        assert permissions(opened.get_slice("weight")[10:20]) == "r--s"


def test_the_setting_and_the_variable_hold_for_all_of_them(model, shard, monkeypatch):
    def all_of_them():
        with weightmap.safe_open(shard) as opened:
            slice_of = opened.get_slice("weight")[:]
        return {permissions(tensor) for tensor in (
            slice_of, weightmap.torch.load(model)["weight"], weightmap.open(model)["weight"].torch()
        )}

    with weightmap.config.override("load.copy_on_write", False):
        assert all_of_them() == {"r--s"}
    assert all_of_them() == {"rw-p"}
    monkeypatch.setenv("WEIGHTMAP_COPY_ON_WRITE", "small")
    assert all_of_them() == {"r--s"}


def test_a_pickled_checkpoint_and_a_reopened_one_keep_it(model):
    import pickle

    opened = weightmap.open(model, copy_on_write=False)
    for other in (opened.reopen(), pickle.loads(pickle.dumps(opened))):
        assert permissions(other["weight"].torch()) == "r--s"


# --- what it costs -----------------------------------------------------------------------------


class _Parameters(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * 120)]


class _Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def pin(tensor):
    """Pins a tensor's memory as a driver does, with write intent and for long (io_uring registers
    it as a buffer), and lets it go. The errno if the system refuses."""
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    setup, register, register_buffers = 425, 427, 0
    ring = syscall(setup, 1, ctypes.byref(_Parameters()))
    if ring < 0:
        pytest.skip(f"io_uring is not to be had here: {os.strerror(ctypes.get_errno())}")
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        begin = -(-tensor.data_ptr() // page) * page
        vector = _Vector(begin, tensor.numel() * tensor.itemsize // page * page - page)
        if syscall(register, ring, register_buffers, ctypes.byref(vector), 1) == 0:
            return 0, vector.length
        return ctypes.get_errno(), vector.length
    finally:
        os.close(ring)


def test_pinning_copies_what_is_copied_on_write_and_nothing_of_what_is_read_only(model):
    opened = weightmap.open(model)
    read_only = opened["weight"].torch(copy_on_write=False)
    refused, _ = pin(read_only)
    assert refused != 0  # a driver then copies through memory of its own
    assert anonymous_bytes(read_only) == 0
    copied = opened["weight"].torch(copy_on_write=True)
    assert anonymous_bytes(copied) == 0
    refused, pinned = pin(copied)
    if refused:
        pytest.skip(f"io_uring pins no memory here: {os.strerror(refused)}")
    assert anonymous_bytes(copied) >= pinned


def test_pinning_a_pinnable_copy_copies_nothing(model):
    with weightmap.stage(model, pinnable=True) as copy:
        whole = torch.frombuffer(copy.pinnable_memory(), dtype=torch.uint8)
    refused, _ = pin(whole)
    if refused:
        pytest.skip(f"io_uring pins no memory here: {os.strerror(refused)}")
    assert permissions(whole) == "rw-s"
    assert anonymous_bytes(whole) == 0


def test_protect_makes_read_only_what_others_have_mapped(model, shard):
    from safetensors.torch import load_file

    for path, state in ((model, torch.load(model, mmap=True)), (shard, load_file(shard))):
        weight = state["weight"]
        assert permissions(weight) == "rw-p"
        weight[0] = 7
        done = weightmap.torch.protect(path)
        assert done.mappings >= 1 and done.bytes >= weight.nbytes
        assert done.anonymous_bytes == os.sysconf("SC_PAGE_SIZE")
        assert permissions(weight) == "r--p"
        assert weight[:2].tolist() == [7, 1]
        assert ends_with(lambda: weight[0].add_(1)) == signal.SIGSEGV
        refused, _ = pin(weight)
        assert refused != 0
        assert weightmap.torch.protect(path).mappings == 0


def test_protect_says_what_file_it_cannot_open(tmp_path):
    with pytest.raises(FileNotFoundError):
        weightmap.torch.protect(tmp_path / "missing.pt")
