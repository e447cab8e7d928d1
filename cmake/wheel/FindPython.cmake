# In place of CMake's own when wheels are built: describes a Python of which only the headers are
# there, for another machine. WEIGHTMAP_PYTHON is its version, with a "t" if it has no GIL, and
# WEIGHTMAP_PYTHON_HEADERS the folder of its Python.h.

string(REPLACE "." "" digits ${WEIGHTMAP_PYTHON})
set(Python_SOABI cpython-${digits}-${CMAKE_LIBRARY_ARCHITECTURE})
set(Python_SOSABI abi3)
string(REPLACE "t" "" Python_VERSION ${WEIGHTMAP_PYTHON})
set(Python_INTERPRETER_ID Python)
set(Python_INCLUDE_DIRS ${WEIGHTMAP_PYTHON_HEADERS})
set(Python_FOUND TRUE)
if(NOT TARGET Python::Module)
  add_executable(Python::Interpreter IMPORTED GLOBAL)
  foreach(kind Module SABIModule)
    add_library(Python::${kind} INTERFACE IMPORTED GLOBAL)
    target_include_directories(Python::${kind} SYSTEM INTERFACE ${Python_INCLUDE_DIRS})
  endforeach()
endif()
