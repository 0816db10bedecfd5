# Compiles through ccache where it is installed. Included by the presets (CMAKE_PROJECT_TOP_LEVEL_INCLUDES).
find_program(LINNET_CCACHE ccache)
if(LINNET_CCACHE)
  foreach(language C CXX)
    if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER ${LINNET_CCACHE})
    endif()
  endforeach()
endif()
