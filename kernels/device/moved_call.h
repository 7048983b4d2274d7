// An op call whose tensors lie elsewhere than those that it was made for.
#pragma once

#include <functional>
#include <vector>

#include "ulpscope/kernels/op_call.h"

namespace ulpscope::device {

class MovedCall {
 public:
  // `place`: where `bytes` bytes of memory of the call lie now; asked once for each address at which a tensor begins.
  MovedCall(const OpCall& call, const std::function<void*(void* data, size_t bytes)>& place);
  MovedCall(const MovedCall&) = delete;

  const OpCall& call() const { return call_; }

 private:
  std::vector<TensorView> inputs_, outputs_;
  OpCall call_;
};

}  // namespace ulpscope::device
