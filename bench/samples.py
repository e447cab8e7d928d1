"""What the comparisons share: running a contender in a fresh process, medians, Markdown."""
import datetime
import json
import os
import platform
import statistics
import subprocess
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
WIDTH = 100  # columns of the documents
WHOLE_WORDS = {"break_long_words": False, "break_on_hyphens": False}


def run_json(command):
    """What a contender printed. Its errors go to the terminal."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def touch_memory(build, mebibytes=512):
    program = os.path.join(build, "bench", "touch_memory")
    subprocess.run([program, str(mebibytes)], check=True)


class Samples:
    """Measurements of one contender on one file."""

    def __init__(self):
        self.runs = []

    def median(self, field="open_us"):
        return statistics.median(run[field] for run in self.runs)

    def low(self, field="open_us"):
        return min(run[field] for run in self.runs)

    def high(self, field="open_us"):
        return max(run[field] for run in self.runs)


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


def machine():
    """Where it is measured, today."""
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        model = next((line.split(":")[1].strip() for line in info if line.startswith("model name")),
                     "unknown processor")
    with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="utf-8") as setting:
        huge = setting.read().split("[")[1].split("]")[0]
    return (f"Measured on {datetime.date.today().isoformat()}: {model}, {os.cpu_count()} cores, "
            f"Linux {platform.release().split('-')[0]}, transparent huge pages `{huge}`")


def machine_line(versions, rounds):
    """Where and how it was measured, each sample in a process of its own; `versions` names the
    packages, "torch 2.13.0"."""
    return (f"{machine()}, {versions}, Python {platform.python_version()}. Medians of {rounds} "
            "interleaved rounds, each sample a fresh process, page cache warm unless said "
            "otherwise, 512 MiB of memory touched and freed before each.")


def has_between(path, begin, end):
    """Whether FILE has the markers: to be asked before measuring for half an hour."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return text.count(begin) == text.count(end) == 1


def write_between(path, begin, end, lines):
    """Replaces what FILE has between two marker lines. Sentences are wrapped, tables are not."""
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
