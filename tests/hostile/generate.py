"""generate.py FOLDER: writes every hostile file, and manifest.json, which says what must happen.

torch_safe.json says what must happen to some of them with WEIGHTMAP_GLOBALS=torch_safe in the
environment. The files are the same each time. Nothing but Python's standard library is needed.
"""

import json
import os
import shutil
import sys

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
           legacy_cases, script_cases, exported_cases, policy_cases, safetensors_cases,
           gguf_cases, index_cases, dcp_cases, file_cases)


def main(folder):
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
    print(f"{len(cases)} files")


def write_manifest(folder, name, entries):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
        json.dump(entries, out, indent=1)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
