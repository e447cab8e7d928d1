"""Compares weightmap with the library that each format comes from, format by format.

    compare_formats.py --build build/release --folder DIR [--rounds 7] [--only NAME ...]
                       [--write FILE]

Makes in DIR what bench/make_formats.py makes, a gigabyte and a half, and runs
bench/python_once.py with this interpreter, which needs weightmap, torch, numpy, safetensors and
gguf: every round runs each contender of a format once, in a fresh process. Prints the tables as
Markdown; --write puts them between the markers in FILE (docs/performance.md). --only measures some
of: load, reshard, large.
"""
import argparse
import os
import sys

from samples import (HERE, check_between, duration, interleave, machine_line, mebibytes, publish,
                     ratio_text, table)

BEGIN, END = "<!-- measured formats: begin -->", "<!-- measured formats: end -->"
# The formats: their names, and those of their own libraries.
FORMATS = {"pt": ("`.pt`", "`torch.load(mmap=True)`"),
           "safetensors": ("safetensors, one file", "`safetensors.safe_open`"),
           "shards": ("safetensors, 8 shards and an index", "`safetensors.safe_open` of each"),
           "gguf": ("GGUF, float16 and q8_0", "`gguf.GGUFReader`"),
           "dcp": ("DCP of 4 ranks", "`dcp.load(no_dist=True)`")}
# A number of ranks other than 4, the measured rank, and the dimension of the cut.
RESHARDS = {"rank 0 of 2, by rows": (0, 2, 0), "rank 1 of 3, by rows": (1, 3, 0),
            "rank 5 of 8, by rows": (5, 8, 0), "rank 1 of 2, by columns": (1, 2, 1)}
LARGE = {"dcp": ("DCP of 10,000 chunks", "chunks.dcp"),
         "gguf": ("GGUF with 250,000 tokens", "tokens.gguf")}
OURS, THEIRS = "weightmap", "theirs"


class Bench:
    """Runs both contenders of python_once.py, in turns, on what a folder has."""

    def __init__(self, arguments):
        self._arguments = arguments

    def compare(self, measure, kind, path, *options):
        def command(name):
            return [sys.executable, os.path.join(HERE, "python_once.py"), measure, name, kind,
                    self._file(path), "--warm-up", self._file(f"small.{kind}"), *map(str, options)]
        samples = interleave(self._arguments.build, {name: command(name) for name in (OURS, THEIRS)},
                             self._arguments.rounds)
        read = {tuple(run.get(key) for key in ("tensors", "bytes", "checksum"))
                for taken in samples.values() for run in taken.runs}
        if len(read) != 1:
            raise SystemExit(f"{path}: the contenders have read different things: {sorted(read)}")
        return samples

    def _file(self, name):
        return os.path.join(self._arguments.folder, name)


# ---- the measures

def measure_loads(bench):
    return {(kind, *options): bench.compare("load", kind, f"model.{kind}", *options)
            for kind in FORMATS for options in ((), ("--cold",))}


def measure_reshards(bench):
    return {words: bench.compare("reshard", "dcp", "model.dcp", "--rank", rank, "--of", ranks,
                                 "--dim", dim) for words, (rank, ranks, dim) in RESHARDS.items()}


def measure_large(bench):
    return {kind: bench.compare("names", kind, path) for kind, (_, path) in LARGE.items()}


# ---- tables

def both(samples, field):
    """Returns both medians, and the ratio of the other one to ours."""
    ours, theirs = samples[OURS], samples[THEIRS]
    return [duration(ours.median(field)), duration(theirs.median(field)),
            ratio_text(theirs.ratio_to(OURS, field), 1)]


def figure_cell(samples, field):
    ours, theirs, ratio = both(samples, field)
    return f"{ours}, {theirs}: {ratio}"


def load_table(samples):
    """Each cell is `weightmap, its own library: ratio`."""
    head = ["weightmap, its own library: ratio", "open", "all bytes, cached", "all bytes, cold"]
    rows = []
    for kind, (words, library) in FORMATS.items():
        warm, cold = samples[kind,], samples[kind, "--cold"]
        rows.append([f"{words}, {library}", figure_cell(warm, "open_us"),
                     figure_cell(warm, "load_us"), figure_cell(cold, "load_us")])
    return table(head, rows)


def reshard_table(samples):
    head = ["", "slices", "read by weightmap", "by torch", "ratio", "time, weightmap", "torch", "ratio"]
    rows = []
    for words, taken in samples.items():
        ratio = taken[THEIRS].ratio_to(OURS, "read_bytes")["value"]
        rows.append([words, mebibytes(taken[OURS].median("bytes")),
                     *(mebibytes(taken[name].median("read_bytes")) for name in (OURS, THEIRS)),
                     f"{ratio:.2f}", *both(taken, "load_us")])
    return table(head, rows)


def large_table(samples):
    head = ["until all names are known", "weightmap", "its own library", "ratio",
            "read by weightmap", "by the other"]
    rows = []
    for kind, taken in samples.items():
        rows.append([LARGE[kind][0], *both(taken, "open_us"),
                     *(mebibytes(taken[name].median("read_bytes")) for name in (OURS, THEIRS))])
    return table(head, rows)


# The measurement, and its lines.
MEASURES = {
    "load": (measure_loads, lambda samples: [
        "Opening until all names are known; then every tensor as one of torch, every byte added "
        "up, with the opening:", "", *load_table(samples)]),
    "reshard": (measure_reshards, lambda samples: [
        "Slices of one rank of the DCP folder that 4 ranks have saved, evicted before:", "",
        *reshard_table(samples)]),
    "large": (measure_large, lambda samples: ["Much metadata:", "", *large_table(samples)]),
}


def versions():
    from importlib import metadata
    return ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "safetensors", "gguf"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES))
    parser.add_argument("--write")
    arguments = parser.parse_args()
    check_between(parser, arguments.write, BEGIN, END)
    from make_formats import make_all
    make_all(arguments.folder)
    bench = Bench(arguments)
    busy = [os.getloadavg()[0]]
    samples = {}
    for name in arguments.only:
        samples[name] = MEASURES[name][0](bench)
        busy.append(os.getloadavg()[0])
    lines = [f"{machine_line(versions(), arguments.rounds)} Load average, which has the benchmark's "
             f"own 1 in it: {min(busy):.1f} to {max(busy):.1f}."]
    for name in arguments.only:
        lines += ["", *MEASURES[name][1](samples[name])]
    publish(lines, arguments.write, BEGIN, END)


if __name__ == "__main__":
    main()
