#!/bin/bash
# paddlepaddle 3.3.1: paddle.load(return_numpy=True) gives bfloat16 weights as whole numbers, 16256
# for 1.0, and paddle.load() makes bfloat16 of an array of uint16, without an error or a warning.
#
# numpy has no bfloat16, so paddle.save() writes such tensors as arrays of uint16, with nothing in the
# file that tells them from whole numbers. paddle.load() therefore takes every array of uint16 for
# bfloat16: numbers that were saved as uint16 come back as other numbers. return_numpy=True hands the
# bits out as they are. float16 is right both ways.
#
# Seen (paddlepaddle 3.3.1, Python 3.11, CPU):
#   saved: bfloat16 [1.0, -2.0] and float16 [1.0]
#   load(): paddle.bfloat16 [1.0, -2.0]
#   load(return_numpy=True): uint16 [16256, 49152] and float16 [1.0]
#   saved: uint16 [16256, 1]
#   load(): paddle.bfloat16, of which the first is 1.0
#
# Ends with 1 if any of these lines changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet paddlepaddle==3.3.1 numpy==2.4.6 setuptools

cat >"$folder/program.py" <<'PROGRAM'
import sys

import numpy
import paddle

path = f"{sys.argv[1]}/weights.pdparams"
weights = {"w": paddle.to_tensor([1.0, -2.0]).astype("bfloat16"),
           "half": paddle.to_tensor([1.0]).astype("float16")}
paddle.save(weights, path)
print("saved: bfloat16 [1.0, -2.0] and float16 [1.0]")
loaded = paddle.load(path)["w"]
print("load():", loaded.dtype, loaded.astype("float32").tolist())
arrays = paddle.load(path, return_numpy=True)
print("load(return_numpy=True):", arrays["w"].dtype, arrays["w"].tolist(), "and",
      arrays["half"].dtype, arrays["half"].tolist())

paddle.save({"ids": numpy.array([16256, 1], dtype="uint16")}, path)
print("saved: uint16 [16256, 1]")
loaded = paddle.load(path)["ids"]
print(f"load(): {loaded.dtype}, of which the first is {float(loaded[0].astype('float32'))}")
PROGRAM

cat >"$folder/expected" <<'SEEN'
saved: bfloat16 [1.0, -2.0] and float16 [1.0]
load(): paddle.bfloat16 [1.0, -2.0]
load(return_numpy=True): uint16 [16256, 49152] and float16 [1.0]
saved: uint16 [16256, 1]
load(): paddle.bfloat16, of which the first is 1.0
SEEN
"$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" 2>"$folder/errors" |
  tee "$folder/found" || cat "$folder/errors"
diff "$folder/expected" "$folder/found"
