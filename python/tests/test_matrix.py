"""Every public method on a file of every format: the right result, or a refusal that says why.

What is right is what torch, safetensors and gguf read from the same file. A method that a class has
and the table does not fails the test, and so does a name of the package.
"""

import itertools
import os
import pathlib
import pickle
import shutil
from collections import Counter

import pytest
from conftest import torch_since

import weightmap

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")
dcp = pytest.importorskip("torch.distributed.checkpoint")
for needed in ("gguf", "safetensors.torch"):
    pytest.importorskip(needed)

import format_files  # noqa: E402
import gguf  # noqa: E402
import safetensors.torch  # noqa: E402

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data"
# Whose files are what torch.save made of a dict, which has more than tensors.
OF_TORCH_SAVE = {"pt", "pt, protocol 5", "legacy"}
NOT_TENSORS = {**format_files.ARRAYS, "lr": 0.5}


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
    """One method on one file. Of a tensor in blocks `tensors` has the bytes. `applied` counts the
    tensors that a check was applied to."""

    def __init__(self, form, path, tensors, folder):
        self.form, self.path, self.tensors, self.folder = form, path, tensors, folder
        self.paths = path if isinstance(path, list) else [path]
        self.opened = weightmap.open(path)
        self.applied = 0

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


def same_bytes(path, other):
    first, second = ({name: tensor.tobytes() for name, tensor in weightmap.open(each).items()}
                     for each in (path, other))
    return first == second and first != {}


def is_whole(found, cell):
    """All that was in the file, or, of another format than torch's, its tensors."""
    if cell.form in OF_TORCH_SAVE:
        return set(found) == {*cell.tensors, *NOT_TENSORS} and has_values(found) and same(
            {name: found[name] for name in cell.tensors}, cell.tensors)
    if cell.form.startswith("dcp"):  # nested, with the values that are no tensors
        found = dict(format_files.leaves(found, ()))
    return same({name: found[name] for name in cell.tensors}, cell.tensors)


def has_values(found):
    """The arrays and numbers beside the tensors."""
    return found["lr"] == NOT_TENSORS["lr"] and all(
        type(found[name]) is numpy.ndarray and found[name].dtype == array.dtype
        and numpy.array_equal(found[name], array)
        for name, array in format_files.ARRAYS.items())


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


def rows_read(cell):
    """The last row of each tensor whose rows lie one after the other."""
    read = 0
    for name, tensor in cell.tensors.items():
        found = cell.opened[name]
        is_plain = getattr(found, "is_contiguous", name != "model.columns") and not (
            getattr(found, "is_conjugate", False) or getattr(found, "is_negative", False))
        if tensor.dim() == 0 or found.nbytes == 0 or not is_plain:
            continue
        row = bytearray(found.nbytes // tensor.shape[0])
        cell.opened.rows(name).gather([tensor.shape[0] - 1], row)
        read += 1
        if row != raw(tensor[-1]):
            return False
    return read > 0


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
    if cell.form in OF_TORCH_SAVE and not has_values(root):
        return False
    found = set(tensors_in(root))
    if cell.form.startswith("dcp"):  # a whole that lies in pieces is no weightmap.Tensor
        return found == expected - set(format_files.CUTS)
    return found == (expected if cell.form in IN_ROOT else set())


def opened_safely(cell):
    with weightmap.safe_open(cell.path, "pt") as file:
        return same({name: file.get_tensor(name) for name in file.keys()}, cell.tensors)


def from_safe_open(check):
    """Of each tensor, by its name."""

    def checked(cell):
        with weightmap.safe_open(cell.path, "pt") as file:
            cell.applied += len(cell.tensors)
            return all(check(file, name, tensor) for name, tensor in cell.tensors.items())

    return checked


def has_slices(file, name, tensor):
    if tensor.ndim == 0:
        return True
    part = file.get_slice(name)
    return part.get_shape()[0] == tensor.shape[0] and same(part[:1], tensor[:1])


def loaded_as_torch(cell):
    return is_whole(weightmap.torch.load(cell.path), cell)


def saved(cell):
    weightmap.save(cell.opened, cell.folder / "saved")
    found = torch.load(cell.folder / "saved", weights_only=False)
    return is_whole(found, cell)


def saved_as_torch(cell):
    weightmap.torch.save(cell.opened.torch(), cell.folder / "saved")
    return same(torch.load(cell.folder / "saved"), cell.tensors)


def patched(block):
    def check(cell):
        with block() as report:
            if cell.form in OF_TORCH_SAVE:
                found = torch.load(cell.path, weights_only=False)
            else:
                found = safetensors.torch.load_file(cell.path)
        return len(report.calls) == 1 and is_whole(found, cell)

    return check


def model_loaded(cell):
    return cell.is_in(weightmap.torch.load_model(cell.model, cell.path))


def model_summed_up(cell):
    model = weightmap.torch.load_model(cell.model, cell.path)
    return weightmap.torch.summary(model).all.tensors == len(cell.tensors)


def published(cell):
    def is_published(number, path):
        target = cell.folder / f"published {number}"
        if path.is_dir():
            path = shutil.copytree(path, cell.folder / f"to publish {number}")
        return weightmap.publish(path, target, copy=path.is_file()) and same_bytes(target, path)

    return all(is_published(*each) for each in enumerate(cell.paths))


def replaced(cell):
    for number, path in enumerate(cell.paths):
        target = cell.folder / f"replaced {number}"
        with weightmap.replacing(target) as new:
            (shutil.copytree if path.is_dir() else shutil.copy)(path, new)
        if not same_bytes(target, path):
            return False
    return True


def staged(cell):
    for path in cell.paths:
        with weightmap.stage(path) as copy:
            if not same_bytes(copy, path):
                return False
    return True


def staged_removed(cell):
    name = f"weightmap-matrix-{os.getpid()}.pt"
    for path in cell.paths:
        with weightmap.stage(path, name=name):
            listed = name in os.listdir("/dev/shm")
            weightmap.remove_staged(name)
            if not listed or name in os.listdir("/dev/shm"):
                return False
    return True


def found_in_processes(cell):
    mapped = weightmap.processes(*cell.paths).mapped
    return {one.file for one in mapped if one.process == os.getpid()} == {
        os.path.realpath(file) for file in cell.opened.files}


def unsafe_listed(cell):
    made = numpy.zeros(1)
    expected = {
        **{form: [f"{made.__reduce__()[0].__module__}._reconstruct", "numpy.ndarray",
                  "numpy.dtype"] for form in ("pt", "legacy", "pickle")},
        "pt, protocol 5": [f"{made.__reduce_ex__(5)[0].__module__}._frombuffer", "numpy.dtype"],
    }
    return all(weightmap.unsafe_globals(path) == expected.get(cell.form, []) for path in cell.paths)


def filled(cell):
    """Only what was made with reserved storages can be."""
    path = cell.folder / "reserved" if cell.form == "pt" else cell.paths[0]
    if cell.form == "pt":
        weightmap.save({"w": weightmap.empty((3,)), "other": cell.opened["low"]}, path)
    with weightmap.open_for_filling(path) as fill:
        fill["w"] = numpy.arange(3, dtype="f4")
        fill.seal()
    return same(torch.load(path), {"w": torch.arange(3.0), "other": cell.tensors["low"]})


def saved_as_safetensors(cell):
    weightmap.save_safetensors(cell.opened, cell.folder / "saved", shared="copy")
    return same(format_files.read_safetensors(cell.folder / "saved"), cell.tensors)


def each(kinds, check, blocks=None):
    """Of each tensor of these classes, with what it must be; of one in blocks `blocks`, if that is
    not as for the others: another check, or the words of a refusal."""

    def checked(cell):
        for name, tensor in cell.tensors.items():
            found = cell.opened[name]
            if isinstance(found, kinds):
                cell.applied += 1
                by = blocks if blocks and name == "blocks" else check
                if not (refuses(check, by, found, tensor) if isinstance(by, str) else by(found, tensor)):
                    return False
        return True

    checked.is_of_tensors = True
    return checked


def refuses(check, words, found, tensor):
    try:
        check(found, tensor)
    except (weightmap.Error, BufferError, ValueError) as refusal:
        return words in str(refusal)
    return False


def every(check, blocks=None):
    return each((weightmap.Tensor, weightmap.ChunkedTensor), check, blocks)


def one_piece(check, blocks=None):
    return each(weightmap.Tensor, check, blocks)


def in_pieces(check):
    return each(weightmap.ChunkedTensor, check)


def bytes_at_its_place(cell, found):
    """From the first element to the last, as they lie in the file."""
    steps = sum((size - 1) * stride for size, stride in zip(found.shape, found.strides))
    reach = found.nbytes if found.dtype == "q8_0" else (1 + steps) * found.itemsize
    with open(cell.opened.files[found.file_index], "rb") as file:
        file.seek(found.file_offset)
        return file.read(reach)


def at_its_place(cell):
    for name, tensor in cell.tensors.items():
        found = cell.opened[name]
        if isinstance(found, weightmap.ChunkedTensor) or tensor.numel() == 0:
            continue
        cell.applied += 1
        flat = torch.frombuffer(bytearray(bytes_at_its_place(cell, found)), dtype=tensor.dtype)
        strides = tensor.stride() if name == "blocks" else found.strides
        if not torch.equal(flat.as_strided(tensor.shape, strides), tensor):
            return False
    return True


def first_at_its_place(cell):
    for found in cell.opened.values():
        if isinstance(found, weightmap.ChunkedTensor):
            cell.applied += 1
            _, first = found.pieces[0]
            place = found.file_index, found.file_offset
            if place != (first.file_index, first.file_offset) or (
                    bytes_at_its_place(cell, first) != first.tobytes()):
                return False
    return True


def numbered(cell):
    """Each once, those in pieces by their pieces."""
    numbers = []
    for found in cell.opened.values():
        is_whole = isinstance(found, weightmap.Tensor)
        numbers += [found.index] if is_whole else found.indices
    cell.applied += len(numbers)
    return sorted(numbers) == list(range(len(numbers)))


def shared_as_in_torch(key):
    """Two tensors have one key if they have one storage."""

    def check(cell):
        for first, second in itertools.combinations(cell.tensors, 2):
            found = [cell.opened[name] for name in (first, second)]
            if all(isinstance(tensor, weightmap.Tensor) for tensor in found):
                cell.applied += 1
                places = {cell.tensors[name].untyped_storage().data_ptr()
                          for name in (first, second)}
                if len({key(tensor) for tensor in found}) != len(places):
                    return False
        return True

    check.is_of_tensors = True
    return check


for checked in (at_its_place, first_at_its_place, numbered):
    checked.is_of_tensors = True

# Tensors that torch marks, which only torch.save writes; a program has parameters.
MARKED = {
    "plain": torch.ones(2),
    "parameter": torch.nn.Parameter(torch.ones(2)),
    "conjugate": torch.ones(2, dtype=torch.complex64).conj(),
    "negative": torch.ones(2, dtype=torch.complex64).conj().imag,
}


class Marked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parameter = MARKED["parameter"]
        self.register_buffer("plain", MARKED["plain"])

    def forward(self, x: torch.Tensor):
        return x + self.parameter + self.plain


def marked(look, name):
    """None of the file's tensors is, and of another one's only that of this name, where the format
    can have it."""

    def check(cell):
        path = cell.folder / "marked.pt"
        if cell.form in OF_TORCH_SAVE:
            torch.save(MARKED, path, _use_new_zipfile_serialization=cell.form != "legacy",
                       pickle_protocol=5 if "5" in cell.form else 2)
        elif cell.form == "torchscript":
            torch.jit.save(torch.jit.script(Marked()), path)
        else:
            return not any(look(tensor) for tensor in cell.opened.values()
                           if isinstance(tensor, weightmap.Tensor))
        found = weightmap.open(path)
        cell.applied += name in found
        return not any(map(look, cell.opened.values())) and [
            each for each, tensor in found.items() if look(tensor)] == (
                [name] if name in found else [])

    check.is_of_tensors = True
    return check


def foreign(cell):
    """Only in a file that a machine of the other byte order has written."""
    orders = {found.byteorder for found in cell.opened.values()
              if isinstance(found, weightmap.Tensor)}
    return orders == {"native"} and all(
        found.byteorder == ("native" if found.itemsize == 1 else "foreign")
        for found in weightmap.open(DATA / "big_endian.pt").values())


def written_to(cell):
    return [[found.is_writable for found in weightmap.open(cell.path, writable=writable).values()
             if isinstance(found, weightmap.Tensor)] for writable in (False, True)] == [
                 [which] * sum(isinstance(found, weightmap.Tensor)
                               for found in cell.opened.values()) for which in (False, True)]


def has_item(found, tensor):
    if tensor.numel() == 0:
        return True
    first = (0,) * tensor.ndim
    return found[first].item() == tensor[first].item()


def has_stats(found, tensor):
    stats = found.stats()
    return stats.count == tensor.numel() and (
        stats.count == 0 or (stats.min, stats.max) == (tensor.min(), tensor.max()))


def same_part(found, tensor):
    return tensor.ndim == 0 or (
        same(found[:1].torch(), tensor[:1])
        and (found.dtype == "q8_0" or same(found[..., 1:].torch(), tensor[..., 1:])))


def pickled(value):
    return pickle.loads(pickle.dumps(value))


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
    "evict": lambda cell: sum(weightmap.evict(path).file_bytes for path in cell.paths)
    == cell.size(),
    "open_for_filling": filled,
    "patch": patched(weightmap.patch),
    "processes": found_in_processes,
    "publish": published,
    "remove_staged": staged_removed,
    "replacing": replaced,
    "safe_open": opened_safely,
    "save": saved,
    "save_safetensors": saved_as_safetensors,
    "stage": staged,
    "unsafe_globals": unsafe_listed,
    "torch.load": loaded_as_torch,
    "torch.load_model": model_loaded,
    "torch.save": saved_as_torch,
    "torch.summary": model_summed_up,
}
# Functions that are in no row, and why.
NOT_OF_A_FILE = {
    "apply_delta": "is about folders of safetensors; test_deltas.py",
    "empty": "describes a tensor for save(), as in the row of open_for_filling",
    "follow": "is about versions; test_follow.py",
    "guard_is_active": "is about the process",
    "prefetch": "changes nothing that can be seen; test_read_ahead.py",
    "snapshot_here": "is about the process; test_snapshot.py",
    "torch.SliceRecorder": "records what a module reads; test_slice_plan.py",
    "torch.add_safe_globals": "keeps a list of the process; test_torch_load.py",
    "torch.clear_safe_globals": "keeps a list of the process; test_torch_load.py",
    "torch.get_safe_globals": "keeps a list of the process; test_torch_load.py",
    "torch.safe_globals": "keeps a list of the process; test_torch_load.py",
    "torch.protect": "is about memory; test_served_model.py",
    "watch": "is about versions; test_watch.py",
    "write_delta": "compares two checkpoints; test_deltas.py",
}
# What is done with brackets, by numpy, by torch and by pickle.
OPERATORS = {
    "checkpoint[]": lambda cell: all(cell.opened[name].name == name for name in cell.tensors),
    "pickle of a checkpoint": lambda cell: set(pickled(cell.opened)) == set(cell.tensors),
    "tensor[]": every(same_part),
    "__array__": every(lambda found, tensor: same(numpy.asarray(found), tensor),
                       "what a q8_0 tensor stores are not its values"),
    "__dlpack__": one_piece(lambda found, tensor: same(torch.from_dlpack(found), tensor),
                            "DLPack has no word for q8_0"),
    "pickle of a tensor": every(lambda found, tensor: pickled(found).tobytes() == raw(tensor)),
}
SAFE_OPEN = {
    "get_slice": from_safe_open(has_slices),
    "get_tensor": from_safe_open(lambda file, name, tensor: same(file.get_tensor(name), tensor)),
    "get_tensors": from_safe_open(
        lambda file, name, tensor: same(file.get_tensors()[name], tensor)),
    "keys": from_safe_open(lambda file, name, tensor: name in file.keys()),
    "metadata": from_safe_open(lambda file, name, tensor: file.metadata() == {"format": "pt"}),
    "offset_keys": from_safe_open(lambda file, name, tensor: name in file.offset_keys()),
}
CHECKPOINT = {
    "advise": lambda cell: set(cell.opened.advise("*", "random")) == set(cell.tensors),
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
    "find": lambda cell: cell.opened.find("*we*") == [name for name in cell.opened if "we" in name],
    "generation": lambda cell: cell.opened.generation.inode == os.stat(cell.opened.files[0]).st_ino,
    "get": lambda cell: cell.opened.get("missing", 5) == 5
    and all(cell.opened.get(name).name == name for name in cell.tensors),
    "info": lambda cell: (cell.opened.info.file_bytes, cell.opened.info.unsupported) == (
        cell.size(), ()),
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
    "rows": rows_read,
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
    "byteorder": foreign,
    "dequantize": one_piece(
        lambda found, tensor: same(found.dequantize(), tensor.float()),
        lambda found, tensor: numpy.array_equal(found.dequantize(), gguf.quants.dequantize(
            tensor.numpy(), gguf.GGMLQuantizationType.Q8_0))),
    "dtype": one_piece(lambda found, tensor: found.dtype == dtype_of(tensor),
                       lambda found, tensor: found.dtype == "q8_0"),
    "file_index": at_its_place,
    "file_offset": at_its_place,
    "index": numbered,
    "is_buffer": lambda cell: all(
        tensor.is_buffer is (cell.form in ("torchscript", "pt2"))
        for tensor in cell.opened.values() if isinstance(tensor, weightmap.Tensor)),
    "is_conjugate": marked(lambda tensor: tensor.is_conjugate, "conjugate"),
    "is_contiguous": one_piece(lambda found, tensor: found.is_contiguous == tensor.as_strided(
        tensor.shape, strides_of(found, tensor)).is_contiguous()),
    "is_negative": marked(lambda tensor: tensor.is_negative, "negative"),
    "is_parameter": marked(lambda tensor: tensor.is_parameter, "parameter"),
    "is_writable": written_to,
    "item": one_piece(has_item, "cannot be taken out of its block"),
    "itemsize": one_piece(lambda found, tensor: found.itemsize == tensor.element_size(),
                          "no element of a q8_0 tensor has bytes of its own; .block says"),
    "location": one_piece(lambda found, tensor: found.location == "cpu"),
    "name": lambda cell: all(cell.opened[name].name == name for name in cell.tensors),
    "nbytes": every(lambda found, tensor: found.nbytes == tensor.nbytes),
    "ndim": every(lambda found, tensor: found.ndim == tensor.ndim),
    "numel": one_piece(lambda found, tensor: found.numel == tensor.numel(),
                       lambda found, tensor: found.numel == 64),
    "numpy": every(lambda found, tensor: same(found.numpy(), tensor)),
    "requires_grad": marked(lambda tensor: tensor.requires_grad, "parameter"),
    "shape": one_piece(lambda found, tensor: tuple(found.shape) == tuple(tensor.shape),
                       lambda found, tensor: found.shape == (2, 32)),
    "stats": one_piece(has_stats, "q8_0 tensors have no statistics"),
    "storage": shared_as_in_torch(lambda tensor: tensor.storage),
    "storage_index": shared_as_in_torch(lambda tensor: tensor.storage_index),
    "storage_offset": one_piece(
        lambda found, tensor: found.storage_offset == tensor.storage_offset()),
    "strides": one_piece(lambda found, tensor: tuple(found.strides) == strides_of(found, tensor),
                         lambda found, tensor: found.strides == (32, 1)),
    "tobytes": every(lambda found, tensor: found.tobytes() == raw(tensor)),
    "tolist": one_piece(lambda found, tensor: found.tolist() == tensor.tolist(),
                        "what a q8_0 tensor stores are not its values"),
    "torch": every(lambda found, tensor: same(found.torch(), tensor)),
}
CHUNKED = {
    "block": in_pieces(lambda found, tensor: found.block == (1, tensor.element_size())),
    "dtype": in_pieces(lambda found, tensor: found.dtype == dtype_of(tensor)),
    "file_index": first_at_its_place,
    "file_offset": first_at_its_place,
    "gather": in_pieces(gathered),
    "indices": numbered,
    "itemsize": in_pieces(lambda found, tensor: found.itemsize == tensor.element_size()),
    "location": in_pieces(lambda found, tensor: found.location == "cpu"),
    "name": in_pieces(lambda found, tensor: found.name in format_files.CUTS),
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
           weightmap.Tensor: TENSOR, weightmap.ChunkedTensor: CHUNKED,
           weightmap.SafeOpen: SAFE_OPEN}
# Only where a tensor is in pieces, and where there is a call to patch; other rows are of every format.
IN_PIECES = ("dcp, two ranks",)
ONLY = {"patch": (*OF_TORCH_SAVE, "safetensors"),
        **{f"ChunkedTensor.{name}": IN_PIECES for name in CHUNKED}}
REFUSED = {
    **{(row, form): words
       for row, words in {
           "open_for_filling": "is a directory, expected a regular file",
           "remove_staged": "is a checkpoint of several files; stage each of them by its name",
           "replacing": "files, which cannot be replaced at one moment: give each version a folder",
           "stage": "is a checkpoint of several files; stage each of them by its name",
           "unsafe_globals": "is a directory, expected a regular file",
       }.items() for form in ("shards", "splits", "dcp", "dcp, two ranks")},
    **{("open_for_filling", form): "has no reserved storages"
       for form in ("pt, protocol 5", "torchscript", "pt2", "npz")},
    ("open_for_filling", "legacy"): "is a legacy torch stream, which is no archive",
    ("open_for_filling", "pickle"): "is a bare pickle, which is no archive",
    ("open_for_filling", "safetensors"): "is a safetensors file, which is no archive",
    ("open_for_filling", "mixed list"): "is a safetensors file, which is no archive",
    ("open_for_filling", "gguf"): "is a GGUF file, which is no archive",
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
    files["dcp, two ranks"] = (format_files.TWO_RANKS, format_files.read_two_ranks())
    torch.save({"more": torch.ones(3)}, folder / "more.pt")
    path, tensors = files["safetensors"]
    files["mixed list"] = ([path, folder / "more.pt"], {**tensors, "more": torch.ones(3)})
    return files


def rows():
    yield from FUNCTIONS.items()
    yield from OPERATORS.items()
    for kind, table in CLASSES.items():
        for name, check in table.items():
            yield f"{kind.__name__}.{name}", check


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_method_is_in_a_table(kind):
    assert {name for name in dir(kind) if not name.startswith("_")} == set(CLASSES[kind])


def test_every_function_is_in_a_table():
    found = {name for name in weightmap.__all__ if is_function(getattr(weightmap, name))}
    found |= {f"torch.{name}" for name in weightmap.torch.__all__}
    assert found == set(FUNCTIONS) | set(NOT_OF_A_FILE)


def is_function(value):
    return callable(value) and not isinstance(value, type)


@torch_since((2, 10), "torch.export.save in the form of today")
@pytest.mark.filterwarnings("ignore")
def test_every_method_on_every_format(made, tmp_path, capsys):
    ran, wrong, refused, applied = 0, [], {}, Counter()
    for form, (path, tensors) in made.items():
        for row, check in rows():
            if form not in ONLY.get(row, made):
                continue
            ran += 1
            folder = tmp_path / str(ran)
            folder.mkdir()
            cell = Cell(form, path, tensors, folder)
            try:
                if not check(cell):
                    wrong.append((row, form))
            except (weightmap.Error, BufferError) as refusal:
                refused[row, form] = str(refusal)
            applied[row] += cell.applied
    with capsys.disabled():
        print(f" {ran} cells, {len(refused)} of them refused")
    assert not wrong, wrong
    assert [row for row, check in rows() if hasattr(check, "is_of_tensors") and not applied[row]] == []
    assert {cell: words for cell, words in refused.items()
            if REFUSED.get(cell, "not expected") not in words} == {}
    assert set(refused) == set(REFUSED)
