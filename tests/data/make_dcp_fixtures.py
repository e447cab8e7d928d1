#!/usr/bin/env python3
"""Writes the folders of dcp/ with a real torch, in two processes, and manifest.json beside them.

    python tests/data/make_dcp_fixtures.py [FOLDER]

The same state in four layouts: as torch writes it by default, with a file for each item, with three
threads for each process, and with metadata of each process. tests/formats/dcp/fixtures_test.cpp knows what
is in it.
"""

import json
import os
import pathlib
import shutil
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as multiprocessing
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

LAYOUTS = {
    "default": ({}, {}),
    "per_item": ({"single_file_per_rank": False}, {}),
    "threads": ({"thread_count": 3}, {}),
    "per_rank": ({}, {"use_collectives": False}),
}


def state_of(mesh, rank):
    whole = torch.arange(30.0).reshape(5, 6)
    return {
        "model": {
            "rows": distribute_tensor(whole, mesh, [Shard(0)]).requires_grad_(),
            "columns": distribute_tensor(whole + 100, mesh, [Shard(1)]),
            "replicated": distribute_tensor(whole + 200, mesh, [Replicate()]),
            "short": distribute_tensor(torch.arange(4.0).reshape(1, 4), mesh, [Shard(0)]),
            "0.weight": torch.arange(6).to(torch.bfloat16).reshape(2, 3),
            "transposed": torch.arange(12.0).reshape(3, 4).t(),
        },
        "rank": rank,
        "step": torch.tensor(3),
        "lr": 0.1,
        "list": [torch.ones(2), {"empty": torch.zeros(0, 3)}],
    }


def save(rank, meeting, folder):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    state = state_of(init_device_mesh("cpu", (2,)), rank)
    for name, (writer, how) in LAYOUTS.items():
        dcp.save(state, storage_writer=FileSystemWriter(f"{folder}/{name}", **writer), **how)
    dist.destroy_process_group()


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                          pathlib.Path(__file__).resolve().parent / "dcp")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # The metadata says where it was saved, which is to be no machine's path.
    with tempfile.TemporaryDirectory() as temporary:
        os.chdir(temporary)
        multiprocessing.spawn(save, (f"{temporary}/meeting", "dcp"), nprocs=2)
        for name in LAYOUTS:
            shutil.copytree(pathlib.Path("dcp") / name, folder / name)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    manifest = {"torch": torch.__version__, "folders": sorted(LAYOUTS)}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    print(f"torch {torch.__version__}: {len(LAYOUTS)} folders, {size} bytes in {folder}")


if __name__ == "__main__":
    main()
