#!/usr/bin/env python3
"""What the commands that look say of what they do not open or do not list.

    looking_test.py ROOT WEIGHTMAP
"""

import hashlib
import json
import os
import re
import shutil
import sys
import tarfile
import unittest
import zipfile

from tool_case import DATA, ToolCase

from safetensors_files import file_of


class Columns(ToolCase):
    def test_a_tenth_of_the_rows_with_the_longest_names_shift_their_own_line_alone(self):
        names = [f"w{i}" for i in range(10)] + [f"{'m' * 88}{i:02}" for i in range(3)] + ["n" * 200]
        (self.folder / "a.safetensors").write_bytes(
            file_of({name: ("U8", [1], b"x") for name in names}))
        lines = {line.split()[0]: line for line in self.text("ls", "a.safetensors").splitlines()}
        self.assertEqual(lines["w0"].index("uint8"), 90 + 2)
        self.assertEqual(lines["n" * 200].index("uint8"), 200 + 2)


class NotListed(ToolCase):
    """Arrays that are no tensors, of numpy's own file."""

    KINDS = ("no array, pickled, compressed, of no dtype of a tensor or without elements of whole "
             "bytes")

    def setUp(self):
        super().setUp()
        for name in ("a.npz", "b.npz"):
            shutil.copy(DATA / "npz" / "objects.npz", self.folder / name)

    def test_ls_and_info_name_it(self):
        self.assertEqual(self.text("ls", "a.npz").splitlines()[-1],
                         f"not listed: 1 name, of what is {self.KINDS}: w (|O)")
        self.assertIn(f"\nnot listed  1 name, of what is {self.KINDS}: w (|O)\n",
                      self.text("ls", "--info", "a.npz"))
        self.assertEqual(json.loads(self.text("ls", "--json", "a.npz"))["unsupported"],
                         ["w (|O)"])

    def test_ls_counts_arrays_that_are_values(self):
        """In a pickle those that are no tensors, in a checkpoint all; tensors are not counted."""
        said = ("kept as values: {} of numpy (weightmap tree shows them; weightmap cat and root() "
                "read them)")
        for name, arrays in (("python2_cpickle_2", "2 arrays"), ("joblib_1.1_objects", "1 array")):
            shutil.copy(DATA / "pickles" / f"{name}.pkl", self.folder)
            self.assertEqual(self.text("ls", f"{name}.pkl").splitlines()[-1],
                             said.format(arrays))
            self.assertNotIn("kept", self.text("ls", "--tsv", f"{name}.pkl"))
        encoded = b"c_codecs\nencode\n(%sX\6\0\0\0latin1tR"
        array = (b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\0t"
                 + encoded % b"X\1\0\0\0b" + b"tR(K\1(K\2tcnumpy\ndtype\n(X\2\0\0\0f4K\0K\1tR(K\3"
                 b"X\1\0\0\0<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89"
                 + encoded % (b"X\x08\0\0\0" + bytes(8)) + b"tb")
        for root, arrays in ((b"](%be", "1 array"), (b"](%bq\0h\0e", "1 array"),
                             (b"](%b%be", "2 arrays"), (b"]q\1(h\1%be", "1 array"),
                             (b"}(X\1\0\0\0a%bu", "1 array")):
            with zipfile.ZipFile(self.folder / "x.pt", "w") as target:
                target.writestr("x/data.pkl", b"\x80\2" + root.replace(b"%b", array) + b".")
                target.writestr("x/version", "3\n")
            self.assertEqual(self.text("ls", "x.pt").splitlines()[-1], said.format(arrays))
        shutil.copy(DATA / "training.pt", self.folder)
        self.assertNotIn("kept", self.text("ls", "training.pt"))

    def test_cat_says_why_it_is_none(self):
        self.fails(f"a.npz: has w (|O), which is not listed as a tensor: it is {self.KINDS}",
                   "cat", "a.npz", "w")

    def test_what_is_no_array_in_an_archive_of_arrays_is_named(self):
        with zipfile.ZipFile(DATA / "npz" / "stored.npz") as source:
            array = source.read("mask.npy")
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            with zipfile.ZipFile(self.folder / "c.npz", "w", method) as target:
                target.writestr("notes/", "")
                target.writestr("README.txt", "About the arrays.")
                target.writestr("mask.npy", array)
                target.writestr("notes/a.json", "{}")
            lines = self.text("ls", "c.npz").splitlines()
            self.assertEqual(lines[1].split()[0], "mask")
            self.assertEqual(lines[-1], f"not listed: 2 names, of what is {self.KINDS}: "
                             "README.txt (no .npy array), notes/a.json (no .npy array)")
            self.fails("c.npz: has README.txt (no .npy array), which is not listed as a tensor: "
                       f"it is {self.KINDS}", "cat", "c.npz", "README.txt")

    def test_tree_says_what_it_does_not_show(self):
        self.assertEqual(self.text("tree", "a.npz"), f"{{}}\nnot shown: 1 name, of what is {self.KINDS}: w (|O)\n")

    def test_diff_does_not_call_it_equal(self):
        said = "weightmap: w (|O): not compared: it is not listed as a tensor\n"
        self.assertEqual(self.text("diff", "a.npz", "b.npz", code=1, stderr=said),
                         "0 tensors; values: 1 not compared\n")
        self.assertIs(json.loads(self.text("diff", "--json", "a.npz", "b.npz", code=1,
                                             stderr=said))["equal"], False)
        os.remove(self.folder / "b.npz")
        os.link(self.folder / "a.npz", self.folder / "b.npz")
        self.text("diff", "a.npz", "b.npz")


class Verified(ToolCase):
    def test_offsets_are_compared_with_what_the_file_has(self):
        for name, said in (
            ("state_dict.pt", "its local header"), ("npz/stored.npz", "its local header"),
            ("legacy/dict.pt", "what its file says"), ("pickles/joblib_1.6.pkl", "what its file says"),
        ):
            self.assertIn(f", every offset against {said}", self.text("verify", DATA / name))


class LoneFiles(ToolCase):
    """A folder in which one file is the model, whatever its format."""

    def test_a_file_that_opens_opens_as_its_folder(self):
        for name in ("state_dict.pt", "npz/stored.npz", "legacy/dict.pt", "pickles/joblib_1.6.pkl"):
            source = DATA / name
            for ending in (source.suffix, ".ckpt"):
                folder = self.folder / f"{source.stem}{ending}"
                folder.mkdir()
                (folder / "config.json").write_text("{}")
                shutil.copy(source, folder / f"thing{ending}")
                self.assertEqual(self.text("ls", folder.name), self.text("ls", source))
                self.assertEqual(json.loads(self.text("ls", "--info", "--json", folder.name))["files"][0]["path"],
                                 str(folder / f"thing{ending}"))

    def test_a_file_that_does_not_is_named_with_what_to_do(self):
        folder = self.folder / "nemo"
        folder.mkdir()
        (folder / "model.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(600))
        self.fails("nemo/model.h5: is an HDF5 file, as Keras writes models and weights (.h5); load it with "
                   "keras or h5py, and save its arrays as safetensors", "ls", "nemo")


class Archives(ToolCase):
    """Of other programs: sound, but no checkpoint."""

    def test_verify_says_what_it_is_and_what_is_in_it(self):
        with tarfile.open(self.folder / "x.nemo", "w") as made:
            made.add(DATA / "state_dict.pt", "./model_weights.ckpt")
            made.add(DATA / "manifest.json", "./model_config.yaml")
        with zipfile.ZipFile(self.folder / "x.mar", "w", zipfile.ZIP_DEFLATED) as made:
            made.writestr("MAR-INF/MANIFEST.json", "{}")
            made.write(DATA / "state_dict.pt", "x.pt")
        for name, said in (
            ("x.nemo", 'is a tar archive with "model_weights.ckpt", "model_config.yaml"; open what is a '
                       "checkpoint in it as FILE//MEMBER"),
            ("x.mar", 'is a model archive of TorchServe (.mar) with "x.pt"; unzip it, and open the file '
                      "of weights"),
        ):
            content = (self.folder / name).read_bytes()
            self.fails(f"{name}: {said}", "verify", name)
            self.fails(f"{name}: {said}", "ls", name)
            self.assertRegex(
                self.text("verify", "--sha256", hashlib.sha256(content).hexdigest(), name),
                f"^OK SHA-256 of 1 file, .*; nothing else was checked: it {re.escape(said)}\n$")
            self.assertIn("FAULT ", self.text("verify", "--sha256", "0" * 64, name, code=1))
        with zipfile.ZipFile(self.folder / "m.zip", "w", zipfile.ZIP_DEFLATED) as made:
            made.write(DATA / "state_dict.pt", "x.pt")
        self.fails("m.zip//x.pt: the zip archive has this member compressed or encrypted, so it "
                   "cannot be mapped; "
                   "extract it (unzip FILE MEMBER) and open that (at byte 0)", "verify", "m.zip//x.pt")
        self.fails("x.nemo//: the name of a member is missing behind the two slashes; the archive has "
                   '"model_weights.ckpt", "model_config.yaml"', "ls", "x.nemo//")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
