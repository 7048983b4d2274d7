# How device code is compiled, with CUDA's parts of a build and, where nvcc is, by a test of builds without them.
#
# Device and host must round at the same places, so no multiplication and addition are fused. The emulation's constexpr functions
# are called from both. fmt takes nvcc for a compiler without constexpr.
set(ULPSCOPE_DEVICE_CODE_FLAGS --expt-relaxed-constexpr -fmad=false -DFMT_USE_CONSTEXPR=1
  -Xcompiler=-Wall,-Wextra,-ffp-contract=off,-march=x86-64-v2)
# Ampere, Hopper, and Blackwell in data centres and desktops.
set(ULPSCOPE_CUDA_ARCHITECTURES 80 90a 100a 120a)
# The compiler, where tests of a build without CUDA's parts compile device code.
find_program(ULPSCOPE_NVCC nvcc HINTS $ENV{CUDACXX}/.. /usr/local/cuda/bin)
if(ULPSCOPE_NVCC AND NOT ULPSCOPE_CUDA AND NOT ULPSCOPE_SANITIZE)
  set(ULPSCOPE_CHECKS_DEVICE_CODE ON)
  set(ULPSCOPE_DEVICE_CODE_FOLDER ${PROJECT_BINARY_DIR}/tests/project/device_code)  # what nvcc makes of it
else()
  set(ULPSCOPE_CHECKS_DEVICE_CODE OFF)
endif()
# Kernels have no stack: what does not fit into registers is a warning, and an error where warnings are.
set(ULPSCOPE_PTXAS_WARNINGS -warn-spills,-warn-lmem-usage)
