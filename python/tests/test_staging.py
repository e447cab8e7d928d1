"""Copies in shared memory, opening by descriptor, and who has what mapped."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys

import pytest

import weightmap

OPEN = "import sys, weightmap; print(len(weightmap.open({})))"


def child(code, *arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
        **options,
    ).stdout


@pytest.fixture
def staged(data):
    with weightmap.stage(data / "training.pt") as copy:
        yield copy


def test_a_pinnable_copy_is_written_to_by_this_process_only(data):
    with weightmap.stage(data / "training.pt", pinnable=True) as copy:
        memory = copy.pinnable_memory()
        assert copy.report.sealed
        assert bytes(memory) == (data / "training.pt").read_bytes()
        with weightmap.open(copy) as opened:
            tensor = opened["model.0.weight"]
            before = memory[tensor.file_offset]
            memory[tensor.file_offset] ^= 1
            assert tensor.tobytes()[0] == before ^ 1
        with open(copy.path, "r+b", buffering=0) as file:
            with pytest.raises(PermissionError):
                file.write(b"x")
            with pytest.raises(PermissionError):
                file.truncate(0)
            with pytest.raises(PermissionError):
                mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    assert memory[0] == ord("P")  # keeps it


def test_a_pinnable_copy_has_no_name(data):
    with pytest.raises(weightmap.InvalidArgumentError, match="pinnable is for copies without a name"):
        weightmap.stage(data / "training.pt", name="weightmap-test-pinnable", pinnable=True)
    assert not os.path.exists("/dev/shm/weightmap-test-pinnable")


def test_views_outlive_a_staged_copy(data):
    with weightmap.stage(data / "training.pt") as copy:
        opened = weightmap.open(copy)
        path = copy.path
    assert copy.closed
    assert not os.path.exists(path)
    opened.verify_crc()
    with pytest.raises(weightmap.InvalidArgumentError):
        copy.fileno()


def test_workers_open_a_staged_copy_by_path_and_by_descriptor(data, staged):
    tensors = f"{len(weightmap.open(data / 'training.pt'))}\n"
    assert child(OPEN.format("sys.argv[1]"), staged.path) == tensors
    number = staged.fileno()
    assert child(OPEN.format("int(sys.argv[1])"), number, pass_fds=(number,)) == tensors


def test_an_order_is_saved_by_name_only(data, tmp_path):
    with open(data / "training.pt", "rb") as file:
        checkpoint = weightmap.open(file)
    checkpoint.demand(next(iter(checkpoint.values())))
    with pytest.raises(weightmap.InvalidArgumentError, match="has no path"):
        checkpoint.save_order()
    checkpoint.save_order(tmp_path / "order")
    assert (tmp_path / "order").read_text()


def test_refuses_what_is_no_descriptor_of_a_file(tmp_path):
    with pytest.raises(weightmap.FileError, match="descriptor 999999: cannot use the descriptor"):
        weightmap.open(999999)
    read, write = os.pipe()
    try:
        with pytest.raises(weightmap.NotACheckpointError, match="is a FIFO"):
            weightmap.open(read)
    finally:
        os.close(read)
        os.close(write)
    with pytest.raises(TypeError):
        weightmap.open(None)


def test_a_copy_with_a_name_stays_until_it_is_removed(data):
    name = f"weightmap-python-test-{os.getpid()}"
    copy = weightmap.stage(data / "training.pt", name=name)
    try:
        assert copy.path == f"/dev/shm/{name}"
        copy.close()
        weightmap.open(f"/dev/shm/{name}").verify_crc()
        with pytest.raises(weightmap.InvalidArgumentError, match="is there already"):
            weightmap.stage(data / "training.pt", name=name)
    finally:
        weightmap.remove_staged(name)
    with pytest.raises(FileNotFoundError):
        weightmap.remove_staged(name)


def test_refuses_to_stage_what_does_not_fit_or_is_no_checkpoint(data, tmp_path):
    with pytest.raises(weightmap.FileError, match=r"a copy takes \d+ bytes .* there are 1 "):
        weightmap.stage(data / "training.pt", budget_bytes=1)
    with pytest.raises(weightmap.NotACheckpointError):
        weightmap.stage(tmp_path)


def test_lists_who_has_a_file_mapped(copy_of):
    path = copy_of("training.pt")
    assert weightmap.processes(path).mapped == []
    checkpoint = weightmap.open(path, locked=True)  # so that no page of it is taken meanwhile
    checkpoint.verify_crc()
    report = weightmap.processes(path)
    [mapped] = report.mapped
    assert mapped.process == os.getpid()
    assert (mapped.file, mapped.version) == (str(path), "current")
    assert mapped.file_bytes == path.stat().st_size
    assert mapped.has_shared and not mapped.writable
    assert 0 < mapped.resident_bytes <= mapped.mapped_bytes
    assert report.pss_bytes == mapped.pss_bytes == mapped.resident_bytes
    assert mapped in weightmap.processes().mapped
    path.unlink()
    assert weightmap.processes(path).mapped[0].version == "deleted"


@pytest.mark.parametrize("budget", [0, -1, "", 1e30, True, 2**64])
def test_budgets_are_sizes(data, budget):
    expected = "expected None or a number of bytes from 1 to"
    with pytest.raises(weightmap.InvalidArgumentError, match=expected):
        weightmap.stage(data / "training.pt", budget_bytes=budget)
    with pytest.raises(weightmap.InvalidArgumentError, match=expected):
        weightmap.open(data / "training.pt").warm(budget_bytes=budget)
