"""Measures whole starts with and without `weightmap run`, for bench/serving_start.py --only run.

Three contenders start in turns, in fresh processes: stock, stock under `weightmap run`, and
weightmap under it, with what an earlier start has taught. Where criu and root are there, a fourth is
restored from the snapshot of such a start, taken behind its first token, and where this Python runs
weightmap_patch.pth, a fifth is forked from the template that such a start left there. Before each
start its state is made:
everything cached; the model evicted; the whole page cache dropped, which needs root. The same again
in a cgroup that lets them read 200 MB/s from the disk, where cgroups can do that; and, of what is
asked for, with one processor, and beside two processes that compute all the time.
"""
import contextlib
import os
import shlex
import shutil
import site
import subprocess
import sys
import time

from samples import HERE, duration, figure, interleave, ratio_text, table

CONTENDERS = {"stock": "theirs", "stock under run": "theirs", "weightmap under run": "weightmap"}
SNAPSHOT = "weightmap from a snapshot"
TEMPLATE = "weightmap from a template"
STATES = ("cached", "model cold", "everything cold")
KINDS = {"torch": "bin", "transformers": "safetensors", "vllm": "safetensors"}
FILES = {"safetensors": "model.safetensors", "bin": "pytorch_model.bin"}
FIGURE = ("<!-- measured starts: begin -->", "<!-- measured starts: end -->")
SLOW_RATE = 200_000_000  # bytes a second
BLKIO, UNIFIED = "/sys/fs/cgroup/blkio", "/sys/fs/cgroup"


LOADS = {"quiet": "", "one processor": "taskset -c 0 ", "two busy beside": ""}


@contextlib.contextmanager
def busy_processes(count):
    """That many compute all the time meanwhile."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


class SlowDisk:
    """A cgroup with a limit on the reads from the disk of a folder."""

    def __init__(self, folder):
        device = os.stat(folder).st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        is_old = os.path.isdir(BLKIO)
        self._group = os.path.join(BLKIO if is_old else UNIFIED, "weightmap-bench")
        os.makedirs(self._group, exist_ok=True)
        limit, text = (("blkio.throttle.read_bps_device", f"{number} {SLOW_RATE}") if is_old else
                       ("io.max", f"{number} rbps={SLOW_RATE}"))
        with open(os.path.join(self._group, limit), "w", encoding="ascii") as file:
            file.write(text)
        self.enter = f"echo $$ > {self._group}/cgroup.procs && "

    def remove(self):
        os.rmdir(self._group)


class Starts:
    def __init__(self, build, folder, python, engine, rounds):
        self._build, self._python, self._engine, self._rounds = build, python, engine, rounds
        self._folder = os.path.join(folder, f"large.{KINDS[engine]}")
        self._model = os.path.join(self._folder, FILES[KINDS[engine]])
        self._tool = os.path.join(build, "tools", "weightmap")
        self._plans = os.path.join(folder, "plans")
        self._snapshots = os.path.join(folder, "snapshots", engine)
        self.contenders = dict(CONTENDERS)
        if engine != "vllm" and can_restore():
            self.contenders[SNAPSHOT] = "weightmap"
        if engine != "vllm" and can_be_forked():
            self.contenders[TEMPLATE] = "weightmap"

    def learn(self):
        """Takes one start of each contender that is run, without its model in memory."""
        shutil.rmtree(self._snapshots, ignore_errors=True)
        os.makedirs(os.path.dirname(self._snapshots), exist_ok=True)
        for name in self.contenders:
            if name == "stock":
                continue
            plan = self._plan(name)
            if os.path.exists(plan):
                os.remove(plan)
            line = f"{self._prepare('model cold')} && {self._start(name)}"
            subprocess.run(["/bin/sh", "-c", line], check=True, stdout=subprocess.DEVNULL)
            while not os.path.exists(plan):  # it is written after the start has ended
                time.sleep(0.1)

    def compare(self, state, disk=None, load="quiet"):
        enter = disk.enter if disk else ""
        with busy_processes(2 if load == "two busy beside" else 0):
            return interleave(self._build, {
                name: f"{self._prepare(state)} && {enter}{self._start(name, LOADS[load])}"
                for name in self.contenders}, self._rounds)

    def _prepare(self, state):
        model = shlex.quote(self._model)
        if state == "cached":
            return f"cat {model} >/dev/null"
        if state == "model cold":
            return f"sync && {self._tool} residency --evict {model} >/dev/null"
        return "sync && echo 3 >/proc/sys/vm/drop_caches"

    def _start(self, name, prefix=""):
        run = [] if name == "stock" else [self._tool, "run", "--plan", self._plan(name), "--"]
        if name == SNAPSHOT:
            run[2:2] = ["--snapshot", self._snapshots]
        if name == TEMPLATE:
            run[2:2] = ["--template"]
        path = [] if self.contenders[name] == "weightmap" else ["env", "-u", "PYTHONPATH"]
        words = [*path, *run, self._python, os.path.join(HERE, "serving_start_once.py"),
                 self._engine, self.contenders[name], self._folder]
        if name in (SNAPSHOT, TEMPLATE):
            words.append("--snapshot" if name == SNAPSHOT else "--template")
        return f"STARTED_NS=$(date +%s%N) {prefix}{shlex.join(words)}"

    def _plan(self, name):
        os.makedirs(self._plans, exist_ok=True)
        return os.path.join(self._plans, f"{self._engine}-{name.replace(' ', '-')}.json")


def can_restore():
    missing = [what for what, there in (("root", os.geteuid() == 0), ("criu", shutil.which("criu")))
               if not there]
    if missing:
        print(f"SKIPPED: starts from a snapshot, which need {' and '.join(missing)}", file=sys.stderr)
    return not missing


def can_be_forked():
    there = any(os.path.exists(os.path.join(folder, "weightmap_patch.pth"))
                for folder in site.getsitepackages())
    if not there:
        print("SKIPPED: starts from a template, which need weightmap_patch.pth in site-packages",
              file=sys.stderr)
    return there


def possible(wanted):
    if os.geteuid() == 0 or STATES[2] not in wanted:
        return wanted
    print("SKIPPED: everything cold, since only root drops the page cache", file=sys.stderr)
    return [state for state in wanted if state != STATES[2]]


def slow_disk(folder):
    try:
        return SlowDisk(folder)
    except OSError as error:
        print(f"SKIPPED: a slow disk, since no cgroup limits it: {error}", file=sys.stderr)
        return None


def measure(starts, folder, wanted_states, loads):
    """Returns samples by state, disk and load."""
    starts.learn()
    disk = slow_disk(folder)
    samples = {}
    for load in loads:
        for state in possible(wanted_states):
            samples[state, "this disk", load] = starts.compare(state, load=load)
            if disk and state != "cached":
                samples[state, "200 MB/s", load] = starts.compare(state, disk, load)
    if disk:
        disk.remove()
    return samples


def start_tables(engine, samples):
    """Whole starts, then the imports of those that begin with them."""
    started = [*list(CONTENDERS)[1:], SNAPSHOT, TEMPLATE]
    return [*one_table("start to first token", "start_to_token_us", started, engine, samples), "",
            *one_table("imports", "start_to_call_us", list(CONTENDERS)[1:], engine, samples)]


def one_table(title, field, contenders, engine, samples):
    """Each cell: the median, and how many times as long stock takes."""
    rows = []
    for (state, disk, load), taken in samples.items():
        where = disk if load == "quiet" else f"{disk}, {load}"
        cells = [f"{engine}, {state}, {where}", duration(taken["stock"].median(field))]
        for name in contenders:
            if name not in taken:
                cells.append("")
                continue
            ratio = taken["stock"].ratio_to(name, field)
            cells.append(f"{duration(taken[name].median(field))}: {ratio_text(ratio)}")
        rows.append(cells)
    return table([title, "stock", *contenders], rows)


def start_figure(samples):
    """The line of README.md: a start with everything cold, else with a cold model."""
    quiet = {state: taken for (state, disk, load), taken in samples.items()
             if (disk, load) == ("this disk", "quiet")}
    state = "everything cold" if "everything cold" in quiet else "model cold"
    if state not in quiet:
        return []
    taken, field = quiet[state], "start_to_token_us"
    ours, theirs = (duration(taken[name].median(field)) for name in ("weightmap under run", "stock"))
    lines = figure(f"**Starting** Python and transformers with a model of 1.5 GB, {state}, until the "
                   f"first token takes **{ours}** with weightmap under `weightmap run`, {theirs} as "
                   "stock.")
    if SNAPSHOT in taken:
        cold, cached = (duration(quiet[at][SNAPSHOT].median(field))
                        for at in (state, "cached"))
        lines += figure(f"**Restoring** that process from a snapshot takes **{cold}**, {state}, and "
                        f"**{cached}** cached.")
    return lines
