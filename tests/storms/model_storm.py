#!/usr/bin/env python3
"""Kills what brings versions of a model, at any moment, and looks whether the link leads to one
version as a whole.

    model_storm.py FOLDER WEIGHTMAP MAKE_CHECKPOINT [--kills N] [--seed N]

The store gets new versions all the time, each at one moment, so that a fetch often meets two. Each
file says of which version it is.
"""

import argparse
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "remote"), str(TESTS / "tools")]

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("tool")
parser.add_argument("maker")
parser.add_argument("--kills", type=int, default=40)
parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
arguments = parser.parse_args()

from range_server import RangeServer  # noqa: E402


def make_model(folder):
    """The files of a model of 3 shards, by their names."""
    subprocess.run([arguments.maker, folder / "m.pt", "--count", "6", "--shape", "64x1024", "--dtype",
                    "float32"], check=True)
    subprocess.run([arguments.tool, "convert", folder / "m.pt", folder, "--to", "safetensors",
                    "--max-shard-size", "600KB"], check=True, capture_output=True)
    (folder / "m.pt").unlink()
    (folder / "config.json").write_text("{}")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write_version(folder, model, number):
    """Each file ends with the number: the last elements of a shard, blanks of JSON."""
    folder.mkdir()
    for name, content in model.items():
        bits = "".join(" \n"[number >> bit & 1] for bit in range(32)).encode()
        end = content + bits if name.endswith(".json") else content[:-4] + number.to_bytes(4, "big")
        (folder / name).write_bytes(end)


def number_of(path):
    content = path.read_bytes()
    if path.suffix != ".json":
        return int.from_bytes(content[-4:], "big")
    return sum((content[bit - 32] == ord("\n")) << bit for bit in range(32))


def lead(link, folder):
    new = link.with_name(".new")
    new.symlink_to(folder)
    os.rename(new, link)


class Store(threading.Thread):
    """Gets a new version, over and over."""

    def __init__(self, folder, model, choose):
        super().__init__(daemon=True)
        self.folder, self.model, self.choose = folder, model, choose
        self.ends = threading.Event()
        self.number = 0
        self.change()

    def change(self):
        self.number += 1
        write_version(self.folder / f"v{self.number}", self.model, self.number)
        lead(self.folder / "store", f"v{self.number}")
        if self.number > 9:
            shutil.rmtree(self.folder / f"v{self.number - 9}")

    def run(self):
        while not self.ends.is_set():
            self.change()
            time.sleep(self.choose.choice((0.001, 0.02, 0.2)))


def whole_version(link, model):
    """The number of what the link leads to, or None without one; fails for anything else."""
    if not os.path.lexists(link):
        return None
    numbers = {path.name: number_of(path) for path in link.resolve(strict=True).iterdir()}
    if numbers.keys() != model.keys() or len(set(numbers.values())) != 1:
        sys.exit(f"{link} is of several versions: {numbers}")
    return next(iter(numbers.values()))


def main():
    choose = random.Random(arguments.seed)
    print(f"seed {arguments.seed}", flush=True)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = pathlib.Path(name)
        (folder / "made").mkdir()
        model = make_model(folder / "made")
        for number in (1, 2):
            write_version(folder / f"mine{number}", model, number)
        links = {word: folder / word / "now" for word in ("fetch", "publish")}
        for link in links.values():
            link.parent.mkdir()
        counts = {"killed": 0, "ended": 0, "refused": 0}
        seen = {word: set() for word in links}
        with RangeServer(folder) as server:
            store = Store(folder, model, choose)
            store.start()
            url = server.url("store/model.safetensors.index.json")
            while counts["killed"] < arguments.kills:
                word = choose.choice(("fetch", "fetch", "publish"))
                words = (["fetch", url, links[word]] if word == "fetch" else
                         ["publish", folder / f"mine{choose.choice((1, 2))}", links[word]])
                counts[end_of([arguments.tool, *map(str, words)],
                              choose.uniform(0, 0.12 if word == "fetch" else 0.02))] += 1
                seen[word].add(whole_version(links[word], model))
            store.ends.set()
            store.join()
            subprocess.run([arguments.tool, "fetch", url, links["fetch"]], check=True,
                           capture_output=True)
            assert whole_version(links["fetch"], model) == store.number
        left = sorted(path.name for path in links["fetch"].parent.iterdir())
        print(counts, {word: len(each) for word, each in seen.items()}, left)
        assert len(left) <= 3, "more than the present version and the one before"


def end_of(command, seconds):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return "killed"
    return "refused" if process.returncode else "ended"


main()
