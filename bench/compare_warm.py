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
        measure_others(arguments, samples)
        print(f"round {round_number + 1} of {arguments.rounds}", file=sys.stderr)
    return samples


def measure_others(arguments, samples):
    """One round of what has no consumer; `wait` also fills the cache for those that need it."""
    program = os.path.join(arguments.build, "bench", "warm_once")

    def run(method, *options):
        touch_memory(arguments.build, 2560 if method == "copy" else 512)
        key = (method, *options)
        samples.setdefault(key, Samples()).runs.append(
            run_json([program, arguments.file, method, "file", *options]))

    for method in ("demand", "demand-during", "wait-crc", "wait"):
        run(method)
    for method in ("wait", "wait-crc", "copy"):
        run(method, "--warm")


def others(samples):
    """Lines about one tensor, checksums and a file that is cached."""
    def text(*key, field="all_ms"):
        return f"{samples[key].median(field):.1f} ms ({samples[key].low(field):.1f})"

    gigabytes = samples["wait",].runs[0]["bytes"] / 1e9
    alone = samples["demand",]
    device_ms = alone.runs[0]["bytes"] / rate(samples["direct", "file"]) / 1e6
    during = samples["demand-during",].median("first_tensor_ms") / alone.median("first_tensor_ms")
    crc = samples["wait-crc",].median("all_ms") / samples["wait",].median("all_ms")
    mapped, copied = samples["wait", "--warm"], samples["copy", "--warm"]
    return table(["", "time", ""], [
        [f"one tensor of {alone.runs[0]['bytes'] / 1e6:.1f} MB, cold, by `demand()`",
         text("demand", field="first_tensor_ms"),
         f"{alone.median('first_tensor_ms') / device_ms:.1f} x its bytes at the disk's rate"],
        ["the same, 40 ms into a warm-up of the whole file",
         text("demand-during", field="first_tensor_ms"), f"{during:.1f} x"],
        ["the whole file, cold, until `Warmer::wait()`", text("wait"), ""],
        ["the same with `verify_crc`", text("wait-crc"), f"{100 * (crc - 1):+.0f} %"],
        ["the whole file, cached, until every page is mapped", text("wait", "--warm"),
         f"{mapped.median('all_ms') / gigabytes:.2f} ms a GB"],
        ["the same by copying it (two threads, large pages)", text("copy", "--warm"),
         f"{copied.median('all_ms') / mapped.median('all_ms'):.0f} x as long"],
    ])


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
             + " In brackets the best.", "", *table(head, list(rows(samples))), "",
             *others(samples)]
    print("\n".join(lines))
    if arguments.write:
        write_between(arguments.write, BEGIN, END, lines)


if __name__ == "__main__":
    main()
