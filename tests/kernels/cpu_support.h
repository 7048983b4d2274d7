// Shared by the tests of backends: calls as data, run by the backend and by the plain twins, and compared.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/kernels/backend.h"

namespace ulpscope::testing_support {

// The sum of the bit patterns of all elements, one after another; those that a stride of 0 repeats once.
uint64_t sum_of_bits(const TensorView& view);

// A dense tensor of n elements of arbitrary bits, `shift` elements into its memory.
struct ArbitraryBits {
  ArbitraryBits(DType dtype, int64_t n, int64_t shift = 0);
  std::vector<char> bytes;
  TensorView view;
};

// How a tensor lies in memory. `strided` leaves a gap after every element, `transposed` has the first dimension fastest,
// `broadcast` repeats one element along the first dimension.
enum class Lay { contiguous, channels_last, strided, transposed, broadcast };

struct TensorSpec {
  std::vector<int64_t> shape;
  Lay lay = Lay::contiguous;
  // Nothing: the case's type. FP32 parameters and integer targets name theirs; f32 becomes f64 where the case runs in FP64.
  std::optional<DType> dtype = {};
  int64_t integers = 0;             // values 0, ..., integers - 1 where the type is an integer
  double low = -1, high = 1;        // uniform values otherwise
  std::vector<double> values = {};  // where there are some, these
};

struct OutputSpec {
  std::vector<int64_t> shape;
  Lay lay = Lay::contiguous;
  std::optional<DType> dtype = {};
  int in_place_of = -1;      // an input
  bool record_only = false;  // no memory
};

// One op call with its shapes.
struct Case {
  std::string op;
  std::vector<TensorSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::vector<Attributes::Item> attributes = {};
  int64_t terms = 0;  // 0: the backend's bits are those of the plain twin. Else products of so many terms, compared with a bound
  std::string name() const;
};

class HostTensor {
 public:
  HostTensor(const std::vector<int64_t>& shape, DType dtype, Lay lay);
  TensorView view() const { return view_; }
  double get(int64_t index) const;
  void set(int64_t index, double value);  // rounds to the type
  HostTensor copy() const;
  HostTensor as(DType dtype) const;  // the same values in another floating-point type

 private:
  HostTensor() = default;
  std::vector<char> bytes_;
  TensorView view_;
};

// A case in one type: its inputs, and what a run of it gave.
struct Result {
  std::vector<HostTensor> outputs;
  std::vector<OutputRecord> records;
  std::vector<Fingerprint> input_fingerprints;
};
// The call of a case, with memory of its own, to be run as often as is wanted.
class CaseCall {
 public:
  CaseCall(const Case& what, const std::vector<HostTensor>& inputs, DType dtype, StatisticsLevel level);
  CaseCall(const CaseCall&) = delete;
  const OpCall& call() const { return call_; }
  Result result() const;

 private:
  const Case& case_;
  std::vector<HostTensor> inputs_;
  Result result_;
  std::vector<TensorView> input_views_, output_views_;
  std::vector<OutputRecord*> records_;
  std::vector<Fingerprint*> input_fingerprints_;
  Attributes attributes_;
  OpCall call_;
};
class Instance {
 public:
  Instance(const Case& what, DType dtype, uint64_t seed = 1);
  std::vector<HostTensor>& inputs() { return inputs_; }
  const Case& what() const { return case_; }
  DType dtype() const { return dtype_; }

  CaseCall prepare(StatisticsLevel level = StatisticsLevel::none) const { return {case_, inputs_, dtype_, level}; }
  Result run(Backend& backend, StatisticsLevel level = StatisticsLevel::none) const;
  Result run_plain(StatisticsLevel level = StatisticsLevel::none) const;
  // The outputs in FP64, of the inputs or of their magnitudes.
  Result run_exact() const;
  Result run_magnitudes() const;

 private:
  Result in_double(double (*change)(double)) const;

  Case case_;
  DType dtype_;
  std::vector<HostTensor> inputs_;
};

// Runs a call with this arithmetic. Of stochastic rounding it has these numbers.
inline constexpr uint64_t kCallSeed = 5, kCallStream = 77;
Result run(const CaseCall& prepared, Backend& backend, const Arithmetic& how, uint64_t stream = kCallStream);

// One after the other all rounding modes and policies for subnormals.
Arithmetic nth_rounding(size_t n);

// Bit for bit, but that any NaN equals any NaN.
void expect_same(const HostTensor& actual, const HostTensor& expected, const std::string& what);
void expect_same_record(const OutputRecord& actual, const OutputRecord& expected, const std::string& what);
// |actual - exact| <= gamma_k(2^-24) * magnitude + half an ulp of the output's format at the result, for every element.
void expect_within_bound(const HostTensor& actual, const HostTensor& exact, const HostTensor& magnitude, int64_t terms,
                         const std::string& what);
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
