"""How far the loaders of engines read ahead of the slowest process, and with how many threads."""

import os
import signal
import threading
from pathlib import Path

import pytest
from engine_files import FakeCheckpoint

import weightmap
from weightmap._engines import owned_file as _owned_file
from weightmap._engines.owned_file import OwnedFile, content_of, names_with
from weightmap._engines.reading_window import RankProgress, ReadingWindow
from weightmap._engines.warming import ReadingThreads, WarmingAhead, WarmingCounts

pytestmark = pytest.mark.usefixtures("runtime")

MIB = 1 << 20


@pytest.fixture
def files(tmp_path):
    """Three, of 100, 50 and 10 bytes."""
    paths = [str(tmp_path / name) for name in "abc"]
    for path, size in zip(paths, (100, 50, 10)):
        Path(path).write_bytes(bytes(size))
    return paths


@pytest.fixture
def process(start_python):
    """Starts Python programs, which say that they are ready and answer a line with a line."""

    def start(*arguments):
        started = start_python(*arguments)
        assert started.stdout.readline() == "ready\n"
        return started

    return start


def tell(process, line):
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    return process.stdout.readline()


RANK = """
import os, sys
from weightmap._engines.owned_file import content_of, names_with
from weightmap._engines.reading_window import RankProgress
rank = RankProgress(sys.argv[1:])
print("ready", flush=True)
for line in sys.stdin:
    if line == "close\\n":
        rank.close()
    elif line == "fork\\n":
        if (child := os.fork()) == 0:
            rank.close()
            print(os.getpid(), *map(content_of, names_with(rank._prefix)), flush=True)
            while True: os.read(0, 1)
        continue
    else:
        rank.advance(int(line))
    print("done", flush=True)
"""


# --- files that belong to a process -----------------------------------------------------------


def test_a_file_has_one_owner(process):
    own = OwnedFile.take("mine")
    assert OwnedFile.take("mine") is None
    own.write(b"content")
    assert content_of("mine") is None  # our own
    other = process(
        "from weightmap._engines.owned_file import OwnedFile, content_of\n"
        "print('ready', flush=True); input()\n"
        "print(OwnedFile.take('mine'), content_of('mine'), flush=True)"
    )
    assert tell(other, "look") == "None b'content'\n"
    own.close()
    assert names_with("mine") == []
    again = OwnedFile.take("mine")
    assert again is not None
    again.close()


def test_a_file_of_none_is_removed(runtime):
    left = OwnedFile.take("left")
    path = runtime / "left"
    left.close()
    path.write_bytes(b"by one that was killed")
    path.chmod(0o600)
    assert content_of("left") is None
    assert not path.exists()


def test_a_look_at_a_file_takes_it_from_no_other_thread(runtime, monkeypatch):
    class Watched:
        """A lock that says when somebody has to wait for it."""

        lock = threading.Lock()

        def __enter__(self):
            if not self.lock.acquire(blocking=False):
                goes_on.set()
                self.lock.acquire()

        def __exit__(self, *_):
            self.lock.release()

    def take():
        taken.append(OwnedFile.take("mine"))
        goes_on.set()

    def open_late(path, flags=0):
        if threading.current_thread() is not taker and not taker.ident:
            taker.start()
            goes_on.wait()
        return open_now(path, flags)

    names_with("")
    (runtime / "mine").write_bytes(b"by one that was killed")
    (runtime / "mine").chmod(0o600)
    taken, goes_on, taker = [], threading.Event(), threading.Thread(target=take)
    open_now = _owned_file._open
    monkeypatch.setattr(_owned_file, "_threads", Watched())
    monkeypatch.setattr(_owned_file, "_open", open_late)
    assert content_of("mine") is None
    taker.join()
    assert (runtime / "mine").exists()
    taken[0].close()


def test_a_file_that_is_taken_over_is_empty(runtime):
    names_with("")
    (runtime / "left").write_bytes(b"by one that was killed")
    (runtime / "left").chmod(0o600)
    own = OwnedFile.take("left")
    assert (runtime / "left").read_bytes() == b""
    own.close()
    own.close()


def test_no_link_is_followed(runtime, tmp_path):
    names_with("")
    (tmp_path / "target").write_bytes(b"kept")
    (runtime / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError):
        OwnedFile.take("link")
    assert (tmp_path / "target").read_bytes() == b"kept"


def test_what_others_may_write_to_is_refused(runtime):
    names_with("")
    (runtime / "open").write_bytes(b"content")
    (runtime / "open").chmod(0o620)
    for look in (OwnedFile.take, content_of):
        with pytest.raises(OSError, match="not a regular file of this user alone"):
            look("open")
    os.mkfifo(runtime / "fifo", 0o600)
    with pytest.raises(OSError, match="not a regular file of this user alone"):
        content_of("fifo")
    assert (runtime / "open").read_bytes() == b"content"


# --- how far each process is ------------------------------------------------------------------


def test_the_slowest_counts(files, process):
    own = RankProgress(files)
    own.advance(70)
    assert own.slowest() == 70
    other = process(RANK, *files)
    assert own.slowest() == 0  # has not begun
    tell(other, 30)
    assert own.slowest() == 30
    tell(other, 90)
    assert own.slowest() == 70
    tell(other, 20)
    assert own.slowest() == 70  # never goes back
    own.close()


def test_a_position_is_eight_bytes(files, process, runtime):
    other = process(RANK, *files)
    tell(other, 0x0102030405)
    (path,) = runtime.iterdir()
    assert path.read_bytes() == bytes([5, 4, 3, 2, 1, 0, 0, 0])


@pytest.mark.parametrize("end", ["close", signal.SIGKILL])
def test_one_that_ends_holds_nobody_up(files, process, runtime, end):
    own = RankProgress(files)
    own.advance(70)
    other = process(RANK, *files)
    assert own.slowest() == 0
    if end == "close":
        tell(other, "close")
    else:
        other.send_signal(end)
        other.wait()
    assert own.slowest() == 70
    assert len(list(runtime.iterdir())) == 1
    own.close()
    assert list(runtime.iterdir()) == []


def test_one_that_is_stopped_is_waited_for(files, process):
    own = RankProgress(files)
    own.advance(70)
    other = process(RANK, *files)
    tell(other, 5)
    other.send_signal(signal.SIGSTOP)
    assert own.slowest() == 5
    own.close()


def test_a_forked_child_neither_ends_nor_keeps_the_position(files, process):
    other = process(RANK, *files)
    tell(other, 5)
    child, _, seen = tell(other, "fork").partition(" ")
    own = RankProgress(files)
    own.advance(70)
    try:
        # It has closed what it has of the file, and sees the file as any other process does.
        assert seen == "b'\\x05\\x00\\x00\\x00\\x00\\x00\\x00\\x00'\n"
        assert own.slowest() == 5
        other.kill()
        other.wait()
        assert own.slowest() == 70
    finally:
        os.kill(int(child), signal.SIGKILL)
        own.close()


def test_what_others_left_goes_with_the_next_load_of_any_files(files, process, runtime):
    other = process(RANK, *files)
    other.kill()
    other.wait()
    assert len(list(runtime.iterdir())) == 1
    own = RankProgress(files[:1])
    assert len(list(runtime.iterdir())) == 1
    other = process(RANK, *files)
    other.kill()
    other.wait()
    own.close()
    assert list(runtime.iterdir()) == []


def test_loads_of_other_files_do_not_count(files, process):
    own = RankProgress(files)
    own.advance(70)
    process(RANK, *files[:2])
    process(RANK, *reversed(files))
    assert own.slowest() == 70
    own.close()


# --- the window -------------------------------------------------------------------------------


def test_room_is_counted_from_the_slowest(files, process):
    window = ReadingWindow(files, 60)
    other = process(RANK, *files)
    window.advance(window.position_of(files[1], 5))
    assert window.position_of(files[1], 5) == 105
    assert window.end_of(files[1]) == 150
    assert window.has_room(60, False)
    assert not window.has_room(61, True)  # the other is behind this one
    tell(other, 40)
    assert window.has_room(100, False) and not window.has_room(101, False)
    window.close()


def test_what_the_slowest_waits_for_has_room_whatever_the_window(files, process):
    process(RANK, *files)  # is as far
    window = ReadingWindow(files, 1)
    assert not window.has_room(2, False)
    assert window.has_room(2, True)
    window.close()


def test_others_are_looked_at_when_the_window_is_reached(files, monkeypatch):
    window = ReadingWindow(files, 60)
    looks = []
    monkeypatch.setattr(window._ranks, "slowest", lambda: looks.append(True) or 0)
    assert window.has_room(60, False)
    assert looks == []
    assert not window.has_room(61, False)
    assert looks == [True]
    window.close()


def test_without_a_runtime_directory_it_knows_of_itself(files, monkeypatch):
    monkeypatch.setenv("WEIGHTMAP_RUNTIME_DIR", "relative")
    window = ReadingWindow(files, 60)
    assert "must be an absolute path" in window.why_alone
    window.advance(50)
    assert window.has_room(110, False) and not window.has_room(111, False)
    window.close()


def test_a_runtime_directory_that_vanishes_is_no_fault(files, runtime):
    window = ReadingWindow(files, 60)
    for each in runtime.iterdir():
        each.unlink()
    runtime.rmdir()
    runtime.write_bytes(b"no folder")
    assert window.has_room(60, False)
    assert not window.has_room(61, False)
    assert window.why_alone != ""


# --- the reader keeps to it -------------------------------------------------------------------


def tensors_of(path, count, **more):
    return FakeCheckpoint(count, path=path, size=256 * MIB, waited_for=0, **more)


@pytest.fixture
def looks(monkeypatch):
    """Counts the looks of a reader that finds no room: after two of them it has stopped."""
    count = threading.Semaphore(0)
    has_room = ReadingWindow.has_room

    def counted(window, end, is_waited_for):
        found = has_room(window, end, is_waited_for)
        if not found:
            count.release()
        return found

    monkeypatch.setattr(ReadingWindow, "has_room", counted)

    def wait():
        while count.acquire(blocking=False):
            pass
        count.acquire()
        count.acquire()

    return wait


@pytest.fixture
def big(tmp_path):
    """The path of a file as large as ten of those tensors."""
    path = tmp_path / "big"
    with open(path, "wb") as file:
        file.truncate(10 * 256 * MIB)
    return str(path)


def test_the_reader_stops_at_the_window_until_the_consumer_comes(big, looks):
    checkpoint = tensors_of(big, 10)
    window = ReadingWindow([big], 768 * MIB)
    with WarmingAhead([(checkpoint, range(10))], True, WarmingCounts(), window) as warming:
        looks()
        assert checkpoint.warmed == [0, 1, 2]
        warming.wait_for(0, 2)
        looks()
        assert checkpoint.warmed == [0, 1, 2, 3, 4]
        warming.wait_for(0, 9)  # beyond the window, and comes all the same
        assert checkpoint.warmed == list(range(10))


def test_the_reader_waits_for_the_slowest_process_until_it_dies(big, looks, process):
    other = process(RANK, big)
    checkpoint = tensors_of(big, 10)
    window = ReadingWindow([big], 768 * MIB)
    with WarmingAhead([(checkpoint, range(10))], True, WarmingCounts(), window) as warming:
        consumer = threading.Thread(target=warming.wait_for, args=(0, 9))
        consumer.start()
        looks()
        assert checkpoint.warmed == [0, 1, 2]  # though its own consumer waits
        tell(other, 256 * MIB)
        checkpoint.wait_until_warmed(4)
        looks()
        assert checkpoint.warmed == [0, 1, 2, 3]
        other.kill()
        consumer.join()
    assert checkpoint.warmed == list(range(10))


def test_what_is_left_to_others_is_passed(big, tmp_path, looks):
    (tmp_path / "small").write_bytes(b"")
    checkpoint = tensors_of(str(tmp_path / "small"), 4)
    window = ReadingWindow([big, checkpoint.path], 512 * MIB)
    with WarmingAhead([(checkpoint, range(4))], True, WarmingCounts(), window) as warming:
        looks()
        assert checkpoint.warmed == []
        warming.leave(big)
        looks()
        assert checkpoint.warmed == [0, 1]


def test_without_a_size_it_is_half_of_what_memory_has_left(big, looks):
    checkpoint = tensors_of(big, 10, budget=2048 * MIB)
    window = ReadingWindow([big], None)
    with WarmingAhead([(checkpoint, range(10))], True, WarmingCounts(), window):
        looks()
        assert checkpoint.warmed == [0, 1, 2, 3]


def test_closing_ends_a_reader_that_waits(big, looks, runtime):
    checkpoint = tensors_of(big, 10)
    window = ReadingWindow([big], 256 * MIB)
    warming = WarmingAhead([(checkpoint, range(10))], True, WarmingCounts(), window)
    looks()
    warming.close()
    assert checkpoint.warmed == [0]
    assert list(runtime.iterdir()) == []


def test_a_reader_that_knows_of_no_other_says_so(big, monkeypatch):
    monkeypatch.setenv("WEIGHTMAP_RUNTIME_DIR", "relative")
    counts = WarmingCounts()
    window = ReadingWindow([big], 256 * MIB)
    with WarmingAhead([(tensors_of(big, 2), range(2))], True, counts, window) as warming:
        warming.wait_for(0, 1)
    (remark,) = counts.remarks
    assert remark.startswith("the window knows of this process only: ")


# --- how many threads read --------------------------------------------------------------------


@pytest.mark.parametrize("rates, expected", [
    ([100, 200, 400, 400, 400], [2, 4, 8, 8, 8, 8]),
    ([100, 200, 210, 400, 10], [2, 4, 8, 4, 4, 4]),
    ([100, 100, 900, 900], [2, 4, 2, 2, 2]),
])
def test_more_threads_as_long_as_more_comes(rates, expected):
    threads = ReadingThreads()
    counts = [threads.count]
    for rate in rates:
        threads.learn(True, rate, 1.0)
        counts.append(threads.count)
    assert counts == expected


def test_who_is_not_the_reader_has_two_threads():
    threads = ReadingThreads()
    threads.learn(True, 100, 1.0)
    threads.learn(True, 200, 1.0)
    assert threads.count == 8
    threads.learn(False, 1000, 1.0)
    assert threads.count == 2
    threads.learn(True, 100, 1.0)
    assert threads.count == 4


@pytest.mark.parametrize(
    ("is_remote", "one_reader", "expected"),
    [(True, True, [2, 4, 2, 2]), (False, True, [2] * 4), (True, False, [2] * 4)],
)
def test_the_one_reader_asks_a_server_with_more_threads(big, is_remote, one_reader, expected):
    checkpoint = tensors_of(big, 4, is_remote=is_remote)
    with WarmingAhead([(checkpoint, range(4))], one_reader, WarmingCounts()) as warming:
        warming.wait_for(0, None)
    assert checkpoint.threads == expected


def test_a_local_file_is_not_remote(tmp_path, data):
    with weightmap.open(data / "module.pt") as checkpoint:
        assert checkpoint._core.is_remote() is False


def test_a_warm_up_tells_what_memory_has_left(data):
    with weightmap.open(data / "module.pt") as checkpoint:
        assert checkpoint.warm(budget_bytes=1 << 20).budget_bytes == 1 << 20
        assert checkpoint.warm().budget_bytes > 1 << 20
