# Outsiders use the library in each way that we promise. state_dict.pt has 7 tensors; its records
# are counted by Python's zipfile.

function(weightmap_consumer_test kind finds)
  add_test(NAME installed_consumer.${kind}.${finds}
    COMMAND ${CMAKE_COMMAND} -D KIND=${kind} -D FINDS=${finds} -D SOURCE=${PROJECT_SOURCE_DIR}
      -D BUILD=${PROJECT_BINARY_DIR} -D WORK=${CMAKE_CURRENT_BINARY_DIR}/installed_consumer
      -D CXX=${CMAKE_CXX_COMPILER} -D GENERATOR=${CMAKE_GENERATOR}
      -D LAUNCHER=$CACHE{CMAKE_CXX_COMPILER_LAUNCHER}
      -D CHECKPOINT=${PROJECT_SOURCE_DIR}/tests/data/state_dict.pt
      -D "EXPECT=7 tensors in 13 records"
      -P ${PROJECT_SOURCE_DIR}/tests/installed_consumer/run.cmake)
  set(labels install)
  if(kind STREQUAL "shared")
    list(APPEND labels long)  # it compiles the whole library
  endif()
  set_tests_properties(installed_consumer.${kind}.${finds} PROPERTIES LABELS "${labels}")
  if(finds STREQUAL "prepare" OR finds STREQUAL "subdirectory")
    set_tests_properties(installed_consumer.${kind}.${finds} PROPERTIES FIXTURES_SETUP ${kind}_tree)
  else()
    set_tests_properties(installed_consumer.${kind}.${finds} PROPERTIES
      FIXTURES_REQUIRED ${kind}_tree)
  endif()
endfunction()

# The static library is that of this build. The shared one is a guest's, built with the guest.
weightmap_consumer_test(static prepare)
weightmap_consumer_test(shared subdirectory)
foreach(kind static shared)
  weightmap_consumer_test(${kind} package)
  weightmap_consumer_test(${kind} pkgconfig)
endforeach()

# examples/libtorch is for a weightmap that is installed and for the torch that the comparison uses.
add_test(NAME libtorch_example_test
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/interop/with_torch.py
    ${PROJECT_SOURCE_DIR}/tests/examples/libtorch_test.py ${PROJECT_SOURCE_DIR}
    ${CMAKE_CURRENT_BINARY_DIR}/installed_consumer/static/prefix
    ${CMAKE_CURRENT_BINARY_DIR}/libtorch ${CMAKE_COMMAND} ${CMAKE_GENERATOR}
    ${CMAKE_CXX_COMPILER} "$CACHE{CMAKE_CXX_COMPILER_LAUNCHER}")
set_tests_properties(libtorch_example_test PROPERTIES
  LABELS "install;torch;long" FIXTURES_REQUIRED static_tree SKIP_RETURN_CODE 77)

# Another system gets one sentence.
add_test(NAME other_systems_are_refused
  COMMAND ${CMAKE_COMMAND} -G ${CMAKE_GENERATOR} -S ${PROJECT_SOURCE_DIR}
    -B ${CMAKE_CURRENT_BINARY_DIR}/other_system -D CMAKE_SYSTEM_NAME=FreeBSD
    -D CMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER})
set_tests_properties(other_systems_are_refused PROPERTIES
  LABELS install PASS_REGULAR_EXPRESSION "weightmap needs 64-bit Linux; this is FreeBSD")
