#include "ulpscope/recorder/level_control.h"

#include <fmt/format.h>

#include <algorithm>

namespace ulpscope {

RecordLevel LevelControl::level() const {
  return near_limit_ || slow_ ? std::min(options_.level, RecordLevel::health) : options_.level;
}

void LevelControl::update(const SinkStatus& status, uint64_t pending_rows, std::vector<EventRow>& events) {
  const auto say = [&](EventKind kind, std::string text) {
    EventRow event;
    event.kind = kind;
    event.text = std::move(text);
    events.push_back(std::move(event));
  };

  if (options_.max_bytes > 0) {
    const double share = static_cast<double>(status.bytes + pending_rows * kBytesPerRow) / static_cast<double>(options_.max_bytes);
    const bool can_lower = options_.level > RecordLevel::health;
    if (share >= kHealthShare && !near_limit_) {
      near_limit_ = true;
      if (can_lower) {
        say(EventKind::level_lowered, fmt::format("{:.0f}% of the size limit of {} bytes reached: level {} lowered to health",
                                                  100 * kHealthShare, options_.max_bytes, name_of(options_.level)));
      }
    }
    if (share >= kRowsShare && !rows_stopped_) {
      rows_stopped_ = true;
      say(EventKind::stopped, fmt::format("{:.0f}% of the size limit of {} bytes reached: no more tensor rows are recorded",
                                          100 * kRowsShare, options_.max_bytes));
    }
    if (share >= 1.0 && !steps_stopped_) {
      steps_stopped_ = true;
      say(EventKind::stopped,
          fmt::format("size limit of {} bytes reached: recording stopped, but for metrics", options_.max_bytes));
    }
  }

  if (options_.level <= RecordLevel::health) return;
  const bool was_slow = slow_;
  slow_ = status.queue_fill > (slow_ ? kDrained : kSlow);
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

}  // namespace ulpscope
