#!/usr/bin/env python3
"""What the commands print of files that torch wrote: a table of commands and all that each says.

    printed_test.py FOLDER WEIGHTMAP
"""

import shlex
import sys
import unittest

from tool_case import DATA, ToolCase

PRINTED = {
    # Prints aligned columns and a summary.
    "ls state_dict.pt":
        "NAME              DTYPE     SHAPE    SIZE\n"
        "embedding.weight  float32   [6, 4]   96 B\n"
        "layers.0.weight   bfloat16  [4, 4]   32 B\n"
        "layers.0.bias     float16   [4]       8 B\n"
        "layers.1.weight   float64   [4, 4]  128 B\n"
        "layers.1.mask     bool      [2, 2]    4 B\n"
        "steps             int64     []        8 B\n"
        "position_ids      int32     [1, 6]   24 B\n"
        "7 tensors, 7 storages, 300 B\n",
    # Takes several patterns and keeps the order of the file.
    "ls state_dict.pt 'layers.1*' 'embedding*' '*.mask'":
        "NAME              DTYPE    SHAPE    SIZE\n"
        "embedding.weight  float32  [6, 4]   96 B\n"
        "layers.1.weight   float64  [4, 4]  128 B\n"
        "layers.1.mask     bool     [2, 2]    4 B\n"
        "3 of 7 tensors, 228 B\n",
    # Adds strides and offsets in the long form.
    "ls --long views.pt '*expanded'":
        "NAME             DTYPE    SHAPE   SIZE  STRIDES  STORAGE  OFFSET  FILE OFFSET\n"
        "expanded         float32  [3, 6]  72 B  [0, 1]         0       0         1408\n"
        "scalar_expanded  float32  [2, 2]  16 B  [0, 0]         0       0         1408\n"
        "2 of 12 tensors, 88 B\n",
    # Counts one thing in the singular and none in the plural.
    "ls renamed.tar.pt":
        "NAME  DTYPE    SHAPE  SIZE\nw     float32  [3]    12 B\n1 tensor, 1 storage, 12 B\n",
    "ls no_tensors.pt":
        "0 tensors, 0 storages, 0 B\nthe file has values alone (weightmap tree shows them)\n",
    # JSON is a document without tensors too.
    "ls --json no_tensors.pt": '{"file":"no_tensors.pt","tensors":[\n]}\n',
    # What programs read.
    "ls --tsv --long state_dict.pt layers.1.weight":
        "NAME\tDTYPE\tSHAPE\tSIZE\tSTRIDES\tSTORAGE\tOFFSET\tFILE_OFFSET\n"
        "layers.1.weight\tfloat64\t[4,4]\t128\t[4,1]\t3\t0\t1792\n",
    "ls --tsv no_tensors.pt": "NAME\tDTYPE\tSHAPE\tSIZE\n",
    # Tensors that are lazily conjugate.
    "ls --long conjugate.pt":
        "NAME       DTYPE      SHAPE  SIZE  STRIDES  STORAGE  OFFSET  FILE OFFSET  LAZY\n"
        "base       complex64  [2]    16 B  [1]            0       0          832  -\n"
        "conjugate  complex64  [2]    16 B  [1]            0       0          832  conjugate\n"
        "2 tensors, 1 storage, 32 B\n",
    # Adds up by the beginning of the names.
    "ls --sum state_dict.pt":
        " SIZE  ELEMENTS  TENSORS  GROUP\n"
        " 96 B        24        1  embedding\n"
        "172 B        40        4  layers\n"
        "  8 B         1        1  steps\n"
        " 24 B         6        1  position_ids\n"
        "7 tensors of 71 elements, 300 B\n",
    # Takes depth order and patterns.
    "ls --sum --tsv --depth 2 --sort size state_dict.pt 'layers.*'":
        "SIZE\tELEMENTS\tTENSORS\tGROUP\n"
        "132\t20\t2\tlayers.1\n"
        "40\t20\t2\tlayers.0\n",
    # A file without tensors has a sum of none.
    "ls --sum no_tensors.pt": "0 tensors of 0 elements, 0 B\n",
    # Prints like numpy.
    "cat views.pt transposed":
        "transposed: float32 [6, 4]\n"
        "[[ 0.  6. 12. 18.]\n [ 1.  7. 13. 19.]\n [ 2.  8. 14. 20.]\n"
        " [ 3.  9. 15. 21.]\n [ 4. 10. 16. 22.]\n [ 5. 11. 17. 23.]]\n",
    "cat views.pt permuted":
        "permuted: int16 [4, 2, 3]\n"
        "[[[ 0  4  8]\n  [12 16 20]]\n\n [[ 1  5  9]\n  [13 17 21]]\n\n"
        " [[ 2  6 10]\n  [14 18 22]]\n\n [[ 3  7 11]\n  [15 19 23]]]\n",
    # Prints scalars booleans and empty tensors.
    "cat state_dict.pt steps": "steps: int64 []\n12345678901\n",
    "cat scalars_and_empty.pt scalar": "scalar: float32 []\n2.5\n",
    "cat state_dict.pt layers.1.mask":
        "layers.1.mask: bool [2, 2]\n[[ True False]\n [False  True]]\n",
    "cat scalars_and_empty.pt empty_rows": "empty_rows: float32 [0, 5]\n[]\n",
    # Prints packed and quantized types as stored.
    "cat dtypes.pt float4_e2m1fn_x2":
        "float4_e2m1fn_x2: float4_e2m1fn_x2 [6]\n[  0   1 127 128 254 255]\n",
    "cat dtypes.pt bits16": "bits16: bits16 [3]\n[  256 32895 65534]\n",
    "cat quantized.pt qint8":
        "qint8: qint8 [3, 4]\n[[ 3  5  7  9]\n [11 13 15 17]\n [19 21 23 25]]\n",
    # Takes slices.
    "cat state_dict.pt embedding.weight --slice 0:2,-1":
        "embedding.weight[0:2,-1]: float32 [2]\n[3. 7.]\n",
    "cat state_dict.pt embedding.weight --slice=-1":
        "embedding.weight[-1]: float32 [4]\n[20. 21. 22. 23.]\n",
    "cat state_dict.pt embedding.weight --slice 2,1": "embedding.weight[2,1]: float32 []\n9.0\n",
    "cat state_dict.pt embedding.weight --slice 9:": "embedding.weight[9:]: float32 [0, 4]\n[]\n",
    "cat state_dict.pt embedding.weight --slice :,3":
        "embedding.weight[:,3]: float32 [6]\n[ 3.  7. 11. 15. 19. 23.]\n",
    # Finds the tensor that is the root.
    "cat tensor_root.pt ''": '"": float32 [2, 3]\n[[0. 1. 2.]\n [3. 4. 5.]]\n',
    # Types that numpy does not know.
    **{f"cat dtypes.pt {dtype}": f"{dtype}: {dtype} [5]\n[1. 2. 3. 4. 5.]\n" for dtype in (
        "bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz")},
    "cat dtypes.pt float8_e8m0fnu":
        "float8_e8m0fnu: float8_e8m0fnu [6]\n[6.e-39 1.e-38 1.e+00 2.e+00 2.e+38    nan]\n",
    "cat dtypes.pt complex32": "complex32: complex32 [5]\n[1.+0.j 2.+0.j 3.+0.j 4.+0.j 5.+0.j]\n",
    # Paths tell tensors of one name apart.
    """cat colliding_names.pt '["a","b"]'""": '["a","b"]: float32 [2]\n[0. 1.]\n',
    """cat colliding_names.pt '["a.b"]'""": '["a.b"]: float32 [1]\n[0.]\n',
    "cat int_keys.pt '[0]'": "[0]: float32 [1]\n[0.]\n",
    # As JSON.
    "cat --json state_dict.pt layers.1.mask":
        '{"file":"state_dict.pt","name":"layers.1.mask","dtype":"bool","shape":[2,2],'
        '"values":[true,false,false,true]}\n',
    "cat --json training.pt epoch": '{"file":"training.pt","name":"epoch","type":"int","value":2}\n',
    # Prints the value alone.
    "cat training.pt epoch": "2\n",
    "cat training.pt name": "tiny\n",
    "cat training.pt scheduler.gamma": "0.1\n",
    "cat training.pt scheduler":
        "scheduler: dict, 4 items\n  step_size: 2\n  gamma: 0.1\n  last_epoch: 2\n  base_lrs: [0.01]\n",
    # Shows tensors by type shape and size.
    "tree --depth 1 training.pt model":
        "model: collections.OrderedDict, 4 items, 1 attribute\n"
        "  0.weight: float32 [4, 3], 48 B\n"
        "  0.bias: float32 [4], 16 B\n"
        "  2.weight: float32 [2, 4], 32 B\n"
        "  2.bias: float32 [2], 8 B\n"
        "  _metadata: collections.OrderedDict, 4 items\n",
    # Begins at a path and stops at a depth.
    "tree --depth 1 training.pt history":
        "history: list, 2 elements\n"
        "  0: [1.0, 0.5]\n"
        "  1: list, 2 elements\n",
    'tree training.pt \'["scheduler", "gamma"]\'': "scheduler.gamma: 0.1\n",
    "tree training.pt optimizer.state.0.step": "optimizer.state.0.step: float32 [], 4 B\n",
    # What is reached again.
    "tree shared_list.pt":
        "dict, 2 items\n"
        "  a: list, 2 elements\n"
        "    0: float32 [3], 12 B\n"
        "    1: float32 [2], 8 B\n"
        "  b: list, 2 elements, the same as a\n",
    # Prints a row for each tensor that matches.
    "stats dtypes.pt float32 int64 bool complex64":
        "TENSOR     DTYPE      COUNT  MIN  MAX      MEAN       STD  NAN  INF  ZEROS\n"
        "float32    float32        5    1    5         3   1.41421    0    0      0\n"
        "int64      int64          5    1    5         3   1.41421    0    0      0\n"
        "bool       bool           3    0    1  0.666667  0.471405    0    0      1\n"
        "complex64  complex64      -    -    -         -         -    -    -      -\n"
        "complex64 tensors have no statistics: complex numbers have no order\n",
    # Says what was checked.
    "verify state_dict.pt":
        "OK 7 storages, every offset against its local header; 300 B not read (--crc reads them)\n",
    "verify --crc state_dict.pt":
        "OK 7 storages, every offset against its local header; CRC of 7 storages, 300 B\n",
}


class Printed(ToolCase):
    def test_each_command(self):
        for command, text in PRINTED.items():
            with self.subTest(command):
                self.prints(text, *shlex.split(command), cwd=DATA)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
