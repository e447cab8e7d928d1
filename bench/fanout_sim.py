"""Says how one file had better reach N nodes: directly from the store, or from each other (docs/fleet.md).

    fanout_sim.py advise --nodes 8 100 1000 --store-rates 12.5e9 92e9 [OPTIONS]

Prints, for each fleet and store, the simplest way whose last node is done within `--patience` times
what a node alone would take; if there is none, the quickest.

Rates are bytes a second; one of the store is its total. Nodes receive and send at once, each at
`--node-rate`. Needs numpy 2. 100,000 nodes with 256 chunks take 20 s and 100 MiB.
"""
import argparse
import functools
import json
import math

import numpy as np

from samples import table

DIRECTLY, CHUNKS = "directly", "chunks of peers"


# ---- in slots: the time of one chunk at the rate of a node. `store` is the rate of the store, in
# chunks a slot, and thereby the number of nodes that it serves at their full rate.

def directly(nodes, chunks, store=1.0):
    return max(chunks, nodes * chunks / store)


ONE = np.uint64(1)
STATE_LIMIT = 1 << 30  # bytes
WINDOW = 32  # a node asks for one of so many chunks that it lacks
TRIES = 8  # peers asked in a slot


def bit_of(chunks):
    return ONE << (chunks % 64).astype(np.uint64)


def any_of(rows, random):
    """The index of a random one of the bits set in each row of words."""
    counts = np.bitwise_count(rows).cumsum(axis=1, dtype=np.int32)
    skip = (random.random(len(rows)) * counts[:, -1]).astype(np.int32)
    word = (counts > skip[:, None]).argmax(axis=1)
    at = np.arange(len(rows))
    chosen = rows[at, word]
    skip -= np.where(word > 0, counts[at, word - 1], 0)
    while (more := np.flatnonzero(skip > 0)).size:
        chosen[more] &= chosen[more] - ONE
        skip[more] -= 1
    return word * 64 + np.bitwise_count((chosen & (~chosen + ONE)) - ONE)


class Swarm:
    """A fleet that fetches one file from a store and from each other, chunk by chunk.

    A node receives at most one chunk in a slot, and sends at most one. It wants the next WINDOW
    chunks that it lacks. In each slot it asks up to `tries` peers, taken at random, for one of
    these; a node that found none asks the store, which serves as many as its rate allows, each with
    the chunk that it has sent least. What arrives in a slot can be passed on in the next."""

    def __init__(self, nodes, chunks, store=1.0, tries=TRIES):
        words = -(-chunks // 64)
        if 2 * 8 * words * nodes > STATE_LIMIT:
            raise ValueError(f"{nodes} nodes with {chunks} chunks need more than "
                             f"{STATE_LIMIT >> 20} MiB: fewer, larger chunks")
        self._nodes, self._chunks, self._rate, self._tries = nodes, chunks, store, tries
        self._random = np.random.default_rng(1)
        self._has = np.zeros((nodes, words), np.uint64)
        self._wants = np.zeros((nodes, words), np.uint64)
        first = np.arange(min(WINDOW, chunks))
        np.bitwise_or.at(self._wants, (slice(None), first // 64), bit_of(first))
        self._next = np.full(nodes, len(first))  # the first chunk behind the wanted ones
        self._missing = np.full(nodes, chunks)
        self._sent = np.zeros(chunks, np.int64)
        self._credit = 0.0

    def run(self):
        """Returns the slots until the last node has all, and the files that the store has sent."""
        slots = 0
        while self._missing.any():
            self._gets = np.full(self._nodes, -1)
            seekers = self._random.permutation(np.flatnonzero(self._missing))
            self._ask_store(self._ask_peers(seekers))
            self._receive()
            slots += 1
        return slots, float(self._sent.sum() / self._chunks)

    def _ask_peers(self, seekers):
        """Returns those that found nothing."""
        sends = np.zeros(self._nodes, bool)
        asker = np.empty(self._nodes, np.int64)
        for _ in range(self._tries):
            peers = self._random.integers(self._nodes, size=len(seekers))
            offers = self._has[peers] & self._wants[seekers]
            useful = np.flatnonzero(offers.any(axis=1) & ~sends[peers])
            asker[peers[useful]] = useful  # one for each peer
            served = useful[asker[peers[useful]] == useful]
            sends[peers[served]] = True
            self._gets[seekers[served]] = any_of(offers[served], self._random)
            seekers = np.delete(seekers, served)
        return seekers

    def _ask_store(self, seekers):
        self._credit += self._rate
        for node in seekers[:int(self._credit)]:
            wanted = np.flatnonzero(np.unpackbits(self._wants[node].view(np.uint8),
                                                  bitorder="little"))
            self._gets[node] = wanted[self._sent[wanted].argmin()]
            self._sent[self._gets[node]] += 1
        self._credit %= 1

    def _receive(self):
        nodes = np.flatnonzero(self._gets >= 0)
        chunks = self._gets[nodes]
        self._has[nodes, chunks // 64] |= bit_of(chunks)
        self._wants[nodes, chunks // 64] ^= bit_of(chunks)
        self._missing[nodes] -= 1
        nodes = nodes[self._next[nodes] < self._chunks]
        self._wants[nodes, self._next[nodes] // 64] |= bit_of(self._next[nodes])
        self._next[nodes] += 1


@functools.cache
def swarm(nodes, chunks, store):
    return Swarm(nodes, chunks, store).run()[0]


# ---- advice

def advise(nodes, store_rate, arguments):
    chunks, store = arguments.chunks, store_rate / arguments.node_rate
    alone = arguments.bytes / min(arguments.node_rate, store_rate)
    seconds = {way: slots * arguments.bytes / chunks / arguments.node_rate
               for way, slots in ((DIRECTLY, directly(nodes, chunks, store)),
                                  (CHUNKS, swarm(nodes, chunks, store)))}
    quick = (way for way in seconds if seconds[way] <= arguments.patience * alone)
    return {"nodes": nodes, "store_rate": store_rate, "nodes_at_full_rate": store,
            "alone_seconds": alone, "seconds": seconds,
            "use": next(quick, min(seconds, key=seconds.get))}


def advice_table(rows):
    cells = [[f"{row['nodes']:,}", f"{8 * row['store_rate'] / 1e9:,.0f} Gb/s",
              f"{row['nodes_at_full_rate']:.1f}", *(f"{row['seconds'][way]:,.0f} s"
                                                   for way in (DIRECTLY, CHUNKS)),
              row["use"]] for row in rows]
    return table(["nodes", "store", "nodes at full rate", DIRECTLY, CHUNKS, "use"], cells)


def positive(text):
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no number above 0")
    return number


def count(text):
    number = positive(text)
    if number != int(number):
        raise argparse.ArgumentTypeError(f"{text} is no whole number")
    return int(number)


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["advise"])
    parser.add_argument("--nodes", type=count, nargs="+", default=[1000])
    parser.add_argument("--node-rate", type=positive, default=3.125e9, help="default: 25 Gb/s")
    parser.add_argument("--store-rates", type=positive, nargs="+", default=[12.5e9],
                        help="default: 100 Gb/s")
    parser.add_argument("--bytes", type=positive, default=140e9, help="of the file")
    # Fewer, larger chunks are passed on later: the simulation errs to the slow side.
    parser.add_argument("--chunks", type=count, default=256, help="of the file that are simulated")
    parser.add_argument("--patience", type=positive, default=4.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(words)
    answer = [advise(nodes, rate, arguments) for rate in arguments.store_rates
              for nodes in arguments.nodes]
    print(json.dumps(answer) if arguments.json else "\n".join(advice_table(answer)))


if __name__ == "__main__":
    main()
