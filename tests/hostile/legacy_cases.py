"""Streams of torch before 1.6 that lie: five pickles in a row, and then the storages."""

import dataclasses
import struct

import pickle_builder as p
import zip_builder as z
from catalogue import case, either, opens, refuse
from torch_files import floats, small, torch_file

MAGIC = p.pickle(p.long1(bytes.fromhex("6cfc9c46f9206aa85019")))
VERSION = p.pickle(b"M" + struct.pack("<H", 1001))
MACHINE = p.pickle(p.dict_of(
    (p.text("protocol_version"), b"M" + struct.pack("<H", 1001)), (p.text("little_endian"), p.TRUE),
    (p.text("type_sizes"), p.dict_of((p.text("int"), p.integer(4))))))
A, B = floats(12), floats(3, 50.0)


def storage(key="7", numel=12, view=p.NONE, kind="FloatStorage"):
    """The persistent id, which has a field more than in an archive."""
    kind = kind if isinstance(kind, bytes) else p.name("torch", kind)
    key = key if isinstance(key, bytes) else p.text(key)
    numel = numel if isinstance(numel, bytes) else p.integer(numel)
    return p.tuple_of(p.text("storage"), kind, key, p.text("cpu"), numel, view) + p.PERSID


def view(key="9", offset=2, size=4):
    return p.tuple_of(p.text(key), p.integer(offset), p.integer(size))


FIRST = (p.text("w"), p.tensor(storage()))
SECOND = (p.text("bias"), p.tensor(storage("8", 3), shape=(3,)))
BOTH = {"w": A, "bias": B}


@dataclasses.dataclass
class Stream:
    """What is not said otherwise is right."""

    magic: bytes = MAGIC
    version: bytes = VERSION
    machine: bytes = MACHINE
    object: bytes = p.pickle(p.dict_of(FIRST, SECOND))
    keys: bytes = p.pickle(p.list_of(p.text("7"), p.text("8")))
    storages: bytes = struct.pack("<q", 12) + A + struct.pack("<q", 3) + B
    tail: bytes = b""

    def part(self, name):
        """Where a part begins."""
        names = [field.name for field in dataclasses.fields(self)]
        return sum(len(getattr(self, each)) for each in names[:names.index(name)])

    def build(self):
        data = b"".join(getattr(self, field.name) for field in dataclasses.fields(self))
        built = z.Built().changed(data)
        built.pickle_bytes = len(self.machine) + len(self.object) + len(self.keys)
        return built


def good(name, tensors, **parts):
    case(f"legacy/{name}.pt", Stream(**parts).build(), opens(tensors))


def refused(name, code, *words, at=None, **parts):
    """`at`: the part that is blamed, by its name, or that and how far behind its begin."""
    made = Stream(**parts)
    if at is not None:
        at = made.part(at) if isinstance(at, str) else made.part(at[0]) + at[1]
    case(f"legacy/{name}.pt", made.build(), refuse(code, *words, at=at))


def with_object(*items):
    return p.pickle(p.dict_of(*items))


def add_heads():
    good("plain", BOTH)
    for protocol in (3, 4, 5):
        frame = b"\x95" + struct.pack("<Q", 13) if protocol > 3 else b""
        good(f"magic_of_protocol_{protocol}", BOTH,
             magic=b"\x80" + bytes([protocol]) + frame + MAGIC[2:])
    case("legacy/magic_with_more.pt", Stream(magic=p.pickle(MAGIC[2:-1], b"N")).build(),
         refuse("corrupt", "stops with 2 values"))
    for label, magic in (("of_zeros", p.pickle(p.long1(bytes(10)))),
                         ("one_bit_off", MAGIC.replace(b"\x6c", b"\x6d")),
                         ("as_text", p.pickle(b"L119547037146038801333356L\n"))):
        case(f"legacy/magic_{label}.pt", Stream(magic=magic).build(),
             refuse("unsupported", "behind the pickle"))
    for protocol in (0, 1, 6):
        case(f"legacy/magic_of_protocol_{protocol}.pt",
             Stream(magic=b"\x80" + bytes([protocol]) + MAGIC[2:]).build(),
             refuse("not_a_checkpoint", "not a torch checkpoint"))
    for label, body, shown in (
            ("0", p.integer(0), "version is 0"), ("1000", p.integer(1000), "version is 1000"),
            ("1002", p.integer(1002), "version is 1002"),
            ("minus_1001", p.integer(-1001), "version is -1001"),
            ("2_to_63", p.integer(2**63 - 1), f"version is {2**63 - 1}"),
            ("that_wraps", p.integer(2**64 + 1001), "not a number"),
            ("none", p.NONE, "not a number"), ("text", p.text("1001"), "not a number"),
            ("real", p.real(1001.0), "not a number"), ("true", p.TRUE, "not a number"),
            ("list", p.list_of(p.integer(1001)), "not a number")):
        refused(f"version_{label}", "unsupported", shown, "1001", at="version",
                version=p.pickle(body))
    refused("version_twice", "corrupt", "the version: ", "stops with 2 values",
            at=("version", 4), version=p.pickle(p.NONE, p.NONE))
    # What is left out makes the next part take its place.
    refused("without_version", "unsupported", "version is not a number", at="version", version=b"")
    refused("without_machine", "unsafe_pickle", "the facts of the machine names",
            "torch._utils._rebuild_tensor_v2", machine=b"")
    good("machine_is_none", BOTH, machine=p.pickle(p.NONE))
    good("machine_that_is_big_endian", BOTH,
         machine=p.pickle(p.dict_of((p.text("little_endian"), p.FALSE))))
    good("machine_of_cycles", BOTH, machine=p.pickle(p.EMPTY_LIST, p.put(0), p.get(0), p.APPEND))
    doubled = b"".join(p.get(i) * 2 + b"\x86" + p.put(i + 1) for i in range(60))
    good("machine_doubled_60_times", BOTH, machine=p.pickle(
        p.EMPTY_LIST, p.MARK, p.NONE, p.put(0), doubled, p.APPENDS))
    refused("machine_nests_1001_deep", "limit_exceeded", "the facts of the machine: ",
            "deeper than 1000", machine=p.pickle(p.NONE, b"\x85" * 1001))
    refused("machine_of_a_million_nones", "limit_exceeded", "the facts of the machine: ",
            "memory", "budget", machine=p.pickle(p.EMPTY_LIST, p.MARK, p.NONE * 1_000_000,
                                                 p.APPENDS))
    refused("machine_is_no_pickle", "corrupt", "the facts of the machine: ", "0xff",
            at=("machine", 2), machine=p.pickle(b"\xff"))


def add_names():
    """Only the object may name anything."""
    for part, called in (("version", "the version"), ("machine", "the facts of the machine"),
                         ("keys", "the list of keys")):
        for label, body, shown in (
                ("a_name", p.name("builtins", "dict"), "builtins.dict"),
                ("a_call", p.call(p.name("posix", "system"), p.text("id")), "posix.system"),
                ("a_stack_name", p.stack_name("os", "system"), "os.system"),
                ("an_instance", p.MARK + b"iposix\nsystem\n", "posix.system")):
            refused(f"{part}_has_{label}", "unsafe_pickle", called, shown, "nothing was run",
                    **{part: p.pickle(body)})
        refused(f"{part}_has_an_extension", "unsafe_pickle", called, "EXT1",
                at=(part, 2), **{part: p.pickle(b"\x82\x01")})
    system = p.name("posix", "system")
    places = {"a_call": p.call(system, p.text("id")),
              "a_storage_type": p.tensor(storage(kind=system)),
              "a_module": p.tuple_of(p.text("module"), system, p.text("f"), p.text("s")) +
              p.PERSID,
              "a_module_that_is_called": p.tuple_of(
                  p.text("module"), system, p.text("f"), p.text("s")) + p.PERSID +
              p.tuple_of(p.text("id")) + p.REDUCE}
    for label, body in places.items():
        data = with_object(FIRST, SECOND, (p.text("x"), body))
        refused(f"harm_by_{label}", "unsafe_pickle", "the object: ", "posix.system",
                "nothing was run", at=("object", data.index(system)), object=data)
    good("harm_behind_the_end", BOTH, tail=p.pickle(p.call(system, p.text("id"))))
    source = p.text("import os; os.system('id')")
    module = lambda *fields: p.tuple_of(p.text("module"), *fields) + p.PERSID
    net = module(p.name("models", "Net"), p.text("net.py"), source)
    state = p.dict_of(FIRST, SECOND)
    good("module_with_source", BOTH, object=p.pickle(net, p.EMPTY_TUPLE, p.NEWOBJ, state, p.BUILD))
    for label, body in (("of_text", module(p.text("Net"), p.text("net.py"), source)),
                        ("of_three", module(p.name("models", "Net"), p.text("net.py"))),
                        ("of_five", module(p.name("models", "Net"), p.NONE, p.NONE, p.NONE))):
        refused(f"module_{label}", "unsafe_pickle", "the object: ", "NEWOBJ", "named global",
                object=p.pickle(body, p.EMPTY_TUPLE, p.NEWOBJ, state, p.BUILD))


def add_ids():
    """References to storages."""
    def bad(name, source, *words, code="corrupt"):
        refused(f"id_{name}", code, 'the object: tensor "w": ', *words,
                object=with_object((p.text("w"), p.tensor(source)), SECOND))

    fields = (p.text("storage"), p.name("torch", "FloatStorage"), p.text("7"), p.text("cpu"),
              p.integer(12), p.NONE)
    for label, source in (("of_five_fields", p.tuple_of(*fields[:5]) + p.PERSID),
                          ("of_seven_fields", p.tuple_of(*fields, p.NONE) + p.PERSID),
                          ("of_nothing", p.EMPTY_TUPLE + p.PERSID), ("is_text", b"Pstorage\n"),
                          ("of_another_tag", p.tuple_of(p.text("Storage"), *fields[1:]) +
                           p.PERSID)):
        bad(label, source, "a tensor's storage is", "six fields")
    bad("of_unknown_type", storage(kind="QuuxStorage"), "storage of unknown type",
        code="unsupported")
    bad("without_type", storage(kind=p.NONE), "storage of unknown type", code="unsupported")
    bad("with_a_key_of_none", storage(key=p.NONE), "no text key")
    bad("with_a_number_for_a_key", storage(key=p.integer(7)), "no text key")
    bad("without_numel", storage(numel=p.NONE), "number of elements")
    bad("with_a_real_numel", storage(numel=p.real(12.0)), "number of elements")
    for numel in (-1, -2**63, 2**62, 2**63 - 1):
        refused(f"numel_{numel}", "corrupt", 'tensor "w": storage ', f"7 has {numel} elements",
                object=with_object((p.text("w"), p.tensor(storage(numel=numel))), SECOND))
    refused("numel_2_to_40", "corrupt", 'storage "7"', 12, 2**40, at="storages",
            object=with_object((p.text("w"), p.tensor(storage(numel=2**40))), SECOND))
    refused("numel_2_to_40_twice", "corrupt", 'storage "7"', 4 * 2**40,
            object=with_object((p.text("w"), p.tensor(storage(numel=2**40))), SECOND),
            storages=struct.pack("<q", 2**40) + A)
    refused("numel_in_two_ways", "corrupt", "first referred to", object=with_object(
        FIRST, (p.text("x"), p.tensor(storage(numel=11), shape=(11,))), SECOND))
    refused("type_in_two_ways", "corrupt", "first referred to", object=with_object(
        FIRST, (p.text("x"), p.tensor(storage(kind="IntStorage"))), SECOND))
    refused("beyond_the_storage", "corrupt", 'tensor "w"',
            object=with_object((p.text("w"), p.tensor(storage(), shape=(13,))), SECOND))
    old = p.call(p.name("torch", "FloatTensor")) + p.tuple_of(
        storage(), p.integer(0), p.integers((12,)), p.integers((1,))) + p.BUILD
    good("tensor_of_before_0_4", BOTH, object=with_object((p.text("w"), old), SECOND))
    wide = p.call(p.name("torch", "FloatTensor")) + p.tuple_of(
        storage(), p.integer(0), p.integers((13,)), p.integers((1,))) + p.BUILD
    refused("tensor_of_before_0_4_beyond", "corrupt", 'tensor "w"',
            object=with_object((p.text("w"), wide), SECOND))
    python_2 = lambda text: b"U" + bytes([len(text)]) + text
    old_id = p.tuple_of(python_2(b"storage"), p.name("torch", "FloatStorage"), python_2(b"7"),
                        python_2(b"cpu"), p.integer(12), p.NONE) + p.PERSID
    good("written_by_python_2", BOTH,
         object=with_object((python_2(b"w"), p.tensor(old_id)), SECOND),
         keys=p.pickle(p.list_of(python_2(b"7"), python_2(b"8"))))
    good("key_twice", {"w": A[16:32], "bias": B}, object=with_object(
        FIRST, (p.text("w"), p.tensor(storage(), offset=4, shape=(4,))), SECOND))


def add_views():
    """Parts of storages, as torch before 0.4 had them."""
    part = lambda of, **tensor: p.tensor(storage(view=of), **{"shape": (4,), **tensor})
    make = lambda *bodies: with_object(*((p.text(f"w{i}"), body)
                                         for i, body in enumerate(bodies)), SECOND)
    good("view", {"w0": A[8:24], "w1": A[12:16], "bias": B},
         object=make(part(view()), part(view(), offset=1, shape=(1,))))
    good("view_of_all", {"w0": A, "bias": B}, object=make(part(view("9", 0, 12), shape=(12,))))
    good("view_of_nothing", {"w0": b"", "bias": B}, object=make(part(view("9", 12, 0), shape=(0,))))
    for label, bodies, words in (
            ("left", [part(view(), shape=(5,))], ["leaves the view of 4 elements"]),
            ("left_by_offset", [part(view(), offset=1)], ["leaves the view of 4 elements"]),
            ("left_by_stride", [part(view(), shape=(2,), strides=(4,))], ["leaves the view"]),
            ("left_by_a_wrap", [part(view(), shape=(2, 2), strides=(2**62, 2**62))],
             ["leaves the view"]),
            ("left_by_a_far_offset", [part(view(), offset=2**63 - 1)], ["leaves the view"]),
            ("of_negative_size", [part(view("9", 0, -1))], ['view "9"', "leaves its storage"]),
            ("of_negative_offset", [part(view("9", -1, 4))], ['view "9"', "-1"]),
            ("beyond", [part(view("9", 9, 4))], ['view "9" of 4 elements', 9, 12]),
            ("beyond_by_a_wrap", [part(view("9", 2**63 - 1, 2**63 - 1))], ['view "9"', 2**63 - 1]),
            ("moved", [part(view()), part(view("9", 3, 4))], ['view "9"', "another part"]),
            ("resized", [part(view()), part(view("9", 2, 5))], ['view "9"', "another part"]),
            ("is_text", [part(p.text("9"))], ["last field", "neither None nor"]),
            ("is_a_number", [part(p.integer(2))], ["last field"]),
            ("of_two_fields", [part(p.tuple_of(p.text("9"), p.integer(2)))], ["last field"]),
            ("of_reals", [part(p.tuple_of(p.text("9"), p.real(2.0), p.integer(4)))],
             ["last field"]),
            ("without_a_key", [part(p.tuple_of(p.NONE, p.integer(2), p.integer(4)))],
             ["last field"])):
        refused(f"view_{label}", "corrupt", "the object: tensor ", *words, object=make(*bodies))
    for key in ("7", "8"):
        refused(f"view_called_as_storage_{key}", "corrupt",
                f'key "{key}" is that of a storage and of a view',
                object=make(part(view(key)), p.tensor(storage())))


def add_keys():
    keys = lambda *bodies: p.pickle(p.list_of(*bodies))
    seven, eight = p.text("7"), p.text("8")
    good("keys_in_another_order", BOTH, keys=keys(eight, seven),
         storages=struct.pack("<q", 3) + B + struct.pack("<q", 12) + A)
    refused("keys_in_a_false_order", "corrupt", 'storage "8" has 12 elements', 3, at="storages",
            keys=keys(eight, seven))
    for label, body in (("none", p.NONE), ("tuple", p.tuple_of(seven, eight)), ("text", seven),
                        ("dict", p.dict_of((seven, eight))), ("set", p.EMPTY_SET)):
        refused(f"keys_are_a_{label}", "corrupt", "not a list", at="keys", keys=p.pickle(body))
    for label, body in (("none", p.NONE), ("integer", p.integer(8)), ("list", p.list_of(eight)),
                        ("real", p.real(8.0)), ("persistent_id", eight + p.PERSID)):
        refused(f"key_is_a_{label}", "corrupt", "a key of a storage is not a text", at="keys",
                keys=keys(seven, body))
    refused("keys_lack_one", "corrupt", 'refers to storage "8"', "does not have", at="keys",
            keys=keys(seven))
    refused("keys_lack_all", "corrupt", 'refers to storage "7"', at="keys", keys=keys())
    refused("keys_have_one_more", "corrupt", 'storage "9"', "does not refer to", at="keys",
            keys=keys(seven, eight, p.text("9")))
    refused("keys_have_one_twice", "corrupt", 'storage "7" twice', at="keys",
            keys=keys(seven, seven, eight))
    refused("keys_have_control_characters", "corrupt", "\\x1B[2J", at="keys",
            keys=keys(p.text("\x1b[2J"), seven, eight))
    refused("keys_contain_themselves", "corrupt", "a key of a storage is not a text", at="keys",
            keys=p.pickle(p.EMPTY_LIST, p.put(0), p.get(0), p.APPEND))
    refused("keys_missing", "corrupt", "the list of keys: ", keys=b"")
    refused("keys_of_a_million", "limit_exceeded", "the list of keys: ", "memory", "budget",
            keys=keys(p.NONE * 1_000_000))
    good("without_storages", {}, object=p.pickle(p.EMPTY_DICT), keys=keys(), storages=b"")


def add_storages():
    whole = Stream().storages
    for count in (11, 13, 0, 48, -1, 2**61 + 12, 2**63 - 1):
        shown = count if count >= 0 else 2**64 + count
        refused(f"count_of_{count}", "corrupt", 'storage "7"', shown, 12, at="storages",
                storages=struct.pack("<q", count) + whole[8:])
    refused("count_of_the_second", "corrupt", 'storage "8" has 2 elements', 3,
            at=("storages", 56), storages=whole[:56] + struct.pack("<q", 2) + B)
    refused("counts_of_the_other_byte_order", "corrupt", 'storage "7"', 12 << 56, at="storages",
            storages=struct.pack(">q", 12) + A + struct.pack(">q", 3) + B)
    refused("without_counts", "corrupt", 'storage "7"', 12, at="storages", storages=A + B)
    refused("a_byte_inserted", "corrupt", 'storage "7"', at="storages", storages=b"\0" + whole)
    refused("a_byte_lost", "corrupt", 'storage "8"', at=("storages", 56),
            storages=whole[:20] + whole[21:])
    refused("no_storages", "corrupt", 'storage "7" begins at byte', "truncated", at="storages",
            storages=b"")
    for label, data in (("zeros", bytes(4096)), ("a_stream", Stream().build().bytes())):
        good(f"behind_it_{label}", BOTH, tail=data)
    good("empty_storage", {"w": A, "none": b""},
         object=with_object(FIRST, (p.text("none"), p.tensor(storage("8", 0), shape=(0,)))),
         storages=struct.pack("<q", 12) + A + struct.pack("<q", 0))
    for bytes_more in range(8):  # at each distance from what is aligned
        good(f"moved_by_{bytes_more}", BOTH, machine=p.pickle(p.text("x" * bytes_more)))
    values = bytes(range(256))
    good("bool_of_any_byte", {"w": values}, keys=p.pickle(p.list_of(p.text("7"))),
         object=with_object((p.text("w"), p.tensor(storage(numel=256, kind="BoolStorage"),
                                                   shape=(256,)))),
         storages=struct.pack("<q", 256) + values)


def add_archives():
    """A stream that is an archive as well: torch reads the one, other programs the other."""
    stream = Stream().build().bytes()
    both = ("begins as a legacy torch stream and ends as a zip archive",)
    model = small()
    archive = torch_file(model)
    case("legacy/in_front_of_an_archive.pt", archive.changed(stream + archive.bytes()),
         refuse("corrupt", *both))
    case("legacy/as_the_prefix_of_an_archive.pt", torch_file(model, prefix=stream),
         refuse("corrupt", *both))
    case("legacy/in_front_of_an_archive_with_a_comment.pt",
         archive.changed(stream + torch_file(model, comment=b"made by hand").bytes()),
         refuse("corrupt", *both))
    end = b"PK\5\6" + bytes(18)
    last = Stream().storages
    refused("ends_like_an_archive", "corrupt", "the archive holds no records",
            storages=last[:-10] + end[:10], tail=end[10:])
    good("elements_like_an_end", {"w": end[:4] + A[4:], "bias": B},
         storages=last[:8] + end[:4] + last[12:])
    good("an_archive_within_elements", {"w": archive.bytes()},
         keys=p.pickle(p.list_of(p.text("7"))),
         object=with_object((p.text("w"), p.tensor(
             storage(numel=archive.size, kind="ByteStorage"), shape=(archive.size,)))),
         storages=struct.pack("<q", archive.size) + archive.bytes(), tail=bytes(70_000))


def add_damage():
    made = Stream()
    whole = made.build().bytes()
    first = len(MAGIC)
    storages = made.part("storages")
    lengths = {first + i * (len(whole) - first) // 60 for i in range(60)}
    lengths |= {made.part(part) for part in ("version", "machine", "object", "keys", "storages")}
    lengths |= {storages - 1, storages + 7, storages + 8, storages + 55, storages + 56,
                len(whole) - 1}
    for length in sorted(lengths):
        # A pickle ends where the file does; of storages it is said where each would lie.
        at = length if length < storages else None
        words = ["ends within"] if length < storages else ["storage", length, "byte"]
        case(f"legacy/cut_at_{length}.pt", z.Built().changed(whole[:length]),
             refuse("corrupt", "truncated", *words, at=at))
    for name in ("version", "machine", "object", "keys"):
        at = made.part(name)
        case(f"legacy/zeros_from_the_{name}_on.pt",
             z.Built().changed(whole[:at] + bytes(len(whole) - at)),
             refuse("corrupt", "0x00", at=at))
    # Nothing of a stream has a checksum.
    for i in range(100):
        at, bit = 14 + i * (len(whole) - 14) // 100, i % 8
        case(f"legacy/bit_{bit}_of_byte_{at}.pt",
             z.Built().changed(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1:]),
             either())


def add_cases():
    add_heads()
    add_names()
    add_ids()
    add_views()
    add_keys()
    add_storages()
    add_archives()
    add_damage()
