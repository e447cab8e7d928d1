"""Makes Markdown of the package's docstrings, and docstrings of the comments on fields."""

from __future__ import annotations

import re

import griffe

ITEM = re.compile(r"^(\w+(?:,? \w+)*): (?=\S)", re.MULTILINE)
CODE = re.compile(
    r"(?<![\w`.])(\w+=(?:\"\w*\"|\w+)|\w+(?:\.\w+)*\([^()\s]*\)|weightmap(?:\.\w+)+|\w*[a-z]_\w+)(?![\w\"])"
)
PAGE = re.compile(r"docs/(\w+)\.md")


def markdown(text: str, parameters: set[str]) -> str:
    return "\n\n".join(paragraph(part, parameters) for part in text.split("\n\n"))


def paragraph(text: str, parameters: set[str]) -> str:
    if text.startswith("    "):  # code
        return text
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [CODE.sub(r"`\1`", part) for part in parts[::2]]
    text = PAGE.sub(r"[docs/\1.md](../\1.md)", "".join(parts))
    first = ITEM.match(text.replace("`", ""))
    if first and first[1].split(",")[0] in parameters:
        return ITEM.sub(r"- **\1**: ", re.sub(r"^`([\w`, ]+)`: ", lambda m: m[0].replace("`", ""), text, flags=re.M))
    return text


def comment_on(attribute: griffe.Attribute) -> str:
    lines, number = attribute.lines_collection[attribute.filepath], attribute.lineno
    _, _, trailing = lines[number - 1].partition("  # ")
    above = []
    while not trailing and lines[number - 2].strip().startswith("# "):
        number -= 1
        above.insert(0, lines[number - 1].strip()[2:])
    return trailing or " ".join(above)


class Extension(griffe.Extension):
    def on_instance(self, *, obj: griffe.Object, **_) -> None:
        if obj.docstring:
            names = {each.name for each in obj.parameters} if obj.is_function else set()
            obj.docstring.value = markdown(obj.docstring.value, names)

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_) -> None:
        if attr.parent.is_class and attr.docstring is None and attr.lineno and (said := comment_on(attr)):
            attr.docstring = griffe.Docstring(markdown(said, set()), parent=attr)
