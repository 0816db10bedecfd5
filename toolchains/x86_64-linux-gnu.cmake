# x86-64 Linux, glibc. Baseline: the psABI's x86-64 (SSE2); wider kernels are chosen at run time.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(LINNET_TARGET x86_64-linux-gnu)

set(CMAKE_C_COMPILER x86_64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER x86_64-linux-gnu-g++)
set(CMAKE_C_FLAGS_INIT "-march=x86-64")
set(CMAKE_CXX_FLAGS_INIT "-march=x86-64")

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)

if(NOT CMAKE_HOST_SYSTEM_PROCESSOR STREQUAL "x86_64")
  find_program(LINNET_EMULATOR NAMES qemu-x86_64-static qemu-x86_64)
  if(LINNET_EMULATOR)
    set(CMAKE_CROSSCOMPILING_EMULATOR ${LINNET_EMULATOR})
  endif()
endif()
