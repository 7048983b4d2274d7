// Which op and tensor of the trace a described op is, and which graph a step has. Everything is written to the trace once, when it
// is first seen; a step that repeats the one before finds its ops by position, without hashing.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "ulpscope/recorder/recorder.h"

namespace ulpscope {

// As the trace has them: "stride=1 padding=1". Of an op, those that differ from call to call are "name=varies".
enum class AttributesOf { op, call };
std::string attributes_text(const Attributes* attributes, AttributesOf what);

// An output of an op in one use: another type, role or rounding of the same output is another tensor, since rows are judged by
// these.
struct TensorEntry {
  uint32_t tensor = 0;  // index in the trace's tensor table
  Role role = Role::activation;
  DType dtype = DType::f32;
  RoundingMode rounding = RoundingMode::nearest_even;
  bool flushes_results = false, flushes_inputs = false, flushes_narrow_products = false;
  std::string parameter;

  bool is_float() const { return ulpscope::is_float(dtype); }  // integers are described, but have no rows
  // Whether it is the output `slot` that `op` describes.
  bool is_described_by(const OpDescription& op, size_t slot) const;
};

struct OpEntry {
  uint64_t id = 0;
  uint32_t op = 0;            // index in the trace's op table
  uint32_t first_tensor = 0;  // of the outputs as the last call described them
  uint32_t outputs = 0;
  std::vector<uint32_t> uses;   // the first tensors of all that calls described, each of them of `outputs` tensors
  std::vector<bool> nonfinite;  // outputs that had nonfinite values, as stored, when they were written last
  uint32_t last_position = 0;   // in the step that saw it last
  Phase phase = Phase::forward;
  bool rows_wanted = true;  // passes the filters
  bool any_float = false;
  std::string label;  // for messages: "conv2d in features.0"
};

class OpTable {
 public:
  OpTable(TraceSink& sink, const RecorderOptions& options) : sink_(sink), options_(options) {}

  void begin_step(uint64_t number);
  // The entry's index. Adds what was not seen before to the trace.
  uint32_t find_or_add(const OpDescription& op);
  const OpEntry& operator[](uint32_t entry) const { return entries_[entry]; }
  const TensorEntry& tensor(uint32_t first_tensor, uint32_t slot) const { return tensors_[first_tensor + slot]; }
  // The output as its op's last call described it, or nullptr where no op made it.
  const TensorEntry* find_tensor(const ValueKey& value) const;
  // Whether it had nonfinite values when it was written last; false where that is not known.
  bool is_nonfinite(const ValueKey& value) const;
  void set_nonfinite(uint32_t entry, uint32_t slot, bool nonfinite) { entries_[entry].nonfinite[slot] = nonfinite; }
  // Whether rows are recorded of such an op.
  bool wants_rows(std::string_view module, std::string_view name, Phase phase) const;
  // The entry with this id, or nullptr.
  const OpEntry* find(uint64_t id) const;

 private:
  uint32_t add(const OpDescription& op);
  // Makes room for outputs that no call had.
  void add_outputs(OpEntry& entry, const OpDescription& op);
  // Has the entry's tensors be those that `op` describes.
  void use_outputs(OpEntry& entry, const OpDescription& op);
  bool has_outputs(const OpEntry& entry, uint32_t first_tensor, const OpDescription& op) const;
  TensorEntry add_tensor(const OpEntry& entry, const OpDescription& op, size_t slot);

  TraceSink& sink_;
  const RecorderOptions& options_;
  std::vector<OpEntry> entries_;
  std::vector<TensorEntry> tensors_;  // the outputs of an op in one use lie together
  std::unordered_map<uint64_t, uint32_t> by_id_;
  uint64_t step_ = 0;
  std::vector<uint32_t> order_, last_order_;  // entries in order of execution: of this step, of the one before
  uint32_t expected_ = 0;                     // position in last_order_ of the op that is likely to come next
};

// The sequence of ops of a step, and what their inputs are.
class StepGraph {
 public:
  void clear();
  void add(const OpDescription& op, uint32_t op_index);

 private:
  friend class GraphTable;
  struct Input {
    ValueKey value;
    uint32_t consumer;
    uint32_t input;
  };
  uint64_t hash_ = 0;
  std::vector<Input> inputs_;
};

class GraphTable {
 public:
  // The graph's number; writes its edges where it is a new one.
  uint32_t number_of(const StepGraph& graph, TraceSink& sink, const OpTable& ops);

 private:
  std::unordered_map<uint64_t, uint32_t> graphs_;  // by hash of the sequence of ops and edges
};

}  // namespace ulpscope
