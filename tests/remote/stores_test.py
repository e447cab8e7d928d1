#!/usr/bin/env python3
"""The tool against servers that others have made: OpenStack Swift with the API of S3, and nginx.

    stores_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT [TESTS]

Swift's tests need an interpreter that has the package swift. What is missing is skipped, with its
name.
"""

import importlib.util
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import unittest
import urllib.parse
import xml.etree.ElementTree as trees

from real_servers import Gate, Nginx, Swift
from remote_case import (
    CLEAN, FOLDER, MIB, SMALL, RemoteCase, digest, document, make, run, skip)

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path("/dev/shm")
KEY = "models/grüße a+b.pt"  # each of its characters is another one in a query, or in a path
COMMANDS = (("ls", "--json"), ("tree",), ("cat", "tensor.3"),
            ("cat", "--slice", "7,1:4", "tensor.1"))


class Store:
    """What must hold with each store. A subclass has put(), and what leads to an object: url(),
    which is shown() in messages, and environment()."""

    def setUp(self):
        super().setUp()
        make(self.file)
        self.put(self.file)

    def tool(self, *arguments, code=0):
        return run(*arguments, environment=self.environment(), code=code)

    def fetched(self, key=KEY, *, port=None):
        [file] = document("fetch", self.url(key, port), self.target, *SMALL,
                          environment=self.environment(port))["files"]
        self.is_fetched()
        return file

    def is_listed(self, put):
        """A model in a folder comes whole. put(key, path) gives the store a file."""
        self.make_set("5MiB")
        folder = "grüße a+b/llama/"
        wanted = {path.name for path in self.store.iterdir() if "safetensors" in path.name} | {"a b+c&d.json"}
        (self.store / "a b+c&d.json").write_text("{}")
        for path in [path for path in self.store.iterdir() if path.is_file()]:
            put(folder + path.name, path)
        link = self.folder / "llama"
        self.tool("fetch", self.url(folder), link)
        self.assertEqual(set(os.listdir(link)), wanted)
        self.assertEqual({digest(path) for path in link.iterdir()}, {digest(self.store / name) for name in wanted})

    def halted_fetch(self, limit):
        """Has got this much, and waits for more until the gate is opened."""
        gate = Gate(self.server.port, limit)
        self.addCleanup(gate.close)
        process = self.start("fetch", self.url(port=gate.port), self.target, *SMALL,
                             env=CLEAN | self.environment(gate.port))
        while not gate.is_reached.wait(1):
            self.assertIsNone(process.poll())
        return gate, process

    def stopped_fetch(self):
        """Leaves more than half of the file. Returns the port through which the next fetch has the
        same URL."""
        gate, process = self.halted_fetch(10 * MIB)
        self.assertEqual(self.end(process, signal.SIGTERM), 1)
        self.is_not_fetched()
        gate.open()
        return gate.port

    def replace(self):
        make(self.file, count=7)
        self.put(self.file)

    def test_shows_what_it_shows_of_the_file(self):
        for command, *rest in COMMANDS:
            there = self.tool(command, self.url(), *rest).stdout
            here = self.tool(command, self.file, *rest).stdout
            self.assertEqual(there, here.replace(str(self.file), self.shown()), command)
        info = document("ls", "--info", self.url(), environment=self.environment())
        self.assertEqual(info["file_bytes"],
                         self.file.stat().st_size)

    def test_stages(self):
        done = self.tool("stage", self.url(), *SMALL, "--", "sha256sum", "{}")
        self.assertEqual(done.stdout.split()[0], digest(self.file))

    def test_fetches(self):
        file = self.fetched()
        self.assertEqual((file["resumed_bytes"], file["verified_bytes"]), (0, 12 * MIB))
        self.assertRegex(file["tag"], '^"[0-9a-f-]+"$')

    def test_goes_on_where_it_was_interrupted(self):
        file = self.fetched(port=self.stopped_fetch())
        self.assertGreaterEqual(file["resumed_bytes"], 4 * MIB)

    def test_begins_again_if_the_object_was_replaced_meanwhile(self):
        port = self.stopped_fetch()
        self.replace()
        self.assertEqual(self.fetched(port=port)["resumed_bytes"], 0)

    def test_does_not_mix_versions(self):
        gate, process = self.halted_fetch(5 * MIB)
        self.replace()
        gate.open()
        self.assertEqual(process.wait(), 1)
        self.assertIn("changed", process.stderr.read())
        self.is_not_fetched()

    def test_says_that_there_is_no_such_object(self):
        done = self.tool("fetch", self.url("missing.pt"), self.target, code=1)
        self.assertIn(f"{self.shown('missing.pt')}: ", done.stderr)
        self.assertIn("404", done.stderr)
        self.is_not_fetched()


class SwiftStore(Store):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if importlib.util.find_spec("swift") is None:
            skip("the Python package swift is not installed")
        folder = tempfile.TemporaryDirectory(dir=FOLDER)
        cls.addClassCleanup(folder.cleanup)
        try:
            os.setxattr(folder.name, "user.swift.metadata", bytes(1000))
        except OSError as error:
            skip(f"Swift needs extended attributes in {FOLDER}: {error.strerror}")
        cls.swift = Swift(folder.name)
        cls.addClassCleanup(cls.swift.close)

    def serve(self):
        return self.swift

    def put(self, file):
        self.swift.ask("PUT", KEY, file.read_bytes())


class S3(SwiftStore, RemoteCase):
    def environment(self, port=None):
        return self.swift.environment(port)

    def url(self, key=KEY, port=None):
        return f"s3://{self.swift.BUCKET}/{key}"

    def shown(self, key=KEY):
        return f"s3://{self.swift.BUCKET}/" + urllib.parse.quote(key, safe=" +/")

    def test_an_object_of_several_parts(self):
        key, content, part_bytes = "parts.pt", self.file.read_bytes(), 5 * MIB
        _, begun = self.swift.ask("POST", key, b"", uploads="")
        upload = trees.fromstring(begun).findtext("{*}UploadId")
        parts = ""
        for number in (1, 2, 3):
            part = content[(number - 1) * part_bytes:number * part_bytes]
            headers, _ = self.swift.ask("PUT", key, part, partNumber=str(number), uploadId=upload)
            parts += f"<Part><PartNumber>{number}</PartNumber><ETag>{headers['ETag']}</ETag></Part>"
        self.swift.ask("POST", key, f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>"
                       .encode(), uploadId=upload)
        self.assertRegex(self.fetched(key)["tag"], '^"[0-9a-f]{32}-3"$')

    def test_lists_a_folder(self):
        self.is_listed(lambda key, path: self.swift.ask("PUT", key, path.read_bytes()))

    def test_refuses_a_wrong_secret(self):
        done = run("fetch", self.url(), self.target, code=1,
                   environment=self.environment() | {"AWS_SECRET_ACCESS_KEY": "wrong-SECRET"})
        self.assertIn("403", done.stderr)
        self.assertIn("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY were used", done.stderr)
        self.assertNotIn("SECRET", done.stderr.replace("AWS_SECRET_ACCESS_KEY", ""))
        self.is_not_fetched()

    def test_says_which_variable_is_missing(self):
        environment = self.environment()
        del environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]
        done = run("ls", self.url(), code=1, environment=environment)
        self.assertIn("AWS_ACCESS_KEY_ID is not set", done.stderr)


class Presigned(SwiftStore, RemoteCase):
    """By URLs that need no variables. Each is signed for itself."""

    def environment(self, port=None):
        return {}

    def url(self, key=KEY, port=None):
        return self.swift.presigned("GET", key, port)

    def shown(self, key=KEY):
        return self.url(key).partition("?")[0]

    def test_is_shown_without_its_signature(self):
        for url in (self.url("missing.pt"), self.url() + "0"):
            done = run("ls", url, code=1)
            self.assertIn(url.partition("?")[0], done.stderr)
            self.assertNotIn("X-Amz", done.stderr)

    def test_refuses_a_wrong_signature(self):
        done = run("fetch", self.url() + "0", self.target, code=1)
        self.assertIn("403", done.stderr)
        self.is_not_fetched()


NGINX = """pid FOLDER/nginx.pid;
error_log FOLDER/errors;
events {}
http {
  log_format asked escape=none '$status $uri "$http_range" "$http_if_match"';
  access_log FOLDER/asked asked;
  client_body_temp_path FOLDER/body;
  proxy_temp_path FOLDER/proxy;
  fastcgi_temp_path FOLDER/fastcgi;
  uwsgi_temp_path FOLDER/uwsgi;
  scgi_temp_path FOLDER/scgi;
  root STORE;
  gzip on;
  gzip_types *;
  server {
    listen 127.0.0.1:PORT;
    rewrite ^/moved/(.*)$ /$1 redirect;
    autoindex on;
    autoindex_format json;
  }
  MORE
}
"""
SECURE = """server {{
    listen 127.0.0.1:PORT ssl;
    ssl_certificate {};
    ssl_certificate_key {};
  }}"""


class Web(Store, RemoteCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if shutil.which("nginx") is None:
            skip("nginx is not installed")

    def nginx(self, text):
        folder = tempfile.TemporaryDirectory(dir=FOLDER)
        self.addCleanup(folder.cleanup)
        server = Nginx(folder.name, text)
        self.addCleanup(server.close)
        return server

    def serve(self, more=""):
        return self.nginx(NGINX.replace("STORE", str(self.store)).replace("MORE", more))

    def environment(self, port=None):
        return {}

    def url(self, key=KEY, port=None):
        return f"http://127.0.0.1:{port or self.server.port}/{urllib.parse.quote(key)}"

    shown = url

    def put(self, file):
        place = self.store / KEY
        place.parent.mkdir(exist_ok=True)
        new = self.store / "new"
        shutil.copyfile(file, new)
        os.rename(new, place)

    def test_lists_a_folder(self):
        def put(key, path):
            (self.store / key).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, self.store / key)
        self.is_listed(put)

    def asked(self):
        """Status, path, range and If-Match of each request, by the server's own account."""
        # One process answers all, and has written of a request before it reads the next one.
        run("ls", self.url("last"), code=1)
        lines = (self.server.folder / "asked").read_text().splitlines()
        return [re.fullmatch(r'(\d+) (.*) "(.*)" "(.*)"', line).groups() for line in lines
                if "/last" not in line]

    def test_asks_for_ranges_of_one_version(self):
        tag = self.fetched()["tag"]
        requests = self.asked()
        for status, path, span, wanted in requests:
            self.assertEqual((status, path), ("206", f"/{KEY}"))
            self.assertRegex(span, r"^bytes=\d*-\d*$")
            # Those for the two ends come first, to learn which version there is.
            if not re.match("bytes=0?-", span):
                self.assertEqual(wanted, tag)
        self.assertIn(tag, {wanted for *_, wanted in requests})

    def test_follows_a_redirect(self):
        self.tool("fetch", self.url(f"moved/{KEY}"), self.target, *SMALL)
        self.is_fetched()
        self.assertIn("302", {status for status, *_ in self.asked()})

    def test_a_certificate_that_nothing_vouches_for(self):
        certificate, key = self.certificate()
        secure = self.serve(SECURE.format(certificate, key))
        url = self.url(port=secure.ports[1]).replace("http:", "https:")
        done = run("fetch", url, self.target, code=1)
        self.assertIn("certificate", done.stderr)
        self.is_not_fetched()
        for name in ("SSL_CERT_FILE", "CURL_CA_BUNDLE"):
            run("fetch", url, self.target, *SMALL, "--force", environment={name: str(certificate)},
                code=0)
            self.is_fetched()
            self.target.unlink()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
