"""Compares ways to read scattered rows of a large table: weightmap's RowReader against a mapping
with each advice, reads by 16 threads and, of an evicted file, numpy's index, with and without the
page cache; and what several processes that read the same rows hold together.

    compare_rows.py --build build/release TABLE [--rounds 7] [--processes 4] [--write FILE]

TABLE is a checkpoint of one tensor, "tensor.0", of rows of 256 bytes: 2 GiB or more, on a disk.
Every round runs each way of a case once, in a fresh process (bench/rows_once.cpp). Prints the
tables as Markdown; --write puts them between the markers in FILE (docs/performance.md). What a
mapping costs follows from the disk's read-ahead, which the head of the table has. The package
weightmap must be importable (PYTHONPATH).
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

from process_memory import pss_of
from samples import check_between, duration, interleave, machine, publish, ratio_text, table

BEGIN, END = "<!-- measured rows: begin -->", "<!-- measured rows: end -->"
WAYS = {"`RowReader`": ["weightmap"], "its budget the table": ["weightmap", "--budget", str(2**40)],
        "mapping": ["mapping"], "`MADV_RANDOM`": ["random"], "`MADV_WILLNEED`": ["willneed"],
        "both": ["both"], "16 threads": ["pread16"], "16 threads, `O_DIRECT`": ["direct16"]}
OURS = "`RowReader`"
NUMPY = "numpy's index"
BATCHES = {(48, "cold"): 8, (12288, "cold"): 1, (48, "cached"): 2000, (12288, "cached"): 40}


def measure(arguments, rows, state, law):
    options = ["--rows", str(rows), "--batches", str(BATCHES[rows, state])]
    options += ["--zipf"] * (law == "Zipf") + ["--cached"] * (state == "cached")
    program = os.path.join(arguments.build, "bench", "rows_once")
    command = [program, arguments.table, "tensor.0"]
    if state == "cached":
        subprocess.run(["dd", f"if={arguments.table}", "of=/dev/null", "bs=4M", "status=none"],
                       check=True)
    ways = {name: way for name, way in WAYS.items() if state == "cold" or way != ["direct16"]}
    contenders = {name: [*command, "--way", *way, *options] for name, way in ways.items()}
    with tempfile.NamedTemporaryFile() as ids:
        if state == "cold":
            subprocess.run([*command, *options, "--write-ids", ids.name], check=True)
            index = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rows_once.py")
            contenders[NUMPY] = [sys.executable, index, arguments.table, ids.name,
                                 "--rows", str(rows)]
        samples = interleave(arguments.build, contenders, arguments.rounds, "--recycle", "0")
    if len({run["sum"] for taken in samples.values() for run in taken.runs}) != 1:
        raise SystemExit(f"{rows} rows, {state}, {law}: the ways have read different rows")
    return samples


def held_together(arguments, rows, law):
    """The memory of processes that read the same rows, as a multiple of the pages of the rows."""
    command = [os.path.join(arguments.build, "bench", "rows_once"), arguments.table, "tensor.0",
               "--rows", str(rows), "--batches", str(BATCHES[rows, "cold"]), "--hold"]
    command += ["--zipf"] * (law == "Zipf")
    holders = []
    try:
        for number in range(arguments.processes):
            options = ["--cached"] * (number > 0)  # the first one evicts
            holders.append(subprocess.Popen([*command, *options], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, text=True))
            touched = 1024 * json.loads(holders[-1].stdout.readline())["touched_kib"]
        return sum(pss_of(holder.pid, arguments.table) for holder in holders) / touched
    finally:
        for holder in holders:
            holder.communicate()


def table_of(cases, together):
    def cell(name, samples):
        if name not in samples:
            return ""
        taken = samples[name]
        text = duration(taken.median("batch_us"))
        if name == OURS:
            resident = taken.median("rss_file_kib") / 1024
            return f"{text}, {taken.median('disk_kib'):,.0f} KiB, RSS {resident:,.0f} MiB"
        return f"{text}: {ratio_text(taken.ratio_to(OURS, 'batch_us'))}"
    rows = [[case, *(cell(name, samples) for name in [*WAYS, NUMPY]), together.get(case, "")]
            for case, samples in cases.items()]
    return table(["rows of a batch", *WAYS, NUMPY, "held together"], rows)


def read_ahead(path):
    """KiB that a fault brings at most, of the disk that has the file."""
    device = os.stat(path).st_dev
    with open(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb",
              encoding="ascii") as setting:
        return int(setting.read())


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("--build", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--processes", type=int, default=4, help="that read the same rows")
    parser.add_argument("--write")
    arguments = parser.parse_args()
    check_between(parser, arguments.write, BEGIN, END)
    cases = {f"{rows:,}, {state}, {law}": measure(arguments, rows, state, law)
             for rows, state in BATCHES for law in ("uniform", "Zipf")}
    together = {f"{rows:,}, cold, {law}": f"{held_together(arguments, rows, law):.2f}"
                for rows in (48, 12288) for law in ("uniform", "Zipf")}
    size = os.path.getsize(arguments.table) / 2**30
    head = (f"{machine()}; a table of {size:.1f} GiB, read-ahead "
            f"{read_ahead(arguments.table):,} KiB. {arguments.rounds} rounds; held by "
            f"{arguments.processes} processes together, as a multiple of the pages of the rows.")
    publish([head, "", *table_of(cases, together)], arguments.write, BEGIN, END)


if __name__ == "__main__":
    main()
