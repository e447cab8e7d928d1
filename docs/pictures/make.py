"""Draws the picture of the tutorial on workers from real runs, into this folder.

    make.py      weightmap, torch and matplotlib must import. 300 MB of disk in TMPDIR
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import matplotlib

matplotlib.use("svg")
import numpy
from matplotlib import pyplot

import weightmap

FOLDER = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
# Grey that is legible on white and on black; no background.
GREY, BLUE, RED, GREEN = "#7f868f", "#3f7fd0", "#d1495b", "#3a9d6e"
pyplot.rcParams.update({
    "axes.edgecolor": GREY, "axes.labelcolor": GREY, "axes.spines.right": False,
    "axes.spines.top": False, "axes.titlecolor": GREY, "figure.figsize": (7, 3),
    "font.family": "sans-serif", "savefig.transparent": True, "svg.fonttype": "none",
    "svg.hashsalt": "weightmap", "text.color": GREY, "xtick.color": GREY, "ytick.color": GREY,
})


def finish(name):
    pyplot.tight_layout()
    pyplot.savefig(FOLDER / name, metadata={"Date": None})
    pyplot.close()


def write_model():
    """256 MiB, named as a model of transformers."""
    def numbers(rows, columns):
        return numpy.random.default_rng(rows).standard_normal((rows, columns), "float32")

    tensors = {"model.embed_tokens.weight": numbers(16384, 1024)}
    for layer in range(8):
        for name in ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"):
            tensors[f"model.layers.{layer}.{name}.weight"] = numbers(1024, 1024)
    tensors["lm_head.weight"] = numbers(16384, 1024)
    weightmap.save(tensors, "model.pt")


WORKER = """
import sys
import torch
import weightmap.torch
print("imported", flush=True)
sys.stdin.readline()
state = {load}
total = sum(tensor.sum().item() for tensor in state.values())
print("loaded", flush=True)
sys.stdin.read()
"""
WAYS = {
    "torch.load": (RED, "-", "torch.load('model.pt')"),
    "torch.load(mmap=True)": (GREEN, "--", "torch.load('model.pt', mmap=True)"),
    "weightmap.torch.load": (BLUE, "-", "weightmap.torch.load('model.pt')"),
}


def pss(process):
    text = pathlib.Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss: +(\d+) kB", text, re.MULTILINE)[1]) << 10


def memory_of_workers(load, count=4):
    """The PSS of all, less that of their imports, after each has loaded the model."""
    workers = [subprocess.Popen([sys.executable, "-c", WORKER.format(load=load)], text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(count)]
    assert all(worker.stdout.readline() == "imported\n" for worker in workers)
    before, sums = sum(map(pss, workers)), []
    for worker in workers:
        worker.stdin.write("\n")
        worker.stdin.flush()
        assert worker.stdout.readline() == "loaded\n"
        sums.append(sum(map(pss, workers)) - before)
    for worker in workers:
        worker.communicate()
    return sums


def workers():
    for name, (colour, line, load) in WAYS.items():
        sums = memory_of_workers(load)
        print(name, *(round(bytes_ / MIB) for bytes_ in sums), "MiB")
        pyplot.plot(range(1, len(sums) + 1), [each / MIB for each in sums], line, color=colour,
                    marker="o", label=name)
    pyplot.xticks(range(1, len(sums) + 1))
    pyplot.xlabel("workers")
    pyplot.ylabel("memory of all (PSS), MiB")
    pyplot.ylim(0)
    pyplot.legend(frameon=False)
    finish("workers.svg")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_model()
        workers()
