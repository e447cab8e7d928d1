"""GGUF files that lie: in their counts, their metadata, their shapes, and about where bytes are."""

import struct

import zip_builder as z
from catalogue import case, opens, refuse
from index_cases import Set
from torch_files import floats

W, BIAS = floats(12), floats(3, 50.0)
BOTH = {"w": W, "bias": BIAS}
U8, I8, U16, I16, U32, I32, F32_VALUE, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
F32, Q4_0, Q4_K, INT8, INT64 = 0, 2, 12, 24, 27
LARGE = 0x7FFFFFFFFFFFFFC0


def text(value):
    value = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(value)) + value


def pair(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def array(kind, count, elements=b""):
    return struct.pack("<IQ", kind, count) + elements


def info(name, ne=(4, 3), kind=F32, offset=0, dims=None):
    dims = len(ne) if dims is None else dims
    return text(name) + struct.pack(f"<I{len(ne)}qiQ", dims, *ne, kind, offset)


def pad(data, alignment=32):
    return data + bytes(-len(data) % alignment)


def header(infos=(), pairs=(), tensors=None, keys=None, version=3, magic=b"GGUF"):
    tensors = len(infos) if tensors is None else tensors
    keys = len(pairs) if keys is None else keys
    return magic + struct.pack("<Iqq", version, tensors, keys) + b"".join((*pairs, *infos))


def gguf(infos=(), pairs=(), data=b"", alignment=32, **lies):
    """`data`: bytes or a list of parts, behind the padded header."""
    head = header(infos, pairs, **lies)
    built = z.Built()
    built.add(pad(head, alignment) if infos else head)
    for part in data if isinstance(data, list) else [data]:
        built.add(part)
    built.pickle_bytes = len(head)
    return built


FIRST, SECOND = info("w"), info("bias", (3,), offset=64)
DATA = pad(W) + pad(BIAS)


def good(name, built, tensors=BOTH, **more):
    case(f"gguf/{name}.gguf", built, opens(tensors), **more)


def refused(name, built, *words, at=None, code="corrupt", **more):
    case(f"gguf/{name}.gguf", built, refuse(code, *words, at=at), **more)


def add_headers():
    good("plain", gguf((FIRST, SECOND), data=DATA))
    good("without_the_last_padding", gguf((FIRST, SECOND), data=DATA[:-20]))
    good("with_bytes_behind", gguf((FIRST, SECOND), data=DATA + b"more"))
    good("without_tensors", gguf(), {})
    good("version_2", gguf((FIRST, SECOND), data=DATA, version=2))
    for version in (1, 4, 0xFFFF, 0x10003):
        refused(f"version_{version}", gguf(version=version), f"GGUF version {version}", at=4,
                code="unsupported")
    refused("version_0", gguf(version=0), "GGUF version 0", at=4)
    # In the other order, a version of that order.
    refused("version_of_the_other_order", gguf((FIRST, SECOND), data=DATA, version=0x03000000),
            "list of", "tensors leaves the file", at=24)
    refused("version_4_of_the_other_order", gguf(version=0x04000000), "GGUF version 4", at=4,
            code="unsupported")
    whole = gguf((FIRST, SECOND), data=DATA).bytes()
    for size in range(4, 24, 3):
        refused(f"of_{size}_bytes", z.Built().changed(whole[:size]), "leaves the file of")
    for number in (-1, -2**63):
        refused(f"tensors_{number}", gguf(tensors=number), f"number of tensors is {number}", at=8)
        refused(f"keys_{number}", gguf(keys=number), f"number of metadata keys is {number}", at=16)
    for number in (1, 2**31, 2**40, 2**59, 2**62, 2**63 - 1):
        refused(f"tensors_{number}", gguf(tensors=number), f"list of {number} tensors", at=24)
        refused(f"keys_{number}", gguf(keys=number), f"list of {number} metadata keys", at=24)
    hole = gguf((FIRST, SECOND), data=[DATA, z.Hole(2**40)], tensors=2**24 + 1)
    refused("tensors_beyond_the_limit", hole, "16777217 tensors", "limit of 16777216", at=8,
            code="limit_exceeded", is_huge=True)


def add_metadata():
    def bad(name, *words, pairs, at=None, **more):
        refused(f"key_{name}", gguf(pairs=pairs), *words, at=at, **more)

    several = (pair("a", STRING, text("x" * 100)), pair("b", ARRAY, array(U8, 3, b"123")))
    good("with_metadata", gguf((FIRST, SECOND), several, DATA))
    nested = array(ARRAY, 2, array(U8, 1, b"1") + array(STRING, 0))
    good("with_nested_arrays", gguf((FIRST, SECOND), (pair("a", ARRAY, nested),), DATA))
    for length in (2**63, 2**64 - 1, 2**32, 1000):
        bad(f"of_{length}_bytes", "metadata key 0", f"key of {length} bytes",
            pairs=(struct.pack("<Q", length) + b"abcdef",), at=32)
        bad(f"with_a_string_of_{length}_bytes", '"a"', f"string of {length} bytes",
            pairs=(pair("a", STRING, struct.pack("<Q", length) + b"abc"),), at=45)
        for kind in (U8, BOOL, U64, STRING, ARRAY):
            bad(f"with_{length}_of_{kind}", '"a"', f"array of {length} elements",
                pairs=(pair("a", ARRAY, array(kind, length, b"12345678")),), at=49)
    bad("empty", "key is empty", pairs=(pair("", U64, bytes(8)),), at=24)
    bad("not_utf8", "not UTF-8", pairs=(pair(b"\xff", U64, bytes(8)),), at=24)
    for key in ("general.alignment", "split.count", "a"):
        value = pair(key.encode() + b"\0", U32, struct.pack("<I", 64))
        bad(f"{key}_and_a_nul", rf'the key "{key}\x00" has a NUL in it', pairs=(value,), at=24)
    bad("of_escapes", r'"\x1B[2J\x0A"', pairs=(pair("\x1b[2J\n", 99, b"x"),))
    for kind in (13, 255, 0x80000000):
        bad(f"of_type_{kind}", "type", "is not known", pairs=(pair("a", kind, bytes(8)),), at=33)
        bad(f"of_array_of_type_{kind}", "element type", "is not known",
            pairs=(pair("a", ARRAY, array(kind, 0)),), at=37)
    bad("twice", '"a" twice', pairs=(pair("a", U8, b"1"), pair("a", U8, b"1")), at=38)
    bad("bool_2", "bool is 2", pairs=(pair("a", BOOL, b"\2"),), at=37)
    for number in (0, 3, 13, 48, 2**32 - 1):
        bad(f"alignment_{number}", "general.alignment", str(number), "power of two",
            pairs=(pair("general.alignment", U32, struct.pack("<I", number)),), at=53)
    for number in (2**21, 2**31):
        bad(f"alignment_{number}", "general.alignment", str(number), "at most 1048576",
            pairs=(pair("general.alignment", U32, struct.pack("<I", number)),), at=53)
    for kind, value in ((I32, bytes(4)), (U64, bytes(8)), (STRING, text("32"))):
        bad(f"alignment_of_type_{kind}", "general.alignment", "expected u32",
            pairs=(pair("general.alignment", kind, value),), at=49)
    deep = b"".join(array(ARRAY, 1) for _ in range(100_000)) + array(U8, 0)
    bad("nested_deep", "nest deeper", "1000", pairs=(pair("a", ARRAY, deep),),
        code="limit_exceeded")
    wide = array(ARRAY, 500_000, array(U8, 0) * 500_000)
    good("with_many_arrays", gguf((FIRST, SECOND), (pair("a", ARRAY, wide),), DATA))
    good("with_many_keys", gguf((FIRST, SECOND), [pair(f"{i}", U8, b"1") for i in range(200_000)],
                                DATA))
    many = gguf(pairs=(pair("a", ARRAY, array(U8, 10**7, bytes(10**7))),))
    refused("with_many_numbers", many, '"a"', "budget of", code="limit_exceeded")
    holes = gguf(pairs=(pair("a", ARRAY, array(STRING, 2**34)),), data=[z.Hole(2**38)])
    refused("with_strings_of_holes", holes, '"a"', "array of 17179869184 elements",
            "limit of 1073741824", code="limit_exceeded", is_huge=True)


def add_tensors():
    behind = 24  # the first tensor

    def bad(name, *words, at=None, code="corrupt", infos=None, data=DATA, pairs=(), **fields):
        infos = (info("w", **fields),) if infos is None else infos
        refused(f"tensor_{name}", gguf(infos, pairs, data), *words, at=at, code=code)

    bad("with_a_long_name", "name of 1025 bytes", "1024", infos=(info("n" * 1025),), at=behind)
    bad("with_a_name_of_no_end", f"name of {2**64 - 1} bytes",
        infos=(struct.pack("<Q", 2**64 - 1) + b"abc" * 20,), at=behind)
    bad("with_a_name_not_utf8", "not UTF-8", infos=(info(b"\xc3("),), at=behind)
    bad("twice", 'tensor "w" twice', infos=(FIRST, info("w", (3,), offset=64)), at=65)
    for dims in (5, 65):
        bad(f"of_{dims}_dimensions", '"w"', f"{dims} dimensions", "4 that ggml", ne=(1,) * dims, at=33)
    for label, name in (("in_its_name", b"x\0a"), ("as_its_name", b"\0"), ("at_its_end", b"w\0")):
        bad(f"with_a_nul_{label}", "has a NUL in it", infos=(info(name),), at=behind)
    bad("of_one_name_to_ggml", r'"x\x00b"', infos=(info(b"x\0b"), info(b"x\0c")), at=behind)
    bad("of_many_dimensions", '"w"', "shape of 4294967295 sizes", dims=2**32 - 1, at=37)
    for size in (-1, -2**63):
        bad(f"of_size_{size}", '"w"', f"ne[1] is {size}", ne=(1, size), at=45)
    for label, ne in (("2_to_64", (2**32, 2**32)), ("2_to_63", (2**62, 2)),
                      ("2_to_64_and_0", (2**32, 2**32, 0)), ("2_to_128", (2**32,) * 4),
                      ("of_llama_cpp", (4 * (2**31 - 1),) * 2)):
        bad(f"of_elements_{label}", '"w"', "more than 2^63 - 1 elements", ne=ne, at=37)
    bad("of_bytes_2_to_65", '"w"', "more than 2^64 - 1 bytes", ne=(2**62,), kind=INT64, at=45)
    bad("whose_padding_wraps", '"w"', "more than 2^64 - 1 bytes", ne=(4, 2**30 - 1, 2**30 + 1),
        at=65)
    for kind in (43, 44, 100, 2**31 - 1, -1, -2**31):
        bad(f"of_type_{kind}", '"w"', f"type {kind} is not known", kind=kind, at=53,
            code="unsupported")
    for kind in (4, 5, 31, 32, 33, 36, 37, 38):
        bad(f"of_removed_type_{kind}", '"w"', f"type {kind}, ", "removed", kind=kind, at=53,
            code="unsupported")
    bad("of_part_of_a_block", '"w"', "ne[0] is 31", "32 elements", ne=(31, 32), kind=Q4_0, at=53)
    bad("of_half_a_block", '"w"', "ne[0] is 128", "256 elements", ne=(128, 2), kind=Q4_K, at=53)
    bad("of_no_block", '"w"', "ne[0] is 1", ne=(), kind=Q4_0, at=37)
    for offset in (1, 32, 2**63, 2**64 - 1, 2**64 - 32):
        bad(f"at_{offset}", '"w"', f"offset is {offset}, expected 0", offset=offset, at=57)
    for offset in (0, 32, 48, 96, 2**64 - 64):
        bad(f"behind_another_at_{offset}", '"bias"', f"offset is {offset}, expected 64",
            infos=(FIRST, info("bias", (3,), offset=offset)))
    bad("before_another", '"bias"', "expected 0", infos=(info("bias", (3,), offset=64), FIRST))
    aligned = (pair("general.alignment", U32, struct.pack("<I", 128)),)
    bad("of_another_alignment", '"bias"', "offset is 64, expected 128", infos=(FIRST, SECOND),
        pairs=aligned)
    bad("without_its_last_byte", "truncated", "76 bytes", infos=(FIRST, SECOND),
        data=(pad(W) + BIAS)[:-1])
    bad("without_bytes", "truncated", infos=(FIRST, SECOND), data=b"")
    bad("of_2_to_63_bytes", "truncated", ne=(LARGE,), kind=INT8)
    bad("of_2_to_64_bytes_together", '"c"', "more than 2^64 - 1 bytes",
        infos=(info("a", (LARGE,), INT8), info("b", (LARGE,), INT8, LARGE),
               info("c", (256,), INT8, 2 * LARGE)))
    refused("header_cut", z.Built().changed(header((FIRST, SECOND))[:-1]), "tensor 1", "offset",
            "leaves the file")
    good("tensor_of_no_elements", gguf((info("none", (4, 0)), FIRST, SECOND), data=DATA),
         {"none": b"", **BOTH})


    many = [info(f"{i:x}", (0,)) for i in range(300_000)]
    good("tensors_without_elements", gguf(many), None)


def names(count):
    return [f"m-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]


def part(number, count, total, infos=(), data=b"", pairs=()):
    return gguf(infos, (*pairs, pair("split.no", U16, struct.pack("<H", number)),
                        pair("split.count", U16, struct.pack("<H", count)),
                        pair("split.tensors.count", I32, struct.pack("<i", total))), data)


def add_splits():
    def split(name, files, verdict, opened=names(2)[0]):
        case(f"gguf_splits/{name}/{opened}", Set(files, opened), verdict)

    one, two = names(2)
    last = info("bias", (3,))
    both = {one: part(0, 2, 2, (FIRST,), pad(W)), two: part(1, 2, 2, (last,), pad(BIAS))}
    bad = lambda name, files, *words, code="corrupt", **more: split(
        name, {**both, **files}, refuse(code, *words), **more)
    for opened in (one, two):
        split(f"whole_by_{opened[6]}", both, opens(BOTH), opened=opened)
    split("without_the_second", {one: both[one]}, refuse("io", "No such file", "one of 2 files"))
    bad("by_another_name", {"model.gguf": both[one]}, "1 of 2 files", '-00001-of-00002.gguf"',
        opened="model.gguf")
    bad("of_two_firsts", {two: both[one]}, "1 of 2 files", "as another file does")
    bad("of_another_count", {two: part(1, 3, 2, (last,), pad(BIAS))}, "2 of 3 files", "are 2 files")
    bad("of_other_tensors", {two: part(1, 2, 3, (last,), pad(BIAS))}, "3 tensors")
    bad("with_no_part", {two: gguf((last,), data=pad(BIAS))}, "does not say")
    bad("with_a_tensor_twice", {two: part(1, 2, 2, (info("w"),), pad(W))}, '"w" is there twice')
    bad("of_a_number_beyond", {one: part(2, 2, 2, (FIRST,), pad(W))}, "split.no", "is 2")
    bad("of_65535_files", {names(65535)[0]: part(0, 65535, 2)}, "No such file", code="io",
        opened=names(65535)[0])
    bad("with_bytes_behind", {two: part(1, 2, 2, (last,), pad(BIAS) + bytes(3904))},
        "3904 bytes behind")


def add_cases():
    add_headers()
    add_metadata()
    add_tensors()
    add_splits()
