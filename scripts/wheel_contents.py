"""Adds to an unpacked wheel what it has to say of the libraries compiled in: an inventory
(CycloneDX, where PEP 770 puts it) and their licences.

    wheel_contents.py DIST_INFO SYSROOT [PACKAGE...]

The folder SYSROOT has Debian packages, unpacked, and their .deb files are in SYSROOT.debs; PACKAGE
names those that are compiled in, or is the folder of a source package. nanobind and zig, whose C++
runtime is linked, are found in this Python.
"""

import json
import os
import re
import subprocess
import sys
import uuid
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

# Debian's short names that SPDX writes in another way.
SPDX = {"Expat": "MIT", "BSD-2-clause": "BSD-2-Clause", "BSD-3-clause": "BSD-3-Clause"}
IS_SPDX = re.compile(r"(MIT|BSD-[23]-Clause|BSL-1\.0|CC0-1\.0|Apache-2\.0|curl)$")


class Library(NamedTuple):
    name: str
    version: str
    purl: str
    licence: str
    text: str

    def component(self) -> dict[str, Any]:
        key = "id" if IS_SPDX.match(self.licence) else "name"
        licence: dict[str, Any] = {"license": {key: self.licence}}
        if " WITH " in self.licence:
            licence = {"expression": self.licence}
        return {"type": "library", "bom-ref": self.purl, "name": self.name,
                "version": self.version, "purl": self.purl, "licenses": [licence]}


def debian_package(sysroot: Path, name: str) -> Library:
    (archive,) = Path(f"{sysroot}.debs").glob(f"{name}_*.deb")
    version, architecture = subprocess.run(
        ["dpkg-deb", "--showformat", "${Version} ${Architecture}", "--show", archive],
        check=True, capture_output=True, text=True).stdout.split()
    copyright_file = (sysroot / "usr/share/doc" / name / "copyright").read_text()
    return debian_library(name, version, architecture, copyright_file)


def debian_source(folder: Path) -> Library:
    changelog = (folder / "debian/changelog").read_text()
    found = re.match(r"(\S+) \((\S+)\) ", changelog)
    assert found, f"{folder}: its changelog names no version"
    return debian_library(found[1], found[2], "source", (folder / "debian/copyright").read_text())


def debian_library(name: str, version: str, architecture: str, copyright_file: str) -> Library:
    whole = next(part for part in copyright_file.split("\n\n") if part.startswith("Files: *\n"))
    found = re.search(r"^License: (.*)$", whole, re.MULTILINE)
    assert found, f"{name}: its copyright file names no licence"
    licence = found[1].strip()
    # Some files of Boost have licences of their own, in two megabytes; its headers have Boost's.
    if len(copyright_file) > 100_000:
        named = re.compile(rf"^License: {re.escape(licence)}\n", re.MULTILINE)
        texts = [part for part in copyright_file.split("\n\n") if named.match(part)]
        copyright_file = "\n\n".join([whole, *texts])
    common = Path("/usr/share/common-licenses") / licence
    if str(common) in copyright_file:  # where only Debian's systems have it
        copyright_file += "\n" + common.read_text()
    purl = f"pkg:deb/debian/{name}@{quote(version, safe=':')}?arch={architecture}"
    return Library(name, version, purl, SPDX.get(licence, licence), copyright_file)


def python_package(name: str, licence_file: str) -> Library:
    package = metadata.distribution(name)
    text = Path(str(package.locate_file(licence_file.format(version=package.version)))).read_text()
    fields = package.metadata
    named = [text.rpartition(" :: ")[2] for text in fields.get_all("Classifier", [])
             if text.startswith("License ::")]
    licence = fields["License-Expression"] if "License-Expression" in fields else named[0]
    return Library(name, package.version, f"pkg:pypi/{name}@{package.version}",
                   SPDX.get(licence, licence), text)


def robin_map() -> Library:
    """nanobind brings its headers, which have version and licence in them."""
    folder = Path(str(metadata.distribution("nanobind").locate_file(
        "nanobind/ext/robin_map/include/tsl")))
    version = ".".join(re.findall(r"define TSL_RH_VERSION_[A-Z]+ (\d+)",
                                  (folder / "robin_growth_policy.h").read_text()))
    comment = (folder / "robin_map.h").read_text().partition("*/")[0]
    text = re.sub(r"(?m)^[/ ]?\*+ ?", "", comment).strip() + "\n"
    return Library("robin-map", version, f"pkg:generic/robin-map@{version}",
                   text.partition(" License\n")[0], text)


def runtime_libraries() -> list[Library]:
    """LLVM's libraries in zig, of the version of its clang."""
    folder = Path(str(metadata.distribution("ziglang").locate_file("ziglang")))
    version = subprocess.run([folder / "zig", "c++", "--version"], check=True, capture_output=True,
                             text=True).stdout.split()[2]
    return [Library(name, version, f"pkg:generic/{name}@{version}", "Apache-2.0 WITH LLVM-exception",
                    (folder / "lib" / name / "LICENSE.TXT").read_text())
            for name in ("libcxx", "libcxxabi", "libunwind")]


def inventory(project: metadata.PathDistribution, libraries: list[Library]) -> dict[str, Any]:
    purl = f"pkg:pypi/{project.name}@{project.version}"
    time = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc)
    components = [library.component() for library in libraries]
    references = [component["bom-ref"] for component in components]
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, " ".join([purl, *references])).urn,
        "metadata": {
            "timestamp": time.isoformat(),
            "component": {"type": "library", "bom-ref": purl, "name": project.name,
                          "version": project.version, "purl": purl,
                          "licenses": [{"expression": project.metadata["License-Expression"]}]},
        },
        "components": components,
        "dependencies": [{"ref": purl, "dependsOn": references}],
    }


def add_licences(dist_info: Path, libraries: list[Library]) -> None:
    folder = dist_info / "licenses/libraries"
    folder.mkdir()
    fields = ""
    for library in libraries:
        (folder / f"{library.name}.txt").write_text(library.text)
        fields += f"License-File: libraries/{library.name}.txt\n"
    described = dist_info / "METADATA"
    described.write_text(re.sub(r"(?m)^(License-File: LICENSE\n)", rf"\1{fields}",
                                described.read_text(), count=1))


def main() -> None:
    dist_info, sysroot = Path(sys.argv[1]), Path(sys.argv[2])
    libraries = [debian_source(Path(name)) if "/" in name else debian_package(sysroot, name)
                 for name in sys.argv[3:]]
    libraries.append(python_package("nanobind", "nanobind-{version}.dist-info/licenses/LICENSE"))
    libraries.append(python_package("ziglang", "ziglang/LICENSE"))
    libraries.append(robin_map())
    libraries += runtime_libraries()
    add_licences(dist_info, libraries)
    project = metadata.PathDistribution(dist_info)
    (dist_info / "sboms").mkdir()
    (dist_info / "sboms/weightmap.cdx.json").write_text(
        json.dumps(inventory(project, libraries), indent=1) + "\n")


if __name__ == "__main__":
    main()
