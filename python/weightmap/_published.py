"""What a trainer has published in a folder: deltas, and whole versions."""

from __future__ import annotations

import json
import os
import stat

from weightmap import _core
from weightmap._errors import Error, file_error
from weightmap._watch import seen_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from weightmap._watch import SeenFile

    Key = int | str  # of a version: equal for "7" and "000007"

_INDEX = "model.safetensors.index.json"
_LARGEST_INDEX = 32_000_000  # bytes


class Published:
    """The folders in a folder of deltas. One whose index is not there yet is none of them."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._read: dict[str, tuple[SeenFile, dict[str, str]]] = {}  # by path, while it stays

    def __iter__(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Each with its facts: of a delta the metadata of its index, of a whole version its version."""
        try:
            names = os.listdir(self._folder)
        except OSError as error:
            raise file_error(error, "cannot list the deltas", self._folder) from None
        for name in sorted(names):
            path = os.path.join(self._folder, name)
            if name.startswith("."):
                continue
            try:
                seen = seen_file(_INDEX, os.stat(os.path.join(path, _INDEX)))
            except OSError:
                continue
            known = self._read.get(path)
            if known is None or known[0] != seen:
                known = seen, _facts_in(path)
                if known[1]:
                    self._read[path] = known
            yield path, known[1]


def _facts_in(path: str) -> dict[str, str]:
    facts = _texts(read_json(os.path.join(path, _INDEX)).get("metadata"))
    if "delta_encoding" in facts:
        return facts
    version = version_in(path)
    return {"version": version} if version else {}


def _texts(metadata: object) -> dict[str, str]:
    if not isinstance(metadata, dict):
        return {}
    return {key: text for key, text in metadata.items() if isinstance(text, str)}


def read_json(path: str) -> dict[str, Any]:
    """Empty for what is no regular file of a reasonable size with an object."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_INDEX:
            return {}
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def version_in(folder: str) -> str:
    """Of a model; empty if it cannot be told, or opened."""
    try:
        return _core.model_version(os.fsencode(folder))
    except Error:
        return ""


def key_of(version: str) -> Key:
    """As the library compares versions: numbers are of 64 bits."""
    is_number = version.isascii() and version.isdecimal() and len(version) <= 200
    number = int(version) if is_number else 1 << 64
    return number if number < 1 << 64 else version


def is_later(version: str, than: str) -> bool:
    """False of versions that are no numbers, which have no order."""
    mine, other = key_of(version), key_of(than)
    return isinstance(mine, int) and isinstance(other, int) and mine > other
