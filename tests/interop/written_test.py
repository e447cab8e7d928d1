#!/usr/bin/env python3
"""What CheckpointWriter writes, read by torch.

    written_test.py WRITE_VARIANTS
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

import torch

WRITE_VARIANTS = ""
SIZES = [5, 0, 1000, 900_000]


def tensor(k):
    return torch.arange(k * 1000, k * 1000 + SIZES[k], dtype=torch.float32)


class WrittenTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = pathlib.Path(cls.temporary.name)
        subprocess.run([WRITE_VARIANTS, cls.folder], check=True)
        cls.files = [path for path in sorted(cls.folder.iterdir()) if path.name != "huge.pt"]
        assert len(cls.files) == 9

    def test_load_gives_the_tensors_mapped_or_not(self):
        for path in self.files:
            for mmap in (False, True):
                with self.subTest(path.name, mmap=mmap):
                    loaded = torch.load(path, weights_only=True, mmap=mmap)
                    self.assertEqual(list(loaded), ["0", "1", "2", "3", "4"])
                    for k in range(len(SIZES)):
                        self.assertTrue(torch.equal(loaded[str(k)], tensor(k)))
                    view = loaded["4"]
                    self.assertTrue(torch.equal(view, tensor(2).as_strided((10, 100), (1, 10))))
                    self.assertEqual(
                        view.untyped_storage().data_ptr(), loaded["2"].untyped_storage().data_ptr()
                    )

    def test_get_record_offset_is_where_the_bytes_are(self):
        for path in self.files:
            reader = torch._C.PyTorchFileReader(str(path))
            content = path.read_bytes()
            for k, size in enumerate(SIZES):
                with self.subTest(path.name, k=k):
                    offset = reader.get_record_offset(f"data/{k}")
                    self.assertEqual(content[offset : offset + 4 * size], tensor(k).numpy().tobytes())

    def test_huge_storages_that_are_holes(self):
        path = self.folder / "huge.pt"
        self.assertLess(path.stat().st_blocks * 512, 4 << 20)
        small, huge, last = torch.load(path, weights_only=True, mmap=True)
        self.assertEqual(small.tolist(), [0] * 10)
        self.assertEqual(huge.numel(), 5 << 30)
        self.assertEqual([int(huge[0]), int(huge[-1])], [0, 0])
        self.assertEqual(last.tolist(), [7] * 10)
        reader = torch._C.PyTorchFileReader(str(path))
        with zipfile.ZipFile(path) as archive, path.open("rb") as stream:
            for k in range(3):
                offset = reader.get_record_offset(f"data/{k}")
                self.assertEqual(offset % 64, 0)
                self.assertGreater(offset, archive.getinfo(f"huge/data/{k}").header_offset)
            stream.seek(offset)
            self.assertEqual(stream.read(10), b"\x07" * 10)


if __name__ == "__main__":
    WRITE_VARIANTS = sys.argv[1]
    print("torch", torch.__version__)
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
