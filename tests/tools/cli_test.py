#!/usr/bin/env python3
"""What the command line tool prints, writes and exits with.

    cli_test.py ROOT WEIGHTMAP MAKE_CHECKPOINT
"""

import argparse
import collections
import datetime
import decimal
import errno
import json
import math
import os
import pathlib
import pickle
import pty
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
import zipfile

from tool_case import ENVIRONMENT, FolderCase

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from held_pages import cached, keep_cached  # noqa: E402

ROOT, TOOL, MAKER = (pathlib.Path(argument) for argument in sys.argv[1:4])
DATA = ROOT / "tests" / "data"


def run(*arguments, **options):
    """Runs the tool in the folder of the fixtures, so that messages hold no machine's paths."""
    options = {"cwd": DATA, "env": ENVIRONMENT, "capture_output": True, **options}
    return subprocess.run([TOOL, *map(str, arguments)], **options)


def pickled(word):
    text = word.encode()
    return b"X" + struct.pack("<I", len(text)) + text


def numpy_dtype(kind, order):
    return (b"cnumpy\ndtype\n(" + pickled(kind) + b"K\x00K\x01tR(K\x03" + pickled(order)
            + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb")


def numpy_scalar(kind, order, content):
    return (b"cnumpy.core.multiarray\nscalar\n(" + numpy_dtype(kind, order)
            + b"C" + bytes([len(content)]) + content + b"tR")


def numpy_array(kind, order, shape, content, is_fortran=False):
    """As protocol 2 has it, which spells bytes as text."""
    dims = b"(" + b"".join(b"K" + bytes([size]) for size in shape) + b"t"
    return (b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tc_codecs\nencode\n("
            + pickled("b") + pickled("latin1") + b"tRtR(K\x01" + dims + numpy_dtype(kind, order)
            + (b"\x88" if is_fortran else b"\x89") + b"c_codecs\nencode\n("
            + pickled(content.decode("latin1")) + pickled("latin1") + b"tRtb")


# The pickle of a tensor of the four floats in data/0.
FLOATS = (
    b"ctorch._utils\n_rebuild_tensor_v2\n((" + pickled("storage") + b"ctorch\nFloatStorage\n"
    + pickled("0") + pickled("cpu") + b"K\x04tQK\x00K\x04\x85K\x01\x85\x89"
    b"ccollections\nOrderedDict\n)RtR"
)


class Terminal:
    """A terminal of 80 cells for one of the tool's outputs, and what appears on it."""

    def __init__(self):
        self.ours, self.theirs = pty.openpty()
        self.text = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.ours)
        if self.theirs is not None:
            os.close(self.theirs)

    def leave_to_child(self):
        """After this, read() sees the end once the child is gone."""
        os.close(self.theirs)
        self.theirs = None

    def read(self):
        """What has come since, at least something; False at the end."""
        try:
            text = os.read(self.ours, 1 << 16).decode()
        except OSError as error:  # EIO: nobody has the other side any more
            if error.errno != errno.EIO:
                raise
            text = ""
        self.text += text
        return bool(text)

    def read_all(self):
        while self.read():
            pass
        return self.text


class Case(FolderCase):
    def prints(self, text, *arguments):
        done = run(*arguments)
        self.assertEqual((done.stdout.decode(), done.stderr.decode(), done.returncode), (text, "", 0))

    def fails(self, message, *arguments, code=1, stdout=""):
        done = run(*arguments)
        self.assertEqual((done.stdout.decode(), done.stderr.decode()), (stdout, f"weightmap: {message}\n"))
        self.assertEqual(done.returncode, code)

    def document(self, *arguments, code=0):
        done = run(*arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout)

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path

    def archive(self, content):
        """A checkpoint of this pickle and one storage of 16 bytes."""
        path = self.folder / "archive.pt"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", content)
            archive.writestr("archive/data/0", bytes(16))
            archive.writestr("archive/version", "3\n")
        return path

    def make(self, *arguments):
        path = self.folder / "made.pt"
        subprocess.run([MAKER, path, *map(str, arguments)], check=True)
        return path


class Ls(Case):
    def test_prints_aligned_columns_and_a_summary(self):
        self.prints(
            "NAME              DTYPE     SHAPE    SIZE\n"
            "embedding.weight  float32   [6, 4]   96 B\n"
            "layers.0.weight   bfloat16  [4, 4]   32 B\n"
            "layers.0.bias     float16   [4]       8 B\n"
            "layers.1.weight   float64   [4, 4]  128 B\n"
            "layers.1.mask     bool      [2, 2]    4 B\n"
            "steps             int64     []        8 B\n"
            "position_ids      int32     [1, 6]   24 B\n"
            "7 tensors, 7 storages, 300 B\n",
            "ls", "state_dict.pt",
        )

    def test_takes_several_patterns_and_keeps_the_order_of_the_file(self):
        self.prints(
            "NAME              DTYPE    SHAPE    SIZE\n"
            "embedding.weight  float32  [6, 4]   96 B\n"
            "layers.1.weight   float64  [4, 4]  128 B\n"
            "layers.1.mask     bool     [2, 2]    4 B\n"
            "3 of 7 tensors, 228 B\n",
            "ls", "state_dict.pt", "layers.1*", "embedding*", "*.mask",
        )

    def test_composed_tensors_are_counted_and_described(self):
        lines = run("ls", "sparse.pt").stdout.decode().splitlines()
        self.assertEqual(lines[-1], "composed tensors: 1 sparse_coo, 1 sparse_csr (see ls --long)")
        lines = run("ls", "--long", "quantized.pt").stdout.decode().splitlines()
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
        lines = run("ls", "sparse.pt", "csr.*").stdout.decode().splitlines()
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

    def test_a_pattern_that_matches_nothing_is_an_error(self):
        self.fails('state_dict.pt: no tensor matches "nothing*"', "ls", "state_dict.pt", "nothing*")
        self.fails(
            'state_dict.pt: has no tensor "step"; did you mean "steps"?',
            "ls", "state_dict.pt", "layers.1*", "step",
        )
        self.assertEqual(
            self.document("ls", "--json", "state_dict.pt", "zzz", code=1)["error"]["code"], "not_found"
        )

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
        done = run("ls", "--sort", "age", "state_dict.pt")
        self.assertEqual((done.returncode, done.stdout), (2, b""))
        self.assertIn(b"file|name|size", done.stderr)

    def test_writes_fields_for_programs(self):
        self.prints(
            "NAME\tDTYPE\tSHAPE\tSIZE\tSTRIDES\tSTORAGE\tOFFSET\tFILE_OFFSET\n"
            "layers.1.weight\tfloat64\t[4,4]\t128\t[4,1]\t3\t0\t1792\n",
            "ls", "--tsv", "--long", "state_dict.pt", "layers.1.weight",
        )
        lines = run("ls", "--tsv", "names.pt").stdout.decode().split("\n")
        self.assertEqual({line.count("\t") for line in lines[:-1]}, {3})
        self.assertEqual([line for line in lines if " " in line], [])
        self.assertIn('with\\x20"quotes"\\x20\\\\\\x20and\\x20\\x0A\\x20newline', run("ls", "--tsv", "names.pt").stdout.decode())
        self.prints("NAME\tDTYPE\tSHAPE\tSIZE\n", "ls", "--tsv", "no_tensors.pt")
        self.assertEqual(run("ls", "--tsv", "--json", "names.pt").returncode, 2)

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
        lines = run("ls", path).stdout.decode().splitlines()
        self.assertEqual({line.index(word) for line, word in zip(lines, ["DTYPE"] + ["float32"] * 3)}, {119})

    def test_adds_strides_and_offsets_in_the_long_form(self):
        self.prints(
            "NAME             DTYPE    SHAPE   SIZE  STRIDES  STORAGE  OFFSET  FILE OFFSET\n"
            "expanded         float32  [3, 6]  72 B  [0, 1]         0       0         1408\n"
            "scalar_expanded  float32  [2, 2]  16 B  [0, 0]         0       0         1408\n"
            "2 of 12 tensors, 88 B\n",
            "ls", "--long", "views.pt", "*expanded",
        )

    def test_counts_one_thing_in_the_singular_and_none_in_the_plural(self):
        self.prints(
            "NAME  DTYPE    SHAPE  SIZE\nw     float32  [3]    12 B\n1 tensor, 1 storage, 12 B\n",
            "ls", "renamed.tar.pt",
        )
        self.prints("0 tensors, 0 storages, 0 B\nthe file has values alone (weightmap tree shows them)\n",
                    "ls", "no_tensors.pt")

    def test_escapes_names_for_the_terminal_and_quotes_blank_ones(self):
        text = run("ls", "names.pt").stdout.decode()
        self.assertIn('with "quotes" \\\\ and \\x0A newline  ', text)
        self.assertIn('\n""  ', text)
        self.assertIn("\ngröße  ", text)
        self.assertFalse(any(ord(c) < 32 and c != "\n" for c in text))

    def test_aligns_wide_characters_and_lets_a_very_long_name_stand_out(self):
        lines = run("ls", "names.pt").stdout.decode().splitlines()
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
        self.prints(
            "NAME       DTYPE      SHAPE  SIZE  STRIDES  STORAGE  OFFSET  FILE OFFSET  LAZY\n"
            "base       complex64  [2]    16 B  [1]            0       0          832  -\n"
            "conjugate  complex64  [2]    16 B  [1]            0       0          832  conjugate\n"
            "2 tensors, 1 storage, 32 B\n",
            "ls", "--long", "conjugate.pt",
        )

    def test_json_paths_tell_integers_from_strings(self):
        paths = [t["path"] for t in self.document("ls", "--json", "int_keys.pt")["tensors"]]
        self.assertEqual(paths, [[0], ["0"], [-5], [1099511627776, 7]])

    def test_json_keeps_names_as_they_are(self):
        names = [t["name"] for t in self.document("ls", "--json", "names.pt")["tensors"]]
        self.assertIn('with "quotes" \\ and \n newline', names)

    def test_json_is_a_document_without_tensors_too(self):
        self.prints('{"file":"no_tensors.pt","tensors":[\n]}\n', "ls", "--json", "no_tensors.pt")

    def test_a_reader_that_leaves_is_no_fault(self):
        many = self.make("--count", 20000, "--shape", "4")
        command = f"set -o pipefail; '{TOOL}' ls '{many}' | head -n 1"
        done = subprocess.run(["bash", "-c", command], capture_output=True)
        self.assertEqual(done.returncode, 0)
        self.assertTrue(done.stdout.startswith(b"NAME "))
        self.assertEqual(done.stderr, b"")

    def test_a_full_disk_is_a_fault(self):
        with open("/dev/full", "wb") as full:
            done = run("ls", "state_dict.pt", stdout=full, stderr=subprocess.PIPE, capture_output=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(
            done.stderr, b"weightmap: cannot write to standard output: No space left on device\n"
        )

    def test_logs_only_when_asked(self):
        done = run("ls", "-v", "state_dict.pt")
        self.assertEqual(done.stdout, run("ls", "state_dict.pt").stdout)
        self.assertRegex(done.stderr.decode(), r"^\[\d\d:\d\d:\d\d\.\d{3}\] weightmap: .*7 tensors")


class Info(Case):
    def test_prints_a_block(self):
        lines = run("ls", "--info", "state_dict.pt").stdout.decode().splitlines()
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
        text = run("ls", "--info", "no_byteorder.pt").stdout.decode()
        self.assertIn("\nbyte order  little (assumed: the file does not say)\n", text)
        old = run("ls", "--info", "old_order.pt").stdout.decode()
        self.assertIn("\nformat      torch_zip, version 3, format version not stated\n", old)
        self.assertIsNone(self.document("ls", "--info", "--json", "old_order.pt")["format_version"])

    def test_options_override_the_environment(self):
        environment = {**ENVIRONMENT, "WEIGHTMAP_SHARING": "private"}
        by_variable = run("ls", "--info", "state_dict.pt", env=environment).stdout
        self.assertIn(b"\nmapping     private, read-only\n", by_variable)
        by_option = run("ls", "--info", "--sharing", "shared", "state_dict.pt", env=environment).stdout
        self.assertIn(b"\nmapping     shared, read-only\n", by_option)

    def test_refuses_an_environment_variable_that_it_does_not_understand(self):
        done = run("ls", "--info", "state_dict.pt", env={**ENVIRONMENT, "WEIGHTMAP_VERIFY": "all"})
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"WEIGHTMAP_VERIFY must be chain or headers or crc", done.stderr)


class Cat(Case):
    def test_prints_like_numpy(self):
        self.prints(
            "transposed: float32 [6, 4]\n"
            "[[ 0.  6. 12. 18.]\n [ 1.  7. 13. 19.]\n [ 2.  8. 14. 20.]\n"
            " [ 3.  9. 15. 21.]\n [ 4. 10. 16. 22.]\n [ 5. 11. 17. 23.]]\n",
            "cat", "views.pt", "transposed",
        )
        self.prints(
            "permuted: int16 [4, 2, 3]\n"
            "[[[ 0  4  8]\n  [12 16 20]]\n\n [[ 1  5  9]\n  [13 17 21]]\n\n"
            " [[ 2  6 10]\n  [14 18 22]]\n\n [[ 3  7 11]\n  [15 19 23]]]\n",
            "cat", "views.pt", "permuted",
        )

    def test_prints_scalars_booleans_and_empty_tensors(self):
        self.prints("steps: int64 []\n12345678901\n", "cat", "state_dict.pt", "steps")
        self.prints("scalar: float32 []\n2.5\n", "cat", "scalars_and_empty.pt", "scalar")
        self.prints(
            "layers.1.mask: bool [2, 2]\n[[ True False]\n [False  True]]\n",
            "cat", "state_dict.pt", "layers.1.mask",
        )
        self.prints("empty_rows: float32 [0, 5]\n[]\n", "cat", "scalars_and_empty.pt", "empty_rows")

    def test_prints_types_that_numpy_does_not_know(self):
        for dtype in ("bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz"):
            self.prints(f"{dtype}: {dtype} [5]\n[1. 2. 3. 4. 5.]\n", "cat", "dtypes.pt", dtype)
        self.prints(
            "float8_e8m0fnu: float8_e8m0fnu [6]\n"
            "[6.e-39 1.e-38 1.e+00 2.e+00 2.e+38    nan]\n",
            "cat", "dtypes.pt", "float8_e8m0fnu",
        )
        self.prints(
            "complex32: complex32 [5]\n[1.+0.j 2.+0.j 3.+0.j 4.+0.j 5.+0.j]\n",
            "cat", "dtypes.pt", "complex32",
        )

    def test_prints_packed_and_quantized_types_as_stored(self):
        self.prints(
            "float4_e2m1fn_x2: float4_e2m1fn_x2 [6]\n[  0   1 127 128 254 255]\n",
            "cat", "dtypes.pt", "float4_e2m1fn_x2",
        )
        self.prints("bits16: bits16 [3]\n[  256 32895 65534]\n", "cat", "dtypes.pt", "bits16")
        self.prints(
            "qint8: qint8 [3, 4]\n[[ 3  5  7  9]\n [11 13 15 17]\n [19 21 23 25]]\n",
            "cat", "quantized.pt", "qint8",
        )

    def test_shortens_more_than_a_thousand_elements(self):
        path = self.make("--count", 1, "--shape", "40x30", "--dtype", "uint8")
        values = run("cat", path, "tensor.0", "--raw").stdout
        rows = [values[30 * i : 30 * i + 30] for i in range(40)]
        lines = [
            " ".join([*(f"{v:3}" for v in row[:3]), "...", *(f"{v:3}" for v in row[-3:])])
            for row in rows[:3] + rows[-3:]
        ]
        expected = (
            f"tensor.0: uint8 [40, 30]\n[[{lines[0]}]\n [{lines[1]}]\n [{lines[2]}]\n ...\n"
            f" [{lines[3]}]\n [{lines[4]}]\n [{lines[5]}]]\n"
        )
        self.prints(expected, "cat", path, "tensor.0")

    def test_breaks_long_lines_at_75_columns(self):
        path = self.make("--count", 1, "--shape", "1000", "--dtype", "uint8")
        lines = run("cat", path, "tensor.0").stdout.decode().splitlines()[1:]
        self.assertEqual({len(line) for line in lines[:-1]}, {72})  # 18 numbers of 3 digits
        self.assertEqual(sum(len(line.strip("[] ").split()) for line in lines), 1000)

    def test_takes_slices(self):
        weight = ("cat", "state_dict.pt", "embedding.weight")
        self.prints("embedding.weight[0:2,-1]: float32 [2]\n[3. 7.]\n", *weight, "--slice", "0:2,-1")
        self.prints("embedding.weight[-1]: float32 [4]\n[20. 21. 22. 23.]\n", *weight, "--slice=-1")
        self.prints("embedding.weight[2,1]: float32 []\n9.0\n", *weight, "--slice", "2,1")
        self.prints("embedding.weight[9:]: float32 [0, 4]\n[]\n", *weight, "--slice", "9:")
        self.prints(
            "embedding.weight[:,3]: float32 [6]\n[ 3.  7. 11. 15. 19. 23.]\n", *weight, "--slice", ":,3"
        )

    def test_refuses_slices_outside_the_tensor(self):
        weight = ("cat", "state_dict.pt", "embedding.weight")
        self.fails("state_dict.pt: --slice: index 6 is outside a dimension of 6", *weight, "--slice", "6")
        self.fails(
            "state_dict.pt: --slice has 3 items, the tensor 2 dimensions", *weight, "--slice", "0,0,0"
        )

    def test_json_holds_all_values(self):
        self.prints(
            '{"file":"state_dict.pt","name":"layers.1.mask","dtype":"bool","shape":[2,2],'
            '"values":[true,false,false,true]}\n',
            "cat", "--json", "state_dict.pt", "layers.1.mask",
        )
        self.assertEqual(
            self.document("cat", "--json", "big_endian.pt", "complex64")["values"],
            [[1.0, 2.0], [3.0, -4.0]],
        )
        special = self.document("cat", "--json", "dtypes.pt", "float8_e8m0fnu")["values"]
        self.assertEqual(special[2:], [1.0, 2.0, 2e38, "nan"])

    def test_writes_raw_elements_row_major(self):
        raw = run("cat", "views.pt", "transposed", "--raw")
        column_major = [6 * j + i for i in range(6) for j in range(4)]
        self.assertEqual(raw.stdout, struct.pack("=24f", *column_major))
        swapped = run("cat", "big_endian.pt", "int64", "--raw")
        self.assertEqual(swapped.stdout, struct.pack("=2q", 0, 1))
        path = self.folder / "bits"
        self.prints("", "cat", "state_dict.pt", "layers.0.weight", "--raw", "-o", path)
        self.assertEqual(path.read_bytes()[:8], struct.pack("<4H", 0, 0x3F80, 0x4000, 0x4040))

    def test_writes_npy(self):
        path = self.folder / "a.npy"
        self.prints("", "cat", "views.pt", "permuted", "-o", path)
        content = path.read_bytes()
        header = "{'descr': '<i2', 'fortran_order': False, 'shape': (4, 2, 3), }"
        self.assertEqual(content[:10], b"\x93NUMPY\x01\x00\x76\x00")
        self.assertEqual(content[10:128].decode(), header.ljust(117) + "\n")
        self.assertEqual(struct.unpack("<24h", content[128:])[:6], (0, 4, 8, 12, 16, 20))

    def test_npy_shapes_are_python_tuples(self):
        for tensor, descr, shape in (("steps", "<i8", "()"), ("layers.0.bias", "<f2", "(4,)")):
            path = self.folder / "a.npy"
            self.prints("", "cat", "state_dict.pt", tensor, "-o", path)
            header = path.read_bytes()[10:128].decode()
            self.assertEqual(
                header.rstrip(), f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
            )

    def test_refuses_npy_of_types_that_numpy_does_not_know(self):
        path = self.folder / "a.npy"
        for dtype in ("bfloat16", "float8_e4m3fn", "complex32", "bits8", "float4_e2m1fn_x2"):
            other = ", --as float32 as numbers" if dtype in ("bfloat16", "float8_e4m3fn") else ""
            self.fails(
                f"dtypes.pt: numpy has no type for {dtype}; --raw writes the elements as they are{other}",
                "cat", "dtypes.pt", dtype, "-o", path,
            )
            self.assertFalse(path.exists())

    def test_replaces_a_file_only_by_a_whole_one(self):
        path = self.write("a.npy", b"before")
        self.assertEqual(run("cat", "conjugate.pt", "conjugate", "-o", path).returncode, 1)
        self.assertEqual(path.read_bytes(), b"before")
        self.assertEqual(os.listdir(self.folder), ["a.npy"])
        self.prints("", "cat", "state_dict.pt", "steps", "-o", path)
        self.assertTrue(path.read_bytes().startswith(b"\x93NUMPY"))
        self.assertEqual(os.listdir(self.folder), ["a.npy"])

    def test_never_replaces_the_checkpoint_it_reads(self):
        content = (DATA / "state_dict.pt").read_bytes()
        path = self.write("model.pt", content)
        link = self.folder / "link"
        link.symlink_to(path)
        for output in (path, link):
            self.fails(
                f"{output}: would replace the checkpoint that is being read",
                "cat", path, "steps", "--raw", "-o", output,
            )
        self.assertEqual(path.read_bytes(), content)

    def test_writes_devices_in_place(self):
        self.prints("", "cat", "state_dict.pt", "steps", "--raw", "-o", "/dev/null")
        self.assertTrue(pathlib.Path("/dev/null").is_char_device())

    def test_says_where_it_could_not_write(self):
        self.fails(
            "/nowhere/a.npy: cannot open the directory: No such file or directory",
            "cat", "state_dict.pt", "steps", "-o", "/nowhere/a.npy",
        )

    def test_writes_small_floats_as_float32(self):
        whole = run("cat", "state_dict.pt", "layers.0.weight", "--as", "float32", "--raw").stdout
        stored = run("cat", "state_dict.pt", "layers.0.weight", "--raw").stdout
        # A bfloat16 is the upper half of a float32.
        self.assertEqual(whole, b"".join(b"\0\0" + stored[i : i + 2] for i in range(0, 32, 2)))
        path = self.folder / "w.npy"
        self.prints("", "cat", "state_dict.pt", "layers.0.weight", "--as", "float32", "-o", path)
        self.assertIn(b"'descr': '<f4', 'fortran_order': False, 'shape': (4, 4)", path.read_bytes())
        self.assertEqual(path.read_bytes()[128:], whole)
        self.fails(
            "state_dict.pt: --as float32 is for float16, bfloat16 and the float8 types, of which "
            "every value is a float32; the tensor is int64",
            "cat", "state_dict.pt", "steps", "--as", "float32", "--raw",
        )
        self.assertEqual(run("cat", "state_dict.pt", "steps", "--as", "float32").returncode, 2)
        self.assertEqual(run("cat", "state_dict.pt", "steps", "--as", "int8", "--raw").returncode, 2)

    def test_refuses_values_that_are_not_the_tensors(self):
        done = run("cat", "conjugate.pt", "conjugate")
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertIn(b"lazy conjugate", done.stderr)

    def test_suggests_near_names(self):
        self.fails(
            "state_dict.pt: has no tensor \"step\"; did you mean \"steps\"?",
            "cat", "state_dict.pt", "step",
        )
        self.fails(
            "state_dict.pt: has no tensor \"layers.0.wieght\"; did you mean "
            "\"layers.0.weight\", \"layers.1.weight\" or \"layers.0.bias\"?",
            "cat", "state_dict.pt", "layers.0.wieght",
        )
        self.fails(
            "state_dict.pt: has no tensor \"zzzz\"; weightmap ls lists them",
            "cat", "state_dict.pt", "zzzz",
        )

    def test_escapes_what_was_typed(self):
        self.fails(
            "state_dict.pt: has no tensor \"\\x1B[2Jzz\"; weightmap ls lists them",
            "cat", "state_dict.pt", "\x1b[2Jzz",
        )

    def test_paths_tell_tensors_of_one_name_apart(self):
        done = run("cat", "colliding_names.pt", "a.b")
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertIn(b'["a", "b"]', done.stderr)
        self.assertIn(b"TENSOR may be one of these paths", done.stderr)
        self.prints('["a","b"]: float32 [2]\n[0. 1.]\n', "cat", "colliding_names.pt", '["a","b"]')
        self.prints('["a.b"]: float32 [1]\n[0.]\n', "cat", "colliding_names.pt", '["a.b"]')
        self.prints("[0]: float32 [1]\n[0.]\n", "cat", "int_keys.pt", "[0]")

    def test_finds_the_tensor_that_is_the_root(self):
        self.prints('"": float32 [2, 3]\n[[0. 1. 2.]\n [3. 4. 5.]]\n', "cat", "tensor_root.pt", "")


class Stats(Case):
    def test_prints_a_row_for_each_tensor_that_matches(self):
        self.prints(
            "TENSOR     DTYPE      COUNT  MIN  MAX      MEAN       STD  NAN  INF  ZEROS\n"
            "float32    float32        5    1    5         3   1.41421    0    0      0\n"
            "int64      int64          5    1    5         3   1.41421    0    0      0\n"
            "bool       bool           3    0    1  0.666667  0.471405    0    0      1\n"
            "complex64  complex64      -    -    -         -         -    -    -      -\n"
            "complex64 tensors have no statistics: complex numbers have no order\n",
            "stats", "dtypes.pt", "float32", "int64", "bool", "complex64",
        )

    def test_a_reason_for_rows_of_dashes_is_said_once(self):
        text = run("stats", "quantized.pt").stdout.decode()
        self.assertEqual(text.splitlines()[-3:], [
            f"{dtype} tensors have no statistics: what they store are not their values"
            for dtype in ("qint8", "quint8", "qint32")
        ])
        self.assertNotIn("statistics:", run("stats", "--tsv", "quantized.pt").stdout.decode())

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

    def test_a_pattern_that_matches_nothing_fails(self):
        self.fails('dtypes.pt: no tensor matches "x.*"', "stats", "dtypes.pt", "x.*")

    def test_a_tensor_without_elements_has_counts_only(self):
        document = self.document("stats", "--json", "scalars_and_empty.pt", "empty")
        [empty] = document["tensors"]
        self.assertEqual((empty["count"], empty["min"], empty["std"]), (0, None, None))


class Verify(Case):
    def test_says_what_was_checked(self):
        self.prints(
            "OK 7 storages, every offset against its local header; 300 B not read (--crc reads them)\n",
            "verify", "state_dict.pt",
        )
        self.prints(
            "OK 7 storages, every offset against its local header; CRC of 7 storages, 300 B\n",
            "verify", "--crc", "state_dict.pt",
        )

    def test_counts_storages_without_crc(self):
        text = run("verify", "--crc", "no_crc.pt").stdout.decode()
        self.assertTrue(text.startswith("OK 12 storages, "))
        self.assertTrue(text.endswith("; 1.4 KiB of 12 storages compared with nothing: they have no "
                                      "CRC (--sha256 or --sums compares whole files)\n"), text)

    def damaged(self, offset):
        content = bytearray((DATA / "state_dict.pt").read_bytes())
        content[offset] ^= 0xFF
        return self.write("damaged.pt", content)

    def test_prints_a_line_for_each_storage_that_differs(self):
        path = self.damaged(1344 + 5)  # in data/0
        self.assertEqual(run("verify", path).returncode, 0)
        done = run("verify", "--crc", path)
        lines = done.stdout.decode().splitlines()
        self.assertEqual((len(lines), done.returncode, done.stderr), (2, 1, b""))
        self.assertTrue(lines[0].startswith(f"FAULT {path}: ") and "data/0" in lines[0], lines[0])
        self.assertEqual(lines[1], "FAILED with 1 fault")

    def test_prints_a_fault_for_a_file_that_cannot_be_opened(self):
        done = run("verify", "strangers/truncated.pt")
        lines = done.stdout.decode().splitlines()
        self.assertEqual((len(lines), done.returncode, done.stderr), (2, 1, b""))
        self.assertTrue(lines[0].startswith("FAULT strangers/truncated.pt: "), lines[0])
        self.assertTrue(lines[0].endswith("(at byte 3959)"), lines[0])

    def test_json_has_the_stable_fields(self):
        good = self.document("verify", "--json", "state_dict.pt")
        self.assertEqual(
            good,
            {"file": "state_dict.pt", "ok": True, "storages": 7, "headers_checked": True,
             "duplicate_keys": 0, "long_names": 0, "hole_bytes": 0, "crc": None,
             "sha256": None, "bytes_not_compared": 300, "faults": []},
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
        done = run("verify", "--crc", damaged, "nowhere.pt", "state_dict.pt")
        self.assertEqual(done.returncode, 1)
        lines = done.stdout.decode().splitlines()
        self.assertTrue(lines[0].startswith(f"FAULT {damaged}: "), lines)
        self.assertEqual(lines[1], f"{damaged}: FAILED with 1 fault")
        self.assertTrue(lines[2].startswith("state_dict.pt: OK 7 storages, "), lines)
        self.assertEqual(len(lines), 3)
        self.assertIn("weightmap: nowhere.pt: ", done.stderr.decode())
        files = self.document("verify", "--json", "--crc", damaged, "nowhere.pt", "state_dict.pt",
                              code=1)["files"]
        self.assertEqual([file["file"] for file in files], [str(damaged), "nowhere.pt", "state_dict.pt"])
        self.assertEqual([file.get("ok") for file in files], [False, None, True])
        self.assertEqual(files[1]["error"]["code"], "io")
        both = self.document("verify", "--json", "state_dict.pt", "no_crc.pt")["files"]
        self.assertEqual([file["ok"] for file in both], [True, True])

    def test_one_sum_is_of_one_file(self):
        done = run("verify", "--sha256", "0" * 64, "state_dict.pt", "no_crc.pt")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--sha256: is the checksum of one FILE", done.stderr.decode())


class Warm(Case):
    def test_brings_the_whole_file_in(self):
        path = self.make("--count", 5, "--shape", "1024x1024", "--dtype", "float32")
        report = self.document("warm", "--json", path)
        seconds = report.pop("seconds")
        self.assertGreater(seconds, 0)
        self.assertGreater(report.pop("budget_bytes"), 0)
        self.assertTrue(report.pop("budget_reason"))
        self.assertEqual(
            report,
            {
                "file": str(path),
                "tensors": None,
                "order": None,
                "bytes": path.stat().st_size,
                "bytes_in_memory": path.stat().st_size,
                "drops_pages_at_open": False,
                "bytes_left_out": 0,
                "method": "read",
                "method_reason": "it is for other processes",
                "exact_reads": False,
                "steps": 11,
                "locked": False,
                "crc": None,
                "one_reader": None,
            },
        )

    def test_takes_tensors_in_the_order_they_are_named(self):
        path = self.make("--count", 5, "--shape", "1024x1024", "--dtype", "float32")
        order = self.write("order.txt", b"# last first\ntensor.4\n\ntensor.[01]\n")
        report = self.document("warm", "--json", path, "--order", order)
        self.assertEqual(report["tensors"], 3)
        self.assertLess(report["bytes"], path.stat().st_size)
        some = self.document("warm", "--json", path, "tensor.*", "--except", "tensor.[0-3]")
        self.assertEqual(some["tensors"], 1)
        self.assertLessEqual(some["bytes"], 8 << 20)

    def test_stays_with_what_it_has_locked_until_it_is_interrupted(self):
        path = self.make("--count", 5, "--shape", "1024x1024", "--dtype", "float32")
        holder = subprocess.Popen(
            [TOOL, "warm", "--lock", "--json", path], env=ENVIRONMENT,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        self.assertEqual(
            holder.stderr.readline(),
            b"weightmap: locked in memory until this is interrupted (Ctrl-C)\n",
        )
        status = pathlib.Path(f"/proc/{holder.pid}/status").read_text()
        self.assertIsNone(holder.poll())
        holder.send_signal(signal.SIGINT)
        report = json.loads(holder.communicate()[0])
        self.assertEqual(holder.returncode, 0)
        self.assertIs(report["locked"], True)
        locked = int(status.split("VmLck:")[1].split()[0]) * 1024
        if locked == 0:
            self.skipTest("memory is not locked here (AddressSanitizer switches that off)")
        self.assertGreaterEqual(locked, report["bytes"])

    def test_says_how_much_may_be_locked(self):
        path = self.make("--count", 1, "--shape", "1024x1024", "--dtype", "float32")
        self.folder.chmod(0o755)

        def become_somebody_with_little():
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
            if os.geteuid() == 0:
                os.setuid(65534)  # root may lock as much as it likes

        try:
            tool = subprocess.Popen(
                [TOOL, "warm", "--lock", path], env=ENVIRONMENT, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, preexec_fn=become_somebody_with_little,
            )
        except PermissionError:
            self.skipTest("the tool lies where only root may run it")
        said = tool.stderr.readline().decode()
        if "until this is interrupted" in said:
            tool.send_signal(signal.SIGINT)
        tool.communicate()
        if tool.returncode == 0 and b"AddressSanitizer" in TOOL.read_bytes():
            self.skipTest("memory is not locked here (AddressSanitizer switches that off)")
        self.assertEqual(tool.returncode, 1)
        self.assertRegex(
            said,
            r"made\.pt: cannot lock \d+ bytes in memory: .* \(RLIMIT_MEMLOCK is 65536 bytes\)",
        )

    def test_takes_an_order_without_what_is_left_out(self):
        path = self.make("--count", 5)
        order = self.write("order.txt", b"tensor.4\ntensor.[01]\n")
        report = self.document("warm", "--json", path, "--order", order, "--except", "*.4")
        self.assertEqual(report["tensors"], 2)
        self.assertEqual(report["order"], {"file": str(order), "tensors": 3, "unmatched_lines": 0})
        report = self.document("warm", "--json", path, "tensor.3", "--order", order)
        self.assertEqual(report["tensors"], 4)

    def test_says_which_lines_of_an_order_match_nothing(self):
        path = self.make("--count", 5)
        order = self.write("order.txt", b"tensor.4\ntensor.7\n")
        done = run("warm", "--json", path, "--order", order)
        self.assertEqual(json.loads(done.stdout)["order"]["unmatched_lines"], 1)
        self.assertEqual(
            done.stderr.decode(),
            f"weightmap: warning: {order}: 1 line of the order matched no tensor\n",
        )

    def test_refuses_an_order_that_names_nothing(self):
        path = self.make("--count", 5)
        order = self.write("order.txt", b"a\n")
        self.fails(
            f"{order}: the order is of another model: none of its lines (1) names a tensor of this one",
            "warm", path, "--order", order,
        )
        order.write_bytes(b"# nothing\n")
        self.fails(f"{path}: the order in {order} has no lines", "warm", path, "--order", order)

    def test_brings_in_first_what_the_order_beside_the_file_names(self):
        path = self.make("--count", 5, "--shape", "1024x1024", "--dtype", "float32")
        order = self.write("made.pt.order", b"tensor.3\ntensor.1\ngone\n")
        done = run("warm", "--explain", path)
        self.assertEqual(done.stderr, b"")
        self.assertRegex(
            done.stdout.decode(),
            r"\nwhat    all tensors, in recorded order, in 11 steps\n"
            rf"order   2 tensors of {re.escape(str(order))}; 1 line matched no tensor\nmethod",
        )
        report = self.document("warm", "--json", path)
        self.assertIsNone(report["tensors"])
        self.assertEqual(report["order"], {"file": str(order), "tensors": 2, "unmatched_lines": 1})
        self.assertGreaterEqual(report["bytes"], 20 << 20)
        some = self.document("warm", "--json", path, "--except", "tensor.[12]")
        self.assertEqual((some["tensors"], some["order"]["tensors"]), (3, 2))

    def test_looks_for_no_order_where_it_is_told_what_to_take(self):
        path = self.make("--count", 5)
        self.write("made.pt.order", b"tensor.3\n")
        for arguments in (["--no-order"], ["tensor.1"], ["--no-order", "--except", "tensor.1"]):
            self.assertIsNone(self.document("warm", "--json", path, *arguments)["order"])
        other = self.write("other", b"tensor.2\n")
        report = self.document("warm", "--json", path, "--order", other)
        self.assertEqual((report["tensors"], report["order"]["file"]), (1, str(other)))
        self.assertEqual(run("warm", path, "--order", other, "--no-order").returncode, 2)

    def test_warms_the_file_in_its_own_order_where_the_order_is_unusable(self):
        path = self.make("--count", 5)
        for content, reason in (
            (b"a\nb\n", "the order is of another model: none of its lines (2) names a tensor of this one"),
            (b"a" * (1 << 20) + b"a\n", "a line has more than 1 MiB (at byte 0)"),
        ):
            order = self.write("made.pt.order", content)
            done = run("warm", "--json", path)
            self.assertEqual(
                (done.stderr.decode(), done.returncode),
                (f"weightmap: warning: {order}: {reason}; --no-order ignores it\n", 0),
            )
            self.assertIsNone(json.loads(done.stdout)["order"])
        order.write_bytes(b"# nothing was recorded\n")
        done = run("warm", "--json", path)
        self.assertEqual((json.loads(done.stdout)["order"], done.stderr), (None, b""))
        order.unlink()
        order.mkdir()
        self.assertIn(b"is a directory, expected a regular file", run("warm", path).stderr)

    def test_stops_at_the_budget(self):
        path = self.make("--count", 5, "--shape", "1024x1024", "--dtype", "float32")
        report = self.document("warm", "--json", path, "--budget", "8MiB")
        self.assertEqual((report["bytes"], report["budget_reason"]), (8 << 20, ""))
        self.assertEqual(report["bytes_left_out"], path.stat().st_size - (8 << 20))
        done = run("warm", path, "--budget", "8MiB", "--explain")
        self.assertRegex(
            done.stdout.decode(),
            r"\A8\.0 MiB in memory after [0-9.]+ s \(.*/s\)\n"
            r"left out 12\.0 MiB: the budget is 8\.0 MiB\n"
            r"what    the whole file, in its order, in 4 steps\n"
            r"method  read: it is for other processes\nbudget  8\.0 MiB\n\Z",
        )

    def test_takes_sizes_with_fractions_and_units(self):
        path = self.make("--count", 1, "--shape", "8")
        for text, expected in (("4096", 4096), ("4096B", 4096), ("2k", 2048), ("2KB", 2048),
                               ("2Ki", 2048), ("2KiB", 2048), ("1.5M", 1572864),
                               ("0.5GiB", 536870912), ("8.0 MiB", 8388608),
                               ("3T", 3298534883328), ("1P", 1125899906842624),
                               ("15E", 17293822569102704640)):
            report = self.document("warm", "--json", path, "--budget", text)
            self.assertEqual(report["budget_bytes"], expected, text)

    def test_refuses_sizes_that_are_none(self):
        for text in ("-1", "+1", " 1", "1G ", "1.5.0G", "1..5", "G", "1X", "1Gi b", "1kk", "0x10",
                     "1e3", "16E", "15.9999999999999999E", "18446744073709551616", "nan", "inf"):
            done = run("warm", "state_dict.pt", "--budget=" + text)
            self.assertEqual(done.returncode, 2, text)
            self.assertTrue(done.stderr.startswith(
                b"weightmap: --budget: must be a size such as 4096, 64KiB or 1.5G, not \""), text)

    def test_compares_sums_on_the_way(self):
        path = self.make("--count", 5, "--shape", "1024x1024", "--dtype", "float32")
        self.assertRegex(run("warm", "--crc", path).stdout, rb"\nOK CRC of 5 storages\n\Z")
        offset = self.document("ls", "--json", path)["tensors"][3]["file_offset"]
        with open(path, "r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 1]))
        report = self.document("warm", "--crc", "--json", path, code=1)
        crc = report["crc"]
        self.assertEqual((crc["storages_checked"], crc["storages_left_out"]), (5, 0))
        self.assertEqual(crc["faults"][0]["file_offset"], offset)
        self.assertIn('the storage of tensor "tensor.3", has CRC-32', crc["faults"][0]["message"])
        some = self.document("warm", "--crc", "--json", path, "tensor.0")
        self.assertEqual((some["crc"]["storages_checked"], some["crc"]["faults"]), (1, []))
        self.assertEqual(some["crc"]["storages_left_out"], 4)

    def test_draws_no_bar_where_standard_error_is_no_terminal(self):
        path = self.make("--count", 2, "--shape", "1024x1024", "--dtype", "float32")
        self.assertEqual(run("warm", path).stderr, b"")

    def test_refuses_what_is_not_there(self):
        self.fails('training.pt: no tensor matches "nothing*"', "warm", "training.pt", "nothing*")
        self.fails("training.pt: nothing is left to warm", "warm", "training.pt", "--except", "*")
        self.fails(
            "no.txt: cannot open the file: No such file or directory",
            "warm", "training.pt", "--order", "no.txt",
        )

    def test_does_not_wait_for_an_order_that_is_a_fifo(self):
        path = self.make("--count", 2)
        os.mkfifo(f"{path}.order")
        done = run("warm", path)
        self.assertEqual(done.returncode, 0)
        self.assertIn(b"is a FIFO (named pipe), expected a regular file", done.stderr)


def on_disk(path):
    """Writes what the page cache alone has of a file."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    return path


def read_pages(path, offset, length):
    """Brings in the pages of a range and no others, which the system may take at any time."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        page = os.sysconf("SC_PAGE_SIZE")
        for at in range(offset // page * page, offset + length, page):
            os.pread(file.fileno(), 1, at)


class Caching(Case):
    """Cases whose files are evicted, which files in memory cannot be."""

    def evicted(self, path):
        report = self.evict_report(path)
        if report["reason"] == "memory_file_system":
            self.skipTest("the temporary folder is in memory, where nothing can be evicted")
        self.assertEqual(report["cached_after"], 0)
        return path

    def evict_report(self, path):
        return json.loads(run("residency", "--evict", "--json", on_disk(path)).stdout)["files"][0]

    def model(self):
        """Six tensors of 4 MiB, all on the disk, none in the page cache."""
        return self.evicted(self.make("--count", 6, "--shape", "1024x2048"))

    def keep_tensor_cached(self, path, index):
        tensor = self.document("ls", "--json", path)["tensors"][index]
        keep_cached(self, path, tensor["file_offset"], tensor["nbytes"])


class OneReader(Caching):
    """What `warm --one-reader` says; one_reader_test.py has what it does."""

    def warm(self, path, *arguments, shared):
        environment = {**ENVIRONMENT, "WEIGHTMAP_RUNTIME_DIR": str(shared)}
        done = run("warm", "--one-reader", path, *arguments, env=environment)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return done.stdout

    def reader(self, path):
        text = self.warm(path, "--json", shared=self.folder / "shared")
        return json.loads(text)["one_reader"]

    def test_says_that_it_was_the_reader_or_that_none_was_needed(self):
        path = self.model()
        nobody = {"was_reader": False, "takeovers": 0, "bytes_read": 0, "bytes_waited_for": 0,
                  "why_alone": ""}
        alone = self.reader(path)
        self.assertEqual(alone, {**nobody, "was_reader": True, "bytes_read": alone["bytes_read"]})
        self.assertGreater(alone["bytes_read"], 0)
        keep_cached(self, path)
        self.assertEqual(self.reader(path), nobody)
        explained = self.warm(path, "--explain", shared=self.folder / "shared")
        self.assertIn(b"\nreader  none was needed\n", explained)

    def test_a_relative_runtime_directory_is_said_to_be_wrong(self):
        explained = self.warm(self.model(), "--explain", shared="shared")
        self.assertIn(b"\nreader  each for itself: environment variable WEIGHTMAP_RUNTIME_DIR must "
                      b"be an absolute path\n", explained)

    def test_says_why_nobody_could_be_elected(self):
        explained = self.warm(self.model(), "--explain", shared="/nonexistent/shared")
        self.assertIn(b'\nreader  each for itself: cannot make the folder "/nonexistent/shared": '
                      b"No such file or directory\n", explained)


@unittest.skipIf(TOOL.read_bytes()[:2] == b"#!", "a command in Python becomes the tool too late")
class Bar(Caching):
    """The progress bar, on a terminal that only standard error leads to."""

    def warm_with_a_stop(self, path):
        """Warms a file, and stops the process for a moment once its bar has appeared."""
        with Terminal() as terminal, subprocess.Popen(
            [TOOL, "warm", path], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=terminal.theirs
        ) as child:
            terminal.leave_to_child()
            if terminal.read():
                child.send_signal(signal.SIGSTOP)
                time.sleep(0.3)
                child.send_signal(signal.SIGCONT)
            drawn = terminal.read_all()
            self.assertRegex(child.stdout.read(), rb"\A[\d.]+ MiB in memory after ")
            self.assertEqual(child.wait(), 0)
        return drawn

    def test_shows_bytes_rate_and_time_left_and_wipes_the_line(self):
        path = self.make("--count", 75, "--shape", "1024x1024", "--dtype", "float32")
        for _ in range(10):  # a fast disk may be done before the process is stopped
            drawn = self.warm_with_a_stop(self.evicted(path))
            if "left" in drawn:
                break
        amount = r"\d+(\.\d)? [KMG]?i?B"
        first, *_, last = drawn.split("\x1b[K")[:-1]
        self.assertRegex(first, rf"\A\r\[#*\.*\] +\d+%  {amount} of 300\.0 MiB\Z")
        self.assertRegex(
            drawn, rf"\r\[#*\.*\] +\d+%  {amount} of 300\.0 MiB, {amount}/s, \d+ s left\x1b\[K"
        )
        self.assertEqual(last, "\r")


class Evict(Caching):
    def test_prints_before_and_after(self):
        path = self.evicted(self.write("notes.txt", b"x" * 5000))
        read_pages(path, 0, 1)
        done = run("residency", "--evict", path)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        # What was read may be gone again; how much is counted where it stays.
        self.assertRegex(
            done.stdout.decode().removeprefix(str(path)),
            r"^: (4\.0 KiB|0 B) of 4\.9 KiB in the page cache before, 0 B after\n$",
        )
        self.prints(f"{path}: 0 B of 4.9 KiB in the page cache before, 0 B after\n", "residency",
                    "--evict", path)

    def test_json_has_the_stable_fields_in_order(self):
        path = self.write("notes.txt", b"x" * 5000)
        report = self.evict_report(path)
        if report["reason"] is not None:
            self.skipTest(f"not evicted: {report['reason']}")
        self.assertEqual(
            list(report.items()),
            [
                ("file", str(path)), ("file_bytes", 5000),
                ("cached_before", report["cached_before"]), ("cached_after", 0), ("reason", None),
                ("unwritten_bytes", 0),
            ],
        )
        with cached(path):
            report = self.evict_report(path)
        self.assertEqual((report["cached_before"], report["cached_after"]), (5000, 5000))

    def test_says_what_stays_and_why(self):
        path = self.evicted(self.write("notes.txt", b"x" * 5000))
        with cached(path, 0, 1):
            done = run("residency", "--evict", path)
            self.assertEqual((done.returncode, done.stderr), (1, b""))
            self.assertEqual(
                done.stdout.decode(),
                f"{path}: 4.0 KiB of 4.9 KiB in the page cache before, 4.0 KiB after: "
                "a process has them mapped or locked\n",
            )
            self.assertEqual(self.evict_report(path)["reason"], "in_use")
        self.evicted(path)

    def test_says_that_a_file_lives_in_memory(self):
        try:
            file = tempfile.NamedTemporaryFile(dir="/dev/shm")
        except OSError as error:
            self.skipTest(f"no file in memory: {error}")
        with file:
            file.write(b"x" * 10)
            file.flush()
            done = run("residency", "--evict", file.name)
        self.assertEqual(
            done.stdout.decode(),
            f"{file.name}: 10 B of 10 B in the page cache before, 10 B after: "
            "the file system keeps its files in memory\n",
        )
        self.assertEqual(done.returncode, 1)

    def test_goes_on_after_a_file_that_fails(self):
        path = on_disk(self.write("notes.txt", b"x" * 10))
        missing = self.folder / "missing.pt"
        (empty := self.folder / "empty").mkdir()
        done = run("residency", "--evict", missing, empty, path)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(
            done.stderr.decode(),
            f"weightmap: {missing}: cannot open the file: No such file or directory\n"
            f"weightmap: {empty}: is a folder in which there is no checkpoint: expected an index of "
            "shards, *.safetensors, *.bin, *.gguf, or one file of another format\n",
        )
        self.assertRegex(done.stdout.decode().removeprefix(str(path)), r"^: \d+ B of 10 B in the ")
        files = self.document("residency", "--evict", "--json", missing, path, code=1)["files"]
        self.assertEqual(list(files[0]), ["file", "error"])
        self.assertEqual(files[0]["error"]["code"], "io")
        self.assertEqual(files[1]["file_bytes"], 10)

    def test_refuses_an_empty_file(self):
        path = self.write("empty", b"")
        self.fails(f"{path}: is empty", "residency", "--evict", path)


class Residency(Caching):
    def residency(self, *arguments, code=0):
        return self.document("residency", "--json", *arguments, code=code)

    def test_looking_reads_only_metadata(self):
        path = self.model()
        eager = {**ENVIRONMENT, "WEIGHTMAP_POPULATE": "1", "WEIGHTMAP_VERIFY": "crc"}
        for environment in (ENVIRONMENT, eager):
            run("residency", path, env=environment)
            report = json.loads(run("residency", "--json", path, env=environment).stdout)
            self.assertLess(report["cached_bytes"], 256 << 10)
            self.assertEqual(report["file_bytes"], path.stat().st_size)

    def test_puts_tensors_together_by_their_names(self):
        path = self.make("--layers", 2, "--hidden", 64, "--vocab", 100)
        whole = self.residency(path)
        names = [g["name"] for g in whole["groups"]]
        self.assertEqual(
            names,
            ["model.embed_tokens.weight", "model.layers.0", "model.layers.1", "model.norm.weight",
             "lm_head.weight"],
        )
        self.assertEqual([g["tensors"] for g in whole["groups"]], [1, 9, 9, 1, 1])
        tensors = self.document("ls", "--json", path)["tensors"]
        self.assertEqual(sum(g["bytes"] for g in whole["groups"]), sum(t["nbytes"] for t in tensors))
        by_two = self.residency("--depth", 2, path, "model.*")["groups"]
        self.assertEqual(
            [g["name"] for g in by_two], ["model.embed_tokens", "model.layers", "model.norm"]
        )

    def test_several_files_are_shown_and_the_rest_are_patterns(self):
        path = self.model()
        other = self.write("other.pt", path.read_bytes())
        files = self.residency("--by-tensor", path, "tensor.1", other)["files"]
        self.assertEqual([file["file"] for file in files], [str(path), str(other)])
        self.assertEqual([[group["name"] for group in file["groups"]] for file in files],
                         [["tensor.1"]] * 2)
        files = self.residency(path, "nowhere.pt", "state_dict.pt", code=1)["files"]
        self.assertEqual([sorted(file) for file in files], [["error", "file"]] * 2)  # a pattern
        done = run("residency", path, "strangers/truncated.pt")
        lines = done.stdout.decode().splitlines()
        self.assertEqual((done.returncode, lines[0]), (1, f"{path}:"))
        self.assertIn("weightmap: strangers/truncated.pt: ", done.stderr.decode())
        (dangling := self.folder / "dangling.pt").symlink_to("nowhere.pt")
        os.mkfifo(pipe := self.folder / "pipe.pt")
        for bad in (dangling, pipe, "/dev/zero"):
            files = self.residency(path, bad, other, code=1)["files"]
            self.assertEqual([(file["file"], "error" in file) for file in files],
                             [(str(path), False), (str(bad), True), (str(other), False)])
        for option in ("--watch", "--tsv"):
            done = run("residency", option, path, "state_dict.pt")
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"{option}: takes one FILE", done.stderr.decode())

    def tied(self):
        return self.archive(b"\x80\x02}(" + pickled("a.x") + FLOATS + pickled("a.y") + FLOATS + b"u.")

    def test_counts_tensors_of_the_same_bytes_once(self):
        path = self.tied()
        keep_cached(self, path)
        together = {"name": "a", "tensors": 2, "bytes": 16, "cached_bytes": 16}
        self.assertEqual(self.residency("--depth", 1, path)["groups"], [together])
        alone = [(g["name"], g["bytes"]) for g in self.residency("--by-tensor", path)["groups"]]
        self.assertEqual(alone, [("a.x", 16), ("a.y", 16)])
        self.assertEqual([s["bytes"] for s in self.residency(path)["storages"]], [16])

    def test_prints_a_bar_for_each_group_and_one_for_the_file(self):
        path = self.model()
        self.keep_tensor_cached(path, 0)
        keep_cached(self, path, *self.half_of(path, 1))
        lines = run("residency", "--by-tensor", path, "tensor.[0-2]").stdout.decode().splitlines()
        self.assertEqual(lines[0].split(), ["TENSOR", "SIZE", "CACHED", "%", "IN", "THE", "PAGE", "CACHE"])
        self.assertRegex(lines[1], r"^tensor\.0 +4\.0 MiB +4\.0 MiB  100%  \[#{36}\]$")
        self.assertRegex(lines[2], r"^tensor\.1 +4\.0 MiB +2\.0 MiB   50%  \[#{18}\.{18}\]$")
        self.assertRegex(lines[3], r"^tensor\.2 +4\.0 MiB +[\d.]+ K?i?B   *(0|<1)%  \[\.{36}\]$")
        self.assertRegex(lines[4], r"^whole file +24\.0 MiB +6\.\d MiB   2\d%  \[#{9}\.{27}\]$")
        self.assertTrue(all(line.startswith("fragmented: ") for line in lines[5:]), lines[5:])

    def test_shows_little_as_little(self):
        path = self.make("--count", 1, "--shape", "8192x4096")
        page = self.document("ls", "--json", path)["tensors"][0]["file_offset"] + (16 << 20)
        run("residency", "--evict", path)
        keep_cached(self, path, page, 1)
        whole = run("residency", "--bytes", path).stdout.decode().splitlines()[2].split()
        size, cached = int(whole[2]), int(whole[3])
        self.assertGreater(cached, 0)
        part = cached / size
        self.assertEqual(whole[4], "<1%" if part < 0.01 else "100%" if part == 1 else f"{int(100 * part)}%")
        self.assertEqual(whole[5].count("#"), int(part * (len(whole[5]) - 2)))

    def test_takes_several_patterns_and_writes_fields_for_programs(self):
        keep_cached(self, DATA / "state_dict.pt")
        self.prints(
            "TENSOR\tSIZE\tCACHED\nsteps\t8\t8\nlayers.0.bias\t8\t8\n",
            "residency", "--tsv", "--by-tensor", "state_dict.pt", "steps", "*.bias",
        )

    def test_shows_as_many_parts_of_names_as_stay_few_lines(self):
        few = self.make("--layers", 12, "--hidden", 64, "--vocab", 100)
        self.assertEqual(len(self.residency(few)["groups"]), 12 + 3)
        many = self.make("--layers", 60, "--hidden", 64, "--vocab", 100)
        names = [group["name"] for group in self.residency(many)["groups"]]
        self.assertEqual(names, ["model.embed_tokens", "model.layers", "model.norm", "lm_head.weight"])

    def half_of(self, path, index):
        tensor = self.document("ls", "--json", path)["tensors"][index]
        return tensor["file_offset"], tensor["nbytes"] // 2

    def test_names_a_fragmented_cache_and_repairs_it(self):
        path = self.model()
        with cached(path):
            before = self.residency(path)
            last = run("residency", path).stdout.decode().splitlines()[-1]
        self.assertEqual(before["cached_bytes"], path.stat().st_size)
        if before["fragmented"] is None:
            self.skipTest("it is not known whether this system could do better")
        self.assertTrue(before["fragmented"])
        self.assertEqual((before["sampled_bytes"] > 0, before["sampled_huge_bytes"]), (True, 0))
        self.assertRegex(
            last,
            r"^fragmented: 0 B of \d+\.0 MiB sampled in huge pages, so that mapping costs a page "
            r"fault for each small one; --repair evicts the file and reads it again$",
        )
        done = run("residency", "--json", "--repair", path)
        after = json.loads(done.stdout)
        repair = after["repair"]
        # All of it is cached, unless somebody evicted some; what is left is read again.
        cached_before, read = repair.pop("cached_before"), repair.pop("read_bytes")
        self.assertLessEqual(cached_before, read)
        self.assertLessEqual(read, path.stat().st_size)
        if after["fragmented"] is not False or not repair["fragmented_before"]:
            self.assertEqual(done.returncode, 1 if after["fragmented"] else 0)
            self.skipTest("the system gave no large pages to this file, or took it away meanwhile")
        self.assertEqual(done.returncode, 0)
        self.assertGreater(repair.pop("huge_bytes"), 0)
        self.assertEqual(
            list(repair.items()),
            [("fragmented_before", True), ("stayed_bytes", 0), ("reason", None)],
        )

    def test_repairs_only_what_was_cached(self):
        path = self.model()
        offset, _ = self.half_of(path, 3)
        read_pages(path, offset, 1)
        done = run("residency", "--repair", path)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        after = self.residency(path)
        # 2 MiB around that page and around the metadata at both ends of the file, and after each of
        # the three perhaps as much, which the system read ahead.
        self.assertLessEqual(after["cached_bytes"], 12 << 20)
        repair = self.residency("--repair", path)["repair"]
        self.assertLessEqual(repair["cached_before"], repair["read_bytes"])
        self.assertLessEqual(repair["read_bytes"], 12 << 20)
        self.assertEqual(after["groups"][0]["tensors"], 6)
        self.assertRegex(done.stdout.decode().splitlines()[-1], r"^repaired: read [\d.]+ MiB again, ")

    def test_repair_says_what_it_could_not_evict(self):
        path = self.model()
        offset, _ = self.half_of(path, 3)
        with cached(path, offset, 1):
            repair = self.residency("--repair", path)["repair"]
            self.assertEqual(repair["reason"], "in_use")
            self.assertGreater(repair["stayed_bytes"], 0)

    def test_json_has_the_stable_fields_in_order(self):
        keep_cached(self, DATA / "state_dict.pt")
        document = self.residency("state_dict.pt", "layers.1.*")
        self.assertEqual(
            list(document.items()),
            [
                ("file", "state_dict.pt"), ("file_bytes", 3576), ("cached_bytes", 3576),
                ("fragmented", None), ("sampled_bytes", 0), ("sampled_huge_bytes", 0),
                ("groups", [{"name": "layers.1", "tensors": 2, "bytes": 132, "cached_bytes": 132}]),
                ("storages", [
                    {"key": "3", "file_offset": 1792, "bytes": 128, "cached_bytes": 128},
                    {"key": "4", "file_offset": 2048, "bytes": 4, "cached_bytes": 4},
                ]),
            ],
        )

    def test_prints_empty_tensors_and_files_without_any(self):
        text = run("residency", "--by-tensor", "scalars_and_empty.pt", "empty_rows").stdout.decode()
        self.assertRegex(text.splitlines()[1], r"^empty_rows      0 B      0 B     -  \[\.+\]$")
        lines = run("residency", "no_tensors.pt").stdout.decode().splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["GROUP", "whole"])

    def test_watches_until_the_reader_leaves(self):
        command = [TOOL, "residency", "--watch", "--json", "state_dict.pt"]
        with subprocess.Popen(
            command, cwd=DATA, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as watch:
            documents = [json.loads(watch.stdout.readline()) for _ in range(2)]
            watch.stdout.close()
            self.assertEqual(watch.wait(), 0)
            self.assertEqual(watch.stderr.read(), b"")
        self.assertEqual(list(documents[0]), list(documents[1]))
        self.assertEqual({d["file_bytes"] for d in documents}, {3576})

    def test_watches_on_a_terminal_until_it_is_interrupted(self):
        wipe = "\x1b[H\x1b[2J"
        keep_cached(self, DATA / "state_dict.pt")
        with Terminal() as terminal:
            before = termios.tcgetattr(terminal.theirs)
            command = [TOOL, "residency", "--watch", "state_dict.pt"]
            with subprocess.Popen(
                command, cwd=DATA, env=ENVIRONMENT, stdout=terminal.theirs, stderr=subprocess.PIPE
            ) as watch:
                while terminal.text.count("whole file") < 2:
                    self.assertTrue(terminal.read())
                watch.send_signal(signal.SIGINT)
                self.assertEqual((watch.wait(), watch.stderr.read()), (0, b""))
            self.assertEqual(termios.tcgetattr(terminal.theirs), before)
            terminal.leave_to_child()
            pictures = terminal.read_all().split(wipe)
        self.assertEqual(pictures[0], "")
        self.assertNotIn("\x1b", "".join(pictures))  # there is nothing to undo
        for picture in pictures[1:]:
            lines = picture.split("\r\n")
            self.assertEqual(lines[0].split(), ["GROUP", "SIZE", "CACHED", "%", "IN", "THE", "PAGE", "CACHE"])
            self.assertRegex(lines[-2], r"^whole file +3\.5 KiB +3\.5 KiB  100%  \[#+\]$")
            self.assertEqual((len(lines), lines[-1]), (7, ""))

    def test_watching_ends_well_when_it_is_terminated(self):
        command = [TOOL, "residency", "--watch", "--json", "state_dict.pt"]
        with subprocess.Popen(command, cwd=DATA, env=ENVIRONMENT, stdout=subprocess.PIPE) as watch:
            json.loads(watch.stdout.readline())
            watch.terminate()
            self.assertEqual(watch.wait(), 0)

    def test_refuses_what_is_no_checkpoint(self):
        for name in ("strangers/page.pt", "strangers/empty.pt", self.folder):
            self.assertEqual(run("residency", name).returncode, 1)
            self.assertEqual(
                self.residency(name, code=1)["error"]["code"], "not_a_checkpoint", name
            )
        self.assertEqual(self.residency("nowhere.pt", code=1)["error"]["code"], "io")
        self.fails('state_dict.pt: no tensor matches "nothing*"', "residency", "state_dict.pt", "nothing*")

    def test_refuses_options_that_contradict(self):
        for arguments in (("--depth", "2", "--by-tensor"), ("--watch", "--repair"), ("--depth", "0")):
            self.assertEqual(run("residency", *arguments, "state_dict.pt").returncode, 2, arguments)


class Sum(Case):
    def test_adds_up_by_the_beginning_of_the_names(self):
        self.prints(
            " SIZE  ELEMENTS  TENSORS  GROUP\n"
            " 96 B        24        1  embedding\n"
            "172 B        40        4  layers\n"
            "  8 B         1        1  steps\n"
            " 24 B         6        1  position_ids\n"
            "7 tensors of 71 elements, 300 B\n",
            "ls", "--sum", "state_dict.pt",
        )

    def test_takes_depth_order_and_patterns(self):
        self.prints(
            "SIZE\tELEMENTS\tTENSORS\tGROUP\n"
            "132\t20\t2\tlayers.1\n"
            "40\t20\t2\tlayers.0\n",
            "ls", "--sum", "--tsv", "--depth", 2, "--sort", "size", "state_dict.pt", "layers.*",
        )
        self.fails('state_dict.pt: no tensor matches "z*"', "ls", "--sum", "state_dict.pt", "z*")

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

    def test_a_file_without_tensors_has_a_sum_of_none(self):
        self.prints("0 tensors of 0 elements, 0 B\n", "ls", "--sum", "no_tensors.pt")


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

    def test_shows_tensors_by_type_shape_and_size(self):
        self.prints(
            "model: collections.OrderedDict, 4 items, 1 attribute\n"
            "  0.weight: float32 [4, 3], 48 B\n"
            "  0.bias: float32 [4], 16 B\n"
            "  2.weight: float32 [2, 4], 32 B\n"
            "  2.bias: float32 [2], 8 B\n"
            "  _metadata: collections.OrderedDict, 4 items\n",
            "tree", "--depth", 1, "training.pt", "model",
        )

    def test_begins_at_a_path_and_stops_at_a_depth(self):
        self.prints(
            "history: list, 2 elements\n"
            "  0: [1.0, 0.5]\n"
            "  1: list, 2 elements\n",
            "tree", "--depth", 1, "training.pt", "history",
        )
        self.prints("scheduler.gamma: 0.1\n", "tree", "training.pt", '["scheduler", "gamma"]')
        self.prints("optimizer.state.0.step: float32 [], 4 B\n", "tree", "training.pt", "optimizer.state.0.step")
        self.fails(
            'training.pt: has nothing of the name "no.where"; weightmap tree shows all',
            "tree", "training.pt", "no.where",
        )

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
        self.prints(
            "dict, 2 items\n"
            "  a: list, 2 elements\n"
            "    0: float32 [3], 12 B\n"
            "    1: float32 [2], 8 B\n"
            "  b: list, 2 elements, the same as a\n",
            "tree", "shared_list.pt",
        )
        loop = self.archive(b"\x80\x02}q\x00" + pickled("me") + b"h\x00s.")
        self.prints("dict, 1 item\n  me: dict, 1 item, the same as the root\n", "tree", loop)
        self.assertEqual(self.document("tree", "--json", loop)["value"], {"me": {"$same_as": ""}})

    def test_work_stays_bounded_for_lists_of_lists_of_lists(self):
        content = b"\x80\x02]q\x00"
        for i in range(60):  # each list holds the one before twice
            content += b"](h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1])
        path = self.archive(content + b".")
        self.assertLess(len(run("tree", "--all", path).stdout.splitlines()), 200)
        self.assertLess(len(run("tree", "--json", path).stdout), 20000)

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
        lines = run("tree", "--all", often).stdout.decode().splitlines()
        self.assertEqual(len(lines), 302)
        self.assertEqual(lines[1], "  0: '" + 80 * "x" + "'... (1048576 bytes)")
        self.assertEqual(run("cat", often, "7").stdout, text.encode() + b"\n")

    def test_stops_at_two_hundred_levels(self):
        path = self.archive(b"\x80\x02" + b"]" * 300 + b"a" * 299 + b".")
        text = run("tree", path).stdout.decode()
        self.assertTrue(text.endswith("... deeper than 200\n"), text[-300:])
        self.assertIn('{"$deeper_than":200}', run("tree", "--json", path).stdout.decode())

    def test_shows_the_beginning_of_many(self):
        path = self.archive(pickle.dumps({"losses": [float(i) for i in range(100)]}, protocol=2))
        lines = run("tree", path).stdout.decode().splitlines()
        self.assertEqual(lines[1], "  losses: list, 100 elements")
        self.assertEqual(lines[25:], ["    23: 23.0", "    ... 76 more, with --all"])
        self.assertEqual(len(run("tree", "--all", path).stdout.splitlines()), 102)

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


class Values(Case):
    """cat of what is not a tensor."""

    def test_prints_the_value_alone(self):
        self.prints("2\n", "cat", "training.pt", "epoch")
        self.prints("tiny\n", "cat", "training.pt", "name")
        self.prints("0.1\n", "cat", "training.pt", "scheduler.gamma")
        self.prints(
            "scheduler: dict, 4 items\n  step_size: 2\n  gamma: 0.1\n  last_epoch: 2\n  base_lrs: [0.01]\n",
            "cat", "training.pt", "scheduler",
        )

    def test_json_says_the_type(self):
        self.assertEqual(
            self.document("cat", "--json", "training.pt", "epoch"),
            {"file": "training.pt", "name": "epoch", "type": "int", "value": 2},
        )

    def test_prints_bytes(self):
        for protocol in (2, 4):
            long = bytes(range(256)) * 2
            path = self.archive(pickle.dumps({"key": b"a'\\\0\xff", "long": long}, protocol))
            self.prints("b'a\\'\\\\\\x00\\xff'\n", "cat", path, "key")
            shown = run("cat", path, "long").stdout.decode()
            self.assertTrue(shown.startswith("b'\\x00\\x01\\x02"), shown)
            self.assertTrue(shown.endswith("LMNO'... (512 bytes)\n"), shown)
            self.assertEqual(run("cat", path, "long", "--raw").stdout, long)
            self.assertEqual(self.document("cat", "--json", path, "key")["value"],
                             {"$bytes": "b'a\\'\\\\\\x00\\xff'"})
            self.prints("", "cat", path, "key", "--raw", "-o", self.folder / "bytes")
            self.assertEqual((self.folder / "bytes").read_bytes(), b"a'\\\0\xff")
        self.prints("bytearray(b'xy')\n", "cat", self.archive(pickle.dumps([bytearray(b"xy")], 5)), "0")

    def test_prints_numbers_of_numpy(self):
        path = self.archive(
            b"\x80\x03}(" + pickled("loss") + numpy_scalar("f8", "<", struct.pack("<d", 0.8125))
            + pickled("nan") + numpy_scalar("f4", ">", struct.pack(">f", math.nan)) + b"u."
        )
        self.prints("0.8125\n", "cat", path, "loss")
        self.prints("nan\n", "cat", path, "nan")
        self.assertEqual(self.document("cat", "--json", path, "loss"),
                         {"file": str(path), "name": "loss", "type": "numpy.float64", "value": 0.8125})
        self.assertEqual(self.document("cat", "--json", path, "nan")["value"], "nan")
        self.assertEqual(run("cat", path, "loss", "--raw").stdout, struct.pack("=d", 0.8125))

    def test_prints_arrays_of_numpy_as_tensors(self):
        counted = struct.pack(">6h", *range(6))
        path = self.archive(
            b"\x80\x02}(" + pickled("rows") + numpy_array("i2", ">", (2, 3), counted)
            + pickled("columns") + numpy_array("i2", ">", (2, 3), counted, is_fortran=True)
            + pickled("empty") + numpy_array("f4", "<", (0, 3), b"")
            + pickled("scalar") + numpy_array("f4", "<", (), struct.pack("<f", 3.5)) + b"u."
        )
        self.prints("rows: int16 [2, 3]\n[[0 1 2]\n [3 4 5]]\n", "cat", path, "rows")
        self.prints("columns: int16 [2, 3]\n[[0 2 4]\n [1 3 5]]\n", "cat", path, "columns")
        self.prints("empty: float32 [0, 3]\n[]\n", "cat", path, "empty")
        self.prints("scalar: float32 []\n3.5\n", "cat", path, "scalar")
        self.prints("rows[1,1:]: int16 [2]\n[4 5]\n", "cat", path, "rows", "--slice", "1,1:")
        self.assertEqual(self.document("cat", "--json", path, "columns")["values"], [0, 2, 4, 1, 3, 5])
        self.assertEqual(run("cat", path, "rows", "--raw").stdout, struct.pack("=6h", *range(6)))

    def test_an_array_of_numpy_that_lies_of_its_size_is_no_array(self):
        for shape, content in (((2, 3), bytes(11)), ((2, 3), bytes(10)), ((0, 3), bytes(2))):
            path = self.archive(b"\x80\x02(" + numpy_array("i2", "<", shape, content) + b"l.")
            self.prints(f"numpy.ndarray int16 {shape}\n", "cat", path, "0")

    def test_refuses_what_is_for_tensors(self):
        for option in (("--slice", "0"), ("--raw", "-o", "x"), ("-o", "x.npy")):
            self.fails(
                'training.pt: "epoch" is no tensor (its type is int), so there is nothing for '
                "--slice, --raw or -o",
                "cat", "training.pt", "epoch", *option,
            )


class Help(Case):
    def test_names_three_commands_and_lists_all_below_headings(self):
        text = run("--help").stdout.decode()
        self.assertEqual(re.findall(r"^    weightmap ([a-z]+) ", text, re.MULTILINE), ["ls", "scan", "run"])
        listed = []
        for part in text.split("\n\n"):
            heading, *lines = part.splitlines()
            if (words := [line.split()[0] for line in lines if re.match("  [a-z]", line)]):
                listed.append((heading, words))
        self.assertEqual(listed, [
            ("Look at checkpoints:", ["ls", "tree", "cat", "stats", "diff"]),
            ("Check them:", ["scan", "verify"]),
            ("Rewrite them:", ["convert", "publish"]),
            ("Keep them in memory:", ["residency", "warm", "hold", "stage", "ps"]),
            ("Start programs:", ["run", "doctor"]),
            ("Between machines:", ["fetch", "bench"]),
        ])

    def test_a_command_that_is_gone_is_answered_by_its_new_spelling(self):
        for words, now in (
            (("du", "model.pt"), "weightmap ls --sum FILE does that"),
            (("evict", "--json", "model.pt"), "weightmap residency --evict FILE does that"),
            (("info", "--help"), "weightmap ls --info FILE does that; of --globals weightmap scan --names FILE"),
            (("ray", "status", "name"), "python -m weightmap.ray does that"),
            (("snapshots", "folder"),
             "weightmap run --list DIR, --check DIR and --remove DIR SNAPSHOT|all do that"),
            (("completion", "bash"), "no script completes commands in a shell now"),
        ):
            done = run(*words)
            message = f'there is no command "{words[0]}" any more: {now} (see weightmap --help)'
            self.assertEqual((done.returncode, done.stderr.decode()), (2, f"weightmap: {message}\n"))
            if "--json" in words:
                self.assertEqual(json.loads(done.stdout)["error"]["message"], message)

    def test_help_for_a_command_that_is_not_there_is_wrong_usage(self):
        for words in (["nonsense", "--help"], ["prefetch", "--help"], ["nonsense", "-h"],
                      ["nonsense", "--version"]):
            done = run(*words)
            self.assertEqual((done.returncode, done.stdout), (2, b""))
            self.assertEqual(done.stderr.decode(), f'weightmap: there is no command "{words[0]}" '
                                                   "(see weightmap --help)\n")
        for words in (["--help"], ["ls", "--help"], ["--version"]):
            self.assertEqual(run(*words).stderr, b"")


class Failure(Case):
    def test_an_unknown_command_is_named(self):
        self.fails('there is no command "lss"; did you mean ls? (see weightmap --help)', "lss", code=2)
        self.fails('there is no command "xyz" (see weightmap --help)', "xyz", "model.pt", code=2)

    def test_strangers_are_named(self):
        for name, word in (
            ("lfs_pointer.pt", "Git LFS"), ("page.pt", "HTML"), ("empty.pt", "empty"),
            ("truncated.pt", "is truncated"), ("compressed.pt.gz", "gzip"),
        ):
            done = run("ls", f"strangers/{name}")
            text = done.stderr.decode()
            self.assertEqual((done.returncode, done.stdout, text.count("\n")), (1, b"", 1))
            self.assertTrue(text.startswith(f"weightmap: strangers/{name}: ") and word in text, text)

    def test_says_what_to_do_with_what_belongs_to_other_libraries(self):
        config = self.write("config.json", b'\n{"model_type": "llama"}')
        self.fails(
            f"{config}: is JSON without a weight_map, so it is no index of shards", "ls", config
        )

    def test_folders_without_a_checkpoint_and_pipes_are_refused_at_once(self):
        self.fails(
            f"{self.folder}: is a folder in which there is no checkpoint: expected an index of "
            "shards, *.safetensors, *.bin, *.gguf, or one file of another format",
            "ls", self.folder,
        )
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        self.fails(f"{pipe}: is a FIFO (named pipe), expected a regular file", "ls", "--info", pipe)

    def test_json_errors_are_documents(self):
        expected = {
            "error": {
                "code": "io",
                "message": "cannot open the file: No such file or directory",
                "file_offset": None,
            }
        }
        for command in (("ls",), ("ls", "--info"), ("verify",), ("cat", "nowhere.pt", "w")):
            arguments = command if "nowhere.pt" in command else (*command, "nowhere.pt")
            self.assertEqual(self.document(*arguments, "--json", code=1), expected)
        truncated = self.document("ls", "--json", "strangers/truncated.pt", code=1)["error"]
        self.assertEqual((truncated["code"], truncated["file_offset"]), ("corrupt", 3959))

    def test_file_names_are_escaped(self):
        done = run("ls", "a\x1b]0;b")
        self.assertNotIn(b"\x1b", done.stderr)
        self.assertTrue(done.stderr.startswith(b"weightmap: a\\x1B]0;b: "), done.stderr)


class Usage(Case):
    def refuses(self, message, *arguments):
        self.fails(f"{message} (see weightmap --help)", *arguments, code=2)

    def test_names_what_is_missing(self):
        self.refuses("A subcommand is required")
        self.refuses("FILE is required", "ls")
        self.refuses("TENSOR is required", "cat", "state_dict.pt")

    def test_refuses_what_it_does_not_know(self):
        self.assertEqual(run("frobnicate").returncode, 2)
        self.refuses("The following argument was not expected: --bogus", "ls", "--bogus", "x.pt")
        self.refuses('--verify: must be chain|headers|crc, not "all"', "ls", "--verify", "all", "x.pt")
        self.refuses('--sharing: must be shared|private, not "both"', "ls", "--info", "--sharing", "both", "x.pt")

    def test_refuses_an_output_without_a_format(self):
        self.refuses(
            "-o: FILE must end in .npy, or --raw be given", "cat", "state_dict.pt", "steps", "-o", "x"
        )

    def test_refuses_slices_that_it_cannot_read(self):
        for text in ("x", "1:2:3", "1,,2", " 1", ""):
            self.refuses(
                '--slice: must be indices and start:stop ranges, as in "0:10,3"',
                "cat", "state_dict.pt", "steps", "--slice", text,
            )

    def test_refuses_numbers_that_are_out_of_range(self):
        no_numbers = ("-1", "", "1e3", "99999999999999999999", "1.5.2")
        options = {
            ("ls --sum", "--depth"): ("0", "65536"), ("residency", "--depth"): ("0", "65536"),
            ("tree", "--depth"): ("65536",), ("warm", "--threads"): ("0", "65"),
            ("warm", "--budget"): ("0",),
            ("stage", "--budget"): ("0",), ("stage", "--chunk"): ("0",),
            ("ls", "--connections"): ("0", "1025"), ("convert", "--max-shard-size"): ("0",),
            ("convert", "--align"): ("0",),
        }
        outputs = {"convert": ("new.pt",)}
        for (command, option), words in options.items():
            for word in (*words, *no_numbers):
                with self.subTest(command, option=option, word=word):
                    done = run(*command.split(), "state_dict.pt", *outputs.get(command, ()),
                               f"{option}={word}")
                    self.assertEqual((done.returncode, done.stdout), (2, b""))
                    self.assertIn(option.encode(), done.stderr)
                    # A range is of whole numbers, never of all digits of a double.
                    self.assertLess(len(done.stderr), 200)

    def test_refuses_options_that_have_no_meaning_together(self):
        for words in ("ls x.pt --info --sum", "ls x.pt --info --records", "ls x.pt pattern --info",
                      "ls x.pt --info --long", "ls x.pt --info --sort name", "ls x.pt --info --tsv",
                      "ls x.pt --records --sum", "ls x.pt pattern --records", "ls x.pt --records --long",
                      "ls x.pt --records --sort name", "ls x.pt --sum --long", "ls x.pt --depth 1",
                      "residency x.pt --evict --depth 1", "residency x.pt --evict --by-tensor",
                      "residency x.pt --evict --watch", "residency x.pt --evict --repair",
                      "residency x.pt --evict --tsv", "run", "run --json true", "run --list x true",
                      "run --list x --check x", "run --list x --remove x all", "run --remove x"):
            with self.subTest(words):
                done = run(*words.split())
                self.assertEqual(done.returncode, 2)
                self.assertRegex(done.stderr, rb"^weightmap: .*(COMMAND|--[a-z]+).* \(see weightmap --help\)\n$")

    def test_refuses_json_and_raw_bytes_on_one_output(self):
        done = run("cat", "state_dict.pt", "steps", "--raw", "--json")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(json.loads(done.stdout)["error"]["code"], "invalid_argument")

    def test_refuses_raw_bytes_on_a_terminal(self):
        ours, terminal = pty.openpty()
        try:
            done = run(
                "cat", "state_dict.pt", "steps", "--raw",
                stdout=terminal, stderr=subprocess.PIPE, capture_output=False,
            )
        finally:
            os.close(terminal)
            os.close(ours)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(
            done.stderr,
            b"weightmap: --raw: does not write to a terminal; add -o FILE or a pipe "
            b"(see weightmap --help)\n",
        )

    def test_help_and_version_are_no_faults(self):
        version = run("--version")
        self.assertRegex(version.stdout.decode(), r"^weightmap \d+\.\d+\.\d+\n$")
        for command in ((), ("ls",), ("ls", "--info"), ("cat",), ("verify",), ("residency",), ("fetch",)):
            done = run(*command, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            self.assertIn(b"weightmap " + b" ".join(map(str.encode, command)), done.stdout)
        self.assertIn(b"Examples:", run("cat", "--help").stdout)


class Manual(Case):
    def test_is_made_from_what_the_tool_says_of_itself(self):
        page = self.folder / "weightmap.1"
        script = ROOT / "cmake" / "ManPage.cmake"
        subprocess.run(["cmake", "-D", f"TOOL={TOOL}", "-D", f"PAGE={page}", "-P", script], check=True)
        text = page.read_text()
        listed = run("--help").stdout.decode().upper()
        commands = re.findall(r"^  ([A-Z]+)  ", listed, re.MULTILINE)
        self.assertIn("LS", commands)
        self.assertEqual(
            re.findall(r"^\.SH (.*)$", text, re.MULTILINE),
            ["NAME", "DESCRIPTION", *commands, "EXIT STATUS"],
        )
        requests = set(re.findall(r"^[.'].*?(?=\s|$)", text, re.MULTILINE))
        self.assertEqual(requests, {".TH", ".SH", ".nf", ".fi"})
        for line in run("stage", "--help").stdout.decode().splitlines():
            self.assertIn(line.replace("-", "\\-"), text)


class MakeCheckpoint(Case):
    def test_is_shaped_like_a_language_model(self):
        path = self.make("--layers", 2, "--hidden", 64, "--vocab", 100, "--dtype", "bfloat16")
        tensors = self.document("ls", "--json", path)["tensors"]
        self.assertEqual(len(tensors), 1 + 2 * 9 + 2)
        shapes = {t["name"]: t["shape"] for t in tensors}
        self.assertEqual(shapes["model.embed_tokens.weight"], [100, 64])
        self.assertEqual(shapes["model.layers.1.mlp.down_proj.weight"], [64, 256])
        self.assertEqual({t["dtype"] for t in tensors}, {"bfloat16"})
        self.assertEqual(run("verify", "--crc", path).returncode, 0)

    def test_equal_arguments_give_equal_bytes_and_storages_differ(self):
        path = self.make("--count", 3, "--shape", "8x8")
        first = path.read_bytes()
        self.assertEqual(self.make("--count", 3, "--shape", "8x8").read_bytes(), first)
        contents = {run("cat", path, f"tensor.{i}", "--raw").stdout for i in range(3)}
        self.assertEqual(len(contents), 3)

    def test_refuses_wrong_arguments(self):
        for arguments in (("--dtype", "float9"), ("--count", "1", "--shape", "4xx4"), ("--layers", "-1")):
            done = subprocess.run([MAKER, self.folder / "x", *arguments], capture_output=True)
            self.assertEqual(done.returncode, 2)
            self.assertFalse((self.folder / "x").exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
