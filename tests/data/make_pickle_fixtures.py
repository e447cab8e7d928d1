#!/usr/bin/env python
"""Writes pickles/: one dict of arrays and plain values, as picklers of other days wrote it.

    python2.7 tests/data/make_pickle_fixtures.py   # numpy 1.16, joblib 0.14
    python3 tests/data/make_pickle_fixtures.py     # once with joblib 1.1 and once with today's

The test makes what today's pickle writes itself, and compares all of them with trees().
"""

import os
import pickle
import sys

import numpy


def tree():
    """What each file holds."""
    number = numpy.arange(6, dtype="f4").reshape(2, 3)
    return {
        "model": {
            "weight": number,
            "fortran": numpy.asfortranarray(number + 10),
            "zeros": numpy.zeros(4, "f8"),  # text, if one takes the bytes of Python 2 for it
            "half": number.astype("f2"),
            "flags": numpy.array([True, False]),
            "bytes": numpy.arange(250, 256).astype("u1"),
            "scalar": numpy.array(7, "i8"),
            "empty": numpy.zeros((0, 3), "i2"),
        },
        "big": numpy.arange(3, dtype=">i4"),
        "texts": numpy.array([u"a", u"b\u00e4"]),
        "number": numpy.float32(1.5),
        "epoch": 3,
        "names": [u"a", (1, None)],
    }


def with_objects():
    return {"weight": numpy.arange(3, dtype="f4"), "classes": numpy.array([1, u"a"], object),
            "bias": numpy.arange(2, dtype="f8")}


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pickles")
    if sys.version_info[0] == 2:
        import cPickle

        for protocol in (0, 1, 2):
            for name, pickler in (("pickle", pickle), ("cpickle", cPickle)):
                path = os.path.join(folder, "python2_%s_%d.pkl" % (name, protocol))
                with open(path, "wb") as file:
                    pickler.dump(tree(), file, protocol)
    import joblib

    version = joblib.__version__.rpartition(".")[0]
    for name, value in (("", tree()), ("_objects", with_objects())):
        joblib.dump(value, os.path.join(folder, "joblib_%s%s.pkl" % (version, name)))
    joblib.dump(tree(), os.path.join(folder, "joblib_%s_zlib.pkl" % version), compress=3)


if __name__ == "__main__":
    main()
