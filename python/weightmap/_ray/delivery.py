"""One version of a fleet's file on its way to all nodes."""

from __future__ import annotations

import asyncio

from weightmap._errors import Error, FileError
from weightmap._ray.nodes import started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from weightmap._ray.nodes import Node, Nodes
    from weightmap._ray.records import Request, Version
    from weightmap._ray.staging import Piece

_RETRY = 30.0  # seconds until a node tries again that could not bring in the current version
GLANCE = 0.1  # seconds between two looks of who waits for a state


class Coming:
    """The node stages it, or waits for its turn to."""


class Here:
    """A proven copy lies on the node."""


class Used(Here):
    """local() and the links of the node lead to it."""


class Failed:
    def __init__(self, error: Error) -> None:
        self.error = error
        self.until = asyncio.get_running_loop().time() + _RETRY


class Arrival:
    """One version on one node. _live() alone changes the state, from top to bottom:

                   Keeper.stage()          Keeper.point(), once it is published
          Coming ────────────────▶ Here ────────────────▶ Used
             │                      │
             └──────────────────────┴──▶ Failed   Delivery.bring() begins anew after 30 s

    end() stops it in any state: the node died, or another version replaces this one, whose
    Keeper.point() removes the copy, or this one is not to come: Delivery.drop(). A directory that
    was killed begins with new ones: Keeper.has() tells them what is there.
    """

    def __init__(self, delivery: Delivery, node: Node) -> None:
        self.node = node
        self.state: Coming | Here | Failed = Coming()
        self._delivery = delivery
        self._task = started(self._live())

    async def _live(self) -> None:
        ask, version = self.node.ask, self._delivery.version
        try:
            is_here = await ask("has", version)
            if not is_here:
                is_here = await ask("stage", version, await self._delivery.pieces())
            if is_here:
                self._become(Here())
                await self._delivery.is_published.wait()
                if await ask("point", version):
                    self._become(Used())
                else:
                    raise FileError("its copy is gone", file=version.stored.name)
        except Error as error:
            self._become(Failed(error))

    def _become(self, state: Here | Failed) -> None:
        self.state = state
        self._delivery.free_pieces()

    def end(self) -> None:
        self._task.cancel()


class Delivery:
    """A version, and its Arrival on each node. The directory has one for the current version, and
    one for a version that is being published."""

    def __init__(self, version: Version, nodes: Nodes, request: Request) -> None:
        self.version = version
        self.is_published = asyncio.Event()
        self._nodes = nodes
        self._request = request
        self._arrivals: dict[str, Arrival] = {}
        self._pieces: asyncio.Task[list[Piece]] | None = None

    def bring(self) -> list[Arrival]:
        """To all nodes that there are now; again where it failed some time ago."""
        now = asyncio.get_running_loop().time()
        for gone in self._arrivals.keys() - self._nodes.by_id.keys():
            self._arrivals.pop(gone).end()
            self.free_pieces()
        for node in self._nodes.by_id.values():
            state = self.state_on(node.id)
            if state is None or (isinstance(state, Failed) and state.until <= now):
                self._arrivals[node.id] = Arrival(self, node)
        return list(self._arrivals.values())

    def state_on(self, node: str) -> Coming | Here | Failed | None:
        arrival = self._arrivals.get(node)
        return None if arrival is None else arrival.state

    async def until(self, state: type[Here], quorum: int | None) -> None:
        """Returns when all nodes have come so far that are alive and answer, or `quorum` of them."""
        arrivals = self.bring()
        while True:
            alive = [each for each in arrivals if not each.node.is_gone]
            there = sum(isinstance(each.state, state) for each in alive)
            errors = [each.state.error for each in alive if isinstance(each.state, Failed)]
            waiting = len(alive) - there - len(errors)
            if quorum is not None and there >= quorum:
                return
            if there + waiting < (quorum or 1) or (errors and quorum is None):
                raise errors[0] if errors else FileError(f"{there} nodes are left")
            if quorum is None and there and waiting == self._silent(alive, state):
                return
            await asyncio.sleep(GLANCE)

    def _silent(self, arrivals: list[Arrival], state: type[Here]) -> int:
        waiting = [each.node for each in arrivals if not isinstance(each.state, (state, Failed))]
        return sum([each.is_silent(self._request.patience) for each in waiting])

    async def publish(self) -> None:
        """Has each node use it as soon as it has it, and until then none. Silent nodes get the
        message, too, and are not waited for."""
        self.is_published.set()
        await self._nodes.ask_all("point", self.version)

    def end(self) -> None:
        for arrival in self._arrivals.values():
            arrival.end()
        self._pieces = None

    async def drop(self) -> None:
        """It is not to come, and leaves the nodes that have it."""
        self.end()
        await self._nodes.ask_all("drop", self.version)

    # --- pieces in Ray's object store ---

    async def pieces(self) -> list[Piece] | None:
        """Each read by one keeper, in turns, and kept by Ray while some node stages. None: each
        node is to read all from the store."""
        at_a_time = sum(isinstance(each.state, Coming) for each in self._arrivals.values())
        if not self._request.uses_peers(at_a_time):
            return None
        if self._pieces is None:
            self._pieces = started(self._read())
        return await asyncio.shield(self._pieces)

    async def _read(self) -> list[Piece]:
        answered = await self._nodes.ask_all("path")
        keepers = [(node, there.keeper) for node in answered
                   if (there := self._nodes.by_id.get(node)) is not None]
        pieces: list[Piece] = []
        for index, (offset, length) in enumerate(self.version.ranges() if keepers else ()):
            node, keeper = keepers[index % len(keepers)]
            pieces.append((node, keeper.read.remote(self.version, offset, length)))
        return pieces

    def free_pieces(self) -> None:
        """Once nobody stages it any more."""
        if not any(isinstance(each.state, Coming) for each in self._arrivals.values()):
            self._pieces = None
