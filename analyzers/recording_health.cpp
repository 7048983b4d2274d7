#include "ulpscope/analyzers/recording_health.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/what_if.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

// The share of a parameter's nonzero updates that may be rounded away before that is a finding.
constexpr double kLostLimit = 0.5;

constexpr const char* kLoweredSuggestion =
    "From there on only counts are known, no magnitudes or histograms: what needs those is answered for the steps before. A larger "
    "`--max-size`, or `--every N`, keeps them for the whole run.";

constexpr const char* kCutShortSuggestion = "Training went on. A larger `--max-size`, `--every N` or a filter keeps the whole run.";

constexpr const char* kMissingSuggestion =
    "The program that wrote the earlier trace was killed, or its recording ended, before they were in the file. What is said of "
    "the "
    "run leaves them out.";

// How a weight's rounding treats updates that are small beside its ulp.
enum class SmallUpdates : uint8_t { nearest, fp32, stochastic, directed };

// An FP32 weight is made by FP32 arithmetic, which rounds to nearest whatever the mode.
SmallUpdates kind_of(const TensorInfo& weight) {
  if (!is_narrow(weight.dtype)) return SmallUpdates::fp32;
  const RoundingMode mode = weight.rounding;
  if (mode == RoundingMode::stochastic) return SmallUpdates::stochastic;
  return is_directed(mode) ? SmallUpdates::directed : SmallUpdates::nearest;
}

// What is said of the parameters that lost more than a share of their nonzero updates.
struct LostText {
  SmallUpdates of;
  double limit;
  const char* code;
  Severity severity;
  const char* title;
  const char* suggestion;
};
constexpr LostText kLostTexts[] = {
    {SmallUpdates::nearest, kLostLimit, "updates.lost", Severity::warning,
     "{} lost more than {:g}% of the nonzero updates: they were too small to change the weight.",
     "Keep FP32 master weights, round the update stochastically (arithmetic.ops.<optimizer>_update.rounding = \"sr\" with "
     "optimizer.math = \"fp32\"), or raise the learning rate: an update below half an ulp of the weight is rounded away."},
    {SmallUpdates::fp32, kLostLimit, "updates.lost", Severity::warning,
     "{} lost more than {:g}% of the nonzero updates: they were too small to change the weight.",
     "An update below half an ulp of an FP32 weight, 2^-25 to 2^-24 of its magnitude, is rounded away, in every rounding mode: "
     "raise the "
     "learning rate, or make the weights smaller (initial values, weight decay)."},
    {SmallUpdates::directed, 0, "updates.biased", Severity::warning,
     "{} rounded updates to a side that does not depend on their size: some changed nothing, the others changed the weight by more "
     "than "
     "they were.",
     "What an update below an ulp does then depends on its sign, in mode ro on the last bit of the weight, and not on its size, so "
     "that errors add up. Round the update stochastically (rounding = \"sr\"), or keep FP32 master weights; to nearest, what is "
     "below half an ulp would be lost instead."},
    {SmallUpdates::stochastic, kLostLimit, "updates.lost", Severity::info,
     "{} kept the weight unchanged in more than {:g}% of the nonzero updates, as stochastic rounding does with updates below an "
     "ulp: "
     "one of a tenth of an ulp changes the weight by an ulp one time in ten. On average nothing is lost.",
     ""},
};

bool in_range(const StepRange& range, uint64_t step) { return step >= range.first && step < range.last; }

}  // namespace

void add_recording_findings(const Snapshot& reader, const AnalysisOptions& options, Report& report) {
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
  add_missing_step_findings(reader, options, report);
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
  // A few at most, and each says something else: no more rows, no more steps, training.
  for (const EventRow& event : reader.events()) {
    if (!in_range(options.steps, event.step)) continue;
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

void add_missing_step_findings(const Snapshot& reader, const AnalysisOptions& options, Report& report) {
  const std::vector<TracePart> parts = reader.parts();
  // The first step that no part so far has; what a first part that was itself resumed came after is no part of the run as read.
  uint64_t next = static_cast<uint64_t>(std::max<int64_t>(0, parts.front().run.parent_step));
  uint64_t missing = 0;
  Finding finding{"recording.missing_steps", Severity::warning, "", {}, kMissingSuggestion};
  for (size_t i = 0; i < parts.size(); ++i) {
    const uint64_t first = std::max(next, options.steps.first), last = std::min(parts[i].steps.first, options.steps.last);
    if (i > 0 && first < last) {
      missing += last - first;
      finding.evidence.push_back(
          {key_of_step(reader, first),
           {{"missing_steps", count_cell(last - first), Unit::count}, {"before", parts[i].path}, {"after", parts[i - 1].path}}});
    }
    reader.visit_steps(parts[i].steps, [&](std::span<const StepRow> rows) {
      next = rows.back().step + 1;
      return !options.cancelled();
    });
  }
  if (missing == 0) return;
  finding.title = fmt::format("{} of the run {} in none of its traces, first step {}.", count_of(missing, "step"),
                              missing == 1 ? "is" : "are", *finding.evidence.front().key.step);
  report.findings.push_back(std::move(finding));
}

void add_loss_findings(const Snapshot& reader, const AnalysisOptions& options, Report& report) {
  uint64_t nonfinite = 0, steps = 0;
  std::optional<uint64_t> first;
  reader.visit_steps(options.steps, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) {
      ++steps;
      if (!row.loss_known || std::isfinite(row.loss)) continue;
      ++nonfinite;
      if (!first) first = row.step;
    }
    return !options.cancelled();
  });
  if (!first) return;
  report.findings.push_back(
      {"run.loss_nonfinite",
       Severity::error,
       fmt::format("The loss was NaN or infinity in {} of {}, first in step {}.", nonfinite, count_of(steps, "step"), *first),
       {{key_of_step(reader, *first), {{"steps", count_cell(nonfinite), Unit::count}}}},
       fmt::format("The first nonfinite tensor of that step is where to look: `ulpscope ranges {} --step {}`.",
                   shell_word(reader.path()), *first)});
}

void add_update_findings(const Snapshot& reader, const Selection& selection, const AnalysisOptions& options, Report& report) {
  struct Updates {
    uint64_t rows = 0, nonzero = 0, lost = 0, lost_to_decay = 0;
  };
  std::vector<Updates> updates(selection.size());
  uint64_t rows_seen = 0, nonzero = 0, applied = 0;
  reader.visit_updates(options.steps, [&](std::span<const UpdateRow> rows) {
    for (const UpdateRow& row : rows) {
      if (!selection.contains(row.tensor)) continue;
      Updates& of_tensor = updates[row.tensor];
      ++of_tensor.rows;
      of_tensor.nonzero += row.nonzero;
      of_tensor.lost += row.lost;
      of_tensor.lost_to_decay += row.lost_to_decay;
      ++rows_seen;
      nonzero += row.nonzero;
      applied += row.nonzero - row.lost;
    }
    return !options.cancelled();
  });
  if (rows_seen > 0 && applied == 0) {
    bool narrow = false;
    for (uint32_t i = 0; i < updates.size(); ++i) narrow = narrow || (updates[i].rows > 0 && is_narrow(selection.tensor(i).dtype));
    bool rate_was_zero = true;  // in every step; not known is no zero
    reader.visit_steps(options.steps, [&](std::span<const StepRow> rows) {
      for (const StepRow& row : rows) rate_was_zero = rate_was_zero && row.learning_rate == 0;
      return true;
    });
    report.findings.push_back(
        {"updates.none_applied",
         Severity::error,
         fmt::format("No update changed any weight in {}: the run learns nothing.", count_of(rows_seen, "recorded update")),
         {},
         rate_was_zero  ? "The learning rate was 0."
         : nonzero == 0 ? "Every update was zero, for every gradient was: the findings on ranges say where they were lost."
         : narrow       ? "Every update was too small for its weight, less than half an ulp where roundings are to nearest: keep "
                          "FP32 master weights (optimizer.master_weights = true), or raise the learning rate."
                        : "Every update was too small for its FP32 weight, less than half an ulp: raise the learning rate."});
    return;
  }
  for (const LostText& text : kLostTexts) {
    std::vector<std::pair<double, uint32_t>> lost;
    for (uint32_t i = 0; i < updates.size(); ++i) {
      if (updates[i].nonzero == 0 || text.of != kind_of(selection.tensor(i))) continue;
      const double share = static_cast<double>(updates[i].lost) / static_cast<double>(updates[i].nonzero);
      if (share > text.limit) lost.emplace_back(share, i);
    }
    if (lost.empty()) continue;
    std::stable_sort(lost.begin(), lost.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    Finding finding{text.code,
                    text.severity,
                    fmt::format(fmt::runtime(text.title), count_of(lost.size(), "parameter"), 100 * text.limit),
                    {},
                    text.suggestion};
    for (size_t i = 0; i < std::min<size_t>(5, lost.size()); ++i) {
      const Updates& of_tensor = updates[lost[i].second];
      finding.evidence.push_back({selection.key(lost[i].second),
                                  {{"lost", lost[i].first, Unit::share},
                                   {"nonzero_updates", count_cell(of_tensor.nonzero), Unit::count},
                                   {"lost_to_decay", count_cell(of_tensor.lost_to_decay), Unit::count}}});
    }
    report.findings.push_back(std::move(finding));
  }
}

}  // namespace ulpscope
