#!/usr/bin/env python3
"""The command `weightmap scan` and files that run code, made to be taken for others.

    scan_attacks_test.py ROOT WEIGHTMAP

Each pickle names a function that only answers, and python calls what it names. Each place is one
where pickle.load, torch.load(weights_only=False), joblib.load or np.load(allow_pickle=True) finds
it, called once or again and again, on the file or on what is in it.
"""

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import struct
import sys
import tarfile
import unittest
import zipfile
import zlib

import scan_arrays_test
from scan_test import HARMLESS, Case, legacy

OS, NAME = b"\x8c\x02os", b"\x8c\x06getcwd"
CALLS = {
    "global": b"cos\ngetcwd\n(tR", "inst": b"(ios\ngetcwd\n", "obj": b"(cos\ngetcwd\no",
    "stack": OS + NAME + b"\x93)R", "escaped": b"V\\u006fs\nVgetcw\\u0064\n\x93)R",
    "quoted": b"S'\\x6fs'\nS\"getcw\\x64\"\n\x93)R", "unknown": b"cfractions\nFraction\n(tR",
    "new": b"cfractions\nFraction\n)\x81", "new_ex": b"cfractions\nFraction\n)}\x92",
    "far": OS + b"p90000\n" + NAME + b"p90001\ng90000\ng90001\n\x93)R",
    "odd": OS + b"p+7\n" + NAME + b"p 8\ng7\ng8\n\x93)R",
}
# What python passes over in front of it.
FRONTS = {
    "none": b"", "two": b"\x80\x02", "four": b"\x80\x04", "far": b"Np100000\n0", "plus": b"Np+1\n0",
    "space": b"Np 1\n0", "zero": b"Np1\x00 \n0", "under": b"Np1_0\n0", "hex": b"I0x1_0\n0",
    "nan": b"Fnan\n0", "big": b"L12L\n0", "quote": b'S"a\\"b"\n0', "mark": b"(1",
    "long": b"B" + struct.pack("<I", 2 << 20) + bytes(2 << 20) + b"0",
}
ENDS = {"stop": b".", "fault": b"\xff", "cut": b""}

array = scan_arrays_test.Arrays.array
number = array("'<f4'", "(2,)", bytes(8))


def objects(pickled):
    return array("'|O'", "(1,)", pickled)


def zipped(how=zipfile.ZIP_STORED, **records):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as target:
        for name, content in records.items():
            target.writestr(name.replace("__", "/").replace("_dot_", "."), content)
    return out.getvalue()


def checkpoint(content=HARMLESS, **records):
    return zipped(a__data_dot_pkl=content, a__version=b"3\n", **records)


def tarred(name, content):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape",
                      encoding="utf-8") as target:
        member = tarfile.TarInfo(os.fsdecode(name))
        member.size = len(content)
        target.addfile(member, io.BytesIO(content))
    return out.getvalue()


def safetensors_pickle(content):
    """Its length begins with SHORT_BINBYTES; such opcodes pass over the header."""
    length, header = 0x0F43, b'{"aaaaaaa'
    while length - len(header) > 260:
        header += b"C~" + b"y" * 126 + b"0"
    while length - len(header) - 2 > 126:
        header += b"C " + b"y" * 32 + b"0"
    left = length - len(header) - 2
    end = b'":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % ((len(content),) * 2)
    header += b"C" + bytes([left]) + b"y" * (left - len(end)) + end
    assert list(json.loads(header)) and len(header) == length
    return struct.pack("<Q", length) + header + content


def archive_in_pickle(content):
    """A zip archive that is PERSID, STOP and bytes behind for a pickle."""
    archive = bytearray(checkpoint(content))
    for header, field in ((b"PK\x03\x04", 10), (b"PK\x01\x02", 12)):
        at = archive.index(header) + field
        archive[at : at + 2] = b"\n."
    return zipped(m_dot_pkl=bytes(archive))


PLACES = {
    "bare": lambda p: p, "behind": lambda p: b"N." + p, "behind_two": lambda p: HARMLESS + p,
    "behind_text": lambda p: b"(dp0\nS'a'\nI1\ns." + p,
    "behind_stream": lambda p: legacy() + p, "behind_streams": lambda p: legacy() * 2 + p,
    "behind_array": lambda p: number + p, "behind_arrays": lambda p: number * 3 + objects(p),
    "behind_objects": lambda p: objects(HARMLESS) + p,
    "behind_structure": lambda p: array(
        "[('a', '<f4'), (('t', ',)'), [('x', '<U3')], (2, 3)), ('f8', '|S3', 2)]", "(2,)",
        bytes(2 * (4 + 12 * 6 + 6))) + p,
    "behind_date": lambda p: array("'>M8[ns]'", "(2,)", bytes(16)) + p,
    "objects": objects, "array_behind": lambda p: HARMLESS + objects(p),
    "array_behind_none": lambda p: b"N." + objects(p),
    "npz": lambda p: zipped(x_dot_npy=objects(p)), "npz_two": lambda p: zipped(x=number + objects(p)),
    "npz_deflated": lambda p: zipped(zipfile.ZIP_DEFLATED, x=number + objects(p)),
    "tensor": lambda p: checkpoint(a__data__0=objects(p)),
    "beside_tensors": lambda p: checkpoint(a__data__x=p), "record": lambda p: checkpoint(a__blob=p),
    "behind_record": lambda p: checkpoint(b"\x80\x02}." + p), "zip": lambda p: zipped(blob=p),
    "named": lambda p: zipped(m_dot_pkl=p), "archive_named": archive_in_pickle,
    "deflated": lambda p: zipped(zipfile.ZIP_DEFLATED, blob=p), "in_front": lambda p: p + checkpoint(),
    "tar": lambda p: tarred(b"blob", p), "tar_named": lambda p: tarred(b"m.pkl", p),
    "tar_as_pickle": lambda p: tarred(b"\x80\x02N.", p), "tar_as_none": lambda p: tarred(b"N.", p),
    "gzip": gzip.compress, "zlib": zlib.compress, "zip_zlib": lambda p: zipped(x=zlib.compress(p)),
    "tar_gzip": lambda p: gzip.compress(tarred(b"x", p)), "safetensors": safetensors_pickle,
    "gguf": lambda p: b"GGUF\3" + bytes(4) + p,
}
# Nothing here inflates these.
PACKED = {
    "bzip2": bz2.compress, "xz": lzma.compress, "lz4": lambda p: b"\x04\x22\x4d\x18" + p,
    "bzip2_behind_none": lambda p: bz2.compress(b"") + bz2.compress(p),
    "lzma": lambda p: lzma.compress(p, lzma.FORMAT_ALONE),
    "lzma_4096": lambda p: lzma.compress(
        p, lzma.FORMAT_ALONE, filters=[{"id": lzma.FILTER_LZMA1, "dict_size": 4096}]),
    "zip_bzip2": lambda p: zipped(zipfile.ZIP_BZIP2, blob=p),
    "zip_lzma": lambda p: zipped(zipfile.ZIP_LZMA, blob=p),
}


class Names(pickle.Unpickler):
    def find_class(self, module, name):
        self.found = module, name
        return type("Any", (), {"__new__": lambda cls, *_, **__: None})


class Attacks(Case):
    def pickles(self):
        made = {f"{front}-global-{end}": FRONTS[front] + CALLS["global"] + ENDS[end]
                for front in FRONTS for end in ENDS}
        return made | {f"none-{call}-{end}": CALLS[call] + ENDS[end]
                       for call in CALLS for end in ("stop", "fault")}

    def test_python_runs_each(self):
        for name, content in self.pickles().items():
            reader = Names(io.BytesIO(content))
            try:
                reader.load()
            except (pickle.UnpicklingError, EOFError):
                pass
            self.assertIn(reader.found, {("os", "getcwd"), ("fractions", "Fraction")}, name)

    def test_all_are_unsafe_wherever_they_are(self):
        for place, make in PLACES.items():
            for name, content in self.pickles().items():
                self.write(f"all/{place}-{name}", make(content))
        files = self.scan("all", code=1)["files"]
        self.assertEqual(len(files), len(PLACES) * len(self.pickles()))
        self.assertEqual([each["file"] for each in files if each["verdict"] != "unsafe"], [])

    def test_what_is_not_inflated_is_unchecked(self):
        for place, make in PACKED.items():
            self.write(f"all/{place}", make(CALLS["global"] + b"."))
        self.assertEqual(set(self.verdicts("all", code=1).values()), {"unchecked"})

    def test_what_cannot_be_inflated_to_its_end_is_damaged(self):
        """joblib runs what is in front of the damage."""
        for name, compress in (("zlib", zlib.compress), ("gzip", gzip.compress)):
            content = compress(CALLS["global"] + b"." + os.urandom(9000))
            for cut in (40, 8192, len(content) - 1):
                self.write(f"all/{name}-{cut}", content[:cut])
                self.write(f"all/{name}-{cut}.zip", zipped(x=content[:cut]))
        self.assertEqual(set(self.verdicts("all", code=1).values()), {"damaged"})

    def test_more_pickles_than_are_looked_at_are_unchecked(self):
        self.write("joblib", b"\x80\x02cjoblib.numpy_pickle\nNumpyArrayWrapper\n." * (1 << 18))
        self.assertEqual(self.verdicts("joblib", code=1), {"joblib": "unsafe"})
        for name, one in (("two", HARMLESS), ("none", b"N."), ("array", number)):
            self.write(f"more/{name}", one * 1001 + CALLS["global"] + b".")
            self.write(f"most/{name}", one * 999)
        self.assertEqual(set(self.verdicts("more", code=1).values()), {"unchecked"})
        self.assertEqual(set(self.verdicts("most", code=0).values()), {"safe"})

    def test_the_same_places_with_harmless_ones_are_safe(self):
        for place, make in PLACES.items():
            if place != "gguf":  # which is only the beginning of one
                self.write(f"all/{place}", make(HARMLESS))
        self.assertEqual({file: verdict for file, verdict in self.verdicts("all", code=0).items()
                          if verdict != "safe"}, {})

    def test_words_and_other_data_are_no_pickles(self):
        for name, content in (
            ("cats", b"cat\ndog\nfish\n"), ("words", b"(I said.)\n"), ("format", b"Format: a\nC."),
            ("int", b"Introduction\n.\n"), ("x^2", b"x^2 + y"), ("BZh", b"BZhang"), ("list", b"]\0\0" + bytes(range(30))),
        ):
            self.write(f"{name}.tar", tarred(b"x", content))
            self.write(f"{name}.zip", zipped(x=content))
        found = self.verdicts(".", code=0)
        self.assertEqual({file: verdict for file, verdict in found.items()
                          if verdict != "not a checkpoint"}, {})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
