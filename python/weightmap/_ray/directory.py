"""The actor of a fleet that decides which version its nodes use."""

from __future__ import annotations

import asyncio
import contextlib

import ray
from ray.exceptions import RayError

from weightmap._errors import InvalidArgumentError
from weightmap._ray.calls import timed_out
from weightmap._ray.delivery import GLANCE, Delivery, Failed, Here, Used
from weightmap._ray.nodes import LOOK, Nodes
from weightmap._ray.records import NodeStatus, Version
from weightmap._ray.stored import Stored, identity_of
from weightmap._urls import without_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from weightmap._ray.records import Request


class Directory:
    """Finds out each version once, and has all nodes use the same. All calls run in one event loop.

        hold() ──▶ Delivery: the current one at once, so that each node uses it when it has it
                      │  fails: dropped, and there is no current one
                      ▼
                   current ◀── publish(): a Delivery beside it, which becomes the current one when
                      ▲           the nodes have it. Fails: dropped, and nothing has changed
                      │
        _adopt(): a directory that was killed at any line begins anew, and learns from the keepers
                  what there is. All that it must know is on the nodes.

    What becomes of a version on one node: Arrival, in delivery.py.
    """

    def __init__(self, fleet: str, request: Request) -> None:
        self._fleet = fleet
        self._request = request
        self._nodes = Nodes(fleet, request)
        self._current: Delivery | None = None
        self._newest = 0  # the greatest generation that was ever begun
        self._is_released = False
        self._is_ready = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()  # hold() and publish()
        ray.get_runtime_context().current_actor.watch.remote()

    @ray.method(max_task_retries=0)  # a directory that starts again calls it itself
    async def watch(self) -> None:
        """Runs as long as the fleet is held."""
        self._nodes.meet()
        await self._adopt()
        self._is_ready.set()
        while not self._is_released:
            with contextlib.suppress(RayError):
                self._nodes.meet()
            if self._current is not None:
                self._current.bring()
            await asyncio.sleep(LOOK)

    async def _adopt(self) -> None:
        """Takes over what an earlier directory has left: what some node uses is the current
        version, else what is being staged; anything newer was not published, and goes."""
        asked = [node.ask("versions") for node in self._nodes.by_id.values()]
        told = await asyncio.gather(*asked, return_exceptions=True)
        answers = [each for each in told if isinstance(each, tuple)]
        used = [current for current, _, _ in answers if current is not None]
        staged = [staged for _, staged, _ in answers if staged is not None]
        self._newest = max((newest for _, _, newest in answers), default=0)
        version = max(used or staged, key=lambda each: each.generation, default=None)
        if version is None:
            return
        for newer in {each for each in staged if each.generation > version.generation}:
            await self._nodes.ask_all("drop", newer)
        self._current = self._delivery_of(version)
        self._current.is_published.set()

    # --- what is current ---

    async def hold(self, url: str, quorum: int | None, timeout: float | None) -> None:
        """Returns when the nodes use the first version."""
        await self._is_ready.wait()
        async with self._one_at_a_time:
            if self._current is not None:
                self._check_is_same(url, self._current.version.stored.url)
                await self._until(self._current, Used, quorum, timeout)
                return
            self._check_is_same(url, self._request.url)
            first = self._current = await self._find_out(url)
            first.is_published.set()
            try:
                await self._until(first, Used, quorum, timeout)
            except BaseException:
                self._current = None
                await first.drop()
                raise

    def _check_is_same(self, url: str, held: str) -> None:
        if identity_of(held) != identity_of(url):
            raise InvalidArgumentError(
                f"holds {without_secrets(held)}; publish() replaces it", file=self._fleet
            )

    async def publish(self, url: str, quorum: int | None, timeout: float | None) -> int:
        """Stages a version on the nodes, and only then has them use it; else it leaves no trace."""
        await self._is_ready.wait()
        async with self._one_at_a_time:
            old = self._current
            if old is None:
                raise InvalidArgumentError("holds nothing", file=self._fleet)
            new = await self._find_out(url)
            try:
                await self._until(new, Here, quorum, timeout)
            except BaseException:
                await new.drop()
                raise
            self._current = new
            old.end()
            await new.publish()
            return new.version.generation

    async def _until(
        self, delivery: Delivery, state: type[Here], quorum: int | None, timeout: float | None
    ) -> None:
        try:
            await asyncio.wait_for(delivery.until(state, quorum), timeout)
        except asyncio.TimeoutError:
            raise timed_out(timeout) from None

    async def _find_out(self, url: str) -> Delivery:
        self._newest += 1
        request = self._request
        generation = self._newest
        stored = await asyncio.to_thread(Stored.at, url, request.opener)
        return self._delivery_of(
            Version(generation, stored, request.chunk_bytes, request.verify, request.patience)
        )

    def _delivery_of(self, version: Version) -> Delivery:
        return Delivery(version, self._nodes, self._request)

    # --- for the processes of the fleet ---

    async def local(self, node: str, link: str | None) -> str:
        """The path of the current copy on a node, once it is there."""
        await self._is_ready.wait()
        if self._request.nodes is not None and node not in self._request.nodes:
            raise InvalidArgumentError(f"is not held on node {node}", file=self._fleet)
        while not self._is_used_on(node):
            await asyncio.sleep(GLANCE)
        there = self._nodes.by_id[node]
        if link is not None:
            await there.ask("link", link)
        path: str = await there.ask("path")
        return path

    def _is_used_on(self, node: str) -> bool:
        state = None if self._current is None else self._current.state_on(node)
        if isinstance(state, Failed):
            raise state.error
        return isinstance(state, Used) and node in self._nodes.by_id

    async def generation(self) -> int:
        """0: none yet."""
        await self._is_ready.wait()
        return 0 if self._current is None else self._current.version.generation

    async def status(self) -> list[NodeStatus]:
        answers = await self._nodes.ask_all("status")
        return [
            answers.get(node) or NodeStatus(node, "silent", 0, "", 0, 0, 0, 0.0, "")
            for node in sorted(self._nodes.by_id)
        ]

    async def release(self) -> None:
        """Removes what nodes have that are alive, and their keepers."""
        self._is_released = True
        if self._current is not None:
            self._current.end()
        await self._nodes.ask_all("release")
        for node in self._nodes.by_id.values():
            ray.kill(node.keeper)
