// The device's kernels on a GPU, with CUDA.
#pragma once

#include <memory>
#include <string>

#include "ulpscope/kernels/backend.h"

namespace ulpscope {

// On the GPU of this number, which is then that of the calling thread: it alone may use the backend, and no other one beside.
// Throws Error (failed) where there is none.
std::unique_ptr<Backend> make_cuda_backend(int device = 0);
// The GPU's name, as tensor_core_gpus() has it; "": none of them.
std::string gpu_of_device(int device = 0);

}  // namespace ulpscope
