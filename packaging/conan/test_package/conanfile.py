"""Builds tests/installed_consumer by find_package and by pkg-config, and runs both."""

from io import StringIO
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanException
from conan.tools.cmake import cmake_layout


class Consumer(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeToolchain", "CMakeDeps", "PkgConfigDeps", "VirtualRunEnv"
    tests = Path(__file__).parents[3] / "tests"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def build(self):
        toolchain = Path(self.generators_folder, "conan_toolchain.cmake")
        for finds in ("package", "pkgconfig"):
            folder = Path(self.build_folder, finds)
            self.run(f"cmake -S {self.tests}/installed_consumer -B {folder} "
                     f"-DCMAKE_TOOLCHAIN_FILE={toolchain} -DCMAKE_BUILD_TYPE=Release "
                     f"-DCONSUMER_FINDS={finds}")
            self.run(f"cmake --build {folder}")

    def test(self):
        for finds in ("package", "pkgconfig"):
            printed = StringIO()
            self.run(f"{Path(self.build_folder, finds, 'consumer')} "
                     f"{self.tests}/data/state_dict.pt", printed, env="conanrun")
            if printed.getvalue().strip() != "7 tensors in 13 records":
                raise ConanException(f"the consumer by {finds} printed {printed.getvalue()}")
