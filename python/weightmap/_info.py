"""What an open found out: the kind of file, its identity, and what it took."""

from __future__ import annotations

from weightmap._record import Record


class Info(Record):
    """What kind of file a checkpoint is."""

    format: str  # "torch_zip", "torchscript", "pt2", "torch_legacy" or "safetensors"; or "mixed"
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
    tensors_not_indexed: int  # that shards have and their index does not name; not listed
    sharing: str  # as mapped, after any fallback
    sharing_fell_back: bool  # the file system refused a shared mapping
    writable: bool
    protection: str  # "map", "guard" or "snapshot"
    protection_means: str  # "reflink" for a snapshot; "" if the file itself is mapped


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
    storages_copied: int  # compressed ones, inflated into memory
    bytes_copied: int  # what they have there
    verify_reads: int  # made only to verify
    verify_bytes_read: int
    seconds: float  # the whole open, and its stages
    directory_seconds: float
    pickle_seconds: float
    catalog_seconds: float
    copying_seconds: float
    mapping_seconds: float
