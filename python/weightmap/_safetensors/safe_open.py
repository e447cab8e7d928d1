"""safe_open() in the words of safetensors, over the formats of weightmap."""

from __future__ import annotations

import contextlib
import sys

from weightmap._core import Tensor
from weightmap._errors import Error, InvalidArgumentError, MissingFileError
from weightmap._open import open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Literal

    from weightmap._checkpoint import Checkpoint
    from weightmap._typing import CheckpointTensor, PathLike

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
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float4_e2m1fn_x2": "F4",
}


_kinds: dict[type[Error], type[Error]] = {}


@contextlib.contextmanager
def _safetensors_errors() -> Iterator[None]:
    """Raises errors that are those of safetensors, too, where a program has imported it."""
    try:
        yield
    except MissingFileError:
        raise
    except Error as error:
        safetensors = sys.modules.get("safetensors")
        if safetensors is None:
            raise
        kind = type(error)
        if kind not in _kinds:
            bases = (kind, safetensors.SafetensorError)
            made = type(kind.__name__, bases, {"__reduce__": _reduce_as_ours})
            _kinds.setdefault(kind, made)  # another thread may have been first
        raise _kinds[kind](
            error.message, file=error.file, file_offset=error.file_offset, errno=error.errno
        ) from None


def _reduce_as_ours(error: Any) -> Any:
    restore, (_, *arguments) = Error.__reduce__(error)
    return restore, (type(error).__mro__[1], *arguments)


class Slice:
    """A tensor of which only a part is wanted: slice[:1024] gives an array or a torch tensor.

    Whatever torch or numpy know as an index means what it means there. Integers, slices, None and
    an ellipsis give views of the file.
    """

    __slots__ = ("_tensor", "_file")

    def __init__(self, tensor: CheckpointTensor, file: SafeOpen) -> None:
        self._tensor = tensor
        self._file = file

    def get_shape(self) -> list[int]:
        """As slice[...] counts, which is as torch does: of F4 pairs, where the header has single
        elements."""
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """As safetensors spells it: "F32", "BF16"."""
        return _DTYPES.get(self._tensor.dtype, self._tensor.dtype)

    def __getitem__(self, key: Any) -> Any:
        file = self._file
        if not isinstance(self._tensor, Tensor):  # in pieces, of which no more than is asked for
            with contextlib.suppress(TypeError, ValueError):
                return file._placed(file._mapped(self._tensor[key]))
        return file._placed(file._mapped(self._tensor)[key])


class SafeOpen:
    """What safe_open() returns; a context manager. Tensors outlive it.

    Errors are those of weightmap; where the package safetensors has been imported, they are its
    SafetensorError, too.

    Safe to use from any thread, and after a fork.
    """

    def __init__(self, checkpoint: Checkpoint, framework: str, device: Any) -> None:
        self._checkpoint = checkpoint
        self._framework = framework
        self._device = device

    def _mapped(self, tensor: CheckpointTensor) -> Any:
        return tensor.numpy() if self._framework == "numpy" else tensor.torch()

    def _placed(self, made: Any) -> Any:
        return made if self._device == "cpu" else made.to(self._device)

    def keys(self) -> list[str]:
        """The names of the tensors, sorted."""
        with _safetensors_errors():
            return sorted(self._checkpoint)

    def offset_keys(self) -> list[str]:
        """The names of the tensors, by where they lie: file after file."""
        with _safetensors_errors():
            tensors = sorted(
                self._checkpoint.values(),
                key=lambda tensor: (tensor.file_index, tensor.file_offset),
            )
        return [tensor.name for tensor in tensors]

    def get_tensor(self, name: str) -> Any:
        """The tensor in the framework's words. Nothing is copied on the CPU."""
        try:
            return self._placed(self._mapped(self._checkpoint[name]))
        except Error:
            with _safetensors_errors():
                raise

    def get_tensors(self) -> dict[str, Any]:
        """All tensors, by where they lie in the file."""
        return {name: self.get_tensor(name) for name in self.offset_keys()}

    def get_slice(self, name: str) -> Slice:
        """The tensor, to take a part of: get_slice(name)[:, :1024]."""
        with _safetensors_errors():
            return Slice(self._checkpoint[name], self)

    def metadata(self) -> dict[str, str] | None:
        """`__metadata__` of a safetensors file, None if it has none; of anything else
        {"format": "pt"}, which loaders ask for."""
        with _safetensors_errors():
            if self._checkpoint.info.format != "safetensors" or len(self._checkpoint.files) > 1:
                return {"format": "pt"}
            return dict(self._checkpoint.root()) or None

    def __enter__(self) -> SafeOpen:
        return self

    def __exit__(self, *exception: object) -> None:
        self._checkpoint.close()


def _device_of(device: Any) -> Any:
    return "cpu" if device is None or str(device) in ("cpu", "cpu:0") else device


def safe_open(
    path: PathLike,
    framework: str = "pt",
    device: Any = "cpu",
    *,
    backend: Literal["mmap", "pread"] = "mmap",
    copy_on_write: bool | Literal["small"] | None = None,
) -> SafeOpen:
    """Opens a checkpoint of any format as safetensors.safe_open() opens its files.

    When: a program calls safe_open(), and its files are to be of any format, or sets.

    path: what weightmap.open() takes: sets of shards and folders, too.
    framework: "pt" for torch tensors, "np" for numpy arrays.
    device: where torch tensors are wanted; on the CPU they are views of the mapped file.
    backend: is taken for the sake of programs that say it; the file is always mapped.
    copy_on_write: whether torch tensors may be written to; as in weightmap.open().
    """
    with _safetensors_errors():
        if not isinstance(framework, str) or framework not in _FRAMEWORKS:
            raise InvalidArgumentError(f"framework is {framework!r}, expected 'pt' or 'np'")
        if backend not in ("mmap", "pread"):
            raise InvalidArgumentError(f"backend is {backend!r}, expected 'mmap' or 'pread'")
        name = _FRAMEWORKS[framework]
        placed = _device_of(device)
        if name == "numpy" and placed != "cpu":
            raise InvalidArgumentError(f"numpy arrays lie in memory, not on {device}")
        return SafeOpen(open(path, copy_on_write=copy_on_write), name, placed)
