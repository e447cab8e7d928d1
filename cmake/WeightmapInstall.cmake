# Installs the libraries: headers, exported targets, a CMake package and pkg-config files; as a
# top-level project also the manuals and, with the tool, its systemd units. Components: library (the
# shared one), remote_library, development, tool (whose files tools/CMakeLists.txt installs, too),
# manual, license.

include(CMakePackageConfigHelpers)

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)
install(TARGETS weightmap EXPORT weightmapTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET weightmap_remote)
  install(TARGETS weightmap_remote EXPORT weightmapRemoteTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT remote_library
            NAMELINK_COMPONENT development)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/weightmap
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp")

set(weightmap_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weightmap)
install(EXPORT weightmapTargets NAMESPACE weightmap:: DESTINATION ${weightmap_package_dir})
if(TARGET weightmap_remote)  # a file of its own, since only its users need libcurl
  install(EXPORT weightmapRemoteTargets NAMESPACE weightmap::
    DESTINATION ${weightmap_package_dir})
endif()

# A shared library brings its own dependencies. A static one leaves them to the final link, even if
# a program calls pkg-config without --static, since there is no other library.
if(BUILD_SHARED_LIBS)
  set(WEIGHTMAP_IS_STATIC OFF)
  set(weightmap_pc_needs "")
  set(weightmap_pc_defines "")
  set(weightmap_remote_pc_needs "")
else()
  set(WEIGHTMAP_IS_STATIC ON)
  set(weightmap_pc_defines " -DWEIGHTMAP_STATIC")
  set(WEIGHTMAP_NEEDS libdeflate libzstd)
  if(TARGET PkgConfig::libblake3)
    list(APPEND WEIGHTMAP_NEEDS libblake3)
  endif()
  list(JOIN WEIGHTMAP_NEEDS " " needs)
  set(weightmap_pc_needs " -pthread -l${CMAKE_DL_LIBS}\nRequires: ${needs}\nLibs.private: -lstdc++")
  set(weightmap_remote_pc_needs ", libcurl")
endif()
configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/weightmapConfig.cmake.in
  ${PROJECT_BINARY_DIR}/weightmapConfig.cmake
  INSTALL_DESTINATION ${weightmap_package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/weightmapConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/weightmapConfig.cmake
  ${PROJECT_BINARY_DIR}/weightmapConfigVersion.cmake
  DESTINATION ${weightmap_package_dir})

# Relative to the .pc file, so that an install tree is relocatable; absolute if the library folder
# is outside the prefix.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(weightmap_pc_prefix "${CMAKE_INSTALL_PREFIX}")
else()
  file(RELATIVE_PATH weightmap_up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(REGEX REPLACE "/$" "" weightmap_up "${weightmap_up}")
  set(weightmap_pc_prefix "\${pcfiledir}/${weightmap_up}")
endif()
foreach(dir LIBDIR INCLUDEDIR)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
    set(weightmap_pc_${dir} "${CMAKE_INSTALL_${dir}}")
  else()
    set(weightmap_pc_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()
set(weightmap_pc_files weightmap)
if(TARGET weightmap_remote)
  list(APPEND weightmap_pc_files weightmap-remote)
endif()
foreach(name IN LISTS weightmap_pc_files)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

if(TARGET weightmap_tool)
  install(TARGETS weightmap_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tool)
endif()
if(PROJECT_IS_TOP_LEVEL)
  # README.md and the pages keep their relative places, so that their links work.
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT license)
  install(FILES README.md CHANGELOG.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR}
    COMPONENT manual)
  install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT manual
    PATTERN __pycache__ EXCLUDE)
  if(TARGET weightmap_tool)  # systemd looks there whatever CMAKE_INSTALL_LIBDIR is
    install(FILES examples/systemd/weightmap-hold.service
        examples/systemd/weightmap-hold-url.service
      DESTINATION lib/systemd/system COMPONENT tool)
  endif()
endif()
