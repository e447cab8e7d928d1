# Finds BLAKE3's own C library, by which tensors of a delta may be proven: libblake3-dev (Debian 13),
# else its C sources in librust-blake3-dev (Debian 12, Ubuntu 24.04), of which it makes the target
# weightmap_blake3. Without either the library refuses such sums.

pkg_check_modules(libblake3 QUIET IMPORTED_TARGET libblake3)
if(libblake3_FOUND)
  return()
endif()
# ${WEIGHTMAP_SYSROOT} is that of scripts/wheel.
file(GLOB folders LIST_DIRECTORIES TRUE
  "${WEIGHTMAP_SYSROOT}/usr/share/cargo/registry/blake3-[0-9]*/c")
if(NOT folders)
  message(STATUS "Without BLAKE3: neither libblake3-dev nor librust-blake3-dev is installed")
  return()
endif()
list(GET folders 0 folder)
set(sources ${folder}/blake3.c ${folder}/blake3_dispatch.c ${folder}/blake3_portable.c)
enable_language(C)
# Which of them runs is decided by the processor that is there (blake3_dispatch.c).
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(options_of_sse2 -msse2)
  set(options_of_sse41 -msse4.1)
  set(options_of_avx2 -mavx2)
  set(options_of_avx512 -mavx512f -mavx512vl)
  foreach(instructions IN ITEMS sse2 sse41 avx2 avx512)
    set(source ${folder}/blake3_${instructions}.c)
    set_source_files_properties(${source} PROPERTIES
      COMPILE_OPTIONS "${options_of_${instructions}}")
    list(APPEND sources ${source})
  endforeach()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64")
  list(APPEND sources ${folder}/blake3_neon.c)
endif()
add_library(weightmap_blake3 OBJECT ${sources})
target_include_directories(weightmap_blake3 SYSTEM PUBLIC ${folder})
target_compile_options(weightmap_blake3 PRIVATE -O2)
set_target_properties(weightmap_blake3 PROPERTIES
  POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden UNITY_BUILD OFF)
