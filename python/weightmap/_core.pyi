"""The C++ library as Python sees it. Use the package weightmap instead."""

from collections.abc import Callable, Iterator
import types
from typing import Any, Literal

from numpy.typing import NDArray
import torch as torch_module

import weightmap.reports


version: str = ...

class MappedBytes:
    """The bytes of a mapped file, by the buffer protocol. Keeps the mapping alive."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    @property
    def address(self) -> int: ...
    @property
    def writable(self) -> bool: ...

class Tensor:
    """
    A tensor of a checkpoint, where it lies in the mapped file. Nothing is copied.

    Keeps the mapping alive, and so does every array made of it, after the Checkpoint is closed or gone.
    Slicing gives tensors that share the bytes. All methods may be called from any thread. If another
    process truncates the file, reading lost bytes ends the process with SIGBUS, unless it was opened
    with another protection than "map": replace checkpoints by rename.
    """

    @property
    def name(self) -> str:
        """Keys on the way from the root of the checkpoint, joined by dots."""

    @property
    def dtype(self) -> str:
        """
        As torch spells it, without the prefix: 'float32', 'bfloat16', 'bool'; blocked ones as ggml does: 'q4_K'.
        """

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension, outermost first."""

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance between neighbours along each dimension, in elements as torch counts them."""

    @property
    def ndim(self) -> int:
        """Number of dimensions."""

    @property
    def numel(self) -> int:
        """Number of elements. Not a method, unlike torch's."""

    @property
    def itemsize(self) -> int:
        """Bytes of one element; UnsupportedError for a blocked dtype, see block."""

    @property
    def block(self) -> tuple[int, int]:
        """
        How many elements are stored together, in how many bytes: (256, 144) for 'q4_K', (1, itemsize) for a dtype without blocks.
        """

    @property
    def nbytes(self) -> int:
        """Bytes of all elements. An expanded tensor occupies less in the file."""

    @property
    def is_contiguous(self) -> bool:
        """Row-major without gaps."""

    @property
    def is_writable(self) -> bool:
        """Whether numpy() gives an array that may be written to."""

    @property
    def byteorder(self) -> str:
        """'native', or 'foreign' if the file's byte order is not this machine's."""

    @property
    def is_conjugate(self) -> bool:
        """Saved as torch's lazy conjugate: stored are the conjugates of the values."""

    @property
    def is_negative(self) -> bool:
        """Saved as torch's lazy negative: stored are the negatives of the values."""

    @property
    def requires_grad(self) -> bool: ...
    @property
    def is_parameter(self) -> bool:
        """Saved as torch.nn.Parameter, or one by a TorchScript class."""

    @property
    def is_buffer(self) -> bool:
        """A buffer by a TorchScript class, or of a pickled module."""

    @property
    def location(self) -> str:
        """Where the tensor was when it was saved: 'cpu', 'cuda:0'."""

    @property
    def storage(self) -> str:
        """Key of the storage: '0' for the record data/0. Tied tensors have the same."""

    @property
    def storage_offset(self) -> int:
        """Of the first element in the storage, in elements."""

    @property
    def index(self) -> int:
        """Position among the checkpoint's tensors, in the order of the file."""

    @property
    def storage_index(self) -> int:
        """
        Position of the storage among those of the checkpoint. Of several files some may have storages with one key.
        """

    @property
    def file_offset(self) -> int:
        """Of the first element in the file, in bytes."""

    @property
    def file_index(self) -> int:
        """Which of Checkpoint.files it lies in."""

    def numpy(self) -> NDArray[Any]:
        """
        A numpy array over the same bytes; read-only unless the checkpoint was opened writable.

        bfloat16 and float8 need the package ml_dtypes. Quantized and packed types show their stored
        integers, blocked ones (q4_K) the bytes of their blocks as bits() does: another shape, and no
        values, which dequantize() gives. Files of the other byte order give arrays of that byte order.
        """

    def torch(self, *, copy_on_write: bool | Literal["small"] | None = None) -> torch_module.Tensor:
        """
        A torch tensor over the same pages of the page cache.

        torch knows no read-only tensors. With copy_on_write=True, which is what open() takes unless it is
        told otherwise, the tensor lies in memory that is copied when it is written to, page by page: a
        write stays in this process, changes neither the file nor what numpy() shows, and never fails; but
        a driver that pins such memory copies all of it. With False it lies in the mapping that all
        processes share: nothing is ever copied, and a write ends the process with SIGSEGV, after a line on
        standard error that names the tensor. "small" copies on write what has a storage of less than 1 MiB.
        None: as the checkpoint was opened. One that was opened writable lends what it maps, and takes only
        None and True.

        Tensors of the other byte order are copied and swapped, as are those that are not aligned for torch.
        requires_grad is not carried over. Blocked types (q4_K) show the bytes of their blocks as bits()
        does.
        """

    def bits(self) -> Tensor:
        """
        The same elements as unsigned integers of their size: what is stored.

        Of a blocked dtype the bytes of its blocks, with rows in bytes: (4096, 256) of q4_K is (4096, 144)
        of uint8, which is what gguf.GGUFReader calls the data of a tensor. InvalidArgumentError for
        complex128.
        """

    def dequantize(self) -> NDArray[Any]:
        """
        The values as a new numpy array of float32.

        Blocked dtypes are computed by the package gguf, which must be installed; UnsupportedError for one
        that it cannot compute, and for quantized types of torch, whose scales lie elsewhere.
        """

    def tobytes(self) -> bytes:
        """A copy of the elements, row-major and in this machine's byte order."""

    def buffer(self) -> memoryview:
        """
        The elements by the buffer protocol, with their shape, strides and format.

        BufferError for what it has no word for, like bfloat16; .bits().buffer() has the stored bits.
        """

    def item(self) -> bool | int | float | complex:
        """The only element as a Python number, exactly; ValueError if there is not just one."""

    def tolist(self) -> Any:
        """The elements as Python numbers, exactly, in lists as deep as there are dimensions."""

    def stats(self) -> weightmap.reports.TensorStats:
        """
        Minimum, maximum, mean, std, and how many are NaN, infinite and zero: a TensorStats.

        Reads each element once and computes in float64, whatever the dtype; UnsupportedError for complex,
        quantized and packed types.
        """

    def __bytes__(self) -> bytes:
        """tobytes()"""

    def __int__(self) -> int: ...
    def __float__(self) -> float: ...
    def __complex__(self) -> complex: ...
    def __index__(self) -> int: ...
    def __iter__(self) -> Iterator[Tensor]:
        """The parts along the first dimension."""

    def __eq__(self, other: object, /) -> bool:
        """Raises TypeError: elements are not compared. False for None."""

    def __ne__(self, other: object, /) -> bool: ...
    def __getitem__(self, key: int | slice | types.EllipsisType | tuple[int | slice | types.EllipsisType, ...], /) -> Tensor:
        """
        A part of the tensor, sharing its bytes. What would need a copy is refused: steps backward, masks, lists and arrays of indices; .numpy() and .torch() take them.
        """

    def __len__(self) -> int: ...
    def __contains__(self, value: object | None) -> bool: ...
    def __bool__(self) -> bool: ...
    def __repr__(self) -> str: ...
    def __reduce__(self) -> tuple[Any, ...]:
        """Its checkpoint and which of its tensors this is, or a part of which: not its numbers."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def __dlpack__(self, *, stream: None = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """
        A DLPack capsule; flagged read-only unless the checkpoint was opened writable, or copy=True.

        BufferError for a consumer that asks for the unversioned form, which cannot carry the flag.
        """

    def __dlpack_device__(self) -> tuple[int, int]:
        """(1, 0): the CPU."""

def numpy_word(dtype: str, /) -> tuple[str, bool]:
    """
    What numpy calls a dtype, or the package ml_dtypes where the second is true; empty if neither has it.
    """

def part_of(tensor: Tensor, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], /) -> Tensor:
    """Those elements of a tensor, as a subscript once picked them; all in elements."""

def torch_at_once(tensors: list[Any], /) -> list[Any]:
    """
    Tensors of one checkpoint as those of torch; None for each that torch's functions have to make, since it shares its storage with another one of the list or is in pieces.
    """

class TensorBuffer:
    """What Tensor.buffer() is a view of: the elements, by the buffer protocol."""

small_storage: int = ...

def option_values() -> dict[str, tuple[str | bool, ...]]:
    """The options of open() and what each takes."""

class Checkpoint:
    def id(self) -> int:
        """Of what is open: the same for all that share it, as long as one of them is there."""

    def file(self) -> bytes:
        """As it was given to open(); b"descriptor 5" if that was a descriptor, b"memory"."""

    def origin(self) -> tuple[list[bytes], dict[str, Any]]:
        """
        The paths, absolute as of the open, none if that was by descriptor or in memory; and the options.
        """

    def __reduce__(self) -> tuple[Any, ...]: ...
    def __len__(self) -> int: ...
    def contains(self, name: str, /) -> bool:
        """True if find() has a tensor of this name."""

    def find(self, name: str, /) -> Tensor | None:
        """The tensor of this name; None if there is none, or more than one."""

    def get(self, name: str, /) -> Tensor:
        """The same with an error that says why not."""

    def get_path(self, path: tuple[str | int, ...], /) -> Tensor: ...
    def at(self, index: int, /) -> Tensor: ...
    def name(self, index: int, /) -> str: ...
    def shape_of_piece(self, index: int, /) -> tuple[int, ...]:
        """Of a piece of a chunked tensor, without looking it up."""

    def names(self) -> list[str]:
        """Of all tensors, in the order of the file."""

    def keys(self) -> list[str]:
        """As names(), with the whole in place of its pieces."""

    def key_count(self) -> int:
        """How many keys() there are."""

    def path(self, index: int, /) -> tuple[str | int, ...]: ...
    def info(self) -> dict[str, Any]: ...
    def stats(self) -> dict[str, Any]: ...
    def evaluate(self, machine: Any, path: tuple[str | int, ...] = (), /) -> Any:
        """What this path leads to, as `machine` understands it; see python/src/evaluator.hpp."""

    def left_out_values(self) -> tuple[str, ...]:
        """
        Names of what the values of a folder in pieces cannot have; empty before they are asked for.
        """

    def look(self, name: str, /) -> tuple[tuple[str | int, ...], str] | None:
        """Where these keys, joined by dots, lead to, and the type of what is there."""

    def composed(self) -> list[dict[str, Any]]:
        """Tensors that are more than one dense block of elements."""

    def files(self) -> list[tuple[bytes, tuple[int, int, int, int, int]]]:
        """The files that it was opened from, and their generations."""

    def storage_place(self, index: int, /) -> tuple[int, int]:
        """Offset in the mapping and bytes of a storage."""

    def find_storage(self, key: str, /) -> tuple[int, int] | None:
        """Offset in the mapping and bytes of the record of this storage."""

    def mapping(self) -> MappedBytes:
        """The file as it is mapped."""

    def lend(self, storage_bytes: int, /) -> MappedBytes:
        """
        The file as memory for torch tensors of a storage of so many bytes: copy on write, or the mapping as it is, which then must only be read.
        """

    def match(self, pattern: str, /) -> list[int]:
        """Indices of the tensors whose names match."""

    def generation(self) -> tuple[int, int, int, int, int]: ...
    def state(self) -> str: ...
    def is_current(self) -> bool: ...
    def reopen(self) -> Checkpoint: ...
    def copy_to(self, tensor: Tensor, buffer: Any, /) -> None: ...
    def check_unchanged(self, tensor: Tensor, /) -> None: ...
    def gather(self, name: str, offsets: tuple[int, ...], sizes: tuple[int, ...], buffer: Any, /) -> None: ...
    def has_chunks(self) -> bool:
        """Whether composed() has chunked tensors."""

    def verify_headers(self) -> None: ...
    def verify_crc(self, progress: Callable[[int, int], Any] | None, /) -> tuple[int, int, int]:
        """Storages checked, storages without a sum, bytes read."""

    def warm(self, tensors: list[int], parts: list[Tensor], threads: int, budget_bytes: int, crc: bool, one_reader: bool, progress: Callable[[int, int], Any] | None, /) -> dict[str, Any]: ...
    def demand(self, tensor: Tensor, /) -> None: ...
    def demand_order(self) -> list[int]: ...
    def save_order(self, path: bytes, /) -> None:
        """Writes demand_order() to an order file."""

    def load_order(self, path: bytes, /) -> list[int]: ...
    def is_remote(self) -> bool:
        """Whether one of its files comes from a server or a daemon."""

    def anonymous_bytes(self) -> int:
        """What this process has copied of the mapping by writing to it."""

    def residency(self) -> dict[str, Any]: ...
    def advise(self, tensor: Tensor, random: bool, /) -> None: ...
    def rows(self, names: list[str], budget_bytes: int, /) -> Rows: ...
    def expert_units(self, pattern: str, /) -> list[tuple[str, list[tuple[str, int | None, bool]]]]: ...
    def resident_set(self, units: list[tuple[str, list[tuple[str, int | None, bool]]]], budget_bytes: int, share: str, wait_ms: int, policy: str, /) -> ResidentSet: ...

class Rows:
    def count(self) -> int: ...
    def row_bytes(self, table: int, /) -> int: ...
    def gather(self, ids: Any, out: list[Any], /) -> None:
        """ids: memory of int64. out: writable memory for each table."""

class Lease:
    def unit(self) -> int: ...
    def is_mapped(self) -> bool: ...
    def end(self) -> None: ...
    def numpy(self, part: int, count: int, /) -> Any: ...
    def torch(self, part: int, count: int, /) -> Any: ...
    def dlpack(self, part: int, count: int, /) -> Any: ...

class ResidentSet:
    def unit_bytes(self) -> list[int]: ...
    def acquire(self, units: list[int], /) -> list[Lease]: ...
    def prefetch(self, units: list[int], /) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    def cached_bytes(self) -> int: ...
    def history(self) -> list[tuple[int, int, int]]: ...
    def save_profile(self, path: bytes, /) -> None: ...
    def load_profile(self, path: bytes, /) -> None: ...

def open(path: bytes, options: dict[str, Any], like_torch: bool = False, progress: Callable[[int, int], Any] | None = None, /) -> Checkpoint:
    """like_torch: private and writable, without reserving swap, where nothing says otherwise."""

def open_files(paths: list[bytes], options: dict[str, Any], like_torch: bool = False, progress: Callable[[int, int], Any] | None = None, /) -> Checkpoint: ...
def open_descriptor(descriptor: int, options: dict[str, Any], like_torch: bool = False, progress: Callable[[int, int], Any] | None = None, /) -> Checkpoint: ...
def open_memory(buffer: Any, trusted: bool, options: dict[str, Any], progress: Callable[[int, int], Any] | None = None, /) -> Checkpoint:
    """Keeps the buffer exported until the last tensor is gone."""

class StagedFile:
    def descriptor(self) -> int: ...
    def path(self) -> bytes: ...
    def pinnable_memory(self) -> MappedBytes: ...
    def report(self) -> dict[str, Any]: ...

def stage(path: bytes, name: bytes, budget_bytes: int, pinnable: bool, progress: Callable[[int, int], Any] | None, /) -> StagedFile: ...
def remove_staged(name: bytes, /) -> None: ...

class UrlSource:
    def name(self) -> str: ...
    def size(self) -> int: ...
    def tag(self) -> str: ...
    def read_into(self, offset: int, buffer: Any, /) -> int: ...
    def sibling(self, relative: str, /) -> UrlSource: ...
    def counts(self) -> dict[str, int]: ...

class Staging:
    def checkpoint(self) -> Checkpoint: ...
    def wait(self, name: str, /) -> Tensor: ...
    def finish(self, progress: Callable[[int, int], Any] | None, /) -> StagedFile: ...
    def cancel(self) -> None: ...
    def stop(self) -> None:
        """cancel(), and waits for the reads that have begun."""

    def report(self) -> dict[str, Any]: ...

def url_source(opener: Any, /) -> UrlSource:
    """opener: of _curl.opener()."""

def remote_metadata(source: Any, /) -> Checkpoint: ...
def model_files(source: Any, /) -> list[dict[str, Any]]: ...
def start_staging(source: Any, order: list[str], verify: bool, chunk_bytes: int, name: bytes, budget_bytes: int, sums: dict[str, bytes], require_digest: bool, /) -> Staging: ...
def fetch(source: Any, path: bytes, is_folder: bool, order: list[str], verify: bool, chunk_bytes: int, replaces: bool, sums: dict[str, bytes], require_digest: bool, progress: Callable[[int, int], Any] | None, /) -> list[dict[str, Any]]: ...
def fetch_model(source: Any, link: bytes, order: list[str], verify: bool, chunk_bytes: int, sums: dict[str, bytes], require_digest: bool, progress: Callable[[int, int], Any] | None, check: Callable[[bytes], Any] | None, /) -> dict[str, Any]: ...
def evict(path: bytes, progress: Callable[[int, int], Any] | None, /) -> tuple[int, int, int, int, bool]: ...
def publish(source: bytes, target: bytes, copy: bool, crc: bool, any_content: bool, any_format: bool, progress: Callable[[int, int], Any] | None, /) -> tuple[tuple[int, int, int, int, int], bool, bool, int, bytes]: ...
def guard_is_active() -> bool:
    """Whether a SIGBUS comes to the guard first; False before the first guarded open."""

def list_globals(path: bytes, options: dict[str, Any], /) -> list[tuple[str, str, str]]:
    """What the pickles of a file name: module, name and verdict of each."""

def torch_safe_globals() -> list[str]:
    """What torch allows by default."""

def protect(path: bytes, /) -> tuple[int, int, int]:
    """
    How many mappings of a file were made read-only, their bytes, and how many of them had been written to.
    """

def file_mappings(addresses: list[int], counted: bool, /) -> list[tuple[int, int, bool, int]]:
    """
    The mappings of files in this process that have one of these addresses: begin, end, whether it is writable, and bytes that were copied by writing, if that is counted.
    """

def runtime_directory() -> bytes:
    """Where processes of this user meet; it is made if it is not there."""

def processes(paths: list[bytes], /) -> tuple[list[dict[str, Any]], int]:
    """What each process has mapped, and how many could not be looked at."""

def model_version(folder: bytes, /) -> str: ...
def write_delta(old: bytes, new: bytes, folder: bytes, encoding: str, sums: str, level: int, version: str | None, base_version: str | None, threads: int, durable: bool, progress: Callable[[int, int], Any] | None, /) -> tuple[str, str, list[bytes], int, int, int, int, int]: ...
def apply_delta(base: bytes, deltas: list[bytes], folder: bytes, in_place: bool, base_version: str | None, threads: int, durable: bool, once: bool, progress: Callable[[int, int], Any] | None, /) -> tuple[str, str, bool, list[bytes], int, int, int, int, int, int]: ...
def use_torch(importers: tuple[Any, ...], torch: Any, busy: tuple[Any, ...], /) -> None:
    """
    By which functions torch makes tensors of DLPack capsules, the best first, and which ones answer something true while it would do more than that.
    """

class Written:
    """What a Writer has written."""

    @property
    def archive_bytes(self) -> int: ...
    def storages(self) -> list[tuple[int, int, bool]]:
        """(offset, nbytes, whether it is reserved) of each."""

class Writer:
    """A checkpoint that is being put together. Values are numbers here."""

    def __init__(self, alignment: int, crc32: bool, durable: bool, byte_order: str, mark_reserved: bool) -> None: ...
    def leaf(self, object: None | bool | int | float | str, /) -> int: ...
    def tuple_of(self, elements: list[int], /) -> int: ...
    def list_of(self, elements: list[int], /) -> int: ...
    def dict_of(self, items: list[int], /) -> int:
        """Of key, value, key, value ..."""

    def global_name(self, module: str, name: str, /) -> int: ...
    def fill(self, made: int, elements: list[int], items: list[int], state: int | None, /) -> None: ...
    def call_of(self, callable: int, arguments: int, elements: list[int], items: list[int], state: int | None, is_new_object: bool, /) -> int: ...
    def parameter(self, tensor: int, requires_grad: bool, /) -> int: ...
    def add_storage(self, address: int, nbytes: int, owner: object, location: str, is_reserved: bool, /) -> int: ...
    def mapped_storage(self, opened: Checkpoint, tag: str, key: str, location: str, is_reserved: bool, /) -> int: ...
    def storage(self, number: int, type: int, numel: int, /) -> int: ...
    def tensor(self, storage: int, dtype: str, storage_offset: int, sizes: tuple[int, ...], strides: tuple[int, ...], requires_grad: bool, /) -> int: ...
    def mapped_tensor(self, tensor: Tensor, is_reserved: bool, /) -> int: ...
    def reserved_tensor(self, dtype: str, sizes: tuple[int, ...], /) -> int: ...
    def write_file(self, root: int, path: bytes, progress: Callable[[int, int], object] | None, /) -> Written: ...
    def write_through(self, root: int, write: Callable[[bytes], object], progress: Callable[[int, int], object] | None, /) -> Written: ...

class SafetensorsWriter:
    """Tensors that are going to be written, once."""

    def __init__(self) -> None: ...
    def add(self, name: str, dtype: str, shape: tuple[int, ...], address: int, nbytes: int, owner: object, /) -> None: ...
    def add_mapped(self, name: str, tensor: Tensor, /) -> None: ...
    def add_chunked(self, opened: Checkpoint, name: str, /) -> None: ...
    def write(self, path: bytes, metadata: dict[str, str], max_file_bytes: int, shared: str, durable: bool, progress: Callable[[int, int], object] | None, /) -> tuple[list[tuple[bytes, int]], int, dict[str, str]]:
        """
        Files with their bytes, the bytes of the tensors, and the names that were dropped with those that were kept.
        """

class Fill:
    def storages(self) -> list[tuple[str, int, int, bool]]:
        """(key, offset, nbytes, whether it is written) of each reserved one."""

    def prepare(self, name: str, /) -> None: ...
    def mark_written(self, name: str, /) -> None: ...
    def seal(self, progress: Callable[[int, int], object] | None, /) -> None: ...

def open_fill(path: bytes, /) -> Fill: ...

class DeviceTensor:
    """
    A tensor in the memory of a CUDA device, row-major, given back with the last who has it.

    It may outlive the uploader and the checkpoint. Whatever takes DLPack takes it, and shares the
    memory. The copy to the device is done, so any stream may use it.
    """

    @property
    def dtype(self) -> str:
        """As torch spells it, without the prefix; blocked ones as ggml does."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]:
        """In elements."""

    @property
    def nbytes(self) -> int: ...
    @property
    def data_ptr(self) -> int:
        """The address on the device, a CUdeviceptr; 0 if the tensor is empty."""

    @property
    def device(self) -> int:
        """The ordinal of the device."""

    def __dlpack__(self, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def bits(self) -> DeviceTensor:
        """The same memory as unsigned integers: what Tensor.bits() says of its elements."""

    def torch(self) -> torch_module.Tensor:
        """
        A torch tensor over the same memory.

        Of a blocked dtype the bytes of its blocks. UnsupportedError where torch has no such dtype.
        """

class CudaUpload:
    def next(self) -> DeviceTensor | None: ...
    def report(self) -> dict[str, Any]: ...

class CudaUploader:
    def way(self) -> str: ...
    def start(self, checkpoint: Checkpoint, tensors: list[Tensor], /) -> CudaUpload: ...

def cuda_uploader(device: int, slots: int, slot_bytes: int, threads: int, register_bytes: int, way: str | None, library: bytes, /) -> CudaUploader: ...
