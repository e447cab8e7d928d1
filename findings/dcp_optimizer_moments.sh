#!/bin/bash
# torch 2.13.0: an optimizer's plain state_dict() that went through torch.distributed.checkpoint and
# dcp_to_torch_save loads without an error, and without its moments.
#
# torch.distributed.checkpoint flattens nested dicts to names, and makes text of every key on the
# way. `state_dict()["state"]` of an optimizer has whole numbers as keys, the positions of the
# parameters; they come back as "0", "1". Optimizer.load_state_dict() looks its parameters up by
# number, finds none, keeps the unknown keys as they are, and says nothing: Adam starts again at
# step 1 with moments of zero. A dict that is empty has no name at all, so SGD's empty "state" is
# missing afterwards, and there load_state_dict() raises KeyError. The keys that
# torch.distributed.checkpoint.state_dict.get_state_dict() makes are names, and survive.
#
# Seen (torch 2.13.0, Python 3.11, CPU):
#   keys before: [0, 1]; after: ['0', '1']
#   Adam: load_state_dict() raised nothing; moments of the first parameter: none
#   Adam: the third step is called step 1
#   SGD: KeyError('state')
#   get_state_dict(): the third step is called step 3
#
# Ends with 1 if any of these lines changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0 numpy==2.4.6

cat >"$folder/program.py" <<'PROGRAM'
import sys

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import get_state_dict, set_optimizer_state_dict

folder = sys.argv[1]


def two_steps(make):
    model = torch.nn.Linear(2, 2)
    optimizer = make(model.parameters())
    for _ in range(2):
        one_step(model, optimizer)
    return model, optimizer


def one_step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def through_dcp(state, name):
    dcp.save({"optimizer": state}, checkpoint_id=f"{folder}/{name}", no_dist=True)
    dcp_to_torch_save(f"{folder}/{name}", f"{folder}/{name}.pt")
    return torch.load(f"{folder}/{name}.pt")["optimizer"]


model, adam = two_steps(torch.optim.Adam)
back = through_dcp(adam.state_dict(), "adam")
print(f"keys before: {list(adam.state_dict()['state'])}; after: {list(back['state'])}")
other = torch.optim.Adam(model.parameters())
other.load_state_dict(back)
first = next(model.parameters())
print("Adam: load_state_dict() raised nothing; moments of the first parameter:",
      dict(other.state[first]) if first in other.state else "none")
one_step(model, other)
print("Adam: the third step is called step", int(other.state[first]["step"]))

model, sgd = two_steps(lambda parameters: torch.optim.SGD(parameters, lr=0.1))
back = through_dcp(sgd.state_dict(), "sgd")
try:
    torch.optim.SGD(model.parameters(), lr=0.1).load_state_dict(back)
except KeyError as error:
    print(f"SGD: {error!r}")

model, adam = two_steps(torch.optim.Adam)
back = through_dcp(get_state_dict(model, adam)[1], "named")
other = torch.optim.Adam(model.parameters())
set_optimizer_state_dict(model, other, back)
one_step(model, other)
print("get_state_dict(): the third step is called step",
      int(other.state[next(model.parameters())]["step"]))
PROGRAM

cat >"$folder/expected" <<'SEEN'
keys before: [0, 1]; after: ['0', '1']
Adam: load_state_dict() raised nothing; moments of the first parameter: none
Adam: the third step is called step 1
SGD: KeyError('state')
get_state_dict(): the third step is called step 3
SEEN
"$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" | tee "$folder/found"
diff "$folder/expected" "$folder/found"
