"""Archives of torch.export.save that lie: JSON says which tensor lies where in which record."""

import copy
import json
import struct

import pickle_builder as p
import zip_builder as z
from catalogue import case, opens, refuse
from torch_files import IDENTITY, floats, small, torch_file
from zip_builder import Archive, Record

WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"
W, C = floats(12), floats(12, 30.0)
BOTH = {"w": W, "c": C}
ABSENT = object()


def numbers(*values):
    return [{"as_int": value} for value in values]


def entry(record="weight_0", sizes=(3, 4), strides=(4, 1), offset=0, **fields):
    """An entry for a tensor of floats. `fields` replace those of its meta or of itself, ABSENT
    takes one away. Sizes and strides that are no tuple stand as they are."""
    dims = lambda given: numbers(*given) if isinstance(given, tuple) else given
    meta = {"dtype": 7, "sizes": dims(sizes), "requires_grad": False,
            "device": {"type": "cpu", "index": None}, "strides": dims(strides),
            "storage_offset": {"as_int": offset}, "layout": 7}
    whole = {"path_name": record, "is_param": True, "use_pickle": False, "tensor_meta": meta}
    for name, value in fields.items():
        (meta if name in meta else whole)[name] = value
    for place in (meta, whole):
        for name in [name for name, value in place.items() if value is ABSENT]:
            del place[name]
    return whole


def config(**entries):
    return {"config": entries}


def exported(weights=None, constants=None, records=None, more=(), without=(), changes=None):
    """`weights` and `constants`: configurations, or bytes in their place."""
    text = lambda made: made if isinstance(made, bytes) else json.dumps(made).encode()
    weights = text(config(w=entry()) if weights is None else weights)
    constants = text(config(c=entry("tensor_0")) if constants is None else constants)
    storages = {"data/weights/weight_0": W, "data/constants/tensor_0": C} | (records or {})
    made = [Record("archive_format", b"pt2"), Record("archive_version", b"0")]
    made += [Record(name, data) for name, data in storages.items()]
    made += [Record(WEIGHTS, weights), Record(CONSTANTS, constants), *more,
             Record(".data/version", b"6\n"), Record("byteorder", b"little"),
             Record(".data/serialization_id", IDENTITY)]
    for record in made:
        for field, value in (changes or {}).get(record.name, {}).items():
            setattr(record, field, value)
    built = Archive([r for r in made if r.name not in without]).build()
    built.pickle_bytes = len(weights) + len(constants)
    return built


def good(name, tensors=None, **parts):
    case(f"exported/{name}.pt2", exported(**parts), opens(BOTH if tensors is None else tensors))


def refused(name, code, *words, at=None, **parts):
    """`at`: the record that is blamed by its header, or that and the byte of it."""
    built = exported(**parts)
    if at is not None:
        at = built.header[at] if isinstance(at, str) else built.payload[at[0]] + at[1]
    case(f"exported/{name}.pt2", built, refuse(code, *words, at=at))


def bad_entry(name, *words, code="corrupt", **fields):
    """The same lie in both folders."""
    refused(f"{name}_of_a_weight", code, f"archive/{WEIGHTS}", 'tensor "w"', *words, at=WEIGHTS,
            weights=config(w=entry(**fields)))
    fields.setdefault("record", "tensor_0")
    refused(f"{name}_of_a_constant", code, f"archive/{CONSTANTS}", 'tensor "c"', *words,
            at=CONSTANTS, constants=config(c=entry(**fields)))


def add_archives():
    good("plain")
    good("format_of_another_name", changes={"archive_format": {"data": b"\x1b[2J"}})
    # What is in the way of a pickle decides what the archive is.
    refused("without_archive_format", "not_a_checkpoint", "data.pkl", without=("archive_format",))
    good("without_archive_version", without=("archive_version",))
    good("only_weights", {"w": W}, without=(CONSTANTS,))
    good("only_constants", {"c": C}, without=(WEIGHTS,))
    good("without_configurations", {}, without=(WEIGHTS, CONSTANTS))
    refused("weights_in_a_checkpoint", "unsupported", "data/weights/model.pt", "torch 2.8",
            without=(WEIGHTS, CONSTANTS), records={"data/weights/model.pt": b"PK"})
    refused("constants_in_a_checkpoint", "unsupported", "data/constants/model.pt",
            without=(WEIGHTS, CONSTANTS), records={"data/constants/model.pt": b"PK"})
    refused("without_configurations_and_version", "unsupported", "does not say which tensors",
            without=(WEIGHTS, CONSTANTS, "archive_version"))
    refused("without_version", "corrupt", "version", without=(".data/version",))
    refused("version_11", "unsupported", "version 11", changes={".data/version": {"data": b"11"}})
    saved = small()
    case("exported/format_record_in_a_saved_file.pt",
         torch_file(saved, more=[(None, Record("archive_format", b"pt2"))]), opens(saved.tensors))
    # Records that other programs run are records.
    code = p.pickle(p.call(p.name("posix", "system"), p.text("id")))
    good("with_code", more=(Record("data/aotinductor/model/x.so", b"\x7fELF" + bytes(100)),
                            Record("data/sample_inputs/model.pt", code),
                            Record("data/constants/custom_obj_0", code)))
    for record in ("data/weights/weight_0", "data/constants/tensor_0"):
        refused(f"without_{record.replace('/', '_')}", "corrupt", record, "does not have",
                without=(record,))
    good("first_of_two_models", {"a.w": W, "b.w": W}, without=(WEIGHTS, CONSTANTS), more=tuple(
        Record(f"data/weights/{name}_weights_config.json", json.dumps(config(w=entry())).encode())
        for name in "ab"))
    for label, name in (("empty", ""), ("dots", "../.."), ("escape", "\x1b[2J"),
                        ("long", "m" * 9000), ("config", "_weights_config.json")):
        good(f"model_name_{label}", {"w": W}, without=(WEIGHTS, CONSTANTS), more=(
            Record(f"data/weights/{name}_weights_config.json",
                   json.dumps(config(w=entry())).encode()),))
    refused("two_configurations_of_a_model", "corrupt", "two records", WEIGHTS,
            more=(Record(WEIGHTS, b"{}"),))


def add_json():
    """The text itself."""
    whole = json.dumps(config(w=entry())).encode()
    own = f"archive/{WEIGHTS}"
    for i in range(12):
        length = i * len(whole) // 12
        refused(f"cut_at_{length}", "corrupt", own, "is not JSON", at=(WEIGHTS, length),
                weights=whole[:length])
    for label, text, at in (
            ("rubbish", b"\xff" * 100, 0), ("zeros", bytes(100), 0),
            ("two_texts", whole * 2, len(whole)), ("tail", whole + b"x", len(whole)),
            ("comment", b"/* */" + whole, 0), ("last_comma", b'{"config": {},}', 14),
            ("single_quotes", b"{'config': {}}", 1), ("nan", b'{"config": NaN}', 11),
            ("hex", b'{"config": 0x1}', 12), ("zeros_in_front", b'{"config": 007}', 12),
            ("plus", b'{"config": +1}', 11), ("no_utf8", b'{"config": "\xc3\x28"}', 12),
            ("surrogate", b'{"config": "\\ud800"}', 13), ("control", b'{"config": "\x01"}', 12),
            ("escape", b'{"config": "\\x41"}', 13), ("no_comma", b'{"config": {} "a": 1}', 14),
            ("no_key", b'{"config": {}, 12: 1}', 15)):
        refused(f"json_{label}", "corrupt", own, "is not JSON", at=(WEIGHTS, at), weights=text)
    refused("json_1e400", "corrupt", own, "does not fit a double", at=(WEIGHTS, 11),
            weights=b'{"config": 1e400}')
    refused("json_with_a_byte_order_mark", "corrupt", own, "is not JSON", at=(WEIGHTS, 0),
            weights=b"\xef\xbb\xbf" + whole)
    for label, text, key, at in (
            ("root", b'{"config": {}, "config": {}}', "config", 15),
            ("config", b'{"config": {"w": 1, "w": 2}}', "w", 20),
            ("escaped", b'{"config": {"w": 1, "\\u0077": 2}}', "w", 20),
            ("unread", b'{"other": {"\\u001b": 1, "\\u001b": 2}}', "\\x1B", 24)):
        refused(f"key_twice_in_{label}", "corrupt", own, f'key "{key}" twice', at=(WEIGHTS, at),
                weights=text)
    refused("json_65_deep", "corrupt", own, "deeper than 64", at=(WEIGHTS, 83),
            weights=b'{"config": {}, "x": ' + b"[" * 64 + b"]" * 64 + b"}")
    good("json_64_deep", {"c": C}, weights=b'{"config": {}, "x": ' + b"[" * 63 + b"]" * 63 + b"}")
    refused("json_of_a_million_brackets", "corrupt", own, "deeper than 64", at=(WEIGHTS, 64),
            weights=b"[" * 1_000_000)
    refused("json_number_2_to_63", "corrupt", own, "larger than 2^63 - 1", at=(WEIGHTS, 20),
            weights=b'{"config": {}, "x": 9223372036854775808}')
    refused("json_number_2_to_64", "corrupt", own, "larger than 2^63 - 1", at=(WEIGHTS, 20),
            weights=b'{"config": {}, "x": 18446744073709551616}')
    refused("json_number_below_64_bits", "corrupt", own, "smaller than -2^63", at=(WEIGHTS, 20),
            weights=b'{"config": {}, "x": -9223372036854775809}')
    good("json_number_2_to_63_less_1", {"c": C},
         weights=b'{"config": {}, "x": [9223372036854775807, -9223372036854775808]}')
    for label, text in (("empty", b"{}"), ("list", b"[]"), ("number", b"1"), ("null", b"null"),
                        ("config_is_a_list", b'{"config": []}'),
                        ("config_is_null", b'{"config": null}'),
                        ("config_in_capitals", b'{"CONFIG": {}}')):
        refused(f"json_{label}", "corrupt", own, 'no object "config"', at=WEIGHTS, weights=text)
    for label, value in (("null", None), ("number", 1), ("list", []), ("text", "w"), ("empty", {})):
        refused(f"entry_is_{label}", "corrupt", own, 'tensor "w"', "no path_name", at=WEIGHTS,
                weights=config(w=value))
    good("json_of_8_MB_of_numbers", {"c": C},
         weights=b'{"config": {}, "x": [' + b"1," * 4_000_000 + b"1]}")
    keys = b"".join(b'"%d":1,' % i for i in range(600_000))
    good("json_of_600000_keys", {"c": C}, weights=b'{"config": {}, "x": {' + keys + b'"k":1}}')
    refused("json_of_four_million_numbers", "limit_exceeded", "memory", "budget",
            weights=b'{"config": {}, "x": [' + b"1," * 4_200_000 + b"1]}")
    good("json_of_a_million_numbers", {"c": C},
         weights=b'{"config": {}, "x": [' + b"1," * 1_000_000 + b"1]}")
    for label, one in (("lists", b"[],"), ("objects", b"{},")):
        refused(f"json_of_two_million_{label}", "limit_exceeded", "memory", "budget",
                weights=b'{"config": {}, "x": [' + one * 2_000_000 + b"1]}")
    packed = lambda **fields: {WEIGHTS: {"method": z.DEFLATED, **fields}}
    good("json_deflated", changes=packed())
    refused("json_deflated_and_cut", "corrupt", own, "is not JSON", at=WEIGHTS,
            changes=packed(data=whole[:-9]))
    refused("json_crc", "corrupt", own, "CRC", changes={WEIGHTS: {"crc": 12345}})
    refused("json_larger_than_said", "corrupt", own, "inflates to more than",
            changes=packed(stored=z.deflate(b" " * (1 << 20))))
    refused("json_bomb", "limit_exceeded", own, 2**30,
            changes=packed(data=z.Hole(2**30 + 1), stored=z.deflate(bytes(1 << 20))))


def add_entries():
    for label, value in (("absent", ABSENT), ("null", None), ("number", 0), ("list", ["weight_0"])):
        bad_entry(f"path_name_{label}", "no path_name", record=None, path_name=value)
    for label, value in (("slash", "x/weight_0"), ("dots", "../../data/weights/weight_0"),
                         ("absolute", "/etc/passwd"), ("other_folder", "../constants/tensor_0")):
        bad_entry(f"path_name_with_{label}", "expected no slash", record=value)
    for label, value in (("empty", ""), ("nul", "weight_0\0"), ("capitals", "WEIGHT_0"),
                         ("space", "weight_0 "), ("escape", "\x1b[2J"), ("long", "w" * 70_000)):
        bad_entry(f"path_name_{label}", "does not have", record=value)
    # A record is bytes, whatever it is called.
    text = json.dumps(config(w=entry("model_weights_config.json", (4,), (1,), dtype=1))).encode()
    good("path_name_of_the_configuration", {"w": text[:4], "c": C}, weights=text)
    for label, value in (("0", 0), ("14", 14), ("27", 27), ("36", 36), ("minus_1", -1),
                         ("2_to_32", 2**32 + 7), ("absent", ABSENT), ("text", "7"), ("real", 7.0),
                         ("null", None), ("true", True), ("list", [7])):
        bad_entry(f"dtype_{label}", "dtype that is not known", dtype=value)
    for dtype, size in ((1, 1), (5, 8), (6, 2), (11, 16), (12, 1), (13, 2), (29, 1), (35, 8)):
        count = 48 // size
        good(f"dtype_{dtype}_fits", weights=config(w=entry(sizes=(count,), strides=(1,),
                                                           dtype=dtype)))
        refused(f"dtype_{dtype}_beyond", "corrupt", 'tensor "w"', "reaches beyond",
                weights=config(w=entry(sizes=(count + 1,), strides=(1,), dtype=dtype)))
    for label, value in (("absent", ABSENT), ("null", None), ("number", 0), ("text", "0"),
                         ("symbol", {"as_expr": {"expr_str": "s0"}}), ("real", {"as_int": 1.0}),
                         ("true", {"as_int": True}), ("empty", {})):
        bad_entry(f"offset_{label}", "no storage_offset", storage_offset=value)
    for name in ("sizes", "strides"):
        for label, value in (("symbol", {"as_expr": {"expr_str": "s0"}}), ("null", None),
                             ("number", 4), ("real", {"as_int": 4.0}), ("text", {"as_int": "4"})):
            bad_entry(f"{name}_with_{label}", "size or stride that is no number",
                      **{name: [{"as_int": 3}, value]})
        for label, value in (("absent", ABSENT), ("null", None), ("number", 12), ("text", "3, 4"),
                             ("object", {"as_int": 12}), ("short", numbers(3)),
                             ("long", numbers(3, 2, 2)), ("empty", [])):
            bad_entry(f"{name}_{label}", "sizes and", "strides", **{name: value})
    for rank in (65, 256, 100_000):
        lies = {"sizes": numbers(*[1] * rank), "strides": numbers(*[1] * rank)}
        refused(f"rank_{rank}", "limit_exceeded", 'tensor "w"', f"{rank} dimensions",
                "limit is 64", at=WEIGHTS, weights=config(w=entry(**lies)))
    good("rank_64", {"w": W[:4], "c": C},
         weights=config(w=entry(sizes=(1,) * 64, strides=(1,) * 64)))


def add_bounds():
    def beyond(name, *words, **lies):
        refused(f"beyond_{name}", "corrupt", 'tensor "w"', *words, weights=config(w=entry(**lies)))

    reaches = "reaches beyond its storage"
    beyond("by_an_element", reaches, 48, 13, sizes=(13,), strides=(1,))
    beyond("by_the_offset", reaches, offset=1)
    beyond("by_a_stride", reaches, strides=(5, 1))
    beyond("by_1_TiB", reaches, 2**38, sizes=(2**38,), strides=(1,))
    beyond("wraps_to_0", reaches, sizes=(2**32, 2**32), strides=(2**32, 1))
    beyond("wraps_to_48", reaches, sizes=(2**62 + 12,), strides=(1,))
    beyond("sum_wraps", reaches, sizes=(2, 2), strides=(2**62, 2**62))
    beyond("offset_2_to_62", reaches, sizes=(12,), strides=(1,), offset=2**62)
    beyond("offset_2_to_63", reaches, sizes=(1,), strides=(1,), offset=2**63 - 1)
    beyond("negative_size", "has size -3", sizes=(-3, 4))
    beyond("two_negative_sizes", "has size -3", sizes=(-3, -4))
    beyond("negative_stride", "has stride -4", strides=(-4, 1))
    beyond("negative_offset", "-1", offset=-1)
    beyond("offset_of_minus_2_to_63", -2**63, offset=-2**63)
    good("offset", {"w": W[16:32], "c": C},
         weights=config(w=entry(sizes=(4,), strides=(1,), offset=4)))
    good("stride_0", {"w": W[8:12] * 100, "c": C},
         weights=config(w=entry(sizes=(100,), strides=(0,), offset=2)))
    case("exported/stride_0_of_2_to_60.pt2",
         exported(config(w=entry(sizes=(2**60,), strides=(0,)))), opens())
    good("empty_far_away", {"w": b"", "c": C},
         weights=config(w=entry(sizes=(0, 2**40), strides=(2**40, 1), offset=2**40)))
    good("empty_record", {"w": b"", "c": C}, records={"data/weights/weight_0": b""},
         weights=config(w=entry(sizes=(0,), strides=(1,))))
    swapped = struct.pack(">12f", *struct.unpack("<12f", W))
    good("records_of_the_other_byte_order", {"w": W, "bytes": swapped, "c": W},
         records={"data/weights/weight_0": swapped, "data/constants/tensor_0": swapped},
         weights=config(w=entry(), bytes=entry(sizes=(48,), strides=(1,), dtype=1)),
         changes={"byteorder": {"data": b"big"}})
    refused("record_is_empty", "corrupt", 'tensor "w"', reaches,
            records={"data/weights/weight_0": b""})
    refused("record_a_byte_short", "corrupt", 'tensor "w"', reaches,
            records={"data/weights/weight_0": W[:47]})
    good("record_larger_than_its_tensors", records={"data/weights/weight_0": W + b"odd"})
    good("shared_record", {"w": W, "v": W[4:], "c": C},
         weights=config(w=entry(), v=entry(sizes=(11,), strides=(1,), offset=1)))
    good("shared_record_of_two_types", {"w": W, "v": W, "c": C},
         weights=config(w=entry(), v=entry(sizes=(48,), strides=(1,), dtype=1)))
    good("record_deflated", changes={"data/weights/weight_0": {"method": z.DEFLATED}})
    refused("record_larger_than_said", "corrupt", "data/weights/weight_0", "inflates to more than",
            changes={"data/weights/weight_0": {"method": z.DEFLATED,
                                               "stored": z.deflate(bytes(1 << 20))}})
    case("exported/record_crc.pt2", exported(changes={"data/weights/weight_0": {"crc": 12345}}),
         opens(BOTH), refuse("corrupt", "data/weights/weight_0", "CRC"))
    # Only the first record's header is read before all of them are.
    for record, is_read in (("data/weights/weight_0", True), ("data/constants/tensor_0", False)):
        refusal = refuse("corrupt", record, "compression method", 8, 0)
        case(f"exported/local_header_of_{record.rpartition('/')[2]}.pt2",
             exported(changes={record: {"local": {"method": 8}}}),
             refusal if is_read else opens(BOTH), refusal)


def add_facts():
    """What is said of a tensor besides its place."""
    for label, fields in (("pickled", {"use_pickle": True}), ("sparse", {"layout": 1}),
                          ("without_layout", {"layout": ABSENT}), ("layout_8", {"layout": 8}),
                          ("layout_text", {"layout": "strided"}),
                          ("meta_null", {"tensor_meta": None}),
                          ("without_meta", {"tensor_meta": ABSENT}),
                          ("meta_number", {"tensor_meta": 7}), ("meta_list", {"tensor_meta": [7]})):
        good(f"not_listed_{label}", {"c": C}, weights=config(w=entry(**fields)))
    for label, fields in (("param_null", {"is_param": None}), ("param_text", {"is_param": "x"}),
                          ("pickle_number", {"use_pickle": 1}),
                          ("grad_text", {"requires_grad": ""}),
                          ("grad_absent", {"requires_grad": ABSENT}),
                          ("device_absent", {"device": ABSENT}), ("device_null", {"device": None}),
                          ("device_text", {"device": "cuda:0"}),
                          ("device_index_text", {"device": {"type": "cuda", "index": "0"}}),
                          ("device_far", {"device": {"type": "cuda", "index": 2**63 - 1}}),
                          ("device_escape", {"device": {"type": "\x1b[2J", "index": -1}}),
                          ("more_fields", {"later": [1, {"x": None}]})):
        good(f"fact_{label}", weights=config(w=entry(**fields)))
    for count in (64, 65):
        many = {f"t{i}": entry(device={"type": "cuda", "index": i}) for i in range(count)}
        if count == 64:
            good("devices_64", {name: W for name in many}, weights=config(**many),
                 without=(CONSTANTS,))
        else:
            refused("devices_65", "limit_exceeded", "more than 64 devices", weights=config(**many))
    for label, name in (("empty", ""), ("nul", "a\0b"), ("line", "a\nb"), ("escape", "\x1b[2J"),
                        ("70_kB", "n" * 70_000), ("dots", "..."), ("html", "<script>")):
        good(f"tensor_name_{label}", {name: W, "c": C}, weights={"config": {name: entry()}})
        refused(f"tensor_name_{label}_in_an_error", "corrupt", "tensor ", "reaches beyond",
                weights={"config": {name: entry(sizes=(13,), strides=(1,))}})
    same = config(w=entry("tensor_0"))
    case("exported/a_name_in_both_folders.pt2", exported(constants=same), opens())
    many = {f"t{i}": entry() for i in range(20_000)}
    good("20000_tensors", {**{name: W for name in many}, "c": C}, weights=config(**many))
    far = copy.deepcopy(entry())
    far["tensor_meta"]["sizes"] = numbers(*[1] * 64)
    far["tensor_meta"]["strides"] = numbers(*[1] * 64)
    good("3000_tensors_of_rank_64", {**{f"t{i}": W[:4] for i in range(3000)}, "c": C},
         weights=config(**{f"t{i}": far for i in range(3000)}))


def add_cases():
    add_archives()
    add_json()
    add_entries()
    add_bounds()
    add_facts()
