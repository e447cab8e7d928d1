#!/usr/bin/env python3
"""Breaks the library on purpose, one line at a time, and says which tests notice.

    mutants.py ROOT [--build FOLDER] [--jobs N] [--list] [NUMBER | FIRST-LAST | WORD]...

mutants.txt has a block for each file: "@ FILE: TESTS", then mutants, which begin with "- ".
The lines behind "- " stand once in the file, one after the other; those behind "+ " replace them; a
part of a line is enough. The tests are those of ctest that are to notice, the quickest first;
"hostile:zip" are the files of tests/hostile/zip_cases.py.

Each mutant is put into a copy of the tree, in FOLDER (build/mutants), where only its tests are built
and run. A test that fails, or takes five minutes or 8 GiB, has caught it. Numbers and words choose
mutants: words occur in the file's name or in the lines. The status is 1 if fewer than 95 of 100 are
caught; one that fits its file no longer, or does not build, is not.
"""

import argparse
import dataclasses
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time

LIST = pathlib.Path(__file__).with_name("mutants.txt")
LEAST_CAUGHT = 0.95
SECONDS = 300  # for a test
MEMORY = 8 << 30  # private bytes of a process: some mutants allocate without end
HOSTILE = "hostile:"
TOOL = ("weightmap_tool", "make_checkpoint")  # of tests that are no target of their own


@dataclasses.dataclass
class Mutant:
    number: int
    file: str
    tests: list
    old: list
    new: list

    @property
    def pattern(self):
        return re.compile(r"\s*\n\s*".join(map(re.escape, self.old)))

    def __str__(self):
        return f"{self.number:3} {self.file}: {' / '.join(self.old)}  ->  {' / '.join(self.new) or 'nothing'}"

    def is_chosen(self, choices):
        def fits(choice):
            if numbers := re.fullmatch(r"(\d+)(?:-(\d+))?", choice):
                first, last = numbers.groups()
                return int(first) <= self.number <= int(last or first)
            return choice in str(self)
        return not choices or any(map(fits, choices))


ENTRY = re.compile(r"@ (?P<file>.*): (?P<tests>.*)\n|(?P<old>(?:-.*\n)+)(?P<new>(?:\+.*\n)+)|#.*\n|\n")


def read_list(text):
    mutants, file, tests, at = [], "", [], 0
    while at < len(text):
        entry = ENTRY.match(text, at)
        if entry is None:
            sys.exit(f"{LIST}: neither \"@ FILE: TESTS\" nor \"- \" with \"+\" behind it: "
                     f"{text[at:].splitlines()[:2]}")
        at = entry.end()
        if entry["file"]:
            file, tests = entry["file"], entry["tests"].split()
        elif entry["old"]:
            old, new = ([line[1:].strip() for line in entry[part].splitlines()]
                        for part in ("old", "new"))
            mutants.append(Mutant(len(mutants) + 1, file, tests, old, new))
    return mutants


class Copy:
    """A copy of the tree with a build folder."""

    def __init__(self, root, folder, jobs):
        self.root, self.tree, self.build = root, folder, folder / "build/quick"
        self.jobs = jobs
        self.targets = set()

    def run(self, *command):
        return subprocess.run(command, cwd=self.tree, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace")

    def need(self, *command):
        done = self.run(*command)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stdout[-4000:]}")
        return done.stdout

    def prepare(self):
        self.tree.mkdir(parents=True, exist_ok=True)
        listed = subprocess.run(["git", "-C", self.root, "ls-files", "-co", "--exclude-standard"],
                                check=True, capture_output=True, text=True).stdout.splitlines()
        for name in listed:
            source, target = self.root / name, self.tree / name
            if not source.is_file():
                continue
            if target.is_file() and target.read_bytes() == source.read_bytes():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
            target.touch()
        launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        self.need("cmake", "--preset", "quick", "-DCMAKE_UNITY_BUILD=OFF",
                  "-DWEIGHTMAP_JOIN_TESTS=OFF", "--log-level=WARNING", *launcher)
        self.targets = {line.partition(":")[0] for line in
                        self.need("ninja", "-C", self.build, "-t", "targets", "all").splitlines()}

    def make(self, tests):
        wanted = set()
        for test in tests:
            if test.startswith(HOSTILE):
                wanted.add("hostile_runner")
            else:
                wanted.update([test] if test in self.targets else TOOL)
        return self.run("ninja", "-C", self.build, "-j", str(self.jobs), *sorted(wanted))

    def command(self, test):
        if not test.startswith(HOSTILE):
            return ["ctest", "--test-dir", self.build, "-R", f"^{test}$", "--no-tests=error",
                    "--timeout", str(SECONDS), "--output-on-failure"]
        folder = self.build / "tests/hostile"
        return ["timeout", str(SECONDS), folder / "hostile_runner", folder / "files/manifest.json",
                test.removeprefix(HOSTILE)]

    def test(self, tests):
        """Returns what failed, or nothing."""
        for test in tests:
            done = self.run(*self.command(test))
            if done.returncode != 0:
                return test, done.stdout
        return None

    def check_unchanged(self, tests):
        made = self.make(tests)
        if made.returncode != 0:
            sys.exit(f"the tests do not build:\n{made.stdout[-4000:]}")
        if any(test.startswith(HOSTILE) for test in tests):
            self.need("ctest", "--test-dir", self.build, "-R", "^hostile_files$")
        if failed := self.test(tests):
            sys.exit(f"{failed[0]} fails without any mutant:\n{failed[1][-4000:]}")

    def answer(self, mutant):
        """Returns "caught by TEST", "survives", "does not fit" or "does not build"."""
        file = self.tree / mutant.file
        text = file.read_text()
        if len(mutant.pattern.findall(text)) != 1:
            return "does not fit"
        try:
            file.write_text(mutant.pattern.sub(lambda _: "\n".join(mutant.new), text))
            if self.make(mutant.tests).returncode != 0:
                return "does not build"
            failed = self.test(mutant.tests)
            return f"caught by {failed[0]}" if failed else "survives"
        finally:
            file.write_text(text)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("choices", nargs="*")
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    given = parser.parse_intermixed_args()
    mutants = [each for each in read_list(LIST.read_text()) if each.is_chosen(given.choices)]
    if given.list:
        print(*mutants, sep="\n")
        return 0
    root = given.root.resolve()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    copy = Copy(root, (given.build or root / "build/mutants").resolve(), given.jobs)
    copy.prepare()
    copy.check_unchanged(dict.fromkeys(test for each in mutants for test in each.tests))
    answers = []
    for mutant in mutants:
        began = time.monotonic()
        answers.append(copy.answer(mutant))
        print(f"{answers[-1]:30} {time.monotonic() - began:4.0f} s  {mutant}", flush=True)
    caught = sum(answer.startswith("caught") for answer in answers)
    survive = answers.count("survives")
    print(f"{len(answers)} mutants: {caught} caught, {survive} survive, "
          f"{len(answers) - caught - survive} do not fit or do not build")
    return 0 if caught >= LEAST_CAUGHT * len(answers) else 1


if __name__ == "__main__":
    sys.exit(main())
