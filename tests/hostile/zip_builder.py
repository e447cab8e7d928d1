"""Builds zip archives as torch lays them out, in which any field may lie.

Every number is written as it is asked for: nothing here checks anything. What was built knows where
its parts lie, so that a case can say at which byte a fault is expected.
"""

import dataclasses
import struct
import zlib

LOCAL = 0x04034B50
CENTRAL = 0x02014B50
DESCRIPTOR = 0x08074B50
END = 0x06054B50
END64 = 0x06064B50
LOCATOR = 0x07064B50

STORED, DEFLATED = 0, 8
HAS_DESCRIPTOR, UTF8 = 0x0008, 0x0800

LOCAL_FIELDS = (("signature", "I"), ("version", "H"), ("flags", "H"), ("method", "H"),
                ("time", "H"), ("date", "H"), ("crc", "I"), ("stored_size", "I"), ("size", "I"),
                ("name_length", "H"), ("extra_length", "H"))
CENTRAL_FIELDS = (("signature", "I"), ("made_by", "H"), ("version", "H"), ("flags", "H"),
                  ("method", "H"), ("time", "H"), ("date", "H"), ("crc", "I"),
                  ("stored_size", "I"), ("size", "I"), ("name_length", "H"),
                  ("extra_length", "H"), ("comment_length", "H"), ("disk", "H"),
                  ("internal", "H"), ("external", "I"), ("header_offset", "I"))
END_FIELDS = (("signature", "I"), ("disk", "H"), ("directory_disk", "H"), ("count_here", "H"),
              ("count", "H"), ("directory_size", "I"), ("directory_offset", "I"),
              ("comment_length", "H"))
END64_FIELDS = (("signature", "I"), ("record_size", "Q"), ("made_by", "H"), ("version", "H"),
                ("disk", "I"), ("directory_disk", "I"), ("count_here", "Q"), ("count", "Q"),
                ("directory_size", "Q"), ("directory_offset", "Q"))
LOCATOR_FIELDS = (("signature", "I"), ("disk", "I"), ("end64_offset", "Q"), ("disks", "I"))


def pack(fields, values, lies):
    values = {**values, **(lies or {})}
    return b"".join(struct.pack("<" + kind, values[name]) for name, kind in fields)


def deflate(data, level=9):
    squeezer = zlib.compressobj(level, zlib.DEFLATED, -15)
    return squeezer.compress(data) + squeezer.flush()


def extra_field(number, body, length=None):
    return struct.pack("<HH", number, len(body) if length is None else length) + body


class Hole:
    """Zeros that take no space where the file system knows holes."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length


@dataclasses.dataclass
class Record:
    """One record. `local` and `central` are fields of its headers that lie."""

    name: str  # without the top folder
    data: object = b""  # bytes, or a Hole
    method: int = STORED
    stored: bytes = None  # what the file holds instead of `data`
    flags: int = None
    crc: int = None
    local: dict = None
    central: dict = None
    descriptor: object = None  # bytes in place of the data descriptor
    local_name: bytes = None
    central_name: bytes = None
    local_extra: bytes = None  # in place of the padding
    central_extra: bytes = b""
    comment: bytes = b""
    pad: int = 0  # this much more padding, a lie to the rule of alignment
    before: bytes = b""  # stands before the local header
    listed: bool = True  # has an entry in the directory
    shares: str = None  # has no header of its own, but the entry of this record's
    top: str = None  # a top folder of its own, with its slash


class Built:
    """An archive, in parts, and where they lie."""

    def __init__(self):
        self.parts = []
        self.size = 0
        self.header = {}
        self.payload = {}
        self.entry = {}
        self.directory = self.end64 = self.locator = self.end = 0
        self.pickle_offset = self.pickle_bytes = 0

    def add(self, part):
        if len(part):
            self.parts.append(part)
            self.size += len(part)

    def bytes(self):
        return b"".join(bytes(len(p)) if isinstance(p, Hole) else p for p in self.parts)

    def changed(self, data):
        """The same places with other bytes."""
        other = Built()
        other.__dict__.update(self.__dict__)
        other.parts, other.size = [data], len(data)
        return other

    def patched(self, at, new):
        data = bytearray(self.bytes())
        data[at:at + len(new)] = new
        return self.changed(bytes(data))

    def field(self, fields, at, name, value):
        """The same archive with one field of the header at `at` changed."""
        offset = at
        for field, kind in fields:
            if field == name:
                return self.patched(offset, struct.pack("<" + kind, value))
            offset += struct.calcsize("<" + kind)
        raise KeyError(name)

    def write(self, path):
        with open(path, "wb") as file:
            for part in self.parts:
                if isinstance(part, Hole):
                    file.seek(len(part), 1)
                else:
                    file.write(part)
            file.truncate(self.size)


@dataclasses.dataclass
class Archive:
    records: list
    top: str = "archive/"
    alignment: int = 64
    order: object = None  # of the entries in the directory: a permutation of indices
    prefix: bytes = b""
    gap: bytes = b""  # between the last record and the directory
    directory_tail: bytes = b""  # in the directory, behind its entries
    behind_directory: bytes = b""
    end: dict = None
    end64: dict = None
    locator: dict = None
    has_end64: bool = True
    has_locator: bool = True
    has_end: bool = True
    comment: bytes = b""
    tail: bytes = b""

    def build(self):
        built = Built()
        built.add(self.prefix)
        entries = []
        for record in self.records:
            self._add_record(built, record, entries)
        built.add(self.gap)
        built.directory = built.size
        listed = [entries[i] for i in (self.order or range(len(entries)))]
        for name, entry in listed:
            built.entry.setdefault(name, built.size)
            built.add(entry)
        built.add(self.directory_tail)
        self._add_end(built, len(listed))
        return built

    def _add_record(self, built, record, entries):
        built.add(record.before)
        name = ((self.top if record.top is None else record.top) + record.name).encode()
        stored = record.data
        if record.stored is not None:
            stored = record.stored
        elif record.method == DEFLATED:
            stored = deflate(record.data)
        crc = record.crc
        if crc is None:
            crc = 0 if isinstance(record.data, Hole) else zlib.crc32(record.data)
        flags = record.flags
        if flags is None:
            flags = UTF8 | (HAS_DESCRIPTOR if len(stored) else 0)
        header = built.size if record.shares is None else built.header[record.shares]
        values = {"signature": LOCAL, "version": 0, "made_by": 0, "flags": flags,
                  "method": record.method, "time": 0, "date": 0, "crc": 0, "stored_size": 0,
                  "size": 0, "disk": 0, "internal": 0, "external": 0}
        wide = len(stored) >= 0xFFFFFFFF or header >= 0xFFFFFFFF
        if record.shares is None:
            self._add_local(built, record, name, stored, values, header, crc, flags, wide)
        if record.listed:
            entries.append((record.name, self._central(record, name, stored, values, header, crc)))

    def _add_local(self, built, record, name, stored, values, header, crc, flags, wide):
        local_name = name if record.local_name is None else record.local_name
        zip64 = b""
        if len(stored) >= 0xFFFFFFFF:
            zip64 += struct.pack("<QQ", len(stored), 0)
        if header >= 0xFFFFFFFF:
            zip64 += struct.pack("<Q", header)
        if wide:
            zip64 = extra_field(1, zip64)
        extra = record.local_extra
        if extra is None:
            start = header + 30 + len(local_name) + len(zip64) + 4
            pad = -start % self.alignment + record.pad
            extra = zip64 + extra_field(0x4246, b"Z" * pad)
        built.header.setdefault(record.name, header)
        built.add(pack(LOCAL_FIELDS,
                       {**values, "name_length": len(local_name), "extra_length": len(extra)},
                       record.local))
        built.add(local_name)
        built.add(extra)
        built.payload.setdefault(record.name, built.size)
        built.add(stored)
        if record.descriptor is not None:
            built.add(record.descriptor)
        elif flags & HAS_DESCRIPTOR:
            built.add(struct.pack("<IIQQ" if wide else "<IIII", DESCRIPTOR, crc, len(stored),
                                  len(record.data)))

    @staticmethod
    def _central(record, name, stored, values, header, crc):
        central_name = name if record.central_name is None else record.central_name
        lies = record.central or {}
        extra = record.central_extra
        wide = b""
        if len(record.data) >= 0xFFFFFFFF:
            wide += struct.pack("<QQ", len(record.data), len(stored))
        if header >= 0xFFFFFFFF:
            wide += struct.pack("<Q", header)
        if wide:
            extra = extra_field(1, wide) + extra
        clamp = lambda number: min(number, 0xFFFFFFFF)
        values = {**values, "signature": CENTRAL, "crc": crc, "stored_size": clamp(len(stored)),
                  "size": clamp(len(record.data)), "header_offset": clamp(header),
                  "name_length": len(central_name), "extra_length": len(extra),
                  "comment_length": len(record.comment)}
        return pack(CENTRAL_FIELDS, values, lies) + central_name + extra + record.comment

    def _add_end(self, built, count):
        size = built.size - built.directory
        built.add(self.behind_directory)
        built.end64 = built.size
        values = {"disk": 0, "directory_disk": 0, "count_here": count, "count": count,
                  "directory_size": size, "directory_offset": built.directory}
        if self.has_end64:
            built.add(pack(END64_FIELDS, {**values, "signature": END64, "record_size": 44,
                                          "made_by": 0x031E, "version": 0x2D}, self.end64))
        built.locator = built.size
        if self.has_locator and self.has_end64 or self.locator is not None:
            built.add(pack(LOCATOR_FIELDS, {"signature": LOCATOR, "disk": 0,
                                            "end64_offset": built.end64, "disks": 1},
                           self.locator))
        built.end = built.size
        if self.has_end:
            values = {**values, "signature": END, "comment_length": len(self.comment)}
            for name, most in (("count_here", 0xFFFF), ("count", 0xFFFF),
                               ("directory_size", 0xFFFFFFFF), ("directory_offset", 0xFFFFFFFF)):
                values[name] = min(values[name], most)
            built.add(pack(END_FIELDS, values, self.end))
            built.add(self.comment)
        built.add(self.tail)
