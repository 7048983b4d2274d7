#include "ulpscope/recorder/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "ulpscope/base/error.h"
#include "ulpscope/base/parse_number.h"
#include "ulpscope/recorder/level_control.h"

namespace ulpscope {

namespace {

// A parameter's gradient, however far on its way. Others may hold infinities that nothing reads.
bool is_of_parameter(Role role) { return is_gradient(role) && role != Role::activation_gradient; }
bool is_kept(Role role) {
  return role == Role::weight || role == Role::master_weight || role == Role::optimizer_state || role == Role::update;
}

const char* what_is(Role role) {
  if (is_gradient(role)) return "gradient";
  return role == Role::optimizer_state ? "optimizer state" : role == Role::update ? "update" : "weight";
}

const char* name_of_nonfinite(double value) { return std::isnan(value) ? "NaN" : value > 0 ? "Inf" : "-Inf"; }

std::string steps_text(uint64_t first, uint64_t last) {
  return first == last ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, last);
}

}  // namespace

Triggers triggers_of(std::span<const std::string> texts) {
  Triggers triggers;
  for (const std::string& text : texts) {
    const size_t colon = text.find(':');
    const std::string_view name = std::string_view(text).substr(0, colon);
    std::string_view number = colon == std::string::npos ? std::string_view() : std::string_view(text).substr(colon + 1);
    if (name == "nan" && colon == std::string::npos) {
      triggers.nan = true;
      continue;
    }
    if (name == "skips") {
      const auto skips = parse_number<int64_t>(number);
      if (skips && *skips >= 1) {
        triggers.skips = *skips;
        continue;
      }
    }
    if (name == "grad_norm" && number.ends_with('x')) {
      number.remove_suffix(1);
      const auto times = parse_number<double>(number);
      if (times && *times > 1 && std::isfinite(*times)) {
        triggers.gradient_norm = *times;
        continue;
      }
    }
    throw usage_error("'{}' is nothing that makes it write; expected nan, skips:N as skips:8, or grad_norm:Nx as grad_norm:10x",
                      text);
  }
  return triggers;
}

uint32_t FlightRecorder::add_tensor(const TensorInfo& tensor) {
  const uint32_t index = trace_.add_tensor(tensor);
  if (index >= tensors_.size()) tensors_.resize(size_t{index} + 1);
  tensors_[index] = {tensor.role, tensor.dtype, tensor.parameter};
  return index;
}

template <typename Row>
void FlightRecorder::hold(const Row& row) {
  if (failed_) return;
  try {
    current_.rows.add(row);
  } catch (const std::bad_alloc&) {
    failed_ = true;
    held_.clear();
    current_ = {};
  }
}

void FlightRecorder::add_row(const TensorRow& row) {
  hold(row);
  if (row.tensor >= tensors_.size() || !(weight_.empty() || gradient_.empty())) return;
  const Tensor& tensor = tensors_[row.tensor];
  if (stored_nonfinite(row, tensor.dtype) == 0) return;
  std::string* const found = is_kept(tensor.role) ? &weight_ : is_of_parameter(tensor.role) ? &gradient_ : nullptr;
  if (found == nullptr || !found->empty()) return;
  *found = fmt::format("NaN or Inf in the {}{}", what_is(tensor.role),
                       tensor.parameter.empty() ? "" : fmt::format(" of {}", tensor.parameter));
}

void FlightRecorder::trigger(std::string_view why) {
  if (asked_for_.empty()) asked_for_ = why.empty() ? "it was asked for" : why;
}

std::string FlightRecorder::happened(const StepRow& row) {
  const Triggers& on = options_.triggers;
  skipped_ = row.skipped ? skipped_ + 1 : 0;
  std::string what;
  if (on.nan) {
    if (row.loss_known && !std::isfinite(row.loss))
      what = fmt::format("the loss is {}", name_of_nonfinite(row.loss));
    else if (!weight_.empty())
      what = weight_;
    else if (!row.skipped && !gradient_.empty())
      what = gradient_;
    else if (!row.skipped && row.norm_known && !std::isfinite(row.gradient_norm))
      what = fmt::format("the gradient norm is {}", name_of_nonfinite(row.gradient_norm));
  }
  if (what.empty() && on.skips > 0 && skipped_ >= on.skips) what = fmt::format("{} steps in a row were skipped", skipped_);
  if (on.gradient_norm > 0 && row.norm_known && std::isfinite(row.gradient_norm) && !row.skipped) {
    if (what.empty() && norms_.size() >= kLeastNorms) {
      std::vector<double> sorted(norms_.begin(), norms_.end());
      const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
      std::nth_element(sorted.begin(), middle, sorted.end());
      if (row.gradient_norm > on.gradient_norm * *middle)
        what = fmt::format("the gradient norm is {:.3g}, more than {:g} times {:.3g}, the median of the steps before",
                           row.gradient_norm, on.gradient_norm, *middle);
    }
    norms_.push_back(row.gradient_norm);
    if (norms_.size() > kMostNorms) norms_.pop_front();
  }
  return what;
}

void FlightRecorder::end_step(const StepRow& row) {
  if (failed_) return;
  const std::string what = happened(row);
  const bool was_armed = clean_ >= kCleanSteps;
  clean_ = what.empty() ? clean_ + 1 : 0;
  std::string why = std::exchange(asked_for_, "");
  if (why.empty() && was_armed && following_ == 0) why = what;
  weight_.clear();
  gradient_.clear();
  current_.row = row;
  const size_t bytes = current_.rows.bytes();
  held_.push_back(std::exchange(current_, {}));
  current_.rows.reserve(bytes + bytes / 8);
  while (held_.size() > options_.keep_last) leave_first();
  const bool is_first = std::exchange(is_first_, false);
  if (!why.empty()) {
    write(why);
    following_ = options_.after;
  } else if (following_ > 0 || is_first) {
    if (following_ > 0) --following_;
    write("");
  }
}

// Steps that do not fit within the size limit are written without their rows, the oldest first.
void FlightRecorder::drop_what_does_not_fit() {
  if (options_.max_bytes == 0) return;
  const auto empty = static_cast<double>(empty_trace_bytes());
  const double most = empty + LevelControl::kRowsShare * (static_cast<double>(options_.max_bytes) - empty);
  const auto fits = [&] {
    MoreRows rows;
    for (const Step& step : held_) rows += step.rows.rows();
    return static_cast<double>(trace_.closed_bytes(rows)) <= most;
  };
  if (fits() || !trace_.flush()) return;
  while (!held_.empty() && !fits()) leave_first();
}

void FlightRecorder::write(std::string_view why) {
  const uint64_t step = held_.back().row.step;
  const size_t count = held_.size();
  drop_what_does_not_fit();
  if (!why.empty()) {
    std::string text = fmt::format("step {}: {}: ", step, why);
    if (held_.empty())
      text += "no rows of tensors could be kept within the size limit";
    else
      text += fmt::format("rows of tensors were kept of {}", steps_text(held_.front().row.step, step));
    if (!held_.empty() && held_.size() < count) text += ", as far as they are within the size limit";
    EventRow event;
    event.step = step;
    event.kind = EventKind::note;
    event.text = std::move(text);
    // Events are in the order of steps, too.
    if (held_.empty())
      trace_.add_event(event);
    else
      held_.back().events.push_back(event);
  }
  for (; !held_.empty(); held_.pop_front()) write_step(held_.front(), true);
  // The trigger may end the process, and a queue that is full would lower the level of the steps behind.
  if (!why.empty()) trace_.flush();
}

void FlightRecorder::leave_first() {
  write_step(held_.front(), false);
  held_.pop_front();
}

void FlightRecorder::write_step(const Step& step, bool with_rows) {
  for (const EventRow& event : step.events) trace_.add_event(event);
  StepRow row = step.row;
  if (with_rows)
    step.rows.write(trace_);
  else
    row.level = RecordLevel::off;
  trace_.end_step(row);
}

void FlightRecorder::finish() {
  if (std::exchange(is_finished_, true) || failed_) return;
  const std::string why = std::exchange(asked_for_, "");
  if (!why.empty() && !held_.empty()) write(why);
  while (!held_.empty()) leave_first();
  // Events of a step that did not end are kept.
  for (const EventRow& event : current_.events) trace_.add_event(event);
  current_ = {};
}

size_t FlightRecorder::held_bytes() const {
  size_t bytes = current_.rows.bytes();
  for (const Step& step : held_) bytes += step.rows.bytes();
  return bytes;
}

SinkStatus FlightRecorder::status() const {
  SinkStatus status = trace_.status();
  if (failed_ && !status.failed) {
    status.failed = true;
    status.failure = "recording stopped: out of memory for the steps that are held";
  }
  return status;
}

}  // namespace ulpscope
