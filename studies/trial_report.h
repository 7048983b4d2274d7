// What studies that try changes add to a report in the same way.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/studies/timed_trials.h"

namespace ulpscope {

// The fact run_again of what was not run again, or did not do again what trials are about: nothing was tried.
void add_not_tried(std::string_view why, Report& report);
// "trains like the reference", of a trial whose loss ends where the reference's does or lower; else by how much it ends above, with
// the skipped steps where these made up for that.
std::string as_reference(const Reference& reference, double end_loss, uint64_t skipped);
// Facts: reference, reference_loss, counts_as_training.
void add_reference(const Reference& reference, Report& report);

// What the findings of the report advise.
std::vector<SettingChange> changes_of(const Report& report);

// Whether a change that was tried helps against what it is advised for.
enum class Helps : uint8_t { unknown, yes, no };

// "Verified fix: optimizer.master_weights = true (51 steps, loss 2.023; FP32: 2.023).", of the verdict.
Sentence verified_fix(const std::vector<Setting>& settings, uint64_t steps, double end_loss, const Reference& reference);

// "Verified: softmax's subtract_max = true (loss 0.31).", of the advice on what it mends.
Sentence verified_advice(const std::vector<Setting>& settings, double end_loss);

struct TriedChange {
  std::string text;
  std::vector<Setting> settings = {};  // of ChangedExperiment
  std::vector<SettingChange> by = {};  // as Fix has them
  Helps helps = Helps::unknown;
  std::vector<std::string> left = {};                // codes of the findings that it leaves, where it fails for these alone
  bool is_type = false;                              // it changes types only
  std::string result = {};                           // FixResult; "": of the run as it was
  std::vector<std::optional<double>> measures = {};  // in the study's own columns
  std::optional<double> end_loss = {};
  std::string detail = {};

  Helps helps_against(const std::string& code) const;
};
// The table fixes, before all others: change, result, `measured`, end loss, detail. `tried` is judged as advice, too.
void add_tried(uint64_t first_step, uint64_t steps, const std::vector<Column>& measured, std::string_view note,
               const Reference& reference, std::vector<TriedChange> tried, Report& report);

// Behind the advice of a finding stands what came of each change that it names: verified, fails, or not tried. That no format would
// have helped is not said where one did.
void judge_advice(const std::vector<TriedChange>& tried, const Reference& reference, Report& report);

}  // namespace ulpscope
