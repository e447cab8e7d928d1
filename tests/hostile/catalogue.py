"""The table of cases: what a file is called, its bytes, and how an open of it must end.

Verdicts are `refuse` (with the code and words of the error), `opens` (with the right bytes), and
`either`: both are right, but never other bytes than the right ones.
"""

import dataclasses
import zlib

CASES = {}


@dataclasses.dataclass
class Case:
    name: str
    built: object  # with write(path)
    chain: dict
    crc: dict
    tensors: dict
    all_tensors: bool
    is_huge: bool
    torch_safe: dict = None


def refuse(code, *words, at=None):
    """`at`: the byte of the file that the error blames."""
    verdict = {"verdict": "refuse", "code": code, "words": [str(word) for word in words]}
    return verdict if at is None else {**verdict, "at": at}


def opens(tensors=None):
    return {"verdict": "open", "tensors": tensors}


def either(tensors=None, *words):
    return {"verdict": "either", "tensors": tensors, "words": list(words)}


def case(name, built, chain, crc=None, is_huge=False, torch_safe=None):
    """`crc`: the verdict where every byte is read, if it is another one. A huge file has holes that
    nobody should read to their ends, and tensors in them that the verdict does not list.
    `torch_safe`: the verdict where only the names pass that torch allows by default."""
    if name in CASES:
        raise ValueError(f"two cases are called {name}")
    crc = crc or chain
    tensors = chain.get("tensors")
    if tensors is None:
        tensors = crc.get("tensors")
    CASES[name] = Case(name, built, chain, crc, tensors or {},
                       tensors is not None and not is_huge, is_huge, torch_safe)


def describe(made, chain=None, crc=None):
    strip = lambda verdict: {k: v for k, v in verdict.items() if k != "tensors"}
    # What docs/options.md promises: besides the directory, 64 MiB and eight times the pickle.
    directory = max(0, getattr(made.built, "end64", 0) - getattr(made.built, "directory", 0))
    memory = (64 << 20) + 8 * getattr(made.built, "pickle_bytes", 0) + 3 * directory
    return {"file": made.name, "chain": strip(chain or made.chain), "crc": strip(crc or made.crc),
            "tensors": {name: [len(data), zlib.crc32(data)] for name, data in made.tensors.items()},
            "all_tensors": made.all_tensors, "is_huge": made.is_huge, "memory_bytes": memory}
