#!/usr/bin/env python3
"""The command `weightmap convert`.

    convert_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import contextlib
import json
import os
import pickle
import random
import re
import signal
import struct
import subprocess
import sys
import unittest
import zipfile

from tool_case import DATA, ENVIRONMENT, FOLDER, MAKER, TOOL, ToolCase


def header_of(path):
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    return json.loads(content[8:8 + length])


class Convert(ToolCase):
    place = FOLDER

    def setUp(self):
        super().setUp()
        self.model = self.make(count=5)
        self.out = self.folder / "model.safetensors"

    def convert(self, *arguments):
        return self.ends(0, "convert", *arguments).stdout

    def refuses(self, code, words, *arguments):
        before = sorted(os.listdir(self.folder))
        self.assertIn(words, self.ends(code, "convert", *arguments).stderr)
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_values_alone_are_refused(self):
        """What holds values and no tensor would be lost; what holds nothing loses nothing."""
        words = ('has no tensors, so nothing would be written of what it holds ("epoch", "names"); '
                 "a .pt without --tensors-only keeps it, and root() and weightmap cat read it")
        for protocol in (0, 5):
            source = self.folder / "values.pkl"
            source.write_bytes(pickle.dumps({"epoch": 3, "names": ["a"]}, protocol))
            for target, *options in (["out.safetensors"], ["folder/"], ["out.pt", "--tensors-only"],
                                     ["out.safetensors.index.json"], ["x", "--to", "safetensors"]):
                self.refuses(1, words, source, f"{self.folder}/{target}", *options)
            self.convert(source, self.folder / "kept.pt")
            (self.folder / "kept.pt").unlink()
        (self.folder / "empty.pkl").write_bytes(pickle.dumps({}))
        self.convert(self.folder / "empty.pkl", self.out)
        self.assertEqual(header_of(self.out), {"__metadata__": {"format": "pt"}})

    def test_a_tensor_without_a_name_gets_that_of_its_file(self):
        for name in ("tensor_root", "parameter_root"):
            self.convert(DATA / f"{name}.pt", self.out)
            self.assertEqual(set(header_of(self.out)), {"__metadata__", name})
            self.convert(DATA / f"{name}.pt", self.folder / "out.pt", "--tensors-only")
            self.assertEqual(self.run_tool("ls", "--tsv", self.folder / "out.pt").stdout.split()[-4], name)
        self.convert(DATA / "tensor_root.pt", DATA / "parameter_root.pt", self.out)
        self.assertEqual(set(header_of(self.out)), {"__metadata__", "tensor_root", "parameter_root"})

    def make(self, name="model.pt", count=4, shape="16x16"):
        return super().make(name, count, shape)

    def listed(self, path):
        return self.document("ls", "--json", path)["tensors"]

    def contents(self, path):
        """Name, type, shape and digits of each tensor."""
        return {tensor["name"]: (tensor["dtype"], tensor["shape"],
                                 self.document("cat", "--json", path, tensor["name"])["values"])
                for tensor in self.listed(path)}

    # --- which of a folder's files, and which dtypes ----------------------------------------------

    def opaque(self, item_bytes, content):
        """An .npz with the array "a" of a type that numpy has no name for."""
        path = self.folder / "opaque.npz"
        shape = len(content) // item_bytes
        header = f"{{'descr': '|V{item_bytes}', 'fortran_order': False, 'shape': ({shape},), }}\n"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.npy", b"\x93NUMPY\x01\0" + struct.pack("<H", len(header))
                             + header.encode() + content)
        return path

    def test_a_told_dtype_is_written(self):
        path = self.opaque(2, struct.pack("<3H", 0x3F80, 0xC000, 0x7F80))
        self.refuses(1, 'the tensor "a" is of opaque[2]', path, self.out)
        for name in ("told.safetensors", "told.pt"):
            self.convert("--dtype-of", "a=bfloat16", path, self.folder / name)
            self.assertEqual(self.run_tool("cat", self.folder / name, "a").stdout,
                             "a: bfloat16 [3]\n[ 1. -2. inf]\n")

    def test_two_dtypes_of_one_array_are_refused(self):
        path = self.opaque(2, bytes(2))
        self.refuses(2, '--dtype-of: gives "a" two dtypes: bfloat16 and float16',
                     "--dtype-of", "a=bfloat16", "--dtype-of", "a=float16", path, self.out)
        self.convert("--dtype-of", "a=bfloat16", "--dtype-of", "a=bfloat16", path, self.out)

    def test_integers_of_less_than_a_byte_have_their_numbers(self):
        path = self.opaque(1, bytes(range(16)))
        for dtype, numbers in {
                "int4": [0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1],
                "uint4": list(range(16)), "int2": [0, 1, -2, -1] * 4, "uint2": [0, 1, 2, 3] * 4}.items():
            with self.subTest(dtype):
                done = self.run_tool("cat", "--dtype-of", f"a={dtype}", path, "a")
                shown = done.stdout.split("\n", 1)[1].strip("[] \n").split()
                self.assertEqual([int(word) for word in shown], numbers)

    def test_a_variant_is_converted(self):
        folder = self.folder / "variants"
        folder.mkdir()
        for name, count in (("model.safetensors", 1), ("model.fp16.safetensors", 2)):
            self.convert(self.make("made.pt", count), folder / name)
        self.convert("--variant", "fp16", folder, self.out)
        self.assertEqual(len(self.listed(self.out)), 2)
        self.refuses(1, 'no checkpoint has the variant "bf16"',
                     "--variant", "bf16", folder, self.folder / "none.safetensors")

    # --- what is written ------------------------------------------------------------------------

    def test_to_safetensors_and_back(self):
        self.assertEqual(self.convert(self.model, self.out), f"{self.out}\n")
        self.assertEqual(header_of(self.out)["__metadata__"], {"format": "pt"})
        self.assertEqual(self.contents(self.out), self.contents(self.model))
        for ending in ("pt", "pth", "bin"):
            back = self.folder / f"back.{ending}"
            self.assertEqual(self.convert(self.out, back), f"{back}\n")
            self.assertEqual(self.contents(back), self.contents(self.model))
            self.ends(0, "verify", "--crc", back)
            self.assertEqual(self.document("ls", "--info", "--json", back)["format"], "torch_zip")

    def test_json(self):
        document = json.loads(self.convert(self.model, self.out, "--json"))
        self.assertEqual(document, {
            "sources": [str(self.model)], "target": str(self.out), "format": "safetensors",
            "files": [str(self.out)], "tensors": 5, "storages": 5, "alignment": 64,
            "old_bytes": self.model.stat().st_size, "bytes": self.out.stat().st_size,
            "dropped": {}, "left_out": []})
        back = self.folder / "back.pt"
        document = json.loads(self.convert(self.out, back, "--json"))
        self.assertEqual(document, {
            "sources": [str(self.out)], "target": str(back), "format": "pt", "files": [str(back)],
            "tensors": 5, "storages": 5, "alignment": 64, "old_bytes": self.out.stat().st_size,
            "bytes": back.stat().st_size, "dropped": {}, "left_out": []})

    def test_sets(self):
        printed = self.convert(self.model, self.out, "--max-shard-size", "2100")
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
        for name in ("views.pt", "big_endian.pt", "scalars_and_empty.pt", "rezipped_deflated.pt",
                     "parameters.pt", "old_order.pt"):
            for ending, options in (("safetensors", ("--shared", "copy")),
                                    ("pt", ("--tensors-only",))):
                to = self.folder / f"copy.{ending}"
                self.convert(DATA / name, to, *options)
                self.assertEqual(self.contents(to), self.contents(DATA / name))
                self.ends(0, "verify", to)

    def test_a_torch_file_keeps_strides(self):
        to = self.folder / "copy.pt"
        self.convert(DATA / "views.pt", to, "--tensors-only")
        strides = {tensor["name"]: tensor["strides"] for tensor in self.listed(DATA / "views.pt")}
        self.assertEqual({tensor["name"]: tensor["strides"] for tensor in self.listed(to)}, strides)

    # --- what is left out -----------------------------------------------------------------------

    def left_out(self, *arguments):
        """The names, which standard error has, too."""
        result = self.ends(0, "convert", *arguments, "--json")
        names = json.loads(result.stdout)["left_out"]
        said = "weightmap: left out: " + ", ".join(names[:8])
        if len(names) > 8:
            said += ", ..."
        count = f"{len(names)} name{'s' * (len(names) != 1)}: "
        said = said.replace("left out: ", "left out: " + count, 1)
        self.assertEqual(result.stderr, said + "\n" if names else "")
        return names

    def test_other_values_are_named(self):
        names = self.left_out(DATA / "training.pt", self.out, "--shared", "copy")
        self.assertEqual(self.contents(self.out), self.contents(DATA / "training.pt"))
        flat = self.folder / "flat.pt"
        self.assertEqual(self.left_out(DATA / "training.pt", flat, "--tensors-only"), names)
        self.assertEqual(self.contents(flat), self.contents(DATA / "training.pt"))
        self.assertEqual(names, [
            "model._metadata", "optimizer.param_groups", "scheduler", "epoch", "best_loss", "name",
            "resumed_from", "finished", "big", "negative", "history.0", "history.1.0",
            "history.1.1.1", "shape", "dtype", "device", "raw", "tags", "betas"])

    def test_a_tree_without_tensors_has_one_name(self):
        names = self.left_out(self.model, DATA / "no_tensors.pt", self.out)
        self.assertEqual(names, ["epoch", "loss"])

    def test_what_has_more_to_it_than_its_parts_is_named(self):
        names = self.left_out(DATA / "sparse.pt", self.out, "--shared", "copy")
        composed = self.document("ls", "--json", DATA / "sparse.pt")["composed"]
        self.assertEqual(names, [tensor["name"] + " (all but its tensors)" for tensor in composed])

    def test_an_object_whose_tensors_are_written_is_not_said_to_be_left_out_whole(self):
        names = self.left_out(DATA / "legacy" / "module.pt", self.out, "--shared", "copy")
        self.assertTrue(self.contents(self.out))
        self.assertTrue(all(name.endswith(" (all but its tensors)") for name in names), names)
        self.assertTrue(names)

    def test_what_is_not_listed_is_said_to_be_left_out(self):
        source, to = DATA / "dcp" / "default", self.folder / "of_dcp.pt"
        self.assertEqual(self.left_out(source, self.out), ["rank", "lr"])
        self.assertEqual(self.left_out(source, to, "--tensors-only"), ["rank", "lr"])
        self.assertEqual(self.left_out(source, to), [])
        self.assertEqual(self.run_tool("cat", to, "lr").stdout, "0.1\n")
        self.assertEqual(self.run_tool("tree", to).stdout, self.run_tool("tree", source).stdout)
        self.assertNotIn("not listed", self.run_tool("ls", "--info", source).stdout)

    def test_a_program_and_its_records_are_named(self):
        names = self.left_out(DATA / "scripted.pt", self.out, "--shared", "copy")
        self.assertEqual(names[:3], ["data", "constants", "code/__torch__.py"])
        self.assertIn("constants.pkl", names)

    def test_metadata_that_a_torch_file_has_not_is_named(self):
        self.convert(self.model, self.out, "--metadata", "a=b", "--metadata", "c=d")
        self.assertEqual(self.left_out(self.out, self.folder / "x.pt"), ["a", "c"])
        self.assertEqual(self.left_out(self.out, self.out, "--metadata", "c=e"), ["c"])

    def test_tensors_of_files_that_their_index_does_not_name_are_named(self):
        self.split()
        self.change_index(lambda names: names.pop("tensor.1"))
        self.assertEqual(self.left_out(self.index, self.out), ["tensor.1"])
        self.assertEqual(len(self.contents(self.out)), 4)

    def test_a_torch_file_that_stays_one_keeps_all(self):
        for name in ("training.pt", "scripted.pt", "sparse.pt", "list_root.pt", "quantized.pt"):
            to = self.folder / name
            self.assertEqual(self.left_out(DATA / name, to), [])
            self.ends(0, "diff", "--exit-code", DATA / name, to)
        self.assertEqual(self.left_out(DATA / "legacy" / "module.pt", self.folder / "l.pt"), [])

    def test_metadata(self):
        self.convert(self.model, self.out, "--metadata", "made by=hand=s", "--metadata", "a=")
        self.assertEqual(list(header_of(self.out)["__metadata__"].items()),
                         [("format", "pt"), ("made by", "hand=s"), ("a", "")])
        self.convert(self.out, self.out, "--metadata", "format=np")
        self.assertEqual(list(header_of(self.out)["__metadata__"].items()),
                         [("format", "np"), ("made by", "hand=s"), ("a", "")])
        self.assertEqual(self.contents(self.out), self.contents(self.model))

    # --- the layout of a torch file -------------------------------------------------------------

    def test_an_order_file_puts_tensors_in_front(self):
        order = self.folder / "order"
        order.write_text("# first\ntensor.2\n*.1\n")
        for to in (self.model, self.out, self.folder / "flat.pt"):
            self.convert(self.model, to, "--order", order, *self.flat(to))
            at = {tensor["name"]: tensor["file_offset"] for tensor in self.listed(to)}
            self.assertLess(at["tensor.2"], at["tensor.1"])
            self.assertLess(at["tensor.1"], at["tensor.0"])

    def flat(self, to):
        return ["--tensors-only"] if to.name == "flat.pt" else []

    def test_the_order_of_the_file_is_the_default(self):
        to = self.folder / "copy.pt"
        self.convert(self.model, to, "--order", "file")
        self.assertEqual(to.read_bytes(), self.model.read_bytes())

    def test_damage_is_refused(self):
        [offset] = [tensor["file_offset"] for tensor in self.listed(self.model)
                    if tensor["name"] == "tensor.3"]
        content = bytearray(self.model.read_bytes())
        content[offset] ^= 1
        self.model.write_bytes(content)
        for options in ((), ("--tensors-only",), ("--max-shard-size", "2100")):
            self.refuses(1, "has CRC-32", self.model, self.folder / "copy.pt", *options)

    def test_what_fails_leaves_nothing_behind(self):
        before = self.model.read_bytes()
        for options, message in ((("--align", "100000"), "it must be a power of two"),
                                 (("--order", self.folder / "nowhere"), "No such file")):
            for more in ((), ("--tensors-only",)):
                self.refuses(1, message, self.model, self.model, *options, *more)
        self.assertEqual(self.model.read_bytes(), before)

    # --- sets of a torch file -------------------------------------------------------------------

    @property
    def shards(self):
        return self.folder / "shards"

    @property
    def index(self):
        return self.shards / "pytorch_model.bin.index.json"

    def split(self, source=None, size="2100"):  # 1024 bytes each
        return self.convert(source or self.model, f"{self.shards}/", "--to", "pt",
                            "--max-shard-size", size)

    def change_index(self, change):
        index = json.loads(self.index.read_text())
        change(index["weight_map"])
        self.index.write_text(json.dumps(index))

    def test_a_folder_gets_shards_and_their_index(self):
        printed = self.split()
        names = [f"pytorch_model-0000{i}-of-00003.bin" for i in (1, 2, 3)] + [self.index.name]
        self.assertEqual(printed, "".join(f"{self.shards / name}\n" for name in names))
        self.assertEqual(sorted(os.listdir(self.shards)), names)
        self.assertEqual(json.loads(self.index.read_text()), {
            "metadata": {"total_size": 5 * 1024},
            "weight_map": {"tensor.0": names[0], "tensor.1": names[0], "tensor.2": names[1],
                           "tensor.3": names[1], "tensor.4": names[2]}})
        self.assertTrue(self.index.read_text().startswith('{\n  "metadata": {\n    "total_size"'))
        for name in names[:3]:
            self.ends(0, "verify", "--crc", self.shards / name)

    def test_shards_are_put_together_again(self):
        self.split()
        for sources in ([self.index], [self.shards], sorted(self.shards.glob("*.bin"))):
            merged = self.folder / "merged.pt"
            report = json.loads(self.convert(*sources, merged, "--json"))
            self.assertEqual((report["tensors"], report["left_out"]), (5, []))
            self.assertEqual(self.contents(merged), self.contents(self.model))
            self.ends(0, "verify", "--crc", merged)

    def test_an_index_may_be_asked_for(self):
        for ending in ("bin", "safetensors"):
            to = self.folder / f"one.{ending}.index.json"
            one = self.folder / f"one-00001-of-00001.{ending}"
            self.assertEqual(self.convert(self.model, to), f"{one}\n{to}\n")
            self.assertEqual(self.contents(to), self.contents(self.model))

    def test_what_fits_one_file_has_no_index(self):
        self.split(size="1GB")
        self.assertEqual(os.listdir(self.shards), ["pytorch_model.bin"])
        self.assertEqual(self.contents(self.shards), self.contents(self.model))
        again = self.folder / "again.pt"
        self.convert(self.shards, again, "--align", "4096")
        self.assertEqual(self.contents(again), self.contents(self.model))
        self.convert(self.model, self.shards)  # it is there by now
        self.assertIn("model.safetensors", os.listdir(self.shards))

    def test_a_tensor_that_is_larger_has_a_shard_of_its_own(self):
        self.split(self.make("model.pt", 5, "64x64,16x16"), "6KiB")
        weight_map = json.loads(self.index.read_text())["weight_map"]
        # They are full before the shard of the small ones, which was begun earlier.
        self.assertEqual([weight_map[f"tensor.{i}"][14:19] for i in range(5)],
                         ["00001", "00004", "00002", "00004", "00003"])

    def test_tensors_that_share_a_storage_stay_in_one_shard(self):
        source = DATA / "state_dict.pt"
        self.split(source, "1")
        weight_map = json.loads(self.index.read_text())["weight_map"]
        shard_of = {}
        for tensor in self.listed(source):
            shard = weight_map[tensor["name"]]
            self.assertEqual(shard_of.setdefault(tensor["storage"], shard), shard)
        merged = self.folder / "merged.pt"
        self.convert(self.index, merged)
        self.assertEqual(self.contents(merged), self.contents(source))

    # --- several checkpoints --------------------------------------------------------------------

    def test_several_checkpoints_become_one(self):
        other = self.make("other.pt", 1)
        renamed = self.folder / "renamed.safetensors"
        self.convert(other, renamed)
        header = renamed.read_bytes().replace(b"tensor.0", b"tensor.X")
        renamed.write_bytes(header)
        self.split()
        expected = self.contents(self.model) | self.contents(renamed)
        for to in (self.out, self.folder / "all.pt"):
            self.convert(self.shards, renamed, to)
            self.assertEqual(self.contents(to), expected)
        order = self.folder / "order"
        order.write_text("tensor.X\ntensor.4\n")
        self.convert(self.shards, renamed, self.out, "--order", order)
        self.assertEqual([tensor["name"] for tensor in self.listed(self.out)][:2],
                         ["tensor.X", "tensor.4"])

    def test_a_name_that_two_files_have_is_refused(self):
        other = self.make("other.pt", 1)
        for to in (self.out, self.folder / "merged.pt"):
            self.refuses(1, f"other.pt: has tensor.0, and so has {self.model}", self.model, other,
                         to)

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
        self.convert(self.tied(), to, "--tensors-only")
        self.assertEqual(self.contents(to), self.contents(self.tied()))
        storages = {tensor["storage"] for tensor in self.listed(to)}
        self.assertLess(len(storages), len(self.contents(to)))

    def test_an_interrupted_or_killed_run_leaves_the_old_file_or_the_new(self):
        subprocess.run([MAKER, self.model, "--count", "8", "--shape", "1024x1024"], check=True)
        self.convert(self.model, self.out)
        new = self.out.read_bytes()
        ended_by_it = 0
        names = sorted(os.listdir(self.folder))
        for number in range(60):
            self.out.write_bytes(b"old")
            process = subprocess.Popen([TOOL, "convert", self.model, self.out], env=ENVIRONMENT,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            with process:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(random.uniform(0, 0.06))
                process.send_signal((signal.SIGINT, signal.SIGKILL)[number % 2])
            ended_by_it += process.returncode != 0
            self.assertIn(self.out.read_bytes(), (b"old", new))
            # A kill between two names leaves the first, which the next run removes.
            left = [name for name in os.listdir(self.folder) if name not in names]
            self.assertTrue(all(re.fullmatch(r"\.model\.safetensors\.weightmap-[0-9a-f]{16}\.tmp", name)
                                for name in left), left)
        self.convert(self.model, self.out)
        self.assertEqual(sorted(os.listdir(self.folder)), names)
        print(f"{ended_by_it} of 60 ended by the signal", file=sys.stderr)
        self.assertGreater(ended_by_it, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
