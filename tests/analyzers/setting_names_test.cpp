// Advice names settings as their producer does, and none that the run does not have.
#include "ulpscope/analyzers/subject/setting_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "synthetic_trace.h"
#include "tests/support/said.h"
#include "tests/support/train_settings.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/snippets.h"
#include "ulpscope/analyzers/verbs/all_findings.h"
#include "ulpscope/analyzers/verbs/scale.h"

namespace ulpscope::analyzers_test {
namespace {

using Kind = SettingKind;

// Another producer's.
std::vector<SettingInfo> other_settings() {
  return {
      {"use_amp", "False", Kind::scale_enabled, false},      {"amp.init_scale", "65536.", Kind::scale_initial, true},
      {"amp.init_scale_2", "1.", Kind::scale_initial, true}, {"amp.growth_interval", "2000", Kind::scale_growth_interval, false},
      {"amp.dynamic", "0", Kind::scale_dynamic, true},       {"fp32_copies", "off", Kind::master_weights, false},
      {"update_in", "half", Kind::update_math, false}};
}

TEST(SettingNames, AreThoseOfTheProducer) {
  const SettingNames train(train_settings()), other(other_settings()), none({});
  EXPECT_EQ(train.name(Kind::scale_initial), "scaler.initial");
  EXPECT_EQ(other.name(Kind::scale_initial), "amp.init_scale");
  EXPECT_EQ(none.name(Kind::scale_initial), "");
  EXPECT_EQ(train.switched(Kind::scale_enabled, true), "scaler.enabled = \"on\"");
  EXPECT_EQ(train.switched(Kind::scale_enabled, false), "scaler.enabled");
  EXPECT_EQ(train.switched(Kind::scale_dynamic, false), "scaler.dynamic = false");
  EXPECT_EQ(train.switched(Kind::scale_dynamic, true), "scaler.dynamic = true");
  EXPECT_EQ(other.switched(Kind::scale_enabled, true), "use_amp = True");
  EXPECT_EQ(other.switched(Kind::scale_dynamic, true), "amp.dynamic = 1");
  EXPECT_EQ(other.switched(Kind::update_math, true), "update_in");
  EXPECT_EQ(none.switched(Kind::scale_dynamic, true), "");
  EXPECT_EQ(train.with_value(Kind::update_math), "optimizer.math = \"param\"");
  EXPECT_EQ(train.changed(Kind::update_math, "\"param\"", "\"fp32\""), "optimizer.math = \"fp32\"");
  EXPECT_EQ(other.with_value(Kind::update_math), "update_in = half");
  EXPECT_EQ(other.changed(Kind::update_math, "\"param\"", "\"fp32\""), "");
  EXPECT_EQ(train.proposed(Kind::update_math, "\"fp32\""), "optimizer.math = \"fp32\", now \"param\"");
  EXPECT_EQ(train.proposed(Kind::update_math, "\"fp32\"").value, "\"fp32\"");
  EXPECT_EQ(none.proposed(Kind::update_math, "\"fp32\""), "");
  EXPECT_TRUE(train.has("fp8.recipe"));
  EXPECT_FALSE(other.has("fp8.recipe"));
  const SettingNames hostile({{"a\n\x1b[2J", "true", Kind::scale_dynamic, true}});
  EXPECT_EQ((hostile.name(Kind::scale_dynamic).text() + hostile.switched(Kind::scale_dynamic, true).text()).find_first_of("\n\x1b"),
            std::string::npos);
}

TEST(SettingNames, WhereATraceHasNoneUsersOfTorchWritePython) {
  RunInfo run;
  run.producer = "torch";
  const SettingNames torch({}, words_of(run), "cpu"), listed(other_settings(), words_of(run), "cpu");
  EXPECT_EQ(torch.name(Kind::scale_initial), "torch.amp.GradScaler(\"cpu\", init_scale=...)");
  EXPECT_EQ(listed.name(Kind::scale_initial), "amp.init_scale");
  EXPECT_EQ(torch.now_or_name(Kind::scale_initial), "torch.amp.GradScaler(\"cpu\", init_scale=...)");
  EXPECT_EQ(listed.now_or_name(Kind::scale_initial), "amp.init_scale, now 65536.");
  EXPECT_EQ(torch.switched(Kind::scale_enabled, true), "torch.amp.GradScaler(\"cpu\")");
  EXPECT_EQ(SettingNames({}, words_of(run), "cuda").switched(Kind::scale_enabled, true), "torch.amp.GradScaler(\"cuda\")");
  EXPECT_EQ(torch.switched(Kind::scale_enabled, false), "");
  EXPECT_EQ(torch.switched(Kind::scale_dynamic, true).value, "True");
  EXPECT_EQ(torch.name(Kind::clip_norm), "torch.nn.utils.clip_grad_norm_");
  EXPECT_EQ(torch.name(Kind::clip_value), "");
  EXPECT_EQ(torch.name_for(Kind::precision_of_modules, "stack.2.block"),
            "torch.autocast(\"cpu\", enabled=False) around stack.2.block, and .float() on its inputs");
  PrecisionFacts narrow;
  narrow.updates_narrow_weights = true;
  EXPECT_EQ(scaling_advice(narrow, torch).text,
            "Use FP32 master weights and loss scaling (model.float(), torch.amp.GradScaler(\"cpu\"))");
  // A producer of which nothing is known has no words of TOML either.
  run.producer = "other";
  EXPECT_EQ(SettingNames({}, words_of(run)).name(Kind::scale_initial), "");
  EXPECT_EQ(words_of(run).fp32, "fp32");
  run.producer = "ulpscope train";
  EXPECT_EQ(words_of(run).fp32, "\"fp32\"");
}

std::vector<std::string> codes_of(const SettingChange& change, const std::vector<SettingInfo>& settings,
                                  const Sentences& advice = {}) {
  const Program program{.device = "cuda", .settings = settings, .casts_weights = true, .scales_loss = true};
  std::vector<std::string> codes;
  for (const Snippet& snippet : snippets_of(advice, std::span(&change, 1), torch_words, program)) codes.push_back(snippet.code);
  return codes;
}

TEST(Snippets, AScalerKeepsWhatTheRunHadAndTakesTheScaleThatFits) {
  using Way = SettingChange::Way;
  const std::vector<SettingInfo> settings{{"init_scale", "65536", Kind::scale_initial},
                                          {"growth_interval", "500", Kind::scale_growth_interval}};
  constexpr Template kFits{"advice.scale_at_most", "to {largest} or less"};
  const SettingChange lower{.kind = Kind::scale_initial, .way = Way::lower}, raise{.kind = Kind::scale_initial, .way = Way::raise};
  EXPECT_EQ(codes_of(lower, settings, kFits({{"largest", {256.0, Unit::scale}}})),
            std::vector<std::string>{"scaler = torch.amp.GradScaler(\"cuda\", init_scale=2.0**8, growth_interval=500)"});
  // A number that is no lower than the scale is not what it is to be lowered to.
  EXPECT_EQ(codes_of(lower, settings, kFits({{"largest", {1e6, Unit::scale}}})),
            std::vector<std::string>{"scaler = torch.amp.GradScaler(\"cuda\", init_scale=2.0**12, growth_interval=500)"});
  EXPECT_EQ(codes_of(raise, {}), std::vector<std::string>{"scaler = torch.amp.GradScaler(\"cuda\", init_scale=2.0**20)"});
}

TEST(Snippets, OptimizersAreChangedInTheGroupThatIsMeant) {
  // A scheduler takes the rates of groups when it is made, and sets them from then on.
  const std::string before_scheduler = "# before a scheduler is made, which goes by the rate that it finds:\n";
  using Way = SettingChange::Way;
  const SettingChange lower{.kind = Kind::learning_rate, .way = Way::lower};
  EXPECT_EQ(codes_of(lower, {{"lr", "0.5", Kind::learning_rate}}),
            std::vector<std::string>{before_scheduler + "for group in optimizer.param_groups:\n    group[\"lr\"] = 0.05"});
  const std::vector<SettingInfo> groups{{"param_groups[0][\"lr\"]", "0.5", Kind::learning_rate},
                                        {"param_groups[1][\"lr\"]", "0.02", Kind::learning_rate}};
  EXPECT_EQ(codes_of(lower, groups),
            std::vector<std::string>{before_scheduler + "for group in optimizer.param_groups:\n    group[\"lr\"] /= 10"});
  SettingChange one = lower;
  one.name = "param_groups[1][\"lr\"]";
  EXPECT_EQ(codes_of(one, groups), std::vector<std::string>{before_scheduler + "optimizer.param_groups[1][\"lr\"] = 0.002"});
  const SettingChange eps{.kind = Kind::epsilon, .way = Way::raise};
  EXPECT_EQ(codes_of(eps, {{"eps", "1e-08", Kind::epsilon}}),
            std::vector<std::string>{"for group in optimizer.param_groups:\n    group[\"eps\"] = 1e-06"});
  // A constant of a module is none of the optimizer.
  EXPECT_EQ(codes_of({.kind = Kind::epsilon, .way = Way::raise, .module = "norm"}, {}), std::vector<std::string>());
}

TEST(Snippets, NamesAreTextsOfPython) {
  const auto last_line = [](const std::string& code) { return code.substr(code.rfind('\n') + 1); };
  const SettingChange hostile{.kind = Kind::precision_of_modules, .value = "torch.float32", .module = "a\"\n\\b"};
  EXPECT_EQ(last_line(codes_of(hostile, {}).front()), R"(in_fp32(model.get_submodule("a\"\x0a\\b")))");
  const SettingChange critic{.kind = Kind::precision_of_modules, .value = "torch.float32", .module = "critic.head"};
  EXPECT_EQ(last_line(codes_of(critic, {{"models[\"critic\"]", "Critic", Kind::other}}).front()),
            R"(in_fp32(models["critic"].get_submodule("head")))");
  // Nothing is known to be pasted into programs of others.
  EXPECT_TRUE(snippets_of({}, std::span(&critic, 1), neutral_words, {}).empty());
  EXPECT_TRUE(snippets_of({}, std::span(&critic, 1), ulpscope_words, {}).empty());
}

TEST(SettingNames, AdviceOnTheScaleFollowsTheRun) {
  PrecisionFacts adapts, stays, masters, narrow;
  adapts.adapts_scale = adapts.scales_loss = stays.scales_loss = true;
  narrow.updates_narrow_weights = true;
  const SettingNames train(train_settings()), other(other_settings()), none({});
  // A scaler that is on and multiplies by 1; one that is off, whatever it would.
  for (const char* const enabled : {"\"auto\"", "\"off\""}) {
    const SettingNames by_one(
        {{"scaler.enabled", enabled, Kind::scale_enabled, false}, {"scaler.initial", "1", Kind::scale_initial, true}});
    EXPECT_EQ(scaling_advice({}, by_one).text.text().starts_with("Use a larger loss scale"), enabled[1] == 'a');
  }
  EXPECT_EQ(
      scaling_advice(adapts, train).text,
      "Start with a larger loss scale (scaler.initial, now 2^16), or shorten its growth interval (scaler.growth_interval, now "
      "2000)");
  EXPECT_EQ(scaling_advice(adapts, other).text,
            "Start with a larger loss scale (amp.init_scale, now 2^16), or shorten its growth interval (amp.growth_interval, now "
            "2000)");
  EXPECT_EQ(scaling_advice(adapts, none).text, "Start with a larger loss scale, or shorten its growth interval");
  EXPECT_EQ(scaling_advice(stays, train).text,
            "Use a larger loss scale (scaler.initial, now 2^16), or a dynamic one (scaler.dynamic = true)");
  EXPECT_EQ(scaling_advice(stays, other).text,
            "Use a larger loss scale (amp.init_scale, now 2^16), or a dynamic one (amp.dynamic = 1)");
  EXPECT_EQ(scaling_advice(stays, none).text, "Use a larger loss scale, or a dynamic one");
  EXPECT_EQ(scaling_advice(masters, train).text, "Enable loss scaling (scaler.enabled = \"on\")");
  EXPECT_EQ(scaling_advice(masters, none).text, "Enable loss scaling");
  EXPECT_EQ(scaling_advice(narrow, train).text,
            "Use FP32 master weights and loss scaling (optimizer.master_weights = true, scaler.enabled = \"on\")");
  EXPECT_EQ(scaling_advice(narrow, other).text, "Use FP32 master weights and loss scaling (fp32_copies = on, use_amp = True)");
  EXPECT_EQ(scaling_advice(narrow, none).text, "Use FP32 master weights and loss scaling");
}

// What is named is data, too, whatever the producer calls it.
TEST(SettingNames, AdviceHasTheChangesThatItNames) {
  PrecisionFacts stays, narrow;
  stays.scales_loss = narrow.updates_narrow_weights = true;
  const SettingNames train(train_settings()), other(other_settings()), none({});
  using Way = SettingChange::Way;
  EXPECT_THAT(scaling_advice(stays, train).changes,
              ::testing::UnorderedElementsAre(SettingChange{.kind = Kind::scale_initial, .way = Way::raise},
                                              SettingChange{.kind = Kind::scale_dynamic, .value = "true"}));
  EXPECT_THAT(scaling_advice(narrow, other).changes,
              ::testing::UnorderedElementsAre(SettingChange{.kind = Kind::master_weights, .value = "on"},
                                              SettingChange{.kind = Kind::scale_enabled, .value = "True"}));
  EXPECT_EQ(scaling_advice(stays, none).changes.size(), 2u);
}

// A run of many troubles. All that is said of it, one line each.
std::vector<std::string> advice_with(const std::vector<SettingInfo>& settings) {
  std::vector<std::string> advice;
  for (const bool loses_all : {false, true}) {
    RunInfo run;
    run.dynamic_loss_scale = false;
    SyntheticTrace trace(run, settings);
    const OpInfo cast{7, 0, "cast", "fc", Phase::forward, "", {}};
    TensorInfo weight_cast;
    weight_cast.role = Role::weight_cast;
    weight_cast.dtype = DType::f16;
    trace.add_output(cast, weight_cast);
    OpInfo product{8, 0, "matmul_backward", "fc", Phase::backward, "", {}};
    product.kind = OpKind::product;
    TensorInfo gradient;
    gradient.role = Role::activation_gradient;
    gradient.dtype = DType::f16;
    gradient.flushes_inputs = true;
    const uint32_t flushed = trace.add_output(product, gradient);
    TensorInfo weight;
    weight.role = Role::weight;
    weight.dtype = DType::f16;
    weight.parameter = "fc.weight";
    OpInfo update{9, 0, "adam_update", "fc", Phase::optimizer, "beta2=0.999 eps=1e-08 stepwise=1", {}};
    update.kind = OpKind::update;
    update.function = OpFunction::adam_update;
    const uint32_t updated = trace.add_output(update, weight);
    TensorInfo squares = weight;
    squares.role = Role::optimizer_state;
    squares.slot = 2;
    squares.name = "exp_avg_sq";
    const uint32_t zero = trace.add_output(update, squares);
    TensorInfo biased = weight;
    biased.parameter = "fc.bias";
    biased.rounding = RoundingMode::toward_zero;
    update.id = 10;
    const uint32_t other = trace.add_output(update, biased);
    for (int step = 0; step < 3; ++step) {
      TensorRow row = make_row({1e-9, 2e-9, 1e-3}, DType::f16);
      row.input = {100, 100};
      trace.add(flushed, row);
      trace.add(zero, make_row({0, 0}, DType::f16));
      trace.add(updated, make_row({1, NAN}, DType::f16));
      trace.add_update(updated, 100, loses_all ? 100 : 75, 0);
      if (!loses_all) trace.add_update(other, 100, 40, 0);
      trace.end_step();
    }
    for (const Finding& finding : analyze_all(trace.read()).findings)
      advice.push_back(finding.code + ": " + finding.suggestion.text());
  }
  return advice;
}

TEST(SettingNames, OneOfSeveralIsKnownByItsValue) {
  const SettingNames names({{"a.rate", "0.1", Kind::learning_rate, true},
                            {"b.rate", "0.3", Kind::learning_rate, true},
                            {"c.rate", "0.3", Kind::learning_rate, true},
                            {"course.rise", "80", Kind::warmup, true},
                            {"course.fall", "0.5", Kind::other, true},
                            {"course.end", "0", Kind::other, false},
                            {"other.fall", "1", Kind::other, true}});
  EXPECT_EQ(names.now_where(Kind::learning_rate, 0.1 + 1e-9), "a.rate, now 0.1");
  EXPECT_EQ(names.now_where(Kind::learning_rate, 0.3), "");
  EXPECT_EQ(names.now_where(Kind::learning_rate, 0.2), "");
  EXPECT_EQ(names.numbers(Kind::learning_rate), (std::vector<double>{0.1, 0.3, 0.3}));
  EXPECT_EQ(Value::list(names.given_beside(Kind::warmup)).text("brackets"), " (course.rise = 80, course.fall = 0.5)");
  EXPECT_TRUE(names.given_beside(Kind::epsilon).empty());
}

TEST(SettingNames, NoAdviceNamesWhatTheRunDoesNotHave) {
  const std::regex of_train(R"((scaler|optimizer|arithmetic|autocast|fp8|loss|precision)\.[a-z_]+|rounding = ")");
  const auto named = [&](const std::vector<SettingInfo>& settings) {
    size_t count = 0;
    for (const std::string& advice : advice_with(settings)) count += std::regex_search(advice, of_train);
    return count;
  };
  EXPECT_EQ(named({}), 0u) << testing::PrintToString(advice_with({}));
  EXPECT_EQ(named(other_settings()), 0u);
  // Those same findings name them where they are there.
  EXPECT_GE(named(train_settings()), 6u) << testing::PrintToString(advice_with(train_settings()));
  const std::vector<std::string> other = advice_with(other_settings());
  EXPECT_TRUE(std::any_of(other.begin(), other.end(), [](const std::string& advice) {
    return advice.find("fp32_copies = on") != std::string::npos;
  })) << testing::PrintToString(other);
}

}  // namespace
}  // namespace ulpscope::analyzers_test
