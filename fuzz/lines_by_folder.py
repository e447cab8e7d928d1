"""Prints how many lines of each folder ran, from `llvm-cov export -summary-only`."""

import collections
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

counts = collections.defaultdict(lambda: [0, 0])
for file in json.load(sys.stdin)["data"][0]["files"]:
    path = pathlib.Path(file["filename"])
    if not path.is_relative_to(ROOT):
        continue
    lines = file["summary"]["lines"]
    counts[str(path.relative_to(ROOT).parent)][0] += lines["covered"]
    counts[str(path.relative_to(ROOT).parent)][1] += lines["count"]
for folder, (run, all_lines) in sorted(counts.items()):
    print(f"{folder:24} {100 * run / max(all_lines, 1):5.1f} %  {run:6} of {all_lines} lines")
