"""Shared by the comparisons: samples of contenders, by bench/interleave.cpp, and Markdown."""
import datetime
import json
import os
import platform
import shlex
import subprocess
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
WIDTH = 100  # columns of the documents
WHOLE_WORDS = {"break_long_words": False, "break_on_hyphens": False}


def run_json(command):
    """Returns the output of a program. Its errors go to the terminal."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} ended with status {done.returncode}")
    return json.loads(done.stdout)


class Samples:
    """The samples of one contender."""

    def __init__(self, measured):
        self.runs = measured["runs"]  # of all rounds
        self._summaries = measured["summaries"]
        self._ratios = measured["ratios"]

    def median(self, field="open_us"):
        return self._summaries[field]["median"]

    def low(self, field="open_us"):
        return self._summaries[field]["min"]

    def high(self, field="open_us"):
        return max(run[field] for run in self.runs)

    def ratio_to(self, name, field="open_us"):
        """Returns the ratio to the contender NAME: value, and low and high of its interval."""
        return self._ratios[name][field]


def interleave(build, contenders, rounds, *options):
    """Returns samples by name. `contenders` maps names to commands: words, or a shell line."""
    pairs = [f"{name}={command if isinstance(command, str) else shlex.join(command)}"
             for name, command in contenders.items()]
    program = os.path.join(build, "bench", "interleave")
    measured = run_json([program, "--rounds", str(rounds), *options, "--", *pairs])
    return {name: Samples(samples) for name, samples in measured["contenders"].items()}


def ratio_text(ratio, digits=2):
    """Formats the ratio and its interval; nothing for None."""
    if ratio is None:
        return ""
    value, low, high = (f"{ratio[part]:,.{digits}f}" for part in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def duration(microseconds):
    if microseconds < 1000:
        return f"{microseconds:.0f} us"
    if microseconds < 1e6:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds / 1e6:.2f} s"


def row(cells):
    return "| " + " | ".join(cells) + " |"


def table(head, rows):
    """Lines of a Markdown table."""
    return [row(head), "|" + "---|" * len(head), *(row(cells) for cells in rows)]


def figure(text):
    """One item of the list of figures in README.md, as lines."""
    return textwrap.wrap(text, WIDTH, initial_indent="- ", subsequent_indent="  ", **WHOLE_WORDS)


def mebibytes(count):
    return f"{count / 2**20:,.1f} MiB"


def machine():
    """Describes the machine and the date."""
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        model = next((line.split(":")[1].strip() for line in info if line.startswith("model name")),
                     "unknown processor")
    with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="utf-8") as setting:
        huge = setting.read().split("[")[1].split("]")[0]
    return (f"Measured on {datetime.date.today().isoformat()}: {model}, {os.cpu_count()} cores, "
            f"Linux {platform.release().split('-')[0]}, transparent huge pages `{huge}`")


def machine_line(versions, rounds):
    """Where it was measured; `versions` names the packages, "torch 2.13.0". The head of
    docs/performance.md says how."""
    return f"{machine()}, {versions}, Python {platform.python_version()}. {rounds} rounds."


def check_between(parser, path, begin, end):
    """Ends the program unless FILE, if there is one, has the markers, before half an hour of
    measurements."""
    if path is None:
        return
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if not text.count(begin) == text.count(end) == 1:
        parser.error(f"{path} lacks the markers {begin} and {end}")


def publish(lines, path, begin, end):
    """Prints the lines, and puts them between the markers of FILE, if there is one."""
    print("\n".join(lines), flush=True)
    if path is not None:
        write_between(path, begin, end, lines)


def write_between(path, begin, end, lines):
    """Replaces the text between two marker lines of FILE. Wraps sentences, but not tables."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    head, rest = text.split(begin)
    tail = rest.split(end)[1]
    wrapped = []
    for line in lines:
        is_sentence = len(line) > WIDTH and not line.startswith("|")
        wrapped += textwrap.wrap(line, WIDTH, **WHOLE_WORDS) if is_sentence else [line]
    with open(path, "w", encoding="utf-8") as file:
        file.write(head + begin + "\n" + "\n".join(wrapped) + "\n" + end + tail)
