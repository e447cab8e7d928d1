"""Archives that lie about themselves, and strange ones that do not."""

import io
import struct
import tarfile
import zipfile
import zlib

import pickle_builder as p
import zip_builder as z
from catalogue import case, opens, refuse
from torch_files import Model, floats, many, records, small, torch_file
from zip_builder import Archive, Hole, Record, deflate, extra_field

MODELS = (("small", small()), ("many", many()))
MAX16, MAX32, MAX64 = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def quoted(record):
    return f'"archive/{record}"'


def plain_end(model, **archive):
    """Without the ZIP64 end, so that the classic end record is believed."""
    return torch_file(model, has_end64=False, **archive)


def add_end_records():
    for kind, model in MODELS:
        good = torch_file(model)
        plain = plain_end(model)
        size = plain.end - plain.directory
        count = len(model.storages) + 6
        classic = lambda **end: plain_end(model, end=end)
        case(f"zip/{kind}/end_good.pt", good, opens(model.tensors))
        case(f"zip/{kind}/end_without_zip64.pt", plain, opens(model.tensors))
        # The directory's place and size.
        case(f"zip/{kind}/directory_offset_beyond_file.pt",
             classic(directory_offset=plain.size + 1),
             refuse("corrupt", "directory", size, plain.size + 1, at=plain.end))
        case(f"zip/{kind}/directory_offset_one_more.pt",
             classic(directory_offset=plain.directory + 1),
             refuse("corrupt", "directory", plain.directory + 1, at=plain.end))
        case(f"zip/{kind}/directory_offset_one_less.pt",
             classic(directory_offset=plain.directory - 1),
             refuse("corrupt", "two archives in one file, or bytes inserted or lost"))
        case(f"zip/{kind}/directory_size_beyond_file.pt",
             classic(directory_size=plain.size),
             refuse("corrupt", "directory", plain.size, at=plain.end))
        case(f"zip/{kind}/directory_sum_wraps_32_bits.pt",
             classic(directory_offset=MAX32 - 1, directory_size=size),
             refuse("corrupt", "directory", MAX32 - 1, at=plain.end))
        case(f"zip/{kind}/directory_size_zero.pt", classic(directory_size=0),
             refuse("corrupt", "records", count))
        # The end of the directory is known, so that its begin, and that of the archive, would move.
        case(f"zip/{kind}/directory_size_one_less.pt", classic(directory_size=size - 1),
             refuse("corrupt", "begin at byte 1,", "two archives in one file", at=1))
        case(f"zip/{kind}/directory_ends_in_an_entry.pt", classic(directory_size=size - 20),
             refuse("corrupt", "begin at byte 20,", "two archives in one file", at=20))
        case(f"zip/{kind}/directory_ends_in_the_last_entry.pt",
             torch_file(model, has_end64=False, end={
                 "directory_size": size - 20, "directory_offset": plain.directory + 20}),
             refuse("corrupt", "directory", "entry", at=plain.directory + 20))
        # How many records there are.
        case(f"zip/{kind}/count_none.pt", classic(count=0, count_here=0),
             refuse("corrupt", "no records", at=plain.end))
        case(f"zip/{kind}/count_one_more.pt", classic(count=count + 1, count_here=count + 1),
             refuse("corrupt", "directory holds", count, count + 1, at=plain.directory))
        case(f"zip/{kind}/count_one_less.pt", classic(count=count - 1, count_here=count - 1),
             refuse("corrupt", "directory goes on", count - 1))
        case(f"zip/{kind}/count_disagrees_with_itself.pt", classic(count_here=count - 1),
             refuse("corrupt", "end record", count - 1, count, at=plain.end))
        case(f"zip/{kind}/count_65535_without_zip64.pt", classic(count=MAX16, count_here=MAX16),
             refuse("corrupt", "zip64 end record", "none", at=plain.end))
        case(f"zip/{kind}/count_65534.pt", classic(count=MAX16 - 1, count_here=MAX16 - 1),
             refuse("corrupt", MAX16 - 1, size // 46, at=plain.end))
        case(f"zip/{kind}/size_refers_to_missing_zip64.pt", classic(directory_size=MAX32),
             refuse("corrupt", "zip64 end record", "none", at=plain.end))
        case(f"zip/{kind}/offset_refers_to_missing_zip64.pt", classic(directory_offset=MAX32),
             refuse("corrupt", "zip64 end record", "none", at=plain.end))
        case(f"zip/{kind}/disk_number.pt", classic(disk=1),
             refuse("unsupported", "disk", 1, at=plain.end))
        case(f"zip/{kind}/directory_disk_number.pt", classic(directory_disk=7),
             refuse("unsupported", "disk", at=plain.end))
        add_wide_end(kind, model, good, count)


def add_wide_end(kind, model, good, count):
    def wide(end=None, **end64):
        return torch_file(model, end64=end64, end=end)

    refers = {"count": MAX16, "count_here": MAX16, "directory_size": MAX32,
              "directory_offset": MAX32}
    case(f"zip/{kind}/end_refers_to_zip64.pt", wide(end=refers), opens(model.tensors))
    for field, value in (("directory_offset", MAX64), ("directory_offset", MAX64 - 100),
                         ("directory_offset", 2**63), ("directory_size", MAX64),
                         ("directory_size", 2**63), ("count", 2**63), ("count", 2**32 + count),
                         ("count", MAX64)):
        lies = {field: value}
        if field == "count":
            lies["count_here"] = value
        case(f"zip/{kind}/zip64_{field}_{value}.pt", wide(end=refers, **lies),
             refuse("corrupt", value, at=good.end64))
    for field, shown in (("count", "record count"), ("directory_size", "directory size"),
                         ("directory_offset", "directory offset")):
        lies = {"count": {"count": count + 1, "count_here": count + 1},
                "directory_size": {"directory_size": good.end64 - good.directory + 1},
                "directory_offset": {"directory_offset": good.directory + 1}}[field]
        case(f"zip/{kind}/zip64_disagrees_about_{field}.pt", wide(**lies),
             refuse("corrupt", "end records disagree", shown, "zip64", at=good.end))
    case(f"zip/{kind}/zip64_disk.pt", wide(end=refers, disk=1),
         refuse("unsupported", "disk", at=good.end64))
    for size in (0, 43, 45, 2**32, MAX64):
        case(f"zip/{kind}/zip64_record_of_{size}.pt", wide(record_size=size),
             refuse("corrupt", "zip64 end record", size, 44, at=good.end64))
    case(f"zip/{kind}/zip64_signature.pt", wide(signature=0x06064B51),
         refuse("corrupt", "zip64 locator", "no zip64 end record", at=good.end64))
    for value in (good.size, MAX64, MAX64 - 55, good.locator, good.end64 - 1, good.end64 + 1, 0,
                  good.payload["data/0"], 2**63):
        case(f"zip/{kind}/locator_to_{value}.pt",
             torch_file(model, locator={"end64_offset": value}),
             refuse("corrupt", "zip64 locator", value, good.end64, at=good.locator))
    case(f"zip/{kind}/locator_of_another_disk.pt", torch_file(model, locator={"disk": 1}),
         refuse("unsupported", "zip64 locator", "disk", at=good.locator))
    case(f"zip/{kind}/locator_of_two_disks.pt", torch_file(model, locator={"disks": 2}),
         refuse("unsupported", "zip64 locator", "disk", at=good.locator))
    case(f"zip/{kind}/locator_without_end64.pt",
         torch_file(model, has_end64=False, locator={"end64_offset": 0}),
         refuse("corrupt", "zip64"))
    case(f"zip/{kind}/end64_without_locator.pt", torch_file(model, has_locator=False),
         refuse("corrupt", "begin at byte 56,", "two archives in one file", at=56))


def add_two_ends():
    for kind, model in MODELS:
        plain = plain_end(model)
        again = plain.bytes()[plain.end:]
        case(f"zip/{kind}/end_record_twice.pt", plain.changed(plain.bytes() + again),
             refuse("corrupt", "begin at byte 22,", "two archives in one file", at=22))
        inner = z.pack(z.END_FIELDS, {"signature": z.END, "disk": 0, "directory_disk": 0,
                                      "count_here": 1, "count": 1, "directory_size": 46,
                                      "directory_offset": 0, "comment_length": 0}, None)
        case(f"zip/{kind}/end_record_in_comment.pt", torch_file(model, comment=inner),
             refuse("corrupt", "two end records"))
        case(f"zip/{kind}/end_record_in_comment_within_text.pt",
             torch_file(model, comment=b"before" + inner + b"behind"),
             refuse("corrupt", "end record"))
        case(f"zip/{kind}/comment.pt", torch_file(model, comment=b"made by hand"),
             opens(model.tensors))
        case(f"zip/{kind}/comment_of_65000.pt", torch_file(model, comment=b"c" * 65000),
             opens(model.tensors))
        case(f"zip/{kind}/comment_of_65535.pt", torch_file(model, comment=b"c" * 65535),
             opens(model.tensors))
        case(f"zip/{kind}/comment_shorter_than_said.pt",
             torch_file(model, comment=b"short", end={"comment_length": 6}),
             refuse("corrupt", "goes on for 5 bytes", "announces another number"))
        for length in (1, 64, MAX16, 70000):
            case(f"zip/{kind}/{length}_bytes_behind_the_end.pt",
                 torch_file(model, tail=b"\0" * length),
                 refuse("corrupt", "central directory" if length > MAX16 else "end record"))
        case(f"zip/{kind}/two_archives.pt", plain.changed(plain.bytes() + plain.bytes()),
             refuse("corrupt", "two archives in one file", at=plain.size))
        case(f"zip/{kind}/an_archive_as_prefix.pt", torch_file(model, prefix=plain.bytes()),
             refuse("corrupt", "two archives in one file"))
        case(f"zip/{kind}/a_program_in_front.pt",
             torch_file(model, prefix=b"#!/bin/sh\nexit 1\n" + b"\0" * 47), opens(model.tensors))
        shifted = torch_file(model)
        case(f"zip/{kind}/bytes_inserted_in_front.pt",
             shifted.changed(b"#!/bin/sh\n" + shifted.bytes()), opens(model.tensors))
        case(f"zip/{kind}/gap_before_directory.pt", torch_file(model, gap=b"\0" * 64),
             opens(model.tensors))
        case(f"zip/{kind}/gap_behind_directory.pt",
             torch_file(model, behind_directory=b"\0" * 64),
             refuse("corrupt", "zip64 locator points to", "expected"))
        case(f"zip/{kind}/rubbish_in_directory.pt",
             torch_file(model, directory_tail=b"\0" * 46), refuse("corrupt", "directory"))


def add_entries():
    """One entry of the directory that lies."""
    for kind, model in MODELS:
        for record in ("data.pkl", "data/0", "data/3"):
            label = record.replace("/", "_")
            good = torch_file(model)
            at, header = good.entry[record], good.header[record]
            own = quoted(record)

            def lie(central_extra=b"", **central):
                return torch_file(model, {record: {"central": central,
                                                   "central_extra": central_extra}})

            add = lambda name, built, verdict, *more: case(f"zip/{kind}/{label}_{name}.pt", built,
                                                           verdict, *more)
            for offset in (good.size + 1, good.end + 12, MAX32 - 1):
                add(f"header_at_{offset}", lie(header_offset=offset), refuse("corrupt", "archive/"))
            beyond = refuse("corrupt", own, "runs into the directory or the end of the file")
            add("header_at_the_end", lie(header_offset=good.size - 10), beyond)
            # Of two that overlap, the one in front is blamed.
            add("header_in_a_payload", lie(header_offset=good.payload["data/0"] + 1),
                refuse("corrupt", "record ", "bytes", "byte "))
            add("header_at_2_to_63",
                lie(extra_field(1, struct.pack("<Q", 2**63)), header_offset=MAX32,
                    extra_length=12), beyond)
            add("header_at_max", lie(extra_field(1, struct.pack("<Q", MAX64)),
                                     header_offset=MAX32), beyond)
            add("size_of_256_MiB", lie(size=1 << 28, stored_size=1 << 28),
                refuse("corrupt", "archive/", at=header))
            add("size_of_max_without_zip64", lie(size=MAX32, stored_size=MAX32),
                refuse("corrupt", own, "zip64", at=at))
            add("size_of_max_by_zip64",
                lie(extra_field(1, struct.pack("<QQ", MAX64 - 7, MAX64 - 7)), size=MAX32,
                    stored_size=MAX32), refuse("corrupt", "archive/", at=header))
            add("sizes_differ", lie(size=13), refuse("corrupt", own, "stored", 13, at=at))
            add("stored_size_differs", lie(stored_size=13),
                refuse("corrupt", own, "stored", 13, at=at))
            add("zip64_field_too_short",
                lie(extra_field(1, b"1234567"), size=MAX32, stored_size=MAX32),
                refuse("corrupt", own, "zip64", 7, 16, at=at))
            add("zip64_field_too_long",
                lie(extra_field(1, bytes(24)), size=MAX32, stored_size=MAX32),
                refuse("corrupt", own, "zip64", 24, 16, at=at))
            add("zip64_field_overruns", lie(extra_field(1, bytes(16), 400), size=MAX32,
                                            stored_size=MAX32),
                refuse("corrupt", own, 400, at=at))
            size = struct.pack("<QQ", *[len(dict_of(model)[record])] * 2)
            add("two_zip64_fields", lie(extra_field(1, size) * 2, size=MAX32, stored_size=MAX32),
                refuse("corrupt", own, "two zip64 fields", at=at))
            # Nobody reads a field that no value refers to.
            add("zip64_field_without_need", lie(extra_field(1, bytes(8))), opens(model.tensors))
            for length in ("name_length", "extra_length", "comment_length"):
                add(f"{length}_beyond", lie(**{length: MAX16}),
                    refuse("corrupt", "directory", at=at))
            add("signature", lie(signature=0x02014B51),
                refuse("corrupt", "directory", "entry", at=at))
            add("disk", lie(disk=3), refuse("unsupported", own, "disk 3", at=at))
            for bit, what in ((0x0001, "encrypted"), (0x0020, "patch"), (0x0040, "encrypted"),
                              (0x2000, "encrypted")):
                add(f"flag_{bit:04x}", lie(flags=0x0808 | bit),
                    refuse("unsupported", own, what, at=at))
                add(f"flag_{bit:04x}_in_both", torch_file(model, {record: {"flags": 0x0808 | bit}}),
                    refuse("unsupported", own, what))
            for method, what in ((1, "shrunk"), (6, "imploded"), (9, "deflate64"), (12, "bzip2"),
                                 (14, "LZMA"), (93, "Zstandard"), (95, "xz"), (99, "AES"),
                                 (7777, "unknown")):
                add(f"method_{method}", lie(method=method),
                    refuse("unsupported", own, method, what, at=at))
            add("symlink", lie(made_by=0x0300, external=0o120777 << 16), opens(model.tensors))


def dict_of(model):
    return {record.name: record.data for record in records(model)}


def add_local_headers():
    """A local header that says another thing than the directory."""
    for kind, model in MODELS:
        for record, seen in (("data.pkl", True), ("data/0", True), ("data/3", False)):
            label = record.replace("/", "_")
            own = quoted(record)
            at = torch_file(model).header[record]

            def add(name, words, **fields):
                """Where the header is not read at the open, it shows when headers are compared."""
                refused = refuse("corrupt", own, *words, at=at)
                case(f"zip/{kind}/local_{label}_{name}.pt", torch_file(model, {record: fields}),
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
                built = torch_file(model, {record: {"flags": 0x0800, "local": sizes}})
                refused = refuse("corrupt", own, "size", len(flat) + 1, len(flat))
                case(f"zip/{kind}/local_{label}_{field}.pt", built, refused)
            # Where a descriptor follows, these fields say nothing, as zip has it; and nobody who
            # knows the directory reads the descriptor.
            case(f"zip/{kind}/local_{label}_sizes_with_descriptor.pt",
                 torch_file(model, {record: {"local": {"size": 7, "stored_size": 9}}}),
                 opens(model.tensors))
            case(f"zip/{kind}/local_{label}_descriptor_without_signature.pt",
                 torch_file(model, {record: {"descriptor": struct.pack(
                     "<III", zlib.crc32(flat), len(flat), len(flat))}}), opens(model.tensors))
            case(f"zip/{kind}/local_{label}_descriptor_lies.pt",
                 torch_file(model, {record: {"descriptor": struct.pack(
                     "<IIII", z.DESCRIPTOR, 1, 2, 3)}}), opens(model.tensors))


def extra_of(model, record):
    built = torch_file(model)
    at = built.header[record] + 28
    return struct.unpack_from("<H", built.bytes(), at)[0]


def add_names():
    for kind, model in MODELS:
        extra = lambda name, data=b"x", **more: (None, Record(name, data, **more))
        whole = lambda *more, **others: torch_file(model, more=list(more), **others)
        case(f"zip/{kind}/two_pickles.pt", whole(extra("data.pkl", b"\x80\x02N.")),
             refuse("corrupt", "two records", '"archive/data.pkl"'))
        case(f"zip/{kind}/two_storages.pt", whole(extra("data/0", floats(12, 90))),
             refuse("corrupt", "two records", '"archive/data/0"'))
        case(f"zip/{kind}/two_versions.pt", whole(extra("version", b"9\n")),
             refuse("corrupt", "two records", '"archive/version"'))
        case(f"zip/{kind}/same_storage_listed_twice.pt", whole(extra("data/0", shares="data/0")),
             refuse("corrupt", "archive/data/0"))
        case(f"zip/{kind}/two_names_for_one_body.pt",
             whole(extra("data/copy", floats(12), shares="data/0")), refuse("corrupt", "runs into"))
        case(f"zip/{kind}/body_shared_by_2000.pt",
             whole(*(extra(f"data/x{i}", floats(12), shares="data/0") for i in range(2000))),
             refuse("corrupt", "runs into"))
        for name in ("DATA.PKL", "Data.pkl", "DATA/0", "Version"):
            case(f"zip/{kind}/twin_{name.replace('/', '_')}.pt", whole(extra(name)),
                 refuse("corrupt", name, "named alike but for case"))
        for name in ("BYTEORDER", ".Format_Version", ".STORAGE_ALIGNMENT", "VERSION", "DATA.PKL"):
            case(f"zip/{kind}/only_{name}.pt",
                 torch_file(model, without=(name.lower(),),
                            more=[(None, Record(name, dict_of(model)[name.lower()]))]),
                 refuse("corrupt", name, "but for case"))
        case(f"zip/{kind}/nul_in_name.pt", whole(extra("data/\0")),
             refuse("corrupt", "zero byte", "name"))
        case(f"zip/{kind}/empty_name.pt", whole((None, Record("", b"x", top=""))),
             refuse("corrupt", "empty name"))
        for label, name in (("absolute", "/etc/passwd"), ("dots", "../../etc/passwd"),
                            ("backslash", "..\\..\\x"), ("device", "CON"), ("colon", "C:x"),
                            ("line", "a\nb"), ("escape", "\x1b[2J"), ("other_folder", "x/y/z"),
                            ("no_folder", "bare")):
            case(f"zip/{kind}/foreign_name_{label}.pt", whole((None, Record(name, b"x", top=""))),
                 opens(model.tensors))
        case(f"zip/{kind}/not_utf8.pt",
             whole(extra("x", local_name=b"archive/\xff", central_name=b"archive/\xff")),
             opens(model.tensors))
        case(f"zip/{kind}/macos_litter.pt",
             whole((None, Record("._x", b"litter", top="__MACOSX/archive/"))),
             opens(model.tensors))
        case(f"zip/{kind}/two_roots.pt",
             whole((None, Record("data.pkl", b"\x80\x02}.", top="other/"))),
             refuse("corrupt", '"other/data.pkl"'))
        case(f"zip/{kind}/two_roots_other_first.pt",
             torch_file(model, more=[("data.pkl", Record("x", b"x", top="other/"))]),
             refuse("not_a_checkpoint", "data.pkl", '"other/x"'))
        case(f"zip/{kind}/no_root.pt", torch_file(model, top=""), opens(model.tensors))
        case(f"zip/{kind}/long_root.pt", torch_file(model, top="r" * 60000 + "/"),
             opens(model.tensors))
        case(f"zip/{kind}/root_of_control_characters.pt", torch_file(model, top="\x1b[31m\n/"),
             opens(model.tensors))
        for name in ("data.pkl", "version", "data/0", "data/3"):
            verdict = {"data.pkl": refuse("not_a_checkpoint", "data.pkl"),
                       "version": refuse("corrupt", "version")}.get(
                           name, refuse("corrupt", quoted(name), "does not have"))
            case(f"zip/{kind}/without_{name.replace('/', '_')}.pt",
                 torch_file(model, without=(name,)), verdict)
        for name in (".format_version", "byteorder", ".storage_alignment",
                     ".data/serialization_id"):
            case(f"zip/{kind}/without_{name.replace('/', '_')}.pt",
                 torch_file(model, without=(name,)), opens(model.tensors))


def add_storages():
    for kind, model in MODELS:
        for size, label in ((0, "empty"), (47, "one_less"), (1, "one_byte"),
                            (44, "an_element_less"), (52, "an_element_more"), (96, "twice")):
            case(f"zip/{kind}/storage_{label}.pt",
                 torch_file(model, {"data/0": {"data": (floats(12) * 2)[:size]}}),
                 refuse("corrupt", quoted("data/0"), size, 48))
        # A typed view of a buffer whose size is no multiple of its element.
        case(f"zip/{kind}/storage_longer_by_less_than_an_element.pt",
             torch_file(model, {"data/0": {"data": model.storages["0"] + b"odd"}}),
             opens(model.tensors))
        case(f"zip/{kind}/folders.pt",
             torch_file(model, more=[("data.pkl", Record("")), ("data/0", Record("data/")),
                                     (None, Record("extra/"))]), opens(model.tensors))
        case(f"zip/{kind}/storage_is_a_folder.pt",
             torch_file(model, without=("data/0",), more=[(None, Record("data/0/", b""))]),
             refuse("corrupt", "data/0"))
        case(f"zip/{kind}/storage_crc.pt", torch_file(model, {"data/0": {"crc": 12345}}),
             opens(model.tensors), refuse("corrupt", "data/0", "CRC"))
        case(f"zip/{kind}/storage_bit_flip.pt", flip(torch_file(model), "data/0"),
             opens(), refuse("corrupt", "data/0", "CRC"))
        case(f"zip/{kind}/storage_crc_not_computed.pt", torch_file(model, {"data/0": {"crc": 0}}),
             opens(model.tensors))
        case(f"zip/{kind}/no_crc_at_all.pt",
             torch_file(model, {name: {"crc": 0} for name in dict_of(model)}),
             opens(model.tensors))
        for name in ("data.pkl", "version", "byteorder", ".storage_alignment"):
            case(f"zip/{kind}/crc_of_{name}.pt", torch_file(model, {name: {"crc": 12345}}),
                 refuse("corrupt", f"archive/{name}", "CRC"))
        body = z.pack(z.LOCAL_FIELDS, {"signature": z.LOCAL, "version": 0, "flags": 0x808,
                                       "method": 0, "time": 0, "date": 0, "crc": 0,
                                       "stored_size": 0, "size": 0, "name_length": 14,
                                       "extra_length": 4}, None) + b"archive/data/1"
        case(f"zip/{kind}/signatures_in_a_storage.pt",
             torch_file(model, {"data/0": {"data": body + b"PK\5\6"}}), opens())
        ends = b"PK\5\6" + b"PK\6\6" + b"PK\6\7" + b"PK\1\2" + b"PK\3\4"
        case(f"zip/{kind}/end_signatures_in_a_storage.pt",
             torch_file(model, {"data/0": {"data": (ends * 3)[:48]}}), opens())
        good = torch_file(model)
        ends = good.bytes()[good.end64:]
        for label, data in (("an_end", ends), ("a_directory_and_an_end",
                                               good.bytes()[good.directory:])):
            inner = Model(p.one(p.tensor(kind="ByteStorage", numel=len(data), shape=(len(data),))),
                          {"0": data}, {"w": data})
            case(f"zip/{kind}/{label}_in_a_storage.pt", torch_file(inner), opens(inner.tensors))
        count = len(torch_file(model).entry)
        case(f"zip/{kind}/directory_in_reverse.pt",
             torch_file(model, order=range(count - 1, -1, -1)), opens(model.tensors))
        reverse = list(model.storages)[::-1]
        case(f"zip/{kind}/storages_in_reverse.pt", torch_file(model, storage_order=reverse),
             opens(model.tensors))
        good = torch_file(model)
        last = ".data/serialization_id"
        size = good.directory - good.header[last] - 30 - len("archive/" + last) + 1
        case(f"zip/{kind}/record_runs_into_directory.pt",
             torch_file(model, {last: {"central": {"size": size, "stored_size": size}}}),
             refuse("corrupt", quoted(last), size, "runs into", good.directory,
                    at=good.header[last]))
        size = good.header["data/1"] - good.header["data/0"] - 30 - len("archive/data/0") + 1
        case(f"zip/{kind}/record_runs_into_next.pt",
             torch_file(model, {"data/0": {"central": {"size": size, "stored_size": size}}}),
             refuse("corrupt", quoted("data/0"), size, "runs into", good.header["data/1"],
                    at=good.header["data/0"]))


def flip(built, record, bit=0x40):
    at = built.payload[record] + 5
    return built.patched(at, bytes([built.bytes()[at] ^ bit]))


def add_small_records():
    for kind, model in MODELS:
        def add(record, label, data, verdict):
            case(f"zip/{kind}/{record}_{label}.pt", torch_file(model, {record: {"data": data}}),
                 verdict)

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


def add_reserved_marks():
    """The record that says which storages are filled in, a letter for each and one for the file."""
    for kind, model in MODELS:
        count = len(model.storages)
        name = ".data/weightmap_reserved"
        marked = lambda data, **more: torch_file(model, more=[(None, Record(name, data, **more))])
        records_in_all = count + 7
        for label, data in (("empty", b""), ("longer_than_the_directory",
                                             b"w" * (records_in_all + 1))):
            case(f"zip/{kind}/marks_{label}.pt", marked(data),
                 refuse("corrupt", f"record {name}", f"has {len(data)} byte", records_in_all))
        for label, data in (("saved", b"-" * count + b"s"), ("written", b"w" * count + b"s"),
                            ("unwritten", b"r" * count + b"o"), ("unknown", b"\xff" * count + b"?"),
                            ("of_zeros", bytes(count + 1)), ("of_one_letter", b"s"),
                            ("of_more_than_the_storages", b"w" * records_in_all)):
            case(f"zip/{kind}/marks_{label}.pt", marked(data), opens(model.tensors))
        # They change in place, so that nothing but the last letter says when their sum is right.
        case(f"zip/{kind}/marks_of_wrong_crc.pt", marked(b"w" * count + b"o", crc=12345),
             opens(model.tensors))
        case(f"zip/{kind}/marks_twice.pt", torch_file(
            model, more=[(None, Record(name, b"s")), (None, Record(name, b"o"))]),
            refuse("corrupt", "two records", quoted(name)))


def add_deflated():
    for kind, model in MODELS:
        packed = lambda names, **more: torch_file(
            model, {name: {"method": 8, **more} for name in names})
        case(f"zip/{kind}/deflated_pickle.pt", packed(["data.pkl"]), opens(model.tensors))
        case(f"zip/{kind}/deflated_small_records.pt",
             packed(["version", "byteorder", ".storage_alignment", ".format_version"]),
             opens(model.tensors))
        for more, label in ((1, "larger"), (-1, "smaller")):
            size = len(model.pickle) + more
            case(f"zip/{kind}/deflated_pickle_{label}_than_said.pt",
                 packed(["data.pkl"], central={"size": size}),
                 refuse("corrupt", quoted("data.pkl"), "inflates to", size))
        cut = deflate(model.pickle)
        case(f"zip/{kind}/deflated_pickle_cut.pt", packed(["data.pkl"], stored=cut[:-5]),
             refuse("corrupt", quoted("data.pkl"), "damaged or ends early"))
        case(f"zip/{kind}/deflated_pickle_and_more.pt", packed(["data.pkl"], stored=cut + b"more"),
             refuse("corrupt", quoted("data.pkl"), "ends 4 bytes before the record"))
        case(f"zip/{kind}/deflated_pickle_of_rubbish.pt",
             packed(["data.pkl"], stored=b"\xff" * 200),
             refuse("corrupt", quoted("data.pkl"), "damaged"))
        case(f"zip/{kind}/deflated_pickle_empty.pt", packed(["data.pkl"], stored=b""),
             refuse("corrupt", quoted("data.pkl")))
        case(f"zip/{kind}/deflated_pickle_crc.pt", packed(["data.pkl"], crc=12345),
             refuse("corrupt", quoted("data.pkl"), "CRC"))
        case(f"zip/{kind}/deflated_storages.pt",
             packed(["data/" + key for key in model.storages]), opens(model.tensors))
        whole = deflate(model.storages["0"])
        for label, more, words in (
                ("cut", {"stored": whole[:-3]}, ["damaged or ends early"]),
                ("and_more", {"stored": whole + b"more"}, ["ends 4 bytes before the record"]),
                ("larger", {"central": {"size": 49}}, ["inflates to 48", 49]),
                ("smaller", {"central": {"size": 47}}, ["has 47 bytes", 48]),
                ("empty", {"stored": b""}, ["size 0", 48]),
                ("crc", {"crc": 12345}, ["CRC-32"]),
                ("bomb", {"stored": deflated_zeros(64 << 20)}, ["inflates to more than", 48])):
            case(f"zip/{kind}/deflated_storage_{label}.pt", packed(["data/0"], **more),
                 refuse("corrupt", quoted("data/0"), *words))
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


def add_damage():
    for kind, model in MODELS:
        good = torch_file(model)
        data = good.bytes()
        cuts = {"a_quarter": len(data) // 4, "half": len(data) // 2,
                "before_the_directory": good.directory,
                "in_the_directory": good.directory + 30, "behind_the_directory": good.end64,
                "in_the_zip64_end": good.end64 + 20, "behind_the_zip64_end": good.locator,
                "before_the_end": good.end, "in_the_end": good.end + 10,
                "one_byte_short": len(data) - 1}
        for label, length in cuts.items():
            case(f"zip/{kind}/cut_{label}.pt", good.changed(data[:length]),
                 refuse("corrupt", "truncated", length))
        case(f"zip/{kind}/tail_of_zeros.pt",
             good.changed(data[:len(data) // 2] + bytes(len(data) - len(data) // 2)),
             refuse("corrupt", "truncated"))
        case(f"zip/{kind}/all_zeros.pt", good.changed(bytes(len(data))),
             refuse("not_a_checkpoint", "zero bytes"))
        middle = good.header["data/0"]
        hole = data[:middle] + bytes(64) + data[middle + 64:]
        case(f"zip/{kind}/hole_over_the_first_storage.pt", good.changed(hole),
             refuse("corrupt", quoted("data/0"), "no local header", at=middle))
        middle = good.header["data/3"]
        hole = data[:middle] + bytes(64) + data[middle + 64:]
        case(f"zip/{kind}/hole_over_a_storage.pt", good.changed(hole), opens(),
             refuse("corrupt", quoted("data/3")))
        start = good.header[".format_version"]
        case(f"zip/{kind}/hole_over_the_pickle.pt", good.changed(bytes(start) + data[start:]),
             refuse("corrupt", quoted("data.pkl"), "no local header", at=0))
        for i in range(12):
            at = good.payload["data.pkl"] + i * len(model.pickle) // 12
            case(f"zip/{kind}/pickle_bit_flip_{i}.pt",
                 good.patched(at, bytes([data[at] ^ (1 << i % 8)])),
                 refuse("corrupt", quoted("data.pkl"), "CRC"))


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
    add_end_records()
    add_two_ends()
    add_entries()
    add_local_headers()
    add_names()
    add_storages()
    add_small_records()
    add_reserved_marks()
    add_deflated()
    add_damage()
    add_large()
    add_strangers()
