#include "ulpscope/core/observe/shadow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ulpscope/base/clock.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/kernels/output_rounding.h"
#include "ulpscope/trace/measure_names.h"

namespace ulpscope {

namespace {

bool is_narrow_float(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
// A product in FP32 whose sums are kept in 16 bits.
bool has_narrow_sums(const OpCall& call, size_t slot) {
  return slot == 0 && call.outputs[0].dtype == DType::f32 && call.arithmetic != nullptr &&
         call.arithmetic->accumulation->narrow != nullptr && is_product(call.op);
}
// An output in 16 bits, or of sums in 16 bits, that is rounded to nearest: what another rounding makes of it is no error, and is
// told elsewhere.
bool is_looked_at(const OpCall& call, size_t slot) {
  const TensorView& output = call.outputs[slot];
  if (!(is_narrow_float(output.dtype) || has_narrow_sums(call, slot)) || output.data == nullptr) return false;
  if (std::any_of(call.inputs.begin(), call.inputs.end(),
                  [&](const TensorView& input) { return flushes_input(call, input.dtype); }))
    return false;
  const Rounding rounding = output_rounding(call, static_cast<int>(slot), output.dtype);
  return rounding.mode == RoundingMode::nearest_even && rounding.subnormals == SubnormalResults::keep &&
         !flushes_narrow_products(call);
}
bool has_quantized(std::span<const TensorView> views) {
  return std::any_of(views.begin(), views.end(), [](const TensorView& view) { return is_quantized(view.dtype); });
}

// Sums of squares over the elements that are finite in all three: as stored, wide, and wide rounded once.
struct Errors {
  double signal = 0, injected = 0, floor = 0;
};

// The errors of `size` elements: `stored` ones, and the `wide` ones `rounded`, all in one order.
template <typename Number>
Errors errors_of(const Number* stored, const Number* wide, const Number* rounded, int64_t size) {
  // Each lane has sums of its own, so that one addition does not wait for another.
  constexpr int64_t kLanes = 8;
  constexpr Number kMost = std::numeric_limits<Number>::max();
  double signal[kLanes] = {}, injected[kLanes] = {}, floor[kLanes] = {};
  const auto add = [&](int64_t i, int64_t lane) {
    const double value = wide[i], off = static_cast<double>(stored[i]) - value, least = static_cast<double>(rounded[i]) - value;
    // Not && and ||: without branches the lanes are vectors.
    const bool are_finite = (std::abs(stored[i]) <= kMost) & (std::abs(wide[i]) <= kMost) & (std::abs(rounded[i]) <= kMost);
    signal[lane] += are_finite ? value * value : 0;
    injected[lane] += are_finite ? off * off : 0;
    floor[lane] += are_finite ? least * least : 0;
  };
  int64_t begin = 0;
  for (; begin + kLanes <= size; begin += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) add(begin + lane, lane);
  for (int64_t i = begin; i < size; ++i) add(i, i - begin);
  Errors errors;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    errors.signal += signal[lane];
    errors.injected += injected[lane];
    errors.floor += floor[lane];
  }
  return errors;
}

}  // namespace

const char* name_of(ShadowType type) {
  static constexpr const char* kNames[] = {"fp32", "fp64"};
  return kNames[static_cast<size_t>(type)];
}

struct ShadowObserver::Memory {
  Memory(Backend& of, size_t bytes) : backend(of), size(bytes), data(of.allocate(bytes)) {}
  ~Memory() { backend.release(data, size); }
  Memory(const Memory&) = delete;
  Backend& backend;
  const size_t size;
  void* const data;
};

ShadowListener recorded_shadow(Recorder& recorder) {
  return {[&recorder](const ShadowedOutput& output) {
            const ValueKey value{output.event.id, static_cast<uint32_t>(output.slot)};
            if (!(output.signal > 0)) return;
            recorder.add_measure(value, kInjectedError, std::sqrt(output.injected / output.signal));
            recorder.add_measure(value, kRoundingFloor, std::sqrt(output.floor / output.signal));
          },
          [&recorder](std::string_view note) { recorder.add_note(note); }};
}

ShadowObserver::ShadowObserver(ShadowListener listener, const ShadowSettings& settings, const CpuOptions& cpu, uint64_t steps)
    : listener_(std::move(listener)),
      settings_(settings),
      type_(settings.type == ShadowType::fp64 ? DType::f64 : DType::f32),
      backend_(make_cpu_backend(cpu)) {
  // The first, the last, and others as far apart as their numbers are large.
  for (int i = 0; i < kSteps && steps > 0; ++i)
    steps_.insert(static_cast<uint64_t>(std::llround(std::pow(static_cast<double>(steps), i / (kSteps - 1.0)))) - 1);
}
ShadowObserver::~ShadowObserver() = default;

void ShadowObserver::begin_step(uint64_t step) {
  seconds_ = 0;
  is_on_ = settings_.every > 0 ? step % static_cast<uint64_t>(settings_.every) == 0 : steps_.contains(step);
}

bool ShadowObserver::is_wanted(const OpEvent& event) const {
  const bool is_of_training = event.phase == Phase::forward || event.phase == Phase::loss || event.phase == Phase::backward;
  const std::vector<std::string>& ops = settings_.ops;
  const auto matches = [&](const std::string& pattern) { return glob_match(pattern, event.op.name); };
  if (!is_on_ || !is_of_training || (!ops.empty() && std::none_of(ops.begin(), ops.end(), matches))) return false;
  if (has_quantized(event.call.inputs) || has_quantized(event.call.outputs) || refused_.contains(event.op.name)) return false;
  for (size_t slot = 0; slot < event.call.outputs.size(); ++slot)
    if (is_looked_at(event.call, slot)) return true;
  return false;
}

TensorView ShadowObserver::made(const TensorView& view) {
  const TensorView dense = is_dense(view) ? view : contiguous(view);
  return like(dense, is_narrower(view.dtype) ? type_ : view.dtype);
}

TensorView ShadowObserver::like(TensorView view, DType dtype) {
  view.dtype = dtype;
  if (view.data == nullptr) return view;
  const auto bytes = static_cast<size_t>(view.size()) * info(dtype).size;
  view.data = taken_.emplace_back(std::make_unique<Memory>(*backend_, bytes))->data;
  return view;
}

bool ShadowObserver::is_narrower(DType dtype) const { return is_float(dtype) && info(dtype).size < info(type_).size; }

void ShadowObserver::copy(std::string_view op, const TensorView& from, const TensorView& to) {
  const Attributes none;
  OpCall call;
  call.op = op;
  call.inputs = {&from, 1};
  call.outputs = {&to, 1};
  call.attributes = &none;
  run(*backend_, call);
}

TensorView ShadowObserver::widened(const TensorView& view) {
  if (view.data == nullptr || !is_narrower(view.dtype)) return view;
  TensorView wide = made(view);
  copy("cast", view, wide);
  return wide;
}

void ShadowObserver::refuse(const OpEvent& event, const char* why) {
  wide_.clear();
  if (refused_.emplace(event.op.name).second)
    listener_.note(fmt::format("Op `{}` could not be computed again in {}: {}.", event.op.name, name_of(settings_.type), why));
}

// Whatever happens here, training goes on.
void ShadowObserver::before(const OpEvent& event, std::span<OutputRecord* const> /*records*/) {
  wide_.clear();
  taken_.clear();
  if (!is_wanted(event)) return;
  const auto start = Clock::now();
  try {
    compute(event);
  } catch (const std::exception& error) {
    refuse(event, error.what());
  }
  seconds_ += seconds_since(start);
}

void ShadowObserver::after(const OpEvent& event) {
  if (wide_.empty()) return;
  const auto start = Clock::now();
  try {
    compare(event);
  } catch (const std::exception& error) {
    refuse(event, error.what());
  }
  wide_.clear();
  taken_.clear();
  seconds_ += seconds_since(start);
}

void ShadowObserver::compute(const OpEvent& event) {
  std::vector<TensorView> inputs;
  for (const TensorView& input : event.call.inputs) inputs.push_back(widened(input));
  for (const TensorView& output : event.call.outputs) {
    // An op in place writes over what it reads: the shadow over a copy of that.
    const auto same = std::find_if(event.call.inputs.begin(), event.call.inputs.end(),
                                   [&](const TensorView& input) { return input.data == output.data && output.data != nullptr; });
    if (same == event.call.inputs.end()) {
      wide_.push_back(made(output));
      continue;
    }
    TensorView& read = inputs[static_cast<size_t>(same - event.call.inputs.begin())];
    if (read.data == same->data) {
      const TensorView mine = made(*same);
      copy("copy", *same, mine);
      read = mine;
    }
    wide_.push_back(read);
  }
  OpCall call = event.call;
  call.inputs = inputs;
  call.outputs = wide_;
  call.records = {};
  call.input_fingerprints = {};
  call.arithmetic = nullptr;
  run(*backend_, call);
}

void ShadowObserver::compare(const OpEvent& event) {
  for (size_t slot = 0; slot < wide_.size(); ++slot) {
    const TensorView& output = event.call.outputs[slot];
    if (!is_looked_at(event.call, slot)) continue;
    // Both in the layout of the wide result, whatever theirs is.
    const TensorView wide = wide_[slot], stored = like(wide, type_), narrow = like(wide, output.dtype), rounded = like(wide, type_);
    copy("cast", output, stored);
    copy("cast", wide, narrow);
    copy("cast", narrow, rounded);
    const int64_t size = wide.size();
    const Errors errors = type_ == DType::f64 ? errors_of(stored.as<double>(), wide.as<double>(), rounded.as<double>(), size)
                                              : errors_of(stored.as<float>(), wide.as<float>(), rounded.as<float>(), size);
    listener_.output({event, slot, stored, wide, rounded, errors.signal, errors.injected, errors.floor});
  }
}

}  // namespace ulpscope
