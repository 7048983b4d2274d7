// Reports as text and JSON, and tables as CSV and JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "synthetic_trace.h"
#include "ulpscope/analyzers/export.h"
#include "ulpscope/analyzers/report/json.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/report/text_plot.h"
#include "ulpscope/base/error.h"

namespace ulpscope::analyzers_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
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
  report.findings.push_back(
      {"sample.code", Severity::warning, "Something \"odd\" happened.", {{key, {{"share", 0.015, Unit::share}}}}, "Do less."});
  Table table{"numbers", "Some numbers", {{"name", ColumnKind::text}, {"value", ColumnKind::number, Unit::share}}, {}, 2, "a note"};
  table.rows.push_back({key, {std::string("a rather long name of a tensor somewhere in a model, output 3"), 0.5}});
  table.rows.push_back({key, {std::string("b"), -INFINITY}});
  report.tables.push_back(table);
  Plot plot{"exponents", "Exponents", PlotKind::histogram, {"exponent", Unit::exponent}, {"elements", Unit::count}, {}, {}};
  plot.limits = {{"subnormal", -25}, {"normal", -14}, {"overflow", 16}};
  plot.series.push_back({"first", key, {-30, -20, 0, 16}, {1, 1000, 50, 2}, 0, 0});
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
  report.findings[0].title = "A title of many words that has to be broken into several lines because no terminal is that wide.";
  report.findings[0].code = "c";
  for (const int width : {60, 80, 120}) {
    EXPECT_LE(widest_line(render_text(report, {width, false, true})), static_cast<size_t>(width)) << width;
  }
  EXPECT_THAT(render_text(report, {200, false, true}), HasSubstr("a rather long name of a tensor somewhere in a model, output 3"));
  EXPECT_THAT(render_text(report, {60, false, true}), HasSubstr("output 3"));  // the end of a name says more
}

TEST(TextRenderer, ColoursOnlyWhereAskedTo) {
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
  EXPECT_THAT(render_text(report, {}), Not(HasSubstr("\033")));
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
  EXPECT_EQ(cell_text(65536.0, Unit::scale), "2^16");
  EXPECT_EQ(cell_text(64.0, Unit::scale), "64");
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

std::string exported(const TraceReader& reader, const std::string& table, ExportFormat format) {
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
  element.broke_at = 1;
  element.attributes = "step=2";
  operand.operand = 0;
  operand.overwritten = true;
  trace.sink().add_capture(element);
  trace.sink().add_capture(operand);
  trace.sink().add_sample({0, tensor, 1, -2.0});
  trace.sink().add_measure({0, tensor, "error", 0.125});
  trace.end_step(SyntheticTrace::default_step(NAN));
  StepRow unknown = SyntheticTrace::default_step();
  unknown.loss_known = 0;
  trace.end_step(unknown);
  const TraceReader reader = trace.read();
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
  EXPECT_THAT(csv, HasSubstr("\n0,0,NaN,,1,1,false,,,"));
  EXPECT_THAT(csv, HasSubstr("\n1,0,,,1,1,false,,,"));
  const Json rows = Json::parse(exported(reader, "stats", ExportFormat::json));
  EXPECT_EQ(rows[0]["nan"], 1);
  EXPECT_EQ(rows[0]["histogram"]["first_exponent"], 0);
  EXPECT_EQ(rows[0]["histogram"]["counts"], Json::parse("[1,1]"));
  EXPECT_THAT(exported(reader, "rows", ExportFormat::csv), HasSubstr("\"a,\"\"b\"\"\""));
  EXPECT_THAT(exported(reader, "rows", ExportFormat::csv), HasSubstr("\"0:1,1\""));  // the other name
  const Json events = Json::parse(exported(reader, "events", ExportFormat::json));
  EXPECT_EQ(events[0]["value"], "Infinity");
  EXPECT_EQ(events[0]["text"], "two\nlines");
  EXPECT_TRUE(events[0]["tensor"].is_null());
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
}

TEST(Export, UnknownStatisticsAreEmpty) {
  SyntheticTrace trace;
  const uint32_t tensor = trace.add_tensor("a", "linear", Phase::forward, Role::activation, DType::f16);
  trace.add(tensor, make_health_row({1e-9, 1.0}, DType::f16));
  trace.add(tensor, make_stored_row({1.0}, DType::f16));
  trace.add(tensor, TensorRow{});
  trace.end_step();
  const Json rows = Json::parse(exported(trace.read(), "rows", ExportFormat::json));
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
  const TraceReader reader = trace.read();
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
