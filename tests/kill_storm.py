#!/usr/bin/env python3
"""Workers and keepers that are killed at random disturb nobody else and leave nothing.

    kill_storm.py FOLDER WEIGHTMAP MAKE_CHECKPOINT STORM_WORKER [--seconds 15] [--workers 6]
                  [--keepers 2] [--environment NAME=VALUE ...] [--check-memory MIB] [--seed N]

Workers open a file, warm it with one reader for all, and compare the sum of all its tensors; a
keeper holds it. All are killed (SIGKILL) and replaced at random moments, while the file is evicted
and replaced by copies. Whoever is not killed must succeed. Afterwards one clean run must leave
nothing: no file in the runtime directory, no lock, no locked or shared memory. --environment gives
the workers' library options, such as those of OpenOptions. --check-memory compares MemAvailable,
too: for a machine on which nothing else happens.
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
import time

MIB = 1 << 20


def arguments():
    parser = argparse.ArgumentParser()
    for name in ("folder", "tool", "maker", "worker"):
        parser.add_argument(name, type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--keepers", type=int, default=2)
    parser.add_argument("--environment", action="append", default=[])
    parser.add_argument("--check-memory", type=int, metavar="MIB")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    return parser.parse_args()


def memory():
    lines = pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    fields = {name: int(rest.split()[0]) * 1024 for name, rest in
              (line.split(":", 1) for line in lines)}
    return {name: fields[name] for name in ("MemAvailable", "Shmem", "Mlocked")}


def locks_of(processes):
    """Lines of /proc/locks: their fields are "1:", kind, mode, access, process, file, ..."""
    lines = pathlib.Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return [line for line in lines if int(line.replace("-> ", "").split()[4]) in processes]


class Failed(Exception):
    pass


class Storm:
    def __init__(self, options, folder):
        self.options = options
        self.random = random.Random(options.seed)
        self.file = folder / "model.pt"
        self.copy = folder / "copy.pt"
        self.shared = folder / "shared"
        # Not as long as the path of a socket may be.
        self.sockets = pathlib.Path(tempfile.mkdtemp(prefix="weightmap-"))
        self.environment = {**os.environ, "WEIGHTMAP_RUNTIME_DIR": str(self.shared),
                            **dict(item.split("=", 1) for item in options.environment)}
        self.counts = dict.fromkeys(("ended", "workers killed", "keepers killed", "replaced",
                                     "evicted"), 0)
        self.workers, self.keepers = [], []
        self.started = set()  # processes

    def prepare(self):
        subprocess.run([self.options.maker, self.file, "--count", "8", "--shape", "1024x1024",
                        "--dtype", "float32"], check=True)
        self.sum = subprocess.run([self.options.worker, self.file], env=self.environment,
                                  check=True, capture_output=True, text=True).stdout.strip()

    def begin(self, *command):
        process = subprocess.Popen(list(map(str, command)), env=self.environment,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.started.add(process.pid)
        return process

    def begin_worker(self):
        return self.begin(self.options.worker, self.file, self.sum)

    def begin_keeper(self, number):
        return self.begin(self.options.tool, "hold", "--interval", "0.05", "--socket",
                          self.sockets / f"hold-{number}.sock", self.file)

    def end_of(self, process, what, expected):
        errors = process.communicate()[1]
        if process.returncode not in expected:
            raise Failed(f"{what} ended with {process.returncode}: {errors}")
        return process.returncode

    def look_at_workers(self):
        """Replaces those that have ended; they must have succeeded."""
        for i, worker in enumerate(self.workers):
            if worker.poll() is not None:
                self.end_of(worker, "a worker", (0,))
                self.counts["ended"] += 1
                self.workers[i] = self.begin_worker()

    def look_at_keepers(self):
        for keeper in self.keepers:
            if keeper.poll() is not None:
                self.end_of(keeper, "a keeper that nobody killed", ())

    def kill_one(self, processes, begin, what):
        if not processes:
            return
        i = self.random.randrange(len(processes))
        processes[i].send_signal(signal.SIGKILL)
        # It may have ended just before.
        if self.end_of(processes[i], what, (0, -signal.SIGKILL)) != 0:
            self.counts[what + "s killed"] += 1
        processes[i] = begin(i)

    def replace(self):
        shutil.copyfile(self.file, self.copy)
        self.copy.rename(self.file)
        self.counts["replaced"] += 1

    def evict(self):
        with open(self.file, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self.counts["evicted"] += 1

    def rage(self):
        self.workers = [self.begin_worker() for _ in range(self.options.workers)]
        self.keepers = [self.begin_keeper(i) for i in range(self.options.keepers)]
        end = time.monotonic() + self.options.seconds
        while time.monotonic() < end:
            self.look_at_workers()
            self.look_at_keepers()
            chance = self.random.random()
            if chance < 0.5:
                self.kill_one(self.workers, lambda _: self.begin_worker(), "worker")
            elif chance < 0.6:
                self.kill_one(self.keepers, self.begin_keeper, "keeper")
            elif chance < 0.65:
                self.replace()
            elif chance < 0.8:
                self.evict()
            time.sleep(self.random.expovariate(50))

    def kill_all(self):
        for process in (*self.workers, *self.keepers):
            process.kill()
            process.communicate()
        self.workers, self.keepers = [], []

    def run_cleanly(self):
        self.evict()
        self.end_of(self.begin_worker(), "the last worker", (0,))
        for number in range(self.options.keepers):
            keeper = subprocess.Popen(
                [self.options.tool, "hold", "--json", "--socket",
                 self.sockets / f"hold-{number}.sock", self.file], env=self.environment,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            keeper.stdout.readline()
            keeper.terminate()
            self.end_of(keeper, "the last keeper", (0,))

    def check_nothing_is_left(self, before):
        locks = locks_of(self.started)
        left = [*self.shared.iterdir(), *self.sockets.iterdir()]
        if left or locks:
            raise Failed(f"left behind: {left} {locks}")
        now = memory()
        for name, most in (("Shmem", 16 * MIB), ("Mlocked", 16 * MIB)):
            if now[name] - before[name] > most:
                raise Failed(f"{name} was {before[name]}, is {now[name]}")
        lost = before["MemAvailable"] - now["MemAvailable"]
        print(f"MemAvailable is {lost / MIB:.1f} MiB less than before")
        if self.options.check_memory is not None and lost > self.options.check_memory * MIB:
            raise Failed(f"{lost} bytes of memory are missing")


def main():
    options = arguments()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        storm = Storm(options, pathlib.Path(folder))
        try:
            storm.prepare()
            before = memory()
            storm.rage()
            storm.kill_all()
            storm.run_cleanly()
            storm.check_nothing_is_left(before)
        except Failed as failure:
            sys.exit(f"FAILED: {failure}")
        finally:
            storm.kill_all()
            shutil.rmtree(storm.sockets)
            print(", ".join(f"{count} {what}" for what, count in storm.counts.items()))
        # A storm in which nothing happened has tested nothing.
        if not all(storm.counts[what] for what in ("ended", "workers killed", "keepers killed")):
            sys.exit("FAILED: the storm was none")


if __name__ == "__main__":
    main()
