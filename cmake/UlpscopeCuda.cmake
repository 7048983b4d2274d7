# CUDA: the compiler, the shared runtime, and cuBLAS from the toolkit or from the Python wheel nvidia-cublas, which
# `./dev setup cuda` puts into .venv-cuda where the toolkit has none. Targets: CUDA::cudart, ulpscope::cublas,
# ulpscope::cublas_lt.
set(CMAKE_CUDA_ARCHITECTURES ${ULPSCOPE_CUDA_ARCHITECTURES} CACHE STRING "GPU architectures")
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
enable_language(CUDA)
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # which CMake 3.25 does not know of nvcc
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_EXTENSIONS OFF)
find_package(CUDAToolkit REQUIRED)

foreach(flag ${ULPSCOPE_DEVICE_CODE_FLAGS})
  target_compile_options(ulpscope_flags INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:${flag}>)
endforeach()
if(ULPSCOPE_WERROR)
  target_compile_options(ulpscope_flags INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()

# The header and the library come from one place: the toolkit's folders, or else the wheel's.
file(GLOB ULPSCOPE_CUBLAS_WHEEL ${PROJECT_SOURCE_DIR}/.venv-cuda/lib/python3*/site-packages/nvidia/cu13)
find_path(ULPSCOPE_CUBLAS_INCLUDE cublas_v2.h PATHS ${CUDAToolkit_INCLUDE_DIRS} ${ULPSCOPE_CUBLAS_WHEEL}/include NO_DEFAULT_PATH)
find_library(ULPSCOPE_CUBLAS_LIBRARY NAMES libcublas.so libcublas.so.13
  PATHS ${CUDAToolkit_LIBRARY_DIR} ${ULPSCOPE_CUBLAS_WHEEL}/lib NO_DEFAULT_PATH)
find_library(ULPSCOPE_CUBLAS_LT_LIBRARY NAMES libcublasLt.so libcublasLt.so.13
  PATHS ${CUDAToolkit_LIBRARY_DIR} ${ULPSCOPE_CUBLAS_WHEEL}/lib NO_DEFAULT_PATH)
if(NOT ULPSCOPE_CUBLAS_INCLUDE OR NOT ULPSCOPE_CUBLAS_LIBRARY OR NOT ULPSCOPE_CUBLAS_LT_LIBRARY)
  message(FATAL_ERROR "no cuBLAS in ${CUDAToolkit_LIBRARY_DIR} and none in .venv-cuda: run ./dev setup cuda")
endif()
# By their full paths, so that the run path of what links them leads there.
function(ulpscope_imported_cublas name library)
  add_library(ulpscope_${name} SHARED IMPORTED GLOBAL)
  add_library(ulpscope::${name} ALIAS ulpscope_${name})
  set_target_properties(ulpscope_${name} PROPERTIES IMPORTED_LOCATION ${library}
    INTERFACE_INCLUDE_DIRECTORIES ${ULPSCOPE_CUBLAS_INCLUDE} INTERFACE_LINK_LIBRARIES CUDA::cudart)
endfunction()
ulpscope_imported_cublas(cublas ${ULPSCOPE_CUBLAS_LIBRARY})
ulpscope_imported_cublas(cublas_lt ${ULPSCOPE_CUBLAS_LT_LIBRARY})
message(STATUS "cuBLAS: ${ULPSCOPE_CUBLAS_LIBRARY}")
