# Outsiders use the library in each way that we promise. state_dict.pt has 7 tensors; its records
# are counted by Python's zipfile.

function(weightmap_consumer_test kind finds)
  add_test(NAME installed_consumer.${kind}.${finds}
    COMMAND ${CMAKE_COMMAND} -D KIND=${kind} -D FINDS=${finds} -D SOURCE=${PROJECT_SOURCE_DIR}
      -D BUILD=${PROJECT_BINARY_DIR} -D WORK=${CMAKE_CURRENT_BINARY_DIR}/installed_consumer
      -D CXX=${CMAKE_CXX_COMPILER} -D GENERATOR=${CMAKE_GENERATOR}
      -D LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}
      -D CHECKPOINT=${PROJECT_SOURCE_DIR}/tests/data/state_dict.pt
      -D "EXPECT=7 tensors in 13 records"
      -P ${PROJECT_SOURCE_DIR}/tests/installed_consumer/run.cmake)
  set_tests_properties(installed_consumer.${kind}.${finds} PROPERTIES LABELS install)
  if(finds STREQUAL "prepare")
    set_tests_properties(installed_consumer.${kind}.${finds} PROPERTIES FIXTURES_SETUP ${kind}_tree)
  elseif(NOT finds STREQUAL "subdirectory")
    set_tests_properties(installed_consumer.${kind}.${finds} PROPERTIES
      FIXTURES_REQUIRED ${kind}_tree)
  endif()
endfunction()

foreach(kind static shared)
  foreach(finds prepare package pkgconfig)
    weightmap_consumer_test(${kind} ${finds})
  endforeach()
endforeach()
weightmap_consumer_test(static subdirectory)
