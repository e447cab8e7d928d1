"""safetensors files, laid out by hand."""

import json
import struct


def file_of(tensors, metadata=None, align=8):
    """Bytes of a file: name -> (dtype, shape, bytes), one behind the other; the first of them at a
    multiple of `align`."""
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (dtype, shape, content) in tensors.items():
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % align)
    return struct.pack("<Q", len(text)) + text + data


def floats(*values):
    return "F32", [len(values)], struct.pack(f"<{len(values)}f", *values)
