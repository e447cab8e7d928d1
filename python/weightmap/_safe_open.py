"""safe_open() in the words of safetensors, over the formats of weightmap."""

from __future__ import annotations

from weightmap._errors import InvalidArgumentError
from weightmap._open import open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from weightmap._checkpoint import Checkpoint
    from weightmap._core import Tensor
    from weightmap._open import PathLike

_FRAMEWORKS = {
    "pt": "torch",
    "torch": "torch",
    "pytorch": "torch",
    "np": "numpy",
    "numpy": "numpy",
}
# safetensors' names of dtypes; the others keep torch's.
_DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "float16": "F16",
    "bfloat16": "BF16",
    "uint32": "U32",
    "int32": "I32",
    "float32": "F32",
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
    "complex64": "C64",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0",
}


def _is_view(key: Any) -> bool:
    """Whether Tensor[key] is a part that shares the bytes; arrays and torch know further keys."""
    parts = key if type(key) is tuple else (key,)
    return all(type(part) in (int, slice, type(...)) for part in parts)


class Slice:
    """A tensor of which only a part is wanted: slice[:1024] gives an array or a torch tensor.

    Integers, slices and an ellipsis give views of the file. Lists, None and whatever else torch or
    numpy know as an index mean what they mean there.
    """

    __slots__ = ("_tensor", "_file")

    def __init__(self, tensor: Tensor, file: SafeOpen) -> None:
        self._tensor = tensor
        self._file = file

    def get_shape(self) -> list[int]:
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """As safetensors spells it: "F32", "BF16"."""
        return _DTYPES.get(self._tensor.dtype, self._tensor.dtype)

    def __getitem__(self, key: Any) -> Any:
        if _is_view(key):
            return self._file._placed(self._file._mapped(self._tensor[key]))
        return self._file._placed(self._file._mapped(self._tensor)[key])


class SafeOpen:
    """What safe_open() returns; a context manager. Tensors outlive it."""

    def __init__(self, checkpoint: Checkpoint, framework: str, device: Any) -> None:
        self._checkpoint = checkpoint
        self._framework = framework
        self._device = device

    def _mapped(self, tensor: Tensor) -> Any:
        return tensor.numpy() if self._framework == "numpy" else tensor.torch()

    def _placed(self, made: Any) -> Any:
        return made if self._device == "cpu" else made.to(self._device)

    def keys(self) -> list[str]:
        """The names of the tensors, in the order of the file."""
        return list(self._checkpoint)

    def offset_keys(self) -> list[str]:
        """The names of the tensors, by where they lie in the file."""
        tensors = sorted(self._checkpoint.values(), key=lambda tensor: tensor.file_offset)
        return [tensor.name for tensor in tensors]

    def get_tensor(self, name: str) -> Any:
        """The tensor in the framework's words. Nothing is copied on the CPU."""
        return self._placed(self._mapped(self._checkpoint[name]))

    def get_tensors(self) -> dict[str, Any]:
        """All tensors, by where they lie in the file."""
        return {name: self.get_tensor(name) for name in self.offset_keys()}

    def get_slice(self, name: str) -> Slice:
        """The tensor, to take a part of: get_slice(name)[:, :1024]."""
        return Slice(self._checkpoint[name], self)

    def metadata(self) -> dict[str, str]:
        """{"format": "pt"}: what loaders ask for; a torch checkpoint has no other such metadata."""
        return {"format": "pt"}

    def __enter__(self) -> SafeOpen:
        return self

    def __exit__(self, *exception: object) -> None:
        self._checkpoint.close()


def safe_open(path: PathLike, framework: str = "pt", device: Any = "cpu") -> SafeOpen:
    """Opens a checkpoint as safetensors.safe_open() opens its files.

    framework: "pt" for torch tensors, "np" for numpy arrays.
    device: where torch tensors are wanted; on the CPU they are views of the mapped file.
    """
    if not isinstance(framework, str) or framework not in _FRAMEWORKS:
        raise InvalidArgumentError(f"framework is {framework!r}, expected 'pt' or 'np'")
    name = _FRAMEWORKS[framework]
    is_cpu = device is None or str(device) in ("cpu", "cpu:0")
    if name == "numpy" and not is_cpu:
        raise InvalidArgumentError(f"numpy arrays lie in memory, not on {device}")
    checkpoint = open(path)
    return SafeOpen(checkpoint, name, "cpu" if is_cpu else device)
