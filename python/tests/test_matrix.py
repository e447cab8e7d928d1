"""Every public method on a file of every format: the right result, or a refusal that says why.

What is right is what torch, safetensors and gguf read from the same file. A method that a class has
and the table does not fails the test.
"""

import os
import pathlib

import pytest

import weightmap

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")
dcp = pytest.importorskip("torch.distributed.checkpoint")
for needed in ("gguf", "safetensors.torch"):
    pytest.importorskip(needed)

import format_files  # noqa: E402



def same(found, expected):
    """Of tensors, arrays and dicts of them: the same names, dtypes, shapes and elements."""
    if isinstance(expected, dict):
        return set(found) == set(expected) and all(
            same(found[name], expected[name]) for name in expected)
    if str(getattr(found, "dtype", "")) == "bfloat16":  # of numpy, which torch does not know
        found = torch.from_numpy(found.view("u2").copy()).view(torch.bfloat16)
    found = torch.as_tensor(found)
    return (found.dtype, found.shape) == (expected.dtype, expected.shape) and torch.equal(
        found, expected)


def raw(tensor):
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()


class Cell:
    """One method on one file. Of a tensor in blocks `tensors` has the bytes."""

    def __init__(self, form, path, tensors, folder):
        self.form, self.path, self.tensors, self.folder = form, path, tensors, folder
        self.opened = weightmap.open(path)

    def size(self):
        return sum(os.path.getsize(file) for file in self.opened.files)

    def model(self):
        """Of zeros; its state_dict has the names of the file."""
        model = torch.nn.Module()
        for name, tensor in self.tensors.items():
            *modules, own = name.split(".")
            module = model
            for part in modules:
                if not hasattr(module, part):
                    module.add_module(part, torch.nn.Module())
                module = getattr(module, part)
            module.register_buffer(own, torch.zeros_like(tensor))
        return model

    def is_in(self, model):
        return same(dict(model.state_dict()), self.tensors)

def closed(cell):
    cell.opened.close()
    try:
        return cell.opened.closed and not cell.opened["weight"]
    except weightmap.InvalidArgumentError as refusal:
        return "closed" in str(refusal)


# As they lie in the files, where that is not as torch reads them.
TENSOR_STRIDES = {"model.transposed": (1, 4)}


def copied(cell):
    """As its bytes lie."""
    for name, tensor in cell.tensors.items():
        found = cell.opened[name]
        buffer = torch.zeros(tensor.numel(), dtype=tensor.dtype)
        cell.opened.copy_to(found, buffer.view(torch.uint8).numpy())
        strides = TENSOR_STRIDES.get(name, tensor.stride())
        if not torch.equal(buffer.as_strided(tensor.shape, strides), tensor):
            return False
    return True


def first_of(cell):
    """In one piece, with elements."""
    return next(name for name, tensor in cell.opened.items()
                if isinstance(tensor, weightmap.Tensor) and tensor.nbytes > 0)


def demanded(cell):
    name = first_of(cell)
    cell.opened.demand(cell.opened[name])
    return cell.opened.demand_order() == [name]


def order_saved(cell):
    name = first_of(cell)
    cell.opened.demand(cell.opened[name])
    cell.opened.save_order(cell.folder / "order")
    return name in (cell.folder / "order").read_text()


def loaded(cell):
    model = cell.model()
    report = cell.opened.load_into(model)
    return cell.is_in(model) and (report.missing, report.unexpected) == ([], [])


def loaded_from_subtree(cell):
    model = cell.model()
    cell.opened.subtree(()).load_into(model)
    return cell.is_in(model)


def tensors_in(value):
    """All tensors of a value tree."""
    if isinstance(value, weightmap.Tensor):
        yield value.name
    parts = ()
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, (list, tuple)):
        parts = value
    elif isinstance(value, weightmap.Object):
        parts = (value.arguments, value.elements, value.state)
    for part in parts:
        yield from tensors_in(part)


# Which of the formats have their tensors in the value tree; the others only values.
IN_ROOT = {"pt", "pt, protocol 5", "legacy", "torchscript"}


def rooted(root, cell):
    expected = set(cell.tensors) - set(format_files.ARRAYS)  # which are arrays there
    return set(tensors_in(root)) == (expected if cell.form in IN_ROOT else set())


def opened_safely(cell):
    with weightmap.safe_open(cell.path, "pt") as file:
        return same({name: file.get_tensor(name) for name in file.keys()}, cell.tensors)


def loaded_as_torch(cell):
    found = weightmap.torch.load(cell.path)
    return same({name: found[name] for name in cell.tensors}, cell.tensors)


def saved(cell):
    """What torch reads again: all that was in the file, or its tensors."""
    weightmap.save(cell.opened, cell.folder / "saved")
    found = format_files.read_torch(cell.folder / "saved")
    return same({name: found[name] for name in cell.tensors}, cell.tensors)


def saved_as_safetensors(cell):
    weightmap.save_safetensors(cell.opened, cell.folder / "saved", shared="copy")
    return same(format_files.read_safetensors(cell.folder / "saved"), cell.tensors)


def every(check):
    """Of each tensor, with what it must be."""
    return lambda cell: all(check(cell.opened[name], tensor)
                            for name, tensor in cell.tensors.items())


def plain(check):
    """Of each that has elements of its own; those in blocks have theirs by the block."""
    return every(lambda found, tensor: found.name == "blocks" or check(found, tensor))


def one_piece(check):
    return plain(lambda found, tensor: isinstance(found, weightmap.ChunkedTensor)
                 or check(found, tensor))


def in_pieces(check):
    return every(lambda found, tensor: isinstance(found, weightmap.Tensor)
                 or check(found, tensor))


def gathered(found, tensor):
    buffer = bytearray(tensor.nbytes)
    found.gather(buffer)
    return buffer == raw(tensor)


def put_together(found, tensor):
    whole = torch.zeros_like(tensor)
    for begin, part in found.pieces:
        area = tuple(slice(at, at + size) for at, size in zip(begin, part.shape))
        whole[area] = part.torch()
    return torch.equal(whole, tensor)


def dtype_of(tensor):
    return str(tensor.dtype).removeprefix("torch.")


def strides_of(found, tensor):
    return TENSOR_STRIDES.get(found.name, tensor.stride())


FUNCTIONS = {
    "open": lambda cell: set(cell.opened) == set(cell.tensors),
    "torch.load": loaded_as_torch,
    "safe_open": opened_safely,
    "save": saved,
    "save_safetensors": saved_as_safetensors,
}
CHECKPOINT = {
    "close": closed,
    "closed": lambda cell: cell.opened.closed is False,
    "composed_tensors": lambda cell: [
        (tensor.name, tensor.form, tensor.part_count) for tensor in cell.opened.composed_tensors()
    ] == ([("model.rows", "chunked", 2), ("model.columns", "chunked", 2)]
          if cell.form in IN_PIECES else []),
    "copy_to": copied,
    "demand": demanded,
    "demand_order": demanded,
    "files": lambda cell: all(map(os.path.isfile, cell.opened.files)),
    "find": lambda cell: cell.opened.find("*we*") == [
        name for name in cell.opened if "we" in name],
    "generation": lambda cell: cell.opened.generation.inode == os.stat(
        cell.opened.files[0]).st_ino,
    "get": lambda cell: cell.opened.get("missing", 5) == 5
    and all(cell.opened.get(name).name == name for name in cell.tensors),
    "info": lambda cell: (cell.opened.info.file_bytes, cell.opened.info.unsupported) == (
        cell.size(), ("rank", "lr") if cell.form == "dcp, two ranks" else ()),
    "is_current": lambda cell: cell.opened.is_current(),
    "items": lambda cell: {name: tensor.name for name, tensor in cell.opened.items()} == {
        name: name for name in cell.tensors},
    "keys": lambda cell: set(cell.opened.keys()) == set(cell.tensors),
    "load_into": loaded,
    "numpy": lambda cell: same(cell.opened.numpy(), cell.tensors),
    "path": lambda cell: cell.opened.path == (
        str(cell.path[0] if cell.form == "mixed list" else cell.path)),
    "paths": lambda cell: sorted(".".join(map(str, path)) for path in cell.opened.paths())
    == sorted(cell.tensors),
    "reopen": lambda cell: set(cell.opened.reopen()) == set(cell.tensors),
    "residency": lambda cell: cell.opened.residency().file_bytes == cell.size(),
    "root": lambda cell: rooted(cell.opened.root(), cell),
    "save_order": order_saved,
    "state": lambda cell: str(cell.opened.state()) == "current",
    "stats": lambda cell: cell.opened.stats.reads > 0,
    "subtree": lambda cell: set(cell.opened.subtree(()).keys()) == set(cell.tensors),
    "summary": lambda cell: cell.opened.summary().all.tensors == len(cell.tensors),
    "torch": lambda cell: same(cell.opened.torch(), cell.tensors),
    "values": lambda cell: {tensor.name for tensor in cell.opened.values()} == set(cell.tensors),
    "verify_crc": lambda cell: cell.opened.verify_crc().bytes > 0,
    "verify_headers": lambda cell: cell.opened.verify_headers() is None,
    "warm": lambda cell: cell.opened.warm().bytes == cell.size(),
}
SUBTREE = {
    "get": lambda cell: cell.opened.subtree(()).get("missing", 5) == 5,
    "items": lambda cell: {name: tensor.name for name, tensor in cell.opened.subtree(()).items()}
    == {name: name for name in cell.tensors},
    "keys": lambda cell: set(cell.opened.subtree(()).keys()) == set(cell.tensors),
    "load_into": loaded_from_subtree,
    "root": lambda cell: rooted(cell.opened.subtree(()).root(), cell),
    "torch": lambda cell: same(cell.opened.subtree(()).torch(), cell.tensors),
    "values": lambda cell: {tensor.name for tensor in cell.opened.subtree(()).values()}
    == set(cell.tensors),
}
TENSOR = {
    "bits": one_piece(lambda found, tensor: found.bits().tobytes() == raw(tensor)),
    "block": every(lambda found, tensor: found.block == (
        (32, 34) if found.name == "blocks" else (1, tensor.element_size()))),
    "buffer": one_piece(
        lambda found, tensor: memoryview(found.bits().buffer()).tobytes() == raw(tensor)),
    "byteorder": one_piece(lambda found, tensor: found.byteorder == "native"),
    "dequantize": one_piece(lambda found, tensor: same(found.dequantize(), tensor.float())),
    "dtype": one_piece(lambda found, tensor: found.dtype == dtype_of(tensor)),
    "file_index": one_piece(lambda found, tensor: found.file_index >= 0),
    "file_offset": one_piece(lambda found, tensor: found.file_offset >= 0),
    "index": one_piece(lambda found, tensor: found.index >= 0),
    "is_buffer": lambda cell: all(
        tensor.is_buffer is (cell.form in ("torchscript", "pt2"))
        for tensor in cell.opened.values() if isinstance(tensor, weightmap.Tensor)),
    "is_conjugate": one_piece(lambda found, tensor: found.is_conjugate is False),
    "is_contiguous": one_piece(lambda found, tensor: found.is_contiguous == tensor.as_strided(
        tensor.shape, strides_of(found, tensor)).is_contiguous()),
    "is_negative": one_piece(lambda found, tensor: found.is_negative is False),
    "is_parameter": one_piece(lambda found, tensor: found.is_parameter is False),
    "is_writable": one_piece(lambda found, tensor: found.is_writable is False),
    "item": one_piece(lambda found, tensor: tensor.numel() != 1 or found.item() == tensor.item()),
    "itemsize": one_piece(lambda found, tensor: found.itemsize == tensor.element_size()),
    "location": one_piece(lambda found, tensor: found.location == "cpu"),
    "name": every(lambda found, tensor: found.name),
    "nbytes": every(lambda found, tensor: found.nbytes == tensor.nbytes),
    "ndim": every(lambda found, tensor: found.ndim == tensor.ndim),
    "numel": one_piece(lambda found, tensor: found.numel == tensor.numel()),
    "numpy": every(lambda found, tensor: same(found.numpy(), tensor)),
    "requires_grad": one_piece(lambda found, tensor: found.requires_grad is False),
    "shape": one_piece(lambda found, tensor: tuple(found.shape) == tuple(tensor.shape)),
    "stats": one_piece(lambda found, tensor: found.stats().count == tensor.numel()
                       and (tensor.numel() == 0 or found.stats().max == tensor.max().item())),
    "storage": one_piece(lambda found, tensor: isinstance(found.storage, str)),
    "storage_index": one_piece(lambda found, tensor: found.storage_index >= 0),
    "storage_offset": one_piece(
        lambda found, tensor: found.storage_offset == tensor.storage_offset()),
    "strides": one_piece(lambda found, tensor: tuple(found.strides) == strides_of(found, tensor)),
    "tobytes": every(lambda found, tensor: found.tobytes() == raw(tensor)),
    "tolist": one_piece(lambda found, tensor: found.tolist() == tensor.tolist()),
    "torch": every(lambda found, tensor: same(found.torch(), tensor)),
}
CHUNKED = {
    "block": in_pieces(lambda found, tensor: found.block == (1, tensor.element_size())),
    "dtype": in_pieces(lambda found, tensor: found.dtype == dtype_of(tensor)),
    "file_index": in_pieces(lambda found, tensor: found.file_index >= 0),
    "file_offset": in_pieces(lambda found, tensor: found.file_offset >= 0),
    "gather": in_pieces(gathered),
    "indices": in_pieces(lambda found, tensor: len(found.indices) == len(found.pieces)),
    "itemsize": in_pieces(lambda found, tensor: found.itemsize == tensor.element_size()),
    "location": in_pieces(lambda found, tensor: found.location == "cpu"),
    "name": in_pieces(lambda found, tensor: found.name),
    "nbytes": in_pieces(lambda found, tensor: found.nbytes == tensor.nbytes),
    "ndim": in_pieces(lambda found, tensor: found.ndim == tensor.ndim),
    "numel": in_pieces(lambda found, tensor: found.numel == tensor.numel()),
    "numpy": in_pieces(lambda found, tensor: same(found.numpy(), tensor)),
    "parts": in_pieces(lambda found, tensor: sum(part.nbytes for part in found.parts())
                       == tensor.nbytes),
    "pieces": in_pieces(put_together),
    "requires_grad": in_pieces(
        lambda found, tensor: found.requires_grad is (found.name == "model.rows")),
    "shape": in_pieces(lambda found, tensor: tuple(found.shape) == tuple(tensor.shape)),
    "tobytes": in_pieces(lambda found, tensor: found.tobytes() == raw(tensor)),
    "torch": in_pieces(lambda found, tensor: same(found.torch(), tensor)),
}
CLASSES = {weightmap.Checkpoint: CHECKPOINT, weightmap.Subtree: SUBTREE,
           weightmap.Tensor: TENSOR, weightmap.ChunkedTensor: CHUNKED}
# Only where a tensor is in pieces; the other rows are of every format.
IN_PIECES = ("dcp, two ranks",)
REFUSED = {
    **{(row, "dcp, two ranks"): "has tensors in chunks, which lie below no key: find() has"
       for row in ("Checkpoint.subtree", *(f"Subtree.{name}" for name in SUBTREE))},
    ("torch.load", "pt2"): "is a .pt2 archive, which holds a program; weightmap.open() has",
    ("torch.load", "mixed list"): "mapped by its path or descriptor, and a list has neither",
    ("save", "torchscript"): "is a torchscript archive, which holds a program; save its tensors",
    ("save", "pt2"): "is a pt2 archive, which holds a program; save its tensors",
    ("save", "gguf"): "['blocks'] torch has no dtype q8_0; save tensor.bits()",
    ("save", "splits"): "['blocks'] torch has no dtype q8_0; save tensor.bits()",
    ("save_safetensors", "gguf"): 'the tensor "blocks" is of q8_0, which safetensors has not',
    ("save_safetensors", "splits"): 'the tensor "blocks" is of q8_0, which safetensors has not',
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The files of format_files.py, one of two ranks, and a list of two formats."""
    folder = tmp_path_factory.mktemp("formats")
    files = format_files.make(folder)
    path = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "dcp" / "default"
    files["dcp, two ranks"] = (path, read_ranks(path))
    torch.save({"more": torch.ones(3)}, folder / "more.pt")
    path, tensors = files["safetensors"]
    files["mixed list"] = ([path, folder / "more.pt"], {**tensors, "more": torch.ones(3)})
    return files


def read_ranks(path):
    listed = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
    found = {name: torch.zeros(meta.size, dtype=meta.properties.dtype)
             for name, meta in listed.items() if hasattr(meta, "properties")}
    dcp.load(found, checkpoint_id=path)
    return found


def rows():
    for name, check in FUNCTIONS.items():
        yield name, check
    for kind, table in CLASSES.items():
        for name, check in table.items():
            yield f"{kind.__name__}.{name}", check


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_method_is_in_a_table(kind):
    assert {name for name in dir(kind) if not name.startswith("_")} == set(CLASSES[kind])


@pytest.mark.filterwarnings("ignore")
def test_every_method_on_every_format(made, tmp_path, capsys):
    ran, wrong, refused = 0, [], {}
    for form, (path, tensors) in made.items():
        for row, check in rows():
            if row.startswith("ChunkedTensor.") and form not in IN_PIECES:
                continue
            ran += 1
            folder = tmp_path / str(ran)
            folder.mkdir()
            try:
                if not check(Cell(form, path, tensors, folder)):
                    wrong.append((row, form))
            except weightmap.Error as refusal:
                refused[row, form] = str(refusal)
    with capsys.disabled():
        print(f" {ran} cells, {len(refused)} of them refused")
    assert wrong == []
    assert {cell: words for cell, words in refused.items()
            if REFUSED.get(cell, "not expected") not in words} == {}
    assert set(refused) == set(REFUSED)
