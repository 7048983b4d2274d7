#include "ulpscope/studies/minimize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "ulpscope/base/clock.h"
#include "ulpscope/base/error.h"
#include "ulpscope/core/run/checkpoint.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/studies/trial.h"

namespace ulpscope {

namespace {

using Samples = std::vector<int64_t>;

uint64_t size_of_file(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? 0 : size;
}

CapsuleSize size_of(const std::string& path, const CapsuleSteps& capsule) {
  CapsuleSize size{capsule.steps.size(), capsule.steps.back().batches.size(), 0, size_of_file(path)};
  for (const CapsuleBatch& batch : capsule.steps.back().batches) size.samples += batch.samples.size();
  return size;
}

class Minimizer {
 public:
  Minimizer(const std::string& capsule, const MinimizeOptions& options)
      : options_(options), original_(read_capsule_steps(capsule)) {
    if (original_.steps.empty()) throw usage_error("'{}' has no steps", capsule);
    Trial trial;
    trial.capsule = capsule;
    experiment_ = experiment_of(trial);
    experiment_.training.evaluation = Evaluation::never;
    cpu_ = cpu_as_before(original_, {});
    found_.before = size_of(capsule, original_);
    stand_before_last_step(capsule);
    data_ = open_data(experiment_.data, {experiment_.seed, experiment_.loss.ignored_label()});
  }

  Minimized run() {
    std::vector<Samples> left;
    for (const CapsuleBatch& batch : last().batches) left.push_back(batch.samples);
    if (!runs_into_failure(left)) throw failed_error("the last step does not fail again when it is run by itself");
    if (left.size() > 1) {
      for (const Samples& alone : std::vector<Samples>(left)) {
        if (!has_time()) break;
        whole_batch_ = alone.size();
        if (!fails(alone)) continue;
        left = {alone};
        break;
      }
    }
    // Of several batches, whose sums fail together, each would have to shrink by the same share.
    if (left.size() == 1) {
      whole_batch_ = left[0].size();
      left[0] = fewest(left[0]);
    }
    if (!runs_into_failure(left, options_.output)) {
      std::error_code error;
      std::filesystem::remove(options_.output, error);
      throw failed_error("internal: what was left fails no more");
    }
    for (const Samples& batch : left) found_.samples.insert(found_.samples.end(), batch.begin(), batch.end());
    found_.after = size_of(options_.output, read_capsule_steps(options_.output));
    return std::move(found_);
  }

 private:
  const CapsuleStep& last() const { return original_.steps.back(); }

  // Runs the steps before the last one, and keeps how training stands then.
  void stand_before_last_step(const std::string& capsule) {
    TrainerOptions options;
    options.cpu = cpu_;
    options.resume_from = capsule;
    options.batches = original_.steps;
    options.watch_nonfinite = true;
    Trainer trainer(experiment_, options);
    for (size_t i = 0; i + 1 < original_.steps.size(); ++i) trainer.step();
    trainer.save_checkpoint(options_.scratch);
    total_steps_ = static_cast<int64_t>(trainer.total_steps());
    const StepResult step = trainer.step();
    if (!step.nonfinite)
      throw usage_error("'{}' ends with step {}, in which nothing was NaN or infinite: there is no failure to keep", capsule,
                        step.step);
    found_.failure = *step.nonfinite;
    found_.step = step.step;
    found_.loss = step.loss;
    skipped_ = step.skipped;
  }

  bool is_same(const StepResult& step) const {
    const auto& now = step.nonfinite;
    return now && now->name == found_.failure.name && now->module == found_.failure.module && now->phase == found_.failure.phase &&
           now->slot == found_.failure.slot && std::isfinite(step.loss) == std::isfinite(found_.loss) && step.skipped == skipped_;
  }

  // Of part of one batch. A model need not take so few samples, nor does a fault that is injected need to find its element.
  bool fails(const Samples& samples) {
    try {
      return runs_into_failure({samples});
    } catch (const Error&) {
      return false;
    }
  }

  // Whether the last step, of these batches only, fails as it did with all. `output`: a capsule to write of it.
  bool runs_into_failure(const std::vector<Samples>& batches, const std::string& output = "") {
    ++found_.trials;
    TrainerOptions options;
    options.cpu = cpu_;
    options.resume_from = options_.scratch;
    options.watch_nonfinite = true;
    options.capsule.path = output;
    options.capsule.event = CapsuleEvent::step;
    options.capsule.step = found_.step;
    options.capsule.keep_steps = 1;
    CapsuleStep& step = options.batches.emplace_back();
    Batch filled;
    for (const Samples& samples : batches) {
      data_.train->fill_batch(samples, filled);
      step.batches.push_back({samples, hash_of(filled)});
    }
    Experiment changed = experiment_;
    changed.training.batch_size = static_cast<int64_t>(batches.front().size());
    changed.training.accumulation = static_cast<int64_t>(batches.size());
    // The schedule has the same learning rate for the step, whatever the batches make of epochs.
    changed.training.steps = total_steps_;
    // A batch's mean is divided by the number of batches as well.
    if (whole_batch_ > 0 && batches.size() == 1)
      changed.loss.factor *= static_cast<double>(batches[0].size()) / static_cast<double>(whole_batch_ * last().batches.size());
    Trainer trainer(changed, options);
    const bool same = is_same(trainer.step());
    const std::optional<CapsuleOutcome> written = trainer.finish().capsule;
    if (written && !written->failure.empty()) throw failed_error("{}", written->failure);
    return same;
  }

  bool has_time() {
    found_.is_smallest =
        found_.is_smallest && seconds_since(begin_) < options_.budget && (!options_.watch || options_.watch("fewer samples"));
    return found_.is_smallest;
  }

  // Delta debugging (Zeller and Hildebrandt 2002): of a list that fails a part or the rest of one that fails too, in smaller and
  // smaller parts, until no single sample can be left out.
  Samples fewest(Samples samples) {
    size_t parts = 2;
    while (samples.size() > 1) {
      const size_t each = (samples.size() + parts - 1) / parts;
      bool shrank = false;
      for (const bool rest : {false, true}) {
        for (size_t begin = 0; begin < samples.size() && !shrank; begin += each) {
          const auto first = samples.begin() + static_cast<std::ptrdiff_t>(begin),
                     end = samples.begin() + static_cast<std::ptrdiff_t>(std::min(begin + each, samples.size()));
          Samples tried(first, end);
          if (rest) {
            tried.assign(samples.begin(), first);
            tried.insert(tried.end(), end, samples.end());
          }
          if (tried.empty() || tried.size() == samples.size()) continue;
          if (!has_time()) return samples;
          if (!fails(tried)) continue;
          parts = rest ? std::max<size_t>(parts - 1, 2) : 2;
          samples = std::move(tried);
          shrank = true;
        }
        if (shrank) break;
      }
      if (shrank) continue;
      if (parts >= samples.size()) break;
      parts = std::min(2 * parts, samples.size());
    }
    return samples;
  }

  const MinimizeOptions& options_;
  const Clock::time_point begin_ = Clock::now();
  CapsuleSteps original_;
  Experiment experiment_;
  CpuOptions cpu_;
  DataSplits data_;
  Minimized found_;
  bool skipped_ = false;
  int64_t total_steps_ = 0;
  size_t whole_batch_ = 0;  // samples of the batch that is made smaller
};

}  // namespace

Minimized minimize(const std::string& capsule, const MinimizeOptions& options) { return Minimizer(capsule, options).run(); }

Report report_of(const std::string& capsule, const std::string& output, const Minimized& minimized) {
  const auto change = [](uint64_t before, uint64_t after) { return fmt::format("{} to {}", before, after); };
  const NonfiniteOutput& failure = minimized.failure;
  Report report;
  report.analysis = "minimize";
  const bool is_smallest = minimized.is_smallest && minimized.after.batches == 1;
  report.title = fmt::format("{} part of {} that fails in the same way", is_smallest ? "The smallest" : "A", one_line(capsule));
  report.add_fact("capsule", one_line(output));
  report.add_fact("fails_in", fmt::format("{}{} ({})", failure.name, failure.module.empty() ? "" : " in " + failure.module,
                                          name_of(failure.phase)));
  report.add_fact("step", count_cell(minimized.step));
  report.add_fact("loss", minimized.loss);
  report.add_fact("steps", change(minimized.before.steps, minimized.after.steps));
  if (minimized.before.batches > 1) report.add_fact("batches_of_it", change(minimized.before.batches, minimized.after.batches));
  report.add_fact("samples", change(minimized.before.samples, minimized.after.samples));
  report.add_fact("bytes", change(minimized.before.bytes, minimized.after.bytes));
  constexpr size_t kMostNamed = 8;
  std::string numbers;
  for (size_t i = 0; i < std::min(minimized.samples.size(), kMostNamed); ++i)
    numbers += fmt::format("{}{}", i > 0 ? ", " : "", minimized.samples[i]);
  if (minimized.samples.size() > kMostNamed) numbers += fmt::format(" and {} more", minimized.samples.size() - kMostNamed);
  report.add_fact("samples_left", numbers);
  report.add_fact("trials", count_cell(minimized.trials), Unit::count);
  if (!minimized.is_smallest) report.add_fact("time_was_up", true);
  return report;
}

}  // namespace ulpscope
