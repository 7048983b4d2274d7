#include "ulpscope/studies/replay.h"

#include <fmt/format.h>

#include "ulpscope/base/clock.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/device.h"
#include "ulpscope/cli/output.h"
#include "ulpscope/cli/progress.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/scratch_folder.h"
#include "ulpscope/cli/trace_path.h"
#include "ulpscope/cli/verbs.h"
#include "ulpscope/core/run/checkpoint.h"
#include "ulpscope/studies/minimize.h"

namespace ulpscope::cli {

namespace {

// A trace has what the steps did, and not what they began with.
void check_is_no_trace(const std::string& path) {
  if (is_checkpoint(path)) return;
  try {
    const Snapshot trace(path);
  } catch (const Error&) {
    return;  // nor one: reading it says what it is
  }
  throw unreadable_error(
      "'{}' is a trace; expected a capsule, as `ulpscope train --capsule FILE` writes (`ulpscope nan` takes both)", path);
}

Trial trial_of(const Arguments& arguments) {
  Trial trial;
  trial.capsule = arguments.positional(0);
  for (const std::string& assignment : arguments.list("--set")) trial.changes.emplace_back(assignment);
  if (arguments.has("--as")) {
    const std::string precision = arguments.text("--as");
    trial.changes.emplace_back("precision=" + precision, "--as " + precision);
  }
  for (const std::string& modules : arguments.list("--keep-fp32"))
    trial.changes.emplace_back(fmt::format("autocast.modules.\"{}\"=fp32", modules), "--keep-fp32 " + modules);
  if (arguments.has("--scale")) {
    const std::string scale = arguments.text("--scale"), place = "--scale " + scale;
    trial.changes.emplace_back("scaler.initial=" + scale, place);
    for (const char* constant : {"scaler.enabled=on", "scaler.dynamic=false"}) trial.changes.emplace_back(constant, place);
  }
  const DeviceArguments device = device_of(arguments);
  trial.cpu = device.cpu;
  trial.make_backend = device.make_backend;
  trial.overwrite = arguments.has("--force");
  trial.trace_path = arguments.text("--output");
  trial.by_op = arguments.has("--by-op") || arguments.text("--as") == name_of(Precision::fp64);
  return trial;
}

int run_minimize(const Arguments& arguments) {
  const std::string capsule = arguments.positional(0);
  for (const char* option :
       {"--set", "--as", "--keep-fp32", "--scale", "--against", "--by-op", "--output", "--device", "--threads", "--isa"})
    if (arguments.has(option))
      throw usage_error("{}: --minimize looks for the part that fails as it did, with nothing changed; expected one of them",
                        option);
  MinimizeOptions options;
  options.output = arguments.text("--minimize");
  options.budget = arguments.duration("--budget").value_or(60);
  check_replaceable(options.output, arguments.has("--force"), {capsule});
  const ScratchFolder scratch("ulpscope-minimize");
  options.scratch = scratch.file("step.ckpt");
  Progress progress;
  const auto begin = Clock::now();
  options.watch = [&](std::string_view trial) {
    progress.work(trial, seconds_since(begin) / options.budget);
    return true;
  };
  const Minimized minimized = minimize(capsule, options);
  progress.finish();
  print(report_of(capsule, options.output, minimized), arguments);
  return kClean;
}

int run_replay(const Arguments& arguments) {
  check_is_no_trace(arguments.positional(0));
  if (arguments.has("--minimize")) return run_minimize(arguments);
  if (arguments.has("--budget")) throw usage_error("--budget belongs to --minimize");
  Trial trial = trial_of(arguments);
  const std::string against = arguments.text("--against");
  const size_t limit = static_cast<size_t>(arguments.integer("--limit", 0).value_or(10));
  std::vector<std::string> inputs{trial.capsule};
  std::optional<Snapshot> recorded;
  std::optional<ScratchFolder> scratch;
  if (!against.empty()) {
    recorded = open_trace(against);
    inputs.push_back(against);
    trial.level = recorded->run().level;
    trial.bits = recorded->row_count("bits") > 0;
    if (trial.trace_path.empty()) trial.trace_path = scratch.emplace("ulpscope-replay").file("replay.h5");
  } else if (!trial.trace_path.empty() && experiment_of(trial).recording.level == RecordLevel::off) {
    trial.level = RecordLevel::stats;
  }
  if (!trial.trace_path.empty()) check_replaceable(trial.trace_path, true, inputs);

  Progress progress;
  trial.watch = [&](std::string_view work, double share) { progress.work(work, share); };
  const TrialOutcome outcome = ulpscope::run(trial);
  progress.finish();
  if (!outcome.warning.empty()) say("ulpscope: warning: {}", one_line(outcome.warning));
  if (outcome.trace.failed && recorded) throw failed_error("the replay could not be compared: {}", outcome.trace.failure);
  if (outcome.trace.failed) say("ulpscope: warning: {}", outcome.trace.failure);

  std::optional<AgainstTrace> compared;
  if (recorded) {
    compared = {recorded->run_at(outcome.start.step), find_difference(*recorded, Snapshot(trial.trace_path))};
    if (compared->difference.steps == 0 && !compared->difference.difference)
      throw usage_error("'{}' has none of the steps {} to {} of '{}'", against, outcome.start.step,
                        outcome.start.step + outcome.steps.size() - 1, trial.capsule);
    if (compared->difference.rows == 0 && !compared->difference.difference)
      throw usage_error(
          "'{}' has no row of the steps {} to {} of '{}', so that nothing can be compared: expected a trace that records what they "
          "do{}",
          against, outcome.start.step, outcome.start.step + outcome.steps.size() - 1, trial.capsule,
          recorded->run().filters.empty() ? "" : fmt::format(" (its filters are {})", recorded->run().filters));
  }
  if (scratch) trial.trace_path.clear();
  print(report_of(trial, outcome, compared, limit), arguments);
  // What was changed is not expected to come out the same, unless that is what is asked for.
  const bool differs = compared && compared->difference.difference;
  return differs || (trial.changes.empty() && !outcome.is_as_before()) ? kFindings : kClean;
}

}  // namespace

Verb replay_verb() {
  return {
      "replay",
      "run the steps of a capsule again, bit by bit the same, or with something changed",
      "Capsules are written by `ulpscope train --capsule FILE`. Exit code 0: losses, loss scales, skipped steps and final weights\n"
      "are bit-equal to the original's, and with --against all recorded rows too; 1: something is not. With --set, --as,\n"
      "--keep-fp32 or --scale the steps are otherwise the same, and what came of the change is said: 1 then means a row that "
      "--against found.",
      {{"CAPSULE", "a file that train --capsule wrote"}},
      join(
          {{{"--set", "", "KEY=VALUE", "change a key of the experiment: arithmetic.accumulate=h100; may be repeated", ""},
            {"--as",
             "",
             "NAME",
             "with this `precision` of an experiment: fp16 is FP16 by autocast",
             "the capsule's",
             {"fp64", "fp32", "fp16", "bf16", "fp8"}},
            {"--keep-fp32", "", "MODULES", "with the modules that match this pattern in FP32; may be repeated", ""},
            {"--scale", "", "SCALE", "with this constant loss scale, as in 2^10", "the capsule's"},
            {"--against", "", "TRACE", "compare every recorded row with this trace's, and name the first op that differs"},
            {"--by-op", "", "",
             "run the steps as they were too, and compare what each op gives; --as fp64 does so by itself; neither with --device, "
             "--threads or --isa"},
            {"--output", "-o", "FILE", "write a trace of the replay", "none"},
            {"--minimize", "", "FILE",
             "write the smallest part that fails in the same way as a capsule: the last step, of as few samples, layers and places "
             "of a sequence or image as do it",
             "none"},
            {"--budget", "", "TIME", "for --minimize: 90, 90s, 2m", "60s"},
            {"--device", "", "DEVICE", "what computes, as for train", "cpu"},
            {"--threads", "", "N", "computing threads; bits may depend on it", "the capsule's"},
            {"--isa",
             "",
             "NAME",
             "instruction set to compute with; bits may depend on it",
             "the capsule's",
             {"sse4", "avx2", "avx512"}},
            {"--force", "", "", "replace FILE where it exists"}},
           print_options()}),
      {{"ulpscope replay nan.capsule", "the same steps, to the bit"},
       {"ulpscope replay nan.capsule --against run.h5", "and all that was recorded of them"},
       {"ulpscope replay nan.capsule --as bf16", "would BF16 have gone through?"},
       {"ulpscope replay nan.capsule --as fp64", "how far rounding took each op from what it should give"},
       {"ulpscope replay nan.capsule --keep-fp32 'head*'", "or the head in FP32?"},
       {"ulpscope replay nan.capsule --minimize small.capsule", "which samples, layers and places does it take?"},
       {"ulpscope replay nan.capsule --set arithmetic.accumulate=h100 --against run.h5",
        "the first op that an H100's sums change"}},
      run_replay};
}

}  // namespace ulpscope::cli
