#!/usr/bin/env python3
"""Folders that torch.distributed.checkpoint writes, and what the tool says of them.

    dcp_test.py TOOL [--states N] [--seed SEED]

Random states, saved by one process, by two and by a mesh of two by two, of which each has a part of
most tensors: rows, columns, rows of rows, uneven ones and none, or all of it, 0-dim tensors
included. Each is compared with what torch's own
dcp_to_torch_save makes of the folder: names, dtypes, shapes, and every byte of the chunks put
together. What `weightmap convert` writes is the same object under torch.load(weights_only=True),
plain values included, and the state of an optimizer resumes from it. The seed is printed; give it again to repeat a run.
"""

import collections
import json
import math
import pathlib
import random
import re
import tempfile
import types
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as multiprocessing
from case import random_run
from describe import element_bytes, walk
from tool import Tool
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
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
    state["list"].append({"x": place(torch.tensor(source.random()))})
    state["tree"] = random_tree(source, 4)
    return state


def random_tree(source, depth):
    """Of plain values, as trainers save them. Without empty dicts, which torch forgets: its converter
    fails at a list with one."""
    leaves = (None, True, False, 0, -1, 255, 1 << 40, 1 << 70, 0.5, float("inf"), "", "text", "é\x1b",
              b"bytes", (1, (2.5, None)), [], torch.Size((2, 3)), torch.bfloat16)
    if depth == 0 or source.random() < 0.3:
        return source.choice(leaves)
    children = [random_tree(source, depth - 1) for _ in range(source.randrange(4))]
    kind = source.randrange(4)
    if kind == 0:
        return children
    if kind == 1:
        return tuple(children)
    keys = (["a", "b.c", "d", ""] if kind == 2 else [0, 7, -1, 10**12])
    return dict(zip(keys, children)) if children else []


def placements(source, tensor, dims):
    """How a tensor lies on a mesh of `dims` dimensions; None: it is no DTensor, as "step" is none."""
    if tensor.dim() and source.random() < 0.2:
        return None
    kinds = [Replicate(), *(Shard(dim) for dim in range(min(2, tensor.dim())))]
    return [source.choice(kinds) for _ in range(dims)]


def placed(source, mesh):
    coordinate = mesh.get_coordinate()

    def place(tensor):
        kinds = placements(source, tensor, mesh.ndim)
        if kinds is None:
            return tensor
        local = tensor
        for kind, at in zip(kinds, coordinate):
            if isinstance(kind, Shard):
                parts = torch.chunk(local, 2, kind.dim)
                local = parts[at] if at < len(parts) else local.narrow(kind.dim, 0, 0)
                # As a process has its own part; another one's order would be no part of the whole.
                local = local.contiguous()
        return DTensor.from_local(local, mesh, kinds, run_check=False, shape=tensor.shape,
                                  stride=torch.empty(tensor.shape, device="meta").stride())
    return place


def whole(source, dims):
    """Takes from `source` what placed() takes."""
    def place(tensor):
        placements(source, tensor, dims)
        return tensor
    return place


def save_parts(rank, meeting, folder, seed, count, shape):
    warnings.simplefilter("ignore")
    world = math.prod(shape)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", shape)
    for number in range(count):
        source = random.Random(f"{seed} {number}")
        writer, how = LAYOUTS[number % len(LAYOUTS)]
        state = random_state(source, placed(source, mesh))
        dcp.save(state, storage_writer=FileSystemWriter(f"{folder}/{number}", **writer), **how)
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


def content(value):
    """With types, for a comparison of tensors by their bytes."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), list(value.shape), element_bytes(value)
    if isinstance(value, dict):
        return type(value), [(key, content(part)) for key, part in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [content(part) for part in value]
    return type(value), repr(value)


def compare_converted(tool, folder, scratch):
    """What the tool writes of a folder with what torch writes."""
    ours = scratch.with_name("ours.pt")
    tool.output("convert", folder, ours)
    got, want = (content(torch.load(path, weights_only=True)) for path in (ours, scratch))
    assert got == want, f"{folder}: {got}, expected {want}"


def resumes(tool, folder):
    """An optimizer, as torch's own functions take it and give it back."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))

    def optimizer_of(lr):
        return torch.optim.AdamW([{"params": list(model[0].parameters()), "lr": 0.1},
                                  {"params": list(model[1].parameters())}], lr=lr)

    optimizer = optimizer_of(0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    schedule.step()
    weights, state = get_state_dict(model, optimizer)
    saved = {"model": weights, "optimizer": state, "schedule": schedule.state_dict(), "epoch": 3}
    dcp.save(saved, checkpoint_id=folder / "run", no_dist=True)
    dcp_to_torch_save(folder / "run", folder / "run.pt")
    compare_converted(tool, folder / "run", folder / "run.pt")
    state = torch.load(folder / "ours.pt", weights_only=True)
    again = optimizer_of(1.0)
    set_state_dict(model, again, model_state_dict=state["model"],
                   optim_state_dict=state["optimizer"])
    assert [group["lr"] for group in again.param_groups] == [0.1 * 0.1, 0.01 * 0.1]
    for parameter, kept in optimizer.state.items():
        assert content(again.state[parameter]) == content(kept)
    assert state["epoch"] == 3 and state["schedule"] == schedule.state_dict()


def tells_what_it_leaves_out(tool, folder):
    """An object with a tensor in it, which torch pickles as a whole."""
    for name, epoch in (("a", 3), ("b", 3), ("c", 4)):
        state = {"w": torch.ones(2), "epoch": epoch, "pair": types.SimpleNamespace(w=torch.zeros(2))}
        dcp.save(state, checkpoint_id=folder / name, no_dist=True)
    said = "weightmap: left out: pair, an object with a tensor in it\n"
    status, output, errors = tool.run("tree", "--json", folder / "a")
    assert (status, errors) == (0, said), (status, errors)
    document = json.loads(output)
    assert document["left_out"] == ["pair"] and document["value"]["epoch"] == 3, document
    assert tool.run("tree", folder / "a")[2] == said
    status, _, errors = tool.run("convert", folder / "a", folder / "a.pt")
    assert status == 0 and "pair" in errors, (status, errors)
    said = "weightmap: pair: not compared: an object with a tensor in it\n"
    for other, values in (("b", []), ("c", ["epoch"])):
        status, output, errors = tool.run("diff", "--json", folder / "a", folder / other)
        found = json.loads(output)
        assert (status, errors, found["equal"]) == (1, said, False), (status, errors, found)
        assert found["counts"]["values"]["not_compared"] == 1, found
        assert [each["name"] for each in found["values"]] == [*values, "pair"], found
        assert found["values"][-1] == {"name": "pair", "change": "not_compared"}, found
    assert tool.run("diff", folder / "a", folder / "a")[0] == 0


def compare(tool, folder, expected):
    found, chunks = joined(tool, folder)
    assert sorted(found) == sorted(expected), (folder, sorted(found), sorted(expected))
    for name, want in expected.items():
        assert found[name] == want, f"{folder}: {name!r} is {found[name]}, expected {want}"
    scalars = {name for name, (_, shape, _) in found.items() if shape == []}
    return collections.Counter(tensors=len(found), chunks=chunks, steps=len(scalars & {"step"}),
                               scalars=len(scalars - {"step"}))


def expected_parts(folder, scratch, seed, number, dims):
    if (folder / ".metadata").exists():
        return expected_of(folder, scratch)
    # Without one torch's converter cannot read it: what was saved.
    source = random.Random(f"{seed} {number}")
    state = random_state(source, whole(source, dims))
    return {".".join(map(str, path)): (str(tensor.dtype).removeprefix("torch."),
                                       list(tensor.shape), element_bytes(tensor))
            for path, tensor in walk(state)}


def main():
    tool, states, seed = random_run(name="--states", count=8)
    warnings.simplefilter("ignore")
    tool = Tool(tool)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        counts = collections.Counter()
        for number in range(states):
            source = random.Random(f"{seed} alone {number}")
            place = folder / f"one-{number}"
            dcp.save(random_state(source, lambda tensor: tensor), checkpoint_id=place, no_dist=True)
            counts += compare(tool, place, expected_of(place, folder / "x.pt"))
            compare_converted(tool, place, folder / "x.pt")
        print(f"one process: {counts['tensors']} tensors are the same")
        resumes(tool, folder)
        tells_what_it_leaves_out(tool, folder)
        assert counts["steps"] == states <= counts["scalars"], counts
        for shape in ((2,), (2, 2)):
            saved = folder / "x".join(map(str, shape))
            multiprocessing.spawn(
                save_parts, (folder / f"meeting{len(shape)}", str(saved), seed, states,
                             shape), nprocs=math.prod(shape))
            counts = collections.Counter()
            for number in range(states):
                place = saved / str(number)
                expected = expected_parts(place, folder / "x.pt", seed, number, len(shape))
                counts += compare(tool, place, expected)
                if (place / ".metadata").exists():
                    compare_converted(tool, place, folder / "x.pt")
            print(f"mesh of {saved.name}: {counts['tensors']} tensors are the same, "
                  f"{counts['chunks']} chunks lie apart, {counts['scalars']} are 0-dim DTensors, "
                  f"{counts['steps']} 0-dim tensors")
            assert counts["chunks"], "nothing"
            assert counts["steps"] == states <= counts["scalars"], counts


if __name__ == "__main__":
    main()
