"""Measures one contender of bench/compare_python.py once, in this fresh process.

    python_once.py load weightmap|torch FILE --warm-up SMALL [--gc off] [--offsets calculate]
    python_once.py stages direct|functions FILE --warm-up SMALL
    python_once.py tensor weightmap FILE --warm-up SMALL
    python_once.py access weightmap.open|weightmap.safe_open|safetensors FILE --warm-up SMALL
                          --framework pt|np
    python_once.py names  weightmap.open|weightmap.safe_open|safetensors FILE|FOLDER
                          --warm-up SMALL
    python_once.py memory weightmap.numpy|weightmap.torch|weightmap.torch.load|torch.load FILE
                          --warm-up SMALL

Prints one JSON object; times are microseconds. Imports are never part of a time, nor is what a
library does at its first use: each contender first does the same once to the file SMALL.
"""
import argparse
import gc
import importlib
import json
import os
import time

import weightmap

SOME_NAME = "model.layers.0.attention.wv.weight"  # one that bench/make_tensors.py always writes


class Stopwatch:
    """Microseconds since it was made."""

    def __init__(self):
        self._start = time.perf_counter_ns()

    def read(self):
        return (time.perf_counter_ns() - self._start) / 1000


def torch_load(path):
    import torch
    return torch.load(path, mmap=True, weights_only=True)


# ---- load: a whole state dict as torch tensors, and then one of them by its name

def measure_load(arguments):
    from torch.utils.serialization import config
    if arguments.offsets == "calculate":
        config.load.calculate_storage_offsets = True
    load = weightmap.torch.load if arguments.contender == "weightmap" else torch_load
    load(arguments.warm_up)
    if arguments.gc == "off":
        gc.disable()
    watch = Stopwatch()
    state = load(arguments.file)
    open_us = watch.read()
    tensor = state[SOME_NAME]
    return {"tensors": len(state), "open_us": open_us, "tensor_us": watch.read(),
            "elements": tensor.numel()}


# ---- stages: weightmap.torch.load as it is, and with every tensor made by torch's own functions

def measure_stages(arguments):
    from weightmap import _core
    from weightmap._torch import direct as _direct
    opened_us = []
    open_file = _core.open

    def timed_open(*options):
        watch = Stopwatch()
        opened = open_file(*options)
        opened_us.append(watch.read())
        return opened

    def make_nothing_directly(*ignored):
        return None

    _core.open = timed_open
    if arguments.contender == "functions":
        _direct.settings = make_nothing_directly
    weightmap.torch.load(arguments.warm_up)
    gc.disable()
    watch = Stopwatch()
    state = weightmap.torch.load(arguments.file)
    return {"whole_us": watch.read(), "open_us": opened_us[-1], "tensors": len(state)}


# ---- tensor: one of many

def measure_tensor(arguments):
    importlib.import_module("torch")

    def one_tensor(path):
        watch = Stopwatch()
        checkpoint = weightmap.open(path)
        tensor = checkpoint[SOME_NAME].torch()
        return {"tensor_us": watch.read(), "tensors": len(checkpoint), "elements": tensor.numel()}

    one_tensor(arguments.warm_up)
    return one_tensor(arguments.file)


# ---- access: opening, and every tensor by its name

def measure_access(arguments):
    importlib.import_module({"pt": "torch", "np": "numpy"}[arguments.framework])
    opener, access_all = access_of(arguments.contender, arguments.framework)
    small = opener(arguments.warm_up)
    access_all(small, list(small.keys())[:1])
    watch = Stopwatch()
    opened = opener(arguments.file)
    open_us = watch.read()
    names = list(opened.keys())
    access_all(opened, names[:1])
    watch = Stopwatch()
    access_all(opened, names)
    access_ns = watch.read() * 1000 / len(names)
    return {"tensors": len(names), "open_us": open_us, "access_ns": access_ns}


def access_of(contender, framework):
    """How to open a file, and how to take tensors from it, each dropped at once."""
    if contender == "weightmap.open":
        return weightmap.open, {"pt": items_as_torch, "np": items_as_numpy}[framework]
    library = importlib.import_module(contender.partition(".")[0])
    return (lambda path: library.safe_open(path, framework=framework)), get_tensors


# ---- names: opening a safetensors file, or all shards that an index names, and the names in them

def measure_names(arguments):
    importlib.import_module("torch")
    opener = {"weightmap.open": weightmap.open, "weightmap.safe_open": weightmap.safe_open,
              "safetensors": open_safetensors}[arguments.contender]
    list(opener(arguments.warm_up).keys())
    watch = Stopwatch()
    names = list(opener(arguments.file).keys())
    return {"open_us": watch.read(), "tensors": len(names)}


def open_safetensors(path):
    import safetensors
    return SafetensorsSet(path) if os.path.isdir(path) else safetensors.safe_open(path, "pt")


class SafetensorsSet:
    """A set as transformers opens it: the index, then each of its shards and the names in it."""

    def __init__(self, folder):
        import safetensors
        with open(os.path.join(folder, "model.safetensors.index.json"), encoding="utf-8") as file:
            weight_map = json.load(file)["weight_map"]
        self._shards = [safetensors.safe_open(os.path.join(folder, name), "pt")
                        for name in sorted(set(weight_map.values()))]
        self._names = [name for shard in self._shards for name in shard.keys()]

    def keys(self):
        return self._names


def items_as_torch(checkpoint, names):
    for name in names:
        checkpoint[name].torch()


def items_as_numpy(checkpoint, names):
    for name in names:
        checkpoint[name].numpy()


def get_tensors(opened, names):
    get_tensor = opened.get_tensor
    for name in names:
        get_tensor(name)


# ---- memory: what becomes resident when every byte is read

def measure_memory(arguments):
    read_all = {"weightmap.numpy": read_as_numpy, "weightmap.torch": read_as_torch,
                "weightmap.torch.load": read_loaded, "torch.load": read_loaded}
    read = read_all[arguments.contender]
    load = weightmap.torch.load if arguments.contender == "weightmap.torch.load" else torch_load
    read(arguments.warm_up, load, Resident())
    gc.collect()
    resident = Resident()
    total, checksum = read(arguments.file, load, resident)
    return {"bytes": total, "checksum": checksum,
            "anonymous_kib": resident.most["RssAnon"] - resident.before["RssAnon"],
            "file_kib": resident.most["RssFile"] - resident.before["RssFile"]}


class Resident:
    """The process's resident memory in KiB, of its own and of files, before and at most since."""

    def __init__(self):
        self.before = self.read()
        self.most = dict(self.before)

    @staticmethod
    def read():
        with open("/proc/self/status", encoding="ascii") as lines:
            fields = dict(line.split(":", 1) for line in lines)
        return {name: int(fields[name].split()[0]) for name in ("RssAnon", "RssFile")}

    def note(self):
        for name, kib in self.read().items():
            self.most[name] = max(self.most[name], kib)


# Each keeps all it has read until the end, and answers how many bytes that were and a sum of them,
# taken in words of 8 bytes, so that nothing is converted on the way.

def read_as_numpy(path, _, resident):
    import numpy
    checkpoint = weightmap.open(path)
    kept, total, checksum = [], 0, 0
    for tensor in checkpoint.values():
        array = tensor.numpy()
        kept.append(array)
        total += array.nbytes
        checksum += int(array.view(numpy.int64).sum())
        resident.note()
    return total, checksum


def read_as_torch(path, _, resident):
    checkpoint = weightmap.open(path)
    return read_tensors((tensor.torch() for tensor in checkpoint.values()), resident)


def read_loaded(path, load, resident):
    return read_tensors(load(path).values(), resident)


def read_tensors(tensors, resident):
    import torch
    kept, total, checksum = [], 0, 0
    for tensor in tensors:
        kept.append(tensor)
        total += tensor.nbytes
        checksum += int(tensor.view(torch.int64).sum())
        resident.note()
    return total, checksum


def main():
    measures = {"load": measure_load, "stages": measure_stages, "tensor": measure_tensor,
                "access": measure_access, "names": measure_names, "memory": measure_memory}
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("measure", choices=measures)
    parser.add_argument("contender")
    parser.add_argument("file")
    parser.add_argument("--warm-up", required=True)
    parser.add_argument("--gc", choices=("on", "off"), default="on")
    parser.add_argument("--offsets", choices=("read", "calculate"), default="read")
    parser.add_argument("--framework", choices=("pt", "np"), default="pt")
    arguments = parser.parse_args()
    print(json.dumps(measures[arguments.measure](arguments)))


if __name__ == "__main__":
    main()
