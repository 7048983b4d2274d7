// Reads a trace, while it is written, after it was closed, or after its writer was killed. Sees committed steps only. Small tables
// (ops, tensors, events) are held in memory; tensor rows, step rows and samples are read in batches of a bounded number of rows.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ulpscope/trace/records.h"

namespace ulpscope {

// Which rows to visit: steps first <= step < last.
struct StepRange {
  uint64_t first = 0;
  uint64_t last = UINT64_MAX;
};

// A trace that is read as part of a run.
struct TracePart {
  std::string path;
  RunInfo run;
  StepRange steps;                // those that are read from it
  std::vector<uint32_t> tensors;  // of the reader's, those that it has
};

class Snapshot {
 public:
  // Throws Error (unreadable): the path is missing, not a trace, of a newer or an older schema, or damaged (says where).
  explicit Snapshot(const std::string& path);
  // Several as one: a run, and those resumed from its checkpoints. A resumed run takes the place of earlier ones from the step at
  // which it resumed; the latest is the one that the writer, the closing note and most of `run` are of. The values that it recorded
  // as it began are left out. A tensor of which the type or the arithmetic of its op changed from one run to the next is several.
  // `name`: what path() gives and messages call them. Throws Error: usage where they are not one run.
  Snapshot(const std::string& name, std::span<const std::string> paths);
  ~Snapshot();
  Snapshot(Snapshot&&) noexcept;

  const std::string& path() const;
  uint64_t schema_version() const;
  WriterState writer_state() const;
  const RunInfo& run() const;
  const RunInfo& run_at(uint64_t step) const;  // that of its part
  std::vector<TracePart> parts() const;        // by step
  const std::string& closing_note() const;     // why the trace ends where it does, or ""

  // Looks for newly committed steps. True iff there are some.
  bool refresh();

  const std::vector<OpInfo>& ops() const;
  const std::vector<TensorInfo>& tensors() const;
  const std::vector<EventRow>& events() const;
  uint64_t step_count() const;
  uint64_t tensor_row_count() const;
  uint64_t file_bytes() const;

  // Rows come in the order in which they were written: by step, then by sequence. The span is valid during the call only. `visit`
  // returns false to stop early.
  void visit_steps(StepRange range, const std::function<bool(std::span<const StepRow>)>& visit) const;
  void visit_rows(StepRange range, const std::function<bool(std::span<const TensorRow>)>& visit) const;
  // The same without the histograms (left empty): reads a fraction of the bytes.
  void visit_rows_without_histograms(StepRange range, const std::function<bool(std::span<const TensorRow>)>& visit) const;
  void visit_updates(StepRange range, const std::function<bool(std::span<const UpdateRow>)>& visit) const;
  void visit_samples(StepRange range, const std::function<bool(std::span<const SampleRow>)>& visit) const;
  void visit_measures(StepRange range, const std::function<bool(std::span<const MeasureRow>)>& visit) const;
  std::vector<CaptureRow> captures(StepRange range = {}) const;
  std::vector<GraphEdge> edges() const;  // of all graphs

 private:
  struct Part;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulpscope
