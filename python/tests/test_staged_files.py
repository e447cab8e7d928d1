"""warm="stage" of the loaders of engines: files go through shared memory."""

import os
import signal
import threading

import pytest
from engine_files import load, names, write

import weightmap
from weightmap._engines import staged_files as _staged_files
from weightmap._engines.owned_file import key_of
from weightmap._engines.reading_window import ReadingWindow
from weightmap._engines.staged_files import StagedFiles
from weightmap._engines.warming import WarmingCounts

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture
def files(torch, tmp_path):
    for number in (1, 2, 3):
        write(tmp_path, f"model-{number}.safetensors", {f"w{number}": torch.full((4,), number)})
    return [str(tmp_path / f"model-{number}.safetensors") for number in (1, 2, 3)]


def staged_copies():
    """How many mappings of staged copies this process has."""
    with open("/proc/self/maps") as maps:
        return sum("/memfd:" in line for line in maps)


def test_tensors_are_those_of_the_files(files, mappings_of, runtime):
    weights, lines = load(files, {"warm": "stage"})
    taken = list(weights)
    assert [(name, tensor.tolist()) for name, tensor in taken] == [
        ("w1", [1] * 4), ("w2", [2] * 4), ("w3", [3] * 4)
    ]
    assert sum(map(mappings_of, files)) == 0
    assert lines[-1].startswith(
        "weightmap, rank 0: 96 bytes from 3 mapped files; cold bytes not known; "
        f"{sum(map(os.path.getsize, files))} read by this rank, 0 by another; "
    )
    assert list(runtime.iterdir()) == []
    del taken
    assert staged_copies() == 0


def test_bin_is_staged_too(torch, tmp_path, mappings_of):
    torch.save({"w": torch.arange(3)}, tmp_path / "model.bin")
    weights, _ = load([tmp_path / "model.bin"], {"warm": "stage"})
    assert [(name, tensor.tolist()) for name, tensor in weights] == [("w", [0, 1, 2])]


def test_what_does_not_fit_is_mapped(files, monkeypatch):
    def refuse(file, progress):
        raise weightmap.FileError("needs more memory than there is")

    monkeypatch.setattr(_staged_files, "stage", refuse)
    weights, lines = load(files[:1], {"warm": "stage"})
    assert names(list(weights)) == ["w1"]
    assert lines[-1].endswith("model-1.safetensors not staged: needs more memory than there is")
    assert "from 1 mapped files" in lines[-1]
    with pytest.raises(weightmap.FileError):
        list(load(files[:1], {"warm": "stage", "strict": True})[0])


def test_what_is_refused_is_the_engines(torch, tmp_path):
    (tmp_path / "model.bin").write_bytes(b"no checkpoint")
    stock = {"model.bin": {"w": torch.tensor([3.0])}}
    weights, lines = load([tmp_path / "model.bin"], {"warm": "stage"}, stock)
    assert names(list(weights)) == ["w"]
    assert "model.bin: read by Engine's own loader: " in lines[0]


def test_files_are_staged_within_the_window(files, monkeypatch):
    staged, stopped = [], threading.Semaphore(0)
    stage, has_room = _staged_files.stage, ReadingWindow.has_room

    def noted(file, progress):
        staged.append(os.path.basename(file))
        return stage(file, progress=progress)

    def counted(window, end, is_waited_for):
        found = has_room(window, end, is_waited_for)
        if not found:
            stopped.release()
        return found

    monkeypatch.setattr(_staged_files, "stage", noted)
    monkeypatch.setattr(ReadingWindow, "has_room", counted)
    with StagedFiles(files, ReadingWindow(files, None), WarmingCounts()) as ahead:
        stopped.acquire()
        assert staged == ["model-1.safetensors", "model-2.safetensors"]
        ahead.open(files[0])
        ahead.leave(files[0])
        ahead.open(files[2])
        assert staged[2:] == ["model-3.safetensors"]


OTHER = """
import sys
from weightmap._engines.reading_window import ReadingWindow
from weightmap._engines.staged_files import StagedFiles
from weightmap._engines.warming import WarmingCounts
counts = WarmingCounts()
files = sys.argv[1:]
with StagedFiles(files, ReadingWindow(files, None), counts) as ahead:
    opened = ahead.open(files[0])
    print(counts.bytes_waited_for, *opened, flush=True)
    input()
"""


@pytest.fixture
def another(start_python):
    """Starts another process that stages files, and says what it has of the first."""
    return lambda *files: start_python(OTHER, *files)


def test_one_process_stages_for_all(files, another, monkeypatch):
    other = another(files[0])
    assert other.stdout.readline() == "0 w1\n"
    monkeypatch.setattr(_staged_files, "stage", lambda *_, **__: pytest.fail("staged again"))
    counts = WarmingCounts()
    with StagedFiles(files[:1], ReadingWindow(files[:1], None), counts) as ahead:
        opened = ahead.open(files[0])
    assert counts.bytes_waited_for == os.stat(files[0]).st_size
    other.kill()
    other.wait()
    assert opened["w1"].torch().tolist() == [1] * 4


def test_what_was_staged_by_one_that_died_is_staged_again(files, another, runtime):
    other = another(files[0])
    other.stdout.readline()
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert len(list(runtime.iterdir())) == 2  # its position and its copy's path
    counts = WarmingCounts()
    with StagedFiles(files[:1], ReadingWindow(files[:1], None), counts) as ahead:
        assert list(ahead.open(files[0])) == ["w1"]
    assert counts.bytes_waited_for == 0


def test_a_path_that_leads_to_another_copy_is_not_believed(files, another, monkeypatch):
    another(files[0]).stdout.readline()
    content_of = _staged_files.content_of
    with weightmap.stage(files[1]) as wrong:

        def misled(name):
            told = content_of(name)
            return told and told.replace(told.split(b" ")[-1], os.fsencode(wrong.path))

        monkeypatch.setattr(_staged_files, "content_of", misled)
        counts = WarmingCounts()
        with StagedFiles(files[:1], ReadingWindow(files[:1], None), counts) as ahead:
            assert list(ahead.open(files[0])) == ["w1"]


def test_a_copy_whose_owner_ends_while_it_is_opened_is_not_taken(files, another, monkeypatch):
    other = another(files[0])
    other.stdout.readline()
    opened_from_another = _staged_files._opened_from_another

    def opened_at_the_end(copy, key):
        opened = opened_from_another(copy, key)
        other.kill()
        other.wait()
        return opened

    monkeypatch.setattr(_staged_files, "_opened_from_another", opened_at_the_end)
    counts = WarmingCounts()
    with StagedFiles(files[:1], ReadingWindow(files[:1], None), counts) as ahead:
        assert list(ahead.open(files[0])) == ["w1"]
    assert counts.bytes_waited_for == 0 and counts.bytes_read == os.stat(files[0]).st_size


def test_copies_that_cannot_be_reached_are_made_by_each(files, another, monkeypatch):
    another(files[0]).stdout.readline()
    content_of = _staged_files.content_of
    monkeypatch.setattr(
        _staged_files, "content_of", lambda name: content_of(name) and b"/proc/0/fd/3"
    )
    counts = WarmingCounts()
    with StagedFiles(files[:1], ReadingWindow(files[:1], None), counts) as ahead:
        assert list(ahead.open(files[0])) == ["w1"]
    assert list(counts.remarks) == [f"{files[0]} staged by each process for itself"]


def test_two_loads_of_one_process_stage_each(files):
    with StagedFiles(files[:1], ReadingWindow(files[:1], None), WarmingCounts()) as first:
        first.open(files[0])
        with StagedFiles(files[:1], ReadingWindow(files[:1], None), WarmingCounts()) as second:
            assert list(second.open(files[0])) == ["w1"]


def test_a_copy_goes_when_the_slowest_has_left_its_file(files, runtime):
    with StagedFiles(files, ReadingWindow(files, None), WarmingCounts()) as ahead:
        for file in files[:2]:
            ahead.open(file)
            ahead.leave(file)
        ahead.open(files[2])
        kept = [path.name for path in runtime.iterdir()]
        assert f"stage-{key_of(files[:1])}" not in kept
        assert f"stage-{key_of(files[2:])}" in kept


def test_closing_ends_what_is_being_staged(files, monkeypatch, runtime):
    begun = threading.Event()

    def endless(file, progress):
        begun.set()
        while True:
            progress(0, 1)

    monkeypatch.setattr(_staged_files, "stage", endless)
    ahead = StagedFiles(files, ReadingWindow(files, None), WarmingCounts())
    begun.wait()
    ahead.close()
    assert list(runtime.iterdir()) == []
