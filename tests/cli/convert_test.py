#!/usr/bin/env python3
"""The command `weightmap convert`.

    convert_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import contextlib
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

FOLDER, TOOL, MAKER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
ENVIRONMENT = {key: text for key, text in os.environ.items() if not key.startswith("WEIGHTMAP_")}


def run(*arguments):
    return subprocess.run([TOOL, *map(str, arguments)], env=ENVIRONMENT, capture_output=True,
                          text=True)


def header_of(path):
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    return json.loads(content[8:8 + length])


class Convert(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=FOLDER)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = self.folder / "model.pt"
        subprocess.run([MAKER, self.model, "--count", "5", "--shape", "16x16", "--dtype",
                        "float32"], check=True)
        self.out = self.folder / "model.safetensors"

    def convert(self, *arguments):
        result = run("convert", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def refuses(self, code, words, *arguments):
        before = sorted(os.listdir(self.folder))
        result = run("convert", *arguments)
        self.assertEqual(result.returncode, code, result.stdout)
        self.assertIn(words, result.stderr)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def contents(self, path):
        """Name, type, shape and digits of each tensor."""
        return {tensor["name"]: (tensor["dtype"], tensor["shape"],
                                 json.loads(run("cat", "--json", path, tensor["name"]).stdout)["values"])
                for tensor in json.loads(run("ls", "--json", path).stdout)["tensors"]}

    # --- what is written ------------------------------------------------------------------------

    def test_to_safetensors_and_back(self):
        self.assertEqual(self.convert(self.model, self.out), f"{self.out}\n")
        self.assertEqual(header_of(self.out)["__metadata__"], {"format": "pt"})
        self.assertEqual(self.contents(self.out), self.contents(self.model))
        for ending in ("pt", "pth", "bin"):
            back = self.folder / f"back.{ending}"
            self.assertEqual(self.convert(self.out, back), f"{back}\n")
            self.assertEqual(self.contents(back), self.contents(self.model))
            self.assertEqual(run("verify", "--crc", back).returncode, 0)
            self.assertEqual(json.loads(run("info", "--json", back).stdout)["format"], "torch_zip")

    def test_json(self):
        document = json.loads(self.convert(self.model, self.out, "--json"))
        self.assertEqual(document, {
            "file": str(self.model), "target": str(self.out), "format": "safetensors",
            "files": [str(self.out)], "tensors": 5, "bytes": self.out.stat().st_size,
            "dropped": {}, "left_out": []})
        back = self.folder / "back.pt"
        document = json.loads(self.convert(self.out, back, "--json"))
        self.assertEqual(document, {
            "file": str(self.out), "target": str(back), "format": "pt", "files": [str(back)],
            "tensors": 5, "bytes": back.stat().st_size, "dropped": {},
            "left_out": []})

    def test_sets(self):
        printed = self.convert(self.model, self.out, "--max-size", "2100")
        names = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
        names.append("model.safetensors.index.json")
        self.assertEqual(printed, "".join(f"{self.folder / name}\n" for name in names))
        index = self.folder / names[-1]
        self.assertEqual(json.loads(index.read_text()), {
            "metadata": {"total_size": 5 * 1024},
            "weight_map": {"tensor.0": names[0], "tensor.1": names[0], "tensor.2": names[1],
                           "tensor.3": names[1], "tensor.4": names[2]}})
        one = self.folder / "one.pt"
        self.convert(index, one)
        self.assertEqual(self.contents(one), self.contents(self.model))

    def test_views_and_the_other_byte_order(self):
        for name in ("views.pt", "big_endian.pt", "scalars_and_empty.pt"):
            for ending in ("safetensors", "pt"):
                to = self.folder / f"copy.{ending}"
                self.convert(DATA / name, to, *["--shared", "copy"] * (ending != "pt"))
                self.assertEqual(self.contents(to), self.contents(DATA / name))
                self.assertEqual(run("verify", to).returncode, 0)

    def test_other_values_are_left_out(self):
        self.convert(DATA / "training.pt", self.out, "--shared", "copy")
        self.assertEqual(self.contents(self.out), self.contents(DATA / "training.pt"))

    def test_what_is_not_listed_is_said_to_be_left_out(self):
        for to in (self.out, self.folder / "of_dcp.pt"):
            result = run("convert", DATA / "dcp" / "default", to, "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(json.loads(result.stdout)["left_out"], ["rank", "lr"])
            self.assertEqual(result.stderr, "weightmap: left out: 2 names, of what is pickled, "
                             "compressed or has no elements of whole bytes: rank, ...\n")
        self.assertIn("2 names, of what is pickled", run("info", DATA / "dcp" / "default").stdout)

    def test_metadata(self):
        self.convert(self.model, self.out, "--metadata", "made by=hand=s", "--metadata", "a=")
        self.assertEqual(list(header_of(self.out)["__metadata__"].items()),
                         [("format", "pt"), ("made by", "hand=s"), ("a", "")])
        self.convert(self.out, self.out, "--metadata", "format=np")
        self.assertEqual(list(header_of(self.out)["__metadata__"].items()),
                         [("format", "np"), ("made by", "hand=s"), ("a", "")])
        self.assertEqual(self.contents(self.out), self.contents(self.model))

    def test_the_format_may_be_said(self):
        to = self.folder / "weights"
        self.convert(self.model, to, "--to", "safetensors")
        self.assertIn("__metadata__", header_of(to))

    # --- shared elements ------------------------------------------------------------------------

    def tied(self):
        return DATA / "shared_list.pt"

    def test_shared_elements_are_refused(self):
        self.refuses(1, "which safetensors cannot say; ask for shared=", self.tied(), self.out)

    def test_shared_elements_are_dropped_or_copied(self):
        result = json.loads(self.convert(self.tied(), self.out, "--shared", "drop", "--json"))
        metadata = header_of(self.out)["__metadata__"]
        self.assertEqual(metadata, {"format": "pt"} | result["dropped"])
        self.assertTrue(result["dropped"])
        kept = self.contents(self.out)
        self.assertEqual(len(kept), result["tensors"])
        self.convert(self.tied(), self.out, "--shared", "copy")
        every = self.contents(self.out)
        self.assertEqual(every, self.contents(self.tied()))
        for name, first in result["dropped"].items():
            self.assertNotIn(name, kept)
            self.assertEqual(every[name], kept[first])
        printed = self.convert(self.tied(), self.out, "--shared", "drop")
        name, first = next(iter(result["dropped"].items()))
        self.assertIn(f"{name} is {first}, and in the metadata only\n", printed)

    def test_a_pt_file_keeps_ties(self):
        to = self.folder / "tied.pt"
        self.convert(self.tied(), to)
        self.assertEqual(self.contents(to), self.contents(self.tied()))
        storages = {tensor["storage"]
                    for tensor in json.loads(run("ls", "--json", to).stdout)["tensors"]}
        self.assertLess(len(storages), len(self.contents(to)))

    # --- refusals -------------------------------------------------------------------------------

    def test_types_that_cannot_be_written(self):
        self.refuses(1, "which safetensors has not", DATA / "quantized.pt", self.out)
        self.refuses(1, "whose scales are not in a dict of tensors", DATA / "quantized.pt",
                     self.folder / "q.pt")

    def test_lazy_conjugates(self):
        self.refuses(1, "conjugate", DATA / "conjugate.pt", self.out)
        self.refuses(1, "conjugate", DATA / "conjugate.pt", self.folder / "c.pt")

    def test_wrong_usage(self):
        self.refuses(2, "must end in .safetensors, .pt, .pth or .bin", self.model,
                     self.folder / "model.gguf")
        to = self.folder / "other.pt"
        self.refuses(2, "--max-size: is for safetensors only; weightmap split", self.model, to,
                     "--max-size", "1G")
        self.refuses(2, "--metadata: is for safetensors only", self.model, to, "--metadata", "a=b")
        self.refuses(2, "--shared: is for safetensors only", self.model, to, "--shared", "drop")
        self.refuses(2, "must be like KEY=TEXT", self.model, self.out, "--metadata", "a")
        self.refuses(2, "--shared", self.model, self.out, "--shared", "keep")
        self.refuses(2, "--to", self.model, self.out, "--to", "gguf")

    def test_an_interrupted_or_killed_run_leaves_the_old_file_or_the_new(self):
        subprocess.run([MAKER, self.model, "--count", "8", "--shape", "1024x1024"], check=True)
        self.convert(self.model, self.out)
        new = self.out.read_bytes()
        ended_by_it = 0
        for number in range(60):
            self.out.write_bytes(b"old")
            names = sorted(os.listdir(self.folder))
            process = subprocess.Popen([TOOL, "convert", self.model, self.out], env=ENVIRONMENT,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            with process:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(random.uniform(0, 0.06))
                process.send_signal((signal.SIGINT, signal.SIGKILL)[number % 2])
            ended_by_it += process.returncode != 0
            self.assertIn(self.out.read_bytes(), (b"old", new))
            self.assertEqual(sorted(os.listdir(self.folder)), names)
        print(f"{ended_by_it} of 60 ended by the signal", file=sys.stderr)
        self.assertGreater(ended_by_it, 0)

    def test_files_that_are_not_there(self):
        self.refuses(1, "no.pt: cannot open the file: No such file", self.folder / "no.pt", self.out)
        self.refuses(1, "No such file", self.model, self.folder / "none" / "m.safetensors")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
