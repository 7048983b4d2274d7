// Which tensors the ops of a trace make and which they read, by index.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "ulpscope/trace/snapshot.h"

namespace ulpscope {

class TensorGraph {
 public:
  explicit TensorGraph(const Snapshot& trace);

  // The tensors that an op makes, by slot: several are one output where its type or the op's arithmetic changed between runs that
  // are read as one.
  std::span<const uint32_t> made_by(uint32_t op) const;
  std::span<const uint32_t> made_by(uint32_t op, uint32_t slot) const;
  // What the op reads as that input, in the first graph in which it does; nullptr where no graph has the edge.
  const GraphEdge* read_by(uint32_t op, uint32_t input) const;
  // The tensors that it is, as made_by has those of an output; none where no graph has the edge.
  std::span<const uint32_t> tensors_read_by(uint32_t op, uint32_t input) const;
  // The forward op whose result a gradient is of, past the casts that autocast added; nullptr where the trace does not say.
  const OpInfo* served_by(const OpInfo& backward) const;

 private:
  Snapshot trace_;
  std::vector<uint32_t> made_;  // by op and slot
  std::unordered_map<uint64_t, uint32_t> by_id_;
};

}  // namespace ulpscope
