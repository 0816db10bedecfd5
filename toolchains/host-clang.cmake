# This machine, with the newest clang installed (16 or later: older ones reject parts of libstdc++ 12's C++20).
set(versions 21 20 19 18 17 16)
list(TRANSFORM versions PREPEND clang- OUTPUT_VARIABLE names)
find_program(LINNET_CLANG NAMES ${names} clang REQUIRED)
list(TRANSFORM versions PREPEND clang++- OUTPUT_VARIABLE names)
find_program(LINNET_CLANGXX NAMES ${names} clang++ REQUIRED)
set(CMAKE_C_COMPILER ${LINNET_CLANG})
set(CMAKE_CXX_COMPILER ${LINNET_CLANGXX})
