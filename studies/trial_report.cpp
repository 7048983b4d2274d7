#include "ulpscope/studies/trial_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/analyzers/subject/advice.h"
#include "ulpscope/base/text.h"
#include "ulpscope/studies/fixes.h"

namespace ulpscope {

namespace {

constexpr Template kVerified{"advice.verified", "Verified: {settings:and}{reference}."};
constexpr Template kTriedFails{"advice.tried_fails", "Tried, fails: {settings:and}."};
constexpr Template kTriedOpen{"advice.tried_open", "Tried, stays finite, but nothing tells whether it trains: {settings:and}."};
constexpr Template kTriedGuesses{"advice.tried_guesses", "Tried, stays finite, but ends no better than guessing: {settings:and}."};
constexpr Template kNotTried{"advice.not_tried", "Not tried, no time was left: {settings:and}."};
constexpr Template kEndsAt{"change.ends_at", "{settings} (loss {loss:.4g})"};
constexpr Template kReferenceEndsAt{"change.reference_ends_at", "; {reference} ends at {loss:.4g}"};
constexpr Template kTogether{"advice.settings_together", "{settings:and}"};
constexpr Template kMore{"advice.settings_more", "{more} more"};
constexpr Template kVerifiedFix{"verdict.verified_fix",
                                "Verified fix: {settings:and} ({steps:count step}, loss {loss:.4g}{reference})."};
constexpr Template kAgainst{"verdict.against_reference", "; {reference}: {loss:.4g}"};

Value settings_text(const std::vector<Setting>& settings) {
  const Value all = Value::list({settings.begin(), settings.end()});
  return settings.size() == 1 ? Value(settings.front()) : Value(kTogether({{"settings", all}}));
}

// "a = 1, a = 2 and 3 more", of verified ones with their losses.
Value settings_of(const std::vector<const TriedChange*>& changes, bool are_verified) {
  constexpr size_t kMostNamed = 3;
  Value::List named;
  for (const TriedChange* change : changes) {
    if (named.size() == kMostNamed) break;
    const Value settings = settings_text(change->settings);
    named.push_back(are_verified && change->end_loss ? kEndsAt({{"settings", settings}, {"loss", *change->end_loss}}) : settings);
  }
  if (changes.size() > named.size()) named.push_back(kMore({{"more", changes.size() - named.size()}}));
  return Value::list(std::move(named));
}

// Where it is a run in another format, and not that with further changes.
bool is_format(const Reference& reference) { return reference.name == "FP32" || reference.name == "FP64"; }

Cell number_or_none(const std::optional<double>& value) { return value ? Cell(*value) : Cell(NotApplicable{}); }

}  // namespace

Sentence verified_fix(const std::vector<Setting>& settings, uint64_t steps, double end_loss, const Reference& reference) {
  Value against;
  if (is_format(reference)) against = kAgainst({{"reference", Name{NameKind::format, reference.name}}, {"loss", reference.end}});
  return kVerifiedFix({{"settings", Value::list({settings.begin(), settings.end()})},
                       {"steps", steps},
                       {"loss", end_loss},
                       {"reference", against}});
}

Sentence verified_advice(const std::vector<Setting>& settings, double end_loss) {
  return kVerified({{"settings", kEndsAt({{"settings", settings_text(settings)}, {"loss", end_loss}})}, {"reference", {}}});
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
  constexpr double kLike = 0.05;  // of the reference's loss
  const double above = reference.end > 0 ? end_loss / reference.end - 1 : 0;
  const bool needs_allowance = !reference.is_reached_by(end_loss);
  if (!needs_allowance && !(above > kLike)) return "trains like the reference";
  const std::string skips = needs_allowance ? fmt::format(", after {}", count_of(skipped, "skipped step")) : "";
  return above > kLike ? fmt::format("trains; its loss ends {:.2g}% above the reference's{}", 100 * above, skips)
                       : "trains" + skips;
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
                                            ? fmt::format("loss below {:.4g}, {}", reference.below, reference.below_what)
                                            : fmt::format("loss up to {:.4g}", bound));
}

void add_tried(uint64_t first_step, uint64_t steps, const std::vector<Column>& measured, std::string_view note,
               const Reference& reference, std::vector<TriedChange> tried, Report& report) {
  judge_advice(tried, reference, report);
  Table table{
      "fixes",
      fmt::format("Changes tried, {} each from step {} on", count_of(steps, "step"), first_step),
      {{"change", ColumnKind::text}, {"result", ColumnKind::text}},
      {},
      0,
      fmt::format(
          "Changes that keep the training as configured come first, the cheapest first. {}{}End loss: the median of the last ten.",
          note, note.empty() ? "" : " ")};
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

void judge_advice(const std::vector<TriedChange>& tried, const Reference& reference, Report& report) {
  const bool type_helps =
      std::any_of(tried.begin(), tried.end(), [](const TriedChange& each) { return each.is_type && each.helps == Helps::yes; });
  if (type_helps) report.verdict_text.drop(kNoFormatHelps);
  for (Finding& finding : report.findings) {
    const std::string& code = finding.code;
    std::vector<const TriedChange*> help, fail, open, guess, left;
    for (const SettingChange& change : finding.changes) {
      std::vector<const TriedChange*> made;
      for (const TriedChange& each : tried)
        if (std::find(each.by.begin(), each.by.end(), change) != each.by.end()) made.push_back(&each);
      const auto any = [&](Helps helps) {
        return std::any_of(made.begin(), made.end(), [&](const TriedChange* each) { return each->helps_against(code) == helps; });
      };
      // Of several values the first that helps is what the advice means; all have to fail for it to be wrong.
      const bool helps = any(Helps::yes), is_open = any(Helps::unknown);
      for (const TriedChange* each : made) {
        const bool is_left = each->result == name_of(FixResult::not_tried);
        // What it leaves is another matter, or it could not be run.
        if (each->result == name_of(FixResult::still_loses) && is_open) continue;
        if (each->result == name_of(FixResult::refused)) continue;
        if (helps ? each->helps_against(code) != Helps::yes : is_open && each->helps_against(code) == Helps::no) continue;
        const bool is_guess = each->result == name_of(FixResult::trains_worse);
        (helps ? help : !is_open ? fail : is_left ? left : is_guess ? guess : open).push_back(each);
      }
    }
    if (type_helps) {
      finding.title.drop(kNoFormatHelps);
      finding.suggestion.drop(kNoFormatHelps);
    }
    Value against;
    if (is_format(reference))
      against = kReferenceEndsAt({{"reference", Name{NameKind::format, reference.name}}, {"loss", reference.end}});
    if (!help.empty()) finding.suggestion += kVerified({{"settings", settings_of(help, true)}, {"reference", against}});
    if (!fail.empty()) finding.suggestion += kTriedFails({{"settings", settings_of(fail, false)}});
    if (!open.empty()) finding.suggestion += kTriedOpen({{"settings", settings_of(open, false)}});
    if (!guess.empty()) finding.suggestion += kTriedGuesses({{"settings", settings_of(guess, false)}});
    if (!left.empty()) finding.suggestion += kNotTried({{"settings", settings_of(left, false)}});
  }
}

}  // namespace ulpscope
