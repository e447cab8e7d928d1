"""Files that are pickles: joblib's, whose arrays lie raw in the stream, and what they lie about."""

import struct

import pickle_builder as p
import zip_builder as z
from catalogue import case, opens, refuse
from torch_files import floats, model_of, torch_file

A, B = floats(6), floats(3, 50.0)
WRAPPER = p.name("joblib.numpy_pickle", "NumpyArrayWrapper")
NDARRAY = p.name("numpy", "ndarray")
SYSTEM = p.call(p.name("posix", "system"), p.text("id"))


def dtype(name="f4", size=p.integer(-1), flags=0):
    state = p.tuple_of(p.integer(3), p.text("<"), p.NONE, p.NONE, p.NONE, size, p.integer(-1),
                       p.integer(flags))
    return p.call(p.name("numpy", "dtype"), p.text(name), p.FALSE, p.TRUE) + state + p.BUILD


def wrapper(raw=b"\x01\xff" + A, created=WRAPPER + p.EMPTY_TUPLE + p.NEWOBJ, **changed):
    """joblib's object with the bytes behind it; what is None has no attribute."""
    fields = {"subclass": NDARRAY, "shape": p.integers((2, 3)), "order": p.text("C"),
              "dtype": dtype(), "allow_mmap": p.TRUE, "numpy_array_alignment_bytes": p.integer(16)}
    fields.update(changed)
    state = p.dict_of(*((p.text(key), value) for key, value in fields.items() if value is not None))
    return created + state + p.BUILD + raw


LAST = (p.text("bias"), wrapper(b"\x02\xff\xff" + B, shape=p.integers((3,))))


def bare(*items, proto=p.PROTO2):
    data = p.pickle(p.dict_of(*items), proto=proto)
    built = z.Built().changed(data)
    built.pickle_bytes = len(data)
    return built


def good(name, tensors, *items, **how):
    case(f"bare/{name}.pkl", bare(*items, **how), opens(tensors))


def refused(name, code, word, first):
    case(f"bare/{name}.pkl", bare((p.text("w"), first), LAST), refuse(code, word))


def add_cases():
    both = {"w": A, "bias": B}
    for module in ("joblib", "sklearn.externals.joblib"):
        for kind in ("NDArrayWrapper", "ZNDArrayWrapper"):
            refused(f"{kind}_of_{module}", "unsupported", "is a pickle of joblib before 0.10",
                    p.name(module + ".numpy_pickle", kind) + p.EMPTY_TUPLE + p.NEWOBJ
                    + p.dict_of((p.text("filename"), p.text("a.pkl_01.npy")),
                                (p.text("subclass"), NDARRAY)) + p.BUILD)
    good("joblib", both, (p.text("w"), wrapper()), LAST)
    good("joblib_without_padding", both,
         (p.text("w"), wrapper(A, numpy_array_alignment_bytes=None)), LAST)
    good("joblib_with_alignment_none", both,
         (p.text("w"), wrapper(A, numpy_array_alignment_bytes=p.NONE)), LAST)
    good("joblib_of_scikit_learn", both, (p.text("w"), wrapper(created=p.name(
        "sklearn.externals.joblib.numpy_pickle", "NumpyArrayWrapper") + p.EMPTY_TUPLE + p.NEWOBJ)),
         LAST)
    good("joblib_by_protocol_1", both, (p.text("w"), wrapper(created=p.call(
        p.name("copy_reg", "_reconstructor"), WRAPPER, p.name("__builtin__", "object"), p.NONE))),
         LAST)
    good("joblib_mapped", both, (p.text("w"), wrapper(subclass=p.name("numpy", "memmap"))), LAST)
    # A structure of this size, of which there is no tensor, is skipped all the same.
    good("joblib_of_structures", {"bias": B},
         (p.text("w"), wrapper(b"\x01\xff" + bytes(72), dtype=dtype("V12", p.integer(12)))), LAST)
    good("joblib_with_a_pickle", {"bias": B},
         (p.text("w"), wrapper(p.pickle(p.list_of(p.integer(1))), dtype=dtype("O8", flags=63))),
         LAST)
    # Only a file that is a pickle has raw bytes in it: here they are opcodes.
    case("bare/joblib_in_an_archive.pt",
         torch_file(model_of(p.pickle(p.dict_of((p.text("w"), wrapper(b"")), (
             p.text("x"), p.tensor()))), tensors={"x": floats(12)})), opens({"x": floats(12)}))
    good("nothing", {}, (p.text("epoch"), p.integer(3)))
    good("nothing_of_protocol_1", {}, (p.text("epoch"), p.integer(3)), proto=b"")

    cut = "are left in the file; it is truncated"
    refused("raw_of_too_many_bytes", "corrupt", cut, wrapper(shape=p.integers((2, 3000))))
    refused("raw_of_all_addresses", "corrupt", cut, wrapper(shape=p.integers((2**61,))))
    refused("raw_beyond_64_bits", "corrupt", "impossible shape",
            wrapper(shape=p.integers((2**31, 2**31, 2**31))))
    refused("shape_negative", "corrupt", "impossible shape", wrapper(shape=p.integers((-1, 3))))
    refused("shape_of_text", "corrupt", "impossible shape", wrapper(shape=p.tuple_of(p.text("2"))))
    refused("shape_none", "corrupt", "has no shape", wrapper(shape=p.NONE))
    refused("shape_missing", "corrupt", "has no shape", wrapper(shape=None))
    refused("order_k", "corrupt", "neither C nor F", wrapper(order=p.text("K")))
    refused("order_missing", "corrupt", "neither C nor F", wrapper(order=None))
    for name, made in (("none", p.NONE), ("missing", None), ("of_text", p.text("f4")),
                       ("without_size", dtype("V")), ("of_another_class", p.call(
                           p.name("numpy", "ndarray"), p.text("f4"), p.FALSE, p.TRUE))):
        refused(f"dtype_{name}", "corrupt", "whose size it does not say", wrapper(dtype=made))
    refused("class_missing", "corrupt", "has no class", wrapper(subclass=None))
    refused("state_of_a_list", "corrupt", "has no attributes",
            WRAPPER + p.EMPTY_TUPLE + p.NEWOBJ + p.EMPTY_LIST + p.BUILD)
    refused("padding_of_all", "corrupt", cut, wrapper(b"\xff" + A))
    refused("pickle_with_a_call", "unsafe_pickle", "posix.system",
            wrapper(p.pickle(SYSTEM), dtype=dtype("O8", flags=63)))
    refused("pickle_that_ends", "corrupt", "byte 0xff where an opcode should be",
            wrapper(p.PROTO2 + b"\xff", dtype=dtype("O8", flags=63)))
    refused("pickle_in_a_pickle", "corrupt", "where an opcode should be",
            wrapper(p.pickle(wrapper(b"\x01\xff" + A)), dtype=dtype("O8", flags=63)))
    refused("call", "unsafe_pickle", "posix.system", SYSTEM)
    refused("tensors_by_pickle_dump", "unsafe_pickle", "save it with torch.save",
            p.call(p.name("torch.storage", "_load_from_bytes"), p.text("x")))
    refused("storage_elsewhere", "unsupported", "which lie in another file", p.tensor())
    end = struct.pack("<I", 2**31 - 1)
    refused("text_beyond_the_end", "corrupt", "needs 2147483647 bytes", b"X" + end)
    behind = bare(LAST).bytes()
    for name, more in (("a_pickle", p.pickle(p.NONE)), ("a_byte", b"\n")):
        case(f"bare/behind_{name}.pkl", z.Built().changed(behind + more),
             refuse("unsupported", "behind the pickle, such as another one", at=len(behind)))
