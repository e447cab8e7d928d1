"""Signatures of OpenSSF Model Signing, which the package model-signing verifies."""

from __future__ import annotations

import os

from weightmap._errors import CorruptError, FileError, InvalidArgumentError, UnsupportedError
from weightmap._remote.bridge import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from weightmap._typing import PathLike


def verify_signature(
    folder: PathLike,
    *,
    public_key: PathLike | None = None,
    identity: str | None = None,
    issuer: str | None = None,
    signature: PathLike | None = None,
) -> None:
    """Verifies the OpenSSF Model Signing signature of a model: who signed it, and all its files.

        weightmap.remote.fetch_model(url, link, check=lambda folder: verify_signature(
            folder, public_key="/etc/keys/models.pub"))

    folder: of the model. Files that are missing, differ or were not signed are errors; git's are not.
    public_key: of the signer, a PEM file with a key of an elliptic curve.
    identity, issuer: in its place, who signed by Sigstore and which OpenID provider said so:
        "name@example.com" and "https://accounts.google.com". Asks Sigstore for its keys.
    signature: the file; model.sig in the folder unless given. Only of whole files (method "files").

    The package model-signing does the work, and CorruptError has its words for what is wrong.
    UnsupportedError if that cannot be imported. Any thread may call it, and a forked child.
    """
    given = (public_key is not None, identity is not None, issuer is not None)
    if given not in ((True, False, False), (False, True, True)):
        raise InvalidArgumentError("expected public_key, or identity and issuer")
    path = os.path.realpath(os.fsdecode(folder))  # the package refuses a link
    file = os.path.join(path, "model.sig") if signature is None else os.fsdecode(signature)
    hashing, verifying = _package(path)
    config = verifying.Config().set_hashing_config(
        hashing.Config().set_ignored_paths(paths=[os.path.abspath(file)], ignore_git_paths=True)
    )
    try:
        if public_key is not None:
            config.use_elliptic_key_verifier(public_key=os.fsdecode(public_key))
        else:
            config.use_sigstore_verifier(identity=identity, oidc_issuer=issuer)
        config.verify(path, file)
    except Exception as error:
        kind = FileError if isinstance(error, OSError) else CorruptError
        raise kind(f"its signature is not verified: {tell(error)[0]}", file=path) from error


def _package(path: str) -> tuple[Any, Any]:
    try:
        from model_signing import hashing, verifying
    except ImportError as error:
        raise UnsupportedError(
            "signatures are verified by the package model-signing, which cannot be imported "
            f"({error}): pip install model-signing pyOpenSSL",
            file=path,
        ) from None
    return hashing, verifying
