#!/bin/bash
# model-signing 1.1.1 (OpenSSF Model Signing), installed by pip into a new environment, cannot be
# imported, and its command cannot be run: it imports OpenSSL, the package pyOpenSSL, which it does
# not require.
#
# `from OpenSSL import crypto` is in the module that signs with certificates, which every import of
# the package reads. Its requirements have sigstore>=4.0 and no pyOpenSSL, which came with older
# releases of that; none of what pip installs today brings it. `pip install pyOpenSSL` is the way
# out.
#
# Seen (model-signing 1.1.1, sigstore 4.5.1, cryptography 50.0.2, Python 3.11):
#   model_signing: ModuleNotFoundError: No module named 'OpenSSL'
#   required: asn1crypto, blake3, click, cryptography, in-toto-attestation, sigstore, sigstore-models, typing-extensions
#   with pyOpenSSL 26.4.0: imported
#
# Ends with 1 if any of these lines changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet model-signing==1.1.1 sigstore==4.5.1 \
  cryptography==50.0.2

cat >"$folder/required.py" <<'PROGRAM'
import importlib.metadata
import re

required = importlib.metadata.requires("model-signing")
print("required:", ", ".join(sorted(re.match(r"[\w.-]+", each)[0] for each in required
                                    if "extra ==" not in each)))
PROGRAM

cat >"$folder/expected" <<'SEEN'
model_signing: ModuleNotFoundError: No module named 'OpenSSL'
required: asn1crypto, blake3, click, cryptography, in-toto-attestation, sigstore, sigstore-models, typing-extensions
with pyOpenSSL 26.4.0: imported
SEEN
{
  echo "model_signing: $({ "$folder/venv/bin/model_signing" --help 2>&1 || true; } | tail -1)"
  "$folder/venv/bin/python" "$folder/required.py"
  "$folder/venv/bin/python" -m pip install --quiet pyOpenSSL==26.4.0 2>/dev/null
  "$folder/venv/bin/python" -c \
    'import model_signing, OpenSSL; print(f"with pyOpenSSL {OpenSSL.__version__}: imported")'
} 2>&1 | tee "$folder/found"
diff "$folder/expected" "$folder/found"
