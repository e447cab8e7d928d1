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


def test_an_array_that_is_no_tensor_is_named(tmp_path):
    numpy.savez(tmp_path / "a.npz", good=numpy.ones(1), bad=numpy.array([None]))
    with pytest.raises(weightmap.UnsupportedError, match=r'a\.npz: record "bad\.npy": field "descr"'):
        weightmap.open(tmp_path / "a.npz")
