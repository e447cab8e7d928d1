"""generate.py FOLDER: writes every hostile file, and manifest.json, which says what must happen.

torch_safe.json says what must happen to some of them with WEIGHTMAP_GLOBALS=torch_safe in the
environment. The files are the same each time, so what was made by these very scripts stays. Nothing
but Python's standard library is needed.
"""

import hashlib
import json
import os
import pathlib
import shutil
import sys

import bare_cases
import catalogue
import composed_cases
import dcp_cases
import exported_cases
import file_cases
import gguf_cases
import index_cases
import legacy_cases
import offset_cases
import opcode_cases
import pickle_cases
import policy_cases
import safetensors_cases
import script_cases
import tensor_cases
import zip_cases

MODULES = (zip_cases, offset_cases, pickle_cases, opcode_cases, tensor_cases, composed_cases,
           legacy_cases, bare_cases, script_cases, exported_cases, policy_cases, safetensors_cases,
           gguf_cases, index_cases, dcp_cases, file_cases)


def made_by():
    """The scripts and the interpreter that make the files, as one hash."""
    scripts = sorted(pathlib.Path(__file__).parent.glob("*.py"))
    return hashlib.sha256("\0".join([sys.version, *map(pathlib.Path.read_text, scripts)]).encode()
                          ).hexdigest()


def main(folder):
    stamp = pathlib.Path(folder, "made_by")
    if stamp.exists() and stamp.read_text() == made_by():
        print("made before")
        return
    for module in MODULES:
        module.add_cases()
    shutil.rmtree(folder, ignore_errors=True)
    for made in catalogue.CASES.values():
        path = os.path.join(folder, made.name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        made.built.write(path)
    cases = catalogue.CASES.values()
    write_manifest(folder, "manifest.json", [catalogue.describe(made) for made in cases])
    write_manifest(folder, "torch_safe.json",
                   [catalogue.describe(made, made.torch_safe, made.torch_safe)
                    for made in cases if made.torch_safe is not None])
    stamp.write_text(made_by())
    print(f"{len(cases)} files")


def write_manifest(folder, name, entries):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
        json.dump(entries, out)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
