"""Writes state dicts of many small tensors with torch.

    make_tensors.py DIR N [N ...]      writes DIR/tensors_N.pt

float16 tensors of 4 x 4 elements under names as a transformer has them, about 36 characters long.
"""
import collections
import os
import sys

import torch


def name_of(index):
    layer, rest = divmod(index, 10)
    part = ("attention.wq", "attention.wk", "attention.wv", "attention.wo", "feed_forward.w1",
            "feed_forward.w2", "feed_forward.w3", "attention_norm", "ffn_norm", "rotary")[rest]
    return f"model.layers.{layer}.{part}.weight"


def main():
    folder, counts = sys.argv[1], [int(count) for count in sys.argv[2:]]
    os.makedirs(folder, exist_ok=True)
    for count in counts:
        path = os.path.join(folder, f"tensors_{count}.pt")
        if os.path.exists(path):
            continue
        state = collections.OrderedDict(
            (name_of(i), torch.full((4, 4), float(i % 999), dtype=torch.float16))
            for i in range(count))
        torch.save(state, path + ".part")
        os.rename(path + ".part", path)


if __name__ == "__main__":
    main()
