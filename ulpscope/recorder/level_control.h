// How much a recorder may still write: the level in force, given the size limit and how far the writer is behind.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/recorder/recorder.h"

namespace ulpscope {

class LevelControl {
 public:
  explicit LevelControl(const RecorderOptions& options) : options_(options) {}

  // Of the size limit: above the first share the level is health, above the second no tensor rows are written, and above the limit
  // itself only steps that carry a metric.
  static constexpr double kHealthShare = 0.80;
  static constexpr double kRowsShare = 0.95;
  // Of the writer's queue: the level is lowered above the first and comes back below the second.
  static constexpr double kSlow = 0.5;
  static constexpr double kDrained = 0.1;
  // What a tensor row takes in the file, about.
  static constexpr uint64_t kBytesPerRow = 100;
  // After so many messages about a slow writer there are no more of them.
  static constexpr int kSlowMessages = 100;

  RecordLevel level() const;
  bool rows_stopped() const { return rows_stopped_; }
  bool steps_stopped() const { return steps_stopped_; }

  // Once a pass of step `step`, before its rows are written. `pending_rows` are added and not in the file yet, about. Messages
  // about what changed are appended to `events`.
  void update(const SinkStatus& status, uint64_t pending_rows, uint64_t step, std::vector<EventRow>& events);
  // From which steps on less was recorded, and why. One line, or "".
  std::string limits_met() const;

 private:
  const RecorderOptions& options_;
  bool near_limit_ = false, rows_stopped_ = false, steps_stopped_ = false, slow_ = false;
  int slow_messages_ = 0;
  std::optional<uint64_t> health_from_, no_rows_from_, stopped_from_, slow_from_;  // the first steps that lack something
};

}  // namespace ulpscope
