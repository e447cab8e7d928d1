"""Long calls: Ctrl-C ends them, and they tell how far they are."""

import functools
import io
import os
import signal
import threading

import pytest

import weightmap


@pytest.fixture
def path(copy_of):
    return copy_of("state_dict.pt")


# Every call that takes a `progress`, by name.
CALLS = {
    "open crc": lambda path, new, p: weightmap.open(path, verify="crc", progress=p),
    "open populate": lambda path, new, p: weightmap.open(path, populate=True, progress=p),
    "verify_crc": lambda path, new, p: weightmap.open(path).verify_crc(progress=p),
    "warm": lambda path, new, p: weightmap.open(path).warm(progress=p),
    "stage": lambda path, new, p: weightmap.stage(path, progress=p),
    "publish": lambda path, new, p: weightmap.publish(path, new, copy=True, progress=p),
    "evict": lambda path, new, p: weightmap.evict(path, progress=p),
    "save": lambda path, new, p: weightmap.save(weightmap.open(path), new, progress=p),
    "save to a file": lambda path, new, p: weightmap.save(
        weightmap.open(path), io.BytesIO(), progress=p
    ),
    "save_safetensors": lambda path, new, p: weightmap.save_safetensors(
        weightmap.open(path), new.with_suffix(".safetensors"), progress=p
    ),
}


@pytest.fixture(params=CALLS)
def call(request, path, tmp_path):
    """One of them, with its progress for an argument."""
    return functools.partial(CALLS[request.param], path, tmp_path / "new.pt")


def test_tells_the_bytes_done_and_the_bytes_in_all_in_the_thread_that_called(call, path):
    told = []
    call(lambda done, all: told.append((done, all, threading.get_ident())))
    done, all, _ = told[-1]
    assert 0 < done == all < 2 * os.path.getsize(path)
    assert told == sorted(told)
    assert {thread for _, _, thread in told} == {threading.get_ident()}


class Enough(Exception):
    pass


def test_what_progress_raises_comes_out(call, path):
    def enough(done, all):
        raise Enough

    with pytest.raises(Enough):
        call(enough)
    weightmap.open(path, verify="crc")  # and all is as it was


def test_a_signal_that_came_before_raises_its_exception(call, interrupts):
    """A long call looks for signals as it goes on; a short one Python looks after itself."""
    with pytest.raises(KeyboardInterrupt):
        call(lambda done, all: signal.raise_signal(signal.SIGINT))
        for _ in range(100):
            pass
