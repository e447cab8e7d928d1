"""URLs where paths are taken, and what of them may be shown."""

from __future__ import annotations

import errno
import os
import re

from weightmap._errors import MissingFileError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from weightmap._typing import PathLike

_SCHEMES = ("http", "https", "s3", "file", "gs", "az", "hf")


def is_url(text: object) -> bool:
    return isinstance(text, str) and text.partition("://")[0].lower() in _SCHEMES and "://" in text


def without_secrets(url: str) -> str:
    """Without user, password, query and fragment, any of which may be a credential."""
    scheme, mark, rest = url.partition("#")[0].partition("?")[0].partition("://")
    host, slash, path = rest.partition("/")
    return scheme + mark + host.rpartition("@")[2] + slash + path


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


def file_of(path: PathLike) -> bytes:
    """The path of a file as the library takes it; an error that says what to call for a URL."""
    text = os.fsdecode(path)
    if is_url(text) and not os.path.lexists(text):
        raise MissingFileError(
            "is a URL, and not a file: weightmap.remote.stage(url) brings it into shared memory, "
            "weightmap.remote.fetch(url, path) into a file",
            file=without_secrets(text),
            errno=errno.ENOENT,
        )
    return os.fsencode(path)
