# Options and the flags that every target of the project is compiled with.
include(CMakeDependentOption)
include(GNUInstallDirs)

option(ULPSCOPE_EMULATION_ONLY "Build and install ulpscope::emulation alone" OFF)
cmake_dependent_option(ULPSCOPE_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL} "NOT ULPSCOPE_EMULATION_ONLY" OFF)
cmake_dependent_option(ULPSCOPE_BENCHMARKS "Build the benchmarks" ${PROJECT_IS_TOP_LEVEL} "NOT ULPSCOPE_EMULATION_ONLY" OFF)
option(ULPSCOPE_WERROR "Treat warnings in our code as errors" ${PROJECT_IS_TOP_LEVEL})
option(ULPSCOPE_CUDA "Build the CUDA parts" OFF)
option(ULPSCOPE_UNITY "Compile several sources as one: faster from nothing, slower after a change of one" ON)
cmake_dependent_option(ULPSCOPE_WINDOW "Build the window, where its libraries are" ON "NOT ULPSCOPE_EMULATION_ONLY" OFF)
cmake_dependent_option(ULPSCOPE_EMULATED_DEVICES "Build the kernels of GPUs for the host, too" ON "NOT ULPSCOPE_EMULATION_ONLY" OFF)
option(ULPSCOPE_ONE_INSTRUCTION_SET "Compile SIMD code for this machine's best of sse4, avx2 and avx512 alone" OFF)
set(ULPSCOPE_PACKAGE_PARTS "" CACHE PATH "What packaging/parts.py made, to build packages of the program")
set(ULPSCOPE_SANITIZE "" CACHE STRING "Sanitizers to compile and link with, as -fsanitize takes them")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(ULPSCOPE_CCACHE ccache)
if(ULPSCOPE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without these ccache caches nothing that uses a precompiled header.
  # Relative to the base folder, the paths of two clones are the same.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
    CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${ULPSCOPE_CCACHE})
endif()

set(ULPSCOPE_HAS_WINDOW OFF)
if(ULPSCOPE_WINDOW)
  find_package(PkgConfig QUIET)
  find_package(PNG QUIET)
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(IMGUI QUIET IMPORTED_TARGET imgui)
    pkg_check_modules(GLFW QUIET IMPORTED_TARGET glfw3)
    pkg_check_modules(GL QUIET IMPORTED_TARGET gl)
  endif()
  if(IMGUI_FOUND AND GLFW_FOUND AND GL_FOUND AND PNG_FOUND)
    set(ULPSCOPE_HAS_WINDOW ON)
  else()
    message(STATUS "Without a window: it needs Dear ImGui, GLFW, OpenGL and libpng")
  endif()
endif()
