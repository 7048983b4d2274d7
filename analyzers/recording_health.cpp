#include "ulpscope/analyzers/recording_health.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

constexpr const char* kLoweredSuggestion =
    "From there on only counts are known, no magnitudes or histograms: what needs those is answered for the steps before. A larger "
    "`--max-size`, or `--every N`, keeps them for the whole run.";

constexpr const char* kCutShortSuggestion = "Training went on. A larger `--max-size`, `--every N` or a filter keeps the whole run.";

constexpr const char* kMissingSuggestion =
    "The program that wrote the earlier trace was killed, or its recording ended, before they were in the file. What is said of "
    "the "
    "run leaves them out.";

constexpr const char* kMemorySuggestion =
    "No recorded op did this. Repeat the run: what changes again at the same place comes from a program, one that writes there "
    "without recording it or past the end of another tensor, or has two tensors in the same memory. One bit of one element that "
    "changes only once speaks for the machine's memory.";

bool in_range(const StepRange& range, uint64_t step) { return step >= range.first && step < range.last; }

// What a weight or a state was where it was read is not what had been written, whatever arithmetic did.
void add_memory_finding(const AnalysisContext& context, Report& report) {
  uint64_t times = 0;
  Finding finding{"recording.memory_changed", Severity::error, "", {}, kMemorySuggestion};
  for (const EventRow& event : context.trace.events()) {
    if (event.kind != EventKind::memory_changed || !in_range(context.options.steps, event.step)) continue;
    if (event.tensor >= 0) finding.extent.tensors.push_back(static_cast<uint32_t>(event.tensor));
    keep_first(finding.extent.first_step, std::optional(event.step));
    if (times++ == 0) finding.title = event.text + '.';
    if (times > 5) continue;
    RowKey key = key_of_step(context.trace, event.step);
    if (event.tensor >= 0) {
      key = context.selection.key(static_cast<uint32_t>(event.tensor));
      key.step = event.step;
    }
    finding.evidence.push_back({key, {{"written_in_step", count_cell(event.count), Unit::none}, {"text", event.text}}});
  }
  if (times == 0) return;
  if (times > 1)
    finding.title = fmt::format(
        "Weights or optimizer states changed {} times between where they were written and where they were "
        "next read; first, {}",
        times, finding.title);
  report.findings.push_back(std::move(finding));
}

// The step from which on every step up to this one held something nonfinite and was taken: a loss follows from what the steps
// before it did to the weights.
uint64_t began(const Snapshot& trace, const StepTotals& steps, uint64_t step) {
  const std::vector<EventRow>& events = trace.events();
  for (auto event = events.rbegin(); event != events.rend(); ++event) {
    if (event->kind == EventKind::nonfinite && event->step + 1 == step && !steps.skipped.contains(event->step)) step = event->step;
  }
  return step;
}

}  // namespace

void add_recording_findings(const AnalysisContext& context, const StepFacts& steps, Report& report) {
  const Snapshot& reader = context.trace;
  const AnalysisOptions& options = context.options;
  const bool dead = reader.writer_state() == WriterState::dead;
  const char* const suggestion = dead ? "`ulpscope recover` copies the steps that were committed into a closed trace." : "";
  if (!reader.closing_note().empty()) {
    report.findings.push_back(
        {"recording.ended_early", Severity::warning, "The trace ends early: " + reader.closing_note(), {}, suggestion});
  } else if (dead) {
    report.findings.push_back({"recording.dead",
                               Severity::warning,
                               fmt::format("The program that wrote this trace ended without closing it; the {} that it "
                                           "committed can be read.",
                                           count_of(reader.step_count(), "step")),
                               {},
                               suggestion});
  }
  add_missing_step_findings(context, steps, report);
  add_memory_finding(context, report);
  for (const auto& [kind, code, severity] : {std::tuple{EventKind::level_lowered, "recording.level_lowered", Severity::warning},
                                             std::tuple{EventKind::warning, "recording.warning", Severity::warning},
                                             std::tuple{EventKind::note, "recording.note", Severity::info}}) {
    uint64_t times = 0;
    Finding finding{code, severity, "", {}, kind == EventKind::level_lowered ? kLoweredSuggestion : ""};
    for (const EventRow& event : reader.events()) {
      if (event.kind != kind || !in_range(options.steps, event.step)) continue;
      if (times++ == 0) finding.title = event.text;
      if (times <= 5) finding.evidence.push_back({key_of_step(reader, event.step), {{"text", event.text}}});
    }
    if (times == 0) continue;
    if (times > 1) {
      finding.title += fmt::format(" (and {} more)", times - 1);
    } else {
      finding.evidence.front().values.clear();
    }
    report.findings.push_back(std::move(finding));
  }
  // Each says something else: no more rows, no more steps, training. A producer writes a few.
  constexpr int kMost = 5;
  int told = 0;
  for (const EventRow& event : reader.events()) {
    if (!in_range(options.steps, event.step) || told == kMost) continue;
    told += event.kind == EventKind::cut_short || event.kind == EventKind::stopped;
    if (event.kind == EventKind::cut_short) {
      report.findings.push_back({"recording.cut_short",
                                 Severity::warning,
                                 fmt::format("Recording was cut short: {}.", event.text),
                                 {{key_of_step(reader, event.step), {}}},
                                 kCutShortSuggestion});
    } else if (event.kind == EventKind::stopped) {
      report.findings.push_back(
          {"run.stopped", Severity::warning, "Stopped early: " + event.text, {{key_of_step(reader, event.step), {}}}, ""});
    }
  }
}

void add_missing_step_findings(const AnalysisContext& context, const StepFacts& steps, Report& report) {
  const std::vector<TracePart>& parts = context.parts;
  uint64_t missing = 0;
  Finding finding{"recording.missing_steps", Severity::warning, "", {}, kMissingSuggestion};
  // By rank, the first step that no part so far has; what a first part that was itself resumed came after is no part of the run as
  // read.
  std::map<int, uint64_t> next;
  std::map<int, size_t> before;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto [known, is_first] =
        next.try_emplace(parts[i].run.rank, static_cast<uint64_t>(std::max<int64_t>(0, parts[i].run.parent_step)));
    const StepRange asked = context.options.steps;
    const uint64_t first = std::max(known->second, asked.first), last = std::min(parts[i].steps.first, asked.last);
    if (!is_first && first < last) {
      missing += last - first;
      finding.evidence.push_back({key_of_step(context.trace, first),
                                  {{"missing_steps", count_cell(last - first), Unit::count},
                                   {"before", parts[i].path},
                                   {"after", parts[before[known->first]].path}}});
    }
    const StepSet of_part = steps.steps_of(parts[i]);
    if (!of_part.empty()) known->second = of_part.last() + 1;
    before[known->first] = i;
  }
  if (missing == 0) return;
  finding.title = fmt::format("{} of the run {} in none of its traces, first step {}.", count_of(missing, "step"),
                              missing == 1 ? "is" : "are", *finding.evidence.front().key.step);
  report.findings.push_back(std::move(finding));
}

void add_loss_findings(const AnalysisContext& context, const StepFacts& facts, Report& report) {
  const StepTotals steps = facts.whole();
  if (steps.nonfinite_losses.empty()) return;
  const uint64_t nonfinite = steps.nonfinite_losses.size(), first = steps.nonfinite_losses.first();
  const bool recovered = facts.broken_from() == UINT64_MAX;
  const bool many = wastes_many(nonfinite, steps.count);
  Finding finding{"run.loss_nonfinite",
                  !recovered ? Severity::error
                  : many     ? Severity::warning
                             : Severity::info,
                  fmt::format("The loss was NaN or infinity in {} of {}, first in step {}{}.", nonfinite,
                              count_of(steps.count, "step"), first, recovered ? ", and finite in the last step" : ""),
                  {{key_of_step(context.trace, first), {{"steps", count_cell(nonfinite), Unit::count}}}},
                  fmt::format("The first nonfinite tensor of step {0} is where to look: `ulpscope ranges {1} --step {0}`.",
                              began(context.trace, steps, first), shell_word(context.trace.path())),
                  {{}, first}};
  for (uint32_t i = 0; i < context.selection.size(); ++i)
    if (context.selection.tensor(i).role == Role::loss) finding.extent.tensors.push_back(i);
  report.findings.push_back(std::move(finding));
}

}  // namespace ulpscope
