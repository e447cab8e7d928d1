#!/usr/bin/env python3
"""The tool on remote files, against a server that misbehaves.

    remote_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from range_server import (  # noqa: E402
    ALWAYS, after, content_range, other_tag, redirected, reset, stalled, status, truncated, whole)
from remote_case import MIB, SMALL, TOOL, ModelCase, digest, document, make, run  # noqa: E402


def names(listed):
    return [tensor["name"] for tensor in listed["tensors"]]


def gguf(path):
    """Two tensors of float32, [4] and [2, 3]."""
    def text(word):
        return struct.pack("<Q", len(word)) + word
    head = b"GGUF" + struct.pack("<IQQ", 3, 2, 1)
    head += text(b"general.architecture") + struct.pack("<I", 8) + text(b"test")
    head += text(b"a") + struct.pack("<IQIQ", 1, 4, 0, 0)
    head += text(b"b") + struct.pack("<IQQIQ", 2, 3, 2, 0, 32)
    path.write_bytes(head + bytes(-len(head) % 32) + struct.pack("<4f", 1, 2, 3, 4) + bytes(16)
                     + struct.pack("<6f", *range(6)))


class Looking(ModelCase):
    def test_shows_what_it_shows_of_the_file(self):
        for command in (("ls",), ("ls", "--long"), ("ls", "--json"), ("tree",), ("ls", "--sum"),
                        ("ls", "--sum", "--json")):
            there, here = (run(*command, place, code=0).stdout for place in (self.url, self.file))
            self.assertEqual(there, here.replace(str(self.file), self.url), command)

    def asks_for_less_than_half(self):
        asked = sum(last - (first or 0) for first, last in
                    (request.span for request in self.server.requests))
        self.assertLess(asked, self.file.stat().st_size / 2)

    def test_asks_for_the_ends_and_no_more(self):
        run("ls", self.url, code=0)
        self.assertLessEqual(len(self.server.requests), 2)
        self.asks_for_less_than_half()

    def test_ten_thousand_tensors_take_four_requests(self):
        make(self.file, count=10_000, shape="4")
        self.assertEqual(len(document("ls", self.url)["tensors"]), 10_000)
        self.assertLessEqual(len(self.server.requests), 4)

    def test_info_says_what_was_read(self):
        found = document("ls", "--info", self.url)
        self.assertEqual((found["file"], found["tensors"], found["file_bytes"]),
                         (self.url, 6, self.file.stat().st_size))
        self.assertIn(self.url, run("ls", "--info", self.url, code=0).stdout)

    def test_cat_fetches_the_tensor(self):
        here = run("cat", self.file, "tensor.3", code=0).stdout
        self.assertEqual(run("cat", self.url, "tensor.3", code=0).stdout, here)
        listed = {tensor["name"]: tensor for tensor in document("ls", self.file)["tensors"]}
        self.assertTrue(any(request.has(listed["tensor.3"]["file_offset"])
                            for request in self.server.requests))

    def test_cat_of_a_part_fetches_the_part(self):
        command = ("cat", "--slice", "7,1:4", "--json")
        here = json.loads(run(*command, self.file, "tensor.1", code=0).stdout)
        there = json.loads(run(*command, self.url, "tensor.1", code=0).stdout)
        self.assertEqual((there["values"], there["file"]), (here["values"], self.url))
        self.asks_for_less_than_half()

    def test_what_needs_the_file_itself_is_refused(self):
        asks = f"{self.url}?X-Amz-Signature=SECRET"
        for command in ("stats", "verify", "warm", "residency --evict", "residency", "doctor",
                        "scan", "scan --names", "ps", "bench"):
            done = run(*command.split(), asks)
            self.assertEqual((done.stdout, done.returncode), ("", 2), command)
            self.assertIn("cannot be a URL: this needs the file itself (weightmap fetch URL FILE)",
                          done.stderr)
            self.assertNotIn("SECRET", done.stderr)
        for command in (("diff", self.file, asks), ("convert", asks, "x.pt"),
                        ("publish", asks, "x.pt")):
            self.assertEqual(run(*command).returncode, 2, command)
        done = run("ls", "--records", asks)
        self.assertEqual(done.stderr, f"weightmap: {self.url}: this needs the file itself: "
                         "weightmap fetch URL FILE\n")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.server.requests, [])

    def test_refuses_a_url_that_is_none(self):
        for url in ("http://", "gs://bucket/model.pt", "http://host/a b"):
            self.assertEqual(run("ls", url).returncode, 2, url)
        self.assertEqual(run("fetch", self.file, "x.pt").stderr,
                         "weightmap: URL: must be a URL (see weightmap --help)\n")

    def test_says_that_nothing_listens(self):
        self.server.close()
        self.assertEqual(run("ls", self.url, "--json", code=1).stderr.count(self.url), 1)

    def test_opens_a_set_by_its_index(self):
        self.make_set("4MiB")
        index = self.server.url("model.safetensors.index.json")
        there = document("ls", index)
        self.assertEqual(sorted(names(there)), sorted(names(document("ls", self.file))))
        self.assertGreater(len({tensor["file"] for tensor in there["tensors"]}), 1)
        self.assertEqual(run("cat", index, "tensor.5", code=0).stdout,
                         run("cat", self.file, "tensor.5", code=0).stdout)

    def test_opens_gguf(self):
        gguf(self.store / "model.gguf")
        url = self.server.url("model.gguf")
        self.assertEqual(names(document("ls", url)), ["a", "b"])
        self.assertEqual(run("cat", "--json", "--slice", "1", url, "b", code=0).stdout,
                         json.dumps({"file": url, "name": "b[1]", "dtype": "float32",
                                     "shape": [3], "values": [3.0, 4.0, 5.0]},
                                    separators=(",", ":")) + "\n")


class Fetching(ModelCase):
    def requests_of_a_clean_fetch(self):
        self.fetch()
        self.is_fetched()
        count = len(self.server.requests)
        self.again()
        return count

    def again(self):
        """As if nothing had been fetched."""
        for path in self.folder.glob("here.pt*"):
            path.unlink()
        self.server.heal()
        self.server.requests.clear()

    def test_prints_the_path_and_what_was_done(self):
        done = self.fetch()
        self.is_fetched()
        self.assertEqual(done.stdout, f"{self.target}\n")
        self.assertRegex(done.stderr, rf"^weightmap: {self.target}: 12\.0 MiB on the disk after "
                         r"[\d.]+ s: \d+ requests, 12\.0 MiB compared with CRC-32s\n$")
        self.assertEqual([path.name for path in self.folder.glob("here*")], ["here.pt"])

    def test_json_has_the_stable_fields(self):
        found = document("fetch", self.url, self.target, *SMALL)
        self.assertEqual(list(found), ["url", "files"])
        [file] = found["files"]
        self.assertEqual(list(file), [
            "path", "tag", "version", "bytes", "resumed_bytes", "verified_bytes",
            "sha256_compared", "sum_from", "unproven", "in_one_request", "requests", "retries", "hedges", "received_bytes",
            "received_twice_bytes", "seconds"])
        size = self.file.stat().st_size
        self.assertEqual(
            (found["url"], file["path"], file["bytes"], file["received_bytes"],
             file["received_twice_bytes"], file["verified_bytes"], file["requests"]),
            (self.url, str(self.target), size, size, 0, 12 * MIB, len(self.server.requests)))

    def test_many_requests_at_a_time_bring_the_same(self):
        run("fetch", self.url, self.target, "--chunk", "2MiB", code=0)
        self.is_fetched()

    def test_does_not_replace_without_force(self):
        self.target.write_text("mine")
        done = self.fetch(code=1)
        self.assertIn("here.pt", done.stderr)
        self.assertEqual(self.target.read_text(), "mine")
        self.fetch("--force")
        self.is_fetched()

    def test_all_requests_are_of_one_version(self):
        self.fetch()
        tag = document("fetch", self.url, self.folder / "other.pt")["files"][0]["tag"]
        pinned = [request.headers.get("If-Match") for request in self.server.requests
                  if request.span and request.span[0] not in (0, None)]
        self.assertEqual(set(pinned), {tag})

    def test_fetches_in_the_order_that_is_asked_for(self):
        listed = {tensor["name"]: tensor for tensor in document("ls", self.file)["tensors"]}
        order = self.folder / "order.txt"
        order.write_text("# what is needed first\n\ntensor.[42]\n")
        for arguments, first in ((["--order", "tensor.5", "--order", "tensor.3"], [5, 3]),
                                 ([f"--order=@{order}"], [2, 4])):
            self.again()
            self.fetch(*arguments)
            self.is_fetched()
            offsets = [listed[f"tensor.{number}"]["file_offset"] for number in range(6)]
            begins = [min(i for i, request in enumerate(self.server.requests)
                          if request.has(offset + MIB)) for offset in offsets]
            # The end of a tensor lies in a piece of the next one, so all others prove nothing.
            self.assertEqual(sorted([0, *first], key=begins.__getitem__), [*first, 0])

    def test_says_that_an_order_cannot_be_read(self):
        done = self.fetch("--order", "@/no/such/file", code=2)
        self.assertIn("--order: cannot read /no/such/file", done.stderr)

    def test_a_server_that_names_no_version_is_refused_by_every_command(self):
        url = self.serve(tags="none").url("model.pt")
        for command in (["fetch", url, self.target], ["fetch", url, f"{self.folder}/new/"],
                        ["stage", url, "--", "true"], ["ls", url], ["ls", "--info", url],
                        ["cat", url, "tensor.0"]):
            self.assertIn("names no version of the file", run(*command, code=1).stderr, command)
        [file] = document("fetch", url, self.target, "--unproven")["files"]
        self.is_fetched()
        self.assertIs(file["unproven"], True)
        run("ls", url, "--unproven", code=0)

    def test_the_sha256_is_compared_before_the_file_gets_its_name(self):
        for wrong in ("0" * 64, digest(self.file)[::-1]):
            done = self.fetch("--sha256", wrong, code=1)
            self.assertIn(f"has the SHA-256 {digest(self.file)}, not {wrong}", done.stderr)
            self.assertEqual([path.name for path in self.folder.iterdir()], ["store"])
            done = run("stage", self.url, "--sha256", wrong, "--", "true", code=1)
            self.assertIn("has the SHA-256", done.stderr)
        self.assertIn("its SHA-256 compared", self.fetch("--sha256", digest(self.file)).stderr)
        self.is_fetched()
        run("stage", self.url, "--sha256", digest(self.file).upper(), "--", "true", code=0)
        self.assertIn("64 hexadecimal digits", self.fetch("--sha256", "12", code=2).stderr)

    def test_the_sums_are_those_of_all_files_of_a_set(self):
        self.make_set("4MiB")
        shards = sorted(self.store.glob("model*safetensors*"))
        sums, folder = self.folder / "sums", self.folder / "models"
        lines = [f"{digest(path)}  ./{path.name}\n" for path in shards]
        command = ("fetch", self.server.url("model.safetensors.index.json"), f"{folder}/", "--sums",
                   sums)
        for broken, words in ((lines[:-1], "is not among the files whose SHA-256s were given"),
                              (["0" * 64 + lines[0][64:], *lines[1:]], "has the SHA-256")):
            sums.write_text("".join(broken))
            self.assertIn(words, run(*command, code=1).stderr)
            self.assertFalse([path for path in folder.glob("*") if path.suffix == ".safetensors"])
        sums.write_text("".join(lines))
        run(*command, code=0)
        for path in shards:
            self.assertEqual(digest(path), digest(folder / path.name))
        sums.write_text("".join(f"SHA256 ({path.name}) = {digest(path)}\r\n" for path in shards))
        run(*command, code=0)
        for none, words in (("no sums\n", "line 1 is none of sha256sum's"), ("\n", "lists no file")):
            sums.write_text(none)
            self.assertIn(words, run(*command, code=2).stderr)

    def test_a_digest_is_required(self):
        for command in (("fetch", self.url, self.target), ("fetch", self.url, f"{self.folder}/new/"),
                        ("stage", self.url)):
            done = run(*command, "--require-digest", *(("--", "true") if command[0] == "stage" else ()),
                       code=1)
            self.assertIn('no SHA-256 of "model.pt" is known, which is required: none was given, and '
                          'its store says none', done.stderr)
            self.is_not_fetched()
        self.fetch("--require-digest", "--sha256", digest(self.file))
        self.is_fetched()

    # Whichever request it is; lies.py has each lie, for all of them.

    def test_a_request_that_fails_is_made_again_whichever_it_is(self):
        count = self.requests_of_a_clean_fetch()
        self.assertGreater(count, 6)
        everywhere = range(1, count + 1)
        for fault, numbers in ((truncated(), everywhere), (reset(), everywhere),
                               (status(503, Retry_After="0"), everywhere), (truncated(0), [1, 5]),
                               (status(429), [2, 6]), (status(500), [3, 7])):
            for number in numbers:
                self.server.fault(fault, first=number)
                [file] = document("fetch", self.url, self.target, *SMALL)["files"]
                self.is_fetched()
                self.assertEqual((file["retries"], file["requests"]), (1, count + 1))
                self.again()

    def test_one_wrong_answer_gives_no_wrong_byte_whichever_it_is(self):
        count = self.requests_of_a_clean_fetch()
        for fault in (whole(), content_range(first=1), status(404)):
            for number in range(1, count + 1):
                self.server.fault(fault, first=number)
                done = self.fetch(code=None)
                if done.returncode == 0:  # the version was not known yet, and is asked for again
                    self.assertLessEqual(number, 2)
                    self.is_fetched()
                else:
                    self.assertEqual((done.returncode, done.stdout), (1, ""))
                    self.is_not_fetched()
                self.again()

    def test_an_object_that_changes_is_not_mixed(self):
        count = self.requests_of_a_clean_fetch()
        old = self.file.read_bytes()
        new = bytes(byte ^ 1 for byte in old[:100]) + old[100:]
        for number in range(3, count + 1):
            self.file.write_bytes(old)
            self.server.fault(after(lambda: self.file.write_bytes(new)), first=number)
            done = self.fetch(code=1)
            self.assertIn("changed", done.stderr)
            self.is_not_fetched()
            self.again()

    def test_a_versioned_object_is_fetched_whole_though_it_is_replaced(self):
        bucket = self.store / "bucket"
        bucket.mkdir()
        shutil.copy(self.file, bucket)
        server = self.serve(versions=True)
        replace = after(lambda: make(bucket / "model.pt", count=5))
        server.fault(replace, first=4)
        environment = {"AWS_ENDPOINT_URL": server.url()}
        run("fetch", "s3://bucket/model.pt", self.target, *SMALL, environment=environment, code=0)
        self.is_fetched()

    def test_a_stalled_request_is_overtaken(self):
        self.server.fault(stalled(), first=7)
        [file] = document("fetch", self.url, self.target, *SMALL)["files"]
        self.is_fetched()
        self.assertGreaterEqual(file["hedges"] + file["retries"], 1)

    def test_credentials_that_are_missing_are_named(self):
        self.server.fault(status(403), times=ALWAYS)
        error = json.loads(self.fetch("--json", code=1).stdout)["error"]
        self.assertIn("the store refuses access (HTTP 403)", error["message"])
        done = run("ls", "s3://bucket/model.pt",
                   environment={"AWS_ENDPOINT_URL": self.server.url()}, code=1)
        self.assertIn("AWS_ACCESS_KEY_ID is not set", done.stderr)

    def test_there_is_no_room(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (5 * MIB, resource.RLIM_INFINITY))
        done = self.fetch(code=1, preexec_fn=limit)
        self.assertIn("File too large", done.stderr)
        self.is_not_fetched()
        self.assertLessEqual(len(self.server.requests), 3)  # nothing but metadata

    def test_goes_on_where_it_was_interrupted(self):
        for how in (signal.SIGINT, signal.SIGTERM):
            self.again()
            self.server.fault(stalled(), first=7, times=ALWAYS)
            process = self.start("fetch", self.url, self.target, *SMALL)
            self.server.wait(lambda server: len(server.requests) >= 7)
            self.assertEqual(self.end(process, how), 1)
            self.is_not_fetched()
            self.server.heal()
            [file] = document("fetch", self.url, self.target, *SMALL)["files"]
            self.is_fetched()
            self.assertGreaterEqual(file["resumed_bytes"], 4 * MIB)
            self.assertLess(file["received_bytes"], self.file.stat().st_size - 4 * MIB + 2 * MIB)

    # Presigned URLs that a command makes.

    def signer(self, text):
        signer = self.folder / "signer"
        signer.write_text(f"#!/bin/sh\n{text}\n")
        signer.chmod(0o755)
        return signer

    def test_a_signer_is_asked_once_and_again_after_a_refusal(self):
        asked = self.folder / "asked"
        signer = self.signer(f'echo "$1 $2" >> {asked}\n'
                             f'echo "$2?sig=SECRET$(wc -l < {asked})"')
        self.server.fault(status(403), times=ALWAYS,
                          match=lambda request: request.query.get("sig") == "SECRET1"
                          and sum(each.query == request.query for each in self.server.requests) > 3)
        done = self.fetch("--signer", f"{signer} --expires=1")
        self.is_fetched()
        self.assertEqual(asked.read_text(), f"--expires=1 {self.url}\n" * 2)
        self.assertEqual({request.query["sig"] for request in self.server.requests},
                         {"SECRET1", "SECRET2"})
        self.assertNotIn("SECRET", done.stdout + done.stderr)

    def test_a_url_that_is_refused_though_it_is_new_is_an_error(self):
        self.server.fault(status(403), times=ALWAYS)
        done = self.fetch("--signer", self.signer('echo "$1?sig=SECRET"'), code=1)
        self.assertIn("the signer was asked again", done.stderr)
        self.assertEqual(len(self.server.requests), 2)
        self.assertNotIn("SECRET", done.stderr)

    def test_a_signer_that_fails_is_named_and_what_it_printed_is_not(self):
        for text, why in (('echo "$1?sig=SECRET"; exit 7', "ended with exit status 7"),
                          ("echo SECRET; kill -9 $$", "ended with exit status 137"),
                          ("", "does not print one line, the URL"),
                          ("echo SECRET1; echo SECRET2", "does not print one line, the URL"),
                          ("echo SECRET", "the signer's URL is not one of https or http"),
                          ("yes SECRET", "prints more than a URL")):
            signer = self.signer(text)
            done = self.fetch("--signer", signer, code=1)
            self.assertIn(why if "'s URL" in why else f"the signer {signer} {why}", done.stderr)
            self.assertNotIn("SECRET", done.stdout + done.stderr)
        self.assertIn("cannot run /no/signer: ", self.fetch("--signer", "/no/signer", code=1).stderr)
        self.assertEqual(self.server.requests, [])

    def test_a_signer_that_takes_long_is_interrupted_with_the_fetch(self):
        began = self.folder / "began"
        os.mkfifo(began)
        process = self.start("fetch", self.url, self.target, "--signer",
                             self.signer(f"echo > {began}\nexec sleep 1000"))
        began.read_text()
        self.end(process, signal.SIGINT)
        self.assertIn("was interrupted", process.stderr.read())

    # Redirects.

    def test_sends_headers_to_its_own_host_only(self):
        other = self.serve()
        self.server.fault(redirected(lambda request: other.url("model.pt")), times=ALWAYS)
        self.fetch("--header", "Authorization: Bearer SECRET")
        self.is_fetched()
        self.assertEqual({request.headers.get("Authorization") for request in self.server.requests},
                         {"Bearer SECRET"})
        self.assertEqual({request.headers.get("Authorization") for request in other.requests},
                         {None})

    def test_does_not_leave_https(self):
        certificate, key = self.certificate()
        secure = self.serve(certificate=(certificate, key))
        trusted = {"SSL_CERT_FILE": str(certificate)}
        url = secure.url("model.pt")
        run("fetch", url, self.target, *SMALL, environment=trusted, code=0)
        self.is_fetched()
        self.again()
        run("fetch", url, self.target, *SMALL, code=1)  # nobody vouches for it
        secure.fault(redirected(lambda request: self.url), times=ALWAYS)
        done = run("fetch", url, self.target, *SMALL, environment=trusted, code=1)
        self.assertIn("redirects away from https", done.stderr)
        self.assertEqual(self.server.requests, [])
        self.assertEqual(list(self.folder.glob("here.pt*")), [])

    # Secrets.

    def test_says_no_secret(self):
        port = self.server.port
        url = f"http://user:SECRET1@127.0.0.1:{port}/model.pt?X-Amz-Signature=SECRET2&sig=SECRET3"
        headers = self.folder / "headers.txt"
        headers.write_text("X-Token: SECRET5\n")
        commands = [[*words.split(), url] for words in ("ls", "ls --info", "tree", "ls --sum")]
        commands += [["ls", "--json", url], ["ls", "--info", "--json", url], ["ls", "-v", url],
                     ["cat", url, "tensor.0"], ["fetch", url, self.target, "--force"],
                     ["fetch", url, self.target, "--force", "--json"], ["stage", url, "--", "true"]]
        secret = ["--header", "Authorization: Bearer SECRET4", "--header", f"@{headers}"]
        faults = [None, status(403), status(404), status(500), whole(), other_tag(),
                  redirected(f"http://127.0.0.1:{port}/x?SECRET8")]
        for fault in faults:
            for command in commands if fault is None else commands[-4:-1]:
                if fault is not None:
                    self.server.fault(fault, first=2, times=3)
                at = command.index("--") if "--" in command else len(command)
                done = run(*command[:at], *secret, *command[at:])
                self.assertNotIn("SECRET", done.stdout + done.stderr, command)
                self.server.heal()

    def test_says_no_secret_of_s3(self):
        environment = {"AWS_ENDPOINT_URL": f"http://a:HUSH1@127.0.0.1:{self.server.port}",
                       "AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "HUSH2",
                       "AWS_SESSION_TOKEN": "HUSH3"}
        for fault in (None, status(403), status(404)):
            if fault is not None:
                self.server.fault(fault, times=ALWAYS)
            done = run("ls", "-v", "s3://bucket/model.pt", environment=environment, code=1)
            self.assertNotIn("HUSH", done.stdout + done.stderr)
        self.assertTrue(self.server.requests[0].headers["Authorization"].startswith(
            "AWS4-HMAC-SHA256 Credential=AKID/"))


class Staging(ModelCase):
    def setUp(self):
        super().setUp()
        self.name = f"weightmap-remote-{self.name_mark()}"
        self.copy = pathlib.Path("/dev/shm", self.name)
        self.addCleanup(self.copy.unlink, missing_ok=True)

    def test_prints_the_path_and_stays(self):
        stager = self.start("stage", self.url, *SMALL)
        path = stager.stdout.readline().rstrip()
        self.assertRegex(path, rf"^/proc/{stager.pid}/fd/\d+$")
        self.assertEqual(digest(path), digest(self.file))
        self.assertEqual(run("verify", "--crc", path).returncode, 0)
        self.assertRegex(stager.stderr.readline(),
                         r"^weightmap: 12\.0 MiB in shared memory after [\d.]+ s: \d+ requests, ")
        self.assertEqual(self.end(stager, signal.SIGTERM), 0)

    def test_json_says_how_it_was_fetched(self):
        stager = self.start("stage", self.url, "--json", *SMALL)
        report = json.loads(stager.stdout.readline())
        self.assertEqual((report["file"], report["sealed"], report["bytes"]),
                         (self.url, True, self.file.stat().st_size))
        self.assertEqual(report["fetched"]["received_bytes"], self.file.stat().st_size)
        self.end(stager)

    def test_runs_a_command_that_has_it_open(self):
        done = run("stage", self.url, "--", TOOL, "ls", "--tsv", "{}", code=0)
        self.assertEqual(done.stdout, run("ls", "--tsv", self.file).stdout)

    def test_makes_a_copy_with_a_name(self):
        made = run("stage", self.url, "--name", self.name, *SMALL, code=0)
        self.assertEqual(made.stdout, f"{self.copy}\n")
        self.assertEqual(digest(self.copy), digest(self.file))
        self.assertEqual(run("stage", self.url, "--name", self.name).returncode, 1)
        run("stage", "--remove", self.name, code=0)

    def test_a_copy_has_no_name_before_it_is_whole(self):
        self.server.fault(stalled(), first=6, times=ALWAYS)
        stager = self.start("stage", self.url, "--name", self.name, *SMALL)
        self.server.wait(lambda server: len(server.requests) >= 6)
        self.assertFalse(self.copy.exists())
        self.end(stager)
        self.assertFalse(self.copy.exists())

    def test_is_refused_over_the_budget_before_data_is_fetched(self):
        error = document("stage", self.url, "--budget", "1MiB", code=1)["error"]
        self.assertIn("1048576 (the budget)", error["message"])
        self.assertLessEqual(len(self.server.requests), 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
