"""A fleet that fetches one file from a store and from each other, chunk by chunk: a simulation.

Time goes in slots: a node receives at most one chunk in a slot, and sends at most one. A node wants
the next `window` chunks that it lacks. In each slot it asks up to `tries` peers, taken at random,
for one of these; a node that found none asks the store, which serves as many as its rate allows.
What arrives in a slot can be passed on in the next.
"""
import numpy as np

ONE = np.uint64(1)
STATE_LIMIT = 1 << 30  # bytes


def bit_of(chunks):
    return ONE << (chunks % 64).astype(np.uint64)


def lowest(rows):
    """The index of the first bit set in each row of words."""
    word = (rows != 0).argmax(axis=1)
    chosen = rows[np.arange(len(rows)), word]
    return word * 64 + np.bitwise_count((chosen & (~chosen + ONE)) - ONE)


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
    """`order`: "strict", "random" or "rarest", among the wanted chunks. `directed`: the store sends
    the chunk that it has sent least, of those that a node wants, instead of one in this order."""

    def __init__(self, nodes, chunks, store=1.0, order="random", window=32, tries=8,
                 directed=False, seed=1):
        words = -(-chunks // 64)
        if 2 * 8 * words * nodes > STATE_LIMIT:
            raise ValueError(f"{nodes} nodes with {chunks} chunks need more than "
                             f"{STATE_LIMIT >> 20} MiB: fewer, larger chunks")
        self._nodes, self._chunks, self._rate, self._tries = nodes, chunks, store, tries
        self._order, self._directed = order, directed
        self._random = np.random.default_rng(seed)
        self._has = np.zeros((nodes, words), np.uint64)
        self._wants = np.zeros((nodes, words), np.uint64)
        first = np.arange(min(window, chunks))
        np.bitwise_or.at(self._wants, (slice(None), first // 64), bit_of(first))
        self._next = np.full(nodes, len(first))  # the first chunk behind the wanted ones
        self._missing = np.full(nodes, chunks)
        self._holders = np.zeros(chunks, np.int64)
        self._sent = np.zeros(chunks, np.int64)
        self._credit = 0.0

    def run(self):
        """Returns the slots until the last node has all, and the files that the store has sent."""
        slots = 0
        while self._missing.any():
            self._slot()
            slots += 1
        return slots, float(self._sent.sum() / self._chunks)

    def _slot(self):
        self._gets = np.full(self._nodes, -1)
        left = self._ask_peers(self._random.permutation(np.flatnonzero(self._missing)))
        self._ask_store(left)
        self._receive()

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
            self._gets[seekers[served]] = self._choose(offers[served])
            seekers = np.delete(seekers, served)
        return seekers

    def _ask_store(self, seekers):
        self._credit += self._rate
        served = seekers[:int(self._credit)]
        self._credit %= 1
        if self._directed:
            for node in served:
                wanted = np.flatnonzero(np.unpackbits(self._wants[node].view(np.uint8),
                                                      bitorder="little"))
                self._gets[node] = wanted[self._sent[wanted].argmin()]
                self._sent[self._gets[node]] += 1
        else:
            self._gets[served] = self._choose(self._wants[served])
            self._sent += np.bincount(self._gets[served], minlength=self._chunks)

    def _choose(self, offers):
        if self._order == "strict":
            return lowest(offers)
        if self._order == "random":
            return any_of(offers, self._random)
        by_rarity = np.lexsort((self._random.random(self._chunks), self._holders))
        rank = np.empty(self._chunks, np.int32)
        rank[by_rarity] = np.arange(self._chunks)
        bits = np.unpackbits(offers.view(np.uint8), axis=1, count=self._chunks, bitorder="little")
        return np.where(bits, rank, self._chunks).argmin(axis=1)

    def _receive(self):
        nodes = np.flatnonzero(self._gets >= 0)
        chunks = self._gets[nodes]
        self._has[nodes, chunks // 64] |= bit_of(chunks)
        self._wants[nodes, chunks // 64] ^= bit_of(chunks)
        self._missing[nodes] -= 1
        self._holders += np.bincount(chunks, minlength=self._chunks)
        nodes = nodes[self._next[nodes] < self._chunks]
        self._wants[nodes, self._next[nodes] // 64] |= bit_of(self._next[nodes])
        self._next[nodes] += 1
