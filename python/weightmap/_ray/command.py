"""python -m weightmap.ray: a fleet, from the command line."""

from __future__ import annotations

import argparse
import json
import sys

from weightmap._errors import Error, FileError
from weightmap._ray import need_ray
from weightmap._summary import human_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from weightmap._ray.fleet import Fleet
    from weightmap._ray.records import NodeStatus
    from weightmap._ray.stored import Opener


def main(words: list[str] | None = None) -> int:
    """0: done; 1: it failed; 2: wrong usage."""
    arguments = _parser().parse_args(words)
    act: Callable[[argparse.Namespace], str] = arguments.act
    try:
        _connect(arguments.address)
        print(act(arguments))
    except Error as error:
        print(f"weightmap: {error}", file=sys.stderr)
        return 1
    return 0


def _connect(address: str) -> None:
    need_ray()
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level="WARNING")
    except (OSError, RuntimeError, ValueError) as error:  # no cluster, a dead one, no address
        raise FileError(str(error), file=address) from error


def _hold(arguments: argparse.Namespace) -> str:
    from weightmap._ray.fleet import hold

    return hold(
        arguments.url,
        source=arguments.source,
        verify=not arguments.no_verify,
        name=arguments.name,
        quorum=arguments.quorum,
        timeout=arguments.timeout,
        opener=arguments.opener,
    ).name


def _publish(arguments: argparse.Namespace) -> str:
    return str(
        _fleet(arguments).publish(
            arguments.url, quorum=arguments.quorum, timeout=arguments.timeout
        )
    )


def _local(arguments: argparse.Namespace) -> str:
    from weightmap._ray.fleet import local

    return local(arguments.fleet, link=arguments.link, timeout=arguments.timeout)


def _status(arguments: argparse.Namespace) -> str:
    found = list(_fleet(arguments).status().values())
    if arguments.json:
        return json.dumps([dict(zip(each._fields, each._values())) for each in found])
    return table(found)


def _release(arguments: argparse.Namespace) -> str:
    fleet = _fleet(arguments)
    fleet.release()
    return f"{fleet.name}: released"


def _fleet(arguments: argparse.Namespace) -> Fleet:
    from weightmap._ray.fleet import fleet_of

    return fleet_of(arguments.fleet)


def table(nodes: list[NodeStatus]) -> str:
    """For people; what went wrong on a node follows in a line of its own."""
    rows = [("NODE", "STATE", "GENERATION", "FROM STORE", "FROM PEERS", "RETRIES", "SECONDS")]
    for node in nodes:
        rows.append((node.node[:12], node.state, str(node.generation),
                     human_bytes(node.bytes_from_store), human_bytes(node.bytes_from_peers),
                     str(node.retries), f"{node.seconds:.1f}"))
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = [
        "  ".join(
            word.ljust(width) if column < 2 else word.rjust(width)
            for column, (word, width) in enumerate(zip(row, widths))
        )
        for row in rows
    ]
    lines += [f"{node.node[:12]}: {node.error}" for node in nodes if node.error]
    return "\n".join(lines)


def _opener(text: str) -> Opener:
    from importlib import import_module

    module, _, function = text.partition(":")
    try:
        found: Opener = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m weightmap.ray",
        description="One copy of a remote checkpoint on each node of a Ray cluster",
        epilog="FLEET is its name, or the URL that it was made from. docs/ray.md is the manual.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        name: str, act: Callable[[argparse.Namespace], str], text: str, *words: str
    ) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        made.set_defaults(act=act)
        for word in words:
            made.add_argument(word, metavar=word.upper())
        made.add_argument("--address", default="auto",
                          help="of the cluster; the one that this node belongs to unless given")
        return made

    def takes_time(made: argparse.ArgumentParser) -> None:
        made.add_argument("--timeout", type=float, metavar="S", help="give up after S seconds")

    def takes_quorum(made: argparse.ArgumentParser) -> None:
        made.add_argument("--quorum", type=int, metavar="N", help="enough if N nodes have it")
        takes_time(made)

    made = command("hold", _hold, "Bring a file to all nodes, and print the fleet's name", "url")
    made.add_argument("--name", help="of the fleet; made from the URL unless given")
    made.add_argument("--source", choices=("auto", "peers", "store"), default="auto",
                      help="peers: each chunk is read once, and Ray brings it to the others; auto: "
                      "from 7 nodes on")
    made.add_argument("--no-verify", action="store_true", help="compare no checksums")
    made.add_argument("--opener", type=_opener, metavar="MODULE:FUNCTION",
                      help="makes a source of the URL, with credentials")
    takes_quorum(made)
    made = command("status", _status, "What each node has, and how it got it", "fleet")
    made.add_argument("--json", action="store_true", help="one JSON document")
    takes_quorum(
        command("publish", _publish, "Have all nodes use another file or version", "fleet", "url")
    )
    made = command("local", _local, "Print the path of this node's copy, once it is there", "fleet")
    made.add_argument("--link", metavar="PATH", help="lead this symbolic link to it, from now on")
    takes_time(made)
    command("release", _release, "Remove the copies, and the actors that keep them", "fleet")
    return parser
