#!/bin/bash
# torch 2.13.0: Module.load_state_dict(strict=True) turns weights into zeros, infinities or other whole
# numbers to fit the module's types, and answers "All keys matched successfully".
#
# It compares names and shapes, and copies by Tensor.copy_(), which converts. What does not fit in the
# module's type is changed as a cast changes it: fractions are cut off and large numbers wrap in an
# integer buffer (float weights into a quantized layer), float16 overflows, float8_e4m3fn stops at
# 448, bool takes all but zero for True. No option makes it compare types; assign=True takes the
# checkpoint's tensors with their types instead.
#
# Seen (torch 2.13.0, numpy 2.4.6, Python 3.11, CPU):
#   load_state_dict(strict=True): <All keys matched successfully>; warnings: 0
#   torch.int8: [0.75, 300.0, -1.0] became [0.0, 44.0, -1.0]
#   torch.float16: [100000.0, 1e-09] became [inf, 0.0]
#   torch.float8_e4m3fn: [1000.0, 0.75] became [448.0, 0.75]
#   torch.bool: [0.5, 0.0] became [1.0, 0.0]
#   with assign=True: torch.float32 [0.75, 300.0, -1.0]
#
# Ends with 1 if any of these lines changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0 numpy==2.4.6

cat >"$folder/program.py" <<'PROGRAM'
import warnings

import torch

WEIGHTS = {torch.int8: [0.75, 300.0, -1.0], torch.float16: [1e5, 1e-9],
           torch.float8_e4m3fn: [1000.0, 0.75], torch.bool: [0.5, 0.0]}


def module():
    made = torch.nn.Module()
    for dtype, weights in WEIGHTS.items():
        made.register_buffer(str(dtype).split(".")[1], torch.zeros(len(weights), dtype=dtype))
    return made


state = {str(dtype).split(".")[1]: torch.tensor(weights) for dtype, weights in WEIGHTS.items()}
filled = module()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(f"load_state_dict(strict=True): {filled.load_state_dict(state, strict=True)}; warnings:",
          len(caught))
for dtype, weights in WEIGHTS.items():
    got = filled.get_buffer(str(dtype).split(".")[1])
    assert got.dtype == dtype
    print(f"{dtype}: {weights} became {got.float().tolist()}")
assigned = module()
assigned.load_state_dict(state, assign=True)
print(f"with assign=True: {assigned.int8.dtype} {assigned.int8.tolist()}")
PROGRAM

cat >"$folder/expected" <<'SEEN'
load_state_dict(strict=True): <All keys matched successfully>; warnings: 0
torch.int8: [0.75, 300.0, -1.0] became [0.0, 44.0, -1.0]
torch.float16: [100000.0, 1e-09] became [inf, 0.0]
torch.float8_e4m3fn: [1000.0, 0.75] became [448.0, 0.75]
torch.bool: [0.5, 0.0] became [1.0, 0.0]
with assign=True: torch.float32 [0.75, 300.0, -1.0]
SEEN
"$folder/venv/bin/python" "$folder/program.py" "$folder" 2>&1 | tee "$folder/found"
diff "$folder/expected" "$folder/found"
