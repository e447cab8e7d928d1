"""Processes that follow a model through its deltas: how long until all answer by the next version,
how often it is made, and what memory they have.

    measure_following.py --build build/release [--gigabytes 2] [--followers 4] [--versions 7]
                         [--folder FOLDER]

A model of bfloat16 is made in FOLDER, by itself in shared memory, and a delta there and back for
each version, of 1 % of the elements. The followers are processes that map each version as
weightmap.follow() gives it, answer with one of its bytes, and then read all of it. Before each
version is published, `weightmap apply` makes the same one alone, for comparison. Prints a JSON
object: the median of the seconds of that; of the seconds from publishing to the last answer, and
their ratio, round by round; what all followers have written, over the bytes of one version, as a
mean; and the largest sum of their PSS of all versions at a time, over the same. The package weightmap
must be importable (PYTHONPATH), and numpy.
"""
import argparse
import glob
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from compare_deltas import make_versions
from process_memory import pss_of

FOLLOWER = """
import sys, time
import weightmap
follow = weightmap.follow(sys.argv[1], sys.argv[2], place=sys.argv[3], interval=0.01)
print(follow.last.version, time.monotonic(), flush=True)
for version in follow:
    checkpoint = weightmap.open(version.folder)  # the one before goes here
    first = checkpoint["tensor.0"].bits().buffer()[0]
    print(version.version, time.monotonic(), flush=True)
    for tensor in checkpoint.values():
        tensor.bits().buffer()[::2048].tobytes()
    print("read", flush=True)
"""


def written_by(pid):
    with open(f"/proc/{pid}/io", encoding="ascii") as file:
        return int(dict(line.split(": ") for line in file)["wchar"])


class Memory(threading.Thread):
    """The largest sum of the PSS of all versions, in some processes."""

    def __init__(self, pids, place):
        super().__init__(daemon=True)
        self._pids, self._place = pids, place
        self.largest, self.ends = 0, threading.Event()

    def run(self):
        while not self.ends.wait(0.02):
            files = glob.glob(os.path.join(self._place, "*", "*", "model.safetensors"))
            self.largest = max(self.largest, sum(pss_of(pid, file) for pid in self._pids
                                                 for file in files))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--followers", type=int, default=4)
    parser.add_argument("--versions", type=int, default=7)
    parser.add_argument("--folder", default="/dev/shm")
    arguments = parser.parse_args()
    tool = os.path.join(os.path.abspath(arguments.build), "tools", "weightmap")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        size = make_versions(folder, arguments.gigabytes)
        old, new, deltas, place, alone = (os.path.join(folder, name)
                                          for name in ("old", "new", "deltas", "place", "alone"))
        os.mkdir(deltas)
        for number in range(1, arguments.versions + 1):
            pair = (old, new) if number % 2 else (new, old)
            subprocess.run([tool, "delta", *pair, f"{folder}/{number}", "--version", f"{number:06}",
                            "--base-version", f"{number - 1:06}"], check=True,
                           stdout=subprocess.DEVNULL)
        shutil.rmtree(new)
        followers = [subprocess.Popen([sys.executable, "-c", FOLLOWER, old, deltas, place],
                                      stdout=subprocess.PIPE, text=True)
                     for _ in range(arguments.followers)]
        for follower in followers:
            assert follower.stdout.readline().startswith("000000")
        memory = Memory([follower.pid for follower in followers], place)
        memory.start()
        before = sum(written_by(follower.pid) for follower in followers)
        apply_alone, answered, base = [], [], old
        for number in range(1, arguments.versions + 1):
            began = time.monotonic()
            subprocess.run([tool, "apply", base, f"{folder}/{number}", "--to", alone,
                            "--base-version", f"{number - 1:06}"], check=True,
                           stdout=subprocess.DEVNULL)
            apply_alone.append(time.monotonic() - began)
            shutil.rmtree(alone)
            began = time.monotonic()
            os.rename(f"{folder}/{number}", f"{deltas}/weight_v{number:06}")
            answers = [follower.stdout.readline().split() for follower in followers]
            assert all(version == f"{number:06}" for version, _ in answers), answers
            answered.append(max(float(at) for _, at in answers) - began)
            assert all(follower.stdout.readline() == "read\n" for follower in followers)
            [base] = glob.glob(os.path.join(place, "*", f"old@{number:06}"))
        written = sum(written_by(follower.pid) for follower in followers) - before
        memory.ends.set()
        memory.join()
        for follower in followers:
            follower.kill()
            follower.communicate()
    print(json.dumps({
        "bytes": size, "followers": arguments.followers,
        "apply_s": statistics.median(apply_alone), "answered_s": statistics.median(answered),
        "ratios": [round(a / b, 3) for a, b in zip(answered, apply_alone)],
        "ratio": statistics.median(a / b for a, b in zip(answered, apply_alone)),
        "written": written / size / arguments.versions, "pss": memory.largest / size}))


if __name__ == "__main__":
    main()
