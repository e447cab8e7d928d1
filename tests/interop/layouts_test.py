#!/usr/bin/env python3
"""Records in another order, under other keys, or packed again: offsets against torch's own reader.

    layouts_test.py TOOL
"""

import random
import sys
import zipfile

import torch
from case import ToolCase, main
from describe import describe, walk
from records import write_by_hand
from tool import Tool, difference

SEED = 20


def model(count):
    return {f"w{i}": torch.full(((7 * i) % 40,), i, dtype=torch.int32) for i in range(count)}


class LayoutsTest(ToolCase):
    def check(self, path, value, key_of, most_headers):
        reader = torch._C.PyTorchFileReader(str(path))
        expected = describe(walk(value), reader, key_of)
        for verify in ("chain", "headers"):
            tool = Tool(sys.argv[1], verify)
            self.assertIsNone(difference(expected, tool.tensors(path)), path)
            headers = tool.info(path)["offsets"]["local_headers_read"]
            self.assertLessEqual(headers, most_headers, path)

    def test_lexicographic_order_as_torch_2_6_wrote(self):
        for count in (1, 2, 10, 11, 12, 99, 100, 101, 250, 1200):
            value = model(count)
            path = self.folder / f"sorted{count}.pt"
            self.check(path, value, write_by_hand(path, value, order=sorted), most_headers=1)

    def test_any_order(self):
        source = random.Random(SEED)
        for count in (2, 3, 30, 300):
            value = model(count)
            path = self.folder / f"shuffled{count}.pt"
            order = lambda keys: source.sample(keys, len(keys))  # noqa: E731
            self.check(path, value, write_by_hand(path, value, order=order), most_headers=1)

    def test_keys_that_do_not_start_at_0(self):
        value = model(20)
        for first in (1, 95, 94052342342784):
            path = self.folder / f"from{first}.pt"
            key_of = write_by_hand(path, value, lambda number, first=first: str(first + number))
            self.check(path, value, key_of, most_headers=1)

    def test_packed_again_by_another_tool(self):
        value = model(30)
        original = self.folder / "original.pt"
        key_of = write_by_hand(original, value, head=[(".format_version", b"1")])
        path = self.folder / "packed.pt"
        with zipfile.ZipFile(original) as source, zipfile.ZipFile(path, "w") as target:
            for entry in source.infolist():
                target.writestr(entry.filename, source.read(entry))
        self.check(path, value, key_of, most_headers=30)


if __name__ == "__main__":
    main()
