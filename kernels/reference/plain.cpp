#include "ulpscope/kernels/reference/plain.h"

#include <string>
#include <unordered_map>

#include "ulpscope/kernels/reference/plain_access.h"

namespace ulpscope {
namespace {

const std::unordered_map<std::string_view, plain::NamedKernel>& kernels() {
  static const auto table = [] {
    std::unordered_map<std::string_view, plain::NamedKernel> all;
    for (const auto& family :
         {plain::elementwise_kernels(), plain::reduction_kernels(), plain::product_kernels(), plain::window_kernels(),
          plain::normalization_kernels(), plain::row_kernels(), plain::indexing_kernels(), plain::loss_kernels(),
          plain::quantization_kernels(), plain::training_kernels()}) {
      for (const auto& kernel : family) all.emplace(kernel.name, kernel);
    }
    return all;
  }();
  return table;
}

const plain::NamedKernel& kernel_of(const OpCall& call) {
  const auto found = kernels().find(call.op);
  if (found == kernels().end()) throw failed_error("internal: no plain kernel computes {}", call.op);
  return found->second;
}

}  // namespace

std::vector<std::string_view> plain_ops() {
  std::vector<std::string_view> names;
  for (const auto& [op, kernel] : kernels()) names.push_back(op);
  return names;
}

void run_plain(const OpCall& call) {
  const plain::NamedKernel& kernel = kernel_of(call);
  (computes_in_double(call) ? kernel.in_double : kernel.in_float)(call);
}

ElementCapture capture_nonfinite(const OpCall& call, int slot) { return capture_nonfinite(call, slot, kernel_of(call).operands); }

}  // namespace ulpscope
