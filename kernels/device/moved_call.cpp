#include "ulpscope/kernels/device/moved_call.h"

#include <algorithm>
#include <map>

namespace ulpscope::device {

MovedCall::MovedCall(const OpCall& call, const std::function<void*(void* data, size_t bytes)>& place)
    : inputs_(call.inputs.begin(), call.inputs.end()), outputs_(call.outputs.begin(), call.outputs.end()), call_(call) {
  std::map<void*, size_t> bytes;
  for (const auto* views : {&inputs_, &outputs_}) {
    for (const TensorView& view : *views) {
      if (view.data == nullptr) continue;
      size_t& most = bytes[view.data];
      most = std::max(most, static_cast<size_t>(span_of(view)) * info(view.dtype).size);
    }
  }
  std::map<void*, void*> moved{{nullptr, nullptr}};
  for (const auto& [data, size] : bytes) moved[data] = place(data, size);
  for (auto* views : {&inputs_, &outputs_})
    for (TensorView& view : *views) view.data = moved[view.data];
  call_.inputs = inputs_;
  call_.outputs = outputs_;
}

}  // namespace ulpscope::device
