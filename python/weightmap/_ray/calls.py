"""Answers of actors, with the errors of weightmap as they were raised there."""

from __future__ import annotations

import errno

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from weightmap._errors import Error, FileError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAMESPACE = "weightmap"  # of the named actors


def answer(call: Any, timeout: float | None = None) -> Any:
    """Waits for it. Raises weightmap.Error, also after `timeout` seconds."""
    try:
        return ray.get(call, timeout=timeout)
    except GetTimeoutError:
        raise timed_out(timeout) from None
    except RayTaskError as error:
        raise as_error(error) from None
    except RayError as error:
        raise FileError(f"the fleet's actor gave no answer: {error}") from error


def timed_out(timeout: float | None) -> FileError:
    return FileError(f"not held within {timeout:g} s", errno=errno.ETIMEDOUT)


def as_error(error: RayTaskError) -> Error:
    """What was raised there."""
    cause: object = error.cause
    while isinstance(cause, RayTaskError):
        cause = cause.cause
    if isinstance(cause, Error):
        return cause
    return FileError(f"{type(cause).__name__}: {cause}")
