"""Compares opening a checkpoint with torch.load(mmap=True), in fresh processes, side by side.

    compare_open.py --build build/release --files DIR --torch-python PY [--rounds 7]
                    [--lookups JSON] [--write FILE] [--write-figure FILE]

Every round runs each contender once on a file, so that whatever else the machine does meets all of
them; medians over the rounds. --lookups is what open_bench printed with
--benchmark_format=json. Prints the tables as Markdown; --write puts them between the markers in
FILE (docs/performance.md), --write-figure one of the figures (README.md).
"""
import argparse
import json
import os
import shlex

from samples import (HERE, duration, figure, interleave, machine_line, ratio_text, table,
                     write_between)

COUNTS = (10, 1000, 10000, 100000)
TORCH_VARIANTS = ("nogc read", "nogc calculate", "gc read")
FIGURE_COUNT = 10000  # tensors; with torch as people run it
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def measure_opens(arguments):
    """Samples by number of tensors and contender."""
    opener = os.path.join(arguments.build, "bench", "open_once")
    torch_script = os.path.join(HERE, "torch_open_once.py")
    samples = {}
    for count in COUNTS:
        path = os.path.join(arguments.files, f"tensors_{count}.pt")
        ours = shlex.join([opener, path])
        # Twice, since importing torch warms the other side up.
        contenders = {"weightmap": f"{ours} >/dev/null && {ours}"}
        contenders |= {variant: [arguments.torch_python, torch_script, path, *variant.split()]
                       for variant in TORCH_VARIANTS}
        samples[count] = interleave(arguments.build, contenders, arguments.rounds)
        for name, taken in samples[count].items():
            assert all(run["tensors"] == count for run in taken.runs), name
    return samples


def measure_cold(arguments):
    opener = os.path.join(arguments.build, "bench", "open_once")
    path = os.path.join(arguments.files, "storages_8192.pt")
    contenders = {"cold": [opener, path, "--evict"]}
    return path, interleave(arguments.build, contenders, arguments.rounds, "--recycle", "0")["cold"]


def open_table(samples):
    head = ["tensors", "weightmap", "a tensor", "torch, gc off", "ratio",
            "torch, gc off, calculated offsets", "ratio", "torch, gc on", "ratio"]
    rows = []
    for count in COUNTS:
        ours = samples[count]["weightmap"].median()
        cells = [f"{count:,}", f"**{duration(ours)}**", f"{ours * 1000 / count:.0f} ns"]
        for variant in TORCH_VARIANTS:
            theirs = samples[count][variant]
            cells += [duration(theirs.median()), ratio_text(theirs.ratio_to("weightmap"), 0)]
        rows.append(cells)
    return table(head, rows)


def open_figure(samples):
    ours = samples[FIGURE_COUNT]["weightmap"].median()
    theirs = samples[FIGURE_COUNT]["gc read"].median()
    return figure(f"**Opening** a checkpoint of {FIGURE_COUNT:,} tensors, until each can be looked up "
                  f"and read, takes **{duration(ours)}**; `torch.load(mmap=True)`, which makes tensor "
                  f"objects, takes {duration(theirs)}.")


def stage_table(samples):
    head = ["tensors", "directory", "pickle", "catalog and name index", "mapping",
            "whole (lowest)", "reads", "bytes read", "local headers", "memory touched"]
    rows = []
    for count in COUNTS:
        ours = samples[count]["weightmap"]
        cells = [f"{count:,}"]
        cells += [duration(ours.median(field)) for field in
                  ("directory_us", "pickle_us", "catalog_us", "mapping_us")]
        run = ours.runs[0]
        touched = ours.median("peak_kib") - ours.median("peak_kib_before")
        cells += [duration(ours.low()), str(run["reads"]), f"{run['bytes_read']:,}",
                  str(run["local_headers_read"]), f"{touched / 1024:.1f} MiB"]
        rows.append(cells)
    return table(head, rows)


def cold_lines(path, cold):
    run = cold.runs[0]
    left = max(run["cached_pages_before"] for run in cold.runs)
    return [f"Cold: a file of {os.path.getsize(path) / 1e9:.2f} GB with {run['tensors']:,} storages, "
            f"evicted from the page cache before each of {len(cold.runs)} opens (at most {left} of "
            f"its pages stayed): median {duration(cold.median())}, "
            f"{cold.median('disk_bytes') / 1e6:.2f} MB read from disk, {run['reads']} reads, "
            f"{run['local_headers_read']} local header."]


def lookup_table(path):
    with open(path, encoding="utf-8") as file:
        runs = json.load(file)["benchmarks"]
    rows = []
    for run in runs:
        if run["name"].startswith("find/") and run["aggregate_name"] == "median":
            count = int(run["run_name"].split("/")[1])
            rows.append([f"{count:,}", f"{run['cpu_time']:.1f} {run['time_unit']}",
                         f"{run['allocations']:.0f}"])
    return table(["names", "`find` of a random name, median", "allocations"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--files", required=True)
    parser.add_argument("--torch-python", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--lookups")
    parser.add_argument("--write")
    parser.add_argument("--write-figure")
    arguments = parser.parse_args()
    samples = measure_opens(arguments)
    path, cold = measure_cold(arguments)
    torch_version = samples[COUNTS[0]]["gc read"].runs[0]["torch"]
    lines = [machine_line(f"torch {torch_version}", arguments.rounds), "", *open_table(samples),
             "", *stage_table(samples), "", *cold_lines(path, cold)]
    if arguments.lookups:
        lines += ["", *lookup_table(arguments.lookups)]
    print("\n".join(lines))
    if arguments.write:
        write_between(arguments.write, BEGIN, END, lines)
    if arguments.write_figure:
        write_between(arguments.write_figure, BEGIN, END, open_figure(samples))


if __name__ == "__main__":
    main()
