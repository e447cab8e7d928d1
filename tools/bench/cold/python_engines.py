"""The Python libraries that `weightmap bench` measures. One fresh process for each sample.

    --list                       what can be measured here, as JSON
    ENGINE FILE ORDER            measures once and prints a JSON object; before, prints a line
                                 "ready" and waits for a line on standard input

ORDER is a file with a JSON list of tensor names: the keys on the way to a tensor, joined by dots.
The tensors are read in that order, but for engines that hand them out in an order of their own.
The tool hands this text to `python -c`, so nothing here may ask for the file that it lies in.
"""
import contextlib
import gc
import glob
import json
import os
import pathlib
import resource
import sys
import tempfile
import time
from collections import namedtuple
from functools import partial
from importlib import import_module, metadata, util

PIECE = 1 << 20  # bytes per copy if words would not be aligned


@contextlib.contextmanager
def naming(name):
    """Adds the tensor to errors of the block."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{name}: {error}") from error


# ---- engines: generators for contextlib.contextmanager that yield (name, tensor) pairs

def torch_load(path, names, mmap):
    root = load(path, mmap)
    yield ((name, tensor_at(root, name)) for name in names)


def safe_open(path, names, **options):
    import safetensors
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(safetensors.safe_open(file, framework="pt", **options))
                 for file in safetensors_files(path)]
        if len(files) == 1:
            yield ((name, files[0].get_tensor(name)) for name in names)
        else:
            file_of = {name: file for file in files for name in file.keys()}
            yield ((name, file_of[name].get_tensor(name)) for name in names)


def weightmap_torch(path, names):
    import weightmap.torch
    root = weightmap.torch.load(path, map_location="cpu")
    yield ((name, tensor_at(root, name)) for name in names)


def fastsafetensors_loader(path, names):
    from fastsafetensors import SafeTensorsFileLoader
    loader = SafeTensorsFileLoader(None, device="cpu", nogds=True)
    loader.add_filenames({0: safetensors_files(path)})
    # Reads continue in the background while a tensor is used.
    buffer = loader.copy_files_to_device(allow_inflight=True)
    with contextlib.closing(loader), contextlib.closing(buffer):
        yield ((name, buffer.get_tensor(name)) for name in names)


def runai_streamer(path, names):
    from runai_model_streamer import SafetensorsStreamer
    with SafetensorsStreamer() as streamer:
        streamer.stream_files(safetensors_files(path))
        yield streamer.get_tensors()  # in an order of its own, independent of the names


# Titles are followed by the version of the module's package.
Engine = namedtuple("Engine", "name reads module title open")
ENGINES = [Engine(*row) for row in (
    ("torch-mmap", "pt", "torch", "torch.load(mmap=True)", partial(torch_load, mmap=True)),
    ("torch-copy", "pt", "torch", "torch.load(mmap=False)", partial(torch_load, mmap=False)),
    ("safetensors-mmap", "safetensors", "safetensors", "safetensors.safe_open", safe_open),
    ("safetensors-pread", "safetensors", "safetensors", 'safetensors.safe_open(backend="pread")',
     partial(safe_open, backend="pread")),
    ("weightmap-torch", "pt", "weightmap.torch", "weightmap.torch.load", weightmap_torch),
    ("fastsafetensors", "safetensors", "fastsafetensors", "fastsafetensors, O_DIRECT by default",
     fastsafetensors_loader),
    ("runai-streamer", "safetensors", "runai_model_streamer",
     "Run:ai model streamer, O_DIRECT by default", runai_streamer),
)]


# ---- the files of a set

def safetensors_files(path):
    """Returns the files of an index, which may be in a folder; else all in the folder; or the file."""
    indexes = sorted(glob.glob(os.path.join(path, "*.index.json"))) or [path]
    if indexes[0].endswith(".json"):
        weight_map = json.loads(pathlib.Path(indexes[0]).read_text(encoding="utf-8"))["weight_map"]
        folder = os.path.dirname(indexes[0])
        return [os.path.join(folder, name) for name in sorted(set(weight_map.values()))]
    return sorted(glob.glob(os.path.join(path, "*.safetensors"))) or [path]


# ---- tensors of a checkpoint by their names

def load(path, mmap):
    import torch
    return torch.load(path, map_location="cpu", mmap=mmap, weights_only=True)


def tensor_at(root, name):
    tensor = find(root, name)
    if tensor is None:
        raise ValueError(f"there is no tensor {name!r}")
    return tensor


def find(node, name):
    """Returns the tensor of this name, or None. Keys may contain dots; tries longer ones first."""
    import torch
    cut = len(name)
    while cut != -1:
        child = child_of(node, name[:cut])
        if child is not None and cut < len(name):
            child = find(child, name[cut + 1:])
        if isinstance(child, torch.Tensor):
            return child
        cut = name.rfind(".", 0, cut)
    return None


def child_of(node, key):
    if isinstance(node, dict) and key in node:
        return node[key]
    try:
        return node[int(key)] if isinstance(node, (dict, list, tuple)) else None
    except (ValueError, LookupError):
        return None


# ---- the consumer, the same for all engines

def flat_bytes(tensor):
    """Returns the bytes of a contiguous tensor without a copy."""
    import torch
    if not tensor.is_contiguous():
        raise ValueError("its elements do not lie in one piece")
    return tensor.detach().view(-1).view(torch.uint8)


def checksum(tensor):
    """Sum, modulo 2^64, of the bytes as little-endian words of 8; the last is filled up with zeros.

    torch adds up words in memory at 38 GB/s where numpy does at 33, with one thread each.
    """
    import torch
    flat = flat_bytes(tensor)
    words = flat[:flat.numel() & ~7]
    is_aligned = words.storage_offset() % 8 == 0
    pieces = (words,) if is_aligned else (piece.clone() for piece in words.split(PIECE))
    total = sum(piece.view(torch.int64).sum().item() for piece in pieces)
    if flat.numel() % 8 != 0:
        total += int.from_bytes(bytes(flat[words.numel():].tolist()), "little")
    return total


def consume(opener, path, names, at_end):
    """Opens, reads one byte of names[0], adds everything up: times and sum, and what at_end says.

    All tensors are kept to the end, as a model would keep them.
    """
    wanted, kept = set(names), {}
    sample = {"checksum": 0, "bytes": 0}
    begin = time.perf_counter_ns()

    def stamp(key):
        sample[key] = (time.perf_counter_ns() - begin) / 1e6

    with contextlib.contextmanager(opener)(path, names) as tensors:
        stamp("open_ms")
        for name, tensor in tensors:
            if name not in wanted:
                continue
            kept[name] = tensor
            with naming(name):
                if name == names[0]:
                    flat_bytes(tensor)[0].item()
                    stamp("first_byte_ms")
                sample["checksum"] += checksum(tensor)
            sample["bytes"] += tensor.numel() * tensor.element_size()
            if name == names[0]:
                stamp("first_tensor_ms")
        stamp("all_ms")
        ended = at_end()  # while the library still has its memory
    for name in wanted - kept.keys():
        raise ValueError(f"there is no tensor {name!r}")
    sample["checksum"] %= 2**64
    return sample, ended


# ---- a sample

def read_counters():
    """Returns the usage of all threads of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    texts = (pathlib.Path("/proc/self", name).read_text() for name in ("status", "io"))
    found = dict(line.split(":", 1) for text in texts for line in text.splitlines())
    return {"disk_bytes": int(found["read_bytes"]),
            "minor_faults": usage.ru_minflt,
            "major_faults": usage.ru_majflt,
            "anonymous_bytes": int(found["RssAnon"].split()[0]) * 1024,
            "file_bytes": int(found["RssFile"].split()[0]) * 1024}


def measure(one, path, names, stand_ready):
    import_all(one)
    warm_up(one)
    gc.collect()
    stand_ready()
    before = read_counters()
    sample, after = consume(one.open, path, names, read_counters)
    # Resident memory may have shrunk.
    sample.update((key, max(0, after[key] - before[key])) for key in before)
    return sample


def import_all(one):
    for module in ("torch", one.module):
        package = module.split(".")[0]
        if util.find_spec(package) is None:
            raise ValueError(f"{package} is not installed")
        try:
            import_module(module)
        except Exception as error:
            raise ValueError(f"{module} cannot be imported: {error}") from error
    import_module("torch").set_num_threads(1)


def warm_up(one):
    """Reads a small file, so that one-time work of a library is not measured."""
    import torch
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "small.pt")
        state = {"a": torch.ones(64), "b": torch.ones(13, dtype=torch.uint8)}
        torch.save(state, path)
        if one.reads == "safetensors":
            path = os.path.join(folder, "small.safetensors")
            write_safetensors(path, state)
        consume(one.open, path, ["a", "b"], read_counters)


def write_safetensors(path, state):
    """By hand: not every library that reads such files brings one that writes them."""
    header, content = {}, b""
    for name, tensor in state.items():
        begin, content = len(content), content + bytes(flat_bytes(tensor).tolist())
        header[name] = {"dtype": {1: "U8", 4: "F32"}[tensor.element_size()],
                        "shape": list(tensor.shape), "data_offsets": [begin, len(content)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + content)


def describe(one):
    version, why_not = "", ""
    with contextlib.suppress(metadata.PackageNotFoundError):
        version = metadata.version(one.module.split(".")[0])
    try:
        import_all(one)
        warm_up(one)
    except Exception as error:
        why_not = one_line(error)
    return {"name": one.name, "title": f"{one.title} {version}".rstrip(), "why_not": why_not,
            "reads": one.reads}


# ---- the command line

def one_line(error):
    return " ".join(str(error).split()) or type(error).__name__


def read_names(path):
    names = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    if not names or len(set(names)) != len(names):
        raise ValueError(f"{path}: must name tensors, none of them twice")
    return names


def run(arguments, stand_ready):
    """Returns the object to print as JSON, or None."""
    if arguments == ["--list"]:
        return [describe(one) for one in ENGINES]
    for one in ENGINES:
        if len(arguments) == 3 and arguments[0] == one.name:
            return measure(one, arguments[1], read_names(arguments[2]), stand_ready)
    print(__doc__, file=sys.stderr)
    sys.exit(2)


def main():
    # Output of the libraries is not part of the result.
    answer = open(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def stand_ready():
        """Waits while the state of file and memory is prepared, after all imports."""
        print("ready", file=answer, flush=True)
        sys.stdin.readline()

    try:
        print(json.dumps(run(sys.argv[1:], stand_ready)), file=answer, flush=True)
    except Exception as error:
        print(one_line(error), file=sys.stderr)
        sys.exit(1)


main()
