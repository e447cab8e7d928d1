"""generate.py FOLDER: writes every hostile file, and manifest.json, which says what must happen.

The files are the same each time. Nothing but Python's standard library is needed.
"""

import json
import os
import shutil
import sys

import catalogue
import composed_cases
import exported_cases
import file_cases
import offset_cases
import opcode_cases
import pickle_cases
import script_cases
import tensor_cases
import zip_cases

MODULES = (zip_cases, offset_cases, pickle_cases, opcode_cases, tensor_cases, file_cases,
           script_cases, exported_cases, composed_cases)


def main(folder):
    for module in MODULES:
        module.add_cases()
    shutil.rmtree(folder, ignore_errors=True)
    for made in catalogue.CASES.values():
        path = os.path.join(folder, made.name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        made.built.write(path)
    manifest = [catalogue.describe(made) for made in catalogue.CASES.values()]
    with open(os.path.join(folder, "manifest.json"), "w", encoding="utf-8") as out:
        json.dump(manifest, out, indent=1)
    print(f"{len(manifest)} files")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
