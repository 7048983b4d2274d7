// The targets of a loss over classes.
#pragma once

#include <cstdint>

#include "ulpscope/base/error.h"
#include "ulpscope/kernels/op_call.h"

namespace ulpscope {

inline constexpr int64_t kIgnoredTarget = -100;  // where nothing else is given, as in PyTorch

inline int64_t ignored_target(const OpCall& call) {
  return static_cast<int64_t>(call.attributes->value_or("ignore_index", kIgnoredTarget));
}
inline Error target_out_of_range(std::string_view op, int64_t target, int64_t row, int64_t classes) {
  return failed_error("{}: target {} of row {} is not one of {} classes", op, target, row, classes);
}

// i64 [N], each in [0, classes), or the attribute ignore_index (kIgnoredTarget where it is not given): such a row has no part in
// the loss.
class Targets {
 public:
  static constexpr int64_t kIgnored = -1;

  // Throws Error (failed) that names the op and the row where a target is neither.
  Targets(const OpCall& call, const TensorView& view, int64_t classes)
      : data_(view.as<const int64_t>()), stride_(view.strides[0]), ignored_(ignored_target(call)) {
    for (int64_t row = 0; row < view.shape[0]; ++row) {
      const int64_t target = data_[row * stride_];
      if (target == ignored_) continue;
      ++counted_;
      if (target < 0 || target >= classes) throw target_out_of_range(call.op, target, row, classes);
    }
  }

  // kIgnored, or the class.
  int64_t operator[](int64_t row) const { return data_[row * stride_] == ignored_ ? kIgnored : data_[row * stride_]; }
  int64_t counted() const { return counted_; }  // rows that are not ignored

 private:
  const int64_t* data_;
  int64_t stride_, ignored_, counted_ = 0;
};

}  // namespace ulpscope
