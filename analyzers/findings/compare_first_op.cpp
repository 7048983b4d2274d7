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
constexpr Template kChangedUnseen{"compare.first_op.changed_unseen",
                                  "{output} differs first, in step {step}: what changed it before was not recorded."};
constexpr Template kFirstComputed{"compare.first_op.only_in_first",
                                  "The first run computed {output}{by} in step {step}, and the second did not{instead:brackets}."};
constexpr Template kSecondComputed{"compare.first_op.only_in_second",
                                   "The second run computed {output}{by} in step {step}, and the first did not{instead:brackets}."};
constexpr Template kInstead{"compare.first_op.instead", "it computed {output}{by}"};
constexpr Template kBy{"compare.first_op.by", " by {op}"};

constexpr Template kInputsEqual{"compare.first_op.inputs_equal",
                                "All that its op read was equal, bit for bit: {inputs:count input}."};
constexpr Template kInputsUnknown{"compare.first_op.inputs_unknown",
                                  "Of {inputs:count input} of its op {equal} {equal:either is|are} known to be equal."};
constexpr Template kInputsUntold{"compare.first_op.inputs_untold", "Not all that its op read is known."};
constexpr Template kBehindGap{"compare.first_op.behind_gap",
                              "Steps before it were not recorded in both runs, so that it may have begun in one of these."};

constexpr Template kChanged{"compare.first_op.changed", "In the second run {changes}."};
constexpr Template kFunction{"compare.first_op.function", "its function is {b} instead of {a}"};
constexpr Template kAttribute{"compare.first_op.attribute", "{name} is {b} instead of {a}"};
constexpr Template kDefaultOfFirst{"compare.first_op.default_of_first", "{name} is {b} instead of its default"};
constexpr Template kDefaultOfSecond{"compare.first_op.default_of_second", "{name} has its default instead of {a}"};
constexpr Template kType{"compare.first_op.type", "its type is {b} instead of {a}"};
constexpr Template kShape{"compare.first_op.shape", "its shape is {b} instead of {a}"};
constexpr Template kInput{"compare.first_op.input", "its op reads {b} instead of {a}"};
constexpr Template kOperands{"compare.first_op.operands", "its op reads other numbers, or other views of its inputs"};
constexpr Template kRole{"compare.first_op.role", "it is {b} instead of {a}"};
constexpr Template kInputs{"compare.first_op.inputs", "its op reads {b} tensors instead of {a}"};
constexpr Template kInputIsCast{"compare.first_op.casts", "an input of its op is cast to {b}, instead of to {a}"};
constexpr Template kCastsOfFirst{"compare.first_op.casts_of_first", "an input of its op is not cast to {a}"};
constexpr Template kCastsOfSecond{"compare.first_op.casts_of_second", "an input of its op is cast to {b} first"};
constexpr Template kTypeOfInput{"compare.first_op.type_of_input", "an input of its op has the type {b} instead of {a}"};
constexpr Template kRounding{"compare.first_op.rounding", "its rounding is {b} instead of {a}"};
constexpr Template kLossScale{"compare.first_op.loss_scale", "the loss scale is {b} instead of {a}"};
constexpr Template kLearningRate{"compare.first_op.learning_rate", "the learning rate is {b} instead of {a}"};

constexpr Template kMemory{"compare.first_op.memory", "the memory of {input} had changed before its op read it"};
constexpr Template kMemoryOfBoth{"compare.first_op.memory_of_both",
                                 "the memory of {input} had changed before its op read it, as in the first"};
constexpr Template kMemoryOfFirst{"compare.first_op.memory_of_first",
                                  "the memory of {input} had not changed, as it had in the first"};

constexpr Template kSameOp{
    "compare.first_op.same",
    "Nothing else that was recorded of the op differs: another order of sums, another kernel, other random numbers, "
    "or memory that changed unseen."};
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
      if (change.name == "operands") return kOperands();
      if (change.a.empty()) return kDefaultOfFirst({{"name", value(change.name)}, {"b", value(change.b)}});
      if (change.b.empty()) return kDefaultOfSecond({{"name", value(change.name)}, {"a", value(change.a)}});
      return kAttribute({{"name", value(change.name)}, {"a", value(change.a)}, {"b", value(change.b)}});
    case What::type:
      return types(kType);
    case What::type_of_input:
      return types(kTypeOfInput);
    case What::shape:
      return both(kShape);
    case What::role:
      return both(kRole);
    case What::input:
      return kInput({{"a", Name{NameKind::tensor, change.a}}, {"b", Name{NameKind::tensor, change.b}}});
    case What::inputs:
      return both(kInputs);
    case What::casts:
      if (change.a.empty()) return kCastsOfSecond({{"b", value(change.b)}});
      if (change.b.empty()) return kCastsOfFirst({{"a", value(change.a)}});
      return both(kInputIsCast);
    case What::rounding:
      return both(kRounding);
    case What::loss_scale:
      return both(kLossScale);
    case What::learning_rate:
      return both(kLearningRate);
    case What::memory: {
      const Template& words = change.a.empty() ? kMemory : change.b.empty() ? kMemoryOfFirst : kMemoryOfBoth;
      return words({{"input", Name{NameKind::tensor, change.name}}});
    }
  }
  return both(kShape);
}

// The settings that differ between the runs, but for how they were recorded.
Value different_settings(const ComparedRuns& runs, size_t& others) {
  std::map<std::string, std::string> of_a;
  for (const SettingInfo& setting : runs.a.trace().settings()) of_a.emplace(setting.name, setting.value);
  Value::List told;
  others = 0;
  for (const SettingInfo& setting : runs.b.trace().settings()) {
    const auto found = of_a.find(setting.name);
    if (found == of_a.end() || found->second == setting.value || setting.name.starts_with("recording.") ||
        setting.name.starts_with("shadow."))
      continue;
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

Sentences changes_of(const FirstDifferentOutput& first) {
  if (first.changes.empty()) return {};
  Value::List changes;
  for (size_t i = 0; i < std::min(first.changes.size(), kMostTold); ++i) changes.push_back(phrase_of(first.changes[i]));
  return kChanged({{"changes", Value::list(std::move(changes))}});
}

void add_causes(const ComparedRuns& runs, const FirstDifferentOutput& first, Sentences& title) {
  if (first.has_equal_inputs() && first.inputs > 0)
    title += kInputsEqual({{"inputs", first.inputs}});
  else if (first.changes.empty() && first.equal_inputs < first.inputs)
    title += kInputsUnknown({{"inputs", first.inputs}, {"equal", first.equal_inputs}});
  else if (!first.inputs_are_told)
    title += kInputsUntold();
  if (!first.changes.empty()) {
    title += changes_of(first);
    return;
  }
  if (first.has_equal_inputs()) title += kSameOp();
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

Sentences title_of(const ComparedRuns& runs, const FirstDifferentOutput& first) {
  const bool is_of_b = first.kind != DifferenceKind::only_in_a;
  const Selection &a = runs.a.selection(), &b = runs.b.selection();
  const Value output = is_of_b ? tensor_name(b, *first.tensor_b) : tensor_name(a, *first.tensor_a), step = ordinal(first.step);
  switch (first.kind) {
    case DifferenceKind::only_in_a:
    case DifferenceKind::only_in_b: {
      const auto& in_place = is_of_b ? first.tensor_a : first.tensor_b;
      // Where the name of the output has it not.
      const auto by = [](const Selection& selection, uint32_t tensor) {
        const std::string& op = selection.op(tensor).name;
        const bool is_named = selection.name(tensor).find(op) != std::string::npos;
        return is_named ? Value() : Value(kBy({{"op", Name{NameKind::op, op}}}));
      };
      const Selection &own = is_of_b ? b : a, &other = is_of_b ? a : b;
      const Value instead =
          in_place ? Value(kInstead({{"output", tensor_name(other, *in_place)}, {"by", by(other, *in_place)}})) : Value();
      return (is_of_b ? kSecondComputed : kFirstComputed)(
          {{"output", output}, {"by", by(own, is_of_b ? *first.tensor_b : *first.tensor_a)}, {"step", step}, {"instead", instead}});
    }
    case DifferenceKind::given:
      return Sentences(kGiven({{"output", output}, {"step", step}})) + changes_of(first);
    case DifferenceKind::changed:
      return kChangedUnseen({{"output", output}, {"step", step}});
    case DifferenceKind::computed:
      break;
  }
  Sentences title = kDiffers({{"output", output}, {"step", step}});
  add_causes(runs, first, title);
  return title;
}

void find_first_op(const ComparedRuns& runs, Findings& found) {
  if (!runs.bits.first) return;
  const FirstDifferentOutput& first = *runs.bits.first;
  Sentences title = title_of(runs, first);
  if (first.is_behind_gap) title += kBehindGap();
  const bool is_of_b = first.kind != DifferenceKind::only_in_a;
  const uint32_t tensor = is_of_b ? *first.tensor_b : *first.tensor_a;
  const RowPosition position(first.step, is_of_b ? first.rank_b : first.rank_a, 0, first.micro_batch, first.loss_index);
  RowKey key = (is_of_b ? runs.b : runs.a).selection().key(tensor, position);
  Evidence evidence{std::move(key), {{"equal_outputs", count_cell(runs.bits.outputs), Unit::count}}};
  if (first.distance) evidence.values.push_back({"least_distance_of_norm", first.distance->least});
  if (first.distance && first.distance->bound) evidence.values.push_back({"rounding_bound_of_norm", *first.distance->bound});
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
