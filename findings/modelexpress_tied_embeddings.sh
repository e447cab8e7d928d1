#!/bin/bash
# modelexpress 0.7.0: its reader of checkpoints leaves out lm_head.weight where the config.json says
# tie_word_embeddings, also if the files hold such a tensor, with bytes of its own.
#
# Files of fine-tuned models hold both: what wrote them did not leave out the second name, or the
# two were trained apart and the configuration was not changed. For this index a delta of
# lm_head.weight is one of a tensor that the checkpoint has not. Who writes or applies deltas goes by
# the names in the files.
#
# Seen (modelexpress 0.7.0, numpy 2.3.5, safetensors 0.8.0, Python 3.11): of a checkpoint with
# model.embed_tokens.weight and another lm_head.weight
#   tie_word_embeddings: false                  both are indexed
#   tie_word_embeddings: true                   lm_head.weight is a KeyError
#   text_config: {tie_word_embeddings: true}    both are indexed
#
# Ends with 1 if one of these differs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/environment"
"$folder/environment/bin/pip" install --quiet numpy==2.3.5 safetensors==0.8.0 2>/dev/null
"$folder/environment/bin/pip" install --quiet --no-deps modelexpress==0.7.0 2>/dev/null
cd "$folder"
environment/bin/python - <<'PROGRAM'
import importlib.util
import json
import pathlib
import sys
import sysconfig

import numpy
import safetensors.numpy

# The module alone, without the clients that its package imports.
path = pathlib.Path(sysconfig.get_path("purelib")) / "modelexpress_rl" / "utils.py"
spec = importlib.util.spec_from_file_location("utils", path)
utils = importlib.util.module_from_spec(spec)
spec.loader.exec_module(utils)

pathlib.Path("model").mkdir()
safetensors.numpy.save_file({"model.embed_tokens.weight": numpy.zeros((2, 2), numpy.float32),
                             "lm_head.weight": numpy.ones((2, 2), numpy.float32)},
                            "model/model.safetensors")
seen = []
for config in ({"tie_word_embeddings": False}, {"tie_word_embeddings": True},
               {"text_config": {"tie_word_embeddings": True}}):
    pathlib.Path("model/config.json").write_text(json.dumps(config))
    read, _ = utils.make_tensor_reader("model")
    try:
        read("lm_head.weight")
        seen.append("indexed")
    except KeyError:
        seen.append("KeyError")
    print(config, seen[-1])
sys.exit(seen != ["indexed", "KeyError", "indexed"])
PROGRAM
