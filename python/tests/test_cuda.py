"""weightmap.cuda, with a driver that has no device: fake_cuda.py."""

import gc

import pytest
from conftest import torch_since
from fake_cuda import look_into, on_the_cpu

import weightmap
from weightmap import cuda


@pytest.fixture
def uploader(driver):
    def make(**options):
        settings = {"slots": 2, "slot_bytes": 4096, "threads": 2, "library": driver.path}
        return cuda.Uploader(**{**settings, **options})

    return make


def test_tensors_come_by_name_in_the_order_in_which_they_are_asked_for(
    driver, uploader, float_archive
):
    contents = {"a": bytes(range(200)) * 100, "b": b"\1\2\3\4", "none": b"", "c": b"\5" * 8000}
    with weightmap.open(float_archive(contents)) as checkpoint:
        upload = uploader().upload(checkpoint, ["c", ("a",), "none", checkpoint["b"], "c"])
        tensors = list(upload)
    assert [name for name, _ in tensors] == ["c", "a", "none", "b", "c"]
    for name, tensor in tensors:
        assert isinstance(tensor, cuda.DeviceTensor)
        assert driver.read(tensor) == contents[name]
        assert tensor.dtype == "float32"
        assert tensor.shape == (len(contents[name]) // 4,)
        assert tensor.strides == (1,)
        assert tensor.nbytes == len(contents[name])
        assert tensor.device == 0
        assert (tensor.data_ptr == 0) == (name == "none")
    assert upload.report.tensors == 5
    assert upload.report.bytes == upload.report.slot_bytes == 36004
    assert list(upload) == []


@pytest.mark.parametrize("attributes", [{}, {100: 1}, {18: 1}, {99: 1, 113: 1}])
def test_all_tensors_of_a_file_by_each_way(driver, uploader, data, attributes):
    for attribute, value in attributes.items():
        driver.set_attribute(attribute, value)
    for name in ("dtypes.pt", "module.pt", "big_endian.pt"):
        with weightmap.open(data / name) as checkpoint:
            found = dict(uploader().upload(checkpoint))
            assert list(found) == list(checkpoint)
            for key, tensor in checkpoint.items():
                assert found[key].shape == tensor.shape
                assert found[key].dtype == tensor.dtype
                assert driver.read(found[key]) == tensor.tobytes()


def test_what_the_device_can_do_decides_the_way(driver, uploader):
    assert uploader().way == "slots"
    driver.set_attribute(99, 1)
    driver.set_attribute(113, 1)
    assert uploader().way == "registered"
    driver.set_attribute(18, 1)
    assert uploader().way == "mapping"
    assert uploader(way="slots").way == "slots"


def test_the_capsule_says_what_lies_where(driver, uploader, data):
    with weightmap.open(data / "module.pt") as checkpoint:
        matrix = next(tensor for tensor in checkpoint.values() if tensor.ndim == 2)
        ((_, tensor),) = uploader(device=1).upload(checkpoint, [matrix])
    assert tensor.__dlpack_device__() == (2, 1)
    capsule = tensor.__dlpack__(stream=1)
    seen = look_into(capsule)
    assert seen.data == tensor.data_ptr
    assert (seen.device_type, seen.device_id) == (2, 1)
    assert seen.shape[: seen.ndim] == list(matrix.shape)
    assert seen.strides[: seen.ndim] == list(tensor.strides)
    assert seen.bits == 8 * matrix.itemsize
    assert (seen.lanes, seen.byte_offset) == (1, 0)
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(1, 0))
    address = tensor.data_ptr
    del tensor
    gc.collect()
    assert "1 allocations" in driver.held()  # the capsule has it
    assert look_into(capsule).data == address


def test_elements_that_dlpack_has_no_word_for_go_as_bits(driver, uploader, tmp_path):
    block = bytes(range(144))  # of q4_K, 256 elements
    path = tmp_path / "blocks.gguf"
    with open(path, "wb") as file:
        number = lambda value, size: value.to_bytes(size, "little")
        file.write(b"GGUF" + number(3, 4) + number(1, 8) + number(0, 8))
        file.write(number(1, 8) + b"w" + number(2, 4) + number(256, 8) + number(2, 8))
        file.write(number(12, 4) + number(0, 8))
        file.write(bytes(-file.tell() % 32) + block * 2)
    with weightmap.open(path) as checkpoint:
        ((_, tensor),) = uploader().upload(checkpoint)
    assert (tensor.dtype, tensor.shape) == ("q4_K", (2, 256))
    with pytest.raises(BufferError, match="no word for q4_K; .bits.. gives the bytes of"):
        tensor.__dlpack__()
    bits = tensor.bits()
    assert (bits.dtype, bits.shape, bits.strides) == ("uint8", (2, 144), (144, 1))
    assert bits.data_ptr == tensor.data_ptr
    seen = look_into(bits.__dlpack__())
    assert (seen.code, seen.bits) == (1, 8)
    assert driver.read(bits) == block * 2


@torch_since((2, 8), "float4_e2m1fn_x2")
def test_torch_tensors_share_the_memory(driver, uploader, data, monkeypatch):
    torch = pytest.importorskip("torch")

    monkeypatch.setattr(torch, "from_dlpack", on_the_cpu)
    compared = set()
    with weightmap.open(data / "dtypes.pt") as checkpoint:
        for name, tensor in uploader().upload(checkpoint):
            stored = checkpoint[name]
            if stored.dtype.startswith(("q", "bits")) or stored.nbytes == 0:
                continue
            made = tensor.torch()
            assert made.dtype == getattr(torch, stored.dtype)
            assert tuple(made.shape) == stored.shape
            assert made.data_ptr() == tensor.data_ptr
            assert driver.read(tensor) == stored.tobytes()
            compared.add(stored.dtype)
    assert {"float32", "bfloat16", "float8_e4m3fn", "uint16", "bool", "complex64"} <= compared
    del tensor
    gc.collect()
    assert "1 allocations" in driver.held()  # torch has it
    del made
    gc.collect()
    assert driver.held() == ""


def test_a_driver_that_refuses_is_an_error_and_the_uploader_goes_on(
    driver, uploader, float_archive
):
    path = float_archive({"a": b"\1" * 40, "b": b"\2" * 20000})
    with weightmap.open(path) as checkpoint:
        made = uploader()
        driver.fail("cuMemAlloc_v2", 2, 2)
        upload = made.upload(checkpoint)
        given = []
        with pytest.raises(weightmap.Error) as raised:
            for name, _ in upload:
                given.append(name)
        assert raised.value.message == (
            'tensor "b": cuMemAlloc_v2 failed: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory'
        )
        assert list(upload) == []
        assert [name for name, _ in made.upload(checkpoint)] == ["a", "b"]


def test_where_there_is_no_driver(uploader):
    with pytest.raises(weightmap.UnsupportedError, match="there is no CUDA driver: cannot load"):
        cuda.Uploader(library="/nowhere/libcuda.so.1")


def test_wrong_arguments(uploader, float_archive):
    with pytest.raises(weightmap.InvalidArgumentError, match="slots is 1, which is not from 2"):
        uploader(slots=1)
    with pytest.raises(weightmap.InvalidArgumentError, match="not \"best\""):
        uploader(way="best")
    made = uploader()
    with weightmap.open(float_archive({"a": b"\1" * 40})) as checkpoint:
        with pytest.raises(weightmap.TensorNotFoundError):
            made.upload(checkpoint, ["b"])
        first = made.upload(checkpoint)
        with pytest.raises(weightmap.InvalidArgumentError, match="another Upload"):
            made.upload(checkpoint)
        first.close()
        assert list(first) == []
        with made.upload(checkpoint) as second:
            assert next(second)[0] == "a"
        other = weightmap.open(float_archive({"a": b"\1" * 40}, name="other.pt"))
        with pytest.raises(weightmap.InvalidArgumentError, match="not one of this checkpoint"):
            made.upload(checkpoint, [other["a"]])


def test_a_tensor_in_pieces_is_refused_by_name(uploader, data):
    for folder in sorted((data / "dcp").iterdir()):
        if not folder.is_dir():
            continue
        with weightmap.open(folder) as checkpoint:
            chunked = [name for name, tensor in checkpoint.items()
                       if isinstance(tensor, weightmap.ChunkedTensor)]
            if chunked:
                with pytest.raises(weightmap.UnsupportedError, match="lies in several pieces"):
                    uploader().upload(checkpoint, chunked[:1])
                return
    pytest.fail("no fixture has such a tensor")


def test_an_upload_outlives_what_was_closed(driver, uploader, float_archive):
    checkpoint = weightmap.open(float_archive({"a": b"\1" * 40000, "b": b"\2" * 40000}))
    upload = uploader().upload(checkpoint)
    checkpoint.close()
    del checkpoint
    gc.collect()
    assert [driver.read(tensor) for _, tensor in upload] == [b"\1" * 40000, b"\2" * 40000]


def test_it_is_imported_when_it_is_asked_for(python):
    program = """
import sys, weightmap
assert "weightmap.cuda" not in sys.modules
print(weightmap.cuda.Uploader.__name__, "torch" in sys.modules)
"""
    assert python(program).stdout == "Uploader False\n"
