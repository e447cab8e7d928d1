"""Indexes of shards that lie, the shards beside them, and folders that could be several things."""

import json
import os

import zip_builder as z
from catalogue import case, either, opens, refuse
from safetensors_cases import BIAS, FIRST, HEADER_LIMIT, W, as_bytes, of, safetensors, tensor
from torch_files import floats, small, torch_file

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
BOTH = {"w": W, "bias": BIAS}
MAP = {"w": ONE, "bias": TWO}


def shard(**tensors):
    """A safetensors file of float32."""
    items, end = [], 0
    for name, data in tensors.items():
        items.append(tensor(name, shape=(len(data) // 4,), offsets=(end, end + len(data))))
        end += len(data)
    return safetensors(of(*items), b"".join(tensors.values()))


SHARDS = {ONE: shard(w=W), TWO: shard(bias=BIAS)}


class Link:
    """A symbolic link, in the place of a file."""

    def __init__(self, to):
        self.to = to

    def write(self, path):
        os.symlink(self.to, path)


class Made:
    """Something that `make` makes of a path."""

    def __init__(self, make):
        self.make = make

    def write(self, path):
        self.make(path)


class Set:
    """Files of one folder, each with write(path). `opened`: the one of these that is opened, or
    nothing for the folder."""

    def __init__(self, files, opened=""):
        self.files = files
        self.opened = opened
        self.pickle_bytes = sum(getattr(file, "pickle_bytes", 0) for file in files.values())

    def write(self, path):
        folder = path[:-len(self.opened)] if self.opened else path
        for name, file in self.files.items():
            place = os.path.join(folder, name)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            file.write(place)


def index_of(weight_map, **more):
    return json.dumps({"metadata": {"total_size": 60}, "weight_map": weight_map, **more}, indent=2)


def text_file(text):
    built = z.Built().changed(as_bytes(text))
    built.pickle_bytes = built.size
    return built


def add(name, text, verdict, shards=None, **more):
    files = {**(SHARDS if shards is None else shards), INDEX: text_file(text)}
    case(f"index/{name}/{INDEX}", Set(files, INDEX), verdict, **more)


def good(name, text, tensors=None, shards=None, **more):
    add(name, text, opens(BOTH if tensors is None else tensors), shards, **more)


def refused(name, text, *words, at=None, code="corrupt", shards=None):
    """`at`: a position in the index, or text there that it begins with."""
    if isinstance(at, str):
        at = as_bytes(text).index(as_bytes(at))
    add(name, text, refuse(code, *words, at=at), shards)


def add_json():
    text = index_of(MAP)
    good("plain", text)
    good("sorted", json.dumps(json.loads(text), sort_keys=True))
    good("of_one_line", json.dumps(json.loads(text), separators=(",", ":")))
    good("behind_blanks", " \t\r\n" + text + "\n\n")
    good("without_metadata", json.dumps({"weight_map": MAP}))
    for label, metadata in (("null", "null"), ("a_list", "[1]"), ("a_text", '"x"'),
                            ("wrong", '{"total_size":-1}'), ("huge", '{"total_size":1e300}')):
        good(f"metadata_is_{label}", f'{{"metadata":{metadata},"weight_map":{json.dumps(MAP)}}}')
    good("more_keys", index_of(MAP, other=[{"weight_map": {"w": "../x"}}]))
    good("escaped_keys", text.replace("weight_map", r"weight\u005fmap").replace('"w"', r'"\u0077"'))
    bare = lambda name, text, at: refused(f"json_{name}", text, "the index of shards: is not JSON",
                                          at=at)
    bare("trailing_comma", '{"weight_map":{"w":"a",}}', 23)
    bare("two_documents", text + "{}", len(text))
    bare("trailing_nul", text + "\0", len(text))
    bare("cut", text[:-1], len(text) - 1)
    bare("comment", "{//\n}", 1)
    bare("single_quotes", text.replace('"', "'"), text.index('"'))
    bare("control", '{"a\tb":0}', 3)
    bare("lone_surrogate", r'{"a\ud800":0}', 4)
    bare("not_utf8", b'{"a\xff":0}', 3)
    bare("nan", '{"a":NaN}', 5)
    bare("only_a_brace", "{", 1)
    bare("zeros_behind", text[:40] + "\0" * 40, 40)
    bare("byte_order_mark", "\ufeff" + text, 0)
    refused("json_nul", "\0" + text, code="not_a_checkpoint")
    refused("json_utf16", text.encode("utf-16-le"), "not JSON", at=1)
    refused("json_list", "[" + text + "]", code="not_a_checkpoint")
    refused("without_a_map", '{"metadata":{}}', "no index", code="not_a_checkpoint")
    refused("config", '{"architectures":["LlamaModel"],"hidden_size":4096}', "weight_map",
            code="not_a_checkpoint")
    refused("an_empty_object", "{}", "no index", code="not_a_checkpoint")
    refused("map_in_capitals", '{"WEIGHT_MAP":{"w":"a"}}', code="not_a_checkpoint")
    refused("map_of_nothing", '{"weight_map":{}}', "names no tensor")
    for label, value, shown in (("null", "null", "null"), ("a_list", '["w"]', "an array"),
                                ("a_text", '"w"', "a string"), ("a_number", "7", "a number")):
        refused(f"map_is_{label}", f'{{"weight_map":{value}}}', "expected an object", shown, at=14)
    for label, value, shown in (("null", "null", "null"), ("a_list", '["a"]', "an array"),
                                ("an_object", '{"a":1}', "an object"),
                                ("a_number", "7", "a number"), ("true", "true", "a boolean")):
        refused(f"file_is_{label}", f'{{"weight_map":{{"w":{value}}}}}', "expected a string", shown,
                at=19)
    refused("map_twice", '{"weight_map":{"w":"a"},"weight_map":{}}', "weight_map twice", at=24)
    refused("map_twice_by_an_escape", r'{"weight_map":{"w":"a"},"weight\u005fmap":{}}',
            "weight_map twice", at=24)
    refused("metadata_twice", '{"metadata":{},"metadata":{}}', "metadata twice")
    refused("a_key_of_the_metadata_twice", '{"metadata":{"a":1,"a":2},"weight_map":{"w":"a"}}',
            '"a" twice', at='"a":2')
    refused("number_too_large", '{"a":9223372036854775808}', "2^63 - 1", at=5)
    refused("depth_65", '{"a":' + "[" * 64, "nests deeper than 64", at=5 + 63)
    for label, opening in (("lists", "["), ("objects", '{"a":')):
        refused(f"depth_a_million_{label}", '{"a":' + opening * 1_000_000, "nests deeper than 64")
    good("depth_64", '{"a":' + "[" * 63 + "]" * 63 + "," + index_of(MAP)[1:])


def add_names():
    for label, name, shown in (
            ("parent", "../model.safetensors", '"../model.safetensors"'),
            ("only_parent", "..", '".."'), ("parent_within", "a/../" + ONE, '"a/../'),
            ("parent_at_the_end", "a/..", '"a/.."'),
            ("here", "./" + ONE, '"./'), ("only_here", ".", '"."'), ("absolute", "/etc/passwd",
                                                                   '"/etc/passwd"'),
            ("root", "/", '"/"'), ("nothing", "", '""'), ("two_slashes", "a//" + ONE, '"a//'),
            ("slash_at_the_end", "a/", '"a/"'), ("backslash", "..\\" + ONE, r'"..\x5C'),
            ("drive", "C:" + ONE, '"C:'), ("url", "https://example.org/" + ONE, '"https:'),
            ("stream", ONE + ":x", f'"{ONE}:x"'), ("nul", ONE + "\0", f'"{ONE}\\x00"'),
            ("nul_and_parent", "a\0/../b", r'"a\x00/../b"'),
            ("escape", "/\x1b[2J\n", r'"/\x1B[2J\x0A"'), ("device", "/dev/zero", '"/dev/zero"'),
            ("proc", "/proc/self/mem", '"/proc/self/mem"'),
            ("long", "../" + "n" * 100_000, '"../nn')):
        text = index_of({"w": ONE, "bias": name})
        refused(f"name_{label}", text, "names the file " + shown, "does not lie beside it",
                at=json.dumps(name))
    text = index_of({"w": ONE, "bias": "../x"}).replace("../x", r"\u002e\u002e\u002fx")
    refused("name_parent_by_escapes", text, '"../x"', "does not lie beside it", at=r'"\u002e')
    for label, name, reason in (
            ("missing", "model-00003-of-00003.safetensors", "No such file"),
            ("in_a_missing_folder", "folder/x.safetensors", "No such file"),
            ("below_a_file", ONE + "/x", "Not a directory"), ("tilde", "~/x", "No such file"),
            ("spaces", " ", "No such file"), ("of_another_case", ONE.upper(), "No such file"),
            ("of_300_letters", "n" * 300, "name too long"),
            ("of_lines", "a\n\x1b[31m", "No such file")):
        refused(f"name_{label}", index_of({"w": ONE, "bias": name}), reason, "index", "names it",
                code="io")
    good("name_in_a_folder", index_of({"w": "a/b/c.safetensors", "bias": TWO}),
         shards={"a/b/c.safetensors": SHARDS[ONE], TWO: SHARDS[TWO]})
    good("name_of_dots", index_of({"w": "...", "bias": "..x"}),
         shards={"...": SHARDS[ONE], "..x": SHARDS[TWO]})
    good("name_of_control_characters", index_of({"w": "\x1b[31m\n", "bias": TWO}),
         shards={"\x1b[31m\n": SHARDS[ONE], TWO: SHARDS[TWO]})


def add_maps():
    in_one = lambda name: f'"{name}"' + f' in "{ONE}"'
    refused("tensor_missing", index_of({**MAP, "x": ONE}), in_one("x"), "no such tensor", at='"x"')
    refused("tensor_in_the_other", index_of({"w": ONE, "bias": ONE}), in_one("bias"),
            "no such tensor", at='"bias"')
    refused("tensor_of_an_escape", index_of({**MAP, "\x1b[2J\n": ONE}), r'"\x1B[2J\x0A"',
            "no such tensor", at=json.dumps("\x1b[2J\n"))
    refused("tensor_of_no_name", index_of({"": ONE}), 'tensor ""', "no such tensor", at='""')
    refused("tensor_with_a_nul", index_of({"w\0": ONE}), r'"w\x00"', at=r'"w\u0000"')
    refused("tensor_of_100_KB", index_of({"n" * 100_000: ONE}), "nnn...", "no such tensor")
    twice = '{"weight_map":{"w":"%s","bias":"%s",%s:"%s"}}'
    refused("tensor_twice", twice % (ONE, TWO, '"w"', ONE), in_one("w"), "twice",
            at=twice.index("%s:") - 4 + len(ONE + TWO))
    refused("tensor_twice_by_an_escape", twice % (ONE, TWO, r'"\u0077"', ONE), in_one("w"), "twice",
            at=r'"\u0077"')
    refused("tensor_in_two_files", twice % (ONE, TWO, '"w"', TWO), f'"w" in "{TWO}"',
            "no such tensor")
    both = {ONE: shard(w=W, bias=BIAS), TWO: shard(bias=floats(3, 9.0), w=W)}
    refused("tensor_in_two_files_that_have_it", twice % (ONE, ONE, '"w"', TWO), '"w"', "twice",
            shards=both)
    # Which of the shards counts is said by the index alone.
    good("stale_tensors", index_of(MAP), {"w": W, "bias": floats(3, 9.0)}, shards=both)
    good("one_file_for_all", index_of({"w": ONE, "bias": ONE}), shards={ONE: both[ONE]})
    good("not_all_tensors", index_of({"bias": ONE}), {"bias": BIAS}, shards={ONE: both[ONE]})
    many = {f"{i:x}": f"{i:x}.safetensors" for i in range(300_000)}
    refused("mass_of_files", index_of(many), "more than 65536 files", code="limit_exceeded",
            at=f'"{65536:x}.safetensors"')
    refused("mass_of_short_files", '{"weight_map":{' + ",".join(
        f'"{i:x}":"{i:x}"' for i in range(3_000_000)) + "}}", "more than 65536 files",
            code="limit_exceeded")
    refused("mass_of_tensors", index_of({f"{i:x}": ONE for i in range(300_000)}), "no such tensor")
    refused("mass_of_repeated_tensors", '{"weight_map":{' + ",".join(
        [f'"w":"{ONE}"'] * 300_000) + "}}", '"w"', "twice")
    refused("mass_of_escapes", '{"weight_map":{"' + "\\n" * 10_000_000 + f'":"{ONE}"}}}}',
            r"\x0A...", "no such tensor")
    good("mass_of_blanks", index_of(MAP) + " " * 20_000_000)
    add("mass_of_numbers", '{"x":[' + "0," * 10_000_000 + "0]," + index_of(MAP)[1:], either(BOTH))
    name = "n" * 200
    links = {f"{i}.safetensors": Link(ONE) for i in range(100)}
    refused("one_file_by_100_links",
            index_of({f"{name}{i}": f"{i}.safetensors" for i in range(100)}),
            "no such tensor", shards={**SHARDS, **links})
    good("one_file_by_two_names", index_of({"w": ONE, "bias": "link.safetensors"}),
         shards={ONE: both[ONE], "link.safetensors": Link(ONE)})
    hole = Made(lambda path: make_hole(path, index_of(MAP), HEADER_LIMIT + 1))
    case(f"index/longer_than_the_limit/{INDEX}", Set({INDEX: hole, **SHARDS}, INDEX),
         refuse("limit_exceeded", "100000001", "limit of 100000000"), is_huge=True)


def make_hole(path, text, size):
    """`text`, and zeros up to `size`, which the disk need not hold."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
        file.truncate(size)


def add_shards():
    text = index_of(MAP)
    whole = SHARDS[TWO].bytes()
    bad = lambda name, file, code, *words, at=None: add(
        f"shard_{name}", text, refuse(code, *words, at=at), {**SHARDS, TWO: file})
    bad("of_no_bytes", z.Built(), "not_a_checkpoint", "empty")
    bad("of_zeros", z.Built().changed(bytes(4096)), "not_a_checkpoint", "zero bytes")
    bad("cut", z.Built().changed(whole[:-1]), "corrupt", "truncated")
    bad("with_more_behind", z.Built().changed(whole + b"x"), "corrupt", "behind it")
    bad("pointer", z.Built().changed(b"version https://git-lfs.github.com/spec/v1\nsize 5\n"),
        "not_a_checkpoint", "git lfs pull")
    bad("twice_the_name", safetensors(of(FIRST, FIRST.replace("0,48", "48,96")), W + W), "corrupt",
        '"w" twice')
    bad("that_overlaps", safetensors(of(FIRST, FIRST.replace('"w"', '"bias"')), W), "corrupt",
        '"bias"', "begin at 48", at=8 + len(of(FIRST)))
    bad("that_is_an_index", text_file(text), "invalid_argument", "an index of shards")
    bad("that_is_the_index", Link(INDEX), "invalid_argument", "an index of shards")
    bad("folder", Made(os.mkdir), "not_a_checkpoint", "directory")
    bad("fifo", Made(os.mkfifo), "not_a_checkpoint", "regular file")
    bad("link_to_zero", Link("/dev/zero"), "not_a_checkpoint", "regular file")
    bad("link_to_itself", Link(TWO), "io", "symbolic links", "names it")
    bad("link_to_nothing", Link("nowhere"), "io", "No such file", "names it")
    bad("link_to_the_folder", Link("."), "not_a_checkpoint", "directory")
    for name, file in (("link", {"blob": SHARDS[TWO], TWO: Link("blob")}),
                       ("link_elsewhere", {"blobs/b": SHARDS[TWO], TWO: Link("blobs/b")})):
        good(f"shard_{name}", text, shards={ONE: SHARDS[ONE], **file})
    model = small()
    archive = torch_file(model)
    good("shard_of_torch", index_of({"w": "a.bin", "bias": TWO}),
         shards={"a.bin": archive, TWO: SHARDS[TWO]})
    refused("shard_of_torch_with_other_tensors", index_of({"w": ONE, "x": "a.bin"}), '"x"',
            '"a.bin"', shards={"a.bin": archive, ONE: SHARDS[ONE]}, at='"x"')
    compressed = torch_file(model, changes={"data/0": {"method": z.DEFLATED}})
    refused("shard_of_torch_that_is_compressed", index_of({"w": "a.bin"}), "compressed",
            code="unsupported", shards={"a.bin": compressed})
    snapshot = {"blobs/0": text_file(text), "blobs/1": SHARDS[ONE], "blobs/2": SHARDS[TWO],
                f"at/{INDEX}": Link("../blobs/0"), f"at/{ONE}": Link("../blobs/1"),
                f"at/{TWO}": Link("../blobs/2")}
    case(f"index/of_links/at/{INDEX}", Set(snapshot, f"at/{INDEX}"), opens(BOTH))
    only_the_index = dict(snapshot)
    del only_the_index[f"at/{ONE}"]
    case(f"index/of_links_without_a_shard/at/{INDEX}", Set(only_the_index, f"at/{INDEX}"),
         refuse("io", "No such file", "names it"))


def folder(name, files, verdict):
    case(f"folders/{name}", Set(files), verdict)


def add_folders():
    index, single = text_file(index_of(MAP)), shard(w=W, bias=BIAS)
    several = lambda *names: refuse("invalid_argument", "several checkpoints", *names)
    torch_made = torch_file(small())
    no = lambda *words: refuse("not_a_checkpoint", "no checkpoint", *words)
    folder("of_an_index", {**SHARDS, INDEX: index}, opens(BOTH))
    folder("of_one_file", {"any.safetensors": single, "config.json": text_file("{}")}, opens(BOTH))
    folder("of_the_usual_file", {"model.safetensors": single, "other.safetensors": SHARDS[ONE]},
           opens(BOTH))
    folder("of_shards", SHARDS, opens(BOTH))
    folder("of_an_index_and_more", {**SHARDS, INDEX: index, "consolidated.safetensors": single,
                                    "pytorch_model.bin": torch_made}, opens(BOTH))
    folder("of_both_kinds", {"model.safetensors": single, "pytorch_model.bin": torch_made},
           opens(BOTH))
    folder("of_two_files", {"a.safetensors": single, "b.safetensors": single},
           several('"a.safetensors"', '"b.safetensors"'))
    folder("of_two_indexes", {**SHARDS, INDEX: index, "model.safetensors.index.fp16.json": index},
           opens(BOTH))
    folder("of_an_index_and_the_usual_file", {**SHARDS, INDEX: index, "model.safetensors": single},
           opens(BOTH))
    folder("of_shards_and_another", {**SHARDS, "other.safetensors": single}, several(f'"{ONE}"'))
    folder("of_two_sets", {**SHARDS, ONE.replace("of-00002", "of-00001"): single},
           several(f'"{ONE}"'))
    folder("of_a_shard_0", {**SHARDS, ONE.replace("00001", "00000"): single}, several("00000"))
    folder("of_a_shard_beyond", {**SHARDS, ONE.replace("00001-", "00003-"): single},
           several("00003"))
    folder("of_escapes", {"\x1b[2Ja.safetensors": single, "b\n.safetensors": single},
           several(r'"\x1B[2Ja.safetensors"', r'"b\x0A.safetensors"'))
    folder("of_1000_files", {f"{i}.safetensors": SHARDS[ONE] for i in range(1000)},
           several('"0.safetensors"', "976 more"))
    folder("without_a_shard", {TWO: SHARDS[TWO]}, refuse("not_found", "shard 1 is missing"))
    folder("without_most_shards", {"m-00007-of-99999.safetensors": SHARDS[ONE]},
           refuse("not_found", "of 99999", "shard 1 is missing"))
    folder("of_shards_with_one_tensor_twice", {ONE: SHARDS[ONE], TWO: shard(w=W)},
           refuse("corrupt", '"w"', "twice", ONE, TWO))
    folder("of_one_shard", {"m-00001-of-00001.safetensors": single}, opens(BOTH))
    folder("of_a_bad_index", {**SHARDS, INDEX: text_file("{")}, refuse("corrupt", "not JSON", at=1))
    folder("of_an_index_that_is_a_folder", {**SHARDS, INDEX: Made(os.mkdir)}, opens(BOTH))
    folder("of_an_index_that_is_a_model", {**SHARDS, INDEX: single}, opens(BOTH))
    folder("of_nothing", {"README.md": text_file("none")}, no("*.bin"))
    folder("of_a_bin", {"pytorch_model.bin": torch_made}, opens(small().tensors))
    folder("of_another_bin", {"training_args.bin": torch_made}, no())
    folder("of_another_case", {"MODEL.SAFETENSORS": single}, no())
    folder("of_a_folder", {"model.safetensors": Made(os.mkdir)}, no("*.bin"))
    folder("of_a_link_to_itself", {"model.safetensors": Link(".")}, no("*.bin"))
    for name in (".metadata", "__0.metadata"):
        folder(f"of_torch_distributed{name}", {name: text_file("x"), "model.safetensors": single},
               refuse("corrupt", "pickle"))
    folder("of_torch_distributed__0_0.distcp",
           {"__0_0.distcp": text_file("x"), "model.safetensors": single},
           refuse("not_found", "torch.distributed.checkpoint", ".metadata"))
    case("folders/link", Made(lambda path: os.symlink("of_an_index", path)), opens(BOTH))


def add_damage():
    text = index_of(MAP)
    for length in range(1, len(text), 5):
        refused(f"cut_at_{length}", text[:length], "not JSON", at=length)
    for at in range(len(text)):
        bit = at % 7
        changed = bytes([*as_bytes(text)[:at], ord(text[at]) ^ 1 << bit, *as_bytes(text)[at + 1:]])
        add(f"bit_{bit}_of_byte_{at}", changed, either())


def add_cases():
    add_json()
    add_names()
    add_maps()
    add_shards()
    add_folders()
    add_damage()
