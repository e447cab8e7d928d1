#!/usr/bin/env python3
"""Writes the archives of npz/ with a real numpy, and manifest.json beside them.

    python tests/data/make_npz_fixtures.py [FOLDER]

tests/formats/npz/npz_test.cpp knows what is in them.
"""

import io
import json
import pathlib
import sys
import zipfile

import numpy

ARRAYS = {
    "layer/weight": numpy.arange(12, dtype="<f4").reshape(3, 4),
    "transposed": numpy.asfortranarray(numpy.arange(6, dtype="<i2").reshape(2, 3)),
    "mask": numpy.array([True, False, True]),
    "half": numpy.array([1.5, -2], "<f2"),
    "complex": numpy.array([1 + 2j], "<c8"),
    "scalar": numpy.array(7, "<i8"),
    "empty": numpy.zeros((0, 5), "<f8"),
}


def write_versions(path):
    """The three versions of .npy, and records that are stored as other programs store them."""
    with zipfile.ZipFile(path, "w") as archive:
        for major in (1, 2, 3):
            array = io.BytesIO()
            numpy.lib.format.write_array(array, numpy.array([major], "<u4"), (major, 0))
            archive.writestr(f"v{major}.npy", array.getvalue())


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                          pathlib.Path(__file__).resolve().parent / "npz")
    folder.mkdir(parents=True, exist_ok=True)
    numpy.savez(folder / "stored.npz", **ARRAYS)
    numpy.savez_compressed(folder / "deflated.npz", **ARRAYS)
    numpy.savez(folder / "big_endian.npz", w=numpy.arange(3, dtype=">f4"))
    numpy.savez(folder / "objects.npz", w=numpy.array([None, 1], dtype=object))
    numpy.savez(folder / "text.npz", w=numpy.array(["a", "bc"]))
    numpy.savez(folder / "structure.npz", w=numpy.zeros(2, [("a", "<f4"), ("b", "<i4")]))
    write_versions(folder / "versions.npz")
    manifest = {"numpy": numpy.__version__,
                "files": sorted(file.name for file in folder.glob("*.npz"))}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    print(f"numpy {numpy.__version__}: {len(manifest['files'])} archives in {folder}")


if __name__ == "__main__":
    main()
