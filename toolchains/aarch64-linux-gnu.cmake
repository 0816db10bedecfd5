# 64-bit ARM Linux, glibc. Baseline: armv8-a, which every such CPU has; dotprod and i8mm kernels are chosen at run time.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(LINNET_TARGET aarch64-linux-gnu)

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_C_FLAGS_INIT "-march=armv8-a")
set(CMAKE_CXX_FLAGS_INIT "-march=armv8-a")

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)

if(NOT CMAKE_HOST_SYSTEM_PROCESSOR STREQUAL "aarch64")
  find_program(LINNET_EMULATOR NAMES qemu-aarch64-static qemu-aarch64)
  if(LINNET_EMULATOR)
    set(CMAKE_CROSSCOMPILING_EMULATOR ${LINNET_EMULATOR};-L;/usr/aarch64-linux-gnu)
  endif()
endif()
