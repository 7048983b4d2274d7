#include "ulpscope/recorder/level_control.h"

#include <fmt/format.h>

#include <algorithm>

namespace ulpscope {

RecordLevel LevelControl::level() const {
  return near_limit_ || slow_ ? std::min(options_.level, RecordLevel::health) : options_.level;
}

void LevelControl::update(const SinkStatus& status, uint64_t pending_rows, uint64_t step, std::vector<EventRow>& events) {
  const auto say = [&](EventKind kind, std::string text) {
    EventRow event;
    event.step = step;
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
        health_from_ = step + 1;
        say(EventKind::level_lowered, fmt::format("{:.0f}% of the size limit of {} bytes reached: level {} lowered to health",
                                                  100 * kHealthShare, options_.max_bytes, name_of(options_.level)));
      }
    }
    if (share >= kRowsShare && !rows_stopped_) {
      rows_stopped_ = true;
      no_rows_from_ = step;
      say(EventKind::stopped, fmt::format("{:.0f}% of the size limit of {} bytes reached: no more tensor rows are recorded",
                                          100 * kRowsShare, options_.max_bytes));
    }
    if (share >= 1.0 && !steps_stopped_) {
      steps_stopped_ = true;
      stopped_from_ = step + 1;
      say(EventKind::stopped,
          fmt::format("size limit of {} bytes reached: recording stopped, but for metrics", options_.max_bytes));
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
  add("level health", health_from_);
  add("no tensor rows", no_rows_from_);
  add("nothing but metrics", stopped_from_);
  if (!text.empty()) text += fmt::format(": the size limit is {} bytes", options_.max_bytes);
  if (slow_from_) {
    text += fmt::format("{}level health in some steps from step {} on: the writer was slow", text.empty() ? "" : "; ", *slow_from_);
  }
  return text;
}

}  // namespace ulpscope
