// Measures that adapters take of tensors on a device while ops run. They are known when the step ends, after one wait.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "ulpscope/recorder/aten/tensor.h"

namespace ulpscope::aten {

// A number that is known, or that a device will give.
struct Number {
  double value = 0;
  ulpscope_aten_rows rows = {};  // where there are some, their sums add up to it times the divisor
  double divisor = 1;
  uint64_t epoch = 0;  // in which the rows were taken
  bool is_known() const { return rows.count == 0; }
};

// A tensor that an adapter made on a device, and keeps as long as this lives.
class DeviceTensor {
 public:
  DeviceTensor(const ulpscope_aten_adapter& adapter, const Tensor& made)
      : tensor_(made), let_go_(adapter.let_go), context_(adapter.context) {}
  ~DeviceTensor() {
    if (let_go_ != nullptr) let_go_(context_, tensor_.handle);
  }
  DeviceTensor(DeviceTensor&& other) noexcept { *this = std::move(other); }
  DeviceTensor& operator=(DeviceTensor&& other) noexcept {
    std::swap(tensor_, other.tensor_);
    std::swap(let_go_, other.let_go_);
    std::swap(context_, other.context_);
    return *this;
  }
  const Tensor& tensor() const { return tensor_; }

 private:
  Tensor tensor_{};
  void (*let_go_)(void*, uint64_t) = nullptr;
  void* context_ = nullptr;
};

class Measures {
 public:
  explicit Measures(const ulpscope_aten_adapter& adapter) : adapter_(adapter) {}

  // Whether nothing can be asked of the tensor's device just now.
  bool is_capturing(const Tensor& tensor) const;

  // Statistics of output `slot` of a call. `cast_from`: what was cast, where the roundings are to be counted.
  void take_output(ulpscope_op op, uint32_t slot, const Tensor& tensor, const Tensor* cast_from, double scale, uint8_t level);
  // The first element; the sum of the squares of all of them.
  Number take_number(const Tensor& tensor, double divisor = 1);
  Number take_square(const Tensor& tensor, double divisor = 1);

  // Measures output `slot` of a call, an update of `after`. `gradient` nullptr: not known; `update` nullptr: what was added.
  void take_update(ulpscope_op op, uint32_t slot, double learning_rate, const Tensor& before, const Tensor& after,
                   const Tensor* gradient, double factor, const Tensor* update);

  // Waits for the device, where something was asked of it, and gives the statistics of the outputs. Numbers have a value from then
  // on, until `clear`.
  void settle(const std::function<void(ulpscope_op, uint32_t, const ulpscope_statistics&)>& fill,
              const std::function<void(ulpscope_op, uint32_t, const ulpscope_update_counts&)>& fill_update);
  // NaN where it is not known, as before `settle`, and of rows that are gone.
  double value_of(const Number& number) const;
  void clear();

  uint64_t waits() const { return waits_; }  // how often the host waited
  uint64_t lost() const { return lost_; }    // outputs whose statistics are not known

 private:
  using RoundingEdges = std::array<double, ULPSCOPE_ATEN_ROUNDING_EDGES>;
  struct OfOutput {
    ulpscope_op op = 0;
    uint32_t slot = 0;
    ulpscope_aten_rows rows = {};
    DType cast_to = DType::f32;  // f16 or bf16 where roundings were counted
    double scale = 1;
    uint8_t level = 0;
  };
  struct OfUpdate {
    ulpscope_op op = 0;
    uint32_t slot = 0;
    ulpscope_aten_rows rows = {};
    double learning_rate = 0;
    bool has_gradient = false;
  };
  const RoundingEdges& edges_of(DType cast_to, double scale);
  Number take(int32_t kind, const Tensor& tensor, double divisor);
  bool ask(const ulpscope_aten_measure& measure, ulpscope_aten_rows& rows);
  ulpscope_statistics statistics_of(const OfOutput& output) const;
  ulpscope_update_counts counts_of(const OfUpdate& update) const;

  ulpscope_aten_adapter adapter_;
  std::map<std::pair<DType, double>, RoundingEdges> edges_;
  std::vector<OfOutput> outputs_;
  std::vector<OfUpdate> updates_;
  bool has_rows_ = false, is_settled_ = false;
  uint64_t epoch_ = 0, waits_ = 0, lost_ = 0;
};

}  // namespace ulpscope::aten
