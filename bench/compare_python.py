"""Compares opening and loading with torch.load(mmap=True) and with safetensors.

    compare_python.py --build build/release --files DIR [--rounds 7] [--only NAME ...]
                      [--write FILE] [--write-figure FILE]

Every round runs each contender once on a file in a fresh process, so that whatever else the machine
does meets all of them; medians over the rounds. Contenders are bench/open_once.cpp and
bench/python_once.py with this interpreter, which needs weightmap, torch, numpy and safetensors. DIR
holds what scripts/bench puts there. Prints the tables as Markdown; --write puts each between its
markers in FILE (docs/performance.md), --write-figure one figure of each (README.md). --only measures
some of: open, load, safetensors.
"""
import argparse
import json
import os
import shlex
import sys

from samples import (HERE, check_between, duration, figure, interleave, machine_line, publish,
                     ratio_text, table, write_between)

COUNTS = (10, 1000, 10000, 100000)
SAFETENSORS_COUNTS = (300, 3000)
FIGURE_COUNT = 10000  # tensors
FRAMEWORKS = ("pt", "np")
ACCESSORS = {"weightmap": "`weightmap.open`", "safe_open": "`weightmap.safe_open`",
             "theirs": "`safetensors.safe_open`"}
# Safetensors files, and a set of shards, by their content.
SAFETENSORS = {"10 tensors": ("safetensors", "tensors_10.safetensors"),
               "10,000 tensors": ("safetensors", "tensors_10000.safetensors"),
               "100,000 tensors": ("safetensors", "tensors_100000.safetensors"),
               "200 shards of 500 tensors": ("shards", "shards")}


class Bench:
    """Runs contenders, in turns, on the files of a directory."""

    def __init__(self, arguments):
        self._arguments = arguments

    def file(self, name):
        return os.path.join(self._arguments.files, name)

    def contender(self, measure, name, kind, file, *options):
        suffix = "pt" if kind == "pt" else "safetensors"
        return [sys.executable, os.path.join(HERE, "python_once.py"), measure, name, kind,
                self.file(file), "--warm-up", self.file(f"tensors_10.{suffix}"), *options]

    def opener(self, file, *options):
        """The library alone, without Python."""
        return [os.path.join(self._arguments.build, "bench", "open_once"), self.file(file), *options]

    def interleave(self, contenders, *options):
        return interleave(self._arguments.build, contenders, self._arguments.rounds, *options)


# ---- opening, with the library alone

def measure_opens(bench):
    """Samples by number of tensors and contender, and of cold opens."""
    samples = {}
    for count in COUNTS:
        file = f"tensors_{count}.pt"
        ours = shlex.join(bench.opener(file))
        # Twice, since importing torch also warms up the other side.
        samples[count] = bench.interleave({"weightmap": f"{ours} >/dev/null && {ours}",
                                           "torch": bench.contender("state", "theirs", "pt", file)})
        for name, taken in samples[count].items():
            assert all(run["tensors"] == count for run in taken.runs), name
    cold = bench.interleave({"cold": bench.opener("storages_8192.pt", "--evict")}, "--recycle", "0")
    return samples, cold["cold"], os.path.getsize(bench.file("storages_8192.pt"))


def open_lines(measured):
    samples, cold, cold_size = measured
    return [*open_table(samples), "", *cold_lines(cold, cold_size)]


def open_table(samples):
    head = ["tensors", "weightmap", "a tensor", "reads", "bytes read", "memory touched",
            "torch", "ratio"]
    rows = []
    for count in COUNTS:
        ours = samples[count]["weightmap"]
        touched = ours.median("peak_kib") - ours.median("peak_kib_before")
        theirs = samples[count]["torch"]
        rows.append([f"{count:,}", f"**{duration(ours.median())}**",
                     f"{ours.median() * 1000 / count:.0f} ns", str(ours.runs[0]["reads"]),
                     f"{ours.runs[0]['bytes_read']:,}", f"{touched / 1024:.1f} MiB",
                     duration(theirs.median()), ratio_text(theirs.ratio_to("weightmap"), 0)])
    return table(head, rows)


def cold_lines(cold, size):
    run = cold.runs[0]
    left = max(run["cached_pages_before"] for run in cold.runs)
    return [f"Cold: a file of {size / 1e9:.2f} GB with {run['tensors']:,} storages, evicted from the "
            f"page cache before each of {len(cold.runs)} opens (at most {left} of its pages stayed): "
            f"median {duration(cold.median())}, {cold.median('disk_bytes') / 1e6:.2f} MB read from "
            f"disk, {run['reads']} reads."]


def open_figure(measured):
    samples = measured[0]
    ours, theirs = (samples[FIGURE_COUNT][name].median() for name in ("weightmap", "torch"))
    return figure(f"**Opening** a checkpoint of {FIGURE_COUNT:,} tensors, until each can be looked up "
                  f"and read, takes **{duration(ours)}**; `torch.load(mmap=True)`, which makes tensor "
                  f"objects, takes {duration(theirs)}.")


# ---- loading: a whole state dict as torch tensors

def measure_loads(bench):
    """Samples by kind of file, number of tensors and contender."""
    samples = {}
    for kind, suffix, counts in (("pt", "pt", COUNTS),
                                 ("safetensors", "safetensors", SAFETENSORS_COUNTS)):
        for count in counts:
            file = f"tensors_{count}.{suffix}"
            taken = bench.interleave({"ours": bench.contender("state", "weightmap", kind, file),
                                      "theirs": bench.contender("state", "theirs", kind, file)})
            for name, runs in taken.items():
                assert all(run["tensors"] == count for run in runs.runs), name
            samples[kind, count] = taken
    return samples


def load_lines(samples):
    return ["A whole state dict as torch tensors:", "",
            *load_table(samples, "pt", "`.pt`, tensors", "`torch.load(mmap=True)`"), "",
            *load_table(samples, "safetensors", "safetensors, tensors",
                        "`safetensors.torch.load_file`")]


def load_table(samples, kind, title, library):
    rows = []
    for (measured, count), taken in samples.items():
        if measured == kind:
            ours, theirs = taken["ours"], taken["theirs"]
            rows.append([f"{count:,}", f"**{timed(ours)}**", timed(theirs),
                         ratio_text(theirs.ratio_to("ours"), 1)])
    return table([title, "`weightmap.torch.load`", library, "ratio"], rows)


def load_figure(samples):
    ours, theirs = (samples["pt", FIGURE_COUNT][name].median() for name in ("ours", "theirs"))
    return figure(f"**Loading {FIGURE_COUNT:,} tensors** as a state dict of torch takes "
                  f"**{duration(ours)}** with `weightmap.torch.load`, {duration(theirs)} with "
                  "`torch.load(mmap=True)`.")


def timed(samples, field="open_us"):
    """Formats the median and, in brackets, the lowest."""
    return f"{duration(samples.median(field))} ({duration(samples.low(field))})"


# ---- safetensors: the same files by both packages

def measure_safetensors(bench):
    names = {words: bench.interleave({name: bench.contender("names", name, kind, file)
                                      for name in ACCESSORS})
             for words, (kind, file) in SAFETENSORS.items()}
    tensors = {framework: bench.interleave(
        {name: bench.contender("access", name, "safetensors", "tensors_10000.safetensors",
                               "--framework", framework) for name in ACCESSORS})
        for framework in FRAMEWORKS}
    return names, tensors


def safetensors_lines(measured):
    names, tensors = measured
    return ["The same safetensors files, opened by both; behind a time how many times as long the "
            "package safetensors takes:", "",
            *accessor_table("until all names are known", names, timed, "open_us"), "",
            *accessor_table("each of 10,000 tensors",
                            {f"`{framework}`": taken for framework, taken in tensors.items()},
                            lambda taken: f"{taken.median('access_ns'):,.0f} ns", "access_ns")]


def accessor_table(title, samples, text, field):
    rows = []
    for words, taken in samples.items():
        theirs = taken["theirs"]
        ours = [f"{text(taken[name])}, {ratio_text(theirs.ratio_to(name, field), 1)}"
                for name in ACCESSORS if name != "theirs"]
        rows.append([words, *ours, text(theirs)])
    return table([title, *ACCESSORS.values()], rows)


# The measurement, its tables, the figure, and the markers around both.
MEASURES = {"open": (measure_opens, open_lines, open_figure, "measured"),
            "load": (measure_loads, load_lines, load_figure, "measured python"),
            "safetensors": (measure_safetensors, safetensors_lines, None, "measured safetensors")}


def markers(name):
    return tuple(f"<!-- {MEASURES[name][3]}: {end} -->" for end in ("begin", "end"))


# ---- preparing and running

def make_safetensors(bench, count):
    """Writes the first tensors of the largest .pt file as a .safetensors file."""
    path = bench.file(f"tensors_{count}.safetensors")
    if os.path.exists(path):
        return
    import safetensors.torch
    import torch
    state = torch.load(bench.file(f"tensors_{max(COUNTS)}.pt"), weights_only=True)
    safetensors.torch.save_file(dict(list(state.items())[:count]), path + ".part")
    os.rename(path + ".part", path)


def make_shards(bench, shards=200, tensors=500):
    """Writes a set of shards with an index, in a folder."""
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
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--files", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES))
    parser.add_argument("--write")
    parser.add_argument("--write-figure")
    arguments = parser.parse_args()
    for name in arguments.only:
        for path in (arguments.write, arguments.write_figure if MEASURES[name][2] else None):
            check_between(parser, path, *markers(name))
    bench = Bench(arguments)
    for count in (10, *SAFETENSORS_COUNTS, 10000, 100000):
        make_safetensors(bench, count)
    make_shards(bench)
    for name in arguments.only:
        measure, lines_of, figure_of, _ = MEASURES[name]
        measured = measure(bench)
        lines = [machine_line(versions(), arguments.rounds) + " In round brackets the lowest.", "",
                 *lines_of(measured)]
        publish(lines, arguments.write, *markers(name))
        if arguments.write_figure and figure_of:
            write_between(arguments.write_figure, *markers(name), figure_of(measured))


if __name__ == "__main__":
    main()
