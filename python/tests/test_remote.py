"""Checkpoints in stores: sources of one's own, over other clients, and by URL."""

from __future__ import annotations

import _thread
import gc
import hashlib
import importlib.util
import json
import os
import pickle
import sys
import threading
import types
import weakref
from pathlib import Path

import pytest
import range_server
from safetensors_files import file_of

import weightmap
from weightmap import remote
from weightmap._urls import without_secrets

MIB = 1 << 20
CHUNK = 2 * MIB  # the least that a request asks for


def safetensors_file(tensors):
    """Of uint8 tensors; the first one begins some hundred bytes into the file."""
    return file_of({name: ("U8", [len(each)], each) for name, each in tensors.items()}, align=1)


# Each is longer than what metadata is read with, and touches three chunks.
LARGE = {name: bytes([value]) * (4 * MIB) for name, value in zip("abc", (1, 2, 3), strict=True)}
LARGE_FILE = safetensors_file(LARGE)


class Memory:
    """A source over bytes. `hold` keeps the reads that begin at these offsets until release()."""

    def __init__(self, content, name="memory://model", tag='"1"', hold=()):
        self.content, self.name, self.tag = content, name, tag
        self.size = len(content)
        self.reads = []
        self._hold = hold
        self._released = threading.Event()

    def release(self):
        self._released.set()

    def read_into(self, offset, buffer):
        self.reads.append(offset)
        if offset in self._hold:
            self._released.wait()
        buffer[:] = self.content[offset : offset + len(buffer)]


class Failing(Memory):
    """Its reads behind the first chunk raise."""

    def __init__(self, error, content=LARGE_FILE, **options):
        super().__init__(content, **options)
        self._error = error

    def read_into(self, offset, buffer):
        if CHUNK <= offset < len(self.content) - CHUNK:
            raise self._error
        super().read_into(offset, buffer)


class Folder(Memory):
    """A file of a folder, with the others beside it."""

    def __init__(self, folder, file):
        super().__init__((folder / file).read_bytes(), name=f"folder://{file}")
        self._folder = folder

    def sibling(self, relative):
        return Folder(self._folder, relative)


@pytest.fixture
def training(data):
    return Memory((data / "training.pt").read_bytes())


@pytest.fixture
def shards(tmp_path):
    """The folder of a set of two files with an index, and its tensors."""
    folder = tmp_path / "shards"
    folder.mkdir()
    tensors = {"one": b"1" * 100, "two": b"2" * 200}
    for name, content in tensors.items():
        (folder / f"{name}.safetensors").write_bytes(safetensors_file({name: content}))
    index = {"metadata": {}, "weight_map": {name: f"{name}.safetensors" for name in tensors}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder, tensors


# --- metadata ---------------------------------------------------------------------------------


def facts(checkpoint):
    return {name: (t.shape, t.dtype, t.nbytes, t.file_offset) for name, t in checkpoint.items()}


def test_metadata_is_that_of_the_file(data, training):
    opened = remote.metadata(training)
    with weightmap.open(data / "training.pt") as local:
        assert facts(opened) == facts(local)
        assert opened.paths() == local.paths()
        assert opened.info.format == "torch_zip"
    assert opened.path == "memory://model"


def test_metadata_of_a_large_file_is_not_the_whole_file():
    source = Memory(LARGE_FILE)
    assert list(remote.metadata(source)) == ["a", "b", "c"]
    assert len(source.reads) <= 4


TOUCHES = {
    "tobytes": lambda c, t, p: t.tobytes(),
    "numpy": lambda c, t, p: t.numpy(),
    "tolist": lambda c, t, p: t.tolist(),
    "item": lambda c, t, p: t[0, 0].item(),
    "buffer": lambda c, t, p: t.buffer(),
    "stats": lambda c, t, p: t.stats(),
    "__array_interface__": lambda c, t, p: t.__array_interface__,
    "__dlpack__": lambda c, t, p: t.__dlpack__(max_version=(1, 0)),
    "copy by __dlpack__": lambda c, t, p: t.__dlpack__(copy=True),
    "bits": lambda c, t, p: t.bits().numpy(),
    "a part": lambda c, t, p: t[1:].tobytes(),
    "torch": lambda c, t, p: t.torch(),
    "state dict": lambda c, t, p: c.torch(),
    "arrays": lambda c, t, p: c.numpy(),
    "demand": lambda c, t, p: c.demand(t),
    "copy_to": lambda c, t, p: c.copy_to(t, bytearray(t.nbytes)),
    "warm": lambda c, t, p: c.warm(),
    "verify_crc": lambda c, t, p: c.verify_crc(),
    "verify_headers": lambda c, t, p: c.verify_headers(),
    "save_safetensors": lambda c, t, p: weightmap.save_safetensors({"t": t}, p / "t.safetensors"),
    "save": lambda c, t, p: weightmap.save({"t": t}, p / "t.pt"),
    "torch.load": lambda c, t, p: weightmap.torch.load(c),
}
NEEDS_TORCH = {"torch", "state dict", "torch.load"}
NEEDS_NUMPY = {"numpy", "arrays", "bits", "save"}


def touch(way, checkpoint, tensor, path):
    for needed in (["torch"] if way in NEEDS_TORCH else []) + (["numpy"] if way in NEEDS_NUMPY else []):
        pytest.importorskip(needed)
    TOUCHES[way](checkpoint, tensor, path)


def test_metadata_cannot_be_pickled(training):
    for opened in (remote.metadata(training), remote.stage(training).wait("model.0.weight")):
        with pytest.raises(weightmap.InvalidArgumentError, match="memory://model: cannot be pickled"):
            pickle.dumps(opened)


def test_metadata_of_a_set_is_found_beside_its_index(shards):
    folder, tensors = shards
    opened = remote.metadata(Folder(folder, "model.safetensors.index.json"))
    assert {name: opened[name].shape for name in opened} == {
        name: (len(content),) for name, content in tensors.items()
    }


# --- what a source is -------------------------------------------------------------------------


def reading(read_into, **others):
    """A source of 100 bytes that are read in this way."""
    source = Memory(b"x" * 100)
    vars(source).update(read_into=read_into, **others)
    return source


def raising(error):
    def read_into(offset, buffer):
        raise error

    return reading(read_into)


@pytest.mark.parametrize("source, error, message", [
    pytest.param(3, TypeError, "this int has no name, no size, no tag, no read_into", id="none"),
    pytest.param(raising(ValueError("no token for https://me:word@host/model.pt?X-Sig=abc now")),
                 weightmap.FileError,
                 "^memory://model: ValueError: no token for https://host/model.pt now$", id="text"),
    pytest.param(raising(FileNotFoundError(2, "gone")), FileNotFoundError, "", id="errno"),
    pytest.param(reading(lambda offset, buffer: len(buffer) - 1), weightmap.FileError,
                 "answered 99 for the 100 bytes from 0 on", id="short read"),
    pytest.param(reading(lambda offset, buffer: None, size="large"), weightmap.FileError, "",
                 id="size"),
])
def test_what_a_source_does_wrong_is_told(source, error, message):
    with pytest.raises(error, match=message):
        remote.metadata(source)


def test_the_buffer_is_gone_after_the_read():
    kept = []

    class Keeping(Memory):
        def read_into(self, offset, buffer):
            super().read_into(offset, buffer)
            kept.append(buffer)

    remote.metadata(Keeping(LARGE_FILE))
    for buffer in kept:
        with pytest.raises(ValueError, match="released"):
            buffer[0]


def test_a_source_that_lends_the_buffer_on_is_refused():
    lent = []

    class Lending(Memory):
        def read_into(self, offset, buffer):
            super().read_into(offset, buffer)
            lent.append(pickle.PickleBuffer(buffer))

    with pytest.raises(weightmap.FileError, match="BufferError"):
        remote.metadata(Lending(LARGE_FILE))
    # Before Python 3.12.7 a collection that finds a memoryview with one in a cycle may crash.
    for buffer in lent:
        buffer.release()


@pytest.mark.parametrize("ask, connections", [
    (lambda staging: staging.finish(), 4), (lambda staging: staging.wait("a"), 1),
], ids=["finish", "wait"])
def test_check_is_called_before_bytes_are_handed_out(ask, connections):
    class Replaced(Memory):
        def check(self):
            if 2 * MIB in self.reads:
                raise weightmap.FileError("changed: another tag")

    options = {"chunk_bytes": CHUNK, "connections": connections}
    with remote.stage(Replaced(LARGE_FILE), **options) as staging:
        with pytest.raises(weightmap.FileError, match="memory://model: changed: another tag"):
            ask(staging)


def test_as_many_threads_read_at_once_as_there_are_connections():
    together = threading.Barrier(3)
    middle = [2 * MIB, 4 * MIB, 6 * MIB]

    class Meeting(Memory):
        def read_into(self, offset, buffer):
            if offset in middle:
                together.wait()
            super().read_into(offset, buffer)

    with remote.stage(Meeting(LARGE_FILE), chunk_bytes=CHUNK, connections=3) as staging:
        with open(staging.finish().fileno(), "rb", closefd=False) as copy:
            assert copy.read() == LARGE_FILE


def test_nothing_keeps_a_source():
    source = Memory(LARGE_FILE)
    gone = weakref.ref(source)
    with remote.stage(source, chunk_bytes=CHUNK) as staging:
        tensor = staging.wait("b")
        staging.finish()
    opened = remote.metadata(source)
    del source, staging, tensor, opened
    gc.collect()
    assert gone() is None


# --- stage ------------------------------------------------------------------------------------


def test_a_staged_copy_is_the_file(data, training):
    with remote.stage(training) as staging:
        staged = staging.finish()
        assert staging.finish() is staged
        report = staging.report
    assert isinstance(staged, weightmap.StagedFile)
    with open(staged.fileno(), "rb", closefd=False) as copy:
        assert copy.read() == (data / "training.pt").read_bytes()
    with weightmap.open(staged, verify="crc") as opened, weightmap.open(data / "training.pt") as local:
        assert facts(opened) == facts(local)
    assert (report.file_bytes, report.tag) == (training.size, '"1"')
    assert report.verified_bytes > 0
    assert report.requests == len(training.reads)


def test_a_staged_copy_can_have_a_name(training):
    name = f"weightmap-remote-test-{os.getpid()}"
    with remote.stage(training, name=name) as staging:
        staging.finish()
    try:
        weightmap.open(f"/dev/shm/{name}", verify="crc").close()
    finally:
        weightmap.remove_staged(name)


def test_a_tensor_is_there_before_the_rest():
    source = Memory(LARGE_FILE, hold=[2 * MIB])
    with remote.stage(source, chunk_bytes=CHUNK, connections=2) as staging:
        try:
            assert staging.wait("b").tobytes() == LARGE["b"]
            assert staging.checkpoint["a"].shape == (4 * MIB,)
        finally:
            source.release()
        assert staging.wait("a").tobytes() == LARGE["a"]
        assert staging.wait("c").tobytes() == LARGE["c"]


def test_several_threads_wait():
    source = Memory(LARGE_FILE, hold=[2 * MIB])
    found = {}
    with remote.stage(source, chunk_bytes=CHUNK, connections=2) as staging:

        def wait(name):
            found[name] = staging.wait(name).tobytes()

        threads = [threading.Thread(target=wait, args=(name,)) for name in LARGE]
        for thread in threads:
            thread.start()
        source.release()
        staging.finish()
        for thread in threads:
            thread.join()
    assert found == LARGE


def test_what_is_ordered_comes_first():
    source = Memory(LARGE_FILE)
    options = {"chunk_bytes": CHUNK, "connections": 1}
    with remote.stage(source, order=["c", "no such name", "a*"], **options) as staging:
        staging.finish()
    at = [source.reads.index(offset) for offset in (8 * MIB, 2 * MIB, 6 * MIB)]  # of c, a, b alone
    assert at == sorted(at)


def test_tensors_outlive_a_staging():
    with remote.stage(Memory(LARGE_FILE), chunk_bytes=CHUNK) as staging:
        tensor = staging.wait("b")
    del staging
    gc.collect()
    assert tensor[-2:].tolist() == [2, 2]


@pytest.mark.parametrize("way", TOUCHES)
def test_a_checkpoint_without_bytes_says_who_has_them(way, training, tmp_path):
    with remote.stage(training) as staging:
        for opened, words in ((remote.metadata(training), r"stage\(\) brings the bytes"),
                              (staging.checkpoint, r"wait\(name\) of its Staging")):
            with pytest.raises(weightmap.UnsupportedError, match=words):
                touch(way, opened, opened["model.0.weight"], tmp_path)


def test_a_wrong_byte_is_found(data):
    content = bytearray((data / "training.pt").read_bytes())
    with weightmap.open(data / "training.pt") as local:
        content[local["model.0.weight"].file_offset] ^= 1
    with remote.stage(Memory(bytes(content))) as staging:
        with pytest.raises(weightmap.CorruptError):
            staging.finish()
    with remote.stage(Memory(bytes(content)), verify=False) as staging:
        staging.finish()


def test_what_a_read_raises_comes_out_of_wait_and_finish():
    with remote.stage(Failing(KeyError("lost")), chunk_bytes=CHUNK) as staging:
        for ask in (lambda: staging.wait("b"), staging.finish, staging.finish):
            with pytest.raises(weightmap.FileError, match="memory://model: KeyError: 'lost'"):
                ask()


def test_a_cancelled_staging_lets_go_of_those_who_wait():
    source = Memory(LARGE_FILE, hold=[2 * MIB])
    with remote.stage(source, chunk_bytes=CHUNK, connections=1) as staging:
        staging.cancel()
        source.release()
        for ask in (lambda: staging.wait("a"), staging.finish):
            with pytest.raises(weightmap.CancelledError):
                ask()


def test_leaving_the_block_cancels():
    source = Memory(LARGE_FILE, hold=[2 * MIB])
    with remote.stage(source, chunk_bytes=CHUNK, connections=1) as staging:
        source.release()
    reads = len(source.reads)
    with pytest.raises(weightmap.CancelledError):
        staging.wait("c")
    assert len(source.reads) == reads


def test_progress_is_told_in_the_thread_that_finishes(training):
    told = []
    progress = lambda done, all: told.append((threading.get_ident(), done, all))
    with remote.stage(training, progress=progress) as staging:
        staging.finish()
    assert told[-1] == (threading.get_ident(), training.size, training.size)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


class Enough(Exception):
    pass


def enough(done, all):
    raise Enough


def test_what_progress_raises_ends_a_staging(training):
    with remote.stage(training, progress=enough) as staging:
        with pytest.raises(Enough):
            staging.finish()


class Interrupting(Memory):
    """Ctrl-C comes while the first read from this offset on is under way."""

    def __init__(self, offset):
        super().__init__(LARGE_FILE)
        self._offset = offset
        self._once = threading.Semaphore(1)

    def read_into(self, offset, buffer):
        if offset >= self._offset and self._once.acquire(blocking=False):
            _thread.interrupt_main()
        super().read_into(offset, buffer)


@pytest.mark.parametrize("call", [
    lambda path: remote.metadata(Interrupting(0)),
    lambda path: remote.stage(Interrupting(0)),
    lambda path: remote.stage(Interrupting(2 * MIB), chunk_bytes=CHUNK).finish(),
    lambda path: remote.fetch(Interrupting(2 * MIB), path / "model", chunk_bytes=CHUNK),
], ids=["metadata", "stage", "finish", "fetch"])
def test_ctrl_c_ends_it(call, tmp_path, interrupts):
    with pytest.raises(KeyboardInterrupt):
        call(tmp_path)
        for _ in range(100):  # a short call Python looks after itself
            pass


INDEX = "model.safetensors.index.json"


@pytest.mark.parametrize("call, error, message", [
    pytest.param(lambda source, _: remote.stage(source, budget_bytes=1),
                 weightmap.FileError, "memory", id="budget"),
    pytest.param(lambda source, _: remote.stage(source, chunk_bytes=0),
                 weightmap.InvalidArgumentError, "chunk_bytes is 0", id="chunk"),
    pytest.param(lambda source, _: remote.stage(source, order="a"), TypeError,
                 "order is a list of names", id="order"),
    pytest.param(lambda source, _: remote.stage(source).wait("nothing"),
                 weightmap.TensorNotFoundError, "nothing", id="name"),
    pytest.param(lambda _, folder: remote.stage(Folder(folder, INDEX)), weightmap.UnsupportedError,
                 "several files; fetch it into a folder", id="set"),
    pytest.param(lambda _, folder: remote.metadata(Memory((folder / INDEX).read_bytes())),
                 weightmap.UnsupportedError, r"a source without sibling\(\)", id="set of a source"),
    pytest.param(lambda source, _: remote.metadata(source, unproven=True),
                 weightmap.InvalidArgumentError, "unproven is of a URL", id="unproven"),
    *(pytest.param(lambda source, folder, sum=sum: remote.fetch(source, folder / "x", sha256=sum),
                   weightmap.InvalidArgumentError, "expected 64 hexadecimal digits", id=name)
      for name, sum in (("empty", ""), ("short", "0" * 63), ("no digit", "g" * 64))),
])
def test_what_stage_fetch_and_metadata_refuse(training, shards, call, error, message):
    with pytest.raises(error, match=message):
        call(training, shards[0])


STAGING = """
import os, sys, weightmap
from weightmap import remote
content = open(sys.argv[1], "rb").read()
class Source:
    name, size, tag = "memory://model", len(content), ""
    def read_into(self, offset, buffer):
        buffer[:] = content[offset : offset + len(buffer)]
staging = remote.stage(Source())
"""

AFTER_A_FORK = STAGING + """
tensor = staging.wait("model.0.weight")
child = os.fork()
if child == 0:
    assert len(bytes(tensor.buffer())) == tensor.nbytes
    try:
        staging.wait("model.0.weight")
    except weightmap.InvalidArgumentError as error:
        print(error, flush=True)
    del staging, tensor
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
staging.finish()
"""


def test_a_forked_child_has_no_staging(python, data):
    ran = python(AFTER_A_FORK, data / "training.pt")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "is staged by the process that began it" in ran.stdout


AT_THE_END = STAGING + """
kept = remote.metadata(Source()), staging.checkpoint
print("end")
"""


def test_a_program_ends_while_bytes_come(python, data):
    ran = python(AT_THE_END, data / "training.pt")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "end\n", "")


# --- fetch ------------------------------------------------------------------------------------


def test_a_fetched_file_is_the_file(training, tmp_path):
    target = tmp_path / "model.pt"
    [report] = remote.fetch(training, target)
    assert target.read_bytes() == training.content
    assert (report.file_bytes, report.tag, report.resumed_bytes) == (training.size, '"1"', 0)
    with pytest.raises(weightmap.InvalidArgumentError):
        remote.fetch(training, target)
    assert report.path == str(target)
    remote.fetch(Memory(LARGE_FILE), target, replace=True)
    assert target.read_bytes() == LARGE_FILE
    assert os.listdir(tmp_path) == ["model.pt"]


def test_a_set_is_fetched_into_a_folder(shards, tmp_path):
    folder, _ = shards
    target = tmp_path / "new"
    reports = remote.fetch(Folder(folder, "model.safetensors.index.json"), f"{target}/")
    names = ["model.safetensors.index.json", "one.safetensors", "two.safetensors"]
    assert sorted(os.listdir(target)) == names
    assert all((target / name).read_bytes() == (folder / name).read_bytes() for name in names)
    assert len(reports) == 3


def test_a_model_is_fetched_as_a_version_beside_the_others(shards, tmp_path):
    folder, _ = shards
    link = tmp_path / "llama"
    lead = "model.safetensors.index.json"
    first = remote.fetch_model(Folder(folder, lead), link)
    assert (first.is_new, first.previous, os.path.realpath(link)) == (True, None, first.folder)
    assert first.folder == f"{link}@{first.version}"
    assert sorted(os.path.basename(each.path) for each in first.files) == sorted(os.listdir(link))
    again = remote.fetch_model(Folder(folder, lead), link)
    assert (again.is_new, again.folder, again.version) == (False, first.folder, first.version)
    (folder / "one.safetensors").write_bytes(safetensors_file({"one": b"3" * 101}))
    second = remote.fetch_model(Folder(folder, lead), link)
    assert (second.is_new, second.previous) == (True, first.folder)
    assert weightmap.open(link)["one"].numpy().tobytes() == b"3" * 101
    assert weightmap.open(first.folder)["one"].numpy().tobytes() == b"1" * 100


def test_the_files_of_a_model_are_shown_without_being_fetched(shards, tmp_path):
    folder, _ = shards
    lead = "model.safetensors.index.json"
    for source in (Folder(folder, lead), f"file://{folder}/{lead}"):
        files = remote.model_files(source)
        assert [file.name for file in files][-1] == lead
        assert sorted(file.name for file in files) == sorted(os.listdir(folder))
        for file in files:
            assert (file.bytes, file.is_weights) == ((folder / file.name).stat().st_size, True)
            assert (file.sha256, file.version_id) == (None, "")
    with pytest.raises(weightmap.FileError, match="absent"):
        remote.model_files(f"file://{folder}/absent.safetensors")


def test_a_source_that_was_asked_for_its_size_brings_all_of_the_model(shards, tmp_path):
    folder, _ = shards
    (folder / "config.json").write_text("{}")
    source = remote.open_url(f"file://{folder}/model.safetensors.index.json")
    assert source.size > 0
    remote.fetch_model(source, tmp_path / "llama")
    assert sorted(os.listdir(tmp_path / "llama")) == sorted(os.listdir(folder))


def test_a_version_needs_a_link_and_right_digests(shards, tmp_path):
    folder, _ = shards
    lead = "model.safetensors.index.json"
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(weightmap.InvalidArgumentError, match="is no symbolic link"):
        remote.fetch_model(Folder(folder, lead), tmp_path / "file")
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    with pytest.raises(weightmap.CorruptError, match="has the SHA-256"):
        remote.fetch_model(Folder(folder, lead), tmp_path / "new", sha256={**sums, lead: "0" * 64})
    assert not os.path.lexists(tmp_path / "new")
    assert remote.fetch_model(Folder(folder, lead), tmp_path / "new", sha256=sums).is_new


def test_a_new_version_is_checked_before_the_link_leads_to_it(shards, tmp_path):
    folder, _ = shards
    link = tmp_path / "llama"
    seen = []

    def check(new):
        seen.append(sorted(os.listdir(new)))
        assert not os.path.lexists(link)
        if len(seen) == 1:
            raise Enough

    source = Folder(folder, "model.safetensors.index.json")
    with pytest.raises(Enough):
        remote.fetch_model(source, link, check=check)
    assert not os.path.lexists(link)
    assert remote.fetch_model(source, link, check=check).is_new
    assert seen == [sorted(os.listdir(link))] * 2
    assert not remote.fetch_model(source, link, check=check).is_new
    assert len(seen) == 2


class Recorded:
    """In place of any of model_signing's objects."""

    def __init__(self, calls):
        self.calls = calls

    def __getattr__(self, name):
        return lambda *values, **named: self.calls.append((name, *values, named)) or self


def test_a_signature_is_verified_by_its_package(tmp_path, monkeypatch):
    calls = []
    both = types.SimpleNamespace(Config=lambda: Recorded(calls))
    monkeypatch.setitem(sys.modules, "model_signing", types.SimpleNamespace(hashing=both, verifying=both))
    (tmp_path / "link").symlink_to(tmp_path)
    remote.verify_signature(tmp_path / "link", public_key="key.pub")
    assert calls[0] == ("set_ignored_paths", {"paths": [f"{tmp_path}/model.sig"], "ignore_git_paths": True})
    assert calls[-2:] == [("use_elliptic_key_verifier", {"public_key": "key.pub"}),
                          ("verify", str(tmp_path), f"{tmp_path}/model.sig", {})]
    remote.verify_signature(tmp_path, identity="me", issuer="them", signature="/other.sig")
    assert calls[-2:] == [("use_sigstore_verifier", {"identity": "me", "oidc_issuer": "them"}),
                          ("verify", str(tmp_path), "/other.sig", {})]


def test_a_signature_that_is_wrong_or_of_nobody_is_refused(tmp_path, monkeypatch):
    class Wrong(Recorded):
        def verify(self, *_):
            raise ValueError("Signature mismatch: []")

    both = types.SimpleNamespace(Config=lambda: Wrong([]))
    monkeypatch.setitem(sys.modules, "model_signing", types.SimpleNamespace(hashing=both, verifying=both))
    with pytest.raises(weightmap.CorruptError, match="its signature is not verified: ValueError: Signature m"):
        remote.verify_signature(tmp_path, public_key="key.pub")
    for wrong in ({}, {"identity": "me"}, {"issuer": "me"}, {"public_key": "key", "identity": "me", "issuer": "x"}):
        with pytest.raises(weightmap.InvalidArgumentError, match="expected public_key, or identity and issuer"):
            remote.verify_signature(tmp_path, **wrong)
    monkeypatch.setitem(sys.modules, "model_signing", None)
    with pytest.raises(weightmap.UnsupportedError, match="pip install model-signing pyOpenSSL"):
        remote.verify_signature(tmp_path, public_key="key.pub")


class GoneWhenTold(Memory):
    """The reads that it holds wait for the progress, and then fail."""

    def progress(self, done, all):
        self.release()
        raise Enough

    def read_into(self, offset, buffer):
        super().read_into(offset, buffer)
        if offset in self._hold:
            raise ConnectionError("gone")


def test_what_progress_raises_ends_a_fetch(tmp_path):
    source = GoneWhenTold(LARGE_FILE, hold=[2 * MIB])
    with pytest.raises(Enough):
        remote.fetch(source, tmp_path / "model", chunk_bytes=CHUNK, progress=source.progress)
    assert not (tmp_path / "model").exists()


def test_a_fetch_that_failed_goes_on(tmp_path):
    with pytest.raises(weightmap.FileError, match="ValueError: broken"):
        remote.fetch(Failing(ValueError("broken")), tmp_path / "model", chunk_bytes=CHUNK)
    remote.fetch(Memory(LARGE_FILE), tmp_path / "model", chunk_bytes=CHUNK)
    assert (tmp_path / "model").read_bytes() == LARGE_FILE


# --- other clients ----------------------------------------------------------------------------


def obstore_source(folder, name):
    pytest.importorskip("obstore", reason="reads through obstore, which is not installed")
    from obstore.store import LocalStore

    return remote.from_obstore(LocalStore(folder), name)


def fsspec_source(folder, name):
    fsspec = pytest.importorskip("fsspec", reason="reads through fsspec, which is not installed")
    return remote.from_fsspec(fsspec.filesystem("file"), str(folder / name))


def pyarrow_source(folder, name):
    fs = pytest.importorskip("pyarrow.fs", reason="reads through pyarrow, which is not installed")
    return remote.from_pyarrow(fs.LocalFileSystem(), str(folder / name))


CLIENTS = {"obstore": obstore_source, "fsspec": fsspec_source, "pyarrow": pyarrow_source}


@pytest.fixture(params=CLIENTS)
def client(request):
    """Makes a source over a file of a folder."""
    return CLIENTS[request.param]


def test_a_client_reads_the_file(client, tmp_path):
    (tmp_path / "model").write_bytes(LARGE_FILE)
    source = client(tmp_path, "model")
    assert source.size == len(LARGE_FILE) and source.tag
    with remote.stage(source, chunk_bytes=CHUNK) as staging:
        with open(staging.finish().fileno(), "rb", closefd=False) as copy:
            assert copy.read() == LARGE_FILE


def test_a_client_finds_the_files_of_a_set(client, shards, tmp_path):
    folder, tensors = shards
    remote.fetch(client(folder, "model.safetensors.index.json"), f"{tmp_path}/new/")
    with weightmap.open(tmp_path / "new") as opened:
        assert {name: tensor.tobytes() for name, tensor in opened.items()} == tensors


def test_a_client_notices_another_version(client, tmp_path):
    (tmp_path / "model").write_bytes(LARGE_FILE)
    source = client(tmp_path, "model")
    (tmp_path / "new").write_bytes(LARGE_FILE[::-1])
    os.utime(tmp_path / "new", ns=(1, 1))
    os.replace(tmp_path / "new", tmp_path / "model")
    with pytest.raises(weightmap.Error, match="changed"):
        remote.fetch(source, tmp_path / "copy", verify=False)


def test_a_client_refuses_a_file_that_is_not_there(client, tmp_path):
    with pytest.raises(FileNotFoundError):
        client(tmp_path, "model")


def test_obstore_insists_on_the_version_that_it_found(server):
    pytest.importorskip("obstore", reason="reads through obstore, which is not installed")
    from obstore.store import HTTPStore

    (server.folder / "model").write_bytes(LARGE_FILE)
    store = HTTPStore.from_url(server.url(), client_options={"allow_http": True})
    remote.metadata(remote.from_obstore(store, "model"))
    insisted = {request.headers["If-Match"] for request in server.requests if request.range}
    assert insisted == {range_server.tag_of(LARGE_FILE)}


# --- URLs -------------------------------------------------------------------------------------

SECRET = "https://user:hunter2@host.test/folder/model.pt?X-Amz-Signature=abcdef#part"


def test_opening_a_url_says_what_to_call():
    for ask in (weightmap.open, lambda url: weightmap.open([url]), weightmap.safe_open):
        for scheme in ("https", "s3", "hf"):
            with pytest.raises(weightmap.MissingFileError, match=r"weightmap.remote.stage\(url\)"):
                ask(f"{scheme}://host/model.pt")


def test_torch_load_of_a_url_says_what_to_call(torch):
    with pytest.raises(FileNotFoundError, match=r"weightmap.remote.stage\(url\)"):
        weightmap.torch.load("https://host/model.pt")


@pytest.mark.parametrize("url, shown", [
    ("https://host?sig=secret", "https://host"),
    ("https://host?sig=a/b", "https://host"),
    ("https://host#secret/", "https://host"),
    ("https://user:secret@host:8/a/b.pt?sig=a@b/c#d?e", "https://host:8/a/b.pt"),
    ("s3://bucket/a", "s3://bucket/a"),
    ("folder/a?b://c", "folder/a"),
])
def test_a_url_is_shown_without_its_secrets(url, shown):
    assert without_secrets(url) == shown


def test_the_error_about_a_url_has_no_secret():
    with pytest.raises(weightmap.MissingFileError) as raised:
        weightmap.open(SECRET)
    assert raised.value.file == "https://host.test/folder/model.pt"
    assert "hunter2" not in str(raised.value) and "abcdef" not in str(raised.value)


def test_a_file_may_be_called_like_a_url(tmp_path, data, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("https:")
    os.symlink(data / "views.pt", "https:/views.pt")
    assert "base" in weightmap.open("https://views.pt")


def test_a_build_without_libcurl_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "weightmap._curl", None)
    for ask in (remote.open_url, remote.metadata, remote.stage, weightmap.stage):
        with pytest.raises(weightmap.UnsupportedError, match="this build has no libcurl") as raised:
            ask(SECRET)
        assert "hunter2" not in str(raised.value) and "abcdef" not in str(raised.value)


needs_libcurl = pytest.mark.skipif(
    importlib.util.find_spec("weightmap._curl") is None,
    reason="this build of the package has no libcurl",
)


@needs_libcurl
def test_what_needs_libcurl_has_no_second_copy_of_the_reading_of_checkpoints():
    message = b"the pickle ends without a STOP opcode"
    found = [
        message in Path(importlib.util.find_spec(f"weightmap.{name}").origin).read_bytes()
        for name in ("_core", "_curl")
    ]
    assert found == [True, False]


@needs_libcurl
def test_a_url_is_staged(server, data):
    content = (data / "training.pt").read_bytes()
    (server.folder / "training.pt").write_bytes(content)
    url = server.url("training.pt")
    assert list(remote.metadata(url)) == list(weightmap.open(data / "training.pt"))
    with remote.stage(url) as staging, weightmap.stage(url) as staged:
        for copy in (staging.finish(), staged):
            with open(copy.fileno(), "rb", closefd=False) as file:
                assert file.read() == content


@needs_libcurl
def test_a_url_is_staged_if_it_has_the_sha256(server, data):
    content = (data / "training.pt").read_bytes()
    (server.folder / "training.pt").write_bytes(content)
    url = server.url("training.pt")
    with weightmap.stage(url, sha256=hashlib.sha256(content).hexdigest()) as staged:
        with open(staged.fileno(), "rb", closefd=False) as file:
            assert file.read() == content
    with pytest.raises(weightmap.CorruptError, match="has the SHA-256"):
        weightmap.stage(url, sha256="0" * 64)
    with pytest.raises(weightmap.UnsupportedError, match="sha256 is for a URL"):
        weightmap.stage(data / "training.pt", sha256="0" * 64)


@needs_libcurl
def test_a_source_by_url_reads_ranges(server):
    (server.folder / "model").write_bytes(LARGE_FILE)
    source = remote.open_url(server.url("model"))
    assert server.requests == []
    assert (source.size, source.tag) == (len(LARGE_FILE), range_server.tag_of(LARGE_FILE))
    buffer = bytearray(9 * MIB)
    assert source.read_into(MIB, buffer) == 9 * MIB
    assert bytes(buffer) == LARGE_FILE[MIB : 10 * MIB]
    with pytest.raises(weightmap.InvalidArgumentError, match="has 12[0-9]+ bytes"):
        source.read_into(4 * MIB, buffer)
    with pytest.raises(BufferError):
        source.read_into(0, b"read-only")
    assert source.sibling("model").size == len(LARGE_FILE)
    assert source.counts["requests"] >= 3


@needs_libcurl
def test_a_source_by_url_is_one_version(server):
    (server.folder / "model").write_bytes(LARGE_FILE)
    source = remote.open_url(server.url("model"))
    assert source.size == len(LARGE_FILE)
    (server.folder / "model").write_bytes(LARGE_FILE[::-1])
    with pytest.raises(weightmap.FileError, match="changed"):
        remote.metadata(source)


@needs_libcurl
def test_a_source_has_no_secret_in_its_repr():
    source = remote.open_url(SECRET, headers=["Authorization: Bearer hunter2"])
    assert source.name == "https://host.test/folder/model.pt"
    assert repr(source) == "<weightmap.remote.Source https://host.test/folder/model.pt>"


@needs_libcurl
def test_a_signer_makes_the_url(server):
    (server.folder / "model").write_bytes(LARGE_FILE)
    asked = []

    def signer(url, again):
        asked.append((url, again))
        return f"{url}?signature={len(asked)}"

    assert list(remote.metadata(remote.open_url(server.url("model"), signer=signer))) == [*"abc"]
    assert asked[0] == (server.url("model"), False)
    assert {request.query["signature"] for request in server.requests} == {"1"}


@needs_libcurl
def test_what_a_signer_raises_is_the_text_of_the_error(server):
    def signer(url, again):
        raise RuntimeError(f"no key for {url}?signature=abcdef")

    with pytest.raises(weightmap.Error, match="RuntimeError: no key for") as raised:
        remote.metadata(remote.open_url(server.url("model"), signer=signer))
    assert "abcdef" not in str(raised.value)


@needs_libcurl
def test_nothing_keeps_a_signer():
    signer = lambda url, again: url
    gone = weakref.ref(signer)
    source = remote.open_url("https://host.test/model", signer=signer)
    del source, signer
    gc.collect()
    assert gone() is None


@needs_libcurl
@pytest.mark.parametrize("url, options, error, message", [
    ("ftp://host/model", {}, weightmap.InvalidArgumentError, ""),
    ("https://host/model", {"deadline": 0}, weightmap.InvalidArgumentError, "deadline is 0"),
    ("https://host/model", {"headers": "Authorization: x"}, TypeError, "headers are a list"),
], ids=["scheme", "deadline", "headers"])
def test_wrong_arguments_of_open_url(url, options, error, message):
    with pytest.raises(error, match=message):
        remote.open_url(url, **options)


@needs_libcurl
def test_connections_are_chosen_by_open_url():
    with pytest.raises(weightmap.InvalidArgumentError, match="chosen by open_url"):
        remote.metadata(remote.open_url("https://host/model"), connections=4)


# --- what is fetched, and by whom ---------------------------------------------------------------


def test_the_sha256_is_compared(training, tmp_path):
    right = hashlib.sha256(training.content).hexdigest()
    [report] = remote.fetch(training, tmp_path / "model.pt", sha256=right.upper())
    assert (report.summed_bytes, report.sum_from) == (training.size, "given")
    with remote.stage(training, sha256=right) as staging:
        staging.finish()
    with pytest.raises(weightmap.CorruptError, match=f"has the SHA-256 {right}, not 00"):
        remote.fetch(training, tmp_path / "other.pt", sha256="0" * 64)
    with remote.stage(training, sha256="0" * 64) as staging:
        with pytest.raises(weightmap.CorruptError, match="has the SHA-256"):
            staging.finish()
    assert os.listdir(tmp_path) == ["model.pt"]


def test_a_digest_is_required(training, tmp_path):
    for call in (remote.stage, lambda source, **given: remote.fetch(source, tmp_path / "x", **given)):
        with pytest.raises(weightmap.InvalidArgumentError, match="no SHA-256 of .* is known"):
            call(training, require_digest=True)
    [report] = remote.fetch(training, tmp_path / "model.pt")
    assert (report.summed_bytes, report.sum_from, report.has_composite_sum) == (0, "", False)


def test_the_sha256s_of_a_set_are_by_name(shards, tmp_path):
    folder, _ = shards
    source = Folder(folder, "model.safetensors.index.json")
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    reports = remote.fetch(source, f"{tmp_path}/new/", sha256=sums)
    assert all(report.summed_bytes == report.file_bytes for report in reports)
    del sums["one.safetensors"]
    with pytest.raises(weightmap.InvalidArgumentError, match="is not among the files"):
        remote.fetch(source, f"{tmp_path}/other/", sha256=sums)


@needs_libcurl
def test_a_server_that_names_no_version(server, data, tmp_path):
    (server.folder / "model.pt").write_bytes((data / "training.pt").read_bytes())
    with range_server.RangeServer(server.folder, tags="none") as nameless:
        url = nameless.url("model.pt")
        for call in (remote.metadata, remote.stage, lambda url: remote.fetch(url, tmp_path / "x")):
            with pytest.raises(weightmap.UnsupportedError, match="names no version"):
                call(url)
        remote.metadata(url, unproven=True)
        remote.fetch(url, tmp_path / "here.pt", unproven=True)
        with remote.stage(url, unproven=True) as staging:
            staging.finish()


@needs_libcurl
def test_a_server_without_ranges(server, data, tmp_path):
    content = (data / "training.pt").read_bytes()
    (server.folder / "model.pt").write_bytes(content)
    server.fault(range_server.whole(), times=range_server.ALWAYS)
    [report] = remote.fetch(server.url("model.pt"), tmp_path / "here.pt")
    assert (report.in_one_request, (tmp_path / "here.pt").read_bytes()) == (True, content)
    with pytest.raises(weightmap.UnsupportedError, match="the server ignores ranges"):
        remote.metadata(server.url("model.pt"))


@needs_libcurl
def test_the_configuration_comes_with_the_index(server, shards, tmp_path):
    folder, _ = shards
    for path in folder.iterdir():
        (server.folder / path.name).write_bytes(path.read_bytes())
    (server.folder / "config.json").write_text("{}")
    remote.fetch(server.url("model.safetensors.index.json"), f"{tmp_path}/new/")
    assert (tmp_path / "new" / "config.json").read_text() == "{}"


class Hub:
    """In place of huggingface_hub."""

    commit = "0123456789abcdef" * 2 + "01234567"
    content = b"four"

    def __init__(self):
        self.asked = []

    def snapshot_download(self, model, *, revision, local_dir):
        self.asked.append((model, revision))
        self._bring(local_dir, "model.safetensors")

    def hf_hub_download(self, model, file, *, revision, local_dir):
        self.asked.append((model, file, revision))
        return self._bring(local_dir, file)

    def HfApi(self):
        return self

    def model_info(self, model, *, revision):
        return types.SimpleNamespace(sha=self.commit)

    def _bring(self, folder, name):
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.content)
        return str(path)


def test_models_of_the_hub_are_fetched_by_its_package(tmp_path, monkeypatch):
    hub = Hub()
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    target = f"{tmp_path}/new/"
    for url in ("hf://org/name", "hf://org/name@a%2Fb", "hf://org/name@v1/sub/x.gguf"):
        [*_, report] = remote.fetch(url, target)
        assert report.file_bytes == 4
    assert hub.asked == [("org/name", None), ("org/name", "a/b"), ("org/name", "sub/x.gguf", "v1")]
    for option in ({"order": ["a"]}, {"replace": True}, {"sha256": "0" * 64}, {"verify": False}):
        with pytest.raises(weightmap.InvalidArgumentError, match=f"has no {list(option)[0]}"):
            remote.fetch("hf://org/name", target, **option)
    with pytest.raises(weightmap.InvalidArgumentError, match="is fetched into a folder"):
        remote.fetch("hf://org/name/model.pt", tmp_path / "model.pt")
    with pytest.raises(weightmap.InvalidArgumentError, match="expected hf://org/name"):
        remote.fetch("hf://name", target)


def refuse(_folder):
    raise Enough


def test_a_model_of_the_hub_is_a_version_named_by_its_commit(tmp_path, monkeypatch):
    hub = Hub()
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    link = tmp_path / "llama"
    hub.content = safetensors_file({"a": b"1"})
    first = remote.fetch_model("hf://org/name@main", link)
    assert (first.is_new, first.version, first.folder) == (True, hub.commit[:16], os.path.realpath(link))
    assert not remote.fetch_model("hf://org/name", link).is_new
    assert hub.asked == [("org/name", hub.commit)]
    hub.commit = hub.commit[::-1]
    with pytest.raises(Enough):
        remote.fetch_model("hf://org/name", link, check=refuse)
    assert os.path.realpath(link) == first.folder
    second = remote.fetch_model("hf://org/name", link)
    assert (second.is_new, second.previous) == (True, first.folder)
    assert os.path.realpath(link) == second.folder
    hub.commit, hub.content = "f" * 40, b"no checkpoint"
    with pytest.raises(weightmap.Error):
        remote.fetch_model("hf://org/name", link)
    assert os.path.realpath(link) == second.folder
    with pytest.raises(weightmap.InvalidArgumentError, match="names a file of a model"):
        remote.fetch_model("hf://org/name/model.safetensors", link)


def test_without_the_hubs_package_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(weightmap.UnsupportedError, match="pip install huggingface_hub"):
        remote.fetch("hf://org/name", f"{tmp_path}/new/")
