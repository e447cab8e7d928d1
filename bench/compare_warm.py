"""Compares ways to read a whole checkpoint from a cold page cache with what the disk can do.

    compare_warm.py --build build/release --file FILE [--rounds 7] [--write FILE]

Every round runs each method once in each order of tensors, in a fresh process, after the file was
evicted and none of its pages was left; medians over the rounds. `direct` reads past the page cache
into buffers: the rate of the disk, measured alongside. Prints a table as Markdown; --write puts it
between the markers in FILE (docs/performance.md).
"""
import argparse
import os
import sys

from samples import (Samples, has_between, machine_line, run_json, table, touch_memory,
                     write_between)

ORDERS = ("file", "random")
METHODS = {"direct": "`O_DIRECT` reads of 4 MiB by two threads",
           "populate": "`Warmer`, populate (the default)",
           "read": "`Warmer`, read",
           "readahead": "`Warmer`, readahead",
           "willneed": "`Warmer`, willneed",
           "touch": "no warming: the consumer faults"}
BEGIN, END = "<!-- measured warming: begin -->", "<!-- measured warming: end -->"


def measure(arguments):
    program = os.path.join(arguments.build, "bench", "warm_once")
    samples = {}
    for round_number in range(arguments.rounds):
        for order in ORDERS:
            checksums = set()
            for method in METHODS:
                touch_memory(arguments.build)
                run = run_json([program, arguments.file, method, order])
                assert run["cached_before"] == 0, f"{run['cached_before']} bytes stayed cached"
                checksums.add(run["checksum"])
                samples.setdefault((method, order), Samples()).runs.append(run)
            assert len(checksums) == 1, checksums
        print(f"round {round_number + 1} of {arguments.rounds}", file=sys.stderr)
    return samples


def rate(samples, low=False):
    run = samples.runs[0]
    milliseconds = samples.low("all_ms") if low else samples.median("all_ms")
    return run["bytes"] / milliseconds / 1e6


def rows(samples):
    for method, words in METHODS.items():
        cells = [words]
        for order in ORDERS:
            mine, disk = samples[method, order], samples["direct", order]
            cells += [f"**{rate(mine):.2f}** ({rate(mine, low=True):.2f})",
                      f"{100 * rate(mine) / rate(disk):.0f} %",
                      f"{mine.median('first_tensor_ms'):.1f} ms",
                      f"{mine.median('disk_bytes') / mine.runs[0]['bytes']:.2f}"]
        yield cells


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--file", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write")
    arguments = parser.parse_args()
    if arguments.write and not has_between(arguments.write, BEGIN, END):
        parser.error(f"{arguments.write} lacks the markers {BEGIN} and {END}")
    samples = measure(arguments)
    gigabytes = samples["direct", "file"].runs[0]["bytes"] / 1e9
    head = [""]
    for order in ORDERS:
        head += [f"GB/s, {order} order", "of the disk's", "first tensor", "read / size"]
    lines = [machine_line(f"{gigabytes:.2f} GB of tensors", arguments.rounds)
             + " In brackets the best.", "", *table(head, list(rows(samples)))]
    print("\n".join(lines))
    if arguments.write:
        write_between(arguments.write, BEGIN, END, lines)


if __name__ == "__main__":
    main()
