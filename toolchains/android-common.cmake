# Shared by the Android toolchain files, which set LINNET_TARGET, the processor and ANDROID_ABI first.
# The NDK's folder comes from the variable LINNET_NDK or the environment's ANDROID_NDK_HOME.
if(NOT LINNET_NDK)
  set(LINNET_NDK $ENV{ANDROID_NDK_HOME})
endif()
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES LINNET_NDK)
if(NOT EXISTS ${LINNET_NDK}/build/cmake/android.toolchain.cmake)
  message(FATAL_ERROR "target ${LINNET_TARGET}: expected an Android NDK (LINNET_NDK or ANDROID_NDK_HOME), "
    "found no build/cmake/android.toolchain.cmake in '${LINNET_NDK}'")
endif()

# API 28 (Android 9) is the oldest that examples/android promises; the C++ library is linked in, as everything else.
set(ANDROID_PLATFORM android-28)
set(ANDROID_STL c++_static)
# Devices have pages of 4 or 16 KiB.
set(ANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES ON)
include(${LINNET_NDK}/build/cmake/android.toolchain.cmake)
