#include "ulpscope/analyzers/subject/coverage.h"

#include <string_view>

namespace ulpscope {

namespace {

constexpr std::string_view kPrefix = "recording.", kNotRead = "not_read.", kUnmapped = "unmapped.";

void add(std::string_view name, double value, Coverage& coverage) {
  const auto count = value > 0 ? static_cast<uint64_t>(value) : 0;
  if (name.starts_with(kNotRead)) coverage.not_read[std::string(name.substr(kNotRead.size()))] += count;
  if (name.starts_with(kUnmapped)) coverage.unmapped[std::string(name.substr(kUnmapped.size()))] += count;
  if (name == "calls") coverage.calls += count;
  if (name == "refused") coverage.refused += count;
  if (name == "compiled_modules") coverage.compiled_modules += count;
  if (name == "calls_of_other_threads") coverage.calls_of_other_threads += count;
  if (name == "paused_blocks") coverage.paused_blocks += count;
  if (name == "timed_steps") coverage.timed_steps += count;
  if (name == "timed_seconds") coverage.timed_seconds += value;
  if (name == "recording_seconds") coverage.recording_seconds += value;
}

}  // namespace

bool is_of_coverage(const EventRow& event) { return event.kind == EventKind::metric && event.text.starts_with(kPrefix); }

uint64_t Coverage::calls_not_read() const {
  uint64_t left_out = 0;
  for (const auto& [unused, count] : not_read) left_out += count;
  return left_out;
}

Coverage coverage_of(const Snapshot& trace) {
  Coverage coverage;
  for (const EventRow& event : trace.events()) {
    if (!is_of_coverage(event)) continue;
    coverage.is_told = true;
    add(std::string_view(event.text).substr(kPrefix.size()), event.value, coverage);
  }
  return coverage;
}

}  // namespace ulpscope
