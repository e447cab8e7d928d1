# Builds the consumer as KIND and runs it on CHECKPOINT.
#
#   cmake -D KIND=static|shared -D FINDS=package|pkgconfig|subdirectory -D SOURCE=<the project>
#         -D BUILD=<a static build of the project> -D WORK=<scratch folder>
#         -D CXX=<compiler> -D GENERATOR=<generator> -D LAUNCHER=<compiler launcher or nothing>
#         -D CHECKPOINT=<file> -D EXPECT=<what it prints> [-D PREFIX=<install tree>] -P run.cmake
#
# The install tree that `package` and `pkgconfig` use is made by FINDS=prepare of a static BUILD; a
# guest (FINDS=subdirectory) builds the library with itself, and installs it, too. scripts/packages
# gives the PREFIX of a package; in /usr nobody tells where the library is.
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

set(configure ${CMAKE_COMMAND} -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${CXX}
    -D CMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -D CMAKE_BUILD_TYPE=Debug
    -D CMAKE_CXX_FLAGS_DEBUG=-O0 -D CMAKE_UNITY_BUILD=ON)
set(prefix ${WORK}/${KIND}/prefix)
if(PREFIX)
  set(prefix ${PREFIX})
endif()

if(FINDS STREQUAL "prepare")
  file(REMOVE_RECURSE ${prefix})
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
  set(files include/weightmap/checkpoint.hpp share/doc/weightmap/LICENSE
      share/doc/weightmap/README.md share/doc/weightmap/CHANGELOG.md
      share/doc/weightmap/docs/serving.md share/doc/weightmap/examples/libtorch/main.cpp)
  if(EXISTS ${prefix}/bin/weightmap)  # the tool may be left out
    list(APPEND files lib/systemd/system/weightmap-hold.service
      lib/systemd/system/weightmap-hold-url.service)
  endif()
  foreach(file IN LISTS files)
    if(NOT EXISTS ${prefix}/${file})
      message(FATAL_ERROR "${file} is not installed")
    endif()
  endforeach()
  return()
endif()

set(consumer ${WORK}/${KIND}/${FINDS})
file(REMOVE_RECURSE ${consumer}/CMakeCache.txt)
if(FINDS STREQUAL "subdirectory")
  set(guest -D WEIGHTMAP_INSTALL=ON)
  if(KIND STREQUAL "shared")
    list(APPEND guest -D BUILD_SHARED_LIBS=ON)
  endif()
elseif(FINDS STREQUAL "pkgconfig" AND NOT prefix STREQUAL "/usr")
  file(GLOB_RECURSE pc ${prefix}/*/weightmap.pc)
  cmake_path(GET pc PARENT_PATH pc_folder)
  set(ENV{PKG_CONFIG_PATH} ${pc_folder})
endif()
run(${configure} -S ${CMAKE_CURRENT_LIST_DIR} -B ${consumer} -D CONSUMER_FINDS=${FINDS}
    -D SOURCE=${SOURCE} -D CMAKE_PREFIX_PATH=${prefix} ${guest})
run(${CMAKE_COMMAND} --build ${consumer})
if(FINDS STREQUAL "subdirectory")
  file(REMOVE_RECURSE ${prefix})
  run(${CMAKE_COMMAND} --install ${consumer} --prefix ${prefix})
endif()

file(GLOB_RECURSE library ${prefix}/*/libweightmap.so)
if(library AND NOT prefix STREQUAL "/usr")
  cmake_path(GET library PARENT_PATH library_folder)
  set(ENV{LD_LIBRARY_PATH} ${library_folder})
endif()
if(EXISTS ${consumer}/remote_consumer)
  run(${consumer}/remote_consumer ${CHECKPOINT})
endif()
run(${consumer}/consumer ${CHECKPOINT})
string(STRIP "${output}" output)
if(NOT output STREQUAL EXPECT)
  message(FATAL_ERROR "printed \"${output}\", expected \"${EXPECT}\"")
endif()
message("${KIND} by ${FINDS}: ${output}")
