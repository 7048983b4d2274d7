// What every analyzer takes besides its traces, and what they share: which rows were asked for, and where a row stands.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {

struct AnalysisOptions {
  StepRange steps;
  // Glob patterns (base/text.h) and names; an empty list lets everything pass. A module's pattern also matches everything inside
  // it.
  std::vector<std::string> modules;
  std::vector<std::string> ops;
  std::vector<Phase> phases;
  std::vector<Role> roles;
  size_t limit = 10;            // rows of a table, series of a plot; 0: all
  double flushed_limit = 0.01;  // the share of a gradient that may be flushed before that is a finding

  const std::atomic<bool>* cancel = nullptr;  // set from any thread: the analyzer returns what it has, marked incomplete
  std::function<void(double)> progress;       // share of the rows seen, 0 to 1

  bool restricts_steps() const { return steps.first > 0 || steps.last < UINT64_MAX; }
  bool cancelled() const { return cancel && cancel->load(std::memory_order_relaxed); }
};

std::optional<Phase> find_phase(std::string_view name);
std::optional<Role> find_role(std::string_view name);

// The tensors of one trace that the options ask for, and how rows are named.
class Selection {
 public:
  // Throws Error (unreadable) where the tables of the trace do not fit together.
  Selection(const Snapshot& reader, const AnalysisOptions& options);

  bool contains(const TensorRow& row) const { return contains(row.tensor); }
  size_t size() const { return selected_.size(); }
  bool contains(uint32_t tensor) const;  // throws Error (unreadable) for an index that the trace does not have
  const TensorInfo& tensor(uint32_t index) const { return reader_.tensors()[index]; }
  const OpInfo& op(uint32_t tensor) const { return reader_.ops()[reader_.tensors()[tensor].op]; }
  RowKey key(uint32_t tensor) const;
  RowKey key(uint32_t tensor, uint64_t step, uint32_t micro_batch, uint8_t pass) const;
  // The forward op whose result a gradient is of, past the casts that autocast added; nullptr where the trace does not say.
  const OpInfo* serves(uint32_t tensor) const;
  // "features.0 conv2d_backward output 1 (weight)", "fc adam_update exp_avg (weight)"; where another tensor of the trace would be
  // called the same, also its phase, "features.0 backward cast (weight)", and if that does not tell them apart, the how-many-th it
  // is: "... #2". Where its type or its arithmetic changed between runs that are read as one, with it: "fc linear (rounding rz)".
  const std::string& name(uint32_t tensor) const { return names_[tensor].tensor; }
  // The same for all tensors that are this output of its op, whatever their types and arithmetic.
  const std::string& output_name(uint32_t tensor) const { return names_[tensor].output; }
  size_t count_outputs(std::span<const uint32_t> tensors) const;  // that the tensors are
  // Weights, the loss, and what is kept for scaling and the optimizer: neither activations nor gradients as they were computed.
  bool is_bookkeeping(uint32_t tensor) const;

 private:
  struct Names {
    std::string tensor, output;
  };
  static std::vector<Names> names_of(const Snapshot& reader);

  const Snapshot& reader_;
  std::vector<bool> selected_;
  std::vector<Names> names_;
};

// Takes tensor rows as they stand in the trace; several can share one pass.
class RowConsumer {
 public:
  virtual ~RowConsumer() = default;
  // Every row of the steps that are looked at.
  virtual void see(const TensorRow&) {}
  // The same again, where the options' filters let it pass.
  virtual void add(const TensorRow& row) = 0;
  // Once, after the last row.
  virtual void finish() {}
};

// One pass over the selected rows. False where it was cancelled.
bool visit_selected(const Snapshot& reader, const Selection& selection, const AnalysisOptions& options,
                    std::span<RowConsumer* const> consumers);

// What can be set, by the roles of the tensors: advice that names a setting must be about one that the run has.
struct PrecisionFacts {
  bool casts_weights = false;                      // autocast does: the run follows its lists
  bool updates_narrow_weights = false;             // a 16-bit parameter has no FP32 master weight
  bool scales_loss = false, adapts_scale = false;  // by a factor that stays, or that a dynamic scaler changes
};
PrecisionFacts precision_facts(const Snapshot& reader);
// What scales the loss, or scales it more, in such a run, as the beginning of a sentence: a gradient scaler cannot unscale 16-bit
// gradients.
std::string scaling_advice(const PrecisionFacts& facts);

// How FP8 tensors get their scales, "current" or "delayed"; "": there are none.
std::string quantization_recipe(const Snapshot& reader);

// The value of an attribute of an op, or nothing: it has none of that name, or calls differ.
std::optional<double> attribute(const OpInfo& op, std::string_view name);

// What the step table says of the steps in a range.
struct StepFacts {
  std::vector<uint64_t> skipped;  // ascending
  // From this step on, to the end, every loss was NaN or infinite. What its rows hold says what became of the run, and nothing
  // about which format or scale would have suited it.
  uint64_t broken_from = UINT64_MAX;

  bool was_skipped(uint64_t step) const;
};
StepFacts step_facts(const Snapshot& reader, StepRange range);

// Throws Error (usage) where a pattern matches no module or op of any of the traces, or none of them has a step in the range: what
// comes of a misspelling should not look like an answer.
void check_asked_for(std::initializer_list<const Snapshot*> readers, const AnalysisOptions& options);

// A path as a shell takes it, for commands that reports suggest.
std::string shell_word(const std::string& path);

ReportSource source_of(const Snapshot& reader);
RowKey key_of_step(const Snapshot& reader, uint64_t step);

}  // namespace ulpscope
