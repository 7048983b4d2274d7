#include "ulpscope/cli/save_weights.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "ulpscope/base/file.h"

namespace ulpscope::cli {

void check_weights_replaceable(const std::string& path) {
  uint64_t length = 0;
  const std::string bytes = first_bytes(path, sizeof length + 1);
  if (bytes.empty()) return;
  std::memcpy(&length, bytes.data(), std::min(bytes.size(), sizeof length));
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  if (bytes.back() != '{' || size < sizeof length || size - sizeof length < length)
    throw other_kind_error(path, "a safetensors file");
}

void save_weights(const Model& model, const std::string& path) {
  std::vector<NamedTensor> tensors = model.parameters();
  const std::vector<NamedTensor> buffers = model.buffers();
  tensors.insert(tensors.end(), buffers.begin(), buffers.end());
  auto header = nlohmann::ordered_json::object();
  std::string data;
  for (const NamedTensor& named : tensors) {
    const size_t begin = data.size();
    // FP32 holds what 16 bits do.
    const bool wide = named.tensor.dtype() == DType::f64;
    for (const double value : to_host(named.tensor)) {
      const float single = static_cast<float>(value);
      const char* bytes = wide ? reinterpret_cast<const char*>(&value) : reinterpret_cast<const char*>(&single);
      data.append(bytes, wide ? sizeof value : sizeof single);
    }
    const auto& shape = named.tensor.shape();
    header[*named.name] = {{"dtype", wide ? "F64" : "F32"},
                           {"shape", std::vector<int64_t>(shape.begin(), shape.end())},
                           {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // the values begin at a multiple of 8
  const uint64_t length = text.size();
  std::string contents(sizeof length, '\0');
  std::memcpy(contents.data(), &length, sizeof length);
  atomic_write_file(path, contents + text + data);
}

}  // namespace ulpscope::cli
