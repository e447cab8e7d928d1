"""Opens a checkpoint once with torch.load(mmap=True) in this fresh process.

    torch_open_once.py FILE gc|nogc calculate|read

Prints one JSON object. Importing torch is not part of the time. `calculate` sets
torch.utils.serialization.config.load.calculate_storage_offsets.
"""
import gc
import json
import sys
import time

import torch
from torch.utils.serialization import config


def main():
    path, collector, offsets = sys.argv[1:4]
    config.load.calculate_storage_offsets = offsets == "calculate"
    if collector == "nogc":
        gc.disable()
    start = time.perf_counter()
    state = torch.load(path, mmap=True, weights_only=True)
    seconds = time.perf_counter() - start
    print(json.dumps({"tensors": len(state), "open_us": seconds * 1e6,
                      "torch": torch.__version__}))


if __name__ == "__main__":
    main()
