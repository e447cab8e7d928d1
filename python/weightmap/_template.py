"""The process that snapshot_here() leaves behind under `weightmap run --template`: a fork of the
first start, of which later starts are forks. tools/template/ is the other side.

A start connects to its socket, and the answer is a fork of the template: it says what the template
was made of, and becomes the command if the start finds that unchanged. The template waits for it
and tells the start how it ended.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import io
import json
import os
import select
import signal
import socket
import struct
import sys
import time

from weightmap import _obstacles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAME = b"weightmap template"  # that `ps` shows
_LENGTH = struct.Struct("=I")
_STATUS = struct.Struct("=i")  # of wait(2)
_SHORTEST_SLEEP = 1.0  # seconds between two looks at SIGTERM and at the time
_PAUSE = 0.05  # seconds
_HANDSHAKE = 30.0  # seconds that a start may take to decide
_MOST_SIBLINGS = 1000  # files of one folder


def fork_here(path: str, names: list[str]) -> dict[bytes, bytes] | None:
    """Leaves a template behind, and returns None; in a later start, its variables.

    `path` has the facts, and `names` are the variables that are read afterwards only.
    """
    try:
        with open(path, encoding="utf-8") as file:
            facts = json.load(file)
        os.unlink(path)
    except (FileNotFoundError, PermissionError):
        return None  # another process of the command has called; this one has become another user
    reason = _first_reason(facts)
    if reason:
        _refuse(reason)
        return None
    manifest = {**facts, "new_variables": names, "files": _states()}
    for file in manifest["files"]:
        if max(file["mtime_ns"], file["ctime_ns"]) >= facts["began_ns"]:
            _refuse(f"{file['path']} was changed while the command started")
            return None
    sys.modules["weightmap._opened_files"].stop()
    text = json.dumps(manifest).encode()
    connection = _fork_template(os.path.dirname(path), text, facts["idle_s"])
    return _take_over_start(connection, names) if connection else None


def _refuse(reason: str) -> None:
    print(f"weightmap run: no template is made: {reason}", file=sys.stderr, flush=True)


def _first_reason(facts: dict[str, Any]) -> str:
    if "weightmap._opened_files" not in sys.modules:
        return (
            "this Python has not run weightmap_patch.pth, which belongs in a folder of "
            "site-packages, so that nothing tells which files were read"
        )
    if facts["process"] != os.getpid():
        return f"process {os.getpid()} has called, and the command is process {facts['process']}"
    if not hasattr(os, "pidfd_open"):
        return "this system has no pidfd_open()"
    return _obstacles.first_obstacle(facts["standard"])


# --- what it is made of ---


def _states() -> list[dict[str, Any]]:
    """Path, size, and times of each file that tells whether the program is still the same."""
    opened: Any = sys.modules["weightmap._opened_files"]
    data, code = _mapped_files()
    paths = {*code, *data, *opened.paths}
    for module in list(sys.modules.values()):
        source = getattr(module, "__file__", None)
        if isinstance(source, str):
            paths.add(os.path.abspath(source))
    for folder in {os.path.dirname(path) for path in data}:  # config.json, which native code read
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            paths.update([entry.path for entry in entries if entry.is_file()][:_MOST_SIBLINGS])
    states = []
    for path in sorted(paths):
        if path.startswith(("/proc/", "/sys/", "/dev/")) or _has_source(path):
            continue
        with contextlib.suppress(OSError):
            status = os.stat(path)
            if os.path.isfile(path):
                states.append(
                    {
                        "path": path,
                        "size": status.st_size,
                        "mtime_ns": status.st_mtime_ns,
                        "ctime_ns": status.st_ctime_ns,
                    }
                )
    return states


def _has_source(path: str) -> bool:
    """True for bytecode, of which Python compares the source."""
    return os.path.basename(os.path.dirname(path)) == "__pycache__"


def _mapped_files() -> tuple[set[str], set[str]]:
    """Those of data, and those of code."""
    data: set[str] = set()
    code: set[str] = set()
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            fields = line.rstrip("\n").split(maxsplit=5)
            if len(fields) > 5 and fields[5].startswith("/"):
                (code if "x" in fields[1] else data).add(fields[5])
    return data - code, code


# --- the first start ---


def _fork_template(folder: str, manifest: bytes, idle: float) -> socket.socket | None:
    """Returns None in this process, and the connection to a later start in a fork for it."""
    _flush_output()
    verdict, sender = os.pipe()
    middle = os.fork()
    if middle:
        threads = _obstacles.remaining_threads()
        os.close(verdict)
        with contextlib.suppress(BrokenPipeError):
            os.write(sender, b"" if threads else b"good")
        os.close(sender)
        with contextlib.suppress(ChildProcessError):  # where SIGCHLD is ignored
            os.waitpid(middle, 0)
        if threads:
            _refuse(threads)
        return None
    try:
        _open_again()  # while this program stands still
        if os.fork():  # so that the template is no child that this program does not expect
            os._exit(0)
        os.close(sender)
        if os.read(verdict, 4) != b"good":
            os._exit(0)
        os.close(verdict)
        connection = _Template(folder, manifest, idle).serve()
    except BaseException as error:
        with contextlib.suppress(BaseException):
            _refuse(f"{type(error).__name__}: {error}")
        os._exit(1)
    if not connection:
        os._exit(0)
    return connection


def _flush_output() -> None:
    """So that no fork writes once more what this process has only begun to write."""
    import ctypes

    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        if stream:
            stream.flush()
    ctypes.CDLL(None).fflush(None)  # of C code


class _Template:
    """One thread, which blocks all signals: it looks at them between two waits."""

    def __init__(self, folder: str, manifest: bytes, idle: float) -> None:
        os.setsid()
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self._manifest, self._idle = manifest, idle
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._socket = f"/proc/self/fd/{self._folder}/socket"  # a path that is short enough
        self._listener: socket.socket | None = self._listen()
        self._inode = os.stat(self._socket).st_ino
        # By pidfd: a fork, and the connection to its start until that has ended.
        self._running: dict[int, tuple[int, socket.socket | None]] = {}
        self._used = time.monotonic()
        with open(os.devnull, "r+b", 0) as null:
            for number in range(3):
                os.dup2(null.fileno(), number)
        self._title = _Title(_NAME)

    def serve(self) -> socket.socket | None:
        """Returns None when the template ends, and a connection in a fork for a start."""
        while self._listener or self._running:
            poll = select.poll()
            if self._listener:
                poll.register(self._listener, select.POLLIN)
            for process, (_, connection) in self._running.items():
                poll.register(process, select.POLLIN)
                if connection:
                    poll.register(connection, select.POLLRDHUP)
            ready = {number for number, _ in poll.poll(_SHORTEST_SLEEP * 1000)}
            for process, (number, connection) in list(self._running.items()):
                if process in ready:
                    self._tell_end(process)
                elif connection and connection.fileno() in ready:
                    os.kill(number, signal.SIGKILL)  # as the start was
                    connection.close()
                    self._running[process] = number, None
            if self._listener and self._listener.fileno() in ready:
                accepted = self._accept(self._listener)
                if accepted and self._fork(accepted):
                    return accepted
            elif self._is_over():
                self._leave()
        return None

    def _listen(self) -> socket.socket:
        fcntl.flock(self._folder, fcntl.LOCK_EX)
        _end_at(self._socket)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        new = f"/proc/self/fd/{self._folder}/new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        listener.bind(new)
        listener.listen(64)
        listener.setblocking(False)
        os.rename(new, self._socket)
        fcntl.flock(self._folder, fcntl.LOCK_UN)
        return listener

    @staticmethod
    def _accept(listener: socket.socket) -> socket.socket | None:
        try:
            connection = listener.accept()[0]
        except OSError:  # it has left, or there are too many open files
            time.sleep(_PAUSE)
            return None
        return connection if _is_own(connection) else None

    def _fork(self, connection: socket.socket) -> bool:
        """Returns True in the new process, which has nothing that is the template's."""
        self._used = time.monotonic()
        process = 0
        try:
            process = os.fork()
            if process:
                self._running[os.pidfd_open(process)] = process, connection
                return False
        except OSError:  # no room for a process; the start finds the connection closed
            if process:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
            connection.close()
            return False
        os.setsid()
        for number, (_, other) in self._running.items():
            os.close(number)
            if other:
                other.close()
        if self._listener:
            self._listener.close()
        os.close(self._folder)
        self._title.restore()
        connection.settimeout(_HANDSHAKE)
        try:
            connection.sendall(_LENGTH.pack(len(self._manifest)) + self._manifest)
        except OSError:
            os._exit(0)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        return True

    def _tell_end(self, process: int) -> None:
        number, connection = self._running.pop(process)
        os.close(process)
        _, status = os.waitpid(number, 0)
        if connection:
            with contextlib.suppress(OSError):
                connection.send(_STATUS.pack(status), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            connection.close()
        self._used = time.monotonic()

    def _is_over(self) -> bool:
        is_unused = not self._running and time.monotonic() - self._used > self._idle
        return is_unused or signal.SIGTERM in signal.sigpending()

    def _leave(self) -> None:
        """Takes no further start. The template stays until those that run have ended."""
        if self._listener:
            self._listener.close()
            self._listener = None
            with contextlib.suppress(OSError):
                if os.stat(self._socket).st_ino == self._inode:
                    os.unlink(self._socket)


def _end_at(path: str) -> None:
    """Has the template that listens there take no further start."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other, contextlib.suppress(OSError):
        other.connect(path)
        if _is_own(other):
            os.kill(_peer(other)[0], signal.SIGTERM)


def _peer(connection: socket.socket) -> tuple[int, int, int]:
    size = struct.calcsize("=iII")
    return struct.unpack("=iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))


def _is_own(connection: socket.socket) -> bool:
    return _peer(connection)[1] == os.geteuid()


class _Title:
    """The words that `ps` shows of this process, while it is a template."""

    def __init__(self, title: bytes) -> None:
        self._start, self._words, self._name = 0, b"", b""
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open("/proc/self/comm", "rb") as file:
                self._name = file.read().strip()
            with open("/proc/self/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            start, end = int(fields[45]), int(fields[46])  # of the arguments, proc(5)
            with open("/proc/self/mem", "r+b", 0) as memory:
                memory.seek(start)
                self._words = memory.read(end - start)
            self._start = start
            shown = title + b": " + self._words.replace(b"\0", b" ")
            self._write(title[:15], shown[: len(self._words) - 1].ljust(len(self._words), b"\0"))

    def restore(self) -> None:
        with contextlib.suppress(OSError):
            self._write(self._name, self._words)

    def _write(self, name: bytes, words: bytes) -> None:
        with open("/proc/self/comm", "r+b", 0) as file:
            file.write(name)
        if self._start:
            with open("/proc/self/mem", "r+b", 0) as memory:
                memory.seek(self._start)
                memory.write(words)


# --- a later start ---


def _take_over_start(connection: socket.socket, names: list[str]) -> dict[bytes, bytes]:
    """Gives this process the streams of a start. Returns the variables; ends where it declines."""
    try:
        streams, variables = _receive(connection)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        _open_again()
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=os.isatty(1))
        connection.sendall(_LENGTH.pack(os.getpid()))
        connection.close()
    except (OSError, EOFError):
        os._exit(0)
    began: Any = sys.modules["weightmap._opened_files"]
    same = dict(began.started_with)
    for name in names:
        same.pop(os.fsencode(name), None)
    return {**same, **variables}


def _receive(connection: socket.socket) -> tuple[list[int], dict[bytes, bytes]]:
    """The start's standard streams, and its variables of which the template has none."""
    numbers = array.array("i")
    space = socket.CMSG_SPACE(3 * numbers.itemsize)
    length, control, _, _ = connection.recvmsg(_LENGTH.size, space)
    for level, kind, content in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(content)
    if len(length) != _LENGTH.size or len(numbers) != 3:
        raise EOFError
    left, block = _LENGTH.unpack(length)[0], b""
    while len(block) < left:
        part = connection.recv(left - len(block))
        if not part:
            raise EOFError
        block += part
    pairs = (entry.partition(b"=") for entry in block.split(b"\0"))
    return list(numbers), {name: text for name, equals, text in pairs if equals and name}


def _open_again() -> None:
    """Gives each file an offset of its own, which is where that of the process it comes from is."""
    for number in _obstacles.open_descriptors():
        path = f"/proc/self/fd/{number}"
        if os.path.isfile(path):
            again = os.open(path, os.O_RDONLY)
            os.lseek(again, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
            os.dup2(again, number, os.get_inheritable(number))
            os.close(again)
