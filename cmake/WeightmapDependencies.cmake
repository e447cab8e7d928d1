# Finds the dependencies, and reports all missing ones at once by their Debian and Ubuntu names.

if(POLICY CMP0167)
  cmake_policy(SET CMP0167 NEW)  # Boost brings its own package file
endif()
set(weightmap_missing "")

# weightmap_find(<CMake package> <its Debian package> [more for find_package])
macro(weightmap_find name debian)
  find_package(${name} ${ARGN} QUIET)
  if(NOT ${name}_FOUND)
    list(APPEND weightmap_missing ${debian})
  endif()
endmacro()

# weightmap_find_pkg(<prefix> <pkg-config's name> <its Debian package>)
macro(weightmap_find_pkg prefix name debian)
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(${prefix} QUIET IMPORTED_TARGET ${name})
  endif()
  if(NOT ${prefix}_FOUND)
    list(APPEND weightmap_missing ${debian})
  endif()
endmacro()

find_package(Threads REQUIRED)
find_package(PkgConfig QUIET)
if(NOT PKG_CONFIG_FOUND)
  list(APPEND weightmap_missing pkg-config)
endif()
weightmap_find(Boost libboost-dev 1.74)
weightmap_find(tl-expected libexpected-dev)
weightmap_find_pkg(xxhash libxxhash libxxhash-dev)
weightmap_find_pkg(libdeflate libdeflate libdeflate-dev)
weightmap_find_pkg(libzstd libzstd libzstd-dev)
weightmap_find(nlohmann_json nlohmann-json3-dev GLOBAL)
if(WEIGHTMAP_BUILD_TOOLS)
  weightmap_find(CLI11 libcli11-dev GLOBAL)
  weightmap_find(fmt libfmt-dev GLOBAL)
  weightmap_find(spdlog libspdlog-dev GLOBAL)
endif()
# 7.81 is Ubuntu 22.04's.
set(WEIGHTMAP_BUILDS_REMOTE OFF)
if(WEIGHTMAP_BUILD_REMOTE STREQUAL "AUTO")
  find_package(CURL 7.81 QUIET GLOBAL)
  set(WEIGHTMAP_BUILDS_REMOTE ${CURL_FOUND})
  if(NOT CURL_FOUND)
    message(STATUS "Without libweightmap_remote: libcurl4-openssl-dev is not installed")
  endif()
elseif(WEIGHTMAP_BUILD_REMOTE)
  weightmap_find(CURL libcurl4-openssl-dev 7.81 GLOBAL)
  set(WEIGHTMAP_BUILDS_REMOTE ON)
endif()

if(weightmap_missing)
  list(REMOVE_DUPLICATES weightmap_missing)
  list(JOIN weightmap_missing " " weightmap_missing)
  set(weightmap_without_tool "")
  if(WEIGHTMAP_BUILD_TOOLS)
    set(weightmap_without_tool
        "\nCLI11, fmt and spdlog are for the command line tool alone, which "
        "WEIGHTMAP_BUILD_TOOLS=OFF leaves out.")
    list(JOIN weightmap_without_tool "" weightmap_without_tool)
  endif()
  message(FATAL_ERROR "weightmap cannot be built: these packages are missing (docs/dependencies.md "
                      "says what each is for):\n  apt install ${weightmap_missing}"
                      "${weightmap_without_tool}")
endif()

if(WEIGHTMAP_BLAKE3)
  include(WeightmapBlake3)
endif()
if(WEIGHTMAP_SELF_CONTAINED)
  foreach(library IN ITEMS libdeflate libzstd)
    find_library(WEIGHTMAP_${library}_ARCHIVE ${library}.a HINTS ${${library}_LIBRARY_DIRS} REQUIRED)
    set_target_properties(PkgConfig::${library} PROPERTIES
      INTERFACE_LINK_LIBRARIES ${WEIGHTMAP_${library}_ARCHIVE})
  endforeach()
endif()
if(WEIGHTMAP_BUILD_TOOLS)
  # It would link the shared fmt, whose headers the tool compiles in. The same in every build, so that
  # a wheel can use the objects of another one.
  set_target_properties(spdlog::spdlog_header_only PROPERTIES
    INTERFACE_LINK_LIBRARIES "fmt::fmt-header-only;Threads::Threads")
endif()
