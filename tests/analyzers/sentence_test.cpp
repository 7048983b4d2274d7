// Sentences as data: what comes out of a template and its values, and what a program that is wrong about them is told.
#include "ulpscope/analyzers/report/sentence.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/support/said.h"
#include "ulpscope/analyzers/report/json.h"
#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/base/error.h"

namespace ulpscope {
namespace {

using ::testing::HasSubstr;

constexpr Template kSkipped{"test.skipped", "{skipped} of {steps:count step} {skipped:either was|were} skipped."};
constexpr Template kNumbers{"test.numbers", "{ratio:.3g} {limit:%} {share} {scale} {bounds} {number:special}"};
constexpr Template kChange{"test.change", "{to:.4g}, {change:+.1f%}"};
constexpr Template kNames{"test.names", "{module} in {phase}: {settings:or}{more:brackets}{none:brackets}{left_out}."};
constexpr Template kPhrase{"test.phrase", " and {parameter}"};
constexpr Template kHolder{"test.holder", "It is {value}{phrase}."};
constexpr Template kOpening{"test.opening", "Of it: {said}"};

TEST(Sentence, CountsHaveTheirNouns) {
  EXPECT_EQ(kSkipped({{"skipped", 1}, {"steps", 1}}).text(), "1 of 1 step was skipped.");
  EXPECT_EQ(kSkipped({{"skipped", uint64_t{3}}, {"steps", size_t{40}}}).text(), "3 of 40 steps were skipped.");
}

TEST(Sentence, NumbersAreAsTheirFormOrUnitHasThem) {
  const auto text = [](double number) {
    return kNumbers({{"ratio", 1.23456},
                     {"limit", {0.0123456, Unit::share}},
                     {"share", {0.0123456, Unit::share}},
                     {"scale", {65536.0, Unit::scale}},
                     {"bounds", {Interval{4.0, INFINITY}, Unit::scale}},
                     {"number", number}})
        .text();
  };
  EXPECT_EQ(text(NAN), "1.23 1.23456% 1.23% 2^16 at least 2^2 NaN");
  EXPECT_THAT(text(INFINITY), HasSubstr(" Inf"));
  EXPECT_THAT(text(-INFINITY), HasSubstr(" -Inf"));
}

TEST(Sentence, WhatIsNoNumberIsCalledSoInAnyForm) {
  const auto text = [](double number) { return kChange({{"to", number}, {"change", {number, Unit::share}}}).text(); };
  EXPECT_EQ(text(0.125), "0.125, +12.5%");
  EXPECT_EQ(text(-0.125), "-0.125, -12.5%");
  EXPECT_EQ(text(INFINITY), "Inf, Inf");
  EXPECT_EQ(text(-INFINITY), "-Inf, -Inf");
  EXPECT_EQ(text(NAN), "NaN, NaN");
}

TEST(Sentence, WhatIsNothingLeavesNothing) {
  const Setting now{.name = "a.b", .now = "1"}, to{.name = "c", .to = "true"};
  const Sentence all = kNames({{"module", Name{NameKind::module, "fc"}},
                               {"phase", Name{NameKind::phase, "forward"}},
                               {"settings", Value::list({now, Setting{}, to})},
                               {"more", now},
                               {"none", Value::list({Setting{}})},
                               {"left_out", Value()}});
  EXPECT_EQ(all.text(), "fc in forward: a.b, now 1 or c = true (a.b, now 1).");
  EXPECT_EQ((Setting{.name = "c", .now = "false", .to = "true"}).text(), "c = true, now false");
  EXPECT_TRUE(Value(Setting{}).empty());
  EXPECT_TRUE(Value(Sentence()).empty());
  EXPECT_TRUE(Sentences(Sentence()).empty());
}

TEST(Sentence, EveryPlaceHasAValueAndEveryValueAPlace) {
  EXPECT_THROW(kSkipped({{"skipped", 1}}), Error);
  EXPECT_THROW(kSkipped({{"skipped", 1}, {"steps", 1}, {"modules", 1}}), Error);
}

TEST(Sentence, PhrasesCanBeTakenOut) {
  const auto holder = [] { return kHolder({{"value", 2}, {"phrase", kPhrase({{"parameter", Name{NameKind::parameter, "w"}}})}}); };
  Sentences all{holder(), kSkipped({{"skipped", 2}, {"steps", 3}}), kHolder({{"value", holder()}, {"phrase", Value()}})};
  EXPECT_EQ(all, "It is 2 and w. 2 of 3 steps were skipped. It is It is 2 and w..");
  all.drop(kPhrase);
  all.drop(kSkipped);
  EXPECT_EQ(all, "It is 2. It is It is 2..");
  all.begin_with(kOpening);
  EXPECT_EQ(all, "Of it: It is 2. It is It is 2..");
  EXPECT_EQ(all.front().id(), "test.opening");
}

// Names may hold any bytes, and words are ours.
TEST(Sentence, NamesAreMadePrintable) {
  Sentences text = kNames({{"module", Name{NameKind::module, "a\nb"}},
                           {"phase", Name{NameKind::phase, "forward"}},
                           {"settings", Value::list({Setting{.name = "c\x1b", .now = "\x07"}})},
                           {"more", kPhrase({{"parameter", Name{NameKind::parameter, "w\r"}}})},
                           {"none", Value()},
                           {"left_out", Value()}});
  text.make_printable();
  EXPECT_EQ(text.text().find_first_of("\n\r\x1b\x07"), std::string::npos);
  EXPECT_THAT(text.text(), HasSubstr("a\\u000Ab in forward"));
}

TEST(Sentence, JsonHasTheValues) {
  Report report;
  report.verdict = Verdict::broken;
  report.verdict_text = kSkipped({{"skipped", 3}, {"steps", 40}});
  Finding finding;
  finding.code = "test.code";
  finding.title = kHolder({{"value", 0.5}, {"phrase", kPhrase({{"parameter", Name{NameKind::parameter, "w"}}})}});
  finding.suggestion = kNames({{"module", Name{NameKind::module, "fc"}},
                               {"phase", Name{NameKind::phase, "forward"}},
                               {"settings", Value::list({Setting{.name = "a", .to = "1"}})},
                               {"more", Value()},
                               {"none", Value()},
                               {"left_out", Value()}});
  report.findings.push_back(finding);
  using Json = nlohmann::json;
  const Json json = Json::parse(render_json(report));
  EXPECT_EQ(json["verdict_sentences"], Json::parse(R"([{"id": "test.skipped", "text": "3 of 40 steps were skipped.",
                             "values": {"skipped": {"value": 3, "unit": "count"}, "steps": {"value": 40, "unit": "count"}}}])"));
  const Json found = json["findings"][0];
  EXPECT_EQ(found["title"], "It is 0.5 and w.");
  EXPECT_EQ(found["title_sentences"], Json::parse(R"([{"id": "test.holder", "text": "It is 0.5 and w.",
                             "values": {"value": {"value": 0.5, "unit": "none"},
                                        "phrase": {"id": "test.phrase", "text": " and w", "values": {"parameter": {"parameter": "w"}}}}}])"));
  EXPECT_EQ(found["suggestion_sentences"][0]["values"]["settings"], Json::parse(R"([{"setting": "a", "to": "1"}])"));
  EXPECT_EQ(found["suggestion_sentences"][0]["values"]["left_out"], Json());
}

}  // namespace
}  // namespace ulpscope
