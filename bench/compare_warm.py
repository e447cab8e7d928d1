"""Measures what a warm-up costs: one demanded tensor, checksums, a file that is cached already.

    compare_warm.py --build build/release --file FILE [--rounds 7] [--write FILE]

Every round runs each method once, in a fresh process; cold ones after the file was evicted and none
of its pages was left. Prints a table as Markdown; --write puts it between the markers in FILE
(docs/performance.md). What a consumer sees, and with other libraries, is for `weightmap bench`.
"""
import argparse
import os

from samples import has_between, interleave, machine, ratio_text, table, write_between

BEGIN, END = "<!-- measured warming: begin -->", "<!-- measured warming: end -->"
# In the order of each round: the last cold one fills the cache for the others.
METHODS = {"demand": "demand", "demand during": "demand-during", "wait crc": "wait-crc",
           "wait": "wait", "cached wait": "wait --warm", "cached copy": "copy --warm"}
RECYCLED = 2560  # MiB


def measure(arguments):
    program = os.path.join(arguments.build, "bench", "warm_once")
    contenders = {name: [program, arguments.file, *words.split()]
                  for name, words in METHODS.items()}
    samples = interleave(arguments.build, contenders, arguments.rounds, "--in-order", "--recycle",
                         str(RECYCLED))
    for name, taken in samples.items():
        stayed = max(run["cached_before"] for run in taken.runs)
        assert stayed == 0, f"{name}: {stayed} bytes stayed cached"
    return samples


def rows(samples):
    def text(name):
        return f"{samples[name].median('ms'):.1f} ms ({samples[name].low('ms'):.1f})"

    def ratio(name, reference):
        return ratio_text(samples[name].ratio_to(reference, "ms"))

    one = samples["demand"].runs[0]
    return [
        [f"one tensor of {one['tensor_bytes'] / 1e6:.1f} MB, cold, by `demand()`",
         text("demand"), ""],
        ["the same, 40 ms into a warm-up of the whole file", text("demand during"),
         f"{ratio('demand during', 'demand')} x"],
        ["the whole file, cold, until `Warmer::wait()`", text("wait"),
         f"{one['file_bytes'] / samples['wait'].median('ms') / 1e6:.2f} GB/s"],
        ["the same with `verify_crc`", text("wait crc"), f"{ratio('wait crc', 'wait')} x"],
        ["the whole file, cached, until every page is mapped", text("cached wait"),
         f"{samples['cached wait'].median('ms') / one['file_bytes'] * 1e9:.2f} ms a GB"],
        ["the same by copying it (two threads, large pages, recycled memory)",
         text("cached copy"), f"{ratio('cached copy', 'cached wait')} x"],
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
    gigabytes = samples["wait"].runs[0]["file_bytes"] / 1e9
    lines = [f"{machine()}, a file of {gigabytes:.2f} GB. Medians of {arguments.rounds} interleaved "
             f"rounds, each sample a fresh process, {RECYCLED} MiB of memory touched and freed before "
             "each. In brackets the best, after ratios their interval of confidence.", "",
             *table(["", "time", ""], rows(samples))]
    print("\n".join(lines))
    if arguments.write:
        write_between(arguments.write, BEGIN, END, lines)


if __name__ == "__main__":
    main()
