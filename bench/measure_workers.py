"""Measures one more worker of examples/serving beside workers that each start from nothing.

    measure_workers.py --folder DIR [--rounds 7] [--workers 1 4 16] [--model large] [--write FILE]

This interpreter needs weightmap, torch, transformers, gunicorn and uvicorn. Makes the models of
bench/serving_start.py in DIR where they are missing. The servers are those of examples/serving,
whose workers are forks, and gunicorn without --preload, whose workers import everything and open
the model themselves, with weightmap.transformers.load() and with stock from_pretrained().

    one more worker  from SIGTTIN to the first answer of the new one, page cache warm. The older
                     workers are stopped, so that no other can answer. Each round adds one worker to
                     each server.
    next answer      the same request again: how much of it is computing
    memory           sum of the PSS of all processes of a server, alone, after each worker answered

Prints the tables as Markdown; --write puts them between the markers in FILE.
"""
import argparse
import collections
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from importlib.metadata import version

from process_memory import children_of, pss_and_private
from samples import HERE, check_between, duration, machine_line, publish, table
from serving_start import OtherWork, make_models

EXAMPLES = os.path.join(os.path.dirname(HERE), "examples", "serving")
MARKERS = "<!-- measured workers: begin -->", "<!-- measured workers: end -->"
GUNICORN = ["-m", "gunicorn", "--workers", "1", "--timeout", "0", "--no-control-socket", "--bind"]
SERVERS = {
    "gunicorn `--preload`": lambda port: [*GUNICORN, f":{port}", "--preload", "gunicorn_app:app"],
    "`uvicorn_workers.py`": lambda port: ["uvicorn_workers.py", "1", str(port)],
    "`forkserver.py`": lambda port: ["forkserver.py", "1", str(port)],
    "each from nothing, weightmap": lambda port: [*GUNICORN, f":{port}", "gunicorn_app:app"],
    "each from nothing, stock": lambda port: [*GUNICORN, f":{port}", "stock_app:app"],
}


class Server:
    """With one worker, which has answered once."""

    def __init__(self, name, model):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), EXAMPLES, HERE])
        self._process = subprocess.Popen(
            [sys.executable, *SERVERS[name](self._port)], cwd=EXAMPLES, stderr=subprocess.DEVNULL,
            env={**os.environ, "MODEL": model, "PYTHONPATH": path})
        while True:
            with contextlib.suppress(urllib.error.URLError):
                self.answers = [self._ask()]
                return
            if self._process.poll() is not None:
                raise SystemExit(f"measure_workers.py: {name} ended: {self._process.args}")
            time.sleep(0.05)

    def one_more(self):
        """Seconds until the first answer, and for the next."""
        for answer in self.answers:
            os.kill(answer["pid"], signal.SIGSTOP)
        began = time.perf_counter()
        self._process.send_signal(signal.SIGTTIN)
        self.answers.append(self._ask())
        answered = time.perf_counter()
        self._ask()
        return answered - began, time.perf_counter() - answered

    def pss(self):
        found = [self._process.pid]
        for pid in found:
            found += children_of(pid)
        return sum(pss_and_private(pid)[0] for pid in found)

    def end(self):
        for answer in self.answers:
            os.kill(answer["pid"], signal.SIGCONT)
        self._process.terminate()
        self._process.wait()

    def _ask(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/?ids=1,2,3,4") as answer:
            return json.load(answer)


def measure_times(model, rounds):
    """Medians by server, in seconds: until the first answer, and for the next."""
    servers = {name: Server(name, model) for name in SERVERS}
    times = collections.defaultdict(list)
    for _ in range(rounds):
        for name, server in servers.items():
            times[name].append(server.one_more())
    for server in servers.values():
        server.end()
    if len({answer["token"] for server in servers.values() for answer in server.answers}) != 1:
        raise SystemExit("measure_workers.py: the servers do not answer the same")
    return {name: [statistics.median(column) for column in zip(*taken)]
            for name, taken in times.items()}


def measure_memory(name, model, counts):
    """Bytes, for each number of workers."""
    server, taken = Server(name, model), []
    for count in sorted(counts):
        while len(server.answers) < count:
            server.one_more()
        taken.append(server.pss())
    server.end()
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--model", choices=["tiny", "large"], default="large")
    parser.add_argument("--write")
    arguments = parser.parse_args()
    check_between(parser, arguments.write, *MARKERS)
    os.makedirs(arguments.folder, exist_ok=True)
    make_models(arguments.folder)
    model = os.path.abspath(os.path.join(arguments.folder, f"{arguments.model}.safetensors"))
    others = OtherWork()
    times = measure_times(model, arguments.rounds)
    memory = {name: measure_memory(name, model, arguments.workers) for name in SERVERS}
    packages = ", ".join(f"{name} {version(name)}"
                         for name in ("torch", "transformers", "gunicorn", "uvicorn"))
    size = os.path.getsize(os.path.join(model, "model.safetensors"))
    lines = [f"{machine_line(packages, arguments.rounds)} Other work took {others.read():.2f} of "
             f"the processors meanwhile. A file of {size / 2**20:,.0f} MiB.", ""]
    head = ["", "one more worker", "next answer",
            *(f"PSS of {count}" for count in sorted(arguments.workers))]
    lines += table(head, [[name, *(duration(1e6 * seconds) for seconds in times[name]),
                           *(f"{taken / 2**20:,.0f} MiB" for taken in memory[name])]
                          for name in SERVERS])
    publish(lines, arguments.write, *MARKERS)


if __name__ == "__main__":
    main()
