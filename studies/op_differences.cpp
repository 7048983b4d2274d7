#include "ulpscope/studies/op_differences.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ulpscope/core/engine/context.h"

namespace ulpscope {

namespace {

// Calls visit(slot, tensor) for each output that is computed, and may be rounded. What comes from the data or begins the backward
// pass is not.
template <typename Visit>
void for_each_value(const OpEvent& event, Visit&& visit) {
  if (event.phase == Phase::evaluation || event.phase == Phase::recompute || event.phase == Phase::data || event.op.name == "fill")
    return;
  for (size_t i = 0; i < event.outputs.size(); ++i) {
    const Tensor& output = event.outputs[i];
    if (is_float(output.dtype()) && event.call.outputs[i].data != nullptr) visit(static_cast<int>(i), output);
  }
}

}  // namespace

double OpDifference::in_roundings() const {
  const int digits = std::min(info(original_type).format->fraction_bits, info(type).format->fraction_bits);
  return std::ldexp(largest, digits + 1);
}

void OpDifferences::begin_step(uint64_t step) {
  step_ = step;
  kept_.clear();
  kept_bytes_ = 0;
}

void OpDifferences::Original::after(const OpEvent& event) {
  for_each_value(event, [&](int slot, const Tensor& output) {
    const bool is_wide = output.dtype() == DType::f64;
    all_.kept_bytes_ += static_cast<size_t>(output.size()) * (is_wide ? sizeof(double) : sizeof(float));
    all_.is_complete_ = all_.is_complete_ && all_.kept_bytes_ <= kMostBytes;
    if (all_.kept_bytes_ > kMostBytes) return;
    std::vector<double> values = to_host(output);
    Kept& kept = all_.kept_[{event.id, event.micro_batch, slot}];
    kept = {output.dtype(), {output.shape().begin(), output.shape().end()}, output.body()->loss_scale, {}, {}};
    if (is_wide) {
      kept.wide = std::move(values);
    } else {
      kept.values.assign(values.begin(), values.end());
    }
  });
}

void OpDifferences::Changed::after(const OpEvent& event) {
  for_each_value(event, [&](int slot, const Tensor& output) {
    const Key key{event.id, event.micro_batch, slot};
    const auto kept = all_.kept_.find(key);
    if (kept == all_.kept_.end()) return;
    const auto [place, is_new] = all_.places_.emplace(key, all_.found_.size());
    if (is_new) {
      OpDifference& made = all_.found_.emplace_back();
      made.op = event.op.name;
      made.module = event.module;
      const OutputLabel& label = event.labels[static_cast<size_t>(slot)];
      made.output = name_of(label.role);
      if (label.parameter != nullptr) made.output += " of " + *label.parameter;
      made.phase = event.phase;
      made.micro_batch = event.micro_batch;
      made.slot = slot;
      made.original_type = kept->second.type;
      made.type = output.dtype();
    }
    OpDifference& difference = all_.found_[place->second];
    if (!std::equal(kept->second.shape.begin(), kept->second.shape.end(), output.shape().begin(), output.shape().end())) {
      difference.has_other_shape = true;
      return;
    }
    const double apart = compare(kept->second, to_host(output), output.body()->loss_scale, difference);
    if (is_new) difference.first = apart;
    if (is_new || apart > difference.largest) difference.largest_step = all_.step_;
    difference.largest = std::max(difference.largest, apart);
    if (all_.tell) all_.tell({event.id, static_cast<uint32_t>(slot)}, apart);
  });
}

double OpDifferences::compare(const Kept& kept, const std::vector<double>& values, double scale, OpDifference& difference) {
  const auto pair_at = [&](size_t i) {
    return std::pair((kept.wide.empty() ? static_cast<double>(kept.values[i]) : kept.wide[i]) / kept.scale, values[i] / scale);
  };
  const auto is_finite = [](const std::pair<double, double>& pair) {
    return std::isfinite(pair.first) && std::isfinite(pair.second);
  };
  double most = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto pair = pair_at(i);
    if (is_finite(pair)) {
      most = std::max({most, std::abs(pair.first), std::abs(pair.second)});
    } else {
      difference.nonfinite_in_one += std::isfinite(pair.first) != std::isfinite(pair.second);
    }
  }
  if (most == 0) return 0;
  // All magnitudes are 2 at most then, so that no square overflows, and what underflows is nothing beside the largest.
  const int exponent = -std::max(std::ilogb(most), -1022);
  double apart = 0, original = 0, changed = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto pair = pair_at(i);
    if (!is_finite(pair)) continue;
    const double a = std::ldexp(pair.first, exponent), b = std::ldexp(pair.second, exponent);
    apart += (a - b) * (a - b);
    original += a * a;
    changed += b * b;
  }
  return std::sqrt(apart / std::max(original, changed));
}

}  // namespace ulpscope
