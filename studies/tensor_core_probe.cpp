#include "ulpscope/studies/tensor_core_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <tuple>
#include <utility>

#include "ulpscope/emulation/rounding.h"
#include "ulpscope/emulation/tensor_core_product.h"

namespace ulpscope {
namespace {

// Random sums that rows are compared with which are not the GPU's own, beside those that are not what that predicts.
constexpr uint64_t kRandomOfOthers = 100000;

// Encodings as they lie in memory, of 1, 2 or 4 bytes each, and back.
std::vector<std::byte> stored(const std::vector<uint32_t>& encodings, DType dtype) {
  const size_t bytes = info(dtype).size;
  std::vector<std::byte> memory(encodings.size() * bytes);
  static_assert(std::endian::native == std::endian::little);
  for (size_t i = 0; i < encodings.size(); ++i) std::memcpy(memory.data() + i * bytes, &encodings[i], bytes);
  return memory;
}
uint32_t encoding_at(const std::vector<std::byte>& memory, DType dtype, size_t i) {
  uint32_t encoding = 0;
  std::memcpy(&encoding, memory.data() + i * info(dtype).size, info(dtype).size);
  return encoding;
}

// A product as it lies in memory, by the device and by rows of the table.
class StoredProduct {
 public:
  StoredProduct(const MatrixInstruction& instruction, const ProbedProduct& product)
      : instruction_(instruction),
        product_(product),
        a_(stored(product.a, instruction.a)),
        b_(stored(product.b, instruction.b)),
        c_(stored(product.c, instruction.sums)) {}

  std::vector<std::byte> on(MatrixInstructions& device) const {
    std::vector<std::byte> sums(c_.size());
    device.multiply(instruction_, {a_.data(), b_.data(), c_.data(), sums.data(), product_.rows, product_.columns, product_.terms});
    return sums;
  }
  std::vector<std::byte> predicted_by(const TensorCore& core) const {
    std::vector<std::byte> sums(c_.size());
    multiply(core, {a_.data(), product_.terms}, {b_.data(), 1, product_.terms}, {c_.data(), product_.columns}, sums.data(),
             product_.rows, product_.columns, product_.terms);
    return sums;
  }

 private:
  const MatrixInstruction& instruction_;
  const ProbedProduct& product_;
  std::vector<std::byte> a_, b_, c_;
};

std::string row_name(const TensorCoreModel& model) {
  if (model.family == InstructionFamily::mma) return std::string(model.generation);
  return fmt::format("{} {}", model.generation, name_of(model.family));
}

ShownCount& count_of(std::vector<ShownCount>& counts, std::string_view shows) {
  for (ShownCount& count : counts)
    if (count.shows == shows) return count;
  return counts.emplace_back(ShownCount{shows});
}

// Of the instructions of the GPU's rows those of types that device code has, families one after the other.
std::vector<MatrixInstruction> instructions_of(std::string_view gpu) {
  std::vector<MatrixInstruction> instructions;
  for (const InstructionFamily family : {InstructionFamily::mma, InstructionFamily::wgmma, InstructionFamily::tcgen05})
    for (const auto& [a, b, sums] : kProductTypes)
      if (const MatrixInstruction each{family, a, b, sums}; tensor_core_of(gpu, each)) instructions.push_back(each);
  return instructions;
}

class InstructionProbe {
 public:
  InstructionProbe(ProbedInstruction& probed, MatrixInstructions& device, const ProbeObserver& observer)
      : probed_(probed), device_(device), observer_(observer) {}

  // The first `wanted` sums of a product of random numbers, or those of a made one, along the diagonal.
  void compare(const ProbedProduct& product, uint64_t wanted) {
    const StoredProduct stored(probed_.instruction, product);
    const std::vector<std::byte> results = stored.on(device_);
    const bool is_random = product.shows.empty();
    const auto columns = static_cast<size_t>(product.columns), all = static_cast<size_t>(product.rows) * columns;
    const size_t sums = is_random ? std::min<uint64_t>(all, wanted) : product.shows.size();
    const size_t step = is_random ? 1 : columns + 1;
    if (observer_.sum) {
      for (size_t i = 0; i < sums; ++i) {
        const auto place = i * step, row = place / columns, column = place % columns;
        observer_.sum(probed_.instruction, {is_random ? std::string_view() : product.shows[i],
                                            product.a_of(static_cast<int64_t>(row)), product.b_of(static_cast<int64_t>(column)),
                                            product.c[place], encoding_at(results, probed_.instruction.sums, place)});
      }
    }
    // The GPU's own row first: where that is not the one, all of them are asked.
    bool own_differs = false;
    for (const bool is_own : {true, false}) {
      for (ProbedBehaviour& behaviour : probed_.behaviours) {
        if (behaviour.is_own != is_own || (is_random && !is_own && !own_differs && behaviour.random >= kRandomOfOthers)) continue;
        if (is_random) behaviour.random += sums;
        const std::vector<std::byte> predicted = stored.predicted_by(behaviour.core);
        for (size_t i = 0; i < sums; ++i) {
          const std::string_view shows = is_random ? std::string_view() : product.shows[i];
          const bool differs = compare_sum(behaviour, product, i * step, shows, results, predicted);
          own_differs |= is_own && differs;
        }
      }
    }
    (is_random ? probed_.random : probed_.made) += sums;
  }

 private:
  // True iff the sum is another than the row predicts.
  bool compare_sum(ProbedBehaviour& behaviour, const ProbedProduct& product, size_t place, std::string_view shows,
                   const std::vector<std::byte>& results, const std::vector<std::byte>& predictions) {
    const DType dtype = probed_.instruction.sums;
    const uint32_t result = encoding_at(results, dtype, place), predicted = encoding_at(predictions, dtype, place);
    const bool differs = result != predicted, is_random = product.shows.empty();
    if (!is_random && behaviour.is_own) {
      ShownCount& count = count_of(probed_.shown, shows);
      ++count.sums;
      count.differ += differs;
    }
    if (!differs) return false;
    ++(is_random ? behaviour.random_differ : behaviour.made_differ);
    if (behaviour.first) return true;
    const auto row = static_cast<int64_t>(place) / product.columns, column = static_cast<int64_t>(place) % product.columns;
    const auto a = product.a_of(row), b = product.b_of(column);
    behaviour.first = {shows, {a.begin(), a.end()}, {b.begin(), b.end()}, product.c[place], result, predicted};
    return true;
  }

  ProbedInstruction& probed_;
  MatrixInstructions& device_;
  const ProbeObserver& observer_;
};

}  // namespace

std::string conversion_of(const TensorCoreModel& model) {
  return fmt::format("{}-{}", name_of(model.rounding), model.conversion->name);
}

std::vector<std::string> differences_of(const TensorCoreModel& model, const TensorCoreModel& other) {
  std::vector<std::string> differences;
  const auto add = [&](std::string_view what, const auto& value, const auto& of_other) {
    if (value != of_other) differences.push_back(fmt::format("{} {} instead of {}", what, value, of_other));
  };
  const auto factors = [](const TensorCoreModel& each) {
    return each.factors == nullptr ? std::string_view("their own format") : each.factors->name;
  };
  const auto order = [](const TensorCoreModel& each) { return std::string_view(each.adds_c_last ? "last" : "with the products"); };
  add("factors in", factors(model), factors(other));
  add("products", model.products, other.products);
  add("passes", model.passes, other.passes);
  add("fraction bits", model.fraction_bits, other.fraction_bits);
  add("zero exponent", model.zero_exponent, other.zero_exponent);
  add("results by", conversion_of(model), conversion_of(other));
  add("c added", order(model), order(other));
  return differences;
}

const ProbedBehaviour& ProbedInstruction::own() const {
  return *std::find_if(behaviours.begin(), behaviours.end(), [](const ProbedBehaviour& each) { return each.is_own; });
}

const ProbedBehaviour& ProbedInstruction::closest() const {
  // All rows were asked for the made sums, but not for the same random ones.
  const auto rank = [](const ProbedBehaviour& each) {
    const auto sums = static_cast<double>(std::max<uint64_t>(each.random, 1));
    return std::tuple(each.made_differ, static_cast<double>(each.random_differ) / sums, !each.is_own);
  };
  return *std::min_element(behaviours.begin(), behaviours.end(),
                           [&](const ProbedBehaviour& a, const ProbedBehaviour& b) { return rank(a) < rank(b); });
}

std::vector<ProbedBehaviour> behaviours_of(const MatrixInstruction& instruction, std::string_view gpu) {
  const FloatFormat &a = factor_format(instruction.a), &b = factor_format(instruction.b);
  const std::optional<TensorCore> own = tensor_core_of(gpu, instruction);
  std::vector<ProbedBehaviour> behaviours;
  for (const TensorCoreModel& model : tensor_core_models()) {
    if (model.scales != BlockScales::none || model.output != info(instruction.sums).format || !model.takes(a, b)) continue;
    auto same = std::find_if(behaviours.begin(), behaviours.end(),
                             [&](const ProbedBehaviour& each) { return differences_of(*each.core.model, model).empty(); });
    if (same == behaviours.end()) same = behaviours.insert(same, ProbedBehaviour{.core = {&model, &a, &b}, .rows = {}});
    same->rows.push_back(row_name(model));
    same->is_own |= own && own->model == &model;
  }
  return behaviours;
}

std::vector<ProbedInstruction> probe_tensor_cores(MatrixInstructions& device, std::string_view gpu, uint64_t random, uint64_t seed,
                                                  const ProbeObserver& observer) {
  const std::vector<MatrixInstruction> all = device.all(), asked = instructions_of(gpu);
  std::vector<ProbedInstruction> probed;
  for (const MatrixInstruction& instruction : asked) {
    const auto tell = [&, before = probed.size()](double share) {
      if (observer.progress) observer.progress((static_cast<double>(before) + share) / static_cast<double>(asked.size()));
    };
    tell(0);
    ProbedInstruction& each = probed.emplace_back(ProbedInstruction{instruction});
    each.is_missing = std::find(all.begin(), all.end(), instruction) == all.end();
    if (each.is_missing) continue;
    each.behaviours = behaviours_of(instruction, gpu);
    InstructionProbe probe(each, device, observer);
    for (const ProbedProduct& product : made_products(instruction)) probe.compare(product, 0);
    for (uint64_t index = 0; each.random < random; ++index) {
      probe.compare(random_product(instruction, seed, index), random - each.random);
      tell(static_cast<double>(each.random) / static_cast<double>(random));
    }
  }
  return probed;
}

}  // namespace ulpscope
