// What is said of numbers in formats, against facts of the formats' standards.
#include "ulpscope/analyzers/verbs/float_explanation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <string>

#include "tests/support/usage_error.h"
#include "ulpscope/analyzers/report/text.h"

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
  EXPECT_EQ(std::get<double>(facts.at("error_ulp")), -0.4);  // 0.1 * 2^14 = 1638.4
  EXPECT_EQ(std::get<double>(facts.at("error_relative")), -0.4 / 1638.4);
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
  // Beyond the largest number is what would round to another if exponents had no end.
  for (const RoundingMode mode : {RoundingMode::toward_zero, RoundingMode::to_odd, RoundingMode::down}) {
    EXPECT_EQ(note("65535.9999", binary16, {.mode = mode}), "the largest number");
    EXPECT_EQ(note("65536", binary16, {.mode = mode}), "the largest number; saturated");
  }
  EXPECT_EQ(note("65504.1", binary16, {.mode = RoundingMode::up, .overflow = Overflow::saturate}), "the largest number; saturated");
  EXPECT_EQ(note("65519.9", binary16, {.overflow = Overflow::saturate}), "the largest number");
  EXPECT_EQ(note("65520", binary16, {.overflow = Overflow::saturate}), "the largest number; saturated");
  EXPECT_EQ(note("464", e4m3, {.overflow = Overflow::saturate}), "the largest number") << "a tie, and 448 is even";
  EXPECT_EQ(note("464", e4m3, {.mode = RoundingMode::nearest_away, .overflow = Overflow::saturate}),
            "the largest number; saturated");
  EXPECT_EQ(note("448.1", e4m3, {.mode = RoundingMode::to_odd, .overflow = Overflow::saturate}), "the largest number; saturated");
  EXPECT_EQ(note("-3", e8m0), "the format has no sign");
  EXPECT_EQ(note("-0", e4m3_fnuz), "the format has no negative zero");
  EXPECT_EQ(note("0", e8m0), "the smallest number above zero; the format has no zero");
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
  EXPECT_EQ(note("65519.99999999999999999999", binary16), "the largest number") << "FP64 has 65520 for it";
  EXPECT_EQ(note("1e400", binary16, {.overflow = Overflow::saturate}),
            "the largest number; saturated; the error in ulps is beyond FP64");
  EXPECT_EQ(note("1e400", binary64, {.mode = RoundingMode::toward_zero}), "the largest number; saturated") << "1e400 / 2^971";
  EXPECT_EQ(note("1e-400", binary32), "flushed to zero; the error in ulps is beyond FP64");
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

TEST(FloatExplanation, EncodingsOf64BitsAreFp64s) {
  EXPECT_EQ(text(facts_of("0x3FF0000000000000", binary64), "value"), "1");
  const std::string value = "0x7ff8000000000000";
  const Report report = explain_floats({&value, 1}, {});
  ASSERT_TRUE(report.tables.empty());
  EXPECT_EQ(std::get<std::string>(report.facts[0].value), "fp64");
}

// Whole for programs, cut off where it says so for people.
TEST(FloatExplanation, TablesHaveAllThereIsToSay) {
  const std::string value = "0.1";
  const Report report = explain_floats({&value, 1}, {{&binary32, &binary64, &e4m3}, {}, 0});
  const Table& table = report.tables.at(0);
  const auto cell = [&](size_t row, const std::string& name) {
    for (size_t i = 0; i < table.columns.size(); ++i)
      if (table.columns[i].name == name) return std::get<LongText>(table.rows[row].cells[i]);
    ADD_FAILURE() << "no column " << name;
    return LongText{};
  };
  // 13421773 and its neighbours, over 2^27.
  EXPECT_EQ(cell(0, "value"), (LongText{"0.100000001490116119384765625", "0.100000001490..."}));
  EXPECT_EQ(cell(0, "next_below").text, "0.0999999940395355224609375");
  EXPECT_EQ(cell(0, "next_above"), (LongText{"0.10000000894069671630859375", "0.100000008940..."}));
  EXPECT_EQ(cell(1, "value").text, "0.1000000000000000055511151231257827021181583404541015625");
  EXPECT_EQ(cell(1, "fields"),
            (LongText{"0 01111111011 1001100110011001100110011001100110011001100110011010", "0 01111111011 10011001100110011..."}));
  EXPECT_EQ(cell(2, "next_below").brief, "0.09375");
  EXPECT_EQ(cell(2, "fields"), (LongText{"0 0011 101", "0 0011 101"}));
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
  EXPECT_THAT(message("1.2.3"), HasSubstr("or an encoding such as 0x3C00"));
}

TEST(FloatTable, HasALineForEveryFormat) {
  const Report report = describe_formats(kFormats);
  ASSERT_EQ(report.tables[0].rows.size(), kFormats.size());
  const auto& half = report.tables[0].rows[0].cells;
  EXPECT_EQ(std::get<LongText>(half[3]), (LongText{"65504", "65504"}));
  EXPECT_EQ(std::get<int64_t>(half[7]), 3);  // as C's FLT_DIG would be
  const auto& bfloat = report.tables[0].rows[1].cells;
  EXPECT_EQ(std::get<LongText>(bfloat[3]), (LongText{"3.3895313892515354759047080037148786688e+38", "(2 - 2^-7) * 2^127"}));
  EXPECT_EQ(cell_text(bfloat[4], report.tables[0].columns[4].unit), "2^-126");
  EXPECT_EQ(cell_text(bfloat[6], report.tables[0].columns[6].unit), "2^-7");
}

// e1m5: the exponent field of ones is Inf's, so numbers are f / 16, and 1 + 1/16 follows 1. e0m5finite has none of 1 and above.
TEST(FloatTable, ShowsNoNumbersThatAreNotThere) {
  const FloatFormat* const formats[] = {&parse_format("e1m5"), &parse_format("e0m5finite"), &e2m1};
  const Report report = describe_formats(formats);
  const auto cell = [&](size_t row, size_t column) { return report.tables[0].rows[row].cells[column]; };
  EXPECT_EQ(cell(0, 4), Cell(NotApplicable{}));
  EXPECT_EQ(cell(1, 4), Cell(NotApplicable{}));
  EXPECT_EQ(cell(0, 6), Cell(0x1p-4));
  EXPECT_EQ(cell(1, 6), Cell(NotApplicable{}));
  EXPECT_EQ(cell(2, 4), Cell(1.0));
  EXPECT_EQ(cell(2, 6), Cell(0.5));
}

// An encoding of one format is that in its own row, and its value, exactly, in a wider one; the next ones are those that integers
// of the magnitude give.
TEST(FloatExplanation, AnEncodingOfOneFormatIsAValueInTheOthers) {
  for (uint64_t encoding = 0; encoding < 0x10000; encoding += 251) {
    const std::string text = fmt::format("0x{:04X}", encoding);
    const Report report = explain_encoding(binary16, text, {{&binary16, &binary64}, {}, 0});
    const auto encoded = [&](size_t row) { return std::get<std::string>(report.tables.at(0).rows.at(row).cells[2]); };
    EXPECT_EQ(encoded(0), text);
    const uint64_t magnitude = encoding & 0x7FFF;
    const double value = magnitude >= 0x7C00 ? (magnitude == 0x7C00 ? INFINITY : NAN)
                         : magnitude < 0x400 ? std::ldexp(static_cast<double>(magnitude), -24)
                                             : std::ldexp(1.0 + static_cast<double>(magnitude & 0x3FF) / 1024,
                                                          static_cast<int>(magnitude >> 10) - 15);
    if (!std::isnan(value)) {
      const double with_sign = (encoding & 0x8000) != 0 ? -value : value;
      EXPECT_EQ(encoded(1), fmt::format("0x{:016X}", std::bit_cast<uint64_t>(with_sign))) << text;
    }
    const std::string above = next_encoding(binary16, text, true), below = next_encoding(binary16, text, false);
    const bool is_negative = encoding > 0x8000;
    if (magnitude >= 0x7C00) {
      EXPECT_EQ(above + below, "");
    } else if (magnitude > 1 && magnitude < 0x7BFF) {
      EXPECT_EQ(is_negative ? below : above, fmt::format("0x{:04X}", encoding + 1));
      EXPECT_EQ(is_negative ? above : below, fmt::format("0x{:04X}", encoding - 1));
    }
  }
  EXPECT_EQ(next_encoding(binary16, "0x7BFF", true), "");
  EXPECT_THAT(usage_error_of([] { explain_encoding(binary16, "0x10000", {}); }), HasSubstr("16 bits"));
  EXPECT_THAT(usage_error_of([] { explain_encoding(binary16, "1.5", {}); }), HasSubstr("1.5"));
}

}  // namespace
}  // namespace ulpscope
