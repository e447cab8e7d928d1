# Debian's packages, by `cpack -G DEB` in a build of the preset deb. scripts/packages builds, checks
# and tests them; it has the extension module for Debian's Python built into
# WEIGHTMAP_PYTHON_TREE first.
set(WEIGHTMAP_PYTHON_TREE "" CACHE PATH "What python3-weightmap has in dist-packages")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "weightmap maintainers <maintainers@weightmap.example>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Where the library is that the one for remote files needs.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/runtime)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_STRIP_FILES ON)
set(weightmap_debian_version ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})
set(weightmap_debian_files ${PROJECT_SOURCE_DIR}/packaging/deb)

configure_file(${weightmap_debian_files}/changelog.in changelog.Debian @ONLY)
execute_process(COMMAND gzip -9nc ${PROJECT_BINARY_DIR}/changelog.Debian
  OUTPUT_FILE ${PROJECT_BINARY_DIR}/changelog.Debian.gz COMMAND_ERROR_IS_FATAL ANY)

# weightmap_debian_package(<group> <package> SECTION <section> DEPENDS <packages> SUMMARY <line>
#                          COMPONENTS <of the installation> OVERRIDES <lines for lintian>)
function(weightmap_debian_package group package)
  cmake_parse_arguments(ARG "" "SECTION;SUMMARY;DEPENDS;SUGGESTS" "COMPONENTS;OVERRIDES" ${ARGN})
  string(TOUPPER ${group} upper)
  foreach(component IN LISTS ARG_COMPONENTS)
    string(TOUPPER ${component} upper_component)
    set(CPACK_COMPONENT_${upper_component}_GROUP ${group} PARENT_SCOPE)
  endforeach()
  list(APPEND CPACK_COMPONENTS_ALL ${ARG_COMPONENTS})
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} PARENT_SCOPE)
  set(prefix CPACK_DEBIAN_${upper}_PACKAGE)
  set(${prefix}_NAME ${package} PARENT_SCOPE)
  foreach(field IN ITEMS SECTION DEPENDS SUGGESTS)
    set(${prefix}_${field} "${ARG_${field}}" PARENT_SCOPE)
  endforeach()
  file(READ ${weightmap_debian_files}/description description)
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${ARG_SUMMARY}\n${description}" PARENT_SCOPE)

  list(GET ARG_COMPONENTS 0 component)
  install(FILES ${weightmap_debian_files}/copyright ${PROJECT_BINARY_DIR}/changelog.Debian.gz
    DESTINATION share/doc/${package} COMPONENT ${component})
  list(PREPEND ARG_OVERRIDES
    "# These packages are not for Debian's archive, whose bugs they cannot close."
    "initial-upload-closes-no-bugs *")
  list(JOIN ARG_OVERRIDES "\n" overrides)
  file(WRITE ${PROJECT_BINARY_DIR}/overrides/${package} "${overrides}\n")
  install(FILES ${PROJECT_BINARY_DIR}/overrides/${package} DESTINATION share/lintian/overrides
    COMPONENT ${component})
endfunction()

# A library's package has its soname in its name.
set(soname ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
weightmap_debian_package(library libweightmap${soname} SECTION libs
  SUMMARY "map model weights instead of loading them (shared library)" COMPONENTS library)
weightmap_debian_package(remote_library libweightmap-remote${soname} SECTION libs
  SUMMARY "map model weights instead of loading them (remote files)" COMPONENTS remote_library
  DEPENDS "libweightmap${soname} (= ${weightmap_debian_version})")
string(CONCAT weightmap_development_depends "libweightmap${soname} (= ${weightmap_debian_version}), "
  "libweightmap-remote${soname} (= ${weightmap_debian_version}), libexpected-dev")
weightmap_debian_package(development libweightmap-dev SECTION libdevel
  SUMMARY "map model weights instead of loading them (headers)" COMPONENTS development
  DEPENDS "${weightmap_development_depends}")
weightmap_debian_package(tool weightmap SECTION science
  SUMMARY "map model weights instead of loading them (tool and manual)" COMPONENTS tool manual
  SUGGESTS "criu, python3-weightmap"
  OVERRIDES "# README.md and the pages of the manual link to it."
            "wrong-name-for-upstream-changelog *")
install(CODE "execute_process(COMMAND gzip -9nf
  \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1/weightmap.1\"
  COMMAND_ERROR_IS_FATAL ANY)" COMPONENT tool)
if(WEIGHTMAP_PYTHON_TREE)
  file(READ ${WEIGHTMAP_PYTHON_TREE}/depends weightmap_python_depends)
  weightmap_debian_package(python python3-weightmap SECTION python
    SUMMARY "map model weights instead of loading them (Python 3)" COMPONENTS python3
    DEPENDS "weightmap (= ${weightmap_debian_version}), ${weightmap_python_depends}"
    SUGGESTS "python3-numpy, python3-torch")
  install(DIRECTORY ${WEIGHTMAP_PYTHON_TREE}/dist-packages DESTINATION lib/python3
    COMPONENT python3)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA
    ${weightmap_debian_files}/postinst ${weightmap_debian_files}/prerm)
endif()
include(CPack)
