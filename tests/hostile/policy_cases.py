"""Names in pickles that torch does not allow by default: taken for what they are, or refused where
that is asked for (`globals=torch_safe`)."""

import pickle_builder as p
from catalogue import case, opens, refuse
from exported_cases import BOTH as EXPORTED, exported
from legacy_cases import BOTH as STREAMED, FIRST, SECOND, Stream, with_object
from pickle_cases import W, also
from script_cases import ATTRIBUTE, BOTH as SCRIPTED, Script, module
from torch_files import floats, pickle_file, small, torch_file

NOT_ALLOWED = ("which torch does not allow by default", "safe_globals", "--allow-global")


def unknown(name, built, shown, tensors=None, at=None):
    """Opens, but not where unknown names are refused. `at`: where the name stands in the file."""
    case(f"policy/{name}.pt", built, opens(W if tensors is None else tensors),
         torch_safe=refuse("unsafe_pickle", f"names {shown},", *NOT_ALLOWED, at=at))


def unknown_in(name, data_pkl, of, shown, tensors=None, **file):
    """`of`: the opcodes that name it."""
    built = pickle_file(data_pkl, **file)
    at = None if file else built.pickle_offset + data_pkl.index(of)
    unknown(name, built, shown, tensors, at)


def allowed(name, built, tensors=None):
    verdict = opens(W if tensors is None else tensors)
    case(f"policy/{name}.pt", built, verdict, torch_safe=verdict)


def harmful(name, data_pkl, shown):
    verdict = refuse("unsafe_pickle", f"names {shown},", "no checkpoint needs", "nothing was run")
    case(f"policy/{name}.pt", pickle_file(data_pkl), verdict, torch_safe=verdict)


def add_places():
    thing = p.name("mine", "Thing")
    called = p.call(thing, p.text("x"))
    for label, body in (
            ("named", thing), ("called", called), ("made", thing + p.EMPTY_TUPLE + p.NEWOBJ),
            ("by_stack_global", p.stack_name("mine", "Thing")),
            ("by_INST", p.MARK + b"imine\nThing\n"), ("by_OBJ", p.MARK + thing + b"o"),
            ("by_NEWOBJ_EX", thing + p.EMPTY_TUPLE + p.EMPTY_DICT + b"\x92"),
            ("as_key", p.dict_of((thing, p.NONE))), ("in_a_set", p.EMPTY_SET + p.MARK + thing +
                                                     b"\x90"),
            ("as_argument", p.call(p.name("collections", "Counter"), p.list_of(thing))),
            ("as_state", p.call(p.name("collections", "OrderedDict")) + p.dict_of(
                (p.text("a"), thing)) + p.BUILD),
            ("as_persistent_id", thing + p.PERSID), ("deep", p.EMPTY_LIST * 300 + thing +
                                                     p.APPEND * 300),
            ("thrown_away", thing + b"0" + p.NONE), ("in_the_memo", thing + p.put(7) + b"0" +
                                                     p.NONE)):
        of = {"by_INST": b"imine", "by_stack_global": b"\x93"}.get(label, thing)
        unknown_in(label, also(body), of, "mine.Thing")
    unknown_in("in_a_deflated_pickle", also(thing), thing, "mine.Thing",
               changes={"data.pkl": {"method": 8}})
    allowed("behind_the_end", pickle_file(p.one(p.tensor()) + p.pickle(thing)))
    first = also(p.tuple_of(p.name("mine", "A"), p.name("mine", "B")))
    unknown_in("the_first_of_two", first, p.name("mine", "A"), "mine.A")
    harmful("harm_behind_unknown", also(p.tuple_of(thing, p.name("posix", "system"))),
            "posix.system")
    harmful("harm_by_its_name_in_python_2", also(p.name("__builtin__", "eval")), "__builtin__.eval")


def add_names():
    for label, kind, attribute, shown in (
            ("getattr", "builtins", "getattr", "builtins.getattr"),
            ("python_2", "__builtin__", "getattr", "builtins.getattr"),
            ("numpy", "numpy", "dtype", "numpy.dtype"),
            ("numpy_core", "numpy._core.multiarray", "_reconstruct",
             "numpy._core.multiarray._reconstruct"),
            ("namespace", "argparse", "Namespace", "argparse.Namespace"),
            ("a_module_of_torch", "torch.nn.modules.linear", "Linear",
             "torch.nn.modules.linear.Linear"),
            ("code_of_a_script", "__torch__", "M", "__torch__.M"),
            ("a_tag_of_a_script", "torch.jit._pickle", "restore_type_tag",
             "torch.jit._pickle.restore_type_tag"),
            ("a_space", "collections", "OrderedDict ", "collections.OrderedDict "),
            ("another_case", "Collections", "OrderedDict", "Collections.OrderedDict"),
            ("a_dot", "collections", "OrderedDict.fromkeys", "collections.OrderedDict.fromkeys"),
            ("an_allowed_one_apart", "torch._utils._rebuild", "tensor_v2",
             "torch._utils._rebuild.tensor_v2"),
            ("an_escape", "\x1b[2J", "\x07", r"\x1B[2J.\x07")):
        unknown_in(f"name_{label}", also(p.name(kind, attribute)), p.name(kind, attribute), shown)
    for label, body in (
            ("ordered_dict", p.call(p.name("collections", "OrderedDict"))),
            ("counter", p.call(p.name("collections", "Counter"))),
            ("set", p.call(p.name("builtins", "set"), p.EMPTY_LIST)),
            ("set_of_python_2", p.call(p.name("__builtin__", "set"), p.EMPTY_LIST)),
            ("bytes", p.call(p.name("_codecs", "encode"), p.text("x"), p.text("latin1"))),
            ("device", p.call(p.name("torch", "device"), p.text("cpu"))),
            ("size", p.call(p.name("torch", "Size"), p.EMPTY_TUPLE)),
            ("dtype", p.name("torch", "float8_e4m3fn"))):
        allowed(f"allowed_{label}", pickle_file(also(body)))
    allowed("allowed_parameter", pickle_file(also(p.call(
        p.name("torch._utils", "_rebuild_parameter"), p.tensor(), p.TRUE, p.HOOKS))),
        {**W, "x": floats(12)})
    model = small()
    allowed("allowed_all", torch_file(model), model.tensors)


def add_formats():
    thing = p.name("mine", "Thing")
    made = with_object(FIRST, SECOND, (p.text("x"), thing))
    stream = Stream(object=made)
    unknown("in_a_stream", stream.build(), "mine.Thing", STREAMED,
            stream.part("object") + made.index(thing))
    source = p.tuple_of(p.text("module"), thing, p.text("f"), p.text("s")) + p.PERSID
    unknown("in_a_module_of_a_stream",
            Stream(object=with_object(FIRST, SECOND, (p.text("x"), source))).build(),
            "mine.Thing", STREAMED)
    allowed("stream", Stream().build(), STREAMED)
    allowed("script", Script().build(), SCRIPTED)
    for part, data, tensors in (("data", module(ATTRIBUTE, (p.text("x"), thing)), SCRIPTED),
                                ("constants", p.tuple_of(p.tensor(), thing), SCRIPTED)):
        unknown(f"in_the_{part}_of_a_script", Script(**{part: p.pickle(data)}).build(),
                "mine.Thing", tensors)
    allowed("script_with_a_storage_of_its_own", Script(data=p.pickle(module((
        p.text("w"), p.tensor(kind="Bits8Storage", numel=48, shape=(48,)))))).build(), SCRIPTED)
    allowed("exported", exported(), EXPORTED)


def add_cases():
    add_places()
    add_names()
    add_formats()
