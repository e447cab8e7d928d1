"""Tensors of several parts, and arrays, whose calls cannot be meant: sparse, nested, quantized,
meta, and those of other classes."""

import struct

import pickle_builder as p
from catalogue import case, opens, refuse
from torch_files import floats, pickle_file

W = floats(12)
PART = p.tensor()
BEYOND = p.tensor(shape=(13,))
SIZE = p.integers((3, 4))
OPAQUE = p.call(p.name("mine", "Thing"))


def call(function, *arguments, module="torch._utils"):
    return p.call(p.name(module, function), *arguments)


def layout(name):
    return p.call(p.name("torch.serialization", "_get_layout"), p.text(f"torch.{name}"))


def dtype(name="float32"):
    return p.name("torch", name)


def good(name, body, parts=None, **file):
    """`parts`: what is listed below "w"; all of it has the same bytes."""
    tensors = {part: W for part in parts} if parts is not None else None
    case(f"composed/{name}.pt", pickle_file(p.one(body), **file), opens(tensors))


def refused(name, body, *words, code="corrupt", **file):
    case(f"composed/{name}.pt", pickle_file(p.one(body), **file), refuse(code, 'tensor "w', *words))


def add_sparse():
    rebuild = lambda *arguments: call("_rebuild_sparse_tensor", *arguments)
    layouts = (("sparse_coo", 2), ("sparse_csr", 3), ("sparse_csc", 3), ("sparse_bsr", 3),
               ("sparse_bsc", 3))
    for name, count in layouts:
        parts = [PART] * count
        made = lambda *pieces, name=name: rebuild(layout(name), p.tuple_of(*pieces))
        names = [f"w.1.{i}" for i in range(count)]
        good(name, made(*parts, SIZE), names)
        # Whether indices lie within the shape is not looked at.
        good(f"{name}_of_a_false_size", made(*parts, p.integers((2**62, 2**62))), names)
        good(f"{name}_of_a_size_in_a_list", made(*parts, p.list_of(p.integer(3))), names)
        no_parts = ("_rebuild_sparse_tensor", f"no indices, values and size for {name}")
        refused(f"{name}_of_nothing", made(), *no_parts)
        refused(f"{name}_without_size", made(*parts), *no_parts)
        refused(f"{name}_without_values", made(*parts[1:], SIZE), *no_parts)
        refused(f"{name}_of_five_parts", made(*parts, SIZE, p.NONE, p.NONE), *no_parts)
        for label, other in (("none", p.NONE), ("text", p.text("x")), ("list", p.EMPTY_LIST),
                             ("storage", p.storage()), ("global", dtype())):
            refused(f"{name}_with_{label}_for_indices", made(other, *parts[1:], SIZE), *no_parts)
            refused(f"{name}_with_{label}_for_values", made(*parts[1:], other, SIZE), *no_parts)
        for label, size in (("none", p.NONE), ("integer", p.integer(12)), ("text", p.text("12")),
                            ("dict", p.EMPTY_DICT), ("tensor", PART)):
            refused(f"{name}_with_{label}_for_size", made(*parts, size), "no tuple")
        for label, dim, shown in (("negative", p.integer(-1), "-1"), ("real", p.real(3.0), "real"),
                                  ("none", p.NONE, "none"), ("text", p.text("3"), "string"),
                                  ("2_to_63", p.integer(2**63), "big")):
            refused(f"{name}_of_{label}_size", made(*parts, p.tuple_of(dim, p.integer(1))),
                    "size or stride is", shown)
        refused(f"{name}_of_rank_65", made(*parts, p.integers((1,) * 65)), "65 dimensions",
                "limit is 64", code="limit_exceeded")
        for i in range(count):
            pieces = [BEYOND if i == j else PART for j in range(count)]
            refused(f"{name}_beyond_in_part_{i}", made(*pieces, SIZE), f"w.1.{i}", "reaches beyond")
    coo = layout("sparse_coo")
    pieces = p.tuple_of(PART, PART, SIZE)
    for label, arguments in (("nothing", ()), ("a_layout", (coo,)), ("a_list", (coo, p.EMPTY_LIST)),
                             ("none", (coo, p.NONE)), ("a_text", (coo, p.text("x")))):
        refused(f"sparse_of_{label}", rebuild(*arguments), "_rebuild_sparse_tensor",
                "expected a layout and a tuple")
    for label, other in (("later", layout("sparse_later")), ("strided", layout("strided")),
                         ("text", p.text("torch.sparse_coo")), ("none", p.NONE),
                         ("called_with_two", p.call(p.name("torch.serialization", "_get_layout"),
                                                    p.text("torch.sparse_coo"), p.NONE)),
                         ("of_a_list", p.call(p.name("torch.serialization", "_get_layout"),
                                              p.EMPTY_LIST)),
                         ("global", p.name("torch", "sparse_coo"))):
        # Nothing is said of a layout that is not known; its tensors are there.
        good(f"layout_{label}", rebuild(other, pieces), ["w.1.0", "w.1.1"])
    for label, flag in (("none", p.NONE), ("integer", p.integer(7)), ("text", p.text("x"))):
        good(f"coalesced_is_{label}", rebuild(coo, p.tuple_of(PART, PART, SIZE, flag)),
             ["w.1.0", "w.1.1"])
    # Another number of arguments is how TorchScript writes it.
    script = lambda *arguments: rebuild(*arguments, p.HOOKS)
    good("script_layout_3", script(p.integer(3), SIZE, p.FALSE, PART), ["w.3"])
    for number, count in ((1, 2), (2, 3), (4, 3), (5, 3), (6, 3)):
        parts = [PART] * count
        words = ("_rebuild_sparse_tensor", "no indices and values")
        good(f"script_layout_{number}", script(p.integer(number), SIZE, p.TRUE, *parts),
             [f"w.{3 + i}" for i in range(count)])
        refused(f"script_layout_{number}_of_more",
                script(p.integer(number), SIZE, p.TRUE, *parts, PART), *words)
        refused(f"script_layout_{number}_of_less",
                script(p.integer(number), SIZE, p.TRUE, *parts[1:]), *words)
        refused(f"script_layout_{number}_without_size",
                script(p.integer(number), p.NONE, p.TRUE, *parts), "no tuple")
    for label, module, kind in (("sparse_class", "torch.sparse", "FloatTensor"),
                                ("cuda_sparse_class", "torch.cuda.sparse", "FloatTensor")):
        good(label, p.call(p.name(module, kind), PART), ["w.0"])


def add_nested():
    nested = lambda *arguments: call("_rebuild_nested_tensor", *arguments)
    good("nested", nested(PART, PART, PART, PART), [f"w.{i}" for i in range(4)])
    for count in (0, 1, 3, 5):
        refused(f"nested_of_{count}", nested(*[PART] * count), "_rebuild_nested_tensor",
                "expected four tensors")
    for i in range(4):
        pieces = lambda other, i=i: [other if i == j else PART for j in range(4)]
        refused(f"nested_without_part_{i}", nested(*pieces(p.NONE)), "expected four tensors")
        refused(f"nested_beyond_in_part_{i}", nested(*pieces(BEYOND)), f"w.{i}", "reaches beyond")
    inner = PART
    for _ in range(200):
        inner = nested(inner, PART, PART, PART)
    good("nested_200_deep", inner)
    shared = nested(PART, PART, PART, PART) + p.put(0)
    for i in range(60):
        shared = shared + b"0" + nested(*[p.get(i)] * 4) + p.put(i + 1)
    case("composed/nested_doubled_60_times.pt", pickle_file(p.one(shared)),
         refuse("limit_exceeded", "data.pkl: "))


def add_quantized():
    def quantized(*scheme, shape=(48,), **more):
        return call("_rebuild_qtensor", p.storage(kind="QInt8Storage", numel=48), p.integer(0),
                    p.integers(shape), p.integers(p.row_major(shape)),
                    more.get("raw", p.tuple_of(*scheme)), p.FALSE, p.HOOKS)

    tensor_wise, channel_wise = dtype("per_tensor_affine"), dtype("per_channel_affine")
    scale, zero = p.real(0.5), p.integer(3)
    good("quantized", quantized(tensor_wise, scale, zero), ["w"])
    for label, value in (("nan", float("nan")), ("infinity", float("inf")), ("minus_1", -1.0),
                         ("0", 0.0)):
        good(f"quantized_by_scale_{label}", quantized(tensor_wise, p.real(value), zero), ["w"])
    for label, value in (("2_to_63", 2**63 - 1), ("minus_2_to_63", -2**63)):
        good(f"quantized_by_zero_{label}", quantized(tensor_wise, scale, p.integer(value)), ["w"])
    no_scheme = ("_rebuild_qtensor", "no scheme with scale and zero point")
    for label, body in (
            ("nothing", quantized()), ("none", quantized(raw=p.NONE)),
            ("a_list", quantized(raw=p.list_of(tensor_wise, scale, zero))),
            ("a_name", quantized(tensor_wise)), ("no_zero", quantized(tensor_wise, scale)),
            ("four", quantized(tensor_wise, scale, zero, zero)),
            ("a_text", quantized(p.text("per_tensor_affine"), scale, zero)),
            ("a_number", quantized(p.integer(1), scale, zero)),
            ("another_name", quantized(dtype("per_row_affine"), scale, zero)),
            ("another_module", quantized(p.name("mine", "per_tensor_affine"), scale, zero)),
            ("an_integer_scale", quantized(tensor_wise, p.text("0.5"), zero)),
            ("a_real_zero", quantized(tensor_wise, scale, p.real(3.0))),
            ("a_tensor_scale", quantized(tensor_wise, PART, zero)),
            ("channels_of_three", quantized(channel_wise, PART, PART)),
            ("channels_of_five", quantized(channel_wise, PART, PART, p.integer(0), p.NONE)),
            ("channels_without_axis", quantized(channel_wise, PART, PART, p.NONE)),
            ("channels_of_a_real_axis", quantized(channel_wise, PART, PART, p.real(0.0)))):
        refused(f"quantized_by_{label}", body, *no_scheme)
    scales = p.tensor(key="1")
    two = {"0": W, "1": W}
    channels = lambda axis, *parts, shape=(6, 8): quantized(channel_wise, *(parts or [scales] * 2),
                                                            axis, shape=shape)
    for axis in (0, 1):
        good(f"quantized_along_{axis}", channels(p.integer(axis)), ["w", "w.4.1", "w.4.2"],
             storages=two)
    for axis in (2, -1, 2**31, 2**63 - 1, -2**63):
        refused(f"quantized_along_{axis}", channels(p.integer(axis)), f"along axis {axis} of 2")
    refused("quantized_scalar_along_0", channels(p.integer(0), shape=()), "along axis 0 of 0")
    for i in range(2):
        pieces = [p.tensor(key="1", shape=(12 + (i == j),)) for j in range(2)]
        refused(f"quantized_beyond_in_part_{i}", channels(p.integer(0), *pieces),
                f"w.4.{i + 1}", "reaches beyond", storages=two)
    refused("quantized_beyond", channels(p.integer(0), shape=(7, 7)), "reaches beyond",
            storages=two)
    refused("quantized_in_the_storage_of_its_scales", channels(p.integer(0), PART, PART),
            "of float32 here and of qint8", storages=two)


def add_meta():
    meta = lambda *arguments: call("_rebuild_meta_tensor_no_storage", *arguments)
    strides = p.integers((4, 1))
    good("meta", meta(dtype(), SIZE, strides, p.FALSE), [], storages={})
    huge = p.integers((2**62, 2**62))
    good("meta_of_2_to_124", meta(dtype(), huge, huge, p.FALSE), [], storages={})
    good("meta_beside_others", p.tuple_of(meta(dtype(), SIZE, strides, p.FALSE), PART), ["w.1"])
    words = ("_rebuild_meta_tensor_no_storage", "expected a dtype")
    whole = (dtype(), SIZE, strides, p.FALSE)
    for count in range(4):
        refused(f"meta_of_{count}", meta(*whole[:count]), *words, f"{count} argument")
    refused("meta_of_five", meta(*whole, p.NONE), *words)
    for label, other in (("none", p.NONE), ("text", p.text("float32")), ("integer", p.integer(6)),
                         ("function", p.name("torch", "add")), ("foreign", p.name("x", "float32")),
                         ("class", p.name("torch", "FloatStorage"))):
        refused(f"meta_with_{label}_for_dtype", meta(other, *whole[1:]), *words)
    for label, flag in (("none", p.NONE), ("integer", p.integer(0))):
        refused(f"meta_with_{label}_for_a_flag", meta(*whole[:3], flag), *words)
    for i, what in ((1, "sizes"), (2, "strides")):
        put = lambda other, i=i: meta(*whole[:i], other, *whole[i + 1:])
        for label, other in (("none", p.NONE), ("integer", p.integer(3)), ("text", p.text("3"))):
            refused(f"meta_with_{label}_for_{what}", put(other), "no tuple")
        refused(f"meta_of_negative_{what}", put(p.integers((3, -4))), "size or stride is -4")
        refused(f"meta_of_real_{what}", put(p.tuple_of(p.integer(3), p.real(4.0))),
                "size or stride is real")
        refused(f"meta_of_rank_65_in_{what}", put(p.integers((1,) * 65)), "65 dimensions",
                code="limit_exceeded")
        refused(f"meta_of_fewer_{what}", put(p.integers((3,))), "a meta tensor has", "size",
                "stride")
    good("meta_of_a_tensor_in_its_size", meta(dtype(), p.call(p.name("torch", "Size"), SIZE),
                                              strides, p.TRUE), [], storages={})


def add_subclasses():
    subclass = lambda *arguments: call("_rebuild_wrapper_subclass", *arguments)
    kind = p.name("mine", "Wrapped")
    device = p.call(p.name("torch", "device"), p.text("cuda"), p.integer(0))
    whole = (kind, dtype(), SIZE, p.integers((4, 1)), p.integer(0), layout("strided"), device,
             p.FALSE)
    good("subclass", subclass(*whole), [], storages={})
    from_type = lambda state, made=subclass(*whole), of=kind: call(
        "_rebuild_from_type_v2", p.name("torch._utils", "_rebuild_wrapper_subclass"), of,
        p.MARK + b"".join(whole) + b"t", state, module="torch._tensor")
    good("subclass_with_state", from_type(p.dict_of((p.text("inner"), PART))), ["w.3.inner"])
    words = ("_rebuild_wrapper_subclass", "expected a class")
    for count in range(8):
        refused(f"subclass_of_{count}", subclass(*whole[:count]), *words, f"{count} argument")
    refused("subclass_of_nine", subclass(*whole, p.NONE), *words)
    put = lambda i, other: subclass(*whole[:i], other, *whole[i + 1:])
    for label, other in (("none", p.NONE), ("text", p.text("mine.Wrapped")), ("object", OPAQUE)):
        refused(f"subclass_with_{label}_for_class", put(0, other), *words)
    for label, other in (("none", p.NONE), ("text", p.text("float32")), ("function", kind)):
        refused(f"subclass_with_{label}_for_dtype", put(1, other), *words)
    refused("subclass_with_none_for_a_flag", put(7, p.NONE), *words)
    for i, what in ((2, "sizes"), (3, "strides")):
        refused(f"subclass_with_none_for_{what}", put(i, p.NONE), "no tuple")
        refused(f"subclass_of_negative_{what}", put(i, p.integers((-1, 1))), "size or stride is -1")
        refused(f"subclass_of_rank_65_in_{what}", put(i, p.integers((1,) * 65)), "65 dimensions",
                code="limit_exceeded")
    for label, other in (("none", p.NONE), ("list", p.EMPTY_LIST), ("escape", p.text("\x1b[2J"))):
        good(f"subclass_on_{label}", put(6, other), [], storages={})
    refused("subclass_with_state_beyond", from_type(p.dict_of((p.text("inner"), BEYOND))),
            "w.3.inner", "reaches beyond")
    system = p.name("posix", "system")
    case("composed/subclass_that_harms.pt", pickle_file(p.one(put(0, system))),
         refuse("unsafe_pickle", "posix.system", "nothing was run"))


def add_wrapped():
    """Wrappers around what is no dense tensor, and states of tensors."""
    stateful = lambda *arguments: call("_rebuild_parameter_with_state", *arguments)
    good("parameter_with_state", stateful(PART, p.TRUE, p.HOOKS, p.dict_of((p.text("x"), PART))),
         ["w", "w.3.x"])
    good("parameter_with_a_pair_of_states", stateful(PART, p.TRUE, p.HOOKS, p.tuple_of(
        p.dict_of((p.text("x"), PART)), p.dict_of((p.text("y"), p.NONE)))), ["w", "w.3.0.x"])
    for key in ("data", "grad", "__class__", "__dict__", "requires_grad", "_backward_hooks"):
        setting = p.dict_of((p.text(key), p.integer(1)))
        for label, state in (("", setting), ("_in_a_pair", p.tuple_of(p.NONE, setting)),
                             ("_first_of_a_pair", p.tuple_of(setting, p.NONE))):
            refused(f"parameter_sets_{key}{label}", stateful(PART, p.TRUE, p.HOOKS, state),
                    f'sets "{key}"', code="unsafe_pickle")
    pairs = p.call(p.name("collections", "OrderedDict"), p.list_of(p.tuple_of(
        p.text("data"), p.integer(1))))
    refused("parameter_with_a_state_of_pairs", stateful(PART, p.TRUE, p.HOOKS, pairs),
            'sets "data"', code="unsafe_pickle")
    for count in range(3):
        refused(f"parameter_with_state_of_{count}",
                stateful(*(PART, p.TRUE, p.HOOKS)[:count]), "_rebuild_parameter")
    device = lambda *arguments: call("_rebuild_device_tensor_from_cpu_tensor", *arguments)
    good("tensor_for_a_device", device(PART, dtype(), p.text("xla:0"), p.FALSE), ["w"])
    refused("tensor_that_is_converted", device(PART, dtype("float64"), p.text("xla:0"), p.FALSE),
            "converted from float32 to float64", code="unsupported")
    for label, arguments in (("nothing", ()), ("three", (PART, dtype(), p.text("x"))),
                             ("no_dtype", (PART, p.NONE, p.text("x"), p.FALSE)),
                             ("no_flag", (PART, dtype(), p.text("x"), p.NONE))):
        refused(f"tensor_for_a_device_of_{label}", device(*arguments), "unexpected arguments")
    refused("device_tensor_of_none", device(p.NONE, dtype(), p.text("x"), p.FALSE),
            "instead of a tensor")
    old = lambda kind, *state: p.call(p.name("torch", kind)) + p.tuple_of(*state) + p.BUILD
    state = (p.storage(), p.integer(0), p.integers((12,)), p.integers((1,)))
    good("tensor_of_before_0_4", old("FloatTensor", *state), ["w"])
    refused("tensor_of_before_0_4_of_another_type", old("LongTensor", *state),
            "converted from float32 to int64", code="unsupported")
    refused("tensor_of_before_0_4_beyond", old("FloatTensor", *state[:2], p.integers((13,)),
                                               state[3]), "reaches beyond")
    refused("tensor_of_before_0_4_of_text", old("FloatTensor", p.text("0"), *state[1:]),
            "a tensor's storage is")
    for label, more in (("list", p.EMPTY_LIST), ("text", p.text("neg")), ("integer", p.integer(1))):
        refused(f"metadata_is_{label}", p.tensor(more=(more,)), "metadata", "expected a dict")
    for label, key, words in (("numbers", p.integer(1), "an integer for a key"),
                              ("none", p.NONE, "a none for a key")):
        refused(f"metadata_of_{label}", p.tensor(more=(p.dict_of((key, p.TRUE)),)), words)
    for label, value, words in (("text", p.text("yes"), "a string for \"neg\""),
                                ("dict", p.EMPTY_DICT, "a dict for \"neg\"")):
        refused(f"metadata_that_is_{label}", p.tensor(more=(p.dict_of((p.text("neg"), value)),)),
                words + ", expected a bool")
    refused("metadata_conj_of_real_numbers",
            p.tensor(more=(p.dict_of((p.text("conj"), p.TRUE)),)),
            "a tensor of float32 is said to be a lazy conjugate")
    good("metadata_of_a_lazy_view", p.tensor(more=(p.dict_of((p.text("neg"), p.TRUE)),)))
    for label, more in (("none", p.NONE), ("not_known", p.dict_of((p.text("later"), p.NONE)))):
        good(f"metadata_is_{label}", p.tensor(more=(more,)), ["w"])


def add_arrays():
    """Arrays of numpy, whose elements stand in the pickle itself."""
    raw = lambda data: b"B" + struct.pack("<I", len(data)) + data

    def kind(spelled="f4", order="<", more=(p.NONE, p.NONE, p.NONE)):
        state = p.tuple_of(p.integer(3), p.text(order), *more, p.integer(-1), p.integer(-1),
                           p.integer(0))
        return call("dtype", p.text(spelled), p.FALSE, p.TRUE, module="numpy") + state + p.BUILD

    def array(data=W, shape=(12,), of=None, fortran=p.FALSE, module="numpy._core.multiarray"):
        made = call("_reconstruct", p.name("numpy", "ndarray"), p.tuple_of(p.integer(0)), raw(b"b"),
                    module=module)
        data = data if isinstance(data, bytes) and data[:1] == b"\x8a" else raw(data)
        state = p.tuple_of(p.integer(1), p.integers(shape), of or kind(), fortran, data)
        return made + state + p.BUILD

    for package in ("numpy.core.multiarray", "numpy._core.multiarray"):
        good(f"array_of_{package}", array(module=package), ["w"], storages={})
    good("array_in_columns", array(shape=(3, 4), fortran=p.TRUE), storages={}, parts=None)
    # What is not as numpy writes it stays an object.
    for label, body in (
            ("a_byte_short", array(W[:47])), ("a_byte_long", array(W + b"x")),
            ("of_more_than_there_is", array(shape=(13,))),
            ("of_less_than_there_is", array(shape=(11,))), ("of_1_TiB", array(shape=(2**38,))),
            ("that_wraps_to_0", array(shape=(2**32, 2**32))),
            ("that_wraps", array(shape=(2**62 + 12,))), ("of_negative_size", array(shape=(-12,))),
            ("of_two_negative_sizes", array(shape=(-3, -4))),
            ("of_the_other_byte_order", array(of=kind(order=">"))),
            ("of_objects", array(of=kind("O8"))), ("of_text", array(of=kind("U12"))),
            ("of_another_type", array(of=kind("f16"))),
            ("of_a_structure", array(of=kind(more=(p.NONE, p.tuple_of(p.text("a")),
                                                   p.EMPTY_DICT)))),
            ("of_no_type", array(of=p.NONE)), ("of_a_type_that_is_a_name", array(of=dtype())),
            ("of_another_module", array(module="mine.multiarray"))):
        good(f"array_{label}", body, [], storages={})
    case("composed/array_of_rank_65.pt",
         pickle_file(p.one(array(W[:4], shape=(1,) * 65)), storages={}), opens({}))
    # An array has a byte order of its own, whatever that of the storages is.
    swapped = struct.pack(">12f", *struct.unpack("<12f", W))
    case("composed/array_beside_storages_of_the_other_byte_order.pt",
         pickle_file(p.pickle(p.dict_of((p.text("w"), PART), (p.text("array"), array()))),
                     {"0": swapped}, changes={"byteorder": {"data": b"big"}}),
         opens({"w": W, "array": W}))
    numpy_device = lambda *arguments: call("_rebuild_device_tensor_from_numpy", *arguments)
    good("tensor_from_an_array", numpy_device(array(), dtype(), p.text("cpu"), p.FALSE), ["w.0"],
         storages={})
    words = ("_rebuild_device_tensor_from_numpy", "expected an array")
    for label, arguments in (("nothing", ()), ("three", (array(), dtype(), p.text("cpu"))),
                             ("no_dtype", (array(), p.NONE, p.text("cpu"), p.FALSE)),
                             ("no_flag", (array(), dtype(), p.text("cpu"), p.NONE))):
        refused(f"tensor_from_{label}", numpy_device(*arguments), *words)


def add_cases():
    add_sparse()
    add_nested()
    add_quantized()
    add_meta()
    add_subclasses()
    add_wrapped()
    add_arrays()
