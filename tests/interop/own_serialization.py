"""torch's own tests of torch.load and torch.save end under weightmap.patch() as they do without.

    own_serialization.py SOURCE

SOURCE is pytorch_*.orig.tar.xz of Debian, of the version of torch that this interpreter has. It also
needs weightmap, pytest and expecttest. test_serialization.py runs twice, and each test must pass,
fail or be skipped both times. Nothing is compared where the patch has served no call.
"""
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as trees

import torch

HERE = pathlib.Path(__file__).resolve().parent
LISTED = 20  # differences


def extracted(source, folder):
    """The file of tests, from the archive."""
    with tarfile.open(source) as archive:
        [member] = [each for each in archive if each.name.endswith("/test/test_serialization.py")]
        tests = folder / "test_serialization.py"
        tests.write_bytes(archive.extractfile(member).read())
    return tests


def outcomes(tests, folder, *plugins):
    """By test: "passed", or what else it did; and what was printed."""
    report = folder / "report.xml"
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins,
         f"--junitxml={report}", tests.name],
        cwd=tests.parent, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{done.stdout}\npytest ended with status {done.returncode}")
    found = {}
    for case in trees.parse(report).iter("testcase"):
        ends = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[f"{case.get('classname')}.{case.get('name')}"] = ends[0] if ends else "passed"
    return found, done.stdout


def main():
    source = pathlib.Path(sys.argv[1])
    version = re.search(r"pytorch_([0-9.]+)", source.name)[1]
    if torch.__version__.partition("+")[0] != version:
        raise SystemExit(f"{source} is of torch {version}, and torch {torch.__version__} is here")
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        tests = extracted(source, folder)
        plain, _ = outcomes(tests, folder)
        patched, printed = outcomes(tests, folder, "-p", "patched_session")
    served = re.search(r"^served:.*torch.load \d+.*torch.save \d+", printed, re.MULTILINE)
    if not served:
        raise SystemExit(f"{printed}\nthe patch has served no call of torch.load or torch.save")
    names = sorted({*plain, *patched})
    different = [name for name in names if plain.get(name) != patched.get(name)]
    for name in different[:LISTED]:
        print(f"{name}: {plain.get(name)} without, {patched.get(name)} with the patch")
    counts = ", ".join(f"{list(plain.values()).count(end)} {end}" for end in sorted({*plain.values()}))
    print(f"torch {version}: {len(names)} tests ({counts}), {len(different)} differ; {served[0]}")
    sys.exit(1 if different or not names else 0)


if __name__ == "__main__":
    main()
