#!/usr/bin/env python3
"""Runs the examples on a fixture.

    examples_test.py ROOT FOLDER_WITH_THE_EXAMPLES
"""

import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1])
FOLDER = pathlib.Path(sys.argv[2])
FIXTURE = ROOT / "tests" / "data" / "state_dict.pt"


def run(example, *arguments):
    command = [FOLDER / example, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def text(name):
    return struct.pack("<Q", len(name)) + name.encode()


def gguf_of(tensors):
    """A GGUF file of float32 tensors, given with their sizes from the fastest one on."""
    descriptions = data = b""
    for name, sizes, values in tensors:
        descriptions += text(name) + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
        descriptions += struct.pack("<IQ", 0, len(data))
        data += struct.pack(f"<{len(values)}f", *values)
        data += bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 0) + descriptions
    return head + bytes(-len(head) % 32) + data


# Token 1 is [1, 2]. The router's logits are 0, 10 and 20, so expert 2 has the weight 0.99995.
LAYER = gguf_of([
    ("token_embd.weight", (2, 2), (9, 9, 1, 2)),
    ("blk.3.ffn_gate_inp.weight", (2, 3), (0, 0, 10, 0, 0, 10)),
    ("blk.3.ffn_gate_exps.weight", (2, 2, 3), (0,) * 8 + (0, 0, 1, 0)),
    ("blk.3.ffn_up_exps.weight", (2, 2, 3), (0,) * 8 + (5, 5, 1, 1)),
    ("blk.3.ffn_down_exps.weight", (2, 2, 3), (0,) * 8 + (1, 0, 0, 2)),
])


class Examples(unittest.TestCase):
    def test_quickstart_lists_and_sums(self):
        done = run("quickstart", FIXTURE, "embedding.weight")
        self.assertEqual(done.stderr, "")
        self.assertEqual(
            done.stdout,
            "embedding.weight float32\n"
            "layers.0.weight bfloat16\n"
            "layers.0.bias float16\n"
            "layers.1.weight float64\n"
            "layers.1.mask bool\n"
            "steps int64\n"
            "position_ids int32\n"
            "embedding.weight sums to 276\n",
        )
        self.assertEqual(done.returncode, 0)

    def test_quickstart_says_why_a_type_does_not_fit(self):
        done = run("quickstart", FIXTURE, "steps")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(
            done.stderr,
            f'{FIXTURE}: tensor "steps": int64 reads as std::int64_t, not as float\n',
        )

    def test_quickstart_adds_up_half_types(self):
        for name, total in (("layers.0.weight", 120), ("layers.0.bias", 6)):
            done = run("quickstart", FIXTURE, name)
            self.assertEqual((done.stderr, done.returncode), ("", 0))
            self.assertTrue(done.stdout.endswith(f"\n{name} sums to {total}\n"), done.stdout)

    def test_save_writes_a_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "model.pt")
            done = run("save", path)
            self.assertEqual((done.stderr, done.returncode), ("", 0))
            size = path.stat().st_size
            self.assertEqual(done.stdout, f"{size} bytes, the first storage at byte 832\n")
            done = run("print_slice", path, "model.weight", 1, 1)
            self.assertEqual((done.stdout, done.stderr), ("0.5 0.5 0.5\n", ""))

    def test_save_says_why_it_cannot_write(self):
        done = run("save", "/nonexistent/model.pt")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot open the directory: No such file or directory", done.stderr)

    def test_experts_runs_those_that_the_router_chooses(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "model.gguf")
            path.write_bytes(LAYER)
            done = run("experts", path, 3, 1, 1, 1)
            self.assertEqual((done.stderr, done.returncode), ("", 0))
            chosen, result, counts = done.stdout.splitlines()
            self.assertEqual(chosen, "blk.3.exps.2 0.999955")
            # silu(1) * 3 * 2 * 0.999955
            self.assertEqual(result.split(), ["0", "4.38615"])
            self.assertEqual(counts, "0 experts read, 1 there before")
            done = run("experts", path, 4, 1, 1, 1)
            self.assertEqual(done.returncode, 1)
            self.assertIn("blk.4.ffn_gate_inp.weight", done.stderr)

    def test_print_slice_prints_rows(self):
        done = run("print_slice", FIXTURE, "embedding.weight", 1, 2)
        self.assertEqual((done.stdout, done.stderr), ("4 5 6 7\n8 9 10 11\n", ""))

    def test_print_slice_refuses_rows_that_do_not_exist(self):
        done = run("print_slice", FIXTURE, "embedding.weight", 5, 2)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("of size 6", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
