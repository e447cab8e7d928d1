"""Turns a public C++ header into a page: its first comment, then what it declares, each with its
comment as prose. (Doxygen does not read plain comments, and takes each for one declaration.)"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

Link = Callable[[str], str]
UNLISTED = re.compile(
    r"#|friend|namespace|static_assert|template <>|template class|using Base"
    r"|[^(=]*\w::\w+\([^;]*\{"
    r"|(template <[^{]*>\s*)?(class|struct) (WEIGHTMAP_LOCAL )?\w+;|[^;]*= delete;"
)


@dataclass
class Statement:
    """A declaration with its comment; without lines it is a comment about all that follows."""

    comment: list[str]
    lines: list[str]
    begins_group: bool = True

    @property
    def text(self) -> str:
        """As in the header, without indentation and attributes of the linker."""
        indent = indent_of(self.lines[0]) if self.lines else 0
        text = "\n".join(line[indent:].rstrip() for line in self.lines)
        return re.sub(r" WEIGHTMAP_(API|LOCAL|LIFETIMEBOUND)\b|WEIGHTMAP_API ", "", text)

    @property
    def code(self) -> str:
        return re.sub(r"\s*//.*", "", self.text)

    @property
    def trailing_comment(self) -> str:
        return " ".join(line.partition("//")[2].strip() for line in self.lines)

    @property
    def inner(self) -> list[Statement]:
        opened = next(i for i, line in enumerate(self.lines) if line.endswith("{"))
        return statements(self.lines[opened + 1 : -1])

    @property
    def kind(self) -> str:
        match = re.match(r"(?:template <[^{]*>\s*)?(class|struct|enum)\b[^;]*\{$", self.code, re.M)
        return match[1] if match else ""

    @property
    def is_field(self) -> bool:
        return not re.search(r"[\w=>\]]\(", self.code)

    @property
    def name(self) -> str:
        code = re.sub(r"^template <[^{;]*?>\n|\[\[\w+\]\] ", "", self.code)
        for pattern in (r"(?:class|struct|enum) (?!class)([\w:]+)", r"using (\w+) =", r"(operator.+?)\(",
                        r"\(\*(\w+)\)",
                        r"([~\w]+)\((?!std::string_view\)>)", r"(\w+)(?:<.*>)?(?:\{.*\}| = .*)?;"):
            if match := re.search(pattern, code):
                return match[1]
        raise ValueError(f"a declaration without a name: {code}")

    @property
    def declaration(self) -> str:
        """Without the body of a function, and what a constructor initializes."""
        if self.kind or "(" not in self.code:
            return self.text.partition(" {")[0] + ";" if self.kind else self.text
        head, *body = re.split(r"(?<=\))(?: noexcept)?\s+: \w+[({]|(?<!=) \{", self.text, maxsplit=1)
        return head + ";" if body else head


def indent_of(line: str) -> int:
    return len(line) - len(line.lstrip())


def statements(lines: list[str]) -> list[Statement]:
    found: list[Statement] = []
    comment: list[str] = []
    begins, depth, is_open = True, 0, False
    for line in lines:
        code = line.partition("//")[0].rstrip()
        if not is_open and not code:
            if not line:
                found += [Statement(comment, [])] if comment else []
                comment, begins = [], True
            elif found and found[-1].lines and "//" in found[-1].lines[-1] and not comment and indent_of(line) > indent_of(found[-1].lines[0]):
                found[-1].lines.append(line)  # the comment behind it goes on
            else:
                comment.append(line.strip()[2:].removeprefix(" "))
            continue
        if not is_open:
            found.append(Statement(comment, [], begins or bool(comment)))
            comment, begins = [], False
        found[-1].lines.append(line)
        depth += sum(map(code.count, "([{")) - sum(map(code.count, ")]}"))
        is_end = code.endswith((";", "}", ":")) or code.endswith(",") and "<" not in code
        is_open = depth > 0 or not is_end and code[:1] != "#"
    return found


def prose(comment: list[str], link: Link) -> str:
    """Markdown of a comment, of which the indented lines are code."""
    out = []
    for is_code, lines in groupby(comment, lambda line: line.startswith("  ")):
        if is_code:
            out += ["```cpp", *(line[2:] for line in lines), "```"]
        else:
            out += [words(line, link) for line in lines]
    return "\n".join(out)


def words(text: str, link: Link) -> str:
    """Marks code, and links the names of headers and pages."""
    code = r"\w+(?:::\w+)+(?:<[\w: ]+>)?(?:\(\))?|[\w.]+(?:<\w+>)?\(\)|\w+<\w+>"
    text = "".join(part if part[:1] == "`" else re.sub(f"(?<![\\w/])({code})", r"`\1`", part)
                   for part in re.split(r"(`[^`]*`)", text))
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"(?<![\w/])(docs/[\w-]+\.md|\w+\.hpp)", lambda match: link(match[0]),
                         re.sub(r"([*<\[])", r"\\\1", part)) for part in parts[::2]]
    return "".join(parts)


def groups(found: list[Statement], listed: bool = True) -> list[list[Statement]]:
    """Of public declarations: those that share a comment."""
    out: list[list[Statement]] = []
    for statement in found:
        if statement.code in ("public:", "private:", "protected:"):
            listed = statement.code == "public:"
        elif listed and not UNLISTED.match(statement.text):
            if not out or statement.begins_group or statement.kind or out[-1][0].kind:
                out.append([])
            out[-1].append(statement)
    kept: list[list[Statement]] = []
    for group in out:
        defined = all("{" in each.code for each in group) and not group[0].comment
        known = {each.name for other in kept for each in other if each.lines}
        if not (defined and all(each.name in known for each in group)):
            kept.append(group)
    return kept


def section(group: list[Statement], level: int, link: Link) -> str:
    if not group[0].lines:
        return prose(group[0].comment, link)
    names = list(dict.fromkeys(statement.name for statement in group))
    title = ", ".join(names[:3]) + ", ..." * (len(names) > 3)
    code = "\n".join(statement.declaration for statement in group)
    comment = "\n".join(prose(statement.comment, link) for statement in group if statement.comment)
    heading = f"{'#' * level} `{title}`"
    first, inner = group[0], ""
    if first.kind and is_plain(first):
        code = first.text
    elif first.kind == "enum":
        inner = "\n".join(enumerator(each, link) for each in first.inner)
    elif first.kind:
        inner = sections(groups(first.inner, first.kind == "struct"), level + 1, link)
    elif level > 2 and len(names) > 1 and all(statement.is_field for statement in group):
        heading = ""
    shown = "" if code == f"{first.kind} {title};" else f"```cpp\n{code}\n```"
    return f"{heading}\n\n{shown}\n\n{comment}\n\n{inner}"


def is_plain(statement: Statement) -> bool:
    """Whether there is nothing to say of its parts."""
    if statement.kind == "enum":
        return not any(each.trailing_comment for each in statement.inner)
    return all(each.is_field and not each.comment and not each.kind for each in statement.inner)


def enumerator(statement: Statement, link: Link) -> str:
    said = words(" ".join([*statement.comment, statement.trailing_comment]).strip(), link)
    return f"`{statement.code.rstrip(',')}`\n:   {said or '&nbsp;'}\n"


def sections(found: list[list[Statement]], level: int, link: Link) -> str:
    return "\n".join(section(group, level, link) for group in found)


def page(name: str, text: str, link: Link) -> str:
    about, _, rest = text.partition("#pragma once\n")
    said = prose([line[2:].removeprefix(" ") for line in about.splitlines()], link)
    found = statements(rest.splitlines())
    declared = [
        group
        for namespace in found if namespace.code.startswith("namespace weightmap")
        for group in groups(namespace.inner)
    ]
    include = f'```cpp\n#include "weightmap/{name}"\n```'
    return f"# {name}\n\n{include}\n\n{said}\n\n{sections(declared, 2, link)}"
