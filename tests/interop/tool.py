"""The weightmap command line tool, as the interop tests call it."""

import json
import os
import subprocess


class Tool:
    def __init__(self, path, verify="chain"):
        self.path = path
        self.environment = {**os.environ, "WEIGHTMAP_VERIFY": verify}

    def run(self, *arguments):
        """(exit status, standard output, standard error)"""
        done = subprocess.run(
            [self.path, *map(str, arguments)],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr.decode(errors="replace")

    def output(self, *arguments):
        status, output, errors = self.run(*arguments)
        if status != 0:
            raise AssertionError(f"weightmap {' '.join(map(repr, arguments))}: {errors}")
        return output

    def tensors(self, file):
        return json.loads(self.output("ls", "--json", file))["tensors"]

    def info(self, file):
        return json.loads(self.output("ls", "--info", "--json", file))

    def raw(self, file, path):
        """The elements of the tensor at `path`, row-major, in this machine's byte order."""
        return self.output("cat", "--raw", "--", file, json.dumps(list(path)))


def contiguous_entry(name, dtype, shape, strides, begin, nbytes):
    """A tensor of a format without strides or sharing, as `weightmap ls --json` has it."""
    return {
        "name": name, "path": [name], "dtype": dtype, "shape": shape, "strides": strides,
        "storage": name, "storage_offset": 0, "file_offset": begin, "nbytes": nbytes,
        "contiguous": True, "requires_grad": False, "location": "cpu",
    }


def difference(expected, found):
    """The first field in which two lists of tensors differ, as a sentence; None if they agree."""
    if len(expected) != len(found):
        return f"expected {len(expected)} tensors, found {len(found)}"
    for index, (want, have) in enumerate(zip(expected, found)):
        for field, value in want.items():
            # 1 == True and 1 == 1.0 in Python, but not in JSON.
            if json.dumps(have.get(field)) != json.dumps(value):
                name = json.dumps(want["path"])
                return f"tensor {index} {name}: {field} is {have.get(field)!r}, expected {value!r}"
    return None
