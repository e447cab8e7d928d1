#!/usr/bin/env python3
"""What the tool says of safetensors files, sets of shards, folders and models in the hub cache.

    sets_test.py ROOT WEIGHTMAP
"""

import json
import os
import struct
import subprocess
import sys
import unittest

from tool_case import ENVIRONMENT, TOOL, ToolCase

import safetensors_files

INDEX = "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def shard_of(tensors):
    tensors = {name: safetensors_files.floats(*values) for name, values in tensors.items()}
    return safetensors_files.file_of(tensors, {"format": "pt"}, align=64)


class Case(ToolCase):
    # In which nothing leads to a cache of the hub.
    environment = {key: text for key, text in ENVIRONMENT.items()
                   if not key.startswith(("HF_", "HUGGINGFACE_", "XDG_CACHE"))}

    def setUp(self):
        super().setUp()
        self.model = self.folder / "model"
        self.model.mkdir()
        tensors = ({"l.0": [1, 2], "l.1": [3]}, {"l.2": [4, 5, 6], "stale": [9]})
        for shard, content in zip(SHARDS, tensors):
            (self.model / shard).write_bytes(shard_of(content))
        weight_map = {"l.0": SHARDS[0], "l.1": SHARDS[0], "l.2": SHARDS[1]}
        index = {"metadata": {"total_size": 24}, "weight_map": weight_map}
        (self.model / INDEX).write_text(json.dumps(index))

    def first_name(self, done):
        return done.stdout.splitlines()[1].split("\t")[0]

    def lines(self, *arguments, **environment):
        """Of a block of labels: label -> text."""
        text = self.text(*arguments, environment=environment)
        return {line[:12].strip(): line[12:] for line in text.splitlines()}


class Sets(Case):
    def test_ls_names_the_file_of_each_tensor(self):
        self.prints(
            "NAME  DTYPE    SHAPE  SIZE  STRIDES  STORAGE  OFFSET  FILE OFFSET  FILE\n"
            f"l.0   float32  [2]     8 B  [1]          l.0       0          200  {SHARDS[0]}\n"
            f"l.1   float32  [1]     4 B  [1]          l.1       0          208  {SHARDS[0]}\n"
            f"l.2   float32  [3]    12 B  [1]          l.2       0          200  {SHARDS[1]}\n"
            "3 tensors, 3 storages, 24 B\n",
            "ls", "--long", "model",
        )

    def test_an_index_and_its_folder_are_the_same(self):
        of_index = self.run_tool("ls", f"model/{INDEX}").stdout
        self.assertEqual(of_index, self.run_tool("ls", "model").stdout)
        self.assertIn("3 tensors, 3 storages, 24 B\n", of_index)

    def test_json_has_the_files(self):
        tensors = self.document("ls", "--json", "model")["tensors"]
        self.assertEqual(
            [tensor["file"] for tensor in tensors],
            [str(self.model / shard) for shard in (SHARDS[0], SHARDS[0], SHARDS[1])],
        )
        info = self.document("ls", "--info", "--json", "model")
        names = (INDEX, *SHARDS)
        self.assertEqual(
            info["files"],
            [{"path": str(self.model / name), "bytes": (self.model / name).stat().st_size}
             for name in names],
        )
        self.assertEqual((info["format"], info["tensors_not_indexed"]), ("safetensors", 1))
        self.assertNotIn("file", self.document("ls", "--json", f"model/{SHARDS[0]}")["tensors"][0])

    def test_info_says_what_is_left_out(self):
        lines = self.lines("ls", "--info", "model")
        self.assertEqual(
            lines["files"],
            f"3 in {self.model}, of which {INDEX} names the others; 1 tensor that it does not name "
            "left out",
        )
        self.assertEqual(lines["format"], "safetensors")
        self.assertNotIn("files", self.lines("ls", "--info", f"model/{SHARDS[1]}"))

    def test_cat_tree_and_verify(self):
        self.prints("l.2: float32 [3]\n[4. 5. 6.]\n", "cat", "model", "l.2")
        self.prints(
            "dict, 1 item\n  total_size: 24\n3 tensors\n  l.0: float32 [2], 8 B\n"
            "  l.1: float32 [1], 4 B\n  l.2: float32 [3], 12 B\n",
            "tree", "model",
        )
        self.prints("1 tensor\n  l.2: float32 [3], 12 B\n", "tree", "model", "l.2")
        self.prints("3 tensors\n", "tree", "--depth", 0, "model", "l")
        self.fails('model: has nothing of the name "l.3"; weightmap tree shows all', "tree", "model", "l.3")
        shown = self.document("tree", "--json", "model", "l.1")
        self.assertEqual((shown["value"], shown["tensors"]),
                         (None, [{"$tensor": "l.1", "dtype": "float32", "shape": [1]}]))
        self.prints(
            "OK 3 storages, every offset against the header of its file; 24 B of 3 storages compared "
            "with nothing: they have no CRC (--sha256 or --sums compares whole files)\n",
            "verify", "model",
        )

    def test_a_missing_shard_is_named_with_the_index(self):
        (self.model / SHARDS[1]).unlink()
        self.fails(
            f"model/{SHARDS[1]}: cannot open the file: No such file or directory; the index "
            f"model/{INDEX} names it",
            "ls", "model",
        )

    def test_a_missing_tensor_is_named_with_its_file(self):
        index = json.loads((self.model / INDEX).read_text())
        index["weight_map"]["l.9"] = SHARDS[1]
        text = json.dumps(index)
        (self.model / INDEX).write_text(text)
        self.fails(
            f'model/{INDEX}: the index has tensor "l.9" in "{SHARDS[1]}", which has no such tensor '
            f"(at byte {text.index(chr(34) + 'l.9')})",
            "ls", "model",
        )

    def test_two_checkpoints_in_a_folder_are_named(self):
        (self.model / "other.safetensors.index.json").write_text("{}")
        self.fails(
            f'model: is a folder of several checkpoints: "{INDEX}" and '
            '"other.safetensors.index.json"; open one of them by its name',
            "ls", "model",
        )

    def test_one_file_beside_an_index_is_opened_and_the_index_is_said_to_be_left_out(self):
        (self.model / "model.safetensors").write_bytes(shard_of({"only": [1]}))
        done = self.run_tool("ls", "--tsv", "model")
        self.assertEqual((self.first_name(done), done.returncode), ("only", 0))
        self.assertEqual(
            done.stderr,
            f"weightmap: model: opened model.safetensors and left out {INDEX}: open another checkpoint "
            "of the folder by its name, or a variant by --variant\n")
        info = json.loads(self.run_tool("ls", "--info", "--json", "model").stdout)
        self.assertEqual(info["not_opened"], [INDEX])

    def test_a_variant_of_a_folder(self):
        folder = self.folder / "variants"
        folder.mkdir()
        (folder / "x.safetensors").write_bytes(shard_of({"full": [1]}))
        (folder / "x.fp16.safetensors").write_bytes(shard_of({"half": [1]}))
        done = self.run_tool("ls", "--tsv", "--variant", "fp16", "variants")
        self.assertEqual((self.first_name(done), done.stderr), ("half", ""))
        self.fails('variants: is a folder in which no checkpoint has the variant "bf16" in its name',
                   "ls", "--variant", "bf16", "variants")
        for file in ("variants/x.safetensors", "variants/x.fp16.safetensors"):
            for command in ("ls", "tree", "verify", "stats"):
                self.fails(f'{file}: is no folder, and the variant "fp16" is chosen among the files '
                           "of one: name the file that has it", command, "--variant", "fp16", file)

    def test_verify_counts_names_of_gguf_that_llama_cpp_refuses(self):
        name = b"n" * 64
        (self.folder / "a.gguf").write_bytes(
            b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", 64) + name
            + struct.pack("<IQIQ", 1, 1, 24, 0) + bytes(64))
        done = self.run_tool("verify", "a.gguf")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("; 1 name of 64 bytes and more, which llama.cpp refuses", done.stdout)

    def test_a_part_of_a_cut_file_says_so(self):
        whole = shard_of({"w": [1, 2, 3]})
        for name, command in (
            ("x.safetensors.part1of2", "cat x.safetensors.part1of2 x.safetensors.part2of2 > x.safetensors"),
            ("x.part2of12", "cat x.part{1..12}of12 > x"),
            ("x.safetensors.part-a", "cat x.safetensors.part-* > x.safetensors"),
            ("x.gguf-split-b", "cat x.gguf-split-* > x.gguf"),
            ("x.pt.part001", "cat x.pt.part* > x.pt"),
        ):
            (self.folder / name).write_bytes(whole[:-1])
            self.assertIn("; its name says that it is a part of a file that was cut: join the parts first "
                          f"({command})", self.run_tool("ls", name).stderr)
        for name in ("x.safetensors.part", "x.partial", "x.partof2", "x.part1of", "x-split-", "x.part-abcd"):
            (self.folder / name).write_bytes(whole[:-1])
            self.assertNotIn("its name says", self.run_tool("ls", name).stderr)

    def test_a_folder_of_files_says_which_to_name(self):
        folder = self.folder / "runs"
        folder.mkdir()
        nothing = ("is a folder in which there is no checkpoint: expected an index of shards, "
                   "*.safetensors, *.bin, *.gguf, or one file of another format")
        self.fails(f"runs: {nothing}", "ls", "runs")
        for name in ("b.pt", "a.ckpt", "notes.txt"):
            (folder / name).write_bytes(b"")
        self.fails('runs: is a folder of several checkpoints: "a.ckpt" and "b.pt"; open one of them by its name',
                   "ls", "runs")

    def test_a_path_that_is_not_there_is_compared_with_those_that_are(self):
        missing = "cannot open the file: No such file or directory"
        for name in ("out.pt", "our.pt", "else.pt"):
            (self.folder / name).write_bytes(b"")
        for command in ("ls", "verify", "stats", "residency"):
            self.fails(f'outt.pt: {missing}; did you mean "out.pt"?', command, "outt.pt")
        self.fails(f'modl: {missing}; did you mean "model"?', "ls", "modl")
        self.fails(f'model/{INDEX[:-1]}: {missing}; did you mean "model/{INDEX}"?', "ls",
                   f"model/{INDEX[:-1]}")

    def test_diff_with_its_own_conversion_has_no_rows_of_the_format(self):
        for target, text in (
            ("out.pt", "1 changed, 1 removed; due to the file format alone: (root), total_size"),
            ("out.safetensors", "1 removed, 1 added; due to the file format alone: total_size, format"),
        ):
            self.run_tool("convert", "model", target)
            self.prints(f"3 tensors: 3 equal; values: {text}\n", "diff", "model", target)
        rows = self.run_tool("diff", "--tsv", "model", "out.safetensors").stdout.splitlines()[1:]
        self.assertEqual([row.split("\t")[:2] for row in rows],
                         [["total_size", "removed"], ["format", "added"]])

    def test_a_folder_of_more_shards_than_files_may_be_open_says_so(self):
        folder = self.folder / "many"
        folder.mkdir()
        for number in range(1, 61):
            shard = folder / f"m-{number:05}-of-00060.safetensors"
            shard.write_bytes(shard_of({f"t{number}": [1]}))
        done = subprocess.run(["sh", "-c", 'ulimit -n 40; exec "$0" ls many', TOOL], cwd=self.folder,
                              env=self.environment, capture_output=True, check=False, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "Too many open files with 59 more files; allow more open "
                                      r"files \(ulimit -n\)\n$")

    def test_a_shard_that_is_wrong_is_named(self):
        whole = (self.model / SHARDS[1]).read_bytes()
        (self.model / SHARDS[1]).write_bytes(whole[:-4])
        self.fails(
            f"model/{SHARDS[1]}: is truncated: the tensors have 16 bytes by the header, and there "
            "are 12 behind it; the download or copy is incomplete",
            "ls", "--info", "model",
        )


class HubCache(Case):
    def setUp(self):
        super().setUp()
        self.repository = self.folder / "hub" / "models--org--name"
        (self.repository / "blobs").mkdir(parents=True)
        (self.repository / "refs").mkdir()
        self.snapshot = self.repository / "snapshots" / "c0ffee"
        self.snapshot.mkdir(parents=True)
        for number, file in enumerate(sorted(self.model.iterdir())):
            blob = self.repository / "blobs" / f"{number:064x}"
            blob.write_bytes(file.read_bytes())
            (self.snapshot / file.name).symlink_to(f"../../blobs/{blob.name}")
        (self.repository / "refs" / "main").write_text("c0ffee")
        self.cache = {"HF_HUB_CACHE": str(self.folder / "hub")}

    def test_a_model_is_opened_by_its_name_and_shown_by_its_snapshot(self):
        for name in ("org/name", "org/name@main", "org/name@c0ffee"):
            lines = self.lines("ls", "--info", name, **self.cache)
            self.assertTrue(lines["files"].startswith(f"3 in {self.snapshot}, "), lines["files"])

    def test_what_is_not_in_the_cache_is_said(self):
        place = f"in the hub cache {self.folder}/hub, and nothing is fetched from the network"
        missing = "cannot open the file: No such file or directory"
        self.fails(
            f'org/other: {missing}; there is no model "org/other" {place}',
            "ls", "org/other", environment=self.cache,
        )
        self.fails(
            f'org/name@dev: {missing}; there is no revision "dev" of "org/name" {place}',
            "ls", "org/name@dev", environment=self.cache,
        )
        self.fails(f"model/nosuch.pt: {missing}", "ls", "model/nosuch.pt", environment=self.cache)

    def test_a_reference_of_any_length_takes_no_memory(self):
        with open(self.repository / "refs" / "main", "wb") as reference:
            reference.truncate(1 << 30)
        tool = subprocess.Popen([TOOL, "ls", "org/name"], cwd=self.folder,
                                env=self.environment | self.cache, stderr=subprocess.PIPE, text=True)
        with tool.stderr as stderr:
            self.assertIn('there is no revision "main" of "org/name"', stderr.read())
        _, tool.returncode, used = os.wait4(tool.pid, 0)
        self.assertLess(used.ru_maxrss, 512 << 10)  # KiB; also under a sanitizer

    def test_a_missing_shard_is_shown_by_its_snapshot(self):
        (self.snapshot / SHARDS[0]).unlink()
        self.fails(
            f"{self.snapshot}/{SHARDS[0]}: cannot open the file: No such file or directory; the "
            f"index {self.snapshot}/{INDEX} names it",
            "ls", "org/name", environment=self.cache,
        )

    def test_ps_shows_the_snapshot_and_not_the_blob(self):
        holder = self.start("warm", "--lock", "org/name", environment=self.cache)
        holder.stdout.readline()  # it is in memory, and mapped until this ends
        mapped = self.document("ps", "--json", "org/name", environment=self.cache)["processes"]
        files = {entry["file"] for entry in mapped if entry["pid"] == holder.pid}
        self.assertEqual(files, {str(self.snapshot / name) for name in (INDEX, *SHARDS)})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
