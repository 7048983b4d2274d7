// Two runs that recorded hashes of their outputs' bits: the first output of their training, in order of execution, that differs.
// It tells what is other about its op, what of that op's inputs is known to be equal, and how the difference grew in its step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/analyzers/subject/selection.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {

struct FirstDifferentOutput {
  enum class Kind : uint8_t {
    computed,   // both runs have the output, with other bits
    given,      // the same of data, or of a weight or state that the runs began with
    changed,    // the same of a weight or state that something not recorded had changed since
    only_in_a,  // a run computed it, and the other did not
    only_in_b,
  };
  enum class What : uint8_t {
    function,
    attribute,  // `name`; "" : not given, so that it has its default
    role,
    type,
    shape,
    input,   // reads another tensor
    inputs,  // reads more, or fewer: numbers
    casts,   // of what is read: "f16, f32"; "": none
    type_of_input,
    rounding,
    loss_scale,
    learning_rate,
    memory,  // of an input, `name`, had changed since it was written: "changed", or ""
  };
  // One thing that is other about the op, as each of the traces has it.
  struct Change {
    What what;
    std::string name;
    std::string a, b;
  };
  // Euclidean norms of differences, of values before they were rounded where the statistics are of these.
  struct Distance {
    double least;                 // that the statistics allow
    std::optional<double> bound;  // that rounding allows, where one is known
    double norm;                  // of the output, the larger one
    double relative() const { return norm > 0 ? least / norm : 0; }
  };
  // An output of the same step that differs, in order of execution.
  struct Grown {
    uint32_t tensor;  // of the second run
    std::optional<Distance> distance;
  };

  Kind kind = Kind::computed;
  uint64_t step = 0;
  int rank_a = 0, rank_b = 0;
  uint32_t micro_batch = 0;
  uint8_t loss_index = 0;
  size_t place = 0;  // in its step, of the second run's rows, of the rank's
  // The output in each run; where a run lacks it, the one that it computed in its place, if any.
  std::optional<uint32_t> tensor_a, tensor_b;
  std::vector<Change> changes;
  uint32_t inputs = 0, equal_inputs = 0;  // that the op reads in both runs; those of them that were equal, bit for bit
  bool inputs_are_told = true;            // false: it reads others
  bool is_behind_gap = false;             // some step before was not recorded in both
  std::optional<Distance> distance;
  std::vector<Grown> grown;  // begins with the output itself

  bool has_equal_inputs() const { return inputs_are_told && equal_inputs == inputs; }
};

struct ComparedBits {
  bool are_recorded = false;  // in both
  uint64_t outputs = 0;       // that were equal in the steps before the difference, and in its step and rank before it
  std::optional<FirstDifferentOutput> first;
};

// Compares the ranks that both have, whatever steps and tensors are asked for. Evaluation has no part in it. Casts that one of the
// runs has are no difference: what reads them is of another type, or reads through them.
ComparedBits compare_bits(const Snapshot& a, const Snapshot& b, const Selection& of_a, const Selection& of_b,
                          const AnalysisOptions& options);

}  // namespace ulpscope
