"""What the calls of weightmap answer, in named fields: reports, counts and facts.

Nobody but weightmap makes them; to name their types, import them from here.
"""

from __future__ import annotations

from weightmap._record import Record
from weightmap._summary import Share, Summary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from weightmap import _core
    from weightmap._patching.report import PatchedCall, PatchReport

__all__ = [
    "ApplyReport",
    "ComposedTensor",
    "CrcReport",
    "DeltaReport",
    "EvictReport",
    "FetchReport",
    "Generation",
    "Info",
    "LoadReport",
    "MappedCheckpoint",
    "ModelFile",
    "ModelReport",
    "PatchReport",
    "PatchedCall",
    "Processes",
    "PublishReport",
    "RangeResidency",
    "ReservedStorage",
    "Residency",
    "SafetensorsReport",
    "SaveReport",
    "SavedStorage",
    "Share",
    "StageReport",
    "Stats",
    "Summary",
    "TensorStats",
    "WarmReport",
    "WriteProtection",
]


class Info(Record):
    """What kind of file a checkpoint is."""

    # "torch_zip", "torchscript", "pt2", "torch_legacy", "safetensors", "gguf", "npz", "npy",
    # "pickle" or "dcp"; of several files that differ "mixed"
    format: str
    version: int  # of the record `version`
    format_version: str | None  # of `.format_version`; None before torch 2.7
    byteorder: str  # "little" or "big"
    byteorder_assumed: bool  # the file does not say; the option decided
    storage_alignment: int  # bytes
    tensors: int
    storages: int
    tensor_bytes: int  # of all tensors; views of one storage count each
    file_bytes: int
    pickle_bytes: int
    unread_bytes: int  # behind the first legacy stream, or the last GGUF tensor
    duplicate_keys: int  # items left out, since a later one in their dict has the same key
    unsupported: tuple[str, ...]  # names of what is not listed: pickled, or of packed bits
    not_opened: tuple[str, ...]  # other checkpoints of the folder that was opened
    tensors_not_indexed: int  # that shards have and their index does not name; not listed
    sharing: str  # as mapped, after any fallback
    sharing_fell_back: bool  # the file system refused a shared mapping
    writable: bool
    protection: str  # "map", "guard" or "reflink"


class Generation(Record):
    """The identity of a file's content: what tells one version of a checkpoint from another."""

    device: int
    inode: int
    size: int  # bytes
    mtime_ns: int  # since 1970
    ctime_ns: int


class Stats(Record):
    """What an open did, counted."""

    strategy: str  # the weakest that a storage needed: calculated, directory, headers; or none
    storages_calculated: int
    storages_by_directory: int
    storages_by_header: int
    local_headers_read: int
    local_headers_verified: int
    cache_hits: int  # references to a storage whose offset was known: tied weights, views
    reads: int  # pread calls for metadata
    bytes_read: int
    storages_copied: int  # into memory: compressed ones, arrays that a pickle spells as text
    bytes_copied: int  # what they have there
    verify_reads: int  # made only to verify
    verify_bytes_read: int
    seconds: float  # the whole open, and its stages
    directory_seconds: float
    pickle_seconds: float
    catalog_seconds: float
    copying_seconds: float
    mapping_seconds: float


class ComposedTensor(Record):
    """What the file says of a quantized, sparse, nested or meta tensor, or of a subclass.

    The tensors it is made of are ordinary ones of the checkpoint, with names that begin with this
    one's; a quantized tensor of integers is the first part of itself.
    """

    name: str
    # "quantized", "per_channel", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr",
    # "sparse_bsc", "nested", "meta", "subclass", "from_array", "chunked"
    form: str
    dtype: str | None  # where the file says it; else that of the parts
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # of quantized, meta and subclass; in elements
    requires_grad: bool
    is_parameter: bool
    is_buffer: bool  # by a TorchScript class, or in a pickled module
    type: str  # of a subclass: "module.Class"
    device: str  # of subclass and from_array, as the file says
    scale: float  # of quantized: value = scale * (integer - zero_point)
    zero_point: int
    axis: int  # of per_channel
    is_coalesced: bool | None  # of sparse_coo, where the file says
    offsets: tuple[tuple[int, ...], ...]  # of chunked: where each part begins in the whole
    first_part: int  # position among the checkpoint's tensors
    part_count: int


class TensorStats(Record):
    """What the numbers of a tensor are like. A bool counts as 0 or 1, and -0.0 as a zero."""

    count: int  # elements
    min: int | float | None  # of the finite elements, as are the next three; None if there is none
    max: int | float | None
    mean: float | None
    std: float | None  # divided by their number, as numpy does, not by one less
    nan: int  # how many are no number
    infinite: int  # of either sign
    zeros: int


class WarmReport(Record):
    """What warm() did."""

    bytes: int  # brought into memory
    bytes_left_out: int  # by the budget
    budget_reason: str  # what set it: "MemAvailable", "memory.max of /pod"; "" if it was given
    method: str  # "populate", "copy" or "read", as C++ has them
    method_reason: str  # why it is "read"; else ""
    storages_checked: int  # against their CRC-32
    seconds: float
    was_reader: bool = False  # with one_reader: this process was elected
    takeovers: int = 0  # 1 if it was elected after it had waited for another
    bytes_read: int = 0  # by this process: what was not cached when its turn came
    bytes_waited_for: int = 0  # that another process read meanwhile
    why_alone: str = ""  # why it read for itself; "" if it did not have to
    budget_bytes: int = 0  # that was kept to; 2**64 - 1: there was none


class CrcReport(Record):
    """What verify_crc() read."""

    storages_checked: int
    storages_without_crc: int  # the writer did not compute their sums
    bytes: int


class LoadReport(Record):
    """What load_into() found different."""

    missing: list[str]  # names of the model that the checkpoint has not
    unexpected: list[str]  # names of the checkpoint that the model has not


class RangeResidency(Record):
    """What of a tensor or a storage is in memory. In bytes; None: the system does not tell."""

    file_offset: int
    extent_bytes: int  # from the first to the last that strides reach
    cached_bytes: int  # of these, in the page cache, whoever brought them there
    resident_bytes: int | None  # mapped into this process, too; what is mapped twice counts twice
    anonymous_bytes: int | None  # of those, copied by writing to private memory
    huge_mapped_bytes: int | None  # of those that are mapped, in huge pages
    name: str  # of the tensor; key of the storage


class Residency(Record):
    """What of a checkpoint is in memory, at one moment. In bytes."""

    file_bytes: int
    cached_bytes: int  # in the page cache, whoever brought it there
    resident_bytes: int  # mapped into this process, too (RSS)
    anonymous_bytes: int  # of those, copied by writing to private memory; the rest is the file's
    huge_mapped_bytes: int  # of those that are mapped, in huge pages
    pss_bytes: int  # each page divided by the number of processes that have it mapped (PSS)
    pss_anonymous_bytes: int | None  # of those, anonymous; None: forked processes share copies
    minor_faults_since_open: int  # page faults of the whole process that found it in memory
    major_faults_since_open: int  # that waited for the disk
    is_fragmented: bool | None  # cached in 4 KiB pieces, slow to map; None: cannot be known
    tensors: tuple[RangeResidency, ...]  # in the order of the file
    storages: dict[str, RangeResidency]  # by key; of several files by name of the file/key

    def __repr__(self) -> str:
        short = {"tensors": f"<{len(self.tensors)}>", "storages": f"<{len(self.storages)}>"}
        fields = [f"{field}={short.get(field) or repr(getattr(self, field))}"
                  for field in type(self).__match_args__]
        return f"Residency({', '.join(fields)})"


class EvictReport(Record):
    """What evict() did, in bytes."""

    file_bytes: int
    cached_before: int
    cached_after: int  # what stays
    # Why: "in_use" by a process that has it mapped or locked, this one perhaps; "unwritten", not on
    # the disk yet; "memory_file_system", the file has no other place. "" if nothing stays.
    reason: str = ""


class PublishReport(Record):
    """What publish() did."""

    generation: Generation  # of what the target names now
    replaced: bool  # there was a file of this name before
    copied: bool  # the new file is still where it was, too
    bytes: int
    previous: str | None = None  # the folder that a link led to before


class DeltaReport(Record):
    """What write_delta() wrote."""

    version: str
    base_version: str
    files: list[str]  # the index last
    tensors: int
    changed_tensors: int
    tensor_bytes: int
    changed_bytes: int  # that differ
    bytes: int  # of the files


class ApplyReport(Record):
    """What apply_delta() made."""

    version: str
    base_version: str
    made: bool  # False: it was there already
    files: list[str]  # of the weights
    deltas: int
    tensors: int
    changed_tensors: int
    bytes: int  # of the files
    shared_bytes: int  # of these, in files that began as reflinks of the old ones
    delta_bytes: int  # that were read


class MappedCheckpoint(Record):
    """What one process has mapped of one file, in bytes."""

    process: int
    command: str
    file: str  # the path when it was mapped; "/memfd:NAME" for memory without one
    version: str  # "current", "replaced" by another file of its name, or "deleted"
    device: int
    inode: int
    file_bytes: int
    has_shared: bool
    has_private: bool
    writable: bool
    mapped_bytes: int  # of address space
    resident_bytes: int  # RSS
    pss_bytes: int  # PSS: each page divided by the number of processes that have it
    anonymous_bytes: int  # of resident_bytes, copied by writing
    huge_mapped_bytes: int  # of resident_bytes, mapped 2 MiB at a time
    locked_bytes: int  # of pss_bytes, what may not leave memory


class Processes(Record):
    """Who has checkpoints mapped."""

    mapped: list[MappedCheckpoint]  # by file, then process
    unreadable_processes: int  # that the system does not let us look at

    @property
    def pss_bytes(self) -> int:
        """What the machine spends on all of them."""
        return sum(mapped.pss_bytes for mapped in self.mapped)


class WriteProtection(Record):
    """What protect() made read-only."""

    mappings: int
    bytes: int  # of address space
    anonymous_bytes: int  # of these, what had been written to before, and stays this process's own


class StageReport(Record):
    """How a copy was read, in bytes."""

    file_bytes: int
    direct_bytes: int  # read past the page cache
    cached_bytes: int  # copied from the page cache, where they were before
    dropped_bytes: int  # read through the page cache, which was asked to drop them at once
    why_not_direct: str  # what the file system said to direct reads; empty if it did them
    huge_bytes: int  # of the copy, in pages of 2 MiB
    sealed: bool  # nobody can change it, but for pinnable_memory()
    seconds: float


class FetchReport(Record):
    """What came of a remote file, in bytes; of a set there is one for each file."""

    path: str  # of the file that was fetched; "" in memory
    file_bytes: int
    tag: str  # the version: HTTP's ETag with its quotes, or what its source calls it
    version_id: str  # S3's versionId; "" if there is none
    requests: int  # of all kinds, including those that failed
    retries: int  # requests for the rest of a range whose first request failed
    hedges: int  # second requests for a range that was slow
    bytes: int  # that came
    bytes_twice: int  # of these, that had come before
    resumed_bytes: int  # that an earlier fetch, which was ended, had left
    summed_bytes: int  # of the file, if its SHA-256 was compared
    sum_from: str  # who said what that must be: "given", "SHA256SUMS", "store" (S3, the hub), or ""
    has_composite_sum: bool  # the store's is of the parts of an upload, and was not compared
    verified_bytes: int  # of storages whose CRC-32 was compared
    in_one_request: bool  # as its server knows no ranges, or it lies beside a set
    seconds: float


class ModelFile(Record):
    """A file of a remote model: of its weights and their index, or of what servers read beside them."""

    name: str  # relative to the model's folder: "tokenizer.json"
    bytes: int
    tag: str  # HTTP's ETag; empty: nothing tells the version
    version_id: str  # S3's; empty: there is none
    sha256: str | None  # of the whole file, as its store says
    is_weights: bool


class ModelReport(Record):
    """What came of a remote model, as a version beside the others."""

    folder: str  # that the link leads to now
    previous: str | None  # that it led to before
    version: str  # of all files of the store: 16 hexadecimal digits
    is_new: bool  # else that version was current already
    files: tuple[FetchReport, ...]


class ReservedStorage(Record):
    """A storage whose room was reserved when the file was made."""

    key: str  # "0" for the record data/0
    offset: int  # of its first byte in the file
    nbytes: int
    written: bool  # marked so, by whichever process


class SavedStorage(Record):
    """Where the bytes of a storage are in the file."""

    key: str  # "0" for the record data/0
    offset: int
    nbytes: int
    reserved: bool  # nothing was written, so they read as zeros


class SaveReport:
    """What save() has written."""

    __slots__ = ("path", "bytes", "left_out", "_written")

    path: str | None
    """The file, or None if it went to a write() of yours."""
    bytes: int
    """Of the whole file."""
    left_out: tuple[str, ...]
    """What checkpoints among what was saved do not list, as Info.unsupported of theirs."""

    def __init__(
        self, path: str | None, written: _core.Written, left_out: tuple[str, ...] = ()
    ) -> None:
        self.path = path
        self.left_out = left_out
        self.bytes = written.archive_bytes
        self._written = written

    @property
    def storages(self) -> tuple[SavedStorage, ...]:
        """All storages, by their keys' numbers. A list is made at each call."""
        return tuple(
            [
                SavedStorage(str(number), *place)
                for number, place in enumerate(self._written.storages())
            ]
        )

    def __repr__(self) -> str:
        where = "" if self.path is None else f" {self.path!r},"
        return f"<weightmap.SaveReport{where} {self.bytes} bytes>"


class SafetensorsReport(Record):
    """What save_safetensors() has written."""

    files: list[str]  # in their order; of a set the index last
    bytes: int  # of all files
    tensor_bytes: int
    dropped: dict[str, str]  # names that are in no file -> the names of the same elements there
    left_out: tuple[str, ...] = ()  # of a Checkpoint: what it does not list, as Info.unsupported


def __getattr__(name: str) -> Any:
    # What they are made of takes longer to import than the rest.
    if name in ("PatchReport", "PatchedCall"):
        from weightmap._patching import report

        return getattr(report, name)
    raise AttributeError(f"module 'weightmap.reports' has no attribute {name!r}")
