# 64-bit ARM Android. Baseline: armv8-a; dotprod and i8mm kernels are chosen at run time.
set(LINNET_TARGET aarch64-linux-android)
set(ANDROID_ABI arm64-v8a)
include(${CMAKE_CURRENT_LIST_DIR}/android-common.cmake)
