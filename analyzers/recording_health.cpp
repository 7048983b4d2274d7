#include "ulpscope/analyzers/recording_health.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

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

constexpr const char* kMemorySuggestion =
    "No recorded op did this. Repeat the run: what changes again at the same place comes from a program, one that writes there "
    "without recording it or past the end of another tensor, or has two tensors in the same memory. One bit of one element that "
    "changes only once speaks for the machine's memory.";

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
  std::string (*suggestion)(const SettingNames& settings);
};
constexpr LostText kLostTexts[] = {
    {SmallUpdates::nearest, kLostLimit, "updates.lost", Severity::warning,
     "{} lost more than {:g}% of the nonzero updates: they were too small to change the weight.",
     [](const SettingNames& settings) {
       const std::string math = settings.changed(SettingKind::update_math, "\"param\"", "\"fp32\"");
       const bool named = settings.has("arithmetic.ops");
       return fmt::format(
           "Keep FP32 master weights, round the update stochastically{}, or raise the learning rate: an update below half an ulp "
           "of "
           "the weight is rounded away.",
           in_brackets(
               {named ? "arithmetic.ops.<optimizer>_update.rounding = \"sr\"" + (math.empty() ? "" : " with " + math) : ""}));
     }},
    {SmallUpdates::fp32, kLostLimit, "updates.lost", Severity::warning,
     "{} lost more than {:g}% of the nonzero updates: they were too small to change the weight.",
     [](const SettingNames&) -> std::string {
       return "An update below half an ulp of an FP32 weight, 2^-25 to 2^-24 of its magnitude, is rounded away, in every rounding "
              "mode: raise the learning rate, or make the weights smaller (initial values, weight decay).";
     }},
    {SmallUpdates::directed, 0, "updates.biased", Severity::warning,
     "{} rounded updates to a side that does not depend on their size: some changed nothing, the others changed the weight by more "
     "than "
     "they were.",
     [](const SettingNames& settings) {
       return fmt::format(
           "What an update below an ulp does then depends on its sign, in mode ro on the last bit of the weight, and not on its "
           "size, "
           "so that errors add up. Round the update stochastically{}, or keep FP32 master weights; to nearest, what is below half "
           "an "
           "ulp would be lost instead.",
           in_brackets({settings.has("arithmetic.rounding") ? "rounding = \"sr\"" : ""}));
     }},
    {SmallUpdates::stochastic, kLostLimit, "updates.lost", Severity::info,
     "{} kept the weight unchanged in more than {:g}% of the nonzero updates, as stochastic rounding does with updates below an "
     "ulp: "
     "one of a tenth of an ulp changes the weight by an ulp one time in ten. On average nothing is lost.",
     [](const SettingNames&) -> std::string { return ""; }},
};

bool in_range(const StepRange& range, uint64_t step) { return step >= range.first && step < range.last; }

// What a weight or a state was where it was read is not what had been written, whatever arithmetic did.
void add_memory_finding(const AnalysisContext& context, Report& report) {
  uint64_t times = 0;
  Finding finding{"recording.memory_changed", Severity::error, "", {}, kMemorySuggestion};
  for (const EventRow& event : context.trace.events()) {
    if (event.kind != EventKind::memory_changed || !in_range(context.options.steps, event.step)) continue;
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
  report.findings.push_back(
      {"run.loss_nonfinite",
       Severity::error,
       fmt::format("The loss was NaN or infinity in {} of {}, first in step {}.", nonfinite, count_of(steps.count, "step"), first),
       {{key_of_step(context.trace, first), {{"steps", count_cell(nonfinite), Unit::count}}}},
       fmt::format("The first nonfinite tensor of that step is where to look: `ulpscope ranges {} --step {}`.",
                   shell_word(context.trace.path()), first)});
}

void UpdateTotals::append(const UpdateTotals& later) {
  rows += later.rows;
  nonzero += later.nonzero;
  lost += later.lost;
  lost_to_decay += later.lost_to_decay;
}

void UpdateFacts::update(const Block& block) {
  PerTensor<UpdateTotals>& updates = updates_.at(block.rank, block.step);
  for (const ParameterRow& row : block.parameters) {
    if (context_->selection.contains(row.tensor)) updates[row.tensor].append({1, row.nonzero, row.lost, row.lost_to_decay});
  }
}

void add_update_findings(const AnalysisContext& context, const StepFacts& steps, const UpdateFacts& facts, Report& report) {
  const Selection& selection = context.selection;
  PerTensor<UpdateTotals> room;
  const PerTensor<UpdateTotals>& by_tensor = facts.updates().judged(room);
  std::vector<std::pair<uint32_t, UpdateTotals>> updates;
  UpdateTotals all;
  for (uint32_t i = 0; i < selection.size(); ++i) {
    if (const UpdateTotals* const totals = by_tensor.find(i)) {
      updates.emplace_back(i, *totals);
      all.append(*totals);
    }
  }
  if (all.rows > 0 && all.nonzero == all.lost) {
    const bool narrow = std::any_of(updates.begin(), updates.end(),
                                    [&](const auto& each) { return is_narrow(selection.tensor(each.first).dtype); });
    report.findings.push_back(
        {"updates.none_applied",
         Severity::error,
         fmt::format("No update changed any weight in {}: the run learns nothing.", count_of(all.rows, "recorded update")),
         {},
         steps.judged().rate_was_zero ? "The learning rate was 0."
         : all.nonzero == 0 ? "Every update was zero, for every gradient was: the findings on ranges say where they were lost."
         : narrow
             ? "Every update was too small for its weight, less than half an ulp where roundings are to nearest: keep FP32 "
               "master weights" +
                   in_brackets({context.settings.switched(SettingKind::master_weights, true)}) + ", or raise the learning rate."
             : "Every update was too small for its FP32 weight, less than half an ulp: raise the learning rate."});
    return;
  }
  for (const LostText& text : kLostTexts) {
    std::vector<std::pair<double, size_t>> lost;
    for (size_t i = 0; i < updates.size(); ++i) {
      const auto& [tensor, totals] = updates[i];
      if (totals.nonzero == 0 || text.of != kind_of(selection.tensor(tensor))) continue;
      const double share = static_cast<double>(totals.lost) / static_cast<double>(totals.nonzero);
      if (share > text.limit) lost.emplace_back(share, i);
    }
    if (lost.empty()) continue;
    std::stable_sort(lost.begin(), lost.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    Finding finding{text.code,
                    text.severity,
                    fmt::format(fmt::runtime(text.title), count_of(lost.size(), "parameter"), 100 * text.limit),
                    {},
                    text.suggestion(context.settings)};
    for (size_t i = 0; i < std::min<size_t>(5, lost.size()); ++i) {
      const auto& [tensor, of_tensor] = updates[lost[i].second];
      finding.evidence.push_back({selection.key(tensor),
                                  {{"lost", lost[i].first, Unit::share},
                                   {"nonzero_updates", count_cell(of_tensor.nonzero), Unit::count},
                                   {"lost_to_decay", count_cell(of_tensor.lost_to_decay), Unit::count}}});
    }
    report.findings.push_back(std::move(finding));
  }
}

}  // namespace ulpscope
