#!/usr/bin/env python3
"""Workers and keepers that are killed at random disturb nobody else and leave nothing.

    kill_storm.py FOLDER WEIGHTMAP MAKE_CHECKPOINT STORM_WORKER [--seconds 6] [--workers 6]
                  [--keepers 2] [--environment NAME=VALUE ...] [--check-memory MIB] [--seed N]

Workers open one of two files, warm it with one reader for all, and compare the sum of all its
tensors; keepers hold the first file. Half of the workers, and the keepers, are killed (SIGKILL) at
random moments and replaced, while both files are evicted and replaced by copies that are not
cached. Whoever is not killed must succeed. Afterwards one clean run must leave
nothing: no file in the runtime directory and no lock. --environment gives the workers' library
options, such as those of OpenOptions. --check-memory compares what the machine has available,
shared and locked before and after: for one on which nothing else happens.
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
    parser.add_argument("--seconds", type=float, default=6)
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
    found = []
    for line in pathlib.Path("/proc/locks").read_text(encoding="ascii").splitlines():
        process = int(line.replace("-> ", "").split()[4])
        # All of ours have ended, so a process that lives has got one of their numbers.
        if process in processes and not pathlib.Path(f"/proc/{process}").exists():
            found.append(line)
    return found


class Failed(Exception):
    pass


class Worker:
    """One that lives until it has done its work, or is killed at a moment that is set here."""

    def __init__(self, process, is_doomed):
        self.process, self.is_doomed, self.began = process, is_doomed, time.monotonic()


class Storm:
    def __init__(self, options, folder):
        self.options = options
        self.random = random.Random(options.seed)
        self.held, self.cold = folder / "held.pt", folder / "cold.pt"
        self.copy = folder / "copy.pt"
        self.shared = folder / "shared"
        # Not as long as the path of a socket may be.
        self.sockets = pathlib.Path(tempfile.mkdtemp(prefix="weightmap-"))
        self.environment = {**os.environ, "WEIGHTMAP_RUNTIME_DIR": str(self.shared),
                            **dict(item.split("=", 1) for item in options.environment)}
        self.counts = dict.fromkeys(("workers ended", "workers killed", "keepers killed",
                                     "replaced", "evicted"), 0)
        self.workers, self.keepers = [], []
        self.started = set()  # processes
        self.life = 0.02  # of a worker that is not killed, in seconds

    def prepare(self):
        subprocess.run([self.options.maker, self.held, "--count", "8", "--shape", "1024x1024",
                        "--dtype", "float32"], check=True)
        shutil.copyfile(self.held, self.cold)
        self.sum = subprocess.run([self.options.worker, self.held], env=self.environment,
                                  check=True, capture_output=True, text=True).stdout.strip()

    def begin(self, *command):
        process = subprocess.Popen(list(map(str, command)), env=self.environment,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.started.add(process.pid)
        return process

    def begin_worker(self):
        command = [self.options.worker, self.random.choice((self.held, self.cold)), self.sum]
        is_doomed = self.random.random() < 0.5
        if is_doomed:
            command.append(int(self.random.uniform(0, 1.5 * self.life) * 1e6))
        return Worker(self.begin(*command), is_doomed)

    def begin_keeper(self, number):
        return self.begin(self.options.tool, "hold", "--interval", "0.05", "--socket",
                          self.sockets / f"hold-{number}.sock", self.held)

    def end_of(self, process, what, expected):
        errors = process.communicate()[1]
        if process.returncode not in expected:
            raise Failed(f"{what} ended with {process.returncode}: {errors}")
        return process.returncode

    def look_at_workers(self):
        """Replaces those that have ended; they must have succeeded, or been killed."""
        for i, worker in enumerate(self.workers):
            if worker.process.poll() is None:
                continue
            expected = (0, -signal.SIGKILL) if worker.is_doomed else (0,)
            if self.end_of(worker.process, "a worker", expected) == 0:
                self.counts["workers ended"] += 1
                self.life += 0.05 * (time.monotonic() - worker.began - self.life)
            else:
                self.counts["workers killed"] += 1
            self.workers[i] = self.begin_worker()

    def look_at_keepers(self):
        for keeper in self.keepers:
            if keeper.poll() is not None:
                self.end_of(keeper, "a keeper that nobody killed", ())

    def kill_a_keeper(self):
        if not self.keepers:
            return
        i = self.random.randrange(len(self.keepers))
        self.keepers[i].kill()
        self.end_of(self.keepers[i], "a keeper", (-signal.SIGKILL,))
        self.counts["keepers killed"] += 1
        self.keepers[i] = self.begin_keeper(i)

    def replace(self, path):
        shutil.copyfile(path, self.copy)
        self.evict(self.copy)
        self.copy.rename(path)
        self.counts["replaced"] += 1

    def evict(self, path):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self.counts["evicted"] += 1

    def rage(self):
        self.workers = [self.begin_worker() for _ in range(self.options.workers)]
        self.keepers = [self.begin_keeper(i) for i in range(self.options.keepers)]
        end = time.monotonic() + self.options.seconds
        # However slow the machine is, each thing happens once.
        while time.monotonic() < end or not all(self.counts.values()):
            self.look_at_workers()
            self.look_at_keepers()
            # A round takes longer with more workers.
            for _ in range(1 + self.options.workers // 16):
                self.do_something()
            time.sleep(self.random.expovariate(100))

    def do_something(self):
        chance = self.random.random()
        path = self.random.choice((self.held, self.cold))
        if chance < 0.1:
            self.kill_a_keeper()
        elif chance < 0.2:
            self.replace(path)
        elif chance < 0.4:
            self.evict(path)

    def kill_all(self):
        for process in (*(worker.process for worker in self.workers), *self.keepers):
            process.kill()
            process.communicate()
        self.workers, self.keepers = [], []

    def run_cleanly(self):
        self.evict(self.cold)
        self.end_of(self.begin(self.options.worker, self.cold, self.sum), "the last worker", (0,))
        for number in range(self.options.keepers):
            keeper = subprocess.Popen(
                [self.options.tool, "hold", "--json", "--socket",
                 self.sockets / f"hold-{number}.sock", self.held], env=self.environment,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            keeper.stdout.readline()
            keeper.terminate()
            self.end_of(keeper, "the last keeper", (0,))

    def check_nothing_is_left(self, before):
        left = [*self.shared.iterdir(), *self.sockets.iterdir(), *locks_of(self.started)]
        if left:
            raise Failed(f"left behind: {left}")
        now = memory()
        used = {"MemAvailable": before["MemAvailable"] - now["MemAvailable"],
                **{name: now[name] - before[name] for name in ("Shmem", "Mlocked")}}
        print("more used than before:",
              ", ".join(f"{used / MIB:.1f} MiB of {name}" for name, used in used.items()))
        most = self.options.check_memory
        if most is not None and max(used.values()) > most * MIB:
            raise Failed(f"more than {most} MiB are missing")


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
            print(f"left by the killed: {sorted(path.name for path in storm.shared.iterdir())}")
            storm.run_cleanly()
            storm.check_nothing_is_left(before)
        except Failed as failure:
            sys.exit(f"FAILED: {failure}")
        finally:
            storm.kill_all()
            shutil.rmtree(storm.sockets)
            print(", ".join(f"{count} {what}" for what, count in storm.counts.items()))


if __name__ == "__main__":
    main()
