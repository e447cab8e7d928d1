"""Measures each stage of the library alone, with stage_bench.

    stage_table.py --build build/release --files build/bench [--write FILE]

Medians of processor time over seven repetitions in one process, in random order. Prints tables as
Markdown; --write puts them between the markers in FILE (docs/performance.md).
"""
import argparse
import os
import sys

from samples import has_between, machine, run_json, table, write_between

REPETITIONS = 7
COUNTS = (10, 1000, 100000)
# What is done to tensors, and what one item is.
COUNTED = {
    "directory_from_memory": ("zip directory, from memory", "record"),
    "directory_from_file": ("zip directory, from the cached file", "record"),
    "pickle_record": ("`data.pkl` read from the cached file, CRC-32 compared", "tensor"),
    "pickle_packed": ("pickle to value tree", "tensor"),
    "pickle_general": ("the same by the general handlers alone", "tensor"),
    "read_tensors": ("value tree to tensors", "tensor"),
    "locate_storages": ("offsets of the storages", "storage"),
    "make_catalog": ("catalog and name index", "tensor"),
    "plan_file_order_4_kib": ("plan of a warm-up, 4 KiB each, file order", "tensor"),
    "plan_random_order_4_kib": ("the same, random order", "tensor"),
    "plan_file_order_1_mib": ("plan of a warm-up, 1 MiB each, file order", "tensor"),
    "plan_random_order_1_mib": ("the same, random order", "tensor"),
}
# What is done to bytes, or once.
TIMED = {
    "residency": "`residency()` of 1 GiB, cached",
    "map": "map a file of 1 GiB and unmap it, no page touched",
    "populate": "map 1 GiB, cached, and every page of it, by `populate`",
    "fault": "the same by page faults",
    "demand_tensor": "`demand()` of 4 MiB that are mapped already",
    "demand_4_kib": "`demand()` of 4 KiB that are mapped already",
    "crc32": "CRC-32 of 128 MiB in memory",
    "sum": "sum of the same, in words of 8 bytes: what reading it costs",
}
BEGIN, END = "<!-- measured stages: begin -->", "<!-- measured stages: end -->"


def measure(arguments):
    """Aggregates by benchmark: {"crc32": {"median": {...}, "cv": {...}}}."""
    program = os.path.join(arguments.build, "bench", "stage_bench")
    runs = run_json([program, f"--files={arguments.files}", "--benchmark_format=json",
                     f"--benchmark_repetitions={REPETITIONS}", "--benchmark_min_time=0.1",
                     "--benchmark_enable_random_interleaving=true",
                     "--benchmark_report_aggregates_only=true"])["benchmarks"]
    stages = {}
    for run in runs:
        if run.get("error_occurred"):
            sys.exit(f"stage_bench: {run['name']}: {run['error_message']}")
        stages.setdefault(run["run_name"], {})[run["aggregate_name"]] = run
    return stages


def spread(stages):
    """The widest standard deviation in percent of the mean."""
    return f"{100 * max(stage['cv']['cpu_time'] for stage in stages):.0f} %"


def counted_rows(stages):
    for name, (words, item) in COUNTED.items():
        mine = [stages[f"{name}/{count}"] for count in COUNTS]
        yield [words, item,
               *(f"{1e9 / stage['median']['items_per_second']:.1f} ns" for stage in mine),
               spread(mine)]


def timed_rows(stages):
    for name, words in TIMED.items():
        median = stages[name]["median"]
        rate = median.get("bytes_per_second")
        large = median.get("large")
        yield [words, f"{median['cpu_time'] / 1000:,.1f} us",
               f"{1e12 / rate:.2f} ms" if rate else "",
               f"{100 * large:.0f} %" if large is not None else "", spread([stages[name]])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--files", required=True)
    parser.add_argument("--write")
    arguments = parser.parse_args()
    if arguments.write and not has_between(arguments.write, BEGIN, END):
        parser.error(f"{arguments.write} lacks the markers {BEGIN} and {END}")
    stages = measure(arguments)
    lines = [f"{machine()}. Medians of {REPETITIONS} repetitions in one process.", "",
             *table(["stage", "per", *(f"of {count:,}" for count in COUNTS), "spread"],
                    counted_rows(stages)), "",
             *table(["", "time", "a GB", "in huge pages", "spread"], timed_rows(stages))]
    print("\n".join(lines))
    if arguments.write:
        write_between(arguments.write, BEGIN, END, lines)


if __name__ == "__main__":
    main()
