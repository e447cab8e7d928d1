"""Measures what a warm-up costs: one demanded tensor, checksums, a file that is cached already.

    compare_warm.py --build build/release --file FILE [--rounds 7] [--write FILE]

Every round runs each method once, in a fresh process; cold ones after the file was evicted and none
of its pages was left. Prints a table as Markdown; --write puts it between the markers in FILE
(docs/performance.md). What a consumer sees, and with other libraries, is for `weightmap bench`.
"""
import argparse
import os
import sys

from samples import Samples, has_between, machine, run_json, table, touch_memory, write_between

BEGIN, END = "<!-- measured warming: begin -->", "<!-- measured warming: end -->"
COLD = ("demand", "demand-during", "wait-crc", "wait")  # the last fills the cache for the others
CACHED = ("wait", "copy")
RECYCLED = 2560  # MiB


def measure(arguments):
    program = os.path.join(arguments.build, "bench", "warm_once")
    samples = {}

    def run(method, *options):
        touch_memory(arguments.build, RECYCLED)
        sample = run_json([program, arguments.file, method, *options])
        assert sample["cached_before"] == 0, f"{sample['cached_before']} bytes stayed cached"
        samples.setdefault((method, *options), Samples()).runs.append(sample)

    for round_number in range(arguments.rounds):
        for method in COLD:
            run(method)
        for method in CACHED:
            run(method, "--warm")
        print(f"round {round_number + 1} of {arguments.rounds}", file=sys.stderr)
    return samples


def rows(samples):
    def text(*key):
        return f"{samples[key].median('ms'):.1f} ms ({samples[key].low('ms'):.1f})"

    def median(*key):
        return samples[key].median("ms")

    one = samples["demand",].runs[0]
    crc = median("wait-crc") / median("wait")
    mapped = median("wait", "--warm")
    return [
        [f"one tensor of {one['tensor_bytes'] / 1e6:.1f} MB, cold, by `demand()`",
         text("demand"), ""],
        ["the same, 40 ms into a warm-up of the whole file", text("demand-during"),
         f"{median('demand-during') / median('demand'):.2f} x"],
        ["the whole file, cold, until `Warmer::wait()`", text("wait"),
         f"{one['file_bytes'] / median('wait') / 1e6:.2f} GB/s"],
        ["the same with `verify_crc`", text("wait-crc"), f"{100 * (crc - 1):+.0f} %"],
        ["the whole file, cached, until every page is mapped", text("wait", "--warm"),
         f"{mapped / one['file_bytes'] * 1e9:.2f} ms a GB"],
        ["the same by copying it (two threads, large pages, recycled memory)",
         text("copy", "--warm"), f"{median('copy', '--warm') / mapped:.0f} x as long"],
    ]


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
    gigabytes = samples["wait",].runs[0]["file_bytes"] / 1e9
    lines = [f"{machine()}, a file of {gigabytes:.2f} GB. Medians of {arguments.rounds} interleaved "
             f"rounds, each sample a fresh process, {RECYCLED} MiB of memory touched and freed before "
             "each. In brackets the best.", "", *table(["", "time", ""], rows(samples))]
    print("\n".join(lines))
    if arguments.write:
        write_between(arguments.write, BEGIN, END, lines)


if __name__ == "__main__":
    main()
