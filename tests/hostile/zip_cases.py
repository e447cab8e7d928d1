"""Archives that lie about themselves, and strange ones that do not."""

import io
import struct
import tarfile
import zipfile
import zlib

import pickle_builder as p
import zip_builder as z
from catalogue import case, opens, refuse
from torch_files import MODELS, Model, floats, records, small, torch_file
from zip_builder import Archive, Hole, Record, deflate, extra_field

MAX16, MAX32, MAX64 = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


class Group:
    """The cases of one model, whose names begin alike."""

    def __init__(self, prefix, model):
        self.prefix, self.model = prefix, model

    def within(self, prefix):
        return Group(self.prefix + prefix, self.model)

    def file(self, *arguments, **archive):
        return torch_file(self.model, *arguments, **archive)

    def add(self, name, built, *verdicts):
        case(f"{self.prefix}{name}.pt", built, *verdicts)

    def good(self, name, built):
        self.add(name, built, opens(self.model.tensors))

    def bad(self, name, built, *words, at=None, code="corrupt"):
        self.add(name, built, refuse(code, *words, at=at))


GROUPS = [Group(f"zip/{kind}/", model) for kind, model in MODELS]


def quoted(record):
    return f'"archive/{record}"'


def plain_end(model, **archive):
    """Without the ZIP64 end, so that the classic end record is believed."""
    return torch_file(model, has_end64=False, **archive)


def add_end_records(group):
    model = group.model
    good = torch_file(model)
    plain = plain_end(model)
    size = plain.end - plain.directory
    count = len(model.storages) + 6
    classic = lambda **end: plain_end(model, end=end)
    group.good("end_good", good)
    group.good("end_without_zip64", plain)
    # The directory's place and size.
    group.bad("directory_offset_beyond_file", classic(directory_offset=plain.size + 1), "directory",
              size, plain.size + 1, at=plain.end)
    group.bad("directory_offset_one_more", classic(directory_offset=plain.directory + 1),
              "directory", plain.directory + 1, at=plain.end)
    group.bad("directory_offset_one_less", classic(directory_offset=plain.directory - 1),
              "two archives in one file, or bytes inserted or lost")
    group.bad("directory_size_beyond_file", classic(directory_size=plain.size), "directory",
              plain.size, at=plain.end)
    group.bad("directory_sum_wraps_32_bits",
              classic(directory_offset=MAX32 - 1, directory_size=size), "directory", MAX32 - 1,
              at=plain.end)
    group.bad("directory_size_zero", classic(directory_size=0), "records", count)
    # The end of the directory is known, so that its begin, and that of the archive, would move.
    group.bad("directory_size_one_less", classic(directory_size=size - 1), "begin at byte 1,",
              "two archives in one file", at=1)
    group.bad("directory_ends_in_an_entry", classic(directory_size=size - 20), "begin at byte 20,",
              "two archives in one file", at=20)
    group.bad("directory_ends_in_the_last_entry",
              classic(directory_size=size - 20, directory_offset=plain.directory + 20),
              "directory", "entry", at=plain.directory + 20)
    # How many records there are.
    group.bad("count_none", classic(count=0, count_here=0), "no records", at=plain.end)
    group.bad("count_one_more", classic(count=count + 1, count_here=count + 1), "directory holds",
              count, count + 1, at=plain.directory)
    group.bad("count_one_less", classic(count=count - 1, count_here=count - 1), "directory goes on",
              count - 1)
    group.bad("count_disagrees_with_itself", classic(count_here=count - 1), "end record", count - 1,
              count, at=plain.end)
    group.bad("count_65535_without_zip64", classic(count=MAX16, count_here=MAX16),
              "zip64 end record", "none", at=plain.end)
    group.bad("count_65534", classic(count=MAX16 - 1, count_here=MAX16 - 1), MAX16 - 1, size // 46,
              at=plain.end)
    group.bad("size_refers_to_missing_zip64", classic(directory_size=MAX32), "zip64 end record",
              "none", at=plain.end)
    group.bad("offset_refers_to_missing_zip64", classic(directory_offset=MAX32), "zip64 end record",
              "none", at=plain.end)
    group.bad("disk_number", classic(disk=1), "disk", 1, at=plain.end, code="unsupported")
    group.bad("directory_disk_number", classic(directory_disk=7), "disk", at=plain.end,
              code="unsupported")
    add_wide_end(group, good, count)


def add_wide_end(group, good, count):
    wide = lambda end=None, **end64: group.file(end64=end64, end=end)
    refers = {"count": MAX16, "count_here": MAX16, "directory_size": MAX32,
              "directory_offset": MAX32}
    group.good("end_refers_to_zip64", wide(end=refers))
    for field, value in (("directory_offset", MAX64), ("directory_offset", MAX64 - 100),
                         ("directory_offset", 2**63), ("directory_size", MAX64),
                         ("directory_size", 2**63), ("count", 2**63), ("count", 2**32 + count),
                         ("count", MAX64)):
        lies = {field: value}
        if field == "count":
            lies["count_here"] = value
        group.bad(f"zip64_{field}_{value}", wide(end=refers, **lies), value, at=good.end64)
    for field, shown in (("count", "record count"), ("directory_size", "directory size"),
                         ("directory_offset", "directory offset")):
        lies = {"count": {"count": count + 1, "count_here": count + 1},
                "directory_size": {"directory_size": good.end64 - good.directory + 1},
                "directory_offset": {"directory_offset": good.directory + 1}}[field]
        group.bad(f"zip64_disagrees_about_{field}", wide(**lies), "end records disagree", shown,
                  "zip64", at=good.end)
    group.bad("zip64_disk", wide(end=refers, disk=1), "disk", at=good.end64, code="unsupported")
    for size in (0, 43, 45, 2**32, MAX64):
        group.bad(f"zip64_record_of_{size}", wide(record_size=size), "zip64 end record", size, 44,
                  at=good.end64)
    group.bad("zip64_signature", wide(signature=0x06064B51), "zip64 locator", "no zip64 end record",
              at=good.end64)
    for value in (good.size, MAX64, MAX64 - 55, good.locator, good.end64 - 1, good.end64 + 1, 0,
                  good.payload["data/0"], 2**63):
        group.bad(f"locator_to_{value}", group.file(locator={"end64_offset": value}),
                  "zip64 locator", value, good.end64, at=good.locator)
    group.bad("locator_of_another_disk", group.file(locator={"disk": 1}), "zip64 locator", "disk",
              at=good.locator, code="unsupported")
    group.bad("locator_of_two_disks", group.file(locator={"disks": 2}), "zip64 locator", "disk",
              at=good.locator, code="unsupported")
    group.bad("locator_without_end64", group.file(has_end64=False, locator={"end64_offset": 0}),
              "zip64")
    group.bad("end64_without_locator", group.file(has_locator=False), "begin at byte 56,",
              "two archives in one file", at=56)


def add_two_ends(group):
    model = group.model
    plain = plain_end(model)
    again = plain.bytes()[plain.end:]
    group.bad("end_record_twice", plain.changed(plain.bytes() + again), "begin at byte 22,",
              "two archives in one file", at=22)
    inner = z.pack(z.END_FIELDS, {"signature": z.END, "disk": 0, "directory_disk": 0,
                                  "count_here": 1, "count": 1, "directory_size": 46,
                                  "directory_offset": 0, "comment_length": 0}, None)
    group.bad("end_record_in_comment", group.file(comment=inner), "two end records")
    group.bad("end_record_in_comment_within_text",
              group.file(comment=b"before" + inner + b"behind"), "end record")
    group.good("comment", group.file(comment=b"made by hand"))
    group.good("comment_of_65000", group.file(comment=b"c" * 65000))
    group.good("comment_of_65535", group.file(comment=b"c" * 65535))
    group.bad("comment_shorter_than_said", group.file(comment=b"short", end={"comment_length": 6}),
              "goes on for 5 bytes", "announces another number")
    for length in (1, 64, MAX16, 70000):
        group.bad(f"{length}_bytes_behind_the_end", group.file(tail=b"\0" * length),
                  "central directory" if length > MAX16 else "end record")
    group.bad("two_archives", plain.changed(plain.bytes() + plain.bytes()),
              "two archives in one file", at=plain.size)
    group.bad("an_archive_as_prefix", group.file(prefix=plain.bytes()), "two archives in one file")
    group.good("a_program_in_front", group.file(prefix=b"#!/bin/sh\nexit 1\n" + b"\0" * 47))
    shifted = torch_file(model)
    group.good("bytes_inserted_in_front", shifted.changed(b"#!/bin/sh\n" + shifted.bytes()))
    group.good("gap_before_directory", group.file(gap=b"\0" * 64))
    group.bad("gap_behind_directory", group.file(behind_directory=b"\0" * 64),
              "zip64 locator points to", "expected")
    group.bad("rubbish_in_directory", group.file(directory_tail=b"\0" * 46), "directory")


def add_entries(group):
    """One entry of the directory that lies."""
    model = group.model
    for record in ("data.pkl", "data/0", "data/3"):
        entry = group.within(record.replace("/", "_") + "_")
        good = torch_file(model)
        at, header = good.entry[record], good.header[record]
        own = quoted(record)

        def lie(central_extra=b"", **central):
            return group.file({record: {"central": central, "central_extra": central_extra}})

        for offset in (good.size + 1, good.end + 12, MAX32 - 1):
            entry.bad(f"header_at_{offset}", lie(header_offset=offset), "archive/")
        beyond = refuse("corrupt", own, "runs into the directory or the end of the file")
        entry.add("header_at_the_end", lie(header_offset=good.size - 10), beyond)
        # Of two that overlap, the one in front is blamed.
        entry.bad("header_in_a_payload", lie(header_offset=good.payload["data/0"] + 1), "record ",
                  "bytes", "byte ")
        entry.add("header_at_2_to_63",
                  lie(extra_field(1, struct.pack("<Q", 2**63)), header_offset=MAX32,
                      extra_length=12), beyond)
        entry.add("header_at_max",
                  lie(extra_field(1, struct.pack("<Q", MAX64)), header_offset=MAX32), beyond)
        entry.bad("size_of_256_MiB", lie(size=1 << 28, stored_size=1 << 28), "archive/", at=header)
        entry.bad("size_of_max_without_zip64", lie(size=MAX32, stored_size=MAX32), own, "zip64",
                  at=at)
        entry.bad("size_of_max_by_zip64",
                  lie(extra_field(1, struct.pack("<QQ", MAX64 - 7, MAX64 - 7)), size=MAX32,
                      stored_size=MAX32), "archive/", at=header)
        entry.bad("sizes_differ", lie(size=13), own, "stored", 13, at=at)
        entry.bad("stored_size_differs", lie(stored_size=13), own, "stored", 13, at=at)
        entry.bad("zip64_field_too_short",
                  lie(extra_field(1, b"1234567"), size=MAX32, stored_size=MAX32), own, "zip64", 7,
                  16, at=at)
        entry.bad("zip64_field_too_long",
                  lie(extra_field(1, bytes(24)), size=MAX32, stored_size=MAX32), own, "zip64", 24,
                  16, at=at)
        entry.bad("zip64_field_overruns",
                  lie(extra_field(1, bytes(16), 400), size=MAX32, stored_size=MAX32), own, 400,
                  at=at)
        size = struct.pack("<QQ", *[len(dict_of(model)[record])] * 2)
        entry.bad("two_zip64_fields", lie(extra_field(1, size) * 2, size=MAX32, stored_size=MAX32),
                  own, "two zip64 fields", at=at)
        # Nobody reads a field that no value refers to.
        entry.good("zip64_field_without_need", lie(extra_field(1, bytes(8))))
        for length in ("name_length", "extra_length", "comment_length"):
            entry.bad(f"{length}_beyond", lie(**{length: MAX16}), "directory", at=at)
        entry.bad("signature", lie(signature=0x02014B51), "directory", "entry", at=at)
        entry.bad("disk", lie(disk=3), own, "disk 3", at=at, code="unsupported")
        for bit, what in ((0x0001, "encrypted"), (0x0020, "patch"), (0x0040, "encrypted"),
                          (0x2000, "encrypted")):
            entry.bad(f"flag_{bit:04x}", lie(flags=0x0808 | bit), own, what, at=at,
                      code="unsupported")
            entry.bad(f"flag_{bit:04x}_in_both", group.file({record: {"flags": 0x0808 | bit}}), own,
                      what, code="unsupported")
        for method, what in ((1, "shrunk"), (6, "imploded"), (9, "deflate64"), (12, "bzip2"),
                             (14, "LZMA"), (93, "Zstandard"), (95, "xz"), (99, "AES"),
                             (7777, "unknown")):
            entry.bad(f"method_{method}", lie(method=method), own, method, what, at=at,
                      code="unsupported")
        entry.good("symlink", lie(made_by=0x0300, external=0o120777 << 16))


def dict_of(model):
    return {record.name: record.data for record in records(model)}


def add_local_headers(group):
    """A local header that says another thing than the directory."""
    model = group.model
    for record, seen in (("data.pkl", True), ("data/0", True), ("data/3", False)):
        local = group.within(f"local_{record.replace('/', '_')}_")
        own = quoted(record)
        at = group.file().header[record]

        def add(name, words, **fields):
            """Where the header is not read at the open, it shows when headers are compared."""
            refused = refuse("corrupt", own, *words, at=at)
            local.add(name, group.file({record: fields}),
                      refused if seen else opens(model.tensors), refused)

        add("signature", ["no local header"], local={"signature": 0x04034B51})
        add("method", ["compression method", 8, 0], local={"method": 8})
        add("encrypted", ["encrypted"], local={"flags": 0x0809})
        add("patched", ["patch"], local={"flags": 0x0828})
        add("strongly_encrypted", ["encrypted"], local={"flags": 0x0848})
        add("masked", ["encrypted"], local={"flags": 0x2808})
        add("without_descriptor", ["descriptor"], local={"flags": 0x0800})
        other = (b"archive/" + record.encode()).swapcase()
        add("other_case", ["ARCHIVE"], local_name=other)
        add("other_name", ["archiv"], local_name=b"archive/" + b"x" * len(record))
        add("longer_name", ["name length"], local={"name_length": 99})
        add("name_of_65535", ["name length", MAX16], local={"name_length": MAX16})
        add("empty_name", ["name length", 0], local={"name_length": 0})
        add("extra_of_65535", ["extra"], local={"extra_length": MAX16})
        extra = extra_of(model, record)
        add("extra_64_more", [], local={"extra_length": extra + 64})
        add("extra_1_less", [], local={"extra_length": extra - 1})
        # Sizes count only where no descriptor follows.
        flat = dict_of(model)[record]
        for field in ("size", "stored_size"):
            sizes = {"size": len(flat), "stored_size": len(flat), field: len(flat) + 1}
            local.bad(field, group.file({record: {"flags": 0x0800, "local": sizes}}), own, "size",
                      len(flat) + 1, len(flat))
        # Where a descriptor follows, these fields say nothing, as zip has it; and nobody who
        # knows the directory reads the descriptor.
        right = struct.pack("<III", zlib.crc32(flat), len(flat), len(flat))
        wrong = struct.pack("<IIII", z.DESCRIPTOR, 1, 2, 3)
        for name, fields in (("sizes_with_descriptor", {"local": {"size": 7, "stored_size": 9}}),
                             ("descriptor_without_signature", {"descriptor": right}),
                             ("descriptor_lies", {"descriptor": wrong})):
            local.good(name, group.file({record: fields}))


def extra_of(model, record):
    built = torch_file(model)
    at = built.header[record] + 28
    return struct.unpack_from("<H", built.bytes(), at)[0]


def add_names(group):
    model = group.model
    extra = lambda name, data=b"x", **more: (None, Record(name, data, **more))
    whole = lambda *more, **others: torch_file(model, more=list(more), **others)
    group.bad("two_pickles", whole(extra("data.pkl", b"\x80\x02N.")), "two records",
              '"archive/data.pkl"')
    group.bad("two_storages", whole(extra("data/0", floats(12, 90))), "two records",
              '"archive/data/0"')
    group.bad("two_versions", whole(extra("version", b"9\n")), "two records", '"archive/version"')
    group.bad("same_storage_listed_twice", whole(extra("data/0", shares="data/0")),
              "archive/data/0")
    group.bad("two_names_for_one_body", whole(extra("data/copy", floats(12), shares="data/0")),
              "runs into")
    group.bad("body_shared_by_2000",
              whole(*(extra(f"data/x{i}", floats(12), shares="data/0") for i in range(2000))),
              "runs into")
    for name in ("DATA.PKL", "Data.pkl", "DATA/0", "Version"):
        group.bad(f"twin_{name.replace('/', '_')}", whole(extra(name)), name,
                  "named alike but for case")
    for name in ("BYTEORDER", ".Format_Version", ".STORAGE_ALIGNMENT", "VERSION", "DATA.PKL"):
        group.bad(f"only_{name}",
                  group.file(without=(name.lower(),),
                             more=[(None, Record(name, dict_of(model)[name.lower()]))]), name,
                  "but for case")
    group.bad("nul_in_name", whole(extra("data/\0")), "zero byte", "name")
    group.bad("empty_name", whole((None, Record("", b"x", top=""))), "empty name")
    for label, name in (("absolute", "/etc/passwd"), ("dots", "../../etc/passwd"),
                        ("backslash", "..\\..\\x"), ("device", "CON"), ("colon", "C:x"),
                        ("line", "a\nb"), ("escape", "\x1b[2J"), ("other_folder", "x/y/z"),
                        ("no_folder", "bare")):
        group.good(f"foreign_name_{label}", whole((None, Record(name, b"x", top=""))))
    group.good("not_utf8",
               whole(extra("x", local_name=b"archive/\xff", central_name=b"archive/\xff")))
    group.good("macos_litter", whole((None, Record("._x", b"litter", top="__MACOSX/archive/"))))
    group.bad("two_roots", whole((None, Record("data.pkl", b"\x80\x02}.", top="other/"))),
              '"other/data.pkl"')
    group.bad("two_roots_other_first",
              group.file(more=[("data.pkl", Record("x", b"x", top="other/"))]), "data.pkl",
              '"other/x"', code="not_a_checkpoint")
    group.good("no_root", group.file(top=""))
    group.good("long_root", group.file(top="r" * 60000 + "/"))
    group.good("root_of_control_characters", group.file(top="\x1b[31m\n/"))
    for name in ("data.pkl", "version", "data/0", "data/3"):
        verdict = {"data.pkl": refuse("not_a_checkpoint", "data.pkl"),
                   "version": refuse("corrupt", "version")}.get(
                       name, refuse("corrupt", quoted(name), "does not have"))
        group.add(f"without_{name.replace('/', '_')}", group.file(without=(name,)), verdict)
    for name in (".format_version", "byteorder", ".storage_alignment",
                 ".data/serialization_id"):
        group.good(f"without_{name.replace('/', '_')}", group.file(without=(name,)))


def add_storages(group):
    model = group.model
    for size, label in ((0, "empty"), (47, "one_less"), (1, "one_byte"),
                        (44, "an_element_less"), (52, "an_element_more"), (96, "twice")):
        group.bad(f"storage_{label}", group.file({"data/0": {"data": (floats(12) * 2)[:size]}}),
                  quoted("data/0"), size, 48)
    # A typed view of a buffer whose size is no multiple of its element.
    group.good("storage_longer_by_less_than_an_element",
               group.file({"data/0": {"data": model.storages["0"] + b"odd"}}))
    group.good("folders", group.file(more=[("data.pkl", Record("")), ("data/0", Record("data/")),
                                           (None, Record("extra/"))]))
    group.bad("storage_is_a_folder",
              group.file(without=("data/0",), more=[(None, Record("data/0/", b""))]), "data/0")
    group.add("storage_crc", group.file({"data/0": {"crc": 12345}}), opens(model.tensors),
              refuse("corrupt", "data/0", "CRC"))
    group.add("storage_bit_flip", flip(group.file(), "data/0"), opens(),
              refuse("corrupt", "data/0", "CRC"))
    group.good("storage_crc_not_computed", group.file({"data/0": {"crc": 0}}))
    group.good("no_crc_at_all", group.file({name: {"crc": 0} for name in dict_of(model)}))
    for name in ("data.pkl", "version", "byteorder", ".storage_alignment"):
        group.bad(f"crc_of_{name}", group.file({name: {"crc": 12345}}), f"archive/{name}", "CRC")
    body = z.pack(z.LOCAL_FIELDS, {"signature": z.LOCAL, "version": 0, "flags": 0x808,
                                   "method": 0, "time": 0, "date": 0, "crc": 0,
                                   "stored_size": 0, "size": 0, "name_length": 14,
                                   "extra_length": 4}, None) + b"archive/data/1"
    group.add("signatures_in_a_storage", group.file({"data/0": {"data": body + b"PK\5\6"}}),
              opens())
    ends = b"PK\5\6" + b"PK\6\6" + b"PK\6\7" + b"PK\1\2" + b"PK\3\4"
    group.add("end_signatures_in_a_storage", group.file({"data/0": {"data": (ends * 3)[:48]}}),
              opens())
    good = torch_file(model)
    ends = good.bytes()[good.end64:]
    for label, data in (("an_end", ends), ("a_directory_and_an_end",
                                           good.bytes()[good.directory:])):
        inner = Model(p.one(p.tensor(kind="ByteStorage", numel=len(data), shape=(len(data),))),
                      {"0": data}, {"w": data})
        group.add(f"{label}_in_a_storage", torch_file(inner), opens(inner.tensors))
    count = len(torch_file(model).entry)
    group.good("directory_in_reverse", group.file(order=range(count - 1, -1, -1)))
    reverse = list(model.storages)[::-1]
    group.good("storages_in_reverse", group.file(storage_order=reverse))
    good = torch_file(model)
    last = ".data/serialization_id"
    size = good.directory - good.header[last] - 30 - len("archive/" + last) + 1
    group.bad("record_runs_into_directory",
              group.file({last: {"central": {"size": size, "stored_size": size}}}), quoted(last),
              size, "runs into", good.directory, at=good.header[last])
    size = good.header["data/1"] - good.header["data/0"] - 30 - len("archive/data/0") + 1
    group.bad("record_runs_into_next",
              group.file({"data/0": {"central": {"size": size, "stored_size": size}}}),
              quoted("data/0"), size, "runs into", good.header["data/1"], at=good.header["data/0"])


def flip(built, record, bit=0x40):
    at = built.payload[record] + 5
    return built.patched(at, bytes([built.bytes()[at] ^ bit]))


def add_small_records(group):
    model = group.model

    def add(record, label, data, verdict):
        group.add(f"{record}_{label}", group.file({record: {"data": data}}), verdict)

    bad = lambda record, *words: refuse("corrupt", "record", record, *words)
    add("version", "0", b"0\n", refuse("unsupported", "version 0", "lowest", 1))
    add("version", "11", b"11\n", refuse("unsupported", "version 11", "highest", 10))
    add("version", "1", b"1\n", opens(model.tensors))
    add("version", "10", b"10\n", opens(model.tensors))
    for label, data in (("empty", b""), ("text", b"three"), ("negative", b"-3"),
                        ("hex", b"0x3"), ("nul", b"3\0"), ("wraps", b"18446744073709551619"),
                        ("point", b"3.0"), ("two", b"3 3")):
        add("version", label, data, bad("version", "number"))
    add("version", "long", b"3" * 65, bad("version", 65, 64))
    for label, data in (("empty", b""), ("middle", b"middle"), ("nul", b"little\0"),
                        ("capital", b"LITTLE"), ("line", b"little\n"), ("escape", b"\x1b[2J")):
        add("byteorder", label, data, bad("byteorder", "little or big"))
    add("byteorder", "long", b"l" * 5000, bad("byteorder", 5000))
    for label, data in (("0", b"0"), ("negative", b"-64"), ("65537", b"65537"),
                        ("2_to_62", b"4611686018427387904"),
                        ("2_to_64", b"18446744073709551616"), ("text", b"sixty"),
                        ("empty", b"")):
        add(".storage_alignment", label, data, bad(".storage_alignment", "65536"))
    add(".storage_alignment", "digits", b"6" * 8192, bad(".storage_alignment", 8192))
    for label, data in (("1", b"1"), ("63", b"63"), ("128", b"128"), ("32", b"32"),
                        ("4096", b"4096"), ("65536", b"65536"), ("line", b"64\n")):
        add(".storage_alignment", label, data, opens(model.tensors))
    for label, data in (("empty", b""), ("9", b"9"), ("text", b"new"), ("nul", b"\0")):
        add(".format_version", label, data, opens(model.tensors))
    for label, data in (("empty", b""), ("short", b"1"), ("text", b"x" * 40)):
        add(".data_serialization_id".replace("_", "/", 1), label, data, opens(model.tensors))


def add_reserved_marks(group):
    """The record that says which storages are filled in, a letter for each and one for the file."""
    model = group.model
    count = len(model.storages)
    name = ".data/weightmap_reserved"
    marked = lambda data, **more: torch_file(model, more=[(None, Record(name, data, **more))])
    records_in_all = count + 7
    for label, data in (("empty", b""), ("longer_than_the_directory",
                                         b"w" * (records_in_all + 1))):
        group.bad(f"marks_{label}", marked(data), f"record {name}", f"has {len(data)} byte",
                  records_in_all)
    for label, data in (("saved", b"-" * count + b"s"), ("written", b"w" * count + b"s"),
                        ("unwritten", b"r" * count + b"o"), ("unknown", b"\xff" * count + b"?"),
                        ("of_zeros", bytes(count + 1)), ("of_one_letter", b"s"),
                        ("of_more_than_the_storages", b"w" * records_in_all)):
        group.good(f"marks_{label}", marked(data))
    # They change in place, so that nothing but the last letter says when their sum is right.
    group.good("marks_of_wrong_crc", marked(b"w" * count + b"o", crc=12345))
    group.bad("marks_twice",
              group.file(more=[(None, Record(name, b"s")), (None, Record(name, b"o"))]),
              "two records", quoted(name))


def add_deflated(group):
    model = group.model
    packed = lambda names, **more: torch_file(
        model, {name: {"method": 8, **more} for name in names})
    group.good("deflated_pickle", packed(["data.pkl"]))
    group.good("deflated_small_records",
               packed(["version", "byteorder", ".storage_alignment", ".format_version"]))
    for more, label in ((1, "larger"), (-1, "smaller")):
        size = len(model.pickle) + more
        group.bad(f"deflated_pickle_{label}_than_said",
                  packed(["data.pkl"], central={"size": size}), quoted("data.pkl"),
                  "inflates to", size)
    cut = deflate(model.pickle)
    group.bad("deflated_pickle_cut", packed(["data.pkl"], stored=cut[:-5]), quoted("data.pkl"),
              "damaged or ends early")
    group.bad("deflated_pickle_and_more", packed(["data.pkl"], stored=cut + b"more"),
              quoted("data.pkl"), "ends 4 bytes before the record")
    group.bad("deflated_pickle_of_rubbish", packed(["data.pkl"], stored=b"\xff" * 200),
              quoted("data.pkl"), "damaged")
    group.bad("deflated_pickle_empty", packed(["data.pkl"], stored=b""), quoted("data.pkl"))
    group.bad("deflated_pickle_crc", packed(["data.pkl"], crc=12345), quoted("data.pkl"), "CRC")
    group.good("deflated_storages", packed(["data/" + key for key in model.storages]))
    whole = deflate(model.storages["0"])
    for label, more, words in (
            ("cut", {"stored": whole[:-3]}, ["damaged or ends early"]),
            ("and_more", {"stored": whole + b"more"}, ["ends 4 bytes before the record"]),
            ("larger", {"central": {"size": 49}}, ["inflates to 48", 49]),
            ("smaller", {"central": {"size": 47}}, ["has 47 bytes", 48]),
            ("empty", {"stored": b""}, ["size 0", 48]),
            ("crc", {"crc": 12345}, ["CRC-32"]),
            ("bomb", {"stored": deflated_zeros(64 << 20)}, ["inflates to more than", 48])):
        group.bad(f"deflated_storage_{label}", packed(["data/0"], **more), quoted("data/0"),
                  *words)


def add_bombs():
    for mebibytes in (65, 256):
        bomb = deflated_zeros(mebibytes << 20)
        size = mebibytes << 20
        model = small()
        case(f"zip/bomb_of_{mebibytes}_MiB_in_pickle.pt",
             torch_file(model, {"data.pkl": {"method": 8, "data": Hole(size), "stored": bomb}}),
             refuse("limit_exceeded", "data.pkl", size, 64 << 20))
        case(f"zip/bomb_of_{mebibytes}_MiB_in_version.pt",
             torch_file(model, {"version": {"method": 8, "data": Hole(size), "stored": bomb}}),
             refuse("corrupt", "version", size, 64))
        case(f"zip/bomb_of_{mebibytes}_MiB_that_says_64.pt",
             torch_file(model, {"data.pkl": {"method": 8, "data": bytes(64), "stored": bomb}}),
             refuse("corrupt", quoted("data.pkl"), "inflates to more than", 64))
    add_storage_bombs()
    case("zip/inflates_beyond_what_deflate_can.pt",
         torch_file(small(), {"data.pkl": {"method": 8, "central": {"size": 1 << 25}}}),
         refuse("corrupt", quoted("data.pkl"), "cannot become", 1 << 25))


def add_storage_bombs():
    """Storages that become as much as they say, which is much more than they are."""
    for mebibytes in (63, 65, 256):
        size = mebibytes << 20
        stored = deflated_zeros(size)
        model = Model(p.one(p.tensor(kind="ByteStorage", numel=size, shape=(size,))),
                      {"0": Hole(size)}, {})
        built = torch_file(model, {"data/0": {"method": 8, "stored": stored,
                                              "crc": zlib.crc32(bytes(size))}})
        case(f"zip/bomb_of_{mebibytes}_MiB_in_a_storage.pt", built,
             refuse("limit_exceeded", "become more than 32 times", "copied_ratio")
             if mebibytes > 64 else opens(), is_huge=True)
    halves = {str(i): Hole(40 << 20) for i in range(2)}
    model = Model(p.pickle(p.list_of(*(p.tensor(kind="ByteStorage", numel=40 << 20, key=key,
                                                shape=(1,)) for key in halves))), halves, {})
    stored = deflated_zeros(40 << 20)
    case("zip/bomb_of_twice_40_MiB_in_storages.pt",
         torch_file(model, {"data/" + key: {"method": 8, "stored": stored} for key in halves}),
         refuse("limit_exceeded", "copied_ratio"), is_huge=True)


def deflated_zeros(size):
    squeezer = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = bytes(1 << 20)
    parts = [squeezer.compress(piece) for _ in range(size // len(piece))]
    return b"".join(parts) + squeezer.flush()


def add_damage(group):
    model = group.model
    good = torch_file(model)
    data = good.bytes()
    cuts = {"a_quarter": len(data) // 4, "half": len(data) // 2,
            "before_the_directory": good.directory,
            "in_the_directory": good.directory + 30, "behind_the_directory": good.end64,
            "in_the_zip64_end": good.end64 + 20, "behind_the_zip64_end": good.locator,
            "before_the_end": good.end, "in_the_end": good.end + 10,
            "one_byte_short": len(data) - 1}
    for label, length in cuts.items():
        group.bad(f"cut_{label}", good.changed(data[:length]), "truncated", length)
    group.bad("tail_of_zeros",
              good.changed(data[:len(data) // 2] + bytes(len(data) - len(data) // 2)), "truncated")
    group.bad("all_zeros", good.changed(bytes(len(data))), "zero bytes", code="not_a_checkpoint")
    middle = good.header["data/0"]
    hole = data[:middle] + bytes(64) + data[middle + 64:]
    group.bad("hole_over_the_first_storage", good.changed(hole), quoted("data/0"),
              "no local header", at=middle)
    middle = good.header["data/3"]
    hole = data[:middle] + bytes(64) + data[middle + 64:]
    group.add("hole_over_a_storage", good.changed(hole), opens(),
              refuse("corrupt", quoted("data/3")))
    start = good.header[".format_version"]
    group.bad("hole_over_the_pickle", good.changed(bytes(start) + data[start:]), quoted("data.pkl"),
              "no local header", at=0)
    for i in range(12):
        at = good.payload["data.pkl"] + i * len(model.pickle) // 12
        group.bad(f"pickle_bit_flip_{i}", good.patched(at, bytes([data[at] ^ (1 << i % 8)])),
                  quoted("data.pkl"), "CRC")


def add_large():
    model = small()
    many_members = [(None, Record(f"x/{i}", b"")) for i in range(70000)]
    case("zip/70000_members.pt", torch_file(model, more=many_members), opens(model.tensors))
    long_names = [(None, Record("n" * 65000 + str(i), b"")) for i in range(40)]
    case("zip/names_of_65000.pt", torch_file(model, more=long_names), opens(model.tensors))
    comments = [(None, Record(f"c{i}", b"", comment=b"c" * 65000)) for i in range(40)]
    case("zip/comments_of_65000.pt", torch_file(model, more=comments), opens(model.tensors))
    fields = extra_field(0x7777, b"") * 16000
    extras = [(None, Record(f"e{i}", b"", central_extra=fields)) for i in range(40)]
    case("zip/16000_extra_fields.pt", torch_file(model, more=extras), opens(model.tensors))
    twins = [(None, Record("A" * 200 + format(i, "b").replace("0", "B").replace("1", "C"), b""))
             for i in range(20000)]
    case("zip/20000_capital_names.pt", torch_file(model, more=twins), opens(model.tensors))
    case("zip/all_deflated_by_a_zip_tool.zip", OtherZip(model, zipfile.ZIP_DEFLATED),
         opens(model.tensors))
    case("zip/stored_by_a_zip_tool.zip", OtherZip(model, zipfile.ZIP_STORED), opens(model.tensors))


class OtherZip:
    """The same records, packed by Python's zipfile: no padding, no descriptors, other times."""

    def __init__(self, model, method):
        self.model, self.method, self.pickle_bytes = model, method, len(model.pickle)

    def write(self, path):
        with zipfile.ZipFile(path, "w", self.method) as out:
            for record in records(self.model):
                info = zipfile.ZipInfo("archive/" + record.name)
                info.compress_type = self.method
                out.writestr(info, record.data)


def add_strangers():
    def stranger(name, data, *words, code="not_a_checkpoint"):
        case(f"zip/strangers/{name}", z.Built().changed(data), refuse(code, *words))

    lfs = (b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 +
           b"\nsize 438000000\n")
    stranger("lfs_pointer", lfs, "Git LFS", "438000000", "git lfs pull")
    stranger("lfs_pointer_that_lies", lfs.replace(b"438000000", b"\x1b[2J"), "Git LFS")
    for i, page in enumerate((b"<!DOCTYPE html><html>", b"<html>", b"\n\n  <HTML lang=en>",
                              b"\xef\xbb\xbf<!doctype HTML>")):
        stranger(f"page_{i}.html", page + b"login" * 50, "web page")
    for name, head, word in (("gzip", b"\x1f\x8b\x08", "gzip"), ("7z", b"7z\xbc\xaf\x27\x1c", "7z"),
                             ("bzip2", b"BZh9", "bzip2"), ("xz", b"\xfd7zXZ\0", "xz"),
                             ("zstd", b"\x28\xb5\x2f\xfd", "zstd"), ("hdf5", b"\x89HDF\r\n", "HDF5"), ("elf", b"\x7fELF", "ELF"),
                             ("zlib", b"x\x9c\xab", "compress=0"), ("lz4", b"\x04\x22\x4d\x18", "lz4")):
        stranger(name, head + bytes(range(256)) * 4, word)
    stranger("json", b"{\"a\": 1}" + bytes(range(256)) * 4, "the index of shards: is not JSON",
             code="corrupt")
    stranger("json_of_another_kind", b"{\"a\": 1}", "is JSON without a weight_map")
    stranger("gguf", b"GGUF" + bytes(300), "GGUF version 0", code="corrupt")
    stranger("npy", b"\x93NUMPY" + bytes(300), "version 0.0 of the .npy format",
             code="unsupported")
    stranger("preview", b"PYTORCH1" + bytes(300), "preview", code="unsupported")
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as out:
        for name in ("storages", "tensors", "pickle"):
            out.addfile(tarfile.TarInfo(name))
    stranger("tar_of_0_1", tar.getvalue(), "tar")
    stranger("lite_interpreter", b"\x18\0\0\0PTMF" + bytes(300), "lite interpreter", "flatbuffer")
    stranger("lite_interpreter_of_8_bytes", b"\x18\0\0\0PTMF", "lite interpreter", "flatbuffer")
    stranger("one_byte", b"P", "not a torch checkpoint")
    stranger("four_bytes", b"PK\3\4", "truncated", code="corrupt")
    stranger("only_an_end_record", b"PK\5\6" + bytes(18), "no records", code="corrupt")
    stranger("only_end_signatures", b"PK\5\6" * 5000, "announces another number", code="corrupt")
    stranger("text", b"hello, world\n" * 20, "not a torch checkpoint")
    torchless = Archive([Record("readme.txt", b"hello")], top="docs/").build()
    case("zip/strangers/other.zip", torchless,
         refuse("not_a_checkpoint", "data.pkl", "1 record", '"docs/readme.txt"'))


def add_cases():
    for group in GROUPS:
        for add in (add_end_records, add_two_ends, add_entries, add_local_headers, add_names,
                    add_storages, add_small_records, add_reserved_marks, add_deflated, add_damage):
            add(group)
    add_bombs()
    add_large()
    add_strangers()
