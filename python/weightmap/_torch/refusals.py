"""What is said of a pickle that is refused, in the words that users of torch know."""

from __future__ import annotations

from collections.abc import Iterable

from weightmap import _core
from weightmap._errors import Error, UnsafePickleError
from weightmap._torch import private

BLOCKED = frozenset(private._blocklisted_modules)
# Classes that torch's rules never fill, so that registering them does not help.
_NEVER_FILLED = ("collections.deque",)
_MOST_NAMES = 50  # that an error lists
_LONGEST_NAME = 200


def refused(what: str) -> UnsafePickleError:
    return UnsafePickleError(f"Weights only load failed. {what}")


def unexpected(what: str) -> UnsafePickleError:
    """For what torch asks to be told of, in the words that its users know."""
    return refused(
        "Please file an issue with the following so that we can make `weights_only=True` "
        f"compatible with your use case: WeightsUnpickler error: {what}"
    )


def explained_refusal(
    error: UnsafePickleError, path: bytes, registered: Iterable[str]
) -> UnsafePickleError:
    """The error of an open that was refused for what the pickle names, in torch's words."""
    try:
        found = _core.list_globals(path, {"safe_globals": [*registered]})
    except Error:
        found = []
    harmful = [(module, name) for module, name, verdict in found if verdict == "harmful"]
    unknown = [f"{module}.{name}" for module, name, verdict in found if verdict == "unknown"]
    if harmful:
        module, name = harmful[0]
        full = shown(f"{module}.{name}")
        what = (
            blocked(shown(module), full)
            if module in BLOCKED
            else f"Unsupported global: GLOBAL {full} was not an allowed global by default, and is "
            "refused whether it is registered or not, since it can only do harm"
        )
        explained = refused(f"{what}. Nothing was run.")
    elif unknown:
        explained = refused(unknown_globals([shown(name) for name in unknown]))
    else:
        explained = unexpected(error.message)
    explained.file, explained.file_offset = error.file, error.file_offset
    return explained


def blocked(module: str, path: str) -> str:
    return f"Trying to load unsupported GLOBAL {path} whose module {module} is blocked"


def shown(path: str) -> str:
    path = path.removeprefix("builtins.")
    path = path if path.isprintable() else repr(path)
    return path if len(path) <= _LONGEST_NAME else path[:_LONGEST_NAME] + "..."


def listed(names: list[str]) -> str:
    names = list(dict.fromkeys(names))
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def unknown_globals(names: list[str]) -> str:
    names = list(dict.fromkeys(names))
    others = f", nor {listed(names[1:])}" if len(names) > 1 else ""
    text = f"Unsupported global: GLOBAL {names[0]} was not an allowed global by default{others}. "
    hopeless = [name for name in names if name in _NEVER_FILLED]
    usable = [name for name in names if name not in _NEVER_FILLED]
    if usable:
        names_in = listed(usable)
        text += (
            f"Please use `torch.serialization.add_safe_globals([{names_in}])` or the "
            f"`torch.serialization.safe_globals([{names_in}])` context manager to allowlist "
            f"{'this global' if len(usable) == 1 else 'these globals'} if you trust "
            f"{'this class/function' if len(usable) == 1 else 'these classes/functions'}"
        )
    if hopeless:
        verb = "is" if len(hopeless) == 1 else "are"
        text += ". " if usable else ""
        text += f"{listed(hopeless)} {verb} not loaded even if registered"
    return text
