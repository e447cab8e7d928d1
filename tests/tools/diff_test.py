#!/usr/bin/env python3
"""The command `weightmap diff`.

    diff_test.py ROOT WEIGHTMAP MAKE_CHECKPOINT
"""

import collections
import datetime
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
import unittest
import zipfile

from tool_case import DATA, ENVIRONMENT, MAKER, TOOL, ToolCase


class Case(ToolCase):
    words = ("diff",)

    def copy(self, source, name, **records):
        """A fixture with other records, each made of its bytes by a function."""
        changes = {key.replace("data_", "data/").replace("pickle", "data.pkl"): change
                   for key, change in records.items()}
        with zipfile.ZipFile(DATA / source) as old:
            with zipfile.ZipFile(self.folder / name, "w") as new:
                for entry in old.infolist():
                    record = entry.filename.split("/", 1)[1]
                    content = old.read(entry)
                    new.writestr(entry.filename, changes.pop(record, bytes)(content))
        self.assertEqual(changes, {})
        return name

    def value(self, name, value, protocol=2):
        """A checkpoint without tensors."""
        return self.copy("no_tensors.pt", name, pickle=lambda _: pickle.dumps(value, protocol))

    def document(self, *arguments, **options):
        return super().document("--json", *arguments, **options)

    def values(self, old, new, protocol=2):
        """Rows of the document: (name, change, old, new), ... where there is one."""
        document = self.document(self.value("old.pt", old, protocol),
                                 self.value("new.pt", new, protocol))
        return [tuple(row.values()) for row in document["values"]]


def replacing(old, new):
    def replace(content):
        assert content.count(old) == 1, (content.count(old), old)
        return content.replace(old, new)
    return replace


def with_floats(changes, code="<f"):
    """The elements at some indices are other ones."""
    def change(content):
        content = bytearray(content)
        for index, value in changes.items():
            struct.pack_into(code, content, index * struct.calcsize(code), value)
        return bytes(content)
    return change


class Tensors(Case):
    def test_a_file_has_no_difference_to_itself(self):
        shutil.copy(DATA / "training.pt", self.folder / "one.pt")
        os.link(self.folder / "one.pt", self.folder / "link.pt")
        self.prints("17 tensors: 17 equal; values: equal\n", "--exit-code", "one.pt", "link.pt")

    def test_every_fixture_equals_a_copy_of_it(self):
        for name in sorted(path.name for path in DATA.glob("*.pt")):
            if subprocess.run([TOOL, "ls", "--info", DATA / name], env=ENVIRONMENT,
                              capture_output=True).returncode:
                continue
            with self.subTest(name):
                shutil.copy(DATA / name, self.folder / "copy.pt")
                done = self.run_tool("--exit-code", DATA / name, "copy.pt")
                self.assertRegex(done.stdout,
                                 r"^(\d+) tensors?: \1 equal; values: equal\n|0 tensors; values: equal\n$")
                self.assertEqual((done.stderr, done.returncode), ("", 0))

    def test_differing_elements(self):
        old = self.copy("state_dict.pt", "old.pt",
                        data_0=with_floats({0: 1.0, 5: 1.0, 7: 1.0, 8: 1.0, 9: 0.0}))
        new = self.copy("state_dict.pt", "new.pt",
                        data_0=with_floats({0: 1.25, 5: 1.5, 7: 0.5, 8: float("nan"), 9: -0.0}))
        self.prints(
            "NAME              CHANGE   OLD             NEW             DIFFERING  COUNT  NAN/INF  LARGEST  AT\n"
            "embedding.weight  changed  float32 [6, 4]  float32 [6, 4]          5     24        1      0.5  [1, 1]\n"
            "7 tensors: 6 equal, 1 changed; values: equal\n",
            old, new)
        self.assertEqual(self.document(old, new), {
            "old": "old.pt", "new": "new.pt", "equal": False,
            "counts": {"tensors": {"equal": 6, "changed": 1, "renamed": 0, "removed": 0, "added": 0,
                                   "not_compared": 0},
                       "values": {"changed": 0, "removed": 0, "added": 0, "not_compared": 0}},
            "tensors": [{
                "change": "changed",
                "old": {"name": "embedding.weight", "dtype": "float32", "shape": [6, 4]},
                "new": {"name": "embedding.weight", "dtype": "float32", "shape": [6, 4]},
                "count": 24, "differing": 5, "same_value": 1, "not_finite": 1, "largest": 0.5,
                "at": [1, 1]}],
            "values": []})

    def test_an_integer_is_told_exactly(self):
        old = self.copy("state_dict.pt", "old.pt", data_5=lambda _: struct.pack("<q", -1))
        new = self.copy("state_dict.pt", "new.pt", data_5=lambda _: struct.pack("<q", 2**62))
        [row] = self.document(old, new, "steps")["tensors"]
        self.assertEqual((row["largest"], row["at"]), (2**62 + 1, []))

    def test_a_conversion_is_compared_by_value(self):
        def halved(content):
            return b"".join(content[at + 2:at + 4] for at in range(0, len(content), 4))
        exact = with_floats({i: float(i) for i in range(24)})
        inexact = with_floats({i: i + (1 / 256 if i == 6 else 0) for i in range(24)})
        old = self.copy("state_dict.pt", "old.pt", data_0=exact)
        other = self.copy("state_dict.pt", "other.pt", data_0=inexact)
        new = self.copy("state_dict.pt", "new.pt", data_0=lambda content: halved(exact(content)),
                        pickle=replacing(b"ctorch\nFloatStorage\n", b"ctorch\nBFloat16Storage\n"))
        self.prints(
            "NAME              CHANGE   OLD             NEW              DIFFERING  COUNT  NAN/INF  LARGEST  AT\n"
            "embedding.weight  changed  float32 [6, 4]  bfloat16 [6, 4]          0     24        0        -  -\n"
            "1 tensor: 1 changed\n",
            old, new, "embedding.*")
        self.prints(
            "NAME              CHANGE   OLD             NEW              DIFFERING  COUNT  NAN/INF     LARGEST  AT\n"
            "embedding.weight  changed  float32 [6, 4]  bfloat16 [6, 4]          1     24        0  0.00390625  [1, 2]\n"
            "1 tensor: 1 changed\n",
            other, new, "embedding.*")

    def test_another_type_or_shape_is_told_without_elements(self):
        old = self.copy("state_dict.pt", "old.pt")
        new = self.copy("state_dict.pt", "new.pt",
                        pickle=lambda content: replacing(b"K\x06K\x04\x86", b"K\x04K\x06\x86")(
                            replacing(b"ctorch\nLongStorage\n", b"ctorch\nDoubleStorage\n")(
                                content)))
        self.prints(
            "NAME              CHANGE   OLD             NEW             DIFFERING  COUNT  NAN/INF  LARGEST  AT\n"
            "embedding.weight  changed  float32 [6, 4]  float32 [4, 6]          -      -        -        -  -\n"
            "steps             changed  int64 []        float64 []              -      -        -        -  -\n"
            "7 tensors: 5 equal, 2 changed; values: equal\n",
            old, new)
        shaped, typed = self.document(old, new)["tensors"]
        self.assertEqual(shaped, {
            "change": "changed",
            "old": {"name": "embedding.weight", "dtype": "float32", "shape": [6, 4]},
            "new": {"name": "embedding.weight", "dtype": "float32", "shape": [4, 6]}})
        self.assertEqual(typed["error"], {
            "code": "unsupported", "file_offset": None,
            "message": "elements of int64 and float64 are not compared: not both are floating point"})

    def test_a_tensor_of_the_same_bits_was_renamed(self):
        old = self.copy("state_dict.pt", "old.pt")
        renamed = replacing(b"layers.0.weight", b"blocks.0.weight")
        new = self.copy("state_dict.pt", "new.pt", pickle=renamed)
        self.prints(
            "NAME             CHANGE   OLD              NEW              DIFFERING  COUNT  NAN/INF  LARGEST  AT\n"
            "layers.0.weight  renamed  bfloat16 [4, 4]  blocks.0.weight          -      -        -        -  -\n"
            "7 tensors: 6 equal, 1 renamed; values: equal\n",
            old, new)
        other = self.copy("state_dict.pt", "other.pt", pickle=renamed,
                          data_1=with_floats({0: 7}, "<H"))
        self.prints(
            "NAME             CHANGE   OLD              NEW              DIFFERING  COUNT  NAN/INF  LARGEST  AT\n"
            "layers.0.weight  removed  bfloat16 [4, 4]  -                        -      -        -        -  -\n"
            "blocks.0.weight  added    -                bfloat16 [4, 4]          -      -        -        -  -\n"
            "8 tensors: 6 equal, 1 removed, 1 added; values: equal\n",
            old, other)

    def test_the_key_of_a_string_is_no_index(self):
        key = b"X\x05\0\0\0steps"
        old = self.copy("state_dict.pt", "old.pt", pickle=replacing(key, b"X\x01\0\0\x007"))
        new = self.copy("state_dict.pt", "new.pt", pickle=replacing(key, b"K\x07"))
        self.prints("7 tensors: 6 equal, 1 renamed; values: equal\n", "-q", old, new)
        other = self.copy("state_dict.pt", "other.pt", pickle=replacing(key, b"K\x07"),
                          data_5=with_floats({0: 8}, "<q"))
        self.prints("8 tensors: 6 equal, 1 removed, 1 added; values: equal\n", "-q", old, other)

    def test_paths_are_names_where_one_side_has_only_names(self):
        for source in ("list_root.pt", "training.pt"):
            subprocess.run([TOOL, "convert", DATA / source, self.folder / "x.safetensors"],
                           env=ENVIRONMENT, check=True, capture_output=True)
            for sides in ((DATA / source, "x.safetensors"), ("x.safetensors", DATA / source)):
                tensors = self.document(*sides)["counts"]["tensors"]
                self.assertEqual({change: count for change, count in tensors.items()
                                  if count and change != "equal"}, {})
                self.assertGreater(tensors["equal"], 0)

    def test_many_tensors_of_one_shape_that_were_renamed(self):
        subprocess.run([MAKER, self.folder / "old.pt", "--count", "300", "--shape", "4x4"],
                       check=True)
        with zipfile.ZipFile(self.folder / "old.pt") as old:
            names = [tensor["name"] for tensor in json.loads(subprocess.run(
                [TOOL, "ls", "--json", self.folder / "old.pt"], env=ENVIRONMENT, check=True,
                capture_output=True).stdout)["tensors"]]
            with zipfile.ZipFile(self.folder / "new.pt", "w") as new:
                for entry in old.infolist():
                    content = old.read(entry)
                    if entry.filename.endswith("data.pkl"):
                        for name in names:
                            content = content.replace(
                                struct.pack("<I", len(name)) + name.encode(),
                                struct.pack("<I", len(name)) + b"Z" + name.encode()[1:])
                    new.writestr(entry.filename, content)
        self.prints("300 tensors: 300 renamed; values: equal\n", "--quiet", "old.pt", "new.pt")

    def test_lazy_conjugates(self):
        self.prints("1 tensor: 1 equal\n", DATA / "conjugate.pt",
                    self.copy("conjugate.pt", "copy.pt"), "conjugate")

    def test_patterns_choose_tensors_and_leave_values_out(self):
        old = self.copy("training.pt", "old.pt", pickle=replacing(b"tiny", b"wide"))
        self.prints("2 tensors: 2 equal\n", old, DATA / "training.pt", "model.0.*")
        self.prints("17 tensors: 17 equal; values: 1 changed\n", "-q", old, DATA / "training.pt")

    def test_a_pattern_may_match_in_one_file_only(self):
        done = self.run_tool("--quiet", DATA / "state_dict.pt", DATA / "parameters.pt", "leaf",
                             "steps")
        self.assertEqual((done.stdout, done.stderr), ("2 tensors: 1 removed, 1 added\n", ""))


MANY_KINDS = {"a": [1, 2.5, None, True, b"x", "y"], ("t", 1): {"set", 3}, 10**30: -(10**30)}
# Two values, and the rows of the document of their difference.
DIFFERENCES = {
    "equal values": (MANY_KINDS, MANY_KINDS, []),
    "numbers and words": (
        {"epoch": 3, "lr": 0.1, "name": "tiny", "done": False, "none": None},
        {"epoch": 4, "lr": 0.01, "name": "small", "done": True, "none": 0},
        [("epoch", "changed", 3, 4), ("lr", "changed", 0.1, 0.01), ("name", "changed", "tiny", "small"),
         ("done", "changed", False, True), ("none", "changed", None, 0)]),
    "kinds are told apart": (
        {"a": 3, "b": [1], "c": 0.0, "d": 1}, {"a": 3.0, "b": (1,), "c": -0.0, "d": True},
        [("a", "changed", 3, 3.0), ("b", "changed", {"$text": "[1]"}, {"$text": "(1,)"}),
         ("c", "changed", 0.0, -0.0), ("d", "changed", 1, True)]),
    "keys of two types are two keys": (
        {0: "a"}, {"0": "a"}, [("0", "removed", "a"), ("0", "added", "a")]),
    "the order of a dict does not matter": (
        {"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}, []),
    "a longer list": ([1, 2], [1, 3, 4], [("1", "changed", 2, 3), ("2", "added", 4)]),
    "a shorter list": ([1, 2], [1], [("1", "removed", 2)]),
    "large integers": (
        {"n": 10**30}, {"n": -(10**30)},
        [("n", "changed", {"$text": "1000000000000000000000000000000"},
          {"$text": "-1000000000000000000000000000000"})]),
    "another mapping has its items compared": (
        {"a": 1, "b": 2}, collections.OrderedDict(a=1, b=3),
        [("", "changed", {"$text": "dict, 2 items"}, {"$text": "collections.OrderedDict, 2 items"}),
         ("b", "changed", 2, 3)]),
    "objects that fit a line are told as a whole": (
        {"day": datetime.date(2024, 1, 2)}, {"day": datetime.date(2024, 1, 3)},
        [("day", "changed", {"$text": "datetime.date 2024-01-02"},
          {"$text": "datetime.date 2024-01-03"})]),
}


class Values(Case):
    def test_differences(self):
        for name, (old, new, rows) in DIFFERENCES.items():
            with self.subTest(name):
                self.assertEqual(self.values(old, new), rows)

    def test_the_table_shows_them_after_the_tensors(self):
        old = self.value("old.pt", {"epoch": 3, "betas": (0.9, 0.999), "gone": "x"})
        new = self.value("new.pt", {"epoch": 4, "betas": (0.9, 0.95), "here": [1, [2], {}]})
        self.prints(
            "NAME     CHANGE   OLD    NEW           DIFFERING  COUNT  NAN/INF  LARGEST  AT\n"
            "epoch    changed  3      4                     -      -        -        -  -\n"
            "betas.1  changed  0.999  0.95                  -      -        -        -  -\n"
            "gone     removed  'x'    -                     -      -        -        -  -\n"
            "here     added    -      [1, [2], {}]          -      -        -        -  -\n"
            "0 tensors; values: 2 changed, 1 removed, 1 added\n",
            old, new)

    def test_the_order_of_a_set_does_not_matter(self):
        # Both are for the first place of a table of eight, so that it matters which comes first.
        old, new = set([0, 1 << 45]), set([1 << 45, 0])
        self.assertNotEqual(list(old), list(new))
        for protocol in (2, 4):
            for kind in (set, frozenset):
                self.assertEqual(self.values([kind(old)], [kind(new)], protocol), [])
        self.assertEqual(self.values({"set": {1, 2}}, {"set": {1, 3}}, 4),
                         [("set", "changed", {"$text": "{1, 2}"}, {"$text": "{1, 3}"})])
        self.assertEqual(self.values({"set": {1, 2}}, {"set": {1, 3}}),
                         [("set", "changed", {"$text": "set([1, 2])"}, {"$text": "set([1, 3])"})])
        self.assertEqual([row[:2] for row in self.values([{1}], [frozenset({1})])],
                         [("0", "changed")])

    def test_long_words_that_begin_alike_differ(self):
        old, new = 5000 * "x" + "a", 5000 * "x" + "b"
        shown = {"$text": "'" + 80 * "x" + "'... (5001 bytes)"}
        self.assertEqual(self.values({"w": old}, {"w": new}), [("w", "changed", shown, shown)])
        self.assertEqual(self.values({old: 1}, {new: 1}),
                         [(200 * "x" + "...", "removed", 1), (200 * "x" + "...", "added", 1)])

    def test_values_that_contain_themselves(self):
        value = {"list": []}
        value["list"].append(value)
        self.assertEqual(self.values(value, value), [])
        other = collections.OrderedDict(list=[])
        other["list"].append(other)
        self.assertEqual([row[:2] for row in self.values(value, other)], [("", "changed")])

    def test_a_list_that_is_reached_in_many_ways(self):
        value, other = [1], [2]
        for _ in range(60):
            value, other = [value, value], [other, other]
        self.assertEqual(self.values(value, other), [(".".join(61 * "0"), "changed", 1, 2)])

    def test_values_that_are_nested_too_deeply_fail(self):
        value = []
        for _ in range(201):
            value = [value]
        old = self.value("old.pt", value)
        new = self.value("new.pt", value)
        self.fails("old.pt: the values are nested too deeply, or lead to one another in too many "
                   "ways, to be compared; with a pattern only tensors are", old, new)

    def test_the_first_thousand_are_shown(self):
        old = self.value("old.pt", list(range(1200)))
        new = self.value("new.pt", list(range(1, 1201)))
        document = self.document(old, new)
        self.assertEqual(document["counts"]["values"],
                         {"changed": 1200, "removed": 0, "added": 0, "not_compared": 0})
        self.assertEqual(len(document["values"]), 1000)
        self.prints("0 tensors; values: 1200 changed, the first 1000 are shown\n", "-q", old, new)

    def test_the_scale_of_a_quantized_tensor(self):
        def scaled(content):
            half = b"G" + struct.pack(">d", 0.5)
            self.assertEqual(content.count(half), 3)
            return content.replace(half, b"G" + struct.pack(">d", 0.25), 1)
        self.prints(
            "NAME                 CHANGE   OLD  NEW   DIFFERING  COUNT  NAN/INF  LARGEST  AT\n"
            "qint8.(quantizer).1  changed  0.5  0.25          -      -        -        -  -\n"
            "6 tensors: 6 equal; values: 1 changed\n",
            self.copy("quantized.pt", "old.pt"), self.copy("quantized.pt", "new.pt", pickle=scaled))

    def test_the_bytes_of_a_bare_storage(self):
        document = self.document(
            self.copy("bare_storages.pt", "old.pt"),
            self.copy("bare_storages.pt", "new.pt", data_0=with_floats({0: 255}, "<B")))
        self.assertEqual([tuple(row.values()) for row in document["values"]],
                         [("shared", "changed", {"$text": "a storage"}, {"$text": "a storage"})])


class Use(Case):
    def setUp(self):
        super().setUp()
        self.value("old.pt", {"epoch": 3})
        self.value("new.pt", {"epoch": 4})

    def test_the_status_tells_of_a_difference_on_request(self):
        said = "0 tensors; values: 1 changed\n"
        self.prints(said, "-q", "old.pt", "new.pt")
        self.prints(said, "-q", "--exit-code", "old.pt", "new.pt", code=1)
        self.prints("0 tensors; values: equal\n", "-q", "--exit-code", "old.pt", "old.pt")

    def test_quiet_json_has_the_counts(self):
        self.assertEqual(self.document("--quiet", "old.pt", "new.pt"), {
            "old": "old.pt", "new": "new.pt", "equal": False,
            "counts": {"tensors": {"equal": 0, "changed": 0, "renamed": 0, "removed": 0, "added": 0,
                                   "not_compared": 0},
                       "values": {"changed": 1, "removed": 0, "added": 0, "not_compared": 0}}})

    def test_tsv(self):
        titles = "NAME\tCHANGE\tOLD\tNEW\tDIFFERING\tCOUNT\tNAN/INF\tLARGEST\tAT\n"
        self.prints(titles + "epoch\tchanged\t3\t4\t-\t-\t-\t-\t-\n", "--tsv", "old.pt", "new.pt")
        self.prints(titles, "--tsv", "old.pt", "old.pt")
        new = self.copy("state_dict.pt", "b.pt", data_3=with_floats({6: 1e9}, "<d"))
        done = self.run_tool("--tsv", self.copy("state_dict.pt", "a.pt"), new)
        self.assertRegex(done.stdout.splitlines()[1],
                         r"^layers\.1\.weight\tchanged\tfloat64\[4,4\]\tfloat64\[4,4\]\t1\t16\t0\t"
                         r"1e\+09\t\[1,2\]$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
