#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "ulpscope/recorder/aten/tracker.h"
#include "ulpscope/recorder/value_loss.h"

namespace ulpscope::aten {

// ---- what casts, additions and subtractions of a forward pass lose of what they read

namespace {

// The tensor as values that can be read just now; nothing of others and of those without elements. Integers of 8 bits, which every
// floating-point type holds, are left out.
std::optional<TensorView> view_of(const Tensor& tensor) {
  if (!tensor.is_on_host || tensor.unreadable != nullptr || !is_foldable(tensor) || count_of_elements(tensor) == 0)
    return std::nullopt;
  std::optional<DType> type = dtype_of(tensor);
  if (!type && element_size(tensor) >= 4) type = integer_type_of(tensor);
  if (!type) return std::nullopt;
  return folded({tensor.data, *type, shape_of(tensor), strides_of(tensor)});
}

// The same, expanded to the shape of `result` where its own is another; nothing where it cannot be.
std::optional<TensorView> view_of(const Tensor& tensor, const Tensor& result) {
  if (have_one_shape(tensor, result)) return view_of(tensor);
  const std::optional<TensorView> own = view_of(tensor);
  if (!own || tensor.rank > result.rank) return std::nullopt;
  std::vector<int64_t> strides(static_cast<size_t>(result.rank), 0);
  const int32_t missing = result.rank - tensor.rank;
  for (int32_t i = 0; i < tensor.rank; ++i) {
    if (tensor.shape[i] == 1) continue;
    if (tensor.shape[i] != result.shape[i + missing]) return std::nullopt;
    strides[static_cast<size_t>(i + missing)] = tensor.strides[i];
  }
  return folded({tensor.data, own->dtype, shape_of(result), strides});
}

// Samples of data are rows.
int64_t samples_in(const Tensor& tensor) { return tensor.rank > 1 ? tensor.shape[0] : 0; }

bool is_cast(const Schema& schema, OpFunction function) { return function == OpFunction::cast || schema.base() == "_to_copy"; }

}  // namespace

bool Tracker::measures_values() const {
  return state_.is_open && state_.optimizing == 0 && measures_value_loss(static_cast<uint64_t>(state_.step));
}

void Tracker::keep_operand(const Schema& schema, const ulpscope_aten_op& op, const Bound& bound) {
  std::erase_if(operands_, [](const Operand& each) { return each.thread == std::this_thread::get_id(); });
  const std::optional<size_t> self = schema.find("self");
  if ((schema.base() != "add" && schema.base() != "sub") || op.task != -1 || !self || !schema.parameters()[*self].is_written)
    return;
  if (!measures_values()) return;
  bound.visit(*self, [&](const Tensor& tensor) {
    if (const std::optional<TensorView> view = view_of(tensor); view && is_float(view->dtype))
      operands_.push_back({std::this_thread::get_id(), tensor.data, sampled_values(*view)});
  });
}

std::optional<SampledValues> Tracker::operand_of_addition(const Tensor& tensor, const Tensor& result, bool is_overwritten) const {
  if (is_overwritten) {
    const auto kept = std::find_if(operands_.begin(), operands_.end(), [&](const Operand& each) {
      return each.data == tensor.data && each.thread == std::this_thread::get_id();
    });
    return kept == operands_.end() ? std::nullopt : std::optional(kept->values);
  }
  const std::optional<TensorView> view = view_of(tensor, result);
  return view && is_float(view->dtype) ? std::optional(sampled_values(*view)) : std::nullopt;
}

std::vector<Measured> Tracker::loss_of_addition(const Schema& schema, const Row& row, const LabelledOutput& output,
                                                OpFunction function) const {
  const bool is_reversed = schema.base() == "rsub", is_difference = function == OpFunction::sub || is_reversed;
  if (row.reads.empty() || row.reads.size() > 2 || (function != OpFunction::add && !is_difference)) return {};
  const Tensor& result = *output.tensor;
  std::array<SampledValues, 2> operands;
  for (size_t i = 0; i < row.reads.size(); ++i) {
    const Tensor& tensor = *row.reads[i].tensor;
    const bool is_overwritten = output.is_written && tensor.storage == result.storage;
    const std::optional<SampledValues> operand =
        is_overwritten && i > 0 ? std::nullopt : operand_of_addition(tensor, result, is_overwritten);
    if (!operand) return {};
    operands[i] = *operand;
  }
  if (row.reads.size() == 1) {
    const std::optional<double> number = schema.number(row.bound, "other");
    if (!number) return {};
    operands[1] = {{static_cast<float>(*number)}, DType::f64, true};
  }
  const std::optional<TensorView> sum = view_of(result);
  const double alpha = schema.number(row.bound, "alpha").value_or(1);
  if (!sum || !is_float(sum->dtype) || !std::isfinite(alpha) || alpha == 0) return {};
  if (is_reversed) std::swap(operands[0], operands[1]);
  return measure_addition(operands[0], operands[1], is_difference ? -alpha : alpha, sampled_values(*sum));
}

std::vector<Measured> Tracker::loss_of_values(const Schema& schema, const Row& row, const LabelledOutput& output, const Made& made,
                                              bool reads_input) const {
  const std::optional<TensorView> result = view_of(*output.tensor);
  if (!result || !is_float(result->dtype)) return {};
  if (schema.base() == "arange") {
    const auto number = [&](std::string_view name, double otherwise) { return schema.number(row.bound, name).value_or(otherwise); };
    return measure_range(number("start", 0), number("step", 1), *result);
  }
  if (!is_cast(schema, made.function)) return loss_of_addition(schema, row, output, made.function);
  if (output.is_written || row.reads.size() != 1 || !have_one_shape(*row.reads[0].tensor, *output.tensor)) return {};
  const std::optional<TensorView> from = view_of(*row.reads[0].tensor);
  if (!from || size_of(from->dtype) <= size_of(result->dtype)) return {};
  return measure_cast(*from, *result, reads_input ? samples_in(*output.tensor) : 0);
}

void Tracker::measure_loss_of_values(const Schema& schema, const Row& row, const LabelledOutput& output, const Made& made,
                                     bool reads_input) {
  const bool is_in_forward = made.phase == Phase::forward || made.phase == Phase::loss;
  if (!is_in_forward || !measures_values()) return;
  tell_measures(made, loss_of_values(schema, row, output, made, reads_input));
}

void Tracker::tell_measures(const Made& made, std::span<const Measured> measured) {
  for (const Measured& each : measured)
    check(calls_.set_measure(recorder_, made.op, made.value.slot, told(name(each.name)), each.value));
}

void Tracker::keep_loss_of_cast(const Schema& schema, std::span<const Read> reads, std::span<const Tensor* const> results) {
  for (const Tensor* const result : results) cast_data_.erase(result->storage);
  const bool copies = schema.base() == "_to_copy" || schema.base() == "clone";
  if (state_.optimizing > 0 || !copies || reads.size() != 1 || results.size() != 1) return;
  const Tensor &given = *reads[0].tensor, &result = *results[0];
  if (!have_one_shape(given, result)) return;
  // What was cast before has no more in a wider type.
  if (const auto before = cast_data_.find(given.storage); before != cast_data_.end() && before->second.data == given.data) {
    CastData copy = before->second;
    copy.data = result.data;
    cast_data_[result.storage] = std::move(copy);
    return;
  }
  // It is data of the step that comes next, or of a further micro-batch.
  if (!measures_value_loss(static_cast<uint64_t>(state_.step + 1))) return;
  const std::optional<TensorView> from = view_of(given), to = view_of(result);
  if (!from || !to || !is_float(to->dtype) || size_of(from->dtype) <= size_of(to->dtype)) return;
  cast_data_[result.storage] = {state_.step, result.data, measure_cast(*from, *to, samples_in(result))};
}

void Tracker::tell_loss_of_cast(const Tensor& tensor, const Made& made) {
  const auto cast = cast_data_.find(tensor.storage);
  if (cast == cast_data_.end()) return;
  if (state_.step - cast->second.step <= 1 && cast->second.data == tensor.data) tell_measures(made, cast->second.measured);
  cast_data_.erase(cast);
}

}  // namespace ulpscope::aten
