#!/usr/bin/env python3
"""What CheckpointWriter writes, read by programs that know zip files and nothing else.

    zip_readers_test.py WRITE_VARIANTS

Python's zipfile, unzip and bsdtar; those of them that are not there are skipped, and said so.
"""

import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

WRITE_VARIANTS = ""
SIZES = [5, 0, 1000, 900_000]
# No checksums: readers of zip files call each record damaged that has another than 0.
WITHOUT_CHECKSUMS = {"no_crc.pt", "huge.pt"}


def floats(k):
    return struct.pack(f"<{SIZES[k]}f", *range(k * 1000, k * 1000 + SIZES[k]))


class ZipReadersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = pathlib.Path(cls.temporary.name)
        subprocess.run([WRITE_VARIANTS, cls.folder], check=True)
        cls.files = sorted(cls.folder.iterdir())
        assert len(cls.files) == 10
        cls.summed = [path for path in cls.files if path.name not in WITHOUT_CHECKSUMS]

    def program(self, name):
        if shutil.which(name) is None:
            self.skipTest(f"{name} is not installed")
        return name

    def test_zipfile_finds_nothing_wrong(self):
        for path in self.summed:
            with self.subTest(path.name), zipfile.ZipFile(path) as archive:
                self.assertIsNone(archive.testzip())

    def test_zipfile_reads_the_storages(self):
        for path in self.summed:
            with self.subTest(path.name), zipfile.ZipFile(path) as archive:
                for k in range(len(SIZES)):
                    self.assertEqual(archive.read(f"{path.stem}/data/{k}"), floats(k))

    def test_without_checksums_zipfile_calls_the_first_record_damaged(self):
        with zipfile.ZipFile(self.folder / "no_crc.pt") as archive:
            self.assertEqual(archive.testzip(), "no_crc/data.pkl")

    def test_zipfile_lists_records_beyond_4_gib(self):
        with zipfile.ZipFile(self.folder / "huge.pt") as archive:
            self.assertEqual(archive.getinfo("huge/data/1").file_size, 5 << 30)
            self.assertGreater(archive.getinfo("huge/data/2").header_offset, 5 << 30)

    def test_unzip_finds_nothing_wrong(self):
        unzip = self.program("unzip")
        for path in self.summed:
            with self.subTest(path.name):
                done = subprocess.run([unzip, "-tq", path], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn("No errors detected", done.stdout)

    def test_bsdtar_extracts_the_storages(self):
        bsdtar = self.program("bsdtar")
        for path in self.summed:
            with self.subTest(path.name), tempfile.TemporaryDirectory() as to:
                done = subprocess.run(
                    [bsdtar, "-xf", path, "-C", to], capture_output=True, text=True
                )
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                for k in range(len(SIZES)):
                    extracted = pathlib.Path(to) / path.stem / "data" / str(k)
                    self.assertEqual(extracted.read_bytes(), floats(k))

    def test_bsdtar_lists_what_zipfile_lists(self):
        bsdtar = self.program("bsdtar")
        for path in self.files:
            with self.subTest(path.name), zipfile.ZipFile(path) as archive:
                done = subprocess.run([bsdtar, "-tf", path], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertEqual(done.stdout.splitlines(), archive.namelist())


if __name__ == "__main__":
    WRITE_VARIANTS = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
