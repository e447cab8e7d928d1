"""What the interop tests of the tool have in common: the tool, a folder, and how they are told to run."""

import argparse
import os
import pathlib
import random
import sys
import tempfile
import unittest

from tool import Tool


class ToolCase(unittest.TestCase):
    """A test whose first argument is the tool."""

    verify = "chain"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tool = Tool(sys.argv[1], self.verify)

    def listed(self, path):
        return {tensor["name"]: tensor for tensor in self.tool.tensors(path)}


def versions():
    """Of the libraries that a test has imported."""
    return ", ".join(f"{name} {getattr(sys.modules[name], '__version__', '?')}"
                     for name in ("torch", "numpy", "safetensors", "gguf") if name in sys.modules)


def main(arguments=1):
    """Runs the tests of the program, whose own arguments come first."""
    print(versions())
    unittest.main(argv=[sys.argv[0], *sys.argv[1 + arguments :]])


def random_run(part=1, name="--files", count=None):
    """(tool, number of files, seed) of a test of random files, which says them: unless it is told
    another, `count`, or `part` of the number that the environment asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    files = max(15, int(int(os.environ.get("INTEROP_FILES", 60)) * part))
    parser.add_argument(name, dest="files", type=int, default=count or files)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    given = parser.parse_args()
    print(f"{versions()}, {name} {given.files} --seed {given.seed}", flush=True)
    return given.tool, given.files, given.seed
