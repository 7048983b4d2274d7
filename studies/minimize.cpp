#include "ulpscope/studies/minimize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <optional>

#include "ulpscope/analyzers/verbs/nan.h"
#include "ulpscope/base/clock.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/nn/model.h"
#include "ulpscope/core/run/checkpoint.h"
#include "ulpscope/studies/fewest.h"
#include "ulpscope/studies/sample_part.h"
#include "ulpscope/studies/smaller_model.h"
#include "ulpscope/studies/trial.h"

namespace ulpscope {

namespace {

// What is left of the step.
struct Part {
  size_t first = 0;               // how many of the layers are cut off
  std::vector<LayerSpec> layers;  // of those behind them
  std::vector<RowsOfBatch> rows;
  std::vector<Places> extents;  // of a sample
};

std::vector<size_t> all_rows(const Batch& batch) {
  std::vector<size_t> rows(static_cast<size_t>(batch.samples()));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

std::vector<Places> whole(std::span<const int64_t> sample) {
  std::vector<Places> extents;
  for (const int64_t extent : sample) extents.push_back({0, extent});
  return extents;
}

uint64_t size_of_file(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? 0 : size;
}

CapsuleSize size_of(const std::string& path, const CapsuleSteps& capsule, std::span<const LayerSpec> layers,
                    std::span<const int64_t> sample) {
  CapsuleSize size{capsule.steps.size(),    capsule.steps.back().batches.size(), 0,
                   count_computing(layers), {sample.begin(), sample.end()},      size_of_file(path)};
  for (const CapsuleBatch& batch : capsule.steps.back().batches) size.samples += batch.samples.size();
  return size;
}

size_t targets_of(const Batch& batch) { return batch.labels.size() + batch.values.size(); }

// Of the worst of what is not finite in a step that had such, as `ulpscope nan` has it.
struct Judged {
  std::string cause;
  bool is_harmless;
};
Judged judge(const std::string& trace, const SinkStatus& recorded, uint64_t step) {
  if (recorded.failed) throw failed_error("the step could not be recorded: {}", recorded.failure);
  const Snapshot snapshot(trace);
  const Report report = analyze_nan(snapshot);
  std::optional<std::string> cause = find_fact<std::string>(report, "cause");
  // What did most harm may have begun before.
  if (find_fact<int64_t>(report, "step") != static_cast<int64_t>(step)) {
    AnalysisOptions of_step;
    of_step.steps = {step, step + 1};
    if (auto of_this = find_fact<std::string>(analyze_nan(snapshot, of_step), "cause")) cause = std::move(of_this);
  }
  if (!cause) throw failed_error("internal: a step had NaN or infinities, and its trace '{}' tells no cause", trace);
  return {*cause, report.verdict == Verdict::ok};
}
std::string cause_in(const std::string& trace, const SinkStatus& recorded, uint64_t step) {
  return judge(trace, recorded, step).cause;
}

class Minimizer {
 public:
  Minimizer(const std::string& capsule, const MinimizeOptions& options)
      : options_(options), capsule_(capsule), original_(read_capsule_steps(capsule)) {
    Trial trial;
    trial.capsule = capsule;
    experiment_ = experiment_of(trial);
    experiment_.training.evaluation = Evaluation::never;
    experiment_.recording = {};
    cpu_ = cpu_as_before(original_, {});
    found_.loss = original_.steps.back().loss;
    whole_ = experiment_;
    stand_before_last_step();
    experiment_.model.layers = flattened(experiment_.model.layers);
    run_last_step();
  }

  Minimized run() {
    if (!found_.other_failure.empty()) {
      leave_out_steps();
      return std::move(found_);
    }
    part_ = {0, experiment_.model.layers, rows_of_all(), {}};
    part_.extents = whole(sample_shape());
    if (!fails(part_)) throw failed_error("the last step does not fail again when it is run by itself");
    take_one_batch();
    // Samples that are not finite are what fails.
    if (found_.failure.phase != Phase::data || !found_.failure.module.empty()) cut_beginning();
    // Of several batches, whose sums fail together, each would have to shrink by the same share.
    if (part_.rows.size() == 1) take_fewest_rows();
    leave_out_layers();
    for (const size_t dimension : dimensions_of(sample_shape(), is_indices())) shorten(dimension);
    if (part_.rows.size() == 1) take_fewest_rows();
    if (!runs_into_failure(part_, options_.output)) {
      std::error_code error;
      std::filesystem::remove(options_.output, error);
      throw failed_error("internal: what was left fails no more");
    }
    for (const RowsOfBatch& taken : part_.rows)
      for (const size_t row : taken.rows) found_.samples.push_back(origins_[taken.batch][row]);
    if (part_.first > 0) found_.replaced_up_to = experiment_.model.layers[part_.first - 1].name;
    std::vector<int64_t> sample;
    for (const Places& extent : part_.extents) sample.push_back(extent.size());
    found_.before = size_of(capsule_, original_, experiment_.model.layers, sample_shape());
    found_.after = size_of(options_.output, read_capsule_steps(options_.output), part_.layers, sample);
    return std::move(found_);
  }

 private:
  const CapsuleStep& last() const { return original_.steps.back(); }
  std::span<const int64_t> sample_shape() const { return std::span<const int64_t>(given_[part_.first][0].input_shape).subspan(1); }
  bool is_indices() const { return part_.first == 0 && like_.input_indices > 0; }

  // Steps from a capsule or checkpoint on.
  Trial trial_from(const std::string& start, const Experiment& experiment, std::vector<CapsuleStep> batches) const {
    Trial trial;
    trial.capsule = start;
    trial.beside = capsule_;
    trial.experiment = experiment;
    trial.batches = std::move(batches);
    trial.cpu = cpu_;
    return trial;
  }
  void record(Trial& trial) const {
    trial.trace_path = options_.scratch + ".h5";
    trial.overwrite = true;
  }

  // Runs all steps, and keeps how training stands before the last one, and of what cause that fails.
  void stand_before_last_step() {
    Trial trial = trial_from(capsule_, whole_, original_.steps);
    record(trial);
    trial.before_step = [&](Trainer& trainer, uint64_t taken) {
      if (taken + 1 < original_.steps.size()) return true;
      trainer.save_checkpoint(options_.scratch);
      total_steps_ = static_cast<int64_t>(trainer.total_steps());
      const Dataset& data = trainer.training_data();
      like_ = {{}, data.target_kind(), data.input_indices(), data.classes()};
      given_.resize(1);
      for (const CapsuleBatch& batch : last().batches) {
        std::vector<int64_t>& origins = origins_.emplace_back();
        for (const int64_t sample : batch.samples) origins.push_back(data.origin_of(sample));
        data.fill_batch(batch.samples, given_[0].emplace_back());
        given_[0].back().numbers = origins;
      }
      return true;
    };
    const TrialOutcome outcome = ulpscope::run(trial);
    if (outcome.steps.size() < original_.steps.size())
      throw unreadable_error("'{}' is damaged: it has {}, and its experiment ends after {} of them", capsule_,
                             count_of(original_.steps.size(), "step"), outcome.steps.size());
    const StepResult& step = outcome.steps.back().result;
    if (!step.nonfinite)
      throw usage_error("'{}' ends with step {}, in which nothing was NaN or Inf: there is no failure to keep", capsule_,
                        step.step);
    found_.failure = *step.nonfinite;
    found_.step = step.step;
    const Judged judged = judge(trial.trace_path, outcome.trace, step.step);
    found_.cause = judged.cause;
    found_.is_harmless = judged.is_harmless;
    skipped_ = step.skipped;
  }

  // Of the last `count` steps, from where training stood: their cause where they end as the whole does. `output`: as below.
  std::optional<std::string> cause_of(size_t count, const std::string& output) {
    const size_t before = original_.steps.size() - count;
    if (before > 0) {
      Trial trial = trial_from(capsule_, whole_, original_.steps);
      trial.before_step = [&](Trainer& trainer, uint64_t taken) {
        if (taken == before) trainer.save_checkpoint(options_.scratch);
        return taken < before;
      };
      ulpscope::run(trial);
    }
    Trial trial = trial_from(before > 0 ? options_.scratch : capsule_, whole_,
                             {original_.steps.begin() + static_cast<std::ptrdiff_t>(before), original_.steps.end()});
    trial.kept = {output, CapsuleEvent::step, found_.step, count, true};
    record(trial);
    ++found_.trials;
    const TrialOutcome outcome = ulpscope::run(trial);
    if (!is_same(outcome.steps.back().result)) return std::nullopt;
    return cause_in(trial.trace_path, outcome.trace, found_.step);
  }

  // The fewest steps before the last one with which it fails of the same cause. With more steps it does as well: they hold the
  // fewer, and what these take.
  void leave_out_steps() {
    const size_t enough = fewest(
        1, original_.steps.size(), [&] { return may_begin("fewer steps"); },
        [&](size_t count) { return cause_of(count, "") == found_.cause; });
    cause_of(enough, options_.output);
    const CapsuleSteps left = read_capsule_steps(options_.output);
    for (const std::vector<int64_t>& batch : origins_) found_.samples.insert(found_.samples.end(), batch.begin(), batch.end());
    found_.before = size_of(capsule_, original_, experiment_.model.layers, sample_shape());
    found_.after = size_of(options_.output, left, experiment_.model.layers, sample_shape());
  }

  // The last step by itself: how it fails, and what each layer gives in it.
  void run_last_step() {
    const std::vector<RowsOfBatch> rows = rows_of_all();
    Experiment whole_step = on_samples(experiment_, {0, experiment_.model.layers, rows, {}});
    std::vector<int64_t> numbers;
    for (const CapsuleBatch& batch : last().batches) numbers.insert(numbers.end(), batch.samples.begin(), batch.samples.end());
    for (const InjectedFault& fault : experiment_.inject) {
      const auto found = fault.sample ? std::find(numbers.begin(), numbers.end(), *fault.sample) : numbers.end();
      if (found == numbers.end()) continue;
      whole_step.inject.push_back(fault);
      whole_step.inject.back().sample = found - numbers.begin();
    }
    KeptSamples samples = part_of(given_[0], like_, rows, whole(sample_shape()));
    Trial trial = trial_from(options_.scratch, whole_step, steps_of(samples, rows));
    trial.samples = std::move(samples);
    size_t shown = 0;
    trial.watch_batches = [&](const Batch& batch) {
      given_[0][shown] = batch;
      given_[0][shown].numbers = origins_[shown];
      ++shown;
    };
    record(trial);
    given_.resize(experiment_.model.layers.size());
    size_t bytes = 0;
    const auto keep_given = [&](size_t layer, const Tensor& output) {
      const size_t next = layer + 1;
      if (next >= given_.size()) return;
      Batch given = as_batch(output, given_[next].size());
      // What fails gets what came before it: nothing behind it takes the place of layers.
      if (!std::all_of(given.inputs.begin(), given.inputs.end(), [](float value) { return std::isfinite(value); }))
        return given_.resize(next);
      bytes += given.inputs.size() * sizeof(float);
      if (bytes > options_.most_bytes) return given_.resize(1);
      given_[next].push_back(std::move(given));
    };
    trial.before_step = [&](Trainer& trainer, uint64_t) {
      trainer.model().watch_layers(keep_given);
      return true;
    };
    const TrialOutcome outcome = ulpscope::run(trial);
    const StepResult& step = outcome.steps.front().result;
    if (!step.nonfinite) throw failed_error("the last step does not fail again when it is run by itself");
    const std::string cause = cause_in(trial.trace_path, outcome.trace, step.step);
    if (is_same(step) && cause == found_.cause) return;
    found_.other_failure = fmt::format("{}, {}", step.nonfinite->place(), cause);
  }

  std::vector<RowsOfBatch> rows_of_all() const {
    std::vector<RowsOfBatch> rows;
    for (size_t i = 0; i < given_[0].size(); ++i) rows.push_back({i, all_rows(given_[0][i])});
    return rows;
  }

  // What a layer gave of a batch, with the targets that this has.
  Batch as_batch(const Tensor& output, size_t batch) const {
    Batch given = given_[0][batch];
    given.indices.clear();
    given.input_shape.assign(output.shape().begin(), output.shape().end());
    given.input_type = output.dtype();
    const std::vector<double> values = to_host(output);
    given.inputs.assign(values.begin(), values.end());
    return given;
  }

  // One step, of the samples from the first on.
  static std::vector<CapsuleStep> steps_of(const KeptSamples& samples, std::span<const RowsOfBatch> rows) {
    const KeptDataset data(samples);
    CapsuleStep step;
    Batch filled;
    int64_t next = 0;
    for (const RowsOfBatch& taken : rows) {
      CapsuleBatch& batch = step.batches.emplace_back();
      batch.samples.resize(taken.rows.size());
      std::iota(batch.samples.begin(), batch.samples.end(), next);
      next += static_cast<int64_t>(taken.rows.size());
      data.fill_batch(batch.samples, filled);
      batch.hash = hash_of(filled);
    }
    return {step};
  }

  // The experiment, on samples as the model gets them.
  Experiment on_samples(Experiment changed, const Part& part) const {
    changed.model.layers = part.layers;
    changed.data = {};
    changed.data.kind = DataKind::capsule;
    changed.data.shuffle = false;
    changed.training.batch_size = static_cast<int64_t>(part.rows.front().rows.size());
    changed.training.accumulation = static_cast<int64_t>(part.rows.size());
    // The schedule has the same learning rate for the step, whatever the batches make of epochs.
    changed.training.steps = total_steps_;
    // What they make of a sample is in it.
    std::erase_if(changed.inject, [](const InjectedFault& fault) { return fault.sample.has_value(); });
    return changed;
  }

  // Of a part that fails.
  bool fails(const Part& part) {
    try {
      return runs_into_failure(part, "");
    } catch (const Error& error) {
      // A model need not take so little, nor does a fault that is injected need to find its element.
      if (error.kind() == ErrorKind::usage) return false;
      throw;
    }
  }

  bool is_same(const StepResult& step) const {
    const auto& now = step.nonfinite;
    return now && now->name == found_.failure.name && now->module == found_.failure.module && now->phase == found_.failure.phase &&
           now->slot == found_.failure.slot && now->parameter == found_.failure.parameter &&
           std::isfinite(step.loss) == std::isfinite(found_.loss) && step.skipped == skipped_;
  }

  // Whether the part fails as the whole step does. `output`: a capsule to write of it; "": its cause is compared, too.
  bool runs_into_failure(const Part& part, const std::string& output) {
    ++found_.trials;
    KeptSamples samples = part_of(given_[part.first], part.first > 0 ? KeptSamples{{}, like_.target_kind, 0, like_.classes} : like_,
                                  part.rows, part.extents);
    Experiment changed = on_samples(experiment_, part);
    const Batch& left = samples.batch;
    fit_to_model(changed, {left.input_shape.begin() + 1, left.input_shape.end()}, samples.input_indices);
    // A batch's mean is divided by the number of batches as well.
    const double targets = static_cast<double>(targets_of(left)) * static_cast<double>(part.rows.front().rows.size()) /
                           static_cast<double>(left.samples()),
                 all = static_cast<double>(targets_of(given_[0][part.rows.front().batch]));
    changed.loss.factor *= targets * static_cast<double>(part.rows.size()) / (all * static_cast<double>(given_[0].size()));
    // As a capsule has it.
    changed = parse_experiment(to_toml(changed), "the smaller experiment");
    Trial trial = trial_from(options_.scratch, changed, steps_of(samples, part.rows));
    trial.kept = {output, CapsuleEvent::step, found_.step, 1, true};
    trial.samples = std::move(samples);
    if (output.empty()) record(trial);
    const TrialOutcome outcome = ulpscope::run(trial);
    return is_same(outcome.steps.front().result) &&
           (!output.empty() || cause_in(trial.trace_path, outcome.trace, found_.step) == found_.cause);
  }

  // Whether another trial may begin. Where none may, what is left need not be the smallest.
  bool may_begin(std::string_view trial) {
    found_.is_smallest =
        found_.is_smallest && seconds_since(begin_) < options_.budget && (!options_.watch || options_.watch(trial));
    return found_.is_smallest;
  }

  // Makes it the part where it fails.
  bool take(Part part, std::string_view trial) {
    if (!may_begin(trial) || !fails(part)) return false;
    part_ = std::move(part);
    return true;
  }

  void take_one_batch() {
    for (size_t i = 0; i < given_[0].size() && given_[0].size() > 1; ++i) {
      Part alone = part_;
      alone.rows = {{i, all_rows(given_[0][i])}};
      if (take(std::move(alone), "one batch")) return;
    }
  }

  // The layers before the one that fails, as many as can be, give way to what they gave.
  void cut_beginning() {
    const std::vector<LayerSpec>& layers = experiment_.model.layers;
    const std::string& module = found_.failure.module;
    size_t first = 0;
    while (first + 1 < given_.size() && module != layers[first].name && !module.starts_with(layers[first].name + ".")) ++first;
    size_t step = 1, refused = first + 1;
    while (first > 0 && !take_from(first)) {
      refused = first;
      first -= std::min(first, step);
      step *= 2;
    }
    while (first + 1 < refused) {
      const size_t middle = first + (refused - first) / 2;
      if (take_from(middle)) {
        first = middle;
      } else {
        refused = middle;
      }
    }
  }
  bool take_from(size_t first) {
    Part part = part_;
    part.first = first;
    const Batch& given = given_[first][0];
    if (given.input_type == DType::f64) return false;  // a capsule has samples in FP32 at most
    part.layers.assign(experiment_.model.layers.begin() + static_cast<std::ptrdiff_t>(first), experiment_.model.layers.end());
    part.extents = whole(std::span<const int64_t>(given.input_shape).subspan(1));
    return take(std::move(part), "fewer layers");
  }

  // Of what follows the failing layer, and within it, as much as can be left out: in halves of halves, and then one by one.
  void leave_out_layers() {
    for (size_t each = part_.layers.size() / 2; each > 1; each /= 2) {
      for (size_t end = part_.layers.size(); end >= each; end -= std::min(end, each)) {
        Part part = part_;
        const auto last = part.layers.begin() + static_cast<std::ptrdiff_t>(end);
        part.layers.erase(last - static_cast<std::ptrdiff_t>(each), last);
        if (!part.layers.empty()) take(std::move(part), "fewer layers");
      }
    }
    for (size_t place = count_all(part_.layers); place-- > 0;) {
      auto layers = without(part_.layers, place);
      if (!layers || layers->empty()) continue;
      Part part = part_;
      part.layers = std::move(*layers);
      take(std::move(part), "fewer layers");
    }
  }

  // From the end, and then from the beginning, in steps that become smaller.
  void shorten(size_t dimension) {
    for (const bool at_end : {true, false}) {
      for (int64_t step = part_.extents[dimension].size() / 2; step > 0;) {
        Part part = part_;
        Places& extent = part.extents[dimension];
        (at_end ? extent.end : extent.begin) += at_end ? -step : step;
        if (extent.size() < 1 || !take(std::move(part), "shorter samples")) step /= 2;
      }
    }
  }

  // Delta debugging (Zeller and Hildebrandt 2002): of a list that fails a part or the rest of one that fails too, in smaller and
  // smaller parts, until no single sample can be left out.
  void take_fewest_rows() {
    size_t parts = 2;
    const auto rows = [&]() -> const std::vector<size_t>& { return part_.rows[0].rows; };
    while (rows().size() > 1) {
      const size_t each = (rows().size() + parts - 1) / parts;
      bool shrank = false;
      for (const bool rest : {false, true}) {
        for (size_t begin = 0; begin < rows().size() && !shrank; begin += each) {
          const auto first = rows().begin() + static_cast<std::ptrdiff_t>(begin),
                     end = rows().begin() + static_cast<std::ptrdiff_t>(std::min(begin + each, rows().size()));
          Part tried = part_;
          tried.rows[0].rows.assign(first, end);
          if (rest) {
            tried.rows[0].rows.assign(rows().begin(), first);
            tried.rows[0].rows.insert(tried.rows[0].rows.end(), end, rows().end());
          }
          if (tried.rows[0].rows.empty() || tried.rows[0].rows.size() == rows().size()) continue;
          shrank = take(std::move(tried), "fewer samples");
        }
        if (shrank) {
          parts = rest ? std::max<size_t>(parts - 1, 2) : 2;
          break;
        }
      }
      if (shrank) continue;
      if (parts >= rows().size() || !found_.is_smallest) break;
      parts = std::min(2 * parts, rows().size());
    }
  }

  const MinimizeOptions& options_;
  const std::string& capsule_;
  const Clock::time_point begin_ = Clock::now();
  CapsuleSteps original_;
  Experiment whole_, experiment_;  // of experiment_ the layers are flattened
  CpuOptions cpu_;
  KeptSamples like_;                           // what kind of samples the data have
  std::vector<std::vector<int64_t>> origins_;  // of the samples of each batch, as Dataset::origin_of
  std::vector<std::vector<Batch>> given_;      // to each layer up to the one that fails at most, of each batch of the step
  Minimized found_;
  Part part_;
  bool skipped_ = false;
  int64_t total_steps_ = 0;
};

}  // namespace

Minimized minimize(const std::string& capsule, const MinimizeOptions& options) { return Minimizer(capsule, options).run(); }

Report report_of(const std::string& capsule, const std::string& output, const Minimized& minimized) {
  const auto change = [](const auto& before, const auto& after) { return fmt::format("{} to {}", before, after); };
  const NonfiniteOutput& failure = minimized.failure;
  const CapsuleSize &before = minimized.before, &after = minimized.after;
  Report report;
  report.analysis = "minimize";
  const bool is_smallest = minimized.is_smallest && after.batches == 1 && minimized.other_failure.empty();
  report.title = fmt::format("{} part of {} {}", is_smallest ? "The smallest" : "A", one_line(capsule),
                             minimized.is_harmless ? "in which the same is NaN or Inf" : "that fails in the same way");
  report.add_fact("capsule", one_line(output));
  if (minimized.is_harmless) {
    report.add_fact("not_finite", failure.place());
    report.add_fact("harm", std::string("none: the steps do not fail, as it reaches neither the loss nor a weight"));
  } else {
    report.add_fact("fails_in", failure.place());
  }
  if (!minimized.cause.empty()) report.add_fact("cause", minimized.cause);
  if (!minimized.other_failure.empty())
    report.add_fact("left_out", fmt::format("steps only: the last one alone fails otherwise, in {}", minimized.other_failure));
  report.add_fact("step", count_cell(minimized.step));
  report.add_fact("loss", minimized.loss);
  report.add_fact("steps", change(before.steps, after.steps));
  if (before.batches > 1) report.add_fact("batches_of_it", change(before.batches, after.batches));
  report.add_fact("samples", change(before.samples, after.samples));
  report.add_fact("layers", change(before.layers, after.layers));
  if (!minimized.replaced_up_to.empty())
    report.add_fact("replaced", fmt::format("all up to {}, by what it gave", one_line(minimized.replaced_up_to)));
  report.add_fact("sample", change(describe_shape(before.sample), describe_shape(after.sample)));
  report.add_fact("bytes", change(before.bytes, after.bytes));
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
