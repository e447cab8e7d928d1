#!/usr/bin/env python3
"""What ls, stats, tree and verify, the help and the manual page print.

    ls_command_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import argparse
import collections
import datetime
import decimal
import json
import math
import pickle
import re
import struct
import subprocess
import sys
import unittest
import zipfile

from fixture_case import FLOATS, Case, numpy_scalar, pickled
from tool_case import DATA, MAKER, ROOT, TOOL


class Ls(Case):

    def test_composed_tensors_are_counted_and_described(self):
        lines = self.run_tool("ls", "sparse.pt").stdout.splitlines()
        self.assertEqual(lines[-1], "composed tensors: 1 sparse_coo, 1 sparse_csr (see ls --long)")
        lines = self.run_tool("ls", "--long", "quantized.pt").stdout.splitlines()
        self.assertEqual(
            lines[-5:],
            [
                "COMPOSED TENSOR  FORM         DTYPE   SHAPE   TENSORS  DETAILS",
                "qint8            quantized    qint8   [3, 4]        0  scale 0.5, zero point 3",
                "quint8           quantized    quint8  [3, 4]        1  scale 0.5, zero point 3",
                "qint32           quantized    qint32  [3, 4]        2  scale 0.5, zero point 3",
                "channels         per_channel  qint8   [3, 4]   3 to 5  axis 0",
            ],
        )
        lines = self.run_tool("ls", "sparse.pt", "csr.*").stdout.splitlines()
        self.assertEqual(lines[-1], "composed tensors: 1 sparse_csr (see ls --long)")

    def test_composed_tensors_as_json(self):
        composed = self.document("ls", "--json", "quantized.pt", "channels*")["composed"]
        self.assertEqual(
            composed,
            [{"name": "channels", "form": "per_channel", "dtype": "qint8", "shape": [3, 4],
              "requires_grad": False, "tensors": {"first": 3, "count": 3}, "axis": 0}],
        )
        self.assertNotIn("composed", self.document("ls", "--json", "state_dict.pt"))

    def test_lists_the_records_of_an_archive(self):
        self.prints(
            "RECORD    SIZE  STORED  METHOD      CRC-32  HEADER OFFSET\n"
            "data.pkl  27 B    27 B  stored  1460138699              0\n"
            "version    2 B     2 B  stored  1432854225             73\n"
            "2 records in archive/\n",
            "ls", "--records", self.records_only(),
        )
        records = self.document("ls", "--records", "--json", "torchscript.pt")
        self.assertEqual(records["archive"], "torchscript")
        self.assertIn("constants.pkl", [record["name"] for record in records["records"]])

    def records_only(self):
        path = self.folder / "records.pt"
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in (("data.pkl", b"x" * 27), ("version", b"3\n")):
                archive.writestr(zipfile.ZipInfo("archive/" + name, (1980, 1, 1, 0, 0, 0)), content)
        return path

    def test_sorts_by_size_or_by_name_with_numbers(self):
        def names(*arguments):
            return [t["name"] for t in self.document("ls", "--json", *arguments)["tensors"]]

        self.assertEqual(
            names("--sort", "size", "state_dict.pt"),
            ["layers.1.weight", "embedding.weight", "layers.0.weight", "position_ids",
             "layers.0.bias", "steps", "layers.1.mask"],
        )
        many = self.make("--count", 12, "--shape", "4")
        self.assertEqual(names("--sort", "name", many), [f"tensor.{i}" for i in range(12)])
        self.assertEqual(names("--sort", "file", "state_dict.pt"), names("state_dict.pt"))

    def test_writes_fields_for_programs(self):
        lines = self.run_tool("ls", "--tsv", "names.pt").stdout.split("\n")
        self.assertEqual({line.count("\t") for line in lines[:-1]}, {3})
        self.assertEqual([line for line in lines if " " in line], [])
        self.assertIn('with\\x20"quotes"\\x20\\\\\\x20and\\x20\\x0A\\x20newline', self.run_tool("ls", "--tsv", "names.pt").stdout)

    def test_writes_sizes_in_bytes(self):
        path = self.make("--count", 1, "--shape", "1024x1024", "--dtype", "float32")
        self.prints(
            "NAME      DTYPE    SHAPE            SIZE\n"
            "tensor.0  float32  [1024, 1024]  4194304\n"
            "1 tensor, 1 storage, 4194304 bytes\n",
            "ls", "--bytes", path,
        )

    def test_aligns_many_long_names(self):
        names = ["base_model.model." + "x" * length for length in (70, 90, 100)]
        path = self.archive(b"\x80\x02}(" + b"".join(pickled(n) + FLOATS for n in names) + b"u.")
        lines = self.run_tool("ls", path).stdout.splitlines()
        self.assertEqual({line.index(word) for line, word in zip(lines, ["DTYPE"] + ["float32"] * 3)}, {119})

    def test_escapes_names_for_the_terminal_and_quotes_blank_ones(self):
        text = self.run_tool("ls", "names.pt").stdout
        self.assertIn('with "quotes" \\\\ and \\x0A newline  ', text)
        self.assertIn('\n""  ', text)
        self.assertIn("\ngröße  ", text)
        self.assertFalse(any(ord(c) < 32 and c != "\n" for c in text))

    def test_aligns_wide_characters_and_lets_a_very_long_name_stand_out(self):
        lines = self.run_tool("ls", "names.pt").stdout.splitlines()
        cells = {line: line.index("float32") for line in lines if "float32" in line}
        wide = next(line for line in cells if line.startswith("权重"))
        long = next(line for line in cells if line.startswith("nnn"))
        plain = next(line for line in cells if line.startswith("größe"))
        self.assertEqual(cells[wide], cells[plain] - 2)  # two cells each
        self.assertGreater(cells[long], 200)
        self.assertLess(cells[plain], 90)

    def test_json_has_the_stable_fields_in_order(self):
        document = self.document("ls", "--json", "views.pt")
        self.assertEqual(list(document), ["file", "tensors"])
        self.assertEqual(document["file"], "views.pt")
        transposed = next(t for t in document["tensors"] if t["name"] == "transposed")
        self.assertEqual(
            list(transposed.items()),
            [
                ("name", "transposed"), ("path", ["transposed"]), ("dtype", "float32"),
                ("shape", [6, 4]), ("strides", [1, 6]), ("storage", "0"), ("storage_offset", 0),
                ("file_offset", 1408), ("nbytes", 96), ("contiguous", False), ("zero_copy", True),
                ("requires_grad", False), ("location", "cpu"), ("conjugate", False),
                ("negative", False), ("written", True),
            ],
        )

    def test_says_which_tensors_are_lazily_conjugate_or_negative(self):
        tensors = self.document("ls", "--json", "conjugate.pt")["tensors"]
        self.assertEqual(
            [(t["name"], t["conjugate"], t["negative"]) for t in tensors],
            [("base", False, False), ("conjugate", True, False)],
        )

    def test_a_reader_that_leaves_is_no_fault(self):
        many = self.make("--count", 20000, "--shape", "4")
        command = f"set -o pipefail; '{TOOL}' ls '{many}' | head -n 1"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0)
        self.assertTrue(done.stdout.startswith("NAME "))
        self.assertEqual(done.stderr, "")

    def test_a_full_disk_is_a_fault(self):
        with open("/dev/full", "wb") as full:
            done = self.ends(1, "ls", "state_dict.pt", stdout=full)
        self.assertEqual(done.stderr, "weightmap: cannot write to standard output: No space left on device\n")

    def test_logs_only_when_asked(self):
        done = self.run_tool("ls", "-v", "state_dict.pt")
        self.assertEqual(done.stdout, self.run_tool("ls", "state_dict.pt").stdout)
        self.assertRegex(done.stderr, r"^\[\d\d:\d\d:\d\d\.\d{3}\] weightmap: .*7 tensors")


class Info(Case):
    def test_prints_a_block(self):
        lines = self.run_tool("ls", "--info", "state_dict.pt").stdout.splitlines()
        self.assertEqual(
            lines[:-1],
            [
                "file        state_dict.pt, 3.5 KiB",
                "format      torch_zip, version 3, format version 1",
                "byte order  little",
                "alignment   64 bytes",
                "tensors     7, 300 B",
                "storages    7",
                "offsets     calculated (1 local header read, 0 cache hits)",
                "mapping     shared, read-only",
            ],
        )
        self.assertRegex(lines[-1], r"^open        \d+ reads? of [\d.]+ KiB in \d+ us$")

    def test_json_has_the_stable_fields_in_order(self):
        info = self.document("ls", "--info", "--json", "state_dict.pt")
        took = info.pop("open")
        self.assertEqual(list(took), ["reads", "bytes_read", "microseconds"])
        self.assertGreater(took["reads"], 0)
        self.assertIsInstance(info.pop("lives_in_memory"), bool)
        self.assertEqual(
            list(info.items()),
            [
                ("file", "state_dict.pt"),
                ("files", [{"path": str(DATA / "state_dict.pt"), "bytes": 3576}]),
                ("format", "torch_zip"), ("version", 3),
                ("format_version", "1"), ("byteorder", "little"), ("storage_alignment", 64),
                ("tensors", 7), ("storages", 7), ("tensor_bytes", 300), ("file_bytes", 3576),
                ("unread_bytes", 0), ("unsupported", []), ("not_opened", []),
                ("tensors_not_indexed", 0),
                ("reserved", None),
                ("copied", {"storages": 0, "bytes": 0}),
                ("offsets", {"strategy": "calculated", "local_headers_read": 1, "cache_hits": 0}),
                ("mapping", {"sharing": "shared", "writable": False, "protection": "map"}),
            ],
        )

    def test_says_what_the_file_does_not_say(self):
        text = self.run_tool("ls", "--info", "no_byteorder.pt").stdout
        self.assertIn("\nbyte order  little (assumed: the file does not say)\n", text)
        old = self.run_tool("ls", "--info", "old_order.pt").stdout
        self.assertIn("\nformat      torch_zip, version 3, format version not stated\n", old)
        self.assertIsNone(self.document("ls", "--info", "--json", "old_order.pt")["format_version"])

    def test_options_override_the_environment(self):
        environment = {"WEIGHTMAP_SHARING": "private"}
        for options, mapping in (((), "private"), (("--sharing", "shared"), "shared")):
            text = self.text("ls", "--info", *options, "state_dict.pt", environment=environment)
            self.assertIn(f"\nmapping     {mapping}, read-only\n", text)

    def test_refuses_an_environment_variable_that_it_does_not_understand(self):
        done = self.ends(1, "ls", "--info", "state_dict.pt", environment={"WEIGHTMAP_VERIFY": "all"})
        self.assertIn("WEIGHTMAP_VERIFY must be chain or headers or crc", done.stderr)


class Stats(Case):

    def test_a_reason_for_rows_of_dashes_is_said_once(self):
        text = self.run_tool("stats", "quantized.pt").stdout
        self.assertEqual(text.splitlines()[-3:], [
            f"{dtype} tensors have no statistics: what they store are not their values"
            for dtype in ("qint8", "quint8", "qint32")
        ])
        self.assertNotIn("statistics:", self.run_tool("stats", "--tsv", "quantized.pt").stdout)

    def test_refused_tensors_have_an_error_in_json(self):
        document = self.document("stats", "--json", "dtypes.pt", "bfloat16", "bits8", "uint64")
        self.assertEqual(document["file"], "dtypes.pt")
        bfloat16, bits8, uint64 = document["tensors"]
        self.assertEqual(bfloat16, {
            "name": "bfloat16", "dtype": "bfloat16", "shape": [5], "count": 5, "min": 1.0,
            "max": 5.0, "mean": 3.0, "std": 2.0**0.5, "nan": 0, "infinite": 0, "zeros": 0,
        })
        self.assertEqual(bits8["error"], {
            "code": "unsupported", "file_offset": None,
            "message": "bits8 tensors have no statistics: what they store are not their values",
        })
        self.assertEqual((uint64["min"], uint64["max"]), (1, 5))

    def test_a_tensor_without_elements_has_counts_only(self):
        document = self.document("stats", "--json", "scalars_and_empty.pt", "empty")
        [empty] = document["tensors"]
        self.assertEqual((empty["count"], empty["min"], empty["std"]), (0, None, None))


class Verify(Case):

    def test_counts_storages_without_crc(self):
        text = self.run_tool("verify", "--crc", "no_crc.pt").stdout
        self.assertTrue(text.startswith("OK 12 storages, "))
        self.assertTrue(text.endswith("; 1.4 KiB of 12 storages compared with nothing: they have no "
                                      "CRC (--sha256 or --sums compares whole files)\n"), text)

    def damaged(self, offset):
        content = bytearray((DATA / "state_dict.pt").read_bytes())
        content[offset] ^= 0xFF
        return self.write("damaged.pt", content)

    def test_prints_a_line_for_each_storage_that_differs(self):
        path = self.damaged(1344 + 5)  # in data/0
        self.assertEqual(self.run_tool("verify", path).returncode, 0)
        done = self.run_tool("verify", "--crc", path)
        lines = done.stdout.splitlines()
        self.assertEqual((len(lines), done.returncode, done.stderr), (2, 1, ""))
        self.assertTrue(lines[0].startswith(f"FAULT {path}: ") and "data/0" in lines[0], lines[0])
        self.assertEqual(lines[1], "FAILED with 1 fault")

    def test_prints_a_fault_for_a_file_that_cannot_be_opened(self):
        done = self.run_tool("verify", "strangers/truncated.pt")
        lines = done.stdout.splitlines()
        self.assertEqual((len(lines), done.returncode, done.stderr), (2, 1, ""))
        self.assertTrue(lines[0].startswith("FAULT strangers/truncated.pt: "), lines[0])
        self.assertTrue(lines[0].endswith("(at byte 3959)"), lines[0])

    def test_json_has_the_stable_fields(self):
        good = self.document("verify", "--json", "state_dict.pt")
        self.assertEqual(
            good,
            {"file": "state_dict.pt", "ok": True, "storages": 7, "headers_checked": True,
             "duplicate_keys": 0, "long_names": 0, "hole_bytes": 0, "crc": None,
             "sha256": None, "fs_verity": {}, "bytes_not_compared": 300, "faults": []},
        )
        bad = self.document("verify", "--json", "--crc", self.damaged(1344), code=1)
        self.assertFalse(bad["ok"])
        self.assertEqual(
            bad["crc"], {"storages_checked": 7, "storages_without_crc": 0, "bytes": 300}
        )
        self.assertEqual([list(f) for f in bad["faults"]], [["code", "message", "file_offset"]])
        self.assertEqual(bad["faults"][0]["code"], "corrupt")

    def test_several_files_are_checked_whatever_is_wrong_with_one(self):
        damaged = self.damaged(1344)
        done = self.run_tool("verify", "--crc", damaged, "nowhere.pt", "state_dict.pt")
        self.assertEqual(done.returncode, 1)
        lines = done.stdout.splitlines()
        self.assertTrue(lines[0].startswith(f"FAULT {damaged}: "), lines)
        self.assertEqual(lines[1], f"{damaged}: FAILED with 1 fault")
        self.assertTrue(lines[2].startswith("state_dict.pt: OK 7 storages, "), lines)
        self.assertEqual(len(lines), 3)
        self.assertIn("weightmap: nowhere.pt: ", done.stderr)
        files = self.document("verify", "--json", "--crc", damaged, "nowhere.pt", "state_dict.pt",
                              code=1)["files"]
        self.assertEqual([file["file"] for file in files], [str(damaged), "nowhere.pt", "state_dict.pt"])
        self.assertEqual([file.get("ok") for file in files], [False, None, True])
        self.assertEqual(files[1]["error"]["code"], "io")
        both = self.document("verify", "--json", "state_dict.pt", "no_crc.pt")["files"]
        self.assertEqual([file["ok"] for file in both], [True, True])


class Sum(Case):

    def test_counts_tied_tensors_once(self):
        path = self.archive(b"\x80\x02}(" + pickled("a.x") + FLOATS + pickled("b.y") + FLOATS + b"u.")
        self.assertEqual(
            self.document("ls", "--sum", "--json", path),
            {
                "file": str(path),
                "groups": [
                    {"name": "a", "tensors": 1, "elements": 4, "bytes": 16},
                    {"name": "b", "tensors": 0, "elements": 0, "bytes": 0},
                ],
                "all": {"tensors": 1, "elements": 4, "bytes": 16},
            },
        )


class Tree(Case):
    def training(self, protocol=4):
        """What training scripts save, as the pickle module writes it; torch.save asks for 2."""
        content = pickle.dumps(
            {
                "epoch": 17,
                "args": argparse.Namespace(lr=0.0003, betas=(0.9, 0.999), name="a\nb"),
                "counts": collections.Counter("aab"),
                "recent": collections.deque([1.5, 2.5]),
                "saved": datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
                "day": datetime.date(1999, 12, 31),
                "price": decimal.Decimal("1.5"),
                "window": slice(1, None, 2),
                "wide": -(2**70),
                "empty": [{}, [], (), set(), b""],
                "seen": {3},
                "nan": math.nan,
                ("a", 1): None,
                5: True,
            },
            protocol=protocol,
        )
        return self.archive(content)

    def test_shows_everything_that_training_saves(self):
        text = (
            "dict, 14 items\n"
            "  epoch: 17\n"
            "  args: argparse.Namespace, 3 attributes\n"
            "    lr: 0.0003\n"
            "    betas: (0.9, 0.999)\n"
            "    name: 'a\\x0Ab'\n"
            "  counts: collections.Counter, 2 items\n"
            "    a: 2\n"
            "    b: 1\n"
            "  recent: collections.deque, 2 elements\n"
            "    - 1.5\n"
            "    - 2.5\n"
            "  saved: datetime.datetime 2026-01-02 03:04:05.000006\n"
            "  day: datetime.date 1999-12-31\n"
            "  price: decimal.Decimal('1.5')\n"
            "  window: slice(1, None, 2)\n"
            "  wide: -1180591620717411303424\n"
            "  empty: [{}, [], (), set(), b'']\n"
            "  seen: {3}\n"
            "  nan: nan\n"
            "  ('a', 1): None\n"
            "  5: True\n"
        )
        self.prints(text, "tree", self.training())
        # Where there is no opcode for a set, there is a call.
        old = text.replace("set(),", "set([]),").replace("{3}", "set([3])")
        self.prints(old, "tree", self.training(protocol=2))

    def test_reads_numbers_of_numpy(self):
        path = self.archive(
            b"\x80\x03}(" + pickled("loss") + numpy_scalar("f8", "<", struct.pack("<d", 0.8125))
            + pickled("step") + numpy_scalar("i4", ">", struct.pack(">i", -7)) + b"u."
        )
        self.prints("dict, 2 items\n  loss: numpy.float64 0.8125\n  step: numpy.int32 -7\n", "tree", path)
        # Without an opcode for bytes, as protocol 2 writes them.
        text = struct.pack("<d", -0.7).decode("latin1")
        encoded = b"c_codecs\nencode\n(" + pickled(text) + pickled("latin1") + b"tR"
        content = numpy_scalar("f8", "<", struct.pack("<d", 0.0)).replace(b"C\x08" + bytes(8), encoded)
        self.prints("numpy.float64 -0.7\n", "tree", self.archive(b"\x80\x02" + content + b"."))

    def test_names_what_is_reached_again(self):
        loop = self.archive(b"\x80\x02}q\x00" + pickled("me") + b"h\x00s.")
        self.prints("dict, 1 item\n  me: dict, 1 item, the same as the root\n", "tree", loop)
        self.assertEqual(self.document("tree", "--json", loop)["value"], {"me": {"$same_as": ""}})

    def test_work_stays_bounded_for_lists_of_lists_of_lists(self):
        content = b"\x80\x02]q\x00"
        for i in range(60):  # each list holds the one before twice
            content += b"](h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1])
        path = self.archive(content + b".")
        self.assertLess(len(self.run_tool("tree", "--all", path).stdout.splitlines()), 200)
        self.assertLess(len(self.run_tool("tree", "--json", path).stdout), 20000)

    def test_says_the_first_name_of_a_tensor_that_has_two(self):
        self.prints(
            "dict, 2 items\n  x: float32 [4], 16 B\n  y: float32 [4], 16 B, named x\n",
            "tree",
            self.archive(b"\x80\x02}(" + pickled("x") + FLOATS[:-1] + b"Rq\x05" + pickled("y") + b"h\x05u."),
        )

    def test_memory_stays_bounded_for_a_long_text_that_is_mentioned_often(self):
        text = "x" * (1 << 20)
        often = self.archive(b"\x80\x02](" + pickled(text) + b"q\x01" + 300 * b"h\x01" + b"e.")
        self.assertEqual(
            self.document("tree", "--json", often, code=1)["error"],
            {
                "code": "limit_exceeded",
                "message": "the values have over 256 MiB of text; choose a part of them by its path",
                "file_offset": None,
            },
        )
        lines = self.run_tool("tree", "--all", often).stdout.splitlines()
        self.assertEqual(len(lines), 302)
        self.assertEqual(lines[1], "  0: '" + 80 * "x" + "'... (1048576 bytes)")
        self.assertEqual(self.run_tool("cat", often, "7").stdout, text + "\n")

    def test_stops_at_two_hundred_levels(self):
        path = self.archive(b"\x80\x02" + b"]" * 300 + b"a" * 299 + b".")
        text = self.run_tool("tree", path).stdout
        self.assertTrue(text.endswith("... deeper than 200\n"), text[-300:])
        self.assertIn('{"$deeper_than":200}', self.run_tool("tree", "--json", path).stdout)

    def test_shows_the_beginning_of_many(self):
        path = self.archive(pickle.dumps({"losses": [float(i) for i in range(100)]}, protocol=2))
        lines = self.run_tool("tree", path).stdout.splitlines()
        self.assertEqual(lines[1], "  losses: list, 100 elements")
        self.assertEqual(lines[25:], ["    23: 23.0", "    ... 76 more, with --all"])
        self.assertEqual(len(self.run_tool("tree", "--all", path).stdout.splitlines()), 102)

    def test_json_has_plain_values_and_marks_the_others(self):
        value = self.document("tree", "--json", self.training())["value"]["$dict"]
        value = {json.dumps(key): part for key, part in value}
        self.assertEqual(value['"epoch"'], 17)
        self.assertEqual(
            value['"args"'],
            {"$object": "argparse.Namespace",
             "state": {"lr": 0.0003, "betas": [0.9, 0.999], "name": "a\nb"}},
        )
        self.assertEqual(value['"wide"'], {"$int": "-1180591620717411303424"})
        self.assertEqual(value['"nan"'], {"$float": "nan"})
        self.assertEqual(value['"seen"'], {"$set": [3]})
        self.assertEqual(value['["a", 1]'], None)
        for protocol in (2, 4):
            path = self.archive(pickle.dumps([b"\x00\xff"], protocol=protocol))
            self.assertEqual(self.document("tree", "--json", path)["value"], [{"$bytes": r"b'\x00\xff'"}])
        plain = self.document("tree", "--json", "training.pt", "scheduler")["value"]
        self.assertEqual(plain, {"step_size": 2, "gamma": 0.1, "last_epoch": 2, "base_lrs": [0.01]})
        tensor = self.document("tree", "--json", "training.pt", "model.0.bias")["value"]
        self.assertEqual(tensor, {"$tensor": "model.0.bias", "dtype": "float32", "shape": [4]})


class Help(Case):
    def test_names_three_commands_and_lists_all_below_headings(self):
        text = self.run_tool("--help").stdout
        self.assertEqual(re.findall(r"^    weightmap ([a-z]+) ", text, re.MULTILINE), ["ls", "scan", "run"])
        listed = []
        for part in text.split("\n\n"):
            heading, *lines = part.splitlines()
            if (words := [line.split()[0] for line in lines if re.match("  [a-z]", line)]):
                listed.append((heading, words))
        self.assertEqual(listed, [
            ("Look at checkpoints:", ["ls", "tree", "cat", "stats", "diff"]),
            ("Check them:", ["scan", "verify"]),
            ("Rewrite them:", ["convert", "delta", "apply", "publish"]),
            ("Keep them in memory:", ["residency", "warm", "hold", "stage", "ps"]),
            ("Start programs:", ["run", "doctor"]),
            ("Between machines:", ["fetch", "bench"]),
        ])


class Usage(Case):

    def test_help_and_version_are_no_faults(self):
        version = self.run_tool("--version")
        self.assertRegex(version.stdout, r"^weightmap \d+\.\d+\.\d+\n$")
        for command in ((), ("ls",), ("ls", "--info"), ("cat",), ("verify",), ("residency",), ("fetch",)):
            done = self.run_tool(*command, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(" ".join(("weightmap", *command)), done.stdout)
        self.assertIn("Examples:", self.run_tool("cat", "--help").stdout)


class Manual(Case):
    def test_is_made_from_what_the_tool_says_of_itself(self):
        page = self.folder / "weightmap.1"
        script = ROOT / "cmake" / "ManPage.cmake"
        subprocess.run(["cmake", "-D", f"TOOL={TOOL}", "-D", f"PAGE={page}", "-P", script], check=True)
        text = page.read_text()
        listed = self.run_tool("--help").stdout.upper()
        commands = re.findall(r"^  ([A-Z]+)  ", listed, re.MULTILINE)
        self.assertIn("LS", commands)
        self.assertEqual(
            re.findall(r"^\.SH (.*)$", text, re.MULTILINE),
            ["NAME", "DESCRIPTION", *commands, "EXIT STATUS"],
        )
        requests = set(re.findall(r"^[.'].*?(?=\s|$)", text, re.MULTILINE))
        self.assertEqual(requests, {".TH", ".SH", ".nf", ".fi"})
        for line in self.run_tool("stage", "--help").stdout.splitlines():
            self.assertIn(line.replace("-", "\\-"), text)


class MakeCheckpoint(Case):

    def test_equal_arguments_give_equal_bytes_and_storages_differ(self):
        path = self.make("--count", 3, "--shape", "8x8")
        first = path.read_bytes()
        self.assertEqual(self.make("--count", 3, "--shape", "8x8").read_bytes(), first)
        contents = {self.raw(path, f"tensor.{i}") for i in range(3)}
        self.assertEqual(len(contents), 3)

    def test_refuses_wrong_arguments(self):
        for arguments in (("--dtype", "float9"), ("--count", "1", "--shape", "4xx4"), ("--layers", "-1")):
            done = subprocess.run([MAKER, self.folder / "x", *arguments], capture_output=True)
            self.assertEqual(done.returncode, 2)
            self.assertFalse((self.folder / "x").exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
