"""Where the bytes of a storage lie, told wrongly or in an unusual way: the right ones must come."""

import struct

import pickle_builder as p
import zip_builder as z
from catalogue import case, opens, refuse
from torch_files import MODELS, Model, floats, many, model_of, records, torch_file
from zip_builder import Hole, Record


def each_storage(model, **fields):
    return {"data/" + key: dict(fields) for key in model.storages}


def add_layouts():
    for kind, model in MODELS:
        add = lambda name, built, *verdicts: case(
            f"offsets/{kind}/{name}.pt", built, *(verdicts or (opens(model.tensors),)))
        keys = list(model.storages)
        add("storages_sorted_as_text", torch_file(model, storage_order=sorted(keys)))
        add("first_storage_last", torch_file(model, storage_order=keys[1:] + keys[:1]))
        add("two_storages_exchanged",
            torch_file(model, storage_order=[keys[0], keys[2], keys[1], *keys[3:]]))
        add("without_descriptors",
            torch_file(model, each_storage(model, flags=z.UTF8, descriptor=b"",
                                           local={"size": 0, "stored_size": 0})),
            *(2 * [refuse("corrupt", "size")]))
        sized = {"data/" + key: {"flags": z.UTF8, "descriptor": b"",
                                 "local": {"size": len(data), "stored_size": len(data)}}
                 for key, data in model.storages.items()}
        add("sizes_in_headers", torch_file(model, sized))
        add("descriptors_of_24_bytes",
            torch_file(model, {"data/" + key: {"descriptor": struct.pack(
                "<IIQQ", z.DESCRIPTOR, 0, len(data), len(data))}
                for key, data in model.storages.items() if data}))
        for more in (1, 4, 64, 128):
            add(f"padding_{more}_more", torch_file(model, each_storage(model, pad=more)))
            add(f"padding_{more}_more_once", torch_file(model, {"data/2": {"pad": more}}))
        add("without_padding", torch_file(model, each_storage(model, local_extra=b"")))
        add("without_padding_once", torch_file(model, {"data/2": {"local_extra": b""}}))
        add("without_any_padding",
            torch_file(model, {r.name: {"local_extra": b""} for r in records(model)}))
        for size in (1, 16, 64, 100):
            add(f"holes_of_{size}", torch_file(model, each_storage(model, before=b"\0" * size)))
            add(f"hole_of_{size}_once", torch_file(model, {"data/2": {"before": b"Z" * size}}))
        for alignment in (1, 2, 16, 32, 63, 128, 4096):
            add(f"aligned_to_{alignment}_and_says_64", torch_file(model, alignment=alignment))
            add(f"aligned_to_{alignment}",
                torch_file(model, {".storage_alignment": {"data": b"%d" % alignment}},
                           alignment=alignment))
        add("says_128_is_64", torch_file(model, {".storage_alignment": {"data": b"128"}}))
        add("foreign_records_between",
            torch_file(model, more=[("data/" + key, Record(f"extra/{key}", b"between"))
                                    for key in keys[1:]]))
        add("unlisted_records_between",
            torch_file(model, more=[("data/" + key, Record(f"extra/{key}", b"between",
                                                           listed=False)) for key in keys[1:]]))
        add("empty_storage_with_descriptor",
            torch_file(model, more=[("data/1", Record("data/99999", b"", flags=0x0808))]))
        add("version_first", torch_file(model, without=("version",),
                                        more=[("data.pkl", Record("version", b"3\n"))]))
        add("pickle_behind_storages", torch_file(model, without=("data.pkl",),
                                                 more=[("version", Record("data.pkl",
                                                                          model.pickle))]))
        add("pickle_at_the_end", torch_file(model, without=("data.pkl",),
                                            more=[(None, Record("data.pkl", model.pickle))]))
        # A header of the next storage, in the bytes of one, where a wrong chain would land.
        forged = z.pack(z.LOCAL_FIELDS, {
            "signature": z.LOCAL, "version": 0, "flags": 0x0808, "method": 0, "time": 0, "date": 0,
            "crc": 0, "stored_size": 0, "size": 0, "name_length": 14, "extra_length": 4}, None)
        for at in (0, 2, 4):
            data = (b"\0" * at + forged + b"archive/data/1")[:48].ljust(48, b"\0")
            add(f"forged_header_at_{at}",
                torch_file(model, {"data/0": {"data": data}}), opens({**model.tensors, **{
                    name: data for name, bytes_ in model.tensors.items()
                    if bytes_ == model.storages["0"]}, **column(model, data)}))


def column(model, data):
    if "column" not in model.tensors:
        return {}
    values = struct.unpack("<12f", data)
    return {"column": b"".join(data[4 * i:4 * i + 4] for i in (1, 5, 9))}


def add_keys():
    """Names of storages that are no numbers from 0 on."""
    def keyed(label, keys, order=None):
        for count, kind in ((len(keys), "few"),) + (((100, "many"),) if len(keys) == 1 else ()):
            names = keys if kind == "few" else [keys[0] + str(i) for i in range(count)]
            storages = {key: floats(12, i) for i, key in enumerate(names)}
            state = {f"t{i}": p.Tensor(p.Storage(key, 12), 0, (3, 4), (4, 1))
                     for i, key in enumerate(names)}
            tensors = {f"t{i}": storages[key] for i, key in enumerate(names)}
            model = Model(p.pickled(state), storages, tensors)
            case(f"offsets/keys_{label}_{kind}.pt", torch_file(model, storage_order=order),
                 opens(tensors))

    keyed("from_1", ["1", "2", "3"])
    keyed("with_gaps", ["0", "5", "17", "1000000"])
    keyed("other_order", ["1", "0", "2"], ["0", "1", "2"])
    keyed("of_addresses", ["94123456789120", "94123456789760", "7"])
    keyed("of_text", ["weights", "bias", "x y"])
    keyed("of_leading_zeros", ["00", "01", "1", "0"])
    keyed("of_signs", ["+1", "-1", "1"])
    keyed("beyond_32_bits", ["4294967295", "4294967296", "18446744073709551616"])
    keyed("prefixed", ["0_"])
    keyed("long", ["k" * 5000])
    keyed("of_control_characters", ["\x1b[31m", "\n"])


def add_paths():
    """A key is only a name in the archive, whatever it looks like."""
    for label, key in (("absolute", "/etc/passwd"), ("dots", "../../../etc/passwd"),
                       ("dots_back", "../data/0"), ("dot", "./0"), ("slash", "0/"),
                       ("double_slash", "/0"), ("device", "/dev/zero"), ("proc", "/proc/self/mem"),
                       ("nul", "0\0x"), ("empty", ""), ("backslash", "..\\0"), ("space", "0 "),
                       ("pickle", "../data.pkl"), ("long", "k" * 100000),
                       ("escape", "\x1b[2J\x1b[1;1H"), ("url", "file:///etc/passwd")):
        model = model_of(p.one(p.tensor(key=key)))
        case(f"offsets/path_{label}.pt", torch_file(model),
             refuse("corrupt", "without a slash") if "/" in key
             else refuse("corrupt", "archive/data/", "does not have"))


def add_sizes():
    """The record and the pickle speak of different sizes."""
    for kind, count in (("few", 3), ("many", 100)):
        for numel, label in ((13, "one_more"), (11, "one_less"), (0, "none"), (1, "one"),
                             (2**40, "2_to_40"), (2**60, "2_to_60"), (4096, "a_page")):
            def change(i, arguments):
                if i == 1:
                    arguments[0] = p.Storage("1", numel)
                    if numel < 12:
                        arguments[2:] = [(0,), (1,)]
            model = many(count, change)
            case(f"offsets/numel_{label}_{kind}.pt", torch_file(model),
                 refuse("corrupt", '"archive/data/1"', 48, 4 * numel))


def add_beyond_4_gib():
    """Holes, so that the files are small; what they say is as torch writes it."""
    big = (1 << 32) + 40

    def model_with(key, size):
        storages = {"0": floats(12), "1": floats(12, 5), "2": floats(12, 9), "3": floats(12, 20)}
        tensors = {f"t{i}": storages[i] for i in storages if i != key}
        state = {f"t{i}": p.Tensor(p.Storage(i, size if i == key else 12,
                                             "ByteStorage" if i == key else "FloatStorage"),
                                   0, (size,) if i == key else (12,), (1,)) for i in storages}
        storages[key] = Hole(size)
        return Model(p.pickled(state), storages, tensors)

    for key in ("0", "1", "3"):
        for size in (0xFFFFFFFE, 0xFFFFFFFF, 0x100000000, big):
            model = model_with(key, size)
            built = torch_file(model)
            verdict = opens(model.tensors)
            case(f"offsets/storage_{key}_of_{size}.pt", built, verdict, is_huge=True)
    model = model_with("1", big)
    truth = torch_file(model)
    data = model.storages["3"]
    # The place of storage 3 behind the hole, and its ZIP64 field with an offset only.
    wide = torch_file(model, {"data/3": {"central_extra": b""}})
    case("offsets/offset_only_zip64.pt", wide, opens(model.tensors), is_huge=True)
    for label, value in (("0", 0), ("beyond", truth.size), ("other", truth.header["data/2"])):
        lies = torch_file(model, {"data/3": {"central": {"header_offset": 0xFFFFFFFF}}})
        at = lies.entry["data/3"] + 46 + len("archive/data/3") + 4
        case(f"offsets/offset_by_zip64_{label}.pt", Patched(lies, at, struct.pack("<Q", value)),
             refuse("corrupt", "archive/"), is_huge=True)


class Patched:
    def __init__(self, built, at, new):
        self.built, self.at, self.new = built, at, new
        self.pickle_bytes = built.pickle_bytes

    def write(self, path):
        self.built.write(path)
        with open(path, "r+b") as file:
            file.seek(self.at)
            file.write(self.new)


def add_cases():
    add_layouts()
    add_keys()
    add_paths()
    add_sizes()
    add_beyond_4_gib()
