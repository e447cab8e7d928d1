"""Writes a safetensors file of experts, as the checkpoints of mixture-of-experts models have them.

    make_experts.py FILE [--layers 8] [--experts 64] [--kib 8192] [--aligned]

Each expert is three tensors side by side, of random bytes. Their data begins where the header ends:
at a multiple of 8 bytes, as with most files, or with --aligned at a page.
"""
import argparse
import json
import os
import random


def tensors_of(layers, experts, expert_bytes):
    """Names and numbers of bytes, in the order of the file."""
    part = expert_bytes // 3 // 64 * 64
    for layer in range(layers):
        for expert in range(experts):
            for name, count in (("down_proj", expert_bytes - 2 * part), ("gate_proj", part),
                                ("up_proj", part)):
                yield f"model.layers.{layer}.mlp.experts.{expert}.{name}.weight", count


def header_of(tensors, is_aligned):
    entries, end = {}, 0
    for name, count in tensors:
        entries[name] = {"dtype": "BF16", "shape": [count // 2], "data_offsets": [end, end + count]}
        end += count
    text = json.dumps(entries, separators=(",", ":")).encode()
    multiple, rest = (4096, 0) if is_aligned else (64, 8)
    text += b" " * ((rest - 8 - len(text)) % multiple)
    return len(text).to_bytes(8, "little") + text


def make_experts(path, layers, experts, expert_bytes, is_aligned=False):
    tensors = list(tensors_of(layers, experts, expert_bytes))
    bytes_of = random.Random(1).randbytes
    with open(path, "wb") as file:
        file.write(header_of(tensors, is_aligned))
        for _, count in tensors:
            file.write(bytes_of(count))
        file.flush()
        os.fsync(file.fileno())


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--kib", type=int, default=8192, help="of an expert")
    parser.add_argument("--aligned", action="store_true")
    arguments = parser.parse_args()
    make_experts(arguments.file, arguments.layers, arguments.experts, arguments.kib << 10,
                 arguments.aligned)


if __name__ == "__main__":
    main()
