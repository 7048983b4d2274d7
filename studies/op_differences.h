// How far apart the ops of two runs of the same steps are, value by value: the runs take each step in turn.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "ulpscope/core/engine/observer.h"

namespace ulpscope {

// Of an output, with the loss scales that it contains taken out. Differences are Euclidean norms, as shares of the larger one of
// what is compared.
struct OpDifference {
  std::string op, module;
  std::string output;  // what it is: "weight_gradient of head.weight"
  Phase phase = Phase::forward;
  uint32_t micro_batch = 0;
  int slot = 0;
  DType original_type = DType::f32, type = DType::f32;
  double first = 0, largest = 0;  // in the first step that both have it, and in any
  uint64_t largest_step = 0;
  uint64_t nonfinite_in_one = 0;  // elements, of all steps
  bool has_other_shape = false;   // in some step, in which it was not compared

  // The largest one, in units of half a last place of 1 in the narrower type of the two.
  double in_roundings() const;
};

class OpDifferences {
 public:
  // So much of the original's outputs is kept of a step; what comes then is not compared.
  static constexpr size_t kMostBytes = size_t{2} << 30;

  // Told of each output that was compared, and how far apart it is in the step: during the changed run's op.
  std::function<void(const ValueKey& output, double difference)> tell;

  // They watch the two runs, of which the original takes each step first.
  Observer& original() { return original_; }
  Observer& changed() { return changed_; }
  void begin_step(uint64_t step);

  // In the order of execution; what only one run has, as the casts of autocast, is not among them.
  std::vector<OpDifference> found() const { return found_; }
  bool is_complete() const { return is_complete_; }  // false: kMostBytes were reached

 private:
  using Key = std::tuple<uint64_t, uint32_t, int>;  // id, micro-batch, slot
  struct Kept {
    DType type = DType::f32;
    std::vector<int64_t> shape;
    double scale = 1;
    std::vector<float> values;
    std::vector<double> wide;  // of FP64, instead
  };
  class Original : public Observer {
   public:
    explicit Original(OpDifferences& all) : all_(all) {}
    void after(const OpEvent& event) override;

   private:
    OpDifferences& all_;
  };
  class Changed : public Observer {
   public:
    explicit Changed(OpDifferences& all) : all_(all) {}
    void after(const OpEvent& event) override;

   private:
    OpDifferences& all_;
  };
  // Gives how far apart they are.
  static double compare(const Kept& kept, const std::vector<double>& values, double scale, OpDifference& difference);

  Original original_{*this};
  Changed changed_{*this};
  uint64_t step_ = 0;
  std::map<Key, Kept> kept_;  // of the step
  size_t kept_bytes_ = 0;
  std::map<Key, size_t> places_;  // in found_
  std::vector<OpDifference> found_;
  bool is_complete_ = true;
};

}  // namespace ulpscope
