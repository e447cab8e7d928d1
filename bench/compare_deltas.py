"""Compares ways to bring a model to its next version by a delta: weightmap's apply_delta(), which
makes a new version beside the old one, against a change in place, as engines do it, and against the
decompressor alone; and the size of the delta with that of zstd -1 of the difference.

    compare_deltas.py --build build/release [--gigabytes 1] [--folder FOLDER] [--rounds 7]
                      [--write FILE]

The model is made here: tensors of bfloat16, of which 1 % of the elements change to one of
the next numbers. It lies in FOLDER,
by itself in shared memory. Every round runs each way once, in a fresh process
(bench/delta_once.cpp). Prints the table as Markdown; --write puts it between the markers in FILE
(docs/deltas.md). numpy must be importable.
"""
import argparse
import json
import os
import shutil
import struct
import subprocess
import tempfile

import numpy
from samples import duration, interleave, machine, publish, ratio_text, table

BEGIN, END = "<!-- measured deltas: begin -->", "<!-- measured deltas: end -->"
TENSOR_BYTES = 64 << 20


def write_model(folder, tensors):
    """safetensors of bfloat16, whose elements are given as numbers of 16 bits."""
    os.makedirs(folder)
    header, end = {}, 0
    for name, elements in tensors.items():
        header[name] = {"dtype": "BF16", "shape": [len(elements)],
                        "data_offsets": [end, end + elements.nbytes]}
        end += elements.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for elements in tensors.values():
            file.write(elements.tobytes())


def make_versions(folder, gigabytes):
    chance = numpy.random.default_rng(46)
    old, new = {}, {}
    for number in range(round(gigabytes * 1e9 / TENSOR_BYTES)):
        weights = chance.standard_normal(TENSOR_BYTES // 2, dtype=numpy.float32) * 0.02
        elements = (weights.view(numpy.uint32) >> 16).astype(numpy.uint16)
        changed = elements.copy()
        places = chance.integers(0, len(elements), len(elements) // 100)
        changed[places] += chance.choice(numpy.array([1, 0xffff], numpy.uint16), len(places))
        old[f"tensor.{number}"], new[f"tensor.{number}"] = elements, changed
    write_model(os.path.join(folder, "old"), old)
    write_model(os.path.join(folder, "new"), new)
    return sum(elements.nbytes for elements in old.values())


def size_of_zstd(folder):
    """Of the whole difference, in one frame."""
    old, new = (open(os.path.join(folder, each, "model.safetensors"), "rb").read()
                for each in ("old", "new"))
    difference = numpy.frombuffer(old, numpy.uint8) ^ numpy.frombuffer(new, numpy.uint8)
    packed = subprocess.run(["zstd", "-1", "-c"], input=difference.tobytes(), check=True,
                            stdout=subprocess.PIPE)
    return len(packed.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write")
    arguments = parser.parse_args()
    tool = os.path.join(arguments.build, "tools", "weightmap")
    program = os.path.join(arguments.build, "bench", "delta_once")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        weight_bytes = make_versions(folder, arguments.gigabytes)
        old, new, delta, target = (os.path.join(folder, name)
                                   for name in ("old", "new", "delta", "target"))
        written = json.loads(subprocess.run([tool, "delta", "--json", old, new, delta], check=True,
                                            stdout=subprocess.PIPE).stdout)
        size_ratio = written["bytes"] / size_of_zstd(folder) if shutil.which("zstd") else None
        rows = []
        for threads in (1, 2):
            ways = {f"{way} {threads}": [program, way, old, delta, target, "--threads", str(threads)]
                    for way in ("decompress", "patch", "apply")}
            if threads == 2:
                ways["apply 1"] = [program, "apply", old, delta, target]
            taken = interleave(arguments.build, ways, arguments.rounds)
            ours = taken[f"apply {threads}"]
            rows.append([str(threads), rate(taken[f"decompress {threads}"], weight_bytes),
                         rate(ours, weight_bytes),
                         ratio_text(taken[f"decompress {threads}"].ratio_to(f"apply {threads}", "taken_us")),
                         duration(taken[f"patch {threads}"].median("taken_us")),
                         ratio_text(taken[f"patch {threads}"].ratio_to(f"apply {threads}", "taken_us")),
                         ratio_text(taken["apply 1"].ratio_to("apply 2", "taken_us")) if threads == 2 else ""])
        head = ["threads", "decompressor alone", "`apply_delta()`", "of the decompressor's rate",
                "in place", "time in place / `apply_delta()`", "of one thread's rate"]
        size = (f"The delta has {written['bytes']:,} bytes, {100 * written['bytes'] / weight_bytes:.2f} % of "
                f"the model's" + (f", {size_ratio:.3f} times those of `zstd -1` of the difference." if size_ratio else "."))
        lines = [*table(head, rows), "", size, "", machine()]
        publish(lines, arguments.write, BEGIN, END) if arguments.write else print("\n".join(lines))


def rate(samples, weight_bytes):
    seconds = samples.median("taken_us") / 1e6
    return f"{weight_bytes / seconds / 1e6:,.0f} MB/s, {seconds:.2f} s"


if __name__ == "__main__":
    main()
