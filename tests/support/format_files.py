"""A checkpoint in every format, as the programs of that format write it and read it again."""

import json
import os
import pathlib
import pickle
import warnings

import gguf
import numpy
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp

# From protocol 3 on their elements stand in the pickle as they are: weightmap lists them as tensors.
ARRAYS = {"array": numpy.arange(6, dtype="<i4").reshape(2, 3), "text": numpy.full(2, -0.5)}


def tensors():
    """In shared storage, empty and without dimensions, too."""
    weight = torch.arange(12, dtype=torch.float32).reshape(3, 4) - 5
    return {
        "weight": weight,
        "tied": weight[1:].t(),
        "low": torch.tensor([[1.5, -2], [0.25, 65504]], dtype=torch.float16),
        "empty": torch.zeros(0, 5),
        "scalar": torch.tensor(7),
    }


def apart():
    """The same where a format has no shared storage and no strides."""
    return {name: tensor.contiguous().clone() for name, tensor in tensors().items()}


def some(names):
    return {name: tensor for name, tensor in apart().items() if name in names}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, tensor in tensors().items():
            self.register_buffer(name, tensor)

    def forward(self, x: torch.Tensor):
        return x + self.weight.sum() + self.tied.sum() + self.low.sum() + self.scalar


def write_pt(path, **options):
    torch.save({**tensors(), **ARRAYS, "lr": 0.5}, path, **options)


def write_pt5(path):
    write_pt(path, pickle_protocol=5)


def write_legacy(path):
    write_pt(path, _use_new_zipfile_serialization=False)


def read_torch(path):
    """The arrays, too, where they are tensors to weightmap."""
    return dict(leaves(torch.load(path, weights_only=False), ()))


def leaves(value, path):
    """The tensors and arrays of nested dicts and lists, by joined name."""
    if isinstance(value, (torch.Tensor, numpy.ndarray)):
        yield ".".join(path), torch.as_tensor(value)
    elif isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, str(key)))


def read_torch_tensors(path):
    return {name: value for name, value in read_torch(path).items() if name not in ARRAYS}


def write_torchscript(path):
    torch.jit.save(torch.jit.script(Model()), path)


def read_torchscript(path):
    return dict(torch.jit.load(path).named_buffers())


def write_pt2(path):
    torch.export.save(torch.export.export(Model(), (torch.ones(2),)), path)


def read_pt2(path):
    return dict(torch.export.load(path).state_dict)


def write_safetensors(path):
    safetensors.torch.save_file(apart(), path, {"format": "pt"})


def write_shards(path):
    path.mkdir()
    names = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    parts = (some(("weight", "empty")), some(("tied", "low", "scalar")))
    for name, part in zip(names, parts):
        safetensors.torch.save_file(part, path / name, {"format": "pt"})
    weight_map = {tensor: name for name, part in zip(names, parts) for tensor in part}
    (path / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map}))


def read_safetensors(path):
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    return {name: tensor.clone() for file in files  # not the mapped file
            for name, tensor in safetensors.torch.load_file(file).items()}


def write_npz(path):
    numpy.savez(path, **{name: tensor.numpy() for name, tensor in tensors().items()})


def read_npz(path):
    with numpy.load(path) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays}


def write_pickle(path):
    with open(path, "wb") as file:
        pickle.dump({name: tensor.numpy() for name, tensor in tensors().items()}, file, protocol=4)


def read_pickle(path):
    with open(path, "rb") as file:
        return {name: torch.from_numpy(array) for name, array in pickle.load(file).items()}


def write_gguf(path, **options):
    """No tensor of ggml is empty or without dimensions."""
    writer = gguf.GGUFWriter(path, "llama", **options)
    for name, tensor in some(("weight", "tied", "low")).items():
        writer.add_tensor(name, tensor.numpy())
    blocks = gguf.quantize(numpy.linspace(-1, 1, 64, dtype="f4").reshape(2, 32),
                           gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blocks", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_splits(path):
    path.mkdir()
    write_gguf(path / "model.gguf", split_max_tensors=2)


def read_gguf(path):
    """The bytes of blocks."""
    files = sorted(path.glob("*.gguf")) if path.is_dir() else [path]
    return {tensor.name: torch.from_numpy(tensor.data.copy())
            for file in files for tensor in gguf.GGUFReader(file).tensors}


def write_dcp(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(apart(), checkpoint_id=path)


def read_dcp(path):
    found = {name: torch.zeros_like(tensor) for name, tensor in apart().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(found, checkpoint_id=path)
    return found


# A folder that two processes have saved: where they cut a tensor.
TWO_RANKS = pathlib.Path(__file__).resolve().parents[1] / "data" / "dcp" / "default"
CUTS = {"model.rows": ("0:3, 0:6", "3:5, 0:6"), "model.columns": ("0:5, 0:3", "0:5, 3:6")}


def read_two_ranks(path=TWO_RANKS):
    listed = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
    found = {name: torch.zeros(meta.size, dtype=meta.properties.dtype)
             for name, meta in listed.items() if hasattr(meta, "properties")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(found, checkpoint_id=path)
    return found


FORMATS = {
    "pt": (write_pt, read_torch_tensors, "model.pt"),
    "pt, protocol 5": (write_pt5, read_torch, "model5.pt"),
    "legacy": (write_legacy, read_torch_tensors, "legacy.pt"),
    "torchscript": (write_torchscript, read_torchscript, "script.pt"),
    "pt2": (write_pt2, read_pt2, "exported.pt2"),
    "safetensors": (write_safetensors, read_safetensors, "model.safetensors"),
    "npz": (write_npz, read_npz, "model.npz"),
    "pickle": (write_pickle, read_pickle, "model.pkl"),
    "shards": (write_shards, read_safetensors, "shards"),
    "gguf": (write_gguf, read_gguf, "model.gguf"),
    "splits": (write_splits, read_gguf, "splits"),
    "dcp": (write_dcp, read_dcp, "dcp"),
}


def make(folder):
    """Of each format the path, and what its own program reads there. All of it is on the disk."""
    made = {}
    for form, (write, read, name) in FORMATS.items():
        path = pathlib.Path(folder, name)
        write(path)
        for file in path.iterdir() if path.is_dir() else (path,):
            with open(file, "rb") as written:
                os.fsync(written.fileno())
        made[form] = (path, read(path))
    return made
