#!/usr/bin/env python3
"""Models of several files: their versions beside each other, and the link to the present one.

    model_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import base64
import hashlib
import json
import mmap
import os
import pathlib
import resource
import shutil
import signal
import stat
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

from range_server import ALWAYS, body, stalled, status, with_headers  # noqa: E402
from remote_case import SMALL, KeeperCase, ModelCase, digest, make, run  # noqa: E402
from safetensors_files import file_of  # noqa: E402

SHARED = pathlib.Path("/dev/shm")
INDEX = "model.safetensors.index.json"


def signature_of(sums):
    """As OpenSSF Model Signing writes it, but for the signature."""
    resources = [{"name": name, "algorithm": "sha256", "digest": sum_of_it}
                 for name, sum_of_it in sums.items()]
    digests = b"".join(bytes.fromhex(sum_of_it) for sum_of_it in sums.values())
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "model", "digest": {"sha256": hashlib.sha256(digests).hexdigest()}}],
        "predicateType": "https://model_signing/signature/v1.0",
        "predicate": {"serialization": {"method": "files", "hash_type": "sha256"},
                      "resources": resources}}
    payload = base64.b64encode(json.dumps(statement).encode()).decode()
    return json.dumps({"dsseEnvelope": {"payload": payload, "signatures": [],
                                        "payloadType": "application/vnd.in-toto+json"}})


class SetCase(ModelCase):
    def setUp(self):
        super().setUp()
        self.make_set("5MiB")
        self.file.unlink()
        (self.store / "config.json").write_text('{"model_type": "llama"}')
        self.link = self.folder / "llama"
        self.url = self.server.url(INDEX)
        self.shards = sorted(path.name for path in self.store.glob("*.safetensors"))

    def change(self, name):
        """Another content of the same length."""
        content = bytearray((self.store / name).read_bytes())
        content[-1] = (content[-1] + 1) % 256
        new = self.store / "new"
        new.write_bytes(content)
        os.rename(new, self.store / name)

    def has_version_of_store(self, link):
        wanted = sorted(path.name for path in self.store.iterdir())
        self.assertEqual(sorted(path.name for path in link.iterdir()), wanted)
        for name in wanted:
            self.assertEqual(digest(link / name), digest(self.store / name), name)
        run("ls", link, code=0)

    def beside(self, link=None):
        link = link or self.link
        return sorted(path.name for path in link.parent.iterdir() if path.name.startswith(link.name + "@"))


class Fetched(SetCase):
    def fetch(self, *arguments, code=0, url=None, **options):
        return run("fetch", url or self.url, self.link, *SMALL, *arguments, code=code, **options)

    def test_the_target_is_a_link_to_the_version(self):
        for target in (self.link, f"{self.link}/"):
            with self.subTest(target):
                done = run("fetch", self.url, target, code=0)
                self.has_version_of_store(self.link)
                self.assertTrue(self.link.is_symlink())
                [version] = self.beside()
                self.assertEqual(os.readlink(self.link), version)
                self.assertRegex(version, "^llama@[0-9a-f]{16}$")
                self.assertEqual(sorted(done.stdout.splitlines()),
                                 sorted(str(self.link / name) for name in os.listdir(self.store)))
        self.assertIn("was there already", done.stderr)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         sorted(["store", "llama", version]))

    def test_of_a_folder_too(self):
        described = json.loads(self.fetch("--json", url=self.server.url()).stdout)
        self.has_version_of_store(self.link)
        self.assertEqual((described["link"], described["folder"], described["is_new"]),
                         (str(self.link), str(self.link.resolve()), True))

    def test_a_new_version_comes_beside_the_old_one_and_shares_what_is_the_same(self):
        self.fetch()
        old = self.link.resolve()
        before = digest(old / self.shards[0])
        self.change(self.shards[0])
        seen = len(self.server.requests)
        self.fetch()
        self.has_version_of_store(self.link)
        self.assertEqual(digest(old / self.shards[0]), before)
        for name in self.shards[1:]:
            self.assertTrue(os.path.samefile(old / name, self.link / name))
        whole = [request.path for request in self.server.requests[seen:]
                 if request.span and request.span[1] and request.span[1] - request.span[0] >= 1 << 20]
        self.assertEqual(set(whole), {f"/{self.shards[0]}"})

    def test_one_version_of_before_stays(self):
        versions = []
        for _ in range(3):
            self.fetch()
            versions.append(self.link.resolve().name)
            self.fetch()  # which finds nothing new
            self.change("config.json")
        self.assertEqual(self.beside(), sorted(versions[1:]))

    def test_folders_of_other_names_stay(self):
        mine = [self.folder / name for name in ("llama@v1", "llama@0123456789abcdeg", "llama@0123456789abcdef.x")]
        for folder in mine:
            folder.mkdir()
        for _ in range(3):
            self.fetch()
            self.change("config.json")
        for folder in mine:
            self.assertTrue(folder.exists())

    def test_what_the_store_has_no_more_is_not_in_the_new_version(self):
        self.fetch()
        (self.store / "config.json").unlink()
        self.fetch()
        self.has_version_of_store(self.link)

    def test_a_fetch_that_fails_or_is_killed_leaves_the_old_version_and_goes_on(self):
        self.fetch()
        old = os.readlink(self.link)
        for name in self.shards:
            self.change(name)
        self.server.fault(status(404), times=ALWAYS, match=lambda request: request.path == f"/{self.shards[-1]}")
        self.fetch(code=1)
        self.assertEqual(os.readlink(self.link), old)
        self.server.heal()
        last = self.shards[-1]
        stall = lambda request: request.path == f"/{last}" and request.has(3 << 20)  # noqa: E731
        self.server.fault(stalled(1000), times=ALWAYS, match=stall)
        seen = len(self.server.requests)
        process = self.start("fetch", self.url, self.link, *SMALL)
        self.server.wait(lambda server: any(map(stall, server.requests[seen:])))
        journal = self.folder / "llama@incoming" / f"{last}.part.journal"
        while journal.read_text().count("\n") < 2:  # what is on the disk
            self.assertIsNone(process.poll())
        self.end(process)
        self.assertEqual(os.readlink(self.link), old)
        run("ls", self.link, code=0)
        self.server.heal()
        files = json.loads(self.fetch("--json").stdout)["files"]
        self.has_version_of_store(self.link)
        self.assertGreater(sum(file["resumed_bytes"] for file in files), 0)

    def test_another_fetch_of_the_link_is_refused(self):
        self.server.fault(stalled(1000), times=ALWAYS, match=lambda request: request.path.endswith(self.shards[0]))
        process = self.start("fetch", self.url, self.link, *SMALL)
        self.server.wait(lambda server: any(request.path.endswith(self.shards[0]) for request in server.requests))
        self.assertIn("another fetch of it goes on", self.fetch(code=1).stderr)
        self.end(process)
        self.server.heal()
        self.fetch()
        self.has_version_of_store(self.link)

    def test_a_file_that_was_written_to_comes_anew(self):
        self.fetch()
        old = self.link.resolve()
        with open(self.link / self.shards[0], "r+b") as file:
            file.write(b"another header")
        self.fetch()
        self.has_version_of_store(self.link)
        self.assertEqual(self.link.resolve().name, f"{old.name}.2")

    def test_a_digest_that_differs_leaves_the_old_version(self):
        self.fetch()
        old = os.readlink(self.link)
        sums = self.folder / "sums"
        sums.write_text("".join(f"{digest(path)}  {path.name}\n" for path in sorted(self.store.iterdir())))
        self.fetch("--sums", sums)
        self.change(self.shards[1])
        self.assertIn("has the SHA-256", self.fetch("--sums", sums, code=1).stderr)
        self.assertEqual(os.readlink(self.link), old)

    def list_sums(self, *left_out):
        """SHA256SUMS of what is in the store."""
        names = [path.name for path in sorted(self.store.iterdir())
                 if path.name not in ("SHA256SUMS", "model.sig", *left_out)]
        (self.store / "SHA256SUMS").write_text(
            "".join(f"{digest(self.store / name)}  ./{name}\n" for name in names))

    def compared_with(self, *arguments):
        """Who said the SHA-256 of each file."""
        files = json.loads(self.fetch("--json", *arguments).stdout)["files"]
        return {os.path.basename(file["path"]): file["sum_from"] for file in files}

    def test_a_list_of_sums_beside_the_model_is_compared_with_all_that_it_names(self):
        self.list_sums("config.json")
        wanted = {name: "SHA256SUMS" for name in (*self.shards, INDEX)}
        wanted |= {"config.json": None, "SHA256SUMS": None}
        self.assertEqual(self.compared_with(), wanted)
        self.has_version_of_store(self.link)
        self.assertEqual(self.compared_with(), wanted)

    def test_a_file_that_differs_from_the_list_beside_it_is_refused(self):
        self.list_sums()
        self.fetch()
        old = os.readlink(self.link)
        for name in (self.shards[0], "config.json"):
            with self.subTest(name):
                before = (self.store / name).read_bytes()
                self.change(name)
                self.assertRegex(self.fetch(code=1).stderr,
                                 f"{name}: has the SHA-256 .* as SHA256SUMS beside it says")
                self.assertEqual(os.readlink(self.link), old)
                (self.store / name).write_bytes(before)
        self.list_sums()
        self.change(self.shards[0])
        self.list_sums()
        self.fetch()
        self.has_version_of_store(self.link)

    def test_a_new_list_is_compared_with_the_files_that_are_there(self):
        self.fetch()
        self.list_sums()
        self.assertEqual(self.compared_with()[self.shards[0]], "SHA256SUMS")
        sums = self.store / "SHA256SUMS"
        sums.write_text(sums.read_text().replace(digest(self.store / self.shards[1]), "0" * 64))
        self.assertRegex(self.fetch(code=1).stderr, f"{self.shards[1]}: has the SHA-256 ")

    def test_a_required_digest_is_that_of_the_list_or_missing(self):
        (self.store / "model.sig").write_text("{}")
        self.list_sums()
        self.fetch("--require-digest")
        self.has_version_of_store(self.link)
        self.list_sums(self.shards[1])
        self.assertIn(f'no SHA-256 of "{self.shards[1]}" is known, which is required: none was given, '
                      "SHA256SUMS does not name it, and its store says none",
                      self.fetch("--require-digest", code=1).stderr)
        self.fetch()

    def test_a_list_beside_the_model_that_is_none_is_refused(self):
        for text, why in (("no sums\n", "SHA256SUMS: line 1 is none of sha256sum's"),
                          ("\n", "SHA256SUMS: lists no file"),
                          (f"{'0' * 64}  a\n{'1' * 64}  a\n", "with two SHA-256s")):
            (self.store / "SHA256SUMS").write_text(text)
            self.assertIn(why, self.fetch(code=1).stderr)
        self.assertFalse(self.link.exists())

    def test_sums_that_are_given_count_more_than_the_list_beside_the_model(self):
        (self.store / "SHA256SUMS").write_text("no sums\n")
        sums = self.folder / "sums"
        sums.write_text("".join(f"{digest(self.store / name)}  {name}\n" for name in (*self.shards, INDEX)))
        self.assertEqual(self.compared_with("--sums", sums),
                         {name: "given" for name in (*self.shards, INDEX)})

    def test_a_signature_is_a_list_of_sums(self):
        signature = self.folder / "model.sig"
        names = (*self.shards, INDEX, "config.json")
        signature.write_text(signature_of({name: digest(self.store / name) for name in names}))
        self.assertEqual(self.compared_with("--sums", signature), {name: "given" for name in names})
        run("verify", "--sums", signature, self.link, code=1)  # which names files beside it
        (self.link / "model.sig").write_text(signature.read_text())
        self.assertIn(f"SHA-256 of {len(self.shards) + 1} files",
                      run("verify", "--sums", self.link / "model.sig", self.link, code=0).stdout)
        self.change(self.shards[0])
        self.assertIn("as was asked for", self.fetch("--sums", signature, code=1).stderr)
        signature.write_text(signature_of({"/etc/passwd": "0" * 64}))
        self.assertIn("predicate.resources[0].name is \"/etc/passwd\"",
                      self.fetch("--sums", signature, code=2).stderr)

    def test_a_folder_that_is_there_is_filled_in_place(self):
        self.link.mkdir()
        self.fetch()
        self.assertFalse(self.link.is_symlink())
        self.has_version_of_store(self.link)

    def test_a_link_to_any_other_folder_is_left_alone(self):
        others = self.folder / "others"
        others.mkdir()
        (others / "mine.pt").write_bytes(b"mine")
        self.link.symlink_to("others")
        for target in (self.link, f"{self.link}/"):
            run("fetch", self.url, target, code=0)
            self.assertEqual(os.readlink(self.link), "others")
        self.assertEqual(sorted(os.listdir(others)), sorted(["mine.pt", *os.listdir(self.store)]))
        self.assertEqual(self.beside(), [])

    def test_the_link_may_lie_in_a_folder_of_another_name(self):
        (self.folder / "real").mkdir()
        (self.folder / "name").symlink_to("real")
        self.link = self.folder / "name" / "llama"
        for _ in range(3):
            self.fetch()
            self.has_version_of_store(self.link)
            with open(self.link / self.shards[0], "r+b") as file:
                file.write(b"another header")
            self.fetch()
            self.has_version_of_store(self.link)
            self.change(self.shards[1])
        self.assertEqual(len(self.beside(self.folder / "real" / "llama")), 2)

    def test_a_file_of_the_name_is_refused(self):
        self.link.write_bytes(b"mine")
        self.assertIn("is no symbolic link", self.fetch(code=1).stderr)
        self.assertEqual(self.link.read_bytes(), b"mine")

    def test_a_single_file_of_a_model_is_one_too(self):
        for name in (*self.shards[1:], INDEX):
            (self.store / name).unlink()
        os.rename(self.store / self.shards[0], self.store / "model.safetensors")
        for url, target in ((self.server.url(), self.link), (self.server.url("model.safetensors"), f"{self.link}/")):
            run("fetch", url, target, code=0)
            self.has_version_of_store(self.link)
        self.assertEqual(len(self.beside()), 1)


class OfAListing(SetCase):
    """The store lists the folder, so that what is fetched needs no well-known name."""
    BESIDE = ("qwen.tiktoken", "modeling_llama.py", "a & b+c.json", "generation_config.json")
    OTHERS = ("README.md", "model.onnx", "pytorch_model.bin", "pytorch_model.bin.index.json", ".hidden.json",
              "tf_model.h5")

    def setUp(self):
        super().setUp()
        for name in (*self.BESIDE, *self.OTHERS):
            (self.store / name).write_bytes(name.encode())
        (self.store / "below").mkdir()
        (self.store / "below" / "config.json").write_text("{}")
        self.wanted = {*self.BESIDE, "config.json", INDEX, *self.shards}
        self.of_model = ("config.json", "generation_config.json", *self.shards, INDEX)

    def serve_listing(self, listing):
        """Returns the URL of the folder."""
        self.server = self.serve(self.folder.parent, listing=listing)
        self.s3 = {"AWS_ENDPOINT_URL": self.server.url(), "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
        folder = f"{self.folder.name}/store/"
        return f"s3://{folder}" if listing == "s3" else self.server.url(folder)

    def fetched(self, url):
        """The files that come, which are those of the store."""
        link = self.folder / f"link{len(os.listdir(self.folder))}"
        run("fetch", url, link, *SMALL, code=0, environment=self.s3)
        names = {str(path.relative_to(link)) for path in link.rglob("*") if path.is_file()}
        for name in names:
            self.assertEqual(digest(link / name), digest(self.store / name))
        return names

    def asked(self):
        return {request.path.rsplit("/", 1)[1] for request in self.server.requests}

    def is_listing(self, request):
        return request.path.endswith("/")

    def test_all_that_belongs_to_the_model_comes_and_nothing_else(self):
        for listing in ("s3", "nginx"):
            url = self.serve_listing(listing)
            for place in (url, url + INDEX):
                with self.subTest(place):
                    self.assertEqual(self.fetched(place), self.wanted)
            self.assertLessEqual(self.asked(), {*self.wanted, ""})

    def test_a_local_folder_is_listed_too(self):
        self.serve_listing(None)
        self.assertEqual(self.fetched(f"file://{self.store}/"), self.wanted)

    def make_modules(self, *folders):
        (self.store / "modules.json").write_text(json.dumps(
            [{"idx": number, "path": folder, "type": "sentence_transformers.models.Dense"}
             for number, folder in enumerate(["", *folders])]))

    def test_the_folders_of_modules_come_too(self):
        self.make_modules("1_Pooling", "2_Dense", "2_Dense", "3_Normalize")
        below = {"1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"}
        for name in (*below, "2_Dense/vectors.bin", "2_Dense/.hidden", "4_Other/config.json"):
            (self.store / name).parent.mkdir(exist_ok=True)
            (self.store / name).write_bytes(name.encode())
        for listing in ("s3", "nginx", None):
            with self.subTest(listing):
                url = self.serve_listing(listing)
                wanted = ({*self.of_model, "modules.json", *below} if listing is None
                          else {*self.wanted, "modules.json", *below, "2_Dense/vectors.bin"})
                shown = json.loads(run("ls", "--files", "--json", url + INDEX, environment=self.s3, code=0).stdout)
                self.assertEqual({file["file"] for file in shown["files"]}, wanted)
                self.assertEqual(self.fetched(url + INDEX), wanted)

    def test_a_module_outside_of_the_model_is_refused(self):
        url = self.serve_listing("s3")
        for place in ("../1_Pooling", "/1_Pooling"):
            self.make_modules(place)
            for command in (("fetch", url, self.link), ("ls", "--files", url)):
                failed = run(*command, code=1, environment=self.s3)
                self.assertIn(f'modules.json has a module in "{place}", which is not below it', failed.stderr)
        self.assertFalse(self.link.exists())

    def test_modules_in_another_form_are_a_file_as_others_are(self):
        url = self.serve_listing("s3")
        for text in ("{}", "[", "[1]", '[{"path": "1_Pooling"}]', '[{"path": 1, "type": "t"}]'):
            (self.store / "modules.json").write_text(text)
            self.assertEqual(self.fetched(url), {*self.wanted, "modules.json"})

    def test_too_many_modules_are_refused(self):
        url = self.serve_listing("s3")
        (self.store / "modules.json").write_text("[" + " " * (1 << 20) + "]")
        for command in (("fetch", url, self.link), ("ls", "--files", url)):
            self.assertIn("modules.json", run(*command, code=1, environment=self.s3).stderr)
        self.make_modules(*map(str, range(65)))
        self.assertIn("modules.json has more than 64 folders",
                      run("fetch", url, self.link, code=1, environment=self.s3).stderr)
        self.make_modules("many")
        (self.store / "many").mkdir()
        for number in range(257):
            (self.store / "many" / f"{number}.json").touch()
        self.assertIn("the folders of its modules have more than 256 files",
                      run("fetch", url, self.link, code=1, environment=self.s3).stderr)

    def test_what_leads_to_a_model_in_one_file(self):
        url = self.serve_listing("nginx")
        make(self.store / "pytorch_model.bin", count=1)
        for name in ("adapter_model.safetensors", "diffusion_pytorch_model.safetensors"):
            shutil.copy(self.store / self.shards[0], self.store / name)
        for name in ("pytorch_model.bin", "adapter_model.safetensors", "diffusion_pytorch_model.safetensors"):
            target = self.folder / name
            run("fetch", url + name, f"{target}/", code=0)
            self.assertEqual(set(os.listdir(target)),
                             {*self.BESIDE, "config.json", name, "adapter_model.safetensors"})

    def test_the_weights_of_an_adapter_come_with_its_model(self):
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            (self.store / name).write_bytes(name.encode())
        self.assertEqual(self.fetched(self.serve_listing("s3")),
                         {*self.wanted, "adapter_config.json", "adapter_model.safetensors"})

    def test_a_listing_of_several_pages(self):
        url = self.serve_listing("s3")
        self.server.keys_of_a_page = 3
        self.assertEqual(self.fetched(url), self.wanted)

    def test_the_lead_is_found_by_the_rules_for_folders(self):
        (self.store / "pytorch_model.bin.index.json").unlink()
        (self.store / "pytorch_model.bin").unlink()
        for name in (*self.shards[1:], INDEX):
            (self.store / name).unlink()
        os.rename(self.store / self.shards[0], self.store / "other.safetensors")
        for listing in ("s3", "nginx"):
            url = self.serve_listing(listing)
            run("ls", url, environment=self.s3, code=0)
            self.assertEqual(self.asked(), {"", "other.safetensors"})
        shutil.copy(self.store / "other.safetensors", self.store / "another.safetensors")
        done = run("ls", url, environment=self.s3, code=1)
        self.assertIn("is a folder of several checkpoints", done.stderr)

    def falls_back(self, url):
        """To the well-known names, of which it has two."""
        (self.store / "pytorch_model.bin.index.json").unlink(missing_ok=True)
        self.assertEqual(self.fetched(url), set(self.of_model))

    def test_a_listing_that_is_refused_leaves_the_well_known_names(self):
        for listing in ("s3", "nginx"):
            for code in (401, 403, 404, 405):
                with self.subTest(listing, code=code):
                    url = self.serve_listing(listing)
                    self.server.fault(status(code), times=ALWAYS, match=self.is_listing)
                    self.falls_back(url)

    def test_so_does_what_is_no_listing(self):
        answers = {"s3": (b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>", b"<html>"),
                   "nginx": (b"{}", b"[1]", b'[{"name": "config.json"}]', b"[]",
                             b'[{"name": "config.json", "type": "file"}]', b"[")}
        for listing, bodies in answers.items():
            for each in bodies:
                with self.subTest(each):
                    url = self.serve_listing(listing)
                    self.server.fault(body(lambda _right, each=each: each), times=ALWAYS, match=self.is_listing)
                    self.falls_back(url)

    def test_so_does_a_web_page(self):
        url = self.serve_listing("nginx")
        self.server.fault(with_headers(Content_Type="text/html"), times=ALWAYS, match=self.is_listing)
        self.falls_back(url)

    def test_so_do_too_many_files(self):
        url = self.serve_listing("nginx")
        many = json.dumps([{"name": f"{number}.json", "type": "file", "size": 2} for number in range(300)]
                          + [{"name": INDEX, "type": "file", "size": 2}]).encode()
        self.server.fault(body(lambda _right: many), times=ALWAYS, match=self.is_listing)
        self.falls_back(url)

    def test_a_listing_that_fails_for_a_moment_is_asked_for_again(self):
        url = self.serve_listing("s3")
        self.server.fault(status(503), match=self.is_listing)
        self.assertEqual(self.fetched(url), self.wanted)

    def test_what_is_refused_and_not_listed_is_not_there(self):
        # S3 says 403 of a file that is not there to those who may not list the bucket.
        url = self.serve_listing(None)
        there = os.listdir(self.store)
        self.server.fault(status(403), times=ALWAYS,
                          match=lambda request: request.path.rsplit("/", 1)[1] not in there)
        self.falls_back(url + INDEX)

    def test_what_is_listed_and_refused_is_an_error(self):
        url = self.serve_listing("s3")
        self.server.fault(status(403), times=ALWAYS, match=lambda request: request.path.endswith("/config.json"))
        failed = run("fetch", url, self.link, code=1, environment=self.s3)
        self.assertRegex(failed.stderr, "/config.json: .*403")
        self.assertFalse(self.link.exists())

    def test_names_that_leave_the_folder_are_not_followed(self):
        names = ("../secret.json", "/secret.json", "below/config.json", "..", "a\\b.json", "")
        (self.folder / "secret.json").write_text("{}")
        web = json.dumps([{"name": name, "type": "file", "size": 2} for name in (*names, *self.of_model)]).encode()
        xml = ("<ListBucketResult><EncodingType>url</EncodingType>"
               + "".join(f"<Contents><Key>store/{key}</Key><Size>2</Size></Contents>"
                         for key in ("%2E%2E/secret.json", *names, *self.of_model))
               + "</ListBucketResult>").encode()
        for listing, text in (("s3", xml), ("nginx", web)):
            url = self.serve_listing(listing)
            self.server.fault(body(lambda _right, text=text: text), times=ALWAYS, match=self.is_listing)
            self.assertEqual(self.fetched(url), set(self.of_model))
            self.assertNotIn("secret.json", self.asked())

    def test_a_large_file_is_none_of_the_model(self):
        url = self.serve_listing("nginx")
        with open(self.store / "train.json", "wb") as file:
            file.truncate((64 << 20) + 1)
        self.assertEqual(self.fetched(url), self.wanted)


    def test_ls_shows_the_files_of_a_model(self):
        places = [self.serve_listing("nginx"), self.serve_listing("s3"), self.store]
        for place in places:
            with self.subTest(place):
                shown = json.loads(run("ls", "--files", "--json", place, environment=self.s3, code=0).stdout)
                names = [file["file"] for file in shown["files"]]
                self.assertEqual((set(names), names[-1]), (self.wanted, INDEX))
                for file in shown["files"]:
                    self.assertEqual(file["bytes"], (self.store / file["file"]).stat().st_size)
                    self.assertEqual(file["is_weights"], "safetensors" in file["file"])
                    self.assertTrue(file["tag"])
                self.assertEqual((shown["weights"]["files"], shown["beside"]["files"]),
                                 (len(self.shards) + 1, len(self.BESIDE) + 1))
        text = run("ls", "--files", self.store, code=0).stdout.splitlines()
        self.assertRegex(text[0], f"^{len(self.wanted)} files, .*: weights .* in {len(self.shards) + 1} files")
        self.assertRegex(text[-1], f"weights .*{INDEX}$")
        self.assertIn("excludes", run("ls", "--files", "--info", self.store, code=2).stderr)


class Listed(SetCase):
    def map(self, folder):
        """Maps its first shard into this process as long as the test."""
        with open(folder / self.shards[0], "rb") as file:
            self.mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            self.addCleanup(self.mapped.close)

    def listed(self, place):
        document = json.loads(run("ps", "--json", place, code=0).stdout)
        return sorted((os.path.basename(os.path.dirname(row["file"])), row["version"])
                      for row in document["processes"] if row["pid"] == os.getpid())

    def test_a_link_stands_for_its_earlier_versions_too(self):
        versions = []
        for _ in range(3):
            run("fetch", self.url, self.link, code=0)
            versions.append(self.link.resolve().name)
            self.map(self.link)
            self.change(self.shards[0])
        first, second, third = versions
        wanted = sorted([(first, "deleted"), (second, "replaced"), (third, "current")])
        for place in (self.link, f"{self.link}/"):
            self.assertEqual(self.listed(place), wanted)
        said = run("ps", self.link, code=0).stdout
        for name, version in wanted:
            self.assertRegex(said, f"{name}/.*{'' if version == 'current' else version}.*1 process")

    def test_so_does_one_that_publish_led_elsewhere(self):
        for version in ("v1", "v2"):
            shutil.copytree(self.store, self.folder / version)
            run("publish", self.folder / version, self.link, code=0)
            self.map(self.link)
        self.assertEqual(self.listed(self.link), [("v1", "replaced"), ("v2", "current")])
        other = self.folder / "other"
        run("publish", self.folder / "v1", other, code=0)
        self.assertEqual(self.listed(other), [("v1", "current")])


class InMemory(SetCase):
    def setUp(self):
        super().setUp()
        self.name = f"weightmap-model-{self.name_mark()}"
        self.copy = SHARED / self.name
        self.addCleanup(self.clean)

    def clean(self):
        for path in SHARED.glob(f"*{self.name}*"):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def is_gone(self):
        self.assertEqual(list(SHARED.glob(f"*{self.name}*")), [])


class Staged(InMemory):
    def test_a_model_of_a_url_a_folder_or_an_index_is_staged_as_a_folder(self):
        for place in (self.url, self.server.url(), self.store, self.store / INDEX):
            with self.subTest(place):
                done = run("stage", place, "--name", self.name, code=0)
                self.assertEqual(done.stdout, f"{self.copy}\n")
                self.has_version_of_store(self.copy)
                self.assertEqual(self.beside(self.copy), [os.readlink(self.copy)])
                run("stage", "--remove", self.name, code=0)
                self.is_gone()

    def test_again_it_follows_the_store(self):
        run("stage", self.url, "--name", self.name, code=0)
        self.change(self.shards[0])
        described = json.loads(run("stage", self.url, "--name", self.name, "--json", code=0).stdout)
        self.assertTrue(described["is_new"])
        self.has_version_of_store(self.copy)
        self.assertEqual(self.beside(self.copy), [os.readlink(self.copy)])

    def test_without_a_name_it_is_refused(self):
        for place in (self.url, self.store):
            self.assertIn("--name says which one", run("stage", place, code=1).stderr)

    def test_what_does_not_fit_is_refused_before_it_is_fetched(self):
        self.assertIn("--budget is for one file",
                      run("stage", self.store, "--name", self.name, "--budget", "1MiB", code=1).stderr)
        header = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (1 << 41, 1 << 41)
        with open(self.store / self.shards[0], "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + (1 << 41))
        (self.store / INDEX).write_text(json.dumps({"weight_map": {"w": self.shards[0]}}))
        self.assertIn("and its disk has", run("stage", self.store, "--name", self.name, code=1).stderr)
        self.is_gone()

    def test_of_more_files_than_may_be_open_at_first(self):
        weights = {f"w{number}": f"{number}.safetensors" for number in range(100)}
        for tensor, file in weights.items():
            (self.store / file).write_bytes(file_of({tensor: ("U8", [4], b"1234")}))
        (self.store / INDEX).write_text(json.dumps({"weight_map": weights}))
        limits = 64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        run("stage", self.url, "--name", self.name, code=0,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits))
        self.assertTrue(all((self.copy / file).exists() for file in weights.values()))

    def test_a_name_that_is_taken_is_refused(self):
        self.copy.symlink_to(self.store)
        self.assertIn("is there already", run("stage", self.url, "--name", self.name, code=1).stderr)
        self.copy.unlink()
        self.copy.write_bytes(b"mine")
        self.assertIn("is there already", run("stage", self.url, "--name", self.name, code=1).stderr)
        self.assertEqual(self.copy.read_bytes(), b"mine")


class Held(KeeperCase, InMemory):
    def setUp(self):
        super().setUp()
        self.meet()

    def hold(self, *arguments):
        self.daemon = self.start("hold", "--json", "--interval", "0.02", "--name", self.name,
                                 *(arguments or [self.url]), env=self.environment)

    def test_the_version_of_the_store_is_held(self):
        for url in (self.url, self.server.url()):
            with self.subTest(url):
                self.hold(url)
                file = self.held_when(lambda file: file["state"] == "held" and "files" in file)
                self.has_version_of_store(self.copy)
                self.assertEqual((file["file"], file["version"], file["url_problem"]),
                                 (str(self.copy), os.readlink(self.copy).split("@")[1], None))
                self.assertEqual(file["file_bytes"],
                                 sum((self.store / name).stat().st_size for name in (*self.shards, INDEX)))
                self.assertEqual({(each["file"], each["bytes"]) for each in file["files"]},
                                 {(path.name, path.stat().st_size) for path in self.store.iterdir()})
                self.assertEqual(stat.S_IMODE(self.copy.stat().st_mode), 0o700)
                self.assertEqual(self.end(self.daemon, signal.SIGTERM), 0)

    def test_a_new_version_of_any_file_replaces_the_old_one(self):
        self.hold()
        self.held_when(lambda file: file["state"] == "held")
        for name in (self.shards[-1], "config.json", INDEX):
            with self.subTest(name):
                old = os.readlink(self.copy)
                if name == INDEX:
                    (self.store / INDEX).write_text((self.store / INDEX).read_text() + "\n")
                else:
                    self.change(name)
                self.held_when(lambda file: file["version"] not in (None, old.split("@")[1])
                               and file["state"] == "held")
                self.has_version_of_store(self.copy)
                self.held_when(lambda file: self.beside(self.copy) == [os.readlink(self.copy)])

    def test_a_store_that_fails_leaves_what_is_held(self):
        self.hold()
        self.held_when(lambda file: file["state"] == "held")
        old = os.readlink(self.copy)
        self.server.fault(status(404), times=ALWAYS, match=lambda request: request.path.endswith(self.shards[0]))
        self.change(self.shards[1])
        self.held_when(lambda file: file["url_problem"] and "404" in file["url_problem"])
        self.assertEqual(os.readlink(self.copy), old)
        self.server.heal()
        self.held_when(lambda file: not file["url_problem"] and file["version"] != old.split("@")[1])
        self.has_version_of_store(self.copy)

    def hold_of_listing(self, listing):
        self.server = self.serve(self.folder.parent, listing=listing)
        self.environment = {**self.environment, "AWS_ENDPOINT_URL": self.server.url()}
        folder = f"{self.folder.name}/store/"
        self.hold(f"s3://{folder}" if listing == "s3" else self.server.url(folder))
        self.held_when(lambda file: file["state"] == "held")

    def test_of_a_store_with_tags_in_its_listing_no_file_is_asked_for(self):
        self.hold_of_listing("s3")
        seen = len(self.server.requests)
        self.server.wait(lambda server: len(server.requests) > seen + 20)
        rounds = self.server.requests[seen + 10:]
        self.assertEqual({request.path for request in rounds}, {f"/{self.folder.name}/"})
        self.change(self.shards[0])
        version = os.readlink(self.copy)
        self.held_when(lambda file: os.readlink(self.copy) != version)
        self.has_version_of_store(self.copy)

    def test_a_file_that_the_store_did_not_have_is_noticed_in_its_listing(self):
        for listing in ("s3", "nginx"):
            with self.subTest(listing):
                self.hold_of_listing(listing)
                (self.store / f"{listing}.json").write_text("{}")
                self.held_when(lambda file: (self.copy / f"{listing}.json").exists())
                self.has_version_of_store(self.copy)
                self.assertEqual(self.end(self.daemon, signal.SIGTERM), 0)

    def test_a_model_that_is_not_there_ends_the_start(self):
        for url in (self.server.url("none/"), self.server.url("none.index.json")):
            self.hold(url)
            self.assertEqual(self.daemon.wait(), 1)
            self.assertRegex(self.daemon.stderr.read(), "404|is a folder in which the store shows neither")
        self.is_gone()

    def test_another_daemon_goes_on_with_what_is_there(self):
        self.hold()
        self.held_when(lambda file: file["state"] == "held")
        self.end(self.daemon)
        seen = len(self.server.requests)
        self.hold()
        self.held_when(lambda file: file["state"] == "held")
        self.assertEqual([request for request in self.server.requests[seen:]
                          if request.path.endswith("safetensors") and request.has(3 << 20)], [])

    def test_a_version_without_digests_is_not_held_where_they_are_required(self):
        sums = self.store / "SHA256SUMS"
        lines = "".join(f"{digest(path)}  {path.name}\n" for path in sorted(self.store.iterdir()))
        sums.write_text(lines)
        self.hold("--require-digest", self.url)
        file = self.held_when(lambda file: file["state"] == "held")
        self.assertTrue(file["sha256_compared"])
        old = os.readlink(self.copy)
        (self.store / "tokenizer.json").write_text("{}")
        sums.unlink()
        self.change(self.shards[0])
        self.held_when(lambda file: file["url_problem"] and "which is required" in file["url_problem"])
        self.assertEqual(os.readlink(self.copy), old)
        sums.write_text("".join(f"{digest(path)}  {path.name}\n" for path in sorted(self.store.iterdir())))
        self.held_when(lambda file: not file["url_problem"] and file["version"] != old.split("@")[1])
        self.has_version_of_store(self.copy)

    def test_release_removes_it(self):
        self.hold()
        self.held_when(lambda file: file["state"] == "held")
        run("hold", "--release", self.url, environment=self.environment, code=0)
        self.is_gone()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
