"""Counts what workers on one checkpoint take together, and each for itself.

    share_memory.py --build build/release --file FILE [--workers 1,2,4,8] [--json OUT]

Starts k processes that open the file and read all of it, and asks `weightmap ps` and the system what
they hold. PSS is each page divided by the number of processes that have it, so that the sum is what
the machine spends; private memory is what a worker has for itself, without what the same program
takes that opens nothing. Prints a table as Markdown. These are counts: other work on the machine
does not change them.
"""
import argparse
import json
import os
import subprocess

from samples import machine, run_json, table

ASKED = {"pss_to_file": 1.03, "private_bytes": 1 << 20}  # at most, of eight workers


def start(program, *arguments):
    worker = subprocess.Popen([program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True)
    if not worker.stdout.readline().startswith("ready"):
        raise SystemExit(f"share_memory.py: {program} failed")
    return worker


def stop(workers):
    for worker in workers:
        worker.communicate()


def anonymous_bytes(process):
    with open(f"/proc/{process}/smaps_rollup") as rollup:
        for line in rollup:
            if line.startswith("Anonymous:"):
                return int(line.split()[1]) * 1024
    raise SystemExit("share_memory.py: the system does not count anonymous memory")


def empty_process(program):
    worker = start(program)
    taken = anonymous_bytes(worker.pid)
    stop([worker])
    return taken


def measure(arguments, count):
    program = os.path.join(arguments.build, "bench", "worker")
    tool = os.path.join(arguments.build, "tools", "weightmap")
    empty = empty_process(program)
    workers = [start(program, arguments.file) for _ in range(count)]
    numbers = {worker.pid for worker in workers}
    report = run_json([tool, "ps", "--json", arguments.file])
    private = [anonymous_bytes(number) - empty for number in sorted(numbers)]
    stop(workers)
    lines = [line for line in report["processes"] if line["pid"] in numbers]
    if len(lines) != count or len(report["processes"]) != count:
        raise SystemExit("share_memory.py: other processes have the file mapped, too")
    size = os.stat(arguments.file).st_size
    return {
        "workers": count,
        "file_bytes": size,
        "pss_bytes": sum(line["pss_bytes"] for line in lines),
        "pss_to_file": sum(line["pss_bytes"] for line in lines) / size,
        "resident_bytes": sum(line["resident_bytes"] for line in lines),
        "huge_mapped_bytes": sum(line["huge_mapped_bytes"] for line in lines),
        "private_bytes": max(private),
    }


def rows(results):
    return [[str(one["workers"]), f"{one['pss_bytes'] / 2**20:,.1f} MiB",
             f"**{one['pss_to_file']:.3f}**", f"{one['workers']} x",
             f"{one['private_bytes'] / 2**10:,.0f} KiB",
             f"{100 * one['huge_mapped_bytes'] / one['resident_bytes']:.0f} %"] for one in results]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--file", required=True)
    parser.add_argument("--workers", default="1,2,4,8")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    results = [measure(arguments, int(count)) for count in arguments.workers.split(",")]
    size = results[0]["file_bytes"] / 2**20
    print(f"{machine()}, a file of {size:,.0f} MiB, all of which every worker has read.\n")
    print("\n".join(table(["workers", "sum of PSS", "PSS / file", "copies would take",
                           "private, each, above an empty process", "mapped 2 MiB at a time"],
                          rows(results))))
    if arguments.json:
        with open(arguments.json, "w") as out:
            json.dump({"asked": ASKED, "results": results}, out)
    too_much = [one["workers"] for one in results if any(one[name] > most
                                                         for name, most in ASKED.items())]
    if too_much:
        raise SystemExit(f"share_memory.py: more than asked with {too_much} workers")


if __name__ == "__main__":
    main()
