#!/usr/bin/env python3
"""Files beyond 4 GiB as torch writes them: zip64 fields, 24-byte descriptors.

    huge_test.py TOOL

torch leaves the payloads out (skip_data), so that the files are holes and need no space.
"""

import sys

import torch
from case import ToolCase, main
from describe import Storages, describe, walk
from tool import Tool, difference
from torch._subclasses.fake_tensor import FakeTensorMode

U32 = 2**32 - 1
MOST_ON_DISK = 4 << 20


def save_with_holes(path, sizes):
    """A checkpoint of uint8 tensors of these sizes; returns the (fake) tensors by name."""
    with FakeTensorMode():
        value = {f"t{i}": torch.empty(size, dtype=torch.uint8) for i, size in enumerate(sizes)}
    with torch.serialization.skip_data(materialize_fake_tensors=True):
        torch.save(value, path)
    return value


class HugeTest(ToolCase):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "huge.pt"

    def check(self, sizes):
        value = save_with_holes(self.path, sizes)
        self.assertLess(self.path.stat().st_blocks * 512, MOST_ON_DISK)
        reader = torch._C.PyTorchFileReader(str(self.path))
        expected = describe(walk(value), reader, Storages().key)
        for verify in ("chain", "headers"):
            tool = Tool(sys.argv[1], verify)
            self.assertIsNone(difference(expected, tool.tensors(self.path)))
            info = tool.info(self.path)
            self.assertEqual(info["offsets"]["local_headers_read"], 1)
            self.assertEqual(info["file_bytes"], self.path.stat().st_size)
        # Elements put into the holes where torch says that they are.
        for path, tensor in walk(value):
            if 0 < tensor.numel() <= 100:
                data = bytes(range(1, tensor.numel() + 1))
                with open(self.path, "r+b") as stream:
                    stream.seek(reader.get_record_offset("data/" + path[0].removeprefix("t")))
                    stream.write(data)
                self.assertEqual(self.tool.raw(self.path, path), data)
        return self.path.stat().st_size

    def test_a_record_one_byte_below_the_zip64_bound(self):
        self.check([5, U32 - 1, 7])

    def test_a_record_at_the_zip64_bound(self):
        self.check([5, U32, 7, 0, 9])

    def test_a_record_of_exactly_4_gib(self):
        self.check([2**32, 100, 3])

    def test_the_first_record_is_huge_and_the_rest_lies_beyond(self):
        size = self.check([5 * 2**30, 1, 0, 64, 2**32, 17, 0, 33, 100])
        self.assertGreater(size, 9 * 2**30)

    def test_small_records_cross_the_bound_of_header_offsets(self):
        # Payloads that leave the header of a later record just below, at and just above the bound.
        for rest in range(0, 1025, 64):
            self.check([2**31, 2**31 - 2048 - rest, 50, 60, 70, 80, 90])


if __name__ == "__main__":
    main()
