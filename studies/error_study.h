// Looks for what makes the error of a gradient: suspects, one at a time, in the first step of a trial, two ways and in both
// directions; and what that adds to a report on errors (analyzers/verbs/errors.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/studies/error_split.h"

namespace ulpscope {

// A module whose sums are kept in FP32, or which computes in FP32, so that what reads it gets that.
struct Suspect {
  std::string module;
  std::vector<Setting> settings = {};       // that make it wide
  bool ran = false;                         // false: no time was left, or it could not
  std::optional<double> only_it_wide = {};  // the error of the study's gradient with only it changed
  // With all others changed so, and it as it was; nothing where that cannot be asked for.
  std::optional<double> only_it_narrow = {};
  std::string refusal = {};
};

struct ErrorStudy {
  uint64_t step = 0;
  ErrorSplit split;
  std::vector<GradientError> gradients;  // the largest first
  // On the first of them, where it is OpError::kFelt or more: all modules that have outputs in 16 bits. Those come first which,
  // wide, leave least of its error.
  std::vector<Suspect> suspects;
  bool is_worth_suspects() const;
};

struct ErrorStudyOptions {
  double budget = 60;                                      // seconds for all suspects
  std::function<bool(std::string_view trial)> watch = {};  // as FixOptions have it
};

// `start` begins at a capsule. Throws Error as run() does.
ErrorStudy study_errors(const Trial& start, const ErrorStudyOptions& options);

// Facts: split_step, the reference, and both losses. Tables: suspects; gradients and split, `limit` rows of each, 0: all. The
// verdict ends with the suspect that makes most of it.
void add_study(const ErrorStudy& study, size_t limit, Report& report);

}  // namespace ulpscope
