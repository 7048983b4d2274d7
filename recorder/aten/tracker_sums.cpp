#include <algorithm>
#include <array>
#include <cmath>
#include <thread>

#include "ulpscope/recorder/aten/tracker.h"
#include "ulpscope/recorder/running_sum.h"

namespace ulpscope::aten {

// ---- running sums in 16 bits: gradients of micro-batches, and what the program adds up itself

namespace {

bool is_looked_at(const Tensor& tensor) { return tensor.is_on_host && is_readable(tensor); }

std::vector<float> values_of_sum(const Tensor& tensor) { return summed_values(folded(host_tensor(tensor, tensor.data))); }

}  // namespace

// One of the two gradients was handed on to a parameter.
bool Tracker::adds_to_parameter(const Schema& schema, const Bound& bound) const {
  bool is_to_parameter = false;
  for (const char* const operand : {"self", "other"})
    if (const std::optional<size_t> at = schema.find(operand))
      bound.visit(*at, [&](const Tensor& tensor) {
        const ulpscope_aten_edge* const edge = handed_on_.find(tensor.storage);
        is_to_parameter = is_to_parameter || (edge != nullptr && edge->to_parameter);
      });
  return is_to_parameter;
}

// A tensor that was made just now, as a loss to which a penalty is added, holds no sum of many terms: what an addition left does,
// and a buffer. Weights have updates.
bool Tracker::may_be_sum(const Schema& schema, const ulpscope_aten_op& op, const Bound& bound, const Tensor& sum) {
  if (state_.optimizing > 0 || !is_looked_at(sum) || !loses_terms(*dtype_of(sum))) return false;
  if (op.is_accumulate_grad) return true;
  if (op.task != -1) return adds_to_parameter(schema, bound);
  const MadePointer made = memory_.last(sum);
  if (!is_recorded(made)) return false;
  return made->role == Role::buffer || (stack().empty() && made->is_sum && made->parameter == 0 && !is_gradient(made->role));
}

void Tracker::keep_sum(const Schema& schema, const ulpscope_aten_op& op, const Bound& bound) {
  std::erase_if(sums_, [](const Sum& each) { return each.thread == std::this_thread::get_id(); });
  if (!state_.is_open || schema.base() != "add" || !schema.writes() || !additions_.empty()) return;
  const std::optional<size_t> self = schema.find("self");
  if (!self || !schema.parameters()[*self].is_written) return;
  bound.visit(*self, [&](const Tensor& sum) {
    if (may_be_sum(schema, op, bound, sum)) sums_.push_back({std::this_thread::get_id(), sum.data, values_of_sum(sum)});
  });
}

void Tracker::added_to_sum(const Schema& schema, const Row& row, const LabelledOutput& output, const Made& made) {
  if (row.reads.size() != 2) return;
  const Tensor &before = *row.reads[0].tensor, &addend = *row.reads[1].tensor, &after = *output.tensor;
  if (!is_looked_at(addend) || !have_one_shape(addend, after) || !is_looked_at(after) || !loses_terms(*dtype_of(after))) return;
  if (addend.storage == after.storage) return;  // it was overwritten
  const double factor = schema.number(row.bound, "alpha").value_or(1);
  if (!std::isfinite(factor) || factor == 0) return;
  std::array<std::vector<float>, 3> values;
  if (output.is_written) {
    const auto kept = std::find_if(sums_.begin(), sums_.end(), [&](const Sum& each) {
      return each.data == after.data && each.thread == std::this_thread::get_id();
    });
    if (kept == sums_.end()) return;
    values[0] = std::move(kept->before);
    sums_.erase(kept);
  } else {
    if (!is_looked_at(before) || !have_one_shape(before, after)) return;
    values[0] = values_of_sum(before);
  }
  values[1] = values_of_sum(addend);
  values[2] = values_of_sum(after);
  const std::array<int64_t, 1> shape{static_cast<int64_t>(values[0].size())};
  std::array<ulpscope_tensor, 3> told;
  std::transform(values.begin(), values.end(), told.begin(), [&](const std::vector<float>& each) {
    return told_tensor(HostTensor{each.data(), DType::f32, shape, {}});
  });
  ulpscope_addition addition{};
  addition.size = sizeof addition;
  addition.factor = factor;
  addition.before = &told[0];
  addition.addend = &told[1];
  addition.after = &told[2];
  check(calls_.set_addition(recorder_, made.op, made.value.slot, &addition));
}

}  // namespace ulpscope::aten
