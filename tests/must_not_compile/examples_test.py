#!/usr/bin/env python3
"""Compiles every example of a public header's comments and of the manual, all in one unit.

    examples_test.py ROOT COMPILER [OPTION ...]
"""

import itertools
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(sys.argv[1])
COMPILE = [*sys.argv[2:], "-x", "c++", "-"]
del sys.argv[1:]

HEADERS = ROOT / "include/weightmap"

# What the reader of an example has: declarations before it, and parameters.
BEFORE = {
    "cuda.hpp": "void use(std::uint64_t pointer, std::uint64_t bytes);",
    "dtype.hpp": "namespace c10 { struct Half { std::uint16_t bits; }; }",
    "on_demand.hpp": "extern std::vector<std::int64_t> ids;",
    "protection.md": "using Answer = int; Answer compute(const weightmap::Checkpoint&);",
    "remote.hpp": "void list(std::string_view name);",
    "serving.md": "void log(const std::string& line);",
    "checkpoint.hpp": "struct { std::optional<weightmap::SharedTensor> wq; } layer;",
    "value.hpp": "void resume(std::int64_t epoch);",
}
PARAMETERS = {
    "archive.hpp": "std::map<std::string, std::span<const std::byte>> records",
    "checkpoint_writer.hpp": "std::map<std::string, weightmap::TensorView> model, std::span<const std::byte> bytes",
    "chunks.hpp": "weightmap::Result<void> ok, std::span<std::byte> memory, std::int64_t r",
    "inspect.hpp": "weightmap::NamedTensor before, weightmap::NamedTensor after",
    "new_file.hpp": "std::uint64_t bytes, std::span<const std::byte> content",
    "remote.hpp": "std::unique_ptr<weightmap::RangeSource> remote",
    "result.hpp": "std::filesystem::path path",
    "value.hpp": "weightmap::CheckpointWriter& writer",
    "warmer.hpp": "weightmap::TensorView needed",
}
STANDARD = ("array", "atomic", "chrono", "cstddef", "cstdint", "filesystem", "iostream", "map", "memory", "optional",
            "span", "string", "string_view", "thread", "vector")
OF_A_FILE = re.compile(r"^(template|using|namespace|#include)\b", re.M)  # else of a function


def header_examples():
    """(file, line, code) of each run of indented lines in the comments."""
    for file in sorted(HEADERS.glob("*.hpp")):
        lines = enumerate(file.read_text().splitlines(), 1)
        for indented, run in itertools.groupby(lines, lambda line: bool(re.match(r" *// {3}", line[1]))):
            (first, text), *others = run
            if indented:
                yield file, first, "\n".join(each.strip()[5:] for each in [text, *(text for _, text in others)])


def manual_examples():
    for file in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]):
        text = file.read_text()
        for found in re.finditer(r"^```cpp\n(.*?)^```", text, re.M | re.S):
            yield file, text.count("\n", 0, found.start(1)) + 1, found[1]


def function_of(file, code):
    """A function with the code as its body, whose parameters are what the code has from outside."""
    parameters = [PARAMETERS[file.name]] if file.name in PARAMETERS else []
    if not re.search(r"checkpoint = ", code):
        owner = "std::shared_ptr<const weightmap::Checkpoint>"
        pointer = re.search(r"(?<!\w)\*checkpoint\b|\bcheckpoint->", code)
        parameters.append(f"const {owner if pointer else 'weightmap::Checkpoint'}& checkpoint")
    return f"weightmap::Result<void> example({', '.join(parameters)}) {{", "return {}; }"


def unit_of(examples):
    unit = [f"#include <{name}>" for name in STANDARD]
    unit += [f'#include "weightmap/{file.name}"' for file in sorted(HEADERS.glob("*.hpp"))]
    unit += [BEFORE.get(name, "") for name in dict.fromkeys(file.name for file, _, _ in examples)]
    for count, (file, line, code) in enumerate(examples):
        begin, end = ("", "") if OF_A_FILE.search(code) else function_of(file, code)
        if "template <>" not in code:  # a specialisation lies where its template does
            begin, end = f"namespace example_{count} {{ {begin}", f"{end} }}"
        unit += [begin, f'#line {line} "{file}"', code, end]
    return "\n".join(unit)


def errors_of(examples):
    done = subprocess.run(COMPILE, input=unit_of(examples), text=True, capture_output=True, timeout=300)
    return done.stderr if done.returncode else ""


class ExamplesTest(unittest.TestCase):
    def test_every_example_compiles(self):
        of_headers, of_manual = list(header_examples()), list(manual_examples())
        self.assertGreater(len(of_headers), 20)
        self.assertGreaterEqual(len(of_manual), 3)
        self.assertFalse(errors_of(of_headers + of_manual))

    def test_a_wrong_example_is_told_with_its_file_and_line(self):
        file = HEADERS / "warmer.hpp"
        code = 'auto staged = weightmap::stage("a");\nif (!staged) return fail(staged.error());'
        self.assertIn(f"{file}:4:", errors_of([(file, 3, code)]))


if __name__ == "__main__":
    unittest.main()
