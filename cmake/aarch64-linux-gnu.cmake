# Cross-compiles for 64-bit Arm with Debian's g++-12-aarch64-linux-gnu, and runs what it built, the
# tests among it, under qemu-user (docs/building.md).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++-12)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

# A Debian for arm64 with the libraries: scripts/aarch64 makes it.
set(WEIGHTMAP_AARCH64_ROOT "${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-root" CACHE PATH
  "Where the libraries for arm64 are")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES WEIGHTMAP_AARCH64_ROOT)
file(REAL_PATH "${WEIGHTMAP_AARCH64_ROOT}" CMAKE_SYSROOT)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# Of its Python; the interpreter that runs meanwhile is this machine's, of the same version.
set(Python_INCLUDE_DIR "${CMAKE_SYSROOT}/usr/include/python3.11")
set(SKBUILD_SOABI cpython-311-aarch64-linux-gnu)  # nanobind's name for it
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${CMAKE_SYSROOT}")
set(ENV{PKG_CONFIG_LIBDIR}
  "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig")

find_program(WEIGHTMAP_QEMU NAMES qemu-aarch64-static qemu-aarch64)
if(WEIGHTMAP_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${WEIGHTMAP_QEMU};-L;${CMAKE_SYSROOT}")
endif()
