// The tensors of a trace that the options ask for, and how they and their rows are named.
#pragma once

#include <compare>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "ulpscope/analyzers/subject/analysis.h"
#include "ulpscope/analyzers/subject/tensor_names.h"

namespace ulpscope {

// An output of an op: what a tensor is, whatever its type and its op's arithmetic, which may change between runs that are read as
// one. The same in every trace of an experiment.
struct OutputId {
  uint64_t op = 0;  // the op's id
  uint32_t slot = 0;
  auto operator<=>(const OutputId&) const = default;  // NOLINT(modernize-use-nullptr): of Clang 14's own making
};

// Where a row stands, in order of execution: of several ranks each has its sequence in a step, and those that run the same ops
// agree.
struct RowPosition {
  RowPosition() = default;
  // Whoever names a step names a rank: its rows are others than those of the next one.
  constexpr RowPosition(uint64_t of_step, int of_rank, uint32_t at = 0, uint32_t of_micro_batch = 0, uint8_t of_loss = 0)
      : step(of_step), sequence(at), rank(of_rank), micro_batch(of_micro_batch), loss_index(of_loss) {}

  uint64_t step = 0;
  uint32_t sequence = 0;
  int rank = 0;
  uint32_t micro_batch = 0;
  uint8_t loss_index = 0;
  auto operator<=>(const RowPosition&) const = default;  // NOLINT(modernize-use-nullptr): of Clang 14's own making
};
// Of a step the rows of one rank after those of another.
inline bool comes_first_by_rank(const RowPosition& left, const RowPosition& right) {
  return std::tie(left.step, left.rank, left) < std::tie(right.step, right.rank, right);
}
inline RowPosition position_of(const TensorRow& row, int rank) {
  return {row.step, rank, row.sequence, row.micro_batch, row.loss_index};
}

class Selection {
 public:
  // Throws Error (unreadable) where the tables of the trace do not fit together.
  Selection(const Snapshot& reader, const AnalysisOptions& options);

  bool contains(const TensorRow& row) const { return contains(row.tensor); }
  size_t size() const { return selected_.size(); }
  bool contains(uint32_t tensor) const;  // throws Error (unreadable) for an index that the trace does not have
  const TensorInfo& tensor(uint32_t index) const { return tensors_[index]; }
  const OpInfo& op(uint32_t tensor) const { return ops_[tensors_[tensor].op]; }
  // The line of the user's program that called the op, or the forward op that a backward op belongs to; empty: not known.
  const std::string& location(uint32_t tensor) const;
  OutputId output(uint32_t tensor) const { return {op(tensor).id, tensors_[tensor].slot}; }
  size_t count_outputs(std::span<const uint32_t> tensors) const;  // that the tensors are
  // Weights, the loss, and what is kept for scaling and the optimizer: neither activations nor gradients as they were computed.
  bool is_bookkeeping(uint32_t tensor) const;

  RowKey key(uint32_t tensor) const;
  RowKey key(uint32_t tensor, const RowPosition& position) const;
  RowKey key(uint32_t tensor, uint64_t step, int rank) const;  // of all its rows there
  RowKey key_of_step(uint64_t step, int rank) const;
  // As tensor_names.h has them; all are made when the first is asked for.
  const std::string& name(uint32_t tensor) const { return names()[tensor].tensor; }
  // Of a weight, as its producer calls the parameter; name() where it is none.
  const std::string& parameter_name(uint32_t index) const {
    const std::string& parameter = tensor(index).parameter;
    return parameter.empty() ? name(index) : parameter;
  }
  bool name_tells_phase(uint32_t tensor) const { return names()[tensor].tells_phase; }
  // Of all tensors that are this output of its op, whatever their types and arithmetic.
  const std::string& output_name(uint32_t tensor) const { return names()[tensor].output; }

 private:
  struct PartRun {
    int rank;
    StepRange steps;
    std::string id;
  };
  const std::vector<TensorName>& names() const;
  RowKey at(RowKey key, uint64_t step, int rank) const;

  const Snapshot reader_;
  const std::vector<OpInfo>& ops_;
  const std::vector<TensorInfo>& tensors_;
  std::vector<PartRun> runs_;
  std::optional<int32_t> only_rank_;
  std::vector<bool> selected_;
  std::unordered_map<uint64_t, uint32_t> located_;  // ops that have a line, by id
  mutable std::once_flag named_;
  mutable std::vector<TensorName> names_;
};

// A name matches by itself or inside what it names: "features" has "features.0" in it.
bool module_matches(const std::string& pattern, std::string_view module);

}  // namespace ulpscope
