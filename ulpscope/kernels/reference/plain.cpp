#include "ulpscope/kernels/reference/plain.h"

#include <string>
#include <unordered_map>

#include "ulpscope/kernels/reference/plain_access.h"

namespace ulpscope {
namespace {

const std::unordered_map<std::string_view, plain::NamedKernel>& kernels() {
  static const auto table = [] {
    std::unordered_map<std::string_view, plain::NamedKernel> all;
    for (const auto& family : {plain::elementwise_kernels(), plain::reduction_kernels(), plain::product_kernels(),
                               plain::normalisation_kernels(), plain::loss_kernels(), plain::training_kernels()}) {
      for (const auto& kernel : family) all.emplace(kernel.name, kernel);
    }
    return all;
  }();
  return table;
}

}  // namespace

bool plain_supports(std::string_view op) { return kernels().count(op) != 0; }

void run_plain(const OpCall& call) {
  const auto found = kernels().find(call.op);
  if (found == kernels().end()) throw failed_error("internal: no plain kernel computes {}", call.op);
  (plain::computes_in_double(call) ? found->second.in_double : found->second.in_float)(call);
}

}  // namespace ulpscope
