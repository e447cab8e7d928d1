#!/usr/bin/env python3
"""Every command that asks a server, against every lie of lies.py: right bytes, or a sentence.

    lies_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT

What is refused leaves what was there under the final name. All of it runs at the same time, each
with a server of its own, since most of the time goes by in waiting for the next try.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

from lies import LIES, RIGHT, drip  # noqa: E402
from range_server import ALWAYS, RangeServer, after, raw, stalled, status  # noqa: E402
from remote_case import CLEAN, FOLDER, TOOL, digest, make  # noqa: E402
from safetensors_files import file_of  # noqa: E402

SHARED = pathlib.Path("/dev/shm")
LIMIT = 120  # seconds, for any command; the retries take some ten of them
AT_A_TIME = 24
ONE_BY_ONE = ("--connections", "1", "--chunk", "2MiB")


class Wrong(Exception):
    pass


def expect(condition, *what):
    if not condition:
        raise Wrong(*what)


def run(*arguments, environment=None):
    """(status, output, complaint)"""
    done = subprocess.run([TOOL, *map(str, arguments)], env=CLEAN | (environment or {}), check=False,
                          timeout=LIMIT, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def expect_refusal(pattern, url, done):
    code, output, complaint = done
    expect(code == 1 and output == "", done)
    expect(re.fullmatch(rf"weightmap: [^\n]*{re.escape(url)}: [^\n]*({pattern})[^\n]*\n", complaint),
           pattern, complaint)


class Store:
    """Two versions of a file and of a set, for all."""

    def __init__(self, folder):
        self.folder = folder
        for version, width in (("old", 1000), ("new", 1024)):
            (folder / version).mkdir()
            make(folder / version / "model.pt", count=3, shape=f"256x{width}")
            run("convert", folder / version / "model.pt", folder / version, "--to", "safetensors",
                "--max-shard-size", "2MiB")
        self.listed = {}

    def listing(self, words):
        if words not in self.listed:
            self.listed[words] = run(*words.split(), self.folder / "new" / "model.pt")[1]
        return self.listed[words]


def look(words):
    def ask(store, lie, honest, _folder, serve):
        if honest:
            return  # no more requests are made than those
        path = store.folder / "new" / "model.pt"
        server = serve(store.folder / "new", lie, honest)
        url = server.url("model.pt")
        done = run(*words.split(), url)
        if lie.follows(honest) != RIGHT:
            expect_refusal(lie.follows(honest), url, done)
        else:
            right = store.listing(words).replace(str(path), url)
            expect(done[0] == 0, done)
            expect(words == "ls --info" or done[1] == right, done)
    return ask


def fetch(store, lie, honest, folder, serve):
    """Over an older file."""
    url = serve(store.folder / "new", lie, honest).url("model.pt")
    target = folder / "model.pt"
    shutil.copy(store.folder / "old" / "model.pt", target)
    done = run("fetch", "--force", url, target, *ONE_BY_ONE)
    expected = RIGHT if lie.comes_whole and done[0] == 0 else lie.follows(honest)
    expect_file(store, expected, url, done, target)
    expect(expected != RIGHT or os.listdir(folder) == ["model.pt"], os.listdir(folder))


def expect_file(store, expected, url, done, path):
    """A refusal, and the old file, or the new one."""
    if expected == RIGHT:
        expect(done[0] == 0, done)
        expect(digest(path) == digest(store.folder / "new" / "model.pt"), "other bytes")
    else:
        expect_refusal(expected, url, done)
        expect(digest(path) == digest(store.folder / "old" / "model.pt"), "not the old file")


def fetch_set(store, lie, honest, folder, serve):
    """Over an older set; the lies are about a shard, in the second place after its metadata."""
    shard = min((store.folder / "new").glob("model-*.safetensors")).name
    server = serve(store.folder / "new", None, honest)
    server.fault(lie.fault, first=2 if honest else 1, times=ALWAYS,
                 match=lambda request: shard in request.path)
    names = expect_set(store, "old", None)
    for name in names:
        shutil.copy(store.folder / "old" / name, folder)
    done = run("fetch", server.url("model.safetensors.index.json"), f"{folder}/", *ONE_BY_ONE)
    if lie.follows(honest) == RIGHT:
        expect(done[0] == 0, done)
        expect_set(store, "new", folder)
    else:
        expect(done[0] == 1, done)
        expect(re.search(lie.follows(honest), done[2]), done)
        expect_set(store, "old", folder)
        expect(run("ls", folder)[0] == 0, "the old set does not open")


def expect_set(store, version, folder):
    """The names of the set, which the folder has with the bytes of this version."""
    files = [path for path in (store.folder / version).iterdir() if path.suffix != ".pt"]
    for path in files if folder else ():
        expect((folder / path.name).read_bytes() == path.read_bytes(), path.name, "is not", version)
    return [path.name for path in files]


def stage(store, lie, honest, folder, serve):
    url = serve(store.folder / "new", lie, honest).url("model.pt")
    copy = SHARED / f"weightmap-lies-{folder.name}"
    try:
        done = run("stage", url, "--name", copy.name, *ONE_BY_ONE)
        if lie.follows(honest) == RIGHT:
            expect_file(store, RIGHT, url, done, copy)
        else:
            expect_refusal(lie.follows(honest), url, done)
            expect(not copy.exists(), "there is a copy")
    finally:
        copy.unlink(missing_ok=True)


def hold(store, lie, honest, folder, serve):
    """An update that is a lie."""
    mark = f"weightmap-lies-{folder.name}"
    (folder / "store").mkdir()
    file = folder / "store" / f"{mark}.pt"
    shutil.copy(store.folder / "old" / "model.pt", file)
    server = serve(file.parent, None, honest)
    runtime = tempfile.mkdtemp(prefix="weightmap-")
    words = [TOOL, "hold", "--no-lock", "--interval", "0.02", server.url(file.name), *ONE_BY_ONE[:2]]
    daemon = subprocess.Popen(words, env={**CLEAN, "WEIGHTMAP_RUNTIME_DIR": runtime},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        told = daemon.stderr.readline()
        expect(f"is {SHARED}/{file.name}" in told, told)
        held = digest(SHARED / file.name)
        expect(held == digest(store.folder / "old" / "model.pt"), "not the store's version")
        shutil.copy(store.folder / "new" / "model.pt", folder / "new.pt")
        # A look asks for a byte; of a new version the ends are read then, and what is between.
        new = folder / "new.pt"  # until it is in the store, looks at the old version go on
        if honest:
            server.fault(lie.fault, first=3, times=ALWAYS, match=lambda request: request.span != (0, 0))
        else:
            server.fault(lie.fault, times=ALWAYS, match=lambda _request: not new.exists())
        os.rename(new, file)
        expected = lie.follows(honest)
        says = ": version " if expected == RIGHT else "; what is held stays held"
        for told in daemon.stderr:
            if ": version " in told or "; what is held stays held" in told:
                break
        expect(says in told, told)
        if expected == RIGHT:
            expect(digest(SHARED / file.name) == digest(file), "not the new version", told)
        else:
            expect(re.search(expected, told), expected, told)
            expect(digest(SHARED / file.name) == held, "not the old version")
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.communicate(timeout=LIMIT)
        shutil.rmtree(runtime)
        for path in SHARED.glob(f"*{mark}*"):
            path.unlink()
    expect(daemon.returncode == 0, daemon.returncode)


COMMANDS = {**{words: look(words) for words in ("ls", "ls --info", "tree", "ls --sum")}, "fetch": fetch,
            "fetch set": fetch_set, "stage": stage, "hold": hold}


def tell(store, lie, honest, command):
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=store.folder.parent))

        def serve(place, told, after_two):
            server = stack.enter_context(RangeServer(place))
            if told is not None:
                server.fault(told.fault, first=3 if after_two else 1, times=ALWAYS)
            return server
        COMMANDS[command](store, lie, honest, pathlib.Path(folder), serve)


class Lies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(dir=FOLDER)
        cls.addClassCleanup(folder.cleanup)
        (pathlib.Path(folder.name) / "store").mkdir()
        store = Store(pathlib.Path(folder.name) / "store")
        pool = concurrent.futures.ThreadPoolExecutor(AT_A_TIME)
        cls.addClassCleanup(pool.shutdown, cancel_futures=True)
        cls.told = {(lie.name, honest, command): pool.submit(tell, store, lie, honest, command)
                    for lie in LIES for honest in (False, True) for command in COMMANDS
                    if hasattr(cls, f"test_{lie.name}")}

    def follow(self, lie):
        for honest in (False, True):
            for command in COMMANDS:
                with self.subTest(command, honest=honest):
                    self.told[lie.name, honest, command].result()


SILENCE = {"no_answer": stalled(0), "half_an_answer": stalled(), "a_byte_now_and_then": raw(drip),
           "in_a_thousand_seconds": status(503, Retry_After="1000")}


class Silent(unittest.TestCase):
    """What never ends is ended by Ctrl-C, and leaves no name."""

    def interrupted(self, fault):
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder, RangeServer(FOLDER) as server:
            place = pathlib.Path(folder)
            make(place / "model.pt", count=1)
            (place / "model.safetensors.index.json").write_text(
                '{"weight_map": {"a": "a.safetensors"}}')
            server.fault(fault, times=ALWAYS)
            url, index = (server.url(f"{place.relative_to(FOLDER)}/{name}")
                          for name in ("model.pt", "model.safetensors.index.json"))
            name = f"weightmap-lies-{place.name}"
            commands = (["ls", url], ["ls", "--info", url], ["tree", url], ["ls", "--sum", url],
                        ["fetch", url, place / "here.pt"], ["fetch", index, f"{place}/here/"],
                        ["stage", url, "--name", name],
                        ["hold", "--socket", f"/tmp/{name}", "--name", name, url])
            for number, words in enumerate(commands):
                words[words.index(index if index in words else url)] += f"?of={number}"
                with self.subTest(words[0]), subprocess.Popen(
                        [TOOL, *map(str, words)], env=CLEAN, stdout=subprocess.DEVNULL,
                        stderr=subprocess.PIPE) as process:
                    server.wait(lambda asked, of=str(number): any(
                        request.query.get("of") == of for request in asked.requests))
                    process.send_signal(signal.SIGINT)
                    process.wait(LIMIT)
                    self.assertIn(process.returncode, (0, 1) if words[0] == "hold"
                                  else (1, 130, -signal.SIGINT))
            self.assertEqual(sorted(path.name for path in place.iterdir()),
                             ["model.pt", "model.safetensors.index.json"])
            self.assertFalse((SHARED / name).exists())


for what, silence in SILENCE.items():
    setattr(Silent, f"test_{what}", lambda self, fault=silence: self.interrupted(fault))


class ReplacedSets(unittest.TestCase):
    """The store gets another version of a set, at once, before each request of its fetch."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=FOLDER)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def make_version(self, version, bytes_of_a_tensor):
        store = self.folder / version
        store.mkdir()
        for name in "ab":
            content = version[0].encode() * bytes_of_a_tensor
            (store / f"{name}.safetensors").write_bytes(
                file_of({name: ("U8", [bytes_of_a_tensor], content)}))
        (store / "model.safetensors.index.json").write_text(json.dumps(
            {"metadata": {"version": version},
             "weight_map": {name: f"{name}.safetensors" for name in "ab"}}))
        (store / "config.json").write_text(version)

    def versions_of(self, folder):
        return [{version for version in ("older", "first", "second")
                 if (self.folder / version / path.name).read_bytes() == path.read_bytes()}
                for path in folder.iterdir() if not path.name.startswith(".")
                and not path.name.endswith((".part", ".journal"))]

    def replaced_at_each_request(self, bytes_of_a_tensor, is_s3=False, is_there=False):
        for version in ("older", "first", "second"):
            self.make_version(version, bytes_of_a_tensor)
        for number in range(1, 100):
            here, store = self.folder / "here", self.folder / "store"
            for folder, version in ((here, "older"), (store, "first")):
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(self.folder / version, folder)

            def replace():
                for path in (self.folder / "second").iterdir():
                    shutil.copy(path, store)
            with RangeServer(self.folder, versions=is_s3) as server:
                place = "s3://store/" if is_s3 else server.url("store/")
                words = ("fetch", place + "model.safetensors.index.json", f"{here}/", *ONE_BY_ONE)
                environment = {"AWS_ENDPOINT_URL": server.url()}
                if is_there:
                    self.assertEqual(run(*words, environment=environment)[0], 0)
                asked = len(server.requests)
                server.fault(after(replace), first=number)
                done = run(*words, environment=environment)
                count = len(server.requests) - asked
            found = self.versions_of(here)
            with self.subTest(number=number, done=done):
                self.assertEqual(len(found), 4)
                self.assertIn(set.union(*found), [{"first"}, {"second"}] if done[0] == 0
                              else [{"first" if is_there else "older"}])
            if count < number:
                self.assertGreater(number, 3)
                return
        self.fail("it makes more requests than this test replaces the set at")

    def test_small_files(self):
        self.replaced_at_each_request(100_000)

    def test_versions_that_can_still_be_had(self):
        self.replaced_at_each_request(100_000, is_s3=True)

    def test_a_set_that_is_there_already(self):
        for is_s3 in (False, True):
            self.replaced_at_each_request(100_000, is_s3, is_there=True)
            for version in ("older", "first", "second"):
                shutil.rmtree(self.folder / version)

    def test_files_of_several_requests(self):
        self.replaced_at_each_request(5 << 20)


for each in LIES:
    setattr(Lies, f"test_{each.name}", lambda self, lie=each: self.follow(lie))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
