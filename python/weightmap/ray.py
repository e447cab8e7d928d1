"""One copy of a remote checkpoint on each node of a Ray cluster, of one generation for all.

    fleet = weightmap.ray.hold("https://host/model.safetensors")
    path = weightmap.ray.local(fleet)           # on any node
    fleet.publish("https://host/model-2.safetensors")

`python -m weightmap.ray` does the same from the command line. docs/ray.md is the manual.
"""

from __future__ import annotations

if __name__ == "__main__":  # before Ray is imported: it may be missing, which is one line then
    import sys

    from weightmap._ray.command import main

    sys.exit(main())

from weightmap._ray import need_ray as _need_ray

_need_ray()

from weightmap._ray.fleet import Fleet, hold, local  # noqa: E402
from weightmap._ray.records import NodeStatus  # noqa: E402

__all__ = ["Fleet", "NodeStatus", "hold", "local"]

for _public in (Fleet, NodeStatus):
    _public.__module__ = __name__  # where people import them from
