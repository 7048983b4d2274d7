// A sink before the trace that holds the rows of the last steps back, and writes them when something happens: a long run then has
// the rows of the steps before its failure, and not those of all others.
//
// Ops, tensors and edges go through at once. Each step's row and its events are written when the step leaves those that are held;
// its other rows are dropped then, and its level is `off`. The first step is written as it is.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/trace/packed_rows.h"
#include "ulpscope/trace/sink.h"

namespace ulpscope {

// Events that make a flight recorder write.
struct Triggers {
  // A loss that is NaN or infinite, such values in a weight, an optimizer's state or an update, or, in a step that was not skipped,
  // in the gradient of a parameter.
  bool nan = false;
  int64_t skips = 0;         // so many skipped steps in a row; 0: never
  double gradient_norm = 0;  // a norm of the gradients above so many times the median of those before; 0: never
};
// Reads texts as "nan", "skips:8" and "grad_norm:10x". Throws Error (usage).
Triggers triggers_of(std::span<const std::string> texts);

class FlightRecorder final : public TraceSink {
 public:
  struct Options {
    size_t keep_last = 1;  // so many steps are held, the one that goes on included
    int64_t after = 0;     // so many steps behind one that made it write are written as well
    Triggers triggers;
    uint64_t max_bytes = 0;  // as RecorderOptions has it: the oldest steps are dropped that do not fit; 0: no limit
  };
  // After so many steps in a row in which nothing happened, its triggers make it write again.
  static constexpr int64_t kCleanSteps = 1000;
  // The median is of the norms of so many steps, at most and at least: those before that were not skipped and had a finite norm.
  static constexpr size_t kMostNorms = 64, kLeastNorms = 8;

  // The trace outlives it.
  FlightRecorder(TraceSink& trace, const Options& options) : trace_(trace), options_(options) {}

  // The step that goes on, or the next one, makes it write, for that reason, whatever happened before.
  void trigger(std::string_view why);
  // Ends the steps that are held. Nothing is recorded behind it.
  void finish();
  size_t held_bytes() const;

  uint32_t add_op(const OpInfo& op) override { return trace_.add_op(op); }
  uint32_t add_tensor(const TensorInfo& tensor) override;
  void add_edge(const GraphEdge& edge) override { trace_.add_edge(edge); }
  void add_setting(const SettingInfo& setting) override { trace_.add_setting(setting); }
  void add_source(const SourceInfo& source) override { trace_.add_source(source); }
  void add_product(const ProductInfo& product) override { trace_.add_product(product); }

  void add_row(const TensorRow& row) override;
  void add_batch(const BatchRow& row) override { hold(row); }
  void add_parameter(const ParameterRow& row) override { hold(row); }
  void add_fingerprint(const FingerprintRow& row) override { hold(row); }
  void add_event(const EventRow& row) override { current_.events.push_back(row); }
  void add_capture(const CaptureRow& row) override { hold(row); }
  void add_sample(const SampleRow& row) override { hold(row); }
  void add_measure(const MeasureRow& row) override { hold(row); }
  void add_sum(const SumRow& row) override { hold(row); }
  void add_bits(const BitsRow& row) override { hold(row); }
  void end_step(const StepRow& row) override;

  SinkStatus status() const override;
  // Rows that are held do not count.
  uint64_t closed_bytes(const MoreRows& more) const override { return trace_.closed_bytes(more); }
  // Waits for the steps that are no longer held.
  bool flush() override { return trace_.flush(); }
  bool close() override {
    finish();
    return trace_.close();
  }

 private:
  struct Step {
    StepRow row;
    std::vector<EventRow> events;
    PackedRows rows;
  };
  struct Tensor {
    Role role;
    DType dtype;
    std::string parameter;
  };

  template <typename Row>
  void hold(const Row& row);
  // Says in a few words what happened in the step, or "".
  std::string happened(const StepRow& row);
  void write(std::string_view why);
  void write_step(const Step& step, bool with_rows);
  void drop_what_does_not_fit();
  void leave_first();

  TraceSink& trace_;
  const Options options_;
  std::vector<Tensor> tensors_;  // as far as they are asked for
  std::deque<Step> held_;
  Step current_;
  std::string asked_for_;          // by trigger(), or ""
  std::string weight_, gradient_;  // of the step that goes on: what holds NaN or Inf
  std::deque<double> norms_;       // of the steps before
  int64_t skipped_ = 0;            // steps in a row
  int64_t clean_ = kCleanSteps;    // steps in a row in which nothing happened
  int64_t following_ = 0;          // steps that are to be written as they come
  bool is_first_ = true, is_finished_ = false, failed_ = false;
};

}  // namespace ulpscope
