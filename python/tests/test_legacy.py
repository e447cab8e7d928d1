"""The stream of torch before 1.6, with torch as referee."""

import pytest

import weightmap

numpy = pytest.importorskip("numpy", reason="compares with numpy, which is not installed")
torch = pytest.importorskip("torch", reason="compares with torch, which is not installed")
import weightmap.torch  # noqa: E402

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
    torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn,
]


def saved(tmp_path, value):
    path = tmp_path / "legacy.pt"
    torch.save(value, path, _use_new_zipfile_serialization=False)
    return path


def same(a, b):
    assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
    if a.numel():
        assert a.contiguous().view(torch.uint8).equal(b.contiguous().view(torch.uint8))


def test_every_dtype_is_as_torch_loads_it(tmp_path):
    value = {str(dtype): torch.arange(1, 6).to(dtype) for dtype in DTYPES
             if dtype not in torch.storage._new_dtypes()}  # torch cannot read those again
    path = saved(tmp_path, value)
    loaded = weightmap.torch.load(path)
    opened = weightmap.open(path)
    for name, tensor in torch.load(path).items():
        same(loaded[name], tensor)
        assert loaded[name].data_ptr() % min(tensor.element_size(), 8) == 0
        same(opened.get((name,)).torch(), tensor)


def test_views_parameters_and_shared_storages_are_kept(tmp_path):
    base = torch.arange(12.0).reshape(3, 4)
    value = {
        "base": base, "transposed": base.t(), "row": base[1], "empty": torch.empty(0, 2),
        "parameter": torch.nn.Parameter(base.clone()), "scalar": torch.tensor(2.5), "epoch": 3,
    }
    path = saved(tmp_path, value)
    loaded = weightmap.torch.load(path)
    expected = torch.load(path)
    assert list(loaded) == list(expected)
    for name in ("base", "transposed", "row", "empty", "scalar", "parameter"):
        assert loaded[name].stride() == expected[name].stride()
        assert torch.equal(loaded[name], expected[name])
    assert type(loaded["parameter"]) is torch.nn.Parameter
    assert loaded["epoch"] == 3
    loaded["row"][0] = 99
    assert loaded["base"][1, 0] == 99 and loaded["transposed"][0, 1] == 99


def test_a_quantized_tensor_is_as_torch_loads_it(tmp_path):
    quantized = torch.quantize_per_tensor(torch.arange(4.0), 0.5, 1, torch.qint8)
    path = saved(tmp_path, {"q": quantized})
    assert torch.equal(weightmap.torch.load(path)["q"].dequantize(), quantized.dequantize())


def test_only_the_first_of_several_streams_is_read(tmp_path):
    path = tmp_path / "two.pt"
    with open(path, "wb") as file:
        for value in (1.0, 2.0):
            torch.save({"a": torch.tensor([value])}, file, _use_new_zipfile_serialization=False)
    opened = weightmap.open(path)
    assert opened["a"].numpy().tolist() == [1]
    assert 0 < opened.info.unread_bytes < path.stat().st_size
