"""One version of a file in a store."""

from __future__ import annotations

import hashlib
import re

from weightmap._errors import FileError, UnsupportedError
from weightmap._record import Record
from weightmap._urls import without_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from weightmap._typing import RangeSource

    Opener = Callable[[str], RangeSource]


class Stored(Record):
    """What all processes of a fleet read, and no other version of it."""

    url: str
    tag: str  # HTTP's ETag
    size: int  # bytes
    opener: Opener | None  # of the URL; None: weightmap.remote.open_url

    @classmethod
    def at(cls, url: str, opener: Opener | None) -> Stored:
        """The version that the store has now."""
        source = _open(url, opener)
        if not source.tag:
            raise UnsupportedError(
                "the store names no version of it (no ETag), so nodes could get different ones",
                file=without_secrets(url),
            )
        return cls(url, source.tag, source.size, opener)

    def open(self) -> RangeSource:
        """For one thread. Raises FileError, "changed", if the store has another version."""
        source = _open(self.url, self.opener)
        if (source.tag, source.size) != (self.tag, self.size):
            raise FileError(
                f"changed: the store has {source.tag} of {source.size} bytes instead of {self.tag}"
                f" of {self.size} bytes",
                file=self.name,
            )
        return source

    @property
    def name(self) -> str:
        """For messages."""
        return without_secrets(self.url)

    @property
    def digest(self) -> str:
        identity = "\0".join([identity_of(self.url), self.tag, str(self.size)])
        return hashlib.sha256(identity.encode()).hexdigest()[:12]


def read(source: RangeSource, offset: int, buffer: memoryview) -> None:
    """Fills the buffer. Where a client cannot ask for one version alone, it looks afterwards."""
    source.read_into(offset, buffer)
    check = getattr(source, "check", None)
    if check is not None:
        check()


def _open(url: str, opener: Opener | None) -> RangeSource:
    if opener is None:
        from weightmap.remote import open_url

        opener = open_url
    return opener(url)


# Parameters that are a signature, or belong to one: those of the second row where the first is there.
_OF_SIGNATURES = {
    "x-amz-signature": r"x-amz-.*",
    "x-goog-signature": r"x-goog-.*",
    "signature": r"awsaccesskeyid|googleaccessid|expires|policy|key-pair-id|x-amz-security-token",
    "sig": r"sv|ss|srt|sr|se|st|sp|spr|sip|sdd|skoid|sktid|skt|ske|sks|skv",  # a SAS of Azure
}


def identity_of(url: str) -> str:
    """What two URLs of one file have in common, whoever may read it until when; not to be shown."""
    parameters = url.partition("#")[0].partition("?")[2].split("&")
    names = [parameter.partition("=")[0].lower() for parameter in parameters]
    dropped = "|".join(f"{sign}|{others}" for sign, others in _OF_SIGNATURES.items() if sign in names)
    kept = [
        parameter for parameter, name in zip(parameters, names)
        if parameter and not re.fullmatch(dropped, name)
    ]
    return "?".join([without_secrets(url), *(["&".join(kept)] if kept else [])])


def name_of(url: str) -> str:
    """The name of a fleet that was given none: of one file, however its URL is signed."""
    shown = without_secrets(url)
    last = re.sub(r"[^A-Za-z0-9._-]+", "-", shown.rstrip("/").rpartition("/")[2])[:64]
    return f"{last}-{hashlib.sha256(identity_of(url).encode()).hexdigest()[:8]}"
