"""What Checkpoint.residency() answers."""

from __future__ import annotations

from weightmap._record import Record


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
