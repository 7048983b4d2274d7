// What is said of an index that names no row, wherever it is found.
#pragma once

#include <cstdint>
#include <string_view>

#include "ulpscope/base/error.h"

namespace ulpscope {

inline Error index_out_of_range(std::string_view op, int64_t index, int64_t element, int64_t rows) {
  return failed_error("{}: index {} at element {} is not one of {} rows", op, index, element, rows);
}

}  // namespace ulpscope
