#!/bin/bash
# safetensors 0.8.0: safetensors.numpy.save_file() writes arrays in column-major order, and views with
# steps, as other values, without an error or a warning; 0.7.0 wrote them right.
#
# save() and save_file() of safetensors.numpy take the address and the length of an array and ask for
# neither its strides nor its order, so what is written is the memory from there on. A transposed
# array (a kernel on its way from TensorFlow to torch, components out of scikit-learn's PCA) gets its
# own shape and the values of the other order; every reader takes the file for good. The docstring
# says that tensors "need to be contiguous and dense", of which numpy calls a column-major array
# both. 0.7.0 copied such arrays (the library's issue 825 tells of it), and
# safetensors.torch.save_file() refuses them still. numpy.ascontiguousarray() is the way out.
#
# Seen (safetensors 0.7.0 and 0.8.0, numpy 2.4.6, Python 3.11):
#   0.7.0: [[0, 1, 2], [3, 4, 5]] transposed: loaded [[0, 3], [1, 4], [2, 5]]
#   0.7.0: its first and last column: loaded [[0, 2], [3, 5]]
#   0.8.0: [[0, 1, 2], [3, 4, 5]] transposed: loaded [[0, 1], [2, 3], [4, 5]]
#   0.8.0: its first and last column: loaded [[0, 1], [2, 3]]
#   0.8.0: the same by ascontiguousarray(): loaded [[0, 3], [1, 4], [2, 5]] and [[0, 2], [3, 5]]
#
# Ends with 1 if any of these lines changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet safetensors==0.7.0 numpy==2.4.6
"$folder/venv/bin/python" -m pip install --quiet --no-deps \
  --target "$folder/newer" safetensors==0.8.0

cat >"$folder/program.py" <<'PROGRAM'
import sys

import numpy
import safetensors
from safetensors.numpy import load_file, save_file

path = f"{sys.argv[1]}/weights.safetensors"
array = numpy.array([[0, 1, 2], [3, 4, 5]], dtype="int32")
transposed, columns = array.T, array[:, ::2]
version = safetensors.__version__


def through(value):
    save_file({"w": value}, path)
    return load_file(path)["w"].tolist()


print(f"{version}: {array.tolist()} transposed: loaded {through(transposed)}")
print(f"{version}: its first and last column: loaded {through(columns)}")
if version == "0.8.0":
    print(f"{version}: the same by ascontiguousarray(): loaded",
          through(numpy.ascontiguousarray(transposed)), "and",
          through(numpy.ascontiguousarray(columns)))
PROGRAM

cat >"$folder/expected" <<'SEEN'
0.7.0: [[0, 1, 2], [3, 4, 5]] transposed: loaded [[0, 3], [1, 4], [2, 5]]
0.7.0: its first and last column: loaded [[0, 2], [3, 5]]
0.8.0: [[0, 1, 2], [3, 4, 5]] transposed: loaded [[0, 1], [2, 3], [4, 5]]
0.8.0: its first and last column: loaded [[0, 1], [2, 3]]
0.8.0: the same by ascontiguousarray(): loaded [[0, 3], [1, 4], [2, 5]] and [[0, 2], [3, 5]]
SEEN
{
  "$folder/venv/bin/python" "$folder/program.py" "$folder"
  PYTHONPATH="$folder/newer" "$folder/venv/bin/python" "$folder/program.py" "$folder"
} 2>&1 | tee "$folder/found"
diff "$folder/expected" "$folder/found"
