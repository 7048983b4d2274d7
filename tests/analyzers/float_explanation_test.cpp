// What is said of numbers in formats, against facts of the formats' standards.
#include "ulpscope/analyzers/float_explanation.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <string>

#include "tests/support/usage_error.h"

namespace ulpscope {
namespace {

using testing::HasSubstr;

std::map<std::string, Cell> facts_of(const std::string& value, const FloatFormat& format, const Rounding& rounding = {}) {
  const Report report = explain_floats({&value, 1}, {{&format}, rounding, 0});
  std::map<std::string, Cell> facts;
  for (const Quantity& fact : report.facts) facts[fact.name] = fact.value;
  EXPECT_TRUE(report.tables.empty());
  return facts;
}

std::string text(const std::map<std::string, Cell>& facts, const std::string& name) {
  const auto found = facts.find(name);
  return found == facts.end() ? "missing" : std::get<std::string>(found->second);
}

TEST(FloatExplanation, TellsFieldsValueNeighboursAndError) {
  const auto facts = facts_of("0.1", binary16);
  EXPECT_EQ(text(facts, "value"), "0.0999755859375");  // 1638 / 16384
  EXPECT_EQ(text(facts, "encoding"), "0x2E66");
  EXPECT_EQ(text(facts, "sign"), "0");
  EXPECT_EQ(text(facts, "exponent_field"), "01011");
  EXPECT_EQ(text(facts, "fraction"), "1001100110");
  EXPECT_EQ(text(facts, "next_below"), "0.09991455078125");
  EXPECT_EQ(text(facts, "next_above"), "0.10003662109375");
  EXPECT_EQ(std::get<double>(facts.at("ulp")), 0x1p-14);
  EXPECT_NEAR(std::get<double>(facts.at("error_ulp")), (1638 - 1638.4), 1e-10);  // FP64's 0.1 is off by 2^-57
  EXPECT_NEAR(std::get<double>(facts.at("error_relative")), -0.4 / 1638.4, 1e-14);
}

// Without subnormals the step between normal numbers is as fine as with them: 2^-6 has 2 fraction bits.
TEST(FloatExplanation, TellsTheUlpOfFormatsWithoutSubnormals) {
  EXPECT_EQ(std::get<double>(facts_of("0.015625", parse_format("e4m2:subnormals=no")).at("ulp")), 0x1p-8);
}

TEST(FloatExplanation, SaysWhatBecameOfANumber) {
  const auto note = [](const std::string& value, const FloatFormat& format, const Rounding& rounding = {}) {
    return text(facts_of(value, format, rounding), "note");
  };
  EXPECT_EQ(note("65520", binary16), "overflow");
  EXPECT_EQ(note("65520", binary16, {.mode = RoundingMode::toward_zero}), "the largest number; saturated");
  EXPECT_EQ(note("65504", binary16), "the largest number");
  EXPECT_EQ(note("65510", binary16), "the largest number");
  EXPECT_EQ(note("500", e4m3), "NaN; overflow: the format has no Inf");
  EXPECT_EQ(note("500", e4m3, {.overflow = Overflow::saturate}), "the largest number; saturated");
  EXPECT_EQ(note("inf", e4m3), "NaN; the format has no Inf");
  EXPECT_EQ(note("100", e2m1), "the largest number; saturated");
  EXPECT_EQ(note("6.5", e2m1), "the largest number");
  EXPECT_EQ(note("nan", e2m1), "the largest number; the format has no NaN");
  EXPECT_EQ(note("-1e-9", binary16), "flushed to zero; negative zero");
  EXPECT_EQ(note("1e-5", binary16), "subnormal");
  EXPECT_EQ(note("1e-5", binary16, {.subnormals = SubnormalResults::flush}), "flushed to zero");
  EXPECT_EQ(note("6e-8", binary16), "subnormal; the smallest number above zero");
  EXPECT_EQ(note("0x7C01", binary16), "signalling NaN; payload 0x1");
  EXPECT_EQ(note("0x7E00", binary16), "quiet NaN");
  EXPECT_EQ(note("0xFC00", binary16), "Inf");
  EXPECT_EQ(note("1.5", binary16), "missing");
}

TEST(FloatExplanation, NeighboursCrossZeroAndEndAtTheLargestNumber) {
  EXPECT_EQ(text(facts_of("0", e4m3), "next_below"), "-0.001953125");
  EXPECT_EQ(text(facts_of("0", e4m3), "next_above"), "0.001953125");
  EXPECT_EQ(text(facts_of("0x01", e4m3), "next_below"), "0");
  EXPECT_EQ(text(facts_of("0x81", e4m3_fnuz), "next_above"), "0");
  EXPECT_EQ(text(facts_of("448", e4m3), "next_above"), "missing");
  EXPECT_EQ(text(facts_of("-448", e4m3), "next_below"), "missing");
  EXPECT_EQ(text(facts_of("-448", e4m3), "next_above"), "-416");
  EXPECT_EQ(text(facts_of("0x00", e8m0), "next_below"), "missing");
}

TEST(FloatExplanation, EncodingsByThemselvesMeanFormatsOfTheirLength) {
  const std::string value = "0x7E01";
  const Report report = explain_floats({&value, 1}, {});
  ASSERT_EQ(report.tables.size(), 1u);
  std::vector<std::string> names;
  for (const TableRow& row : report.tables[0].rows) names.push_back(std::get<std::string>(row.cells[0]));
  EXPECT_THAT(names, testing::ElementsAre("fp16", "bf16"));
}

TEST(FloatExplanation, SeveralValuesAreATableEach) {
  const std::vector<std::string> values{"1", "2"};
  const Report report = explain_floats(values, {{&binary16, &e4m3}, {}, 0});
  ASSERT_EQ(report.tables.size(), 2u);
  EXPECT_EQ(report.tables[1].title, "2");
  EXPECT_EQ(std::get<std::string>(report.tables[1].rows[1].cells[2]), "0x40");
}

TEST(FloatExplanation, RefusesWhatIsNoNumber) {
  const auto message = [](const std::string& value, const FloatQuestion& question = {}) {
    return usage_error_of([&] { explain_floats({&value, 1}, question); });
  };
  EXPECT_THAT(message("0x12345"), HasSubstr("no error"));  // tf32
  EXPECT_THAT(message("0x123456"), HasSubstr("no format has encodings of 6 hexadecimal digits"));
  EXPECT_THAT(message("0x7E01", {{&e4m3}, {}, 0}), HasSubstr("encoding '0x7E01': e4m3 has 8 bits"));
  EXPECT_THAT(message("0x12345678901234567"), HasSubstr("at most 16 hexadecimal digits"));
  EXPECT_THAT(message("1.2.3"), HasSubstr("'1.2.3' is no number"));
}

TEST(FloatTable, HasALineForEveryFormat) {
  const Report report = describe_formats(kFormats);
  ASSERT_EQ(report.tables[0].rows.size(), kFormats.size());
  const auto& half = report.tables[0].rows[0].cells;
  EXPECT_EQ(std::get<std::string>(half[3]), "65504");
  EXPECT_EQ(std::get<int64_t>(half[7]), 3);  // as C's FLT_DIG would be
}

}  // namespace
}  // namespace ulpscope
