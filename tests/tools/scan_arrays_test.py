#!/usr/bin/env python3
"""The command `weightmap scan` and arrays of numpy.

    scan_arrays_test.py ROOT WEIGHTMAP
"""

import shutil
import struct
import sys
import tarfile
import unittest
import zipfile

from scan_test import DATA, EVIL, HARMLESS, UNKNOWN, Case


class Arrays(Case):
    """Arrays of numpy: safe if whole; one of objects is a pickle, which np.load(file,
    allow_pickle=True) runs."""

    @staticmethod
    def array(descr, shape, content):
        text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
        text += " " * (-(10 + len(text) + 1) % 64) + "\n"
        return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode() + content

    def arrays(self, name, method=zipfile.ZIP_STORED, **contents):
        with zipfile.ZipFile(self.folder / name, "w", method) as target:
            for array, content in contents.items():
                target.writestr(array + ".npy", content)
        return self.folder / name

    def test_whole_arrays_are_safe(self):
        numbers = self.array("'<f4'", "(2,)", bytes(8))
        self.write("a.npy", numbers)
        self.arrays("a.npz", x=numbers, y=self.array("'<U2'", "(1,)", bytes(8)))
        self.arrays("deflated.npz", zipfile.ZIP_DEFLATED, x=numbers)
        shutil.copy(DATA / "npz" / "structure.npz", self.folder)
        self.assertEqual(set(self.verdicts(".", code=0).values()), {"safe"})
        formats = {each["file"]: each["format"] for each in self.scan(".", code=0)["files"]}
        self.assertEqual((formats["./a.npy"], formats["./a.npz"]), ("npy", "npz"))

    def test_what_is_no_array_is_judged_by_its_content(self):
        numbers = self.array("'<f4'", "(2,)", bytes(8))
        for content, verdict in ((b"About the arrays.", "safe"), (b'{"a": 1}', "safe"),
                                 (b"", "safe"), (HARMLESS, "safe"), (EVIL, "unsafe")):
            for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                with zipfile.ZipFile(self.arrays("a.npz", method, x=numbers), "a", method) as file:
                    file.writestr("README.txt", content)
                self.assertEqual(self.verdicts("a.npz", code=verdict != "safe"),
                                 {"a.npz": verdict})

    def test_a_cut_array_is_damaged(self):
        self.write("a.npy", self.array("'<f4'", "(2,)", bytes(7)))
        self.arrays("a.npz", x=self.array("'<f4'", "(2,)", bytes(7)))
        self.write("head.npy", self.array("'<f4'", "(2,)", b"")[:40])
        self.assertEqual(set(self.verdicts(".", code=1).values()), {"damaged"})

    def test_an_array_of_a_version_that_is_not_known_is_unchecked(self):
        self.write("a.npy", b"\x93NUMPY\4\0" + bytes(100))
        self.assertEqual(self.verdicts("a.npy", code=1), {"a.npy": "unchecked"})

    def test_the_pickle_of_an_array_of_objects_is_judged(self):
        """However the type is spelled, and in every place that an array may have."""
        joined = ("'obj' 'ect'", "[('a','obj' 'ect')]", '"o"\'bject\'', r"'|\x4f'", r"'\157bject'")
        for descr in ("'|O'", "'O'", "'object'", "[('a', '<f4'), ('b', '|O')]", *joined,
                      str([(f"f{n}", "<f4") for n in range(300)] + [("b", "|O")])):
            for pickled, verdict in ((HARMLESS, "safe"), (EVIL, "unsafe"),
                                     (UNKNOWN, "unsafe"),
                                     (b"cposix\nsystem\n(S'id'\ntR.", "unsafe")):
                if verdict == "safe" and descr in ("'O'", "'object'", *joined):
                    continue  # numpy reads these and does not write them
                with self.subTest(descr=descr[:30], pickled=pickled):
                    content = self.array(descr, "(1,)", pickled)
                    folder = self.folder / "all"
                    shutil.rmtree(folder, ignore_errors=True)
                    self.write("all/a.npy", content)
                    self.arrays("all/a.npz", x=content)
                    self.arrays("all/deflated.npz", zipfile.ZIP_DEFLATED, x=content)
                    self.arrays("all/inner.npz", x=self.array("'<f4'", "()", bytes(4)))
                    with tarfile.open(folder / "a.tar", "w") as target:
                        target.add(folder / "a.npy", arcname="a.npy")
                    found = self.verdicts("all", code=1 if verdict == "unsafe" else 0)
                    self.assertEqual(found.pop("all/inner.npz"), "safe")
                    self.assertEqual(set(found.values()), {verdict})
        said = self.scan("all/a.npz", code=1)["files"][0]["unsafe"][0]
        self.assertEqual((said["global"], said["record"]), ("posix.system", "x.npy"))

    def test_numpys_own_objects_are_plain_data(self):
        shutil.copy(DATA / "npz" / "objects.npz", self.folder)
        self.assertEqual(self.verdicts("objects.npz", code=0), {"objects.npz": "plain data"})

    def test_an_array_of_objects_without_its_pickle_is_damaged(self):
        self.write("a.npy", self.array("'|O'", "(1,)", b"\0\1\2"))
        self.assertEqual(self.verdicts("a.npy", code=1), {"a.npy": "damaged"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
