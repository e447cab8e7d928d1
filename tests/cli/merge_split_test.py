#!/usr/bin/env python3
"""The commands `weightmap merge` and `weightmap split`.

    merge_split_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import json
import os
import pathlib
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


class MergeSplit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=FOLDER)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.make("model.pt", 5)
        self.shards = self.folder / "shards"
        self.index = self.shards / "pytorch_model.bin.index.json"

    def make(self, name, count, shape="16x16"):
        path = self.folder / name
        subprocess.run([MAKER, path, "--count", str(count), "--shape", shape, "--dtype",
                        "float32"], check=True)
        return path

    def fails(self, *arguments):
        result = run(*arguments)
        self.assertEqual(result.returncode, 1, result.stdout)
        return result.stderr

    def contents(self, path):
        """Name, type, shape and digits of each tensor."""
        return {tensor["name"]: (tensor["dtype"], tensor["shape"],
                                 json.loads(run("cat", "--json", path, tensor["name"]).stdout)["values"])
                for tensor in json.loads(run("ls", "--json", path).stdout)["tensors"]}

    def split(self):  # 1024 bytes each
        result = run("split", self.file, self.shards, "--max-size", "2100")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_split_writes_shards_and_their_index(self):
        self.split()
        names = [f"pytorch_model-0000{i}-of-00003.bin" for i in (1, 2, 3)]
        self.assertEqual(sorted(os.listdir(self.shards)), [*names, self.index.name])
        self.assertEqual(json.loads(self.index.read_text()), {
            "metadata": {"total_size": 5 * 1024},
            "weight_map": {"tensor.0": names[0], "tensor.1": names[0], "tensor.2": names[1],
                           "tensor.3": names[1], "tensor.4": names[2]}})
        self.assertTrue(self.index.read_text().startswith('{\n  "metadata": {\n    "total_size"'))

    def test_merge_puts_them_together_again(self):
        self.split()
        merged = self.folder / "merged.pt"
        result = run("merge", merged, self.index)
        self.assertRegex(result.stdout, r"merged\.pt: 5 tensors of 3 files, \d+\.\d KiB\n$")
        self.assertEqual(self.contents(merged), self.contents(self.file))
        self.assertEqual(run("verify", "--crc", merged).returncode, 0)
        again = self.folder / "again.pt"
        run("merge", again, *sorted(self.shards.glob("*.bin")))
        self.assertEqual(self.contents(again), self.contents(self.file))

    def test_what_fits_one_file_has_no_index(self):
        result = run("split", self.file, self.shards, "--max-size", "1GB", "--json")
        self.assertEqual(json.loads(result.stdout), {
            "file": str(self.file), "directory": str(self.shards), "files": ["pytorch_model.bin"],
            "tensors": 5, "total_size": 5 * 1024})
        self.assertEqual(os.listdir(self.shards), ["pytorch_model.bin"])

    def test_a_tensor_that_is_larger_has_a_shard_of_its_own(self):
        self.file = self.make("model.pt", 5, "64x64,16x16")
        run("split", self.file, self.shards, "--max-size", "6KiB")
        weight_map = json.loads(self.index.read_text())["weight_map"]
        # They are full before the shard of the small ones, which was begun earlier.
        self.assertEqual([weight_map[f"tensor.{i}"][14:19] for i in range(5)],
                         ["00001", "00004", "00002", "00004", "00003"])

    def test_tensors_that_share_a_storage_stay_in_one_shard(self):
        views = json.loads(run("ls", "--json", DATA / "state_dict.pt").stdout)["tensors"]
        run("split", DATA / "state_dict.pt", self.shards, "--max-size", "1")
        weight_map = json.loads(self.index.read_text())["weight_map"]
        shard_of = {}
        for tensor in views:
            shard = weight_map[tensor["name"]]
            self.assertEqual(shard_of.setdefault(tensor["storage"], shard), shard)
        merged = self.folder / "merged.pt"
        self.assertEqual(run("merge", merged, self.index).returncode, 0)
        self.assertEqual(self.contents(merged), self.contents(DATA / "state_dict.pt"))

    def test_a_name_that_two_files_have_is_refused(self):
        other = self.make("other.pt", 1)
        message = self.fails("merge", self.folder / "merged.pt", self.file, other)
        self.assertIn("other.pt: has tensor.0, and so has ", message)
        self.assertIn("model.pt", message)
        self.assertFalse((self.folder / "merged.pt").exists())

    def test_a_file_that_is_missing_is_refused(self):
        self.split()
        (self.shards / "pytorch_model-00002-of-00003.bin").unlink()
        message = self.fails("merge", self.folder / "merged.pt", self.index)
        self.assertIn("index.json: names pytorch_model-00002-of-00003.bin for tensor.2, and there "
                      "is no such file", message)

    def change_index(self, change):
        self.split()
        index = json.loads(self.index.read_text())
        change(index["weight_map"])
        self.index.write_text(json.dumps(index))
        return self.fails("merge", self.folder / "merged.pt", self.index)

    def test_a_tensor_that_is_missing_is_refused(self):
        name = "pytorch_model-00001-of-00003.bin"
        message = self.change_index(lambda names: names.update({"head": name}))
        self.assertIn(f"says that head is in {name}, which does not have it", message)

    def test_a_tensor_that_the_index_does_not_name_is_refused(self):
        message = self.change_index(lambda names: names.pop("tensor.1"))
        self.assertRegex(message, r"00001-of-00003\.bin: has tensor\.1, for which .*index\.json "
                                  "names no file")

    def test_a_tensor_in_another_file_than_the_index_says_is_refused(self):
        message = self.change_index(
            lambda names: names.update({"tensor.0": "pytorch_model-00002-of-00003.bin"}))
        self.assertIn("names pytorch_model-00002-of-00003.bin", message)

    def test_a_file_that_is_not_beside_the_index_is_refused(self):
        message = self.change_index(lambda names: names.update({"tensor.0": "../model.pt"}))
        self.assertIn("tensor.0 is in ../model.pt, which is not a file beside the index", message)

    def test_a_name_that_the_index_has_twice_is_refused(self):
        self.split()
        self.index.write_text('{"metadata": {"a": 1}, "weight_map": {"a": "x", "b": "y", "a": "x"}}')
        self.assertIn("names a twice", self.fails("merge", self.folder / "m.pt", self.index))

    def test_what_is_no_index_is_refused(self):
        for text in ("", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}', "{" * 1000):
            path = self.folder / "x.index.json"
            path.write_text(text)
            self.assertRegex(self.fails("merge", self.folder / "m.pt", path),
                             "is not an index of shards|has no file")

    def test_what_is_no_flat_dict_is_refused_with_the_first_value_that_is_none(self):
        for fixture, message in (("list_root.pt", "is not a dict of tensors, but of kind list"),
                                 ("training.pt", "is not a dict of plain tensors: "),
                                 ("int_keys.pt", "a key is of kind integer"),
                                 ("sparse.pt", "is not a dict of plain tensors: "),
                                 ("quantized.pt", "is a tensor with more to it than its elements"),
                                 ("conjugate.pt", "is a tensor with more to it")):
            self.assertIn(message, self.fails("split", DATA / fixture, self.shards, "--max-size",
                                              "1G"), fixture)
            self.assertIn(message, self.fails("merge", self.folder / "m.pt", DATA / fixture))
        self.assertFalse(self.shards.exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
