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
  // Both outlive it.
  LevelControl(const RecorderOptions& options, TraceSink& sink);

  // Of the room that the size limit leaves for rows: above the first share the level is health, above the second no tensor rows are
  // written, above the third only steps that carry a metric, and what no longer fits at all is left out. Rows that would go from
  // below the first share beyond the second are written at level health at once.
  static constexpr double kHealthShare = 0.80;
  static constexpr double kRowsShare = 0.92;
  static constexpr double kStepsShare = 0.98;
  // Of the writer's queue: the level is lowered above the first and comes back below the second.
  static constexpr double kSlow = 0.5;
  static constexpr double kDrained = 0.1;
  // After so many messages about a slow writer there are no more of them.
  static constexpr int kSlowMessages = 100;

  RecordLevel level() const;
  bool rows_stopped() const { return rows_stopped_; }
  // Whether rows are written at level health, whatever was asked for when their step began.
  bool lowers_rows() const { return lowers_rows_; }
  bool steps_stopped() const { return steps_stopped_; }

  // Once a pass of step `step`, before its rows are written. Messages about what changed are appended to `events`.
  void update(const SinkStatus& status, const MoreRows& rows, uint64_t step, std::vector<EventRow>& events);
  // Whether a step that only carries a metric may still be written.
  bool has_room_for_metric();
  // From which steps on less was recorded, and why. One line, or "".
  std::string limits_met() const;

 private:
  // Whether the trace, with so many rows more and closed, would take more than this share of the room.
  bool exceeds(double share, const MoreRows& rows);

  const RecorderOptions& options_;
  TraceSink& sink_;
  double empty_bytes_, room_bytes_;
  bool near_limit_ = false, lowers_rows_ = false, rows_stopped_ = false, steps_stopped_ = false, full_ = false, slow_ = false;
  int slow_messages_ = 0;
  std::optional<uint64_t> health_from_, no_rows_from_, stopped_from_, slow_from_;  // the first steps that lack something
};

}  // namespace ulpscope
