#!/usr/bin/env python3
"""Builds examples/libtorch against an installed weightmap and this interpreter's torch, and runs it.

    libtorch_test.py ROOT PREFIX_OF_WEIGHTMAP FOLDER CMAKE GENERATOR CXX LAUNCHER

Exit 77 means skipped: the CMake package of a torch with CUDA asks for the CUDA toolkit.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import unittest

import torch

ROOT, PREFIX, FOLDER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
CMAKE, GENERATOR, CXX, LAUNCHER = sys.argv[4:8]
PROGRAM = FOLDER / "libtorch_tensor"
DATA = ROOT / "tests" / "data"
SKIPPED = 77


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


def build():
    run(CMAKE, "-G", GENERATOR, "-S", ROOT / "examples" / "libtorch", "-B", FOLDER,
        "-D", f"CMAKE_PREFIX_PATH={PREFIX};{torch.utils.cmake_prefix_path}",
        "-D", f"CMAKE_CXX_COMPILER={CXX}", "-D", f"CMAKE_CXX_COMPILER_LAUNCHER={LAUNCHER}",
        "-D", "CMAKE_BUILD_TYPE=Debug", "-D", "CMAKE_CXX_FLAGS_DEBUG=-O0")
    run(CMAKE, "--build", FOLDER)


def show(file, name):
    return subprocess.run([PROGRAM, DATA / file, name], capture_output=True, text=True)


class LibTorch(unittest.TestCase):
    def shows(self, file, name, text):
        with self.subTest(file=file, name=name):
            done = show(file, name)
            self.assertEqual((done.stderr, done.stdout), ("", text + "\n"))
            self.assertEqual(done.returncode, 0)

    def test_types_are_those_of_the_file(self):
        self.shows("state_dict.pt", "embedding.weight", "CPUFloatType [6, 4] sums to 276")
        self.shows("state_dict.pt", "layers.0.weight", "CPUBFloat16Type [4, 4] sums to 120")
        self.shows("state_dict.pt", "layers.0.bias", "CPUHalfType [4] sums to 6")
        self.shows("scalars_and_empty.pt", "scalar", "CPUFloatType [] sums to 2.5")
        self.shows("scalars_and_empty.pt", "empty_columns", "CPULongType [5, 0] sums to 0")

    def test_strides_are_those_of_the_file(self):
        self.shows("views.pt", "transposed", "CPUFloatType [6, 4] sums to 276")
        self.shows("views.pt", "every_second_column", "CPUFloatType [4, 3] sums to 132")
        self.shows("views.pt", "overlapping", "CPUFloatType [3, 4] sums to 54")
        self.shows("views.pt", "permuted", "CPUShortType [4, 2, 3] sums to 276")

    def test_what_the_program_writes_does_not_reach_the_file(self):
        before = (DATA / "state_dict.pt").read_bytes()
        self.assertEqual(show("state_dict.pt", "embedding.weight").returncode, 0)
        self.assertEqual((DATA / "state_dict.pt").read_bytes(), before)

    def test_says_what_libtorch_cannot_read_in_place(self):
        for file, name in (("conjugate.pt", "conjugate"), ("negative.pt", "negative")):
            done = show(file, name)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertEqual(done.stderr, "LibTorch cannot read this tensor in place\n")


if __name__ == "__main__":
    if torch.version.cuda and not (shutil.which("nvcc") or os.environ.get("CUDA_HOME")):
        print(f"SKIPPED: torch {torch.__version__} has a CMake package that asks for the CUDA "
              "toolkit, which is not here")
        sys.exit(SKIPPED)
    build()
    unittest.main(argv=[sys.argv[0], *sys.argv[8:]])
