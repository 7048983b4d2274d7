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
  const Profile profile{{{"a", Phase::forward, 4, 6.0}, {"b", Phase::backward, 1, 2.0}}, 1.0, 16.0, {}, {}};
  EXPECT_EQ(profile.computing_seconds(), 8.0);
  EXPECT_EQ(profile.other_seconds(), 7.0);
  EXPECT_EQ(profile.share_of(profile.entries[0]), 0.75);
  EXPECT_EQ(profile.entries[0].seconds_per_call(), 1.5);
  const Profile nothing{{{"a", Phase::forward, 0, 0.0}}, 0, 0, {}, {}};
  EXPECT_EQ(nothing.share_of(nothing.entries[0]), 0);
  EXPECT_EQ(nothing.entries[0].seconds_per_call(), 0);
}

// y = x w^T + b for x [6, 20] and w [10, 20] in FP16, by hand.
TEST_F(ProfileTest, CountsOperationsBytesAndExtentsOfProducts) {
  Profiler profiler(*context_.backend);
  const Tensor x = cast(random(DType::f32, {6, 20}), DType::f16), w = cast(random(DType::f32, {10, 20}), DType::f16);
  const Tensor b = cast(random(DType::f32, {10}), DType::f16);
  const Tensor row = random(DType::f32, {1, 20}), tall = random(DType::f32, {30, 20});
  context_.observers = profiler.around({});
  const auto in_module = [&](const char* module, auto body) {
    const ContextGuard<&Context::module> guard(intern(module));
    body();
  };
  in_module("first", [&] { call("linear", {x, w, b}); });
  in_module("first", [&] { call("linear", {x, w, b}); });
  in_module("second", [&] { call("linear", {x, w, b}); });
  in_module("second", [&] { add(tall, row); });
  const Profile profile = profiler.profile();
  const auto find = [](const std::vector<ProfileEntry>& entries, std::string_view op, std::string_view module) {
    return *std::find_if(entries.begin(), entries.end(),
                         [&](const auto& entry) { return entry.op == op && entry.module == module; });
  };
  const double linear_flop = 2.0 * 6 * 10 * 20, linear_bytes = 2.0 * (6 * 20 + 10 * 20 + 10 + 6 * 10);
  const double add_flop = 30 * 20, add_bytes = 4.0 * (30 * 20 + 20 + 30 * 20);
  const ProfileEntry first = find(profile.entries, "linear", "first");
  EXPECT_EQ(first.calls, 2u);
  EXPECT_EQ(first.flop, 2 * linear_flop);
  EXPECT_EQ(first.bytes, 2 * linear_bytes);
  EXPECT_EQ(find(profile.entries, "add", "second").flop, add_flop);
  EXPECT_EQ(find(profile.entries, "add", "second").bytes, add_bytes);
  EXPECT_EQ(find(profile.by_op(), "linear", "").calls, 3u);
  const ProfileEntry second = find(profile.by_module(), "", "second");
  EXPECT_EQ(second.calls, 2u);
  EXPECT_EQ(second.flop, linear_flop + add_flop);
  EXPECT_EQ(second.bytes, linear_bytes + add_bytes);

  ASSERT_EQ(profile.products.size(), 2u);
  const ProfiledProduct& product = profile.products[0];
  EXPECT_EQ(product.dtype, DType::f16);
  EXPECT_EQ(product.shape.padding(), "M 6 -> 8, N 10 -> 16, K 20 -> 24");
  EXPECT_FALSE(product.is_eligible());
}

TEST(Profiles, ReachAShareOfTheRoofline) {
  const Roofline roofline{100, 10};                                                   // 10 operations a byte balance both
  EXPECT_EQ(roofline.share_reached({.seconds = 4, .flop = 200, .bytes = 1}), 0.5);    // bound by computing: 2 s at least
  EXPECT_EQ(roofline.share_reached({.seconds = 4, .flop = 200, .bytes = 30}), 0.75);  // by memory: 3 s
  ProfiledProduct product{.op = "linear", .dtype = DType::bf16, .shape = {.m = 8, .n = 16, .k = 24}};
  EXPECT_TRUE(product.is_eligible());
  product.dtype = DType::f32;
  EXPECT_FALSE(product.is_eligible());
}

TEST_F(ProfileTest, SlowTheRooflineIsMeasured) {
  const Roofline roofline = measure_roofline(*context_.backend);
  // Any machine of this century, and none of it.
  EXPECT_GT(roofline.flop_per_second, 1e8);
  EXPECT_LT(roofline.flop_per_second, 1e15);
  EXPECT_GT(roofline.bytes_per_second, 1e8);
  EXPECT_LT(roofline.bytes_per_second, 1e14);
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
