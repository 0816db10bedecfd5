# Makes the dependencies of deps.lock available as targets deps::NAME. Included once by the root CMakeLists.txt, after
# project(). Reads LINNET_TARGET (set by a toolchain file; default: this machine) and LINNET_SANITIZE.
#
#   deps::xnnpack deps::pthreadpool deps::cpuinfo deps::hwy deps::flatbuffers deps::pcre2 deps::utf8proc   static libraries
#   deps::json deps::cli11 deps::doctest deps::fp16                                                      headers only
#   deps::xnnpack_internal   XNNPACK's private headers, to name the kernels that it chose
#   deps::versions           the generated linnet_versions.h
#   LINNET_FLATC             the FlatBuffers compiler, for this machine
#   LINNET_DEPS_PREFIX       the folder that all of it lies in

set(LINNET_DEPS_DIR ${CMAKE_CURRENT_LIST_DIR})
option(LINNET_DEPS_BUILD "Build missing dependencies while configuring" ON)

if(NOT DEFINED LINNET_TARGET)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
    set(LINNET_TARGET x86_64-linux-gnu)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    set(LINNET_TARGET aarch64-linux-gnu)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^armv[78]")
    set(LINNET_TARGET armv7-linux-gnueabihf)
  else()
    message(FATAL_ERROR "processor ${CMAKE_SYSTEM_PROCESSOR}: expected x86_64, aarch64 or armv7; "
      "or set LINNET_TARGET to a toolchain file of ${LINNET_DEPS_DIR}")
  endif()
endif()

# Sets VAR to the folder with the dependencies of a target (or `tools`), after building them if they are missing.
function(linnet_deps_prefix var target)
  set(command ${LINNET_DEPS_DIR}/build_deps.sh --target ${target})
  if(CMAKE_CROSSCOMPILING) # project() left the cross compiler's name in these, and the tools run on this machine
    list(PREPEND command ${CMAKE_COMMAND} -E env --unset=CC --unset=CXX)
  endif()
  execute_process(COMMAND ${command} --print OUTPUT_VARIABLE prefix OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "dependencies of ${target}: see the error above")
  endif()
  if(NOT IS_DIRECTORY ${prefix})
    if(NOT LINNET_DEPS_BUILD)
      message(FATAL_ERROR "dependencies of ${target}: expected ${prefix}, found none; run ${LINNET_DEPS_DIR}/build_deps.sh --target ${target}")
    endif()
    message(STATUS "Building the dependencies of ${target} once, into ${prefix}")
    execute_process(COMMAND ${command} OUTPUT_QUIET RESULT_VARIABLE status)
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "dependencies of ${target}: see the error above")
    endif()
  endif()
  set(${var} ${prefix} PARENT_SCOPE)
endfunction()

linnet_deps_prefix(LINNET_DEPS_PREFIX ${LINNET_TARGET})
linnet_deps_prefix(LINNET_TOOLS_PREFIX tools)
set(LINNET_FLATC ${LINNET_TOOLS_PREFIX}/bin/flatc)
message(STATUS "Dependencies of ${LINNET_TARGET}: ${LINNET_DEPS_PREFIX}")

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# linnet_deps_headers(NAME [INCLUDE_DIR])
function(linnet_deps_headers name)
  set(dir ${LINNET_DEPS_PREFIX}/include)
  if(ARGC GREATER 1)
    set(dir ${LINNET_DEPS_PREFIX}/${ARGV1})
  endif()
  add_library(deps::${name} INTERFACE IMPORTED GLOBAL)
  # Include folders of imported targets are SYSTEM ones, so that warnings in them stay silent.
  target_include_directories(deps::${name} INTERFACE ${dir})
endfunction()

# linnet_deps_library(NAME FILE LINKS...)
function(linnet_deps_library name file)
  add_library(deps::${name} STATIC IMPORTED GLOBAL)
  set_target_properties(deps::${name} PROPERTIES IMPORTED_LOCATION ${LINNET_DEPS_PREFIX}/lib/${file})
  target_include_directories(deps::${name} INTERFACE ${LINNET_DEPS_PREFIX}/include)
  target_link_libraries(deps::${name} INTERFACE ${ARGN})
endfunction()

set(pthreadpool_file libpthreadpool.a)
if("${LINNET_SANITIZE}" MATCHES "thread" AND EXISTS ${LINNET_DEPS_PREFIX}/lib/tsan/libpthreadpool.a)
  set(pthreadpool_file tsan/libpthreadpool.a) # so that ThreadSanitizer sees the pool's synchronization
endif()
linnet_deps_library(pthreadpool ${pthreadpool_file} Threads::Threads)
target_compile_definitions(deps::pthreadpool INTERFACE PTHREADPOOL_NO_DEPRECATED_API=1)
linnet_deps_library(cpuinfo libcpuinfo.a Threads::Threads)
if(ANDROID)
  target_link_libraries(deps::cpuinfo INTERFACE log) # cpuinfo and XNNPACK report to the system's log
endif()
linnet_deps_library(xnnpack_kernels libmicrokernels-prod.a m)
linnet_deps_library(xnnpack libXNNPACK.a deps::xnnpack_kernels deps::pthreadpool deps::cpuinfo m Threads::Threads)
linnet_deps_library(hwy libhwy.a)
target_compile_definitions(deps::hwy INTERFACE HWY_STATIC_DEFINE=1)
linnet_deps_library(flatbuffers libflatbuffers.a)
linnet_deps_library(pcre2 libpcre2-8.a)
target_compile_definitions(deps::pcre2 INTERFACE PCRE2_STATIC=1 PCRE2_CODE_UNIT_WIDTH=8)
linnet_deps_library(utf8proc libutf8proc.a)
target_compile_definitions(deps::utf8proc INTERFACE UTF8PROC_STATIC=1)

linnet_deps_headers(xnnpack_internal include-internal)
linnet_deps_headers(fp16)
linnet_deps_headers(json)
linnet_deps_headers(cli11)
linnet_deps_headers(doctest)

# linnet_versions.h: the names and versions of the lock, for `linnet --version`.
function(linnet_deps_versions)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    ${LINNET_DEPS_DIR}/deps.lock ${LINNET_DEPS_DIR}/build_deps.sh)
  file(STRINGS ${LINNET_DEPS_DIR}/deps.lock lines REGEX "^[a-z]")
  set(LINNET_VERSION_ENTRIES "")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "[ \t]+" ";" fields "${line}")
    list(GET fields 0 name)
    list(GET fields 1 version)
    list(GET fields 7 licence)
    string(APPEND LINNET_VERSION_ENTRIES "    {\"${name}\", \"${version}\", \"${licence}\"},\n")
  endforeach()
  configure_file(${LINNET_DEPS_DIR}/linnet_versions.h.in ${PROJECT_BINARY_DIR}/generated/deps/linnet_versions.h @ONLY)
  add_library(deps::versions INTERFACE IMPORTED GLOBAL)
  target_include_directories(deps::versions INTERFACE ${PROJECT_BINARY_DIR}/generated/deps)
endfunction()
linnet_deps_versions()
