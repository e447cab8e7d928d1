#!/usr/bin/env python3
"""Checks every #include line against the layer table of docs/architecture.md.

    include_layers_test.py ROOT

The table below is that table. A module may include itself and the modules named beside it; anything
in angle brackets that is not the C++ standard library must be allowed here by name.
"""

import pathlib
import re
import sys
import unittest

LIBRARY = {
    "base": (),
    "bytes": ("base",),
    "os": ("base", "bytes"),
    "mmap": ("base", "bytes", "os"),
    "zip": ("base", "bytes"),
    "value": ("base", "bytes"),
    "pickle": ("base", "bytes", "value"),
    "json": ("base", "bytes", "value"),
    "catalog": ("base", "bytes"),
    "format": ("base", "bytes", "zip", "value", "catalog"),
}
LIBRARY["safetensors"] = (*LIBRARY["format"], "format", "json")
LIBRARY["gguf"] = (*LIBRARY["format"], "format")
LIBRARY["npz"] = (*LIBRARY["format"], "format")
LIBRARY["sets"] = ("base", "bytes", "value", "json")
LIBRARY["torch"] = (*LIBRARY["format"], "format", "pickle", "json")
LIBRARY["dcp"] = (*LIBRARY["torch"], "torch", "sets")
LIBRARY["archive"] = (*LIBRARY["format"], "format", "os", "mmap")
LIBRARY["checkpoint"] = (*LIBRARY["dcp"], "dcp", "os", "mmap", "safetensors", "gguf", "npz")
for service in ("verify", "rows", "inspect", "write", "cuda"):
    LIBRARY[service] = (*LIBRARY["checkpoint"], "checkpoint")
LIBRARY["write"] += ("archive",)
LIBRARY["delta"] = (*LIBRARY["write"], "write")
LIBRARY["resident"] = (*LIBRARY["rows"], "rows")
LIBRARY["warm"] = (*LIBRARY["verify"], "verify")
LIBRARY["fetch"] = (*LIBRARY["warm"], "warm")
LIBRARY["remote"] = ("base", "bytes", "os")

# The floors of runtime/, which are its folders, from the ground up, and the modules that have a
# folder there. The files of a floor itself are of the module that it has beside them.
FLOORS = {
    "base": ("bytes", "value", "json", "pickle", "zip", "catalog"),
    "system": (),
    "formats": ("torch", "safetensors", "gguf", "npz", "dcp", "sets", "format"),
    "checkpoint": (),
    "services": ("warm", "rows", "resident", "fetch", "inspect", "verify", "archive", "write", "cuda",
                 "delta"),
}
OF_A_FLOOR = {"base": "base", "checkpoint": "checkpoint"}

# People's side: public headers, their own folder and the folders named beside it. Benchmarks also
# measure modules one by one. A folder within another comes before it.
EDGES = {
    "tools/support": (),
    "tools/bench/cold": ("tools/support",),
    "tools/run": ("tools/support",),
    "tools/snapshot": ("tools/support", "tools/run"),
    "tools/template": ("tools/support", "tools/run", "tools/snapshot"),
    "tools": ("tools/support", "tools/bench/cold", "tools/run", "tools/snapshot", "tools/template"),
    "python": (),
    "examples": (),
    "bench": ("tools/bench/cold", "tools/support"),
}
# What reads ahead for other processes looks into the system as the library does.
PRIVATE = {"tools/run": ("bytes", "os", "mmap", "sets"), "tools/snapshot": ("base", "os"),
           "tools/template": ("base", "os")}
# Macros over Result, which is public; as a public header they would be everybody's names.
TRY = "runtime/base/try.hpp"
# Each is a promise to users.
MOST_HEADERS = 25
MOST_MEMBERS = 25  # of Checkpoint; the rest is functions beside it, and Backing
# What is not installed, and what the tool and the package are made of nevertheless.
FOR_PEOPLE = (
    "mmap/pages/write_protection.hpp",
    "runtime/base/element_format.hpp",
    "runtime/base/name_pattern.hpp",
    "runtime/base/option_table.hpp",
    "runtime/services/inspect/list_globals.hpp",
    "runtime/services/inspect/processes.hpp",
    "runtime/services/inspect/surroundings.hpp",
    "runtime/system/process/runtime_directory.hpp",
)
# Single headers of modules that a module does not know otherwise.
SINGLE = {edge: (*FOR_PEOPLE, TRY) for edge in EDGES if edge.startswith(("tools", "python"))}
SINGLE["remote"] = ("weightmap/remote.hpp",)
# Public headers that are not of the module base: of the lowest one that declares something there.
PUBLIC = {
    "archive.hpp": "archive",
    "backing.hpp": "checkpoint",
    "checkpoint.hpp": "checkpoint",
    "checkpoint_writer.hpp": "write",
    "chunks.hpp": "checkpoint",
    "convert.hpp": "write",
    "cuda.hpp": "cuda",
    "delta.hpp": "delta",
    "fetch.hpp": "fetch",
    "inspect.hpp": "inspect",
    "new_file.hpp": "os",
    "on_demand.hpp": "rows",
    "remote.hpp": "checkpoint",
    "safetensors_writer.hpp": "write",
    "value.hpp": "value",
    "warmer.hpp": "warm",
    "weightmap.hpp": "checkpoint",
}

OPERATING_SYSTEM = r"(sys|linux|asm)/.*|(unistd|fcntl|errno|signal|poll|dirent|pthread|sched|dlfcn|netdb|spawn)\.h|(arpa|netinet)/.*"
ALLOWED = (
    (r"tl/expected\.hpp", ("public",)),
    (r"boost/uuid/.*", ("tools/run",)),
    (r"boost/.*", ("mmap",)),
    (r"sys/auxv\.h", ("bytes", "os")),
    (OPERATING_SYSTEM, ("os", "mmap", "remote", *EDGES)),
    (r"curl/.*", ("remote", "bench")),
    (r"libdeflate\.h", ("zip", "delta")),
    (r"(zstd|blake3)\.h", ("delta", "bench")),
    (r"(cpuid|immintrin|arm_neon)\.h", ("bytes",)),
    (r"xxhash\.h", ("zip", "catalog", "delta", "tools/snapshot", "bench")),
    (r"(spdlog|CLI|fmt)/.*", EDGES),
    (r"nlohmann/.*", EDGES),
    (r"nanobind/.*", ("python",)),
    (r"benchmark/benchmark\.h", ("bench",)),
    (r"httplib\.h|ATen/.*", ("examples",)),
)

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def module_of(path):
    """The module a file belongs to by its path from the root; None for what has no layer."""
    parts = path.split("/")
    if parts[0] == "include":
        return PUBLIC.get(parts[-1], "base")
    if parts[0] == "runtime" and len(parts) > 2:
        floor, inner = parts[1:3]
        if floor == "system":
            return "os"
        if len(parts) == 3:
            return OF_A_FLOOR.get(floor, floor)
        return inner if inner in FLOORS.get(floor, ()) else floor + "/" + inner
    return next((edge for edge in ("mmap", "remote", *EDGES) if path.startswith(edge + "/")), None)


def module_of_include(target):
    return module_of("include/" + target if target.startswith("weightmap/") else target)


def project_fault(path, target):
    module = module_of(path)
    if path.startswith("include/"):
        return None if target.startswith("weightmap/") else "a public header includes a private one"
    if module == "bench" and module_of_include(target) in LIBRARY:
        return None
    if target in SINGLE.get(module, ()):
        return None
    wanted = module_of_include(target)
    if module in EDGES:
        known = target.startswith("weightmap/") or wanted in (module, *EDGES[module])
        known = known or wanted in PRIVATE.get(module, ())
        return None if known else f"{module} may not know {wanted or target}"
    if wanted is None:
        return "an include is rooted at the project"
    if wanted != module and wanted not in LIBRARY[module]:
        return f"{module} may not know {wanted}"
    return None


def system_fault(path, target):
    if re.fullmatch(r"[a-z_0-9]+", target):
        return None  # the C++ standard library
    places = {module_of(path)} | ({"public"} if path.startswith("include/") else set())
    for pattern, allowed in ALLOWED:
        if re.fullmatch(pattern, target):
            return None if places & set(allowed) else f"only {' and '.join(allowed)} may include it"
    return "no module may include it"


def faults(path, text):
    module = module_of(path)
    if module is not None and module not in LIBRARY and module not in EDGES:
        yield f"{path}: the folder is not in the layer table"
        return
    for match in INCLUDE.finditer(text):
        bracket, target = match.groups()
        fault = (system_fault if bracket == "<" else project_fault)(path, target)
        if fault:
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: {target}: {fault}"


def members_of(header, name):
    """The public functions of a class; overloads are one."""
    body = header.partition(f"class WEIGHTMAP_API {name} {{")[2].partition(" private:")[0]
    return set(re.findall(rf"^  (?!//|~?{name}\(|void)[^/(\n]*?\b(\w+)\(", body, re.M))


class Rules(unittest.TestCase):
    """Each rule is seen to bite."""

    def refuses(self, path, line):
        self.assertEqual(len(list(faults(path, line))), 1, f"{path}: {line}")

    def accepts(self, path, line):
        self.assertEqual(list(faults(path, line)), [])

    def test_siblings_do_not_know_one_another(self):
        self.refuses("runtime/base/zip/a.cpp", '#include "runtime/base/pickle/tree.hpp"')
        self.refuses("runtime/base/pickle/a.cpp", '#include "runtime/system/file/file.hpp"')
        self.refuses("mmap/mapping.cpp", '#include "runtime/base/zip/directory.hpp"')
        self.refuses("runtime/system/file/file.cpp", '#include "mmap/mapping.hpp"')

    def test_no_arrow_turns_back(self):
        self.refuses("runtime/base/bytes/a.hpp", '  #  include "runtime/base/zip/directory.hpp"')
        self.refuses("runtime/formats/torch/a.cpp", '#include "weightmap/checkpoint.hpp"')
        self.accepts("runtime/checkpoint/a.cpp", '#include "runtime/system/file/file.hpp"')

    def test_public_headers_include_public_headers(self):
        self.refuses("include/weightmap/a.hpp", '#include "runtime/base/bytes/checked.hpp"')
        self.accepts("include/weightmap/a.hpp", "#include <tl/expected.hpp>\n#include <span>")

    def test_the_operating_system_is_behind_os_and_mmap(self):
        self.refuses("runtime/base/zip/a.cpp", "#include <sys/mman.h>")
        self.refuses("runtime/checkpoint/a.cpp", "#include <boost/config.hpp>")
        self.accepts("runtime/system/file/file.cpp", "#include <fcntl.h>")
        self.accepts("mmap/mapping.cpp", "#include <sys/mman.h>\n#include <boost/config.hpp>")

    def test_the_network_is_behind_remote(self):
        self.accepts("remote/transfer.cpp", "#include <curl/curl.h>")
        self.accepts("bench/curl_floor.cpp", "#include <curl/curl.h>")
        self.refuses("tools/bench/cold/runner.cpp", "#include <curl/curl.h>")
        self.refuses("runtime/services/fetch/chunks.cpp", "#include <curl/curl.h>")
        self.refuses("tools/main.cpp", "#include <curl/curl.h>")
        self.refuses("remote/url.cpp", '#include "runtime/checkpoint/state.hpp"')

    def test_edges_see_public_headers_only(self):
        self.refuses("tools/weightmap/main.cpp", '#include "runtime/base/zip/directory.hpp"')
        self.refuses("runtime/base/zip/a.cpp", "#include <spdlog/spdlog.h>")
        self.accepts("tools/weightmap/main.cpp", "#include <CLI/CLI.hpp>")

    def test_what_is_not_installed_is_for_the_tool_and_the_package_by_name(self):
        line = '#include "runtime/base/option_table.hpp"'
        self.accepts("tools/command.cpp", line)
        self.accepts("python/src/options.cpp", line)
        self.refuses("examples/quickstart.cpp", line)
        self.refuses("include/weightmap/options.hpp", line)
        self.refuses("tools/command.cpp", '#include "runtime/base/options.hpp"')

    def test_the_tool_stands_on_the_benchmark_that_it_carries(self):
        self.accepts("tools/commands/bench_command.cpp", '#include "tools/bench/cold/runner.hpp"')
        self.refuses("tools/commands/bench_command.cpp", '#include "bench/model_shape.hpp"')
        self.accepts("tools/bench/cold/runner.cpp", '#include "tools/support/text.hpp"')
        self.refuses("tools/bench/cold/runner.cpp", '#include "tools/command.hpp"')
        self.refuses("tools/bench/cold/runner.cpp", '#include "runtime/base/zip/directory.hpp"')
        self.refuses("tools/support/text.cpp", '#include "tools/command.hpp"')

    def test_unknown_libraries_and_folders_are_refused(self):
        self.refuses("runtime/base/zip/a.cpp", "#include <zlib.h>")
        self.refuses("runtime/base/zip/a.cpp", '#include "directory.hpp"')
        for folder in ("runtime/newcomer", "runtime/base/newcomer", "runtime/formats"):
            self.refuses(folder + "/a.cpp", "#include <vector>")
        self.refuses("runtime/base/warm/a.cpp", "#include <vector>")


def main(root):
    sources = [
        path
        for folder in ("include", "runtime", "mmap", "remote", "tools", "python", "examples", "bench")
        for pattern in ("*.hpp", "*.cpp")
        for path in sorted((root / folder).rglob(pattern))
    ]
    doors = sorted((root / "include/weightmap").glob("*.hpp"))
    if not 0 < len(doors) <= MOST_HEADERS:
        sys.exit(f"{len(doors)} public headers are installed, and {MOST_HEADERS} are the most")
    members = members_of((root / "include/weightmap/checkpoint.hpp").read_text(), "Checkpoint")
    if not 0 < len(members) <= MOST_MEMBERS:
        sys.exit(f"Checkpoint has {len(members)} members, and {MOST_MEMBERS} are the most")
    found = [
        fault
        for path in sources
        for fault in faults(path.relative_to(root).as_posix(), path.read_text())
    ]
    print("\n".join(found) or f"{len(sources)} files keep to the layers")
    rules = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(Rules))
    sys.exit(1 if found or not rules.wasSuccessful() else 0)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve())
