"""Replacement and loss of a file under an open checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

import weightmap


@pytest.fixture
def model(copy_of):
    """Two checkpoints of other tensors, beside one another."""
    return copy_of("views.pt"), copy_of("dtypes.pt")


def first_with_bytes(checkpoint):
    return next(tensor for tensor in checkpoint.values() if tensor.nbytes and tensor.is_contiguous)


def python(program, *arguments):
    """Runs a program in a process of its own, which may be ended by a signal."""
    command = [sys.executable, "-c", "import resource, sys, os, weightmap\n"
               "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n" + program]
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True)


def test_a_replaced_file_is_noticed_and_opened_again(model):
    path, other = model
    with weightmap.open(path) as checkpoint:
        assert checkpoint.state() == "current"
        assert checkpoint.is_current()
        assert checkpoint.generation.size == path.stat().st_size
        assert checkpoint.generation.inode == path.stat().st_ino
        before = first_with_bytes(checkpoint).tobytes()
        report = weightmap.publish(other, path)
        assert (report.replaced, report.copied) == (True, False)
        assert report.generation.inode == path.stat().st_ino
        assert report.bytes == path.stat().st_size
        assert not other.exists()
        assert checkpoint.state() == "replaced"
        assert not checkpoint.is_current()
        assert first_with_bytes(checkpoint).tobytes() == before
        with checkpoint.reopen() as fresh:
            assert fresh.path == checkpoint.path
            assert fresh.is_current()
            assert list(fresh) != list(checkpoint)


def test_what_is_no_checkpoint_is_not_published(model, tmp_path):
    path, _ = model
    text = tmp_path / "text.pt"
    text.write_text("these are no weights")
    before = path.read_bytes()
    with pytest.raises(weightmap.NotACheckpointError):
        weightmap.publish(text, path)
    with pytest.raises(weightmap.MissingFileError):
        weightmap.publish(tmp_path / "none.pt", path)
    with pytest.raises(weightmap.InvalidArgumentError, match="same file"):
        weightmap.publish(path, path)
    assert path.read_bytes() == before


def test_a_file_that_was_written_to_is_modified(model):
    path, _ = model
    checkpoint = weightmap.open(path)
    os.utime(path, ns=(1, 1))
    assert checkpoint.state() == "modified"


@pytest.mark.parametrize("protection", ["map", "guard"])
def test_copies_a_tensor_and_says_how_it_is_protected(model, protection):
    path, _ = model
    checkpoint = weightmap.open(path, protection=protection)
    assert checkpoint.info.protection == protection
    tensor = first_with_bytes(checkpoint)
    buffer = bytearray(tensor.nbytes)
    checkpoint.copy_to(tensor, buffer)
    assert bytes(buffer) == tensor.tobytes()
    with pytest.raises(weightmap.InvalidArgumentError, match="the buffer has"):
        checkpoint.copy_to(tensor, bytearray(tensor.nbytes + 1))
    with pytest.raises((BufferError, TypeError)):
        checkpoint.copy_to(tensor, bytes(tensor.nbytes))


def test_a_reflink_outlives_its_file(model):
    path, _ = model
    try:
        checkpoint = weightmap.open(path, protection="reflink")
    except weightmap.UnsupportedError as error:
        assert "`weightmap stage`" in str(error)
        pytest.skip("the file system has no reflinks")
    tensor = first_with_bytes(checkpoint)
    before = tensor.tobytes()
    os.truncate(path, 0)
    assert tensor.tobytes() == before
    assert checkpoint.state() == "replaced"


def test_says_what_makes_a_copy_in_memory(model):
    with pytest.raises(weightmap.InvalidArgumentError, match=r"stage\(\) in a program"):
        weightmap.open(model[0], protection="copy")


def test_a_copy_of_what_is_gone_is_an_error(model):
    path, _ = model
    checkpoint = weightmap.open(path)
    tensor = first_with_bytes(checkpoint)
    os.truncate(path, 0)
    with pytest.raises(weightmap.FileError, match=f'tensor "{tensor.name}": the file shrank'):
        checkpoint.copy_to(tensor, bytearray(tensor.nbytes))


LOSE = """
checkpoint = weightmap.open(sys.argv[1], protection="guard")
def lose():
    os.truncate(sys.argv[1], 0)
    tensor = next(tensor for tensor in checkpoint.values() if tensor.nbytes)
    assert tensor.bits().buffer().tobytes() == bytes(tensor.nbytes)
    assert checkpoint.state() == "lost", checkpoint.state()
"""
SAYS_LOSS = """
def says_loss(error):  # a copy of the file's bytes has the first words, of the mapping's the second
    return "the file shrank" in str(error) or "was lost under its mapping" in str(error)
"""
FOREIGN = """
import mmap
def touch_foreign_page():
    with open(sys.argv[1] + ".foreign", "w+b") as file:
        file.truncate(4096)
        memory = mmap.mmap(file.fileno(), 4096)
        file.truncate(0)
        memory[0]
"""


def test_without_a_guard_the_process_ends(model):
    ended = python(LOSE.replace('"guard"', '"map"') + "lose()", model[0])
    assert ended.returncode == -signal.SIGBUS


def test_a_guarded_file_is_lost_and_the_process_lives(model):
    ended = python(LOSE + "assert weightmap.guard_is_active(); lose(); print('alive')", model[0])
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "alive\n", "")


COPIES = """
tensor = checkpoint[sys.argv[2]]
ways = {
    "tobytes": tensor.tobytes,
    "tolist": tensor.tolist,
    "item": lambda: tensor[0].item(),
    "iteration": lambda: [float(element) for element in tensor],
    "array": lambda: tensor.__array__(copy=True),
    "conversion": lambda: tensor.__array__("float64"),
    "dequantize": tensor.dequantize,
    "stats": tensor.stats,
    "dlpack": lambda: tensor.__dlpack__(copy=True, max_version=(1, 0)),
}
lose()
for way, copy in ways.items():
    try:
        print(way, copy())
    except weightmap.FileError as error:
        print(way, says_loss(error))
"""


def test_every_copy_of_what_was_lost_is_an_error(float_archive):
    pytest.importorskip("numpy", reason="arrays are some of the copies")
    path = float_archive({"w": bytes(range(64)) * 1024})
    ended = python(LOSE + SAYS_LOSS + COPIES, path, "w")
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [
        f"{way} True" for way in ("tobytes", "tolist", "item", "iteration", "array", "conversion",
                                  "dequantize", "stats", "dlpack")
    ]


TORCH_COPIES = """
import torch
name, tensor = next((name, tensor) for name, tensor in checkpoint.items() if tensor.nbytes)
ways = {
    "dtype": lambda: checkpoint.torch(dtype=torch.complex128),
}
if checkpoint.info.byteorder == "big":
    ways |= {"tensor": tensor.torch, "state": checkpoint.torch}
mapped = checkpoint.torch()  # the mapping that is lent to torch is there before
lose()
for way, copy in ways.items():
    try:
        print(way, copy())
    except weightmap.FileError as error:
        print(way, says_loss(error))
"""


@pytest.mark.parametrize("name, ways", [
    ("views.pt", ["dtype"]),
    ("big_endian.pt", ["dtype", "tensor", "state"]),
])
def test_every_conversion_to_torch_of_what_was_lost_is_an_error(copy_of, name, ways):
    pytest.importorskip("torch", reason="these are torch's copies")
    ended = python(LOSE + SAYS_LOSS + TORCH_COPIES, copy_of(name))
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [f"{way} True" for way in ways]


def test_faulthandler_that_came_first_keeps_quiet_about_a_loss_and_reports_the_rest(model):
    enable = "import faulthandler; faulthandler.enable()\n"
    ended = python(enable + LOSE + "lose(); print('alive')", model[0])
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "alive\n", "")
    ended = python(enable + LOSE + FOREIGN + "touch_foreign_page()", model[1])
    assert ended.returncode == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in ended.stderr
    assert "in touch_foreign_page" in ended.stderr


def test_faulthandler_that_came_later_is_survived(model):
    enable = "import faulthandler; faulthandler.enable()\nassert not weightmap.guard_is_active()\n"
    ended = python(LOSE + enable + "lose(); print('alive')", model[0])
    assert (ended.returncode, ended.stdout) == (0, "alive\n")
    assert ended.stderr.startswith("Fatal Python error: Bus error")  # which it is not
    ended = python(LOSE + FOREIGN + enable + "touch_foreign_page()", model[1])
    assert ended.returncode == -signal.SIGBUS
    assert "in touch_foreign_page" in ended.stderr


def test_the_next_guarded_open_goes_before_a_faulthandler_that_came_later(model):
    enable = (
        "import faulthandler; faulthandler.enable()\n"
        "again = checkpoint.reopen()\n"
        "assert weightmap.guard_is_active()\n"
    )
    ended = python(LOSE + enable + "lose(); print('alive')", model[0])
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "alive\n", "")
    ended = python(LOSE + FOREIGN + enable + "touch_foreign_page()", model[1])
    assert ended.returncode == -signal.SIGBUS
    assert "in touch_foreign_page" in ended.stderr
