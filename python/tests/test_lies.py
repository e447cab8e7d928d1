"""Python's calls on URLs, against every lie that tests/remote/lies.py knows, and against silence."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from pathlib import Path

import lies
import pytest
import range_server
from safetensors_files import file_of

import weightmap
from weightmap import remote

NAME = "model.safetensors"
RIGHT_FILE, OLD_FILE = (
    file_of({"a": ("U8", [3 << 20], bytes([byte]) * (3 << 20))}, align=1) for byte in (1, 2)
)


@pytest.fixture
def server(server):
    (server.folder / NAME).write_bytes(RIGHT_FILE)
    return server


def look(source, _folder):
    assert remote.metadata(source)["a"].shape == (3 << 20,)


def fetch(source, folder):
    (folder / NAME).write_bytes(OLD_FILE)
    try:
        remote.fetch(source, folder / NAME, replace=True)
    except weightmap.Error:
        assert (folder / NAME).read_bytes() == OLD_FILE
        raise
    assert (folder / NAME).read_bytes() == RIGHT_FILE


def stage(source, _folder):
    with remote.stage(source) as staging:
        assert Path(staging.finish().path).read_bytes() == RIGHT_FILE


def read(source, _folder):
    found = bytearray(min(source.size, 2 * len(RIGHT_FILE)))
    source.read_into(0, found)
    assert found == RIGHT_FILE


CALLS = [look, fetch, stage, read]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
@pytest.mark.parametrize("honest", [0, 1])
@pytest.mark.parametrize("lie", lies.LIES, ids=lambda lie: lie.name)
def test_what_a_server_says_is_right_or_refused(server, tmp_path, lie, honest, call):
    server.fault(lie.fault, first=1 + honest, times=range_server.ALWAYS)
    source = remote.open_url(server.url(NAME), connections=1, retries=1)
    asks_twice = call is not look  # as a file that begins with its metadata needs no second answer
    takes_two = honest or lie.name == "each_time_another_tag"
    if lie.follows(honest) == lies.RIGHT or (takes_two and not asks_twice):
        call(source, tmp_path)
    elif lie.comes_whole and call is fetch:
        with contextlib.suppress(weightmap.UnsupportedError):
            call(source, tmp_path)
    else:
        with pytest.raises(weightmap.Error, match=lie.follows(honest)):
            call(source, tmp_path)


never_ends = pytest.mark.parametrize(
    "fault",
    [
        range_server.stalled(0),
        range_server.stalled(),
        range_server.raw(lies.drip),
        range_server.status(503, Retry_After="1000"),
    ],
    ids=["nothing", "half", "drip", "later"],
)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
@never_ends
def test_what_never_ends_is_ended_by_the_deadline(server, tmp_path, fault, call):
    server.fault(fault, times=range_server.ALWAYS)
    source = remote.open_url(server.url(NAME), deadline=0.3)
    with pytest.raises(weightmap.Error, match="the deadline"):
        call(source, tmp_path)


def later(write, answer):
    time.sleep(0.2)
    write(range_server.head_of(answer, Content_Length=len(answer.body)) + answer.body)


def test_a_deadline_is_for_all_requests_of_a_call(server, tmp_path):
    names = {f"t{number}": f"{number}.safetensors" for number in range(16)}
    for tensor, name in names.items():
        header = b'{"%s":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' % tensor.encode()
        content = len(header).to_bytes(8, "little") + header + b"x"
        (server.folder / name).write_bytes(content)
    index = server.folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": names}))
    server.fault(range_server.raw(later), times=range_server.ALWAYS)
    source = remote.open_url(server.url(index.name), deadline=0.5)  # of 48 requests, some in turn
    with pytest.raises(weightmap.Error, match="the deadline"):
        remote.fetch(source, f"{tmp_path}/here/")


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
@never_ends
def test_what_never_ends_is_ended_by_ctrl_c(server, tmp_path, interrupts, fault, call):
    server.fault(fault, times=range_server.ALWAYS)
    source = remote.open_url(server.url(NAME), deadline=60)

    def interrupt():
        server.wait(lambda each: each.requests)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        call(source, tmp_path)
    interrupter.join()


def test_nothing_is_left_in_shared_memory(server, tmp_path):
    before = set(os.listdir("/dev/shm"))
    server.fault(range_server.gzipped(), first=2, times=range_server.ALWAYS)
    with pytest.raises(weightmap.Error, match="gzip"):
        remote.stage(remote.open_url(server.url(NAME)), name=f"lies-{os.getpid()}").finish()
    assert f"lies-{os.getpid()}" not in set(os.listdir("/dev/shm")) - before
