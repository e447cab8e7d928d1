"""weightmap.snapshot_here(): where `weightmap run --snapshot` takes its snapshot, and `--template`
leaves a fork."""

from __future__ import annotations

import os
import sys
import time

from weightmap._errors import InvalidArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping
    from typing import Any

_VARIABLE = "WEIGHTMAP_SNAPSHOT"  # tools/snapshot/meeting_point.hpp is the other side
_TEMPLATE_VARIABLE = "WEIGHTMAP_TEMPLATE"  # a file; tools/template/template_start.cpp
_POLL = 0.002  # seconds
_LONGEST_DUMP = 600.0  # seconds
# Of `weightmap run`, which is process 1 here, at its own start: /proc/self/environ has what a script
# between the two has set as well, and nothing where the program has written a title over it.
_STARTED_WITH = "/proc/1/environ"


def snapshot_here(new: Iterable[str] = ()) -> bool:
    """Says that this process is ready, and returns once `weightmap run --snapshot` has dumped it.

    Returns False in the process that was started, and True in each process that is restored from
    the snapshot: a restored start begins where this call returns. Put it behind imports, the load of
    the model and its first use, and before the first connection, key or log file that belongs to
    one process alone. In a program that was not started by `weightmap run --snapshot` it returns
    False at once. Only the first call makes a snapshot.

    `new` has the names of the environment variables that the program reads afterwards only, as in
    snapshot_here(new=["PORT"]). A start in which any other variable differs from what it was in the
    first one is not restored, since what the program made of it would be that of the first start:
    it says which, and makes a snapshot of its own.

    In a restored process os.environ has the variables of the new start by then, but for those that
    the program itself, or a script before it, had set or changed. The generators of random numbers
    that all processes of a snapshot would share are seeded anew: `random`, that of `ssl`, and the
    global ones of numpy and torch where these are imported. Other generators (random.Random(),
    numpy's default_rng(), torch.Generator()) go on alike in all of them.

    Under `weightmap run --template` it leaves a fork of this process behind, and returns True in
    the forks of that which later starts are; what cannot be forked is said on standard error.

    A program that has become another user returns False, too: the call is for those who started it.
    To be called by one thread; the others are dumped in the middle of what they do.
    """
    names = _checked_names(new)
    facts = os.environ.pop(_TEMPLATE_VARIABLE, "")
    if facts:
        return _is_forked(facts, names)
    folder = os.environ.get(_VARIABLE)
    if not folder or not os.path.isdir(folder):
        return False
    try:
        with open(_STARTED_WITH, "rb") as file:  # behind a restore it is that of the new start
            before = _variables(file.read())
        call = os.path.join(folder, "called")
        with open(f"{call}.new", "wb") as file:
            file.write(b"".join(os.fsencode(name) + b"\0" for name in names))
        os.rename(f"{call}.new", call)  # so that it is there as a whole
    except PermissionError:  # this process has given up the rights that it was started with
        return False
    answer = _wait_for_answer(os.path.join(folder, "answer"))
    if not answer.startswith(b"restored\0"):
        return False
    _take_over(os.environb, before, _variables(answer))
    _seed_generators()
    return True


def _is_forked(facts: str, names: list[str]) -> bool:
    """Under `weightmap run --template`: True in a fork of the template that is left here."""
    from weightmap import _template

    now = _template.fork_here(facts, names)
    if now is None:
        return False
    began: Any = sys.modules["weightmap._opened_files"]
    _take_over(os.environb, began.started_with, now)
    _seed_generators()
    return True


def _checked_names(names: Iterable[str]) -> list[str]:
    if isinstance(names, (str, bytes)):
        raise InvalidArgumentError(f"new={names!r} is one text; expected a list of names, [{names!r}]")
    checked = list(names)
    for name in checked:
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise InvalidArgumentError(f"new has {name!r}, which is no name of a variable")
    return checked


def _wait_for_answer(path: str) -> bytes:
    end = time.monotonic() + _LONGEST_DUMP
    while time.monotonic() < end:
        try:
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            time.sleep(_POLL)
    return b""


def _variables(block: bytes) -> dict[bytes, bytes]:
    """From texts that end with a zero byte each; those without "=" are no variables."""
    pairs = (entry.partition(b"=") for entry in block.split(b"\0"))
    return {name: text for name, equals, text in pairs if equals and name}


def _take_over(
    environment: MutableMapping[bytes, bytes],
    before: Mapping[bytes, bytes],
    now: Mapping[bytes, bytes],
) -> None:
    """Gives an environment the new variables, but for those that differ from what they were."""
    for name in {*before, *now} - {os.fsencode(_VARIABLE)}:
        if environment.get(name) != before.get(name):
            continue
        if name in now:
            environment[name] = now[name]
        else:
            environment.pop(name, None)


def _seed_generators() -> None:
    """Those of the modules that are there; imports none, as `numpy.random` of numpy would do."""
    names = ("ssl", "random", "numpy.random", "torch")
    ssl, random, numpy_random, torch = (sys.modules.get(name) for name in names)
    if ssl:
        ssl.RAND_add(os.urandom(48), 48.0)
    if random:
        random.seed()
    if numpy_random:
        numpy_random.seed()
    if torch:
        torch.seed()
