"""Gives a torch model the weights of a checkpoint without loading them.

    torch_state.py

Writes a small checkpoint to a temporary folder first, so that it runs anywhere.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

import weightmap


def small_model() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Embedding(100, 16),
        torch.nn.Linear(16, 32),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 4),
    )


def mapped_model(path: Path) -> torch.nn.Module:
    with torch.device("meta"):
        model = small_model()  # shapes only: nothing is allocated, nothing is initialised
    print("without memory at first:", all(weight.is_meta for weight in model.parameters()))
    state = weightmap.torch.load(path)  # what torch.load(path, mmap=True) returns
    print("loaded:", ", ".join(state))
    model.load_state_dict(state, assign=True)  # takes the tensors as they are, instead of copying
    taken = all(
        model.get_parameter(name).data_ptr() == tensor.data_ptr() for name, tensor in state.items()
    )
    print("the model's weights are the mapped tensors:", taken)
    return model.eval()


def main() -> None:
    torch.manual_seed(0)
    original = small_model().eval()
    tokens = torch.tensor([3, 1, 4, 1, 5])
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        path = Path(folder) / "small.pt"
        torch.save(original.state_dict(), path)
        model = mapped_model(path)
        print("the same answers:", torch.equal(model(tokens), original(tokens)))


if __name__ == "__main__":
    main()
