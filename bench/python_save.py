"""Measures saving a state dict: weightmap.save, torch.save, safetensors and cp, in turns.

    python_save.py --folder DIR [--count 10000] [--bytes 65536] [--rounds 7] [--fsync] [--only ...]

Each round writes a new file by each contender and removes it again; cp copies a file of the same
content, which is in the page cache. Without --fsync nobody waits
for the disk; with it weightmap.save does so by itself, and the others are followed by fsync() of
the file and of its folder. Prints one JSON object: milliseconds, median and all of them, and the
median over the rounds of the ratio to torch.save (with sums; above 1 is faster).
"""
import argparse
import json
import os
import statistics
import subprocess
import time

import torch
from torch.utils.serialization import config

import weightmap


def with_sums(has_sums, work):
    config.save.compute_crc32 = has_sums
    try:
        work()
    finally:
        config.save.compute_crc32 = True


def copy(path):
    subprocess.run(["cp", "--reflink=never", path + ".source", path], check=True)


def safetensors_save(state, path):
    from safetensors.torch import save_file
    save_file(state, path)


CONTENDERS = {
    "torch.save": lambda state, path, durable: torch.save(state, path),
    "torch.save, no sums": lambda state, path, durable: with_sums(
        False, lambda: torch.save(state, path)),
    "weightmap.save": lambda state, path, durable: weightmap.save(state, path, durable=durable),
    "weightmap.save, no sums": lambda state, path, durable: weightmap.save(
        state, path, durable=durable, crc32=False),
    "safetensors": lambda state, path, durable: safetensors_save(state, path),
    "cp": lambda state, path, durable: copy(path),
}


def sync(path):
    for name in (path, os.path.dirname(path)):
        descriptor = os.open(name, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def measure(contender, state, path, durable):
    if os.path.exists(path):
        os.unlink(path)
    start = time.perf_counter_ns()
    CONTENDERS[contender](state, path, durable)
    if durable and not contender.startswith("weightmap"):
        sync(path)
    taken = (time.perf_counter_ns() - start) / 1e6
    os.unlink(path)
    return taken


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--bytes", type=int, default=65536)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--fsync", action="store_true")
    parser.add_argument("--only", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS))
    arguments = parser.parse_args()
    state = {f"model.layers.{number}.weight": torch.rand(arguments.bytes // 4)
             for number in range(arguments.count)}
    path = os.path.join(os.path.realpath(arguments.folder), "saved.pt")
    weightmap.save(state, path + ".source")
    small = {name: state[name] for name in list(state)[:2]}
    for contender in arguments.only:
        measure(contender, small, path, arguments.fsync)
    taken = {contender: [] for contender in arguments.only}
    for _ in range(arguments.rounds):
        for contender in arguments.only:
            taken[contender].append(measure(contender, state, path, arguments.fsync))
    os.unlink(path + ".source")
    base = taken.get("torch.save")
    print(json.dumps({
        contender: {
            "ms": round(statistics.median(times), 1),
            "all": [round(one, 1) for one in times],
            "faster": base and round(statistics.median(b / t for b, t in zip(base, times)), 2),
        } for contender, times in taken.items()
    }, indent=1))


if __name__ == "__main__":
    main()
