"""Long calls: Ctrl-C ends them, and they tell how far they are."""

import os
import signal
import threading

import pytest

import weightmap


@pytest.fixture
def path(copy_of):
    return copy_of("state_dict.pt")


def calls(path, tmp_path):
    """Every call that takes a `progress`, by name."""
    checkpoint = weightmap.open(path)
    return {
        "open crc": lambda p: weightmap.open(path, verify="crc", progress=p),
        "open populate": lambda p: weightmap.open(path, populate=True, progress=p),
        "verify_crc": lambda p: checkpoint.verify_crc(progress=p),
        "warm": lambda p: checkpoint.warm(progress=p),
        "stage": lambda p: weightmap.stage(path, progress=p),
        "publish": lambda p: weightmap.publish(
            path, tmp_path / "published.pt", copy=True, progress=p
        ),
        "evict": lambda p: weightmap.evict(path, progress=p),
    }


NAMES = ["open crc", "open populate", "verify_crc", "warm", "stage", "publish", "evict"]


@pytest.mark.parametrize("name", NAMES)
def test_tells_the_bytes_done_and_the_bytes_in_all(name, path, tmp_path):
    told = []
    calls(path, tmp_path)[name](lambda done, all: told.append((done, all)))
    done, all = told[-1]
    assert 0 < done == all <= os.path.getsize(path)
    assert [d for d, _ in told] == sorted(d for d, _ in told)


@pytest.mark.parametrize("name", NAMES)
def test_is_called_by_the_thread_that_called(name, path, tmp_path):
    threads = set()
    calls(path, tmp_path)[name](lambda done, all: threads.add(threading.get_ident()))
    assert threads == {threading.get_ident()}


class Enough(Exception):
    pass


@pytest.mark.parametrize("name", NAMES)
def test_what_progress_raises_comes_out(name, path, tmp_path):
    def enough(done, all):
        raise Enough

    with pytest.raises(Enough):
        calls(path, tmp_path)[name](enough)
    weightmap.open(path, verify="crc")  # and all is as it was


@pytest.fixture
def interrupts():
    """Whoever started this may have had SIGINT ignored, as a shell does for what it leaves behind."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("name", NAMES)
def test_a_signal_that_came_before_raises_its_exception(name, path, tmp_path, interrupts):
    """A long call looks for signals as it goes on; a short one Python looks after itself."""
    call = calls(path, tmp_path)[name]
    with pytest.raises(KeyboardInterrupt):
        call(lambda done, all: signal.raise_signal(signal.SIGINT))
        for _ in range(100):
            pass
