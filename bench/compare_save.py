"""Measures saving a state dict: weightmap.save, torch.save, safetensors and cp, in turns.

    compare_save.py --folder DIR [--rounds 7] [--cases 10x268435456 ...]
                    [--write docs/performance.md] [--write-figure README.md]

Each round writes a new file by each contender and removes it again. All wait for the disk:
weightmap.save does so by itself, the others are followed by fsync() of the file and of its folder.
cp copies a file of the same content, which is in the page cache. Prints Markdown tables, and writes
them into --write.
"""
import argparse
import os
import platform
import statistics
import subprocess
import sys
import time

import safetensors
import safetensors.torch
import torch
from samples import check_between, duration, figure, machine, publish, table, write_between
from torch.utils.serialization import config

import weightmap

BEGIN, END = "<!-- measured saving: begin -->", "<!-- measured saving: end -->"
CASES = ("10x268435456", "10000x65536", "100000x16")


def without_sums(state, path):
    config.save.compute_crc32 = False
    try:
        torch.save(state, path)
    finally:
        config.save.compute_crc32 = True


def copy(path):
    subprocess.run(["cp", "--reflink=never", path + ".source", path], check=True)


CONTENDERS = {
    "`weightmap.save`": weightmap.save,
    "without checksums": lambda state, path: weightmap.save(state, path, crc=False),
    "`torch.save`": torch.save,
    "`torch.save`, without checksums": without_sums,
    "`safetensors.torch.save_file`": safetensors.torch.save_file,
    "`cp`": lambda state, path: copy(path),
}
OURS = ("`weightmap.save`", "without checksums")


def sync(path):
    for name in (path, os.path.dirname(path)):
        descriptor = os.open(name, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def seconds(contender, state, path):
    start = time.perf_counter_ns()
    CONTENDERS[contender](state, path)
    if contender not in OURS:
        sync(path)
    taken = (time.perf_counter_ns() - start) / 1e9
    os.unlink(path)
    return taken


def measure(state, path, rounds):
    """Returns the seconds of each round, by contender."""
    small = dict(list(state.items())[:2])
    for contender in CONTENDERS:
        if contender != "`cp`":
            seconds(contender, small, path)
    weightmap.save(state, path + ".source")
    taken = {contender: [] for contender in CONTENDERS}
    for _ in range(rounds):
        for contender, times in taken.items():
            times.append(seconds(contender, state, path))
    os.unlink(path + ".source")
    return taken


def times_as_fast(taken, contender, other):
    """Returns the speed-up of `contender`: median, lowest and highest of the rounds."""
    ratios = sorted(b / a for a, b in zip(taken[contender], taken[other]))
    return f"{statistics.median(ratios):.2f} [{ratios[0]:.2f}, {ratios[-1]:.2f}]"


def cells(taken, contender):
    ours = OURS[1] if "without checksums" in contender else OURS[0]
    return [duration(statistics.median(taken[contender]) * 1e6),
            "" if contender in OURS else times_as_fast(taken, ours, contender)]


def case_table(count, size, taken):
    """A row for each contender: its time and ratio."""
    spelled = f"{size >> 20} MiB" if size >> 20 else f"{size >> 10} KiB" if size >> 10 else f"{size} B"
    return table([f"{count:,} × {spelled}", "until it is on the disk", "times as long"],
                 [[contender, *cells(taken, contender)] for contender in taken])


def save_figure(taken, count, size):
    ours, theirs = (statistics.median(taken[name]) for name in (OURS[0], "`torch.save`"))
    return figure(f"**Saving** {count:,} tensors of {size >> 10} KiB, until they are on the disk, "
                  f"takes **{duration(ours * 1e6)}** with `weightmap.save`, "
                  f"{duration(theirs * 1e6)} with `torch.save` and `fsync`.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cases", nargs="+", default=CASES, help="COUNTxBYTES")
    parser.add_argument("--write")
    parser.add_argument("--write-figure")
    arguments = parser.parse_args()
    for target in (arguments.write, arguments.write_figure):
        check_between(parser, target, BEGIN, END)
    path = os.path.join(os.path.realpath(arguments.folder), "saved.pt")
    lines = [f"{machine()}, torch {torch.__version__}, safetensors {safetensors.__version__}, Python "
             f"{platform.python_version()}. Medians of {arguments.rounds} interleaved rounds, each of "
             "new files. A ratio is how many times as long it takes as `weightmap.save`, with "
             "or without checksums as it has them itself: median, lowest and highest of the rounds.", ""]
    found = []
    for case in arguments.cases:
        count, size = map(int, case.split("x"))
        state = {f"model.layers.{number}.weight": torch.rand(size // 4) for number in range(count)}
        taken = measure(state, path, arguments.rounds)
        print(case, {name: [round(t, 3) for t in times] for name, times in taken.items()},
              file=sys.stderr)
        lines += case_table(count, size, taken) + [""]
        if size == 65536:
            found = save_figure(taken, count, size)
    publish(lines[:-1], arguments.write, BEGIN, END)
    if arguments.write_figure:
        write_between(arguments.write_figure, BEGIN, END, found)


if __name__ == "__main__":
    main()
