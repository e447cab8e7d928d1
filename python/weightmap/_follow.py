"""weightmap.follow(): each next version of a model, made from deltas once on a node."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import time

from weightmap import _core
from weightmap._deltas import apply_delta
from weightmap._errors import Error, FileError, MissingFileError
from weightmap._watch import check_interval, wait_until

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import torch

    from weightmap._typing import PathLike

    Key = int | str  # of a version: equal for "7" and "000007"

_INDEX = "model.safetensors.index.json"
_RECORD = "weightmap_version.json"  # apply_delta() writes it last of all


class Version:
    """One version of a model that is followed: its name, and its folder.

    The folder is whole, and never written to again. Any thread may use it, and a forked child.
    """

    def __init__(self, version: str, folder: str) -> None:
        self.version = version
        self.folder = folder

    def copy_into(self, module: torch.nn.Module) -> None:
        """Copies its tensors into the parameters and buffers of a module, by their names.

        All names and shapes are compared first: InvalidArgumentError leaves the module as it was.
        A name that the version has not may be one of a tensor that the module has under another
        name, too, as tied weights are. Nothing else may use the module meanwhile.
        """
        from weightmap._torch.copy_into import copy_into

        copy_into(self.folder, module)

    def __repr__(self) -> str:
        return f"<weightmap.Version {self.version} in {self.folder}>"


class Follow:
    """What follow() returns. Its first version is the one that is there as it is made.

        versions = weightmap.follow("/models/llama", "/mnt/deltas", place="/dev/shm")
        serve(versions.last)
        for version in versions:
            serve(version)

    An iteration gives each version that comes; it never ends, and waits in between. One that comes
    while another is served is passed over if a later one is there by then. For one thread at a time.
    """

    def __init__(self, model: PathLike, deltas: PathLike, place: PathLike | None, interval: float,
                 patience: float) -> None:
        check_interval(interval)
        model = os.path.abspath(os.fsdecode(model))
        self._name = os.path.basename(model)
        self._deltas = os.fsdecode(deltas)
        beside = os.path.dirname(model) if place is None else os.fsdecode(place)
        # A folder of this model alone, for what is in it is removed.
        of_model = hashlib.sha256(os.fsencode(model)).hexdigest()[:16]
        self._place = os.path.join(beside, f"{self._name}.followed-{of_model}")
        self._interval = interval
        self._patience = patience
        self._read: dict[str, tuple[int, dict[str, str]]] = {}  # indexes, which stay as they are
        base = os.path.realpath(model)
        self.last = Version(_core.model_version(os.fsencode(base)), base)
        self._had = {_key(self.last.version)}  # versions, which do not come again
        for _ in self._indexes():  # a folder that cannot be listed is told now
            pass
        os.makedirs(self._place, exist_ok=True)
        self._hold: _Hold | None = None  # of `last`
        self._past: _Hold | None = None  # of the one before, which may still be served
        self._begin_with_newest()

    def changed(self) -> bool:
        """Whether a later version is there: then it is `last`.

        Makes it from its deltas, unless another process of this node has done so or does so now,
        for which it waits. What fails is raised, and tried again by the next call. From this call
        on the version before `last` may be removed; who has its tensors keeps them.
        """
        self._past = None
        found = self._newest()
        if found is None:
            return False
        version, base, chain = found
        folder = base if not chain else self._folder_of(version)
        if chain:
            self._make_room({self.last.folder, folder})
            apply_delta(base, chain, folder, once=True, durable=False)
        hold = _Hold.take(folder)
        if hold is None and os.path.dirname(folder) == self._place:  # removed meanwhile, for a later one
            return False
        self._past = self._hold
        self._serve(Version(version, folder), hold)
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for a later version; False after `timeout` seconds without one."""
        return wait_until(self.changed, self._interval, timeout)

    def __iter__(self) -> Iterator[Version]:
        while True:
            self.wait()
            yield self.last

    def __repr__(self) -> str:
        return f"<weightmap.Follow of {self._name}, at version {self.last.version}>"

    def _serve(self, version: Version, hold: _Hold | None) -> None:
        self.last, self._hold = version, hold
        self._had.add(_key(version.version))

    def _folder_of(self, version: str) -> str:
        is_name = re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", version)
        shown = version if is_name else hashlib.sha256(version.encode()).hexdigest()
        return os.path.join(self._place, f"{self._name}@{shown}")

    def _made(self) -> Iterator[tuple[str, str]]:
        """The versions that followers have made here: version and folder."""
        for name in os.listdir(self._place):
            version = _json(os.path.join(self._place, name, _RECORD)).get("version")
            if isinstance(version, str) and not name.startswith("."):
                yield version, os.path.join(self._place, name)

    def _begin_with_newest(self) -> None:
        for version, folder in self._made():
            hold = _Hold.take(folder)
            if hold is not None and _is_later(version, self.last.version):
                self._serve(Version(version, folder), hold)

    def _newest(self) -> tuple[str, str, list[str]] | None:
        """The latest version that can be had: what it is, its base, and the deltas in between."""
        deltas: dict[Key, tuple[str, str]] = {}  # by the version that they are for
        starts = [(self.last.version, self.last.folder)]
        starts += [made for made in self._made() if _is_later(made[0], self.last.version)]
        for path, facts in self._indexes():
            version = facts.get("version", "")
            if "delta_encoding" in facts:
                base = _key(facts.get("base_version", ""))
                if base not in deltas or _is_later(version, deltas[base][0]):
                    deltas[base] = version, path
            elif _is_later(version, self.last.version):
                starts.append((version, path))
        found: tuple[str, str, list[str]] | None = None
        for version, folder in starts:
            chain: list[str] = []
            passed = {*self._had}
            while (step := deltas.get(_key(version))) and _key(step[0]) not in passed:
                version, path = step
                passed.add(_key(version))
                chain.append(path)
            is_new = folder != self.last.folder if not chain else version != self.last.version
            if is_new and (found is None or _is_later(version, found[0])):
                found = version, folder, chain
        return found

    def _indexes(self) -> Iterator[tuple[str, dict[str, str]]]:
        """The folders of deltas and of whole versions, each with the metadata of its index."""
        try:
            names = os.listdir(self._deltas)
        except OSError as error:
            kind = MissingFileError if isinstance(error, FileNotFoundError) else FileError
            raise kind(f"cannot list the deltas: {error.strerror}", file=self._deltas,
                       errno=error.errno) from None
        paths = sorted(os.path.join(self._deltas, name) for name in names if not name.startswith("."))
        for path in paths:
            index = os.path.join(path, _INDEX)
            try:
                written = os.stat(index).st_mtime_ns
            except OSError:  # is not published yet
                continue
            known = self._read.get(path)
            if known is None or known[0] != written:
                facts = _texts(_json(index).get("metadata"))
                if "delta_encoding" not in facts:
                    facts = {"version": _version_in(path)}
                self._read[path] = known = written, facts
            yield path, known[1]

    def _make_room(self, kept: set[str]) -> None:
        """Removes the versions that no follower holds. Waits a while for those that are held."""
        end = time.monotonic() + self._patience
        while True:
            others = [folder for _, folder in self._made() if folder not in kept]
            if all([_remove_unheld(folder) for folder in others]) or time.monotonic() > end:
                return
            time.sleep(min(0.02, self._interval))


def follow(model: PathLike, deltas: PathLike, *, place: PathLike | None = None,
           interval: float = 0.2, patience: float = 30.0) -> Follow:
    """Each next version of a model, from the deltas that a trainer publishes.

    When: a process serves a model that changes often. Any number of processes of a node may follow
    it: one of them makes each version, by apply_delta(), the others wait for it and share its
    memory. If that one dies, another does it.

    model: the folder of the model, or a link to it, safetensors: the first version, unless the
        followers of this node have made a later one.
    deltas: the folder in which the trainer publishes: weight_v000001 and so on, deltas or whole
        versions, each complete once its index is there.
    place: a folder for the versions, say /dev/shm; else that of `model`. They are made in a folder
        of their own there, NAME.followed-..., which followers share that give `model` by the same
        path, and in which nothing else belongs. A version that no follower holds any more is
        removed there before the next one is made, so that there are two at a time.
    interval: seconds between two looks of wait() and of an iteration.
    patience: seconds to wait for the followers of older versions before a third one is made.

    Raises weightmap.Error if there is no model now, or no folder of deltas. Any thread may call it; a forked child makes its
    own.
    """
    return Follow(model, deltas, place, interval, patience)


class _Hold:
    """A shared lock on a version, which ends with the object and with the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)

    @staticmethod
    def take(folder: str) -> _Hold | None:
        """None if it is no version of a follower, or is removed now."""
        path = os.path.join(folder, _RECORD)
        try:
            hold = _Hold(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            fcntl.flock(hold._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            is_there = os.path.samestat(os.fstat(hold._descriptor), os.stat(path))
        except OSError:
            return None
        return hold if is_there else None


def _remove_unheld(folder: str) -> bool:
    path = os.path.join(folder, _RECORD)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True  # another has removed it
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.remove(path)  # first of all: without it the folder is no version
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return False
    except OSError:
        pass
    finally:
        os.close(descriptor)
    return True


def _json(path: str) -> dict[str, Any]:
    """Empty for what is no regular file of at most 100 MB with an object."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > 100_000_000:
            return {}
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _texts(metadata: object) -> dict[str, str]:
    if not isinstance(metadata, dict):
        return {}
    return {key: text for key, text in metadata.items() if isinstance(text, str)}


def _version_in(path: str) -> str:
    """Of a whole version; empty if it cannot be told, or opened."""
    try:
        return _core.model_version(os.fsencode(path))
    except Error:
        return ""


def _key(version: str) -> Key:
    """As the library compares versions: numbers are of 64 bits."""
    is_number = version.isascii() and version.isdecimal() and len(version) <= 200
    number = int(version) if is_number else 1 << 64
    return number if number < 1 << 64 else version


def _is_later(version: str, than: str) -> bool:
    """False of versions that are no numbers, which have no order."""
    mine, other = _key(version), _key(than)
    return isinstance(mine, int) and isinstance(other, int) and mine > other
