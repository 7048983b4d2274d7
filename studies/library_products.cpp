#include "ulpscope/studies/library_products.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>

#include "ulpscope/base/error.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/forwarding_backend.h"
#include "ulpscope/kernels/product_arithmetic.h"
#include "ulpscope/kernels/product_factors.h"

namespace ulpscope {
namespace {

uintptr_t place_of(const TensorView& view) { return reinterpret_cast<uintptr_t>(view.data) % kPlaceBytes; }

// Equal for products that are alike.
std::string key_of(const OpCall& call, const Arithmetic& arithmetic) {
  std::string key{call.op};
  for (const auto& views : {call.inputs, call.outputs}) {
    for (const TensorView& view : views) {
      const auto rank = static_cast<size_t>(view.rank);
      key +=
          fmt::format("; {} {} of {} at {}", info(view.dtype).name, fmt::join(view.strides.data(), view.strides.data() + rank, " "),
                      fmt::join(view.shape.data(), view.shape.data() + rank, " "), place_of(view));
    }
  }
  for (const Attributes::Item& item : call.attributes->items()) key += fmt::format("; {} {}", item.name, item.value);
  return key + fmt::format("; {} {} {} {}", arithmetic.accumulation->name, static_cast<int>(arithmetic.rounding),
                           name_of(arithmetic.subnormals), arithmetic.tf32);
}

// A plan that notes the products that it is asked for.
class NotingBackend final : public ForwardingBackend {
 public:
  NotingBackend(std::unique_ptr<Backend> plan, std::vector<StepProduct>& products)
      : ForwardingBackend(std::move(plan)), products_(products) {}

  void submit(const OpCall& call) override {
    ForwardingBackend::submit(call);
    if (!is_product(call.op) || call.outputs[0].size() == 0) return;
    const Arithmetic arithmetic = call.arithmetic == nullptr ? Arithmetic{} : *call.arithmetic;
    const auto [known, is_new] = places_.emplace(key_of(call, arithmetic), products_.size());
    if (is_new) {
      products_.push_back({call.op,
                           {call.inputs.begin(), call.inputs.end()},
                           {call.outputs.begin(), call.outputs.end()},
                           *call.attributes,
                           arithmetic,
                           0});
    }
    ++products_[known->second].calls;
  }

 private:
  std::vector<StepProduct>& products_;
  std::unordered_map<std::string, size_t> places_;
};

// A tensor of a device that lies as a view says, at such a place.
class PlacedTensor {
 public:
  PlacedTensor(Backend& device, const TensorView& view) : device_(device), view_(view), bytes_(bytes_of(view)) {
    memory_ = device.allocate(bytes_ + kPlaceBytes);
    view_.data = static_cast<std::byte*>(memory_) + place_of(view);
  }
  PlacedTensor(const PlacedTensor&) = delete;
  ~PlacedTensor() { device_.release(memory_, bytes_ + kPlaceBytes); }

  const TensorView& view() const { return view_; }
  void set(const std::vector<std::byte>& values) { device_.copy_from_host(values.data(), view_.data, bytes_); }
  std::vector<std::byte> values() const {
    std::vector<std::byte> copy(bytes_);
    device_.copy_to_host(view_.data, copy.data(), bytes_);
    return copy;
  }
  static size_t bytes_of(const TensorView& view) { return static_cast<size_t>(span_of(view)) * info(view.dtype).size; }

 private:
  Backend& device_;
  TensorView view_;
  size_t bytes_;
  void* memory_ = nullptr;
};

std::vector<std::byte> random_values(const TensorView& view, const Philox& random) {
  std::vector<std::byte> values(PlacedTensor::bytes_of(view));
  const size_t size = info(view.dtype).size;
  for (size_t i = 0; i * size < values.size(); ++i) {
    const uint64_t encoding = round_to_encoding(*info(view.dtype).format, 2 * random.uniform(i) - 1);
    std::memcpy(&values[i * size], &encoding, size);
  }
  return values;
}

// A product whose factors lie on a device.
class ProductOnDevice {
 public:
  ProductOnDevice(Backend& device, const StepProduct& product, uint64_t seed) : device_(device), product_(product) {
    for (size_t i = 0; i < product.inputs.size(); ++i) {
      PlacedTensor& input = *inputs_.emplace_back(std::make_unique<PlacedTensor>(device, product.inputs[i]));
      const bool is_factor = i < 2;
      input.set(is_factor ? random_values(input.view(), Philox(seed, i))
                          : std::vector<std::byte>(PlacedTensor::bytes_of(input.view())));
    }
  }

  // What comes of it in the type `stored`, as the product's output lies.
  std::vector<std::byte> run(const Accumulation& accumulation, DType stored) {
    std::vector<TensorView> inputs, outputs;
    for (const auto& input : inputs_) inputs.push_back(input->view());
    std::vector<std::unique_ptr<PlacedTensor>> results;
    for (TensorView view : product_.outputs) {
      if (outputs.empty()) view.dtype = stored;
      outputs.push_back(view);
      if (view.data != nullptr) outputs.back() = results.emplace_back(std::make_unique<PlacedTensor>(device_, view))->view();
    }
    Arithmetic arithmetic = product_.arithmetic;
    arithmetic.accumulation = &accumulation;
    OpCall call{product_.op, inputs, outputs, &product_.attributes, {}};
    call.arithmetic = &arithmetic;
    ulpscope::run(device_, call);
    return results.front()->values();
  }

 private:
  Backend& device_;
  const StepProduct& product_;
  std::vector<std::unique_ptr<PlacedTensor>> inputs_;
};

OpCall call_of(const StepProduct& product, const Arithmetic& arithmetic) {
  OpCall call{product.op, product.inputs, product.outputs, &product.attributes, {}};
  call.arithmetic = &arithmetic;
  return call;
}

bool is_predicted(const StepProduct& product, const Accumulation& of_gpu) {
  Arithmetic arithmetic = product.arithmetic;
  arithmetic.accumulation = &of_gpu;
  const auto accumulated = accumulated_product(call_of(product, arithmetic));
  return accumulated && accumulated->factors[0] != DType::f32 && !is_quantized(accumulated->factors[0]);
}

// A place among the numbers of a format with a sign bit, zeros being one.
int64_t place_in_order(const FloatFormat& format, uint64_t encoding) {
  const uint64_t sign = uint64_t{1} << (format.storage_bits() - 1);
  const auto magnitude = static_cast<int64_t>(encoding & (sign - 1));
  return (encoding & sign) != 0 ? -magnitude : magnitude;
}

bool is_nan(const FloatFormat& format, uint64_t encoding) { return std::isnan(value_of(format, encoding)); }

const char* verdict_of(const ComparedProduct& compared) {
  if (!compared.sums) return "not predicted";
  return compared.differs() ? "differs" : "equal";
}

}  // namespace

std::vector<StepProduct> products_of_step(const Experiment& experiment, const Backend& device) {
  std::vector<StepProduct> products;
  Experiment step = experiment;
  step.recording.level = RecordLevel::off;
  step.training.evaluation = Evaluation::never;
  TrainerOptions options;
  options.make_backend = [&] { return std::make_unique<NotingBackend>(device.plan(), products); };
  Trainer(step, options).step();
  return products;
}

BitDifference difference_between(const TensorView& view, const std::byte* a, const std::byte* b) {
  const FloatFormat& format = *info(view.dtype).format;
  const size_t size = info(view.dtype).size;
  const bool in_order = is_dense(view);
  BitDifference difference{static_cast<uint64_t>(view.size())};
  for (int64_t i = 0; i < view.size(); ++i) {
    const size_t offset = static_cast<size_t>(in_order ? i : offset_of(view, i)) * size;
    uint64_t of_a = 0, of_b = 0;
    std::memcpy(&of_a, a + offset, size);
    std::memcpy(&of_b, b + offset, size);
    if (of_a == of_b) continue;
    const bool a_is_nan = is_nan(format, of_a), b_is_nan = is_nan(format, of_b);
    if (a_is_nan && b_is_nan) continue;
    ++difference.differ;
    if (a_is_nan || b_is_nan) continue;
    const int64_t ulps = place_in_order(format, of_a) - place_in_order(format, of_b);
    difference.largest_ulps = std::max(difference.largest_ulps, static_cast<uint64_t>(ulps < 0 ? -ulps : ulps));
  }
  return difference;
}

ComparedProduct compare_product(Backend& device, std::string_view gpu, const StepProduct& product, uint64_t seed) {
  const ProductFactors factors = product_factors(call_of(product, product.arithmetic));
  ComparedProduct compared{factors.batches, factors.rows, factors.columns, factors.terms, {}, {}, {}};
  const Accumulation &of_library = accumulations()[0], &of_gpu = *find_accumulation(gpu);
  ProductOnDevice on_device(device, product, seed);

  std::unordered_map<std::string, uint64_t> calls_before;
  for (const LibraryProduct& each : device.library_products()) calls_before[each.product] = each.calls;
  TensorView output = product.outputs[0];
  const DType stored = output.dtype;
  const std::vector<std::byte> by_library = on_device.run(of_library, stored);
  for (const LibraryProduct& each : device.library_products()) {
    auto& algorithms = compared.algorithms;
    const bool is_used = each.calls > calls_before[each.product];
    if (is_used && std::find(algorithms.begin(), algorithms.end(), each.algorithm) == algorithms.end())
      algorithms.push_back(each.algorithm);
  }
  if (!is_predicted(product, of_gpu)) return compared;

  const auto beside_gpu = [&](const std::vector<std::byte>& of_the_library) {
    return difference_between(output, of_the_library.data(), on_device.run(of_gpu, output.dtype).data());
  };
  compared.stored = beside_gpu(by_library);
  if (stored == DType::f32) {
    compared.sums = compared.stored;
  } else {
    output.dtype = DType::f32;
    compared.sums = beside_gpu(on_device.run(of_library, DType::f32));
  }
  return compared;
}

Report describe_products(const DescribedDevice& device, const Experiment& experiment, std::span<const StepProduct> products,
                         std::span<const ComparedProduct> compared, size_t limit) {
  uint64_t calls = 0, predicted = 0, differing = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    calls += products[i].calls;
    predicted += compared[i].sums.has_value();
    differing += compared[i].differs();
  }
  Report report;
  report.analysis = "gpu";
  report.title = fmt::format("Products of a step of {} in {} on {}", experiment.name, name_of(experiment.precision), device.name);
  report.add_fact("device", device.name);
  report.add_fact("description", device.description);
  report.add_fact("gpu", device.gpu);
  report.add_fact("experiment", experiment.name);
  report.add_fact("precision", std::string(name_of(experiment.precision)));
  report.add_fact("calls", count_cell(calls), Unit::count);
  report.add_fact("different_products", count_cell(products.size()), Unit::count);
  report.add_fact("predicted", count_cell(predicted), Unit::count);
  report.add_fact("equal", count_cell(predicted - differing), Unit::count);
  report.add_fact("differ", count_cell(differing), Unit::count);

  Table table{
      "products",
      fmt::format("Sums of the library beside those of the matrix units of {}", device.gpu),
      {{"op", ColumnKind::text},
       {"factors", ColumnKind::text},
       {"output", ColumnKind::text},
       {"batches", ColumnKind::number, Unit::count},
       {"rows"},
       {"columns"},
       {"terms"},
       {"calls", ColumnKind::number, Unit::count},
       {"bits", ColumnKind::text},
       {"sums", ColumnKind::number, Unit::count},
       {"differ", ColumnKind::number, Unit::count},
       {"ulps", ColumnKind::number, Unit::count},
       {"stored_differ", ColumnKind::number, Unit::count},
       {"algorithm", ColumnKind::text}},
      {},
      0,
      "Of random factors in [-1, 1). differ: sums whose FP32 bits are not those of a chain of the matrix units' "
      "instructions, by ulps at most. A library is free in its order, so this is no error: it added these terms in another "
      "order, by another instruction or with other roundings, and what accumulate = \"fp32\" gives is then not predicted. "
      "stored_differ: outputs in their own type. Not predicted are FP8 factors, FP32 factors, which the library multiplies as they "
      "are and matrix units as TF32, and those that they do not take."};
  for (size_t i = 0; i < products.size(); ++i) {
    if (limit > 0 && table.rows.size() == limit) {
      ++table.rows_left_out;
      continue;
    }
    const StepProduct& product = products[i];
    const ComparedProduct& result = compared[i];
    const std::array<DType, 2> factors = factor_types(call_of(product, product.arithmetic));
    const auto name = [](DType dtype) { return std::string(info(dtype).name); };
    const auto cell = [](const std::optional<BitDifference>& difference, uint64_t BitDifference::*count) {
      return difference ? count_cell(*difference.*count) : Cell(NotApplicable{});
    };
    table.rows.push_back(
        {{},
         {std::string(product.op), factors[0] == factors[1] ? name(factors[0]) : name(factors[0]) + ", " + name(factors[1]),
          name(product.outputs[0].dtype), result.batches, result.rows, result.columns, result.terms, count_cell(product.calls),
          verdict_of(result), cell(result.sums, &BitDifference::elements), cell(result.sums, &BitDifference::differ),
          cell(result.sums, &BitDifference::largest_ulps), cell(result.stored, &BitDifference::differ),
          text_or_none(fmt::format("{}", fmt::join(result.algorithms, "; ")))}});
  }
  report.tables.push_back(std::move(table));
  return report;
}

}  // namespace ulpscope
