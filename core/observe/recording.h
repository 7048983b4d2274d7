// The observer that records: describes every op call to the recorder, which knows no engine.
#pragma once

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ulpscope/core/engine/context.h"
#include "ulpscope/core/observe/call_log.h"
#include "ulpscope/recorder/recorder.h"
#include "ulpscope/recorder/value_loss.h"

namespace ulpscope {

// When the first nonfinite element of an origin is captured.
enum class Capturing : uint8_t {
  at_once,  // the backend is waited for after each op
  later,    // when it is complete: of updates from what is in memory still, of other ops when they run again (CaptureObserver)
};

class RecordingObserver : public Observer {
 public:
  // Recorder and backend outlive the observer.
  RecordingObserver(Recorder& recorder, Backend& backend, Capturing capturing = Capturing::at_once)
      : recorder_(recorder), backend_(backend), capturing_(capturing) {
    if (capturing_ == Capturing::later) log_.begin_pass(true);
  }
  void before(const OpEvent& event, std::span<OutputRecord* const> records) override;
  void after(const OpEvent& event) override;
  // With the recorder's step, and after its end_pass.
  void begin_pass() {
    if (capturing_ == Capturing::at_once) log_.begin_pass();
  }
  // To be asked, where they are captured later, when the backend is complete: captures those of updates, and appends the others to
  // `origins`.
  void find_origins(std::vector<Origin>& origins);

 private:
  Recorder& recorder_;
  Backend& backend_;
  Capturing capturing_;
  CallLog log_;  // of updates alone, where captures come later
  // Keeps what the op that goes on adds to a running sum, which it overwrites. A device, which is behind, is not waited for.
  struct Sum {
    std::vector<float> before, addend;
  };
  std::optional<Sum> sum_;
  std::set<uint64_t> data_ops_;  // whose outputs are samples of the data, by their ids

  // Measures what the op, which ran, lost of the values that it read; gives nothing of most ops.
  std::vector<ValueMeasure> loss_of_values(const OpEvent& event) const;
};

// Captures origins whose ops run again.
class CaptureObserver : public Observer {
 public:
  // Recorder and backend outlive the observer.
  CaptureObserver(Recorder& recorder, Backend& backend, std::vector<Origin> origins)
      : recorder_(recorder), backend_(backend), origins_(std::move(origins)) {}
  void begin_pass() { log_.begin_pass(); }
  void after(const OpEvent& event) override;
  // Whether there is something to be captured still, and whether in this pass.
  bool done() const { return origins_.empty(); }
  bool wants(uint32_t micro_batch) const;

 private:
  Recorder& recorder_;
  Backend& backend_;
  std::vector<Origin> origins_;  // not yet captured
  CallLog log_;
};

}  // namespace ulpscope
