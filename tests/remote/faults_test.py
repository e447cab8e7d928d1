#!/usr/bin/env python3
"""Thousands of faults at random, and not one wrong byte.

    faults_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT [FAULTS]
"""

import hashlib
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from range_server import (  # noqa: E402
    ALWAYS, RangeServer, content_range, flipped, gzipped, multipart, other_tag, redirected, reset,
    status, truncated, whole, without_content_range)
from remote_case import CLEAN, FOLDER, MIB, TOOL, make  # noqa: E402

FAULTS = int(sys.argv[4]) if len(sys.argv) > 4 else 10_000
SEED = 31
TENSORS = 12
# Most are got over by asking again, so that a fetch meets many.
PASSING = [truncated(), truncated(0), truncated(1), reset(), reset(100_000), status(503),
           status(500), status(429, Retry_After="0"), redirected("/model.pt")]
LASTING = [whole(), content_range(first=1), content_range(last=-1), content_range(size=1),
           without_content_range(), gzipped(), multipart(), other_tag(), status(404), status(403),
           status(412), status(416)]


class Chance:
    """A fault for some of the requests."""

    def __init__(self, seed, size):
        self._random = random.Random(seed)
        self._size = size
        self.hits = 0

    def __call__(self, request, right):
        if self._random.random() >= 0.4:
            return right()
        self.hits += 1
        kind = self._random.random()
        if kind < 0.85:
            return self._random.choice(PASSING)(request, right)
        if kind < 0.95:
            return flipped(self._random.randrange(MIB, self._size - MIB))(request, right)
        return self._random.choice(LASTING)(request, right)


def fetched(url, folder):
    """The digest of what a fetch has brought, or None if it has failed."""
    target = folder / "here.pt"
    done = subprocess.run([TOOL, "fetch", url, target, "--chunk", "2MiB", "--force"],
                          capture_output=True, text=True, env=CLEAN, check=False)
    if done.returncode == 0:
        return hashlib.sha256(target.read_bytes()).hexdigest()
    assert done.returncode == 1 and not target.exists(), (done.returncode, done.stderr)
    return None


def staged(url, _folder):
    done = subprocess.run([TOOL, "stage", url, "--chunk", "2MiB", "--", "sha256sum", "{}"],
                          capture_output=True, text=True, env=CLEAN, check=False)
    if done.returncode == 0:
        return done.stdout.split()[0]
    assert done.returncode == 1 and done.stdout == "", (done.returncode, done.stderr)
    return None


def main():
    faults = fetches = whole_ones = 0
    with tempfile.TemporaryDirectory(dir=FOLDER) as name:
        folder = pathlib.Path(name)
        store = folder / "store"
        store.mkdir()
        make(store / "model.pt", count=TENSORS)
        content = (store / "model.pt").read_bytes()
        right = hashlib.sha256(content).hexdigest()
        while faults < FAULTS:
            # What an interrupted fetch has left is gone on with every other time.
            if fetches % 4 == 0:
                for path in folder.glob("here.pt*"):
                    path.unlink()
            with RangeServer(store) as server:
                chance = Chance(SEED + fetches, len(content))
                server.fault(chance, times=ALWAYS)
                found = (staged if fetches % 2 else fetched)(server.url("model.pt"), folder)
            assert found in (right, None), f"wrong bytes with seed {SEED + fetches}"
            if found:
                (folder / "here.pt").unlink(missing_ok=True)
            fetches += 1
            faults += chance.hits
            whole_ones += found is not None
    print(f"{faults} faults in {fetches} fetches: {whole_ones} whole, {fetches - whole_ones} "
          "refused, 0 wrong bytes")


if __name__ == "__main__":
    main()
