#!/usr/bin/env python3
"""`weightmap hold URL`, against a server that misbehaves.

    hold_url_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import hashlib
import json
import mmap
import os
import pathlib
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from range_server import ALWAYS, after, stalled, status, tag_of, with_headers  # noqa: E402
from remote_case import KeeperCase, RemoteCase, digest, make, run  # noqa: E402

INTERVAL = "0.02"
SHARED = pathlib.Path("/dev/shm")


class HoldUrl(KeeperCase, RemoteCase):
    def setUp(self):
        super().setUp()
        self.meet()
        # Both names say whose they are, since all of /dev/shm is looked at for what is left.
        self.mark = f"weightmap-hold-{self.name_mark()}"
        self.file = self.store / f"{self.mark}.pt"
        make(self.file, count=3)
        self.url = self.server.url(self.file.name)
        self.copy = SHARED / self.file.name
        self.addCleanup(self.clean)

    def clean(self):
        for path in SHARED.glob(f"*{self.mark}*"):
            path.unlink()

    def in_shared_memory(self):
        return sorted(path.name for path in SHARED.glob(f"*{self.mark}*"))

    def version(self):
        """The name that the store's version has in shared memory."""
        return self.version_of(self.url, tag_of(self.file.read_bytes()))

    def version_of(self, url, tag):
        source = 0xcbf29ce484222325  # FNV-1a
        for byte in url.encode():
            source = (source ^ byte) * 0x100000001b3 % 2**64
        return f"{self.file.name}@{tag.strip(chr(34))}.{source:016x}"

    def replace(self, content=None, count=4):
        """Publishes a new version, as a store does: whole."""
        new = self.file.with_suffix(".new")
        if content is None:
            make(new, count=count)
        else:
            new.write_bytes(content)
        os.rename(new, self.file)

    def keeper(self, *arguments, waits=True):
        self.daemon = self.start("hold", "--json", "--interval", INTERVAL,
                                 *(arguments or [self.url]), env=self.environment)
        if waits:
            self.held_when(lambda file: file["version"] and file["state"] == "held")
        return self.daemon

    def asked_again(self):
        """Returns when the store has been asked twice more, so that a round has passed."""
        seen = len(self.server.requests)
        self.server.wait(lambda server: len(server.requests) >= seen + 2)

    def test_holds_the_version_of_the_store(self):
        keeper = self.keeper()
        self.assertEqual(digest(self.copy), digest(self.file))
        self.assertEqual(self.in_shared_memory(), [self.file.name, self.version()])
        self.assertTrue(os.path.samefile(self.copy, SHARED / self.version()))
        [file] = self.status()["files"]
        self.assertEqual((file["file"], file["url"], file["versions_fetched"], file["url_problem"],
                          file["file_bytes"]),
                         (str(self.copy), self.url, 1, None, self.file.stat().st_size))
        run("ls", self.copy, code=0)
        self.assertEqual(self.end(keeper, signal.SIGTERM), 0)
        self.assertTrue(self.copy.exists())

    def test_has_the_name_that_it_is_given(self):
        name = f"{self.mark}-other.pt"
        self.keeper("--name", name, self.url)
        self.assertEqual(self.in_shared_memory(), sorted([name, self.version()]))

    def test_asks_for_one_byte_as_long_as_nothing_changes(self):
        self.keeper()
        seen = len(self.server.requests)
        self.asked_again()
        self.assertEqual({request.range for request in self.server.requests[seen:]}, {"bytes=0-0"})

    def test_a_new_version_takes_the_place_of_the_old_one(self):
        self.keeper()
        old = digest(self.file)
        with open(self.copy, "rb") as opened, \
                mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            self.replace()
            file = self.held_when(lambda file: file["versions_fetched"] == 2
                                  and file["reloads"] == 1 and file["state"] == "held")
            self.assertEqual(digest(self.copy), digest(self.file))
            self.assertEqual(file["file_bytes"], self.file.stat().st_size)
            self.assertEqual(self.in_shared_memory(), [self.file.name, self.version()])
            self.assertEqual(hashlib.sha256(mapped).hexdigest(), old)

    def test_a_version_that_is_no_checkpoint_is_fetched_once_and_refused(self):
        keeper = self.keeper()
        held, right = digest(self.copy), self.file.read_bytes()
        self.replace(right[:len(right) // 2])
        self.held_when(lambda file: file["url_problem"])
        seen = len(self.server.requests)
        self.asked_again()
        self.asked_again()
        self.assertEqual({request.range for request in self.server.requests[seen + 1:]},
                         {"bytes=0-0"})
        self.assertEqual(digest(self.copy), held)
        self.replace()
        self.held_when(lambda file: file["versions_fetched"] == 2 and file["url_problem"] is None)
        self.assertEqual(digest(self.copy), digest(self.file))
        self.end(keeper, signal.SIGTERM)
        told = [line for line in keeper.stderr.read().splitlines() if "stays held" in line]
        self.assertEqual(len(told), 1, told)

    def test_what_is_held_stays_held_while_the_store_is_away(self):
        self.keeper()
        self.server.fault(status(404), times=ALWAYS)
        self.held_when(lambda file: file["url_problem"])
        self.assertEqual(digest(self.copy), digest(self.file))
        self.server.heal()
        self.held_when(lambda file: file["url_problem"] is None)

    def test_answers_while_it_fetches(self):
        self.server.fault(stalled(), first=2, times=ALWAYS)
        keeper = self.keeper(waits=False)
        file = self.held_when(lambda file: file["state"] == "fetching")
        self.assertEqual((file["version"], file["file_bytes"]), (None, 0))
        self.assertEqual(self.in_shared_memory(), [])
        self.assertEqual(self.end(keeper, signal.SIGTERM), 0)
        self.assertEqual(self.in_shared_memory(), [])

    def test_the_next_daemon_takes_over_what_a_killed_one_has_left(self):
        self.end(self.keeper())
        seen = len(self.server.requests)
        self.keeper()
        [file] = self.status()["files"]
        self.assertEqual(file["versions_fetched"], 0)
        self.server.wait(lambda server: len(server.requests) > seen)
        self.assertEqual({request.range for request in self.server.requests[seen:]}, {"bytes=0-0"})

    def test_what_came_before_a_failure_does_not_come_again(self):
        self.replace(count=20)
        size = self.file.stat().st_size
        self.server.fault(status(404), match=lambda request: request.has(33 << 20))
        self.keeper(self.url, "--connections", "1")
        sent = sum(request.span[1] - request.span[0] + 1 for request in self.server.requests
                   if request.status == 206 and request.span[0] is not None)
        self.assertEqual(digest(self.copy), digest(self.file))
        self.assertLess(sent, size + (4 << 20))  # what is known of the metadata comes twice

    def test_what_a_killed_daemon_has_not_named_is_removed(self):
        (SHARED / self.version_of(self.url, "old")).write_bytes(b"old")
        (SHARED / f"weightmap-hold-new.{self.file.name}").write_bytes(b"old")
        self.keeper()
        self.assertEqual(self.in_shared_memory(), [self.file.name, self.version()])

    def test_does_not_replace_what_is_not_its_own(self):
        self.copy.write_bytes(b"mine")
        done = run("hold", self.url, env=self.environment, code=1)
        self.assertIn(f'"{self.copy}" is there already, and is no copy of this URL; remove it '
                      "first", done.stderr)
        self.assertEqual(self.copy.read_bytes(), b"mine")

    def test_a_version_that_changes_while_it_is_fetched_is_fetched_anew(self):
        new = self.file.with_suffix(".new")
        make(new, count=4)
        self.server.fault(after(lambda: os.rename(new, self.file)), first=4)
        self.keeper()
        self.held_when(lambda file: file["file_bytes"] == self.file.stat().st_size)
        self.assertEqual(digest(self.copy), digest(self.file))
        self.assertEqual(self.in_shared_memory(), [self.file.name, self.version()])

    def test_release_removes_the_copy(self):
        self.keeper()
        run("hold", "--release", self.copy, env=self.environment, code=0)
        self.assertEqual(self.in_shared_memory(), [])
        self.assertEqual(self.status()["files"], [])

    def empty_keeper(self):
        self.keeper("--no-lock", waits=False)
        self.assertEqual(self.files(), [])

    def ask(self, *arguments, **options):
        return run("hold", *arguments, env=self.environment, **options)

    def test_a_url_is_added_and_released_by_it(self):
        self.empty_keeper()
        added = json.loads(self.ask("--add", self.url, "--json", code=0).stdout)
        self.assertEqual((added["file"], added["url"]), (str(self.copy), self.url))
        self.held_when(lambda file: file["state"] == "held")
        self.assertEqual(digest(self.copy), digest(self.file))
        self.assertEqual(self.ask("--release", self.url, code=0).stdout, f"{self.copy}: released\n")
        self.assertEqual((self.in_shared_memory(), self.status()["files"]), ([], []))

    def test_a_url_is_added_under_a_name(self):
        self.empty_keeper()
        name = f"{self.mark}-other.pt"
        self.assertIn(name, self.ask("--add", self.url, "--name", name, code=0).stdout)
        self.held_when(lambda file: file["state"] == "held")
        self.assertEqual(self.in_shared_memory(), sorted([name, self.version()]))

    def test_a_url_that_is_added_twice_is_held_once(self):
        self.keeper()
        self.assertIn("held", self.ask("--add", self.url, code=0).stdout)
        self.assertEqual(len(self.status()["files"]), 1)

    def test_a_name_is_of_one_url(self):
        self.keeper()
        refused = self.ask("--add", self.url + "?other", code=1)
        self.assertIn("is no copy of this URL", refused.stderr)
        self.assertEqual(len(self.status()["files"]), 1)

    def test_one_name_and_tag_of_two_urls_are_two_files(self):
        (self.folder / "other").mkdir()
        same = self.folder / "other" / self.file.name
        for byte, path in ((b"1", self.file), (b"2", same)):
            header = json.dumps({"w": {"dtype": "U8", "shape": [4096], "data_offsets": [0, 4096]}})
            path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + byte * 4096)
        other = self.serve(self.folder / "other", tags="same")
        self.keeper(self.serve(tags="same").url(self.file.name))
        name = f"{self.mark}-other.pt"
        self.ask("--add", other.url(same.name), "--name", name, code=0)
        while len(files := self.files()) < 2 or files[1]["state"] != "held":
            pass
        self.assertEqual(digest(self.copy), digest(self.file))
        self.assertEqual(digest(SHARED / name), digest(same))

    def test_a_copy_of_another_url_is_not_taken_over(self):
        self.end(self.keeper())
        done = self.ask(self.url + "?revision=2", code=1)
        self.assertIn("is no copy of this URL", done.stderr)

    def test_another_signature_is_the_same_url_and_is_used_from_then_on(self):
        signed = self.url + "?X-Amz-Expires=9&X-Amz-Signature="
        self.keeper(signed + "old")
        added = json.loads(self.ask("--add", signed + "new", "--json", code=0).stdout)
        self.assertEqual(added["state"], "held")
        self.server.wait(lambda server: server.requests[-1].query["X-Amz-Signature"] == "new")
        self.ask("--release", signed + "newest", code=0)
        self.assertEqual(self.in_shared_memory(), [])

    def test_a_url_that_can_never_be_held_ends_the_start(self):
        self.file.write_bytes(b"no checkpoint, and never will be" * 100)
        done = self.ask(self.url, code=1)
        self.assertIn(self.file.name, done.stderr)
        self.assertEqual(done.stdout, "")
        header = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
        (self.store / "model-1.safetensors").write_bytes(
            len(header).to_bytes(8, "little") + header + b"1")
        index = self.store / f"{self.mark}.safetensors.index.json"
        index.write_text('{"weight_map":{"a":"model-1.safetensors"}}')
        (self.store / "model-1.safetensors").write_bytes(b"none")
        done = self.ask("--name", self.mark, self.server.url(index.name), code=1)
        self.assertIn("model-1.safetensors", done.stderr)
        (self.store / "model-1.safetensors").unlink()
        done = self.ask("--name", self.mark, self.server.url(index.name), code=1)
        self.assertIn("404", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_a_url_that_fails_ends_the_start(self):
        faults = {"404": (status(404), 1), "403": (status(403), 2),  # behind the first answer
                  "names no version of the file": (with_headers(ETag=None), 1)}
        for words, (fault, first) in faults.items():
            with self.subTest(words):
                self.server.fault(fault, first=first, times=ALWAYS)
                self.assertIn(words, self.ask(self.url, code=1).stderr)
                self.assertEqual(self.in_shared_memory(), [])
                self.server.heal()

    def test_a_url_of_this_digest_is_held_and_found_again(self):
        for requests in (3, 2):  # the second time it is there, and compared where it is
            seen = len(self.server.requests)
            keeper = self.keeper("--sha256", digest(self.file), self.url)
            self.assertGreaterEqual(len(self.server.requests), seen + requests - 1)
            self.assertEqual(self.status()["files"][0]["sha256_compared"], True)
            self.assertEqual(self.end(keeper, signal.SIGTERM), 0)

    def test_a_url_of_another_digest_ends_the_start(self):
        done = self.ask("--sha256", "0" * 64, self.url, code=1)
        self.assertEqual(done.stderr.count(f"has the SHA-256 {digest(self.file)}, not {'0' * 64} "
                                           "as was asked for"), 1)
        self.assertEqual(self.in_shared_memory(), [])

    def test_a_copy_of_before_is_compared_before_it_is_held(self):
        self.end(self.keeper())
        done = self.ask("--sha256", "0" * 64, self.url, code=1)
        self.assertIn(f"has the SHA-256 {digest(self.file)}, and should have {'0' * 64}",
                      done.stderr)

    def test_the_digest_of_a_new_version_is_compared_and_not_that_of_the_copy_of_before(self):
        self.end(self.keeper())
        self.replace()
        self.keeper("--sha256", digest(self.file), self.url)
        self.assertEqual(digest(self.copy), digest(self.file))

    def test_a_new_version_of_another_digest_is_refused(self):
        before = digest(self.file)
        self.keeper("--sha256", before, self.url)
        self.replace()
        self.held_when(lambda file: file["url_problem"])
        self.assertEqual(digest(self.copy), before)

    def test_an_added_url_without_a_digest_is_refused(self):
        sums = self.folder / "sums"
        sums.write_text("0" * 64 + "  other.pt\n")
        self.keeper("--sums", sums, waits=False)
        self.files()
        self.ask("--add", self.url, code=0)
        self.assertEqual(self.held_when(lambda file: file["url_problem"])["url_problem"],
                         f"cannot be held: --sums has no line for {self.file.name}")

    def test_a_url_without_a_digest_is_not_held_where_it_is_required(self):
        words = "no SHA-256 of .* is known, which is required"
        self.assertRegex(self.ask("--require-digest", self.url, code=1).stderr, words)
        self.keeper("--require-digest", waits=False)
        self.files()
        self.ask("--add", self.url, code=0)
        self.assertRegex(self.held_when(lambda file: file["url_problem"])["url_problem"], words)
        self.assertRegex(self.ask("--status", code=1).stdout, words)
        self.assertEqual(self.in_shared_memory(), [])

    def test_the_copy_of_before_is_not_held_without_a_digest_where_it_is_required(self):
        self.end(self.keeper())
        self.assertRegex(self.ask("--require-digest", self.url, code=1).stderr, "is known, which is required")
        self.keeper("--require-digest", "--sha256", digest(self.file), self.url)

    def test_a_signer_makes_the_urls(self):
        signer, other = self.folder / "signer", self.folder / "other"
        signer.write_text("#!/bin/sh\necho \"$1?sig=SECRET\"\n")
        other.write_text("#!/bin/sh\nexit 3\n")
        for program in (signer, other):
            program.chmod(0o755)
        keeper = self.keeper("--signer", signer, self.url)
        self.assertEqual({request.query.get("sig") for request in self.server.requests}, {"SECRET"})
        os.rename(other, signer)
        self.assertEqual(self.held_when(lambda file: file["url_problem"])["url_problem"],
                         f"the signer {signer} ended with exit status 3")
        self.end(keeper, signal.SIGTERM)
        self.assertNotIn("SECRET", keeper.stdout.read() + keeper.stderr.read())

    def test_says_what_was_compared(self):
        keeper = self.keeper(waits=False)
        self.assertIn(" compared with CRC-32s", keeper.stderr.readline())

    def test_status_fails_while_something_is_not_held_and_says_why(self):
        self.empty_keeper()
        self.ask("--status", code=0)
        self.ask("--add", self.server.url(f"{self.mark}-missing.pt"), code=0)
        self.held_when(lambda file: file["url_problem"])
        self.assertIn("404", self.ask("--status", code=1).stdout)

    def test_what_another_daemon_has_whole_and_not_named_yet_stays(self):
        other = SHARED / f"weightmap-hold-new.{self.mark}-other.pt"
        other.write_bytes(b"whole")
        os.link(other, SHARED / self.version_of(self.url, "newer"))
        self.keeper()
        self.assertIn(self.version_of(self.url, "newer"), self.in_shared_memory())

    def test_a_store_that_fails_at_the_end_is_asked_less_and_less_often(self):
        keeper = self.keeper()
        self.server.fault(status(500), times=ALWAYS)
        self.held_when(lambda file: file["url_problem"])
        self.asked_again()
        self.assertEqual(keeper.poll(), None)
        self.assertEqual(digest(self.copy), digest(self.file))

    def test_a_store_that_fails_at_once_is_asked_less_and_less_often(self):
        self.keeper()
        gone = f"/{self.mark}.gone"
        self.ask("--add", self.server.url(gone[1:]), "--name", f"{self.mark}.gone", code=0)
        asked = lambda path: sum(request.path == path for request in self.server.requests)
        looks = asked(f"/{self.file.name}")  # one request each
        self.server.wait(lambda server: asked(f"/{self.file.name}") >= looks + 60)
        self.assertLess(asked(gone), 20)

    def test_an_added_url_that_fails_says_so_and_is_tried_again(self):
        self.empty_keeper()
        missing = self.file.with_suffix(".later")
        os.rename(self.file, missing)
        self.assertIn("fetching", self.ask("--add", self.url, code=0).stdout)
        self.assertIn("404", self.held_when(lambda file: file["url_problem"])["url_problem"])
        os.rename(missing, self.file)
        self.held_when(lambda file: file["state"] == "held" and not file["url_problem"])

    def test_a_url_that_is_not_held_is_not_released(self):
        self.empty_keeper()
        self.assertIn("the URL is not held", self.ask("--release", self.url, code=1).stderr)

    def test_metrics_have_the_copy(self):
        metrics = self.folder / "metrics.prom"
        self.keeper("--metrics", metrics, self.url)
        size = self.file.stat().st_size
        line = f'weightmap_file_bytes{{checkpoint="{self.copy}"}} {size}\n'
        while line not in metrics.read_text():
            pass

    def test_wrong_usage(self):
        for arguments in (["--name", "x", self.file], ["--name", "x"],
                          ["--name", "x", self.url, self.url], ["--name", "x", "--status"],
                          ["--add", self.file, "--name", "x"],
                          ["--add", self.url, "--connections", "1"],
                          ["--add", self.url, "--require-digest"],
                          ["--add", self.url, "--signer", "true"], ["--signer", " ", self.url],
                          ["gs://bucket/x.pt"], ["http://"]):
            self.assertEqual(run("hold", *arguments, env=self.environment).returncode, 2, arguments)
        for name in (".x", "a/b"):
            done = run("hold", "--name", name, self.url, env=self.environment, code=1)
            self.assertIn("cannot be the name of a file in /dev/shm", done.stderr)

    def test_says_no_secret(self):
        url = f"http://user:SECRET@127.0.0.1:{self.server.port}/{self.file.name}?sig=SECRET"
        keeper = self.keeper("--header", "X-Token: SECRET", url)
        self.server.fault(status(403), times=ALWAYS)
        self.held_when(lambda file: file["url_problem"])
        shown = json.dumps(self.status())
        self.end(keeper, signal.SIGTERM)
        self.assertNotIn("SECRET", shown + keeper.stdout.read() + keeper.stderr.read())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
