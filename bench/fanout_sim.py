"""Simulates how one file reaches N nodes, from a store and from each other (docs/fleet.md).

    fanout_sim.py compare --nodes 1000 [--store-rate 3.125e9] [OPTIONS]
    fanout_sim.py advise --nodes 8 100 1000 --store-rates 12.5e9 92e9 [OPTIONS]

`compare` prints what each way takes: directly from the store, a chain, trees, whole files that are
passed on once complete, and chunks in several orders (bench/swarm.py). `advise` prints, for each
fleet and store, the simplest way whose last node is done within `--patience` times what a node
alone would take; if there is none, the quickest.

Rates are bytes a second; one of the store is its total. Nodes receive and send at once, each at
`--node-rate`. Needs numpy 2. 100,000 nodes with 256 chunks take 20 s and 100 MiB.
"""
import argparse
import functools
import json
import math

from samples import table


# ---- formulae, in slots: the time of one chunk at the rate of a node. `store` is the rate of the
# store, in chunks a slot, and thereby the number of nodes that it serves at their full rate.

def rounds(nodes, store):
    """Until all nodes have what the store sends at every slot, and each node that has it."""
    return math.ceil(math.log2(nodes / max(store, 1) + 1))


def bound(nodes, chunks, store=1.0):
    """No way is quicker: the last node to get its first chunk lacks all others by then, and the
    last chunk that the store sends has to be passed on."""
    return (chunks - 1) / min(store, 1) + rounds(nodes, store)


def directly(nodes, chunks, store=1.0):
    return max(chunks, nodes * chunks / store)


def chain(nodes, chunks):
    """Each node sends to the next."""
    return chunks + nodes - 1


def tree(nodes, chunks, children):
    """Each node sends to so many, which share its link."""
    levels = 0
    while nodes > 0:  # whole levels, the root's first
        nodes -= children**levels
        levels += 1
    return children * (chunks - 1 + levels)


def whole_files(nodes, chunks, store=1.0):
    """Who has the file sends it to one at a time; a store slower than a node sends it once."""
    if store < 1:
        return chunks / store + math.ceil(math.log2(nodes)) * chunks
    return rounds(nodes, math.floor(store)) * chunks


# ---- ways

DIRECTLY, PEERS, CHUNKS = "directly", "whole files of peers", "chunks of peers"
ORDERS = {  # of chunks: options of Swarm
    "chunks, in file order": {"order": "strict"},
    "chunks, random within the next {window}": {"order": "random"},
    "chunks, rarest within the next {window}": {"order": "rarest"},
    "chunks, random within the next {window}, the store sends its least sent": {"directed": True},
}


@functools.cache
def swarm(nodes, chunks, store, window, tries, seed, order="random", directed=True):
    """Returns slots and the files that the store sent."""
    from swarm import Swarm  # needs numpy
    return Swarm(nodes, chunks, store, order, window, tries, directed, seed).run()


class Fleet:
    """What is fetched, and how."""

    def __init__(self, arguments):
        self._arguments = arguments
        self._chunks = math.ceil(arguments.bytes / arguments.chunk_bytes)
        # Fewer, larger chunks are passed on later: the simulation errs to the slow side.
        self._simulated = min(self._chunks, arguments.chunks)

    def seconds(self, slots, chunks):
        return slots * self._arguments.bytes / chunks / self._arguments.node_rate

    def alone(self, store_rate):
        return self._arguments.bytes / min(self._arguments.node_rate, store_rate)

    def by_formula(self, formula, nodes, *rest):
        return self.seconds(formula(nodes, self._chunks, *rest), self._chunks)

    def by_simulation(self, nodes, store, **order):
        slots, files = swarm(nodes, self._simulated, store, self._arguments.window,
                             self._arguments.tries, self._arguments.seed, **order)
        return self.seconds(slots, self._simulated), files

    def compare(self, nodes, store_rate):
        """One row for each way."""
        store = store_rate / self._arguments.node_rate
        least = self.by_formula(bound, nodes, store)
        rows = [("bound", least, 1.0),
                (DIRECTLY, self.by_formula(directly, nodes, store), float(nodes)),
                ("chain", self.by_formula(chain, nodes), 1.0),
                *((f"tree of {children}", self.by_formula(tree, nodes, children), 1.0)
                  for children in (2, 4)),
                (PEERS, self.by_formula(whole_files, nodes, store), None)]
        for words, options in ORDERS.items():
            options = {"directed": False, **options}
            rows.append((words.format(window=self._arguments.window),
                         *self.by_simulation(nodes, store, **options)))
        return [{"way": way, "seconds": seconds, "times_bound": seconds / least,
                 "files_from_store": files} for way, seconds, files in rows]

    def advise(self, nodes, store_rate):
        store = store_rate / self._arguments.node_rate
        patience = self._arguments.patience * self.alone(store_rate)
        seconds = {DIRECTLY: self.by_formula(directly, nodes, store),
                   CHUNKS: self.by_simulation(nodes, store)[0]}
        quickest = min(seconds, key=seconds.get)
        use = next((way for way in seconds if seconds[way] <= patience), quickest)
        return {"nodes": nodes, "store_rate": store_rate, "nodes_at_full_rate": store,
                "alone_seconds": self.alone(store_rate), "seconds": seconds, "use": use}


# ---- output

def comparison_table(rows):
    cells = [[row["way"], f"{row['seconds']:,.1f} s", f"{row['times_bound']:.2f}",
              "" if row["files_from_store"] is None else f"{row['files_from_store']:,.1f}"]
             for row in rows]
    return table(["", "last node", "times the bound", "files from the store"], cells)


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


def parser():
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--nodes", type=count, nargs="+", default=[1000])
    common.add_argument("--node-rate", type=positive, default=3.125e9, help="default: 25 Gb/s")
    common.add_argument("--bytes", type=positive, default=140e9, help="of the file")
    common.add_argument("--chunk-bytes", type=positive, default=16 << 20)
    common.add_argument("--chunks", type=count, default=256,
                        help="at most so many, larger ones, are simulated")
    common.add_argument("--window", type=count, default=32,
                        help="a node asks for one of so many chunks that it lacks")
    common.add_argument("--tries", type=count, default=8, help="peers asked in a slot")
    common.add_argument("--seed", type=int, default=1)
    common.add_argument("--json", action="store_true")
    whole = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = whole.add_subparsers(dest="command", required=True)
    compare = commands.add_parser("compare", parents=[common])
    compare.add_argument("--store-rate", type=positive, default=3.125e9, help="default: 25 Gb/s")
    advise = commands.add_parser("advise", parents=[common])
    advise.add_argument("--store-rates", type=positive, nargs="+", default=[12.5e9],
                        help="default: 100 Gb/s")
    advise.add_argument("--patience", type=positive, default=4.0)
    return whole


def main(words=None):
    arguments = parser().parse_args(words)
    fleet = Fleet(arguments)
    if arguments.command == "compare":
        answer = {nodes: fleet.compare(nodes, arguments.store_rate) for nodes in arguments.nodes}
        lines = [line for nodes, rows in answer.items()
                 for line in (f"{nodes:,} nodes:", "", *comparison_table(rows), "")][:-1]
    else:
        answer = [fleet.advise(nodes, rate) for rate in arguments.store_rates
                  for nodes in arguments.nodes]
        lines = advice_table(answer)
    print(json.dumps(answer) if arguments.json else "\n".join(lines))


if __name__ == "__main__":
    main()
