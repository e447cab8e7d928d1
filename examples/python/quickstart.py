"""Opens a checkpoint, lists its tensors and takes one of them as a numpy array.

    quickstart.py CHECKPOINT TENSOR
"""

import sys

import weightmap

path, name = sys.argv[1:]

with weightmap.open(path) as checkpoint:  # maps the file; no tensor is read
    for tensor in checkpoint.values():
        print(tensor.name, tensor.dtype, list(tensor.shape))
    tensor = checkpoint[name]

first_rows = tensor[:2]  # a slice is a view, too
array = first_rows.numpy()  # the file's own bytes, which outlive the `with` block
print(f"the first rows of {name}, writable: {array.flags.writeable}")
print(array)
