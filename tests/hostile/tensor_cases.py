"""Tensors whose numbers lie: alone in a file, and as one of a hundred good ones."""

import struct

import pickle_builder as p
from catalogue import case, opens, refuse
from torch_files import Model, floats, many, model_of, pickle_file, torch_file

GOOD = {"offset": 0, "shape": (3, 4), "strides": (4, 1), "numel": 12, "kind": "FloatStorage"}


def files(**lies):
    """The same lie twice: alone, and as number 50 of a hundred. Each with the tensor's name."""
    numbers = {**GOOD, **lies}
    source = lambda key: p.Storage(key, numbers["numel"], numbers["kind"])
    tensor = (numbers["offset"], numbers["shape"], numbers["strides"])
    alone = model_of(p.pickled({"w": p.Tensor(source("0"), *tensor)}))

    def change(i, arguments):
        if i == 50:
            arguments[:] = source("50"), *tensor

    return (("alone", torch_file(alone), "w"), ("among", torch_file(many(100, change)),
                                                "layers.50.weight"))


def refused(name, *words, code="corrupt", named=True, **lies):
    for kind, built, tensor in files(**lies):
        more = [f'tensor "{tensor}"'] if named else []
        case(f"tensors/{name}_{kind}.pt", built, refuse(code, *more, *words))


def good(name, data, **lies):
    for kind, built, tensor in files(**lies):
        tensors = {tensor: data}
        if kind == "among":
            tensors = {**many().tensors, **tensors}
        case(f"tensors/{name}_{kind}.pt", built, opens(None if data is None else tensors))


def add_bounds():
    beyond = lambda name, **lies: refused(f"beyond_{name}", "reaches beyond its storage",
                                          "48 bytes", *(f"{value}" for value in lies.values()
                                                        if isinstance(value, int)), **lies)
    beyond("by_an_element", shape=(13,), strides=(1,))
    beyond("by_a_row", shape=(4, 4))
    beyond("by_the_offset", offset=1)
    beyond("by_a_stride", strides=(5, 1))
    beyond("by_the_last_stride", shape=(3, 4), strides=(4, 2))
    beyond("from_outside", offset=12, shape=(1,), strides=(1,))
    beyond("by_a_scalar", offset=12, shape=(), strides=())
    beyond("by_1_TiB", shape=(2**38,), strides=(1,))
    beyond("wraps_to_0", shape=(2**32, 2**32), strides=(2**32, 1))
    beyond("wraps_to_48", shape=(2**62 + 12,), strides=(1,))
    beyond("wraps_64_bits_in_bytes", shape=(2**62,), strides=(1,))
    beyond("wraps_63_bits", shape=(2**63 - 1,), strides=(1,))
    beyond("many_dims_wrap", shape=(2**16,) * 4, strides=(2**48, 2**32, 2**16, 1))
    beyond("five_dims_wrap", shape=(2**13,) * 5, strides=(1,) * 5)
    beyond("offset_2_to_62", offset=2**62, shape=(12,), strides=(1,))
    beyond("offset_2_to_63", offset=2**63 - 1, shape=(1,), strides=(1,))
    beyond("offset_wraps", offset=2**62 - 12, shape=(12,), strides=(1,))
    beyond("stride_2_to_62", shape=(2, 2), strides=(2**62, 1))
    beyond("stride_2_to_63", shape=(2,), strides=(2**63 - 1,))
    beyond("stride_times_size_wraps", shape=(5,), strides=(2**62,))
    beyond("sum_of_extents_wraps", shape=(2, 2), strides=(2**62, 2**62))
    beyond("sum_of_four_wraps", shape=(2, 2, 2, 2), strides=(2**60,) * 4)
    for dtype, size in (("ByteStorage", 1), ("DoubleStorage", 8), ("ComplexDoubleStorage", 16)):
        count = 48 // size
        refused(f"beyond_in_{dtype}", "reaches beyond its storage", "48 bytes", count + 1,
                kind=dtype, numel=count, shape=(count + 1,), strides=(1,))
        good(f"fits_in_{dtype}", None, kind=dtype, numel=count, shape=(count,), strides=(1,))
    for position, shape in enumerate(((-1, 4), (3, -4))):
        refused(f"negative_size_{position}", "has size", min(shape), f"dimension {position}",
                shape=shape)
    for position, strides in enumerate(((-4, 1), (4, -1))):
        refused(f"negative_stride_{position}", "has stride", min(strides), f"dimension {position}",
                strides=strides)
    refused("two_negative_sizes", "has size -3 in dimension 0", shape=(-3, -4))
    refused("size_of_minus_2_to_63", "has size", -2**63, shape=(-2**63, 1))
    refused("negative_offset", "storage offset", -1, named=False, offset=-1)
    refused("offset_of_minus_2_to_63", "storage offset", -2**63, named=False, offset=-2**63)
    refused("shape_longer_than_strides", "size", "strides", 3, 2, named=False, shape=(3, 2, 2))
    refused("strides_longer_than_shape", "size", "strides", 1, 2, named=False, shape=(3,))
    for label, value, kind in (("real", 3.0, "real"), ("text", "3", "string"),
                               ("none", None, "none"), ("big", 2**64, "big"),
                               ("tuple", (3,), "tuple"),
                               ("list", [3], "list"), ("bool", True, "bool")):
        for field in ("shape", "strides"):
            lies = {field: (value, 4) if field == "shape" else (value, 1)}
            refused(f"{label}_in_{field}", "size or stride", kind, "integer", named=False, **lies)
        refused(f"{label}_as_offset", "storage offset is", kind, "integer", offset=value)
        refused(f"{label}_as_numel", "no number of elements", numel=value)
    for numel in (-1, -2**63):
        refused(f"numel_of_{numel}", "data/", numel, named=False, numel=numel)
    for numel in (2**63 - 1, 2**62 + 12, 2**62):  # 2^64 bytes and more
        refused(f"numel_of_{numel}", "data/", numel, named=False, numel=numel)
    refused("numel_of_2_to_61", "archive/data/", 2**63 + 12, named=False, numel=2**61 + 3)
    refused("numel_of_a_terabyte", "data/", 2**40, named=False, numel=2**38)


def add_legal():
    whole = floats(12)
    good_at = lambda first: floats(12, first)

    def view(name, cut, **lies):
        for kind, built, tensor in files(**lies):
            data = cut(good_at(50.0) if kind == "among" else whole)
            tensors = {tensor: data} if kind == "alone" else {**many().tensors, tensor: data}
            case(f"tensors/{name}_{kind}.pt", built, opens(tensors))

    pick = lambda data, *indices: b"".join(data[4 * i:4 * i + 4] for i in indices)
    view("scalar", lambda d: pick(d, 5), offset=5, shape=(), strides=())
    view("last_element", lambda d: pick(d, 11), offset=11, shape=(1,), strides=(1,))
    view("transposed", lambda d: pick(d, 0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11), shape=(4, 3),
         strides=(1, 4))
    view("expanded", lambda d: pick(d, 2) * 100, offset=2, shape=(100,), strides=(0,))
    view("size_1_with_a_huge_stride", lambda d: pick(d, 0, 1), shape=(1, 2), strides=(2**62, 1))
    view("rank_21", lambda d: pick(d, 0), shape=(1,) * 21, strides=(1,) * 21)
    view("rank_64", lambda d: pick(d, 0), shape=(1,) * 64, strides=(1,) * 64)
    refused("rank_65", "65 dimensions", "limit is 64", code="limit_exceeded", named=False,
            shape=(1,) * 65, strides=(1,) * 65)
    refused("rank_256", "256 dimensions", "limit is 64", code="limit_exceeded", named=False,
            shape=(1,) * 256, strides=(1,) * 256)
    refused("rank_of_100000", "100000 dimensions", code="limit_exceeded", named=False,
            shape=(1,) * 100_000, strides=(1,) * 100_000)
    view("overlapping", lambda d: pick(d, 0, 1, 2, 1, 2, 3), shape=(2, 3), strides=(1, 1))
    for label, shape, strides in (("empty", (0,), (1,)), ("empty_of_huge", (0, 2**40), (2**40, 1)),
                                  ("empty_of_max", (2**63 - 1, 0), (1, 1)),
                                  ("empty_with_a_huge_stride", (0,), (2**63 - 1,)),
                                  ("empty_that_wraps", (2**40, 0, 2**40), (1, 1, 1))):
        view(label, lambda d: b"", shape=shape, strides=strides)
    for offset in (12, 13, 2**40, 2**62, 2**63 - 1):
        for kind, built, tensor in files(offset=offset, shape=(0,), strides=(1,)):
            case(f"tensors/empty_at_{offset}_{kind}.pt", built, opens(
                {tensor: b""} if kind == "alone" else {**many().tensors, tensor: b""}))
    # More elements than there are bytes: a view costs nothing.
    for label, shape, strides in (("2_to_60", (2**60,), (0,)),
                                  ("2_to_50_rows", (2**50, 12), (0, 1)),
                                  ("2_to_40_twice", (2**20, 2**20), (0, 0))):
        for kind, built, _ in files(shape=shape, strides=strides):
            case(f"tensors/stride_0_of_{label}_{kind}.pt", built, opens())
    for location in ("cuda:0", "cuda:7", "meta", "mps", "", "x" * 5000, "\x1b[2J", "cpu\0"):
        body = p.one(p.tensor(location=location))
        label = "".join(c if c.isalnum() else "_" for c in location)[:20] or "none"
        case(f"tensors/location_{label}.pt", pickle_file(body), opens({"w": whole}))
    values = bytes(range(256))
    flags = p.one(p.tensor(kind="BoolStorage", numel=256, shape=(256,)))
    case("tensors/bool_of_any_byte.pt", pickle_file(flags, {"0": values}), opens({"w": values}))
    case("tensors/half_storage_of_an_odd_size.pt",
         pickle_file(p.one(p.tensor(kind="HalfStorage", numel=2, shape=(2,))), {"0": b"12345"}),
         opens({"w": b"1234"}))
    for size, label in ((1023, "1023"), (1024, "1024")):
        state = {f"t{i}": p.Tensor(p.Storage("0", 12, location=f"cuda:{i}"), 0, (3, 4), (4, 1))
                 for i in range(size + 1)}
        built = torch_file(Model(p.pickled(state), {"0": whole}, {}))
        case(f"tensors/locations_{label}_and_one.pt", built,
             opens({name: whole for name in state}) if size == 1023
             else refuse("limit_exceeded", "more than 1024 locations"))


def add_arguments():
    """Calls of torch's functions with other arguments than torch writes."""
    def bad(name, body, *words, code="corrupt"):
        case(f"tensors/{name}.pt", pickle_file(p.one(body)), refuse(code, *words))

    def fine(name, body, tensors=None):
        case(f"tensors/{name}.pt", pickle_file(p.one(body)), opens(tensors))

    for label, source in (("none", p.NONE), ("integer", p.integer(0)), ("tuple", p.EMPTY_TUPLE),
                          ("dict", p.EMPTY_DICT), ("global", p.name("torch", "FloatStorage")),
                          ("tensor", p.tensor()), ("text", p.text("0"))):
        bad(f"storage_is_{label}", p.tensor(source), "a tensor's storage is", "persistent id")
    for label, pid in (("none", p.NONE), ("integer", p.integer(0)), ("text", p.text("0")),
                       ("empty", p.EMPTY_TUPLE), ("list", p.EMPTY_LIST),
                       ("four", p.MARK + p.text("storage") + p.name("torch", "FloatStorage") +
                        p.text("0") + p.text("cpu") + b"t"),
                       ("six", p.MARK + p.text("storage") + p.name("torch", "FloatStorage") +
                        p.text("0") + p.text("cpu") + p.integer(12) + p.NONE + b"t"),
                       ("module", p.tuple_of(p.text("module"), p.name("torch", "FloatStorage"),
                                             p.text("0"), p.text("cpu"), p.integer(12)))):
        bad(f"persistent_id_{label}", p.tensor(pid + p.PERSID), "storage", "persistent id")
    for label, kind in (("text", p.text("FloatStorage")), ("none", p.NONE),
                        ("integer", p.integer(1))):
        bad(f"storage_type_is_{label}", p.tensor(kind=kind), "storage of unknown type",
            code="unsupported")
    for label, module, kind in (("unknown", "torch", "QuuxStorage"), ("tensor", "torch", "Tensor"),
                                ("foreign", "mine", "FloatStorage"),
                                ("dtype", "torch", "float32"),
                                ("dotted", "torch", "FloatStorage.__class__"),
                                ("escape", "torch\x1b[2J", "FloatStorage")):
        bad(f"storage_type_{label}", p.tensor(module=module, kind=kind),
            "storage of unknown type", code="unsupported")
    for label, key in (("none", p.NONE), ("integer", p.integer(0)), ("bytes", b"C\x010"),
                       ("tuple", p.EMPTY_TUPLE)):
        bad(f"storage_key_is_{label}", p.tensor(key=key), "storage")
    for label, location in (("none", p.NONE), ("integer", p.integer(0))):
        # Whoever loads it to a place of his own choice, as torch does with map_location, never
        # looks at this.
        fine(f"location_is_{label}", p.tensor(location=location), {"w": floats(12)})
    for label, shape in (("list", p.list_of(p.integer(12))), ("none", p.NONE),
                         ("integer", p.integer(12)), ("text", p.text("12"))):
        bad(f"shape_is_{label}", p.tensor(shape=shape, strides=(1,)), "sizes")
        bad(f"strides_are_{label}", p.tensor(shape=(12,), strides=shape), "strides")
    fine("shape_is_a_torch_size", p.tensor(shape=p.call(p.name("torch", "Size"),
                                                        p.tuple_of(p.integer(12))), strides=(1,)),
         {"w": floats(12)})
    for label, flag in (("none", p.NONE), ("integer", p.integer(1)), ("text", p.text("x"))):
        bad(f"requires_grad_is_{label}", p.tensor(requires_grad=flag), "requires_grad")
    for label, hooks in (("called", p.call(p.name("mine", "hook"))),
                         ("filled", p.HOOKS + p.MARK + p.integer(0) + p.name("a", "b") +
                          p.SETITEMS),
                         ("of_pairs", p.call(p.name("collections", "OrderedDict"),
                                             p.list_of(p.tuple_of(p.integer(0), p.NONE)))),
                         ("list", p.EMPTY_LIST), ("state", p.HOOKS + p.EMPTY_DICT + p.BUILD),
                         ("filled_dict", p.dict_of((p.NONE, p.NONE)))):
        bad(f"hooks_{label}", p.tensor(hooks=hooks), "hooks", code="unsafe_pickle")
    arguments = (p.storage(), p.integer(0), p.integers((3, 4)), p.integers((4, 1)), p.FALSE,
                 p.HOOKS)
    for count in range(6):
        bad(f"with_{count}_arguments", p.call(p.REBUILD, *arguments[:count]), "tensor")
    bad("with_8_arguments", p.call(p.REBUILD, *arguments, p.NONE, p.NONE), "8 arguments")
    v3 = p.name("torch._utils", "_rebuild_tensor_v3")
    untyped = {"kind": "UntypedStorage", "module": "torch.storage", "numel": 48}
    for label, dtype in (("none", p.NONE), ("text", p.text("float32")),
                         ("integer", p.integer(6)), ("foreign", p.name("mine", "float32"))):
        bad(f"dtype_is_{label}", p.tensor(function=v3, more=(dtype,), **untyped), "dtype")
    # A newer torch may have it.
    for name in ("float33", "add"):
        bad(f"dtype_is_{name}", p.tensor(function=v3, more=(p.name("torch", name),), **untyped),
            f"unknown dtype torch.{name}", code="unsupported")
    bad("dtype_missing", p.tensor(function=v3, **untyped), "dtype")
    for dtype, count in (("uint16", 24), ("uint32", 12), ("uint64", 6), ("complex32", 12),
                         ("float8_e4m3fn", 48), ("bits16", 24)):
        make = lambda n: p.tensor(function=v3, more=(p.name("torch", dtype),), shape=(n,),
                                  **untyped)
        fine(f"fits_as_{dtype}", make(count), {"w": floats(12)})
        bad(f"beyond_as_{dtype}", make(count + 1), 'tensor "w"', "reaches beyond")
    bad("dtype_larger_than_the_bytes", p.call(
        v3, p.storage(kind="UntypedStorage", module="torch.storage", numel=48), p.integer(0),
        p.integers((12,)), p.integers((1,)), p.FALSE, p.HOOKS, p.name("torch", "complex128")),
        'tensor "w"', "reaches beyond")
    add_wrappers(bad, fine, arguments)
    for label, second in (("more", {"numel": 13}), ("less", {"numel": 11, "shape": (11,)}),
                          ("other_type", {"kind": "IntStorage"}),
                          ("as_bytes", {"kind": "ByteStorage", "numel": 48, "shape": (48,)})):
        both = p.pickle(p.dict_of((p.text("a"), p.tensor()), (p.text("b"), p.tensor(**second))))
        case(f"tensors/storage_twice_{label}.pt", pickle_file(both),
             refuse("corrupt", "storage data/0", "first referred to"))
    # A storage that no tensor lies in is one that a program asks for by itself.
    beside = lambda body: p.pickle(p.dict_of((p.text("w"), p.tensor()), (p.text("s"), body)))
    for label, of, words in (
            ("larger", {"key": "1", "numel": 13}, ['"archive/data/1"', 48, 52]),
            ("smaller", {"key": "1", "numel": 11}, ['"archive/data/1"', 48, 44]),
            ("negative", {"key": "1", "numel": -1}, ["data/1", -1]),
            ("missing", {"key": "2"}, ['"archive/data/2"', "does not have"]),
            ("a_path", {"key": "../0"}, ["without a slash"]),
            ("of_two_types", {"kind": "IntStorage"}, ["storage data/0", "first referred to"])):
        case(f"tensors/storage_alone_{label}.pt",
             pickle_file(beside(p.storage(**of)), {"0": floats(12), "1": floats(12)}),
             refuse("corrupt", *words))
    for label, of in (("right", {"key": "1"}), ("of_no_type", {"key": "2", "kind": "Quux"}),
                      ("of_a_number", {"key": p.integer(2)}), ("of_text", {"numel": p.text("9")})):
        case(f"tensors/storage_alone_{label}.pt",
             pickle_file(beside(p.storage(**of)), {"0": floats(12), "1": floats(12)}),
             opens({"w": floats(12)}))
    both = p.pickle(p.dict_of((p.text("a"), p.tensor()), (p.text("b"), p.tensor(shape=(12,)))))
    case("tensors/storage_twice_the_same.pt", pickle_file(both),
         opens({"a": floats(12), "b": floats(12)}))


def add_wrappers(bad, fine, arguments):
    tensor_type = p.name("torch", "Tensor")
    from_type = p.name("torch._tensor", "_rebuild_from_type_v2")
    parameter = p.name("torch._utils", "_rebuild_parameter")
    inner = p.MARK + b"".join(arguments) + b"t"
    fine("from_type", p.call(from_type, p.REBUILD, tensor_type, inner, p.EMPTY_DICT),
         {"w": floats(12)})
    for label, function in (("none", p.NONE), ("text", p.text("f")), ("tensor", p.tensor()),
                            ("integer", p.integer(1))):
        bad(f"from_type_of_{label}", p.call(from_type, function, tensor_type, inner, p.EMPTY_DICT),
            "_rebuild_from_type_v2")
    for count in (0, 1, 2, 3):
        bad(f"from_type_with_{count}", p.call(from_type, *(p.REBUILD, tensor_type, inner)[:count]),
            "_rebuild_from_type_v2")
    for label, body in (("list", p.EMPTY_LIST), ("none", p.NONE)):
        bad(f"from_type_with_{label}", p.call(from_type, p.REBUILD, tensor_type, body,
                                              p.EMPTY_DICT), "_rebuild_from_type_v2")
    bad("from_type_beyond", p.call(from_type, p.REBUILD, tensor_type, p.MARK + b"".join(
        (p.storage(), p.integer(1), *arguments[2:])) + b"t", p.EMPTY_DICT), 'tensor "w"',
        "reaches beyond")
    for key in ("data", "grad", "__class__", "__dict__"):
        bad(f"from_type_sets_{key}", p.call(from_type, p.REBUILD, tensor_type, inner, p.dict_of(
            (p.text(key), p.integer(1)))), key, code="unsafe_pickle")
    fine("parameter", p.call(parameter, p.tensor(), p.TRUE, p.HOOKS), {"w": floats(12)})
    for label, body in (("none", p.NONE), ("list", p.EMPTY_LIST), ("storage", p.storage())):
        bad(f"parameter_of_{label}", p.call(parameter, body, p.TRUE, p.HOOKS), "_rebuild_parameter")
    for count in (0, 1, 2):
        bad(f"parameter_with_{count}", p.call(parameter, *(p.tensor(), p.TRUE)[:count]),
            "_rebuild_parameter")
    bad("parameter_beyond", p.call(parameter, p.tensor(shape=(13,)), p.TRUE, p.HOOKS), 'tensor "w"',
        "reaches beyond")
    nested = p.tensor()
    for _ in range(300):
        nested = p.call(parameter, nested, p.TRUE, p.HOOKS)
    fine("parameters_of_parameters", nested, {"w": floats(12)})
    qtensor = p.name("torch._utils", "_rebuild_qtensor")
    scheme = p.tuple_of(p.name("torch", "per_tensor_affine"), p.real(0.5), p.integer(3))
    quantized = lambda n, stride=1: p.call(
        qtensor, p.storage(kind="QInt8Storage", numel=48), p.integer(0), p.integers((n,)),
        p.integers((stride,)), scheme, p.FALSE, p.HOOKS)
    fine("quantized", quantized(48), {"w": floats(12)})
    bad("quantized_beyond", quantized(49), 'tensor "w"', "reaches beyond")
    bad("quantized_beyond_by_stride", quantized(48, 2), 'tensor "w"', "reaches beyond")
    bad("quantized_negative_stride", quantized(48, -1), 'tensor "w"', "stride -1")
    for label, size in (("2_to_62", 2**62), ("2_to_63", 2**63 - 1)):
        bad(f"quantized_of_{label}", quantized(size), 'tensor "w"', "reaches beyond")
    sparse = p.call(p.name("torch._utils", "_rebuild_sparse_tensor"), p.name("torch", "sparse_coo"),
                    p.tuple_of(p.tensor(shape=(13,)), p.tensor(), p.integers((3, 4))))
    bad("tensor_beyond_in_a_sparse_one", sparse, "tensor", "reaches beyond")


def add_many():
    state = {f"v{i}": p.Tensor(p.Storage("0", 12), 0, (12,), (1,)) for i in range(20_000)}
    case("tensors/20000_views.pt",
         torch_file(Model(p.pickled(state), {"0": floats(12)}, {})),
         opens({name: floats(12) for name in state}))
    base = p.Tensor(p.Storage("0", 12), 0, (1,) * 60, (1,) * 60)
    case("tensors/60_dimensions_20000_times.pt",
         torch_file(Model(p.pickled([base] * 20_000), {"0": floats(12)}, {})),
         opens({str(i): floats(1) for i in range(20_000)}))
    for big in (True, False):
        swapped = struct.pack(">12f", *struct.unpack("<12f", floats(12)))
        case(f"tensors/byteorder_{'big' if big else 'little'}.pt",
             pickle_file(p.one(p.tensor()), {"0": swapped if big else floats(12)},
                         changes={"byteorder": {"data": b"big" if big else b"little"}}),
             opens({"w": floats(12)}))


def add_cases():
    add_bounds()
    add_legal()
    add_arguments()
    add_many()
