#!/usr/bin/env python3
"""The command `weightmap scan`, and the options about names.

    scan_test.py ROOT WEIGHTMAP
"""

import gzip
import io
import json
import os
import pickle
import pickletools
import shutil
import struct
import sys
import tarfile
import unittest
import zipfile

from tool_case import DATA, ToolCase

HARMLESS = b"\x80\x02]ccollections\nOrderedDict\na."
UNKNOWN = b"\x80\x02cfractions\nFraction\n."
EVIL = b"\x80\x02cposix\nsystem\nX\x02\x00\x00\x00id\x85R."


class Case(ToolCase):
    def archive(self, name, pickled=HARMLESS, **records):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as target:
            target.writestr("archive/data.pkl", pickled)
            target.writestr("archive/version", "3\n")
            for record, content in records.items():
                target.writestr(f"archive/{record}", content)
        return path

    def said(self, *arguments, code=0, **environment):
        return self.ends(code, *arguments, environment=environment).stdout

    def scan(self, *arguments, code):
        return json.loads(self.said("scan", "--json", *arguments, code=code))

    def verdicts(self, *arguments, code):
        return {each["file"]: each["verdict"] for each in self.scan(*arguments, code=code)["files"]}


class ScanOfStrangers(Case):
    def test_files_of_other_programs_are_named_as_by_open(self):
        self.write("net.xml", b"<net/>")
        for name in ("model.ckpt.data-00000-of-00001", "net.bin"):
            self.write(name, b"\1\2\3" + bytes(600))
        self.write("keras.weights.json", json.dumps(
            {"metadata": {}, "weight_map": {"/layers/dense/vars": ["m_00000.weights.h5"]}}).encode())
        with zipfile.ZipFile(self.folder / "m.skops", "w") as made:
            made.writestr("schema.json", "{}")
        for name in ("model.ckpt.data-00000-of-00001", "net.bin", "keras.weights.json", "m.skops"):
            said = json.loads(self.said("ls", "--json", name, code=1))["error"]["message"]
            [scanned] = self.scan(name, code=0)["files"]
            self.assertEqual((scanned["verdict"], scanned["error"]["message"]),
                             ("not a checkpoint", said))

    def test_programs_in_an_archive_are_named_rather_than_its_kind(self):
        with zipfile.ZipFile(self.folder / "p.whl", "w") as made:
            made.writestr("p/__init__.py", "")
        self.assertIn("programs, such as p/__init__.py, 1 record", self.said("scan", "p.whl", code=0))


class ScanOfSets(Case):
    def test_a_set_without_one_of_its_shards_is_not_safe(self):
        index = "set/pytorch_model.bin.index.json"
        for shard in ("1", "2"):
            shutil.copy(DATA / "state_dict.pt", self.archive(f"set/{shard}.bin"))
        names = {tensor["name"] for tensor in json.loads(
            self.said("ls", "--json", DATA / "state_dict.pt"))["tensors"]}
        (self.folder / "set/1.bin").unlink()
        self.write(index, json.dumps({"weight_map": dict.fromkeys(names, "2.bin")}).encode())
        self.assertEqual(self.verdicts("set", code=0), {"set/2.bin": "safe", index: "not a checkpoint"})
        self.assertIn("is the index of a set; scan its files, too", self.said("scan", index, code=0))
        self.write(index, json.dumps({"weight_map": {**dict.fromkeys(names, "2.bin"), "more": "1.bin"}}).encode())
        self.assertEqual(self.verdicts("set", code=1), {"set/2.bin": "safe", index: "damaged"})
        self.assertIn(f"is the index of a set that is not whole: set/1.bin: cannot open the file: No such "
                      f"file or directory; the index {index} names it", self.said("scan", "set", code=1))


class ScanOfDistributed(Case):
    """Folders of torch.distributed.checkpoint, each of whose items torch unpickles by itself."""

    def items(self, name, *pickles):
        content = b"".join(self.archive(f"item{n}", pickled).read_bytes()
                           for n, pickled in enumerate(pickles))
        for n in range(len(pickles)):
            (self.folder / f"item{n}").unlink()
        return self.write(name, content)

    def test_folders_of_torch_are_safe(self):
        for layout in ("default", "per_item", "per_rank", "threads"):
            verdicts = self.verdicts(DATA / "dcp" / layout, code=0)
            self.assertEqual(set(verdicts.values()), {"safe"}, verdicts)

    def test_each_item_is_read(self):
        for position in range(3):
            pickles = [HARMLESS, HARMLESS, HARMLESS]
            pickles[position] = EVIL
            self.items("d/__0_0.distcp", *pickles)
            (file,) = self.scan("d", code=1)["files"]
            self.assertEqual((file["verdict"], file["format"]), ("unsafe", "dcp"))
            (found,) = file["unsafe"]
            self.assertEqual(found["global"], "posix.system")
            content = (self.folder / "d/__0_0.distcp").read_bytes()
            self.assertEqual(found["file_offset"], content.index(b"cposix"))

    def test_a_file_that_was_cut_anywhere_within_an_item_is_damaged(self):
        path = self.items("d/__0_0.distcp", HARMLESS, HARMLESS)
        whole = path.read_bytes()
        for length in range(len(whole) // 2 + 1, len(whole), 7):
            path.write_bytes(whole[:length])
            self.assertEqual(self.verdicts(path, code=1), {str(path): "damaged"}, length)

    def test_bytes_between_items_are_damage(self):
        path = self.items("d/__0_0.distcp", HARMLESS, HARMLESS)
        content = path.read_bytes()
        middle = len(content) // 2
        path.write_bytes(content[:middle] + b"\0" * 9 + content[middle:])
        self.assertEqual(self.verdicts(path, code=1), {str(path): "damaged"})

    def test_a_folder_that_lacks_items_of_its_metadata_is_damaged(self):
        for cut in ("emptied", "removed"):
            folder = self.folder / cut
            shutil.copytree(DATA / "dcp" / "default", folder)
            file = folder / "__0_0.distcp"
            file.write_bytes(b"") if cut == "emptied" else file.unlink()
            self.assertEqual(self.verdicts(folder, code=1)[str(folder / ".metadata")], "damaged")


    def test_metadata_with_what_megatron_has_in_it_is_safe(self):
        planner = "torch.distributed.checkpoint.planner"
        megatron = "megatron.core.dist_checkpointing.strategies.torch"
        for name in (f"{planner}\nSavePlan", f"{planner}\nWriteItem", f"{planner}\nWriteItemType",
                     f"{planner}\nTensorWriteData", f"{planner}\nBytesIOWriteData",
                     f"{megatron}\nMCoreMetadata", f"{megatron}\nMCoreSavePlan"):
            folder = self.folder / name.rpartition("\n")[2]
            shutil.copytree(DATA / "dcp" / "default", folder)
            metadata = folder / ".metadata"
            content = metadata.read_bytes()
            metadata.write_bytes(content[:2] + f"c{name}\n0".encode() + content[2:])
            self.assertEqual(self.verdicts(folder, code=0)[str(metadata)], "safe", name)


class Scan(Case):
    def test_a_directory_of_safe_files_ends_with_0(self):
        self.archive("b/one.pt")
        self.archive("a/two.pt")
        self.write("a/notes.txt", b"words\n")
        self.assertEqual(
            list(self.verdicts(".", code=0).items()),
            [("./a/notes.txt", "not a checkpoint"), ("./a/two.pt", "safe"), ("./b/one.pt", "safe")],
        )
        self.assertEqual(
            self.said("scan", "a"),
            "VERDICT           FORMAT     FILE         FOUND\n"
            "not a checkpoint  -          a/notes.txt  is not a torch checkpoint: it is no zip "
            "archive (no end-of-central-directory record in its 6 bytes)\n"
            "safe              torch_zip  a/two.pt     -\n"
            "2 files, 1 safe, 1 not a checkpoint\n",
        )

    def test_an_unsafe_file_ends_with_1_and_says_which_name_stands_where(self):
        path = self.archive("evil.pt", EVIL)
        at = path.read_bytes().index(b"cposix")
        self.assertEqual(
            self.scan("evil.pt", code=1),
            {"files": [{
                "file": "evil.pt", "verdict": "unsafe", "format": "torch_zip",
                "unsafe": [{"global": "posix.system", "verdict": "harmful", "record": "data.pkl",
                            "file_offset": at, "count": 1}],
                "hidden": [], "bytes_behind": 0, "hole_bytes": 0, "code": [], "faults": [], "error": None,
             }], "all": {"unsafe": 1}},
        )
        self.assertIn(f"posix.system (harmful) at byte {at}\n",
                      self.said("scan", "evil.pt", code=1))

    def test_nothing_is_run(self):
        self.archive("evil.pt", pickle.dumps(Touches(), 2))
        self.verdicts("evil.pt", code=1)
        self.assertFalse((self.folder / "touched").exists())

    def test_an_allowed_name_is_safe_and_a_harmful_one_is_not(self):
        self.archive("unknown.pt", UNKNOWN)
        self.archive("evil.pt", EVIL)
        self.assertEqual(self.verdicts("unknown.pt", code=1), {"unknown.pt": "unsafe"})
        allow = ("--allow-global", "fractions.Fraction", "--allow-global", "posix.system")
        self.assertEqual(self.verdicts(*allow, "unknown.pt", code=0), {"unknown.pt": "safe"})
        self.assertEqual(self.verdicts(*allow, "evil.pt", code=1), {"evil.pt": "unsafe"})

    def test_hidden_pickles_are_found_and_named(self):
        self.archive("behind.pt", HARMLESS + EVIL)
        self.archive("beside.pt", HARMLESS, **{"more.pkl": EVIL})
        self.archive("quiet.pt", HARMLESS + b"xyz", **{"more.pkl": HARMLESS})
        files = {each["file"]: each for each in self.scan(".", code=1)["files"]}
        self.assertEqual(files["./behind.pt"]["verdict"], "unsafe")
        self.assertEqual([each["record"] for each in files["./behind.pt"]["hidden"]], ["data.pkl"])
        self.assertEqual([each["record"] for each in files["./beside.pt"]["hidden"]], ["more.pkl"])
        self.assertEqual(files["./quiet.pt"]["verdict"], "safe")
        self.assertEqual(files["./quiet.pt"]["bytes_behind"], 3)
        self.assertIn("3 bytes behind the pickle in data.pkl; a hidden pickle in more.pkl at byte",
                      self.said("scan", "quiet.pt"))

    def test_damaged_and_unreadable_files_end_with_1(self):
        whole = self.archive("whole.pt").read_bytes()
        self.write("cut.pt", whole[:-30])
        self.archive("stopless.pt", HARMLESS[:-1])
        os.symlink("nowhere", self.folder / "link.pt")
        verdicts = self.verdicts("cut.pt", "stopless.pt", "link.pt", "missing.pt", code=1)
        self.assertEqual(verdicts, {"cut.pt": "damaged", "stopless.pt": "damaged",
                                    "link.pt": "unreadable", "missing.pt": "unreadable"})
        self.assertEqual(self.verdicts("cut.pt", code=1), {"cut.pt": "damaged"})

    def test_an_encrypted_archive_is_neither_foreign_nor_damaged(self):
        content = bytearray(self.archive("secret.pt").read_bytes())
        entry = content.index(b"PK\x01\x02")
        content[entry + 8] |= 1
        self.write("secret.pt", content)
        self.assertEqual(self.verdicts("secret.pt", code=1), {"secret.pt": "unchecked"})

    def test_links_are_followed_into_no_directory_twice(self):
        self.archive("blobs/model")
        (self.folder / "snapshot").mkdir()
        os.symlink("../blobs/model", self.folder / "snapshot" / "model.pt")
        os.symlink("..", self.folder / "snapshot" / "up")
        os.mkfifo(self.folder / "snapshot" / "fifo")
        self.assertEqual(
            list(self.verdicts("snapshot", code=0)),
            ["snapshot/model.pt", "snapshot/up/blobs/model"],
        )

    def test_programs_in_an_archive_are_unsafe(self):
        self.assertEqual(self.scan(DATA / "torchscript.pt", code=1)["files"][0]["unsafe"], [])
        self.assertEqual(self.verdicts(DATA / "torchscript.pt", code=1),
                         {str(DATA / "torchscript.pt"): "unsafe"})
        self.assertIn("programs, such as code/", self.said("scan", DATA / "torchscript.pt",
                                                               code=1))

    def test_the_fixtures_name_what_pickletools_finds(self):
        compared = 0
        for path in sorted(DATA.glob("*.pt")):
            try:
                with zipfile.ZipFile(path) as archive:
                    (name,) = [each for each in archive.namelist() if each.endswith("/data.pkl")]
                    expected = globals_by_pickletools(archive.read(name))
            except (zipfile.BadZipFile, ValueError):  # no archive, no checksums, no data.pkl
                continue
            compared += 1
            (file,) = json.loads(self.run_tool("scan", "--names", "--json", path).stdout)["files"]
            (found,) = [each for each in file["pickles"] if each["record"] == "data.pkl"]
            with self.subTest(path.name):
                self.assertEqual([each["global"] for each in found["globals"]], expected)
        self.assertGreater(compared, 30)


def safetensors(content=bytes(8)):
    header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  '
    return struct.pack("<Q", len(header)) + header + content


def gguf(content=bytes(8)):
    """One tensor of two float32."""
    name = struct.pack("<Q", 1) + b"w"
    made = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + name + struct.pack("<IQIQ", 1, 2, 0, 0)
    return made + bytes(-len(made) % 32) + content


def legacy(content=struct.pack("<q", 2) + bytes(8)):
    """What torch.save({"w": torch.zeros(2)}) of before 1.6 writes."""
    storage = (b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x02Nt")
    tensor = (b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"QK\0K\x02\x85K\x01\x85\x89"
              b"ccollections\nOrderedDict\n)RtR")
    system = (b"\x80\x02}(X\x10\0\0\0protocol_versionM\xe9\x03X\x0d\0\0\0little_endian\x88"
              b"X\x0a\0\0\0type_sizes}u.")
    return (b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19." + b"\x80\x02M\xe9\x03." +
            system + b"\x80\x02}X\x01\0\0\0w" + tensor + b"s." +
            b"\x80\x02]X\x01\0\0\x000a." + content)


class Whole(Case):
    """Safe means whole, too."""

    def test_each_format_cut_at_any_place_is_never_safe(self):
        for name, content in (("a.safetensors", safetensors()), ("a.gguf", gguf()),
                              ("a.pt", legacy()), ("b.pt", self.archive("b.pt").read_bytes())):
            self.write(name, content)
            self.assertEqual(self.verdicts(name, code=0), {name: "safe"})
            for cut in range(16, len(content), 7):
                self.write(f"cut/{cut}-{name}", content[:cut])
        verdicts = self.verdicts("cut", code=1)
        # Of a header alone, nothing tells that it was one.
        self.assertLessEqual(set(verdicts.values()), {"damaged", "not a checkpoint"})
        for name in ("a.safetensors", "a.gguf", "a.pt", "b.pt"):
            last = max((each for each in verdicts if each.endswith(f"-{name}")),
                       key=lambda each: int(each.split("/")[1].split("-")[0]))
            self.assertEqual(verdicts[last], "damaged")

    def test_what_was_never_written_is_damaged_and_verify_says_the_same(self):
        """As a download leaves it that was cut, and whose file got its whole length."""
        size = 1 << 16
        tensors = {f"t{n}": {"dtype": "U8", "shape": [size], "data_offsets": [n * size, -~n * size]}
                   for n in range(3)}
        header = json.dumps(tensors).encode()
        header += b" " * (-(8 + len(header)) % 4096)
        content = struct.pack("<Q", len(header)) + header + b"x" * (3 * size)
        begin = len(content) - 3 * size
        for name, first, last, fault in (
            ("tail", begin + size, begin + 3 * size, True), ("all", begin, begin + 3 * size, True),
            ("end of the last", begin + 2 * size + 9000, begin + 3 * size, True),
            ("middle", begin + size, begin + 2 * size, True),
            ("within", begin + size + 8192, begin + size + 16384, False),
            ("none", begin, begin, False),
        ):
            with open(self.folder / "m.safetensors", "wb") as file:
                file.write(content[:first])
                file.seek(last)
                file.write(content[last:])
                file.truncate(len(content))
            holes = last - -(-first // 4096) * 4096
            (scanned,) = self.scan("m.safetensors", code=int(fault))["files"]
            verified = json.loads(self.said("verify", "--json", "m.safetensors",
                                                code=int(fault)))
            with self.subTest(name):
                self.assertEqual(scanned["verdict"], "damaged" if fault else "safe")
                self.assertEqual((scanned["hole_bytes"], verified["hole_bytes"]), (holes, holes))
                self.assertEqual("are holes in the file" in
                                 self.said("scan", "m.safetensors", code=int(fault)), holes > 0)
                if fault:
                    self.assertIn("was never written", scanned["faults"][0]["message"])

    def test_a_truncated_file_is_damaged_and_the_line_says_why(self):
        for name, content, why in (
            ("a.safetensors", safetensors(bytes(7)), "truncated"),
            ("a.gguf", gguf(bytes(7)), "truncated"),
            ("a.pt", legacy(struct.pack("<q", 2) + bytes(7)), "truncated"),
        ):
            self.write(name, content)
            (found,) = self.scan(name, code=1)["files"]
            self.assertEqual(found["verdict"], "damaged")
            self.assertIn(why, found["faults"][0]["message"])
            self.assertIn(why, self.said("scan", name, code=1))

    def test_a_version_that_is_not_known_is_unchecked(self):
        self.write("new.gguf", gguf().replace(b"GGUF\3", b"GGUF\x09"))
        self.assertEqual(self.verdicts("new.gguf", code=1), {"new.gguf": "unchecked"})


class Containers(Case):
    """A pickle is found in whatever archive it lies, and a healthy archive is not damaged."""

    def packed(self, wrap, members):
        """The members in an archive; wrap is a word for its kind."""
        out = io.BytesIO()
        if wrap in ("stored", "deflated"):
            how = zipfile.ZIP_STORED if wrap == "stored" else zipfile.ZIP_DEFLATED
            with zipfile.ZipFile(out, "w", how) as target:
                for name, content in members.items():
                    target.writestr(name, content)
            return out.getvalue()
        formats = {"gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT, "gz": tarfile.GNU_FORMAT,
                   "ustar": tarfile.USTAR_FORMAT}
        with tarfile.open(fileobj=out, mode="w:gz" if wrap == "gz" else "w",
                          format=formats[wrap]) as target:
            for name, content in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                target.addfile(member, io.BytesIO(content))
        return out.getvalue()

    KINDS = ("stored", "deflated", "gnu", "pax", "ustar", "gz")

    def test_a_harmful_name_is_found_in_each_kind_of_archive_in_each_other(self):
        evil = self.archive("evil.pt", EVIL).read_bytes()
        pickles = {"m.pt": evil, "blob": EVIL + bytes(9), "m.pkl": EVIL,
                   "legacy": legacy().replace(b"ccollections\nOrderedDict", b"cposix\nsystem")}
        for outer in self.KINDS:
            for inner in (None, *self.KINDS):
                for name, content in pickles.items():
                    within = {"x/notes.txt": b"words", name: content}
                    if inner:
                        within = {"inner": self.packed(inner, within), "last": bytes(70000)}
                    self.write(f"all/{outer}-{inner}-{name}", self.packed(outer, within))
        files = self.scan("all", code=1)["files"]
        self.assertEqual(len(files), 6 * 7 * 4)
        for each in files:
            with self.subTest(each["file"]):
                self.assertEqual(each["verdict"], "unsafe")
                self.assertEqual(each["unsafe"][0]["global"], "posix.system")

    def test_the_same_without_that_name_is_safe(self):
        good = self.archive("good.pt").read_bytes()
        for outer in self.KINDS:
            for inner in (None, *self.KINDS):
                within = {"x/notes.txt": b"words", "m.pt": good}
                if inner:
                    within = {"inner": self.packed(inner, within)}
                self.write(f"all/{outer}-{inner}", self.packed(outer, within))
        self.assertEqual(set(self.verdicts("all", code=0).values()), {"safe"})

    def test_an_archive_without_pickles_is_no_checkpoint(self):
        for kind in self.KINDS:
            self.write(f"all/{kind}", self.packed(kind, {"notes.txt": b"words", "b": bytes(99)}))
        self.assertEqual(set(self.verdicts("all", code=0).values()), {"not a checkpoint"})
        self.assertIn("is a tar archive", self.said("scan", "all/gnu"))

    def test_a_nemo_is_safe_although_its_last_member_is_a_zip(self):
        good = self.archive("good.pt").read_bytes()
        self.write("m.nemo", self.packed("gnu", {"./model_config.yaml": b"target: x\n",
                                                 "./model_weights.ckpt": good}))
        self.assertEqual(self.verdicts("m.nemo", code=0), {"m.nemo": "safe"})

    def test_a_tar_that_is_cut_or_changed_is_damaged(self):
        whole = self.packed("gnu", {"a": b"words", "b": HARMLESS})
        self.write("cut.tar", whole[:1024 + 512 + 3])
        self.write("changed.tar", whole[:1024] + b"x" + whole[1025:])
        self.assertEqual(self.verdicts("cut.tar", "changed.tar", code=1),
                         {"cut.tar": "damaged", "changed.tar": "damaged"})
        said = self.said("scan", "cut.tar", "changed.tar", code=1)
        self.assertIn("the tar archive is truncated: a member states", said)
        self.assertIn("is cut off or its checksum is wrong", said)

    def test_what_a_record_runs_before_a_fault_or_behind_a_first_part_is_unsafe(self):
        """Whatever name it is: python runs all in front of a fault, reads the members of a gzip file
        as one, and finds an archive behind the end of an empty one."""
        call = b"\x80\x02c%s\nX\x01\x00\x00\x00a\x85R\xff"
        for name in (b"joblib.numpy_pickle\nload", b"builtins\ngetattr", b"site\nexecsitecustomize"):
            self.archive("fault.pt", **{"w.dat": call % name})
            self.assertEqual(self.verdicts("fault.pt", code=1), {"fault.pt": "unsafe"})
        for first in (b"", EVIL[:1]):
            members = gzip.compress(first) + gzip.compress(EVIL[len(first):])
            self.archive("members.pt", **{"w.gz": members})
            self.assertEqual(self.verdicts("members.pt", code=1), {"members.pt": "unsafe"})
        behind = b"PK\5\6" + bytes(18) + self.packed("stored", {"x.pkl": EVIL})
        self.archive("behind.pt", **{"w.bin": behind})
        self.assertEqual(self.verdicts("behind.pt", code=1), {"behind.pt": "unsafe"})

    def test_an_archive_too_deep_in_others_is_unchecked(self):
        content = self.packed("stored", {"m.pkl": EVIL})
        for _ in range(7):
            content = self.packed("stored", {"inner": content})
        self.write("seven.zip", content)
        self.write("eight.zip", self.packed("stored", {"inner": content}))
        self.assertEqual(self.verdicts("seven.zip", "eight.zip", code=1),
                         {"seven.zip": "unsafe", "eight.zip": "unchecked"})
        self.assertIn("is an archive within 8 others, and was not looked into; unpack it",
                      self.said("scan", "eight.zip", code=1))

    def test_what_inflates_to_more_than_is_looked_at_is_unchecked(self):
        # The members of a gzip file are one content: here a pickle of 1.5 GiB of zeros.
        members = [gzip.compress(b"\x80\x04B" + struct.pack("<I", 3 << 29))]
        members += [gzip.compress(bytes(1 << 20))] * 1536
        self.write("bomb.zip", self.packed("deflated", {"inner.gz": b"".join(members)}))
        self.assertLess((self.folder / "bomb.zip").stat().st_size, 30000)
        self.assertEqual(self.verdicts("bomb.zip", code=1), {"bomb.zip": "unchecked"})
        self.assertIn("its content has more than 107", self.said("scan", "bomb.zip", code=1))


class Members(Case):
    def test_a_member_is_scanned_as_the_file_that_it_is(self):
        """By the name that the scan of the archive tells."""
        evil = self.archive("evil.pt", EVIL).read_bytes()
        with tarfile.open(self.folder / "m.nemo", "w") as target:
            for name, content in (("./config.yaml", b"a: 1\n"), ("./weights.ckpt", evil)):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                target.addfile(member, io.BytesIO(content))
        with zipfile.ZipFile(self.folder / "m.mar", "w") as target:
            target.writestr("m/weights.ckpt", evil)
            target.writestr("m/good.pt", self.archive("good.pt").read_bytes())
        for archive in ("m.nemo", "m.mar"):
            (whole,) = self.scan(archive, code=1)["files"]
            at = (self.folder / archive).read_bytes().index(b"cposix")
            record = whole["unsafe"][0]["record"]
            self.assertIn(f"posix.system (harmful) in {record} at byte {at}",
                          self.said("scan", archive, code=1))
            member = archive + "//" + record.partition("//")[0]
            (found,) = self.scan(member, code=1)["files"]
            self.assertEqual((found["verdict"], found["format"]), ("unsafe", "torch_zip"))
            self.assertEqual((found["unsafe"][0]["record"], found["unsafe"][0]["file_offset"]),
                             ("data.pkl", at))
            self.assertIn(f"harmful  {at:6}      1  data.pkl  posix.system",
                          self.said("scan", "--names", member, code=1))
        self.assertEqual(self.verdicts("m.mar//m/good.pt", code=0), {"m.mar//m/good.pt": "safe"})
        self.assertEqual(self.verdicts("m.nemo//config.yaml", code=0),
                         {"m.nemo//config.yaml": "not a checkpoint"})
        self.assertIn('the archive has no member "none"; it has "config.yaml", "weights.ckpt"',
                      self.said("scan", "m.nemo//none", code=1))


class Others(Case):
    """Healthy files of other programs, none of which is damaged or unsafe."""

    # As msgpack.packb() of Python packs them.
    FLAX = (b"\x83\xa4step\x01\xa6params\x81\xa1k\xc4\x40" + bytes(64) + b"\xa9opt_state\x80")

    def test_msgpack_is_no_pickle(self):
        for name, content in (
            ("state.msgpack", self.FLAX), ("key2row", b"\x80"), ("lookups.bin", b"\x80"),
            ("model", b"\x85\xa5nodes\x92\x01\x02\xa5attrs\x82\x82\x83\x84"),
            ("ext", b"\x82\xa1a\x82\xa1b\xc7\x02\x01\x82\x83\x84\x85.\n"),
            ("two", b"\x82\x01\x83\x02\x84abcd\xff"),
        ):
            self.write(f"spacy/{name}", content)
        self.assertEqual(set(self.verdicts("spacy", code=0).values()), {"not a checkpoint"})

    def test_a_byte_that_begins_pickles_is_not_one(self):
        for byte in range(256):
            self.write(f"bytes/{byte}", bytes([byte]))
        self.assertEqual(set(self.verdicts("bytes", code=0).values()), {"not a checkpoint"})

    def test_a_pickle_without_a_mark_that_runs_something_is_found_though_it_is_cut(self):
        self.write("cut", b"cposix\nsystem\n(S'id'\ntR")
        self.write("computed", b"cbuiltins\nstr\n(tRcbuiltins\nstr\n(tR\x93(tR\xff")
        self.assertEqual(self.verdicts("cut", "computed", code=1),
                         {"cut": "unsafe", "computed": "unsafe"})


class PlainData(Case):
    # pickle.dumps(numpy.ones(1, "<f4"), 2), of numpy 1.
    ARRAY = (b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85c_codecs\nencode\n"
             b"X\x01\0\0\0bX\x06\0\0\0latin1\x86R\x87R(K\x01K\x01\x85cnumpy\ndtype\nX\x02\0\0\0f4"
             b"\x89\x88\x87R(K\x03X\x01\0\0\0<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89"
             b"C\x04\0\0\x80?tb.")

    def test_arrays_of_numpy_have_a_verdict_of_their_own(self):
        for core in (b"core", b"_core"):
            pickled = self.ARRAY.replace(b"numpy.core", b"numpy." + core)
            self.archive(f"{core.decode()}.pt", pickled)
            self.write(f"{core.decode()}.pkl", pickled)
        names = ("core.pt", "_core.pt", "core.pkl", "_core.pkl")
        self.assertEqual(self.verdicts(*names, code=0), dict.fromkeys(names, "plain data"))
        self.assertEqual(self.verdicts("--strict", *names, code=1),
                         dict.fromkeys(names, "plain data"))
        (found,) = self.scan("core.pt", code=0)["files"]
        self.assertEqual([(each["global"], each["verdict"]) for each in found["unsafe"]],
                         [("numpy.core.multiarray._reconstruct", "plain_data"),
                          ("numpy.ndarray", "plain_data"), ("numpy.dtype", "plain_data")])
        self.assertIn("numpy.ndarray (plain_data)", self.said("scan", "core.pt"))
        self.assertTrue(self.said("scan", "core.pt").endswith("1 file, 1 plain data\n"))

    def test_one_other_name_makes_it_unsafe(self):
        self.archive("both.pt", self.ARRAY[:-1] + b"0" + UNKNOWN[2:])
        self.assertEqual(self.verdicts("both.pt", code=1), {"both.pt": "unsafe"})

    def test_torchs_own_policy_goes_on_refusing_it(self):
        self.archive("array.pt", self.ARRAY)
        self.said("ls", "array.pt")
        self.said("ls", "--globals", "torch_safe", "array.pt", code=1)


class Touches:
    def __reduce__(self):
        return os.system, ("touch touched",)


def globals_by_pickletools(pickled):
    """Each once, by the last two texts before a STACK_GLOBAL, as Python 3 calls them."""
    found, texts, memo = [], [], []
    for opcode, argument, _ in pickletools.genops(pickled):
        if opcode.name in ("GLOBAL", "INST"):
            found.append(argument.replace(" ", "."))
        elif opcode.name == "STACK_GLOBAL":
            found.append(".".join(texts[-2:]))
        elif opcode.name == "MEMOIZE":
            memo.append(texts[-1] if texts else None)
        elif opcode.name == "BINGET" and opcode.proto < 4 and argument < len(memo):
            texts.append(memo[argument])
        elif "UNICODE" in opcode.name:
            texts.append(argument)
    found = [name.replace("__builtin__.", "builtins.") for name in found]
    return list(dict.fromkeys(found))


class Names(Case):
    def test_lists_the_names_of_a_file_that_is_refused(self):
        path = self.archive("evil.pt", EVIL)
        at = path.read_bytes().index(b"cposix")
        self.said("ls", "evil.pt", code=1)
        self.assertEqual(
            self.said("scan", "--names", "evil.pt", code=1),
            "evil.pt: unsafe\n"
            "VERDICT  OFFSET  COUNT  RECORD    GLOBAL\n"
            f"harmful  {at:6}      1  data.pkl  posix.system\n",
        )

    def test_ends_with_1_where_names_may_be_missing(self):
        # So many names that they need more memory than a pickle of this size may take.
        names = b"".join(b"ca\nb%d\n0" % i for i in range(400000))
        self.archive("many.pt", b"\x80\x02" + names + b"N.")
        for options in ((), ("--names",)):
            said = self.said("scan", *options, "many.pt", code=1)
            self.assertIn("the names in the pickle need more memory than", said)

    def test_json_has_each_pickle(self):
        self.archive("model.pt", UNKNOWN)
        (listed,) = json.loads(self.said("scan", "--names", "--json", "model.pt", code=1))["files"]
        self.assertEqual([each["global"] for each in listed["pickles"][0]["globals"]],
                         ["fractions.Fraction"])
        (allowed,) = json.loads(self.said("scan", "--names", "--json", "--allow-global",
                                              "fractions.Fraction", "model.pt"))["files"]
        self.assertEqual(allowed["pickles"][0]["globals"][0]["verdict"], "allowed")
        self.assertNotIn("pickles", json.loads(self.said("scan", "--json", "model.pt", code=1))["files"][0])

    def test_a_file_that_is_no_checkpoint_has_no_names(self):
        (self.folder / "notes.txt").write_text("hello")
        self.assertRegex(self.said("scan", "--names", "notes.txt"),
                         r"^notes\.txt: not a checkpoint: .*\n$")


class Policy(Case):
    def test_torch_safe_refuses_unknown_names_and_says_how_to_allow_them(self):
        self.archive("model.pt", UNKNOWN)
        self.said("ls", "model.pt")
        for arguments, environment in (
            (["--globals", "torch_safe"], {}),
            ([], {"WEIGHTMAP_GLOBALS": "torch_safe"}),
        ):
            refused = json.loads(self.said("ls", "--json", *arguments, "model.pt", code=1,
                                               **environment))
            self.assertEqual(refused["error"]["code"], "unsafe_pickle")
            self.assertIn("(--allow-global)", refused["error"]["message"])
            self.said("ls", *arguments, "--allow-global", "fractions.Fraction", "model.pt",
                          **environment)
        self.said("ls", "--info", "model.pt", code=1, WEIGHTMAP_GLOBALS="torch_safe")
        self.said("ls", "--globals", "torch_safe", DATA / "state_dict.pt")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
