"""Folders of torch.distributed.checkpoint as torch writes them, with room for lies."""

import io
import pickle as python_pickle
import struct

import pickle_builder as p
import zip_builder as z
from torch_files import floats, model_of, torch_file

METADATA = "torch.distributed.checkpoint.metadata"
STORAGE = "torch.distributed.checkpoint.filesystem"
ONE, TWO = "__0_0.distcp", "__1_0.distcp"
SIZES = {"float32": ("FloatStorage", 4), "int64": ("LongStorage", 8), "uint8": ("ByteStorage", 1)}


class Global:
    """What has no value but its name, which is pickled."""

    def __init__(self, module, name):
        self.module, self.name = module, name


class Made:
    """An object of a class called so, made by NEWOBJ, with a state if there is one."""

    def __init__(self, module, name, state=None):
        self.kind, self.state = Global(module, name), state


class Call:
    def __init__(self, module, name, *arguments):
        self.function, self.arguments = Global(module, name), arguments


class _Pickler(python_pickle._Pickler):
    """Writes names without looking them up, so that none of these classes need be there."""

    def save(self, thing, save_persistent_id=True):
        known = self.memo.get(id(thing))
        if known is not None or not isinstance(thing, (Global, Made, Call)):
            super().save(thing, save_persistent_id)
        elif isinstance(thing, Global):
            self._save_name(thing)
        elif isinstance(thing, Call):
            self.save(thing.function)
            self.save(thing.arguments)
            self.write(p.REDUCE)
            self.memoize(thing)
        else:
            self.save(thing.kind)
            self.write(p.EMPTY_TUPLE + p.NEWOBJ)
            self.memoize(thing)
            if thing.state is not None:
                self.save(thing.state)
                self.write(p.BUILD)

    def _save_name(self, thing):
        if self.proto < 4:
            self.write(p.name(thing.module, thing.name))
        else:
            self.save(thing.module)
            self.save(thing.name)
            self.write(b"\x93")


def dump(thing, protocol=4):
    out = io.BytesIO()
    _Pickler(out, protocol).dump(thing)
    return out.getvalue()


def size(*values):
    return Call("torch", "Size", tuple(values))


def layout(name="strided"):
    return Call("torch.serialization", "_get_layout", "torch." + name)


def properties(dtype="float32", of=None, requires_grad=False, module=METADATA, state=None):
    if state is None:
        memory_format = Call(module, "_MEM_FORMAT_ENCODING", 0)
        state = (Global("torch", dtype), of or layout(), requires_grad, memory_format, False)
    return Made(module, "TensorProperties", state)


def chunk(offsets, sizes, **more):
    return Made(METADATA, "ChunkStorageMetadata",
                {"offsets": size(*offsets), "sizes": size(*sizes), **more})


def tensor(shape, boxes, dtype="float32", **more):
    state = {"properties": properties(dtype), "size": size(*shape), "chunks": list(boxes), **more}
    return Made(METADATA, "TensorStorageMetadata", state)


def index(name, begin=None, **more):
    state = {"fqn": name, "index": 0 if begin is not None else None}
    if begin is not None:
        state["offset"] = size(*begin)
    return Made(METADATA, "MetadataIndex", {**state, **more})


def place(file, offset, length, **more):
    return Made(STORAGE, "_StorageInfo",
                {"relative_path": file, "offset": offset, "length": length, **more})


def metadata(tensors, places, paths=None, **more):
    storage_meta = Made(METADATA, "StorageMeta", {
        "checkpoint_id": Call("pathlib", "PosixPath", "/", "tmp", "x"), "save_id": "8d5a"})
    return Made(METADATA, "Metadata", {
        "state_dict_metadata": tensors, "planner_data": paths, "storage_data": places,
        "storage_meta": storage_meta, "version": "1.0.0", **more})


def item(data, shape, strides=None, dtype="float32", root=None, storage=None, **archive):
    """What torch.save writes of one tensor: as _write_item does. `storage`: how many elements it
    says to have."""
    kind, width = SIZES[dtype]
    if root is None:
        source = p.Storage("0", len(data) // width if storage is None else storage, kind)
        root = p.pickled(p.Tensor(source, 0, shape, strides or p.row_major(shape)))
    return torch_file(model_of(root, {"0": data}), **archive)


class Folder:
    """Items back to back in files, and the metadata that says so, each entry of which may be
    changed before build()."""

    def __init__(self):
        self.data = {}  # file -> list of bytes
        self.tensors = {}
        self.places = {}  # (name, offsets) -> what is given to place()
        self.contents = {}  # of the tensors that an open shows

    def put(self, name, offsets, made, file):
        parts = self.data.setdefault(file, [])
        content = made if isinstance(made, bytes) else made.bytes()
        self.places[name, tuple(offsets)] = [file, sum(map(len, parts)), len(content)]
        parts.append(content)

    def add(self, name, shape, chunks, dtype="float32", shown=True):
        """`chunks`: (offsets, sizes, data, file)."""
        for offsets, sizes, data, file in chunks:
            self.put(name, offsets, item(data, sizes, dtype=dtype), file)
            piece = ", ".join(f"{a}:{a + b}" for a, b in zip(offsets, sizes))
            if shown:
                self.contents[name + (f"[{piece}]" if len(chunks) > 1 else "")] = data
        self.tensors[name] = tensor(shape, [chunk(o, s) for o, s, _, _ in chunks], dtype)
        return self

    def metadata(self, **more):
        places = {index(name, offsets): place(*where)
                  for (name, offsets), where in self.places.items()}
        return metadata(self.tensors, places, **more)

    def files(self, pickle=None):
        """By name, each with write()."""
        made = {name: as_file(b"".join(parts)) for name, parts in self.data.items()}
        made[".metadata"] = metadata_file(dump(self.metadata()) if pickle is None else pickle)
        return made


def as_file(content):
    return z.Built().changed(content)


def metadata_file(content):
    built = as_file(content)
    built.pickle_bytes = 6 * len(content)  # whose tree may take 32 times as much, not five times
    return built


def small():
    """A tensor of two rows of chunks, one of four, a whole one, a scalar."""
    first = floats(30)
    row = 24
    folder = Folder()
    folder.add("s", (5, 6), [((0, 0), (3, 6), first[:3 * row], ONE),
                             ((3, 0), (2, 6), first[3 * row:], TWO)])
    folder.add("g", (2, 2), [((i, j), (1, 1), floats(1, 10.0 * i + j), (ONE, TWO)[j])
                             for i in range(2) for j in range(2)])
    folder.add("w", (3, 4), [((0, 0), (3, 4), floats(12, 50.0), TWO)])
    folder.add("step", (), [((), (), struct.pack("<q", 3), ONE)], "int64")
    return folder
