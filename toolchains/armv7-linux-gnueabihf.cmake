# 32-bit ARM Linux, glibc, hard-float. Baseline: ARMv7-A with NEON and VFPv4 (Cortex-A7, A15 and later; Raspberry Pi 2):
# Highway has no NEON kernels without VFPv4 and no run-time choice on this architecture. Debian's armhf baseline is lower.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR armv7)
set(LINNET_TARGET armv7-linux-gnueabihf)

# Debian names the compiler after the multiarch triple.
set(CMAKE_C_COMPILER arm-linux-gnueabihf-gcc)
set(CMAKE_CXX_COMPILER arm-linux-gnueabihf-g++)
set(CMAKE_C_FLAGS_INIT "-march=armv7-a -mfpu=neon-vfpv4 -mfloat-abi=hard")
set(CMAKE_CXX_FLAGS_INIT "-march=armv7-a -mfpu=neon-vfpv4 -mfloat-abi=hard")

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)

find_program(LINNET_EMULATOR NAMES qemu-arm-static qemu-arm)
if(LINNET_EMULATOR)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${LINNET_EMULATOR};-L;/usr/arm-linux-gnueabihf)
endif()
