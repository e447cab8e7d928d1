"""upload="pinned" of the loaders of engines, with a driver that has no device."""

import functools
import gc

import pytest
from engine_files import file_with_dtype_beyond_torch, load, names, write
from fake_cuda import on_the_cpu

import weightmap
from weightmap import cuda

pytest.importorskip("torch", reason="these tests take torch tensors")
from weightmap._engines import device_weights as _device_weights

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture
def device(torch, driver, monkeypatch):
    """torch finds the driver's device, of which it takes tensors as if they were the CPU's."""
    monkeypatch.setattr(torch, "from_dlpack", on_the_cpu)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    uploader = functools.partial(
        cuda.Uploader, slots=2, slot_bytes=4096, threads=2, library=driver.path
    )
    monkeypatch.setattr(cuda, "Uploader", uploader)
    return driver


@pytest.mark.parametrize("warm", ["auto", "off", "stage"])
def test_tensors_are_the_devices(device, torch, tmp_path, warm):
    write(tmp_path, "model-1.safetensors", {"a": torch.arange(3000.0), "b": torch.ones(2, 4)})
    write(tmp_path, "model-2.safetensors", {"c": torch.tensor([7, 8], dtype=torch.bfloat16)})
    files = [tmp_path / "model-1.safetensors", tmp_path / "model-2.safetensors"]
    weights, lines = load(files, {"upload": "pinned", "warm": warm, "strict": True})
    taken = list(weights)
    in_file = list(weightmap.open(files[0]))
    assert names(taken) == [*in_file, "c"]
    found = dict(taken)
    assert torch.equal(found["a"], torch.arange(3000.0))
    assert found["b"].tolist() == [[1.0] * 4] * 2
    assert found["c"].dtype == torch.bfloat16 and found["c"].tolist() == [7.0, 8.0]
    assert found["a"].data_ptr() != 0 and device.calls("cuMemAlloc_v2") == 3
    assert "12036 bytes from 2 mapped files" in lines[-1]


def test_bin_goes_to_the_device_but_for_what_is_no_plain_view(device, torch, tmp_path):
    state = {
        "w": torch.nn.Parameter(torch.arange(4.0)),
        "conj": torch.ones(2, dtype=torch.complex64).conj(),
        "sparse": torch.eye(2).to_sparse(),
        "last": torch.ones(8),
    }
    torch.save(state, tmp_path / "model.bin")
    taken = dict(load([tmp_path / "model.bin"], {"upload": "pinned"})[0])
    assert list(taken) == ["w", "conj", "sparse", "last"]
    assert device.calls("cuMemAlloc_v2") == 2
    assert taken["w"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert taken["conj"].is_conj() and taken["sparse"].is_sparse
    assert taken["last"].tolist() == [1.0] * 8


def test_groups_are_uploaded_one_after_the_other(device, torch, tmp_path, monkeypatch):
    monkeypatch.setattr(_device_weights, "_GROUP_BYTES", 64)
    uploads = []
    upload = cuda.Uploader.func.upload
    monkeypatch.setattr(
        cuda.Uploader.func,
        "upload",
        lambda self, checkpoint, tensors: uploads.append([each.name for each in tensors])
        or upload(self, checkpoint, tensors),
    )
    tensors = {name: torch.full((8,), ord(name)) for name in "abcde"}
    write(tmp_path, "model.safetensors", tensors)
    taken = dict(load([tmp_path / "model.safetensors"], {"upload": "pinned"})[0])
    assert uploads == [["a"], ["b"], ["c"], ["d"], ["e"]]
    assert {name: tensor[0].item() for name, tensor in taken.items()} == {
        name: ord(name) for name in "abcde"
    }


def test_a_tensor_is_gone_before_the_next_is_taken(device, torch, tmp_path):
    write(tmp_path, "model.safetensors", {name: torch.ones(2048) for name in "abcd"})
    weights, _ = load([tmp_path / "model.safetensors"], {"upload": "pinned"})
    for _ in weights:
        pass
    del _
    gc.collect()
    assert device.held() == ""


def test_the_rest_of_a_file_comes_from_the_engine(device, torch, tmp_path):
    file_with_dtype_beyond_torch(tmp_path / "model.safetensors")
    stock = {"model.safetensors": {"known": torch.tensor([0.0]), "strange": torch.ones(4)}}
    weights, lines = load([tmp_path / "model.safetensors"], {"upload": "pinned"}, stock)
    assert [(name, tensor.tolist()) for name, tensor in weights] == [
        ("known", [7.0]), ("strange", [1.0] * 4)
    ]
    assert "model.safetensors: read by Engine's own loader: " in lines[0]


def test_a_device_that_refuses_leaves_the_file_to_the_engine(device, torch, tmp_path):
    write(tmp_path, "model.safetensors", {"a": torch.ones(4)})
    device.fail("cuMemAlloc_v2", 1, 2)
    stock = {"model.safetensors": {"a": torch.tensor([3.0])}}
    weights, lines = load([tmp_path / "model.safetensors"], {"upload": "pinned"}, stock)
    assert [(name, tensor.tolist()) for name, tensor in weights] == [("a", [3.0])]
    assert "CUDA_ERROR_OUT_OF_MEMORY" in lines[0]


def test_without_a_device_it_is_one_remark(torch, tmp_path):
    for number in (1, 2):
        write(tmp_path, f"model-{number}.safetensors", {f"w{number}": torch.ones(4)})
    files = [tmp_path / "model-1.safetensors", tmp_path / "model-2.safetensors"]
    weights, lines = load(files, {"upload": "pinned"})
    assert names(list(weights)) == ["w1", "w2"]
    (line,) = lines
    assert line.count("not uploaded: torch finds no CUDA device") == 1


def test_without_a_device_strict_is_an_error(torch, tmp_path):
    write(tmp_path, "model.safetensors", {"a": torch.ones(4)})
    weights, _ = load([tmp_path / "model.safetensors"], {"upload": "pinned", "strict": True})
    with pytest.raises(weightmap.UnsupportedError) as refused:
        next(weights)
    assert refused.value.message == "torch finds no CUDA device"


def test_without_a_driver_strict_is_an_error(torch, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    nowhere = functools.partial(cuda.Uploader, library="/nowhere/libcuda.so.1")
    monkeypatch.setattr(cuda, "Uploader", nowhere)
    write(tmp_path, "model.safetensors", {"a": torch.ones(4)})
    weights, _ = load([tmp_path / "model.safetensors"], {"upload": "pinned", "strict": True})
    with pytest.raises(weightmap.UnsupportedError):
        next(weights)


def test_auto_is_not_the_device(device, torch, tmp_path):
    write(tmp_path, "model.safetensors", {"a": torch.ones(4)})
    list(load([tmp_path / "model.safetensors"], {})[0])
    assert device.calls("cuInit") == 0
