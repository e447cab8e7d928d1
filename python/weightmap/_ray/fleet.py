"""hold(), local() and the Fleet: what the processes of a fleet call."""

from __future__ import annotations

import contextlib
import os

import ray

from weightmap._errors import Error, InvalidArgumentError
from weightmap._ray.calls import NAMESPACE, answer
from weightmap._ray.directory import Directory
from weightmap._ray.node_files import NodeFiles, checked_name
from weightmap._ray.records import Request
from weightmap._ray.stored import name_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Literal

    from weightmap._ray.records import NodeStatus
    from weightmap._ray.stored import Opener

_THE_HEAD = {"node:__internal_head__": 0.001}  # a resource that Ray gives to the head alone
_CALLS = 10_000  # at a time


class Fleet:
    """A checkpoint that is held on the nodes of a Ray cluster.

    A name, and no more: it may be pickled, and passed to tasks and actors. Nothing is released when
    it is gone. Any thread may call it.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def generation(self) -> int:
        """Of the version that all nodes use; greater after each publish(). 0: none yet."""
        generation: int = answer(self._directory().generation.remote())
        return generation

    def publish(self, url: str, *, quorum: int | None = None, timeout: float | None = None) -> int:
        """Has all nodes use another file, or another version of the same; returns its generation.

        Each node stages it beside the copy in use. Once all have it, or `quorum` of them, local()
        and the links lead to the new copies; the old ones lose their names, and stay as long as
        processes have them mapped. A node that has not got it by then follows when it has. If a
        node fails (with a quorum: too many), or after `timeout` seconds, what came is dropped, the
        old version stays in use, and weightmap.Error is raised.
        """
        generation: int = answer(self._directory().publish.remote(url, quorum, timeout))
        return generation

    def status(self) -> dict[str, NodeStatus]:
        """Of each node that is alive, by Ray's id of it."""
        return {each.node: each for each in answer(self._directory().status.remote())}

    def release(self) -> None:
        """Removes the copies, the links to them and the actors. Who has a copy mapped keeps it."""
        directory = self._directory()
        answer(directory.release.remote())
        ray.kill(directory)

    def _directory(self) -> Any:
        _need_cluster()
        try:
            return ray.get_actor(self.name, namespace=NAMESPACE)
        except ValueError:
            raise InvalidArgumentError("no such fleet is held", file=self.name) from None

    def __repr__(self) -> str:
        return f"<weightmap.ray.Fleet {self.name}>"


def hold(
    url: str,
    nodes: Literal["all"] | Iterable[str] = "all",
    source: Literal["auto", "peers", "store"] = "auto",
    verify: bool = True,
    name: str | None = None,
    *,
    chunk_bytes: int = 16 << 20,
    quorum: int | None = None,
    timeout: float | None = None,
    patience: float = 2.0,
    opener: Opener | None = None,
) -> Fleet:
    """Brings a remote checkpoint into the shared memory of nodes, once each, and keeps it there.

    Returns when all nodes have it that are alive and answer, or `quorum` of them; those that join
    later get it, too. If a node fails (with a quorum: too many), or after `timeout` seconds, all is
    released again, and weightmap.Error is raised. What is held already is waited for.

    url: of one file that weightmap.open() can open; https://, s3:// and what else `opener` takes.
    nodes: Ray's ids of some nodes.
    source: "store": each node reads all from the store. "peers": each chunk is read by one node,
        and comes to the others by Ray's object store. "auto": peers if 7 or more nodes stage it at
        a time.
    verify: compare the checksums, where the format has some, before the copy gets its name.
    name: of the fleet; made from the URL unless given.
    patience: if no chunk comes for three times the usual time and so many seconds, those that are
        late are read from the store; and a node that gives no answer for so long is not waited for.
    opener: makes a source (size, tag, read_into(offset, buffer)) of the URL, in any process of the
        cluster; weightmap.remote.open_url unless given. It is where credentials come from.
    """
    _need_cluster()
    if chunk_bytes < 1:
        raise InvalidArgumentError(f"chunk_bytes is {chunk_bytes!r}, expected a number of bytes")
    name = checked_name(name_of(url) if name is None else name)
    request = Request(
        url=url,
        nodes=None if nodes == "all" else tuple(nodes),
        source=_checked_source(source),
        verify=verify,
        chunk_bytes=chunk_bytes,
        patience=patience,
        opener=opener,
    )
    directory = ray.remote(Directory).options(
        name=name,
        namespace=NAMESPACE,
        get_if_exists=True,
        lifetime="detached",
        max_restarts=-1,
        max_task_retries=-1,
        max_concurrency=_CALLS,
        num_cpus=0,
        resources=_THE_HEAD,
    ).remote(name, request)
    try:
        answer(directory.hold.remote(url, quorum, timeout))
    except Error:
        _release_if_empty(Fleet(name))
        raise
    return Fleet(name)


def fleet_of(word: str) -> Fleet:
    """By its name, or the URL that it was made from."""
    return Fleet(name_of(word) if "://" in word else word)


def _release_if_empty(fleet: Fleet) -> None:
    with contextlib.suppress(Error):  # the directory died: its keepers go on, for a new one
        if fleet.generation == 0:
            fleet.release()


def local(
    held: Fleet | str, *, link: str | None = None, timeout: float | None = None
) -> str:
    """The path of this node's copy, /dev/shm/…, to be mapped; waits until it is there.

    held: a Fleet, its name, or the URL that it was made from.
    link: a path that is made a symbolic link to the copy, and led to each later one, so that
        programs find it which know of no fleet: `weightmap run --model`, engines, safe_open().
    timeout: seconds. Raises weightmap.Error, also if the copy cannot be had on this node.

    Any process may call it that is connected to the cluster.
    """
    fleet = held if isinstance(held, Fleet) else fleet_of(held)
    _need_cluster()
    node = ray.get_runtime_context().get_node_id()
    path = NodeFiles(fleet.name, node).current()
    if path is None or link is not None:
        link = None if link is None else os.path.abspath(link)
        path = answer(fleet._directory().local.remote(node, link), timeout)
    return path


def _need_cluster() -> None:
    if not ray.is_initialized():
        raise InvalidArgumentError("this process is connected to no cluster: call ray.init() first")


def _checked_source(source: Any) -> Any:
    if source not in ("auto", "peers", "store"):
        raise InvalidArgumentError(f"source is {source!r}, expected 'auto', 'peers' or 'store'")
    return source
