"""weightmap.follow(): each next version of a model, made from deltas once on a node."""

from __future__ import annotations

import os

from weightmap import _core
from weightmap._deltas import apply_delta
from weightmap._errors import LimitExceededError
from weightmap._made_versions import Hold, MadeVersions
from weightmap._published import Published, is_later, key_of
from weightmap._watch import check_interval, wait_until

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from weightmap._published import Key
    from weightmap._typing import PathLike


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
        published = os.path.abspath(os.fsdecode(deltas))
        beside = os.path.dirname(model) if place is None else os.path.abspath(os.fsdecode(place))
        base = os.path.realpath(model)
        version = _core.model_version(os.fsencode(base))
        self._name = os.path.basename(model)
        self._published = Published(published)
        for _ in self._published:  # a folder that cannot be listed is told now
            pass
        self._made = MadeVersions(model, base, published, beside)
        self._interval = interval
        self._patience = patience
        self._past: Hold | None = None  # of the one before `last`, which may still be served
        self._had: set[Key] = set()  # versions, which do not come again
        self._serve(version, base, None)
        for made, folder in self._made:
            hold = Hold.take(folder)
            if hold is not None and is_later(made, self.last.version):
                self._serve(made, folder, hold)

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
        version, folder, chain = found
        if chain:
            version, folder = self._make(folder, chain)
        hold = Hold.take(folder) if folder in self._made else None
        if hold is None and folder in self._made:  # removed meanwhile, for a later one
            return False
        self._past = self._hold
        self._serve(version, folder, hold)
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

    def _serve(self, version: str, folder: str, hold: Hold | None) -> None:
        self.last, self._hold = Version(version, folder), hold
        self._had.add(key_of(version))

    def _make(self, base: str, chain: list[tuple[str, str]]) -> tuple[str, str]:
        """The version that a chain makes of its base, or one on the way there, and its folder."""
        version = chain[-1][0]
        folder = self._made.folder_of(version)
        self._made.make_room({self.last.folder, base, folder}, self._patience, self._interval)
        try:
            apply_delta(base, [path for _, path in chain], folder, once=True, durable=False)
        except LimitExceededError:  # of the memory for so many at once
            if len(chain) == 1:
                raise
            return self._make(base, chain[: len(chain) // 2])
        return version, folder

    def _newest(self) -> tuple[str, str, list[tuple[str, str]]] | None:
        """The latest version that can be had: what it is, its base, and the deltas in between.

        What other followers have made is taken first, as it is: so there is no third version beside
        it and `last`, and who waits for `last` to go waits no longer.
        """
        others = [made for made in self._made if is_later(made[0], self.last.version)]
        if others:
            version, folder = max(others, key=lambda made: int(made[0]))
            return version, folder, []
        deltas: dict[Key, tuple[str, str]] = {}  # by the version that they are for
        wholes = [(self.last.version, self.last.folder)]
        for path, facts in self._published:
            version = facts.get("version", "")
            if "delta_encoding" in facts:
                base = key_of(facts.get("base_version", ""))
                if base not in deltas or is_later(version, deltas[base][0]):
                    deltas[base] = version, path
            elif is_later(version, self.last.version):
                wholes.append((version, path))
        found = [(*self._last_of(version, deltas), folder) for version, folder in wholes]
        can_be_had = [(version, folder, chain) for version, chain, folder in found
                      if chain or folder != self.last.folder]
        newest = None
        for each in can_be_had:
            if newest is None or is_later(each[0], newest[0]):
                newest = each
        return newest

    def _last_of(self, version: str,
                 deltas: dict[Key, tuple[str, str]]) -> tuple[str, list[tuple[str, str]]]:
        """The last version that deltas make of this one, and these; none leads back."""
        passed = {*self._had}
        chain: list[tuple[str, str]] = []
        while step := deltas.get(key_of(version)):
            if key_of(step[0]) in passed or is_later(version, step[0]):
                break
            version = step[0]
            passed.add(key_of(version))
            chain.append(step)
        return version, chain


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
        of their own there, NAME.followed-..., which followers share that give `model` and `deltas`
        by the same paths, and in which nothing else belongs. A version that no follower holds any
        more is removed there before the next one is made, so that there are two at a time. Those
        that were made of other files by the path of the model, say of an earlier run, are not used.
    interval: seconds between two looks of wait() and of an iteration.
    patience: seconds to wait for the followers of older versions before a third one is made.

    Raises weightmap.Error if there is no model now, or no folder of deltas, or if the folder of the
    versions is a link, or another user's where all may write. Any thread may call it; a forked
    child makes its own.
    """
    return Follow(model, deltas, place, interval, patience)
