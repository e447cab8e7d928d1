"""Compares weightmap.torch.load with torch.load(mmap=True) under several versions of torch.

    compare_torches.py --build build/release --files DIR [--rounds 7] [--write FILE] PYTHON...

Each PYTHON is an interpreter with numpy and another torch, in the order of the table; weightmap is
on PYTHONPATH. DIR holds tensors_10.pt and tensors_10000.pt of make_tensors.py. Rounds, contenders
and --write are those of compare_python.py.
"""
import argparse
import os

from samples import (HERE, duration, has_between, interleave, machine_line, ratio_text, run_json,
                     table, write_between)

MARKERS = "<!-- measured torches: begin -->", "<!-- measured torches: end -->"
WAY = ("import json, torch; from weightmap._torch import way; "
       "print(json.dumps([torch.__version__, way.taken()]))")


def contender(python, name, files):
    return [python, os.path.join(HERE, "python_once.py"), "state", name, "pt",
            os.path.join(files, "tensors_10000.pt"), "--warm-up", os.path.join(files, "tensors_10.pt")]


def row(python, arguments):
    version, way = run_json([python, "-c", WAY])
    samples = interleave(arguments.build, {name: contender(python, name, arguments.files)
                                           for name in ("weightmap", "theirs")}, arguments.rounds)
    return [version.partition("+")[0], f"`torch.{way}`",
            *(duration(samples[name].median()) for name in ("weightmap", "theirs")),
            ratio_text(samples["theirs"].ratio_to("weightmap"), 1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--files", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write")
    parser.add_argument("python", nargs="+")
    arguments = parser.parse_args()
    if arguments.write and not has_between(arguments.write, *MARKERS):
        parser.error(f"{arguments.write} lacks the markers {' and '.join(MARKERS)}")
    head = ["torch", "tensors by", "`weightmap.torch.load`", "`torch.load(mmap=True)`", "ratio"]
    lines = [machine_line("10,000 tensors", arguments.rounds), "",
             *table(head, [row(python, arguments) for python in arguments.python])]
    print("\n".join(lines), flush=True)
    if arguments.write:
        write_between(arguments.write, *MARKERS, lines)


if __name__ == "__main__":
    main()
