#!/bin/bash
# model-signing 1.1.1 (OpenSSF Model Signing): a model that was signed by shards cannot be verified.
#
# use_shard_serialization() is the documented way to sign large files in parts of 1 GB, and verify()
# finds out from the signature how it was made. The size of the shards goes through a
# google.protobuf.Struct, whose numbers are doubles: the signature has 1000000000.0, of which verify()
# makes a range() and fails with a TypeError, whatever the files are. It is no matter of the files:
# verify() of the same signature passes once the caller repeats the hashing configuration of the
# signer by hand. One whose name has a colon fails then, too: shards are called NAME:START:END, and
# the name is split at every colon, though signing it was no error. Signatures of whole files (the
# default, and all that the command line makes) have neither fault.
#
# Seen (model-signing 1.1.1, sigstore 4.5.1, in-toto-attestation 0.9.3, protobuf 7.36.2,
# pyOpenSSL 26.4.0, which it imports and does not require, Python 3.11):
#   files: verified
#   shards: shard_size 1000000000.0: TypeError: 'float' object cannot be interpreted as an integer
#   shards, configured by hand: verified
#   shards of "a:b", configured by hand: ValueError: Invalid resource name: expected 3 components separated by `:`, got a:b:0:10
#   files, "a:b": verified
#
# Ends with 1 if any of these lines changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet model-signing==1.1.1 sigstore==4.5.1 \
  in-toto-attestation==0.9.3 protobuf==7.36.2 cryptography==50.0.2 pyOpenSSL==26.4.0

cat >"$folder/program.py" <<'PROGRAM'
import base64
import json
import os
import pathlib

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from model_signing import hashing, signing, verifying

key = ec.generate_private_key(ec.SECP256R1())
pathlib.Path("key.pem").write_bytes(key.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
pathlib.Path("key.pub").write_bytes(key.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo))


def shards():
    return hashing.Config().use_shard_serialization()


def signed(name, config):
    """The signature of a folder with a file of this name."""
    os.makedirs(f"model-{name}", exist_ok=True)
    pathlib.Path(f"model-{name}", name).write_bytes(b"0123456789")
    signing.Config().use_elliptic_key_signer(private_key="key.pem").set_hashing_config(
        config).sign(f"model-{name}", "model.sig")


def verified(name, config=None):
    verifier = verifying.Config().use_elliptic_key_verifier(public_key="key.pub")
    if config is not None:
        verifier.set_hashing_config(config)
    try:
        verifier.verify(f"model-{name}", "model.sig")
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "verified"


def shard_size():
    envelope = json.loads(pathlib.Path("model.sig").read_text())["dsseEnvelope"]
    return json.loads(base64.b64decode(envelope["payload"]))["predicate"]["serialization"]["shard_size"]


signed("a", hashing.Config())
print("files:", verified("a"))
signed("a", shards())
print(f"shards: shard_size {shard_size()}:", verified("a"))
print("shards, configured by hand:", verified("a", shards()))
signed("a:b", shards())
print('shards of "a:b", configured by hand:', verified("a:b", shards()))
signed("a:b", hashing.Config())
print('files, "a:b":', verified("a:b"))
PROGRAM

cat >"$folder/expected" <<'SEEN'
files: verified
shards: shard_size 1000000000.0: TypeError: 'float' object cannot be interpreted as an integer
shards, configured by hand: verified
shards of "a:b", configured by hand: ValueError: Invalid resource name: expected 3 components separated by `:`, got a:b:0:10
files, "a:b": verified
SEEN
(cd "$folder" && venv/bin/python program.py) 2>&1 | tee "$folder/found"
diff "$folder/expected" "$folder/found"
