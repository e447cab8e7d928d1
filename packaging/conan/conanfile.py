"""Conan's recipe of the C++ library:

    conan create packaging/conan --build=missing
    conan create packaging/conan -o '&:system_dependencies=True'    of Debian's packages instead
"""

import re
from pathlib import Path

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, rmdir
from conan.tools.gnu import PkgConfigDeps
from conan.tools.system.package_manager import Apt


class Weightmap(ConanFile):
    name = "weightmap"
    description = "Map model weights instead of loading them"
    license = "Apache-2.0"
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False], "system_dependencies": [True, False]}
    default_options = {"shared": False, "fPIC": True, "system_dependencies": False}
    implements = ["auto_shared_fpic"]

    def set_version(self):
        project = Path(self.recipe_folder, "../../CMakeLists.txt").read_text()
        self.version = re.search(r"project\(weightmap VERSION ([0-9.]+)", project).group(1)

    def export_sources(self):
        root = Path(self.recipe_folder).parents[1]
        for part in ("CMakeLists.txt", "LICENSE", "*.md", "cmake/*", "docs/*", "examples/*",
                     "include/*", "mmap/*", "runtime/*"):
            copy(self, part, root, self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        if not self.options.system_dependencies:
            self.requires("tl-expected/[>=1.0]", transitive_headers=True)
            self.requires("libdeflate/[>=1.14]")
            self.requires("zstd/[>=1.4.8]")
            for headers in ("boost/[>=1.74]", "nlohmann_json/[>=3.9]", "xxhash/[>=0.8]"):
                self.requires(headers, visible=False)

    def system_requirements(self):
        if self.options.system_dependencies:
            Apt(self).install(["libboost-dev", "libdeflate-dev", "libexpected-dev",
                               "libxxhash-dev", "libzstd-dev", "nlohmann-json3-dev",
                               "pkg-config"])

    def validate(self):
        check_min_cppstd(self, 20)

    def generate(self):
        CMakeDeps(self).generate()
        PkgConfigDeps(self).generate()
        toolchain = CMakeToolchain(self)
        for part in ("TOOLS", "TESTS", "BENCHMARKS", "EXAMPLES", "REMOTE"):
            toolchain.cache_variables[f"WEIGHTMAP_BUILD_{part}"] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, Path(self.package_folder, "licenses"))
        CMake(self).install()
        for folder in ("lib/cmake", "lib/pkgconfig", "share"):  # Conan writes its own
            rmdir(self, Path(self.package_folder, folder))

    def package_info(self):
        self.cpp_info.libs = ["weightmap"]
        if not self.options.shared:
            self.cpp_info.defines = ["WEIGHTMAP_STATIC"]
            self.cpp_info.system_libs = ["pthread", "dl"]
            if self.options.system_dependencies:
                self.cpp_info.system_libs.insert(0, "deflate")
