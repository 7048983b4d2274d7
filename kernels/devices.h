// The devices that compute, by the names that users give them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "ulpscope/kernels/backend.h"

namespace ulpscope {

// "cpu"; "cuda" or "cuda:N", the GPU of that number; "emulated" or "emulated:GPU", the kernels of GPUs on the host, with the matrix
// units of that GPU (tensor_core_gpus(); h100), slowly. Throws Error (usage) where it is none of them.
//
// What makes its backend; none for "cpu". Of a GPU that is not there, or that cannot be used, it throws Error (failed).
std::function<std::unique_ptr<Backend>()> maker_of_device(std::string_view device);

// Whose matrix units the device has, as tensor_core_gpus() names the GPU; "": that of no GPU, or of one that is none of these.
// Throws as maker_of_device and what that gives.
std::string gpu_of_device(std::string_view device);

}  // namespace ulpscope
