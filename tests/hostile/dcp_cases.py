"""Folders of torch.distributed.checkpoint that lie: the metadata, the items, and what fits neither."""

import os
import struct

import dcp_files as d
import pickle_builder as p
from catalogue import CASES, case, either, opens, refuse
from dcp_files import ONE, TWO, Call, Folder, Global, Made, chunk, index, item, place, size
from index_cases import Link, Set
from torch_files import floats, small, torch_file
from zip_builder import DEFLATED, deflate

W = floats(12, 50.0)
DAMAGE_STEP = 3  # bytes from one damaged file to the next; all bits of a byte have their turn


def one(**changes):
    """A folder of one tensor of one chunk. `changes`: of the call of place()."""
    folder = Folder().add("w", (3, 4), [((0, 0), (3, 4), W, ONE)])
    for field, value in changes.items():
        folder.places["w", (0, 0)][("file", "offset", "length").index(field)] = value
    return folder


def add(name, folder, verdict, pickle=None, more=None, **rest):
    files = {**folder.files(pickle), **(more or {})}
    case(f"dcp/{name}", Set(files), verdict, **rest)


def good(name, folder, **rest):
    add(name, folder, opens(folder.contents), **rest)


def refused(name, folder, *words, code="corrupt", at=None, **rest):
    add(name, folder, refuse(code, *words, at=at), **rest)


def of_root(name, root, *words, code="corrupt", protocol=4):
    refused(name, one(), *words, code=code, pickle=d.dump(root, protocol))


def with_tensor(name, made, *words, code="corrupt"):
    folder = one()
    folder.tensors["w"] = made
    refused(name, folder, *words, code=code)


def with_chunks(name, shape, boxes, *words, code="corrupt"):
    """Chunks of uint8."""
    folder = Folder()
    placed = {}
    for offsets, sizes in boxes:
        count = 1
        for n in sizes:
            count *= n
        placed.setdefault(tuple(offsets), item(bytes(count), sizes, dtype="uint8"))
    for offsets, made in placed.items():
        folder.put("w", offsets, made, ONE)
    folder.tensors["w"] = d.tensor(shape, [chunk(o, s) for o, s in boxes], "uint8")
    refused(name, folder, 'tensor "w"', *words, code=code)


def with_item(name, made, *words, code="corrupt", shape=(3, 4), at=None):
    folder = Folder()
    folder.put("other", (0,), item(b"abc", (3,), dtype="uint8"), ONE)
    folder.tensors["other"] = d.tensor((3,), [chunk((0,), (3,))], "uint8")
    folder.put("w", (0,) * len(shape), made, ONE)
    folder.tensors["w"] = d.tensor(shape, [chunk((0,) * len(shape), shape)])
    begin = folder.places["w", (0,) * len(shape)][1]
    refused(name, folder, 'tensor "w"', "chunk at [0", *words, code=code,
            at=None if at is None else begin + at)


def add_good():
    good("plain", d.small())
    add("protocol_2", d.small(), opens(d.small().contents), pickle=d.dump(d.small().metadata(), 2))
    good("no_tensor", Folder())
    good("in_folders", Folder().add("w", (3, 4), [((0, 0), (3, 4), W, "a/b.distcp")]))
    good("of_any_name", Folder().add("w", (3, 4), [((0, 0), (3, 4), W, "\x1b[31m\n")]))
    good("with_more_files", d.small(), more={"__2_0.distcp": d.as_file(b""),
                                             "model.safetensors": d.as_file(b"x")})
    good("empty_tensor", Folder().add("e", (0, 3), [((0, 0), (0, 3), b"", ONE)]))
    folder = one()
    folder.put("w", (3, 0), item(b"", (0, 4)), TWO)
    folder.tensors["w"] = d.tensor((3, 4), [chunk((0, 0), (3, 4)), chunk((3, 0), (0, 4))])
    good("empty_chunk", folder)
    folder.tensors["w"].state["chunks"].append(chunk((3, 0), (0, 4)))
    good("empty_chunk_of_two_ranks", folder)
    folder = Folder()  # as a transposed tensor is stored
    folder.put("w", (0, 0), item(W, (4, 3), (1, 4)), ONE)
    folder.tensors["w"] = d.tensor((4, 3), [chunk((0, 0), (4, 3))])
    folder.contents["w"] = b"".join(W[4 * i:4 * i + 4] for c in range(4) for i in (c, c + 4, c + 8))
    good("transposed", folder)
    folder = one()
    folder.tensors["lr"] = Made(d.METADATA, "BytesStorageMetadata")
    # An item that is no tensor is read when values are asked for, from files that an open must find.
    for label, file, verdict in (
            ("an_object", ONE, opens(folder.contents)),
            ("an_object_elsewhere", "../nowhere", refuse("corrupt", '"lr"', "not in the folder"))):
        add(label, folder, verdict, pickle=d.dump(d.metadata(
            folder.tensors, {index("w", (0, 0)): place(*folder.places["w", (0, 0)]),
                             index("lr"): place(file, 5, 7)})))
    # Classes that are called as in torch 1.13, and as nowhere.
    old = "torch.distributed._shard.checkpoint.metadata"
    for label, module in (("of_torch_1_13", old), ("of_no_torch", "megatron.core.x")):
        folder = one()
        made = folder.tensors["w"]
        made.kind = Global(module, "TensorStorageMetadata")
        made.state["properties"] = d.properties(module=module)
        good("names_" + label, folder)
    folder = one()
    folder.tensors["w"].state["properties"] = d.properties(state={
        "dtype": Global("torch", "float32"), "layout": d.layout(), "requires_grad": True})
    good("properties_by_name", folder)
    folder = one()
    root = folder.metadata(mcore_data={"x": [1, 2]}, planner_data={"w": ("w",), "x": (1, None)})
    add("more_fields", folder, opens(folder.contents), pickle=d.dump(root))
    for label, made in (("sparse", d.properties(of=d.layout("sparse_coo"))),
                        ("no_layout", d.properties(state=(Global("torch", "float32"), None, 0)))):
        folder = d.small()
        folder.put("x", (0,), item(floats(1), (1,)), ONE)
        folder.tensors["x"] = d.tensor((1,), [chunk((0,), (1,))], properties=made)
        good("unsupported_" + label, folder)
    folder = d.small()
    folder.tensors["x"] = d.tensor((2,), [chunk((0,), (1,)), chunk((1,), (1,))])
    places = {index(n, o): place(*where) for (n, o), where in folder.places.items()}
    places[index("x", (0,))] = place(ONE, 0, 5, transform_descriptors=["stream.zstd/1"])
    places[index("x", (1,))] = place(ONE, 0, 5)
    add("unsupported_compressed", folder, opens(folder.contents),
        pickle=d.dump(d.metadata(folder.tensors, places)))


def add_roots():
    none = "is no metadata of torch.distributed.checkpoint"
    for label, root in (("none", None), ("dict", {"state_dict_metadata": {}, "storage_data": {}}),
                        ("text", "x"), ("list", []), ("global", Global("torch", "Size")),
                        ("stateless", Made(d.METADATA, "Metadata")),
                        ("no_tensors", d.metadata(None, {})), ("no_places", d.metadata({}, None)),
                        ("list_of_tensors", d.metadata([], {})),
                        ("of_many_fields", d.metadata({}, {}, **{f"f{i}": i for i in range(199)}))):
        of_root(f"root_{label}", root, none)
    refused("metadata_of_no_bytes", one(), "is empty", code="not_a_checkpoint", pickle=b"")
    refused("metadata_of_zeros", one(), "pickle", pickle=bytes(500))
    refused("metadata_of_json", one(), "pickle", pickle=b'{"a": 1}')
    add("metadata_that_is_a_model", one(), refuse("corrupt", "opcode PERSID"),
        more={".metadata": torch_file(small())})
    refused("global_os_system", one(), "os.system", code="unsafe_pickle",
            pickle=d.dump(Call("os", "system", "true")))
    refused("global_in_a_field", one(), "eval", code="unsafe_pickle",
            pickle=d.dump(one().metadata(x=Call("builtins", "eval", "1"))))
    case("dcp/globals_of_torch", Set(d.small().files()), opens(d.small().contents),
         torch_safe=opens(d.small().contents))
    case("dcp/globals_of_megatron",
         Set(one().files(d.dump(one().metadata(x=Made("megatron.core", "X"))))),
         opens(one().contents), torch_safe=refuse("unsafe_pickle", "megatron.core.X"))
    deep = []
    for _ in range(5000):
        deep = [deep]
    folder = one()
    refused("deep", folder, "nest", code="limit_exceeded", pickle=p.pickle(
        p.EMPTY_LIST * 5000 + p.APPEND * 4999))


def add_places():
    for label, name in (
            ("parent", "../x.distcp"), ("absolute", "/etc/passwd"), ("nothing", ""), ("here", "."),
            ("parent_within", "a/../" + ONE), ("nul", ONE + "\0"), ("backslash", "..\\x"),
            ("proc", "/proc/self/mem"), ("two_slashes", "a//b"), ("drive", "C:x")):
        refused(f"file_{label}", one(file=name), 'tensor "w"', "lies in the file",
                "not in the folder")
    refused("file_of_5000_letters", one(file="n" * 5000), "longer than a path")
    for label, name in (("metadata", ".metadata"), ("metadata_below", "a/.metadata"),
                        ("rank_metadata", "__7.metadata"), ("rank_below", "a/b/__0.metadata")):
        refused(f"file_{label}", one(file=name), 'tensor "w"', "called as metadata is")
    refused("file_missing", one(file="x.distcp"), "No such file", ".metadata names it", code="io")
    refused("file_of_another_case", one(file="__0_0.DISTCP"), "No such file", code="io")
    refused("file_of_no_bytes", one(), "empty", code="not_a_checkpoint", more={ONE: d.as_file(b"")})
    refused("file_cut", one(), "truncated", more={ONE: d.as_file(item(W, (3, 4)).bytes()[:-1])})
    refused("file_of_zeros", one(), "chunk at [0, 0]", more={ONE: d.as_file(bytes(4096))})
    refused("file_link_to_zero", one(), "regular file", code="not_a_checkpoint",
            more={ONE: Link("/dev/zero")})
    length = item(W, (3, 4)).size
    for label, changes in (
            ("offset_1", {"offset": 1}), ("offset_end", {"offset": length}),
            ("offset_huge", {"offset": 2**63 - 1}), ("length_huge", {"length": 2**63 - 1}),
            ("both_huge", {"offset": 2**63 - 1, "length": 2**63 - 1}),
            ("length_more", {"length": length + 1})):
        refused(f"place_{label}", one(**changes), 'tensor "w"', "chunk at [0, 0]", "leave the file")
    refused("place_length_0", one(length=0), 'tensor "w"', "chunk at [0, 0]", "no bytes")
    for label, changes in (("length_less", {"length": length - 1}), ("length_1", {"length": 1})):
        refused(f"place_{label}", one(**changes), 'tensor "w"', "chunk at [0, 0]")
    for label, changes in (("offset_negative", {"offset": -1}), ("length_none", {"length": None}),
                           ("offset_text", {"offset": "0"}), ("length_negative", {"length": -5}),
                           ("offset_2_64", {"offset": 2**64}), ("file_none", {"file": None}),
                           ("file_bytes", {"file": b"x"})):
        refused(f"place_{label}", one(**changes), "without relative_path, offset and length")
    for label, made, words in (
            ("no_name", index(None, (0, 0)), "without a name"),
            ("no_index", "w", "without a name"),
            ("offset_of_text", index("w", None, offset="0"), "no torch.Size"),
            ("offset_negative", index("w", (-1, 0)), "no torch.Size"),
            ("offset_of_65", index("w", (0,) * 65), "no torch.Size"),
            ("another_offset", index("w", (0, 1)), "none of the files"),
            ("another_rank", index("w", (0,)), "none of the files"),
            ("another_name", index("W", (0, 0)), "none of the files"),
            ("no_offset", index("w"), "none of the files")):
        folder = one()
        where = place(*folder.places["w", (0, 0)])
        refused(f"index_{label}", folder, words,
                pickle=d.dump(d.metadata(folder.tensors, {made: where})))
    folder = one()
    where = folder.places["w", (0, 0)]
    refused("index_twice", folder, "two items", pickle=d.dump(d.metadata(
        folder.tensors, {index("w", (0, 0)): place(*where), index("w", (0, 0)): place(*where)})))
    refused("place_none", folder, "without relative_path",
            pickle=d.dump(d.metadata(folder.tensors, {index("w", (0, 0)): None})))


def add_tensors():
    whole = [chunk((0, 0), (3, 4))]
    with_tensor("chunks_none", d.tensor((3, 4), [], chunks=None), '"w"', "no list of chunks")
    with_tensor("chunks_of_numbers", d.tensor((3, 4), [1]), "2 dimensions")
    with_tensor("chunks_missing", d.tensor((3, 4), []), "of which only 0")
    with_tensor("size_none", d.tensor((3, 4), whole, size=None), "no torch.Size")
    with_tensor("size_of_text", d.tensor((3, 4), whole, size="xy"), "no torch.Size")
    with_tensor("size_negative", d.tensor((-3, 4), whole), "no torch.Size")
    with_tensor("size_2_63", d.tensor((2**63, 1), whole), "no torch.Size")
    with_tensor("size_of_65", d.tensor((1,) * 65, whole), "no torch.Size")
    with_tensor("size_of_another_rank", d.tensor((12,), whole), "1 dimensions")
    with_tensor("size_overflows", d.tensor((2**62, 4), whole), "more elements than 64 bits")
    with_tensor("no_properties", d.tensor((3, 4), whole, properties=None), "no dtype")
    with_tensor("dtype_unknown", d.tensor((3, 4), whole, "float33"), "no dtype")
    with_tensor("dtype_of_text", d.tensor((3, 4), whole, properties=d.properties(
        state=("float32", d.layout(), False))), "no dtype")
    with_tensor("dtype_other", d.tensor((3, 4), whole, "int32"), "of float32", "says int32")
    with_tensor("a_chunk_without_sizes", d.tensor((3, 4), [Made(
        d.METADATA, "ChunkStorageMetadata", {"offsets": size(0, 0)})]), "2 dimensions")
    folder = one()
    folder.tensors[5] = folder.tensors["w"]
    refused("name_of_no_text", folder, "without a name")
    name = one()
    name.tensors["v"] = d.tensor((3, 4), whole)
    name.places["v", (0, 0)] = name.places["w", (0, 0)]
    twice = d.dump(name.metadata(), 2).replace(p.text("v"), p.text("w"))
    refused("name_twice", name, '"w"', pickle=twice)
    folder = one()
    folder.add("w[0:3, 0:4]", (3, 4), [((0, 0), (1, 4), W[:16], TWO), ((1, 0), (2, 4), W[16:], TWO)])
    good("name_as_of_a_whole", folder)
    for label, shape in (("a_piece", (3, 6)), ("a_piece_of_pieces", (4, 6))):
        folder = d.small()
        boxes = [((0, 0), (3, 6))] if label == "a_piece" else [((0, 0), (3, 6)), ((3, 0), (1, 6))]
        for offsets, sizes in boxes:
            folder.put("s[0:3, 0:6]", offsets, item(bytes(4 * sizes[0] * 6), sizes), TWO)
        folder.tensors["s[0:3, 0:6]"] = d.tensor(shape, [chunk(*box) for box in boxes])
        refused("name_as_of_" + label, folder, "called as a piece of another", '"s[0:3, 0:6]"')


def add_boxes():
    rows = lambda *ends: [((a, 0), (b - a, 4)) for a, b in zip(ends, ends[1:])]
    with_chunks("boxes_overlap", (4, 4), [((0, 0), (3, 4)), ((2, 0), (2, 4))], "overlap", "[2, 0]")
    with_chunks("boxes_overlap_inside", (4, 4), [((0, 0), (4, 4)), ((1, 1), (1, 1))], "overlap")
    with_chunks("boxes_twice", (4, 4), [((0, 0), (4, 4))] * 2, "overlap")
    with_chunks("boxes_overlap_and_hole", (4, 4), [((0, 0), (2, 4)), ((1, 0), (2, 4))], "overlap")
    with_chunks("boxes_hole", (4, 4), [*rows(0, 1), *rows(2, 4)], "16 elements, of which only 12")
    with_chunks("boxes_hole_in_the_middle", (3, 3), [
        ((0, 0), (1, 3)), ((2, 0), (1, 3)), ((1, 0), (1, 1)), ((1, 2), (1, 1))], "only 8")
    with_chunks("boxes_hole_at_the_end", (5, 4), rows(0, 2, 4), "only 16")
    with_chunks("boxes_too_long", (4, 4), rows(0, 2, 5), "leaves its shape [4, 4]")
    with_chunks("boxes_outside", (4, 4), [*rows(0, 4), *rows(4, 5)], "leaves its shape")
    with_chunks("boxes_empty_outside", (4, 4), [*rows(0, 4), ((5, 0), (0, 4))], "leaves its shape")
    with_chunks("boxes_only_empty", (4, 4), [((0, 0), (0, 4))], "only 0")
    with_chunks("boxes_two_scalars", (), [((), ()), ((), ())], "two chunks for its only element")
    with_chunks("boxes_empty_of_nothing", (0, 4), [], "in none of the files")
    folder = one()
    folder.tensors["w"] = d.tensor((2**63 - 1, 1), [chunk((2**63 - 1, 0), (2**63 - 1, 1))])
    folder.places = {("w", (2**63 - 1, 0)): folder.places["w", (0, 0)]}
    refused("boxes_that_wrap", folder, "chunk at [9223372036854775807, 0]")
    rank = 64
    folder = one()
    wide = (2**61 - 1,) * rank
    folder.tensors["w"] = d.tensor((1,) * rank, [chunk(wide, wide)])
    folder.places = {("w", wide): folder.places["w", (0, 0)]}
    refused("boxes_of_long_numbers", folder, "...]")


def add_items():
    model = small()
    with_item("item_of_many_tensors", torch_file(model), "6 tensors", "to be one")
    with_item("item_of_an_object", item(W, (3, 4), root=p.pickle(p.integer(7))), "0 tensors")
    with_item("item_of_a_dict", item(W, (3, 4), root=p.pickled(
        {"x": p.Tensor(p.Storage("0", 12), 0, (3, 4), (4, 1))})), '"x"', "to be a tensor itself")
    with_item("item_of_another_dtype", item(W, (6,), dtype="int64"), "int64", "says float32")
    with_item("item_of_another_shape", item(W, (4, 3)), "shape [4, 3]", "says [3, 4]")
    with_item("item_of_another_rank", item(W, (12,)), "shape [12]", "says [3, 4]")
    with_item("item_of_a_short_storage", item(W[:44], (3, 4)), "storage")
    with_item("item_of_a_false_storage", item(W[:44], (3, 4), storage=12), "has 44 bytes")
    with_item("item_of_strides_that_leave", item(W, (3, 4), (5, 1)), "storage")
    with_item("item_of_negative_strides", item(W, (3, 4), (-4, 1)), "stride")
    with_item("item_that_runs_code", item(W, (3, 4), root=p.pickle(
        p.call(p.name("os", "system"), p.text("true")))), "os.system", code="unsafe_pickle")
    with_item("item_with_a_long_pickle", item(W, (3, 4), root=p.pickle(
        p.text("x" * 100_000), b"0", p.integer(1))), "65536", code="limit_exceeded")
    with_item("item_of_zeros", d.as_file(bytes(2000)))
    with_item("item_of_one_byte", d.as_file(b"P"))
    with_item("item_of_a_legacy_file", d.as_file(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."))
    archive = item(W, (3, 4))
    for label, content in (("cut_in_front", archive.bytes()[1:]), ("cut", archive.bytes()[:-1]),
                           ("with_more_behind", archive.bytes() + b"x"),
                           ("of_two", archive.bytes() * 2)):
        with_item(f"item_{label}", d.as_file(content))
    squeezed = torch_file(d.model_of(p.pickled(p.Tensor(p.Storage("0", 12), 0, (3, 4), (4, 1))),
                                     {"0": W}), {"data/0": {"method": DEFLATED, "stored": deflate(W)}})
    with_item("item_compressed", squeezed, "compressed", code="unsupported")
    folder = Folder()  # safetensors in the place of an item
    folder.put("w", (0, 0), b"\x08\0\0\0\0\0\0\0{}      ", ONE)
    folder.tensors["w"] = d.tensor((3, 4), [chunk((0, 0), (3, 4))])
    refused("item_of_safetensors", folder, 'tensor "w"')


def add_ranks():
    """Metadata of each rank, and none of all."""
    def ranks(name, made, verdict, more=None, first=0):
        files = {}
        for number, folder in enumerate(made, first):
            of_rank = folder.files()
            files[f"__{number}.metadata"] = of_rank.pop(".metadata")
            files.update(of_rank)
        case(f"dcp/{name}", Set({**files, **(more or {})}), verdict)

    first = lambda dtype="float32", data=W[:16]: _part((0, 0), (1, 4), data, ONE, dtype)
    second = lambda dtype="float32", data=W[16:], shape=(3, 4): _part(
        (1, 0), (2, 4), data, TWO, dtype, shape)
    both = {"w[0:1, 0:4]": W[:16], "w[1:3, 0:4]": W[16:]}
    ranks("ranks", [first(), second()], opens(both))
    ranks("ranks_of_one_box", [one(), one()], opens({"w": W}))
    ranks("ranks_without_the_second", [first()], refuse("corrupt", "only 4"))
    ranks("ranks_without_the_first", [second()], refuse("not_found", '"__0.metadata"'), first=1)
    ranks("ranks_without_one_between", [first(), second()], refuse("not_found", '"__2.metadata"'),
          more={"__3.metadata": d.metadata_file(d.dump(second().metadata()))})
    ranks("ranks_of_two_shapes", [first(), second(shape=(4, 4))],
          refuse("corrupt", '"w"', "[3, 4] for one rank", "[4, 4] for another"))
    ranks("ranks_of_two_dtypes", [first(), second("int64", W)],
          refuse("corrupt", '"w"', "float32", "int64"))
    ranks("ranks_that_overlap", [one(), second()], refuse("corrupt", "overlap"))
    ranks("ranks_one_damaged", [first(), second()], refuse("corrupt", "pickle"),
          more={"__1.metadata": d.metadata_file(b"x")})
    ranks("ranks_and_the_whole", [first()], opens({"w": W}), more=one().files())
    case("dcp/no_metadata", Set({ONE: d.as_file(b"x")}), refuse(
        "not_found", "without .metadata", "did not end"))


def _part(offsets, sizes, data, file, dtype, shape=(3, 4)):
    folder = Folder()
    folder.put("w", offsets, item(data, sizes, dtype=dtype), file)
    folder.tensors["w"] = d.tensor(shape, [chunk(offsets, sizes)], dtype)
    return folder


def add_masses():
    """Whose cost would be the square of their size."""
    archive = item(b"x", (1,), dtype="uint8").bytes()

    def rows(name, count, verdict, file=ONE):
        folder = Folder()
        folder.data[ONE] = [archive]
        for i in range(count):
            folder.places[name, (i,)] = [file(i) if callable(file) else file, 0, len(archive)]
        folder.tensors[name] = d.tensor((count,), [chunk((i,), (1,)) for i in range(count)], "uint8")
        return folder

    long = "n" * 2_000_000
    add("mass_of_long_names", rows(long, 3000, None), refuse("limit_exceeded", "names and shapes"))
    folder = rows("w", 20_000, None)
    add("mass_of_chunks", folder, opens({f"w[{i}:{i + 1}]": b"x" for i in range(20_000)}))
    # A tuple of a million keys, which is the path of each of these.
    folder = Folder()
    folder.data[ONE] = [archive]
    path = (1,) * 1_000_000
    paths = {}
    for i in range(3000):
        name = f"t{i}"
        folder.places[name, (0,)] = [ONE, 0, len(archive)]
        folder.tensors[name] = d.tensor((1,), [chunk((0,), (1,))], "uint8")
        paths[name] = path
        folder.contents[name] = b"x"
    add("mass_of_paths", folder, opens(folder.contents),
        pickle=d.dump(folder.metadata(planner_data=paths)))
    # One key of a megabyte, a thousand times, for the path of each.
    shared = ("k" * 1_000_000, "x")
    add("mass_of_long_keys", folder, opens(folder.contents),
        pickle=d.dump(folder.metadata(planner_data=dict.fromkeys(paths, shared))))
    # Items of an object that all have one state of many fields.
    fields = {"fqn": "x", **{f"f{i}": 0 for i in range(300_000)}}
    key = d.dump(Made("x", "x", fields), 2)[2:-1] + p.put(900_000)
    value = d.dump(place("x", 0, 5), 2)[2:-1] + p.put(900_001)
    both = key + value + (p.get(900_000) + p.get(900_001)) * 300_000
    places = p.EMPTY_DICT + p.MARK + both + p.SETITEMS
    refused("mass_of_fields", one(), "without a name", pickle=p.pickle(
        p.name(d.METADATA, "Metadata"), p.EMPTY_TUPLE, p.NEWOBJ,
        p.dict_of((p.text("state_dict_metadata"), p.EMPTY_DICT), (p.text("storage_data"), places)),
        p.BUILD))
    # So many tensors that cannot be shown.
    sparse = d.properties(of=d.layout("sparse_coo"))
    shape = size(1)
    made = Made(d.METADATA, "TensorStorageMetadata",
                {"properties": sparse, "size": shape, "chunks": []})
    folder = one()
    folder.tensors.update((f"x{i}", made) for i in range(100_000))
    add("mass_of_unsupported", folder, opens(folder.contents))
    # Slabs that lie side by side: along no dimension are they in order.
    count = 6000
    folder = Folder()
    folder.data[ONE] = [archive]
    boxes = [((i, 0), (1, count)) for i in range(count)]
    boxes += [((count, i), (count, 1)) for i in range(count)]
    long = item(bytes(count), (1, count), dtype="uint8").bytes()
    tall = item(bytes(count), (count, 1), dtype="uint8").bytes()
    folder.data[ONE] = [long, tall]
    for number, (offsets, sizes) in enumerate(boxes):
        folder.places["w", offsets] = (
            [ONE, 0, len(long)] if number < count else [ONE, len(long), len(tall)])
    folder.tensors["w"] = d.tensor((2 * count, count), [chunk(*box) for box in boxes], "uint8")
    add("mass_of_slabs", folder, either())


def damaged(name, folder, **rest):
    """Tensors may get other names, or be objects of a kind that is not looked at."""
    add(name, folder, either(folder.contents), **rest)
    CASES[f"dcp/{name}"].all_tensors = False


def payload(content):
    """Positions of the elements of an item, a change of which only a checksum shows."""
    name = content.index(b"/data/0")
    begin = name + len("/data/0") + struct.unpack_from("<H", content, name - len("archive") - 2)[0]
    return range(begin, content.index(b"PK\x07\x08", begin))


def add_damage():
    folder = Folder().add("w", (3, 2), [((0, 0), (1, 2), floats(2), ONE),
                                        ((1, 0), (2, 2), floats(4, 9.0), TWO)])
    whole = d.dump(folder.metadata(), 2)
    refused("damage/metadata_cut_at_0", folder, code="not_a_checkpoint", pickle=b"")
    for length in range(1, len(whole), DAMAGE_STEP):
        refused(f"damage/metadata_cut_at_{length}", folder, pickle=whole[:length])
    for at in range(0, len(whole), DAMAGE_STEP):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        damaged(f"damage/metadata_bit_of_{at}", folder, pickle=bytes(changed))
    content = b"".join(folder.data[ONE])
    elements = payload(content)
    for at in range(0, len(content), DAMAGE_STEP):
        changed = bytearray(content)
        changed[at] ^= 1 << at % 8
        if at not in elements:
            damaged(f"damage/item_bit_of_{at}", folder, more={ONE: d.as_file(bytes(changed))})
    for length in range(1, len(content), 37):
        refused(f"damage/item_cut_at_{length}", folder, "truncated",
                more={ONE: d.as_file(content[:length])})


def add_cases():
    add_good()
    add_roots()
    add_places()
    add_tensors()
    add_boxes()
    add_items()
    add_ranks()
    add_masses()
    add_damage()
