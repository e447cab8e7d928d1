"""weightmap.ray: the copies of a remote checkpoint on the nodes of a Ray cluster."""

from __future__ import annotations

from weightmap._errors import MissingPackageError


def need_ray() -> None:
    try:
        import ray  # noqa: F401
    except ImportError:
        raise MissingPackageError(
            "weightmap.ray needs the package ray: pip install 'weightmap[ray]'"
        ) from None
