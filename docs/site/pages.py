"""Pages of the site for what is no Markdown of docs/: README.md and its neighbours, the tutorials,
the public headers, and each file that a page links to. Links to these lead to their pages."""

from __future__ import annotations

import json
import pathlib
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator

from mkdocs.structure.files import File, InclusionLevel

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import headers

HEADERS = {header.name: header for header in sorted(ROOT.glob("include/weightmap/*.hpp"))}
NOTEBOOKS = {str(path.relative_to(ROOT)): path for path in ROOT.glob("docs/tutorials/*.ipynb")}
TOP = {path.name: f"project/{path.name}" for path in ROOT.glob("*.md")} | {"README.md": "index.md"}
LINK = re.compile(r"\]\(([^)#\s]+)(?=[)#])")
LANGUAGES = {".py": "python", ".cpp": "cpp", ".hpp": "cpp", ".service": "ini", ".conf": "nginx",
             ".yaml": "yaml", ".sbatch": "bash", "": "bash"}


def uri_of(path: str) -> str:
    """Where the site has a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/").replace(".ipynb", ".md")
    if path.startswith("include/weightmap/"):
        return f"api/cpp/{pathlib.PurePath(path).stem}.md"
    return TOP.get(path, f"source/{path}.md")


def path_of(uri: str) -> str:
    made = {uri_of(made): made for made in (*TOP, *NOTEBOOKS)}
    return made.get(uri, f"docs/{uri}")


def relative(uri: str, page: str) -> str:
    return posixpath.relpath(uri, posixpath.dirname(page))


def links(path: str, text: str) -> Iterator[tuple[re.Match[str], str]]:
    """The links of a file to others of the repository, and the paths of these."""
    for match in LINK.finditer(text):
        if "://" not in match[1]:
            yield match, posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1]))


def files_below(folder: str) -> list[str]:
    command = ["git", "-c", "safe.directory=*", "ls-files", folder]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()


def source_page(path: str) -> str:
    if (ROOT / path).is_dir():
        page = uri_of(path)
        items = (f"- [{file}]({relative(uri_of(file), page)})\n" for file in files_below(path))
        return f"# {path}\n\n" + "".join(items)
    language = LANGUAGES.get(pathlib.PurePath(path).suffix, "text")
    return f"# {path}\n\n````{language}\n{(ROOT / path).read_text()}\n````\n"


def notebook_page(notebook: dict) -> str:
    """Its cells, each with the output that is stored in it."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            text = "".join(output.get("text") or output["data"]["text/plain"])
            parts.append(f"``` {{.text .output}}\n{text.rstrip()}\n```")
    return "\n\n".join(parts)


def header_link(name: str) -> str:
    """To what a comment names, from the page of a header."""
    if name in HEADERS:
        return f"[{name}]({pathlib.PurePath(name).stem}.md)"
    return f"[{name}](../../{name.removeprefix('docs/')})" if "/" in name else f"`{name}`"


def table_of_headers() -> str:
    rows = "\n| header | |\n|---|---|\n"
    for name, header in HEADERS.items():
        first = header.read_text().partition("\n//\n")[0].replace("\n//", "").removeprefix("// ")
        sentence = re.split(r"\.(?:\s|$)", first)[0]
        rows += f"| {header_link(name)} | {headers.words(sentence, header_link)} |\n"
    return rows


def on_config(config):
    """Lists the headers in the navigation."""
    [reference] = [item["API"] for item in config.nav if "API" in item]
    pages = ({name: uri_of(f"include/weightmap/{name}")} for name in HEADERS)
    reference[-1]["C++"] = ["api/cpp/index.md", *pages]


def on_files(files, config):
    def add(path, content, inclusion=InclusionLevel.UNDEFINED):
        made = File.generated(config, uri_of(path), content=content)
        made.inclusion = inclusion
        files.append(made)

    texts = {path: (ROOT / path).read_text() for path in TOP}
    texts |= {path_of(file.src_uri): file.content_string
              for file in files.documentation_pages() if file.src_uri.endswith(".md")}
    outside = {target for path, text in texts.items() for _, target in links(path, text)
               if uri_of(target).startswith("source/")}
    for folder in [path for path in outside if (ROOT / path).is_dir()]:
        outside.update(files_below(folder))
    for path in sorted(outside):
        add(path, source_page(path), InclusionLevel.NOT_IN_NAV)
    for path in TOP:
        add(path, "---\nhide: [navigation]\n---\n" * (path == "README.md") + texts[path])
    for path, file in NOTEBOOKS.items():
        files.remove(files.get_file_from_path(path.removeprefix("docs/")))
        add(path, notebook_page(json.loads(file.read_text())))
    for name, header in HEADERS.items():
        add(f"include/weightmap/{name}", headers.page(name, header.read_text(), header_link))
    return files


def on_page_markdown(markdown, page, config, files):
    uri = page.file.src_uri
    if not (ROOT / path_of(uri)).exists():
        return markdown  # made above
    for match, target in reversed(list(links(path_of(uri), markdown))):
        markdown = markdown[:match.start(1)] + relative(uri_of(target), uri) + markdown[match.end(1):]
    return markdown + table_of_headers() if uri == "api/cpp/index.md" else markdown
