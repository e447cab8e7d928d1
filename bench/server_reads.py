"""Measures how fast a model comes into memory from a file system that answers each read late.

    server_reads.py --build build/release --folder DIR [--rounds 7] [--delay MS ...]

A server of FUSE in DIR takes so many milliseconds (5 and 20 unless told) for each request of 128 KiB
of a checkpoint of 128 MiB, as a network does; it answers as many at once as FUSE lets it
(max_background: 12 of those that are read ahead). Contenders, each on an evicted file: `weightmap
warm`, the reader of `weightmap run`, eight threads with 16 MiB at a time, as loaders of engines
prefetch, and one stream. Needs root, fusermount and the package fusepy beside those of the other
benches. Prints a table as Markdown: medians, and how many times as long the others take as `warm`.
"""
import argparse
import concurrent.futures
import errno
import json
import os
import re
import subprocess
import sys
import time

from samples import HERE, duration, interleave, machine, ratio_text, table

MIB = 1 << 20
FILE_BYTES = 128 * MIB
REQUEST = 128 << 10
NAMES = {"warm": "`weightmap warm`", "run": "`weightmap run`", "threads": "8 threads, 16 MiB each",
         "stream": "one stream"}


# ---- the server

def serve(lower, upper, seconds):
    """Does not return before `upper` is unmounted."""
    import fuse

    class Slow(fuse.Operations):
        def getattr(self, path, fh=None):
            try:
                found = os.lstat(lower + path)
            except OSError as error:
                raise fuse.FuseOSError(error.errno or errno.EIO)
            return {name: getattr(found, name) for name in dir(found)
                    if name.startswith("st_") and not name.endswith("_ns")}

        def readdir(self, path, fh):
            return [".", "..", *os.listdir(lower + path)]

        def open(self, path, flags):
            return os.open(lower + path, os.O_RDONLY)

        def read(self, path, size, offset, fh):
            time.sleep(seconds)
            return os.pread(fh, size, offset)

        def release(self, path, fh):
            os.close(fh)

    fuse.FUSE(Slow(), upper, foreground=True, kernel_cache=True, ro=True, max_read=REQUEST,
              max_readahead=REQUEST)


class Server:
    def __init__(self, lower, upper, milliseconds):
        os.makedirs(upper, exist_ok=True)
        was = os.stat(upper).st_dev
        self._upper = upper
        self._process = subprocess.Popen(
            [sys.executable, __file__, "serve", lower, upper, str(milliseconds / 1000)])
        while os.stat(upper).st_dev == was:
            if self._process.poll() is not None:
                raise SystemExit("the server has ended")
            time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self._upper], check=True)
        self._process.wait()


# ---- the contenders, each in a process of its own

def bring(tool, way, file):
    """Returns the seconds that it takes until the file is in memory."""
    began = time.monotonic()
    if way == "warm":
        subprocess.run([tool, "warm", file], check=True, stdout=subprocess.DEVNULL)
    elif way == "run":
        return run(tool, file)
    elif way == "threads":
        read_in_threads(file, 8, 16 * MIB)
    else:
        read_in_threads(file, 1, MIB)
    return time.monotonic() - began


def run(tool, file):
    """Beside a command that lasts longer, as imports do; by what it says of itself."""
    done = subprocess.run([tool, "run", "-v", "--plan", os.devnull, "--model", file, "--", "sleep", "8"],
                          check=True, stderr=subprocess.PIPE, text=True)
    found = re.search(r"of weights until ([0-9.]+) s", done.stderr)
    return float(found[1])


def read_in_threads(file, threads, at_once):
    descriptor = os.open(file, os.O_RDONLY)
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda at: len(os.pread(descriptor, at_once, at)),
                      range(0, FILE_BYTES, at_once)))


def once(tool, way, file):
    subprocess.run([tool, "residency", "--evict", file], check=True, stdout=subprocess.DEVNULL)
    print(json.dumps({"open_us": 1e6 * bring(tool, way, file)}))


# ---- the table

def measure(arguments):
    lower = os.path.join(arguments.folder, "lower")
    file = os.path.join(lower, "model.pt")
    if not os.path.exists(file):
        os.makedirs(lower, exist_ok=True)
        subprocess.run([os.path.join(arguments.build, "bench", "make_checkpoint"), file, "--count",
                        "16", "--shape", "2048x2048"], check=True)
    rows = []
    for delay in arguments.delay:
        upper = os.path.join(arguments.folder, "upper")
        with Server(lower, upper, delay):
            tool = os.path.join(arguments.build, "tools", "weightmap")
            taken = interleave(arguments.build, {
                way: [sys.executable, os.path.join(HERE, "server_reads.py"), "once", tool, way,
                      os.path.join(upper, "model.pt")] for way in NAMES}, arguments.rounds)
        rows.append([f"{delay} ms", *(cell(way, taken[way]) for way in NAMES)])
    print(f"{machine()}. {arguments.rounds} rounds.\n")
    print("\n".join(table(["a request takes", *NAMES.values()], rows)))


def cell(way, samples):
    median = duration(samples.median())
    return median if way == "warm" else f"{median}: {ratio_text(samples.ratio_to('warm'))}"


def main():
    if sys.argv[1:2] == ["serve"]:
        return serve(sys.argv[2], sys.argv[3], float(sys.argv[4]))
    if sys.argv[1:2] == ["once"]:
        return once(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--delay", type=int, nargs="+", default=[5, 20])
    return measure(parser.parse_args())


if __name__ == "__main__":
    main()
