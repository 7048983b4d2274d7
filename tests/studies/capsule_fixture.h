// Runs with a capsule, of a small network, and trials from it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "ulpscope/analyzers/verbs/trace_difference.h"
#include "ulpscope/base/error.h"
#include "ulpscope/studies/trial.h"

namespace ulpscope {

// Five batches an epoch, the last one smaller; dropout, running statistics and a scaler that has something to do.
inline constexpr const char* kSmall = R"(
name = "small"
seed = 7
[data]
kind = "random_classification"
shape = [1, 8, 8]
train_size = 36
test_size = 8
[model]
layers = [
  { type = "conv2d", name = "conv", out_channels = 8, kernel = 3, padding = 1 },
  { type = "batch_norm", name = "norm" },
  { type = "relu" },
  { type = "flatten" },
  { type = "dropout", name = "dropout", p = 0.2 },
  { type = "linear", name = "hidden", out_features = 16 },
  { type = "linear", name = "head", out_features = 10 },
]
[training]
batch_size = 8
accumulation = 2
steps = 14
evaluation = "epoch"
[scaler]
initial = "2^24"
growth_interval = 3
)";

inline Experiment experiment(const std::vector<std::string>& assignments = {}, const std::string& text = kSmall) {
  const std::vector<Override> overrides(assignments.begin(), assignments.end());
  return parse_experiment(text, "small", overrides);
}

class CapsuleTest : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.file(name); }

  // Trains to the end, with a trace run.h5 and a capsule.
  TrainResult train(const Experiment& settings, CapsuleOptions capsule, const std::string& resume_from = "") {
    TrainerOptions options;
    options.cpu.threads = 2;
    options.trace_path = file("run.h5");
    options.overwrite = true;
    options.capsule = std::move(capsule);
    options.resume_from = resume_from;
    return ulpscope::train(settings, options);
  }
  CapsuleOptions at_step(uint64_t step, uint64_t keep) const { return {file("capsule"), CapsuleEvent::step, step, keep}; }

  Trial trial(const std::vector<std::string>& changes = {}) const {
    Trial trial;
    trial.capsule = file("capsule");
    trial.changes.assign(changes.begin(), changes.end());
    trial.trace_path = file("replay.h5");
    trial.overwrite = true;
    return trial;
  }
  TraceDifference difference() const { return find_difference(Snapshot(file("run.h5")), Snapshot(file("replay.h5"))); }

  std::string refusal(const Trial& asked, ErrorKind kind) {
    try {
      run(asked);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.what();
    }
    return "accepted";
  }

  // Replays what was trained; what was recorded of the steps is the same as well.
  void expect_bit_equal(const TrainResult& trained, const std::string& what) {
    ASSERT_TRUE(trained.capsule && trained.capsule->written) << what << ": " << trained.capsule->failure;
    const TrialOutcome outcome = run(trial());
    EXPECT_TRUE(outcome.is_as_before()) << what;
    EXPECT_EQ(outcome.steps.size(), trained.capsule->last_step - trained.capsule->first_step + 1) << what;
    const TraceDifference found = difference();
    EXPECT_FALSE(found.difference) << what << ": " << found.difference->name << " " << found.difference->what;
    EXPECT_EQ(found.steps, outcome.steps.size()) << what;
    if (Snapshot(file("run.h5")).run().filters.empty()) {
      EXPECT_GT(found.rows, 20 * outcome.steps.size()) << what;
    }
  }

  TemporaryFolder folder_;
};

}  // namespace ulpscope
