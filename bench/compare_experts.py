"""Compares ways to have the experts of a mixture-of-experts model in memory that is smaller than
they are: weightmap's ResidentSet against a mapping with each advice, the page cache warmed by
reads, and slots of one's own.

    compare_experts.py --build build/release [--folder build/bench] [--rounds 7] [--small]
        [--budgets 20,30,50,100] [--processes 1,2,4] [--press MIB] [--trace FILE] [--aligned]
        [--write FILE]

Makes a file of 8 layers of 64 experts of 8 MiB in FOLDER unless it is there, on whose file system
the figures depend. Every round runs each way once, in a fresh process (bench/experts_once.cpp)
inside a control group whose memory is a share of the experts' bytes, and what the program needs
itself: 32 MiB for it, its page tables and the buffers of its threads, and 20 MiB for each further
process. The ways that have slots of their own have as many as the share has bytes; the page cache
with an LRU of its own nine tenths of them, since with all of them the system drops what it keeps.
"memory" is not limited. From 50 % on each expert is used once before the first token.

With several processes weightmap's share one set. With --press another process in the group takes so
much memory, 16 MiB in 50 ms, and gives it back for a second, and weightmap's budget is automatic;
ways with slots of a fixed number are left out, since the system would end one of the processes.
Prints tables as Markdown; --write puts them between the markers in FILE (docs/experts.md).
llama.cpp is not among the ways. Ends with 1 where control groups cannot be made: that takes root.
"""
import argparse
import contextlib
import os
import sys

from make_experts import make_experts
from memory_group import NoGroups, memory_group
from samples import check_between, interleave, machine, publish, ratio_text, table

BEGIN, END = "<!-- measured experts: begin -->", "<!-- measured experts: end -->"
OURS = "`ResidentSet`"
WAYS = {OURS: "weightmap", "mapping": "mapping", "`MADV_RANDOM`": "random",
        "`MADV_POPULATE_READ`": "populate", "`pread` before": "pread",
        "`pread`, own LRU": "pread_lru", "slots, `pread`": "slots", "slots, `O_DIRECT`": "direct",
        "all in memory": "memory"}
OWN_BYTES, OWN_BYTES_OF_PROCESS = 32 << 20, 20 << 20
LAYERS, EXPERTS, EXPERT_BYTES, TOKENS = 8, 64, 8 << 20, 60
SMALL = (4, 32, 1 << 20, 30)


class Comparison:
    def __init__(self, arguments):
        self.arguments = arguments
        self.layers, self.experts, self.expert_bytes, self.tokens = (
            SMALL if arguments.small else (LAYERS, EXPERTS, EXPERT_BYTES, TOKENS))
        if arguments.press:  # long enough for memory to come and go
            self.tokens *= 5
        if arguments.trace:
            self.layers, self.experts = shape_of(arguments.trace)
        self.all_bytes = self.layers * self.experts * self.expert_bytes
        self.file = os.path.join(arguments.folder, self.name())
        if not os.path.exists(self.file):
            os.makedirs(arguments.folder, exist_ok=True)
            make_experts(self.file + ".part", self.layers, self.experts, self.expert_bytes,
                         arguments.aligned)
            os.rename(self.file + ".part", self.file)

    def name(self):
        kind = "_aligned" if self.arguments.aligned else ""
        return (f"experts_{self.layers}x{self.experts}x{self.expert_bytes >> 10}k{kind}"
                ".safetensors")

    def command(self, way, percent, processes, cgroup):
        budget = self.all_bytes * percent // 100
        if way == "pread_lru":
            budget = budget * 9 // 10
        if self.arguments.press and way == "weightmap":
            budget = 0
        words = [os.path.join(self.arguments.build, "bench", "experts_once"), self.file,
                 "--way", way, "--budget", str(budget), "--tokens", str(self.tokens),
                 "--processes", str(processes), "--layers", str(self.layers),
                 "--experts", str(self.experts)]
        if percent >= 50:  # what it is like once slots have their memory
            words.append("--fill")
        if self.arguments.small:
            words += ["--disk-sample", str(16 << 20)]
        if self.arguments.trace:
            words += ["--trace", self.arguments.trace]
        if self.arguments.press:
            words += ["--press", str(self.arguments.press << 20)]
        return words + (["--cgroup", cgroup] if cgroup else [])

    def measure(self, percent, processes, ways):
        """Samples by name. Each way has a group of its own, whose peak is that of its runs."""
        limit = (self.all_bytes * percent // 100 + OWN_BYTES
                 + OWN_BYTES_OF_PROCESS * (processes - 1))
        with contextlib.ExitStack() as groups:
            commands = {
                name: self.command(way, percent, processes,
                                   None if way == "memory" else groups.enter_context(
                                       memory_group(f"{percent}-{processes}-{way}", limit)))
                for name, way in ways.items()}
            samples = interleave(self.arguments.build, commands, self.arguments.rounds,
                                 "--recycle", "0")
        if len({run["sum"] for taken in samples.values() for run in taken.runs}) != 1:
            raise SystemExit(f"{percent} %: the ways have computed with different bytes")
        return samples


def shape_of(trace):
    """Layers and experts of what bench/record_routes.py wrote."""
    with open(trace, encoding="ascii") as file:
        words = next(line for line in file if not line.startswith("#")).split()
    return int(words[1]), int(words[3])


def median(taken, field, form="{:,.1f}"):
    if not all(field in run for run in taken.runs):
        return ""
    return form.format(taken.median(field))


def rows_of(samples):
    """One line for each way."""
    for name, taken in samples.items():
        ratio = "" if name == OURS else ratio_text(
            samples[OURS].ratio_to(name, "tokens_s"))
        yield [name, median(taken, "tokens_s"), ratio, median(taken, "disk_mib"),
               median(taken, "missed_mib"), median(taken, "read_ratio", "{:.3f}"),
               median(taken, "wait_ms"), median(taken, "wait_ratio", "{:.2f}"),
               median(taken, "peak_mib", "{:,.0f}") if taken.median("peak_mib") > 0 else "",
               median(taken, "pss_mib", "{:,.0f}"), median(taken, "disk_mib_s", "{:,.0f}")]


HEAD = ["", "tokens/s", f"{OURS} to it", "read, MiB a token", "missed, MiB a token",
        "read / missed", "waiting, ms a token", "waiting / (missed / disk)", "peak, MiB",
        "PSS, MiB", "disk, MiB/s"]


def other_figures(samples):
    ours = samples[OURS]
    if "acquire_us" in ours.runs[0]:
        yield (f"`acquire()` of 8 resident units takes {ours.median('acquire_us'):.2f} us, the end "
               f"of their leases {ours.median('release_us'):.2f} us.")
    if "was_pressed" in ours.runs[0]:
        alive = all(run["was_pressed"] for run in ours.runs)
        yield (f"Slots went down to {ours.low('least_slots_mib'):,.0f} MiB and up to "
               f"{ours.high('most_slots_mib'):,.0f} MiB; "
               + ("no process was killed." if alive else "the other process was killed."))


def section(comparison, percent, processes):
    ways = WAYS if processes == 1 else {name: way for name, way in WAYS.items()
                                        if way in ("weightmap", "mapping", "memory")}
    if comparison.arguments.press:  # the system would end those whose slots are not given back
        ways = {name: way for name, way in ways.items() if way not in ("slots", "direct")}
    if comparison.arguments.ways:
        ways = {name: way for name, way in ways.items()
                if way in comparison.arguments.ways + ["weightmap"]}
    samples = comparison.measure(percent, processes, ways)
    of = "1 process" if processes == 1 else f"{processes} processes"
    return [f"{percent} % of the experts' bytes, {of}:", "", *table(HEAD, rows_of(samples)), "",
            *other_figures(samples)], samples


def shared_memory(by_processes):
    """How the memory of several processes compares with that of one, of each share."""
    one = by_processes.get(1)
    for processes, samples in by_processes.items():
        if processes == 1 or one is None:
            continue
        peak, pss = (samples[OURS].median(field) / one[OURS].median(field)
                     for field in ("peak_mib", "pss_mib"))
        yield f"{processes} processes have {pss:.2f} times the memory of one (peak {peak:.2f})."


def numbers(text):
    return [int(word) for word in text.split(",")]


def parsed():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--folder", default="build/bench")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--small", action="store_true", help="128 MiB, to try it out")
    parser.add_argument("--budgets", type=numbers, default=[20, 30, 50, 100])
    parser.add_argument("--processes", type=numbers, default=[1])
    parser.add_argument("--press", type=int, default=0, help="MiB")
    parser.add_argument("--trace", help="default: a model of one")
    parser.add_argument("--aligned", action="store_true", help="experts begin at pages")
    parser.add_argument("--ways", type=lambda text: text.split(","),
                        help="of bench/experts_once, beside weightmap; default: all")
    parser.add_argument("--write")
    arguments = parser.parse_args()
    check_between(parser, arguments.write, BEGIN, END)
    return arguments


def main():
    arguments = parsed()
    comparison = Comparison(arguments)
    trace = f"choices of `{os.path.basename(arguments.trace)}`" if arguments.trace else (
        "choices by a model of their distances")
    lines = [f"{machine()}; {comparison.layers} layers of {comparison.experts} experts of "
             f"{comparison.expert_bytes / 2**20:g} MiB, {trace}. {arguments.rounds} rounds.", ""]
    for percent in arguments.budgets:
        taken = {}
        for processes in arguments.processes:
            text, taken[processes] = section(comparison, percent, processes)
            lines += [*text, ""]
        lines += [*shared_memory(taken), ""]
    while lines[-1] == "":
        lines.pop()
    publish(lines, arguments.write, BEGIN, END)


if __name__ == "__main__":
    try:
        main()
    except NoGroups as error:
        sys.exit(f"compare_experts: cannot make a control group: {error}")
