// What is recorded of an update, |w|, |d|, g.d and decay, against sums of what it read and wrote, and against the same update
// without decay.
#include <fmt/format.h>

#include <cmath>

#include "cpu_support.h"
#include "ulpscope/base/text.h"

namespace ulpscope::testing_support {
namespace {

constexpr int kFirstState = 2;  // among the inputs

struct Rule {
  const char* name;
  size_t states;
  bool adds_decay;
  std::vector<Attributes::Item> attributes;
};

std::vector<Rule> rules() {
  const std::vector<Attributes::Item> adam{{"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"step", 3}};
  const auto with = [](std::vector<Attributes::Item> items, std::initializer_list<Attributes::Item> more) {
    items.insert(items.end(), more);
    return items;
  };
  return {{"sgd_update", 0, true, {{"momentum", 0}, {"dampening", 0}, {"nesterov", 0}, {"first", 0}}},
          {"sgd_update", 1, false, {{"momentum", 0.9}, {"dampening", 0}, {"nesterov", 0}, {"first", 0}}},
          {"adam_update", 2, false, with(adam, {{"decoupled", 0}})},
          {"adam_update", 2, true, with(adam, {{"decoupled", 1}})},
          {"lion_update", 1, true, {{"beta1", 0.9}, {"beta2", 0.99}}}};
}

constexpr double kRate = 0.05;

Case case_of(const Rule& rule, int64_t n, double decay, bool stepwise) {
  const std::vector<int64_t> shape{n};
  Case what{rule.name, {{shape}, {shape}}, {{shape, Lay::contiguous, {}, 0}}, rule.attributes};
  for (size_t state = 0; state < rule.states; ++state) {
    what.inputs.push_back({shape, Lay::contiguous, {}, 0, 0, 0.1});
    what.outputs.push_back({shape, Lay::contiguous, {}, kFirstState + static_cast<int>(state)});
  }
  what.outputs.push_back({shape, Lay::contiguous, DType::f32});
  what.attributes.push_back({"lr", kRate});
  what.attributes.push_back({"weight_decay", decay});
  what.attributes.push_back({"stepwise", stepwise ? 1.0 : 0.0});
  return what;
}

Result run(const CaseCall& prepared, Backend& backend, const Arithmetic* how) {
  OpCall call = prepared.call();
  call.arithmetic = how;
  call.seed = 3;
  call.stream = 11;
  run(backend, call);
  return prepared.result();
}

struct Sum {
  long double value = 0, magnitudes = 0;
  void add(long double term) {
    value += term;
    magnitudes += std::abs(term);
  }
};

// An FP64 sum of n terms, each rounded at most twice.
void expect_sum(double actual, const Sum& expected, int64_t n, const std::string& what) {
  const long double bound = static_cast<long double>(n + 2) * 0x1p-53L * expected.magnitudes;
  EXPECT_TRUE(std::abs(actual - expected.value) <= bound) << fmt::format(
      "{}: {}, expected {} within {}", what, actual, static_cast<double>(expected.value), static_cast<double>(bound));
}

void check(const Rule& rule, DType dtype, bool stepwise, const Arithmetic* how, Backend& backend, int64_t n,
           const std::string& isa) {
  constexpr double kDecay = 0.02;
  const std::string where =
      fmt::format("{} with {} of {} {} {} {} {}", rule.name, count_of(static_cast<uint64_t>(rule.states), "state"), n,
                  info(dtype).name, stepwise ? "stepwise" : "once", how != nullptr ? static_cast<int>(how->rounding) : -1, isa);
  const Case what = case_of(rule, n, kDecay, stepwise), without_decay = case_of(rule, n, 0, stepwise);
  const Instance instance(what, dtype);
  const Result actual = run(instance.prepare(StatisticsLevel::health), backend, how);
  const Result plain = run(Instance(without_decay, dtype).prepare(StatisticsLevel::health), backend, how);
  const size_t d_slot = rule.states + 1;
  ASSERT_TRUE(actual.records[d_slot].update_known) << where;
  const UpdateCounts& recorded = actual.records[d_slot].update;
  const HostTensor w = Instance(what, dtype).inputs()[0].copy(), g = Instance(what, dtype).inputs()[1].copy();
  Sum weights, updates, products, asked, applied;
  long double asked_bound = 0;
  for (int64_t i = 0; i < n; ++i) {
    const long double weight = w.get(i), d = actual.outputs[d_slot].get(i);
    weights.add(weight * weight);
    updates.add(d * d);
    products.add(g.get(i) * d);
    asked.add(std::abs(kRate * kDecay * weight));
    // The rate and the decay as constants of the lanes, and their products: at most four roundings.
    asked_bound += 4 * (std::abs(kRate * kDecay * weight) * 0x1p-24L + 0x1p-150L);
    applied.add((weight > 0   ? -1
                 : weight < 0 ? 1
                              : 0) *
                (static_cast<long double>(actual.outputs[0].get(i)) - static_cast<long double>(plain.outputs[0].get(i))));
  }
  EXPECT_EQ(recorded.learning_rate, kRate) << where;
  expect_sum(recorded.weight_squares, weights, n, where + ": |w|^2");
  expect_sum(recorded.update_squares, updates, n, where + ": |d|^2");
  expect_sum(recorded.gradient_dot_update, products, n, where + ": g d");
  EXPECT_EQ(recorded.decay_known, rule.adds_decay) << where;
  if (!rule.adds_decay) {
    EXPECT_EQ(recorded.decay_asked, 0) << where;
    EXPECT_EQ(recorded.decay_applied, 0) << where;
    return;
  }
  EXPECT_TRUE(std::abs(recorded.decay_asked - asked.value) <= asked_bound)
      << where << ": " << recorded.decay_asked << " asked, expected " << static_cast<double>(asked.value);
  expect_sum(recorded.decay_applied, applied, n, where + ": applied");
  EXPECT_GT(recorded.decay_asked, 0) << where;
  EXPECT_EQ(plain.records[d_slot].update.decay_known, true) << where;
  EXPECT_EQ(plain.records[d_slot].update.decay_asked, 0) << where;
  EXPECT_EQ(plain.records[d_slot].update.decay_applied, 0) << where;
}

TEST(UpdateSums, AreThoseOfWhatTheUpdateReadAndWrote) {
  for (const std::string& isa : instruction_sets()) {
    const auto backend = make_cpu_backend({.threads = 2, .isa = isa});
    for (const Rule& rule : rules()) {
      for (const int64_t n : {5, 20000}) {
        check(rule, DType::f32, false, nullptr, *backend, n, isa);
        for (const DType dtype : {DType::f16, DType::bf16}) {
          for (const bool stepwise : {false, true}) check(rule, dtype, stepwise, nullptr, *backend, n, isa);
        }
      }
    }
  }
}

// With the random bits that the weight was rounded with, in the other run as in this.
TEST(UpdateSums, KnowEveryRounding) {
  const auto backend = make_cpu_backend({.threads = 2});
  for (const Rule& rule : rules()) {
    for (const RoundingMode mode :
         {RoundingMode::stochastic, RoundingMode::toward_zero, RoundingMode::up, RoundingMode::down, RoundingMode::to_odd}) {
      const Arithmetic how{find_accumulation("fp32"), mode, Subnormals::keep};
      for (const DType dtype : {DType::f16, DType::bf16}) check(rule, dtype, false, &how, *backend, 20000, "");
    }
    const Arithmetic flushing{find_accumulation("fp32"), RoundingMode::nearest_even, Subnormals::flush};
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) check(rule, dtype, false, &flushing, *backend, 20000, "");
  }
}

// What decay asks of BF16 weights, less than half an ulp of most of them, arrives on average where roundings are stochastic: the
// sum of n roundings is off by less than 5 standard deviations, each at most half an ulp. To nearest most of it is lost.
TEST(UpdateSums, DecayArrivesWhereRoundingsAreStochastic) {
  const auto backend = make_cpu_backend({.threads = 2});
  constexpr int64_t kCount = 100000;
  Case what = case_of(rules()[4], kCount, 1e-3, false);
  what.inputs[0].low = 1;
  what.inputs[0].high = 2;
  const auto recorded = [&](RoundingMode mode) {
    const Arithmetic how{find_accumulation("fp32"), mode, Subnormals::keep};
    return run(Instance(what, DType::bf16).prepare(StatisticsLevel::health), *backend, &how).records[2].update;
  };
  // With decay and without, the same random bits round two values that are close together: of those few that fall on two sides of a
  // bit pattern, each is an ulp off.
  const UpdateCounts stochastic = recorded(RoundingMode::stochastic), nearest = recorded(RoundingMode::nearest_even);
  const double ulp = 0x1p-7, share = stochastic.decay_asked / kCount / ulp;
  const double deviation = ulp * std::sqrt(kCount * share);
  EXPECT_TRUE(std::abs(stochastic.decay_applied - stochastic.decay_asked) <= 5 * deviation)
      << stochastic.decay_applied << " of " << stochastic.decay_asked;
  EXPECT_EQ(nearest.decay_asked, stochastic.decay_asked);
  EXPECT_LT(std::abs(nearest.decay_applied), 0.5 * nearest.decay_asked);
}

// A decay of lr weight_decay = 1e-3 is below half the distance between BF16 numbers, 2^-9 of a weight: where it is an operation by
// itself, all of it is lost, and added to a step it is not.
TEST(UpdateSums, DecayIsLostInARoundingOfItsOwn) {
  const auto backend = make_cpu_backend({.threads = 2});
  for (const size_t rule : {size_t{3}, size_t{4}}) {
    for (const bool stepwise : {false, true}) {
      const Case what = case_of(rules()[rule], 20000, 0.02, stepwise);
      const UpdateCounts recorded =
          run(Instance(what, DType::bf16).prepare(StatisticsLevel::health), *backend, nullptr).records.back().update;
      EXPECT_GT(recorded.decay_asked, 0) << what.op;
      EXPECT_EQ(recorded.decay_applied == 0, stepwise) << what.op << ": " << recorded.decay_applied;
    }
  }
}

TEST(UpdateSums, ANaNMakesThemNaN) {
  const auto backend = make_cpu_backend({.threads = 1});
  for (const int64_t element : {0, 33, 36}) {
    Instance instance(case_of(rules()[3], 37, 0.01, false), DType::f32);
    instance.inputs()[0].set(element, std::nan(""));
    const UpdateCounts recorded = instance.run(*backend, StatisticsLevel::health).records[3].update;
    for (const double sum : {recorded.weight_squares, recorded.update_squares, recorded.gradient_dot_update, recorded.decay_asked,
                             recorded.decay_applied})
      EXPECT_TRUE(std::isnan(sum)) << element << ": " << sum;
  }
}

}  // namespace
}  // namespace ulpscope::testing_support
