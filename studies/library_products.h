// Which products of a training step the library of a device gives the bits of the device's own matrix units: those of one chain of
// their instructions, which the table of emulation/tensor_core.h predicts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/core/data/dataset.h"
#include "ulpscope/core/run/experiment.h"
#include "ulpscope/kernels/backend.h"
#include "ulpscope/studies/tensor_core_report.h"

namespace ulpscope {

// Matrix products and convolutions of a step that are alike: of one op with equal attributes and arithmetic, whose tensors have
// equal types, shapes, strides, and places within kPlaceBytes.
struct StepProduct {
  std::string_view op;
  std::vector<TensorView> inputs, outputs;  // of addresses that nothing is behind
  Attributes attributes;
  Arithmetic arithmetic;
  uint64_t calls = 0;  // in the step
};
inline constexpr uintptr_t kPlaceBytes = 256;

// In the order of first use, of the experiment's first step. Nothing is computed. Throws Error (usage) where the device does not
// compute one of the step's ops.
std::vector<StepProduct> products_of_step(const Experiment& experiment, const Backend& device);

// Elements of two tensors.
struct BitDifference {
  uint64_t elements = 0;
  uint64_t differ = 0;        // whose encodings do, but for those of two NaN
  uint64_t largest_ulps = 0;  // between two of these that are no NaN: so many numbers of the type further
};
// Of floating-point tensors that both lie as `view` says.
BitDifference difference_between(const TensorView& view, const std::byte* a, const std::byte* b);

struct ComparedProduct {
  int64_t batches = 0, rows = 0, columns = 0, terms = 0;
  // Nothing: not predicted.
  std::optional<BitDifference> sums;    // as FP32 numbers
  std::optional<BitDifference> stored;  // in the type that the step stores them in
  std::vector<std::string> algorithms;  // of the library, different ones

  bool differs() const { return sums && sums->differ > 0; }
};
// Runs the product on random factors in [-1, 1), the same for equal `seed`, without a bias: once with sums of the library and once,
// where these can be predicted, with those of the matrix units of `gpu`. Factors in FP8 are not predicted, nor those in
// FP32, which matrix units multiply as TF32, nor those that they do not take.
ComparedProduct compare_product(Backend& device, std::string_view gpu, const StepProduct& product, uint64_t seed);

// `limit`: rows, 0: all.
Report describe_products(const DescribedDevice& device, const Experiment& experiment, std::span<const StepProduct> products,
                         std::span<const ComparedProduct> compared, size_t limit);

}  // namespace ulpscope
