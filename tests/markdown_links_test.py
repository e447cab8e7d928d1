#!/usr/bin/env python3
"""Checks every relative link of the Markdown files: the file exists, and has the heading.

    markdown_links_test.py ROOT
"""

import pathlib
import re
import subprocess
import sys
import unittest
import urllib.parse

ROOT = pathlib.Path(sys.argv.pop()).resolve()
CODE = re.compile(r"^(```+|~~~+).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^)>\s]+)")


def markdown_files():
    listed = subprocess.run(["git", "-c", "safe.directory=*", "-C", ROOT, "ls-files", "-z", "*.md"],
                            check=True, capture_output=True, text=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def anchors(text):
    """As forges make them of headings."""
    found = set()
    for title in re.findall(r"^#+ +(.+?) *#*$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        count = 0
        while (name := f"{slug}-{count}" if count else slug) in found:
            count += 1
        found.add(name)
    return found


def fault_of(file, link):
    """What is wrong with a link of a file; None if it is good, or leads elsewhere."""
    if re.match(r"[a-z]+:", link):
        return None
    path, _, anchor = urllib.parse.unquote(link).partition("#")
    target = (file.parent / path).resolve() if path else file
    if not target.exists():
        return f"{link}: there is no {path}"
    if anchor and anchor not in anchors(target.read_text()):
        return f"{link}: {target.name} has no heading #{anchor}"
    return None


class MarkdownLinks(unittest.TestCase):
    def test_they_lead_to_files_and_headings(self):
        files = markdown_files()
        links = [(file, link) for file in files for link in LINK.findall(CODE.sub("", file.read_text()))]
        self.assertGreater(len(links), 100)
        faults = [f"{file.relative_to(ROOT)}: {fault}"
                  for file, link in links if (fault := fault_of(file, link))]
        self.assertEqual(faults, [])

    def test_a_missing_file_and_a_missing_heading_are_told(self):
        readme = ROOT / "README.md"
        self.assertIsNone(fault_of(readme, "docs/format.md#sets-of-files"))
        self.assertIn("no docs/none.md", fault_of(readme, "docs/none.md"))
        self.assertIn("no heading #none", fault_of(readme, "docs/format.md#none"))


if __name__ == "__main__":
    unittest.main()
