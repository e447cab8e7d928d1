#!/bin/bash
# transformers 5.24.0: model.to(model.dtype) changes what a bfloat16 model answers, although no
# parameter changes.
#
# from_pretrained(dtype="auto") of bfloat16 files keeps the frequencies of the rotary embeddings in
# float32: they are buffers, which no file has. model.dtype is that of the parameters. to() of this
# dtype, which reads as if it did nothing, converts the buffers as well, and with 8 bits of precision
# left the angles of later positions are others. to("cpu") alone changes nothing.
#
# Seen (transformers 5.24.0, torch 2.13.0, a small Llama of random weights, 200 positions):
#   loaded: parameters bfloat16, frequencies float32
#   to("cpu"): parameters equal True, frequencies float32, logits equal True
#   to(model.dtype): parameters equal True, frequencies bfloat16, logits equal False
#
# Ends with 1 if a line changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet transformers==5.24.0 torch==2.13.0 \
  safetensors==0.8.0 numpy==2.4.6

cat >"$folder/program.py" <<'PROGRAM'
import sys

import torch
import transformers

torch.manual_seed(0)
configuration = transformers.LlamaConfig(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=256)
transformers.LlamaForCausalLM(configuration).to(torch.bfloat16).save_pretrained(sys.argv[1])
model = transformers.LlamaForCausalLM.from_pretrained(sys.argv[1], dtype="auto").eval()
ids = torch.arange(200)[None]


def word(dtype):
    return str(dtype).removeprefix("torch.")


def frequencies():
    return word(dict(model.named_buffers())["model.rotary_emb.inv_freq"].dtype)


@torch.no_grad()
def logits():
    return model(ids).logits


before, parameters = logits(), [each.clone() for each in model.parameters()]
print(f"loaded: parameters {word(model.dtype)}, frequencies {frequencies()}")
for name, move in (('to("cpu")', lambda: model.to("cpu")),
                   ("to(model.dtype)", lambda: model.to(model.dtype))):
    move()
    same = all(map(torch.equal, parameters, model.parameters()))
    print(f"{name}: parameters equal {same}, frequencies {frequencies()},",
          f"logits equal {torch.equal(before, logits())}")
PROGRAM

cat >"$folder/expected" <<'SEEN'
loaded: parameters bfloat16, frequencies float32
to("cpu"): parameters equal True, frequencies float32, logits equal True
to(model.dtype): parameters equal True, frequencies bfloat16, logits equal False
SEEN
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder/model" 2>/dev/null |
  tee "$folder/found"
diff "$folder/expected" "$folder/found"
