"""weightmap.open() of what holds the bytes of a checkpoint: no copy, for as long as it is used."""

import gc
import mmap
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from multiprocessing import shared_memory

import pytest
from conftest import DATA
from safetensors_files import file_of, floats

import weightmap

numpy = pytest.importorskip("numpy", reason="these tests take arrays")
torch = pytest.importorskip("torch", reason="these tests take torch tensors")

VALUES = {"a": [1.0, 2.0, 3.0], "b": [4.0, -5.0]}
CONTENT = file_of({name: floats(*values) for name, values in VALUES.items()})


def address_of(buffer):
    return numpy.frombuffer(buffer, numpy.uint8).ctypes.data


def check_values(opened):
    assert {name: tensor.numpy().tolist() for name, tensor in opened.items()} == VALUES
    assert {name: tensor.tolist() for name, tensor in opened.torch().items()} == VALUES


def map_of(content, tmp_path):
    path = tmp_path / "content"
    path.write_bytes(content)
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def read_only_array(content):
    array = numpy.frombuffer(bytearray(content), numpy.uint8)
    array.flags.writeable = False
    return array


def at_odd_address(content):
    memory = bytearray(len(content) + 1)
    start = 1 - address_of(memory) % 2
    memory[start:start + len(content)] = content
    return memoryview(memory)[start:start + len(content)].toreadonly()


BUFFERS = {
    "bytes": lambda tmp_path: CONTENT,
    "memoryview": lambda tmp_path: memoryview(CONTENT),
    "read-only view of a bytearray": lambda tmp_path: memoryview(bytearray(CONTENT)).toreadonly(),
    "mmap": lambda tmp_path: map_of(CONTENT, tmp_path),
    "numpy": lambda tmp_path: read_only_array(CONTENT),
    "numpy, of another shape": lambda tmp_path: read_only_array(CONTENT).reshape(2, -1),
    "floats": lambda tmp_path: read_only_array(CONTENT).view(numpy.float32),
}


@pytest.mark.parametrize("kind", BUFFERS)
def test_tensors_lie_in_the_buffer(kind, tmp_path):
    buffer = BUFFERS[kind](tmp_path)
    opened = weightmap.open(buffer)
    check_values(opened)
    first = address_of(buffer)
    for name, tensor in opened.items():
        assert tensor.numpy().ctypes.data == first + tensor.file_offset
        assert tensor.torch().data_ptr() == first + tensor.file_offset
        assert opened.torch()[name].data_ptr() == first + tensor.file_offset


def test_arrays_are_read_only():
    array = weightmap.open(CONTENT)["a"].numpy()
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 9


def test_it_says_what_it_is():
    opened = weightmap.open(CONTENT)
    assert opened.path == "memory"
    assert opened.files == [""]
    assert opened.state() == "current"
    assert opened.info.file_bytes == len(CONTENT)
    assert "memory" in repr(opened)
    assert "2 tensors" in repr(opened.summary())


def test_torch_archives_are_opened(data):
    content = (data / "state_dict.pt").read_bytes()
    opened = weightmap.open(content, verify="crc")
    expected = torch.load((data / "state_dict.pt"), weights_only=True)
    loaded = weightmap.torch.load(opened)
    assert list(loaded) == list(expected)
    for name, tensor in expected.items():
        assert torch.equal(loaded[name], tensor)
        assert torch.equal(opened[name].torch(), tensor)


def test_tensors_at_odd_addresses_are_copied_for_torch_alone(data):
    content = (data / "state_dict.pt").read_bytes()
    odd = at_odd_address(content)
    opened = weightmap.open(odd)
    expected = torch.load((data / "state_dict.pt"), weights_only=True)
    loaded, state = weightmap.torch.load(opened), opened.torch()
    for name, tensor in expected.items():
        assert opened[name].numpy().ctypes.data == address_of(odd) + opened[name].file_offset
        for made in (opened[name].torch(), loaded[name], state[name]):
            assert made.data_ptr() % made.itemsize == 0
            assert torch.equal(made, tensor)


def test_writing_is_to_a_copy_where_that_was_chosen():
    opened = weightmap.open(CONTENT, copy_on_write=True)
    made = opened["a"].torch()
    made[0] = 9
    assert made.tolist() == [9, 2, 3]
    assert opened["a"].numpy().tolist() == VALUES["a"]


def test_bytes_without_a_zero_are_a_path(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(CONTENT)
    assert weightmap.open(os.fsencode(path)).path == str(path)
    with pytest.raises(FileNotFoundError):
        weightmap.open(b"no such file")


def test_a_writable_buffer_is_trusted():
    check_values(weightmap.open(bytearray(CONTENT), trust=True))


WRITABLE, NOT_PICKLED = "memory: .*writable.*trust=True", "memory: cannot be pickled"
INVALID, UNSUPPORTED = weightmap.InvalidArgumentError, weightmap.UnsupportedError
DEFLATED = DATA / "rezipped_deflated.pt"


@pytest.mark.parametrize("call, error, message", [
    (lambda: weightmap.open(bytearray(CONTENT)), INVALID, WRITABLE),
    (lambda: weightmap.open(numpy.frombuffer(bytearray(CONTENT), "u1")), INVALID, WRITABLE),
    (lambda: weightmap.open("model.pt", trust=True), INVALID, "trust is about buffers"),
    (lambda: weightmap.open(memoryview(CONTENT)[::2]), INVALID, "memory: .*not contiguous"),
    (lambda: weightmap.open(CONTENT, writable=True), INVALID, "never opened writable"),
    (lambda: weightmap.open(b"\0nothing of ours"), weightmap.NotACheckpointError, "memory: "),
    (lambda: weightmap.open(memoryview(b"")), weightmap.NotACheckpointError, "memory: is empty"),
    (lambda: weightmap.open(DEFLATED.read_bytes()), UNSUPPORTED, "compressed"),
    (lambda: pickle.dumps(weightmap.open(CONTENT)), INVALID, NOT_PICKLED),
    (lambda: pickle.dumps(weightmap.open(CONTENT)["a"]), INVALID, NOT_PICKLED),
    (lambda: weightmap.open(CONTENT).warm(), UNSUPPORTED, "only files are warmed"),
    (lambda: weightmap.open(CONTENT).residency(), UNSUPPORTED, "no mapped file"),
    (lambda: weightmap.open(CONTENT).reopen(), INVALID, "in memory"),
], ids=["bytearray", "writable array", "trust of a file", "strides", "writable", "no checkpoint",
        "empty", "compressed", "pickled checkpoint", "pickled tensor", "warm", "residency",
        "reopen"])
def test_refuses(call, error, message):
    with pytest.raises(error, match=message):
        call()


def is_exported(buffer):
    """Whether a bytearray may not be resized, since its memory is exported."""
    try:
        buffer.append(0)
    except BufferError:
        return True
    buffer.pop()
    return False


VIEWS = {
    "checkpoint": lambda opened: opened,
    "tensor": lambda opened: opened["a"],
    "array": lambda opened: opened["a"].numpy(),
    "slice of an array": lambda opened: opened["a"].numpy()[1:],
    "torch tensor": lambda opened: opened["a"].torch(),
    "state dict": lambda opened: opened.torch(),
    "memoryview": lambda opened: opened["a"].buffer(),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_the_buffer_is_given_back_with_the_last_view(kind):
    buffer = bytearray(CONTENT)
    held = VIEWS[kind](weightmap.open(buffer, trust=True))
    gc.collect()
    assert is_exported(buffer)
    del held
    gc.collect()
    assert not is_exported(buffer)


def test_the_buffer_is_given_back_after_an_error():
    buffer = bytearray(b"\0nothing of ours")
    with pytest.raises(weightmap.NotACheckpointError):
        weightmap.open(buffer, trust=True)
    gc.collect()
    assert not is_exported(buffer)


def test_the_buffer_is_given_back_by_another_thread():
    buffer = bytearray(CONTENT)
    held = [weightmap.open(buffer, trust=True)["a"].torch()]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    gc.collect()
    assert not is_exported(buffer)


def test_a_forked_child_reads_it_and_leaves_it():
    opened = weightmap.open(CONTENT)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            check_numbers = opened["b"].numpy().tolist() == VALUES["b"]
            del opened
            gc.collect()
            status = 0 if check_numbers else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    check_values(opened)


def attach(name, size, values):
    """In another process: what it reads of the shared memory, and where that lies in it."""
    shared = shared_memory.SharedMemory(name=name)
    opened = weightmap.open(shared.buf[:size], trust=True)
    arrays = {key: tensor.numpy() for key, tensor in opened.items()}
    first = address_of(shared.buf)
    values.put([{key: array.tolist() for key, array in arrays.items()},
                [array.ctypes.data - first for array in arrays.values()]])
    del arrays, opened
    gc.collect()
    shared.close()


def test_processes_share_one_copy():
    shared = shared_memory.SharedMemory(create=True, size=len(CONTENT))
    try:
        shared.buf[:len(CONTENT)] = CONTENT
        here = weightmap.open(shared.buf[:len(CONTENT)], trust=True)
        offsets = [tensor.file_offset for tensor in here.values()]
        del here
        context = multiprocessing.get_context("spawn")
        values = context.Queue()
        others = [context.Process(target=attach, args=(shared.name, len(CONTENT), values))
                  for _ in range(2)]
        for other in others:
            other.start()
        assert [values.get() for _ in others] == [[VALUES, offsets]] * 2
        for other in others:
            other.join()
            assert other.exitcode == 0
    finally:
        gc.collect()
        shared.close()
        shared.unlink()


def test_it_outlives_the_interpreter(tmp_path):
    program = (f"import weightmap\nheld = weightmap.open({CONTENT!r})['a'].numpy()\n"
               "import sys; sys.held = held\nprint(held.tolist())\n")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1.0, 2.0, 3.0]\n", "")
