// Reports as text and JSON, and tables as CSV and JSON.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "synthetic_trace.h"
#include "tests/support/said.h"
#include "ulpscope/analyzers/report/html.h"
#include "ulpscope/analyzers/report/json.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/report/text_layout.h"
#include "ulpscope/analyzers/report/text_plot.h"
#include "ulpscope/analyzers/verbs/export.h"
#include "ulpscope/base/error.h"

namespace ulpscope::analyzers_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

Report sample_report() {
  Report report;
  report.analysis = "sample";
  report.title = "A sample";
  report.sources.push_back({"run.h5", "0123456789abcdef", 0});
  report.add_fact("steps", int64_t{7}, Unit::count);
  report.add_fact("final_loss", NAN);
  report.add_fact("bound", Interval{0.25, INFINITY}, Unit::share);
  report.add_fact("unknown", Unknown{});
  report.add_fact("not_here", NotApplicable{});
  report.add_fact("flag", true);
  RowKey key;
  key.step = 3;
  key.op = 0xABCull;
  key.op_name = "linear";
  key.module = "fc";
  report.findings.push_back({"sample.code",
                             Severity::warning,
                             said("Something \"odd\" happened."),
                             {{key, {{"share", 0.015, Unit::share}}}},
                             said("Do less.")});
  Table table{"numbers", "Some numbers", {{"name", ColumnKind::text}, {"value", ColumnKind::number, Unit::share}}, {}, 2, "a note"};
  table.rows.push_back({key, {std::string("a rather long name of a tensor somewhere in a model, output 3"), 0.5}});
  table.rows.push_back({key, {std::string("b"), -INFINITY}});
  report.tables.push_back(table);
  Plot plot{"exponents", "Exponents", PlotKind::histogram, {"exponent", Unit::exponent}, {"elements", Unit::count}};
  plot.limits = {{"subnormal", -25}, {"normal", -14}, {"overflow", 16}};
  plot.series.push_back({"first", key, {-30, -20, 0, 16}, {1, 1000, 50, 2}, 0, 0});
  plot.series_left_out = 3;
  report.plots.push_back(plot);
  return report;
}

TEST(JsonRenderer, HoldsTheWholeReport) {
  const Json json = Json::parse(render_json(sample_report()));
  EXPECT_EQ(json["report_version"], kReportVersion);
  EXPECT_EQ(json["steps"], 7);
  EXPECT_EQ(json["final_loss"], "NaN");
  EXPECT_EQ(json["bound"]["lower"], 0.25);
  EXPECT_EQ(json["bound"]["upper"], "Infinity");
  EXPECT_TRUE(json["unknown"].is_null());
  EXPECT_TRUE(json["not_here"].is_null());
  EXPECT_EQ(json["flag"], true);
  EXPECT_EQ(json["findings"][0]["code"], "sample.code");
  EXPECT_EQ(json["findings"][0]["severity"], "warning");
  EXPECT_EQ(json["findings"][0]["evidence"][0]["key"]["step"], 3);
  EXPECT_EQ(json["findings"][0]["evidence"][0]["key"]["op"], "0000000000000abc");
  EXPECT_EQ(json["findings"][0]["evidence"][0]["values"]["share"]["value"], 0.015);
  EXPECT_EQ(json["tables"][0]["rows"][1]["values"]["value"], "-Infinity");
  EXPECT_EQ(json["tables"][0]["rows_left_out"], 2);
  EXPECT_EQ(json["plots"][0]["series"][0]["y"][1], 1000);
  EXPECT_EQ(json["plots"][0]["series_left_out"], 3);
  EXPECT_EQ(json["plots"][0]["limits"][0]["exponent"], -25);
}

TEST(JsonRenderer, SurvivesAnyBytesInNames) {
  Report report = sample_report();
  report.tables[0].rows[0].cells[0] = std::string("\xFF\xFE\"\n\x01");
  EXPECT_NO_THROW(Json::parse(render_json(report)));
}

size_t widest_line(const std::string& text) {
  std::istringstream lines(text);
  size_t widest = 0;
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, text_width(line));
  return widest;
}

TEST(TextRenderer, FitsItsWidth) {
  Report report = sample_report();
  report.findings[0].title =
      said("A title of many words that has to be broken into several lines because no terminal is that wide.");
  report.findings[0].code = "c";
  for (const int width : {60, 80, 120}) {
    EXPECT_LE(widest_line(render_text(report, {width, false, true, true})), static_cast<size_t>(width)) << width;
  }
  const char* const name = "a rather long name of a tensor somewhere in a model, output 3";
  EXPECT_THAT(render_text(report, {200, false, true, true}), HasSubstr(name));
  EXPECT_THAT(render_text(report, {60, false, true, false}), HasSubstr(name));  // no terminal
  EXPECT_THAT(render_text(report, {60, false, true, true}), AllOf(HasSubstr("a rather"), HasSubstr("output 3")));
}

TEST(TextRenderer, LeavesRowsOutUntilThePageIsNotTooLong) {
  Report report = sample_report();
  const TableRow row = report.tables[0].rows[1];
  report.tables[0].rows.resize(60, row);
  report.tables[0].rows_left_out = report.plots[0].series_left_out = 0;
  const auto lines = [&](size_t most) {
    TextOptions options;
    options.most_lines = most;
    const std::string text = render_text(report, options);
    return std::pair(std::count(text.begin(), text.end(), '\n'), text);
  };
  const auto [whole, all] = lines(0);
  EXPECT_GT(whole, 60);
  EXPECT_THAT(all, Not(HasSubstr("--limit 0")));
  const auto [count, text] = lines(40);
  EXPECT_EQ(count, 40);
  const auto left_out = static_cast<long>(60 - (40 - (whole - 60)) + 1);  // one line says it
  EXPECT_THAT(text, HasSubstr(fmt::format("and {} more (--limit 0 shows all)", left_out)));
  EXPECT_THAT(lines(28).second, HasSubstr("and 55 more (--limit 0 shows all)")) << "a few, as long as all else can go";
}

// Whatever a report holds: causes, warnings beside them, notes, evidence, tables and plots give way one after the other.
TEST(TextRenderer, APageHoldsWhateverThereIs) {
  const std::string words =
      "Something of some length that is said of every one of them, so that it takes a line and more to say it.";
  RowKey key;
  key.name = "a tensor";
  for (const size_t causes : {1u, 3u, 12u}) {
    for (const size_t beside : {0u, 20u}) {
      for (const bool has_tables : {false, true}) {
        Report report;
        if (has_tables) report = sample_report();
        report.analysis = "ranges";
        report.facts.assign(4, {"a_fact", 1.0});
        report.verdict = Verdict::broken;
        report.verdict_text = said(words + ' ' + words);
        report.findings.clear();
        for (size_t i = 0; i < causes + 2 * beside; ++i) {
          const Severity severity = i < causes ? Severity::error : i < causes + beside ? Severity::warning : Severity::info;
          report.findings.push_back({fmt::format("code.{}", i),
                                     severity,
                                     said(fmt::format("{} It is number {}.", words, i)),
                                     {},
                                     said(fmt::format("{} That is for {}.", words, i))});
          report.findings.back().evidence.resize(5, {key, {{"share", 0.5, Unit::share}}});
        }
        for (size_t i = 0; i < causes; ++i) report.causes.push_back({i, {}});
        for (Table& table : report.tables) table.rows.resize(40, table.rows[0]);
        report.tables.resize(3 * report.tables.size(), report.tables.empty() ? Table() : report.tables[0]);
        for (const int width : {80, 120}) {
          TextOptions options{.width = width, .fit_width = true};
          options.most_lines = 40;
          const std::string text = render_text(report, options);
          EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 40) << text;
          EXPECT_THAT(text, AllOf(HasSubstr("code.0"), HasSubstr("a fact")));
          if (causes > 3) {  // all are told of
            EXPECT_THAT(text, HasSubstr("code.11"));
          }
          if (has_tables && causes > 3) {
            EXPECT_THAT(text, HasSubstr("(--limit 0 shows all)"));
          }
          if (beside > 0) {
            EXPECT_THAT(text, HasSubstr("20 notes: --all."));
          }
          options.most_lines = 0;
          const std::string whole = render_text(report, options);
          EXPECT_EQ(std::count(whole.begin(), whole.end(), '\n') > 40, causes > 3 || beside > 0 || has_tables);
        }
      }
    }
  }
}

// It is pasted, so that no line of it is broken; where it has no room, it is all there or not at all, and the report says where it
// is.
TEST(TextRenderer, CodeStandsBelowItsAdvice) {
  Report report;
  report.analysis = "report";
  report.verdict = Verdict::broken;
  report.verdict_text = said("A value overflowed.");
  report.findings.push_back({"range.overflow", Severity::error, said("A value overflowed."), {}, said("Keep it in FP32.")});
  const std::string line = "    x = " + std::string(100, 'f') + "(x)";
  report.findings[0].snippets = {{"precision", "with wide:\n" + line + "\n\n\ny = \"a\033\" < 1"}, {"other", "z = 2"}};
  report.causes.push_back({0, {}});
  TextOptions options{.width = 60};
  const std::string whole = render_text(report, options);
  EXPECT_THAT(whole, HasSubstr("Keep it in FP32.\n    with wide:\n    " + line + "\n\n\n    y = \"a\\u001B\" < 1\n\n    z = 2\n"))
      << whole;
  options.most_lines = static_cast<size_t>(std::count(whole.begin(), whole.end(), '\n')) - 1;
  EXPECT_THAT(render_text(report, options), AllOf(Not(HasSubstr("wide")), HasSubstr("code to paste: --all.")));
  EXPECT_THAT(render_html(report),
              HasSubstr("<pre class=\"snippet\"><code>with wide:\n" + line + "\n\n\ny = &quot;a\\u001B&quot; &lt; 1</code></pre>"));
  const auto json = nlohmann::json::parse(render_json(report));
  EXPECT_EQ(json["findings"][0]["snippets"][1], nlohmann::json({{"does", "other"}, {"code", "z = 2"}}));
  EXPECT_EQ(json["causes"][0]["snippets"].size(), 2);
}

// A heatmap of named rows gives up rows too; one of exponents is whole.
TEST(TextRenderer, HeatmapsOfNamedRowsGiveUpSome) {
  Report report;
  Plot plot{"differences", "Differences", PlotKind::heatmap, {"step", Unit::count}, {"difference", Unit::share}};
  for (int row = 0; row < 20; ++row) plot.series.push_back({fmt::format("tensor {}", row), {}, {0, 1}, {0.5, 0.25}});
  report.plots = {plot};
  TextOptions options;
  options.most_lines = 12;
  const std::string text = render_text(report, options);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 12);
  EXPECT_THAT(text, AllOf(HasSubstr("tensor 0 "), HasSubstr("more (--limit 0 shows all)"), Not(HasSubstr("tensor 19"))));
  report.plots[0].rows = {"exponent", Unit::exponent};
  EXPECT_THAT(render_text(report, options), AllOf(Not(HasSubstr("tensor 0")), HasSubstr("and 1 picture (--limit 0 shows all)")));
  options.most_lines = 40;
  EXPECT_THAT(render_text(report, options), HasSubstr("tensor 19"));
}

// The verdict, the cause without what the verdict said of it, the run in a line, and what was looked at. Nothing stands twice, and
// what there is none of does not stand there.
TEST(TextRenderer, ARunIsReadAtAGlance) {
  Report report;
  report.analysis = "report";
  report.facts_in_brief = true;
  report.verdict = Verdict::broken;
  report.verdict_text = said("The loss is NaN. A value overflowed.");
  report.checked = said("losses, values. Not checked: sums.");
  report.facts = {{"precision", std::string("fp16")},         {"steps", int64_t{2000}, Unit::count},
                  {"skipped_steps", int64_t{0}, Unit::count}, {"final_loss", 0.0123456},
                  {"loss_scale", 1.0, Unit::scale},           {"seconds", 1.5, Unit::seconds}};
  RowKey key;
  key.name = "an op";
  key.step = 1234;
  report.findings.push_back({"range.overflow", Severity::error, said("A value overflowed. It was 70,000."), {}, said("Use BF16.")});
  report.findings[0].evidence.push_back({key, {{"nan", int64_t{0}, Unit::count}, {"infinity", int64_t{4096}, Unit::count}}});
  report.findings.push_back({"run.loss", Severity::error, said("The loss is NaN."), {}, said("Use BF16.")});
  report.findings.push_back({"range.note", Severity::info, said("Gradients fit."), {}, {}});
  report.causes.push_back({0, {1}});
  EXPECT_EQ(render_text(report, {}),
            "BROKEN: The loss is NaN. A value overflowed.\n"
            "Cause    range.overflow\n"
            "  what   It was 70,000.\n"
            "  where  an op, step 1234: 4,096 Inf\n"
            "  fix    Use BF16.\n"
            "  then   run.loss (--all)\n"
            "Run      FP16, 2,000 steps, final loss 0.01235, 1.5 s\n"
            "Checked  losses, values. Not checked: sums. 1 note: --all.\n");
  report.facts[4].value = 1024.0;
  EXPECT_THAT(render_text(report, {}), HasSubstr("final loss 0.01235, loss scale 2^10, 1.5 s\n"));
  // A code is told once, and what is not known not at all.
  Report several = report;
  several.findings.push_back({"run.loss", Severity::error, said("It was NaN twice."), {}, {}});
  several.causes[0].consequences.push_back(3);
  several.facts[0].value = std::string();
  several.facts[3].value = Unknown{};
  EXPECT_THAT(render_text(several, {}), HasSubstr("  then   2 run.loss (--all)\nRun      2,000 steps, loss scale 2^10, 1.5 s\n"));
  report.facts[4].value = 1.0;
  TextOptions all;
  all.all = true;
  EXPECT_EQ(render_text(report, all),
            "BROKEN: The loss is NaN. A value overflowed.\n"
            "Cause    range.overflow\n"
            "  what   It was 70,000.\n"
            "  where  an op, step 1234: 4,096 Inf\n"
            "  fix    Use BF16.\n"
            "  then   run.loss\n"
            "Note     Gradients fit.  range.note\n"
            "Run      FP16, 2,000 steps, final loss 0.01235, 1.5 s\n"
            "Checked  losses, values. Not checked: sums.\n");
}

// Where lines are few a second cause loses where it was seen and what followed first, its fix last: who mends the first has the
// other still.
TEST(TextRenderer, ASecondCauseKeepsItsFixForLong) {
  Report report;
  report.analysis = "report";
  report.facts_in_brief = true;
  report.verdict = Verdict::broken;
  report.verdict_text = said("The loss is NaN.");
  report.checked = said("losses.");
  report.facts = {{"steps", int64_t{20}, Unit::count}};
  RowKey key;
  key.name = "an op";
  report.findings.push_back({"first.code", Severity::error, said("A sample is far off. It is one of 16."), {}, said("Drop it.")});
  report.findings.push_back({"second.code",
                             Severity::error,
                             said("A scale is stale. It follows an outlier."),
                             {},
                             said("Use a shorter history. Or wait.")});
  report.findings.push_back({"third.code", Severity::warning, said("Values saturate."), {}, {}});
  for (Finding& finding : report.findings) finding.evidence.push_back({key, {{"elements", int64_t{7}, Unit::count}}});
  report.causes.push_back({0, {}});
  report.causes.push_back({1, {2}});
  const auto text_of = [&](size_t lines) {
    TextOptions options;
    options.most_lines = lines;
    const std::string text = render_text(report, options);
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), static_cast<long>(lines));
    return text;
  };
  const std::string whole = text_of(12);
  EXPECT_THAT(whole, AllOf(HasSubstr("  what   It follows an outlier."), HasSubstr("Or wait."), HasSubstr("  then   third.code")));
  const std::string with_fix = text_of(10);
  EXPECT_THAT(with_fix, AllOf(Not(HasSubstr("It follows")), HasSubstr("Or wait."), HasSubstr("  then   third.code")));
  const std::string without_then = text_of(9);
  EXPECT_THAT(without_then, AllOf(HasSubstr("Or wait."), Not(HasSubstr("third.code")), HasSubstr("1 more finding: --all")));
  EXPECT_THAT(text_of(8), AllOf(HasSubstr("A scale is stale."), Not(HasSubstr("  fix    Use"))));
  for (const size_t lines : {8, 9, 10, 12})
    EXPECT_THAT(text_of(lines), AllOf(HasSubstr("It is one of 16."), HasSubstr("Drop it.")));
  // A fix of several lines gives up all but its first sentence before it goes.
  report.findings[1].suggestion = said("Use a shorter history. " + std::string(150, 'x') + ".");
  EXPECT_THAT(text_of(9), AllOf(HasSubstr("  fix    Use a shorter history.\n"), Not(HasSubstr("xxx"))));
}

// A histogram gives up series where no table has rows to give up, and says so by the same line.
TEST(TextRenderer, SaysHowManySeriesAreLeftOut) {
  Report report = sample_report();
  EXPECT_THAT(render_text(report, {}), HasSubstr("\n  and 3 more (--limit 0 shows all)\n"));
  report.tables[0].rows_left_out = report.plots[0].series_left_out = 0;
  report.plots[0].series.resize(9, report.plots[0].series[0]);
  TextOptions options;
  const std::string all = render_text(report, options);
  EXPECT_THAT(all, Not(HasSubstr("more (")));
  options.most_lines = static_cast<size_t>(std::count(all.begin(), all.end(), '\n')) - 3;
  const std::string text = render_text(report, options);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), static_cast<long>(options.most_lines));
  EXPECT_THAT(text, HasSubstr("\n  and 4 more (--limit 0 shows all)\n"));
}

TEST(TextRenderer, EvidenceNamesTheMicroBatchAndThePassWhereThereAreSeveral) {
  RowKey key;
  key.name = "fc linear";
  key.step = 3;
  key.micro_batch = 0;
  key.loss_index = 0;
  EXPECT_EQ(key_text(key), "fc linear, step 3");
  key.micro_batch = 2;
  key.loss_index = 1;
  EXPECT_EQ(key_text(key), "fc linear, step 3, micro-batch 2, loss 1");
}

TEST(TextRenderer, ShortenedNamesStayDifferent) {
  const std::vector<std::vector<std::string>> families{
      {"encoder.layers.0.attention.query.weight gradient", "encoder.layers.1.attention.query.weight gradient",
       "encoder.layers.10.attention.query.weight gradient"},
      {"blocks.3.attention.heads first matmul first input gradient", "blocks.3.attention.heads first matmul second input gradient"},
      {"first.of.all.modules.in.the.model relu", "other.of.all.modules.in.the.model relu"},
      {"décoder.layers.0.attention matmul", "décoder.layers.1.attention matmul", "short"}};
  for (const auto& names : families) {
    for (size_t width = 12; width < 70; ++width) {
      const std::vector<std::string> shortened = shorten_texts(names, width, true);
      std::set<std::string> different(shortened.begin(), shortened.end());
      EXPECT_EQ(different.size(), names.size()) << names[0] << " in " << width;
      for (size_t i = 0; i < names.size(); ++i) {
        EXPECT_LE(text_width(shortened[i]), width);
        EXPECT_TRUE(text_width(names[i]) > width || shortened[i] == names[i]);
      }
    }
  }
  EXPECT_EQ(shorten_texts({"abcdefghij"}, 5, false)[0].size(), 5u);
}

TEST(TextRenderer, TablesThatAreTooWideStandInParts) {
  Report report;
  Table table{"numbers", "Numbers", {{"tensor", ColumnKind::text}}, {}, 0, ""};
  for (int i = 0; i < 12; ++i) table.columns.push_back({fmt::format("quantity{}", i), ColumnKind::number, Unit::count});
  for (const char* name : {"encoder.layers.0.attention.query.weight (FP16)", "encoder.layers.1.attention.query.weight (FP16)"}) {
    TableRow row{{}, {std::string(name)}};
    for (int i = 0; i < 12; ++i) row.cells.push_back(count_cell(100 + i));
    table.rows.push_back(row);
  }
  report.tables.push_back(table);
  for (const int width : {60, 80, 100}) {
    const std::string text = render_text(report, {width, false, true, true});
    EXPECT_LE(widest_line(text), static_cast<size_t>(width)) << text;
    for (int i = 0; i < 12; ++i) {
      EXPECT_THAT(text, HasSubstr(fmt::format("quantity{}", i)));
      EXPECT_THAT(text, HasSubstr(fmt::format(" {}", 100 + i)));
    }
  }
  // Without a width there is one part, with whole names.
  const std::string text = render_text(report, {80, false, true, false});
  EXPECT_THAT(text, HasSubstr(std::get<std::string>(table.rows[0].cells[0]) + "        100"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6);
}

TEST(TextRenderer, ColorsOnlyWhereAskedTo) {
  EXPECT_THAT(render_text(sample_report(), {100, false, true}), Not(HasSubstr("\033")));
  EXPECT_THAT(render_text(sample_report(), {100, true, true}), HasSubstr("\033[33m"));
}

TEST(TextRenderer, StaysWithinAsciiWhereAskedTo) {
  for (const char c : render_text(sample_report(), {80, false, false})) EXPECT_LT(static_cast<unsigned char>(c), 0x80);
  EXPECT_THAT(render_text(sample_report(), {80, false, true}), HasSubstr("█"));
}

TEST(TextRenderer, NamesCannotMoveTheCursor) {
  Report report = sample_report();
  report.tables[0].rows[0].cells[0] = std::string("evil\033[2J\nname");
  report.findings[0].evidence[0].key.module = "evil\033[2Jmodule";
  const std::string evil = "e\n\x01\033[31m\xC2\x9B";
  report.title += evil;
  report.sources.push_back({"path" + evil, "run" + evil, 0});
  report.add_fact("fact", evil);
  report.findings.push_back({"code", Severity::info, said("title" + evil), {{{}, {{"value", evil}}}}, said("suggestion" + evil)});
  report.tables[0].title += evil;
  report.tables[0].note += evil;
  report.plots[0].title += evil;
  report.plots[0].series[0].name += evil;
  const std::string text = render_text(report, {});
  for (const char* control : {"\033", "\x01", "\xC2\x9B"}) EXPECT_THAT(text, Not(HasSubstr(control)));
  EXPECT_THAT(render_text(report, {}), HasSubstr("suggestione\\u000A\\u0001\\u001B[31m\\u009B"));
}

TEST(TextRenderer, SaysUnknownAndNotApplicableDifferently) {
  EXPECT_EQ(cell_text(Unknown{}, Unit::share), "?");
  EXPECT_EQ(cell_text(NotApplicable{}, Unit::share), "-");
  EXPECT_EQ(cell_text(0.0, Unit::share), "0%");
  EXPECT_EQ(cell_text(1e-9, Unit::share), "<0.01%");  // something is never 0
  EXPECT_EQ(cell_text(1.0 - 1e-9, Unit::share), ">99.9%");
  EXPECT_EQ(cell_text(1.0, Unit::share), "100%");
  EXPECT_EQ(cell_text(Interval{0.01, 0.02}, Unit::share), "1..2%");
  EXPECT_EQ(cell_text(NAN, Unit::none), "NaN");
  for (const double nothing : {-0.0, -0.04, 0.04}) EXPECT_EQ(cell_text(nothing, Unit::bits), "0.0");
  EXPECT_EQ(cell_text(-0.06, Unit::bits), "-0.1");
  EXPECT_EQ(cell_text(-0.0, Unit::exponent), "2^0");
  EXPECT_EQ(cell_text(-0.0, Unit::none), "0");
  EXPECT_EQ(cell_text(65536.0, Unit::scale), "2^16");
  EXPECT_EQ(cell_text(64.0, Unit::scale), "2^6");
  EXPECT_EQ(cell_text(1.0, Unit::scale), "1");
  EXPECT_EQ(cell_text(Interval{512.0, 1024.0}, Unit::scale), "2^9 to 2^10");
  EXPECT_EQ(cell_text(100.5, Unit::scale), "100.5");
  EXPECT_EQ(cell_text(Interval{0, 1024.0}, Unit::scale), "at most 2^10");
  EXPECT_EQ(cell_text(Interval{1024.0, INFINITY}, Unit::scale), "at least 2^10");
  EXPECT_EQ(cell_text(int64_t{3 << 20}, Unit::bytes), "3 MiB");
  EXPECT_EQ(cell_text(0.0015, Unit::seconds), "1.5 ms");
}

// A histogram's line: one column an exponent, a bar at each limit, higher blocks for more elements.
TEST(TextRenderer, HistogramsStandAgainstTheLimits) {
  Plot plot = sample_report().plots[0];
  const std::string text = plot_text(plot, {120, false, false});
  std::istringstream lines(text);
  std::string names, line;
  std::getline(lines, names);
  std::getline(lines, line);
  // -30 to 16: 47 columns and three bars after the name.
  const std::string bars = line.substr(line.find("first") + 7);
  ASSERT_GE(bars.size(), 50u) << text;
  EXPECT_EQ(bars[0], '.');   // one element at 2^-30
  EXPECT_EQ(bars[5], '|');   // 2^-25
  EXPECT_EQ(bars[11], '#');  // 1000 at 2^-20, the most
  EXPECT_EQ(bars[17], '|');  // 2^-14
  EXPECT_EQ(bars[48], '|');  // 2^16
  EXPECT_NE(bars[49], ' ');  // two elements that overflow
  EXPECT_NE(bars[49], '#');
  EXPECT_EQ(names[line.find("first") + 7 + 5], '|');
  EXPECT_THAT(names, HasSubstr("|subnormal"));
  plot.series[0].y = {0, 0, 0, 0};
  EXPECT_THAT(plot_text(plot, {}), HasSubstr("no finite nonzero values"));
  plot.series.clear();
  EXPECT_THAT(plot_text(plot, {}), HasSubstr("no values"));
}

Json plot_json(const Plot& plot) {
  Report report;
  report.plots = {plot};
  return Json::parse(render_json(report))["plots"][0];
}

// Rows of exponents stand the highest first, each limit under the row that begins at it.
TEST(TextRenderer, HeatmapsHaveExponentsUpwardsAndLimitsBetweenThem) {
  Plot plot{"exponents", "Exponents", PlotKind::heatmap, {"step"}, {"elements", Unit::count}, {{"flushed below", -25}}};
  plot.rows = {"exponent", Unit::exponent};
  plot.first_exponent = -26;
  plot.x_end = 20;
  plot.series = {{"2^-26", {}, {0, 10}, {0, 1}}, {"2^-25", {}, {0, 10}, {100, kUnknown}}};
  plot.marks = {{10, 12, "skipped", Severity::warning}};
  std::istringstream lines(plot_text(plot, {60, false, false}));
  std::vector<std::string> line(5);
  for (std::string& each : line) std::getline(lines, each);
  EXPECT_THAT(line[0], AllOf(HasSubstr("2^-25"), HasSubstr("###")));
  EXPECT_EQ(line[0].back(), '#') << "nothing is shown where nothing is known";
  EXPECT_THAT(line[1], HasSubstr("flushed below"));
  EXPECT_THAT(line[2], AllOf(HasSubstr("2^-26"), HasSubstr(".")));
  EXPECT_GT(line[2].size(), line[0].size()) << "the second half of the steps";
  EXPECT_THAT(line[4], HasSubstr("step 10 to 12: skipped"));
  const Json json = plot_json(plot);
  EXPECT_EQ(json["kind"], "heatmap");
  EXPECT_EQ(json["first_exponent"], -26);
  EXPECT_EQ(json["x_end"], 20);
  EXPECT_TRUE(json["series"][1]["y"][1].is_null());
  EXPECT_EQ(json["marks"][0]["to"], 12);
}

// The least headroom stands highest, and what is safe is seen to be known.
TEST(TextRenderer, HeatmapsOfHeadroomShowTheLeast) {
  Plot plot{"headroom", "Headroom", PlotKind::heatmap, {"step"}, {"headroom", Unit::bits}};
  plot.series = {{"t", {}, {0, 1, 2}, {-3, kUnknown, 12}}};
  plot.x_end = 3;
  std::istringstream lines(plot_text(plot, {60, false, false}));
  std::string line, foot;
  std::getline(lines, line);
  std::getline(lines, foot);
  EXPECT_THAT(line, HasSubstr("##")) << line;
  EXPECT_EQ(line.back(), '.') << line;
  EXPECT_THAT(line, HasSubstr(" .")) << "nothing is shown where nothing is known";
  EXPECT_THAT(foot, HasSubstr("down to -3.0"));
}

TEST(TextRenderer, GraphsNameWhatEachNodeComesOf) {
  Plot plot{"chain", "Chain", PlotKind::graph};
  plot.nodes = {{"scores", "70000", {}, true}, {"weights", "", {}, false}, {"softmax", "NaN", {}, true}};
  plot.links = {{0, 2, true}, {1, 2, false}};
  const std::string text = plot_text(plot, {120, false, false});
  EXPECT_THAT(text, HasSubstr("* scores: 70000\n"));
  EXPECT_THAT(text, HasSubstr("* softmax: NaN  (<- scores, weights)"));
  const Json json = plot_json(plot);
  EXPECT_EQ(json["nodes"].size(), 3u);
  EXPECT_EQ(json["links"][1]["from"], 1);
  EXPECT_FALSE(json.contains("series"));
}

TEST(TextRenderer, NarrowHistogramsNeverMixTheSidesOfALimit) {
  Plot plot = sample_report().plots[0];
  plot.series[0].x = {-26, -25};
  plot.series[0].y = {1, 0};
  for (int width = 30; width < 90; width += 7) {
    const std::string text = plot_text(plot, {width, false, false});
    std::istringstream lines(text);
    std::string line;
    std::getline(lines, line);
    std::getline(lines, line);
    const size_t bar = line.find('|');
    ASSERT_NE(bar, std::string::npos);
    EXPECT_EQ(line[bar - 1], '#') << width;
    EXPECT_EQ(line[bar + 1], ' ') << width;
  }
}

std::string exported(const Snapshot& reader, const std::string& table, ExportFormat format) {
  std::string text;
  export_table(reader, table, format, {}, [&](std::string_view piece) {
    text += piece;
    return true;
  });
  return text;
}

TEST(Export, EveryTableInBothFormats) {
  SyntheticTrace trace;
  const uint32_t tensor = trace.add_tensor("a,\"b\"", "linear", Phase::forward, Role::activation, DType::f16);
  trace.add(tensor, make_row({1.0, -2.0, NAN}, DType::f16));
  trace.add_update(tensor, 5, 1, 0);
  trace.add_event(EventKind::warning, -1, 0, INFINITY, "two\nlines");
  CaptureRow element, operand;
  element.tensor = operand.tensor = tensor;
  element.shape = {3, 1};
  element.partial_sum = 7.0;
  element.terms = 2;
  element.broke_at = 1;
  element.attributes = "step=2";
  element.follow = CaptureFollow::followed;
  operand.node = 1;
  operand.parent = 0;
  operand.operand = 0;
  operand.overwritten = true;
  trace.sink().add_capture(element);
  trace.sink().add_capture(operand);
  trace.sink().add_setting({"optimizer.lr", "0.1", SettingKind::learning_rate, true});
  trace.sink().add_source({.name = "train", .file = "a.npy", .samples = 4, .byte_step = 8});
  trace.sink().add_product({"4 x 8 x 16", "algorithm 1"});
  trace.sink().add_batch({.source = 0, .sample = 3});
  trace.sink().add_fingerprint({.tensor = tensor, .written = UINT64_MAX});
  trace.sink().add_sample({0, 3, 1, tensor, 1, -2.0});
  trace.sink().add_measure({0, 3, 1, tensor, "error", 0.125});
  trace.sink().add_sum({.tensor = tensor, .additions = 1});
  trace.sink().add_bits({.tensor = tensor, .hash = UINT64_MAX});
  trace.sink().add_edge({0, 0, 1, 0, 0});
  trace.end_step(SyntheticTrace::default_step(NAN));
  StepRow unknown = SyntheticTrace::default_step();
  unknown.loss_known = false;
  trace.end_step(unknown);
  const Snapshot reader = trace.read();
  for (const std::string& table : export_tables()) {
    const std::string csv = exported(reader, table, ExportFormat::csv);
    const Json json = Json::parse(exported(reader, table, ExportFormat::json));
    ASSERT_FALSE(json.empty()) << table;
    // Both name the same fields, in whatever order JSON keeps them.
    std::istringstream header(csv.substr(0, csv.find('\n')));
    size_t fields = 0;
    for (std::string name; std::getline(header, name, ','); ++fields) EXPECT_TRUE(json[0].contains(name)) << table << " " << name;
    EXPECT_EQ(fields, json[0].size()) << table;
  }
  const Json steps = Json::parse(exported(reader, "steps", ExportFormat::json));
  EXPECT_EQ(steps[0]["loss"], "NaN");
  EXPECT_TRUE(steps[1]["loss"].is_null());
  EXPECT_TRUE(steps[1]["gradient_norm"].is_null());
  const std::string csv = exported(reader, "steps", ExportFormat::csv);
  EXPECT_THAT(csv, StartsWith("step,graph,loss,loss_known,learning_rate,scale_before,scale_after,skipped,gradient_norm,"
                              "clipped_gradient_norm,norm_known,seconds,peak_memory,level\n"));
  EXPECT_THAT(csv, HasSubstr("\n0,0,NaN,true,,1,1,false,,,false,0.25,1000,stats\n"));
  EXPECT_THAT(csv, HasSubstr("\n1,0,,false,,1,1,false,,,false,0.25,1000,stats\n"));
  const Json rows = Json::parse(exported(reader, "stats", ExportFormat::json));
  EXPECT_EQ(rows[0]["nan"], 1);
  EXPECT_EQ(rows[0]["histogram"]["first_exponent"], 0);
  EXPECT_EQ(rows[0]["histogram"]["counts"], Json::parse("[1,1]"));
  EXPECT_EQ(rows[0]["below_range"], 0);
  EXPECT_EQ(rows[0]["known"], "values");
  EXPECT_EQ(rows[0]["tensor"], 0);
  EXPECT_EQ(rows[0]["op_id"], "0000000000000001");
  EXPECT_EQ(rows[0]["module"], "a,\"b\"");
  EXPECT_EQ(rows[0]["dtype"], "f16");
  EXPECT_THAT(exported(reader, "stats", ExportFormat::csv),
              AllOf(HasSubstr(",\"a,\"\"b\"\"\",forward,0,activation,"), HasSubstr("\"0:1,1\"")));
  const Json tensors = Json::parse(exported(reader, "tensors", ExportFormat::json));
  EXPECT_EQ(tensors[0]["index"], 0);
  EXPECT_EQ(tensors[0]["op"], 0);
  EXPECT_EQ(tensors[0]["op_name"], "linear");
  EXPECT_EQ(tensors[0]["shape"], Json::parse("[1]"));
  EXPECT_EQ(tensors[0]["shard_offset"], Json::array());
  EXPECT_THAT(exported(reader, "tensors", ExportFormat::csv), HasSubstr(",1,,true,,,0,-1,rne,false,false,false\n"));
  const Json ops = Json::parse(exported(reader, "ops", ExportFormat::json));
  EXPECT_EQ(ops[0]["id"], "0000000000000001");
  EXPECT_TRUE(ops[0]["forward_id"].is_null());
  const Json events = Json::parse(exported(reader, "events", ExportFormat::json));
  EXPECT_EQ(events[0]["value"], "Infinity");
  EXPECT_EQ(events[0]["text"], "two\nlines");
  EXPECT_TRUE(events[0]["tensor"].is_null());
  EXPECT_TRUE(events[0]["micro_batch"].is_null());
  EXPECT_TRUE(events[0]["op_name"].is_null());
  const Json parameters = Json::parse(exported(reader, "parameters", ExportFormat::json));
  EXPECT_EQ(parameters[0]["op_name"], "linear");
  const Json captures = Json::parse(exported(reader, "captures", ExportFormat::json));
  EXPECT_TRUE(captures[0]["operand"].is_null());
  EXPECT_EQ(captures[0]["partial_sum"], 7.0);
  EXPECT_EQ(captures[0]["shape"], Json::parse("[3,1]"));
  EXPECT_EQ(captures[0]["attributes"], "step=2");
  EXPECT_TRUE(captures[0]["overwritten"].is_null());
  EXPECT_EQ(captures[1]["operand"], 0);
  EXPECT_EQ(captures[1]["overwritten"], true);
  EXPECT_TRUE(captures[1]["terms"].is_null());
  EXPECT_TRUE(captures[1]["attributes"].is_null());
  for (const char* table : {"samples", "measures"}) {
    const Json of_tensor = Json::parse(exported(reader, table, ExportFormat::json));
    EXPECT_EQ(of_tensor[0]["micro_batch"], 3) << table;
    EXPECT_EQ(of_tensor[0]["loss_index"], 1) << table;
    EXPECT_EQ(of_tensor[0]["op_name"], "linear") << table;
  }
  const Json edges = Json::parse(exported(reader, "edges", ExportFormat::json));
  EXPECT_EQ(edges[0]["consumer"], 0);
  const Json run = Json::parse(exported(reader, "run", ExportFormat::json));
  EXPECT_EQ(run[0]["experiment_name"], "synthetic");
  EXPECT_TRUE(run[0]["parent_step"].is_null());
  EXPECT_TRUE(run[0]["growth_interval"].is_null());
}

SourceInfo train_source() {
  SourceInfo source;
  source.source = 3;
  source.name = "train";
  source.part = "inputs";
  source.file = "a,b.csv";
  source.columns = "0,1,2";
  source.first_sample = 10;
  source.samples = 5;
  source.first_row = 100;
  return source;
}

// What a batch's numbers lead to stands beside them, and where they lead nowhere, that.
TEST(Export, BatchesHaveThePlacesOfTheirSamples) {
  RunInfo run;
  SyntheticTrace trace(run, {{"scaler.enabled", "\"on\"", SettingKind::scale_enabled, true}});
  trace.sink().add_source(train_source());
  for (const auto& [source, sample] : {std::pair<uint32_t, uint64_t>{3, 12}, {3, 15}, {99, 0}})
    trace.sink().add_batch({0, 0, Phase::evaluation, source, sample});
  trace.end_step();
  const Snapshot reader = trace.read();
  const Json rows = Json::parse(exported(reader, "batches", ExportFormat::json));
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["phase"], "evaluation");
  EXPECT_EQ(rows[0]["sample"], 12);
  EXPECT_EQ(rows[0]["place"], "sample 12 of train: inputs in a,b.csv, row 102 (from 0), columns 0 to 2");
  EXPECT_EQ(rows[1]["place"], "sample 15 of train: this source does not have it, the last of its samples is 14");
  EXPECT_EQ(rows[2]["place"], "sample 0 of source 99: the trace does not have this source");
  EXPECT_EQ(exported(reader, "batches", ExportFormat::csv),
            "step,micro_batch,phase,source,sample,place\n"
            "0,0,evaluation,3,12,\"sample 12 of train: inputs in a,b.csv, row 102 (from 0), columns 0 to 2\"\n"
            "0,0,evaluation,3,15,\"sample 15 of train: this source does not have it, the last of its samples is 14\"\n"
            "0,0,evaluation,99,0,sample 0 of source 99: the trace does not have this source\n");
  EXPECT_EQ(exported(reader, "settings", ExportFormat::csv),
            "name,value,kind,given\nscaler.enabled,\"\"\"on\"\"\",scale_enabled,true\n");
  EXPECT_EQ(exported(reader, "sources", ExportFormat::csv),
            "source,name,part,file,inside,columns,first_sample,samples,first_row,row_step,first_byte,byte_step\n"
            "3,train,inputs,\"a,b.csv\",,\"0,1,2\",10,5,100,1,,\n");
}

// A table without rows has a header still, and says what its columns are.
TEST(Export, EmptyTablesHaveTheirColumns) {
  SyntheticTrace trace(RunInfo(), {});
  const Snapshot reader = trace.read();
  for (const std::string& table : export_tables()) {
    if (table == "run") continue;
    EXPECT_THAT(Json::parse(exported(reader, table, ExportFormat::json)), IsEmpty()) << table;
    const std::string csv = exported(reader, table, ExportFormat::csv);
    EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1) << table;
    EXPECT_THAT(csv, HasSubstr(table == "ops" || table == "tensors" ? "index,"
                               : table == "edges"                   ? "graph,"
                               : table == "settings"                ? "name,"
                               : table == "sources"                 ? "source,"
                               : table == "products"                ? "product,"
                                                                    : "step,"));
  }
}

TEST(Export, UnknownStatisticsAreEmpty) {
  SyntheticTrace trace;
  const uint32_t tensor = trace.add_tensor("a", "linear", Phase::forward, Role::activation, DType::f16);
  trace.add(tensor, make_health_row({1e-9, 1.0}, DType::f16));
  trace.add(tensor, make_stored_row({1.0}, DType::f16));
  trace.add(tensor, TensorRow{});
  trace.end_step();
  const Json rows = Json::parse(exported(trace.read(), "stats", ExportFormat::json));
  EXPECT_EQ(rows[0]["flushed"], 1);
  EXPECT_TRUE(rows[0]["largest"].is_null());
  EXPECT_TRUE(rows[0]["histogram"].is_null());
  EXPECT_EQ(rows[1]["largest"], 1.0);
  EXPECT_TRUE(rows[1]["flushed"].is_null());
  EXPECT_TRUE(rows[2]["count"].is_null());
}

TEST(Export, StopsWhenNobodyReads) {
  SyntheticTrace trace;
  for (int step = 0; step < 5000; ++step) trace.end_step();
  const Snapshot reader = trace.read();
  size_t pieces = 0;
  export_table(reader, "steps", ExportFormat::csv, {}, [&](std::string_view) {
    ++pieces;
    return false;
  });
  EXPECT_EQ(pieces, 1u);
  EXPECT_THROW(exported(reader, "stpes", ExportFormat::csv), Error);
}

}  // namespace
}  // namespace ulpscope::analyzers_test
