"""The nodes of a fleet, and how the keeper on each is asked."""

from __future__ import annotations

import asyncio

import ray
from ray.exceptions import (
    ActorUnavailableError,
    ActorUnschedulableError,
    RayActorError,
    RayTaskError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from weightmap._errors import FileError
from weightmap._ray.calls import NAMESPACE, as_error
from weightmap._ray.keeper import READERS, Keeper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from weightmap._ray.records import Request

LOOK = 1.0  # seconds between two looks at the nodes
_KEEPER_TRIES = 3
_KEEPER_THREADS = 16  # one stages; the others answer meanwhile


class Node:
    """One node as long as it is one of `nodes`, and its keeper, which Ray starts again."""

    def __init__(self, nodes: Nodes, ident: str) -> None:
        self.id = ident
        self._nodes = nodes
        self.keeper = nodes.keeper_on(ident)
        self._probe: asyncio.Task[Any] | None = None  # a call that any keeper answers at once
        self._probed_at = 0.0

    @property
    def is_gone(self) -> bool:
        return self._nodes.by_id.get(self.id) is not self

    async def ask(self, method: str, *arguments: Any) -> Any:
        """A call of the keeper, again after a restart of it; None if the node is gone."""
        deaths = 0
        while not self.is_gone:
            try:
                return await getattr(self.keeper, method).remote(*arguments)
            except RayTaskError as error:
                raise as_error(error) from None
            except (RayActorError, ActorUnschedulableError) as error:
                await asyncio.sleep(LOOK)
                self._nodes.meet()
                if not isinstance(error, ActorUnavailableError) and not self.is_gone:
                    deaths += 1
                    if deaths == _KEEPER_TRIES:
                        raise FileError(f"there is no keeper on node {self.id}: {error}") from None
                    self.keeper = self._nodes.keeper_on(self.id)
        return None

    def is_silent(self, patience: float) -> bool:
        """Whether it has given no answer for so long. Asks, and waits for no answer, so that it is
        known by the time when it matters."""
        now = asyncio.get_running_loop().time()
        if self._probe is None or self._probe.done():
            self._probe, self._probed_at = started(self.ask("path")), now
        return now - self._probed_at >= patience


class Nodes:
    """Those that are alive and that the fleet is to be on, as of the last meet()."""

    def __init__(self, fleet: str, request: Request) -> None:
        self.by_id: dict[str, Node] = {}
        self._fleet = fleet
        self._wanted = request.nodes
        self._patience = request.patience

    def meet(self) -> None:
        """New nodes get a keeper, and nobody waits for dead ones."""
        there = {each["NodeID"] for each in ray.nodes() if each["Alive"]}
        if self._wanted is not None:
            there &= set(self._wanted)
        for gone in self.by_id.keys() - there:
            del self.by_id[gone]
        for new in there - self.by_id.keys():
            self.by_id[new] = Node(self, new)

    def keeper_on(self, node: str) -> Any:
        return ray.remote(concurrency_groups={"read": READERS})(Keeper).options(
            name=f"{self._fleet}/{node}",
            namespace=NAMESPACE,
            get_if_exists=True,
            lifetime="detached",
            max_restarts=-1,
            max_concurrency=_KEEPER_THREADS,
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        ).remote(self._fleet)

    async def ask_all(self, method: str, *arguments: Any) -> dict[str, Any]:
        """The answers of those that do not keep silent. The others get the call, too."""
        asked = {each.id: started(each.ask(method, *arguments)) for each in self.by_id.values()}
        if asked:
            await asyncio.wait(asked.values(), timeout=self._patience)
        return {node: task.result() for node, task in asked.items() if _has_result(task)}


def started(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task whose error asyncio does not log if nobody looks at it."""
    task = asyncio.create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def _has_result(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
