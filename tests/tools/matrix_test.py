#!/usr/bin/env python3
"""Every command on a file of every format: the right result, or a refusal that says why.

    matrix_test.py WEIGHTMAP

What is right is what torch, safetensors and gguf read from the same file.
"""

import json
import mmap
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

import numpy
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import format_files  # noqa: E402

TOOL = pathlib.Path(sys.argv[1]).resolve()
ENVIRONMENT = {key: text for key, text in os.environ.items() if not key.startswith("WEIGHTMAP_")}
# They have arrays of numpy and numbers beside their tensors.
WITH_VALUES = ("pt", "pt, protocol 5", "legacy")
# What the tool says of a tensor in blocks, of which gguf's reader has the bytes.
BLOCKS = {"dtype": "q8_0", "shape": [2, 32], "nbytes": 68}


class Refused(Exception):
    pass


class Cell:
    """One command on one file."""

    def __init__(self, form, path, tensors, folder):
        self.form, self.path, self.tensors, self.folder = form, path, tensors, folder
        self.equal = unittest.TestCase().assertEqual
        self.out = folder / "out"

    def run(self, command, *arguments, code=0, **options):
        options = {"env": ENVIRONMENT | {"WEIGHTMAP_RUNTIME_DIR": str(self.folder / "shared")},
                   "capture_output": True, "text": True, "cwd": self.folder, **options}
        words = [TOOL, *command.split(), *map(str, arguments)]
        done = subprocess.run(words, check=False, **options)
        if done.returncode != code:
            raise Refused(done.stderr)
        return done.stdout

    def json(self, command, *arguments, **options):
        return json.loads(self.run(command, "--json", *arguments, **options))

    def files(self):
        return [self.path] if self.path.is_file() else [
            file for file in self.path.iterdir() if file.suffix != ".json"]

    def size(self):
        return sum(file.stat().st_size for file in self.path.iterdir()) \
            if self.path.is_dir() else self.path.stat().st_size

    def nbytes(self):
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def listed(self):
        """By name as the tool lists them: each piece of a tensor that two processes have cut."""
        found = {}
        for name, tensor in self.tensors.items():
            if self.form != "dcp, two ranks" or name not in format_files.CUTS:
                found[name] = tensor
                continue
            for cut in format_files.CUTS[name]:
                rows, columns = (slice(*map(int, part.split(":"))) for part in cut.split(", "))
                found[f"{name}[{cut}]"] = tensor[rows, columns]
        return found

    def holds(self, found, tensors):
        """The same names, dtypes, shapes and elements."""
        self.equal(sorted(found), sorted(tensors))
        for name, tensor in tensors.items():
            self.equal((found[name].dtype, found[name].shape), (tensor.dtype, tensor.shape), name)
            self.equal(torch.equal(found[name], tensor), True, name)


def described(name, tensor):
    if name == "blocks":
        return BLOCKS
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape),
            "nbytes": tensor.nbytes}


def ls(cell):
    listed = {tensor["name"]: {key: tensor[key] for key in BLOCKS}
              for tensor in cell.json("ls", cell.path)["tensors"]}
    cell.equal(listed, {name: described(name, tensor) for name, tensor in cell.listed().items()})


def ls_records(cell):
    """As zipfile reads them."""
    found = cell.json("ls --records", cell.path)
    with zipfile.ZipFile(cell.path) as archive:
        records = [(entry.filename.removeprefix(found["archive"] + "/"), entry.file_size, entry.CRC)
                   for entry in archive.infolist()]
    cell.equal([(one["name"], one["size"], one["crc32"]) for one in found["records"]], records)


def ls_sum(cell):
    found = cell.json("ls --sum", cell.path)["all"]
    cell.equal((found["tensors"], found["bytes"]), (len(cell.listed()), cell.nbytes()))


TREE = {
    "pt": "lr: 0.5", "pt, protocol 5": "lr: 0.5", "legacy": "lr: 0.5",
    "torchscript": "training: True", "pt2": "layout: 7", "safetensors": "format: 'pt'",
    "shards": "total_size: 0",
    "gguf": "general.architecture: 'llama'", "splits": "split.count: 2", "npz": "5 tensors",
    "pickle": "weight: numpy.ndarray float32 (3, 4)",
    "dcp": "scalar: int64 [], 8 B", "dcp, two ranks": "rank: 1",
}


def tree(cell):
    lines = cell.run("tree", "--all", cell.path).splitlines()
    cell.equal(TREE[cell.form] in [line.strip() for line in lines], True, lines)
    labels = {line.strip().split(": ")[0] for line in lines}
    cell.equal([name for name in cell.tensors
                if not any(f".{name}".endswith(f".{label}") for label in labels)], [])


def ls_info(cell):
    found = cell.json("ls --info", cell.path)
    cell.equal((found["tensors"], found["tensor_bytes"], found["unsupported"]),
               (len(cell.listed()), cell.nbytes(), []))


SCAN = {"pt": "plain data", "pt, protocol 5": "plain data", "legacy": "plain data",
        "pickle": "plain data",
        "torchscript": "unsafe"}


def scanned(cell, command):
    """Of DCP the metadata, which is a pickle."""
    verdict = SCAN.get(cell.form, "safe")
    files = [cell.path / ".metadata"] if cell.form.startswith("dcp") else cell.files()
    found = cell.json(command, *files, code=1 if verdict == "unsafe" else 0)["files"]
    cell.equal({file["verdict"] for file in found}, {verdict})
    return found


def scan(cell):
    scanned(cell, "scan")


def scan_names(cell):
    found = {line["global"] for file in scanned(cell, "scan --names")
             for pickle in file["pickles"] for line in pickle["globals"]}
    cell.equal(any(name.startswith("numpy.") for name in found),
               cell.form in ("pt", "pt, protocol 5", "legacy", "pickle"))


def cat(cell):
    """Numbers and arrays beside the tensors, too."""
    for name, tensor in (cell.tensors | cell.listed()).items():
        raw = cell.run("cat --raw", cell.path, name, text=False)
        cell.equal(raw, tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes(), name)
    if cell.form in WITH_VALUES:
        cell.equal([cell.run("cat", cell.path, name) for name in ("array", "text", "lr")],
                   ["array: int32 [2, 3]\n[[0 1 2]\n [3 4 5]]\n",
                    "text: float64 [2]\n[-0.5 -0.5]\n", "0.5\n"])


def matrix_of(cell):
    """A tensor of two dimensions; of two ranks one that is cut."""
    return "model.columns" if cell.form == "dcp, two ranks" else "weight"


def cat_slice(cell):
    name = matrix_of(cell)
    raw = cell.run("cat --raw --slice 1:,2", cell.path, name, text=False)
    cell.equal(raw, cell.tensors[name][1:, 2].contiguous().numpy().tobytes())


def cat_to_file(cell):
    name = matrix_of(cell)
    cell.run("cat", cell.path, name, "-o", cell.out.with_suffix(".npy"))
    cell.equal(numpy.load(cell.out.with_suffix(".npy")).tolist(), cell.tensors[name].tolist())


def stats(cell):
    found = {line["name"]: line for line in cell.json("stats", cell.path)["tensors"]}
    cell.equal(sorted(found), sorted(cell.listed()))
    for name, tensor in cell.listed().items():
        if name == "blocks":
            cell.equal(found[name]["error"]["message"],
                       "q8_0 tensors have no statistics: what they store are not their values")
            continue
        values = tensor.double()
        ends = [values.min().item(), values.max().item(), values.mean().item()] \
            if values.numel() else [None] * 3
        cell.equal([found[name][key] for key in ("count", "min", "max", "mean", "zeros")],
                   [values.numel(), *ends, int((values == 0).sum())], name)


def diff(cell):
    """With the format that every tensor but those in blocks fits into; of two ranks with itself."""
    if cell.form == "dcp, two ranks":
        cell.equal(cell.json("diff", cell.path, cell.path)["counts"]["tensors"]["equal"],
                   len(cell.listed()))
        return
    other = cell.folder / "other.safetensors"
    format_files.write_safetensors(other)
    counts = cell.json("diff", cell.path, other)["counts"]["tensors"]
    expected = set(format_files.tensors())
    cell.equal(counts, {"equal": len(expected & set(cell.tensors)), "changed": 0, "renamed": 0,
                        "removed": len(set(cell.tensors) - expected),
                        "added": len(expected - set(cell.tensors)), "not_compared": 0})


def verify(cell):
    found = cell.json("verify --crc", cell.path)
    cell.equal((found["ok"], found["faults"]), (True, []))


def residency(cell):
    found = cell.json("residency --by-tensor", cell.path)
    cell.equal((found["file_bytes"], {line["name"]: line["bytes"] for line in found["groups"]}),
               (cell.size(), {name: tensor.nbytes for name, tensor in cell.listed().items()}))


def residency_repair(cell):
    cell.equal(cell.json("residency --repair", cell.path)["file_bytes"], cell.size())


def doctor(cell):
    found = {line["topic"]: line for line in cell.json("doctor", cell.path)["findings"]}
    nbytes = sum(tensor.nbytes for tensor in cell.tensors.values() if tensor.dtype == torch.float32)
    cell.equal(f"float32 {nbytes} B" in found["dtype"]["found"], True, found["dtype"])


def residency_evict(cell):
    """Where another process holds a page, it says so."""
    [found] = cell.json("residency --evict", cell.path)["files"]
    cell.equal(found["file_bytes"], cell.size())
    cell.equal(found["cached_after"] == 0 or found["reason"] is not None, True, found)


def warm(cell):
    found = cell.json("warm", cell.path)
    cell.equal((found["bytes"], found["bytes_left_out"]), (cell.size(), 0))


def warm_crc(cell):
    """Of each storage, or how many have no checksum."""
    crc = cell.json("warm --crc", cell.path)["crc"]
    storages = cell.json("ls --info", cell.path)["storages"]
    cell.equal((crc["storages_checked"] + crc["storages_without_crc"], crc["faults"]),
               (storages, []))


def stage(cell):
    listed = json.loads(cell.run("stage", cell.path, "--", TOOL, "ls", "--json", "{}"))["tensors"]
    cell.equal(sorted(tensor["name"] for tensor in listed), sorted(cell.listed()))


def ps(cell):
    """A file that is open is not mapped."""
    file = cell.files()[0]
    with open(file, "rb") as opened:
        cell.equal(cell.json("ps", cell.path)["processes"], [])
        with mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ):
            cell.equal([(one["pid"], one["file"]) for one in cell.json("ps", cell.path)[
                "processes"]], [(os.getpid(), str(file))])


def held(cell, *paths):
    process = subprocess.Popen(
        [TOOL, "hold", "--json", "--no-lock", "--socket", cell.folder / "socket", *paths],
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = process.stdout.readline()
    process.terminate()
    if not said:
        raise Refused(process.communicate()[1])
    process.communicate()
    return json.loads(said)["files"]


def hold(cell):
    [file] = held(cell, cell.path)
    cell.equal((file["state"], file["file_bytes"]), ("held", cell.size()))


def publish(cell):
    cell.run("publish --copy", cell.path, cell.out)
    cell.equal(cell.out.read_bytes(), cell.path.read_bytes())


def delta(cell):
    report = cell.json("delta", cell.path, cell.path, cell.out)
    cell.equal((report["tensors"], report["changed_tensors"]), (len(cell.tensors), 0))


def apply(cell):
    made = f"{cell.out}.delta"
    if cell.form == "shards":
        cell.json("delta", cell.path, cell.path, made)
    report = cell.json("apply", cell.path, made, "--to", cell.out)
    cell.equal(report["tensors"], len(cell.tensors))
    cell.holds(format_files.read_safetensors(cell.out), cell.tensors)


READERS = {".pt": format_files.read_torch, ".safetensors": format_files.read_safetensors}
# What a dict of tensors has not, where that is for the command to say and no part of the format.
LEFT_OUT = {"pt": ["array", "text", "lr"], "pt, protocol 5": ["lr"],
            "legacy": ["array", "text", "lr"], "safetensors": [], "npz": [], "pickle": [], "shards": [],
            "dcp": [],
            "dcp, two ranks": ["rank", "lr"]}


def converted(cell, ending, *options, sources=()):
    """What the program of the new format reads again."""
    target = cell.out.with_suffix(ending)
    report = cell.json("convert", cell.path, *sources, target, *options)
    if cell.form in LEFT_OUT:
        keeps_all = cell.form.startswith("dcp") and ending == ".pt" and "--tensors-only" not in options
        cell.equal(report["left_out"], [] if keeps_all and not sources else LEFT_OUT[cell.form])
    found = READERS[ending](target)
    cell.holds({name: found[name] for name in found if name != "other"}, cell.tensors)
    return found


def same_format(cell, *options):
    """What the program of the format reads again. Of folders, those of safetensors are written."""
    is_file = cell.path.is_file()
    target = cell.out.with_suffix(cell.path.suffix) if is_file else f"{cell.out}/"
    report = cell.json("convert", cell.path, target, *options)
    cell.equal(report["left_out"], LEFT_OUT[cell.form] if cell.form == "dcp, two ranks" else [])
    form = {"legacy": "pt", "dcp": "shards", "dcp, two ranks": "shards",
            "splits": "shards"}.get(cell.form, cell.form)
    cell.holds(format_files.FORMATS[form][1](pathlib.Path(target)), cell.tensors)
    return target


def as_torch(cell, *options):
    """A torch file, which is kept, or a dict of tensors."""
    if cell.path.suffix in (".pt", ".pt2"):
        return same_format(cell, *options)
    converted(cell, ".pt", *options)
    return cell.out.with_suffix(".pt")


def offsets(cell, target):
    return {tensor["name"]: tensor["file_offset"] for tensor in cell.json("ls", target)["tensors"]}


def convert(cell):
    same_format(cell)


def convert_to(cell):
    cell.run("convert", cell.path, cell.out, "--to", "safetensors", "--shared", "copy")
    cell.holds(format_files.read_safetensors(cell.out), cell.tensors)


# Else its arrays stay arrays in data.pkl.
AS_TENSORS = {"pickle": ["--tensors-only"]}


def convert_align(cell):
    more = AS_TENSORS.get(cell.form, [])
    found = offsets(cell, as_torch(cell, "--align", "4096", *more))
    names = [name for name, tensor in cell.tensors.items()
             if tensor.nbytes and name not in ("tied", *format_files.ARRAYS)]  # in the pickle
    cell.equal({name: found[name] % 4096 for name in names}, dict.fromkeys(names, 0))


def convert_order(cell):
    order = cell.folder / "order"
    names = [name for name in ("scalar", "low", "weight", "step", "list.0") if name in cell.tensors]
    order.write_text("\n".join(names))
    found = offsets(cell, as_torch(cell, "--order", order))
    cell.equal(sorted(names, key=found.get), names)


def convert_crc(cell):
    target = as_torch(cell, "--crc", "off", *AS_TENSORS.get(cell.form, []))
    found = cell.json("verify --crc", target)
    # That of the empty tensor, which is 0 anyway.
    cell.equal((found["crc"]["storages_checked"], found["ok"]), (1, True))


def convert_max_shard_size(cell):
    """To a folder, and to the index of a set."""
    (cell.folder / "set").mkdir()
    for target in (f"{cell.out}/", cell.folder / "set" / "model.bin.index.json"):
        report = cell.json("convert", cell.path, target, "--to", "pt", "--max-shard-size", "50")
        found = {}
        for file in report["files"][:-1]:
            found.update(format_files.read_torch(cell.folder / file))
        cell.equal(report["files"][-1].endswith(".bin.index.json"), True)
        cell.holds(found, cell.tensors)


def convert_metadata(cell):
    """To a folder, too."""
    cell.run("convert", cell.path, f"{cell.out}/", "--max-shard-size", "50", "--shared", "copy",
             "--metadata", "a=b")
    cell.holds(format_files.read_safetensors(cell.out), cell.tensors)
    for file in cell.out.glob("*.safetensors"):
        cell.equal("a: 'b'" in cell.run("tree", file), True)


def convert_shared(cell):
    converted(cell, ".safetensors", "--shared", "copy")


def convert_tensors_only(cell):
    converted(cell, ".pt", "--tensors-only")


def convert_several(cell):
    """With a file of tensors by other names."""
    other = cell.folder / "other.pt"
    torch.save({"other": torch.ones(3)}, other)
    for ending, options in ((".pt", ()), (".safetensors", ("--shared", "copy"))):
        found = converted(cell, ending, *options, sources=[other])
        cell.equal(torch.equal(found["other"], torch.ones(3)), True)


def fetch(cell):
    """By file://, which needs no server."""
    lead, files = cell.path, [cell.path]
    if cell.path.is_dir():
        [lead] = [*cell.path.glob("*.index.json"), *cell.path.glob(".metadata"),
                  *cell.path.glob("*-00001-of-*")][:1]
        files = list(cell.path.iterdir())
    cell.run("fetch", lead.as_uri(), f"{cell.out}/")
    cell.equal({path.name: path.read_bytes() for path in cell.out.iterdir()},
               {path.name: path.read_bytes() for path in files})


def bench(cell):
    found = cell.json("bench --python /nonexistent --memory as-is --engines map --reference map "
                      "--scenarios warm --orders file --rounds 1", cell.path)
    cell.equal([(one["engine"], one["why_not"]) for one in found["files"][0]["series"]],
               [("map", None), ("map again", None)])


# Without the words behind the command, one function for each.
COMMANDS = {
    "ls": ls, "ls --records": ls_records, "ls --sum": ls_sum,
    "ls --info": ls_info, "tree": tree, "scan": scan, "scan --names": scan_names, "cat": cat, "cat --slice": cat_slice,
    "cat -o": cat_to_file, "stats": stats, "diff": diff, "verify": verify,
    "residency": residency, "residency --repair": residency_repair, "doctor": doctor,
    "residency --evict": residency_evict, "warm": warm, "warm --crc": warm_crc, "stage": stage, "fetch": fetch,
    "ps": ps, "hold": hold,
    "publish": publish, "delta": delta, "apply": apply, "convert": convert, "convert --align": convert_align,
    "convert --to": convert_to, "convert --order": convert_order, "convert --crc": convert_crc,
    "convert --max-shard-size": convert_max_shard_size, "convert --metadata": convert_metadata,
    "convert --shared": convert_shared, "convert --tensors-only": convert_tensors_only,
    "convert several": convert_several,
    "bench": bench,
}
NOT_OF_FILES = {"run"}
HELP = subprocess.run([TOOL, "--help"], capture_output=True, text=True, check=True).stdout
LISTED = set(re.findall(r"^  ([a-z]+)  ", HELP, re.MULTILINE))
if "bench" not in LISTED:
    print("SKIPPED: bench, which this tool is built without")
    del COMMANDS["bench"]

if "libcurl" in subprocess.run([TOOL, "ls", "file:///x"], capture_output=True, text=True,
                               check=False).stderr:
    print("SKIPPED: fetch, of a tool that is built without remote files")
    del COMMANDS["fetch"]
    LISTED.remove("fetch")

SEVERAL = ("shards", "splits", "dcp", "dcp, two ranks")
TO_SAFETENSORS = ("convert --to", "convert --metadata", "convert --shared")
TO_TORCH = ("convert --align", "convert --order", "convert --crc", "convert --max-shard-size",
            "convert --tensors-only", "convert several")
REFUSALS = [
    (("ls --records",), ("legacy",), "is a legacy torch stream, which is no archive"),
    (("ls --records",), ("safetensors",), "is a safetensors file, which is no archive"),
    (("ls --records",), ("gguf",), "is a GGUF file, which is no archive"),
    (("ls --records",), ("pickle",), "is a bare pickle, which is no archive"),
    (("ls --records", "residency --repair"), SEVERAL,
     "is a directory, expected a regular file"),
    (("stage",), SEVERAL, "is a model of several files, which are staged as a folder"),
    (("publish",), SEVERAL,
     "is a folder, which is published where it is: copy it beside the link first"),
    (("delta",), ("pt", "pt, protocol 5", "legacy", "torchscript", "pt2", "npz", "pickle"),
     'the tensor "tied" does not lie as a row of its elements'),
    (("delta",), ("dcp, two ranks",), 'the tensor "model.transposed" does not lie as a row'),
    (("apply",), ("pt", "pt, protocol 5", "legacy", "torchscript", "pt2", "safetensors", "gguf",
                  "npz", "pickle"), "is a file: give the folder of the model"),
    (("apply",), ("splits",), "is gguf, and deltas are for safetensors"),
    (("apply",), ("dcp", "dcp, two ranks"), "is dcp, and deltas are for safetensors"),
    (("convert",), ("gguf", "npz", "pickle"), "the target must end in .safetensors, .pt"),
    (("convert",), ("splits",), 'the tensor "blocks" is of q8_0, which safetensors has not'),
    (TO_SAFETENSORS, ("gguf", "splits"),
     'the tensor "blocks" is of q8_0, which safetensors has not'),
    (TO_TORCH, ("gguf", "splits"), 'tensor "blocks": is of q8_0, which torch does not have'),
    (("convert --order",), ("legacy", "pickle"), "becomes an archive in the order of its pickle"),
]
REFUSED = {(row, form): words for rows, forms, words in REFUSALS for row in rows for form in forms}


class Matrix(unittest.TestCase):
    maxDiff = None

    def test_every_command_is_in_a_table(self):
        self.assertEqual(LISTED, {row.split()[0] for row in COMMANDS} | NOT_OF_FILES)

    def test_every_option_of_convert_is_in_a_table(self):
        text = subprocess.run([TOOL, "convert", "--help"], capture_output=True, text=True,
                              check=True).stdout
        of_the_source = {"--variant", "--dtype-of"}  # what is opened, not what is written
        listed = set(re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE)) - {"--json", "--repeats"}
        listed -= of_the_source
        rows = {row.split()[1] for row in COMMANDS if row.startswith("convert --")}
        self.assertEqual(listed, rows)

    def test_every_row_succeeds_on_a_format(self):
        for row in COMMANDS:
            self.assertLess({form for of, form in REFUSED if of == row},
                            {*format_files.FORMATS, "dcp, two ranks"})

    def test_every_command_on_every_format(self):
        made = self.enter(tempfile.TemporaryDirectory())
        ran, refused = 0, set()
        forms = {**format_files.make(made),
                 "dcp, two ranks": (format_files.TWO_RANKS, format_files.read_two_ranks())}
        for form, (path, tensors) in forms.items():
            for row, check in COMMANDS.items():
                folder = pathlib.Path(self.enter(tempfile.TemporaryDirectory()))
                with self.subTest(command=row, format=form):
                    ran += 1
                    words = REFUSED.get((row, form))
                    try:
                        check(Cell(form, path, tensors, folder))
                        self.assertIsNone(words, "was not refused")
                    except Refused as refusal:
                        refused.add((row, form))
                        self.assertIn(words or "nothing is refused here", str(refusal))
        print(f"{ran} cells, {len(refused)} of them refused")
        self.assertEqual(ran, len(COMMANDS) * len(forms))
        self.assertEqual(refused, set(REFUSED))

    def test_commands_for_many_files_take_all_formats_at_once(self):
        folder = pathlib.Path(self.enter(tempfile.TemporaryDirectory()))
        made = format_files.make(folder)
        cell = Cell("all", folder, {}, folder)
        paths = [path for path, _ in made.values()]
        sizes = [Cell(form, path, {}, folder).size() for form, (path, _) in made.items()]
        evicted = cell.json("residency --evict", *paths)["files"]
        self.assertEqual([file["file_bytes"] for file in evicted], sizes)
        self.assertEqual(cell.json("ps", *paths)["processes"], [])
        self.assertEqual([file["file_bytes"] for file in held(cell, *paths)], sizes)

    def enter(self, context):
        self.addCleanup(context.__exit__, None, None, None)
        return context.__enter__()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
