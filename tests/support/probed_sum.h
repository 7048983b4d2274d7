// A line of the file that `ulpscope gpu --probe --results` writes.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/emulation/format.h"
#include "ulpscope/emulation/tensor_core.h"

namespace ulpscope {

struct ProbedSumLine {
  TensorCore core;  // the row of the table for the line's instruction
  std::string shows;
  std::vector<uint32_t> a, b;
  uint32_t c, result;
};

// `line`: without the line break. Throws std::runtime_error where it has other than nine fields.
inline ProbedSumLine parse_probed_sum(std::string_view gpu, const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char character : line) {
    if (character == ',') {
      fields.emplace_back();
    } else {
      fields.back().push_back(character);
    }
  }
  if (fields.size() != 9) throw std::runtime_error("expected nine fields, got: " + line);
  const auto encodings = [](const std::string& field) {
    std::vector<uint32_t> values;
    std::istringstream words(field);
    for (uint32_t value; words >> std::hex >> value;) values.push_back(value);
    return values;
  };
  return {find_tensor_core(gpu, parse_format(fields[1]), parse_format(fields[2]), parse_format(fields[3]),
                           parse_instruction_family(fields[0])),
          fields[4],
          encodings(fields[5]),
          encodings(fields[6]),
          encodings(fields[7]).at(0),
          encodings(fields[8]).at(0)};
}

}  // namespace ulpscope
