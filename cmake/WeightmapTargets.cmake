# One OBJECT library per module, so that a module's tests link that module and what stands above it
# in the layer table (docs/architecture.md), and a wrong edge does not link.

# Where sources are compiled as one, all of a module are: with ever more units of a few files the same
# headers are parsed, and the same templates instantiated, ever more often.
if(NOT DEFINED CMAKE_UNITY_BUILD_BATCH_SIZE)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 40)
endif()

function(weightmap_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # gcc 12 takes "text" + std::string for overlapping copies (gcc bug 105651).
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  # Sanitizers' instrumentation makes gcc see overflows that are not there.
  if(WEIGHTMAP_WERROR AND NOT (WEIGHTMAP_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"))
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(WEIGHTMAP_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${WEIGHTMAP_SANITIZE}
                                             -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${WEIGHTMAP_SANITIZE})
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

# What tells libFuzzer which code an input reached, in a build that has its targets. Programs that are
# no targets can be linked with it.
function(weightmap_guide_fuzzer target)
  if(WEIGHTMAP_BUILD_FUZZERS)
    target_compile_options(${target} PRIVATE
      -fsanitize=fuzzer-no-link -fno-sanitize-coverage=trace-cmp)
  endif()
endfunction()

# For many small sources that include the same large headers: they are compiled as one, in a third
# of the time. A debug build compiles them one by one, since it is for editing one again and again.
function(weightmap_compile_jointly target)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON)
  endif()
endfunction()

# weightmap_module(<name> SOURCES <sources> USES <modules, imported targets>)
function(weightmap_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES" ${ARGN})
  set(target weightmap_${name})
  add_library(${target} OBJECT ${ARG_SOURCES})
  weightmap_compile_options(${target})
  weightmap_compile_jointly(${target})
  weightmap_guide_fuzzer(${target})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PUBLIC ${ARG_USES})
endfunction()

# For what is measured in, or loaded into, a fresh process: its symbols are bound before it runs, and
# it has the C++ runtime in itself, which with the shared library would be there twice.
include(CheckLinkerFlag)
check_linker_flag(CXX -static-libstdc++ WEIGHTMAP_LINKS_STATIC_RUNTIME)
function(weightmap_link_closely target)
  if(WEIGHTMAP_SANITIZE OR BUILD_SHARED_LIBS)
    return()
  endif()
  target_link_options(${target} PRIVATE -Wl,-z,now -Wl,--gc-sections -Wl,--exclude-libs,ALL)
  if(WEIGHTMAP_LINKS_STATIC_RUNTIME)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
endfunction()

# For what runs once or waits: optimising it takes longer than it saves. Of the sanitizer's checks it
# leaves out those of each access through a pointer, which take a third of the time to compile;
# AddressSanitizer, where it is on, sees the same accesses. The library is built with all of them.
function(weightmap_compile_quickly target)
  target_compile_options(${target} PRIVATE -O0)
  if(WEIGHTMAP_SANITIZE MATCHES "undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=null,alignment,object-size,vptr)
  endif()
endfunction()
