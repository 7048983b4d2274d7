// The profile against counts that were taken apart from it. Its times are not tested.
#include "ulpscope/core/observe/profile.h"

#include <gmock/gmock.h>

#include "tests/support/counting_backend.h"
#include "tests/support/engine_fixture.h"
#include "ulpscope/core/run/trainer.h"

namespace ulpscope {
namespace {

using Calls = std::map<std::pair<std::string, Phase>, uint64_t>;

class CallCounter : public Observer {
 public:
  void after(const OpEvent& event) override { ++calls[{std::string(event.op.name), event.phase}]; }
  Calls calls;
};

Calls calls_of(const Profile& profile) {
  Calls calls;
  for (const ProfileEntry& entry : profile.entries) calls[{std::string(entry.op), entry.phase}] += entry.calls;
  return calls;
}

class ProfileTest : public EngineTest {};

TEST_F(ProfileTest, CountsWhatTheBackendRuns) {
  CountingBackend counting(*context_.backend);
  context_.backend = &counting;
  Profiler profiler(counting);
  context_.observers = profiler.around({});
  Tensor x = random(DType::f32, {4, 3});
  x.set_requires_grad(true);
  const Tensor wide = cast(x, DType::f64);
  backward(mean(mul(wide, reshape(wide, std::vector<int64_t>{4, 3}))));
  {
    const PhaseGuard phase(Phase::evaluation);
    add(x, x);
  }
  std::map<std::string, int> calls;
  for (const ProfileEntry& entry : profiler.profile().entries) calls[std::string(entry.op)] += static_cast<int>(entry.calls);
  EXPECT_EQ(calls, counting.calls);
  EXPECT_GT(calls.size(), 3u);
}

TEST(Profiles, DeriveWhatTheTimesAddUpTo) {
  const Profile profile{{{"a", Phase::forward, 4, 6.0}, {"b", Phase::backward, 1, 2.0}}, 1.0, 16.0};
  EXPECT_EQ(profile.computing_seconds(), 8.0);
  EXPECT_EQ(profile.other_seconds(), 7.0);
  EXPECT_EQ(profile.share_of(profile.entries[0]), 0.75);
  EXPECT_EQ(profile.entries[0].seconds_per_call(), 1.5);
  const Profile nothing{{{"a", Phase::forward, 0, 0.0}}, 0, 0};
  EXPECT_EQ(nothing.share_of(nothing.entries[0]), 0);
  EXPECT_EQ(nothing.entries[0].seconds_per_call(), 0);
}

TEST(TrainingProfile, HasEveryOpInItsPhase) {
  Experiment experiment = *find_preset("mlp");
  experiment.precision = Precision::fp16;
  experiment.training.steps = 3;
  experiment.training.evaluation = Evaluation::never;
  TrainerOptions options;
  options.profile = true;
  Trainer trainer(experiment, options);
  CallCounter counter;
  trainer.context().observers.push_back(&counter);
  while (!trainer.finished()) trainer.step();
  EXPECT_EQ(calls_of(*trainer.finish().profile), counter.calls);
  for (const Phase phase : {Phase::data, Phase::forward, Phase::loss, Phase::backward, Phase::scaling, Phase::optimizer}) {
    EXPECT_TRUE(std::any_of(counter.calls.begin(), counter.calls.end(), [&](const auto& item) {
      return item.first.second == phase;
    })) << name_of(phase);
  }

  experiment.training.evaluation = Evaluation::end;
  Trainer evaluated(experiment, options);
  while (!evaluated.finished()) evaluated.step();
  const Calls with_evaluation = calls_of(*evaluated.finish().profile);
  EXPECT_EQ((with_evaluation.count({"correct_count", Phase::evaluation})), 1u);

  options.profile = false;
  Trainer bare(experiment, options);
  EXPECT_TRUE(bare.context().observers.empty());
  EXPECT_FALSE(bare.finish().profile);
}

}  // namespace
}  // namespace ulpscope
