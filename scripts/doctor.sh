#!/usr/bin/env bash
# Says, a line each, what a build would find on this machine, and for what is missing, how to get it. Exits with 1 where something
# that every build needs is missing. usage: doctor.sh NVCC CUBLAS_LIBRARY, both may be empty
set -euo pipefail

nvcc=$1 cublas=$2 missing=0

line() { printf '%-16s %s\n' "$1" "$2"; }
absent() { line "$1" "missing: $2"; }
required() {
  absent "$1" "$2"
  missing=1
}

# tool NAME PROGRAM PACKAGE
tool() {
  if command -v "$2" >/dev/null; then
    line "$1" "$("$2" --version | head -n 1)"
  else
    required "$1" "apt-get install $3"
  fi
}

# module NAME PKG_CONFIG_MODULE PACKAGE
module() {
  local version
  if version=$(pkg-config --modversion "$2" 2>/dev/null); then
    line "$1" "$version"
  else
    required "$1" "apt-get install $3"
  fi
}

# wanted NAME PKG_CONFIG_MODULE PACKAGE: what the window needs, and all else does without
wanted() {
  local version
  if version=$(pkg-config --modversion "$2" 2>/dev/null); then
    line "$1" "$version"
  else
    absent "$1" "apt-get install $3 (for ulpscope view and screenshot)"
  fi
}

# header NAME FILE PATTERN PACKAGE: a library without pkg-config data; the version is what PATTERN captures in FILE, line by line
header() {
  if [[ -e /usr/include/$2 ]]; then
    line "$1" "$(sed -nE "s/$3/\\1/p" "/usr/include/$2" | paste -sd. | tr _ .)"
  else
    required "$1" "apt-get install $4"
  fi
}

# python_module NAME MODULE HOW: in the python3 that tests run it with, the system's before the first in PATH (tests/support/python.cpp)
python_module() {
  local python version
  for python in /usr/bin/python3 python3; do
    if version=$("$python" -c "import $2; print($2.__version__)" 2>/dev/null); then
      line "$1" "$version"
      return
    fi
  done
  absent "$1" "$3"
}

tool 'C++ compiler' "${CXX:-c++}" g++
tool CMake cmake cmake
tool Ninja ninja ninja-build
tool pkg-config pkg-config pkg-config
tool Python python3 python3
if command -v ccache >/dev/null; then line ccache "$(ccache --version | head -n 1)"; else absent ccache 'apt-get install ccache'; fi
tool clang-format clang-format-14 clang-format-14
if command -v clang-tidy-14 >/dev/null; then line clang-tidy 14; else absent clang-tidy 'apt-get install clang-tidy-14 (for ./dev lint)'; fi

header oneDNN oneapi/dnnl/dnnl_version.h '^#define DNNL_VERSION_[MP][A-Z]+ +([0-9]+)$' libdnnl-dev
module Highway libhwy libhwy-dev
module HDF5 hdf5 libhdf5-dev
module fmt fmt libfmt-dev
header Boost boost/version.hpp '^#define BOOST_LIB_VERSION "([^"]+)".*' 'libboost-dev libboost-context-dev'
module toml++ tomlplusplus libtomlplusplus-dev
module nlohmann-json nlohmann_json nlohmann-json3-dev
module CLI11 CLI11 libcli11-dev
module zlib zlib zlib1g-dev
header libcsv csv.h '^#define CSV_[MR][A-Z]+ +([0-9]+)$' libcsv-dev
module GoogleTest gtest 'libgtest-dev libgmock-dev'
module benchmark benchmark libbenchmark-dev
wanted 'Dear ImGui' imgui libimgui-dev
wanted GLFW glfw3 libglfw3-dev
wanted OpenGL gl libgl-dev
wanted libpng libpng libpng-dev
python_module h5py h5py 'apt-get install python3-h5py (tests of the trace need it)'
python_module jsonschema jsonschema 'apt-get install python3-jsonschema (without it tests do not hold reports to docs/report.schema.json)'
python_module PyTorch torch 'pip install torch (benchmarks compare with it)'
if [[ -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ]]; then
  line Fashion-MNIST /usr/share/datasets/fashion-mnist
else
  absent Fashion-MNIST 'apt-get install dataset-fashion-mnist (the demo then generates data)'
fi

if [[ $nvcc ]]; then
  line CUDA "$("$nvcc" --version | sed -n 's/.*release \([^,]*\), \(.*\)/\1 (\2)/p'), $nvcc"
  if [[ $cublas ]]; then line cuBLAS "$cublas"; else absent cuBLAS './dev setup cuda'; fi
else
  absent CUDA 'install the CUDA Toolkit 13 from developer.nvidia.com/cuda-downloads (for the cuda preset)'
fi
if command -v nvidia-smi >/dev/null && gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null); then
  line GPU "$(paste -sd';' <<<"$gpu")"
else
  line GPU 'none found'
fi
if command -v mpicxx >/dev/null; then line MPI "$(mpicxx --version | head -n 1)"; else absent MPI 'apt-get install libopenmpi-dev (nothing uses it yet)'; fi
exit "$missing"
