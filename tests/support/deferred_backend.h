// A device that runs behind the host, made of another backend: what is submitted waits until complete(), and memory faults where
// the host reads or writes it itself. What was released holds other bytes than before.
#pragma once

#include <cstdint>
#include <memory>

#include "ulpscope/kernels/backend.h"

namespace ulpscope {

// `inner` runs calls when they are submitted, and the host may read its memory.
std::unique_ptr<Backend> make_deferred_backend(std::unique_ptr<Backend> inner);
// How often the host waited for such a backend while it had something to do.
uint64_t waits_of(const Backend& deferred);

}  // namespace ulpscope
