// A CPU backend with two threads and a current context, for tests that dispatch ops.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <vector>

#include "ulpscope/base/philox.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() { context_.backend = backend_.get(); }

  Tensor tensor(DType dtype, std::vector<int64_t> shape, const std::vector<double>& values, Layout layout = Layout::contiguous) {
    return from_host(*context_.backend, dtype, shape, values, layout);
  }
  Tensor scalar(DType dtype, double value) { return tensor(dtype, {}, {value}); }
  // Values in (low, high), different for each `stream`, exact in FP16 where the range is moderate.
  Tensor random(DType dtype, std::vector<int64_t> shape, uint64_t stream = 0, double low = -2, double high = 2,
                Layout layout = Layout::contiguous) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    const Philox philox(7, stream);
    std::vector<double> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = low + (high - low) * (philox.bits(i) % 4093 + 0.5) / 4093.0;
    return tensor(dtype, std::move(shape), values, layout);
  }
  Tensor labels(std::vector<int64_t> values) {
    return from_host(*context_.backend, std::vector{static_cast<int64_t>(values.size())}, values);
  }

  std::unique_ptr<Backend> backend_ = make_cpu_backend({.threads = 2, .isa = ""});
  Context context_;
  ContextScope scope_{context_};
};

}  // namespace ulpscope
