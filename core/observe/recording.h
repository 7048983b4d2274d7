// The observer that records: describes every op call to the recorder, which knows no engine.
#pragma once

#include "ulpscope/core/engine/context.h"
#include "ulpscope/core/observe/call_log.h"
#include "ulpscope/recorder/recorder.h"

namespace ulpscope {

class RecordingObserver : public Observer {
 public:
  // Recorder and backend outlive the observer.
  RecordingObserver(Recorder& recorder, Backend& backend) : recorder_(recorder), backend_(backend) {}
  void before(const OpEvent& event, std::span<OutputRecord* const> records) override;
  void after(const OpEvent& event) override;
  // With the recorder's step, and after its end_pass.
  void begin_pass() { log_.begin_pass(); }

 private:
  Recorder& recorder_;
  Backend& backend_;
  CallLog log_;
};

}  // namespace ulpscope
