#!/usr/bin/env python3
"""`weightmap verify` with the SHA-256 of whole files: given, in lists, and of the hub's cache.

    verify_test.py ROOT WEIGHTMAP
"""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from tool_case import DATA, ENVIRONMENT, ToolCase

from safetensors_files import file_of

COMMIT = "b" * 40


def safetensors(names, value=0):
    """Each a tensor of two float32."""
    return file_of({name: ("F32", [2], bytes([value]) * 8) for name in names})


def digest(content):
    return hashlib.sha256(content).hexdigest()


class Case(ToolCase):
    words = ("verify",)

    def setUp(self):
        super().setUp()
        self.environment = {**ENVIRONMENT, "HF_HOME": str(self.folder / "hf")}

    def verify(self, *arguments, code=0):
        done = self.ends(code, *arguments)
        return done.stdout + done.stderr


class Sealed(Case):
    def test_a_file_system_without_fs_verity_says_so(self):
        shared = pathlib.Path("/dev/shm")  # which has none
        with tempfile.TemporaryDirectory(dir=shared) as folder:
            path = pathlib.Path(folder, "a.safetensors")
            path.write_bytes(safetensors(["w"]))
            said = self.verify("--seal", path, code=1)
            self.assertIn("cannot be sealed: its file system, or the kernel, has no fs-verity", said)
            self.assertNotIn("OK", said)
            path.write_bytes(path.read_bytes())
            self.assertEqual(json.loads(self.verify("--json", path))["fs_verity"], {})

    def test_what_has_a_fault_is_not_sealed(self):
        path = self.write("a.safetensors", safetensors(["w"]))
        said = self.verify("--seal", "--sha256", "0" * 64, path, code=1)
        self.assertIn("FAILED with 1 fault", said)
        self.assertNotIn("fs-verity", said)


class Given(Case):
    FILES = ("state_dict.pt", "legacy/dict.pt", "npz/stored.npz", "scripted.pt")

    def files(self):
        found = {name: (DATA / name).read_bytes() for name in self.FILES}
        return {**found, "a.safetensors": safetensors(["w"]), "any.bin": b"of no format"}

    def test_every_format_is_compared(self):
        for name, content in self.files().items():
            with self.subTest(name):
                path = self.write("one" + pathlib.Path(name).suffix, content)
                said = self.verify("--sha256", digest(content).upper(), path)
                self.assertIn("OK SHA-256 of 1 file, 12 B; nothing else was checked: it is not a "
                              "torch checkpoint: " if name == "any.bin" else "; SHA-256 of 1 file, ", said)
                self.assertNotIn("compared with nothing", said)
                self.assertNotIn("SHA-256 " + digest(content), said)
                changed = content[:-1] + bytes([content[-1] ^ 1])
                path.write_bytes(changed)
                said = self.verify("--sha256", digest(content), path, code=1)
                self.assertIn(f"{path.name}: has the SHA-256 {digest(changed)}, and should have "
                              f"{digest(content)} (--sha256); fetch or copy it again", said)

    def test_json_says_what_was_compared(self):
        content = safetensors(["w"])
        path = self.write("a.safetensors", content)
        found = json.loads(self.verify("--json", "--sha256", digest(content), path))
        self.assertEqual((found["ok"], found["sha256"], found["bytes_not_compared"]),
                         (True, {"files": 1, "bytes": len(content)}, 0))
        found = json.loads(self.verify("--json", "--crc", path))
        self.assertEqual((found["sha256"], found["bytes_not_compared"], found["crc"]["bytes"]),
                         (None, 8, 0))

    def test_one_checksum_of_several_files_is_refused(self):
        self.write("model/model-00001-of-00002.safetensors", safetensors(["a"]))
        self.write("model/model-00002-of-00002.safetensors", safetensors(["b"]))
        self.write("model/model.safetensors.index.json", json.dumps({"weight_map": {
            "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}))
        self.assertIn("has 3 files, and --sha256 is the checksum of one; give a list of sha256sum "
                      "by --sums", self.verify("--sha256", "a" * 64, "model", code=1))


class Lists(Case):
    def model(self, value=0):
        names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
        files = {name: safetensors([f"t{i}"], value) for i, name in enumerate(names)}
        files["model.safetensors.index.json"] = json.dumps(
            {"weight_map": {f"t{i}": name for i, name in enumerate(names)}}).encode()
        for name, content in files.items():
            self.write(f"model/{name}", content)
        return files

    def test_what_sha256sum_writes_is_read(self):
        files = self.model()
        names = sorted(files)
        for options, place in (([], "model"), (["--tag"], "model"), (["-b"], "model")):
            listed = subprocess.run(["sha256sum", *options, *names], cwd=self.folder / place,
                                    capture_output=True, check=True).stdout
            self.write("model/SHA256SUMS", listed)
            self.assertIn("; SHA-256 of 3 files, ",
                          self.verify("--sums", "model/SHA256SUMS", "model"))
        listed = subprocess.run(["sha256sum", *(f"model/{name}" for name in names)],
                                cwd=self.folder, capture_output=True, check=True).stdout
        (self.folder / "elsewhere").mkdir()
        self.write("elsewhere/sums", listed.replace(b"\n", b"\r\n"))
        self.assertIn("; SHA-256 of 3 files, ", self.verify("--sums", "elsewhere/sums", "model"))

    def test_names_with_newlines_and_backslashes_are_those_of_sha256sum(self):
        name = "odd\n\\name.safetensors"
        self.write(name, safetensors(["w"]))
        listed = subprocess.run(["sha256sum", name], cwd=self.folder, capture_output=True,
                                check=True).stdout
        self.assertTrue(listed.startswith(b"\\"))
        self.write("sums", listed)
        self.assertIn("; SHA-256 of 1 file, ", self.verify("--sums", "sums", name))

    def test_a_file_that_differs_is_named_with_its_line(self):
        files = self.model()
        self.write("sums", "".join(f"{digest(content)}  model/{name}\n"
                                   for name, content in sorted(files.items())))
        self.model(value=1)
        said = self.verify("--sums", "sums", "model", code=1)
        for i in (1, 2):
            self.assertIn(f"model-0000{i}-of-00002.safetensors: has the SHA-256 ", said)
            self.assertIn(f"(sums, line {i})", said)
        self.assertTrue(said.endswith("FAILED with 2 faults\n"))

    def test_a_file_without_a_line_is_a_fault(self):
        files = self.model()
        name = sorted(files)[0]
        self.write("sums", f"{digest(files[name])}  model/{name}\n\n")
        said = self.verify("--sums", "sums", "model", code=1)
        self.assertIn("sums has no line for ", said)
        self.assertTrue(said.endswith("FAILED with 2 faults\n"))

    def test_a_line_that_is_none_is_refused(self):
        self.model()
        for line in ("x", "a" * 64, "a" * 64 + " b", "g" * 64 + "  b", "SHA256 (b) = " + "a" * 63):
            self.write("sums", f"{'a' * 64}  b\n{line}\n")
            self.assertIn("sums: line 2 is none of sha256sum's, which are 64 hexadecimal digits, "
                          "two spaces and a file's name",
                          self.verify("--sums", "sums", "model", code=1))

    def test_a_list_that_is_not_there_is_an_error(self):
        self.model()
        self.assertIn("sums: ", self.verify("--sums", "sums", "model", code=1))


class Hub(Case):
    def cached(self, content, blob, link=None):
        """acme/tiny, one file of which is a link to that blob."""
        model = "hf/hub/models--acme--tiny"
        self.write(f"{model}/blobs/{blob}", content)
        self.write(f"{model}/refs/main", COMMIT)
        snapshot = self.folder / model / "snapshots" / COMMIT
        snapshot.mkdir(parents=True, exist_ok=True)
        os.symlink(link or f"../../blobs/{blob}", snapshot / "model.safetensors")
        return snapshot / "model.safetensors"

    def test_a_whole_blob_is_said_to_be_compared(self):
        content = safetensors(["w"])
        path = self.cached(content, digest(content))
        for name in (path, "acme/tiny", path.parent):
            said = self.verify("--crc", name)
            self.assertIn("; SHA-256 of 1 file, ", said)
            self.assertNotIn("compared with nothing", said)

    def test_a_damaged_blob_of_full_length_is_a_fault(self):
        path = self.cached(safetensors(["w"], 1), digest(safetensors(["w"])))
        for name in (path, "acme/tiny"):
            self.assertIn("(the name of its blob in the hub's cache); fetch or copy it again",
                          self.verify("--crc", name, code=1))
        # Without --crc nothing of the tensors is read, and that is said.
        self.assertIn("; 8 B not read (--crc compares the file with the SHA-256 that its blob in the "
                      "cache is named after)\n", self.verify("acme/tiny"))

    def test_a_blob_with_the_name_of_a_small_file_has_no_checksum(self):
        self.cached(safetensors(["w"]), "c" * 40)
        for options in ((), ("--crc",)):
            self.assertIn("8 B of 1 storage compared with nothing", self.verify(*options, "acme/tiny"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
