#!/bin/bash
# ml_dtypes 0.6.0: numpy.save() forgets which type of ml_dtypes an array has, and of float8_e5m2 and
# complex32 it writes files that numpy.load() refuses; no warning comes of either.
#
# The header of .npy spells a type by its kind and size. Nearly all of ml_dtypes' types are of the kind
# V, "void": sixteen of one byte are all '<V1', from int1 to float8_e8m0fnu, and come back as void,
# which cannot be converted. float8_e5m2 is of the kind f and complex32 of W, and '<f1' and '<W4' are
# no types of numpy's. Who knows the type can view() the void array as it, or read the bytes behind
# the header. An element of int4 has a byte of its own, whose high four bits are zeros for negative
# numbers, too: as int8, -2 is 14. numpy.savez() does the same. pickle and joblib keep the name. (The
# library's issues 148 and 216 tell of float8_e5m2.)
#
# Seen (ml_dtypes 0.6.0, numpy 2.4.6, joblib 1.6.0, Python 3.11):
#   int4: saved as '<V1', loaded as |V1; bytes 010e; by savez the same: True
#   int2: saved as '<V1', loaded as |V1; bytes 0102; by savez the same: True
#   float8_e4m3fn: saved as '<V1', loaded as |V1; bytes 38c0; by savez the same: True
#   bfloat16: saved as '<V2', loaded as |V2; bytes 803f00c0; by savez the same: True
#   float8_e5m2: saved as '<f1'; load: ValueError: descr is not a valid dtype descriptor: '<f1'
#   complex32: saved as '<W4'; load: ValueError: descr is not a valid dtype descriptor: '<W4'
#   int4, loaded and converted to int4: ValueError: No cast function available.
#   int4, loaded and viewed: as int4 [1, -2], as int8 [1, 14]
#   pickle: int4 [1, -2]; joblib: int4 [1, -2]
#
# Ends with 1 if any of these lines changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet ml_dtypes==0.6.0 numpy==2.4.6 joblib==1.6.0

cat >"$folder/program.py" <<'PROGRAM'
import ast
import io
import pickle
import warnings

import joblib
import ml_dtypes
import numpy

warnings.simplefilter("error")


def written(write, load, value):
    """The file, and what is loaded of it."""
    file = io.BytesIO()
    write(file, value)
    file.seek(0)
    return file.getvalue(), lambda: load(file)


for name in ("int4", "int2", "float8_e4m3fn", "bfloat16", "float8_e5m2", "complex32"):
    array = numpy.array([1, -2], dtype=getattr(ml_dtypes, name))
    content, load = written(numpy.save, numpy.load, array)
    header = ast.literal_eval(content[10:128].decode())
    begin = f"{name}: saved as {header['descr']!r}"
    try:
        loaded = load()
    except ValueError as error:
        print(f"{begin}; load: ValueError: {error}")
        continue
    of_archive = written(numpy.savez, lambda file: numpy.load(file)["arr_0"], array)[1]()
    print(f"{begin}, loaded as {loaded.dtype}; bytes {content[128:].hex()}; by savez the same:",
          of_archive.dtype == loaded.dtype and of_archive.tobytes() == loaded.tobytes())

array = numpy.array([1, -2], dtype=ml_dtypes.int4)
loaded = written(numpy.save, numpy.load, array)[1]()
try:
    loaded.astype(ml_dtypes.int4)
except ValueError as error:
    print(f"int4, loaded and converted to int4: ValueError: {error}")
print(f"int4, loaded and viewed: as int4 {loaded.view(ml_dtypes.int4).astype('int8').tolist()}, "
      f"as int8 {loaded.view('int8').tolist()}")
pickled = pickle.loads(pickle.dumps(array))
dumped = written(lambda file, value: joblib.dump(value, file), joblib.load, array)[1]()
print(f"pickle: {pickled.dtype} {pickled.astype('int8').tolist()}; "
      f"joblib: {dumped.dtype} {dumped.astype('int8').tolist()}")
PROGRAM

cat >"$folder/expected" <<'SEEN'
int4: saved as '<V1', loaded as |V1; bytes 010e; by savez the same: True
int2: saved as '<V1', loaded as |V1; bytes 0102; by savez the same: True
float8_e4m3fn: saved as '<V1', loaded as |V1; bytes 38c0; by savez the same: True
bfloat16: saved as '<V2', loaded as |V2; bytes 803f00c0; by savez the same: True
float8_e5m2: saved as '<f1'; load: ValueError: descr is not a valid dtype descriptor: '<f1'
complex32: saved as '<W4'; load: ValueError: descr is not a valid dtype descriptor: '<W4'
int4, loaded and converted to int4: ValueError: No cast function available.
int4, loaded and viewed: as int4 [1, -2], as int8 [1, 14]
pickle: int4 [1, -2]; joblib: int4 [1, -2]
SEEN
"$folder/venv/bin/python" "$folder/program.py" "$folder" 2>&1 | tee "$folder/found"
diff "$folder/expected" "$folder/found"
