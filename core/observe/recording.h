// The observer that records: describes every op call to the recorder, which knows no engine.
#pragma once

#include "ulpscope/core/engine/context.h"
#include "ulpscope/recorder/recorder.h"

namespace ulpscope {

class RecordingObserver : public Observer {
 public:
  // Recorder and backend outlive the observer.
  RecordingObserver(Recorder& recorder, Backend& backend) : recorder_(recorder), backend_(backend) {}
  void before(const OpEvent& event, std::span<OutputRecord* const> records) override;
  void after(const OpEvent& event) override;

 private:
  Recorder& recorder_;
  Backend& backend_;
};

}  // namespace ulpscope
