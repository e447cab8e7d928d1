#!/bin/bash
# Python 3.15 with -X lazy_imports=all: torch 2.15.0 and mpmath 1.3.0, which sympy needs, fail.
#
# Both import modules for their effects: mpmath one that adds functions to a class, torch ones that
# import each other in a certain order. An import that is put off until a name is used comes too
# late for that, or within another one. So the option is not for a program that uses torch, unless
# sys.set_lazy_imports_filter() leaves out what torch, sympy and mpmath import.
#
# Seen (Python 3.15.2; the import of torch alone does nothing yet):
#   mpmath: AttributeError
#   torch: ImportError
#   torch without its own, sympy's and mpmath's: 3.0
#
# Needs python3.15 with its module venv, and 9 GB for torch. Ends with 1 if a line changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.15 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.15.0 mpmath==1.3.0 sympy==1.14.0

# NAME PROGRAM: what it prints, or the name of what it raises.
try() {
  echo "$1: $("$folder/venv/bin/python" -X lazy_imports=all -c "$2" 2>&1 | tail -1 | cut -d: -f1)"
}

cat >"$folder/expected" <<'SEEN'
mpmath: AttributeError
torch: ImportError
torch without its own, sympy's and mpmath's: 3.0
SEEN
{
  try mpmath "import mpmath; print(mpmath.mpf(3))"
  try torch "import torch; print(torch.ones(3).sum().item())"
  try "torch without its own, sympy's and mpmath's" "
import sys
eager = 'torch', 'sympy', 'mpmath'
sys.set_lazy_imports_filter(lambda importer, name, names: not (importer or '').startswith(eager))
import torch
print(torch.ones(3).sum().item())"
} | tee "$folder/found"
diff "$folder/expected" "$folder/found"
