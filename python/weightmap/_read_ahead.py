"""weightmap.prefetch(): a process beside this one reads while this one imports."""

from __future__ import annotations

import errno
import os
import sys

from weightmap._errors import FileError, InvalidArgumentError, MissingFileError, UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from weightmap._typing import PathLike

_FAILED, _WRONG_USAGE = 1, 2  # exit codes of the tool
_NONE = "there is no such file, folder, or model in the local cache of huggingface_hub"


def prefetch(model: PathLike) -> None:
    """Has a model's weights read into the page cache, from now on, by a process beside this one.

    Put it before the imports of a program, which take longer than it does: the weights are read
    while torch is imported. Returns within milliseconds; nothing of this process waits, holds the
    GIL, or has to be waited for. What is cached is not read again. The process reads what
    `weightmap run` would: first what is known of this program's start, where `weightmap run` has
    learned one, then the small files beside the weights, then the weights, within the memory that
    machine and cgroup have left. It ends when it has read all, or this process has ended.

    model: a file, a folder or an index, or "org/name" in the local cache of huggingface_hub.

    Raises MissingFileError if there is none of these, UnsupportedError in a package that was built
    without the command line tool. What is wrong with the files is told when they are opened.

    Any thread may call it, and a forked child, for which it is a call of its own.
    """
    name = os.fsencode(model)
    if b"\0" in name:
        raise InvalidArgumentError("a path has no NUL")
    if not name:
        raise MissingFileError(_NONE, file="", errno=errno.ENOENT)
    code, answer = _read_ahead([b"--model=" + name])
    if code == _FAILED:
        import json

        error = json.loads(answer)["error"]
        if error["code"] == "not_found":
            raise MissingFileError(_NONE, file=os.fsdecode(name), errno=errno.ENOENT)
        raise FileError(error["message"])
    if code != 0:
        raise UnsupportedError("this package was built without `weightmap run`")


def read_named_models() -> None:
    """As prefetch() for the models that this program's command line names, if any. Never fails."""
    words = sys.orig_argv[2:]
    # The tool looks at the files; this keeps it from being started for nothing.
    may_name_one = any(sign in word for word in words for sign in "/.=")
    if may_name_one and "--multiprocessing-fork" not in words:
        try:
            _read_ahead([])
        except OSError:  # no process: then nothing is read ahead
            pass


def _read_ahead(options: list[bytes]) -> tuple[int, bytes]:
    """Returns the tool's exit code, and what it printed."""
    tool = os.path.join(os.path.dirname(__file__), "bin", "weightmap")
    process_option = f"--for={os.getpid()}"
    words = [sys.executable or sys.orig_argv[0], *sys.orig_argv[1:]]
    command: list[str | bytes] = [tool, "read-ahead", "--json", process_option]
    command += [*options, "--", *words]
    reading, writing = os.pipe()
    with open(reading, "rb") as pipe:
        try:
            process = os.posix_spawn(
                tool,
                command,
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, writing, 1),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
            )
        except FileNotFoundError:
            return _WRONG_USAGE, b""
        finally:
            os.close(writing)
        printed = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), printed
