// Runs the calls of tests, whose tensors lie in memory of the host, on a backend with memory of its own: tensors are copied there
// before a call, and outputs back when it is complete.
#pragma once

#include <memory>

#include "ulpscope/kernels/backend.h"

namespace ulpscope {

std::unique_ptr<Backend> make_copying_backend(std::unique_ptr<Backend> inner);

}  // namespace ulpscope
