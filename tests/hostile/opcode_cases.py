"""Opcodes that torch does not write: those of old protocols and of other programs' pickles."""

import struct

import pickle_builder as p
from catalogue import case, opens, refuse
from pickle_cases import also
from torch_files import floats, pickle_file

THING = b"mine\nThing\n"
GLOBAL = b"c" + THING
NEWOBJ_EX, OBJ, LIST, DICT, POP, POP_MARK, DUP, MEMOIZE = (
    b"\x92", b"o", b"l", b"d", b"0", b"1", b"2", b"\x94")


def good(name, body, parts=("w",)):
    """`parts`: names of tensors, each of which has all of the storage."""
    tensors = None if parts is None else {part: floats(12) for part in parts}
    case(f"opcodes/{name}.pt", pickle_file(body), opens(tensors))


def refused(name, data, code, *words, at=None):
    """`at`: the byte of the pickle that is blamed."""
    built = pickle_file(data)
    at = None if at is None else built.pickle_offset + at
    case(f"opcodes/{name}.pt", built, refuse(code, *words, at=at))


def line(opcode, text):
    return opcode + (text if isinstance(text, bytes) else text.encode()) + b"\n"


def add_instances():
    """INST, OBJ and NEWOBJ_EX are calls, which nobody makes."""
    tensor, none = p.tensor(), p.NONE
    good("INST", p.one(p.MARK + tensor + b"i" + THING), ["w.0"])
    good("INST_of_nothing", p.one(p.MARK + b"i" + THING), [])
    good("OBJ", p.one(p.MARK + GLOBAL + tensor + OBJ), ["w.0"])
    good("OBJ_of_nothing", p.one(p.MARK + GLOBAL + OBJ), [])
    good("NEWOBJ_EX", p.one(GLOBAL + p.tuple_of(tensor) + p.dict_of((p.text("k"), tensor)) +
                            NEWOBJ_EX), ["w.1.0", "w.2.k"])
    # A function is called by any of them; what is only made has no arguments to be made of.
    arguments = (p.storage(), p.integer(0), p.integers((12,)), p.integers((1,)), p.FALSE, p.HOOKS)
    rebuild = b"torch._utils\n_rebuild_tensor_v2\n"
    good("tensor_by_INST", p.one(p.MARK + b"".join(arguments) + b"i" + rebuild))
    good("tensor_by_OBJ", p.one(p.MARK + b"c" + rebuild + b"".join(arguments) + OBJ))
    good("tensor_by_NEWOBJ", p.one(b"c" + rebuild + p.MARK + b"".join(arguments) + b"t" + p.NEWOBJ),
         [])
    far = (*arguments[:2], p.integers((13,)), *arguments[3:])
    refused("tensor_beyond_by_INST", p.one(p.MARK + b"".join(far) + b"i" + rebuild), "corrupt",
            'tensor "w"', "reaches beyond")
    refused("tensor_beyond_by_OBJ", p.one(p.MARK + b"c" + rebuild + b"".join(far) + OBJ), "corrupt",
            'tensor "w"', "reaches beyond")
    good("tensor_of_nothing_by_INST", p.one(p.MARK + b"i" + rebuild), [])
    for count in range(1, 6):
        refused(f"tensor_of_{count}_by_INST",
                p.one(p.MARK + b"".join(arguments[:count]) + b"i" + rebuild), "corrupt",
                f"rebuilt with {count} argument")
    for name, body in (("INST", b"i" + THING), ("OBJ", OBJ)):
        refused(f"{name}_without_mark", p.pickle(none * 3, body), "corrupt", name, "no mark", at=5)
    refused("OBJ_of_no_class", p.pickle(p.MARK, OBJ), "corrupt", "OBJ", "no class", at=3)
    for label, kind in (("text", p.text("x")), ("none", none), ("list", p.EMPTY_LIST),
                        ("tensor", tensor)):
        data = p.pickle(p.MARK, kind, OBJ)
        refused(f"OBJ_of_{label}", data, "unsafe_pickle", "OBJ", "named global", at=len(data) - 2)
        data = p.pickle(kind, p.EMPTY_TUPLE, p.EMPTY_DICT, NEWOBJ_EX)
        refused(f"NEWOBJ_EX_of_{label}", data, "unsafe_pickle", "NEWOBJ_EX", "named global",
                at=len(data) - 2)
    for label, body in (("list", p.EMPTY_LIST), ("none", none), ("text", p.text("x"))):
        data = p.pickle(GLOBAL, body, p.EMPTY_DICT, NEWOBJ_EX)
        refused(f"NEWOBJ_EX_with_{label}", data, "corrupt", "NEWOBJ_EX", "arguments",
                "expected a tuple", at=len(data) - 2)
        data = p.pickle(GLOBAL, p.EMPTY_TUPLE, body, NEWOBJ_EX)
        refused(f"NEWOBJ_EX_with_keywords_of_{label}", data, "corrupt", "NEWOBJ_EX",
                "keyword arguments", "expected a dict", at=len(data) - 2)
    for have in range(3):
        data = p.pickle(none * have, NEWOBJ_EX)
        refused(f"NEWOBJ_EX_of_{have}", data, "corrupt", "NEWOBJ_EX", 3, f"found {have}",
                at=2 + have)
    refused("INST_name_of_5000", p.pickle(p.MARK, b"i" + b"m" * 5000 + b"\nT\n"), "limit_exceeded",
            "INST", "newline", at=3)
    refused("INST_name_not_utf8", p.pickle(p.MARK, b"i\xff\nT\n"), "corrupt", "INST", "not UTF-8",
            at=3)
    inner = GLOBAL
    for depth in range(1, 10):
        inner = p.call(p.name("builtins", "getattr"), inner, p.text("Inner"))
        data = also(p.call(inner, p.tensor()))
        if depth < 9:
            good(f"class_in_{depth}_classes", data, ["w", "x.0"])
        else:
            refused(f"class_in_{depth}_classes", data, "unsafe_pickle", "REDUCE", "named global")
    for label, arguments in (("one", [GLOBAL]), ("three", [GLOBAL, p.text("x"), p.NONE]),
                             ("a_number", [GLOBAL, p.integer(1)]),
                             ("a_text", [p.text("x"), p.text("y")])):
        refused(f"class_in_a_class_by_{label}",
                also(p.call(p.call(p.name("builtins", "getattr"), *arguments))), "unsafe_pickle",
                "REDUCE", "named global")


def add_ids():
    """PERSID, whose persistent id is a line of text."""
    good("PERSID", also(line(b"P", "storage")))
    good("PERSID_of_nothing", also(line(b"P", "")))
    refused("PERSID_as_a_storage", p.one(p.tensor(line(b"P", "storage"))), "corrupt",
            'tensor "w"', "a tensor's storage is", "five fields")
    refused("PERSID_not_ascii", p.pickle(line(b"P", b"\xc3\xa9")), "corrupt", "PERSID", "ASCII",
            at=2)
    refused("PERSID_of_5000", p.pickle(line(b"P", "x" * 5000)), "limit_exceeded", "PERSID",
            "newline", at=2)
    refused("PERSID_cut", p.pickle(b"Pstorage", stop=b""), "corrupt", "PERSID", at=2)
    good("PERSID_of_control_characters", also(line(b"P", "\x1b[2J")))


def add_stack():
    tensor = p.tensor()
    good("POP", p.pickle(tensor, POP, p.dict_of((p.text("w"), tensor))))
    good("POP_of_a_mark", p.pickle(p.MARK, POP, p.dict_of((p.text("w"), tensor))))
    good("POP_MARK", p.pickle(p.MARK, p.NONE * 9, POP_MARK, p.dict_of((p.text("w"), tensor))))
    good("DUP", p.pickle(p.EMPTY_LIST, p.MARK, tensor, DUP * 3, p.APPENDS), list("0123"))
    good("LIST", p.pickle(p.MARK, tensor, tensor, LIST), list("01"))
    good("DICT", p.pickle(p.MARK, p.text("w"), tensor, DICT))
    refused("POP_of_all", p.pickle(p.NONE, POP, POP), "corrupt", "POP", "nothing", at=4)
    refused("DUP_of_a_mark", p.pickle(p.NONE, p.MARK, DUP), "corrupt", "DUP", 1, "found 0", at=4)
    refused("DICT_of_three", p.pickle(p.MARK, p.NONE * 3, DICT), "corrupt", "DICT", 3, at=6)
    for opcode, name in ((LIST, "LIST"), (DICT, "DICT"), (POP_MARK, "POP_MARK")):
        refused(f"{name}_without_mark", p.pickle(p.NONE, opcode), "corrupt", name, "no mark", at=3)
    refused("POP_MARK_twice", p.pickle(p.MARK, POP_MARK, POP_MARK), "corrupt", "POP_MARK",
            "no mark", at=4)
    # A tensor that is thrown away is none, and neither is its storage asked for.
    good("POP_of_a_lie", p.pickle(p.tensor(shape=(2**40,)), POP, p.dict_of((p.text("w"), tensor))))


def add_numbers():
    """Lines that Python's two unpicklers read differently, or not at all."""
    for opcode, name in ((b"I", "INT"), (b"L", "LONG")):
        for label, text in (("nothing", ""), ("zeros", "007"), ("a_plus", "+7"), ("minus_0", "-0"),
                            ("a_space", " 7"), ("a_space_behind", "7 "), ("underscores", "1_000"),
                            ("base_16", "0x10"), ("base_2", "0b1"), ("a_point", "7.0"),
                            ("an_exponent", "1e3"), ("a_word", "seven"), ("two_signs", "--7"),
                            ("a_sign", "-"), ("a_carriage_return", "7\r"), ("nul", "7\0"),
                            ("another_digit", "\u0667"), ("an_L_in_front", "L7")):
            refused(f"{name}_of_{label}", p.pickle(line(opcode, text)), "corrupt", name,
                    "a decimal number", at=2)
        for label, text in (("0", "0"), ("minus_1", "-1"), ("2_to_63", str(2**63)),
                            ("minus_2_to_64", str(-2**64)), ("4300_digits", "9" * 4300)):
            good(f"{name}_of_{label}", also(line(opcode, text)))
        refused(f"{name}_cut", p.pickle(opcode + b"12", stop=b""), "corrupt", name, at=2)
    good("INT_of_bools", also(line(b"I", "00") + line(b"I", "01") + b"\x86"))
    refused("LONG_of_bools", p.pickle(line(b"L", "01")), "corrupt", "LONG", at=2)
    refused("INT_of_an_L", p.pickle(line(b"I", "7L")), "corrupt", "INT", at=2)
    good("LONG_of_an_L", also(line(b"L", "7L")))
    refused("LONG_of_two_L", p.pickle(line(b"L", "7LL")), "corrupt", "LONG", at=2)
    good("INT_as_key_of_a_tensor", p.pickle(p.dict_of((line(b"I", "-7"), p.tensor()))), ["-7"])
    good("INT_as_sizes", p.one(p.tensor(shape=p.tuple_of(line(b"I", "3"), line(b"L", "4L")),
                                        strides=(4, 1))))
    refused("INT_as_sizes_beyond", p.one(p.tensor(shape=p.tuple_of(line(b"I", "4"), line(
        b"L", "4L")), strides=(4, 1))), "corrupt", 'tensor "w"', "reaches beyond")
    for label, text in (("nothing", ""), ("1e400", "1e400"), ("minus_1e400", "-1e400"),
                        ("a_space", " 1.5"), ("underscores", "1_0.0"), ("base_16", "0x1.8p1"),
                        ("a_word", "one"), ("infinity", "infinity"), ("capitals", "NaN"),
                        ("two_points", "1.5.2"), ("an_e", "1e"), ("a_comma", "1,5"),
                        ("a_carriage_return", "1.5\r"), ("a_suffix", "1.5f")):
        refused(f"FLOAT_of_{label}", p.pickle(line(b"F", text)), "corrupt", "FLOAT", "a float",
                at=2)
    for text in ("1.5", "-0.0", "1e300", "inf", "-inf", "nan", "3", ".5"):
        good(f"FLOAT_{text}", also(line(b"F", text)))
    for opcode, name in ((b"p", "PUT"), (b"g", "GET")):
        for label, text in (("nothing", ""), ("minus_1", "-1"), ("zeros", "007"), ("a_word", "x"),
                            ("a_space", " 1"), ("2_to_64", str(2**64)), ("a_plus", "+1")):
            refused(f"{name}_of_{label}", p.pickle(p.NONE, line(opcode, text)), "corrupt", name,
                    "memo id", at=3)
    refused("GET_unset", p.pickle(line(b"g", "7")), "corrupt", "memo id 7", "never set", at=2)
    refused("PUT_2_to_32", p.pickle(p.NONE, line(b"p", str(2**32))), "limit_exceeded", "memo id",
            at=3)
    refused("PUT_on_nothing", p.pickle(line(b"p", "1")), "corrupt", "PUT", at=2)


def add_memo():
    tensor = p.tensor()
    two = lambda put, get: p.pickle(p.EMPTY_LIST, p.MARK, tensor, put, get, p.APPENDS)
    good("PUT_and_GET", two(line(b"p", "0"), line(b"g", "0")), list("01"))
    good("PUT_and_BINGET", two(line(b"p", "3"), b"h\x03"), list("01"))
    good("MEMOIZE_and_BINGET", two(MEMOIZE, b"h\0"), list("01"))
    # The number of MEMOIZE is how many there are, whatever the others are called.
    good("MEMOIZE_behind_PUT", p.pickle(p.EMPTY_LIST, p.MARK, p.NONE, line(b"p", "9"), tensor,
                                        MEMOIZE, b"h\1", p.APPENDS), list("12"))
    refused("MEMOIZE_and_the_next", two(MEMOIZE, b"h\1"), "corrupt", "memo id 1", "never set")
    refused("MEMOIZE_of_a_mark", p.pickle(p.NONE, p.MARK, MEMOIZE), "corrupt", "MEMOIZE", at=4)
    good("MEMOIZE_a_million_times", p.pickle(p.NONE, MEMOIZE * 1_000_000), [])


def add_texts():
    for label, text in (("nothing", ""), ("no_quotes", "abc"), ("one_quote", "'"),
                        ("open", "'abc"), ("two_kinds", "'abc\""), ("text_behind", "'abc'x"),
                        ("a_space", " 'abc'"), ("a_prefix", "b'abc'")):
        refused(f"STRING_of_{label}", p.pickle(line(b"S", text)), "corrupt", "STRING",
                "a text in quotes", at=2)
    for label, text in (("unknown", r"'\q'"), ("short", r"'\x4'"), ("not_hex", r"'\xgg'"),
                        ("octal_400", r"'\400'"), ("unicode", r"'\u00e9'"),
                        ("named", r"'\N{DIGIT ONE}'"), ("last", "'abc\\'")):
        refused(f"STRING_escape_{label}", p.pickle(line(b"S", text)), "corrupt", "STRING",
                "escapes as Python writes them", at=2)
    name = lambda text: p.pickle(p.dict_of((text, p.tensor())))
    good("STRING_as_a_name", name(line(b"S", r"'a\x62\143\n\\'")), ["abc\n\\"])
    good("STRING_not_utf8", also(line(b"S", r"'\xff'")))
    good("SHORT_BINSTRING_not_utf8", also(b"U\x01\xff"))
    good("BINSTRING_as_a_name", name(b"T" + struct.pack("<i", 1) + b"x"), ["x"])
    refused("BINSTRING_of_minus_1", p.pickle(b"T" + struct.pack("<i", -1)), "corrupt", "BINSTRING",
            at=2)
    good("UNICODE_as_a_name", name(line(b"V", r"a\u00e9\U0001f600" + "\\")),
         ["a\u00e9\U0001f600\\"])
    good("UNICODE_of_latin_1", name(line(b"V", b"\xe9")), ["\u00e9"])
    for label, text in (("short", r"\u12"), ("not_hex", r"\u12gh"), ("beyond", r"\U00110000"),
                        ("far_beyond", r"\Uffffffff"), ("end", r"\u")):
        refused(f"UNICODE_escape_{label}", p.pickle(line(b"V", text)), "corrupt", "UNICODE",
                "escapes as Python writes them", at=2)
    good("UNICODE_of_a_lone_surrogate", also(line(b"V", r"\ud800")))
    for opcode, label in ((b"S'", "STRING"), (b"V", "UNICODE")):
        refused(f"{label}_cut", p.pickle(opcode + b"abc", stop=b""), "corrupt", label, at=2)
    good("UNICODE_of_a_megabyte", also(line(b"V", "x" * 1_000_000)))
    good("STRING_of_a_megabyte_of_escapes", also(line(b"S", "'" + r"\x41" * 250_000 + "'")))


def add_frames():
    body = p.dict_of((p.text("w"), p.tensor()))
    frame = lambda length: b"\x95" + struct.pack("<Q", length)
    good("FRAME", p.pickle(frame(len(body) + 1), body))
    good("FRAME_of_nothing", p.pickle(frame(0), body))
    good("FRAME_to_the_last_byte", p.pickle(body, frame(1)))
    refused("FRAME_one_too_long", p.pickle(frame(len(body) + 2), body), "corrupt", "FRAME", at=2)
    for protocol in (6, 255):
        refused(f"PROTO_{protocol}_later", p.pickle(body, b"\x80" + bytes([protocol])),
                "unsupported", f"protocol {protocol}", at=2 + len(body))
    for protocol in (0, 1, 2, 3, 4, 5):
        good(f"PROTO_{protocol}_later", p.pickle(body, b"\x80" + bytes([protocol])))


def add_cases():
    add_instances()
    add_ids()
    add_stack()
    add_numbers()
    add_memo()
    add_texts()
    add_frames()
