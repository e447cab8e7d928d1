# Makes one OBJECT library per module, so that a module's tests link that module and the layers
# above it in the table (docs/architecture.md), and a wrong dependency does not link.

# A unity build compiles each module as one unit, since smaller units parse the same headers and
# instantiate the same templates repeatedly.
if(NOT DEFINED CMAKE_UNITY_BUILD_BATCH_SIZE)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 40)
endif()

function(weightmap_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # gcc 12 mistakes "text" + std::string for overlapping copies (gcc bug 105651).
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  # With sanitizers, gcc reports overflows that cannot happen.
  if(WEIGHTMAP_WERROR AND NOT (WEIGHTMAP_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"))
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(WEIGHTMAP_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${WEIGHTMAP_SANITIZE}
                                             -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${WEIGHTMAP_SANITIZE})
  else()
    # What weightmap_link_closely() links leaves out each function that nothing in it calls.
    target_compile_options(${target} PRIVATE -ffunction-sections -fdata-sections)
  endif()
  if(WEIGHTMAP_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # ThreadSanitizer does not know the fence in mmap/guard.cpp, nor the reads that it is for.
    target_compile_options(${target} PRIVATE -Wno-tsan)
  endif()
  if(NOT BUILD_SHARED_LIBS)
    target_compile_definitions(${target} PRIVATE WEIGHTMAP_STATIC)
  endif()
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
endfunction()

# Adds libFuzzer's coverage instrumentation in a build with targets. Other programs can link it,
# too.
function(weightmap_guide_fuzzer target)
  if(WEIGHTMAP_BUILD_FUZZERS)
    target_compile_options(${target} PRIVATE
      -fsanitize=fuzzer-no-link -fno-sanitize-coverage=trace-cmp)
  endif()
endfunction()

# For many small sources that include the same large headers: a unity build takes a third of the
# time. Not for Debug builds, where single sources are recompiled often.
function(weightmap_compile_jointly target)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON)
  endif()
endfunction()

# What reads bytes, where the tests under a sanitizer spend their time. The other modules are
# compiled unoptimised there, in half the time.
set(WEIGHTMAP_READERS base bytes zip value pickle json catalog format torch safetensors gguf npz dcp)

# The options of a module.
function(weightmap_module_options target optimised)
  weightmap_compile_options(${target})
  if(NOT optimised)
    target_compile_options(${target} PRIVATE -O0)
  endif()
  weightmap_guide_fuzzer(${target})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR})
endfunction()

# What most modules include is parsed once for all that have the same options.
function(weightmap_precompile target optimised)
  set(owner weightmap_headers_${optimised})
  if(NOT TARGET ${owner})
    file(WRITE ${CMAKE_BINARY_DIR}/${owner}.cpp "")
    add_library(${owner} OBJECT ${CMAKE_BINARY_DIR}/${owner}.cpp)
    weightmap_module_options(${owner} ${optimised})
    target_link_libraries(${owner} PRIVATE tl::expected)
    target_precompile_headers(${owner} PRIVATE
      <algorithm> <array> <filesystem> <functional> <map> <memory_resource> <mutex> <optional> <span>
      <string> <unordered_map> <variant> <vector> <weightmap/checkpoint.hpp>)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()

# weightmap_module(<name> SOURCES <sources> USES <modules, imported targets>)
function(weightmap_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES" ${ARGN})
  set(target weightmap_${name})
  set(optimised YES)
  if(WEIGHTMAP_SANITIZE AND NOT name IN_LIST WEIGHTMAP_READERS)
    set(optimised NO)
  endif()
  add_library(${target} OBJECT ${ARG_SOURCES})
  weightmap_module_options(${target} ${optimised})
  weightmap_compile_jointly(${target})
  if(WEIGHTMAP_SANITIZE)  # elsewhere a header that is not included would go unnoticed
    weightmap_precompile(${target} ${optimised})
  endif()
  target_link_libraries(${target} PUBLIC ${ARG_USES})
endfunction()

# For programs that are measured in, or loaded into, a fresh process, and link weightmap_whole:
# symbols are bound at start, and the C++ runtime is linked statically.
include(CheckLinkerFlag)
check_linker_flag(CXX -static-libstdc++ WEIGHTMAP_LINKS_STATIC_RUNTIME)
function(weightmap_link_closely target)
  if(WEIGHTMAP_SANITIZE)
    return()
  endif()
  target_link_options(${target} PRIVATE -Wl,-z,now -Wl,--gc-sections)
  if(WEIGHTMAP_LINKS_STATIC_RUNTIME)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
endfunction()

# For programs that run once or wait: optimising them takes longer than it saves. Omits the
# sanitizer's checks of each access through a pointer, which take a third of the compile time;
# AddressSanitizer detects the same accesses. The library is built with all of them.
function(weightmap_compile_quickly target)
  target_compile_options(${target} PRIVATE -O0)
  if(WEIGHTMAP_SANITIZE MATCHES "undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=null,alignment,object-size,vptr)
  endif()
endfunction()
