// A call of an op as data: its shapes, layouts and ranges of values, from which inputs are made in any type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/kernels/backend.h"

namespace ulpscope::cases {

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

// The outputs of a run of a case, and what was recorded of it.
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
// A case in one type, with its inputs.
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

}  // namespace ulpscope::cases
