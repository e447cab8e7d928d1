#!/usr/bin/env python3
"""What a fetch asks a server for, how often, and what it keeps.

    fetch_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from range_server import ALWAYS  # noqa: E402
from remote_case import RemoteCase, document, make, run  # noqa: E402


def followed_by(more):
    """Bytes that belong to no answer stand behind the right one."""
    def fault(_request, right):
        answer = right()
        answer.headers["Content-Length"] = str(len(answer.body))
        answer.body += more
        return answer
    return fault


class Requests(RemoteCase):
    def test_no_byte_of_a_short_file_comes_twice(self):
        for count, at_most in ((1, 1), (2, 1), (3, 2)):  # 0.5, 1 and 1.5 MiB, of which 1 MiB is the head
            make(self.file, count=count, shape="128x1000")
            self.server.requests.clear()
            found = document("fetch", self.server.url("model.pt"), self.target, "--force")["files"][0]
            self.assertEqual(found["received_bytes"], self.file.stat().st_size)
            self.assertLessEqual(found["requests"], at_most)
            self.assertEqual(found["requests"], len(self.server.requests))
            self.is_fetched()

    def test_nor_of_a_short_file_that_is_staged(self):
        make(self.file, count=1, shape="128x1000")
        run("stage", self.server.url("model.pt"), "--", "true", code=0)
        self.assertEqual(len(self.server.requests), 1)

    def test_bytes_behind_an_answer_are_got_over(self):
        make(self.file)
        self.server.fault(followed_by(b"more\r\n"), times=ALWAYS)
        self.fetch()
        self.is_fetched()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
