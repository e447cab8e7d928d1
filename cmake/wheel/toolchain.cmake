# Compiles with zig for the oldest glibc that has the system calls of the library, on any machine.
# scripts/wheel sets:
#   WEIGHTMAP_ZIG           zig's program
#   WEIGHTMAP_ARCHITECTURE  x86_64 or aarch64
#   WEIGHTMAP_SYSROOT       a folder with the libraries' Debian packages, unpacked

list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES
  WEIGHTMAP_ZIG WEIGHTMAP_ARCHITECTURE WEIGHTMAP_SYSROOT)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${WEIGHTMAP_ARCHITECTURE})
set(CMAKE_LIBRARY_ARCHITECTURE ${WEIGHTMAP_ARCHITECTURE}-linux-gnu)
set(CMAKE_C_COMPILER ${WEIGHTMAP_ZIG} cc -target ${WEIGHTMAP_ARCHITECTURE}-linux-gnu.2.28)
set(CMAKE_CXX_COMPILER ${WEIGHTMAP_ZIG} c++ -target ${WEIGHTMAP_ARCHITECTURE}-linux-gnu.2.28)

# zig's own archiver: this machine's knows this machine's objects only.
set(CMAKE_AR ${WEIGHTMAP_ZIG})
foreach(language IN ITEMS C CXX)
  set(CMAKE_${language}_ARCHIVE_CREATE "<CMAKE_AR> ar qcD <TARGET> <OBJECTS>")
  set(CMAKE_${language}_ARCHIVE_APPEND "<CMAKE_AR> ar qD <TARGET> <OBJECTS>")
  set(CMAKE_${language}_ARCHIVE_FINISH "<CMAKE_AR> ranlib <TARGET>")
endforeach()

set(CMAKE_FIND_ROOT_PATH ${WEIGHTMAP_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(OPENSSL_USE_STATIC_LIBS ON)

# fmt 10 evaluates its own format strings at compile time in a way that newer clangs refuse.
add_compile_definitions(FMT_CONSTEVAL=)

add_link_options(-Wl,--strip-all)
