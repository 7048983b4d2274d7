// A row in which NaN or Inf began, with what its op is, what was captured of it, and what its inputs held.
#pragma once

#include <cstdint>
#include <optional>

#include "ulpscope/analyzers/judgements/nonfinite_flow.h"
#include "ulpscope/analyzers/subject/capture_tree.h"

namespace ulpscope {

class RunFacts;

// One of a tensor, where it was recorded.
// The op's name without the underscore of ops in place, as PyTorch has them.
std::string_view plain_name(const OpInfo& op);
std::optional<TensorRow> row_at(const RunFacts& facts, uint32_t tensor, const RowPosition& position);

class OriginFacts {
 public:
  // Both outlive it.
  OriginFacts(const RunFacts& run, const NonfiniteOrigin& row);

  const RunFacts& facts;
  const NonfiniteOrigin& origin;
  const OpInfo& op;
  const TensorInfo& made;
  std::optional<CaptureTree> capture;  // of the first element that was captured in that step

  const FloatFormat& format() const;
  // From which magnitude on the op's result is Inf in its type.
  double limit() const;
  // The op's; of a gradient that of the op whose result it is of.
  OpFunction function() const;
  // A tensor of which there were rows and that is that output of an op, or that the origin's reads as that input.
  std::optional<uint32_t> recorded(uint32_t op, uint32_t slot) const;
  std::optional<uint32_t> read_as(uint32_t input) const;
  std::optional<TensorRow> row() const { return row_at(facts, origin.tensor, origin.position); }
  // The last row of a tensor before the origin's, of its step or the one before.
  std::optional<TensorRow> last_row(uint32_t tensor) const;
  bool was_finite(uint32_t tensor) const;  // up to the step of the origin
  // Where no op of the step before the origin's was recorded, the first of such steps in a row.
  std::optional<uint64_t> unrecorded_from() const;
  // Whether the op reads what was made in a step before the origin's, as a weight.
  bool reads_step_before() const;
};

}  // namespace ulpscope
