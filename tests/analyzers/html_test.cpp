// Reports as HTML, read back by a parser that did not write them.
#include "ulpscope/analyzers/report/html.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/support/project_files.h"
#include "tests/support/python.h"
#include "tests/support/said.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/base/text.h"

namespace ulpscope::analyzers_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Json = nlohmann::json;

// What the reader of the document finds in it. Faults fail the test.
Json read_back(const std::string& html) {
  const std::string python = find_python("xml.etree.ElementTree");
  if (python.empty()) throw std::runtime_error("no python3");
  const TemporaryFolder folder;
  const std::string page = folder.file("report.html"), found = folder.file("found.json"), faults = folder.file("faults");
  write_file(page, html);
  const int status = std::system(
      fmt::format("{} {} {} > {} 2> {}", python, project_file("tests/analyzers/read_html.py"), page, found, faults).c_str());
  EXPECT_EQ(WEXITSTATUS(status), 0) << read_file(faults).substr(0, 3000);
  return Json::parse(read_file(found));
}

Plot exponents_over_steps() {
  Plot plot{"exponents", "Exponents over steps", PlotKind::heatmap, {"step", Unit::count}, {"elements", Unit::count}};
  plot.rows = {"exponent", Unit::exponent};
  plot.first_exponent = -26;
  plot.x_end = 20;
  plot.limits = {{"flushed below", -25}};
  plot.series = {{"2^-26", {}, {0, 10}, {0, 1}}, {"2^-25", {}, {0, 10}, {100, NAN}}, {"2^-24", {}, {0, 10}, {7, 100}}};
  return plot;
}

// With something of everything that a report can hold; `text` is in every place that text comes from.
Report full_report(const std::string& text = "name") {
  Report report;
  report.analysis = "sample";
  report.title = "A sample of " + text;
  report.sources = {{"run.h5" + text, "0123" + text, 0}, {"other.h5", "", 3}};
  report.verdict = Verdict::broken;
  report.verdict_text = said("It broke: " + text);
  report.add_fact("final_loss", NAN);
  report.add_fact("first_part", 0.015, Unit::share);
  report.add_fact("module", text);
  RowKey key;
  key.step = 3;
  key.name = text;
  report.findings = {
      {"a.cause",
       Severity::error,
       said("Cause " + text),
       {{key, {{"share", 0.015, Unit::share}, {"of", text}}}},
       said("Do `less` " + text)},
      {"a.consequence", Severity::warning, said("Consequence " + text), {{key, {}}}, {}},
      {"another." + text, Severity::warning, said("Another one"), {}, {}},
      {"a.note", Severity::info, said("A note"), std::vector<Evidence>(9, {key, {{"flushed_part", 1e-9, Unit::share}}}), {}}};
  report.causes = {{0, {1}}};
  Table table{"numbers", "Numbers " + text, {{"tensor", ColumnKind::text}, {"whole_text", ColumnKind::text}}, {},
              2,         "Note " + text};
  for (const Unit unit :
       {Unit::none, Unit::count, Unit::share, Unit::bits, Unit::exponent, Unit::bytes, Unit::seconds, Unit::ratio})
    table.columns.push_back({name_of(unit), ColumnKind::number, unit});
  for (const Cell& cell : {Cell(0.0), Cell(1e-9), Cell(0.123456789), Cell(int64_t{123456}), Cell(-INFINITY), Cell(NAN),
                           Cell(Unknown{}), Cell(NotApplicable{}), Cell(Interval{0.25, 0.5}), Cell(Interval{0.25, INFINITY})}) {
    TableRow row{key, {text, LongText{"whole " + text, "brief " + text}}};
    row.cells.resize(table.columns.size(), cell);
    table.rows.push_back(row);
  }
  report.tables.push_back(table);

  Plot histogram{"exponents", "Histogram " + text, PlotKind::histogram, {"exponent", Unit::exponent}, {"elements", Unit::count}};
  histogram.limits = {{"subnormal", -25}, {"normal" + text, -14}, {"overflow", 16}};
  histogram.series.push_back({"one " + text, key, {-30, -20, 0, 16}, {1, 1000, 50, 2}, 3, 4});
  Plot steps{"loss", "Steps " + text, PlotKind::steps, {"step" + text}, {"loss", Unit::none}};
  steps.series = {{"loss " + text, key, {0, 1, 2, 5}, {2.3456789, 1.5, NAN, 0.1}}, {"other", {}, {0, 3}, {1, INFINITY}}};
  steps.marks = {{1, 1, "mark " + text, Severity::warning}, {2, 4, "band " + text, Severity::error}};
  Plot heat{"flushed", "Heat " + text, PlotKind::heatmap, {"step", Unit::count}, {"flushed", Unit::share}};
  heat.rows = {"tensor" + text, Unit::none};
  heat.series = {{"first " + text, key, {0, 1, 2}, {0.5, 0.25, NAN}}, {"second", key, {0, 1, 2}, {0, 0, 1e-9}}};
  Plot graph{"way", "Graph " + text, PlotKind::graph};
  graph.nodes = {{"scores " + text, "70000 " + text, key, true}, {"weights", "", {}, false}, {"softmax", "NaN", {}, true}};
  graph.links = {{0, 2, true}, {1, 2, false}};
  report.plots = {histogram, steps, heat, exponents_over_steps(), graph};
  return report;
}

// Runs of places in a list of texts, one by one: "1*2 0" of "a|b" is b, b, a.
std::vector<std::string> decoded(const std::string& runs, const std::string& texts) {
  std::vector<std::string> all{""}, cells;
  for (const char c : texts) c == '|' ? static_cast<void>(all.emplace_back()) : all.back().push_back(c);
  for (std::istringstream words(runs); words;) {
    std::string run;
    if (!(words >> run)) break;
    const size_t star = run.find('*');
    const size_t count = star == std::string::npos ? 1 : std::stoul(run.substr(star + 1));
    for (size_t i = 0; i < count; ++i) cells.push_back(all.at(std::stoul(run)));
  }
  return cells;
}

TEST(HtmlRenderer, HoldsTheWholeReport) {
  const Json page = read_back(render_html(full_report()));
  EXPECT_EQ(page["title"], "BROKEN: A sample of name");
  EXPECT_EQ(page["metas"]["charset"], "utf-8");
  EXPECT_TRUE(page["metas"].contains("viewport"));
  EXPECT_THAT(page["metas"]["generator"].get<std::string>(), StartsWith("ulpscope 0."));
  ASSERT_THAT(page["verdict"], SizeIs(1));
  EXPECT_THAT(page["verdict"][0].get<std::string>(), AllOf(HasSubstr("BROKEN"), HasSubstr("It broke: name")));
  EXPECT_EQ(page["facts"]["final loss"], "NaN");
  EXPECT_EQ(page["facts"]["first part"], "1.5%");
  ASSERT_THAT(page["findings"], SizeIs(4));
  // What came of the cause is folded into it.
  EXPECT_THAT(page["findings"][0]["text"].get<std::string>(),
              AllOf(HasSubstr("Cause name"), HasSubstr("Do less name"), HasSubstr("share 1.5%"), HasSubstr("name, step 3"),
                    HasSubstr("Consequence name"), HasSubstr("then: 1 finding"), HasSubstr("a.cause")));
  EXPECT_EQ(page["findings"][0]["folded"], 1);
  const std::string text = page["text"];
  EXPECT_LT(text.find("It broke"), text.find("Cause name")) << "the verdict is first";
  EXPECT_THAT(text, AllOf(HasSubstr("1 note"), HasSubstr("5 more"), HasSubstr("flushed part <0.01%"), HasSubstr("run.h5"),
                          HasSubstr("rank 3"), HasSubstr("Made by ulpscope 0.")));
  EXPECT_THAT(page["tables"], SizeIs(1));
  EXPECT_THAT(page["plots"], SizeIs(5));
  EXPECT_EQ(page["tags"]["button"], 1) << "and what does nothing without a script is not there without one";
  EXPECT_FALSE(page["tags"].contains("input"));
  EXPECT_EQ(render_html(full_report()), render_html(full_report()));
}

TEST(HtmlRenderer, NumbersAreThoseOfTheTextRenderer) {
  const Report report = full_report();
  const Json page = read_back(render_html(report));
  const Table& table = report.tables[0];
  const Json& rows = page["tables"][0]["rows"];
  ASSERT_EQ(rows.size(), table.rows.size() + 1);
  for (size_t i = 0; i < table.rows.size(); ++i) {
    for (size_t j = 0; j < table.columns.size(); ++j) {
      const std::string expected = j == 1 ? "brief namewhole name" : cell_text(table.rows[i].cells[j], table.columns[j].unit);
      EXPECT_EQ(rows[i + 1][j], expected) << i << " " << j;
    }
  }
  EXPECT_EQ(page["tables"][0]["values"][2][4], "1e-09") << "what is exact stands beside what is rounded";
  EXPECT_THAT(page["tables"][0]["left_out"][0].get<std::string>(), HasSubstr("and 2 rows more: --limit 0 --json has all"));
  EXPECT_EQ(page["plots"][1]["lines"][1]["data-t"], "2.346|1.5|NaN|0.1");
  EXPECT_EQ(page["plots"][1]["lines"][1]["data-x"], "0|1|2|5");
}

TEST(HtmlRenderer, TextStaysText) {
  const std::string evil =
      "<script>alert(1)</script>\"'>&lt;]]>-->" + std::string("\0\x01\n", 3) + "\xFF\xC0\xEF\xBF\xBF</style><b";
  const std::string shown = "<script>alert(1)</script>\"'>&lt;]]>-->\\u0000\\u0001\\u000A\uFFFD\uFFFD\uFFFD</style><b";
  const Json plain = read_back(render_html(full_report())), page = read_back(render_html(full_report(evil)));
  EXPECT_EQ(page["tags"], plain["tags"]) << "no text makes an element";
  EXPECT_EQ(page["title"], "BROKEN: A sample of " + shown);
  EXPECT_EQ(page["facts"]["module"], shown);
  EXPECT_EQ(page["tables"][0]["rows"][1][0], shown);
  EXPECT_EQ(page["tables"][0]["title"], "Numbers " + shown);
  EXPECT_EQ(page["plots"][0]["bars"][0]["aria-label"], "one " + shown);
  EXPECT_THAT(page["plots"][0]["text"].get<std::string>(), HasSubstr("normal" + shown));
  EXPECT_EQ(page["plots"][1]["lines"][1]["data-name"], "loss " + shown);
  EXPECT_THAT(page["plots"][1]["text"].get<std::string>(), AllOf(HasSubstr("mark " + shown), HasSubstr("band " + shown)));
  EXPECT_THAT(page["plots"][2]["names"], Contains("first " + shown)) << "whole";
  EXPECT_THAT(page["plots"][4]["nodes"][0]["title"].get<std::string>(), HasSubstr("70000 " + shown));
  for (const char* of : {"It broke: ", "Cause ", "Do less ", "Consequence ", "another.", "brief ", "whole ", "Note ", "run.h5"})
    EXPECT_THAT(page["text"].get<std::string>(), HasSubstr(of + shown));
  EXPECT_THAT(page["findings"][0]["text"].get<std::string>(), HasSubstr("of " + shown));
}

TEST(HtmlRenderer, HistogramsHaveTheirCountsAndLimits) {
  const Json plot = read_back(render_html(full_report()))["plots"][0];
  ASSERT_THAT(plot["bars"], SizeIs(1));
  std::vector<std::string> counts;
  for (std::istringstream words(plot["bars"][0]["data-v"].get<std::string>()); words;)
    if (std::string word; words >> word) counts.push_back(word);
  const int first = std::stoi(plot["named"][0]["data-first"].get<std::string>());
  EXPECT_EQ(counts.at(-30 - first), "1");
  EXPECT_EQ(counts.at(-20 - first), "1000");
  EXPECT_EQ(counts.at(16 - first), "2");
  EXPECT_EQ(counts.at(15 - first), "0");
  EXPECT_THAT(plot["text"].get<std::string>(),
              AllOf(HasSubstr("subnormal from 2^-25 on"), HasSubstr("3 below all exponents"), HasSubstr("4 above all exponents")));
}

TEST(HtmlRenderer, StepsHaveMarksBandsAndWhatIsNotFinite) {
  const std::string html = render_html(full_report());
  const Json plot = read_back(html)["plots"][1];
  EXPECT_THAT(plot["lines"], SizeIs(2));
  EXPECT_EQ(plot["marks"], 1);
  EXPECT_EQ(plot["bands"], 1);
  EXPECT_THAT(plot["text"].get<std::string>(), HasSubstr("NaN or Inf"));
  EXPECT_THAT(html, HasSubstr("<path class=\"nonfinite\""));
}

// Each cell is the text of its number; of exponents the highest row is on top, and each limit a line.
TEST(HtmlRenderer, HeatmapsHaveTheNumbersOfTheirCells) {
  const Json page = read_back(render_html(full_report()));
  const Json& named = page["plots"][2];
  ASSERT_THAT(named["cells"], SizeIs(2));
  const std::string texts = named["named"][0]["data-texts"];
  EXPECT_THAT(decoded(named["cells"][0]["data-v"], texts), ElementsAre("50%", "25%", ""));
  EXPECT_THAT(decoded(named["cells"][1]["data-v"], texts), ElementsAre("0%", "0%", "<0.01%"));
  const Json& grid = page["plots"][3]["grid"][0];
  const std::string rows = grid["data-v"], of_grid = grid["data-texts"];
  EXPECT_EQ(std::count(rows.begin(), rows.end(), ';'), 2);
  EXPECT_EQ(grid["data-top"], "-24");
  EXPECT_THAT(decoded(rows.substr(0, rows.find(';')), of_grid), ElementsAre("7", "100"));
  EXPECT_THAT(decoded(rows.substr(rows.rfind(';') + 1), of_grid), ElementsAre("0", "1"));
  EXPECT_EQ(page["plots"][3]["limits"], 1);
}

TEST(HtmlRenderer, HeatmapsStaySmallAndKeepTheWorst) {
  Plot plot{"flushed", "Heat", PlotKind::heatmap, {"step", Unit::count}, {"flushed", Unit::share}};
  for (int row = 0; row < 300; ++row) {
    Series& series = plot.series.emplace_back();
    series.name = fmt::format("row {}", row);
    for (int x = 0; x < 1000; ++x) {
      series.x.push_back(x);
      series.y.push_back(x == 501 ? 0.75 : 0.125);
    }
  }
  Report report;
  report.plots = {plot};
  const Json page = read_back(render_html(report))["plots"][0];
  ASSERT_THAT(page["cells"], SizeIs(202));
  EXPECT_THAT(page["text"].get<std::string>(),
              AllOf(HasSubstr("and 98 rows more that are not drawn"), HasSubstr("largest of 4 columns")));
  const auto cells = decoded(page["cells"][0]["data-v"], page["named"][0]["data-texts"]);
  ASSERT_THAT(cells, SizeIs(250));
  EXPECT_EQ(cells[501 / 4], "75%");
  EXPECT_EQ(cells[501 / 4 + 1], "12.5%");
  // Counts add up, as in the window.
  Plot counts = plot;
  for (Series& series : counts.series) std::fill(series.y.begin(), series.y.end(), 3);
  counts.y = {"elements", Unit::count};
  report.plots = {counts};
  const Json counted = read_back(render_html(report))["plots"][0];
  EXPECT_THAT(counted["text"].get<std::string>(), HasSubstr("sum of 4 columns"));
  EXPECT_EQ(decoded(counted["cells"][0]["data-v"], counted["named"][0]["data-texts"])[0], "12");
  // Of headroom the least is the worst.
  for (Series& series : plot.series)
    for (double& y : series.y) y = y == 0.75 ? -3 : 8;
  plot.y = {"headroom", Unit::bits};
  report.plots = {plot};
  const Json headroom = read_back(render_html(report))["plots"][0];
  EXPECT_EQ(decoded(headroom["cells"][0]["data-v"], headroom["named"][0]["data-texts"]).at(501 / 4), "-3.0");
}

TEST(HtmlRenderer, GraphsLeadDownwards) {
  Report report = full_report();
  Plot& graph = report.plots[4];
  graph.links.push_back({2, 0, false});   // one that leads back
  graph.links.push_back({0, 99, false});  // and one that leads nowhere
  const Json plot = read_back(render_html(report))["plots"][4];
  ASSERT_THAT(plot["nodes"], SizeIs(3));
  EXPECT_EQ(plot["links"], 3);
  EXPECT_LT(plot["nodes"][0]["y"], plot["nodes"][2]["y"]);
  EXPECT_EQ(plot["nodes"][0]["y"], plot["nodes"][1]["y"]);
  EXPECT_LT(plot["nodes"][0]["x"], plot["nodes"][1]["x"]) << "the marked one first";
  EXPECT_TRUE(plot["nodes"][0]["marked"]);
  EXPECT_FALSE(plot["nodes"][1]["marked"]);
  EXPECT_THAT(plot["text"].get<std::string>(), HasSubstr("from scores name, weights"));
}

TEST(HtmlRenderer, WhereNothingIsItSaysSo) {
  Report report;
  report.title = "Nothing";
  EXPECT_THAT(read_back(render_html(report))["findings"], IsEmpty());
  report.tables = {{"empty", "Empty", {{"a"}}, {}, 0, ""}};
  for (const PlotKind kind : {PlotKind::histogram, PlotKind::steps, PlotKind::heatmap, PlotKind::graph}) {
    Plot plot{"p", "Plot", kind};
    report.plots.push_back(plot);
    plot.series = {{"without points", {}, {}, {}}};
    plot.rows = {"exponent", Unit::exponent};
    report.plots.push_back(plot);
    plot.series = {{"one point", {}, {3}, {2}}, {"nothing known", {}, {3}, {NAN}}, {"no end", {}, {3}, {INFINITY}}};
    report.plots.push_back(plot);
  }
  report.complete = false;
  const Json page = read_back(render_html(report));
  EXPECT_THAT(page["text"].get<std::string>(), AllOf(HasSubstr("Stopped early"), HasSubstr("none")));
  for (size_t i = 0; i < page["plots"].size(); i += 3)
    EXPECT_THAT(page["plots"][i]["text"].get<std::string>(), HasSubstr("no values")) << i;
  EXPECT_THAT(page["plots"][5]["lines"], SizeIs(3));
}

TEST(HtmlRenderer, TablesOfSeveralLossScalesHaveASlider) {
  Report report;
  Table table{"what_if", "What if", {{"tensor", ColumnKind::text}, {"scale", ColumnKind::number, Unit::scale}}, {}, 0, ""};
  for (const double scale : {1.0, 1024.0, 1024.0, 65536.0}) table.rows.push_back({{}, {std::string("t"), scale}});
  report.tables = {table};
  EXPECT_EQ(read_back(render_html(report))["tables"][0]["scale_column"], "1");
  report.tables[0].rows.pop_back();
  EXPECT_TRUE(read_back(render_html(report))["tables"][0]["scale_column"].is_null()) << "two need none";
}

// A scale for each of several formats is an answer, no choice.
TEST(HtmlRenderer, ScalesOfSeveralNamesHaveNoSlider) {
  Report report;
  Table table{"best", "Best", {{"format", ColumnKind::text}, {"scale", ColumnKind::number, Unit::scale}}, {}, 0, ""};
  for (const auto& [format, scale] : {std::pair{"fp16", 16.0}, {"bf16", 1.0}, {"e4m3", 256.0}})
    table.rows.push_back({{}, {std::string(format), scale}});
  report.tables = {table};
  EXPECT_TRUE(read_back(render_html(report))["tables"][0]["scale_column"].is_null());
}

// More of everything than fits, with names that have no end.
TEST(HtmlRenderer, IsNeverTooLarge) {
  Report report = full_report("<" + std::string(1000, '"'));
  const Table table = report.tables[0];
  report.tables.resize(120, table);
  report.tables[0].rows.resize(20000, full_report().tables[0].rows[1]);
  report.findings.resize(1000, report.findings[3]);
  for (size_t i = 4; i < report.findings.size(); ++i) report.causes.push_back({i, {1, 2}});
  report.facts.resize(3000, report.facts[2]);
  report.sources.resize(3000, report.sources[0]);
  const std::vector<Plot> plots = report.plots;
  for (size_t i = 0; i < 100; ++i) {
    Plot plot = plots[i % plots.size()];
    plot.nodes.resize(plot.nodes.empty() ? 0 : 600, plots[4].nodes[0]);
    plot.marks.resize(600, plots[1].marks[0]);
    if (!plot.series.empty()) plot.series.resize(250, Series(plot.series[0]));
    for (Series& series : plot.series) {
      for (int x = 0; x < 2000; ++x) {
        series.x.push_back(plot.kind == PlotKind::histogram ? x % 2000 - 1000 : 10 + x);
        series.y.push_back(0.123456789 * ((x * 7919) % 1009));
      }
    }
    report.plots.push_back(plot);
  }
  const std::string html = render_html(report);
  EXPECT_LE(html.size(), kMostHtmlBytes);
  const Json page = read_back(html);
  EXPECT_THAT(page["text"].get<std::string>(),
              AllOf(HasSubstr("facts more"), HasSubstr("causes more"), HasSubstr("sources more"), HasSubstr("tables more"),
                    HasSubstr("There is no room for this picture"), HasSubstr("pictures more that are not drawn")));
  const Json& first = page["tables"][0];
  const size_t left_out = 20000 - (first["rows"].size() - 1) + 2;
  EXPECT_THAT(first["left_out"][0].get<std::string>(), HasSubstr(fmt::format("and {} more", count_of(left_out, "row"))));
}

// In a browser, where there is one: nothing violates the policy, and the script sorts, filters and answers the pointer.
class HtmlInBrowser : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v chromium >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no chromium";
  }
  // What the steps in JavaScript return, done in the page as `document` and `window`, and what the browser complained of.
  std::pair<Json, std::string> run(const std::string& html, const std::string& steps) {
    write_file(folder_.file("report.html"), html);
    write_file(folder_.file("harness.html"),
               "<!DOCTYPE html><iframe width=1200 height=900 src=report.html></iframe><pre></pre><script>"
               "onload = () => { const inside = document.querySelector('iframe').contentWindow;"
               "const act = (window, document) => {" +
                   steps +
                   "}; let found; try { found = act(inside, inside.document); } catch (e) { found = String(e); }"
                   "document.querySelector('pre').textContent = 'FOUND' + encodeURIComponent(JSON.stringify("
                   "found)) + 'DNUOF'; };</script>");
    const std::string out = folder_.file("out"), complaints = folder_.file("complaints");
    const int status = std::system(fmt::format("HOME={0} timeout 60 chromium --headless --no-sandbox --disable-gpu "
                                               "--allow-file-access-from-files --virtual-time-budget=3000 --enable-logging=stderr "
                                               "--user-data-dir={0}/profile --dump-dom file://{0}/harness.html > {1} 2> {2}",
                                               folder_.path(), out, complaints)
                                       .c_str());
    EXPECT_EQ(WEXITSTATUS(status), 0) << read_file(complaints).substr(0, 2000);
    const std::string dom = read_file(out);
    const size_t begin = dom.find("<pre>FOUND"), end = dom.find("DNUOF</pre>");
    if (begin == std::string::npos || end == std::string::npos) return {Json(), read_file(complaints)};
    std::string text;
    for (size_t i = begin + 10; i < end; ++i) {
      if (dom[i] == '%') {
        text += static_cast<char>(std::stoi(dom.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else {
        text += dom[i];
      }
    }
    return {Json::parse(text), read_file(complaints)};
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(HtmlInBrowser, TheScriptRunsAndNothingElse) {
  Report report = full_report();
  Table& table = report.tables[0];
  table.rows.clear();
  for (const double share : {0.5, 0.001, 0.25}) {
    TableRow row{{}, {fmt::format("tensor {}", share), std::string("x")}};
    row.cells.resize(table.columns.size(), share);
    table.rows.push_back(row);
  }
  table.rows.push_back(table.rows[0]);
  for (size_t j = 2; j < table.columns.size(); ++j) table.rows[3].cells[j] = Unknown{};
  Table what_if{"what_if", "What if", {{"tensor", ColumnKind::text}, {"scale", ColumnKind::number, Unit::scale}}, {}, 0, ""};
  for (const char* tensor : {"t", "u"})
    for (const double scale : {1.0, 1024.0, 65536.0}) what_if.rows.push_back({{}, {std::string(tensor), scale}});
  report.tables.push_back(what_if);
  const std::string steps = R"(
    const shown = (card) => [...card.querySelectorAll('tbody tr')].filter((row) => row.getClientRects().length > 0);
    const [numbers, scales] = document.querySelectorAll('.card.table');
    const share = numbers.querySelectorAll('thead th')[4], column = () => shown(numbers).map((row) => row.cells[4].textContent);
    const found = {script: document.documentElement.className, style: window.getComputedStyle(document.body).marginTop};
    share.querySelector('button').click();
    found.descending = column(); found.way = share.getAttribute('aria-sort');
    share.querySelector('button').click();
    found.ascending = column();
    found.scales = shown(scales).length;
    const slider = scales.querySelector('input[type=range]');
    slider.value = 2; slider.dispatchEvent(new window.Event('input'));
    const texts = () => shown(scales).map((row) => row.cells[0].textContent + ' ' + row.cells[1].textContent);
    found.chosen = texts();
    const one = scales.querySelector('select.one');
    one.value = 'u'; one.dispatchEvent(new window.Event('change'));
    found.one = texts();
    [...scales.querySelectorAll('button')].find((button) => button.textContent === 'all scales').click();
    found.one_at_all = texts();
    const area = document.querySelector('.plot.steps .area'), box = area.getBoundingClientRect();
    area.dispatchEvent(new window.PointerEvent('pointermove', {clientX: box.left + box.width * 0.3, clientY: box.top + 5}));
    found.tip = document.querySelector('.tip').textContent;
    const cells = document.querySelector('.cells');
    cells.focus(); cells.dispatchEvent(new window.KeyboardEvent('keydown', {key: 'ArrowLeft'}));
    found.cell = document.querySelector('.tip').textContent;
    document.getElementById('theme').click();
    found.theme = document.documentElement.dataset.theme;
    found.wide = document.documentElement.scrollWidth - window.innerWidth;
    found.title = document.title;
    return found;)";
  const auto [found, complaints] = run(render_html(report), steps);
  ASSERT_TRUE(found.is_object()) << found.dump() << complaints.substr(0, 3000);
  EXPECT_EQ(found["script"], "js");
  EXPECT_EQ(found["style"], "0px") << "the browser's own is 8px";
  EXPECT_EQ(found["descending"], Json({"50%", "25%", "0.1%", "?"}));
  EXPECT_EQ(found["way"], "descending");
  EXPECT_EQ(found["ascending"], Json({"0.1%", "25%", "50%", "?"})) << "what is not known stays last";
  EXPECT_EQ(found["scales"], 2);
  EXPECT_EQ(found["chosen"], Json({"t 2^16", "u 2^16"}));
  EXPECT_EQ(found["one"], Json({"u 2^16"})) << "a tensor is chosen";
  EXPECT_EQ(found["one_at_all"], Json({"u 1", "u 2^10", "u 2^16"}));
  EXPECT_THAT(found["tip"].get<std::string>(), AllOf(HasSubstr("1"), HasSubstr("loss name: 1.5"), HasSubstr("other: 1")));
  EXPECT_THAT(found["cell"].get<std::string>(), AllOf(HasSubstr("first name"), HasSubstr("flushed 50%")));
  EXPECT_THAT(found["theme"].get<std::string>(), ::testing::AnyOf("dark", "light"));
  EXPECT_LE(found["wide"].get<int>(), 0) << "nothing is wider than the window";
  EXPECT_THAT(complaints, Not(HasSubstr("Content Security Policy")));

  // A script that came in by whatever way does not run.
  std::string forged = render_html(report);
  forged.insert(forged.find("</main>"), "<script>document.title = 'forged';</script>");
  const auto [refused, refusal] = run(forged, steps);
  EXPECT_EQ(refused["title"], found["title"]);
  EXPECT_THAT(refusal, HasSubstr("Content Security Policy"));
}

}  // namespace
}  // namespace ulpscope::analyzers_test
