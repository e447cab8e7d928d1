"""A small trainer: publishes what each step changed of a model of transformers.

    python trainer.py MODEL DELTAS [STEPS]

MODEL is a folder with safetensors, version 000000. Step N publishes DELTAS/weight_v00000N, which
following.py with the same DELTAS applies, as do the engines that read this format.
"""

import os
import shutil
import sys

import torch
import transformers
import weightmap


def main(folder, deltas, steps):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    os.makedirs(deltas, exist_ok=True)
    before = folder
    for step in range(1, steps + 1):
        tokens = torch.randint(model.config.vocab_size, (1, 16))
        model(tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        after = os.path.join(deltas, f".trained-{step}")
        model.save_pretrained(after)
        report = weightmap.write_delta(before, after, os.path.join(deltas, f"weight_v{step:06}"),
                                       base_version=f"{step - 1:06}")
        print(f"version {report.version}: {report.changed_tensors} of {report.tensors} tensors, "
              f"{report.bytes} of {report.tensor_bytes} bytes", flush=True)
        if before != folder:
            shutil.rmtree(before)
        before = after


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 10)
