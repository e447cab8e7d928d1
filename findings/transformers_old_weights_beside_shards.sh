#!/bin/bash
# transformers 5.24.0: save_pretrained() in shards over a folder that has model.safetensors leaves
# that file, and from_pretrained() then loads the old weights from it, without a word.
#
# save_pretrained() removes shards of an earlier save whose names the new one does not use. A single
# model.safetensors is no shard, so it stays when the next save is split (a smaller max_shard_size,
# or a model that has grown), and so does the index of an earlier split when the next save is one
# file. from_pretrained() looks for model.safetensors before the index: what was saved last is not
# what is loaded.
#
# Seen (transformers 5.24.0, torch 2.13.0, safetensors 0.8.0):
#   saved 1.0 as one file, then 2.0 in shards: loaded 1.0
#   saved 1.0 in shards, then 2.0 as one file: loaded 2.0; index left behind: True
#
# Ends with 1 if either line changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet transformers==5.24.0 torch==2.13.0 \
  safetensors==0.8.0 numpy==2.4.6

cat >"$folder/program.py" <<'PROGRAM'
import pathlib
import sys

import transformers

folder = pathlib.Path(sys.argv[1])
configuration = transformers.LlamaConfig(
    hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=2, vocab_size=64)
ONE_FILE, SHARDS = "5GB", "5KB"


def save(value, where, size):
    model = transformers.LlamaForCausalLM(configuration)
    for parameter in model.parameters():
        parameter.data.fill_(value)
    model.save_pretrained(where, max_shard_size=size)


def loaded(where):
    model = transformers.AutoModelForCausalLM.from_pretrained(where)
    [value] = {parameter.unique().item() for parameter in model.parameters()}
    return value


a, b = folder / "a", folder / "b"
save(1.0, a, ONE_FILE)
save(2.0, a, SHARDS)
print(f"saved 1.0 as one file, then 2.0 in shards: loaded {loaded(a)}")
save(1.0, b, SHARDS)
save(2.0, b, ONE_FILE)
print(f"saved 1.0 in shards, then 2.0 as one file: loaded {loaded(b)}; index left behind:",
      (b / "model.safetensors.index.json").exists())
PROGRAM

cat >"$folder/expected" <<'SEEN'
saved 1.0 as one file, then 2.0 in shards: loaded 1.0
saved 1.0 in shards, then 2.0 as one file: loaded 2.0; index left behind: True
SEEN
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder/models" 2>/dev/null |
  tee "$folder/found"
diff "$folder/expected" "$folder/found"
