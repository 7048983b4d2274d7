#include "ulpscope/recorder/level_control.h"

#include <fmt/format.h>

#include <algorithm>

namespace ulpscope {

RecordLevel LevelControl::level() const {
  return near_limit_ || slow_ ? std::min(options_.level, RecordLevel::health) : options_.level;
}

LevelControl::LevelControl(const RecorderOptions& options, TraceSink& sink)
    : options_(options),
      sink_(sink),
      empty_bytes_(static_cast<double>(empty_trace_bytes())),
      room_bytes_(static_cast<double>(options.max_bytes) - empty_bytes_) {}

bool LevelControl::exceeds(double share, const MoreRows& rows) {
  const auto exceeds_now = [&] { return static_cast<double>(sink_.closed_bytes(rows)) > empty_bytes_ + share * room_bytes_; };
  // What was added since the last flush counts too much: only where that matters the writer is waited for.
  return exceeds_now() && sink_.flush() && exceeds_now();
}

bool LevelControl::has_room_for_metric() {
  full_ = full_ || (options_.max_bytes > 0 && exceeds(1, {}));
  return !full_;
}

void LevelControl::update(const SinkStatus& status, const MoreRows& rows, uint64_t step, std::vector<EventRow>& events) {
  const auto say = [&](EventKind kind, std::string text) {
    EventRow event;
    event.step = step;
    event.kind = kind;
    event.text = std::move(text);
    events.push_back(std::move(event));
  };

  if (options_.max_bytes > 0) {
    if (!rows_stopped_ && (near_limit_ || exceeds(kHealthShare, rows))) {
      MoreRows at_health = rows;
      at_health.histograms = at_health.samples = 0;
      const bool was_near = near_limit_;
      near_limit_ = true;
      if (exceeds(kRowsShare, at_health)) {
        rows_stopped_ = true;
        no_rows_from_ = step;
        say(EventKind::cut_short, fmt::format("the size limit of {} bytes is near: no tensor rows are recorded from step {} on",
                                              options_.max_bytes, step));
      } else {
        // A chunk of histograms may be most of a small room.
        lowers_rows_ = lowers_rows_ || exceeds(kRowsShare, rows);
        if (!was_near && options_.level > RecordLevel::health) {
          health_from_ = step + (lowers_rows_ ? 0 : 1);
          say(EventKind::level_lowered,
              fmt::format("{:.0f}% of the room within the size limit of {} bytes is used{}: level {} lowered to health",
                          100 * kHealthShare, options_.max_bytes, lowers_rows_ ? " with this step's rows" : "",
                          name_of(options_.level)));
        }
      }
    }
    if (rows_stopped_ && !steps_stopped_ && exceeds(kStepsShare, {})) {
      steps_stopped_ = true;
      stopped_from_ = step + 1;
      say(EventKind::cut_short,
          fmt::format("the size limit of {} bytes is reached: nothing but metrics is recorded from step {} on", options_.max_bytes,
                      step + 1));
    }
  }

  if (options_.level <= RecordLevel::health) return;
  const bool was_slow = slow_;
  slow_ = status.queue_fill > (slow_ ? kDrained : kSlow);
  if (slow_ && !near_limit_ && !slow_from_) slow_from_ = step + 1;
  if (slow_ == was_slow || near_limit_ || slow_messages_ > kSlowMessages) return;
  if (slow_messages_++ == kSlowMessages) {
    say(EventKind::warning, "the writer is slow again and again: no more messages about it");
  } else if (slow_) {
    say(EventKind::level_lowered,
        fmt::format("the writer is slow ({:.0f}% of its queue is full): level {} lowered to health until it has caught up",
                    100 * status.queue_fill, name_of(options_.level)));
  } else {
    say(EventKind::note, fmt::format("the writer caught up: level {} again", name_of(options_.level)));
  }
}

std::string LevelControl::limits_met() const {
  std::string text;
  const auto add = [&](std::string_view what, const std::optional<uint64_t>& from) {
    if (from) text += fmt::format("{}{} from step {} on", text.empty() ? "" : ", ", what, *from);
  };
  if (!no_rows_from_ || !health_from_ || *health_from_ < *no_rows_from_) add("level health", health_from_);
  add("no tensor rows", no_rows_from_);
  add("nothing but metrics", stopped_from_);
  if (!text.empty()) text += fmt::format(": the size limit is {} bytes", options_.max_bytes);
  if (slow_from_) {
    text += fmt::format("{}level health in some steps from step {} on: the writer was slow", text.empty() ? "" : "; ", *slow_from_);
  }
  return text;
}

}  // namespace ulpscope
