"""Compares ways to bring a model to its next version by a delta: weightmap's apply_delta(), which
makes a new version beside the old one, against a change in place, as engines do it, and against the
decompressor alone; and the size of the delta with that of zstd -1 of the difference.

    compare_deltas.py --build build/release [--gigabytes 1] [--folder FOLDER] [--rounds 7]
                      [--write FILE]

The model is made here: four files of tensors of bfloat16, of which 1 % of the elements change to
one of the next numbers. It lies in FOLDER, by itself in shared memory. Every round runs each way
once, in a fresh process (bench/delta_once.cpp). Prints the table as Markdown; --write puts it
between the markers in FILE (docs/deltas.md). numpy and zstandard must be importable.
"""
import argparse
import json
import os
import pathlib
import struct
import tempfile

import numpy
import zstandard
from samples import check_between, interleave, machine, publish, ratio_text, run_json, table

BEGIN, END = "<!-- measured deltas: begin -->", "<!-- measured deltas: end -->"
TENSOR_BYTES = 64 << 20
FILES = [f"model-{number:05}-of-00004.safetensors" for number in range(1, 5)]


def write_model(folder, tensors):
    """safetensors of bfloat16, whose elements are given as numbers of 16 bits."""
    os.makedirs(folder)
    names = {name: FILES[number * len(FILES) // len(tensors)] for number, name in enumerate(tensors)}
    for file in FILES:
        write_file(os.path.join(folder, file),
                   {name: tensors[name] for name in tensors if names[name] == file})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="ascii") as file:
        json.dump({"metadata": {}, "weight_map": names}, file)


def write_file(path, tensors):
    header, end = {}, 0
    for name, elements in tensors.items():
        header[name] = {"dtype": "BF16", "shape": [len(elements)],
                        "data_offsets": [end, end + elements.nbytes]}
        end += elements.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "wb") as file:
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
    old, new = (b"".join(pathlib.Path(folder, each, file).read_bytes() for file in FILES)
                for each in ("old", "new"))
    difference = numpy.frombuffer(old, numpy.uint8) ^ numpy.frombuffer(new, numpy.uint8)
    return len(zstandard.ZstdCompressor(level=1).compress(difference.tobytes()))


def rate(samples, weight_bytes):
    seconds = samples.median("taken_us") / 1e6
    return f"{weight_bytes / seconds / 1e6:,.0f} MB/s, {seconds:.2f} s"


WAYS = {"decompress": "decompressor alone, into the same memory", "fresh": "into new memory",
        "patch": "a change in place"}


def compare(build, folder, rounds, weight_bytes):
    """Rows of the table: of each way the rate, and how many times the time of it ours takes less."""
    command = [os.path.join(build, "bench", "delta_once")]
    paths = [os.path.join(folder, name) for name in ("old", "delta", "target")]
    for threads in (1, 2):
        ours, options = f"apply {threads}", ["--threads", str(threads)]
        contenders = {f"{way} {threads}": [*command, way, *paths, *options]
                      for way in (*WAYS, "apply")}
        contenders["apply 1"] = [*command, "apply", *paths]
        taken = interleave(build, contenders, rounds)
        cells = [f"{rate(other, weight_bytes)}: {ratio_text(other.ratio_to(ours, 'taken_us'))}"
                 for other in (taken[f"{way} {threads}"] for way in WAYS)]
        faster = taken["apply 1"].ratio_to(ours, "taken_us") if threads > 1 else None
        yield [str(threads), rate(taken[ours], weight_bytes), *cells, ratio_text(faster)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write")
    arguments = parser.parse_args()
    check_between(parser, arguments.write, BEGIN, END)
    build = os.path.abspath(arguments.build)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        weight_bytes = make_versions(folder, arguments.gigabytes)
        old, new, delta = (os.path.join(folder, name) for name in ("old", "new", "delta"))
        tool = os.path.join(build, "tools", "weightmap")
        made = run_json([tool, "delta", "--json", old, new, delta])["bytes"]
        of_model, of_zstd = 100 * made / weight_bytes, made / size_of_zstd(folder)
        rows = list(compare(build, folder, arguments.rounds, weight_bytes))
    lines = [f"{machine()}. A model of {weight_bytes / 1e9:.1f} GB, in four files in {arguments.folder}, "
             f"{arguments.rounds} rounds; behind a rate the time of that over `apply_delta()`'s. The "
             f"delta has {of_model:.2f} % of the model's bytes, {of_zstd:.3f} times those of "
             "`zstd -1` of the difference.", "",
             *table(["threads", "`apply_delta()`", *WAYS.values(), "times the rate of one thread"],
                    rows)]
    publish(lines, arguments.write, BEGIN, END)


if __name__ == "__main__":
    main()
