"""Compares the Python package with torch.load(mmap=True) and with safetensors.

    compare_python.py --build build/release --files DIR [--rounds 7] [--only NAME ...]
                      [--write FILE] [--write-figure FILE]

Runs bench/python_once.py with this interpreter, which needs weightmap, torch, numpy and
safetensors. Every round runs each contender once on each file in a fresh process, so that whatever
else the machine does meets all of them; medians over the rounds, ratios of medians. DIR holds what
scripts/bench puts there. Prints the tables as Markdown; --write puts them between the markers in
FILE (docs/performance.md), --write-figure one of the figures (README.md). --only measures some of:
load, tensor, access, memory.
"""
import argparse
import itertools
import os
import sys

from samples import (HERE, Samples, duration, figure, has_between, machine_line, run_json, table,
                     touch_memory, write_between)

COUNTS = (10, 1000, 10000, 100000)
FIGURE_COUNT = 10000
ACCESS_COUNTS = (10000, 100000)
COLLECTORS = ("on", "off")
OFFSETS = ("read", "calculate")
ACCESSORS = ("weightmap.open", "weightmap.safe_open", "safetensors")
READERS = {"weightmap.numpy": "`weightmap.open`, `.numpy()`",
           "weightmap.torch": "`weightmap.open`, `.torch()`",
           "weightmap.torch.load": "`weightmap.torch.load`",
           "torch.load": "`torch.load(mmap=True)`"}
BEGIN, END = "<!-- measured python: begin -->", "<!-- measured python: end -->"


class Contenders:
    """Runs contenders and keeps their samples by name and number of tensors."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.samples = {}

    def file(self, name):
        return os.path.join(self.arguments.files, name)

    def run(self, key, measure, contender, file, warm_up, *options):
        touch_memory(self.arguments.build)
        command = [sys.executable, os.path.join(HERE, "python_once.py"), measure, contender,
                   self.file(file), "--warm-up", self.file(warm_up), *options]
        run = run_json(command)
        self.samples.setdefault(key, Samples()).runs.append(run)
        return run


# ---- one round of each

def run_loads(contenders):
    for count in COUNTS:
        file, small = f"tensors_{count}.pt", "tensors_10.pt"
        for collector in COLLECTORS:
            options = ("--gc", collector)
            runs = [contenders.run(("weightmap", collector, count), "load", "weightmap", file,
                                   small, *options)]
            runs += [contenders.run((offsets, collector, count), "load", "torch", file, small,
                                    *options, "--offsets", offsets) for offsets in OFFSETS]
            assert all(run["tensors"] == count for run in runs), runs
        for stage in ("walk", "storages"):
            contenders.run((stage, count), "stages", stage, file, small)


def run_tensors(contenders):
    for count in COUNTS:
        file, small = f"tensors_{count}.pt", "tensors_10.pt"
        contenders.run(("one tensor", count), "tensor", "weightmap", file, small)


def run_accesses(contenders):
    for count, framework, name in itertools.product(ACCESS_COUNTS, ("pt", "np"), ACCESSORS):
        suffix = "safetensors" if name == "safetensors" else "pt"
        run = contenders.run((name, framework, count), "access", name, f"tensors_{count}.{suffix}",
                             f"tensors_10.{suffix}", "--framework", framework)
        assert run["tensors"] == count, run


def run_memory(contenders):
    runs = [contenders.run(name, "memory", name, "gibibyte.pt", "two_storages.pt")
            for name in READERS]
    read = {(run["bytes"], run["checksum"]) for run in runs}
    assert len(read) == 1 and runs[0]["bytes"] == 1 << 30, runs


# ---- tables

def timed(samples, field="open_us"):
    """Median and, in brackets, the lowest."""
    return f"{duration(samples.median(field))} ({duration(samples.low(field))})"


def load_table(samples, collector):
    head = ["tensors", "`weightmap.torch.load`", "`torch.load(mmap=True)`", "ratio",
            "the same, calculated offsets", "ratio"]
    rows = []
    for count in COUNTS:
        ours = samples["weightmap", collector, count]
        cells = [f"{count:,}", f"**{timed(ours)}**"]
        for offsets in OFFSETS:
            theirs = samples[offsets, collector, count]
            cells += [timed(theirs), f"{theirs.median() / ours.median():.1f} x"]
        rows.append(cells)
    return table(head, rows)


def stage_table(samples):
    head = ["tensors", "open", "walk", "storages", "rebuild functions", "whole",
            "rebuild functions, a tensor"]
    rows = []
    for count in COUNTS:
        walk, storages = samples["walk", count], samples["storages", count]
        whole = samples["weightmap", "off", count].median()
        rebuild = whole - storages.median("whole_us")
        stages = [walk.median("open_us"), walk.median("whole_us") - walk.median("open_us"),
                  storages.median("whole_us") - walk.median("whole_us"), rebuild, whole]
        rows.append([f"{count:,}", *(duration(max(stage, 0)) for stage in stages),
                     f"{max(rebuild, 0) / count:.1f} us"])
    return table(head, rows)


def load_figure(samples):
    ours, theirs = (samples[name, "on", FIGURE_COUNT].median() for name in ("weightmap", "read"))
    return figure(f"**Loading {FIGURE_COUNT:,} tensors** as a state dict of torch takes "
                  f"**{duration(ours)}** with `weightmap.torch.load`, {duration(theirs)} with "
                  "`torch.load(mmap=True)`.")


def tensor_table(samples):
    head = ["tensors", "`weightmap.open`, one `.torch()`", "`torch.load(mmap=True)`, the same",
            "ratio"]
    rows = []
    for count in COUNTS:
        ours, theirs = samples["one tensor", count], samples["read", "on", count]
        ratio = theirs.median("tensor_us") / ours.median("tensor_us")
        rows.append([f"{count:,}", f"**{timed(ours, 'tensor_us')}**", timed(theirs, "tensor_us"),
                     f"{ratio:.0f} x"])
    return table(head, rows)


def access_table(samples):
    head = ["tensors", "framework", "", "open", "ratio", "a tensor", "ratio"]
    rows = []
    for count, framework, name in itertools.product(ACCESS_COUNTS, ("pt", "np"), ACCESSORS):
        run, theirs = samples[name, framework, count], samples["safetensors", framework, count]
        access = f"{run.median('access_ns'):,.0f} ns ({run.low('access_ns'):,.0f})"
        words = "safetensors.safe_open" if name == "safetensors" else name
        cells = [f"{count:,}", f"`{framework}`", f"`{words}`", timed(run), "", access, ""]
        if name != "safetensors":
            cells[4] = f"{theirs.median() / run.median():.1f} x"
            cells[6] = f"{theirs.median('access_ns') / run.median('access_ns'):.1f} x"
        rows.append(cells)
    return table(head, rows)


def memory_table(samples):
    head = ["1 GiB read through", "RssAnon, growth", "highest of all rounds", "RssFile, growth"]
    rows = []
    for name, words in READERS.items():
        run = samples[name]
        rows.append([words, f"**{run.median('anonymous_kib') / 1024:.1f} MiB**",
                     f"{run.high('anonymous_kib') / 1024:.1f} MiB",
                     f"{run.median('file_kib') / 1024:,.0f} MiB"])
    return table(head, rows)


# What to run, and the lines that say what came of it.
MEASURES = {
    "load": (run_loads, lambda samples: [
        "A whole state dict as torch tensors, garbage collector on, as people run it:", "",
        *load_table(samples, "on"), "", "Garbage collector off:", "", *load_table(samples, "off"),
        "", "Where the time of `weightmap.torch.load` goes:", "", *stage_table(samples)]),
    "tensor": (run_tensors, lambda samples: ["One tensor of many:", "", *tensor_table(samples)]),
    "access": (run_accesses, lambda samples: [
        "Compared with safetensors, the same tensors:", "", *access_table(samples)]),
    "memory": (run_memory, lambda samples: [
        "Memory after every byte was read:", "", *memory_table(samples)]),
}


# ---- preparing and running

def make_safetensors(contenders, count):
    """The same state dict as a .safetensors file."""
    path = contenders.file(f"tensors_{count}.safetensors")
    if os.path.exists(path):
        return
    import safetensors.torch
    import torch
    state = torch.load(contenders.file(f"tensors_{count}.pt"), weights_only=True)
    safetensors.torch.save_file(state, path + ".part")
    os.rename(path + ".part", path)


def versions():
    import numpy
    import safetensors
    import torch
    return (f"torch {torch.__version__}, numpy {numpy.__version__}, safetensors "
            f"{safetensors.__version__}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--files", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES))
    parser.add_argument("--write")
    parser.add_argument("--write-figure")
    arguments = parser.parse_args()
    if "tensor" in arguments.only and "load" not in arguments.only:
        parser.error("tensor is compared with what load measures: --only load tensor")
    for path in filter(None, (arguments.write, arguments.write_figure)):
        if not has_between(path, BEGIN, END):
            parser.error(f"{path} lacks the markers {BEGIN} and {END}")
    if arguments.write_figure and "load" not in arguments.only:
        parser.error("the figure is of load")
    contenders = Contenders(arguments)
    for count in (10, *ACCESS_COUNTS):
        make_safetensors(contenders, count)
    for round_number in range(arguments.rounds):
        for name in arguments.only:
            MEASURES[name][0](contenders)
        print(f"round {round_number + 1} of {arguments.rounds}", file=sys.stderr)
    lines = [machine_line(versions(), arguments.rounds) + " In brackets the lowest."]
    for name in arguments.only:
        lines += ["", *MEASURES[name][1](contenders.samples)]
    print("\n".join(lines))
    if arguments.write:
        write_between(arguments.write, BEGIN, END, lines)
    if arguments.write_figure:
        write_between(arguments.write_figure, BEGIN, END, load_figure(contenders.samples))


if __name__ == "__main__":
    main()
