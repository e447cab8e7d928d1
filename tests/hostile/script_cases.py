"""TorchScript archives that lie: two pickles that each stand alone, and code that nobody runs."""

import dataclasses
import struct

import pickle_builder as p
import zip_builder as z
from catalogue import case, opens, refuse
from torch_files import IDENTITY, VERSION, floats
from zip_builder import Archive, Record

CODE = b'class M(Module):\n  __parameters__ = ["w", ]\n  __buffers__ = []\n'
W, C = floats(12), floats(12, 30.0)
BOTH = {"w": W, "constants.0": C}


def module(*attributes, module="__torch__", name="M"):
    return p.name(module, name) + p.EMPTY_TUPLE + p.NEWOBJ + p.dict_of(*attributes) + p.BUILD


ATTRIBUTE = (p.text("w"), p.tensor())


@dataclasses.dataclass
class Script:
    """What is not said otherwise is as torch.jit.save writes it."""

    data: bytes = p.pickle(module(ATTRIBUTE))
    constants: bytes = p.pickle(p.tuple_of(p.tensor()))
    code: object = CODE
    storages: dict = None
    constant_storages: dict = None
    version: bytes = VERSION
    more: tuple = ()  # further records
    without: tuple = ()
    changes: dict = dataclasses.field(default_factory=dict)  # fields of records, by name

    def build(self):
        storages = {"0": W} if self.storages is None else self.storages
        constants = {"0": C} if self.constant_storages is None else self.constant_storages
        records = [Record("data/" + key, data) for key, data in storages.items()]
        records.append(Record("data.pkl", self.data))
        if self.code is not None:
            records.append(Record("code/__torch__.py", self.code))
        records += [Record("constants/" + key, data) for key, data in constants.items()]
        records += [Record("constants.pkl", self.constants), *self.more,
                    Record("version", self.version), Record("byteorder", b"little"),
                    Record(".data/serialization_id", IDENTITY)]
        for record in records:
            for field, value in self.changes.get(record.name, {}).items():
                setattr(record, field, value)
        built = Archive([r for r in records if r.name not in self.without]).build()
        built.pickle_bytes = len(self.data) + len(self.constants)
        return built


def good(name, tensors=None, **parts):
    case(f"script/{name}.pt", Script(**parts).build(), opens(BOTH if tensors is None else tensors))


def refused(name, code, *words, at=None, **parts):
    """`at`: the record that is blamed and the byte of it."""
    built = Script(**parts).build()
    at = None if at is None else built.payload[at[0]] + at[1]
    case(f"script/{name}.pt", built, refuse(code, *words, at=at))


def add_pickles():
    good("plain")
    good("without_constants", {"w": W}, constants=p.pickle(p.EMPTY_TUPLE), constant_storages={})
    good("frozen", {"constants.0": C}, data=p.pickle(module()), storages={})
    for version in (1, 10):
        good(f"version_{version}", version=b"%d\n" % version)
    refused("version_0", "unsupported", "version 0", "lowest", 1, version=b"0\n")
    refused("version_11", "unsupported", "version 11", "highest", 10, version=b"11\n")
    refused("without_data_pkl", "not_a_checkpoint", "data.pkl", without=("data.pkl",))
    # Without it the archive is what torch.save writes, which has no modules.
    good("without_constants_pkl", {"w": W}, without=("constants.pkl",))
    refused("constants_pkl_in_capitals", "corrupt", "CONSTANTS.PKL", "but for case",
            without=("constants.pkl",), more=(Record("CONSTANTS.PKL", p.pickle(p.EMPTY_TUPLE)),))
    for part, record in (("data", "data.pkl"), ("constants", "constants.pkl")):
        whole = getattr(Script(), part)
        bad = lambda label, data, *words, code="corrupt", at=None, part=part, record=record: (
            refused(f"{part}_{label}", code, f"{record}: ", *words, **{part: data},
                    at=None if at is None else (record, at)))
        bad("without_stop", whole[:-1], "ends without a STOP", at=len(whole) - 1)
        bad("empty", b"", "ends without a STOP", at=0)
        for label, data in (("only_stop", p.STOP), ("of_nothing", p.pickle()),
                            ("of_two_values", p.pickle(p.NONE, p.NONE))):
            bad(label, data, "the pickle stops with")
        bad("with_an_open_mark", p.pickle(p.NONE, p.MARK), "the pickle stops with")
        bad("of_another_byte", p.pickle(b"\xff"), "0xff", at=2)
        bad("memo_unset", p.pickle(b"h\x63"), "memo id 99", "never set", at=2)
        bad("that_reads_on", p.pickle(module(), b"X\x0f\0\0\0"))
        bad("that_reads_to_the_end", p.pickle(b"X" + struct.pack("<I", 2**31)), "BINUNICODE", at=2)
        bad("nested_1001_deep", p.pickle(p.NONE, b"\x85" * 1001), "deeper than 1000",
            code="limit_exceeded")
        for i in range(12):
            at = i * len(whole) // 12
            bad(f"cut_at_{at}", whole[:at], "ends without a STOP")
        system = p.name("posix", "system")
        for label, body in (("called", p.call(system, p.text("id"))), ("named", system),
                            ("as_a_class", module(module="posix", name="system")),
                            ("as_a_tag", p.call(system, p.list_of(p.tensor())))):
            data = p.pickle(p.tuple_of(body))
            bad(f"harm_{label}", data, "posix.system", "nothing was run", code="unsafe_pickle",
                at=data.index(system))
        case(f"script/{part}_of_wrong_crc.pt", Script(changes={record: {"crc": 12345}}).build(),
             refuse("corrupt", f"archive/{record}", "CRC"))
        extension = p.pickle(b"\x82\x01")
        bad("extension", extension, "EXT1", code="unsafe_pickle", at=2)
    for label, body in (("reads_the_memo_of_the_first", p.get(0)),
                        ("keeps_the_key", p.put(9) + b"00" + module() + p.get(9) + p.EMPTY_TUPLE),
                        ("changes_the_first", p.get(0) + p.NONE + p.BUILD)):
        refused(f"constants_{label}", "corrupt", "constants.pkl: ", constants=p.pickle(body),
                data=p.pickle(module(ATTRIBUTE), p.put(0)))
    refused("data_stops_early", "corrupt", "data.pkl: ", "bytes before its end",
            data=p.pickle(module(), p.STOP, p.NONE))
    # The second pickle may not change what the first has made.
    for label, body in (("key", b"00" + p.text("constants") + p.NONE),
                        ("all", b"0000" + p.text("data") + p.NONE + p.text("constants") + p.NONE)):
        refused(f"constants_replace_{label}", "corrupt", "constants.pkl: ", "POP",
                constants=p.pickle(body))


def add_code():
    """Code is looked at for its lists of names, and never run."""
    for label, code in (("missing", None), ("empty", b""), ("of_zeros", bytes(1000)),
                        ("that_harms", CODE + b"import os\nos.system('id')\n"),
                        ("not_utf8", b"\xff" * 1000),
                        ("unclosed", b'class M(Module):\n  __parameters__ = ["w, '),
                        ("without_lists", b"class M(Module):\n  pass\n"),
                        ("of_one_class_a_million_times", b"class M:\n" * 1_000_000),
                        ("of_a_million_names", b"class M:\n  __buffers__ = [" +
                         b'"x",' * 1_000_000 + b"]\n")):
        good(f"code_{label}", code=code)
    packed = lambda **fields: {"code/__torch__.py": {"method": 8, **fields}}
    good("code_deflated", changes=packed())
    own = "archive/code/__torch__.py"
    refused("code_crc", "corrupt", own, "CRC", changes={"code/__torch__.py": {"crc": 12345}})
    refused("code_cut", "corrupt", own, "damaged or ends early",
            changes=packed(stored=z.deflate(CODE)[:-5]))
    refused("code_larger_than_said", "corrupt", own, "inflates to more than",
            changes=packed(stored=z.deflate(bytes(1 << 20))))
    size = (64 << 20) + 1
    refused("code_of_65_MiB", "limit_exceeded", own, size, 64 << 20,
            changes=packed(data=z.Hole(size), stored=z.deflate(bytes(size))))
    half = 40 << 20
    twice = (Record("code/__torch__/a.py", z.Hole(half), method=8,
                    stored=z.deflate(bytes(half)), crc=0),
             Record("code/__torch__/b.py", z.Hole(half), method=8,
                    stored=z.deflate(bytes(half)), crc=0))
    two = p.pickle(module((p.text("a"), module(module="__torch__.a")),
                          (p.text("b"), module(module="__torch__.b"))))
    refused("code_of_twice_40_MiB", "limit_exceeded", "archive/code/__torch__/b.py", half,
            more=twice, data=two)
    for label, name in (("dots", "__torch__....etc.passwd"), ("slashes", "__torch__./etc/passwd"),
                        ("nothing", "__torch__."), ("escape", "__torch__.\x1b[2J")):
        good(f"class_of_{label}", data=p.pickle(module(ATTRIBUTE, module=name)))
    good("class_that_looks_harmful", data=p.pickle(module(ATTRIBUTE, module="__torch__.posix",
                                                          name="system")))


def add_storages():
    for label, key in (("slash", "a/0"), ("dots", "../0"), ("constants", "../constants/0")):
        for part in ("data", "constants"):
            body = p.tensor(key=key)
            data = module((p.text("w"), body)) if part == "data" else p.tuple_of(body)
            refused(f"{part}_key_with_{label}", "corrupt", "without a slash",
                    **{part: p.pickle(data)})
    refused("storage_missing", "corrupt", "archive/data/0", "does not have", storages={})
    refused("constant_missing", "corrupt", "archive/constants/0", "does not have",
            constant_storages={})
    # A constant does not lie among the storages of the module, nor the other way round.
    refused("constant_among_the_storages", "corrupt", "archive/constants/1", "does not have",
            storages={"0": W, "1": W}, constants=p.pickle(p.tuple_of(p.tensor(key="1"))))
    refused("storage_among_the_constants", "corrupt", "archive/data/1", "does not have",
            constant_storages={"0": C, "1": C},
            data=p.pickle(module((p.text("w"), p.tensor(key="1")))))
    for size in (0, 44, 52):
        refused(f"storage_of_{size}", "corrupt", "archive/data/0", size, 48,
                storages={"0": (W * 2)[:size]})
        refused(f"constant_of_{size}", "corrupt", "archive/constants/0", size, 48,
                constant_storages={"0": (W * 2)[:size]})
    refused("beyond", "corrupt", 'tensor "w"', "reaches beyond",
            data=p.pickle(module((p.text("w"), p.tensor(shape=(13,))))))
    refused("constant_beyond", "corrupt", 'tensor "constants.0"', "reaches beyond",
            constants=p.pickle(p.tuple_of(p.tensor(shape=(13,)))))
    swapped = lambda data: struct.pack(">12f", *struct.unpack("<12f", data))
    good("storages_of_the_other_byte_order", storages={"0": swapped(W)},
         constant_storages={"0": swapped(C)}, changes={"byteorder": {"data": b"big"}})
    for kind, count in (("Float8_e4m3fn", 48), ("Float8_e5m2", 48), ("UInt16", 24), ("UInt64", 6),
                        ("ComplexHalf", 12), ("Bits8", 48)):
        data = lambda size, kind=kind, count=count: p.pickle(module((p.text("w"), p.tensor(
            kind=kind + "Storage", numel=count, shape=(size,)))))
        good(f"storage_type_{kind}", data=data(count))
        refused(f"storage_type_{kind}_beyond", "corrupt", "reaches beyond", data=data(count + 1))
    for kind in ("Float3Storage", "Float8_e4m3fn", "UndefinedStorage"):
        refused(f"no_storage_type_{kind}", "unsupported", "storage of unknown type", kind,
                data=p.pickle(module((p.text("w"), p.tensor(kind=kind)))))
    # What is only called with while a model is traced is not read.
    good("traced_inputs", more=(Record("traced_inputs/0", b""),
                                Record("traced_inputs.pkl", b"\x80\x02cposix\nsystem\n.")))
    good("bytecode", more=(Record("bytecode.pkl", b"\xff" * 100),))
    good("extra_files", more=(Record("extra/config.json", b"{"), Record("extra/x.pkl", b"\xff")))


def add_modules():
    wrap = lambda tag, *arguments: p.call(p.name("torch.jit._pickle", tag), *arguments)
    lists = p.list_of(p.tensor())
    for tag in ("restore_type_tag", "build_tensorlist", "build_intlist", "build_doublelist",
                "build_boollist"):
        good(f"{tag}", {"l.0": W, "constants.0": C},
             data=p.pickle(module((p.text("l"), wrap(tag, lists)))))
        good(f"{tag}_of_nothing", {"constants.0": C}, storages={},
             data=p.pickle(module((p.text("l"), wrap(tag)))))
    good("type_tag_of_a_tensor",
         data=p.pickle(module((p.text("w"), wrap("restore_type_tag", p.tensor(), p.text("T"))))))
    nested = lists
    for _ in range(300):
        nested = wrap("restore_type_tag", nested, p.text("List[Tensor]"))
    good("type_tags_300_deep", {"l.0": W, "constants.0": C},
         data=p.pickle(module((p.text("l"), nested))))
    inner = module(ATTRIBUTE)
    for depth, add in ((400, "good"), (1001, "bad")):
        body = (p.name("__torch__", "M") + p.EMPTY_TUPLE + p.NEWOBJ + p.EMPTY_DICT +
                p.text("m")) * depth + inner + (p.SETITEM + p.BUILD) * depth
        if add == "good":
            good(f"modules_{depth}_deep", {"m." * depth + "w": W, "constants.0": C},
                 data=p.pickle(body))
        else:
            refused(f"modules_{depth}_deep", "limit_exceeded", "data.pkl: ", "deeper than 1000",
                    data=p.pickle(body))
    good("module_that_contains_itself", data=p.pickle(
        p.name("__torch__", "M"), p.EMPTY_TUPLE, p.NEWOBJ, p.put(0), p.dict_of(
            ATTRIBUTE, (p.text("self"), p.get(0))), p.BUILD))
    doubled = inner + p.put(0)
    for i in range(60):
        doubled = doubled + b"0" + module((p.text("a"), p.get(i)), (p.text("b"), p.get(i))) + p.put(
            i + 1)
    refused("modules_doubled_60_times", "limit_exceeded", "data.pkl: ", data=p.pickle(doubled))
    for label, root in (("none", p.NONE), ("text", p.text("x")), ("dict", p.EMPTY_DICT)):
        good(f"root_is_{label}", {"constants.0": C}, storages={}, data=p.pickle(root))
    for label, root in (("none", p.NONE), ("dict", p.EMPTY_DICT), ("module", module())):
        good(f"constants_are_{label}", {"w": W}, constant_storages={}, constants=p.pickle(root))
    packed = lambda *parts: p.name("__torch__.torch.classes.quantized",
                                   "LinearPackedParamsBase") + p.EMPTY_TUPLE + p.NEWOBJ + (
        p.tuple_of(*parts) + p.BUILD)
    good("packed_parameters", {"p.0": W, "constants.0": C},
         data=p.pickle(module((p.text("p"), packed(p.tensor(), p.NONE)))))
    good("attributes_of_one_name_in_two_classes", {"w": W, "m.w": W, "constants.0": C},
         data=p.pickle(module(ATTRIBUTE, (p.text("m"), module(ATTRIBUTE, name="N")))))
    sparse = lambda *arguments: p.pickle(module((p.text("w"), p.call(
        p.name("torch._utils", "_rebuild_sparse_tensor"), *arguments))))
    size, part = p.integers((3, 4)), p.tensor()
    good("sparse", {"w.3": W, "w.4": W, "constants.0": C},
         data=sparse(p.integer(1), size, p.FALSE, part, part, p.HOOKS))
    for label, arguments in (("without_values", (p.integer(1), size, p.FALSE, part, p.HOOKS)),
                             ("without_indices", (p.integer(1), size, p.FALSE, p.NONE, part,
                                                  p.HOOKS)),
                             ("csr_of_two", (p.integer(2), size, p.FALSE, part, part, p.HOOKS)),
                             ("without_flag", (p.integer(1), size, p.NONE, part, part, p.HOOKS))):
        refused(f"sparse_{label}", "corrupt", "_rebuild_sparse_tensor", "no indices and values",
                data=sparse(*arguments))
    refused("sparse_of_negative_size", "corrupt", "size or stride is -3",
            data=sparse(p.integer(1), p.integers((-3, 4)), p.FALSE, part, part, p.HOOKS))


def add_cases():
    add_pickles()
    add_code()
    add_storages()
    add_modules()
