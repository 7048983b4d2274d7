#include "ulpscope/cli/save_weights.h"

#include <fmt/format.h>

#include <cstring>

#include "ulpscope/base/file.h"

namespace ulpscope::cli {

namespace {

std::string json_text(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      quoted += fmt::format("\\u{:04x}", c);
      continue;
    }
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace

void save_weights(const Model& model, const std::string& path) {
  std::vector<NamedTensor> tensors = model.parameters();
  const std::vector<NamedTensor> buffers = model.buffers();
  tensors.insert(tensors.end(), buffers.begin(), buffers.end());
  std::string header, data;
  for (const NamedTensor& named : tensors) {
    const size_t begin = data.size();
    // Parameters and buffers are FP32 masters (or FP64), so FP64 holds their values.
    const bool wide = named.tensor.dtype() == DType::f64;
    for (const double value : to_host(named.tensor)) {
      const float single = static_cast<float>(value);
      const char* bytes = wide ? reinterpret_cast<const char*>(&value) : reinterpret_cast<const char*>(&single);
      data.append(bytes, wide ? sizeof value : sizeof single);
    }
    std::string shape;
    for (const int64_t extent : named.tensor.shape()) shape += fmt::format("{}{}", shape.empty() ? "" : ",", extent);
    header += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", header.empty() ? "" : ",",
                          json_text(*named.name), wide ? "F64" : "F32", shape, begin, data.size());
  }
  header = fmt::format("{{{}}}", header);
  header.append((8 - header.size() % 8) % 8, ' ');  // the values begin at a multiple of 8
  const uint64_t length = header.size();
  std::string contents(sizeof length, '\0');
  std::memcpy(contents.data(), &length, sizeof length);
  atomic_write_file(path, contents + header + data);
}

}  // namespace ulpscope::cli
