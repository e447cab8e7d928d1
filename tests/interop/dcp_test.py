#!/usr/bin/env python3
"""Folders that torch.distributed.checkpoint writes, and what the tool says of them.

    dcp_test.py TOOL [--states N] [--seed SEED]

Random states, saved by one process, and by two of which each has a part of most tensors: rows,
columns, uneven ones and none, or all of it. Each is compared with what torch's own
dcp_to_torch_save makes of the folder: names, dtypes, shapes, and every byte of the chunks put
together. The seed is printed; give it again to repeat a run.
"""

import argparse
import json
import pathlib
import random
import re
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as multiprocessing
from describe import element_bytes, walk
from tool import Tool
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

DTYPES = ("float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128 "
          "uint16 float8_e5m2 float8_e4m3fn").split()
LAYOUTS = (({}, {}), ({"single_file_per_rank": False}, {}), ({"thread_count": 2}, {}),
           ({}, {"use_collectives": False}))


def random_tensor(source):
    dtype = getattr(torch, source.choice(DTYPES))
    shape = [source.choice((0, 1, 2, 3, 5, 7, 16)) for _ in range(source.choice((0, 1, 2, 2, 2, 3)))]
    count = 1
    for size in shape:
        count *= size
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    data = (bytes(source.getrandbits(1) for _ in range(count)) if dtype == torch.bool
            else source.randbytes(count * dtype.itemsize))
    tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).reshape(shape)
    if len(shape) > 1 and source.random() < 0.3:
        tensor = tensor.transpose(0, source.randrange(1, len(shape)))
    return tensor


def random_state(source, place):
    """`place(tensor)` makes of it what this process saves."""
    state = {"step": torch.tensor(source.randrange(1000)), "lr": source.random(), "list": []}
    for number in range(source.choice((1, 5, 20))):
        part = state.setdefault(source.choice(("model", "a.b", "é\x1b")), {})
        part[f"{number}.weight"] = place(random_tensor(source))
    for _ in range(3):
        state["list"].append({"x": place(random_tensor(source))})
    return state


def placed(source, mesh, rank):
    def place(tensor):
        kinds = [None, Replicate(), *(Shard(dim) for dim in range(min(2, tensor.dim())))]
        kind = source.choice(kinds)
        if kind is None:
            return tensor
        local = tensor
        if isinstance(kind, Shard):
            parts = torch.chunk(tensor, 2, kind.dim)
            local = parts[rank] if rank < len(parts) else tensor.narrow(kind.dim, 0, 0)
            # As a process has its own part; another one's order would be no part of the whole.
            local = local.contiguous()
        return DTensor.from_local(local, mesh, [kind], run_check=False, shape=tensor.shape,
                                  stride=torch.empty(tensor.shape, device="meta").stride())
    return place


def save_two(rank, meeting, folder, seed, count):
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    for number in range(count):
        source = random.Random(f"{seed} {number}")
        writer, how = LAYOUTS[number % len(LAYOUTS)]
        state = random_state(source, placed(source, mesh, rank))
        dcp.save(state, storage_writer=FileSystemWriter(f"{folder}/two-{number}", **writer), **how)
    dist.destroy_process_group()


def joined(tool, folder):
    """Name -> (dtype, shape, bytes), the chunks of a tensor put together."""
    listed = json.loads(tool.output("ls", "--json", folder))
    entries = listed["tensors"]
    found, taken, chunks = {}, set(), 0
    for composed in listed.get("composed", []):
        first, count = composed["tensors"]["first"], composed["tensors"]["count"]
        taken.update(range(first, first + count))
        chunks += count
        whole = torch.empty(composed["shape"], dtype=getattr(torch, composed["dtype"]))
        for entry in entries[first : first + count]:
            slices = re.findall(r"(\d+):(\d+)", entry["name"][len(composed["name"]) :])
            box = tuple(slice(int(a), int(b)) for a, b in slices)
            raw = bytearray(tool.raw(folder, entry["path"]))
            part = torch.frombuffer(raw, dtype=torch.uint8).view(whole.dtype)
            whole[box] = part.reshape(entry["shape"])
        found[composed["name"]] = composed["dtype"], composed["shape"], element_bytes(whole)
    for number, entry in enumerate(entries):
        if number not in taken:
            raw = tool.raw(folder, entry["path"])
            found[entry["name"]] = entry["dtype"], entry["shape"], raw
    return found, chunks


def expected_of(folder, scratch):
    """By torch."""
    dcp_to_torch_save(folder, scratch)
    state = torch.load(scratch, weights_only=False)
    return {".".join(map(str, path)): (str(tensor.dtype).removeprefix("torch."),
                                       list(tensor.shape), element_bytes(tensor))
            for path, tensor in walk(state)}


def compare(tool, folder, expected):
    found, chunks = joined(tool, folder)
    assert sorted(found) == sorted(expected), (folder, sorted(found), sorted(expected))
    for name, want in expected.items():
        assert found[name] == want, f"{folder}: {name!r} is {found[name]}, expected {want}"
    return len(found), chunks


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("tool")
    arguments.add_argument("--states", type=int, default=8)
    arguments.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    given = arguments.parse_args()
    print(f"torch {torch.__version__}, {given.states} states, --seed {given.seed}", flush=True)
    warnings.simplefilter("ignore")
    tool = Tool(given.tool)
    tensors = chunks = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for number in range(given.states):
            source = random.Random(f"{given.seed} alone {number}")
            place = folder / f"one-{number}"
            dcp.save(random_state(source, lambda tensor: tensor), checkpoint_id=place, no_dist=True)
            seen, pieces = compare(tool, place, expected_of(place, folder / "x.pt"))
            tensors, chunks = tensors + seen, chunks + pieces
        multiprocessing.spawn(
            save_two, (folder / "meeting", str(folder), given.seed, given.states), nprocs=2)
        for number in range(given.states):
            place = folder / f"two-{number}"
            source = random.Random(f"{given.seed} {number}")
            if (place / ".metadata").exists():
                expected = expected_of(place, folder / "x.pt")
            else:  # which torch's converter cannot read: what was saved
                state = random_state(source, whole(source))
                expected = {".".join(map(str, path)): (
                    str(tensor.dtype).removeprefix("torch."), list(tensor.shape),
                    element_bytes(tensor)) for path, tensor in walk(state)}
            seen, pieces = compare(tool, place, expected)
            tensors, chunks = tensors + seen, chunks + pieces
    print(f"{tensors} tensors are the same, of which {chunks} chunks lie apart")
    assert tensors and chunks, "nothing"


def whole(source):
    """Takes from `source` what placed() takes."""
    def place(tensor):
        source.choice([None, Replicate(), *(Shard(dim) for dim in range(min(2, tensor.dim())))])
        return tensor
    return place


if __name__ == "__main__":
    main()
