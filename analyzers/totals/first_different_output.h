// Two runs that recorded hashes of their outputs' bits: the first output, in order of execution, that differs, while all that its
// op read was equal. What is other about the op itself, and how the difference grew from there in its step.
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
    given,      // the same of a source: data, a weight or a state that a run began with
    only_in_a,  // a run computed it, and the other did not
    only_in_b,
  };
  enum class What : uint8_t { function, attribute, type, shape, input, type_of_input, rounding, loss_scale, learning_rate, memory };
  // What is other about the op, as each of the traces has it.
  struct Change {
    What what;
    std::string name;  // of an attribute; of an input its number; of memory that changed behind a run's back what it holds; or ""
    std::string a, b;  // of memory: "changed" where it did, or ""
  };
  // Euclidean norms of differences.
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
  int rank = 0;  // of the second run
  uint32_t micro_batch = 0;
  uint8_t loss_index = 0;
  // Of each run: the output; where a run lacks it, what that run computed in its place, if anything.
  std::optional<uint32_t> tensor_a, tensor_b;
  std::vector<Change> changes;
  uint32_t inputs = 0;          // that the op reads
  uint32_t unknown_inputs = 0;  // those of them of which no bits are known
  bool inputs_are_told = true;  // false: it reads others
  std::optional<Distance> distance;
  std::vector<Grown> grown;  // begins with the output itself
};

struct ComparedBits {
  bool are_recorded = false;  // in both
  uint64_t steps = 0;         // in which bits were compared, up to the difference
  uint64_t outputs = 0;       // that were equal till then
  std::optional<FirstDifferentOutput> first;
};

// Of the ranks that both have. Casts that one of the runs has are no difference: what reads them is of another type.
ComparedBits compare_bits(const Snapshot& a, const Snapshot& b, const Selection& of_a, const Selection& of_b, StepRange steps);

}  // namespace ulpscope
