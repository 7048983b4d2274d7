#include <algorithm>
#include <map>
#include <string>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/totals/compared_runs.h"

namespace ulpscope::findings {

namespace {

using DifferenceKind = FirstDifferentOutput::Kind;
using What = FirstDifferentOutput::What;
using Change = FirstDifferentOutput::Change;

constexpr Template kDiffers{"compare.first_op", "The first output with other bits is {output}, in step {step}."};
constexpr Template kGiven{"compare.first_op.given", "What the runs were given differs first: {output}, in step {step}."};
constexpr Template kFirstComputed{"compare.first_op.only_in_first",
                                  "The first run computed {output} in step {step}, and the second did not{instead:brackets}."};
constexpr Template kSecondComputed{"compare.first_op.only_in_second",
                                   "The second run computed {output} in step {step}, and the first did not{instead:brackets}."};
constexpr Template kInstead{"compare.first_op.instead", "it computed {output}"};

constexpr Template kInputsEqual{"compare.first_op.inputs_equal",
                                "{inputs:count input} of its op {inputs:either was|were} equal, bit for bit."};
constexpr Template kInputsUnknown{"compare.first_op.inputs_unknown",
                                  "No bits were recorded of {unknown} of the {inputs:count input} of its op."};
constexpr Template kInputsUntold{"compare.first_op.inputs_untold", "Not all that its op read is known."};

constexpr Template kChanged{"compare.first_op.changed", "In the second run {changes}."};
constexpr Template kFunction{"compare.first_op.function", "its function is {b} instead of {a}"};
constexpr Template kAttribute{"compare.first_op.attribute", "{name} is {b} instead of {a}"};
constexpr Template kType{"compare.first_op.type", "its type is {b} instead of {a}"};
constexpr Template kShape{"compare.first_op.shape", "its shape is {b} instead of {a}"};
constexpr Template kInput{"compare.first_op.input", "its op reads {b} instead of {a}"};
constexpr Template kTypeOfInput{"compare.first_op.type_of_input", "an input of its op has the type {b} instead of {a}"};
constexpr Template kRounding{"compare.first_op.rounding", "its rounding is {b} instead of {a}"};
constexpr Template kLossScale{"compare.first_op.loss_scale", "the loss scale is {b} instead of {a}"};
constexpr Template kLearningRate{"compare.first_op.learning_rate", "the learning rate is {b} instead of {a}"};

constexpr Template kMemory{"compare.first_op.memory", "the memory of {input} had changed before its op read it"};
constexpr Template kMemoryOfFirst{"compare.first_op.memory_of_first",
                                  "the memory of {input} had not changed, as it had in the first"};

constexpr Template kSameOp{"compare.first_op.same",
                           "Op, attributes and types are equal: it was computed otherwise, as in another order of sums, or memory "
                           "changed unseen."};
constexpr Template kSettings{"compare.first_op.settings", "Settings that differ: {settings:commas}{others:brackets}."};
constexpr Template kSetting{"compare.first_op.setting", "{setting} ({a} and {b})"};
constexpr Template kOtherSettings{"compare.first_op.other_settings", "{others} more"};

constexpr Template kBeyondRounding{"compare.first_op.beyond_rounding",
                                   "The outputs lie {times:.3g} times as far apart as rounding in FP32 can explain, or farther."};
constexpr Template kWithinRounding{
    "compare.first_op.within_rounding",
    "Rounding in FP32 can explain a difference of {bound:.2g} of their norm, and the statistics show "
    "no larger one."};

constexpr size_t kMostTold = 3;

Sentence phrase_of(const Change& change) {
  const auto value = [](const std::string& text) { return Name{NameKind::value, text}; };
  const auto both = [&](const Template& words) { return words({{"a", value(change.a)}, {"b", value(change.b)}}); };
  const auto types = [&](const Template& words) {
    return words({{"a", Name{NameKind::format, change.a}}, {"b", Name{NameKind::format, change.b}}});
  };
  switch (change.what) {
    case What::function:
      return kFunction({{"a", Name{NameKind::function, change.a}}, {"b", Name{NameKind::function, change.b}}});
    case What::attribute:
      return kAttribute({{"name", value(change.name)}, {"a", value(change.a)}, {"b", value(change.b)}});
    case What::type:
      return types(kType);
    case What::type_of_input:
      return types(kTypeOfInput);
    case What::shape:
      return both(kShape);
    case What::input:
      return kInput({{"a", Name{NameKind::op, change.a}}, {"b", Name{NameKind::op, change.b}}});
    case What::rounding:
      return both(kRounding);
    case What::loss_scale:
      return both(kLossScale);
    case What::learning_rate:
      return both(kLearningRate);
    case What::memory:
      return (change.b.empty() ? kMemoryOfFirst : kMemory)({{"input", Name{NameKind::tensor, change.name}}});
  }
  return both(kShape);
}

// What the runs were set to otherwise, but how they were recorded.
Value different_settings(const ComparedRuns& runs, size_t& others) {
  std::map<std::string, std::string> of_a;
  for (const SettingInfo& setting : runs.a.trace().settings()) of_a.emplace(setting.name, setting.value);
  Value::List told;
  others = 0;
  for (const SettingInfo& setting : runs.b.trace().settings()) {
    const auto found = of_a.find(setting.name);
    if (found == of_a.end() || found->second == setting.value || setting.name.starts_with("recording.")) continue;
    if (told.size() == kMostTold) {
      ++others;
      continue;
    }
    told.push_back(kSetting({{"setting", Setting{setting.name}},
                             {"a", Name{NameKind::value, found->second}},
                             {"b", Name{NameKind::value, setting.value}}}));
  }
  return Value::list(std::move(told));
}

void add_causes(const ComparedRuns& runs, const FirstDifferentOutput& first, Sentences& title) {
  const bool memory_changed =
      std::any_of(first.changes.begin(), first.changes.end(), [](const Change& change) { return change.what == What::memory; });
  // Of memory that changed, what was written was equal, and what was read was not.
  if (first.inputs > 0 && first.unknown_inputs == 0 && first.inputs_are_told && !memory_changed)
    title += kInputsEqual({{"inputs", first.inputs}});
  else if (first.unknown_inputs > 0)
    title += kInputsUnknown({{"unknown", first.unknown_inputs}, {"inputs", first.inputs}});
  else if (!first.inputs_are_told)
    title += kInputsUntold();
  if (!first.changes.empty()) {
    Value::List changes;
    for (size_t i = 0; i < std::min(first.changes.size(), kMostTold); ++i) changes.push_back(phrase_of(first.changes[i]));
    title += kChanged({{"changes", Value::list(std::move(changes))}});
    return;
  }
  if (first.unknown_inputs == 0 && first.inputs_are_told) title += kSameOp();
  size_t others = 0;
  if (const Value settings = different_settings(runs, others); !settings.empty())
    title += kSettings({{"settings", settings}, {"others", others > 0 ? Value(kOtherSettings({{"others", others}})) : Value()}});
  if (!first.distance || !first.distance->bound || *first.distance->bound == 0) return;
  const double times = first.distance->least / *first.distance->bound;
  if (times > 1)
    title += kBeyondRounding({{"times", times}});
  else if (first.distance->norm > 0)
    title += kWithinRounding({{"bound", *first.distance->bound / first.distance->norm}});
}

void find_first_op(const ComparedRuns& runs, Findings& found) {
  if (!runs.bits.first) return;
  const FirstDifferentOutput& first = *runs.bits.first;
  const bool is_of_b = first.tensor_b && first.kind != DifferenceKind::only_in_a;
  const Selection &selection = is_of_b ? runs.b.selection() : runs.a.selection(),
                  &other = is_of_b ? runs.a.selection() : runs.b.selection();
  const uint32_t tensor = is_of_b ? *first.tensor_b : *first.tensor_a;
  const Value output = tensor_name(selection, tensor), step = ordinal(first.step);
  Sentences title;
  if (first.kind == DifferenceKind::only_in_a || first.kind == DifferenceKind::only_in_b) {
    const auto& in_place = is_of_b ? first.tensor_a : first.tensor_b;
    const Value instead = in_place ? Value(kInstead({{"output", tensor_name(other, *in_place)}})) : Value();
    title = (is_of_b ? kSecondComputed : kFirstComputed)({{"output", output}, {"step", step}, {"instead", instead}});
  } else if (first.kind == DifferenceKind::given) {
    title = kGiven({{"output", output}, {"step", step}});
  } else {
    title = kDiffers({{"output", output}, {"step", step}});
    add_causes(runs, first, title);
  }
  RowKey key = selection.key(tensor, RowPosition(first.step, first.rank, 0, first.micro_batch, first.loss_index));
  Evidence evidence{std::move(key), {{"equal_outputs", static_cast<int64_t>(runs.bits.outputs), Unit::count}}};
  if (first.distance) evidence.values.push_back({"least_distance", first.distance->least});
  if (first.distance && first.distance->bound) evidence.values.push_back({"rounding_bound", *first.distance->bound});
  found.add(Severity::info, std::move(title), {std::move(evidence)});
}

}  // namespace

extern constinit const FindingRule compare_first_op{
    .code = "compare.first_op",
    .part = Part::compare,
    .raised = "Both runs recorded hashes of their outputs' bits (`--record stats,bits`), and some differ.",
    .meaning = "Of all outputs it is the first one, in order of execution, that differs. What differs behind it can come of it.",
    .help =
        "Look at its op: all outputs before it are equal, so that the cause is the op, how it was computed, or what it was given.",
    .is_about_run = false,
    .compare = find_first_op,
};

}  // namespace ulpscope::findings
