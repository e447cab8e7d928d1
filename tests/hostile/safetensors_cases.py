"""Safetensors files that lie: about the header's length, in its JSON, and about where bytes are."""

import json
import struct

import zip_builder as z
from catalogue import case, either, opens, refuse
from torch_files import floats, small, torch_file

W, BIAS = floats(12), floats(3, 50.0)
BOTH = {"w": W, "bias": BIAS}
FIRST = '"w":{"dtype":"F32","shape":[3,4],"data_offsets":[0,48]}'
SECOND = '"bias":{"dtype":"F32","shape":[3],"data_offsets":[48,60]}'
HEADER_LIMIT = 100_000_000


def tensor(name, dtype="F32", shape=(3, 4), offsets=(0, 48), more=""):
    """As compact JSON. What is given as text stands there as it is."""
    text = lambda value: value if isinstance(value, str) else json.dumps(list(value))
    return (f'{json.dumps(name)}:{{"dtype":"{dtype}","shape":{text(shape)},'
            f'"data_offsets":{text(offsets)}{more}}}').replace(", ", ",")


def of(*items):
    return "{" + ",".join(items) + "}"


def as_bytes(text):
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def safetensors(header, data=b"", length=None):
    """`length`: what the file says of its header, if it is not the truth."""
    header = as_bytes(header)
    built = z.Built()
    built.add(struct.pack("<Q", len(header) if length is None else length) + header)
    for part in data if isinstance(data, list) else [data]:
        built.add(part)
    built.pickle_bytes = len(header)
    return built


def good(name, header, tensors, data=None, **more):
    data = b"".join(tensors.values()) if data is None else data
    case(f"safetensors/{name}.safetensors", safetensors(header, data), opens(tensors), **more)


def refused(name, header, *words, at=None, data=W, code="corrupt", length=None):
    """`at`: what the error blames: a position in the header, or text there that it begins with;
    "file": the length at the begin of the file."""
    if isinstance(at, str) and at != "file":
        at = as_bytes(header).index(as_bytes(at))
    place = 0 if at == "file" else None if at is None else 8 + at
    case(f"safetensors/{name}.safetensors", safetensors(header, data, length),
         refuse(code, *words, at=place))


def refused_tensor(name, *words, at='"w"', code="corrupt", data=W, tensor_name="w", **fields):
    refused(name, of(tensor(tensor_name, **fields)), *words, at=at, code=code, data=data)


def add_lengths():
    header = of(FIRST, SECOND)
    whole = safetensors(header, W + BIAS).bytes()
    length, size = len(header), len(whole)
    both = W + BIAS
    good("plain", header, BOTH)
    good("padded", header + " " * 37, BOTH)
    good("padded_with_every_blank", "\t\r\n " + header + " \n\r\t", BOTH)
    good("of_123_bytes", header.ljust(0x7B), BOTH)  # which begins with a brace, as JSON does
    good("without_tensors", "{}", {})
    refused("length_0", header, "header is not JSON", at=0, length=0, data=both)
    refused("length_1", header, "header is not JSON", at=1, length=1, data=both)
    refused("length_one_less", header, "not JSON", at=length - 1, length=length - 1, data=both)
    refused("length_one_more", header, "header is not JSON", at=length, length=length + 1,
            data=both)
    refused("length_one_more_and_a_blank", header, "truncated", "60 bytes", "are 59",
            length=length + 1, data=b" " + both[1:])
    refused("length_of_all", header, "header is not JSON", at=length, length=size - 8, data=both)
    for number in (size - 7, size, 1000, 99_999_999, HEADER_LIMIT):
        refused(f"length_{number}", header, "truncated", f"header of {number} bytes",
                f"file of {size}", at="file", length=number, data=both)
    for number in (HEADER_LIMIT + 1, 2**31 - 1, 2**31, 2**32 - 8, 2**32 - 1):
        refused(f"length_{number}", header, f"header of {number} bytes", "100000000", at="file",
                length=number, data=both)
    for number in (2**32, 2**32 + length, 2**40 - 1, 2**63 - 1, 2**63, 2**64 - length, 2**64 - 8,
                   2**64 - 1):
        refused(f"length_{number}", header, f"header of {number} bytes", "100000000", at="file",
                length=number, data=both)
    for number in range(1, 8):
        case(f"safetensors/only_{number}_bytes.safetensors", z.Built().changed(whole[:number]),
             refuse("corrupt", "too short", "it has 1 byte" if number == 1 else f"{number} bytes"))
    case("safetensors/only_8_bytes.safetensors", z.Built().changed(whole[:8]),
         refuse("corrupt", "truncated", f"header of {length} bytes", "file of 8", at=0))
    refused("a_brace_and_no_more", "{", "header is not JSON", at=1, data=b"")
    refused("zip_magic_as_length", header, "truncated", "67324752", at="file", length=0x04034B50)
    no_object = "the header expected an object, found "
    for label, text, words in (
            ("a_list", "[]", no_object + "an array"), ("null", "null", no_object + "null"),
            ("a_text", '"{"', no_object + "a string"), ("a_number", "1", no_object + "a number"),
            ("a_byte_order_mark", "\ufeff{}", "header is not JSON"),
            ("zeros", "\0" * 64, "header is not JSON")):
        refused(f"header_is_{label}", text, words, at=0, data=b"")


def add_json():
    bare = lambda name, text, at, **more: refused(f"json_{name}", text, "header is not JSON", at=at,
                                                  **more)
    bare("two_documents", "{}{}", 2, data=b"")
    bare("trailing_nul", "{}\0", 2, data=b"")
    bare("trailing_nuls", of(FIRST) + "\0" * 9, len(of(FIRST)))
    bare("trailing_comma", "{" + FIRST + ",}", len(FIRST) + 2)
    bare("leading_comma", "{," + FIRST + "}", 1)
    bare("two_commas", of(FIRST, "", SECOND), len(FIRST) + 2)
    bare("no_comma", "{" + FIRST + SECOND + "}", len(FIRST) + 1)
    bare("comment", "{/**/" + FIRST + "}", 1)
    bare("comment_behind", of(FIRST) + "//", len(of(FIRST)))
    bare("key_without_quotes", "{w:{}}", 1)
    bare("quotes_of_one_stroke", of(FIRST).replace('"', "'"), 1)
    bare("key_without_end", '{"w', 3)
    bare("form_feed", "{\f}", 1)
    bare("no_break_space", "{\u00a0}", 1)
    bare("not_closed", "{" + FIRST, len(FIRST) + 1)
    bare("closed_as_a_list", "{" + FIRST + "]", len(FIRST) + 1)
    in_tensor = lambda name, text, at, *words: refused(
        f"json_{name}", "{" + text + "}", 'tensor "w"', *words, at=at)
    in_tensor("tensor_is_a_list", '"w":["F32",[3,4],[0,48]]', "[", "expected an object", "an array")
    in_tensor("tensor_is_null", '"w":null', "null", "expected an object", "null")
    in_tensor("tensor_is_text", '"w":"F32"', '"F32', "expected an object", "a string")
    in_tensor("tensor_is_a_number", '"w":1', "1", "expected an object", "a number")
    in_tensor("type_is_an_object", FIRST.replace('"F32"', '{"F32":null}'), '{"F32', "dtype",
              "an object")
    in_tensor("type_is_a_number", FIRST.replace('"F32"', "32"), "32", "dtype", "a number")
    in_tensor("shape_is_null", FIRST.replace("[3,4]", "null"), "null", "shape", "null")
    in_tensor("shape_is_a_number", FIRST.replace("[3,4]", "12"), "12", "shape", "a number")
    in_tensor("shape_of_shapes", FIRST.replace("[3,4]", "[[3,4]]"), "[3", "shape", "an array")
    in_tensor("offsets_are_an_object", FIRST.replace("[0,48]", '{"0":48}'), '{"0', "data_offsets",
              "an object")
    in_tensor("size_of_nothing", FIRST.replace("3,4", "3,,4"), ",4]", "shape", "not JSON")
    in_tensor("size_behind_a_comma", FIRST.replace("3,4", "3,4,"), "],", "shape", "not JSON")
    for label, wrong, word in (
            ("real", "4.0", "whole number"), ("exponent", "4e0", "whole number"),
            ("minus_0", "-0", "whole number"), ("minus_4", "-4", "whole number"),
            ("text", '"4"', "a string"), ("true", "true", "a boolean"), ("null", "null", "null"),
            ("2_to_64", str(2**64), "2^64 - 1"), ("of_400_digits", "9" * 400, "2^64 - 1")):
        in_tensor(f"size_{label}", FIRST.replace("4]", wrong + "]", 1), wrong, "shape", word)
        in_tensor(f"offset_{label}", FIRST.replace("48", wrong), wrong, "data_offsets", word)
    for label, wrong, behind in (("leading_zero", "04", 1), ("plus", "+4", 0), ("hex", "0x4", 1),
                                 ("NaN", "NaN", 0), ("a_point", "4.", 2),
                                 ("two_points", "4..0", 2)):
        text = FIRST.replace("4]", wrong + "]", 1)
        in_tensor(f"size_{label}", text, 1 + text.index(wrong) + behind, "shape", "not JSON")
    for size in (2**63, 2**64 - 1):
        in_tensor(f"size_{size}", FIRST.replace("4]", f"{size}]", 1), str(size), "size",
                  "larger than 2^63 - 1")
    # A text in the key, and the bytes from which on it is none.
    for label, wrong, behind in (
            ("control", "a\nb", 1), ("nul", "a\0b", 1), ("lone_high_surrogate", r"a\ud83d.", 2),
            ("lone_low_surrogate", r"a\udc00", 2), ("two_high_surrogates", r"\ud83d\ud83d", 1),
            ("x", r"a\x41", 2), ("short_u", r"a\u00g1", 5), ("unicode", "a\\\u00e9", 2)):
        bare(f"escape_{label}", '{"' + wrong + '":{}}', 2 + behind)
    for label, wrong in (("FF", b"\xff"), ("overlong", b"\xc0\xaf"), ("surrogate", b"\xed\xa0\x80"),
                         ("beyond", b"\xf4\x90\x80\x80"), ("cut", b"\xe2\x82"),
                         ("alone", b"\x80"), ("of_six", b"\xfc\x84\x80\x80\x80\x80")):
        bare(f"utf8_{label}", b'{"ab' + wrong + b'":{}}', 4)
    good("json_escapes", of(FIRST.replace('"w"', r'"\u0077"'), SECOND), BOTH)
    good("json_every_escape",
         of(tensor("x").replace('"x"', r'"\"\\\/\b\f\n\r\t\u0000\ud83d\ude42"')),
         {"\"\\/\b\f\n\r\t\0\U0001f642": W})


def add_depth():
    nested = lambda depth: FIRST[:-1] + ',"x":' + "[" * depth + "]" * depth + "}"
    good("depth_64", of(nested(62)), {"w": W})
    text = of(nested(63))
    refused("depth_65", text, 'tensor "w"', "nests deeper than 64", at=text.index("[[[") + 62)
    for label, opening in (("lists", "["), ("objects", '{"a":'), ("both", '[{"a":')):
        refused(f"depth_a_million_{label}", of(FIRST[:-1] + ',"x":' + opening * 1_000_000),
                "nests deeper than 64")
    refused("depth_in_metadata", '{"__metadata__":{"a":' + "[" * 200_000,
            "__metadata__: expected a string, found an array", at="[", data=b"")
    refused("depth_at_the_top", '{"w":' * 200_000, 'tensor "w"', "nests deeper", data=b"")
    good("unknown_fields", of(FIRST[:-1] + ',"":null,"dtype ":true,"Shape":{"shape":[1]},'
                              '"data_offsets\\u0000":[-1.5e3,[]]}', SECOND), BOTH)


def add_fields():
    for field in ("dtype", "shape", "data_offsets"):
        whole = json.loads("{" + FIRST + "}")["w"]
        del whole[field]
        refused(f"without_{field}", json.dumps({"w": whole}), 'tensor "w"', f"has no {field}",
                at='"w"')
        again = FIRST[:-1] + "," + FIRST[FIRST.index(f'"{field}'):-1].split(',"')[0] + "}"
        escaped = f'"\\u{ord(field[0]):04x}{field[1:]}"'
        refused(f"{field}_twice", of(again), 'tensor "w"', f"{field} twice")
        refused(f"{field}_twice_by_an_escape",
                of(escaped.join(again.rsplit(f'"{field}"', 1))), 'tensor "w"', f"{field} twice")
    refused("without_fields", '{"w":{}}', 'tensor "w"', "has no dtype", at='"w"')
    refused("fields_in_capitals", of(FIRST.replace("dtype", "DTYPE")), 'tensor "w"', "no dtype",
            at='"w"')
    for label, dtype, shown in (
            ("in_small_letters", "f32", '"f32"'), ("of_torch", "float32", '"float32"'),
            ("of_nothing", "", '""'), ("with_a_space", "F32 ", '"F32 "'),
            ("C128", "C128", '"C128"'), ("with_a_nul", "F32\\u0000", r'"F32\x00"'),
            ("of_an_escape", "\\u001b[31m", r'"\x1B[31m"'),
            ("of_lines", "a\\nb", r'"a\x0Ab"'), ("of_10_KB", "F" * 10_000, "FFFF...")):
        refused_tensor(f"type_{label}", 'tensor "w"', shown, at=f'"{dtype}"', dtype=dtype)
    for label, offsets, words in (
            ("none", (), "0 data_offsets"), ("one", (48,), "1 data_offset,"),
            ("three", (0, 24, 48), "3 data_offsets"),
            ("hundred_thousand", (0,) * 100_000, "100000 data_offsets")):
        refused_tensor(f"offsets_{label}", 'tensor "w"', words, at=None, offsets=offsets)
    for label, offsets in (("reversed", (48, 0)), ("a_byte_short", (0, 47)),
                           ("a_byte_long", (0, 49)), ("beyond_the_file", (0, 2**40)),
                           ("up_to_2_to_64", (0, 2**64 - 1)), ("of_no_bytes", (0, 0)),
                           ("that_wrap", (2**64 - 1, 47)), ("reversed_to_wrap", (48, 2**64 - 1))):
        refused_tensor(f"offsets_{label}", 'tensor "w"', "F32", "[3, 4]", "48 bytes",
                       f"[{offsets[0]}, {offsets[1]}]", offsets=offsets)
    for label, offsets in (("moved", (1, 49)), ("behind_the_file", (48, 96)),
                           ("next_to_2_to_64", (2**64 - 49, 2**64 - 1)), ("at_2_to_63",
                                                                        (2**63, 2**63 + 48))):
        refused_tensor(f"offsets_{label}", 'tensor "w"', f"[{offsets[0]}, {offsets[1]}]",
                       "begin at 0", offsets=offsets)


def add_products():
    no = lambda name, shape, *words, **more: refused_tensor(
        f"product_{name}", 'tensor "w"', *words, shape=shape, **more)
    bits = "2^64 - 1 bits"
    no("of_two_halves", (2**32, 2**32), bits)
    no("that_wraps_to_48_bytes", (2**58 * 4 + 12,), bits)
    no("that_wraps_to_0", (2**62, 4), bits)
    no("of_one_size", (2**63 - 1,), bits)
    no("of_all_sizes", (2**13,) * 5, bits)
    no("of_rust_1", "[2,18446744073709551614]", "larger than 2^63 - 1", at="18446744073709551614")
    no("of_rust_2", (2, 2**63 - 1), bits)
    no("and_then_0", (2**63 - 1, 2**63 - 1, 0), bits, offsets=(0, 0), data=b"")
    no("behind_0", (0, 2**63 - 1, 2**63 - 1), "strides of more than 63 bits", offsets=(0, 0),
       data=b"")
    no("of_bytes_that_fit", (2**60,), "needs 1152921504606846976 bytes", dtype="U8")
    for dtype, shape in (("F4", (3,)), ("F4", (1, 3)), ("F4", ()), ("F6_E2M3", (3,)),
                         ("F6_E3M2", (2,))):
        no(f"of_{dtype}_{len(shape)}_{sum(shape)}", shape, "no whole bytes", dtype=dtype,
           offsets=(0, 1), data=b"x")
    no("of_F4_twice_too_long", (1, 2), "needs 1 byte", dtype="F4", offsets=(0, 2), data=b"xx")
    good("F4", of(tensor("w", "F4", (2, 6), (0, 6))), {"w": b"sixbyt"})
    good("odd_F4", of(tensor("w", "F4", (2, 3), (0, 3)), tensor("b", "U8", (1,), (3, 4))),
         {"b": b"!"}, data=b"odd!")
    good("F6", of(tensor("w", "F6_E2M3", (4,), (0, 3)), tensor("b", "U8", (1,), (3, 4))),
         {"w": b"six", "b": b"!"}, data=b"six!")
    good("odd_F6", of(tensor("w", "F6_E2M3", (2, 2), (0, 3)), tensor("b", "U8", (1,), (3, 4))),
         {"b": b"!"}, data=b"six!")
    good("empty", of(tensor("w", shape=(0, 2**31), offsets=(0, 0))), {"w": b""})
    good("scalar", of(tensor("w", "I32", (), (0, 4))), {"w": b"\1\2\3\4"})
    good("unaligned", of(tensor("a", "U8", (1,), (0, 1)), tensor("w", offsets=(1, 49))),
         {"a": b"x", "w": W})
    good("bool_of_any_byte", of(tensor("w", "BOOL", (256,), (0, 256))), {"w": bytes(range(256))})
    good("rank_64", of(tensor("w", "U8", (1,) * 64, (0, 1))), {"w": b"x"})
    for rank in (65, 255, 256, 1000, 1_000_000):
        no(f"of_rank_{rank}", (1,) * rank, "64 dimensions", code="limit_exceeded", dtype="U8",
           offsets=(0, 1), data=b"x", at=None)
    hole = safetensors(of(tensor("w", "U8", (2**33,), (0, 2**33))), [z.Hole(2**33)])
    case("safetensors/of_8_GiB.safetensors", hole, opens(), is_huge=True)
    hole = safetensors(of(tensor("w", "U8", (2**33,), (0, 2**33))), [z.Hole(2**33 - 1)])
    case("safetensors/of_8_GiB_less_one.safetensors", hole,
         refuse("corrupt", "truncated", 2**33, 2**33 - 1), is_huge=True)


def add_layouts():
    at = lambda name, begin, end: tensor(name, shape=((end - begin) // 4,), offsets=(begin, end))
    no = lambda name, items, *words, **more: refused(f"layout_{name}", of(*items), *words, **more)
    good("layout_in_another_order", of(SECOND, FIRST), {"bias": BIAS, "w": W}, data=W + BIAS)
    no("hole", (FIRST, at("bias", 52, 64)), 'tensor "bias"', "[52, 64]", "begin at 48", at='"bias"',
       data=W + bytes(4) + BIAS)
    no("hole_at_the_begin", (at("w", 4, 52),), 'tensor "w"', "begin at 0", at='"w"',
       data=bytes(4) + W)
    no("overlap", (FIRST, at("bias", 44, 56)), 'tensor "bias"', "begin at 48", at='"bias"')
    no("within_another", (FIRST, at("bias", 4, 16)), 'tensor "bias"', "begin at 48", at='"bias"')
    no("the_same_range", (FIRST, at("bias", 0, 48)), 'tensor "bias"', "begin at 48", at='"bias"')
    no("empty_within_another", (FIRST, at("bias", 16, 16)), 'tensor "bias"', "[16, 16]",
       at='"bias"')
    no("empty_behind_the_end", (FIRST, at("bias", 52, 52)), 'tensor "bias"', "[52, 52]",
       at='"bias"')
    good("layout_empty_between", of(at("a", 0, 0), FIRST, at("b", 48, 48), SECOND, at("c", 60, 60)),
         {"a": b"", "w": W, "b": b"", "bias": BIAS, "c": b""})
    no("of_a_bomb", [at(f"w_{i}", 0, 16) for i in range(10)], 'tensor "w_1"', "begin at 16",
       at='"w_1"', data=bytes(16))
    for label, data in (("a_byte_behind", W + b"x"), ("a_page_behind", W + bytes(4096)),
                        ("text_behind", W + b" extra_bogus_data_for_polyglot_file")):
        no(label, (FIRST,), "have 48 bytes", f"are {len(data)} behind it", data=data)
    no("bytes_of_no_tensor", (), "have 0 bytes", "are 48 behind it")
    for short in (1, 2, 47, 48):
        no(f"{short}_bytes_short", (FIRST,), "truncated", "have 48 bytes",
           f"are {48 - short} behind", data=W[short:])
    # Of a shape that came before, which is read by comparing text.
    fast = [at(f"w{i}", 48 * i, 48 * i + 48) for i in range(50)]
    for label, text, words in (
            ("overlap", at("w50", 48 * 50 - 4, 48 * 51 - 4), "begin at 2400"),
            ("hole", at("w50", 48 * 50 + 4, 48 * 51 + 4), "begin at 2400"),
            ("short", fast[1].replace("w1", "w50").replace("48,96", "2400,2447"), "48 bytes"),
            ("reversed", fast[1].replace("w1", "w50").replace("48,96", "2448,2400"), "48 bytes"),
            ("leading_zero", fast[1].replace("w1", "w50").replace("48,96", "02400,2448"),
             "not JSON"),
            ("16_digits", fast[1].replace("w1", "w50").replace(
                "48,96", "9999999999999952,10000000000000000"), "begin at 2400"),
            ("three_offsets", fast[1].replace("w1", "w50").replace("48,96", "2400,2448,9"),
             "3 data_offsets"),
            ("type_twice", fast[1].replace("w1", "w50").replace(
                "48,96]", '2400,2448],"dtype":"F64"'), "dtype twice"),
            ("name_twice", fast[1].replace("48,96", "2400,2448"), "twice")):
        no(f"fast_{label}", [*fast, text], 'tensor "w', words, data=bytes(48 * 51))


def add_names():
    again = SECOND.replace('"bias"', '"w"')
    twice = lambda name, *items, **more: refused(f"twice_{name}", of(*items), 'tensor "w"', "twice",
                                                 **more)
    twice("name", FIRST, again, at=len(FIRST) + 2, data=W + BIAS)
    twice("name_by_an_escape", FIRST, again.replace('"w"', r'"\u0077"'), at=len(FIRST) + 2,
          data=W + BIAS)
    twice("name_of_nothing", *[tensor("w", shape=(0,), offsets=(0, 0))] * 2, data=b"")
    twice("name_apart", again, *(tensor(f"{i}", "U8", (1,), (60 + i, 61 + i)) for i in range(1000)),
          FIRST, data=W + BIAS + bytes(1000))
    # The last one alone would be right: what readers that let it win would show.
    refused("twice_name_on_one_range", of(FIRST, FIRST), 'tensor "w"')
    refused("twice_the_metadata", '{"__metadata__":{},"__metadata__":{}}', "__metadata__ twice",
            data=b"")
    refused("twice_the_metadata_by_an_escape", '{"__metadata__":null,"__metadat\\u0061__":{}}',
            "__metadata__ twice", data=b"")
    refused("twice_in_the_metadata", '{"__metadata__":{"a":"1","b":"2","a":"1"}}', "__metadata__",
            '"a" twice', data=b"")
    for label, name, shown in (
            ("nul", "a\0b", r'"a\x00b"'), ("line", "a\nb", r'"a\x0Ab"'),
            ("escape", "\x1b[2J\x1b]0;x\x07", r'"\x1B[2J\x1B]0;x\x07"'), ("quote", '"', r'"\x22"'),
            ("backslash", "\\", r'"\x5C"'), ("delete", "\x7f", r'"\x7F"'), ("nothing", "", '""'),
            ("path", "../../etc/passwd", '"../../etc/passwd"'), ("unicode", "é🙂", '"é🙂"'),
            ("10_KB", "n" * 10_000, '"nnnn')):
        good(f"name_{label}", of(tensor(name)), {name: W})
        refused_tensor(f"name_{label}_refused", f"tensor {shown}", "48 bytes", tensor_name=name,
                       offsets=(0, 40), at=1)
    long = "\\n" * 10_000_000  # 20 MB
    good("name_of_20_MB_of_escapes", of(FIRST, tensor("x", "U8", (1,), (48, 49)).replace(
        '"x"', '"' + long + '"')), {"w": W, "\n" * 10_000_000: b"x"}, data=W + b"x")
    good("unknown_field_of_20_MB_of_escapes", of(FIRST[:-1] + ',"x":"' + long + '"}'), {"w": W})
    good("metadata_of_20_MB_of_escapes", of('"__metadata__":{"a":"' + long + '"}', FIRST), {"w": W})
    refused("type_of_20_MB_of_escapes", of(tensor("w", long)), 'tensor "w"', r"\x0A...")


def add_metadata():
    good("metadata", of('"__metadata__":{"format":"pt","":""}', FIRST), {"w": W})
    good("metadata_behind", of(FIRST, '"__metadata__":{"a":"b"}', SECOND), BOTH)
    good("metadata_null", of('"__metadata__":null', FIRST), {"w": W})
    good("metadata_alone", '{"__metadata__":{"a":"b"}}', {})
    for label, value in (("a_list", "[]"), ("a_text", '"a"'), ("a_number", "1"), ("true", "true")):
        refused(f"metadata_{label}", of(f'"__metadata__":{value}'), "expected an object", at=value,
                data=b"")
    for label, value in (("number", "1"), ("null", "null"), ("list", "[]"), ("object", "{}"),
                         ("real", "1e400")):
        refused(f"metadata_of_a_{label}", of('"__metadata__":{"a":"b","k\\n":' + value + "}"),
                "__metadata__", data=b"")
    refused("metadata_as_a_tensor", of(FIRST.replace('"w"', '"__metadata__"')),
            "__metadata__: expected a string, found an array", at="[3,4]")
    many = ",".join(f'"{i}":"{i}"' for i in range(300_000))
    good("metadata_of_300000", of('"__metadata__":{' + many + "}", FIRST), {"w": W})


def add_masses():
    """Headers that cost much more to keep than to write."""
    count = 100_000
    same = of(*(tensor(f"{i}", "U8", (200, 200), (0, 40_000)) for i in range(count)))
    refused("mass_on_one_range", same, "begin at 40000", data=bytes(40_000))
    refused("mass_of_short_names_on_one_range",
            of(*(tensor(f"{i:x}", "U8", (), (0, 1)) for i in range(300_000))), "begin at 1",
            data=b"x")
    good("mass_of_empty_tensors",
         of(*(tensor(f"{i:x}", "U8", (0,), (0, 0)) for i in range(200_000))),
         {f"{i:x}": b"" for i in range(200_000)}, data=b"")
    # Two bytes of text for each size, of shapes of which no two are the same.
    sizes = lambda i: (0, *((i >> bit & 1) for bit in range(63)))
    refused("mass_of_sizes", of(*(tensor(f"{i:x}", "U8", sizes(i), (0, 0)) for i in range(count))),
            "the shapes of the tensors need more than the limit", code="limit_exceeded", data=b"")
    # Of two shapes that have one place in the builder's table of shapes, and two in the header's.
    two = lambda i: (0, *(1,) * 58, (1, 21)[i % 2])
    for number in (100, 20_000):
        good(f"shapes_that_take_turns_{number}",
             of(*(tensor(f"{i:x}", "U8", two(i), (0, 0)) for i in range(number))),
             {f"{i:x}": b"" for i in range(number)}, data=b"")
    case("safetensors/mass_of_unknown_escapes.safetensors",
         safetensors(of(FIRST[:-1] + ',"x":[' + '"\\t",' * 4_000_000 + "0]}"), W), either({"w": W}))
    case("safetensors/mass_of_unknown_numbers.safetensors",
         safetensors(of(FIRST[:-1] + ',"x":[' + "0," * 10_000_000 + "0]}"), W), either({"w": W}))
    case("safetensors/mass_of_unknown_lists.safetensors",
         safetensors(of(FIRST[:-1] + ',"x":[' + "[]," * 3_000_000 + "0]}"), W), either({"w": W}))
    case("safetensors/mass_of_unknown_fields.safetensors",
         safetensors(of(FIRST[:-1] + ',"":0' * 3_000_000 + "}"), W), either({"w": W}))
    refused("mass_of_blanks", "{" + " " * 20_000_000, "header is not JSON", data=b"")
    refused("mass_of_quotes", '{"' + '\\"' * 10_000_000, "header is not JSON", data=b"")


def add_polyglots():
    model = small()
    archive = torch_file(model).bytes()
    as_tensor = of(tensor("zip", "U8", (len(archive),), (0, len(archive))))
    good("with_an_archive_in_it", as_tensor, {"zip": archive})
    refused("with_an_archive_behind_it", of(FIRST), "have 48 bytes", data=W + archive)
    end = b"PK\5\6" + bytes(18)
    good("with_the_end_of_an_archive_in_it", of(tensor("w", "U8", (22,), (0, 22))), {"w": end})
    whole = safetensors(of(FIRST), W).bytes()
    case("safetensors/behind_html.safetensors", z.Built().changed(b"<html>" + whole),
         refuse("not_a_checkpoint", "web page"))
    shell = b"#!/bin/sh\n"
    case("safetensors/behind_shell.safetensors", z.Built().changed(shell + whole),
         refuse("not_a_checkpoint", "begins as text", "#!/bin/sh"))
    case("safetensors/behind_json.safetensors",
         z.Built().changed(b"{}" + safetensors(of(FIRST), W).bytes()),
         refuse("corrupt", "index", "not JSON", at=2))


def add_damage():
    whole = safetensors(of(FIRST, SECOND, '"__metadata__":{"a":"b"}'), W + BIAS).bytes()
    for length in range(9, len(whole), 7):
        case(f"safetensors/cut_at_{length}.safetensors", z.Built().changed(whole[:length]),
             refuse("corrupt", "truncated"))
    header = len(whole) - 60
    for at in (8, 9, 40, header - 20):
        case(f"safetensors/zeros_from_{at}_on.safetensors",
             z.Built().changed(whole[:at] + bytes(len(whole) - at)),
             refuse("corrupt", "JSON", at=at))
    for at in range(header):  # there are no checksums
        bit = at % 8
        case(f"safetensors/bit_{bit}_of_byte_{at}.safetensors",
             z.Built().changed(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1:]),
             either())


def add_cases():
    add_lengths()
    add_json()
    add_depth()
    add_fields()
    add_products()
    add_layouts()
    add_names()
    add_metadata()
    add_masses()
    add_polyglots()
    add_damage()
