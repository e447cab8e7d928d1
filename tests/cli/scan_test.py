#!/usr/bin/env python3
"""The commands `weightmap scan` and `weightmap info --globals`, and the options about names.

    scan_test.py ROOT WEIGHTMAP
"""

import json
import os
import pathlib
import pickle
import pickletools
import subprocess
import sys
import unittest
import zipfile

from tool_case import ENVIRONMENT, FolderCase

ROOT, TOOL = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
DATA = ROOT / "tests" / "data"

HARMLESS = b"\x80\x02]ccollections\nOrderedDict\na."
UNKNOWN = b"\x80\x02cfractions\nFraction\n."
EVIL = b"\x80\x02cposix\nsystem\nX\x02\x00\x00\x00id\x85R."


class Case(FolderCase):
    def archive(self, name, pickled=HARMLESS, **records):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as target:
            target.writestr("archive/data.pkl", pickled)
            target.writestr("archive/version", "3\n")
            for record, content in records.items():
                target.writestr(f"archive/{record}", content)
        return path

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def run_tool(self, *arguments, code=0, **environment):
        done = subprocess.run(
            [TOOL, *map(str, arguments)], cwd=self.folder, env={**ENVIRONMENT, **environment},
            capture_output=True, text=True, check=False,
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code != 2 else done.stderr

    def scan(self, *arguments, code):
        return json.loads(self.run_tool("scan", "--json", *arguments, code=code))

    def verdicts(self, *arguments, code):
        return {each["file"]: each["verdict"] for each in self.scan(*arguments, code=code)["files"]}


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
            self.run_tool("scan", "a"),
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
                "hidden": [], "bytes_behind": 0, "code": [], "faults": [], "error": None,
             }], "all": {"unsafe": 1}},
        )
        self.assertIn(f"posix.system (harmful) at byte {at}\n",
                      self.run_tool("scan", "evil.pt", code=1))

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
                      self.run_tool("scan", "quiet.pt"))

    def test_damaged_and_unreadable_files_end_with_1(self):
        whole = self.archive("whole.pt").read_bytes()
        self.write("cut.pt", whole[:-30])
        self.archive("stopless.pt", HARMLESS[:-1])
        os.symlink("nowhere", self.folder / "link.pt")
        verdicts = self.verdicts("cut.pt", "stopless.pt", "link.pt", "missing.pt", code=1)
        self.assertEqual(verdicts, {"cut.pt": "damaged", "stopless.pt": "damaged",
                                    "link.pt": "unreadable", "missing.pt": "unreadable"})
        self.assertEqual(self.verdicts("cut.pt", code=1), {"cut.pt": "damaged"})

    def test_an_encrypted_archive_is_not_taken_for_a_foreign_file(self):
        content = bytearray(self.archive("secret.pt").read_bytes())
        entry = content.index(b"PK\x01\x02")
        content[entry + 8] |= 1
        self.write("secret.pt", content)
        self.assertEqual(self.verdicts("secret.pt", code=1), {"secret.pt": "damaged"})

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
        self.assertIn("programs, such as code/", self.run_tool("scan", DATA / "torchscript.pt",
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
            listed = json.loads(self.run_tool("info", "--globals", "--json", path))
            (found,) = [each for each in listed["pickles"] if each["record"] == "data.pkl"]
            with self.subTest(path.name):
                self.assertEqual([each["global"] for each in found["globals"]], expected)
        self.assertGreater(compared, 30)

    def test_wrong_usage_ends_with_2(self):
        self.run_tool("scan", code=2)
        self.assertIn('--allow-global: must be MODULE.NAME, not "Fraction"',
                      self.run_tool("scan", "--allow-global", "Fraction", ".", code=2))


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


class Info(Case):
    def test_lists_the_names_of_a_file_that_is_refused(self):
        path = self.archive("evil.pt", EVIL)
        at = path.read_bytes().index(b"cposix")
        self.run_tool("info", "evil.pt", code=1)
        self.assertEqual(
            self.run_tool("info", "--globals", "evil.pt"),
            "VERDICT  OFFSET  COUNT  RECORD    GLOBAL\n"
            f"harmful  {at:6}      1  data.pkl  posix.system\n",
        )

    def test_ends_with_1_where_names_may_be_missing(self):
        # So many names that they need more memory than a pickle of this size may take.
        names = b"".join(b"ca\nb%d\n0" % i for i in range(400000))
        self.archive("many.pt", b"\x80\x02" + names + b"N.")
        for command in ("scan", "info"):
            said = self.run_tool(command, *(["--globals"] if command == "info" else []), "many.pt",
                                 code=1)
            self.assertIn("the names in the pickle need more memory than", said)

    def test_json_has_each_pickle(self):
        self.archive("model.pt", UNKNOWN)
        listed = json.loads(self.run_tool("info", "--globals", "--json", "model.pt"))
        self.assertEqual(listed["file"], "model.pt")
        self.assertEqual(listed["format"], "torch_zip")
        self.assertEqual([each["global"] for each in listed["pickles"][0]["globals"]],
                         ["fractions.Fraction"])
        allowed = json.loads(self.run_tool("info", "--globals", "--json", "--allow-global",
                                           "fractions.Fraction", "model.pt"))
        self.assertEqual(allowed["pickles"][0]["globals"][0]["verdict"], "allowed")


class Policy(Case):
    def test_torch_safe_refuses_unknown_names_and_says_how_to_allow_them(self):
        self.archive("model.pt", UNKNOWN)
        self.run_tool("ls", "model.pt")
        for arguments, environment in (
            (["--globals", "torch_safe"], {}),
            ([], {"WEIGHTMAP_GLOBALS": "torch_safe"}),
        ):
            refused = json.loads(self.run_tool("ls", "--json", *arguments, "model.pt", code=1,
                                               **environment))
            self.assertEqual(refused["error"]["code"], "unsafe_pickle")
            self.assertIn("(--allow-global)", refused["error"]["message"])
            self.run_tool("ls", *arguments, "--allow-global", "fractions.Fraction", "model.pt",
                          **environment)
        self.run_tool("info", "model.pt", code=1, WEIGHTMAP_GLOBALS="torch_safe")
        self.run_tool("ls", "--globals", "torch_safe", DATA / "state_dict.pt")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
