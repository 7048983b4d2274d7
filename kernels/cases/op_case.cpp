#include "ulpscope/kernels/cases/op_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/plain/plain.h"

namespace ulpscope::cases {
namespace {

double read(const TensorView& view, int64_t index) { return read_element(view, index); }

void write(const TensorView& view, int64_t index, double value) {
  const int64_t at = offset_of(view, index);
  switch (view.dtype) {
    case DType::f64:
      view.as<double>()[at] = value;
      break;
    case DType::f32:
      view.as<float>()[at] = static_cast<float>(value);
      break;
    case DType::f16:
      view.as<uint16_t>()[at] = round_to_f16(value);
      break;
    case DType::bf16:
      view.as<uint16_t>()[at] = round_to_bf16(value);
      break;
    case DType::f8_e4m3:
    case DType::f8_e5m2:
      view.as<uint8_t>()[at] =
          static_cast<uint8_t>(round_to_encoding(*info(view.dtype).format, value, {.overflow = Overflow::saturate}));
      break;
    case DType::i64:
      view.as<int64_t>()[at] = static_cast<int64_t>(value);
      break;
    case DType::i32:
      view.as<int32_t>()[at] = static_cast<int32_t>(value);
      break;
    case DType::u8:
    case DType::boolean:
      view.as<uint8_t>()[at] = static_cast<uint8_t>(value);
      break;
  }
}

// Strides for dimensions listed from the slowest to the fastest.
void lay_out(TensorView& view, const std::vector<int>& order, int64_t stride) {
  for (auto i = order.rbegin(); i != order.rend(); ++i) {
    view.strides[*i] = stride;
    stride *= view.shape[*i];
  }
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("{}", fmt::join(shape, "x")); }

}  // namespace

std::string Case::name() const {
  std::string text = op;
  for (const TensorSpec& input : inputs) text += fmt::format(" {}/{}", shape_text(input.shape), static_cast<int>(input.lay));
  return text;
}

HostTensor::HostTensor(const std::vector<int64_t>& shape, DType dtype, Lay lay) {
  view_.dtype = dtype;
  view_.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), view_.shape.begin());
  std::vector<int> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  if (lay == Lay::channels_last && shape.size() == 4) order = {0, 2, 3, 1};
  if (lay == Lay::transposed) std::reverse(order.begin(), order.end());
  lay_out(view_, order, lay == Lay::strided ? 2 : 1);
  if (lay == Lay::broadcast && !shape.empty()) view_.strides[0] = 0;
  bytes_.resize(static_cast<size_t>(std::max<int64_t>(1, view_.size())) * 2 * info(dtype).size);
  view_.data = bytes_.data();
}

double HostTensor::get(int64_t index) const { return read(view_, index); }
void HostTensor::set(int64_t index, double value) { write(view_, index, value); }

HostTensor HostTensor::copy() const {
  HostTensor other = *this;
  other.view_.data = other.bytes_.data();
  return other;
}

HostTensor HostTensor::as(DType dtype) const {
  HostTensor other;
  other.view_ = view_;
  other.view_.dtype = dtype;
  other.bytes_.resize(bytes_.size() / info(view_.dtype).size * info(dtype).size);
  other.view_.data = other.bytes_.data();
  for (int64_t i = 0; i < view_.size(); ++i) other.set(i, get(i));
  return other;
}

Instance::Instance(const Case& what, DType dtype, uint64_t seed) : case_(what), dtype_(dtype) {
  uint64_t stream = 0;
  for (const TensorSpec& spec : what.inputs) {
    HostTensor tensor(spec.shape, spec.dtype.value_or(dtype), spec.lay);
    const Philox random(seed, ++stream);
    for (int64_t i = 0; i < tensor.view().size(); ++i) {
      const auto at = static_cast<uint64_t>(i);
      double value = spec.low + (spec.high - spec.low) * random.uniform(at);
      if (spec.integers > 0) value = random.below(at, static_cast<uint32_t>(spec.integers));
      tensor.set(i, spec.values.empty() ? value : spec.values[at]);
    }
    inputs_.push_back(tensor.copy());
  }
}

CaseCall::CaseCall(const Case& what, const std::vector<HostTensor>& inputs, DType dtype, StatisticsLevel level) : case_(what) {
  for (const HostTensor& input : inputs) inputs_.push_back(input.copy());
  for (HostTensor& input : inputs_) input_views_.push_back(input.view());
  for (const OutputSpec& spec : what.outputs) {
    const DType wanted = spec.dtype.value_or(dtype);
    result_.outputs.emplace_back(spec.shape, wanted == DType::f32 && dtype == DType::f64 ? DType::f64 : wanted, spec.lay);
  }
  for (size_t i = 0; i < what.outputs.size(); ++i) {
    const OutputSpec& spec = what.outputs[i];
    output_views_.push_back(spec.in_place_of >= 0 ? input_views_[static_cast<size_t>(spec.in_place_of)]
                                                  : result_.outputs[i].view());
    if (spec.record_only) output_views_.back().data = nullptr;
  }
  for (const auto& item : what.attributes) attributes_.set(item.name, item.value);
  result_.records.resize(what.outputs.size());
  for (OutputRecord& record : result_.records) {
    record.wanted = level;
    record.scale = 1024;
    record.fingerprint.wanted = record.bits.wanted = true;
    records_.push_back(&record);
  }
  result_.input_fingerprints.resize(what.inputs.size());
  for (Fingerprint& fingerprint : result_.input_fingerprints) {
    fingerprint.wanted = true;
    input_fingerprints_.push_back(&fingerprint);
  }
  call_ = {what.op, input_views_, output_views_, &attributes_, {}};
  if (level == StatisticsLevel::none) return;
  call_.records = records_;
  call_.input_fingerprints = input_fingerprints_;
}

Result CaseCall::result() const {
  Result result;
  result.records = result_.records;
  result.input_fingerprints = result_.input_fingerprints;
  for (size_t i = 0; i < case_.outputs.size(); ++i) {
    const int input = case_.outputs[i].in_place_of;
    result.outputs.push_back((input >= 0 ? inputs_[static_cast<size_t>(input)] : result_.outputs[i]).copy());
  }
  return result;
}

Result Instance::run(Backend& backend, StatisticsLevel level) const {
  const CaseCall prepared = prepare(level);
  ulpscope::run(backend, prepared.call());
  return prepared.result();
}

Result Instance::run_plain(StatisticsLevel level) const {
  const CaseCall prepared = prepare(level);
  ulpscope::run_plain(prepared.call());
  return prepared.result();
}

Result Instance::in_double(double (*change)(double)) const {
  std::vector<HostTensor> inputs;
  for (const HostTensor& input : inputs_) {
    inputs.push_back(is_float(input.view().dtype) ? input.as(DType::f64) : input.copy());
    if (!is_float(input.view().dtype)) continue;
    for (int64_t i = 0; i < input.view().size(); ++i) inputs.back().set(i, change(input.get(i)));
  }
  const CaseCall prepared(case_, inputs, DType::f64, StatisticsLevel::none);
  ulpscope::run_plain(prepared.call());
  return prepared.result();
}

Result Instance::run_exact() const {
  return in_double([](double x) { return x; });
}
Result Instance::run_magnitudes() const {
  return in_double([](double x) { return std::fabs(x); });
}

}  // namespace ulpscope::cases
