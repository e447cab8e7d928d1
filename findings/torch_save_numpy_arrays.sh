#!/bin/bash
# torch 2.13.0: torch.save() of a dict of numpy arrays makes a file of up to 1.5 times their size, in
# which the bytes of the arrays do not occur; with pickle_protocol=3 or higher they are as they are.
#
# torch.save() pickles with protocol 2 unless told otherwise, which knows no bytes: Python spells them
# as text, each byte a character of latin-1, in UTF-8, where those from 128 on take two bytes, and has
# the loader encode that text again. Tensors are records of their own and do not suffer; optimizers'
# and data loaders' states, normalisation tables and whole models of numpy arrays do. The arrays
# cannot be mapped from such a file by anything, and torch.load(mmap=True) does not help.
#
# Seen (torch 2.13.0, numpy 2.4.6, Python 3.11, CPU):
#   tensor: 1.00 times 4 MiB; its bytes are in the file: True
#   array, protocol 2 (the default): 1.51 times 4 MiB; its bytes are in the file: False
#   array, protocol 3: 1.00 times 4 MiB; its bytes are in the file: True
#   array, protocol 5: 1.00 times 4 MiB; its bytes are in the file: True
#   all of them loaded equal
#
# Ends with 1 if any of these lines changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0 numpy==2.4.6

cat >"$folder/program.py" <<'PROGRAM'
import pathlib
import sys

import numpy
import torch

path = pathlib.Path(sys.argv[1]) / "weights.pt"
array = numpy.random.default_rng(0).standard_normal(1 << 20).astype("float32")


def show(name, value, **options):
    torch.save({"w": value}, path, **options)
    content = path.read_bytes()
    print(f"{name}: {len(content) / array.nbytes:.2f} times 4 MiB; its bytes are in the file:",
          array.tobytes() in content)
    loaded = torch.load(path, weights_only=False)["w"]
    assert numpy.array_equal(numpy.asarray(loaded), array)


show("tensor", torch.from_numpy(array))
show("array, protocol 2 (the default)", array)
for protocol in (3, 5):
    show(f"array, protocol {protocol}", array, pickle_protocol=protocol)
print("all of them loaded equal")
PROGRAM

cat >"$folder/expected" <<'SEEN'
tensor: 1.00 times 4 MiB; its bytes are in the file: True
array, protocol 2 (the default): 1.51 times 4 MiB; its bytes are in the file: False
array, protocol 3: 1.00 times 4 MiB; its bytes are in the file: True
array, protocol 5: 1.00 times 4 MiB; its bytes are in the file: True
all of them loaded equal
SEEN
"$folder/venv/bin/python" "$folder/program.py" "$folder" 2>&1 | tee "$folder/found"
diff "$folder/expected" "$folder/found"
