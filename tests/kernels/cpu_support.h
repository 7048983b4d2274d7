// Shared by the tests of backends: calls as data, run by the backend and by the plain twins, and compared.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/kernels/cases/op_case.h"

namespace ulpscope::testing_support {

using namespace cases;

// The sum of the bit patterns of all elements, one after another; those that a stride of 0 repeats once.
uint64_t sum_of_bits(const TensorView& view);

// A dense tensor of n elements of arbitrary bits, `shift` elements into its memory.
struct ArbitraryBits {
  ArbitraryBits(DType dtype, int64_t n, int64_t shift = 0);
  std::vector<char> bytes;
  TensorView view;
};

// Runs a call with this arithmetic. Of stochastic rounding it has these numbers.
inline constexpr uint64_t kCallSeed = 5, kCallStream = 77;
Result run(const CaseCall& prepared, Backend& backend, const Arithmetic& how, uint64_t stream = kCallStream);

// One after the other all rounding modes and policies for subnormals.
Arithmetic nth_rounding(size_t n);

// Bit for bit, but that any NaN equals any NaN.
void expect_same(const HostTensor& actual, const HostTensor& expected, const std::string& what);
void expect_same_record(const OutputRecord& actual, const OutputRecord& expected, const std::string& what);
// |actual - exact| within the bound of the call (bounds.h), whose inputs are as they were before it, for every element of the
// output, or of large products for some.
void expect_within_bound(const HostTensor& actual, const OpCall& call, int slot, int64_t terms, const std::string& what);
// True iff `error` is at most `bound`: so a NaN is not.
bool within(double error, double bound);
// NaN, +Inf and -Inf at the same elements.
void expect_same_pattern(const HostTensor& actual, const HostTensor& expected, const std::string& what);

// Runs a case and compares outputs, records and fingerprints with those of its plain twin.
void expect_twin(const Case& what, DType dtype, Backend& backend, const std::string& where);
// The same patterns of NaN and Inf, with NaN, +Inf and -Inf in one element at a time of each floating-point input: in the first
// `first`, and in every `step`-th after them.
void expect_specials_of_twin(const std::vector<Case>& cases, DType dtype, Backend& backend, const std::string& where, int64_t first,
                             int64_t step);

// What the tests of ops run in.
inline constexpr DType kFloats[] = {DType::f32, DType::f16, DType::bf16};

// The instruction sets that this CPU has, as CpuOptions names them, the widest first: oneDNN keeps the first that a process names,
// and with narrow ones its convolutions multiply padding (docs/ops.md).
std::vector<std::string> instruction_sets();

}  // namespace ulpscope::testing_support
