"""Pages of the site that are made of files outside docs/, and the links to these (mkdocs.yml)."""

from __future__ import annotations

import pathlib
import posixpath
import re
import subprocess
import sys

from mkdocs.structure.files import File, InclusionLevel

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import headers  # noqa: E402

HEADERS = sorted((ROOT / "include/weightmap").glob("*.hpp"))
LINK = re.compile(r"(?<!!)(\]\()([^)#\s]+)(?=[)#])")
LANGUAGES = {".py": "python", ".cpp": "cpp", ".hpp": "cpp", ".service": "ini", "": "bash"}


def uri_of(path: str) -> str:
    """Where the site has a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("include/weightmap/"):
        return f"api/cpp/{pathlib.PurePath(path).stem}.md"
    return {"README.md": "index.md", "HACKING.md": "HACKING.md", "CHANGELOG.md": "CHANGELOG.md"}.get(
        path, f"source/{path}.md")


def path_of(uri: str) -> str:
    return {"index.md": "README.md"}.get(
        uri, uri if uri in ("HACKING.md", "CHANGELOG.md") else f"docs/{uri}")


def targets(path: str, text: str):
    """What a file's links name, by the paths in the repository."""
    for match in LINK.finditer(text):
        if "://" not in match[2]:
            yield match, posixpath.normpath(posixpath.join(posixpath.dirname(path), match[2]))


def source_page(path: str) -> str:
    if (ROOT / path).is_dir():
        files = tracked(path)
        return f"# {path}\n\n" + "".join(f"- [{file}]({posixpath.relpath(uri_of(file), posixpath.dirname(uri_of(path)))})\n" for file in files)
    language = LANGUAGES.get(pathlib.PurePath(path).suffix, "text")
    return f"# {path}\n\n````{language}\n{(ROOT / path).read_text()}\n````\n"


def tracked(folder: str) -> list[str]:
    listed = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", folder], cwd=ROOT, check=True, capture_output=True, text=True)
    return listed.stdout.split()


def on_config(config):
    """Lists the headers in the navigation."""
    [api] = [item["API"] for item in config.nav if "API" in item]
    api[-1]["C++"] = ["api/cpp/index.md", *({header.name: uri_of(f"include/weightmap/{header.name}")} for header in HEADERS)]


def on_files(files, config):
    def add(uri, content, inclusion=InclusionLevel.UNDEFINED):
        made = File.generated(config, uri, content=content)
        made.inclusion = inclusion
        files.append(made)

    texts = {path: (ROOT / path).read_text() for path in ("README.md", "HACKING.md", "CHANGELOG.md")}
    for path, text in texts.items():
        add(uri_of(path), "---\nhide: [navigation]\n---\n" + text if path == "README.md" else text)
    for file in files.documentation_pages():
        if file.generated_by is None and file.src_uri.endswith(".md"):
            texts[path_of(file.src_uri)] = file.content_string
    outside = {target for path, text in texts.items() for _, target in targets(path, text)
               if uri_of(target).startswith("source/")}
    for folder in [path for path in outside if (ROOT / path).is_dir()]:
        outside.update(tracked(folder))
    for path in sorted(outside):
        add(uri_of(path), source_page(path), InclusionLevel.NOT_IN_NAV)
    add_headers(add)
    return files


def add_headers(add) -> None:
    names = {header.name for header in HEADERS}

    def link(name: str) -> str:
        if name in names:
            return f"[{name}]({pathlib.PurePath(name).stem}.md)"
        return f"[{name}](../../{name.removeprefix('docs/')})" if "/" in name else f"`{name}`"

    rows = []
    for header in HEADERS:
        made = headers.page(header.name, header.read_text(), link)
        about = re.split(r"(?<=[.:;])\s", header.read_text().partition("\n//\n")[0].replace("\n//", "").removeprefix("// "))[0]
        rows.append(f"| {link(header.name)} | {headers.words(about.rstrip(':;'), link)} |\n")
        add(uri_of(f"include/weightmap/{header.name}"), made)
    add("api/cpp/index.md", (ROOT / "docs/site/cpp.md").read_text() + "".join(rows))


def on_page_markdown(markdown, page, config, files):
    """Turns links to files outside docs/ into links to their pages."""
    uri = page.file.src_uri
    if uri.startswith(("source/", "api/cpp/")):
        return markdown
    for match, target in reversed(list(targets(path_of(uri), markdown))):
        to = posixpath.relpath(uri_of(target), posixpath.dirname(uri))
        markdown = markdown[: match.start(2)] + to + markdown[match.end(2):]
    return markdown
