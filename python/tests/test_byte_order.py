"""Files of the other byte order: every tensor in them, listed or not, has the values that it was
saved with."""

import collections
import pickle
import zipfile

import pytest

import weightmap

torch = pytest.importorskip("torch", reason="these tests write files")
pytest.importorskip("weightmap.torch", reason="this torch is too old")

UNIT = {"bfloat16": 2, "complex32": 2, "complex64": 4, "complex128": 8, "bool": 1}


class Hidden(torch.nn.Module):
    """With what a state_dict() does not have: a buffer that is not persistent, and aliases."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
        self.register_buffer("persistent", torch.tensor([3, 4], dtype=torch.uint32))
        self.register_buffer("hidden", torch.tensor([1, 2, 70000], dtype=torch.uint32), persistent=False)
        self.register_buffer("typed", torch.tensor([5, -6], dtype=torch.int16), persistent=False)
        self.alias = [self.weight, self.persistent]
        self.plain = torch.tensor([7, 8], dtype=torch.uint64)


def storages_of(pickled):
    """By key, how many bytes of the pickle's storages change places; of untyped ones as the one dtype
    that the tensors over them have."""
    units = {}

    class Reads(pickle.Unpickler):
        def persistent_load(self, identifier):
            _, kind, key, _, _ = identifier
            dtype = str(getattr(kind, "dtype", None)).removeprefix("torch.")
            if kind is not torch.UntypedStorage and key not in units:
                units[key] = UNIT.get(dtype) or kind.dtype.itemsize
            return key

        def find_class(self, module, name):
            if name == "_rebuild_tensor_v3":
                return lambda key, *rest: units.update({key: rest[5].itemsize})
            if name.startswith("_rebuild"):
                return lambda *arguments: None
            return super().find_class(module, name)

    import io

    reader = Reads(io.BytesIO(pickled))
    reader.load()
    return units


def big_endian(path):
    """Rewrites what torch.save wrote as a machine of the other byte order would have written it."""
    with zipfile.ZipFile(path) as read:
        records = {name: read.read(name) for name in read.namelist()}
    (prefix,) = {name.partition("/")[0] for name in records}
    for key, unit in storages_of(records[f"{prefix}/data.pkl"]).items():
        content = bytearray(records[f"{prefix}/data/{key}"])
        for at in range(0, len(content), unit):
            content[at : at + unit] = content[at : at + unit][::-1]
        records[f"{prefix}/data/{key}"] = bytes(content)
    records[f"{prefix}/byteorder"] = b"big"
    with zipfile.ZipFile(path, "w") as written:
        for name, content in records.items():
            written.writestr(name, content)


def tensors_in(value, kind, seen, place=()):
    """(place, tensor) of all in a tree of plain objects, in which an object has its state."""
    if isinstance(value, kind):
        yield place, value
    elif id(value) in seen:
        return
    elif isinstance(value, dict):
        seen[id(value)] = value
        for key, part in value.items():
            yield from tensors_in(part, kind, seen, (*place, key))
    elif isinstance(value, (list, tuple)):
        seen[id(value)] = value
        for index, part in enumerate(value):
            yield from tensors_in(part, kind, seen, (*place, index))
    elif isinstance(value, weightmap.Object):
        seen[id(value)] = value
        for part in (value.arguments, value.state):
            yield from tensors_in(part, kind, seen, (*place, "*"))


def listed(tensor):
    if tensor.layout in (torch.sparse_coo, torch.sparse_csr):
        tensor = tensor.to_dense()
    if tensor.is_nested:
        return [listed(part) for part in tensor.unbind()]
    return (tensor.dequantize() if tensor.is_quantized else tensor).tolist()


SAVED = {
    "module": Hidden,
    "module in a list": lambda: [Hidden(), 1],
    "sparse": lambda: {
        "coo": torch.sparse_coo_tensor([[0, 2]], torch.tensor([1.5, 2.5]), (4,)),
        "csr": torch.tensor([[0, 2.0], [3.0, 0]]).to_sparse_csr(),
    },
    "quantized": lambda: {
        "tensor": torch.quantize_per_tensor(torch.tensor([1.0, 2.0]), 0.5, 0, torch.qint32),
        "channels": torch.quantize_per_channel(
            torch.ones(2, 2), torch.tensor([0.5, 0.25]), torch.zeros(2), 0, torch.qint8),
    },
    "tied": lambda: (lambda tensor: {"a": tensor, "b": tensor.T, "c": [tensor[1:]]})(
        torch.tensor([[1, 2, 3], [4, 5, 60000]], dtype=torch.uint16)),
    "keys of objects": lambda: collections.OrderedDict(
        {1: torch.ones(2, dtype=torch.complex64), (2, 3): torch.tensor([1.0], dtype=torch.bfloat16)}),
}


@pytest.fixture(params=SAVED)
def pair(request, tmp_path):
    """The same object in both orders."""
    made = SAVED[request.param]()
    torch.save(made, tmp_path / "little.pt")
    torch.save(made, tmp_path / "big.pt")
    big_endian(tmp_path / "big.pt")
    return tmp_path / "little.pt", tmp_path / "big.pt"


@pytest.mark.filterwarnings("ignore")
def test_torch_objects_are_those_of_a_file_in_native_order(pair):
    little, big = (
        dict(tensors_in(weightmap.torch.load(path, on_unknown="object"), torch.Tensor, {})) for path in pair
    )
    assert list(little) == list(big) and little
    for place, tensor in little.items():
        assert big[place].dtype == tensor.dtype, place
        assert listed(big[place]) == listed(tensor), place


@pytest.mark.filterwarnings("ignore")
def test_root_is_that_of_a_file_in_native_order(pair):
    opened = [weightmap.open(path) for path in pair]
    little, big = (dict(tensors_in(each.root(), weightmap.Tensor, {})) for each in opened)
    assert list(little) == list(big)
    for place, tensor in little.items():
        if tensor.dtype.startswith("q"):  # without its scale
            assert big[place].bits().tolist() == tensor.bits().tolist(), place
            return
        assert big[place].tolist() == tensor.tolist(), place
        assert big[place].torch().tolist() == tensor.torch().tolist(), place
    little, big = (each.torch() for each in opened)
    assert list(little) == list(big)
    for name, tensor in little.items():
        assert listed(big[name]) == listed(tensor), name


def test_words_over_a_storage_of_bytes_are_swapped_and_the_bytes_are_not(tmp_path):
    words = torch.tensor([1, 300], dtype=torch.uint16)
    for first in ("bytes", "words"):
        parts = {"bytes": words.view(torch.uint8), "words": words}
        torch.save({first: parts.pop(first), **parts}, tmp_path / "big.pt")
        big_endian(tmp_path / "big.pt")
        loaded = weightmap.torch.load(tmp_path / "big.pt")
        assert loaded["words"].tolist() == [1, 300]
        assert loaded["bytes"].tolist() == [0, 1, 1, 44]
