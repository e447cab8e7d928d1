#!/usr/bin/env python3
"""What the commands refuse: a table for each kind of refusal, in which a row is a command and what it
says.

    refusals_test.py FOLDER WEIGHTMAP

Each row ends with its status, says one line, and leaves every file as it was. Where it has --json,
standard output has the same as a document.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import unittest

from tool_case import DATA, ENVIRONMENT, TOOL, ToolCase

HELP = subprocess.run([TOOL, "--help"], capture_output=True, text=True, check=True).stdout
LISTED = re.findall(r"^  ([a-z]+)  ", HELP, re.MULTILINE)
MISSING_PARTS = [part for part in ("bench", "run") if part not in LISTED]
for part in MISSING_PARTS:
    print(f"SKIPPED: rows of {part}, which this tool is built without")

IS_IN_PYTHON = TOOL.read_bytes()[:2] == b"#!"  # so that doctor looks at its interpreter

# --- Wrong usage ends with 2, before any file is looked at.

COMMANDS = {
    "": "A subcommand is required",
    "lss": 'there is no command "lss"; did you mean ls?',
    "xyz model.pt": 'there is no command "xyz"',
    "nonsense --help": 'there is no command "nonsense"',
    "prefetch --help": 'there is no command "prefetch"',
    "nonsense -h": 'there is no command "nonsense"',
    "nonsense --version": 'there is no command "nonsense"',
    "du model.pt": 'there is no command "du" any more: weightmap ls --sum FILE does that',
    "evict --json model.pt":
        'there is no command "evict" any more: weightmap residency --evict FILE does that',
    "info --help": 'there is no command "info" any more: weightmap ls --info FILE does that; of '
                   "--globals weightmap scan --names FILE",
    "ray status name": 'there is no command "ray" any more: python -m weightmap.ray does that',
    "snapshots folder": 'there is no command "snapshots" any more: weightmap run --list DIR, --check '
                        "DIR and --remove DIR SNAPSHOT|all do that",
    "completion bash": 'there is no command "completion" any more: no script completes commands in a '
                       "shell now",
}
MISSING = {
    "ls": "FILE is required",
    "cat state_dict.pt": "TENSOR is required",
    "diff old.pt": "OTHER is required",
    "convert state_dict.pt": "OUT is required",
    "publish next.pt": "TARGET is required",
    "scan": "PATH is required",
    "stage": "FILE is required",
    "stage --name": "--name: 1 required NAME missing",
    "doctor": "FILE or --python is required",
    "doctor --": "COMMAND is required",
    "run": "COMMAND is required",
    "run --remove x": "--remove: At least 2 required but received 1",
    "bench": "FILE is required",
    "bench --start": "COMMAND is required",
}
TOGETHER = {
    "ls x.pt --info --sum": "--info excludes --sum",
    "ls x.pt --info --records": "--info excludes --records",
    "ls x.pt pattern --info": "--info excludes PATTERN",
    "ls x.pt --info --long": "--info excludes --long",
    "ls x.pt --info --sort name": "--info excludes --sort",
    "ls x.pt --info --tsv": "--info excludes --tsv",
    "ls x.pt --records --sum": "--records excludes --sum",
    "ls x.pt pattern --records": "--records excludes PATTERN",
    "ls x.pt --records --long": "--records excludes --long",
    "ls x.pt --records --sort name": "--records excludes --sort",
    "ls x.pt --sum --long": "--sum excludes --long",
    "ls x.pt --depth 1": "--depth requires --sum",
    "ls x.pt --tsv --json": "--json excludes --tsv",
    "cat x.pt w --as float32": "--as: is for what --raw or -o writes",
    "cat x.pt w --raw --json": "--json: cannot share standard output with --raw; add -o FILE",
    "cat x.pt w -o x": "-o: FILE must end in .npy, or --raw be given",
    "diff x.pt y.pt --tsv --quiet": "--quiet excludes --tsv",
    "verify x.pt y.pt --sha256 " + 64 * "0": "--sha256: is the checksum of one FILE",
    "warm x.pt --order other --no-order": "--order excludes --no-order",
    "residency x.pt --depth 2 --by-tensor": "--depth excludes --by-tensor",
    "residency x.pt --tsv state_dict.pt": "--tsv: takes one FILE",
    "residency x.pt --evict --depth 1": "--depth excludes --evict",
    "residency x.pt --evict --by-tensor": "--by-tensor excludes --evict",
    "residency x.pt --evict --repair": "--repair excludes --evict",
    "residency x.pt --evict --tsv": "--tsv excludes --evict",
    "hold x.pt y.pt --sha256 " + 64 * "0": "is for one FILE",
    "hold x.pt --sums SUMS --sha256 " + 64 * "0": "--sha256 excludes --sums",
    "hold --status --sha256 " + 64 * "0": "--sha256 excludes --status",
    "hold --status --metrics x": "--metrics excludes --status",
    "hold --status --add a": "--status excludes --add",
    "hold --add a --release b": "--add excludes --release",
    "hold --status a": "FILE excludes --status",
    "stage x.pt --remove name": "--remove excludes FILE",
    "stage --name name --remove name": "--name excludes --remove",
    "stage x.pt --name name -- true": "COMMAND excludes --name",
    "stage x.pt --json -- true": "COMMAND excludes --json",
    "run --json true":
        "--json requires --list, --check, --remove, --list-templates or --end-templates",
    "run --list x true":
        "COMMAND excludes --list, --check, --remove, --list-templates and --end-templates",
    "run --end-templates true":
        "COMMAND excludes --list, --check, --remove, --list-templates and --end-templates",
    "run --list-templates --list x": "--list excludes --list-templates",
    "run --end-templates --list-templates": "--list-templates excludes --end-templates",
    "run --template --snapshot x -- true": "--snapshot excludes --template",
    "run --template --timeline x.html -- true": "--timeline excludes --template",
    "run --list x --check x": "--list excludes --check",
    "run --list x --remove x all": "--list excludes --remove",
    "doctor --ready 1s x.pt": "--ready requires -- COMMAND",
    "doctor --imports x.pt": "--imports requires -- COMMAND",
    "doctor --python python3 -- true": "COMMAND excludes --python",
    "doctor x.pt y.pt": "The following argument was not expected: y.pt",
    "bench --ready 80 x.pt": "--ready requires --start",
    "bench --model a x.pt": "--model requires --start",
}
WORDS = {
    "ls x.pt --bogus": "The following argument was not expected: --bogus",
    "ls x.pt --verify all": '--verify: must be chain|headers|crc, not "all"',
    "ls x.pt --sort age": "file|name|size",
    "ls x.pt --info --sharing both": '--sharing: must be shared|private, not "both"',
    "ls x.pt --info --protection none": '--protection: must be map|guard|reflink, not "none"',
    "ls x.pt --info --protection copy": '--protection: must be map|guard|reflink, not "copy" (a copy in '
                                        "memory is made by `weightmap stage`",
    "ls x.pt --info --protection snapshot":
        '--protection: must be map|guard|reflink, not "snapshot" (snapshot is called reflink)',
    "cat x.pt w --raw --as int8": "--as: must be float32",
    "scan --allow-global Fraction .": '--allow-global: must be MODULE.NAME, not "Fraction"',
    "hold x.pt --sums none": "--sums: none cannot open the file: No such file or directory",
    "doctor --dtype int8 x.pt": '--dtype: must be float64, float32, float16 or bfloat16, not "int8"',
    "doctor --ready soon -- true": '--ready is "soon"',
    "run --ready soon -- true": '--ready is "soon", expected http://HOST:PORT/PATH',
    "run --timeline start.png -- true": 'must end in .html, not "start.png"',
    "run --snapshot '' -- true": "--snapshot: must name a folder",
    "run --template=soon -- true": "--template: Value soon not in range 1 to 4294967296",
    "run --template=0 -- true": "--template: Value 0 not in range 1 to 4294967296",
    "convert x.pt y.gguf": "must end in .safetensors, .pt, .pth, .bin",
    "convert x.pt y.pt --metadata a=b": "metadata is for safetensors only",
    "convert x.pt y.pt --shared drop": "shared is for safetensors only",
    "convert x.pt y.safetensors --align 4096": "an alignment is for torch files only",
    "convert x.pt y.safetensors --crc off": "crc is for torch files only",
    "convert x.pt y.safetensors --metadata a": "must be like KEY=TEXT",
    "convert x.pt y.safetensors --shared keep": "--shared: keep not in {refuse,drop,copy}",
    "convert x.pt y.safetensors --to gguf": "--to: gguf not in {safetensors,pt,pt2}",
    "convert x.pt y.pt --crc maybe": "--crc: maybe not in {on,off}",
    "convert x.pt y --to pt --max-shard-size 1G": "must have an ending",
    "convert x.pt y.pt2 --tensors-only": "a .pt2 archive is one file of its own kind",
    "convert x.pt y.pt2 --max-shard-size 1G": "a .pt2 archive is one file of its own kind",
    "convert x.pt y/ --to pt2": "a .pt2 archive is one file; say its name",
    "bench x.pt --engines map,mapp": "--engines: must be one of disk, populate, ",
    "bench x.pt --scenarios hot": '--scenarios: must be of cold, warm, poisoned, not "hot"',
    "bench x.pt --orders none": '--orders: must be of file, random, not "none"',
    "bench --start --scenarios warm true": "must be of cached, model-cold, cold",
    "bench --start --ready 3s true": "is a time, which measures nothing",
}
NO_NUMBERS = ("-1", "", "1e3", "99999999999999999999", "1.5.2")
NO_SIZES = ("+1", " 1", "1G ", "1.5.0G", "1..5", "G", "1X", "1Gi b", "1kk", "0x10", "16E",
            "15.9999999999999999E", "18446744073709551616", "nan", "inf")
NO_DIGESTS = ("", "ab", "g" * 64, "a" * 63, "a" * 65)
# Of options what is said of values that are some, and values that are none.
VALUES = {
    "ls x.pt --sum --depth": ("", *NO_NUMBERS, "0", "65536"),
    "residency x.pt --depth": ("", *NO_NUMBERS, "0", "65536"),
    "tree x.pt --depth": ("", *NO_NUMBERS, "65536"),
    "warm x.pt --threads": ("", *NO_NUMBERS, "0", "65"),
    "warm x.pt --budget": ("must be a size such as 4096, 64KiB or 1.5G", *NO_NUMBERS, *NO_SIZES),
    "stage x.pt --budget": ("must be a size such as 4096, 64KiB or 1.5G", *NO_NUMBERS, *NO_SIZES),
    "stage x.pt --chunk": ("", *NO_NUMBERS, "0"),
    "ls x.pt --connections": ("", *NO_NUMBERS, "0", "1025"),
    "convert x.pt y.pt --max-shard-size": ("", *NO_NUMBERS, "0"),
    "convert x.pt y.pt --align": ("", *NO_NUMBERS, "0", "many"),
    "hold x.pt --interval": ("", "-1", "", "1.5.2", "0"),
    "verify x.pt --sha256": ("must be 64 hexadecimal digits", *NO_DIGESTS),
    "hold x.pt --sha256": ("expected 64 hexadecimal digits", *NO_DIGESTS),
    "cat x.pt w --slice": ('must be indices and start:stop ranges, as in "0:10,3"', "x", "1:2:3",
                           "1,,2", " 1", ""),
}

# --- What is asked of files ends with 1.

NOT_THERE = {
    "ls state_dict.pt nothing*": 'state_dict.pt: no tensor matches "nothing*"',
    "ls state_dict.pt layers.1* step": 'state_dict.pt: has no tensor "step"; did you mean "steps"?',
    "ls --sum state_dict.pt z*": 'state_dict.pt: no tensor matches "z*"',
    "stats dtypes.pt x.*": 'dtypes.pt: no tensor matches "x.*"',
    "diff state_dict.pt state_dict.pt x.*": 'state_dict.pt: no tensor matches "x.*"',
    "residency state_dict.pt nothing*": 'state_dict.pt: no tensor matches "nothing*"',
    "warm training.pt nothing*": 'training.pt: no tensor matches "nothing*"',
    "warm training.pt --except *": "training.pt: nothing is left to warm",
    "warm training.pt --order no.txt": "no.txt: cannot open the file: No such file or directory",
    "tree training.pt no.where":
        'training.pt: has nothing of the name "no.where"; weightmap tree shows all',
    "cat state_dict.pt step": 'state_dict.pt: has no tensor "step"; did you mean "steps"?',
    "cat state_dict.pt layers.0.wieght":
        'state_dict.pt: has no tensor "layers.0.wieght"; did you mean "layers.0.weight", '
        '"layers.1.weight" or "layers.0.bias"?',
    "cat state_dict.pt zzzz": 'state_dict.pt: has no tensor "zzzz"; weightmap ls lists them',
    "cat state_dict.pt '\x1b[2Jzz'":
        'state_dict.pt: has no tensor "\\x1B[2Jzz"; weightmap ls lists them',
    "cat state_dict.pt embedding.weight --slice 6":
        "state_dict.pt: --slice: index 6 is outside a dimension of 6",
    "cat state_dict.pt embedding.weight --slice 0,0,0":
        "state_dict.pt: --slice has 3 items, the tensor 2 dimensions",
    "cat state_dict.pt steps -o /nowhere/a.npy":
        "/nowhere/a.npy: cannot open the directory: No such file or directory",
    "ls --json state_dict.pt zzz": 'state_dict.pt: has no tensor "zzz"',
    "ls 'a\x1b]0;b'": "a\\x1B]0;b: cannot open the file: No such file or directory",
    "ps folder": "folder: is a directory, expected a regular file",
    "residency --evict empty.pt": "empty.pt: is empty",
    "stage --remove ../etc/passwd": "",
    "hold --socket /tmp/" + 200 * "x" + " state_dict.pt": "a socket's path has 1 to 107 bytes, not 205: ",
    "convert state_dict.pt none/m.safetensors":
        "none/m.safetensors: cannot open the directory: No such file or directory",
    "run --list none": "none: No such file or directory",
    "hold --status --socket none": "cannot reach a daemon on none: No such file or directory",
    "bench state_dict.pt --python /nonexistent --tensor zzzz":
        'state_dict.pt: has no tensor "zzzz" that can be measured',
    "bench state_dict.pt --python /nonexistent --reference torch-mmap":
        "the reference torch-mmap cannot be measured: cannot run /nonexistent: No such file or directory",
}
UNSUPPORTED = {
    "cat conjugate.pt conjugate": "lazy conjugate",
    "convert conjugate.pt x.safetensors": "conjugate",
    "convert conjugate.pt x.pt --tensors-only": "conjugate",
    "convert dtypes.pt folder/":
        'the tensor "complex128" is of complex128, which safetensors has not',
    "convert state_dict.pt x.pt2": "is no single archive of torch.export",
    "cat state_dict.pt steps --as float32 --raw":
        "state_dict.pt: --as float32 is for float16, bfloat16 and the float8 types, of which every "
        "value is a float32; the tensor is int64",
    **{f"cat dtypes.pt {dtype} -o x.npy":
       f"dtypes.pt: numpy has no type for {dtype}; --raw writes the elements as they are{other}"
       for dtype, other in (("bfloat16", ", --as float32 as numbers"), ("complex32", ""),
                            ("float8_e4m3fn", ", --as float32 as numbers"), ("bits8", ""),
                            ("float4_e2m1fn_x2", ""))},
    **{f"cat training.pt epoch {option}":
       'training.pt: "epoch" is no tensor (its type is int), so there is nothing for --slice, --raw or -o'
       for option in ("--slice 0", "--raw -o x", "-o x.npy")},
}

# --- Whatever the command, these files are refused: the code of the error, and why.

KINDS = {
    "missing.pt": ("io", "cannot open the file: No such file or directory"),
    "empty.pt": ("not_a_checkpoint", "is empty"),
    "text.pt": ("not_a_checkpoint", "is not a torch checkpoint: it is no zip archive"),
    "page.pt": ("not_a_checkpoint", "is a web page (HTML), probably an error or login page"),
    "lfs_pointer.pt": ("not_a_checkpoint", "is a Git LFS pointer of a file of 548105171 bytes"),
    "compressed.pt.gz": ("not_a_checkpoint", "is compressed with gzip; decompress it first"),
    "config.json": ("not_a_checkpoint", "is JSON without a weight_map, so it is no index of shards"),
    "truncated.pt": ("corrupt", "is truncated"),
    "folder": ("not_a_checkpoint", "is a folder in which there is no checkpoint: expected an index of "
               "shards, *.safetensors, *.bin, *.gguf, or one file of another format"),
    "pipe": ("not_a_checkpoint", "is a FIFO (named pipe), expected a regular file"),
}
OF_A_FILE = ("ls {}", "ls --info {}", "ls --records {}", "ls --sum {}", "tree {}", "cat {} w",
             "stats {}", "diff {} state_dict.pt", "diff state_dict.pt {}", "convert {} y.safetensors",
             "publish {} state_dict.pt", "residency {}", "residency --repair {}",
             "warm {}", "hold {}", "stage {}", "doctor {}", "bench --python /nonexistent {}")
# Where a command says something else.
OTHERS = {("ls --records {}", "config.json"): "is JSON text, which is no archive",
          ("ls --records {}", "folder"): "is a directory, expected a regular file"}


class Refusals(ToolCase):
    def setUp(self):
        super().setUp()
        for name in ("state_dict.pt", "training.pt", "dtypes.pt", "conjugate.pt"):
            shutil.copy(DATA / name, self.folder)
        for name in ("empty.pt", "page.pt", "lfs_pointer.pt", "compressed.pt.gz", "truncated.pt"):
            shutil.copy(DATA / "strangers" / name, self.folder)
        self.write("text.pt", "these are no weights")
        self.write("config.json", '\n{"model_type": "llama"}')
        self.write("SUMS", 64 * "0" + "  x.pt\n")
        (self.folder / "folder").mkdir()
        os.mkfifo(self.folder / "pipe")
        (self.folder / "shared").mkdir(mode=0o700)
        self.environment = {**ENVIRONMENT, "WEIGHTMAP_RUNTIME_DIR": str(self.folder / "shared")}

    def files(self):
        return {path: path.is_file() and path.stat().st_mtime_ns for path in self.folder.rglob("*")}

    def refuses(self, command, code, message, end="", kind=None):
        """Says so in one line, and leaves all files as they were; `kind` is the code of the error."""
        words = shlex.split(command)
        if words and words[0] in MISSING_PARTS:
            return
        before = self.files()
        with self.subTest(command):
            done = self.run_tool(*words, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            self.assertRegex(done.stderr, r"\Aweightmap: .*\n\Z")
            self.assertIn(message, done.stderr)
            self.assertTrue(done.stderr.endswith(f"{end}\n"), done.stderr)
            self.assertEqual(self.files(), before)
            error = json.loads(done.stdout)["error"] if "--json" in words else {}
            self.assertIn(error.get("message", ""), done.stderr)
            self.assertEqual(error.get("code") if kind else None, kind)
            self.assertEqual(done.stdout == "", "--json" not in words)

    def test_wrong_usage(self):
        for command, message in {**COMMANDS, **MISSING, **TOGETHER, **WORDS}.items():
            if command == "doctor" and IS_IN_PYTHON:
                continue
            self.refuses(command, 2, message, " (see weightmap --help)")

    def test_values_of_options(self):
        for command, (message, *values) in VALUES.items():
            rest, _, option = command.rpartition(" ")
            for value in values:
                self.refuses(f"{rest} {shlex.quote(f'{option}={value}')}", 2,
                             f"{option}: {message if value else ''}")

    def test_what_is_asked_of_a_file(self):
        for command, message in {**NOT_THERE, **UNSUPPORTED}.items():
            self.refuses(command, 1, message)

    def test_files_that_are_none(self):
        for kind, (code, message) in KINDS.items():
            for command in OF_A_FILE:
                said = OTHERS.get((command, kind), message)
                words = command.format(kind).replace(" ", " --json ", 1)
                self.refuses(words, 1, f"{kind}: {said}", kind=code)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
