"""Measures how much longer weightmap.ray.hold() takes if a node is killed meanwhile.

    ray_killed_node.py --file FILE [--nodes 5] [--rounds 7] [--chunk-bytes BYTES] [--json]

Starts a cluster of raylets on this machine, and serves FILE, which should lie on a tmpfs, by nginx
on the loopback. Every round holds FILE on all nodes twice, in turns: undisturbed, and with one node
killed when nginx has sent half of FILE. Needs Ray, and a package with libcurl. Ray takes a killed
node for alive for about 15 s, so a round is not shorter than that.
"""
import argparse
import contextlib
import json
import os
import statistics
import sys
import threading
import time
from pathlib import Path

import ray
from compare_remote import served
from ray.cluster_utils import Cluster

import weightmap
from samples import machine, table
from weightmap.ray import hold

NODE = {"num_cpus": 2, "object_store_memory": 256 << 20, "node_ip_address": "127.0.0.1"}


@contextlib.contextmanager
def cluster_of(nodes):
    os.environ["PYTHONPATH"] = str(Path(weightmap.__file__).parents[1])  # of the raylets
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Otherwise ray.init() takes the loopback address for that of an interface.
    ray._private.ray_constants.ENABLE_RAY_CLUSTER = False
    made = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, **NODE})
    for _ in range(nodes - 1):
        made.add_node(**NODE)
    ray.init(address=made.address, log_to_driver=False)
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def sent(log):
    with open(log, encoding="utf-8") as lines:
        return sum(int(line.rsplit(maxsplit=1)[1]) for line in lines)


class Kill:
    """Kills a node of the cluster once `limit` bytes were sent."""

    def __init__(self, cluster, node, log, limit):
        self._cluster, self._node, self._log, self._limit = cluster, node, log, limit
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while sent(self._log) < self._limit:
            time.sleep(0.05)
        self._cluster.remove_node(self._node, allow_graceful=False)

    def wait(self):
        self._thread.join()
        while any(each["NodeID"] == self._node.node_id and each["Alive"] for each in ray.nodes()):
            time.sleep(0.1)


def measure(cluster, arguments, base, log, is_killed):
    """Seconds, and bytes from the store as multiples of the file."""
    size = os.path.getsize(arguments.file)
    last = cluster.add_node(**NODE)  # so that each run begins with the same nodes
    before = sent(log)
    kill = Kill(cluster, last, log, before + size // 2) if is_killed else None
    began = time.monotonic()
    fleet = hold(f"{base}/held/{os.path.basename(arguments.file)}", source="peers",
                 chunk_bytes=arguments.chunk_bytes)
    took = time.monotonic() - began
    copies = (sent(log) - before) / size
    if kill:
        kill.wait()
    fleet.release()
    if not is_killed:
        cluster.remove_node(last)
    return {"seconds": took, "copies_from_store": copies}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", required=True, type=os.path.abspath)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--chunk-bytes", type=int, default=4 << 20)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rounds = []
    # Ray prints what raylets say.
    with (contextlib.redirect_stdout(sys.stderr),
          served(arguments.file, "127.0.0.1") as (base, log),
          cluster_of(arguments.nodes - 1) as made):
        measure(made, arguments, base, log, False)  # workers start for the first time
        for number in range(arguments.rounds):
            order = (False, True) if number % 2 == 0 else (True, False)
            rounds.append({("killed" if is_killed else "undisturbed"):
                           measure(made, arguments, base, log, is_killed) for is_killed in order})
    if arguments.json:
        print(json.dumps({"nodes": arguments.nodes, "rounds": rounds}))
        return
    added = sorted(each["killed"]["seconds"] - each["undisturbed"]["seconds"] for each in rounds)
    rows = [[way, f"{statistics.median(each[way]['seconds'] for each in rounds):.1f}",
             f"{statistics.median(each[way]['copies_from_store'] for each in rounds):.2f}"]
            for way in ("undisturbed", "killed")]
    print(f"{machine()}. {arguments.nodes} nodes, {arguments.rounds} rounds.", "",
          *table(["", "seconds", "copies from the store"], rows), "",
          f"A killed node adds {statistics.median(added):.1f} s [{added[0]:.1f}, {added[-1]:.1f}].",
          sep="\n")


if __name__ == "__main__":
    main()
