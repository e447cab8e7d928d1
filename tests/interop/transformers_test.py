#!/usr/bin/env python3
"""Models that transformers saves in shards, and sets that it loads.

    transformers_test.py TOOL

A small model is saved by save_pretrained() as one file and in shards, with tied weights and without:
the tool reads from the folder what the model has, byte for byte. What `weightmap convert` makes of
it, one file and shards with an index, is loaded by from_pretrained(). Exit 77: there is no
transformers.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile

import torch
from describe import same_tensor
from tool import Tool

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import transformers
except ImportError:
    print("SKIPPED: this Python has no transformers")
    sys.exit(77)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def model(tied):
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=101, tie_word_embeddings=tied, dtype="bfloat16")
    return transformers.LlamaForCausalLM(config).to(torch.bfloat16)


def check_tensors(tool, folder, expected):
    found = {tensor["name"]: tensor for tensor in tool.tensors(folder)}
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    for name, tensor in expected.items():
        same_tensor(tool, folder, found[name], tensor)
    return len(expected)


def check_loaded(folder, expected):
    loaded = transformers.LlamaForCausalLM.from_pretrained(folder, dtype="auto").state_dict()
    assert loaded.keys() == expected.keys(), loaded.keys() ^ expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(loaded[name], tensor), name


def check_model(tool, folder, tied, size):
    made = model(tied)
    source = folder / "source"
    made.save_pretrained(source, max_shard_size=size)
    state = made.state_dict()
    # What is tied is saved under one name.
    written = {name: tensor for name, tensor in state.items() if not tied or name != "lm_head.weight"}
    indexes = list(source.glob("*.index.json"))
    assert len(indexes) == (1 if size == "20KB" else 0), indexes
    checked = check_tensors(tool, source, written)
    for arguments in ((), ("--max-shard-size", "20KB")):
        target = folder / "target"
        target.mkdir()
        for file in source.glob("*config.json"):
            shutil.copy(file, target)
        report = json.loads(tool.output("convert", source, target / "model.safetensors", "--json",
                                        *arguments))
        assert (len(report["files"]) > 1) == bool(arguments), report
        checked += check_tensors(tool, target, written)
        check_loaded(target, state)
        shutil.rmtree(target)
    return checked


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    tool = Tool(parser.parse_args().tool)
    checked = 0
    for tied in (False, True):
        for size in ("20KB", "1GB"):
            with tempfile.TemporaryDirectory() as folder:
                checked += check_model(tool, pathlib.Path(folder), tied, size)
    assert checked > 100, checked
    print(f"OK {checked} tensors of transformers {transformers.__version__}")


if __name__ == "__main__":
    main()
