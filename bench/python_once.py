"""Measures one contender of compare_python.py or compare_formats.py once, in this fresh process.

    python_once.py MEASURE weightmap|safe_open|theirs KIND PATH --warm-up SMALL [options]

KIND is pt, safetensors, shards, gguf or dcp; theirs is the library that the format comes from,
safe_open is weightmap.safe_open. Prints one JSON object; times are microseconds, the rest is
counted. Imports are never part of a time, nor is what a library does at its first use: each
contender first does the same to SMALL.

state:   a whole state dict by weightmap.torch.load, or by torch.load(mmap=True) or load_file.
names:   until all names are known.
access:  every tensor of safetensors by its name, each dropped at once (--framework pt|np).
load:    until all names are known (open_us), then until every tensor is one of torch, of its bytes
         where torch has no such type, and each byte was added up (load_us, with the opening).
         --cold evicts the files before; weightmap warms up in a thread then, as its manual says.
reshard: the slices of a rank of another number of ranks than have saved it (--rank, --of, --dim),
         cold.
"""
import argparse
import json
import os
import threading
import warnings

import torch

import weightmap

from counters import Counters, Stopwatch


# ---- the contenders: opening until all names are known, and all tensors

class Weightmap:
    """Every format."""

    def __init__(self, path, cold=False):
        self._checkpoint = weightmap.open(path)
        self._warmer = None
        if cold:
            self._warmer = threading.Thread(target=self._checkpoint.warm)
            self._warmer.start()
        self.names = list(self._checkpoint)

    def tensors(self):
        for tensor in self._checkpoint.values():
            yield tensor.torch()
        if self._warmer:
            self._warmer.join()


class WeightmapSafeOpen:
    """Safetensors files, opened by weightmap.safe_open(), the replacement that patch() installs."""

    def __init__(self, path, _):
        self.names = list(weightmap.safe_open(path, "pt").keys())


def torch_load(path):
    return torch.load(path, mmap=True, weights_only=True)


class TorchLoad:
    def __init__(self, path, _):
        self._state = torch_load(path)
        self.names = list(self._state)

    def tensors(self):
        return self._state.values()


class SafeOpen:
    """A file, or each file of an index, opened as transformers does."""

    def __init__(self, path, _):
        import safetensors
        self._files = [safetensors.safe_open(file, "pt") for file in shards_of(path)]
        self._names = [list(file.keys()) for file in self._files]
        self.names = sum(self._names, [])

    def tensors(self):
        for file, names in zip(self._files, self._names):
            yield from map(file.get_tensor, names)


def shards_of(path):
    if not os.path.isdir(path):
        return [path]
    with open(os.path.join(path, "model.safetensors.index.json"), encoding="utf-8") as file:
        weight_map = json.load(file)["weight_map"]
    return [os.path.join(path, name) for name in sorted(set(weight_map.values()))]


class GgufReader:
    def __init__(self, path, _):
        import gguf
        self._reader = gguf.GGUFReader(path)
        self.names = [tensor.name for tensor in self._reader.tensors]

    def tensors(self):
        return (torch.from_numpy(tensor.data) for tensor in self._reader.tensors)


class TorchDcp:
    """Names and sizes from the metadata; dcp.load() into new tensors."""

    def __init__(self, path, _):
        from torch.distributed.checkpoint import FileSystemReader
        self._reader = FileSystemReader(path)
        self._metadata = self._reader.read_metadata().state_dict_metadata
        self.names = list(self._metadata)

    def tensors(self):
        import torch.distributed.checkpoint as dcp
        state = {name: torch.empty(whole.size, dtype=whole.properties.dtype)
                 for name, whole in self._metadata.items()}
        dcp.load(state, storage_reader=self._reader, no_dist=True)
        return state.values()


THEIRS = {"pt": TorchLoad, "safetensors": SafeOpen, "shards": SafeOpen, "gguf": GgufReader,
          "dcp": TorchDcp}


def sum_of(tensor):
    """Sums the bytes as words, without any conversion; the last may be shorter."""
    flat = tensor.reshape(-1).view(torch.uint8)
    words = flat[:flat.numel() & ~7]
    rest = bytes(flat[words.numel():].tolist())
    return words.view(torch.int64).sum().item() + int.from_bytes(rest, "little")


# ---- the page cache before a measurement

def evict(path):
    """Evicts the files from the page cache; SystemExit if something stays."""
    report = weightmap.evict(path)
    if report.cached_after:
        raise SystemExit(f"{path}: {report.cached_after} bytes stay cached: {report.reason}")


def read_through(path):
    """Reads all files into the page cache."""
    names = [os.path.join(path, name) for name in os.listdir(path)] if os.path.isdir(path) else [path]
    for name in names:
        with open(name, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


# ---- the measures

def measure_load(arguments, path):
    opener = contender(arguments)
    counters, watch = Counters(), Stopwatch()
    opened = opener(path, arguments.cold)
    open_us = watch.read()
    kept, total, checksum = [], 0, 0
    for tensor in opened.tensors():
        kept.append(tensor)
        total += tensor.nbytes
        checksum += sum_of(tensor)
    return {"open_us": open_us, "load_us": watch.read(), "tensors": len(opened.names),
            "bytes": total, "checksum": checksum % 2**64, **counters.read()}


def measure_names(arguments, path):
    opener = contender(arguments)
    counters, watch = Counters(), Stopwatch()
    opened = opener(path, False)
    return {"open_us": watch.read(), "tensors": len(opened.names), **counters.read()}


def contender(arguments):
    ours = {"weightmap": Weightmap, "safe_open": WeightmapSafeOpen}
    return ours.get(arguments.contender) or THEIRS[arguments.kind]


def measure_state(arguments, path):
    load = state_loader(arguments)
    watch = Stopwatch()
    state = load(path)
    return {"open_us": watch.read(), "tensors": len(state)}


def state_loader(arguments):
    if arguments.contender == "weightmap":
        return weightmap.torch.load
    if arguments.kind == "pt":
        return torch_load
    from safetensors.torch import load_file
    return load_file


def measure_access(arguments, path):
    tensor_of = accessor(arguments, path)
    names = list(weightmap.open(path))
    tensor_of(names[0])
    watch = Stopwatch()
    for name in names:
        tensor_of(name)
    return {"tensors": len(names), "access_ns": watch.read() * 1000 / len(names)}


def accessor(arguments, path):
    if arguments.contender == "weightmap":
        checkpoint = weightmap.open(path)
        if arguments.framework == "pt":
            return lambda name: checkpoint[name].torch()
        return lambda name: checkpoint[name].numpy()
    import safetensors
    library = weightmap if arguments.contender == "safe_open" else safetensors
    return library.safe_open(path, framework=arguments.framework).get_tensor


def measure_reshard(arguments, path):
    read = {"weightmap": read_slices, "theirs": load_slices}[arguments.contender]
    counters, watch = Counters(), Stopwatch()
    kept = read(path, arguments)
    load_us = watch.read()
    sums = [sum_of(tensor.contiguous()) for tensor in kept]
    counted = counters.read()
    return {"load_us": load_us, "bytes": sum(tensor.nbytes for tensor in kept),
            "checksum": sum(sums) % 2**64, **counted}


def read_slices(path, arguments):
    checkpoint = weightmap.open(path)
    return [copy_of(checkpoint, tensor[slice_of(tensor.shape, arguments)])
            for tensor in checkpoint.values() if tensor.ndim > arguments.dim]


def copy_of(checkpoint, part):
    """Reads the files, since page faults would read the surroundings, too."""
    if isinstance(part, weightmap.Tensor) and part.is_contiguous:
        copy = torch.empty_like(part.torch())
        checkpoint.copy_to(part, copy.view(-1).view(torch.uint8).numpy())
        return copy
    return part.torch().contiguous()


def slice_of(shape, arguments):
    """Cuts as Shard(dim) does: pieces of equal length, the last shorter."""
    length = -(-shape[arguments.dim] // arguments.of)
    begin = min(arguments.rank * length, shape[arguments.dim])
    whole = [slice(None)] * len(shape)
    whole[arguments.dim] = slice(begin, min(begin + length, shape[arguments.dim]))
    return tuple(whole)


def load_slices(path, arguments):
    """Uses dcp.load() into the DTensors of that rank, without the other ranks."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import DTensor, Shard
    reader = dcp.FileSystemReader(path)
    mesh, shard = mesh_of(arguments), [Shard(arguments.dim)]
    state = {}
    for name, whole in reader.read_metadata().state_dict_metadata.items():
        if len(whole.size) > arguments.dim:
            part = torch.empty(whole.size, dtype=whole.properties.dtype, device="meta")
            local = torch.empty(part[slice_of(whole.size, arguments)].shape, dtype=part.dtype)
            state[name] = DTensor.from_local(local, mesh, shard, run_check=False, shape=whole.size,
                                             stride=part.stride())
    dcp.load(state, storage_reader=reader, no_dist=True)
    return [tensor.to_local() for tensor in state.values()]


def mesh_of(arguments):
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.testing._internal.distributed.fake_pg import FakeStore
    if not dist.is_initialized():
        dist.init_process_group("fake", rank=arguments.rank, world_size=arguments.of,
                                store=FakeStore())
    return DeviceMesh("cpu", list(range(arguments.of)))


def main():
    measures = {"state": measure_state, "names": measure_names,
                "access": measure_access, "load": measure_load, "reshard": measure_reshard}
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("measure", choices=measures)
    parser.add_argument("contender", choices=("weightmap", "safe_open", "theirs"))
    parser.add_argument("kind", choices=THEIRS)
    parser.add_argument("path")
    parser.add_argument("--warm-up", required=True)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--framework", choices=("pt", "np"), default="pt")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--of", type=int, default=1)
    parser.add_argument("--dim", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    measure = measures[arguments.measure]
    warnings.simplefilter("ignore")
    measure(arguments, arguments.warm_up)
    is_cold = arguments.cold or arguments.measure == "reshard"
    (evict if is_cold else read_through)(arguments.path)
    print(json.dumps(measure(arguments, arguments.path)))


if __name__ == "__main__":
    main()
