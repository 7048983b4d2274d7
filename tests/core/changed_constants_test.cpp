// Constants that a format changes: against integer arithmetic on significands, and against what updates by them really do.
#include "ulpscope/core/run/changed_constants.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/support/engine_fixture.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

struct Type {
  DType dtype;
  int bits;                  // of a significand, with its first one
  double smallest, largest;  // magnitudes
};
constexpr Type kFp16{DType::f16, 11, 0x1p-24, 65504}, kBf16{DType::bf16, 8, 0x1p-133, 0x1.FEp127};

class ChangedConstantsTest : public EngineTest {
 protected:
  using Make = std::function<std::unique_ptr<Optimizer>(std::vector<OptimizedParameter>)>;

  std::unique_ptr<Optimizer> optimizer(const Make& make, Tensor weight, UpdateMath math = UpdateMath::param) {
    weight.body()->parameter = intern("w");
    weight.set_requires_grad(true);
    auto made = make({{weight, intern("w"), intern("")}});
    made->math = math;
    return made;
  }
  std::vector<std::string> changed(std::unique_ptr<Optimizer> optimizer, ArithmeticRules* rules = nullptr, double clip = 0) {
    Experiment experiment;
    experiment.clipping.value = clip;
    std::vector<std::unique_ptr<Optimizer>> all;
    all.push_back(std::move(optimizer));
    return changed_constants(experiment, all, rules);
  }
  std::vector<std::string> changed(const Make& make, DType dtype, UpdateMath math = UpdateMath::param) {
    return changed(optimizer(make, tensor(dtype, {1}, {1.0}), math));
  }
  // Every significand of the type once, of both signs.
  static std::vector<double> significands(const Type& type) {
    std::vector<double> all;
    for (int i = 1 << (type.bits - 1); i < 1 << type.bits; ++i)
      for (const double sign : {1.0, -1.0}) all.push_back(sign * std::ldexp(i, 1 - type.bits));
    return all;
  }
  static Make sgd(double rate, SgdOptions options = {}) {
    return [=](auto parameters) { return make_sgd(std::move(parameters), rate, options); };
  }
  static Make adam(double rate, AdamOptions options = {}) {
    return [=](auto parameters) { return make_adam(std::move(parameters), rate, options); };
  }
  static Make lion(double rate, LionOptions options = {}) {
    return [=](auto parameters) { return make_lion(std::move(parameters), rate, options); };
  }
};

// Beta1 and beta2 that no format here changes, and the same of decay.
constexpr AdamOptions kPlain{.beta1 = 0.5, .beta2 = 0.5, .eps = 1e-3};

// How many significands k of a format keep their values when they are multiplied by the FP32 number `share` and rounded: where
// |k - k share| is at most half a step, of which k's own half below the power of two; to even in the tie.
int kept(int bits, double share) {
  int count = 0;
  const int first = 1 << (bits - 1);
  for (int k = first; k < 2 * first; ++k) {
    const double product = static_cast<float>(k) * static_cast<float>(share);
    const double step = product < first ? 0.5 : 1.0;
    count += step * std::nearbyint(product / step) == k;
  }
  return count;
}

TEST_F(ChangedConstantsTest, SharesOfAveragesActAsOneWhereNoSignificandFeelsThem) {
  for (const Type& type : {kFp16, kBf16}) {
    const int all = 1 << (type.bits - 1);
    for (const double share : {0.9, 0.99, 0.995, 0.996, 0.997, 0.998, 0.9985, 0.999, 0.9995, 0.9997, 0.9998, 0.9999, 0.999999}) {
      const int expected = kept(type.bits, share);
      const auto found = changed(adam(0.01, {.beta1 = 0.5, .beta2 = share, .eps = 1e-3}), type.dtype);
      if (2 * expected <= all) {
        EXPECT_THAT(found, IsEmpty()) << share;
        continue;
      }
      const std::string values = expected == all ? "every value" : fmt::format("{} of {} significands", expected, all);
      EXPECT_THAT(found, ElementsAre(fmt::format(
                             "optimizer.beta2 = {} acts as 1 in {}: the second moment times it rounds back to itself, for {}, and "
                             "never decays (optimizer.master_weights = true updates in FP32)",
                             share, type.bits == 8 ? "BF16" : "FP16", values)));
    }
  }
  // Of FP32 it takes more, and the others pass by PyTorch's default.
  EXPECT_THAT(changed(adam(0.01), DType::f32), IsEmpty());
  EXPECT_THAT(changed(adam(0.01, {.beta2 = 1 - 0x1p-24}), DType::f32), IsEmpty());
  EXPECT_THAT(changed(adam(0.01, {.beta2 = 1 - 0x1p-26}), DType::f32),
              ElementsAre(StartsWith("optimizer.beta2 = 0.9999999850988388 acts as 1 in FP32")));
}

// A state that was made by one update stays what it is in those by zeros exactly where that is said.
TEST_F(ChangedConstantsTest, WhatIsSaidOfAveragesIsWhatUpdatesDo) {
  int said = 0, silent = 0;
  const auto check = [&](const Make& make, const Type& type, UpdateMath math, size_t state, std::string_view name, double share,
                         const std::function<double(double)>& gradient) {
    std::vector<double> values = significands(type), gradients;
    if (state == 1) values.resize(1);  // a square reaches the significands that it can
    const auto size = static_cast<int64_t>(values.size());
    Tensor weight = tensor(type.dtype, {size}, std::vector<double>(values.size(), 1.0));
    auto made = optimizer(make, weight, math);
    for (const double value : values) gradients.push_back(gradient(value));
    weight.set_grad(tensor(type.dtype, {size}, gradients));
    made->step();
    const std::vector<double> before = to_host(made->states()[0].tensors[state]);
    weight.set_grad(tensor(type.dtype, {size}, std::vector<double>(values.size(), 0.0)));
    made->step();
    const std::vector<double> after = to_host(made->states()[0].tensors[state]);
    size_t same = 0;
    for (size_t i = 0; i < values.size(); ++i) same += before[i] == after[i];
    const auto found = changed(std::move(made));
    const bool told = std::any_of(found.begin(), found.end(), [&](const std::string& text) {
      return text.starts_with(fmt::format("optimizer.{} = {} acts as 1 in ", name, share));
    });
    (told ? said : silent) += 1;
    if (same == values.size() && values.size() > 1) {
      EXPECT_TRUE(told) << name << " " << share;
    }
    if (same == 0) {
      EXPECT_FALSE(told) << name << " " << share;
    }
    if (told &&
        std::any_of(found.begin(), found.end(), [](const std::string& text) { return text.find("every value") != text.npos; })) {
      EXPECT_EQ(same, values.size()) << name << " " << share;
    }
  };
  for (const Type& type : {kFp16, kBf16}) {
    for (const UpdateMath math : {UpdateMath::param, UpdateMath::fp32}) {
      for (const double share : {0.9, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999}) {
        const auto as_it_is = [](double value) { return value; };
        check(sgd(0.01, {.momentum = share}), type, math, 0, "momentum", share, as_it_is);
        check(adam(0.01, {.beta1 = share, .beta2 = 0.5, .eps = 1e-3}), type, math, 0, "beta1", share,
              [](double value) { return 8 * value; });
        check(adam(0.01, {.beta1 = 0.5, .beta2 = share, .eps = 1e-3}), type, math, 1, "beta2", share, [](double) { return 8.0; });
        check(lion(0.01, {.beta1 = 0.5, .beta2 = share}), type, math, 0, "beta2", share, [](double value) { return 8 * value; });
      }
    }
  }
  EXPECT_GE(said, 20);
  EXPECT_GE(silent, 20);
}

// Decay alone moves weights whose gradients are zero: those of them, of every significand, that the sentence counts.
TEST_F(ChangedConstantsTest, WhatIsSaidOfDecayIsWhatUpdatesDo) {
  for (const Type& type : {kFp16, kBf16}) {
    for (const double decay : {0.4, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 0.001}) {
      for (const bool is_lion : {false, true}) {
        AdamOptions options = kPlain;
        options.weight_decay = decay;
        options.decoupled = true;
        const Make make = is_lion ? lion(0.01, {.beta1 = 0.5, .beta2 = 0.5, .weight_decay = decay}) : adam(0.01, options);
        const std::vector<double> values = significands(type);
        Tensor weight = tensor(type.dtype, {static_cast<int64_t>(values.size())}, values);
        auto made = optimizer(make, weight);
        weight.set_grad(tensor(type.dtype, {static_cast<int64_t>(values.size())}, std::vector<double>(values.size(), 0.0)));
        made->step();
        const std::vector<double> after = to_host(weight);
        size_t same = 0;
        for (size_t i = 0; i < values.size(); ++i) same += values[i] == after[i];
        const auto found = changed(std::move(made));
        if (2 * same <= values.size()) {
          EXPECT_THAT(found, IsEmpty()) << decay;
        } else {
          ASSERT_EQ(found.size(), 1u) << decay;
          EXPECT_THAT(found[0], HasSubstr(fmt::format("= 1 - {:g} acts as 1", 0.01 * decay)));
          EXPECT_THAT(
              found[0],
              HasSubstr(same == values.size() ? "every value" : fmt::format("{} of {} significands", same / 2, values.size() / 2)));
        }
        // Once in FP32, decay is a part of the update and has no rounding of its own.
        EXPECT_THAT(changed(make, type.dtype, UpdateMath::fp32), IsEmpty());
      }
    }
  }
}

// What is at most half of the least number is 0, the tie too.
TEST_F(ChangedConstantsTest, ScalarsThatAreZeroOrInfiniteInTheFormat) {
  for (const Type& type : {kFp16, kBf16}) {
    const char* const name = type.bits == 8 ? "BF16" : "FP16";
    for (const double factor : {0.4, 0.5, 0.51, 1.0, 4.0}) {
      const double value = factor * type.smallest;
      AdamOptions eps = kPlain, decay = kPlain;
      eps.eps = decay.weight_decay = value;
      const std::vector<std::pair<Make, const char*>> makes{{adam(0.01, eps), "eps"},
                                                            {adam(0.01, decay), "weight_decay"},
                                                            {sgd(value), "learning_rate"},
                                                            {sgd(0.01, {.weight_decay = value}), "weight_decay"},
                                                            {lion(value, {.beta1 = 0.5, .beta2 = 0.5}), "learning_rate"}};
      for (const auto& [make, key] : makes) {
        const auto found = changed(make, type.dtype);
        if (factor > 0.5) {
          EXPECT_THAT(found, IsEmpty()) << key << " " << value;
        } else {
          EXPECT_THAT(found, ElementsAre(StartsWith(fmt::format("optimizer.{} = {} is 0 in {} (smallest number {:.3g}): ", key,
                                                                value, name, type.smallest))));
        }
        if (type.bits == 11) {
          EXPECT_THAT(changed(make, type.dtype, UpdateMath::fp32), IsEmpty());  // FP32 holds them
        }
      }
    }
  }
  AdamOptions options = kPlain;
  options.eps = 65519;
  EXPECT_THAT(changed(adam(0.01, options), DType::f16), IsEmpty());  // 65504
  options.eps = 65520;
  EXPECT_THAT(changed(adam(0.01, options), DType::f16),
              ElementsAre("optimizer.eps = 65520 is Inf in FP16 (largest number 65504): every update is 0 "
                          "(optimizer.master_weights = true updates in FP32)"));
  EXPECT_THAT(changed(adam(0.01, options), DType::bf16), IsEmpty());
}

// What the sentences say of an eps of 0 and of an infinite one, and of a learning rate of 0.
TEST_F(ChangedConstantsTest, WhatIsSaidOfScalarsIsWhatUpdatesDo) {
  const auto stepped = [&](const Make& make, double gradient) {
    Tensor weight = tensor(DType::f16, {1}, {1.0});
    auto made = optimizer(make, weight);
    weight.set_grad(tensor(DType::f16, {1}, {gradient}));
    made->step();
    return to_host(weight)[0];
  };
  // The square of 2^-14 is 0 in FP16.
  EXPECT_FALSE(std::isfinite(stepped(adam(0.01, {.eps = 1e-8}), 0x1p-14)));
  EXPECT_THAT(changed(adam(0.01, {.eps = 1e-8}), DType::f16), ElementsAre(HasSubstr("eps = 1e-08 is 0 in FP16")));
  EXPECT_TRUE(std::isfinite(stepped(adam(0.01, {.eps = 1e-4}), 0x1p-14)));
  EXPECT_EQ(stepped(adam(0.01, {.eps = 1e5}), 1.0), 1.0);
  EXPECT_EQ(stepped(sgd(2e-8), 60000.0), 1.0);
  EXPECT_EQ(stepped(lion(2e-8), 60000.0), 1.0);
  EXPECT_NE(stepped(sgd(4e-8), 60000.0), 1.0);
}

TEST_F(ChangedConstantsTest, ModesOfRoundingAreThoseOfTheRun) {
  const auto of_second_moment = [&](RoundingMode mode) {
    ArithmeticPolicy policy;
    policy.run.rounding = mode;
    ArithmeticRules rules(policy);
    return changed(optimizer(adam(0.01, {.beta1 = 0.5, .beta2 = 0.999}), tensor(DType::bf16, {1}, {1.0}), UpdateMath::fp32), &rules)
        .size();
  };
  EXPECT_EQ(of_second_moment(RoundingMode::nearest_even), 1u);
  EXPECT_EQ(of_second_moment(RoundingMode::up), 1u);
  EXPECT_EQ(of_second_moment(RoundingMode::toward_zero), 0u);
  EXPECT_EQ(of_second_moment(RoundingMode::stochastic), 0u);  // decays on average
}

TEST_F(ChangedConstantsTest, LimitsOfGradientsAreThoseOfTheirType) {
  const auto clipped = [&](DType dtype, double value) {
    return changed(optimizer(adam(0.01, kPlain), tensor(dtype, {1}, {1.0})), nullptr, value);
  };
  EXPECT_THAT(clipped(DType::f16, 0x1p-25),
              ElementsAre("clipping.value = 2.9802322387695312e-08 is 0 in FP16: every gradient becomes 0"));
  EXPECT_THAT(clipped(DType::f16, 65520), ElementsAre("clipping.value = 65520 is Inf in FP16: gradients of Inf stay Inf"));
  for (const double value : {0x1p-24, 1.0, 65504.0, 0.0}) EXPECT_THAT(clipped(DType::f16, value), IsEmpty()) << value;
  EXPECT_THAT(clipped(DType::f32, 65520), IsEmpty());
  // Now and then stochastic rounding makes the least number of it.
  ArithmeticPolicy policy;
  policy.run.rounding = RoundingMode::stochastic;
  ArithmeticRules rules(policy);
  EXPECT_THAT(changed(optimizer(adam(0.01, kPlain), tensor(DType::f16, {1}, {1.0}), UpdateMath::fp32), &rules, 0x1p-25), IsEmpty());
}

// The first step tells.
TEST_F(ChangedConstantsTest, AScaleThatIsInfiniteInTheTypeOfTheLossIsSaid) {
  for (const double scale : {32768.0, 65519.0, 65520.0, 65536.0}) {
    for (const char* rounding : {"rne", "rz"}) {
      Trainer trainer(parse_experiment("model.preset = \"mlp\"\ntraining.steps = 1\nprecision = \"pure_fp16\"\n"
                                       "optimizer.master_weights = true\nscaler.enabled = \"on\"\nloss.factor = 0.01",
                                       "run.toml",
                                       std::vector<Override>{fmt::format("scaler.initial={}", scale),
                                                             fmt::format("arithmetic.rounding={}", rounding)}),
                      {});
      const std::vector<std::string> found = trainer.changed_constants();
      const bool skipped = trainer.step().skipped;
      EXPECT_EQ(skipped, scale >= 65520 && rounding == std::string("rne")) << scale << " " << rounding;
      if (skipped) {
        EXPECT_THAT(found,
                    ElementsAre(fmt::format("scaler.initial = {} is Inf in FP16, the type of the loss, whose gradient it is: "
                                            "steps are skipped until the scale has come down",
                                            scale)));
      } else {
        EXPECT_THAT(found, IsEmpty());
      }
    }
  }
}

// Each optimizer is called as its table in the experiment.
TEST_F(ChangedConstantsTest, AMaskThatIsInfiniteInTheTypeOfTheScoresIsSaid) {
  const auto said = [&](const char* precision, const char* mask, const char* keys = "", const char* kind = "explicit") {
    const Experiment experiment = parse_experiment(fmt::format(R"(precision = "{}"
model.layers = [{{ type = "residual", name = "block", layers = [
  {{ type = "attention", name = "heads", heads = 1, causal = true, mask_value = {}{}, kind = "{}" }} ] }}])",
                                                               precision, mask, keys, kind),
                                                   "test");
    return changed_constants(experiment, {}, nullptr);
  };
  EXPECT_THAT(said("fp16", "-1e9"),
              ElementsAre(StartsWith("mask_value = -1e+09 of block.heads is Inf in FP16 (largest number 65504): ")));
  EXPECT_THAT(said("fp16", "-65519"), IsEmpty());  // rounds to -65504
  EXPECT_EQ(said("fp16", "-65520").size(), 1u);
  EXPECT_THAT(said("bf16", "-1e9"), IsEmpty());
  EXPECT_THAT(said("fp16", "-1e9", "", "auto"), IsEmpty()) << "a query without keys gets zeros";
  EXPECT_EQ(said("fp16", "1e9", "", "auto").size(), 1u) << "Inf - Inf";
  EXPECT_EQ(said("mixed_float16", "-1e9", "", "auto").size(), 1u) << "as Keras, whose softmax gives NaN";
  EXPECT_THAT(said("fp32", "-1e9"), IsEmpty());
  EXPECT_THAT(said("fp16", "-1e9", ", dtype = \"fp32\""), IsEmpty());
}

// As many ones as the format's significand has values arrive, and no more: added one after another.
TEST_F(ChangedConstantsTest, SumsOfMoreTermsThanTheirTypeTakesAreSaid) {
  const auto sum_of_ones = [](const FloatFormat& format, int terms) {
    float sum = 0;
    for (int i = 0; i < terms; ++i) sum = round_to_format(format, sum + 1);
    return sum;
  };
  EXPECT_EQ(sum_of_ones(bfloat16, 1024), 256);
  EXPECT_EQ(sum_of_ones(binary16, 5000), 2048);
  const auto of_run = [](const std::string& text, std::vector<Override> overrides = {}) {
    const Trainer trainer(parse_experiment("model.layers = [{ type = \"linear\", name = \"head\", out_features = 10 "
                                           "}]\ntraining.steps = 1\noptimizer.type = \"sgd\"\n" +
                                               text,
                                           "run.toml", overrides),
                          {});
    std::vector<std::string> found;
    for (const std::string& each : trainer.changed_constants())
      if (each.find("arrive") != std::string::npos) found.push_back(each);
    return found;
  };
  const auto sums = [](const std::string& begin, const std::string& lost) {
    return ElementsAre(AllOf(StartsWith(begin), HasSubstr(": of equal ones " + lost + " is lost; of random ones likely ")));
  };
  const auto bf16 = sums("training.accumulation = 1024 adds up gradients in BF16", "256 arrive, and 75%");
  EXPECT_THAT(of_run("precision = \"pure_bf16\"", {"training.accumulation=1024"}), bf16);
  EXPECT_THAT(of_run("precision = \"pure_bf16\"", {"training.accumulation=1024", "optimizer.master_weights=true"}), bf16);
  EXPECT_THAT(of_run("precision = \"pure_bf16\"", {"training.accumulation=256"}), IsEmpty());
  EXPECT_THAT(of_run("precision = \"bf16\"", {"training.accumulation=1024"}), IsEmpty());
  EXPECT_THAT(of_run("precision = \"pure_bf16\"", {"training.accumulation=1024", "arithmetic.rounding=sr", "optimizer.math=fp32"}),
              IsEmpty());
  EXPECT_THAT(of_run("precision = \"pure_fp16\"", {"training.accumulation=1024"}), IsEmpty());
  const std::string gradients = "sums of at least 4096 terms (gradient of head.weight)";
  const std::vector<std::string> in_fp16 =
      of_run("precision = \"fp16\"", {"arithmetic.accumulate=fp16", "training.batch_size=4096"});
  EXPECT_THAT(in_fp16, sums("accumulate = fp16: " + gradients, "2048 arrive, and 50%"));
  EXPECT_THAT(of_run("precision = \"fp16\"", {"arithmetic.accumulate=bf16", "training.batch_size=4096"}),
              sums("accumulate = bf16: " + gradients, "256 arrive, and 94%"));
  EXPECT_THAT(of_run("precision = \"fp16\"", {"arithmetic.accumulate=fp16", "data.shape=[3000]"}),
              sums("accumulate = fp16: sums of at least 3000 terms (results of head.weight)", "2048 arrive, and 32%"));
  EXPECT_THAT(of_run("precision = \"fp16\"", {"arithmetic.modules.head.accumulate=fp16", "data.shape=[3000]"}),
              sums("accumulate = fp16: sums of at least 3000 terms (results of head.weight)", "2048 arrive, and 32%"));
  EXPECT_THAT(of_run("precision = \"fp16\"", {"arithmetic.ops.conv2d.accumulate=fp16", "data.shape=[3000]"}), IsEmpty());
  // A random walk's square grows by 1 a term, and the square of its k-th rounding is u^2 k / 12 to u^2 k / 3 on average.
  const double likely = std::stod(in_fp16.at(0).substr(in_fp16[0].find("likely ") + 7)) / 100, unit = 0x1p-11 * std::sqrt(4096.0);
  EXPECT_GT(likely, unit * std::sqrt(1.0 / 24) / 1.5);
  EXPECT_LT(likely, unit * std::sqrt(1.0 / 6) * 1.5);
  EXPECT_THAT(of_run("precision = \"fp16\"", {"training.batch_size=4096"}), IsEmpty());
}

TEST_F(ChangedConstantsTest, RunsSayWhichOptimizerItIs) {
  const auto of_run = [](const std::string& text, std::vector<Override> overrides = {}) {
    return Trainer(parse_experiment("model.preset = \"mlp\"\ntraining.steps = 1\n" + text, "run.toml", overrides), {})
        .changed_constants();
  };
  EXPECT_THAT(of_run("precision = \"pure_fp16\""), ElementsAre(StartsWith("optimizer.eps = 1e-08 is 0 in FP16")));
  EXPECT_THAT(of_run("precision = \"pure_fp16\"", {"optimizer.math=fp32"}), IsEmpty());
  EXPECT_THAT(of_run("precision = \"pure_fp16\"", {"optimizer.master_weights=true"}), IsEmpty());
  EXPECT_THAT(of_run("precision = \"pure_bf16\""), ElementsAre(StartsWith("optimizer.beta2 = 0.999 acts as 1 in BF16")));
  EXPECT_THAT(of_run("precision = \"pure_bf16\"", {"optimizer.math=fp32"}),
              ElementsAre(StartsWith("optimizer.beta2 = 0.999 acts as 1 in BF16")));
  EXPECT_THAT(
      of_run("precision = \"pure_fp16\"\n[[optimizers]]\nmodules = [\"0\"]\ntype = \"sgd\"\nlearning_rate = 1e-8\n[[optimizers]]\n"
             "modules = [\"*\"]\neps = 1e-9"),
      ElementsAre(StartsWith("optimizers[0].learning_rate = 1e-08 is 0"), StartsWith("optimizers[1].eps = 1e-09 is 0")));
}

// Traces warn of them in their first step, and of targets that a loss function is not of once, in the step that has the first.
TEST_F(ChangedConstantsTest, TracesWarnOfThem) {
  const std::string path = fmt::format("{}ulpscope_warnings_{}.h5", ::testing::TempDir(), getpid());
  const std::string csv = path + ".csv";
  std::ofstream(csv) << "0.5,1,0\n1,0.25,1\n2,0,1.5\n-1,-0.5,1\n";  // the third sample's target is too large, the fourth's below 0
  TrainerOptions options;
  options.trace_path = path;
  train(parse_experiment(fmt::format("precision = \"pure_bf16\"\n[model]\nlayers = [{{ type = \"linear\", out_features = 2 }}]\n"
                                     "[loss]\nfunction = \"bce_with_logits\"\n[data]\nkind = \"csv\"\npath = \"{}\"\n"
                                     "header = false\ntarget_kind = \"values\"\ntarget_columns = [\"1\", \"2\"]\n"
                                     "shuffle = false\n[training]\nbatch_size = 2\nsteps = 4\n[optimizer]\ntype = \"adam\"\n",
                                     csv),
                         "run.toml"),
        options);
  std::vector<std::string> warnings;
  const Snapshot trace(path);
  for (const EventRow& event : trace.events())
    if (event.kind == EventKind::warning) warnings.push_back(fmt::format("{}: {}", event.step, event.text));
  EXPECT_THAT(warnings, ElementsAre(StartsWith("0: optimizer.beta2 = 0.999 acts as 1 in BF16"),
                                    StartsWith("1: element 1 of the target of sample 2 of train is 1.5: bce_with_logits")));
  std::filesystem::remove(path);
  std::filesystem::remove(csv);
}

// Autocast keeps FP32 weights, so that nothing is changed in any preset that has no 16-bit parameters of its own.
TEST_F(ChangedConstantsTest, NoPresetIsWarnedOfInMixedPrecision) {
  for (const std::string& name : preset_names()) {
    for (const char* precision : {"fp32", "fp16", "bf16", "mixed_float16", "apex_o2", "fp8"}) {
      Experiment experiment = *find_preset(name);
      apply_override(experiment, fmt::format("precision={}", precision));
      Tensor weight = tensor(row_of(experiment.precision).casts_model ? dtype_of(experiment.precision) : DType::f32, {1}, {1.0});
      if (row_of(experiment.precision).master_weights) weight = tensor(DType::f32, {1}, {1.0});
      for (const OptimizerSettings& settings : [&] {
             std::vector<OptimizerSettings> all{experiment.optimizer};
             for (const OptimizerGroup& group : experiment.optimizers) all.push_back(experiment.settings_of(group));
             return all;
           }()) {
        const auto make = [&](auto parameters) { return row_of(settings.type).make(std::move(parameters), settings); };
        EXPECT_THAT(changed(optimizer(make, weight, settings.math), nullptr, experiment.clipping.value), IsEmpty())
            << name << " " << precision;
      }
    }
  }
}

}  // namespace
}  // namespace ulpscope
