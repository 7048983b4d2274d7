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

// ---- losses of casts, additions and subtractions of a forward pass

namespace {

// The tensor as values that can be read just now; nothing of others and of those without elements. Integers below 32 bits are left
// out: most of those of 8 bits are in every type, and a trace has no type for 16.
std::optional<TensorView> readable_view(const Tensor& tensor, std::span<const int64_t> shape, std::span<const int64_t> strides) {
  if (!tensor.is_on_host || tensor.unreadable != nullptr || !is_foldable(tensor) || count_of_elements(tensor) == 0)
    return std::nullopt;
  std::optional<DType> type = dtype_of(tensor);
  if (!type && element_size(tensor) >= 4) type = integer_type_of(tensor);
  if (!type) return std::nullopt;
  return folded({tensor.data, *type, shape, strides});
}

std::optional<TensorView> view_of(const Tensor& tensor) { return readable_view(tensor, shape_of(tensor), strides_of(tensor)); }

// As view_of(), expanded to the shape of `result` where its own is another; nothing where it cannot be.
std::optional<TensorView> expanded_view(const Tensor& tensor, const Tensor& result) {
  if (have_one_shape(tensor, result)) return view_of(tensor);
  if (tensor.rank > result.rank) return std::nullopt;
  std::vector<int64_t> strides(static_cast<size_t>(result.rank), 0);
  const int32_t missing = result.rank - tensor.rank;
  for (int32_t i = 0; i < tensor.rank; ++i) {
    if (tensor.shape[i] == 1) continue;
    if (tensor.shape[i] != result.shape[i + missing]) return std::nullopt;
    strides[static_cast<size_t>(i + missing)] = tensor.strides[i];
  }
  return is_foldable(result) ? readable_view(tensor, shape_of(result), strides) : std::nullopt;
}

bool adds_or_subtracts(const Schema& schema) { return schema.base() == "add" || schema.base() == "sub" || schema.base() == "rsub"; }

// Samples of data are rows.
int64_t samples_in(const Tensor& tensor) { return tensor.rank > 1 ? tensor.shape[0] : 0; }

bool is_cast(const Schema& schema, OpFunction function) { return function == OpFunction::cast || schema.base() == "_to_copy"; }

}  // namespace

bool Tracker::measures_values() const {
  return state_.is_open && state_.optimizing == 0 && measures_value_loss(static_cast<uint64_t>(state_.step));
}

void Tracker::keep_operand(const Schema& schema, const ulpscope_aten_op& op, const Bound& bound) {
  if (!operands_.empty()) std::erase_if(operands_, [](const Operand& each) { return each.thread == std::this_thread::get_id(); });
  if (op.task != -1 || !schema.writes() || !measures_values() || !adds_or_subtracts(schema)) return;
  const std::optional<size_t> self = schema.find("self");
  if (!self || !schema.parameters()[*self].is_written) return;
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
  const std::optional<TensorView> view = expanded_view(tensor, result);
  return view && is_float(view->dtype) ? std::optional(sampled_values(*view)) : std::nullopt;
}

std::vector<ValueMeasure> Tracker::loss_of_addition(const Schema& schema, const Row& row, const LabelledOutput& output,
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

std::vector<ValueMeasure> Tracker::loss_of_values(const Schema& schema, const Row& row, const LabelledOutput& output,
                                                  const Made& made, bool reads_input) const {
  if (adds_or_subtracts(schema)) return loss_of_addition(schema, row, output, made.function);
  const bool is_range = schema.base() == "arange";
  if (!is_range && !is_cast(schema, made.function)) return {};
  const std::optional<TensorView> result = view_of(*output.tensor);
  if (!result || !is_float(result->dtype)) return {};
  if (is_range) {
    const auto number = [&](std::string_view name, double otherwise) { return schema.number(row.bound, name).value_or(otherwise); };
    return measure_range(number("start", 0), number("step", 1), *result);
  }
  if (output.is_written || row.reads.size() != 1 || !have_one_shape(*row.reads[0].tensor, *output.tensor)) return {};
  const std::optional<TensorView> from = view_of(*row.reads[0].tensor);
  if (!from || !may_round(from->dtype, result->dtype)) return {};
  return measure_cast(*from, *result, reads_input ? samples_in(*output.tensor) : 0);
}

void Tracker::measure_loss_of_values(const Schema& schema, const Row& row, const LabelledOutput& output, const Made& made,
                                     bool reads_input) {
  const bool is_in_forward = made.phase == Phase::forward || made.phase == Phase::loss;
  if (!is_in_forward || !measures_values()) return;
  tell_measures(made, loss_of_values(schema, row, output, made, reads_input));
}

void Tracker::tell_measures(const Made& made, std::span<const ValueMeasure> measured) {
  for (const ValueMeasure& each : measured)
    check(calls_.set_measure(recorder_, made.op, made.value.slot, told(name(each.name)), each.value));
}

void Tracker::forget_cast(uint64_t storage) {
  if (cast_data_.erase(storage) > 0) adapter_.release(adapter_.context, storage);
}

void Tracker::forget_casts(const std::function<bool(uint64_t storage, const CastData& cast)>& is_gone) {
  std::erase_if(cast_data_, [&](const auto& each) {
    if (!is_gone(each.first, each.second)) return false;
    adapter_.release(adapter_.context, each.first);
    return true;
  });
}

void Tracker::keep_cast(const Tensor& tensor, CastData cast) {
  if (tensor.storage == 0) return;
  cast.data = tensor.data;
  if (cast_data_.insert_or_assign(tensor.storage, std::move(cast)).second) adapter_.retain(adapter_.context, tensor.storage);
}

void Tracker::keep_loss_of_cast(const Schema& schema, std::span<const Read> reads, std::span<const Tensor* const> results) {
  if (!cast_data_.empty())
    for (const Tensor* const result : results) forget_cast(result->storage);
  const bool copies = schema.base() == "_to_copy" || schema.base() == "clone";
  if (state_.optimizing > 0 || !copies || reads.size() != 1 || results.size() != 1) return;
  const Tensor &given = *reads[0].tensor, &result = *results[0];
  const std::optional<TensorView> to = view_of(result);
  if (!have_one_shape(given, result) || !to || !is_float(to->dtype)) return;  // rows have no integers
  // A wider type brings nothing back.
  if (const auto before = cast_data_.find(given.storage); before != cast_data_.end() && before->second.data == given.data)
    return keep_cast(result, before->second);
  // It is data of the step that comes next, or of a further micro-batch.
  if (!measures_value_loss(static_cast<uint64_t>(state_.step + 1))) return;
  const std::optional<TensorView> from = view_of(given);
  if (!from || !may_round(from->dtype, to->dtype)) return;
  keep_cast(result, {state_.step, nullptr, measure_cast(*from, *to, samples_in(result))});
}

void Tracker::tell_loss_of_cast(const Tensor& tensor, const Made& made) {
  const auto cast = cast_data_.find(tensor.storage);
  if (cast == cast_data_.end()) return;
  if (state_.step - cast->second.step <= 1 && cast->second.data == tensor.data) tell_measures(made, cast->second.measured);
  forget_cast(tensor.storage);
}

}  // namespace ulpscope::aten
