#include "ulpscope/cli/train.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <optional>
#include <sstream>

#include "ulpscope/analyzers/report/json.h"
#include "ulpscope/analyzers/verbs/all_findings.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/parse_number.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/device.h"
#include "ulpscope/cli/help.h"
#include "ulpscope/cli/output.h"
#include "ulpscope/cli/progress.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/save_weights.h"
#include "ulpscope/cli/stop_signals.h"
#include "ulpscope/cli/verbs.h"
#include "ulpscope/cli/window_beside.h"
#include "ulpscope/core/data/data_files.h"
#include "ulpscope/core/run/checkpoint.h"
#include "ulpscope/core/run/experiment.h"
#include "ulpscope/core/run/trainer.h"

namespace ulpscope::cli {

namespace {

// Options that stand for a key of the experiment, which checks their values.
struct KeyOption {
  OptionSpec option;
  const char* key;
};

constexpr std::string_view kWithBits = ",bits";

// The levels, and those that record something with hashes of bits.
std::vector<std::string> record_choices() {
  std::vector<std::string> choices = experiment_choices("recording.level");
  for (size_t i = choices.size(); i-- > 0;)
    if (choices[i] != name_of(RecordLevel::off))
      choices.insert(choices.begin() + static_cast<ptrdiff_t>(i) + 1, choices[i] + std::string(kWithBits));
  return choices;
}

const std::vector<KeyOption>& key_options() {
  static const std::vector<KeyOption> options{
      {{"--precision", "", "NAME", "the policy of mixed precision, as fp16 or apex_o2", "the experiment's",
        experiment_choices("precision")},
       "precision"},
      {{"--steps", "", "N", "exactly so many steps", "the experiment's"}, "training.steps"},
      {{"--epochs", "", "N", "passes over the data", "the experiment's"}, "training.epochs"},
      {{"--seed", "", "N", "of weights, data and order", "the experiment's"}, "seed"},
      {{"--record", "", "LEVEL", "what is recorded of each tensor; with `,bits` a hash of its bits, too", "the experiment's",
        record_choices()},
       "recording.level"},
      {{"--every", "", "N", "histograms in every Nth step only", "the experiment's"}, "recording.every"},
      {{"--filter-module", "", "GLOB", "record these modules only", "all", {}, true}, "recording.modules"},
      {{"--filter-op", "", "GLOB", "record these ops only", "all", {}, true}, "recording.ops"},
      {{"--filter-phase", "", "NAME", "record these phases only", "all", experiment_choices("recording.phases"), true},
       "recording.phases"},
      {{"--max-size", "", "SIZE", "of the trace, as in 500MB: near it less is recorded, at it nothing", "no limit"},
       "recording.max_size"},
      {{"--stop-on", "", "EVENT", "end training after a step with this", "never", {"nan", "overflow", "backoff"}},
       "recording.stop_on"}};
  return options;
}

// "every=10,ops=matmul*,as=fp64" as keys of the experiment.
std::vector<Override> shadow_overrides(const std::string& given) {
  std::vector<std::string> ops;
  std::vector<Override> overrides;
  const std::string place = "--shadow " + given;
  std::istringstream parts(given);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t equals = part.find('=');
    const std::string key = part.substr(0, equals), value = equals == std::string::npos ? "" : part.substr(equals + 1);
    if (value.empty() || (key != "every" && key != "ops" && key != "as"))
      throw usage_error("{}: expected every=N, ops=GLOB and as=fp32 or fp64, with commas between, not '{}'", place, part);
    if (key == "ops")
      ops.push_back(value);
    else
      overrides.emplace_back(fmt::format("shadow.{}={}", key, value), place);
  }
  if (!ops.empty()) overrides.emplace_back(fmt::format("shadow.ops={}", fmt::join(ops, ",")), place);
  if (std::none_of(overrides.begin(), overrides.end(),
                   [](const Override& each) { return each.assignment.starts_with("shadow.every="); }))
    overrides.emplace_back("shadow.every=1", place);
  return overrides;
}

// The experiment of a file, of a preset's name, or without EXPERIMENT of the checkpoint; then --set and the options above, in this
// order.
Experiment load(const Arguments& arguments) {
  std::vector<Override> overrides;
  for (const std::string& assignment : arguments.list("--set")) overrides.emplace_back(assignment);
  if (arguments.has("--steps") && arguments.has("--epochs")) throw usage_error("--steps and --epochs exclude each other");
  arguments.integer("--steps", 1);  // in a file, 0 steps are those of training.epochs
  if (arguments.has("--epochs")) overrides.emplace_back("training.steps=0", "--epochs");
  for (const auto& [option, key] : key_options()) {
    const std::vector<std::string> values = arguments.list(option.name);
    if (values.empty()) continue;
    std::string value = option.list ? fmt::format("{}", fmt::join(values, ",")) : values.back();
    if (option.name == "--record" && value.ends_with(kWithBits)) {
      overrides.emplace_back("recording.bits=true", fmt::format("--record {}", value));
      value.resize(value.size() - kWithBits.size());
    }
    overrides.emplace_back(fmt::format("{}={}", key, value), fmt::format("{} {}", option.name, value));
  }
  if (arguments.has("--shadow"))
    for (const Override& shadow : shadow_overrides(arguments.text("--shadow"))) overrides.push_back(shadow);
  if (arguments.positionals().empty()) {
    const std::string checkpoint = arguments.text("--resume");
    if (checkpoint.empty()) throw usage_error("train needs EXPERIMENT or --resume; `ulpscope train --help` shows how");
    Experiment experiment = parse_experiment(read_checkpoint_info(checkpoint).experiment, checkpoint);
    experiment.given = {};  // the text of a checkpoint has all keys
    for (const Override& setting : overrides) apply_override(experiment, setting);
    validate(experiment);
    return experiment;
  }
  return named_experiment(arguments.positional(0), overrides);
}

// Where the time of the steps went: the facts sum up to the total, the table to the first of them.
void add_profile(Report& report, const Profile& profile) {
  report.add_fact("profiled_seconds", profile.total_seconds, Unit::seconds);
  report.add_fact("computing_seconds", profile.computing_seconds(), Unit::seconds);
  report.add_fact("recording_seconds", profile.recording_seconds, Unit::seconds);
  report.add_fact("other_seconds", profile.other_seconds(), Unit::seconds);
  report.add_fact("roofline_flop_per_second", profile.roofline.flop_per_second);
  report.add_fact("roofline_bytes_per_second", profile.roofline.bytes_per_second, Unit::bytes);
  const std::vector<Column> measured{{"calls", ColumnKind::number, Unit::count},
                                     {"time", ColumnKind::number, Unit::seconds},
                                     {"share", ColumnKind::number, Unit::share},
                                     {"time_per_call", ColumnKind::number, Unit::seconds},
                                     {"flop"},
                                     {"bytes", ColumnKind::number, Unit::bytes},
                                     {"flop_per_byte"},
                                     {"of_roofline", ColumnKind::number, Unit::share}};
  const auto add = [&](const char* name, const char* title, std::vector<Column> columns, const std::vector<ProfileEntry>& entries,
                       auto names_of, std::string note) {
    columns.insert(columns.end(), measured.begin(), measured.end());
    Table table{name, title, std::move(columns), {}, 0, std::move(note)};
    for (const ProfileEntry& entry : entries) {
      std::vector<Cell> cells = names_of(entry);
      const Cell intensity = entry.bytes > 0 ? Cell(entry.flop / entry.bytes) : Cell(NotApplicable{});
      const Cell reached = entry.seconds > 0 ? Cell(profile.roofline.share_reached(entry)) : Cell(NotApplicable{});
      for (const Cell& cell : {count_cell(entry.calls), Cell(entry.seconds), Cell(profile.share_of(entry)),
                               Cell(entry.seconds_per_call()), Cell(entry.flop), Cell(entry.bytes), intensity, reached})
        cells.push_back(cell);
      table.rows.push_back({{}, std::move(cells)});
    }
    report.tables.push_back(std::move(table));
  };
  add(
      "profile", "Time in ops", {{"op", ColumnKind::text}, {"phase", ColumnKind::text}}, profile.by_op(),
      [](const ProfileEntry& entry) {
        return std::vector<Cell>{std::string(entry.op), std::string(name_of(entry.phase))};
      },
      "Shares are of the time in ops. Other time: data, dispatch, autograd.");
  add(
      "profile_modules", "Time in modules", {{"module", ColumnKind::text}}, profile.by_module(),
      [](const ProfileEntry& entry) { return std::vector<Cell>{std::string(entry.module)}; },
      "Of roofline: the time that the machine needs at least, for the operations or for the bytes, over the time taken; above 100% "
      "where "
      "caches kept bytes.");

  Table products{
      "products",
      "Matrix products of the forward pass, and whether tensor cores take them as they are",
      {{"module", ColumnKind::text},
       {"op", ColumnKind::text},
       {"type", ColumnKind::text},
       {"m"},
       {"n"},
       {"k"},
       {"batch", ColumnKind::number, Unit::count},
       {"calls", ColumnKind::number, Unit::count},
       {"tensor_cores", ColumnKind::flag},
       {"padding", ColumnKind::text},
       {"padded_over_real", ColumnKind::number, Unit::ratio}},
      {},
      0,
      "Batch: products of a call. Tensor cores take 16-bit factors whose extents are multiples of 8, and FP8 factors with "
      "multiples of 16; other extents are padded."};
  for (const ProfiledProduct& product : profile.products) {
    products.rows.push_back({{},
                             {std::string(product.module), std::string(product.op), std::string(info(product.dtype).name),
                              product.shape.m, product.shape.n, product.shape.k, product.shape.batch, count_cell(product.calls),
                              product.is_eligible(), product.shape.padding(), product.shape.padded_over_real()}});
  }
  if (!products.rows.empty()) report.tables.push_back(std::move(products));
}

Report describe(const Experiment& experiment, const TrainResult& result, const std::string& trace_path) {
  Report report;
  report.analysis = "train";
  report.title = fmt::format("Trained {} in {}", experiment.name, name_of(experiment.precision));
  const bool any = result.steps > 0;
  report.add_fact("precision", std::string(name_of(experiment.precision)));
  if (result.first_step > 0) report.add_fact("resumed_at_step", count_cell(result.first_step));
  if (const std::string arithmetic = describe(experiment.arithmetic); !arithmetic.empty())
    report.add_fact("arithmetic", arithmetic);
  report.add_fact("steps", count_cell(result.steps), Unit::count);
  report.add_fact("skipped_steps", count_cell(result.skipped_steps), Unit::count);
  report.add_fact("first_loss", any ? Cell(result.first_loss) : Cell(Unknown{}));
  report.add_fact("final_loss", any ? Cell(result.final_loss) : Cell(Unknown{}));
  if (result.test) {
    report.add_fact("test_loss", result.test->loss);
    if (result.test->accuracy) report.add_fact("test_accuracy", *result.test->accuracy, Unit::share);
  }
  report.add_fact("seconds", result.seconds, Unit::seconds);
  report.add_fact("peak_memory_bytes", count_cell(result.peak_memory_bytes), Unit::bytes);
  report.add_fact("weights_fingerprint", fmt::format("{:016x}", result.weights_fingerprint));
  if (result.capsule && result.capsule->written) {
    report.add_fact("capsule", result.capsule->path);
    report.add_fact("capsule_first_step", count_cell(result.capsule->first_step));
    report.add_fact("capsule_last_step", count_cell(result.capsule->last_step));
    report.add_fact("capsule_event", result.capsule->event);
  }
  if (!result.stop_reason.empty()) report.add_fact("stop_reason", result.stop_reason);
  if (!result.limits_met.empty()) report.add_fact("recorded_less", result.limits_met);
  if (!trace_path.empty()) {
    report.add_fact("trace", trace_path);
    report.add_fact("trace_bytes", count_cell(result.trace.bytes), Unit::bytes);
    report.add_fact("tensor_rows", count_cell(result.trace.tensor_rows), Unit::count);
    report.add_fact("writer_seconds", result.trace.writer_seconds, Unit::seconds);
  }
  if (result.profile) add_profile(report, *result.profile);
  return report;
}

// For somebody who watched it: how it went, and what to ask next. Bytes and fingerprints are in the JSON, and what `info` shows.
std::string ending(Report report, const TextOptions& options) {
  static constexpr std::string_view kShown[] = {"precision",  "arithmetic",  "resumed_at_step", "steps",         "skipped_steps",
                                                "first_loss", "final_loss",  "test_loss",       "test_accuracy", "seconds",
                                                "capsule",    "stop_reason", "recorded_less"};
  report.facts_in_brief = true;
  const std::optional<Verdict> verdict = report.verdict;
  const std::string trace = shell_word(find_fact<std::string>(report, "trace").value_or(""));
  const bool has_nan = std::any_of(report.findings.begin(), report.findings.end(),
                                   [](const Finding& finding) { return finding.code == "run.loss_nonfinite"; });
  std::erase_if(report.facts, [](const Quantity& fact) {
    return std::find(std::begin(kShown), std::end(kShown), fact.name) == std::end(kShown);
  });
  report.findings.clear();
  report.causes.clear();
  std::string text = render_text(report, options);
  if (!verdict) return text;
  text += fmt::format("Next     ulpscope report {}\n", trace);
  if (has_nan) text += fmt::format("         ulpscope nan {}\n", trace);
  return text;
}

// What `ulpscope report` says of the trace, without its tables.
void add_verdict_of(const std::string& trace_path, Report& report) {
  try {
    Report judged = analyze_all(Snapshot(trace_path));
    report.verdict = judged.verdict;
    report.verdict_text = std::move(judged.verdict_text);
    report.checked = std::move(judged.checked);
    report.causes = std::move(judged.causes);
    report.findings = std::move(judged.findings);
  } catch (const Error& error) {
    say("ulpscope: warning: the trace could not be judged: {}", error.what());
  }
}

// What --capsule and the options that belong to it ask for.
CapsuleOptions capsule_options(const Arguments& arguments) {
  CapsuleOptions options;
  options.path = arguments.text("--capsule");
  for (const char* option : {"--capsule-on", "--keep-steps", "--keep-samples"})
    if (arguments.has(option) && options.path.empty()) throw usage_error("{} needs --capsule, the file to write", option);
  const int64_t keep = arguments.integer("--keep-steps", 1).value_or(static_cast<int64_t>(options.keep_steps));
  if (keep > static_cast<int64_t>(kMostKeptSteps))
    throw usage_error("--keep-steps: expected at most {}, got {}", kMostKeptSteps, keep);
  options.keep_steps = static_cast<uint64_t>(keep);
  options.keep_samples = arguments.has("--keep-samples");
  const std::string on = arguments.text("--capsule-on", name_of(options.event));
  if (on.starts_with("step=")) {
    const std::optional<int64_t> step = parse_number<int64_t>(on.substr(5));
    if (!step || *step < 0) throw usage_error("--capsule-on step=N takes a step, not '{}'", on.substr(5));
    options.event = CapsuleEvent::step;
    options.step = static_cast<uint64_t>(*step);
    return options;
  }
  for (const CapsuleEvent event : {CapsuleEvent::nan, CapsuleEvent::overflow, CapsuleEvent::backoff}) {
    options.event = event;
    if (on == name_of(event)) return options;
  }
  throw usage_error("--capsule-on takes nan, overflow, backoff or step=N, not '{}'", on);
}

TrainerOptions trainer_options(const Arguments& arguments, const Experiment& experiment) {
  TrainerOptions options;
  const DeviceArguments device = device_of(arguments);
  options.cpu = device.cpu;
  options.make_backend = device.make_backend;
  options.overwrite = arguments.has("--force");
  options.trace.flush_interval =
      std::chrono::milliseconds(static_cast<int64_t>(std::llround(1000 * experiment.recording.flush_interval)));
  if (experiment.recording.level != RecordLevel::off) options.trace_path = arguments.text("--output", "run.h5");
  options.resume_from = arguments.text("--resume");
  options.profile = arguments.has("--profile");
  options.capsule = capsule_options(arguments);
  return options;
}

// The files that the command writes are apart from each other and from what it reads, and can be written.
void check_outputs(const Arguments& arguments, const Experiment& experiment, const TrainerOptions& options,
                   const std::string& checkpoint, const std::string& weights) {
  std::vector<std::string> others = arguments.positionals();
  for (const auto key : path_keys(experiment.data.kind))
    if (const std::string& path = experiment.data.*key; !path.empty()) others.push_back(path);
  // A checkpoint may take the place of the one that the run goes on from.
  const bool continued = !checkpoint.empty() && is_same_file(checkpoint, options.resume_from);
  if (!checkpoint.empty()) {
    check_replaceable(checkpoint, options.overwrite || continued, others);
    check_checkpoint_replaceable(checkpoint);
  }
  if (!options.resume_from.empty()) others.push_back(options.resume_from);
  if (!checkpoint.empty()) others.push_back(checkpoint);
  if (const std::string& capsule = options.capsule.path; !capsule.empty()) {
    check_replaceable(capsule, options.overwrite, others);
    check_checkpoint_replaceable(capsule);
    others.push_back(capsule);
  }
  // The trace itself says where it exists.
  if (!options.trace_path.empty()) check_replaceable(options.trace_path, true, others);
  if (!options.trace_path.empty()) others.push_back(options.trace_path);
  if (!weights.empty()) {
    check_replaceable(weights, options.overwrite, others);
    check_weights_replaceable(weights);
  }
}

// Tells how the run goes on after `steps`, of which it is recorded beside this trace.
void say_how_to_go_on(const std::string& checkpoint, const std::string& trace, uint64_t steps) {
  if (checkpoint.empty()) return say("the state of training was not kept; --checkpoint FILE keeps it");
  std::string command = "ulpscope train --resume " + shell_word(checkpoint);
  if (const std::filesystem::path path = trace; !trace.empty()) {
    const std::string next = fmt::format("{}-{}{}", path.stem().string(), steps, path.extension().string());
    command += " -o " + shell_word((path.parent_path() / next).string());
  }
  say("go on with: {}", one_line(command));
}

void say_of_capsule(const CapsuleOutcome& capsule) {
  if (!capsule.failure.empty()) return say("ulpscope: warning: no capsule: {}", one_line(capsule.failure));
  if (!capsule.written) return say("no capsule: what --capsule-on names did not happen");
  say("capsule of {} in {}: `ulpscope replay {}`", steps_text(capsule.first_step, capsule.last_step), one_line(capsule.path),
      one_line(shell_word(capsule.path)));
}

// A signal came while the run was prepared.
struct Interrupted {};

// A step that ends in an error ends the run, which the trace tells.
StepResult take_step(Trainer& trainer, Progress& progress) {
  try {
    return trainer.step();
  } catch (const Error& error) {
    progress.finish();
    trainer.finish(fmt::format("an error: {}", one_line(error.what())));
    throw;
  }
}

}  // namespace

std::optional<Report> train(const Arguments& arguments) {
  const Experiment experiment = load(arguments);
  TrainerOptions options = trainer_options(arguments, experiment);
  const std::string checkpoint = arguments.text("--checkpoint"), weights = arguments.text("--save-weights");
  const auto interval = static_cast<uint64_t>(arguments.integer("--checkpoint-every", 1).value_or(0));
  if (interval > 0 && checkpoint.empty()) throw usage_error("--checkpoint-every needs --checkpoint, the file to write");
  const bool only_check = arguments.has("--check");
  if (only_check) {
    options.trace_path.clear();
    options.capsule.path.clear();
  } else {
    check_outputs(arguments, experiment, options, checkpoint, weights);
  }

  std::optional<WindowBeside> window;
  if (arguments.has("--view")) {
    if (options.trace_path.empty())
      throw usage_error("--view shows a trace, and {} none", only_check ? "--check writes" : "recording.level = \"off\" writes");
    window.emplace(options.trace_path);
  }
  if (experiment.recording.level == RecordLevel::off) say("recording is off: no trace is written");
  const StopSignals signals;
  Progress progress;
  bool is_prepared = false;
  options.watch = [&](std::string_view work, double share) {
    progress.work(work, share);
    if (!is_prepared && signals.came()) throw Interrupted{};
  };
  std::optional<Trainer> prepared;
  try {
    prepared.emplace(experiment, options);
  } catch (const Interrupted&) {
    progress.finish();
    say("ulpscope: stopped early: interrupted by {} before the first step; nothing was written", signals.name());
    return std::nullopt;
  }
  is_prepared = true;
  Trainer& trainer = *prepared;
  progress.finish();
  if (window) window->show();
  const std::string arithmetic = describe(experiment.arithmetic);
  say("{}: {}; {} in {}{}{}", one_line(experiment.name), trainer.data_description(), count_of(trainer.total_steps(), "step"),
      name_of(experiment.precision), arithmetic.empty() ? "" : ", ", one_line(arithmetic));
  if (!options.resume_from.empty()) say("resumed from {} at step {}", options.resume_from, trainer.first_step());
  if (!trainer.warning().empty()) say("ulpscope: warning: {}", one_line(trainer.warning()));
  for (const std::string& constant : trainer.changed_constants()) say("ulpscope: warning: {}", constant);
  if (only_check) return Report();
  progress.begin(trainer.first_step(), trainer.total_steps(), experiment.scaler_enabled());
  uint64_t steps_done = trainer.first_step();
  bool interrupted = false;
  while (!trainer.finished() && !(interrupted = signals.came())) {
    const StepResult step = take_step(trainer, progress);
    progress.update(step);
    steps_done = step.step + 1;
    if (interval == 0 || (step.step + 1) % interval != 0) continue;
    try {
      trainer.save_checkpoint(checkpoint);
    } catch (const Error& error) {
      progress.finish();
      say("ulpscope: warning: no checkpoint after {}: {}", count_of(steps_done, "step"), error.what());
    }
  }
  progress.finish();
  const TrainResult result = trainer.finish(interrupted ? fmt::format("interrupted by {} after {} of {}", signals.name(),
                                                                      steps_done, count_of(trainer.total_steps(), "step"))
                                                        : "");
  if (!result.stop_reason.empty()) say("ulpscope: stopped early: {}", result.stop_reason);
  if (!result.limits_met.empty()) say("ulpscope: warning: less was recorded: {}", result.limits_met);
  if (result.trace.failed) say("ulpscope: warning: {}", result.trace.failure);
  if (result.capsule) say_of_capsule(*result.capsule);
  if (!checkpoint.empty()) trainer.save_checkpoint(checkpoint);
  if (interrupted) say_how_to_go_on(checkpoint, options.trace_path, steps_done);
  if (!weights.empty()) save_weights(trainer.model(), weights);
  Report report = describe(experiment, result, options.trace_path);
  if (!options.trace_path.empty() && !result.trace.failed) add_verdict_of(options.trace_path, report);
  write_stdout(arguments.has("--json") ? render_json(report) : ending(report, text_options_of_stdout()));
  return interrupted ? std::nullopt : std::optional(std::move(report));
}

Verb train_verb() {
  std::vector<OptionSpec> options{
      {"--output", "-o", "FILE", "the trace to write", "run.h5"},
      {"--set", "", "KEY=VALUE", "change a key of the experiment: optimizer.learning_rate=0.1; may be repeated", ""},
  };
  for (const KeyOption& entry : key_options()) options.push_back(entry.option);
  const std::vector<OptionSpec> rest{
      {"--device", "", "DEVICE",
       "cpu; cuda or cuda:N, a GPU; emulated or emulated:GPU, the kernels of GPUs on the CPU, slowly, with the matrix units of "
       "that "
       "GPU, as in emulated:a100",
       "cpu"},
      {"--threads", "", "N", "computing threads; 0: one a core", "0"},
      {"--isa", "", "NAME", "instruction set to compute with", "the best there is", {"sse4", "avx2", "avx512"}},
      {"--checkpoint", "", "FILE", "write there at the end what training needs to go on"},
      {"--checkpoint-every", "", "N", "and after every Nth step"},
      {"--resume", "", "CHECKPOINT", "go on from there; --steps and --epochs count what came before"},
      {"--capsule", "", "FILE",
       "write there, the first time that --capsule-on happens, all that the steps before it need to run again"},
      {"--capsule-on", "", "EVENT",
       "nan: a loss or weight that is not finite; overflow: an Inf in a step that is taken; backoff: of the loss scale; "
       "step=N",
       "nan"},
      {"--keep-steps", "", "K", "so many steps before it at least, where there were so many, and less than twice as many", "50"},
      {"--keep-samples", "", "", "write the samples of its steps into the capsule, which then runs again where the data are not"},
      {"--save-weights", "", "FILE", "write the final parameters there, in the safetensors layout"},
      {"--view", "", "",
       "open a window beside the run, as `ulpscope view` does; closing it leaves the run alone, and it stays when the run ends"},
      {"--shadow", "", "every=N,...",
       "compute ops again in a wider type in every Nth step, as `errors` shows them; also ops=GLOB, as=fp32 or as=fp64"},
      {"--profile", "", "", "measure where the time goes, op by op"},
      {"--check", "", "", "read, prepare and warn as before training, train nothing and write nothing"},
      {"--json", "", "", "print the result as JSON"},
      {"--force", "", "", "replace FILE where it exists"}};
  options.insert(options.end(), rest.begin(), rest.end());
  return {"train",
          "train a model and record what happens to its numbers",
          "Ctrl+C (or SIGTERM, SIGHUP) ends after the step that runs, closes the trace, says how to go on, and is no error; while "
          "data are generated it ends at once, and nothing is written. A second one "
          "ends at once, by that signal (a shell gives 130 for Ctrl+C): the trace is left as a killed writer leaves it, and a "
          "checkpoint is the one written before.",
          {{"EXPERIMENT",
            fmt::format("a TOML file, or a preset: {}; without it, that of --resume", join_words(preset_names(), "or")), true}},
          std::move(options),
          {{"ulpscope train fashion_cnn --precision fp16 -o run.h5", "one epoch of Fashion-MNIST in FP16, every op recorded"},
           {"ulpscope train mlp --steps 100 --record full --set optimizer.learning_rate=0.1", "another learning rate, values too"},
           {"ulpscope train overflow --stop-on nan", "end at the first NaN"},
           {"ulpscope train mlp --steps 100 --checkpoint mlp.ckpt", "and keep all that training needs to go on"},
           {"ulpscope train --resume mlp.ckpt --steps 200 -o more.h5", "the next 100 steps, as if it had never stopped"},
           {"ulpscope train mlp --precision pure_fp16 --check", "which constants FP16 makes others of: Adam's eps, for one"},
           {"ulpscope train mlp --precision fp16 --capsule nan.capsule", "and where a NaN comes, the steps before it, for replay"}},
          [](const Arguments& arguments) {
            train(arguments);
            return static_cast<int>(kClean);
          }};
}

}  // namespace ulpscope::cli
