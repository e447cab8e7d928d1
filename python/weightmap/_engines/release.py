"""What becomes of files in memory when an inference engine has loaded them: some are dropped, or kept
by `weightmap hold`, beyond the end of this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from pathlib import Path

from weightmap import _core
from weightmap._engines.owned_file import OwnedFile
from weightmap._errors import Error, FileError, UnsupportedError
from weightmap._files import evict, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LONGEST_START = 10.0  # seconds until a daemon answers
_LONGEST_ANSWER = 60.0  # in which it reads the metadata of a file
_LOOK = 0.02


class EngineRelease:
    """Files that were mapped, and what is to be done with them.

    how: "keep", "node" or "hold".
    remarks: gets what could not be done.
    """

    def __init__(self, how: str, remarks: dict[str, None]) -> None:
        self._how = how
        self._remarks = remarks
        self._files: list[str] = []

    def add(self, file: str) -> None:
        self._files.append(file)

    def release(self) -> None:
        """Does what can be done now, and keeps the rest in mind for the next time."""
        if self._how == "node" and self._files:
            with contextlib.suppress(Error):  # of files that this user may not write to
                self._files = list(_not_evicted(self._files))
        elif self._how == "hold" and self._files:
            files, self._files = self._files, []
            try:
                hold(files)
            except (Error, OSError) as error:
                text = error.message if isinstance(error, Error) else str(error)
                self._remarks[f"not held: {text}"] = None


def _not_evicted(files: Iterable[str]) -> Iterable[str]:
    """Drops from the page cache what no other process has mapped."""
    files = list(files)
    mapped = processes(*files).mapped
    others = {os.path.realpath(each.file) for each in mapped if each.process != os.getpid()}
    for file in files:
        if os.path.realpath(file) in others or evict(file).cached_after != 0:
            yield file


def hold(files: Sequence[str]) -> None:
    """Asks the daemon of this user and runtime directory; starts it if there is none.

    It brings in, in the background, what is not in memory, and ends by SIGTERM only. Raises
    weightmap.Error, and OSError if it does not answer in time.
    """
    with _daemon() as daemon, daemon.makefile("rb") as answers:
        for file in files:
            request = {"op": "hold", "file": os.path.abspath(file)}
            daemon.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(answers.readline() or b"{}")
            if not answer.get("ok"):
                why = answer.get("error", {}).get("message", "weightmap hold gave no answer")
                raise FileError(why, file=file)


def _daemon() -> socket.socket:
    """Connected to it. Of many that find none, one starts it."""
    until = time.monotonic() + _LONGEST_START
    found = _connected(until)
    starting: OwnedFile | None = None
    try:
        while found is None:
            if time.monotonic() > until:
                raise FileError(f"weightmap hold did not answer within {_LONGEST_START:.0f} s")
            if starting is None:
                starting = OwnedFile.take("hold-start")
                # Since another may have started it just before.
                if starting is not None and (found := _connected(until)) is None:
                    _start()
            if found is None:
                time.sleep(_LOOK)
                found = _connected(until)
    finally:
        if starting is not None:
            starting.close()
    return found


def _connected(until: float) -> socket.socket | None:
    """None: there is no daemon. Waits while it has as many callers as may wait for it."""
    path = os.path.join(os.fsdecode(_core.runtime_directory()), "hold.sock")
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_LONGEST_ANSWER)
        try:
            connection.connect(path)
            return connection
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return None
        except BlockingIOError:
            connection.close()
            if time.monotonic() > until:
                raise
        time.sleep(_LOOK)


def _start() -> None:
    """As nobody's child, in a session of its own: signals to the engine do not reach it."""
    tool = Path(__file__).parents[1] / "bin" / "weightmap"
    if not tool.exists():
        raise UnsupportedError("this package was built without the command line tool")
    in_background = '"$@" >/dev/null 2>&1 </dev/null &'
    subprocess.run(
        ["/bin/sh", "-c", in_background, "sh", tool, "hold"],
        cwd="/",
        start_new_session=True,
        check=True,
    )
