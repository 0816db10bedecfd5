# x86-64 Android, for the emulator. Baseline: the ABI's own, SSE4.2.
set(LINNET_TARGET x86_64-linux-android)
set(ANDROID_ABI x86_64)
include(${CMAKE_CURRENT_LIST_DIR}/android-common.cmake)
