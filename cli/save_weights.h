// Parameters and buffers of a model in a file that other programs read: the safetensors layout, an 8-byte little-endian length, a
// JSON header of that length (name -> dtype, shape, byte range), then the values in row-major order.
#pragma once

#include <string>

#include "ulpscope/core/nn/model.h"

namespace ulpscope::cli {

// Throws Error (usage) where a file at `path` does not begin as one of this layout, so that none replaces it.
void check_weights_replaceable(const std::string& path);

void save_weights(const Model& model, const std::string& path);

}  // namespace ulpscope::cli
