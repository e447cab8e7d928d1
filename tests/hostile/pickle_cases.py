"""Pickles that want code to run, that are broken, and that want too much."""

import struct

import pickle_builder as p
from catalogue import case, either, opens, refuse
from torch_files import floats, pickle_file, small, torch_file

W = {"w": floats(12)}


def refused(name, data_pkl, code, *words, at=None):
    """`at`: the byte of the pickle that is blamed."""
    built = pickle_file(data_pkl)
    at = None if at is None else built.pickle_offset + at
    case(f"pickle/{name}.pt", built, refuse(code, *words, at=at))


def good(name, data_pkl, tensors=None):
    case(f"pickle/{name}.pt", pickle_file(data_pkl), opens(tensors))


HARMFUL = (
    "posix.system", "os.system", "os.popen", "nt.system", "subprocess.Popen", "subprocess.run",
    "subprocess.check_output", "builtins.eval", "builtins.exec", "builtins.compile",
    "builtins.open", "builtins.__import__", "builtins.setattr", "__builtin__.eval",
    "__builtin__.execfile", "__builtin__.apply", "io.open", "operator.attrgetter",
    "operator.methodcaller", "_operator.methodcaller", "code.interact",
    "code.InteractiveInterpreter.runcode", "commands.getoutput", "runpy.run_path",
    "runpy._run_code", "pip.main", "pip._internal.main", "importlib.import_module",
    "importlib.util.find_spec", "ctypes.CDLL", "ctypes.util.find_library", "pty.spawn",
    "socket.socket", "socket.create_connection", "shutil.rmtree", "shutil.move", "sys.exit",
    "sys.settrace", "webbrowser.open", "asyncio.create_subprocess_shell", "pdb.run", "bdb.Bdb.run",
    "timeit.timeit", "cProfile.run", "profile.Profile.run", "trace.Trace.run",
    "doctest.debug_script", "pydoc.pipepager", "urllib.request.urlopen", "requests.api.get",
    "numpy.testing._private.utils.runstring", "numpy.f2py.crackfortran._eval_length",
    "pickle.loads", "_pickle.loads", "dill.loads", "cloudpickle.load", "joblib.load",
    "pandas.read_pickle", "marshal.loads", "torch.load", "torch.hub.load", "torch.jit.load",
    "torch.serialization.load", "torch.storage._load_from_bytes", "torch.ops.load_library",
    "torch.utils.bottleneck.__main__.run_autograd_prof", "torch.utils.collect_env.run",
    "torch.utils.cpp_extension.load", "torch._inductor.codecache.compile_file",
    "torch._dynamo.guards.GuardBuilder.get", "torch.distributed.rpc.rpc_sync",
    "torch.jit.unsupported_tensor_ops.execWrapper",
    "torch.fx.experimental.symbolic_shapes.ShapeEnv.evaluate_guards_expression",
    "torch.utils._config_module.ConfigModule.load_config",
    "torch.utils.data.datapipes.utils.decoder.basichandlers", "idlelib.pyshell.ModifiedInterpreter",
    "lib2to3.pgen2.grammar.Grammar", "ensurepip.bootstrap", "multiprocessing.util.spawnv_passfds",
    "asyncio.unix_events._UnixSubprocessTransport._start", "imp.load_source",
    "_posixsubprocess.fork_exec", "webbrowser.get")
DOTTED = {"code.InteractiveInterpreter.runcode": 1, "bdb.Bdb.run": 1, "profile.Profile.run": 1,
          "trace.Trace.run": 1, "torch._dynamo.guards.GuardBuilder.get": 3,
          "torch.fx.experimental.symbolic_shapes.ShapeEnv.evaluate_guards_expression": 4,
          "torch.utils._config_module.ConfigModule.load_config": 3,
          "asyncio.unix_events._UnixSubprocessTransport._start": 2}


def split(name):
    parts = name.split(".")
    at = DOTTED.get(name, len(parts) - 1)
    return ".".join(parts[:at]), ".".join(parts[at:])


def add_harm():
    """Names that can only harm are refused wherever they stand."""
    for full in HARMFUL:
        module, attribute = split(full)
        evil = p.name(module, attribute)
        body = p.pickle(p.dict_of((p.text("w"), p.tensor()),
                                  (p.text("x"), p.call(evil, p.text("id")))))
        refused(f"harm/{full}", body, "unsafe_pickle", full, "nothing was run", at=body.index(evil))
    system = p.name("posix", "system")
    command = p.tuple_of(p.text("touch /tmp/harmed"))
    places = {
        "called": system + command + p.REDUCE,
        "made": system + command + p.NEWOBJ,
        "called_and_built": system + command + p.REDUCE + p.EMPTY_DICT + p.BUILD,
        "only_named": p.dict_of((p.text("w"), p.tensor()), (p.text("x"), system)),
        "named_by_stack_global": p.dict_of((p.text("x"), p.call(p.stack_name("posix", "system"),
                                                               p.text("id")))),
        "as_key": p.dict_of((p.text("w"), p.tensor()), (system, p.integer(1))),
        "as_argument": p.call(p.name("collections", "OrderedDict"), p.list_of(system)),
        "as_state": p.call(p.name("mine", "Thing")) + p.dict_of((p.text("f"), system)) + p.BUILD,
        "as_hooks": p.dict_of((p.text("w"), p.tensor(hooks=p.call(system, p.text("id"))))),
        "as_hook_of_an_ordered_dict": p.dict_of((p.text("w"), p.tensor(
            hooks=p.HOOKS + p.MARK + p.integer(0) + system + p.SETITEMS))),
        "as_storage_type": p.dict_of((p.text("w"), p.tensor(kind=system))),
        "as_rebuild_function": p.dict_of((p.text("w"), p.tensor(function=system))),
        "as_function_of_a_type": p.dict_of((p.text("w"), p.call(
            p.name("torch._tensor", "_rebuild_from_type_v2"), system, p.name("torch", "Tensor"),
            command, p.EMPTY_DICT))),
        "as_dtype": p.dict_of((p.text("w"), p.tensor(
            function=p.name("torch._utils", "_rebuild_tensor_v3"), more=(system,),
            kind="UntypedStorage", module="torch.storage"))),
        "as_persistent_id": p.dict_of((p.text("w"), system + p.PERSID)),
        "in_the_memo": p.dict_of((p.text("a"), system + p.put(1)),
                                 (p.text("b"), p.get(1) + command + p.REDUCE)),
        "through_getattr": p.call(p.name("builtins", "getattr"), p.name("os", "path"),
                                  p.text("sys")),
        "deep": p.EMPTY_LIST * 200 + system + p.APPEND * 200,
        "in_a_set": p.EMPTY_SET + p.MARK + system + b"\x90",
        "in_a_frozenset": p.MARK + system + b"\x91",
    }
    for label, body in places.items():
        shown = "os.path" if label == "through_getattr" else "posix.system"
        refused(f"harm_{label}", p.pickle(body), "unsafe_pickle", shown, "nothing was run")
    for label, body in {"INST": p.MARK + p.text("id") + b"iposix\nsystem\n",
                        "OBJ": p.MARK + system + p.text("id") + b"o",
                        "NEWOBJ_EX": system + command + p.EMPTY_DICT + b"\x92"}.items():
        refused(f"harm_by_{label}", p.pickle(body), "unsafe_pickle", "posix.system",
                "nothing was run")
    # The stream is read to its end before anything of it counts.
    payload = p.pickle(system + command + p.REDUCE, stop=b"")
    refused("harm_before_a_broken_stream", payload + b"\xff", "corrupt", "0xff", at=len(payload))
    refused("harm_before_the_end", payload, "corrupt", "STOP", at=len(payload))
    refused("harm_without_stop_in_a_mark", payload + p.MARK + p.STOP, "corrupt", "mark")
    good("harm_behind_stop", p.one(p.tensor()) + payload + p.STOP, W)
    good("a_second_pickle_behind_stop", p.one(p.tensor()) + p.one(p.NONE), W)


def add_names():
    for number, body in (("EXT1", b"\x82\x01"), ("EXT2", b"\x83\x01\x01"),
                         ("EXT4", b"\x84\x01\x01\x01\x01"), ("NEXT_BUFFER", b"\x97"),
                         ("READONLY_BUFFER", p.NONE + b"\x98")):
        data = p.pickle(body)
        refused(f"opcode_{number}", data, "unsafe_pickle", number, at=data.index(body[-1:])
                if number == "READONLY_BUFFER" else 2)
    for label, body in (("integers", p.integer(1) + p.integer(2)), ("none", p.NONE + p.NONE),
                        ("bytes", p.short_text("os") + b"C\x06system"),
                        ("globals", p.name("a", "b") + p.name("c", "d")),
                        ("lists", p.EMPTY_LIST * 2)):
        refused(f"stack_global_of_{label}", p.pickle(body + b"\x93"), "unsafe_pickle",
                "STACK_GLOBAL", "expected two strings", at=2 + len(body))
    # Names that are like known ones, and are not: no tensor comes of them.
    for label, function in (("dotted", p.name("torch._utils", "_rebuild_tensor_v2.__globals__")),
                            ("other_case", p.name("torch._utils", "_REBUILD_TENSOR_V2")),
                            ("other_module", p.name("torch._utils ", "_rebuild_tensor_v2")),
                            ("look_alike", p.name("torch.\u0455erial", "_rebuild_tensor_v2")),
                            ("prefix", p.name("torch._utils", "_rebuild_tensor_v22")),
                            ("carriage_return", p.name("torch._utils\r", "_rebuild_tensor_v2"))):
        good(f"name_{label}", also(p.tensor(function=function)), W)
    for label, module, name in (("name_and_module", "", ""), ("name", "a", ""), ("module", "", "a")):
        refused(f"{label}_empty", also(p.name(module, name)), "corrupt", "GLOBAL",
                "of which one is empty")
    refused("name_not_utf8", also(b"c\xff\xfe\n\xff\n"), "corrupt", "GLOBAL", "not UTF-8")
    good("name_of_control_characters", also(p.name("\x1b[2J", "\x07")), W)
    refused("name_of_4_MB", p.pickle(p.name("m" * 4_000_000, "x")), "limit_exceeded", "GLOBAL",
            "newline", 4097, at=2)
    refused("name_of_4_MB_without_line", p.pickle(b"c" + b"m" * 4_000_000), "limit_exceeded",
            "GLOBAL", at=2)
    good("name_of_4096", also(p.name("m" * 4096, "x" * 4096)), W)
    refused("name_of_4097", also(p.name("m" * 4097, "x")), "limit_exceeded", "GLOBAL", "newline",
            4097)


def add_calls():
    thing = p.name("mine", "Thing")
    for label, called in (("text", p.text("x")), ("integer", p.integer(3)), ("none", p.NONE),
                          ("list", p.EMPTY_LIST), ("dict", p.EMPTY_DICT),
                          ("tuple", p.EMPTY_TUPLE), ("persistent_id", p.storage()),
                          ("object", p.call(thing)), ("tensor", p.tensor())):
        for opcode, byte in (("REDUCE", p.REDUCE), ("NEWOBJ", p.NEWOBJ)):
            refused(f"{opcode}_of_{label}", p.pickle(called, p.EMPTY_TUPLE, byte), "unsafe_pickle",
                    opcode, "named global", at=2 + len(called) + 1)
    for label, arguments in (("list", p.EMPTY_LIST), ("dict", p.EMPTY_DICT), ("none", p.NONE),
                             ("text", p.text("x")), ("integer", p.integer(1))):
        for opcode, byte in (("REDUCE", p.REDUCE), ("NEWOBJ", p.NEWOBJ)):
            refused(f"{opcode}_with_{label}", p.pickle(thing, arguments, byte), "corrupt", opcode,
                    "arguments", "expected a tuple")
    for label, target in (("list", p.EMPTY_LIST), ("dict", p.EMPTY_DICT), ("none", p.NONE),
                          ("tuple", p.EMPTY_TUPLE), ("integer", p.integer(1)),
                          ("storage", p.storage()), ("global", thing)):
        refused(f"BUILD_on_{label}", p.pickle(target, p.EMPTY_DICT, p.BUILD), "unsafe_pickle",
                "BUILD", "expected an object", at=2 + len(target) + 1)
    refused("BUILD_twice", p.pickle(p.call(thing), p.EMPTY_DICT, p.BUILD, p.EMPTY_DICT, p.BUILD),
            "unsupported", "BUILD", "twice")
    change = lambda *more: p.one(p.tensor() + b"".join(more))
    refused("BUILD_on_tensor",
            change(p.tuple_of(p.storage(), p.integer(0), p.integers([9]), p.integers([1])),
                   p.BUILD), "unsafe_pickle", "tensor", "_rebuild_tensor_v2")
    refused("BUILD_on_tensor_class",
            change(p.dict_of((p.text("__class__"), thing)), p.BUILD), "unsafe_pickle", "tensor")
    pair = p.text("x") + p.integer(1)
    for label, more in (("SETITEM", pair + p.SETITEM), ("SETITEMS", p.MARK + pair + p.SETITEMS),
                        ("APPEND", p.integer(1) + p.APPEND),
                        ("APPENDS", p.MARK + p.integer(1) + p.APPENDS),
                        ("ADDITEMS", p.MARK + p.integer(1) + b"\x90")):
        refused(f"{label}_on_tensor", change(more), "unsafe_pickle", "tensor", "after making it")
        targets = {"list": p.EMPTY_LIST, "dict": p.EMPTY_DICT, "tuple": p.EMPTY_TUPLE,
                   "set": p.EMPTY_SET, "none": p.NONE, "text": p.text("x"), "storage": p.storage(),
                   "global": thing}
        fits = {"SETITEM": "dict", "SETITEMS": "dict", "APPEND": "list", "APPENDS": "list",
                "ADDITEMS": "set"}[label]
        for target, body in targets.items():
            if target != fits:
                refused(f"{label}_on_{target}", p.pickle(body, more), "unsafe_pickle", label,
                        fits, at=2 + len(body) + len(more) - 1)
    refused("SETITEMS_odd", p.pickle(p.EMPTY_DICT, p.MARK, p.NONE, p.NONE, p.NONE, p.SETITEMS),
            "corrupt", "SETITEMS", 3, at=7)
    good("storage_as_a_value", p.pickle(p.dict_of((p.text("w"), p.tensor()),
                                                  (p.text("s"), p.storage()))), W)
    good("storage_class_called", p.pickle(p.dict_of(
        (p.text("w"), p.tensor()),
        (p.text("x"), p.call(p.name("torch", "FloatStorage"), p.integer(2**40))))), W)


def also(body):
    """{"w": a tensor, "x": body}"""
    return p.pickle(p.dict_of((p.text("w"), p.tensor()), (p.text("x"), body)))


def add_impossible_calls():
    """What fails whoever calls it is refused; what only Python could tell is kept uncalled."""
    def impossible(label, body, *words):
        data = also(body)
        refused(f"impossible_{label}", data, "corrupt", *words, at=data.index(body) + len(body) - 1)

    builtin = lambda attribute: p.name("builtins", attribute)
    ordered = p.name("collections", "OrderedDict")
    counter = p.name("collections", "Counter")
    size = p.name("torch", "Size")
    one = p.integer(1)
    for label, function, arguments in (
            ("bytearray_of_text", builtin("bytearray"), [p.text("x")]),
            ("bytearray_of_none", builtin("bytearray"), [p.NONE]),
            ("bytearray_of_real", builtin("bytearray"), [p.real(1.0)]),
            ("bytearray_of_four", builtin("bytearray"), [p.text("x")] * 4),
            ("ordered_dict_of_integers", ordered, [p.integer(17), p.integer(18)]),
            ("ordered_dict_of_one", ordered, [one]),
            ("ordered_dict_of_none", ordered, [p.NONE]),
            ("ordered_dict_of_two_lists", ordered, [p.EMPTY_LIST, p.EMPTY_LIST]),
            ("set_of_integer", builtin("set"), [one]),
            ("set_of_lists", builtin("set"), [p.list_of(p.EMPTY_LIST)]),
            ("set_of_two", builtin("set"), [p.EMPTY_LIST, p.EMPTY_LIST]),
            ("frozenset_of_none", builtin("frozenset"), [p.NONE]),
            ("frozenset_of_dicts", builtin("frozenset"), [p.tuple_of(p.EMPTY_DICT)]),
            ("size_of_text", size, [p.text("x")]),
            ("size_of_integer", size, [one]),
            ("size_of_texts", size, [p.tuple_of(one, p.text("x"))]),
            ("size_of_reals", size, [p.list_of(p.real(1.0))]),
            ("size_of_two", size, [p.EMPTY_TUPLE, p.EMPTY_TUPLE]),
            ("counter_of_integer", counter, [one]),
            ("counter_of_two", counter, [p.EMPTY_LIST, p.EMPTY_LIST])):
        called = ".".join(function.decode()[1:].split())
        impossible(label, p.call(function, *arguments), "the pickle calls", called,
                   "arguments that it cannot take")
    for dtype in ("float32", "int8", "bits16"):
        impossible(f"{dtype}_called", p.call(p.name("torch", dtype), one), f"torch.{dtype}",
                   "dtype", "cannot be called")
    for label, key in (("list", p.EMPTY_LIST), ("dict", p.EMPTY_DICT), ("set", p.EMPTY_SET)):
        words = (f"a {label}", "no reader")
        impossible(f"key_is_a_{label}", p.dict_of((key, p.NONE)), "SETITEMS", *words)
        impossible(f"one_key_is_a_{label}", p.EMPTY_DICT + key + p.NONE + p.SETITEM, "SETITEM",
                   *words)
        impossible(f"set_with_a_{label}", p.EMPTY_SET + p.MARK + key + b"\x90", "ADDITEMS", *words)
        impossible(f"frozenset_with_a_{label}", p.MARK + key + b"\x91", "FROZENSET", *words)
        impossible(f"DICT_with_a_{label}", p.MARK + key + p.NONE + b"d", "DICT", *words)
    impossible("key_is_a_bytearray", p.dict_of((b"\x96" + bytes(8), p.NONE)), "SETITEMS",
               "no reader")
    for label, body, wrong, opcode in (
            ("text_not_utf8", p.text(b"\xff\xfe"), b"X\2", "BINUNICODE"),
            ("short_text_not_utf8", b"\x8c\x02\xc3\x28", b"\x8c\x02", "SHORT_BINUNICODE"),
            ("long_text_not_utf8", b"\x8d\x01" + bytes(7) + b"\x80", b"\x8d\x01", "BINUNICODE8"),
            ("text_cut_in_a_character", p.text(b"ab\xe2\x82"), b"X\4\0\0\0ab", "BINUNICODE"),
            ("text_of_an_overlong_slash", p.text(b"\xc0\xaf"), b"X\2\0\0\0\xc0", "BINUNICODE"),
            ("text_beyond_unicode", p.text(b"\xf4\x90\x80\x80"), b"X\4\0\0\0\xf4", "BINUNICODE"),
            ("key_not_utf8", p.dict_of((p.text(b"\xff"), p.NONE)), p.text(b"\xff"), "BINUNICODE")):
        data = also(body)
        refused(f"impossible_{label}", data, "corrupt", opcode, "not UTF-8", at=data.index(wrong))
    for label, body in {
            "bytearray_of_a_terabyte": p.call(builtin("bytearray"), p.integer(2**40)),
            "complex_of_text": p.call(builtin("complex"), p.text("x")),
            "device_of_list": p.call(p.name("torch", "device"), p.EMPTY_LIST),
            "encode_of_a_bomb": p.call(p.name("_codecs", "encode"), p.text("x"), p.text("zip")),
            "layout_of_list": p.call(p.name("torch.serialization", "_get_layout"), p.EMPTY_LIST),
            "new_int": p.name("builtins", "int") + p.tuple_of(p.text("9" * 5000)) + p.NEWOBJ,
            "size_made_of_text": size + p.tuple_of(p.text("x")) + p.NEWOBJ,
            "tuple_of_a_list_as_key": p.dict_of((p.tuple_of(p.EMPTY_LIST), p.NONE)),
            "object_with_a_list_as_key": p.call(ordered) + p.EMPTY_LIST + p.NONE + p.SETITEM,
    }.items():
        good(f"only_python_can_tell_{label}", also(body), W)
    good("key_is_a_tensor", also(p.dict_of((p.tensor(), p.NONE))), {**W, "x.<key>": floats(12)})


def add_protocols():
    for protocol in (1, 2, 3, 4, 5):
        model = small(protocol)
        case(f"pickle/by_protocol_{protocol}.pt", torch_file(model), opens(model.tensors))
    # It writes persistent ids as text, which says nothing.
    case("pickle/by_protocol_0.pt", torch_file(small(0)),
         refuse("corrupt", "a tensor's storage is", "persistent id of five fields"))


NEEDS = {  # opcode: how many values it takes
    "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "APPEND": 2, "SETITEM": 3, "REDUCE": 2, "NEWOBJ": 2,
    "BUILD": 2, "BINPERSID": 1, "STACK_GLOBAL": 2, "MEMOIZE": 1}
MARKED = ("TUPLE", "APPENDS", "SETITEMS", "ADDITEMS", "FROZENSET")
LATER = {"POP": (b"0", "finds nothing"), "DUP": (b"2", "needs 1 value"),
         "POP_MARK": (b"1", "no mark"), "LIST": (b"l", "no mark"), "DICT": (b"d", "no mark"),
         "OBJ": (b"o", "no mark"), "INST": (b"imine\nThing\n", "no mark")}


def add_stack():
    for name, count in NEEDS.items():
        for have in range(count):
            body = p.NONE * have
            refused(f"{name}_with_{have}", p.pickle(body, p.op(name)), "corrupt", name, count,
                    f"found {have}", at=2 + have)
            refused(f"{name}_with_{have}_above_a_mark",
                    p.pickle(p.NONE * 3, p.MARK, body, p.op(name)), "corrupt", name, count,
                    f"found {have}", at=6 + have)
    for name in MARKED:
        refused(f"{name}_without_mark", p.pickle(p.NONE * 3, p.op(name)), "corrupt", name, "mark",
                at=5)
        if name not in ("TUPLE", "FROZENSET"):
            refused(f"{name}_on_nothing", p.pickle(p.MARK, p.op(name)), "corrupt", name,
                    "below the mark", at=3)
            refused(f"{name}_below_a_mark", p.pickle(p.EMPTY_LIST, p.MARK, p.MARK, p.op(name)),
                    "corrupt", name, "below the mark", at=5)
    for name, (opcode, words) in LATER.items():
        refused(f"{name}_of_nothing", p.pickle(opcode), "corrupt", name, words, at=2)
    for slot in (b"q\0", b"r\0\0\0\0"):
        refused(f"put_of_nothing_{len(slot)}", p.pickle(slot), "corrupt", "PUT", at=2)
        refused(f"put_of_a_mark_{len(slot)}", p.pickle(p.NONE, p.MARK, slot), "corrupt", "PUT",
                at=4)
    refused("stop_with_nothing", p.pickle(), "corrupt", "stops with 0 values", at=2)
    refused("stop_with_two", p.pickle(p.NONE, p.NONE), "corrupt", "stops with 2 values", at=4)
    refused("stop_with_a_mark", p.pickle(p.NONE, p.MARK), "corrupt", "1 open mark", at=4)
    refused("only_stop", p.STOP, "corrupt", "stops with 0 values", at=0)
    refused("empty", b"", "corrupt", "STOP", at=0)
    good("without_proto", p.dict_of((p.text("w"), p.tensor())) + p.STOP, W)
    for byte in (0x00, 0x7F, 0xFF, 0x99):
        refused(f"byte_{byte:02x}", p.pickle(bytes([byte])), "corrupt", f"0x{byte:02x}", at=2)
    for proto in (6, 255):
        refused(f"protocol_{proto}", p.pickle(p.NONE, proto=bytes([0x80, proto])), "unsupported",
                f"protocol {proto}", at=0)


def add_memo():
    refused("memo_unset", p.pickle(p.get(5)), "corrupt", "memo id 5", "never set", at=2)
    refused("memo_unset_short", p.pickle(b"h\x07"), "corrupt", "memo id 7", "never set", at=2)
    refused("memo_unset_max", p.pickle(p.get(0xFFFFFFFF)), "corrupt", "memo id 4294967295", at=2)
    for slot in (2**31, 0xFFFFFFFF, 1000):
        refused(f"memo_put_{slot}", p.pickle(p.NONE, p.put(slot)), "limit_exceeded",
                f"memo id {slot}", at=3)
    good("memo_put_within", p.pickle(p.NONE, p.put(3)))
    slots = b"".join(b"N" + p.put(i) for i in range(1_000_000))
    refused("memo_of_a_million", p.pickle(p.EMPTY_LIST, p.MARK, slots, p.APPENDS),
            "limit_exceeded", "memory", "budget")
    good("memo_overwritten", p.pickle(p.EMPTY_LIST, p.MARK, (p.NONE + p.put(0)) * 200_000,
                                      p.APPENDS))
    for kind, make in (("tuples", lambda i: p.get(i) * 2 + b"\x86" + p.put(i + 1)),
                       ("lists", lambda i: p.EMPTY_LIST + p.put(i + 1) + p.MARK + p.get(i) * 2 +
                        p.APPENDS),
                       ("dicts", lambda i: p.EMPTY_DICT + p.put(i + 1) + p.MARK + p.text("a") +
                        p.get(i) + p.text("b") + p.get(i) + p.SETITEMS)):
        for label, seed in (("nothing", p.NONE), ("a_tensor", p.tensor())):
            for doublings in (60, 900):
                body = p.EMPTY_LIST + p.MARK + seed + p.put(0) + b"".join(
                    make(i) for i in range(doublings)) + p.APPENDS
                # A list or dict that leads to no tensor is walked once. A tuple has no place to
                # note that.
                is_walked_once = label == "nothing" and kind != "tuples"
                words = ("more often than is reasonable" if label == "nothing"
                         else "names and shapes of the tensors need more memory")
                case(f"pickle/bomb_of_{doublings}_{kind}_of_{label}.pt",
                     pickle_file(p.pickle(body)), opens() if is_walked_once
                     else refuse("limit_exceeded", words))
    for kind, body in (("list", p.EMPTY_LIST + p.put(0) + p.get(0) + p.APPEND),
                       ("dict", p.EMPTY_DICT + p.put(0) + p.text("x") + p.get(0) + p.SETITEM),
                       ("list_in_a_tuple", p.EMPTY_LIST + p.put(0) + p.get(0) + b"\x85" + p.APPEND),
                       ("object", p.call(p.name("mine", "Thing")) + p.put(0) + p.get(0) + p.BUILD)):
        good(f"contains_itself_{kind}", p.pickle(body))
        good(f"contains_itself_and_a_tensor_{kind}",
             p.pickle(p.list_of(body, p.tensor(), p.get(0))), {"1": floats(12)})


def add_lengths():
    """Lengths of texts and the like that the pickle does not have."""
    for name, byte, width in (("BINUNICODE", b"X", 4), ("SHORT_BINUNICODE", b"\x8c", 1),
                              ("BINUNICODE8", b"\x8d", 8), ("BINBYTES", b"B", 4),
                              ("SHORT_BINBYTES", b"C", 1), ("BINBYTES8", b"\x8e", 8),
                              ("BYTEARRAY8", b"\x96", 8), ("BINSTRING", b"T", 4),
                              ("SHORT_BINSTRING", b"U", 1), ("LONG1", b"\x8a", 1),
                              ("LONG4", b"\x8b", 4), ("FRAME", b"\x95", 8)):
        most = (1 << 8 * width) - 1
        lengths = {most, most // 2, most // 2 + 1} | ({2**62, most - 7} if width == 8 else set())
        for length in sorted(lengths):
            data = p.pickle(byte + length.to_bytes(width, "little"))
            refused(f"{name}_of_{length}", data, "corrupt", name, at=2)
        for have in range(width):
            refused(f"{name}_length_cut_at_{have}", p.pickle(byte + b"\1" * have, stop=b""),
                    "corrupt", name, width, f"{have} left", at=2)
        if name != "FRAME":
            refused(f"{name}_one_too_long", p.pickle(byte + (3).to_bytes(width, "little") + b"ab",
                                                     stop=b""), "corrupt", name, 3, "2 left", at=2)
    for name, byte, width in (("BININT", b"J", 4), ("BININT1", b"K", 1), ("BININT2", b"M", 2),
                              ("BINFLOAT", b"G", 8), ("BINGET", b"h", 1), ("LONG_BINGET", b"j", 4),
                              ("BINPUT", b"q", 1), ("LONG_BINPUT", b"r", 4), ("PROTO", b"\x80", 1)):
        for have in range(width):
            refused(f"{name}_cut_at_{have}", p.pickle(byte + b"\1" * have, stop=b""), "corrupt",
                    name, width, f"{have} left", at=2)
    for name, data in (("GLOBAL", b"cos"), ("GLOBAL", b"cos\nsystem")):
        refused(f"{name}_cut_at_{len(data)}", p.pickle(data, stop=b""), "corrupt", name, at=2)
    whole = p.one(p.tensor())
    for i in range(48):
        at = i * len(whole) // 48
        case(f"pickle/cut_at_{at}.pt", pickle_file(whole[:at]), refuse("corrupt", "data.pkl: "))
    for i in range(120):
        at, bit = 2 + i * (len(whole) - 2) // 120, i % 8
        # What a bit makes of a name or of a flag may be as good as it was.
        case(f"pickle/bit_{bit}_of_byte_{at}.pt",
             pickle_file(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1:]), either())


def add_budgets():
    deep = 200_000
    for kind, body in (("tuples", p.EMPTY_TUPLE + b"\x85" * deep),
                       ("lists", p.EMPTY_LIST * deep + p.APPEND * (deep - 1)),
                       ("dicts", (p.EMPTY_DICT + p.text("k")) * deep + p.NONE + p.SETITEM * deep),
                       ("calls", p.name("mine", "Thing") * deep + p.EMPTY_TUPLE +
                        (p.REDUCE + b"\x85") * (deep - 1) + p.REDUCE),
                       ("persistent_ids", p.NONE + p.PERSID * deep),
                       ("states", p.call(p.name("mine", "T")) * 2000 + p.BUILD * 1999)):
        refused(f"deep_{kind}", p.pickle(body), "limit_exceeded", "deeper than 1000")
    for count in (1000, 1001):
        add = good if count == 1000 else lambda name, data: refused(
            name, data, "limit_exceeded", "deeper than 1000")
        add(f"deep_{count}_tuples", p.pickle(p.NONE, b"\x85" * count))
        add(f"deep_{count}_empty_tuples", p.pickle(p.EMPTY_TUPLE, b"\x85" * (count - 1)))
        add(f"deep_{count}_lists", p.pickle(p.EMPTY_LIST * count, p.APPEND * (count - 1)))
        add(f"deep_{count}_lists_of_none", p.pickle(p.EMPTY_LIST * count, p.NONE, p.APPEND * count))
        add(f"deep_{count}_dicts", p.pickle((p.EMPTY_DICT + p.text("k")) * count, p.NONE,
                                            p.SETITEM * count))
    tensor_at = lambda depth: p.pickle(p.EMPTY_LIST * depth, p.tensor(), p.APPEND * depth)
    good("tensor_in_990_lists", tensor_at(990))
    refused("tensor_in_1001_lists", tensor_at(1001), "limit_exceeded", "deeper than 1000")
    refused("marks_of_a_million", p.pickle(p.MARK * 1_000_000), "limit_exceeded", "open marks",
            1000, at=2 + 4000)
    refused("nones_of_16_million", p.pickle(p.NONE * 16_000_000), "limit_exceeded", "memory",
            "budget")
    refused("nones_of_a_million",
            p.pickle(p.EMPTY_LIST, p.MARK, p.NONE * 1_000_000, p.APPENDS), "limit_exceeded",
            "memory", "budget")
    good("nones_of_a_million_as_picklers_write_them",
         p.pickle(p.EMPTY_LIST, (p.MARK + p.NONE * 1000 + p.APPENDS) * 1000))
    good("texts_of_a_million", p.pickle(p.EMPTY_LIST, p.MARK, p.text("x") * 1_000_000, p.APPENDS))
    for kind, one in (("lists", p.EMPTY_LIST), ("dicts", p.EMPTY_DICT), ("sets", p.EMPTY_SET)):
        refused(f"empty_{kind}_of_4_million",
                p.pickle(p.EMPTY_LIST, p.MARK, one * 4_000_000, p.APPENDS), "limit_exceeded",
                "memory", "budget")
    refused("objects_of_4_million",
            p.pickle(p.name("a", "b"), p.put(0), p.MARK,
                     (p.get(0) + p.EMPTY_TUPLE + p.REDUCE) * 2_000_000, b"t"), "limit_exceeded",
            "memory", "budget")
    refused("dup_of_a_million", p.pickle(p.NONE, b"2" * 1_000_000), "corrupt",
            "stops with 1000001 values", at=1_000_003)
    for opcode, head, tail in (("INT", b"I", b"\n"), ("LONG", b"L", b"L\n")):
        for digits, words in ((4301, ["4300"]), (200_000, ["newline", "4303"])):
            refused(f"{opcode}_of_{digits}_digits", p.pickle(head + b"9" * digits + tail),
                    "limit_exceeded", opcode, *words, at=2)
        good(f"{opcode}_of_4300_digits", also(head + b"9" * 4300 + tail), W)
        good(f"{opcode}_of_minus_4300_digits", also(head + b"-" + b"9" * 4300 + tail), W)
    good("long4_of_a_megabyte",
         p.pickle(b"\x8b" + struct.pack("<I", 1 << 20) + b"\x7f" * (1 << 20)))
    good("long1_of_255_bytes", p.pickle(p.dict_of((p.text("w"), p.tensor()),
                                                  (p.text("n"), p.long1(b"\x7f" * 255)))), W)
    good("integer_of_2_to_64", p.pickle(p.dict_of((p.text("w"), p.tensor()),
                                                  (p.text("n"), p.integer(2**64)))), W)
    good("long1_of_nothing", p.pickle(p.long1(b"")))
    frames = (b"\x95" + bytes(8)) * 100_000
    good("frames_of_nothing", p.pickle(frames, p.dict_of((p.text("w"), p.tensor()))), W)
    good("protos", p.pickle(p.PROTO2 * 100_000, p.dict_of((p.text("w"), p.tensor()))), W)


def add_keys():
    w = (p.text("w"), p.tensor())
    pairs = lambda keys: p.pickle(p.dict_of(w, *((key, p.NONE) for key in keys)))
    nan = p.real(float("nan"))
    good("keys_of_20000_nan", pairs([nan] * 20_000), W)
    good("keys_that_collide", pairs([p.integer(i * (2**61 - 1)) for i in range(60_000)]))
    # The last one wins, as in Python.
    again = (p.text("w"), p.tensor(key="1"))
    case("pickle/key_twice_with_tensors.pt",
         pickle_file(p.pickle(p.dict_of(w, again)), {"0": floats(12), "1": floats(12, 70)}),
         opens({"w": floats(12, 70)}))
    good("key_twice", pairs([p.text("a"), p.text("a")]), W)
    good("key_1_and_true", pairs([p.integer(1), p.TRUE]), W)
    good("key_1_and_1.0", pairs([p.integer(1), p.real(1.0)]), W)
    add_equal_keys()
    for label, key in (("none", p.NONE), ("real", p.real(1.5)), ("tuple", p.tuple_of(p.NONE)),
                       ("global", p.name("torch", "float32")), ("bytes", b"C\x01x"),
                       ("big", p.integer(2**70))):
        good(f"key_is_{label}", p.pickle(p.dict_of((key, p.tensor()))))
    for label, name in (("empty", ""), ("70_kB", "n" * 70_000), ("nul", "a\0b"), ("line", "a\nb"),
                        ("escape", "\x1b[2J\x1b]0;x\x07"), ("lone_surrogate", "\ud800"),
                        ("dots", "..."), ("slash", "../../etc/passwd"), ("right_to_left", "\u202e"),
                        ("html", "<script>"), ("format", "%s%n{0}"), ("space", " ")):
        tensors = {name: floats(12)} if label != "lone_surrogate" else None
        good(f"tensor_name_{label}", p.pickle(p.dict_of((p.text(name), p.tensor()))), tensors)
        beyond = p.pickle(p.dict_of((p.text(name), p.tensor(shape=(13,)))))
        refused(f"tensor_name_{label}_in_an_error", beyond, "corrupt", "tensor ", "reaches beyond")
    good("tensor_as_root", p.pickle(p.tensor()), {"": floats(12)})
    good("tensor_in_a_list", p.pickle(p.list_of(p.tensor())), {"0": floats(12)})
    good("integer_key", p.pickle(p.dict_of((p.integer(-7), p.tensor()))), {"-7": floats(12)})
    good("same_joined_names", p.pickle(p.dict_of(
        (p.text("a.b"), p.tensor()), (p.text("a"), p.dict_of((p.text("b"), p.tensor()))))))


def add_equal_keys():
    """Keys that Python takes for one: the first of them stays, with the last of the values."""
    first, second, third = floats(12), floats(12, 70), floats(12, 90)
    storages = {"0": first, "1": second, "2": third}
    tensors = [p.tensor(key=key) for key in storages]
    big = 2**64
    padded = lambda value: p.long1(value.to_bytes(12, "little", signed=True))
    one = p.integer(1)
    for label, keys, names in (
            ("1_and_true", (one, p.TRUE), ["1"]), ("true_and_1", (p.TRUE, one), ["<bool>"]),
            ("1_and_real", (one, p.real(1.0)), ["1"]),
            ("real_and_1", (p.real(1.0), one), ["<float>"]),
            ("zeros", (p.integer(0), p.real(-0.0), p.FALSE), ["0"]),
            ("1_and_1_in_12_bytes", (one, padded(1)), ["1"]),
            ("2_to_65_in_12_bytes_twice", (padded(2**65), padded(2**65)), ["<key>"]),
            ("1_by_LONG4", (one, b"\x8b\3\0\0\0\1\0\0"), ["1"]),
            ("1_by_INT", (one, b"I1\n"), ["1"]), ("true_by_INT", (one, b"I01\n"), ["1"]),
            ("2_to_64_and_in_12_bytes", (p.integer(big), padded(big)), ["<key>"]),
            ("2_to_53_more_and_real", (p.integer(2**53 + 1), p.real(float(2**53))), None),
            ("text_of_two_opcodes", (p.text("a"), p.short_text("a")), ["a"]),
            ("text_of_python_2", (p.text("a"), b"U\1a"), ["a"]),
            ("text_by_UNICODE", (p.text("\u00e9"), b"V\\u00e9\n"), ["\u00e9"]),
            ("text_and_bytes", (p.text("a"), b"C\1a"), None),
            ("minus_1_in_12_bytes", (padded(-1),), ["-1"]),
            ("none", (p.NONE, p.NONE), ["<none>"])):
        body = p.pickle(p.dict_of(*zip(keys, tensors)))
        last = [first, second, third][len(keys) - 1]
        case(f"pickle/equal_keys_{label}.pt", pickle_file(body, storages),
             opens(None if names is None else {name: last for name in names}))


def add_cases():
    add_harm()
    add_names()
    add_calls()
    add_impossible_calls()
    add_protocols()
    add_stack()
    add_memo()
    add_lengths()
    add_budgets()
    add_keys()
