#include "ulpscope/kernels/plain/plain.h"

#include <string>
#include <unordered_map>

#include "ulpscope/kernels/bit_hash.h"
#include "ulpscope/kernels/fingerprint.h"
#include "ulpscope/kernels/plain/element.h"
#include "ulpscope/kernels/plain/twins.h"

namespace ulpscope {
namespace {

const std::unordered_map<std::string_view, plain::Twin>& twins() {
  static const auto table = [] {
    std::unordered_map<std::string_view, plain::Twin> all;
    for (const auto& family : {plain::elementwise_twins(), plain::reduction_twins(), plain::product_twins(), plain::window_twins(),
                               plain::normalization_twins(), plain::row_twins(), plain::indexing_twins(), plain::loss_twins(),
                               plain::quantization_twins(), plain::training_twins()}) {
      for (const auto& twin : family) all.emplace(twin.op, twin);
    }
    return all;
  }();
  return table;
}

}  // namespace

namespace plain {

const Twin& twin_of(const OpCall& call) {
  const auto found = twins().find(call.op);
  if (found == twins().end()) throw failed_error("internal: no plain twin computes {}", call.op);
  return found->second;
}

}  // namespace plain

using plain::twin_of;

std::vector<std::string_view> plain_ops() {
  std::vector<std::string_view> names;
  for (const auto& [op, twin] : twins()) names.push_back(op);
  return names;
}

void run_plain(const OpCall& call) {
  const plain::Twin& twin = twin_of(call);
  sum_inputs(call);
  (computes_in_double(call) ? twin.in_double : twin.in_float)(call);
  sum_outputs(call);
  hash_outputs(call);
}

ElementCapture capture_element(const OpCall& call, int slot, int64_t element) { return twin_of(call).capture(call, slot, element); }

ElementCapture capture_nonfinite(const OpCall& call, int slot) {
  const TensorView& output = call.outputs[static_cast<size_t>(slot)];
  const int64_t element = output.data == nullptr ? -1 : first_nonfinite(output);
  return element < 0 ? ElementCapture{} : capture_element(call, slot, element);
}

}  // namespace ulpscope
