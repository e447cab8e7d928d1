"""Archives of numpy, made by numpy."""

import pytest
import weightmap

numpy = pytest.importorskip("numpy", reason=".npz archives are made by numpy")

ARRAYS = {
    "layer/weight": numpy.arange(12, dtype="<f4").reshape(3, 4),
    "transposed": numpy.asfortranarray(numpy.arange(6, dtype="<i2").reshape(2, 3)),
    "scalar": numpy.array(7),
    "empty": numpy.zeros((0, 5)),
}


@pytest.mark.parametrize("save", [numpy.savez, numpy.savez_compressed])
def test_arrays_are_those_that_numpy_saved(tmp_path, save):
    save(tmp_path / "a.npz", **ARRAYS)
    opened = weightmap.open(tmp_path / "a.npz")
    assert opened.info.format == "npz"
    assert list(opened) == list(ARRAYS)
    for name, array in ARRAYS.items():
        found = opened[name].numpy()
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert numpy.array_equal(found, array)
    assert opened["transposed"].numpy().flags.f_contiguous
    opened.verify_headers()


@pytest.mark.parametrize("other, descr", [
    (numpy.array(["a", "bc"]), "<U2"),
    (numpy.array([None]), "|O"),
    (numpy.ones(2, ">f4"), ">f4"),
    (numpy.array("2026-01-01", "M8[D]"), "<M8[D]"),
    (numpy.zeros(2, [("a", "<f4")]), "[('a', '<f4')]"),
])
def test_an_array_that_is_no_tensor_is_named_and_the_others_open(tmp_path, other, descr):
    numpy.savez(tmp_path / "a.npz", good=numpy.ones(1), other=other)
    opened = weightmap.open(tmp_path / "a.npz")
    assert list(opened) == ["good"]
    assert opened.info.unsupported == (f"other ({descr})",)
    opened.verify_headers()


def test_a_type_that_numpy_forgot_is_told_and_never_guessed(tmp_path):
    bits = numpy.array([0x3F80, 0x4000], "<u2")  # 1 and 2 in bfloat16
    numpy.savez(tmp_path / "a.npz", w=bits.view("V2"))
    opened = weightmap.open(tmp_path / "a.npz")
    assert opened["w"].dtype == "opaque[2]"
    assert opened["w"].tobytes() == bits.tobytes()
    with pytest.raises(weightmap.UnsupportedError, match=r'open\(path, dtypes=\{name: "bfloat16"\}\) says it'):
        opened["w"].torch()
    told = weightmap.open(tmp_path / "a.npz", dtypes={"w": "bfloat16"})
    assert told["w"].dtype == "bfloat16"
    assert told["w"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2"])
def test_integers_of_less_than_a_byte_are_those_of_ml_dtypes(tmp_path, name):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="which has these types")
    whole = numpy.arange(16, dtype="u1")
    expected = whole.view(getattr(ml_dtypes, name))
    numpy.savez(tmp_path / "a.npz", w=expected)
    told = weightmap.open(tmp_path / "a.npz", dtypes={"w": name})["w"]
    assert told.numpy().dtype == expected.dtype
    assert told.tolist() == [int(number) for number in expected]
    assert told.numpy().astype(int).tolist() == told.tolist()
    assert told.bits().tolist() == whole.tolist()
    assert told[3].item() == int(expected[3])


@pytest.mark.parametrize("dtypes", ["bfloat16", {"w": "bf16"}, {1: "bfloat16"}])
def test_dtypes_that_are_none_are_refused(tmp_path, dtypes):
    numpy.savez(tmp_path / "a.npz", w=numpy.zeros(2, "V2"))
    with pytest.raises(weightmap.InvalidArgumentError, match="dtypes"):
        weightmap.open(tmp_path / "a.npz", dtypes=dtypes)


def test_a_single_array_is_one_tensor(tmp_path):
    for name, array in ARRAYS.items():
        path = tmp_path / "a.npy"
        numpy.save(path, array)
        opened = weightmap.open(path)
        assert list(opened) == ["arr_0"]
        found = opened["arr_0"].numpy()
        assert (found.dtype, found.shape) == (array.dtype, array.shape), name
        assert numpy.array_equal(found, array)


def test_a_variant_of_a_folder(tmp_path):
    for name in ("x", "x.fp16"):
        weightmap.save_safetensors({name: numpy.ones(1, "f4")}, tmp_path / f"{name}.safetensors")
    opened = weightmap.open(tmp_path)
    assert (list(opened), opened.info.not_opened) == (["x"], ("x.fp16.safetensors",))
    assert list(weightmap.open(tmp_path, variant="fp16")) == ["x.fp16"]
    with pytest.raises(weightmap.InvalidArgumentError, match="variant is 1"):
        weightmap.open(tmp_path, variant=1)
