#!/usr/bin/env python3
"""weightmap publish, and --protection, from outside.

    publish_cli_test.py ROOT WEIGHTMAP
"""

import json
import os
import shutil
import sys
import unittest
import zipfile

from tool_case import DATA, ToolCase


class Case(ToolCase):
    def setUp(self):
        super().setUp()
        shutil.copyfile(DATA / "views.pt", self.folder / "model.pt")
        shutil.copyfile(DATA / "dtypes.pt", self.folder / "next.pt")

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())


class PublishedFolder(Case):
    def setUp(self):
        super().setUp()
        for version, file in (("v1", "views.pt"), ("v2", "dtypes.pt")):
            (self.folder / version).mkdir()
            shutil.copyfile(DATA / file, self.folder / version / "model.bin")
            (self.folder / version / "config.json").write_text(version)

    def test_a_link_leads_to_the_folder(self):
        said = self.text("publish", "v1", "now")
        self.assertRegex(said, r"^now: leads to v1, [0-9.]+ KiB; it led to nothing before\n$")
        self.assertEqual(os.readlink(self.folder / "now"), "v1")
        said = self.text("publish", "v2/", "now/")
        self.assertIn(f"and led to {self.folder.resolve()}/v1; programs that have it open keep it", said)
        self.assertEqual((self.folder / "now" / "config.json").read_text(), "v2")
        self.assertEqual(os.readlink(self.folder / "now"), "v2")
        document = self.document("publish", "--json", "v1", "now")
        self.assertEqual((document["replaced"], document["copied"], document["previous"]),
                         (True, False, f"{self.folder.resolve()}/v2"))
        self.assertEqual(self.names(), ["model.pt", "next.pt", "now", "v1", "v2"])

    def test_a_folder_elsewhere_is_led_to_by_its_whole_path(self):
        (self.folder / "links").mkdir()
        self.text("publish", "v1", "links/now")
        self.assertEqual(os.readlink(self.folder / "links" / "now"), f"{self.folder.resolve()}/v1")

    def test_what_is_no_model_leaves_the_link(self):
        self.text("publish", "v1", "now")
        (self.folder / "v2" / "model.bin").write_bytes(b"PK")
        (self.folder / "empty").mkdir()
        for folder in ("v2", "empty"):
            self.ends(1, "publish", folder, "now")
            self.assertEqual(os.readlink(self.folder / "now"), "v1")

    def test_a_copy_and_what_is_no_link_are_refused(self):
        for says, words in (
            ("is a folder, which is published where it is", ("--copy", "v1", "now")),
            ("a folder is published under a link", ("v1", "v2")),
            ("a folder is published under a link", ("v1", "model.pt")),
        ):
            self.assertIn(says, self.ends(1, "publish", *words).stderr)
        self.assertEqual(self.names(), ["model.pt", "next.pt", "v1", "v2"])

    def test_another_format_is_refused(self):
        self.text("publish", "v1", "now")
        header = b'{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
        (self.folder / "v2" / "model.bin").rename(self.folder / "v2" / "gone")
        (self.folder / "v2" / "gone").unlink()
        (self.folder / "v2" / "model.safetensors").write_bytes(
            len(header).to_bytes(8, "little") + header + b"w")
        self.assertIn("is torch_zip, and the new file is safetensors", self.ends(1, "publish", "v2", "now").stderr)
        self.text("publish", "--force", "v2", "now")
        self.assertEqual(os.readlink(self.folder / "now"), "v2")

    def test_a_link_to_a_folder_is_followed_if_asked_for(self):
        (self.folder / "latest").symlink_to("v2")
        self.ends(1, "publish", "latest", "now")
        self.text("publish", "--follow", "latest", "now")
        self.assertEqual(os.readlink(self.folder / "now"), "v2")


class Publish(Case):
    def test_renames_and_says_what_it_did(self):
        content = (DATA / "dtypes.pt").read_bytes()
        size = f"{len(content) / 1024:.1f} KiB"
        self.prints(f"model.pt: {size}, renamed from next.pt; programs that have the old file open keep it\n",
                    "publish", "next.pt", "model.pt")
        self.assertEqual(self.names(), ["model.pt"])
        self.assertEqual((self.folder / "model.pt").read_bytes(), content)
        self.prints(f"new.pt: {size}, renamed from model.pt; no file had this name before\n",
                    "publish", "model.pt", "new.pt")

    def test_only_looks_whatever_the_environment_asks_for(self):
        content = bytearray((self.folder / "next.pt").read_bytes())
        document = self.document("ls", "--json", "next.pt")
        content[document["tensors"][0]["file_offset"]] ^= 1  # which only a sum of it all would tell
        (self.folder / "next.pt").write_bytes(content)
        self.text("publish", "next.pt", "model.pt", environment={
            "WEIGHTMAP_VERIFY": "crc", "WEIGHTMAP_WRITABLE": "1", "WEIGHTMAP_PROTECTION": "reflink",
            "WEIGHTMAP_POPULATE": "1"})

    def test_refuses_another_format_than_the_target_has(self):
        header = b'{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
        shutil.copyfile(self.folder / "next.pt", self.folder / "old")
        (self.folder / "w").write_bytes(len(header).to_bytes(8, "little") + header + b"w")
        rest = (", which programs that open it by this name may be unable to read: convert it first, or "
                "publish it all the same (--force, any_format)\n")
        for new, target, says in (
            ("w", "old", "is torch_zip, and the new file is safetensors"),
            ("next.pt", "w", "is safetensors, and the new file is torch_zip"),
            ("next.pt", "a.safetensors", "has the name of safetensors, and the new file is torch_zip"),
            ("next.pt", "a.SafeTensors", "has the name of safetensors, and the new file is torch_zip"),
            ("next.pt", "a.gguf", "has the name of gguf, and the new file is torch_zip"),
            ("w", "a.npz", "has the name of npz, and the new file is safetensors"),
        ):
            before = (self.names(), (self.folder / "w").read_bytes())
            self.prints("", "publish", new, target, code=1, stderr=f"weightmap: {target}: {says}{rest}")
            self.assertEqual((self.names(), (self.folder / "w").read_bytes()), before)
        self.ends(0, "publish", "--copy", "w", "a.safetensors")
        self.ends(0, "publish", "--force", "next.pt", "a.safetensors")
        self.assertEqual(self.names(), ["a.safetensors", "model.pt", "old", "w"])

    def test_replaces_a_file_that_is_no_checkpoint_or_of_the_older_torch(self):
        (self.folder / "damaged").write_bytes(b"PK")
        legacy = DATA / "legacy" / "dict.pt"
        shutil.copyfile(legacy, self.folder / "legacy")
        for target in ("damaged", "legacy"):
            self.text("publish", "--copy", "next.pt", target)

    def test_follows_a_link_to_the_new_file_where_it_is_asked_to(self):
        content = (self.folder / "next.pt").read_bytes()
        (self.folder / "blob").mkdir()
        (self.folder / "next.pt").rename(self.folder / "blob" / "1")
        (self.folder / "next.pt").symlink_to("blob/1")
        done = self.ends(1, "publish", "next.pt", "model.pt")
        self.assertIn("the new file is a symbolic link: follow it (--follow), publish a copy "
                      "(--copy), or publish ", done.stderr)
        self.ends(0, "publish", "--follow", "next.pt", "model.pt")
        self.assertEqual((self.folder / "model.pt").read_bytes(), content)
        self.assertFalse((self.folder / "model.pt").is_symlink())
        self.assertEqual(os.readlink(self.folder / "next.pt"), "blob/1")  # which is not there now
        self.assertFalse((self.folder / "blob" / "1").exists())
        self.fails("next.pt: cannot open the file: No such file or directory",
                   "publish", "--follow", "next.pt", "model.pt")

    def test_json_has_the_fields_in_order(self):
        text = self.text("publish", "--copy", "--crc", "--json", "next.pt", "model.pt")
        now = (self.folder / "model.pt").stat()
        self.assertEqual(list(json.loads(text).items()),
                         [("file", "next.pt"), ("target", "model.pt"), ("bytes", now.st_size),
                          ("replaced", True), ("copied", True), ("previous", None),
                          ("inode", now.st_ino), ("mtime_ns", now.st_mtime_ns)])
        self.assertEqual(self.names(), ["model.pt", "next.pt"])

    def test_says_that_it_was_published_where_it_cannot_be_printed(self):
        with open("/dev/full", "wb") as full:
            done = self.run_tool("publish", "next.pt", "model.pt", stdout=full)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "weightmap: model.pt was published all the same\n"
                             "weightmap: cannot write to standard output: "
                             "No space left on device\n"))
        self.assertEqual(self.names(), ["model.pt"])

    def test_refuses_a_link_and_itself(self):
        (self.folder / "link.pt").symlink_to("model.pt")
        self.fails("link.pt: is a symbolic link: publish to the file that it leads to",
                   "publish", "next.pt", "link.pt")
        self.fails("next.pt: is the same file as the new one", "publish", "next.pt", "next.pt")

    def test_refuses_what_is_no_file_of_its_own(self):
        (self.folder / "new").mkdir()
        (self.folder / "new" / "next.pt").write_bytes((self.folder / "next.pt").read_bytes())
        with zipfile.ZipFile(self.folder / "a.mar", "w") as made:
            made.writestr("MAR-INF/MANIFEST.json", "{}")
            made.write(self.folder / "next.pt", "next.pt")
        for arguments, said in (
            (("a.mar//next.pt", "model.pt"), "a.mar//next.pt: is a member of an archive: extract it, and "
                                             "publish what that makes"),
            (("next.pt", "new"), "new: is a folder: add the name that the file gets in it"),
            (("next.pt", "none/next.pt"), "none/next.pt: cannot publish to a folder that is not there: No "
                                          "such file or directory"),
        ):
            for options in ((), ("--copy",), ("--force",)):
                self.fails(said, "publish", *options, *arguments)
        self.assertEqual(self.names(), ["a.mar", "model.pt", "new", "next.pt"])


class Protection(Case):
    def mapping(self, *arguments, **environment):
        text = self.text("ls", "--info", "--json", *arguments, "model.pt", environment=environment)
        return json.loads(text)["mapping"]["protection"]

    def test_info_says_by_what_the_mapping_is_protected(self):
        self.assertEqual(self.mapping(), "map")
        self.assertEqual(self.mapping("--protection", "guard"), "guard")
        text = self.run_tool("ls", "--info", "--protection", "guard", "model.pt").stdout
        self.assertIn("\nmapping     shared, read-only, guard\n", text)

    def test_a_reflink_or_an_error_that_says_what_else_there_is(self):
        done = self.run_tool("ls", "--info", "--protection", "reflink", "model.pt")
        if done.returncode == 0:
            self.assertIn("\nmapping     shared, read-only, reflink\n", done.stdout)
            return
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("weightmap: model.pt: protection=reflink: cannot share the blocks", done.stderr)
        self.assertIn("`weightmap stage`", done.stderr)

    def test_the_environment_decides_if_the_command_does_not(self):
        self.assertEqual(self.mapping(WEIGHTMAP_PROTECTION="guard"), "guard")
        self.assertEqual(self.mapping("--protection", "map", WEIGHTMAP_PROTECTION="guard"), "map")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
