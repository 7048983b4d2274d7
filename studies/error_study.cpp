#include "ulpscope/studies/error_study.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/judgements/op_errors.h"
#include "ulpscope/base/clock.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/run/precision.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope {

namespace {

constexpr Template kSuspect{"verdict.error_suspect",
                            "The gradient of {parameter} is {error} off in step {step}: with {settings:and}, {left}."};

constexpr Template kWorstGradient{"verdict.worst_gradient",
                                  "The gradient that is farthest off in step {step} is that of {parameter}: {error}."};

constexpr Template kBroken{"verdict.gradients_not_finite",
                           "In step {step}, run again, {gradients:count gradient} had elements that were not finite."};

// A module with outputs that were computed again.
struct Module {
  std::string name;
  double injected = 0;  // the largest of its outputs
  bool has_products = false, has_others = false;
};

// Gives those that inject most first.
std::vector<Module> modules_of(const ErrorSplit& split) {
  std::vector<Module> modules;
  for (const OutputSplit& output : split.outputs) {
    if (output.module.empty() || !output.injected || output.function == OpFunction::cast) continue;
    auto found = std::find_if(modules.begin(), modules.end(), [&](const Module& each) { return each.name == output.module; });
    if (found == modules.end()) found = modules.insert(modules.end(), Module{output.module});
    found->injected = std::max(found->injected, *output.injected);
    if (output.phase == Phase::forward)
      (semantics_of(output.function).product != ProductKind::none ? found->has_products : found->has_others) = true;
  }
  std::stable_sort(modules.begin(), modules.end(), [](const Module& a, const Module& b) { return a.injected > b.injected; });
  return modules;
}

const Accumulation* fp32_sums() { return Arithmetic().accumulation; }

// The changes of the first pattern that the module fits.
ArithmeticChange change_of(const ArithmeticPolicy& policy, const std::string& module) {
  const auto found = std::find_if(policy.modules.begin(), policy.modules.end(),
                                  [&](const auto& changed) { return glob_match(changed.first, module); });
  return found == policy.modules.end() ? ArithmeticChange() : found->second;
}

// How the sums of a module are kept; nullptr: not alike in all of its ops.
const Accumulation* accumulation_of(const ArithmeticPolicy& policy, const std::string& module) {
  if (const ArithmeticChange change = change_of(policy, module); change.accumulation) return *change.accumulation;
  const bool differs =
      std::any_of(policy.ops.begin(), policy.ops.end(), [](const auto& op) { return op.second.accumulation.has_value(); });
  return differs ? nullptr : policy.run.accumulation;
}

// Changes how the sums of a module are kept, and nothing else that its pattern has.
void set_sums(Experiment& experiment, const std::string& module, const Accumulation* accumulation) {
  ArithmeticChange change = change_of(experiment.arithmetic, module);
  change.accumulation = accumulation;
  experiment.arithmetic.modules.insert(experiment.arithmetic.modules.begin(), {module, change});
}

void set_all_sums(Experiment& experiment, const Accumulation* accumulation) {
  for (auto& [pattern, change] : experiment.arithmetic.modules) change.accumulation = accumulation;
  ArithmeticChange rest;
  rest.accumulation = accumulation;
  experiment.arithmetic.modules.emplace_back("*", rest);
}

void set_type(Experiment& experiment, const std::string& modules, Precision type) {
  experiment.autocast.modules.insert(experiment.autocast.modules.begin(), {modules, type});
}

// One suspect, and the experiments that try it.
struct TriedSuspect {
  Suspect suspect;
  Experiment wide;
  std::optional<Experiment> narrow;
};

std::vector<TriedSuspect> suspects_of(const Experiment& experiment, const ErrorSplit& split) {
  constexpr const char* kAll = "*";
  const PrecisionRow& row = row_of(experiment.precision);
  const bool casts_ops = !row.casts_model && (row.dtype == DType::f16 || row.dtype == DType::bf16);
  const Precision narrow_type = row.dtype == DType::f16 ? Precision::fp16 : Precision::bf16;
  std::vector<TriedSuspect> tried;
  for (const Module& module : modules_of(split)) {
    const Accumulation* const sums = accumulation_of(experiment.arithmetic, module.name);
    if (sums != fp32_sums()) {
      TriedSuspect each{{module.name}, experiment, {}};
      each.suspect.settings = {{.name = fmt::format("arithmetic.modules.\"{}\".accumulate", module.name), .to = "\"fp32\""}};
      set_sums(each.wide, module.name, fp32_sums());
      if (sums != nullptr) {
        each.narrow = experiment;
        set_all_sums(*each.narrow, fp32_sums());
        set_sums(*each.narrow, module.name, sums);
      }
      tried.push_back(std::move(each));
    }
    if (casts_ops) {
      TriedSuspect each{{module.name}, experiment, {}};
      each.suspect.settings = {{.name = fmt::format("autocast.modules.\"{}\"", module.name), .to = "\"fp32\""}};
      set_type(each.wide, module.name, Precision::fp32);
      // Others than products have types of their own under autocast, which no setting asks for again.
      if (module.has_products && !module.has_others) {
        each.narrow = experiment;
        set_type(*each.narrow, kAll, Precision::fp32);
        set_type(*each.narrow, module.name, narrow_type);
      }
      tried.push_back(std::move(each));
    }
  }
  return tried;
}

std::optional<double> error_of(const StepValues& values, const StepValues& reference, const std::string& parameter) {
  const std::optional<GradientError> error = gradient_error(parameter, values, reference);
  return error ? error->error : std::nullopt;
}

std::string output_name(const OutputSplit& output) {
  if (!output.parameter.empty()) return fmt::format("{} {}", output.parameter, output.op);
  return output.module.empty() ? output.op : fmt::format("{} {}", output.module, output.op);
}

Cell cell_of(const std::optional<double>& value) { return value ? Cell(*value) : Cell(NotApplicable{}); }

bool is_beyond(size_t limit, Table& table) {
  if (limit == 0 || table.rows.size() < limit) return false;
  ++table.rows_left_out;
  return true;
}

Table gradients_table(const ErrorStudy& study, size_t limit) {
  Table table{"gradients",
              fmt::format("Gradients of step {}, beside the same step in {}", study.step, study.split.reference_name),
              {{"parameter", ColumnKind::text},
               {"type", ColumnKind::text},
               {"error", ColumnKind::number, Unit::share},
               {"nonfinite", ColumnKind::number, Unit::count}},
              {},
              0,
              "Error: the norm of the difference, over that of the wide gradient, from the same weights, states, and samples; "
              "none of one "
              "that is 0 but for rounding."};
  for (const GradientError& each : study.gradients)
    if (!is_beyond(limit, table))
      table.rows.push_back(
          {{}, {each.parameter, std::string(info(each.type).name), cell_of(each.error), count_cell(each.nonfinite)}});
  return table;
}

Table split_table(const ErrorStudy& study, size_t limit) {
  Table table{
      "split",
      fmt::format("How errors came together in step {}", study.step),
      {{"output", ColumnKind::text},
       {"phase", ColumnKind::text},
       {"type", ColumnKind::text},
       {"total", ColumnKind::number, Unit::share},
       {"injected", ColumnKind::number, Unit::share},
       {"floor", ColumnKind::number, Unit::share},
       {"inherited", ColumnKind::number, Unit::share},
       {"amplification", ColumnKind::number, Unit::ratio},
       {"flipped", ColumnKind::number, Unit::share}},
      {},
      0,
      "What adds most comes first. Total: from the wide step. Injected: by the op itself; floor: what one rounding costs. "
      "Inherited: "
      "through its inputs. Amplification: inherited over the root of the summed squares of the inputs' totals. Flipped: elements "
      "that are 0 in one alone, where the op chooses."};
  for (const std::string& note : study.split.notes) table.note += " " + note;
  if (!study.split.is_whole) table.note += " Later outputs are left out: those of the wide step took more than 2 GiB.";
  std::vector<const OutputSplit*> outputs;
  for (const OutputSplit& each : study.split.outputs)
    if (each.injected) outputs.push_back(&each);
  std::stable_sort(outputs.begin(), outputs.end(),
                   [](const OutputSplit* a, const OutputSplit* b) { return a->added() > b->added(); });
  for (const OutputSplit* const each : outputs)
    if (!is_beyond(limit, table))
      table.rows.push_back({{},
                            {output_name(*each), std::string(name_of(each->phase)), std::string(info(each->type).name), each->total,
                             cell_of(each->injected), cell_of(each->floor), cell_of(each->inherited),
                             cell_of(each->amplification()), cell_of(each->flipped)}});
  return table;
}

Table suspects_table(const ErrorStudy& study) {
  const GradientError& worst = study.gradients.front();
  Table table{
      "suspects",
      fmt::format("The error of {}'s gradient, {:.3g}% as it was, with one change at a time", worst.parameter, 100 * *worst.error),
      {{"change", ColumnKind::text},
       {"only_it_wide", ColumnKind::number, Unit::share},
       {"only_it_narrow", ColumnKind::number, Unit::share},
       {"detail", ColumnKind::text}},
      {},
      0,
      "Only it narrow: all other modules changed in the same way, and it as it was. Errors do not add up."};
  for (const Suspect& each : study.suspects)
    table.rows.push_back({{},
                          {each.settings.front().text(), cell_of(each.only_it_wide), cell_of(each.only_it_narrow),
                           each.ran ? Cell(NotApplicable{}) : Cell(each.refusal.empty() ? "no time was left" : each.refusal)}});
  return table;
}

}  // namespace

bool ErrorStudy::is_worth_suspects() const { return !gradients.empty() && gradients.front().error.value_or(0) >= OpError::kFelt; }

ErrorStudy study_errors(const Trial& start, const ErrorStudyOptions& options) {
  ErrorStudy study;
  const Experiment experiment = experiment_of(start);
  study.step = read_checkpoint_info(start.capsule).step;
  const auto goes_on = [&](std::string_view what) { return !options.watch || options.watch(what); };
  if (!goes_on("the step in a wider type")) return study;
  study.split = split_errors(start);
  study.gradients = gradient_errors(study.split.values, study.split.reference);
  if (!study.is_worth_suspects()) return study;
  const auto begin = Clock::now();
  bool is_stopped = false;
  const std::string& parameter = study.gradients.front().parameter;
  for (TriedSuspect& each : suspects_of(experiment, study.split)) {
    Suspect& suspect = study.suspects.emplace_back(std::move(each.suspect));
    const std::string text = suspect.settings.front().text();
    try {
      is_stopped = is_stopped || seconds_since(begin) >= options.budget || !goes_on(text);
      if (is_stopped) continue;
      suspect.only_it_wide = error_of(values_of_step(start, each.wide), study.split.reference, parameter);
      if (each.narrow) suspect.only_it_narrow = error_of(values_of_step(start, *each.narrow), study.split.reference, parameter);
      suspect.ran = true;
    } catch (const Error& error) {
      suspect.refusal = one_line(error.what());
    }
  }
  std::stable_sort(study.suspects.begin(), study.suspects.end(), [](const Suspect& a, const Suspect& b) {
    return a.only_it_wide.value_or(INFINITY) < b.only_it_wide.value_or(INFINITY);
  });
  return study;
}

void add_study(const ErrorStudy& study, size_t limit, Report& report) {
  if (study.gradients.empty()) return;
  const GradientError& worst = study.gradients.front();
  const auto broken = static_cast<uint64_t>(
      std::count_if(study.gradients.begin(), study.gradients.end(), [](const GradientError& each) { return each.nonfinite > 0; }));
  // This says more of a run without a shadow than that there is none.
  const bool has_no_shadow = !find_fact<double>(report, "shadowed_steps") && report.verdict == Verdict::ok;
  if (has_no_shadow && (broken > 0 || worst.error)) report.verdict_text = {};
  if (broken > 0) report.verdict_text += kBroken({{"gradients", broken}, {"step", study.step}});
  if (report.verdict_text.empty() && worst.error)
    report.verdict_text = kWorstGradient(
        {{"parameter", Name{NameKind::parameter, worst.parameter}}, {"error", {*worst.error, Unit::share}}, {"step", study.step}});
  report.add_fact("split_step", count_cell(study.step), Unit::count);
  if (study.split.values.loss) report.add_fact("loss", *study.split.values.loss);
  report.add_fact("reference", study.split.reference_name);
  if (study.split.reference.loss) report.add_fact("reference_loss", *study.split.reference.loss);
  report.tables.push_back(gradients_table(study, limit));
  report.tables.push_back(split_table(study, limit));
  if (study.suspects.empty()) return;
  report.tables.insert(report.tables.begin(), suspects_table(study));
  const Suspect& first = study.suspects.front();
  if (!first.only_it_wide || *first.only_it_wide > *worst.error / 2) return;
  report.verdict_text += kSuspect({{"parameter", Name{NameKind::parameter, worst.parameter}},
                                   {"error", {*worst.error, Unit::share}},
                                   {"step", study.step},
                                   {"settings", Value::list({first.settings.front()})},
                                   {"left", {*first.only_it_wide, Unit::share}}});
}

}  // namespace ulpscope
