#!/usr/bin/env python3
"""The Python engines of `weightmap bench`, run as the tool runs them, against sums made by hand.

    bench_engines_test.py ROOT [TESTS]

An engine that cannot be measured here is skipped, and its reason is printed.
"""
import collections
import functools
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch

SOURCE = pathlib.Path(sys.argv[1], "tools/bench/cold/python_engines.py").read_text(encoding="utf-8")

# Names, and what is at their ends: the bytes of these tensors are what the engines must have read.
BYTES = {
    "model.layers.0.weight": bytes(range(256)) * 3,            # float32
    "model.layers.1.weight": bytes(range(7, 249)),             # bfloat16, 242: 2 bytes left over
    "model.odd": bytes([255] * 13),                            # uint8: 5 bytes left over
    "model.list.1.0": bytes([1, 2, 3]),                        # less than one word
    "model.unaligned": bytes((5 * i) % 251 for i in range(3 << 20)),  # at byte 3 of its storage
    "epoch.7": bytes([128] * 8),                               # a key that is an integer
    "scalar": bytes([9, 8, 7, 6]),
}
ORDER = ["model.layers.1.weight", "model.odd", "scalar", "model.layers.0.weight", "epoch.7",
         "model.unaligned", "model.list.1.0"]
FIELDS = {"open_ms", "first_byte_ms", "first_tensor_ms", "all_ms", "disk_bytes", "minor_faults",
          "major_faults", "anonymous_bytes", "file_bytes", "checksum", "bytes"}
KNOWN = ["torch-mmap", "torch-copy", "safetensors-mmap", "safetensors-pread", "weightmap-torch",
         "fastsafetensors", "runai-streamer"]


def sum_of(content):
    padded = content + bytes(-len(content) % 8)
    return sum(int.from_bytes(padded[at:at + 8], "little") for at in range(0, len(padded), 8))


def tensor_of(name, dtype, shape=(-1,)):
    return torch.frombuffer(bytearray(BYTES[name]), dtype=dtype).view(shape)


def checkpoint():
    unaligned = torch.frombuffer(bytearray(3) + BYTES["model.unaligned"], dtype=torch.uint8)[3:]
    model = collections.OrderedDict()
    # Keys with dots beside keys on the way: both ways of naming must be found.
    model["layers.0.weight"] = tensor_of("model.layers.0.weight", torch.float32, (2, 96))
    model["layers"] = {"1": {"weight": tensor_of("model.layers.1.weight", torch.bfloat16)}}
    model["odd"] = torch.nn.Parameter(tensor_of("model.odd", torch.uint8), requires_grad=False)
    model["list"] = ["text", (tensor_of("model.list.1.0", torch.uint8), None)]
    model["unaligned"] = unaligned
    model["crossed"] = torch.arange(6).view(2, 3).t()
    scalar = tensor_of("scalar", torch.float32, ())
    return {"model": model, "epoch": {7: tensor_of("epoch.7", torch.int64)}, "scalar": scalar,
            "other": torch.ones(1000)}


def run(*arguments, python=(sys.executable,)):
    """Lets a sample begin as soon as it says that it is ready."""
    done = subprocess.run([*python, "-c", SOURCE, *map(str, arguments)], input="go\n",
                          capture_output=True, text=True, check=False)
    done.stdout = done.stdout.removeprefix("ready\n")
    return done


@functools.lru_cache(maxsize=None)
def listed(python=(sys.executable,)):
    done = run("--list", python=python)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.files = {"pt": self.folder / "model.pt", "safetensors": self.folder / "model.st"}
        torch.save(checkpoint(), self.files["pt"])

    def order(self, names):
        path = self.folder / "order.json"
        path.write_text(json.dumps(names))
        return path

    def write_safetensors(self, names):
        """The bytes of these tensors, where there is a library that writes them."""
        try:
            from safetensors.torch import save_file
        except ImportError:
            return
        save_file({name: torch.frombuffer(bytearray(BYTES[name]), dtype=torch.uint8)
                   for name in names}, self.files["safetensors"])

    def needs_safetensors(self):
        try:
            import safetensors
        except ImportError:
            self.skipTest("SKIPPED: safetensors is not installed")

    def fails(self, done, *words):
        """With exit 1 and, at the end of what libraries may say, one line that holds the words."""
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        for word in words:
            self.assertIn(word, done.stderr.splitlines()[-1])


class ListTest(Case):
    def test_says_what_every_engine_is(self):
        engines = listed()
        self.assertEqual([engine["name"] for engine in engines], KNOWN)
        for engine in engines:
            self.assertEqual(set(engine), {"name", "title", "why_not", "reads"})
        self.assertEqual(engines[0]["why_not"], "")
        self.assertEqual(engines[0]["title"], f"torch.load(mmap=True) {torch.__version__}")

    def test_without_torch_says_so_for_every_engine(self):
        engines = listed(python=(sys.executable, "-I", "-S"))
        self.assertEqual([engine["name"] for engine in engines], KNOWN)
        self.assertEqual({engine["why_not"] for engine in engines}, {"torch is not installed"})

    def test_says_which_import_fails(self):
        broken = self.folder / "safetensors.py"
        broken.write_text("raise ImportError('no such\\nsymbol')\n")
        code = f"import sys; sys.path.insert(0, {str(self.folder)!r})\n{SOURCE}"
        done = subprocess.run([sys.executable, "-c", code, "--list"], capture_output=True,
                              text=True, check=True)
        reasons = {engine["name"]: engine["why_not"] for engine in json.loads(done.stdout)}
        self.assertEqual(reasons["safetensors-mmap"],
                         "safetensors cannot be imported: no such symbol")
        self.assertEqual(reasons["torch-mmap"], "")


class EnginesTest(Case):
    def available(self):
        for engine in listed():
            if engine["why_not"]:
                print(f"SKIPPED: {engine['name']}: {engine['why_not']}")
            else:
                yield engine["name"], self.files[engine["reads"]]

    def test_read_every_byte_of_what_is_named_and_no_other(self):
        self.write_safetensors(ORDER)
        expected = sum(map(sum_of, BYTES.values())) % 2**64
        order = self.order(ORDER)
        for name, path in self.available():
            with self.subTest(engine=name):
                done = run(name, path, order)
                self.assertEqual(done.returncode, 0, done.stderr)
                sample = json.loads(done.stdout)
                self.assertEqual(set(sample), FIELDS)
                self.assertEqual(sample["checksum"], expected)
                self.assertEqual(sample["bytes"], 768 + 242 + 13 + 3 + (3 << 20) + 8 + 4)
                times = [sample[key] for key in ("open_ms", "first_byte_ms", "first_tensor_ms",
                                                 "all_ms")]
                self.assertGreater(times[0], 0)
                self.assertEqual(times, sorted(times))
                for key in FIELDS - {"checksum"}:
                    self.assertGreaterEqual(sample[key], 0, key)

    def test_what_copies_takes_memory_of_its_own(self):
        order = self.order(["model.unaligned"])
        copied = json.loads(run("torch-copy", self.files["pt"], order).stdout)
        self.assertGreater(copied["anonymous_bytes"], 2 << 20)
        self.assertGreater(copied["minor_faults"], 0)

    def test_a_tensor_that_is_not_there(self):
        self.write_safetensors(ORDER)
        order = self.order([ORDER[0], "model.layers.2.weight"])
        for name, path in self.available():
            with self.subTest(engine=name):
                self.fails(run(name, path, order), "model.layers.2.weight")

    def test_a_file_that_is_cut_off(self):
        self.write_safetensors(ORDER)
        for path in filter(pathlib.Path.is_file, {*self.files.values()}):
            content = path.read_bytes()
            path.write_bytes(content[:len(content) // 2])
        order = self.order(ORDER)
        for name, path in self.available():
            with self.subTest(engine=name):
                self.fails(run(name, path, order))

    def test_a_set_of_safetensors_by_its_index_and_by_its_folder(self):
        self.needs_safetensors()
        for number, name in enumerate(("scalar", "model.odd")):
            self.files["safetensors"] = self.folder / f"set-{number}.safetensors"
            self.write_safetensors([name])
        self.files["safetensors"] = self.folder / "set-9.safetensors"
        self.write_safetensors(["epoch.7"])  # the index does not name it
        index = self.folder / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": {"scalar": "set-0.safetensors",
                                                    "model.odd": "set-1.safetensors"}}))
        order = self.order(["model.odd", "scalar"])
        for path in (index, self.folder):
            sample = json.loads(run("safetensors-mmap", path, order).stdout)
            self.assertEqual((sample["bytes"], sample["checksum"]),
                             (17, (sum_of(BYTES["scalar"]) + sum_of(BYTES["model.odd"])) % 2**64))
        self.fails(run("safetensors-mmap", index, self.order(["epoch.7"])), "epoch.7")
        index.unlink()
        sample = json.loads(run("safetensors-mmap", self.folder, self.order(["epoch.7"])).stdout)
        self.assertEqual(sample["checksum"], sum_of(BYTES["epoch.7"]))

    def test_elements_that_do_not_lie_in_one_piece(self):
        order = self.order(["model.crossed"])
        self.fails(run("torch-mmap", self.files["pt"], order),
                   "model.crossed: its elements do not lie in one piece")

    def test_an_order_without_names_or_with_one_twice(self):
        for names in ([], ["scalar", "scalar"]):
            self.fails(run("torch-mmap", self.files["pt"], self.order(names)),
                       "order.json: must name tensors, none of them twice")

    def test_wrong_usage(self):
        for arguments in ((), ("torch-map", "a", "b"), ("torch-mmap", "a"), ("--list", "a")):
            self.assertEqual(run(*arguments).returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
