#include "ulpscope/studies/tensor_core_probe.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <tuple>
#include <utility>

#include "ulpscope/emulation/tensor_core_product.h"

namespace ulpscope {
namespace {

// Encodings as they lie in memory.
std::vector<std::byte> stored(const std::vector<uint32_t>& encodings, size_t bytes) {
  std::vector<std::byte> memory(encodings.size() * bytes);
  static_assert(std::endian::native == std::endian::little);
  for (size_t i = 0; i < encodings.size(); ++i) std::memcpy(memory.data() + i * bytes, &encodings[i], bytes);
  return memory;
}

class DeviceMemory {
 public:
  DeviceMemory(Backend& device, size_t bytes) : device_(device), bytes_(bytes), data_(device.allocate(bytes)) {}
  ~DeviceMemory() { device_.release(data_, bytes_); }
  DeviceMemory(const DeviceMemory&) = delete;
  void* data() const { return data_; }

 private:
  Backend& device_;
  size_t bytes_;
  void* data_;
};

TensorView matrix(void* data, DType dtype, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  TensorView view;
  view.data = data;
  view.dtype = dtype;
  view.rank = 2;
  view.shape = {rows, columns};
  view.strides = {row_stride, column_stride};
  return view;
}

// A product and what lies in memory of it.
class Probe {
 public:
  Probe(const ProbedFactors& factors, const ProbedProduct& product)
      : factors_(factors),
        product_(product),
        a_(stored(product.a, info(factors.dtype).size)),
        b_(stored(product.b, info(factors.dtype).size)),
        sums_(static_cast<size_t>(product.rows * product.columns)) {}

  // As FP32 encodings, row-major.
  const std::vector<uint32_t>& on(Backend& device, const Arithmetic& arithmetic) {
    const DeviceMemory a(device, a_.size()), b(device, b_.size()), sums(device, sums_.size() * sizeof(uint32_t));
    device.copy_from_host(a_.data(), a.data(), a_.size());
    device.copy_from_host(b_.data(), b.data(), b_.size());
    const auto& [rows, columns, terms] = std::tie(product_.rows, product_.columns, product_.terms);
    const TensorView inputs[] = {matrix(a.data(), factors_.dtype, rows, terms, terms, 1),
                                 matrix(b.data(), factors_.dtype, terms, columns, 1, terms)};
    const TensorView outputs[] = {matrix(sums.data(), DType::f32, rows, columns, columns, 1)};
    const Attributes attributes;
    OpCall call;
    call.op = "matmul";
    call.inputs = inputs;
    call.outputs = outputs;
    call.attributes = &attributes;
    call.arithmetic = &arithmetic;
    run(device, call);
    device.copy_to_host(sums.data(), sums_.data(), sums_.size() * sizeof(uint32_t));
    return sums_;
  }
  const std::vector<uint32_t>& predicted_by(const TensorCore& core) {
    multiply(core, {a_.data(), product_.terms}, {b_.data(), 1, product_.terms}, {}, sums_.data(), product_.rows, product_.columns,
             product_.terms);
    return sums_;
  }

 private:
  const ProbedFactors& factors_;
  const ProbedProduct& product_;
  std::vector<std::byte> a_, b_;
  std::vector<uint32_t> sums_;
};

bool adds_alike(const TensorCoreModel& a, const TensorCoreModel& b) {
  return a.products == b.products && a.fraction_bits == b.fraction_bits && a.zero_exponent == b.zero_exponent &&
         a.conversion == b.conversion && a.rounding == b.rounding;
}

ShownCount& count_of(std::vector<ShownCount>& counts, std::string_view shows) {
  for (ShownCount& count : counts)
    if (count.shows == shows) return count;
  return counts.emplace_back(ShownCount{shows});
}

class FamilyProbe {
 public:
  FamilyProbe(ProbedFamily& family, Backend& device, const Arithmetic& arithmetic)
      : family_(family), device_(device), arithmetic_(arithmetic) {}

  // The first `wanted` sums of a product of random numbers, or those of a made one.
  void compare(const ProbedProduct& product, uint64_t wanted) {
    Probe probe(*family_.factors, product);
    const std::vector<uint32_t> results = probe.on(device_, arithmetic_);
    const bool is_random = product.shows.empty();
    const auto columns = static_cast<size_t>(product.columns);
    const size_t sums = is_random ? std::min<uint64_t>(results.size(), wanted) : product.shows.size();
    const size_t step = is_random ? 1 : columns + 1;  // along the diagonal
    (is_random ? family_.random : family_.made) += sums;
    for (ProbedBehaviour& behaviour : family_.behaviours) {
      const std::vector<uint32_t>& predicted = probe.predicted_by(behaviour.core);
      for (size_t i = 0; i < sums; ++i) {
        const bool differs = results[i * step] != predicted[i * step];
        const std::string_view shows = is_random ? std::string_view() : product.shows[i];
        if (!is_random && behaviour.is_own) {
          ShownCount& count = count_of(family_.shown, shows);
          ++count.sums;
          count.differ += differs;
        }
        if (!differs) continue;
        ++(is_random ? behaviour.random_differ : behaviour.made_differ);
        if (behaviour.first) continue;
        const auto a = product.a_of(static_cast<int64_t>(i * step / columns)),
                   b = product.b_of(static_cast<int64_t>(i * step % columns));
        behaviour.first = {shows, {a.begin(), a.end()}, {b.begin(), b.end()}, results[i * step], predicted[i * step]};
      }
    }
  }

 private:
  ProbedFamily& family_;
  Backend& device_;
  const Arithmetic& arithmetic_;
};

}  // namespace

const ProbedBehaviour& ProbedFamily::own() const {
  return *std::find_if(behaviours.begin(), behaviours.end(), [](const ProbedBehaviour& each) { return each.is_own; });
}

const ProbedBehaviour& ProbedFamily::closest() const {
  return *std::min_element(behaviours.begin(), behaviours.end(), [](const ProbedBehaviour& a, const ProbedBehaviour& b) {
    const auto rank = [](const ProbedBehaviour& each) { return std::pair(each.made_differ + each.random_differ, !each.is_own); };
    return rank(a) < rank(b);
  });
}

std::vector<ProbedBehaviour> behaviours_of(const FloatFormat& factors, std::string_view gpu) {
  const auto gpus = tensor_core_gpus();
  const auto known = std::find_if(gpus.begin(), gpus.end(), [&](const TensorCoreGpu& row) { return row.name == gpu; });
  std::vector<ProbedBehaviour> behaviours;
  for (const TensorCoreModel& model : tensor_core_models()) {
    const bool takes = std::find(model.inputs.begin(), model.inputs.end(), &factors) != model.inputs.end();
    const bool is_whole = model.factors == nullptr && model.passes == 1 && !model.adds_c_last;
    if (!takes || !is_whole || model.scales != BlockScales::none || model.output != &binary32) continue;
    auto same = std::find_if(behaviours.begin(), behaviours.end(),
                             [&](const ProbedBehaviour& each) { return adds_alike(*each.core.model, model); });
    if (same == behaviours.end())
      same = behaviours.insert(same, ProbedBehaviour{.core = {&model, &factors, &factors}, .generations = {}});
    if (std::find(same->generations.begin(), same->generations.end(), model.generation) == same->generations.end())
      same->generations.push_back(model.generation);
    same->is_own |= known != gpus.end() && model.generation == known->generation && model.family == InstructionFamily::mma;
  }
  return behaviours;
}

std::vector<ProbedFamily> probe_tensor_cores(Backend& device, std::string_view gpu, uint64_t random, uint64_t seed) {
  const Arithmetic arithmetic{find_accumulation(gpu)};
  std::vector<ProbedFamily> families;
  for (const ProbedFactors& factors : probed_factors()) {
    ProbedFamily& family = families.emplace_back(ProbedFamily{&factors});
    family.behaviours = behaviours_of(*factors.format, gpu);
    family.is_missing =
        std::none_of(family.behaviours.begin(), family.behaviours.end(), [](const ProbedBehaviour& each) { return each.is_own; });
    if (family.is_missing) {
      family.behaviours.clear();
      continue;
    }
    FamilyProbe probe(family, device, arithmetic);
    for (const ProbedProduct& product : made_products(factors)) probe.compare(product, 0);
    for (uint64_t index = 0; family.random < random; ++index)
      probe.compare(random_product(factors, seed, index), random - family.random);
  }
  return families;
}

}  // namespace ulpscope
