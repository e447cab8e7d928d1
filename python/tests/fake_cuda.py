"""The driver without a device, tests/services/cuda/fake_libcuda.cpp, as Python sees it.

What is on that device lies in this process, so a capsule whose device is changed to the CPU can be
read by whoever knows DLPack.
"""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from dlpack_structs import DLTensor

ROOT = Path(__file__).resolve().parents[2]


def compiled(folder):
    """The driver's file; skips the test where there is no compiler."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    source = ROOT / "tests/services/cuda/fake_libcuda.cpp"
    if compiler is None:
        pytest.skip("compiles a fake driver, for which there is no compiler")
    path = folder / "libcuda.so.1"
    command = [compiler, "-std=c++20", "-shared", "-fPIC", "-I", ROOT, source, "-o", path]
    subprocess.run(command, check=True)
    return path


class Driver:
    def __init__(self, library):
        self.path = library
        self._library = ctypes.CDLL(str(library))
        for name in ("faults", "held"):
            getattr(self._library, f"fake_cuda_{name}").restype = ctypes.c_char_p

    def reset(self):
        self._library.fake_cuda_reset()

    def set_attribute(self, attribute, value):
        self._library.fake_cuda_set_attribute(attribute, value)

    def fail(self, function, nth, error):
        self._library.fake_cuda_fail(function.encode(), nth, error)

    def calls(self, function):
        return self._library.fake_cuda_calls(function.encode())

    def faults(self):
        return self._library.fake_cuda_faults().decode()

    def held(self):
        return self._library.fake_cuda_held().decode()

    def read(self, tensor):
        out = ctypes.create_string_buffer(tensor.nbytes)
        pointer = ctypes.c_uint64(tensor.data_ptr)
        size = ctypes.c_size_t(tensor.nbytes)
        assert tensor.nbytes == 0 or self._library.fake_cuda_read(pointer, out, size) == 1
        return out.raw


def look_into(capsule):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype = ctypes.c_void_p
    get.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return DLTensor.from_address(get(capsule, b"dltensor"))


def on_the_cpu(tensor):
    """Instead of torch.from_dlpack(), which a torch without CUDA refuses."""
    import torch

    assert tensor.__dlpack_device__() == (2, 0)
    capsule = tensor.__dlpack__(stream=1)
    look_into(capsule).device_type = 1
    return torch.utils.dlpack.from_dlpack(capsule)
