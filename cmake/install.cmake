# What `cmake --install` leaves: the program, the library as one archive with its public headers, a CMake package, a
# pkg-config file, and the data that the program looks for in share/espalier.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Everything that an application links, in one archive: libespalier.a.
set(parts engine session trace decode text model format cache device tree base)
set(archive ${CMAKE_BINARY_DIR}/lib/libespalier.a)
set(script "create ${archive}\n")
set(part_targets)
foreach(part ${parts})
  string(APPEND script "addlib $<TARGET_FILE:espalier_${part}>\n")
  list(APPEND part_targets espalier_${part})
endforeach()
if(ESPALIER_HAS_CUDA)  # so that an application need not know
  string(APPEND script "addlib $<TARGET_FILE:CUDA::cudart_static>\n")
endif()
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/lib/libespalier.mri CONTENT "${script}save\nend\n")
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
add_custom_command(OUTPUT ${archive}
  COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
  COMMAND sh -c "${CMAKE_AR} -M < ${CMAKE_BINARY_DIR}/lib/libespalier.mri"
  DEPENDS ${part_targets} VERBATIM)
add_custom_target(espalier_archive ALL DEPENDS ${archive})

# Both files find the rest from where they lie, so that an installed tree can be moved.
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/espalier)
file(RELATIVE_PATH PACKAGE_TO_PREFIX /${package_folder} /)
file(RELATIVE_PATH PKGCONFIG_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/espalier-config.cmake.in ${CMAKE_BINARY_DIR}/espalier-config.cmake @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/cmake/espalier.pc.in ${CMAKE_BINARY_DIR}/espalier.pc @ONLY)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/espalier-config-version.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS espalier RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# What `espalier selftest` runs, where it was built (tests/CMakeLists.txt, the target selftest_programs).
if(ESPALIER_TESTS)
  foreach(program ${ESPALIER_SELFTEST_PROGRAMS})
    install(PROGRAMS ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${program}
            DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/espalier OPTIONAL)
  endforeach()
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/tests/data/tiny ${PROJECT_SOURCE_DIR}/tests/data/heads
          DESTINATION ${CMAKE_INSTALL_DATADIR}/espalier/tests/data)
  install(FILES ${PROJECT_SOURCE_DIR}/tests/data/digests.json
          DESTINATION ${CMAKE_INSTALL_DATADIR}/espalier/tests/data)
endif()
install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/espalier DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/espalier-config.cmake ${CMAKE_BINARY_DIR}/espalier-config-version.cmake
        DESTINATION ${package_folder})
install(FILES ${CMAKE_BINARY_DIR}/espalier.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/heads DESTINATION ${CMAKE_INSTALL_DATADIR}/espalier)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/data/trees ${PROJECT_SOURCE_DIR}/data/suites ${PROJECT_SOURCE_DIR}/data/eval
        DESTINATION ${CMAKE_INSTALL_DATADIR}/espalier/data)
