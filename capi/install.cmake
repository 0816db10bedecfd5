# What `cmake --install` and `cpack` give: the program, liblinnet.so, liblinnet.a with everything in it, headers, a CMake
# package, a pkg-config file, licences. Included last by the root CMakeLists.txt, when every target is known.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# linnet_static_closure(VAR TARGET): the static libraries that TARGET links, its own first, dependencies included.
function(linnet_static_closure var target)
  set(open ${target})
  set(seen "")
  set(found "")
  while(open)
    list(POP_FRONT open current)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" current "${current}")
    if(NOT TARGET "${current}" OR "${current}" IN_LIST seen)
      continue()
    endif()
    list(APPEND seen ${current})
    get_target_property(aliased ${current} ALIASED_TARGET)
    if(aliased)
      list(APPEND open ${aliased})
      continue()
    endif()
    get_target_property(type ${current} TYPE)
    if(type STREQUAL STATIC_LIBRARY)
      list(APPEND found ${current})
    endif()
    get_target_property(links ${current} INTERFACE_LINK_LIBRARIES)
    if(links)
      list(APPEND open ${links})
    endif()
  endwhile()
  set(${var} ${found} PARENT_SCOPE)
endfunction()

# linnet_public_headers(VAR): headers whose first line says so, and what they include.
function(linnet_public_headers var)
  foreach(folder core ops formats platforms)
    file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/${folder}/*.h)
    foreach(header IN LISTS headers)
      file(STRINGS ${PROJECT_SOURCE_DIR}/${header} first LIMIT_COUNT 1)
      if(first MATCHES "^// Public header")
        list(APPEND open ${header})
      endif()
    endforeach()
  endforeach()
  set(found "")
  while(open)
    list(POP_FRONT open header)
    if(header IN_LIST found OR NOT EXISTS ${PROJECT_SOURCE_DIR}/${header})
      continue()
    endif()
    list(APPEND found ${header})
    file(STRINGS ${PROJECT_SOURCE_DIR}/${header} includes REGEX "^#include \"")
    list(TRANSFORM includes REPLACE "^#include \"(.*)\".*" "\\1")
    list(APPEND open ${includes})
  endwhile()
  set(${var} ${found} PARENT_SCOPE)
endfunction()

# One archive: the dependencies are pinned builds that no consumer has under another name.
linnet_static_closure(linnet_archives linnet_capi)
set(linnet_archive ${PROJECT_BINARY_DIR}/lib/liblinnet.a)
list(TRANSFORM linnet_archives REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE linnet_archive_files)
list(JOIN linnet_archive_files "\n" linnet_archive_files)
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/generated/archives.txt CONTENT "${linnet_archive_files}\n")
add_custom_command(
  OUTPUT ${linnet_archive}
  COMMAND ${CMAKE_COMMAND} -DAR=${CMAKE_AR} -DOUTPUT=${linnet_archive} -DLIST=${PROJECT_BINARY_DIR}/generated/archives.txt
          -P ${CMAKE_CURRENT_LIST_DIR}/merge_archives.cmake
  DEPENDS ${linnet_archives} ${CMAKE_CURRENT_LIST_DIR}/merge_archives.cmake
          ${PROJECT_BINARY_DIR}/generated/archives.txt
  COMMENT "liblinnet.a"
  VERBATIM)
add_custom_target(linnet_archive ALL DEPENDS ${linnet_archive})

install(TARGETS linnet_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS linnet_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${linnet_archive} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_SOURCE_DIR}/capi/linnet.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
linnet_public_headers(linnet_headers)
foreach(header IN LISTS linnet_headers)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/linnet/${folder})
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/THIRD_PARTY_NOTICES ${PROJECT_SOURCE_DIR}/README.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(linnet_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/linnet)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/linnet-config.cmake.in
  ${PROJECT_BINARY_DIR}/generated/linnet-config.cmake INSTALL_DESTINATION ${linnet_package_dir}
  PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
# Below 1.0 a minor version may change the C++ headers.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/linnet-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/linnet-config.cmake
              ${PROJECT_BINARY_DIR}/generated/linnet-config-version.cmake DESTINATION ${linnet_package_dir})

file(RELATIVE_PATH linnet_pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/linnet.pc.in ${PROJECT_BINARY_DIR}/generated/linnet.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/generated/linnet.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The package, `cpack -G DEB`: named and built for the toolchain's architecture.
set(deb_x86_64 amd64)
set(deb_aarch64 arm64)
set(deb_armv7 armhf)
string(REGEX REPLACE "-.*" "" linnet_cpu ${LINNET_TARGET})
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME linnet)
set(CPACK_PACKAGE_CONTACT "The Linnet authors <linnet@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Inference of language models on the CPU")
set(CPACK_PACKAGE_DESCRIPTION "The program linnet, which converts, plans, runs and measures decoder-only language models on
the CPU, and the library behind it, with its headers for C and C++.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE ${deb_${linnet_cpu}})
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# For liblinnet.so. The versions with which it is built: what it needs of them at least is not to be had for another
# architecture's library, whose packages are not installed here.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -x c++ -E -dM -include cstddef /dev/null OUTPUT_VARIABLE linnet_macros
                RESULT_VARIABLE linnet_macros_result)
string(REGEX MATCH "#define __GLIBC_MINOR__ ([0-9]+)" linnet_match "${linnet_macros}")
set(linnet_glibc 2.${CMAKE_MATCH_1})
string(REGEX MATCH "#define _GLIBCXX_RELEASE ([0-9]+)" linnet_match "${linnet_macros}")
set(linnet_gcc ${CMAKE_MATCH_1})
if(linnet_macros_result EQUAL 0 AND linnet_gcc)
  set(CPACK_DEBIAN_PACKAGE_DEPENDS
    "libc6 (>= ${linnet_glibc}), libgcc-s1 (>= ${linnet_gcc}), libstdc++6 (>= ${linnet_gcc})")
endif()
# The loader's cache learns of liblinnet.so.
file(WRITE ${PROJECT_BINARY_DIR}/generated/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/generated/triggers)
include(CPack)
