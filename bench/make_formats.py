"""Writes one model in every format that weightmap reads, each with the format's own library.

    make_formats.py DIR      writes DIR/model.*, DIR/small.*, DIR/chunks.dcp and DIR/tokens.gguf

Of the model: NAME.pt by torch.save, NAME.safetensors, NAME.shards (8 files and an index),
NAME.gguf (matrices as float16, those of the feed-forward layers as q8_0), and NAME.dcp, saved by 4
processes that have a quarter of the rows of each matrix. `small` is the same with few elements, for
whoever warms up on it; chunks.dcp has 10,000 small chunks, tokens.gguf a vocabulary of 250,000.
What is there already stays.
"""
import collections
import json
import os
import shutil
import sys
import tempfile

import numpy
import torch

RANKS = 4
SHARDS = 8
LAYERS, HIDDEN, INNER, WORDS = 8, 1024, 2816, 16384  # 256 MiB of float16
SMALL = (1, 64, 128, 64)
CHUNKS, TOKENS = 10_000, 250_000


def model(layers, hidden, inner, words):
    """Makes a transformer, filled with incompressible data."""
    shapes = collections.OrderedDict({"model.embed_tokens.weight": (words, hidden)})
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        shapes |= {f"{prefix}self_attn.{part}_proj.weight": (hidden, hidden) for part in "qkvo"}
        shapes |= {f"{prefix}mlp.{part}_proj.weight": (inner, hidden) for part in ("gate", "up")}
        shapes[f"{prefix}mlp.down_proj.weight"] = (hidden, inner)
        shapes |= {f"{prefix}{part}.weight": (hidden,)
                   for part in ("input_layernorm", "post_attention_layernorm")}
    shapes["model.norm.weight"] = (hidden,)
    shapes["lm_head.weight"] = (words, hidden)
    generator = torch.Generator().manual_seed(7)
    return {name: torch.rand(shape, generator=generator).to(torch.float16)
            for name, shape in shapes.items()}


def write_pt(path, state):
    torch.save(state, path)


def write_safetensors(path, state):
    import safetensors.torch
    safetensors.torch.save_file(state, path, metadata={"format": "pt"})


def write_shards(path, state):
    os.makedirs(path)
    names = list(state)
    each = -(-len(names) // SHARDS)
    weight_map = {}
    for begin in range(0, len(names), each):
        file = f"model-{begin // each + 1:05}-of-{-(-len(names) // each):05}.safetensors"
        some = {name: state[name] for name in names[begin:begin + each]}
        write_safetensors(os.path.join(path, file), some)
        weight_map |= dict.fromkeys(some, file)
    total = sum(tensor.nbytes for tensor in state.values())
    with open(os.path.join(path, "model.safetensors.index.json"), "w", encoding="utf-8") as out:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, out, indent=2)


def write_gguf(path, state):
    import gguf
    writer = gguf.GGUFWriter(path, "llama")
    for name, tensor in state.items():
        if ".mlp." in name:
            kind = gguf.GGMLQuantizationType.Q8_0
            packed = gguf.quants.quantize(tensor.float().numpy(), kind)
            writer.add_tensor(name, packed, raw_dtype=kind)
        else:
            writer.add_tensor(name, tensor.numpy())
    finish_gguf(writer)


def write_tokens(path):
    import gguf
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"token {number}" for number in range(TOKENS)])
    writer.add_token_scores([-float(number) for number in range(TOKENS)])
    writer.add_token_types([1] * TOKENS)
    writer.add_tensor("token_embd.weight", numpy.zeros((64, 64), numpy.float16))
    finish_gguf(writer)


def finish_gguf(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_dcp(path, state):
    """Matrices by rows; what has one dimension whole, as by whoever does not shard norms."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(save_rank, (os.path.join(folder, "meet"), path, state), RANKS)


def save_rank(rank, meeting, path, state):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    mesh = dist.device_mesh.init_device_mesh("cpu", (RANKS,))
    sharded = {name: distribute_tensor(tensor, mesh, [Shard(0) if tensor.ndim > 1 else Replicate()],
                                       src_data_rank=None) for name, tensor in state.items()}
    dcp.save(sharded, checkpoint_id=path)
    dist.destroy_process_group()


def chunks():
    return {f"model.layers.{i}.weight": torch.full((4 * RANKS, 16), i % 999, dtype=torch.float16)
            for i in range(CHUNKS // RANKS)}


WRITERS = {"pt": write_pt, "safetensors": write_safetensors, "shards": write_shards,
           "gguf": write_gguf, "dcp": write_dcp}


def make(path, write, *arguments):
    """Writes a file or a folder atomically and durably, unless it exists."""
    if os.path.exists(path):
        return
    part = path + ".part"
    shutil.rmtree(part, ignore_errors=True)
    write(part, *arguments)
    for file in files_of(part):
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())
    os.rename(part, path)


def files_of(path):
    if not os.path.isdir(path):
        return [path]
    return [os.path.join(path, name) for name in sorted(os.listdir(path))]


def make_all(folder):
    os.makedirs(folder, exist_ok=True)
    for name, sizes in (("model", (LAYERS, HIDDEN, INNER, WORDS)), ("small", SMALL)):
        if all(os.path.exists(os.path.join(folder, f"{name}.{kind}")) for kind in WRITERS):
            continue
        state = model(*sizes)
        for kind, write in WRITERS.items():
            make(os.path.join(folder, f"{name}.{kind}"), write, state)
    make(os.path.join(folder, "chunks.dcp"), write_dcp, chunks())
    make(os.path.join(folder, "tokens.gguf"), write_tokens)


if __name__ == "__main__":
    make_all(sys.argv[1])
