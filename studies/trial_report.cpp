#include "ulpscope/studies/trial_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/analyzers/subject/advice.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

constexpr Template kHelpsWhenTried{"advice.helps_when_tried", "Helps when tried: {settings}."};
constexpr Template kOfNoHelp{"advice.of_no_help", "Of no help when tried: {settings}."};
constexpr Template kAdvisedItWas{"advice.advised_it_was", "Advised it was: {said}"};
constexpr Template kChange{"change.of_settings", "{change}: {settings:commas}"};
constexpr Template kTogether{"advice.settings_together", "{settings:commas}"};
constexpr Template kAndMore{"advice.settings_and_more", "{settings:commas} and {more} more"};

// "a = 1, a = 2 and 3 more".
Value settings_of(const std::vector<const TriedChange*>& changes) {
  constexpr size_t kMostNamed = 3;
  Value::List named;
  size_t more = 0;
  for (const TriedChange* change : changes) {
    if (named.size() >= kMostNamed) {
      ++more;
      continue;
    }
    Value::List of_change(change->settings.begin(), change->settings.end());
    named.push_back(of_change.size() == 1 ? of_change.front() : kTogether({{"settings", Value::list(std::move(of_change))}}));
  }
  const Value settings = Value::list(std::move(named));
  return more == 0 ? settings : kAndMore({{"settings", settings}, {"more", more}});
}

Cell number_or_none(const std::optional<double>& value) { return value ? Cell(*value) : Cell(NotApplicable{}); }

}  // namespace

Sentence change_phrase(const std::string& words, const std::vector<Setting>& settings) {
  return kChange({{"change", Name{NameKind::change, words}}, {"settings", Value::list({settings.begin(), settings.end()})}});
}

Helps TriedChange::helps_against(const std::string& code) const {
  const bool is_left = left.empty() || std::find(left.begin(), left.end(), code) != left.end();
  return is_left ? helps : Helps::unknown;
}

std::vector<SettingChange> changes_of(const Report& report) {
  std::vector<SettingChange> all;
  for (const Finding& finding : report.findings)
    for (const SettingChange& change : finding.changes)
      if (std::find(all.begin(), all.end(), change) == all.end()) all.push_back(change);
  return all;
}

void add_not_tried(std::string_view why, Report& report) {
  report.add_fact("run_again", fmt::format("{}; nothing was tried", why));
}

std::string as_reference(const Reference& reference, double end_loss, uint64_t skipped) {
  return "trains as the reference does" +
         (reference.is_reached_by(end_loss) ? "" : fmt::format(", but for {}", count_of(skipped, "skipped step")));
}

void add_reference(const Reference& reference, Report& report) {
  if (!reference.exists()) {
    report.add_fact("reference", "none: " + reference.lack);
    return;
  }
  report.add_fact("reference", reference.name);
  report.add_fact("reference_loss", fmt::format("{:.4g} to {:.4g}", reference.start, reference.end));
  const double bound = reference.bound();
  report.add_fact("counts_as_training", reference.below <= bound
                                            ? fmt::format("a loss below {}, {:.4g}", reference.below_what, reference.below)
                                            : fmt::format("a loss up to {:.4g}", bound));
}

void add_tried(uint64_t first_step, uint64_t steps, const std::vector<Column>& measured, std::string_view note,
               std::vector<TriedChange> tried, Report& report) {
  judge_advice(tried, report);
  Table table{
      "fixes",
      fmt::format("What was tried, from step {} on and for {} steps", first_step, steps),
      {{"change", ColumnKind::text}, {"result", ColumnKind::text}},
      {},
      0,
      fmt::format(
          "First what leaves the training as it was asked for, the cheapest first. {}{}End loss: the median of the last ten.", note,
          note.empty() ? "" : " ")};
  table.columns.insert(table.columns.end(), measured.begin(), measured.end());
  table.columns.push_back({"end_loss"});
  table.columns.push_back({"detail", ColumnKind::text});
  for (TriedChange& change : tried) {
    TableRow& row = table.rows.emplace_back();
    row.cells.push_back(std::move(change.text));
    row.cells.push_back(text_or_none(std::move(change.result)));
    for (const std::optional<double>& measure : change.measures) row.cells.push_back(number_or_none(measure));
    row.cells.push_back(number_or_none(change.end_loss));
    row.cells.push_back(std::move(change.detail));
  }
  report.tables.insert(report.tables.begin(), std::move(table));
}

void judge_advice(const std::vector<TriedChange>& tried, Report& report) {
  const bool type_helps =
      std::any_of(tried.begin(), tried.end(), [](const TriedChange& each) { return each.is_type && each.helps == Helps::yes; });
  for (size_t i = 0; i < report.findings.size(); ++i) {
    const std::string& code = report.findings[i].code;
    std::vector<const TriedChange*> help, fail;
    for (const SettingChange& change : report.findings[i].changes) {
      std::vector<const TriedChange*> made;
      for (const TriedChange& each : tried)
        if (std::find(each.by.begin(), each.by.end(), change) != each.by.end()) made.push_back(&each);
      const auto any = [&](Helps helps) {
        return std::any_of(made.begin(), made.end(), [&](const TriedChange* each) { return each->helps_against(code) == helps; });
      };
      // Of several values the first that helps is what the advice means; all have to fail for it to be wrong.
      const bool fails = any(Helps::no) && !any(Helps::yes) && !any(Helps::unknown);
      for (const TriedChange* each : made)
        if (fails || each->helps_against(code) == Helps::yes) (fails ? fail : help).push_back(each);
    }
    Sentences text = report.findings[i].suggestion;
    if (type_helps) text.drop(kNoFormatHelps);
    if (help.empty() && fail.empty()) {
      report.findings[i].suggestion = std::move(text);
      continue;
    }
    const Sentence helps = help.empty() ? Sentence() : kHelpsWhenTried({{"settings", settings_of(help)}});
    if (fail.empty()) {
      text += helps;
    } else {
      text.begin_with(kAdvisedItWas);
      text = Sentences{helps, kOfNoHelp({{"settings", settings_of(fail)}})} + text;
    }
    report.findings[i].suggestion = std::move(text);
  }
}

}  // namespace ulpscope
