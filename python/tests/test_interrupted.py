"""A signal's exception, as Ctrl-C raises it, at random moments of what reads and writes for long:
the target is the old file or the new one, whole, nothing else is in its folder, and the next call
works.
"""

import os
import random
import re
import signal
import time

import pytest

import weightmap

ROUNDS = int(os.environ.get("WEIGHTMAP_INTERRUPTS", "25"))
OLD, NEW = b"\x01\x02\x03\x04" * 1000, b"\x05\x06\x07\x08" * 500_000


class Interrupt(Exception):
    pass


class Alarm:
    """Has a signal's handler raise Interrupt."""

    def set(self):
        """At a random moment of the next milliseconds, and again every 10 s until clear(): Python
        ignores what is raised in a finalizer."""
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0002, 0.02), 10)

    def clear(self):
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.fixture
def alarm():
    def handler(number, frame):
        raise Interrupt

    before = signal.signal(signal.SIGALRM, handler)
    made = Alarm()
    yield made
    made.clear()
    signal.signal(signal.SIGALRM, before)


def save(checkpoint, target):
    weightmap.save(checkpoint, target)


def save_safetensors(checkpoint, target):
    weightmap.save_safetensors(checkpoint, target)


def torch_save(checkpoint, target):
    weightmap.torch.save({name: tensor.torch() for name, tensor in checkpoint.items()}, target)


def patched_torch_save(checkpoint, target):
    import torch

    with weightmap.patch():
        torch.save({name: tensor.torch() for name, tensor in checkpoint.items()}, target)


@pytest.mark.parametrize("call", [save, save_safetensors, torch_save, patched_torch_save])
def test_an_interrupted_call_leaves_the_old_file_or_the_new(
    float_archive, tmp_path, request, alarm, call
):
    if call in (torch_save, patched_torch_save):
        request.getfixturevalue("torch")
    old = float_archive({"w": OLD}, "old.pt").read_bytes()
    target = tmp_path / "folder" / "target"
    target.parent.mkdir()
    with weightmap.open(float_archive({"w": NEW}, "new.pt")) as checkpoint:
        call(checkpoint, target)
        for _ in range(ROUNDS):
            target.write_bytes(old)
            with pytest.raises(Interrupt):
                alarm.set()
                while True:
                    call(checkpoint, target)
            alarm.clear()
            with weightmap.open(target, verify="crc") as opened:
                assert opened["w"].tobytes() in (OLD, NEW)
            assert os.listdir(target.parent) == [target.name]
        call(checkpoint, target)


def test_an_interrupted_warm_leaves_a_checkpoint_that_warms_as_a_whole(float_archive, alarm):
    path = float_archive({"w": NEW})
    threads = len(os.listdir("/proc/self/task"))
    with weightmap.open(path) as checkpoint:
        for _ in range(ROUNDS):
            with pytest.raises(Interrupt):
                alarm.set()
                while True:
                    weightmap.evict(path)
                    checkpoint.warm()
            alarm.clear()
            assert checkpoint.warm().bytes == path.stat().st_size
            assert checkpoint["w"].tobytes() == NEW
    assert len(os.listdir("/proc/self/task")) <= threads  # one of another test may have ended


def test_after_an_interrupted_patch_the_next_one_works_and_ends(torch, alarm):
    package = pytest.importorskip("safetensors", reason="is patched")
    own = torch.load, torch.save, package.safe_open
    for _ in range(ROUNDS):
        with pytest.raises(Interrupt):
            alarm.set()
            while True:
                with weightmap.patch():
                    pass
        alarm.clear()
        with weightmap.patch():
            patched = torch.load, torch.serialization.save, package.safe_open
            assert not set(own) & set(patched)
            assert package._safetensors_rust.safe_open is package.safe_open


@pytest.mark.parametrize("by_torch", [False, True])
def test_a_killed_patched_save_leaves_the_old_file_or_the_new(tmp_path, torch, by_torch):
    """An object that the C++ writer leaves to torch has torch write beside the path."""
    states = [{"w": torch.full((500_000,), number), "by": Keywords(1)} for number in (1.0, 2.0)]
    if not by_torch:
        states = [{"w": state["w"]} for state in states]
    target = tmp_path / "folder" / "target"
    target.parent.mkdir()
    with weightmap.patch():
        torch.save(states[0], target)
        for number in range(ROUNDS):
            done, tell = os.pipe()
            child = os.fork()
            if child == 0:
                while True:
                    torch.save(states[1], target)
                    os.write(tell, b"1")
                    torch.save(states[0], target)
            os.close(tell)
            if number % 2:  # it has saved at least once
                assert os.read(done, 1) == b"1"
            time.sleep(random.uniform(0, 0.05))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(done)
            found = torch.load(target, weights_only=False, mmap=False)
            assert any(torch.equal(found["w"], state["w"]) for state in states)
            if not by_torch:  # but for a name that the next save removes
                beside = set(os.listdir(target.parent)) - {target.name}
                assert all(re.fullmatch(r"\.target\.weightmap-[0-9a-f]{16}\.tmp", n) for n in beside)
                torch.save(states[0], target)
                assert os.listdir(target.parent) == [target.name]


class Keywords:
    """Is made with keywords, so torch itself writes it."""

    def __init__(self, number):
        self.number = number

    def __getnewargs_ex__(self):
        return (), {"number": self.number}

    def __new__(cls, number=0):
        return super().__new__(cls)
