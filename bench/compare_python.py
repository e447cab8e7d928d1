"""Compares the Python package with torch.load(mmap=True) and with safetensors.

    compare_python.py --build build/release --files DIR [--rounds 7] [--only NAME ...]
                      [--write FILE] [--write-figure FILE]

Runs bench/python_once.py with this interpreter, which needs weightmap, torch, numpy and
safetensors. Every round runs each contender once on a file in a fresh process, so that whatever
else the machine does meets all of them; medians over the rounds. DIR holds what scripts/bench puts
there. Prints the tables as Markdown; --write puts them between the markers in
FILE (docs/performance.md), --write-figure one of the figures (README.md). --only measures some of:
load, tensor, access, safetensors, memory.
"""
import argparse
import itertools
import json
import os
import sys

from samples import (HERE, duration, figure, has_between, interleave, machine_line, ratio_text,
                     table, write_between)

COUNTS = (10, 1000, 10000, 100000)
FIGURE_COUNT = 10000
ACCESS_COUNTS = (10000, 100000)
COLLECTORS = ("on", "off")
OFFSETS = ("read", "calculate")
STAGES = ("direct", "functions")
FRAMEWORKS = ("pt", "np")
ACCESSORS = ("weightmap.open", "weightmap.safe_open", "safetensors")
# safetensors files, and a set of shards, by what they hold.
SAFETENSORS = {"10 tensors": "tensors_10.safetensors", "10,000 tensors": "tensors_10000.safetensors",
               "100,000 tensors": "tensors_100000.safetensors",
               "200 shards of 500 tensors": "shards"}
READERS = {"weightmap.numpy": "`weightmap.open`, `.numpy()`",
           "weightmap.torch": "`weightmap.open`, `.torch()`",
           "weightmap.torch.load": "`weightmap.torch.load`",
           "torch.load": "`torch.load(mmap=True)`"}
BEGIN, END = "<!-- measured python: begin -->", "<!-- measured python: end -->"


class Bench:
    """Runs contenders of python_once.py, in turns, on the files of a directory."""

    def __init__(self, arguments):
        self._arguments = arguments

    def file(self, name):
        return os.path.join(self._arguments.files, name)

    def contender(self, measure, name, file, warm_up, *options):
        return [sys.executable, os.path.join(HERE, "python_once.py"), measure, name,
                self.file(file), "--warm-up", self.file(warm_up), *options]

    def interleave(self, contenders):
        return interleave(self._arguments.build, contenders, self._arguments.rounds)


# ---- what is measured: samples by contender, those by number of tensors and what else there is

def measure_loads(bench):
    return {(collector, count): measure_load(bench, collector, count)
            for count in COUNTS for collector in COLLECTORS}


def measure_load(bench, collector, count):
    file, small = f"tensors_{count}.pt", "tensors_10.pt"
    options = ("--gc", collector)
    loaders = {"weightmap": bench.contender("load", "weightmap", file, small, *options)}
    loaders |= {offsets: bench.contender("load", "torch", file, small, *options, "--offsets",
                                         offsets) for offsets in OFFSETS}
    stages = STAGES if collector == "off" else ()
    samples = bench.interleave(
        loaders | {stage: bench.contender("stages", stage, file, small) for stage in stages})
    for name in loaders:
        assert all(run["tensors"] == count for run in samples[name].runs), name
    return samples


def measure_tensors(bench):
    samples = {}
    for count in COUNTS:
        file, small = f"tensors_{count}.pt", "tensors_10.pt"
        samples[count] = bench.interleave(
            {"weightmap": bench.contender("tensor", "weightmap", file, small),
             "torch": bench.contender("load", "torch", file, small)})
    return samples


def measure_accesses(bench):
    samples = {}
    for count, framework in itertools.product(ACCESS_COUNTS, FRAMEWORKS):
        contenders = {}
        for name in ACCESSORS:
            suffix = "safetensors" if name == "safetensors" else "pt"
            contenders[name] = bench.contender(
                "access", name, f"tensors_{count}.{suffix}", f"tensors_10.{suffix}",
                "--framework", framework)
        samples[count, framework] = bench.interleave(contenders)
        for name, taken in samples[count, framework].items():
            assert all(run["tensors"] == count for run in taken.runs), name
    return samples


def measure_names(bench):
    return {words: bench.interleave(
        {name: bench.contender("names", name, file, "tensors_10.safetensors")
         for name in ACCESSORS}) for words, file in SAFETENSORS.items()}


def measure_safetensors(bench):
    file, small = "tensors_10000.safetensors", "tensors_10.safetensors"
    tensors = {framework: bench.interleave(
        {name: bench.contender("access", name, file, small, "--framework", framework)
         for name in ACCESSORS}) for framework in FRAMEWORKS}
    return measure_names(bench), tensors


def measure_memory(bench):
    samples = bench.interleave(
        {name: bench.contender("memory", name, "gibibyte.pt", "two_storages.pt")
         for name in READERS})
    read = {(run["bytes"], run["checksum"]) for taken in samples.values() for run in taken.runs}
    assert len(read) == 1 and min(read)[0] == 1 << 30, read
    return samples


# ---- tables

def timed(samples, field="open_us"):
    """Median and, in brackets, the lowest."""
    return f"{duration(samples.median(field))} ({duration(samples.low(field))})"


def load_table(samples, collector):
    head = ["tensors", "`weightmap.torch.load`", "`torch.load(mmap=True)`", "ratio",
            "the same, calculated offsets", "ratio"]
    rows = []
    for count in COUNTS:
        measured = samples[collector, count]
        cells = [f"{count:,}", f"**{timed(measured['weightmap'])}**"]
        for offsets in OFFSETS:
            theirs = measured[offsets]
            cells += [timed(theirs), ratio_text(theirs.ratio_to("weightmap"), 1)]
        rows.append(cells)
    return table(head, rows)


def stage_table(samples):
    head = ["tensors", "open", "objects", "whole", "objects, a tensor",
            "by torch's functions, a tensor", "ratio"]
    rows = []
    for count in COUNTS:
        direct, functions = (samples["off", count][stage] for stage in STAGES)
        opened, whole = direct.median("open_us"), direct.median("whole_us")
        theirs = functions.median("whole_us") - functions.median("open_us")
        rows.append([f"{count:,}", duration(opened), duration(whole - opened), duration(whole),
                     f"{(whole - opened) / count:.1f} us", f"{theirs / count:.1f} us",
                     ratio_text(functions.ratio_to("direct", "whole_us"), 1)])
    return table(head, rows)


def load_figure(samples):
    ours, theirs = (samples["on", FIGURE_COUNT][name].median() for name in ("weightmap", "read"))
    return figure(f"**Loading {FIGURE_COUNT:,} tensors** as a state dict of torch takes "
                  f"**{duration(ours)}** with `weightmap.torch.load`, {duration(theirs)} with "
                  "`torch.load(mmap=True)`.")


def tensor_table(samples):
    head = ["tensors", "`weightmap.open`, one `.torch()`", "`torch.load(mmap=True)`, the same",
            "ratio"]
    rows = []
    for count in COUNTS:
        ours, theirs = samples[count]["weightmap"], samples[count]["torch"]
        rows.append([f"{count:,}", f"**{timed(ours, 'tensor_us')}**", timed(theirs, "tensor_us"),
                     ratio_text(theirs.ratio_to("weightmap", "tensor_us"), 0)])
    return table(head, rows)


def access_table(samples):
    head = ["tensors", "framework", "", "open", "ratio", "a tensor", "ratio"]
    rows = []
    for count, framework, name in itertools.product(ACCESS_COUNTS, FRAMEWORKS, ACCESSORS):
        run, theirs = (samples[count, framework][either] for either in (name, "safetensors"))
        access = f"{run.median('access_ns'):,.0f} ns ({run.low('access_ns'):,.0f})"
        words = "safetensors.safe_open" if name == "safetensors" else name
        cells = [f"{count:,}", f"`{framework}`", f"`{words}`", timed(run), "", access, ""]
        if name != "safetensors":
            cells[4] = ratio_text(theirs.ratio_to(name), 1)
            cells[6] = ratio_text(theirs.ratio_to(name, "access_ns"), 1)
        rows.append(cells)
    return table(head, rows)


def names_table(samples):
    head = ["until all names are known", *(words_of(name) for name in ACCESSORS)]
    rows = []
    for words in SAFETENSORS:
        run = samples[words]
        theirs = run["safetensors"]
        ours = [f"{timed(run[name])}, {ratio_text(theirs.ratio_to(name), 1)}"
                for name in ACCESSORS[:-1]]
        rows.append([words, *ours, timed(theirs)])
    return table(head, rows)


def words_of(name):
    return "`safetensors.safe_open`" if name == "safetensors" else f"`{name}`"


def tensors_table(samples):
    head = ["each of 10,000 tensors", *(words_of(name) for name in ACCESSORS)]
    rows = []
    for framework in FRAMEWORKS:
        run = samples[framework]
        theirs = run["safetensors"]
        ours = [f"{run[name].median('access_ns'):,.0f} ns, "
                f"{ratio_text(theirs.ratio_to(name, 'access_ns'), 1)}" for name in ACCESSORS[:-1]]
        rows.append([f"`{framework}`", *ours, f"{theirs.median('access_ns'):,.0f} ns"])
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
    "load": (measure_loads, lambda samples: [
        "A whole state dict as torch tensors, garbage collector on, as people run it:", "",
        *load_table(samples, "on"), "", "Garbage collector off:", "", *load_table(samples, "off"),
        "", "Where the time of `weightmap.torch.load` goes:", "", *stage_table(samples)]),
    "tensor": (measure_tensors, lambda samples: ["One tensor of many:", "", *tensor_table(samples)]),
    "access": (measure_accesses, lambda samples: [
        "Compared with safetensors, the same tensors:", "", *access_table(samples)]),
    "safetensors": (measure_safetensors, lambda samples: [
        "The same safetensors files, opened by both; behind a time how many times as long the "
        "package safetensors takes:", "", *names_table(samples[0]), "",
        *tensors_table(samples[1])]),
    "memory": (measure_memory, lambda samples: [
        "Memory after every byte was read:", "", *memory_table(samples)]),
}


# ---- preparing and running

def make_safetensors(bench, count):
    """The same state dict as a .safetensors file."""
    path = bench.file(f"tensors_{count}.safetensors")
    if os.path.exists(path):
        return
    import safetensors.torch
    import torch
    state = torch.load(bench.file(f"tensors_{count}.pt"), weights_only=True)
    safetensors.torch.save_file(state, path + ".part")
    os.rename(path + ".part", path)


def make_shards(bench, shards=200, tensors=500):
    """A set of shards with an index, in a folder."""
    folder = bench.file("shards")
    index = os.path.join(folder, "model.safetensors.index.json")
    if os.path.exists(index):
        return
    import safetensors.torch
    import torch
    os.makedirs(folder, exist_ok=True)
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        state = {f"model.layers.{shard}.experts.{i}.weight": torch.zeros(16, 16)
                 for i in range(tensors)}
        safetensors.torch.save_file(state, os.path.join(folder, file), metadata={"format": "pt"})
        weight_map |= dict.fromkeys(state, file)
    with open(index + ".part", "w", encoding="utf-8") as out:
        json.dump({"metadata": {"total_size": 0}, "weight_map": weight_map}, out, indent=2)
    os.rename(index + ".part", index)


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
    for path in filter(None, (arguments.write, arguments.write_figure)):
        if not has_between(path, BEGIN, END):
            parser.error(f"{path} lacks the markers {BEGIN} and {END}")
    if arguments.write_figure and "load" not in arguments.only:
        parser.error("the figure is of load")
    bench = Bench(arguments)
    for count in (10, *ACCESS_COUNTS):
        make_safetensors(bench, count)
    make_shards(bench)
    samples = {name: MEASURES[name][0](bench) for name in arguments.only}
    lines = [machine_line(versions(), arguments.rounds) + " In round brackets the lowest."]
    for name in arguments.only:
        lines += ["", *MEASURES[name][1](samples[name])]
    print("\n".join(lines))
    if arguments.write:
        write_between(arguments.write, BEGIN, END, lines)
    if arguments.write_figure:
        write_between(arguments.write_figure, BEGIN, END, load_figure(samples["load"]))


if __name__ == "__main__":
    main()
