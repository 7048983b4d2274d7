// Where a recording is written to. Calls come from one thread and never throw: what goes wrong while writing becomes one warning,
// and the calls after it do nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ulpscope/trace/records.h"

namespace ulpscope {

// What the writer tells its producer.
struct SinkStatus {
  bool failed = false;  // an I/O error stopped the recording; training goes on
  std::string failure;  // one line: "recording stopped after 10 steps: cannot write ..."
  uint64_t bytes = 0;   // the file's size so far
  // Flushed to the file: a reader sees them even if the process is killed now.
  uint64_t committed_steps = 0;
  uint64_t tensor_rows = 0;   // of those steps
  double writer_seconds = 0;  // CPU time of the writer thread since the file was created
  double queue_fill = 0;      // 0 empty to 1 full: the producer lowers its level before it blocks
};

// Rows that may be added to a trace.
struct MoreRows {
  uint64_t tensors = 0, histograms = 0;  // rows, and those of them that have one
  uint64_t samples = 0, batches = 0, parameters = 0, fingerprints = 0, measures = 0, sums = 0, bits = 0;

  MoreRows& operator+=(const MoreRows& other) {
    tensors += other.tensors;
    histograms += other.histograms;
    samples += other.samples;
    batches += other.batches;
    parameters += other.parameters;
    fingerprints += other.fingerprints;
    measures += other.measures;
    sums += other.sums;
    bits += other.bits;
    return *this;
  }
};

class TraceSink {
 public:
  virtual ~TraceSink() = default;

  // Each returns the index that rows refer to. Equal infos are not looked for: the caller adds each once.
  virtual uint32_t add_op(const OpInfo& op) = 0;
  virtual uint32_t add_tensor(const TensorInfo& tensor) = 0;
  virtual void add_edge(const GraphEdge& edge) = 0;
  virtual void add_setting(const SettingInfo& setting) = 0;
  virtual void add_source(const SourceInfo& source) = 0;
  virtual void add_product(const ProductInfo& product) = 0;

  virtual void add_row(const TensorRow& row) = 0;
  virtual void add_batch(const BatchRow& row) = 0;
  virtual void add_parameter(const ParameterRow& row) = 0;
  virtual void add_fingerprint(const FingerprintRow& row) = 0;
  virtual void add_event(const EventRow& row) = 0;
  virtual void add_capture(const CaptureRow& row) = 0;
  virtual void add_sample(const SampleRow& row) = 0;
  virtual void add_measure(const MeasureRow& row) = 0;
  virtual void add_sum(const SumRow& row) = 0;
  virtual void add_bits(const BitsRow& row) = 0;
  // Ends the step: everything added since the last one belongs to it and becomes visible with it, whole.
  virtual void end_step(const StepRow& row) = 0;

  virtual SinkStatus status() const = 0;
  // What the trace would take, at most, if it were closed now, or after a step with so many rows more. What was added since the
  // last flush() counts as if it could not be compressed, so that it says much too much long after one.
  virtual uint64_t closed_bytes(const MoreRows& more) const = 0;
  // Waits until every ended step is committed. True iff it is.
  virtual bool flush() = 0;
  // Flushes, compacts and marks the trace as closed. The destructor does it too. True iff nothing failed since the sink was made.
  virtual bool close() = 0;
};

struct TraceOptions {
  std::chrono::milliseconds flush_interval{1000};
  size_t queue_bytes = 64u << 20;
  bool overwrite = false;  // an existing file is an error otherwise
  // Called from the writer thread after each commit with the number of committed steps. Must not throw.
  std::function<void(uint64_t)> on_commit;
};

// What a trace without tensor rows takes in the file, about: ops, their names and the last, unfilled chunks have room in it.
uint64_t empty_trace_bytes();

// A trace in an HDF5 file, written by a thread of its own. Throws Error (usage: the file exists, or is being
// written by another process; failed: it cannot be created).
std::unique_ptr<TraceSink> create_trace(const std::string& path, const RunInfo& run, const TraceOptions& options = {});

}  // namespace ulpscope
