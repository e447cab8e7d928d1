"""weightmap.save_safetensors(): its files are read by safetensors itself, and by torch and numpy."""

import json
import os
import struct

import pytest
from conftest import dtype_params, torch_since

import weightmap


@pytest.fixture
def load_torch(torch):
    return pytest.importorskip("safetensors.torch", reason="reads with safetensors").load_file


@pytest.fixture
def load_numpy(numpy):
    return pytest.importorskip("safetensors.numpy", reason="reads with safetensors").load_file


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def header_of(path):
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    assert (8 + length) % 64 == 0
    return content[8 : 8 + length].decode().rstrip(" ")


def same(torch, one, other):
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and one.contiguous().flatten().view(torch.uint8).equal(
            other.contiguous().flatten().view(torch.uint8)
        )
    )


TORCH_DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3", "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "int16": "I16", "uint16": "U16", "float16": "F16",
    "bfloat16": "BF16", "int32": "I32", "uint32": "U32", "float32": "F32", "complex64": "C64",
    "float64": "F64", "int64": "I64", "uint64": "U64",
}


# --- what is written --------------------------------------------------------------------------


def test_a_small_file_byte_for_byte(numpy, path):
    report = weightmap.save_safetensors({"t": numpy.array([[1, 2], [3, 4]], "<i4")}, path)
    header = b'{"t":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}}' + b" " * 63
    assert path.read_bytes() == struct.pack("<Q", 120) + header + struct.pack("<4i", 1, 2, 3, 4)
    assert report == weightmap.reports.SafetensorsReport([str(path)], 144, 16, {})


@pytest.mark.parametrize("name", dtype_params(TORCH_DTYPES))
def test_every_type_of_torch(torch, load_torch, path, name):
    values = torch.arange(1, 7)
    tensor = (values % 2).bool() if name == "bool" else values.to(getattr(torch, name))
    tensors = {"t": tensor.reshape(2, 3), "scalar": tensor[0].clone(), "none": tensor[:0].clone()}
    weightmap.save_safetensors(tensors, path)
    assert json.loads(header_of(path))["t"]["dtype"] == TORCH_DTYPES[name]
    loaded = load_torch(path)
    assert loaded.keys() == tensors.keys()
    assert all(same(torch, loaded[key], tensors[key]) for key in tensors)


@torch_since((2, 8), "float4_e2m1fn_x2")
def test_packed_elements_of_torch(torch, load_torch, path):
    tensor = torch.arange(6, dtype=torch.uint8).reshape(2, 3).view(torch.float4_e2m1fn_x2)
    weightmap.save_safetensors({"t": tensor}, path)
    assert json.loads(header_of(path))["t"] == {
        "dtype": "F4", "shape": [2, 6], "data_offsets": [0, 6],
    }
    loaded = load_torch(path)["t"]
    assert loaded.dtype == tensor.dtype
    assert loaded.view(torch.uint8).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    "name",
    ["bool", "uint8", "int8", "int16", "uint16", "float16", "int32", "uint32", "float32",
     "complex64", "float64", "int64", "uint64"],
)
def test_every_type_of_numpy(numpy, load_numpy, path, name):
    array = numpy.arange(6).astype(name).reshape(2, 3)
    weightmap.save_safetensors({"t": array}, path)
    loaded = load_numpy(path)["t"]
    assert loaded.dtype == array.dtype
    assert loaded.tobytes() == array.tobytes() and loaded.shape == (2, 3)


@pytest.mark.parametrize(
    "name",
    dtype_params(["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz",
                  "float8_e5m2fnuz"]),
)
def test_the_types_of_ml_dtypes(numpy, torch, load_torch, path, name):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="has the types that numpy lacks")
    array = numpy.arange(1, 7).astype(getattr(ml_dtypes, name))
    weightmap.save_safetensors({"t": array}, path)
    loaded = load_torch(path)["t"]
    assert loaded.dtype == getattr(torch, name)
    assert loaded.view(torch.uint8).numpy().tobytes() == array.tobytes()


def test_arrays_are_written_row_major_however_they_lie(numpy, load_numpy, path):
    big = numpy.arange(6, dtype=">i4").reshape(2, 3)
    arrays = {
        "t": big.T, "steps": numpy.arange(10)[::-2], "scalar": numpy.float32(3), "zero": big[0, 1],
        "wide": numpy.broadcast_to(numpy.float64(2), (3,)), "zero_d": numpy.array(7),
    }
    weightmap.save_safetensors(arrays, path)
    loaded = load_numpy(path)
    for name, array in arrays.items():
        assert loaded[name].shape == array.shape
        assert loaded[name].tolist() == array.tolist()


def test_what_speaks_dlpack(numpy, load_numpy, path):
    class Other:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    weightmap.save_safetensors({"t": Other(numpy.arange(3))}, path)
    assert load_numpy(path)["t"].tolist() == [0, 1, 2]


def test_an_exception_of_progress_leaves_nothing(torch, tmp_path, path):
    class Stop(Exception):
        pass

    def progress(done, all):
        raise Stop

    with pytest.raises(Stop):
        weightmap.save_safetensors({"t": torch.zeros(60_000_000)}, path, progress=progress)
    assert os.listdir(tmp_path) == []


# --- metadata ---------------------------------------------------------------------------------


def test_metadata_stays_in_its_order(torch, path):
    metadata = {"z": "1", "é": "\n", "a": "2"}
    weightmap.save_safetensors({"t": torch.ones(1)}, path, metadata=metadata)
    assert header_of(path).startswith('{"__metadata__":{"z":"1","é":"\\n","a":"2"},"t":')
    safetensors = pytest.importorskip("safetensors")
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata() == metadata


def test_the_default_metadata(torch, numpy, path, data, tmp_path):
    def metadata():
        return json.loads(header_of(path)).get("__metadata__")

    weightmap.save_safetensors({"t": torch.ones(1), "n": numpy.ones(1)}, path)
    assert metadata() == {"format": "pt"}
    weightmap.save_safetensors({"n": numpy.ones(1)}, path)
    assert metadata() is None
    weightmap.save_safetensors(weightmap.open(data / "from_cuda.pt"), path)
    assert metadata() == {"format": "pt"}
    weightmap.save_safetensors({"t": torch.ones(1)}, path, metadata={})
    assert metadata() is None
    weightmap.save_safetensors({"t": torch.ones(1)}, path, metadata={"made": "by hand"})
    assert metadata() == {"made": "by hand"}
    weightmap.save_safetensors(weightmap.open(path), path)
    assert metadata() == {"made": "by hand", "format": "pt"}


# --- tensors of weightmap ---------------------------------------------------------------------


def test_a_checkpoint_is_written_from_its_mapping(torch, load_torch, path, data):
    for name in ("views.pt", "big_endian.pt", "state_dict.pt", "scalars_and_empty.pt"):
        with weightmap.open(data / name) as checkpoint:
            expected = {key: tensor.clone() for key, tensor in checkpoint.torch().items()}
            weightmap.save_safetensors(checkpoint, path, shared="copy")
        loaded = load_torch(path)
        assert loaded.keys() == expected.keys()
        assert all(same(torch, loaded[key], expected[key]) for key in expected)


def test_single_tensors_of_a_checkpoint(load_numpy, path, tmp_path, numpy):
    source = tmp_path / "source.safetensors"
    weightmap.save_safetensors({"t": numpy.arange(12, dtype="f4").reshape(3, 4)}, source)
    tensor = weightmap.open(source)["t"]
    weightmap.save_safetensors({"rows": tensor[1:]}, path)
    assert load_numpy(path)["rows"].tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]
    with pytest.raises(ValueError, match='the tensor "column" is not contiguous'):
        weightmap.save_safetensors({"column": tensor[:, 1]}, path)
    weightmap.save_safetensors({"column": tensor[:, 1].numpy()}, path)
    assert load_numpy(path)["column"].tolist() == [1, 5, 9]


def test_the_file_may_replace_its_source(numpy, path):
    weightmap.save_safetensors({"t": numpy.arange(3)}, path)
    with weightmap.open(path) as checkpoint:
        weightmap.save_safetensors({"u": checkpoint["t"]}, path)
        assert checkpoint["t"].numpy().tolist() == [0, 1, 2]
    assert list(weightmap.open(path)) == ["u"]


# --- traps ------------------------------------------------------------------------------------


def refused(tensors, path, kind, match, **options):
    with pytest.raises(kind, match=match) as raised:
        weightmap.save_safetensors(tensors, path, **options)
    assert raised.value.file == str(path)
    assert not path.exists()


NO_TEXT, NOT_UTF8 = "is not text", "is not UTF-8"
INVALID, UNSUPPORTED = weightmap.InvalidArgumentError, weightmap.UnsupportedError
# Each with what makes the tensors, and the options.
REFUSED = {
    "not contiguous": (
        lambda torch: {"t": torch.ones(2, 3).T}, {}, ValueError,
        r'the tensor "t" is not contiguous, as safetensors has it; save tensor.contiguous\(\)'),
    "sparse": (lambda torch: {"t": torch.eye(3).to_sparse()}, {}, UNSUPPORTED,
               "layout torch.sparse_coo"),
    "meta": (lambda torch: {"t": torch.empty(3, device="meta")}, {}, UNSUPPORTED, "meta device"),
    "lazy": (lambda torch: {"t": torch.ones(3, dtype=torch.complex64).conj()}, {}, UNSUPPORTED,
             "resolve_conj"),
    "subclass": (
        lambda torch: {"t": torch.ones(1).as_subclass(type("Own", (torch.Tensor,), {}))}, {},
        UNSUPPORTED, 'the tensor "t" is a Own, which is more'),
    "list": (lambda torch: {"t": [1, 2]}, {}, UNSUPPORTED, "is of type list, which is no tensor"),
    "complex128": (lambda torch: {"t": torch.ones(1, dtype=torch.complex128)}, {}, UNSUPPORTED,
                   "complex128, which safetensors has"),
    "qint8": (
        lambda torch: {"t": torch.quantize_per_tensor(torch.ones(2), 1, 0, torch.qint8)}, {},
        UNSUPPORTED, "qint8, which safetensors has"),
    "complex128 of numpy": (lambda torch: {"t": torch.ones(1).numpy().astype("complex128")}, {},
                            UNSUPPORTED, "complex128, which safetensors has"),
    "texts": (lambda torch: {"t": torch.ones(1).numpy().astype("U1")}, {}, UNSUPPORTED,
              "an array of <U1"),
    "mask": (lambda torch: {"t": pytest.importorskip("numpy").ma.masked_array([1, 2], [1, 0])}, {},
             UNSUPPORTED, "MaskedArray"),
    "name of the metadata": (lambda torch: {"__metadata__": torch.ones(1)}, {}, INVALID,
                             "keeps for the metadata"),
    "surrogate": (lambda torch: {"\ud800": torch.ones(1)}, {}, INVALID, NOT_UTF8),
    "number": (lambda torch: {1: torch.ones(1)}, {}, INVALID, "the name 1 is not text"),
    "shared": (lambda torch: {"t": torch.ones(1)}, {"shared": "no"}, INVALID, 'shared is "no"'),
    "max_size": (lambda torch: {"t": torch.ones(1)}, {"max_size": 0}, INVALID, "max_size is 0"),
    "value of metadata": (lambda torch: {}, {"metadata": {"k": 1}}, INVALID, NO_TEXT),
    "key of metadata": (lambda torch: {}, {"metadata": {1: "v"}}, INVALID, NO_TEXT),
    "None in metadata": (lambda torch: {}, {"metadata": {"k": None}}, INVALID, NO_TEXT),
    "surrogate in metadata": (lambda torch: {}, {"metadata": {"k": "\ud800"}}, INVALID, NOT_UTF8),
    "two names": (lambda torch: dict(zip("ba", shared(torch, 0))), {}, INVALID,
                  'the tensors "b" and "a" share their elements'),
    "a part": (lambda torch: dict(zip("ba", shared(torch, 1))), {"shared": "drop"}, INVALID,
               'the tensors "b" and "a" share a part'),
}


def shared(torch, begin):
    tensor = torch.ones(4)
    return tensor, tensor[begin:]


@pytest.mark.filterwarnings("ignore:.*are deprecated")
@pytest.mark.parametrize("name", REFUSED)
def test_refuses(torch, numpy, path, name):
    make, options, kind, message = REFUSED[name]
    refused(make(torch), path, kind, message, **options)


def test_storages_that_are_not_filled_in_yet(numpy, path, tmp_path):
    source = tmp_path / "reserved.pt"
    tensors = {"w": numpy.ones(4, "f4"), "room": weightmap.empty(4)}
    weightmap.save(tensors, source)
    with pytest.raises(weightmap.UnsupportedError, match="was reserved and is not written yet"):
        weightmap.save_safetensors(weightmap.open(source), path)
    assert not path.exists()
    weightmap.save_safetensors({"w": weightmap.open(source)["w"]}, path)


def test_shared_elements_are_dropped_as_save_model_does_it(torch, load_torch, path):
    tensor = torch.ones(4)
    tensors = {"b": tensor, "a": tensor[:], "c": torch.zeros(4)}
    report = weightmap.save_safetensors(tensors, path, shared="drop")
    assert report.dropped == {"a": "b"}
    assert json.loads(header_of(path))["__metadata__"] == {"format": "pt", "a": "b"}
    assert load_torch(path).keys() == {"b", "c"}


def test_save_model_says_the_same_of_tied_weights(torch, tmp_path, path):
    save_model = pytest.importorskip("safetensors.torch").save_model

    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(4, 4, bias=False)
            self.b = torch.nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight

    model = Tied()
    save_model(model, str(tmp_path / "theirs"))
    weightmap.save_safetensors(model.state_dict(), path, shared="drop", metadata={})
    safetensors = pytest.importorskip("safetensors")
    said = []
    for file in (tmp_path / "theirs", path):
        with safetensors.safe_open(file, "pt") as opened:
            said.append((set(opened.keys()), dict(opened.metadata())))
    assert said[0] == said[1]


def test_shared_elements_are_written_twice(torch, load_torch, path):
    tensor = torch.arange(4)
    weightmap.save_safetensors({"b": tensor, "a": tensor[1:]}, path, shared="copy")
    assert load_torch(path)["a"].tolist() == [1, 2, 3]


def test_ties_of_a_checkpoint(torch, load_torch, path, tmp_path):
    tensor = torch.arange(6).reshape(2, 3)
    torch.save({"a": tensor, "b": tensor, "t": tensor.T, "u": tensor.T}, tmp_path / "tied.pt")
    checkpoint = weightmap.open(tmp_path / "tied.pt")
    refused(checkpoint, path, weightmap.InvalidArgumentError, '"a" and "b" share their elements')
    report = weightmap.save_safetensors(checkpoint, path, shared="drop")
    assert report.dropped == {"b": "a", "u": "t"}
    loaded = load_torch(path)
    assert loaded["a"].equal(tensor) and loaded["t"].equal(tensor.T)


# --- files ------------------------------------------------------------------------------------


def test_a_set_has_the_index_that_transformers_writes(torch, tmp_path, path):
    tensors = {name: torch.full((4,), float(i)) for i, name in enumerate("dcba")}
    report = weightmap.save_safetensors(tensors, path, max_size=32)
    shards = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    index = {
        "metadata": {"total_size": 64},
        "weight_map": {"a": shards[1], "b": shards[1], "c": shards[0], "d": shards[0]},
    }
    text = (tmp_path / "model.safetensors.index.json").read_text()
    assert text == json.dumps(index, indent=2, sort_keys=True) + "\n"
    names = [*shards, "model.safetensors.index.json"]
    assert sorted(os.listdir(tmp_path)) == names
    assert report.files == [str(tmp_path / name) for name in names]
    assert report.bytes == sum((tmp_path / name).stat().st_size for name in names)
    opened = weightmap.open(tmp_path)
    assert {name: opened[name].torch().tolist() for name in opened} == {
        name: tensor.tolist() for name, tensor in tensors.items()
    }


def test_no_tensors(load_torch, path, torch):
    weightmap.save_safetensors({}, path)
    assert load_torch(path) == {}


def test_a_tensor_without_a_name_gets_that_of_its_file(torch, load_torch, path, tmp_path):
    torch.save(torch.arange(4.0), tmp_path / "tf_gammas.pt")
    torch.save({"": torch.arange(3.0)}, tmp_path / "named.pt")  # its key is its name
    for name, expected in (("tf_gammas", {"tf_gammas": 4}), ("named", {"": 3})):
        with weightmap.open(tmp_path / f"{name}.pt") as opened:
            weightmap.save_safetensors(opened, path)
        assert {key: len(tensor) for key, tensor in load_torch(path).items()} == expected


@pytest.mark.parametrize("value", [{"epoch": 3}, [1, 2], "text"])
def test_values_alone_are_refused(torch, path, tmp_path, value):
    torch.save(value, tmp_path / "values.pt")
    with weightmap.open(tmp_path / "values.pt") as opened:
        with pytest.raises(weightmap.UnsupportedError, match="values.pt has no tensors, so nothing would be"):
            weightmap.save_safetensors(opened, path)
    torch.save({}, tmp_path / "empty.pt")
    with weightmap.open(tmp_path / "empty.pt") as opened:
        assert weightmap.save_safetensors(opened, path).left_out == ()


def test_a_folder_that_is_not_there(numpy, tmp_path):
    with pytest.raises(FileNotFoundError):
        weightmap.save_safetensors({"t": numpy.ones(1)}, tmp_path / "none" / "m.safetensors")


@pytest.mark.parametrize("save", [
    lambda thing, path: weightmap.save_safetensors({"w": thing}, path),
    lambda thing, path: weightmap.save({"w": thing}, path),
], ids=["safetensors", "torch"])
def test_arrays_that_repeat_without_a_bound_are_refused(save, cube, tmp_path, monkeypatch):
    numpy = pytest.importorskip("numpy", reason="this test saves arrays")
    bound = (r"has 33554432 elements in a storage of \d+, and its strides may repeat each 1024 times; "
             r"the option repeats=any \(WEIGHTMAP_REPEATS\)")
    target = tmp_path / "new"
    # Which no torch.save() writes without a copy.
    array = numpy.lib.stride_tricks.as_strided(numpy.zeros(26, "<f4")[::-1], (2,) * 25, (-4,) * 25)
    for view in (array, array.view(">f4")):
        with pytest.raises(weightmap.LimitExceededError, match=bound):
            save(view, target)
    assert not target.exists()
    save(array[(0,) * 20], target)
    monkeypatch.setenv("WEIGHTMAP_REPEATS", "any")
    save(array, target)
    assert target.stat().st_size > 4 << 25


def test_a_tensor_that_repeats_without_a_bound_is_refused_with_the_bound(cube, tmp_path, numpy):
    tensor = weightmap.open(cube(25))["w"]
    for thing in (tensor, tensor.numpy()):
        with pytest.raises(weightmap.LimitExceededError, match="repeats=any"):
            weightmap.save_safetensors({"w": thing}, tmp_path / "new")
    assert weightmap.save({"w": tensor.numpy()}, tmp_path / "new").bytes < 4096  # its storage
