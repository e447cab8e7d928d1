"""The actor of a fleet that knows what is held where."""

from __future__ import annotations

import asyncio
import contextlib

import ray
from ray.exceptions import (
    ActorUnavailableError,
    ActorUnschedulableError,
    RayActorError,
    RayError,
    RayTaskError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from weightmap._errors import Error, FileError, InvalidArgumentError
from weightmap._ray.calls import NAMESPACE, as_error, timed_out
from weightmap._ray.chunk import read_chunk
from weightmap._ray.chunk_table import ChunkTable
from weightmap._ray.keeper import Keeper
from weightmap._ray.status import NodeStatus
from weightmap._ray.stored import Stored, identity_of
from weightmap._ray.version import Version
from weightmap._urls import without_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Any

    from weightmap._ray.request import Request

_LOOK = 1.0  # seconds between two looks at the nodes
_RETRY = 30.0  # seconds until a node tries again that could not bring in the current version
_KEEPER_TRIES = 3
_KEEPER_THREADS = 16  # one stages; the others answer meanwhile


class _Node:
    def __init__(self, keeper: Any) -> None:
        self.keeper = keeper
        self.staging: dict[str, asyncio.Task[bool]] = {}  # by the key of the version
        self.points_to = 0  # the generation that is used there; 0: none, as far as is known
        self.probe: asyncio.Task[Any] | None = None  # a call that any keeper answers at once
        self.probed_at = 0.0


class Directory:
    """Finds out the version once, owns the chunks that are in Ray's object store, makes a keeper on
    each node, and decides which generation is used. All calls run in one event loop.

    It can be killed at any time: a new one learns from the keepers what there is.
    """

    def __init__(self, fleet: str, request: Request) -> None:
        self._fleet = fleet
        self._request = request
        self._nodes: dict[str, _Node] = {}
        self._tables: dict[str, ChunkTable[Any]] = {}
        self._current: Version | None = None
        self._newest = 0  # the greatest generation that was ever begun
        self._is_released = False
        self._is_ready = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._pointed = asyncio.Condition()
        self._read_chunk = ray.remote(num_cpus=0)(read_chunk)
        self._self = ray.get_runtime_context().current_actor
        self._self.watch.remote()

    # --- nodes ---

    @ray.method(max_task_retries=0)  # a directory that starts again calls it itself
    async def watch(self) -> None:
        """Runs as long as the fleet is held."""
        self._meet_nodes()
        await self._adopt()
        self._is_ready.set()
        while not self._is_released:
            with contextlib.suppress(RayError):
                self._meet_nodes()
            if self._current is not None:
                for node in self._nodes:
                    self._staging(node, self._current)
            await asyncio.sleep(_LOOK)

    def _meet_nodes(self) -> None:
        """New nodes get a keeper, and nobody waits for dead ones."""
        there = {each["NodeID"] for each in ray.nodes() if each["Alive"]}
        if self._request.nodes is not None:
            there &= set(self._request.nodes)
        for gone in self._nodes.keys() - there:
            for task in self._nodes.pop(gone).staging.values():
                task.cancel()
        for new in there - self._nodes.keys():
            self._nodes[new] = _Node(self._keeper_on(new))

    def _keeper_on(self, node: str) -> Any:
        return ray.remote(Keeper).options(
            name=f"{self._fleet}/{node}",
            namespace=NAMESPACE,
            get_if_exists=True,
            lifetime="detached",
            max_restarts=-1,
            max_concurrency=_KEEPER_THREADS,
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        ).remote(self._fleet)

    async def _adopt(self) -> None:
        """Takes over what an earlier directory has left: what some node uses is the current
        version, else what is being staged; anything newer was not published, and goes."""
        told = await asyncio.gather(
            *[self._ask(node, "versions") for node in list(self._nodes)], return_exceptions=True
        )
        answers = [answer for answer in told if isinstance(answer, tuple)]
        current = [answer[0] for answer in answers if answer[0] is not None]
        staged = [answer[1] for answer in answers if answer[1] is not None]
        self._newest = max((answer[2] for answer in answers), default=0)
        self._current = max(current or staged, key=lambda each: each.generation, default=None)
        if self._current is not None:
            newer = {each for each in staged if each.generation > self._current.generation}
            for version in newer:
                await self._drop(version)

    async def _ask(self, node: str, method: str, *arguments: Any) -> Any:
        """A call of the node's keeper, again after a restart of it; None if the node is gone."""
        deaths = 0
        while (there := self._nodes.get(node)) is not None:
            try:
                return await getattr(there.keeper, method).remote(*arguments)
            except RayTaskError as error:
                raise as_error(error) from None
            except (RayActorError, ActorUnschedulableError) as error:
                await asyncio.sleep(_LOOK)
                self._meet_nodes()
                if not isinstance(error, ActorUnavailableError) and node in self._nodes:
                    deaths += 1
                    if deaths == _KEEPER_TRIES:
                        raise FileError(f"there is no keeper on node {node}: {error}") from None
                    there.keeper = self._keeper_on(node)
        return None

    async def _ask_all(self, method: str, *arguments: Any) -> dict[str, Any]:
        """The answers of those that do not keep silent. The others get the call, too."""
        asked = {
            node: asyncio.create_task(self._ask(node, method, *arguments)) for node in self._nodes
        }
        return await self._answers(asked)

    async def _answers(
        self, asked: dict[str, asyncio.Task[Any]], silent: Collection[str] = ()
    ) -> dict[str, Any]:
        for task in asked.values():
            task.add_done_callback(_look_at_error)
        awaited = [task for node, task in asked.items() if node not in silent]
        if awaited:
            await asyncio.wait(awaited, timeout=self._request.patience)
        return {node: task.result() for node, task in asked.items() if _has_result(task)}

    # --- versions ---

    async def hold(self, url: str, quorum: int | None, timeout: float | None) -> None:
        """Returns when the nodes have the first version. Each uses it as soon as it has it."""
        await self._is_ready.wait()
        async with self._one_at_a_time:
            held = self._request.url if self._current is None else self._current.stored.url
            if identity_of(held) != identity_of(url):
                raise InvalidArgumentError(
                    f"holds {without_secrets(held)}; publish() replaces it", file=self._fleet
                )
            is_first = self._current is None
            version = self._current = self._current or await self._find_out(url)
            try:
                silent = await self._wait_for_nodes(version, quorum, timeout)
            except BaseException:
                if is_first:
                    self._current = None
                    await self._drop(version)
                raise
            await self._point_all(version, silent)

    async def publish(self, url: str, quorum: int | None, timeout: float | None) -> int:
        """Stages a version on the nodes, and only then has them use it; else it leaves no trace."""
        await self._is_ready.wait()
        async with self._one_at_a_time:
            if self._current is None:
                raise InvalidArgumentError("holds nothing", file=self._fleet)
            version = await self._find_out(url)
            try:
                silent = await self._wait_for_nodes(version, quorum, timeout)
            except BaseException:
                await self._drop(version)
                raise
            self._current = version
            await self._point_all(version, silent)
            return version.generation

    async def _find_out(self, url: str) -> Version:
        self._newest += 1
        return await asyncio.to_thread(self._version_at, url, self._newest)

    def _version_at(self, url: str, generation: int) -> Version:
        request = self._request
        stored = Stored.at(url, request.opener)
        version = Version(
            generation, stored, request.chunk_bytes, (), request.verify, request.patience
        )
        return version.with_order(request.order) if request.order else version

    async def _wait_for_nodes(
        self, version: Version, quorum: int | None, timeout: float | None
    ) -> set[str]:
        staging = {node: self._staging(node, version) for node in self._nodes}
        try:
            return await asyncio.wait_for(self._enough(staging, quorum), timeout)
        except asyncio.TimeoutError:
            raise timed_out(timeout) from None

    async def _enough(
        self, staging: dict[str, asyncio.Task[bool]], quorum: int | None
    ) -> set[str]:
        """Returns when all nodes have it that are alive and answer, or `quorum` of them; the nodes
        that keep silent."""
        while True:
            ready = sum(_has_result(task) and task.result() for task in staging.values())
            errors = [error for error in map(_look_at_error, staging.values()) if error]
            waiting = {node: task for node, task in staging.items() if not task.done()}
            silent = self._silent(waiting)
            if quorum is not None and ready >= quorum:
                return silent
            if ready + len(waiting) < (quorum or 1) or (errors and quorum is None):
                raise errors[0] if errors else FileError(f"{ready} nodes are left")
            if quorum is None and ready and silent == waiting.keys():
                return silent
            await asyncio.wait(
                waiting.values(), timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED
            )

    def _silent(self, nodes: Iterable[str]) -> set[str]:
        """Those that have given no answer for `patience` seconds. Asks the others again, and waits
        for none, so that it is known by the time when it matters."""
        now, silent = asyncio.get_running_loop().time(), set()
        for node in nodes:
            there = self._nodes.get(node)
            if there is None:
                continue
            if there.probe is None or there.probe.done():
                there.probe, there.probed_at = asyncio.create_task(self._ask(node, "path")), now
                there.probe.add_done_callback(_look_at_error)
            elif now - there.probed_at >= self._request.patience:
                silent.add(node)
        return silent

    def _staging(self, node: str, version: Version) -> asyncio.Task[bool]:
        tasks = self._nodes[node].staging
        if version.key not in tasks:
            tasks[version.key] = asyncio.create_task(self._stage(node, version))
            tasks[version.key].add_done_callback(_look_at_error)
        return tasks[version.key]

    async def _stage(self, node: str, version: Version) -> bool:
        """False: the node is gone."""
        there = self._nodes[node]
        table = self._table(version)
        table.join(node)
        try:
            staging = [each.staging.get(version.key) for each in self._nodes.values()]
            at_a_time = sum(task is not None and not task.done() for task in staging)
            directory = self._self if self._request.uses_peers(at_a_time) else None
            if not await self._ask(node, "stage", version, directory):
                return False
        except Error:
            asyncio.get_running_loop().call_later(_RETRY, there.staging.pop, version.key, None)
            raise
        finally:
            table.leave(node)
            if not table.nodes:
                self._tables.pop(version.key, None)
            await self._tell()
        if version == self._current:
            await self._point(node, version)
        return True

    async def _point_all(self, version: Version, silent: set[str]) -> None:
        """The silent nodes get the message, too, and are not waited for."""
        for node in self._nodes.values():
            node.staging = {key: node.staging[key] for key in node.staging if key == version.key}
        asked = {node: asyncio.create_task(self._point(node, version)) for node in self._nodes}
        await self._answers(asked, silent)

    async def _point(self, node: str, version: Version) -> None:
        is_here = await self._ask(node, "point", version)
        if node in self._nodes and version == self._current:
            self._nodes[node].points_to = version.generation if is_here else 0
        await self._tell()

    async def _tell(self) -> None:
        async with self._pointed:
            self._pointed.notify_all()

    async def _drop(self, version: Version) -> None:
        for node in self._nodes.values():
            task = node.staging.pop(version.key, None)
            if task is not None:
                task.cancel()
        await self._ask_all("drop", version)

    # --- chunks ---

    @ray.method(max_task_retries=0)  # a keeper that gets no answer reads from the store
    async def chunk(
        self, version: Version, index: int, node: str, arrived: list[int]
    ) -> tuple[Any, str]:
        """The reference to a chunk, in a tuple: it is not waited for; and the node that reads it,
        which is the one that asks first, so that all share in the reading. arrived: chunks that the
        node has by now."""
        table = self._table(version)
        table.note(node, arrived)
        offset, length = version.grid.range_of(index)
        there = NodeAffinitySchedulingStrategy(node, soft=True)
        read = self._read_chunk.options(scheduling_strategy=there)
        return table.get(index, node, lambda: (read.remote(version.stored, offset, length), node))

    def _table(self, version: Version) -> ChunkTable[Any]:
        """Its chunks may take half of the smallest object store."""
        if version.key not in self._tables:
            sizes = [each["Resources"].get("object_store_memory", 0) for each in ray.nodes()]
            smallest = min((size for size in sizes if size), default=0)
            self._tables[version.key] = ChunkTable(max(1, int(smallest / 2 / version.chunk_bytes)))
        return self._tables[version.key]

    # --- for the processes of the fleet ---

    async def local(self, node: str, link: str | None) -> str:
        """The path of the current copy on a node, once it is there."""
        await self._is_ready.wait()
        if self._request.nodes is not None and node not in self._request.nodes:
            raise InvalidArgumentError(f"is not held on node {node}", file=self._fleet)
        async with self._pointed:
            await self._pointed.wait_for(lambda: self._is_local(node))
        if link is not None:
            await self._ask(node, "link", link)
        path: str = await self._ask(node, "path")
        return path

    def _is_local(self, node: str) -> bool:
        """Raises the error of the node's staging."""
        there, current = self._nodes.get(node), self._current
        if there is None or current is None:
            return False
        task = there.staging.get(current.key)
        error = None if task is None else _look_at_error(task)
        if error is not None:
            raise error
        return there.points_to == current.generation

    async def generation(self) -> int:
        """0: none yet."""
        await self._is_ready.wait()
        return 0 if self._current is None else self._current.generation

    async def status(self) -> list[NodeStatus]:
        answers = await self._ask_all("status")
        return [
            answers.get(node) or NodeStatus(node, "silent", 0, "", 0, 0, 0, 0.0, "")
            for node in sorted(self._nodes)
        ]

    async def release(self) -> None:
        """Removes what nodes have that are alive, and their keepers."""
        self._is_released = True
        for node in self._nodes.values():
            for task in node.staging.values():
                task.cancel()
        await self._ask_all("release")
        for node in self._nodes.values():
            ray.kill(node.keeper)


def _has_result(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _look_at_error(task: asyncio.Task[Any]) -> BaseException | None:
    """None: it has none, or none yet. asyncio logs those that were never looked at."""
    return task.exception() if task.done() and not task.cancelled() else None
