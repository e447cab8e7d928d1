#!/usr/bin/env python3
"""What a fetch asks a server for, how often, and what it keeps.

    fetch_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import base64
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from range_server import (  # noqa: E402
    ALWAYS, stalled, status, truncated, whole, with_headers)
from remote_case import MIB, ModelCase, RemoteCase, digest, document, make, run, skip  # noqa: E402


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

    def test_bytes_behind_an_answer_are_got_over(self):
        make(self.file)
        self.server.fault(followed_by(b"more\r\n"), times=ALWAYS)
        self.fetch()
        self.is_fetched()


class Unfinished(RemoteCase):
    """Four connections that have each brought a part of a range."""

    CONNECTIONS = 4
    EACH = 11 * MIB // 2

    def setUp(self):
        super().setUp()
        make(self.file, count=32)
        self.arguments = ("fetch", self.server.url("model.pt"), self.target, "--json",
                          "--connections", str(self.CONNECTIONS))

    def begin(self):
        """A fetch that waits for the rest."""
        def is_long(request):
            return request.span[1] - request.span[0] > MIB
        self.server.fault(stalled(self.EACH), times=self.CONNECTIONS, match=is_long)
        self.server.fault(stalled(0), first=self.CONNECTIONS + 1, times=ALWAYS, match=is_long)
        process = self.start(*self.arguments)
        until = time.monotonic() + 120
        while self.kept() < self.CONNECTIONS * 5 * MIB:
            self.assertLess(time.monotonic(), until, "the journal has not got what came")
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        return process

    def kept(self):
        journal = self.folder / "here.pt.part.journal"
        text = journal.read_text().splitlines(keepends=True)[1:] if journal.exists() else []
        found = [re.fullmatch(r"[0-9a-f]{8} \d+ (\d+)\n", line) for line in text]
        return sum(int(line[1]) for line in found if line)

    def goes_on(self):
        self.server.heal()
        self.server.requests.clear()
        found = json.loads(run(*self.arguments, code=0).stdout)["files"][0]
        self.is_fetched()
        resumed = found["resumed_bytes"]
        self.assertGreaterEqual(resumed, self.CONNECTIONS * 5 * MIB)
        # The metadata is read anew.
        self.assertLessEqual(self.asked_for(), self.file.stat().st_size - resumed + MIB + 640 * 1024)

    def asked_for(self):
        """Bytes; those that a slow answer is asked for once more count once."""
        asked, end = 0, 0
        for first, last in sorted(request.span for request in self.server.requests):
            asked += max(0, last + 1 - max(first, end))
            end = max(end, last + 1)
        return asked

    def test_a_killed_fetch_loses_less_than_a_unit_of_each_connection(self):
        self.end(self.begin())
        self.goes_on()

    def test_so_does_one_that_fails(self):
        process = self.begin()
        self.server.fault(status(404), times=ALWAYS)
        self.server.release()
        self.assertEqual(process.wait(), 1)
        self.goes_on()


def html(_request, right):
    answer = right()
    answer.status, answer.body = 200, b"<html>log in</html>"
    answer.headers = {"Content-Type": "text/html; charset=utf-8"}
    return answer


class WithoutRanges(ModelCase):
    def setUp(self):
        super().setUp()
        self.server.fault(whole(), times=ALWAYS)

    def nothing_is_left(self):
        self.assertEqual([path.name for path in self.folder.iterdir()], ["store"])

    def test_a_file_comes_by_one_request(self):
        [file] = document("fetch", self.url, self.target)["files"]
        self.is_fetched()
        self.assertEqual([request.range for request in self.server.requests if request.range is None],
                         [None])
        self.assertIs(file["in_one_request"], True)
        self.assertEqual((file["bytes"], file["resumed_bytes"], file["verified_bytes"]),
                         (self.file.stat().st_size, 0, 12 * MIB))
        said = run("fetch", self.url, f"{self.folder}/new/", code=0).stderr
        self.assertRegex(said, r": (1 request|\d+ requests, the last one) for all of it, ")
        self.assertEqual(digest(self.folder / "new" / "model.pt"), digest(self.file))

    def test_the_sha256_is_compared(self):
        self.fetch("--sha256", digest(self.file))
        self.target.unlink()
        self.assertIn("has the SHA-256", self.fetch("--sha256", "0" * 64, code=1).stderr)
        self.nothing_is_left()

    def test_a_body_that_ends_early_comes_anew(self):
        self.server.fault(truncated(MIB), first=2)
        self.fetch()
        self.is_fetched()

    def test_what_is_no_checkpoint_or_damaged_leaves_nothing(self):
        content = bytearray(self.file.read_bytes())
        content[len(content) // 3] ^= 1
        for wrong, said in ((b"no checkpoint" * 1000, "model.pt: "), (content, "CRC-32")):
            self.file.write_bytes(wrong)
            self.assertIn(said, self.fetch(code=1).stderr)
            self.nothing_is_left()

    def test_a_set_is_not_found_by_its_index(self):
        (self.store / "model.safetensors.index.json").write_text('{"weight_map": {}}')
        url = self.server.url("model.safetensors.index.json")
        self.assertIn("fetch each of its files by a URL of its own",
                      run("fetch", url, f"{self.folder}/new/", code=1).stderr)


def is_head(request):
    return request.method == "HEAD"


class StoreSums(ModelCase):
    """SHA-256s that S3 says of objects, when their header alone is asked for."""

    def setUp(self):
        super().setUp()
        (self.store / "bucket").mkdir()
        self.file = self.file.rename(self.store / "bucket" / "model.pt")
        self.environment = {"AWS_ENDPOINT_URL": self.server.url()}
        self.right = base64.b64encode(hashlib.sha256(self.file.read_bytes()).digest()).decode()

    def says(self, checksum, **more):
        self.server.heal()
        self.server.fault(with_headers(x_amz_checksum_sha256=checksum, **more), times=ALWAYS,
                          match=is_head)

    def fetched(self, *arguments):
        [file] = document("fetch", "s3://bucket/model.pt", self.target, "--force", *arguments,
                          environment=self.environment)["files"]
        self.is_fetched()
        return file["sha256_compared"], file["sum_from"]

    def refused(self, *command):
        return run(*command, environment=self.environment, code=1).stderr

    def test_the_sum_of_an_object_is_compared(self):
        self.says(self.right)
        self.assertEqual(self.fetched("--require-digest"), (True, "store"))
        [asked] = [request for request in self.server.requests if is_head(request)]
        self.assertEqual(asked.headers["x-amz-checksum-mode"], "ENABLED")
        self.assertIsNone(asked.range)
        run("stage", "s3://bucket/model.pt", "--require-digest", "--", "true",
            environment=self.environment, code=0)
        self.target.unlink()
        self.says(self.right[1:2] + self.right[1:])
        for command in (("fetch", "s3://bucket/model.pt", self.target),
                        ("stage", "s3://bucket/model.pt", "--", "true")):
            self.assertIn(" as its store says", self.refused(*command))
        self.is_not_fetched()

    def test_a_given_sum_is_preferred(self):
        self.says(self.right[1:2] + self.right[1:])
        self.assertEqual(self.fetched("--sha256", digest(self.file)), (True, "given"))
        self.assertFalse([request for request in self.server.requests if is_head(request)])

    def test_a_sum_of_parts_is_not_compared(self):
        for checksum, more in ((self.right + "-3", {}),
                               (self.right, {"x_amz_checksum_type": "COMPOSITE"})):
            self.says(checksum, **more)
            self.assertEqual(self.fetched(), (False, "composite, not compared"))
            self.assertIn("says only that of the parts it was uploaded in",
                          self.refused("fetch", "s3://bucket/model.pt", self.folder / "other.pt",
                                       "--require-digest"))

    def test_what_is_no_sum_says_nothing(self):
        for checksum in (None, "", self.right[:-2] + "=", self.right + "A", "*" + self.right[1:]):
            self.says(checksum)
            self.assertEqual(self.fetched(), (False, None))
        for code in (403, 404, 405, 501):
            self.server.heal()
            self.server.fault(status(code), times=ALWAYS, match=is_head)
            self.assertEqual(self.fetched(), (False, None))

    def test_of_another_version_nothing_is_said(self):
        self.says(self.right, ETag='"other"')
        self.assertEqual(self.fetched(), (False, None))

    def test_what_lies_beside_a_model_has_its_own(self):
        (self.store / "bucket" / "config.json").write_text("{}")
        sums = {"config.json": hashlib.sha256(b"{}").digest()}
        run("convert", self.file, self.store / "bucket" / "model.safetensors", code=0)
        model = self.store / "bucket" / "model.safetensors"
        sums["model.safetensors"] = hashlib.sha256(model.read_bytes()).digest()
        for name, sum_of_it in sums.items():
            self.server.fault(
                with_headers(x_amz_checksum_sha256=base64.b64encode(sum_of_it).decode()),
                times=ALWAYS, match=lambda request, name=name: is_head(request)
                and request.path.endswith("/" + name))
        command = ("fetch", "s3://bucket/model.safetensors", f"{self.folder}/here/",
                   "--require-digest")
        files = document(*command, environment=self.environment)["files"]
        self.assertEqual([file["sum_from"] for file in files], ["store", "store"])
        (self.store / "bucket" / "generation_config.json").write_text("{}")
        self.assertIn('no SHA-256 of "generation_config.json" is known', self.refused(*command))


class Beside(ModelCase):
    def setUp(self):
        super().setUp()
        self.make_set("2MiB")
        self.file.unlink()
        self.index = "model.safetensors.index.json"
        self.models = self.folder / "models"
        self.shards = sorted(path.name for path in self.store.iterdir() if path.suffix == ".safetensors")

    def fetch_set(self, *arguments, code=0):
        return run("fetch", self.server.url(self.index), f"{self.models}/", *arguments, code=code)

    def test_the_configuration_and_the_tokenizer_come_with_the_index(self):
        (self.store / "config.json").write_text('{"model_type": "llama"}')
        (self.store / "tokenizer.model").write_bytes(b"any bytes")
        (self.store / "modeling_evil.py").write_text("print()")
        said = self.fetch_set().stdout.splitlines()
        wanted = {"config.json", "tokenizer.model", self.index, *self.shards}
        self.assertEqual({path.name for path in self.models.iterdir()}, wanted)
        self.assertEqual(sorted(said), sorted(str(self.models / name) for name in wanted))
        for name in wanted:
            self.assertEqual(digest(self.models / name), digest(self.store / name))

    def test_of_a_folder_the_index_is_fetched(self):
        (self.store / "config.json").write_text("{}")
        run("fetch", self.server.url(), f"{self.models}/", code=0)
        wanted = {"config.json", self.index, *self.shards}
        self.assertEqual({path.name for path in self.models.iterdir()}, wanted)
        for answer in (404, 403):
            self.server.fault(status(answer), times=ALWAYS)
            self.assertIn("is a folder in which the store shows neither model.safetensors.index.json",
                          run("fetch", self.server.url(), f"{self.models}/", code=1).stderr)

    def test_of_a_folder_the_index_is_looked_at(self):
        for command in (("ls",), ("tree",), ("ls", "--info", "--json"), ("ls", "--sum")):
            self.assertIn("tensor", run(*command, self.server.url(), code=0).stdout)
        self.assertEqual(run("ls", self.server.url()).stdout,
                         run("ls", self.server.url(self.index)).stdout)
        for answer in (404, 403):
            self.server.fault(status(answer), times=ALWAYS)
            self.assertIn("is a folder in which the store shows neither model.safetensors.index.json",
                          run("ls", self.server.url(), code=1).stderr)

    def test_a_variant_is_honoured_or_refused(self):
        for url in (self.server.url(self.index), "hf://org/name"):
            self.assertIn("a variant is chosen among the files of a folder",
                          run("ls", "--variant", "fp16", url, code=1).stderr)

    def test_each_comes_by_its_own_url(self):
        for name, content in (("config.json", b"{}"), ("tokenizer.model", b"any bytes")):
            (self.store / name).write_bytes(content)
            for target in (self.folder / name, f"{self.models}/"):
                run("fetch", self.server.url(name), target, "--sha256", digest(self.store / name),
                    code=0)
            for folder in (self.folder, self.models):
                self.assertEqual((folder / name).read_bytes(), content)
            self.assertIn("is there already",
                          run("fetch", self.server.url(name), self.folder / name, code=1).stderr)
            self.assertIn("has the SHA-256",
                          run("fetch", self.server.url(name), self.target, "--sha256", "0" * 64,
                              code=1).stderr)
        self.is_not_fetched()

    def test_another_text_is_no_checkpoint(self):
        (self.store / "results.json").write_text("{}")
        self.assertIn("is JSON without a weight_map",
                      run("fetch", self.server.url("results.json"), self.target, code=1).stderr)
        self.is_not_fetched()

    def test_they_come_anew_with_each_fetch(self):
        for version in ("1", "2"):
            (self.store / "config.json").write_text(version)
            self.fetch_set()
            self.assertEqual((self.models / "config.json").read_text(), version)

    def test_a_page_in_place_of_one_is_none(self):
        self.server.fault(html, times=ALWAYS, match=lambda request: "token" in request.path)
        self.fetch_set()
        self.assertEqual({path.name for path in self.models.iterdir()}, {self.index, *self.shards})

    def test_with_sums_only_those_that_are_listed(self):
        (self.store / "config.json").write_text("{}")
        sums = self.folder / "sums"
        listed = [self.index, *self.shards]
        sums.write_text("".join(f"{digest(self.store / name)}  {name}\n" for name in listed))
        self.fetch_set("--sums", sums)
        self.assertFalse((self.models / "config.json").exists())
        sums.write_text(sums.read_text() + f"{'0' * 64}  config.json\n")
        self.assertIn("has the SHA-256", self.fetch_set("--sums", sums, code=1).stderr)
        self.assertFalse((self.models / "config.json").exists())

    def test_two_sums_of_one_file_are_refused(self):
        sums = self.folder / "sums"
        for name in (self.index, f"./{self.index}", self.shards[0]):
            right = f"{digest(self.store / name)}  {name}\n"
            wrong = f"{'0' * 64}  {name.removeprefix('./')}\n"
            for lines in (right + wrong, wrong + right):
                sums.write_text(lines)
                self.assertIn(f'lists "{name.removeprefix("./")}" with two SHA-256s',
                              self.fetch_set("--sums", sums, code=2).stderr)
        sums.write_text("".join(f"{digest(self.store / name)}  {name}\n"
                                for name in [self.index, *self.shards] * 2))
        self.fetch_set("--sums", sums)

    def test_shards_use_one_anothers_connections(self):
        shards = 64
        make(self.file, count=shards)
        for path in (self.store / name for name in [self.index, *self.shards]):
            path.unlink()
        self.make_set("2MiB")
        accepted = []
        accept = self.server._server.get_request
        self.server._server.get_request = lambda: (accepted.append(1), accept())[1]
        self.assertEqual(len(document("ls", self.server.url(self.index))["tensors"]), shards)
        self.assertLessEqual(len(accepted), 17)  # one for each thread that asks, and for the index

    def test_names_that_a_fetch_needs_itself_are_no_shards(self):
        index = json.loads((self.store / self.index).read_text())
        tensor, shard = next(iter(index["weight_map"].items()))
        for name in (".weightmap-update", "config.json", f"{self.shards[-1]}.part",
                     f"{self.shards[-1]}.part.journal"):
            (self.store / name).write_bytes((self.store / shard).read_bytes())
            index["weight_map"][tensor] = name
            (self.store / self.index).write_text(json.dumps(index))
            with self.subTest(name):
                self.assertIn(f'the set has a file "{name}", a name that a fetch needs for another',
                              self.fetch_set(code=1).stderr)
                self.assertFalse(self.models.exists())

    def test_what_is_no_file_does_not_give_way_and_the_old_set_stays(self):
        self.models.mkdir()
        (self.store / "config.json").write_text("{}")
        self.fetch_set()
        for path in self.store.glob("model*"):
            path.unlink()
        make(self.file, shape="512x1000")
        self.make_set("2MiB")
        for name in ("config.json", self.shards[2], self.index):
            for put in (pathlib.Path.mkdir, os.mkfifo):
                path, kept = self.models / name, self.models / "kept"
                path.rename(kept)
                put(path)
                with self.subTest(name, put=put):
                    self.assertRegex(self.fetch_set(code=1).stderr,
                                     f"{path}: is there already and is no regular file")
                (path.rmdir if path.is_dir() else path.unlink)()
                kept.rename(path)
                self.assertIn("[512, 1024]", run("ls", self.models, code=0).stdout)

    def test_a_disk_with_too_little_room_for_all_is_said_before_data_is_fetched(self):
        self.models.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", str(self.models)]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
            skip("a full disk needs a mount, which needs root")
        try:
            self.assertRegex(self.fetch_set(code=1).stderr,
                             f"{self.models}/: takes \\d+ bytes, and its disk has \\d+ left")
            self.assertEqual(list(self.models.iterdir()), [])
        finally:
            subprocess.run(["umount", self.models], check=True)
        self.assertEqual(len(self.server.requests), 1 + len(self.shards))

    def test_says_what_else_the_folder_opens_as(self):
        self.models.mkdir()
        make(self.file, count=1)
        run("convert", self.file, self.models / "model.safetensors", code=0)
        self.assertIn(f"{self.models}/: opens as another checkpoint that was there, and not as "
                      f"{self.index}", self.fetch_set().stderr)
        (self.models / "model.safetensors").unlink()
        self.assertNotIn("opens as", self.fetch_set().stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
