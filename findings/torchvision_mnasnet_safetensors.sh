#!/bin/bash
# torchvision 0.28.0: MNASNet takes no weights of safetensors, nor any state dict that is a plain dict.
#
# torch.nn.Module.state_dict() returns an OrderedDict with an attribute `_metadata` in which each
# module's version stands. MNASNet._load_from_state_dict() (torchvision/models/mnasnet.py) demands
# that its own is 1 or 2. safetensors.torch.load_file() returns a plain dict, whose versions are
# therefore None, and so is every dict that a program builds from a state dict, by renaming keys or by
# a copy. The same weights load from the OrderedDict.
#
# Seen (torch 2.13.0, torchvision 0.28.0, safetensors 0.8.0, Python 3.11):
#   state_dict(): <All keys matched successfully>
#   load_file(): ValueError: version should be set to 1 or 2 instead of None
#   dict(state_dict()): ValueError: version should be set to 1 or 2 instead of None
#
# Ends with 1 if any of these lines changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0 numpy==2.4.6 safetensors==0.8.0 pillow
"$folder/venv/bin/python" -m pip install --quiet --no-deps torchvision==0.28.0

cat >"$folder/program.py" <<'PROGRAM'
import sys

import torch

if torch.version.cuda is None:  # torchvision's wheels are of CUDA; beside another torch its operators
    library = torch.library.Library("torchvision", "DEF")  # do not load, which no model here needs
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import torchvision
from safetensors.torch import load_file, save_file

model = torchvision.models.mnasnet0_5(weights=None)
path = f"{sys.argv[1]}/model.safetensors"
save_file(model.state_dict(), path)
for name, state in (("state_dict()", model.state_dict()), ("load_file()", load_file(path)),
                    ("dict(state_dict())", dict(model.state_dict()))):
    try:
        print(f"{name}: {model.load_state_dict(state)}")
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error}")
PROGRAM

cat >"$folder/expected" <<'SEEN'
state_dict(): <All keys matched successfully>
load_file(): ValueError: version should be set to 1 or 2 instead of None
dict(state_dict()): ValueError: version should be set to 1 or 2 instead of None
SEEN
"$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" | tee "$folder/found"
diff "$folder/expected" "$folder/found"
