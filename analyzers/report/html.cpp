#include "ulpscope/analyzers/report/html.h"

#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/analyzers/report/html_parts.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/report/text_layout.h"
#include "ulpscope/base/sha256.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

// Together less than kMostHtmlBytes by what stands around them: the style, the script, headings.
constexpr size_t kFactBytes = 300'000, kFindingBytes = 1'000'000, kPlotBytes = 1'700'000, kTableBytes = 1'800'000;
constexpr size_t kMostSources = 100, kMostEvidence = 50, kShownEvidence = 4, kMostPlots = 60, kMostTables = 100;
constexpr size_t kLongFact = 36;  // characters; a longer one has a line of its own

std::string sources_html(const Report& report, HtmlRoom& room) {
  if (report.sources.empty()) return "";
  std::string html = "<section id=\"sources\">\n<h2>Sources</h2>\n<ul class=\"sources\">\n";
  size_t shown = 0;
  for (const ReportSource& source : report.sources) {
    std::string line = fmt::format("<li><code>{}</code>", html_text(source.path, kMostSentenceBytes));
    if (!source.run.empty()) line += fmt::format(" <span class=\"soft\">run {}</span>", html_text(source.run.substr(0, 8)));
    if (source.rank > 0) line += fmt::format(" <span class=\"soft\">rank {}</span>", source.rank);
    line += "</li>\n";
    if (shown == kMostSources || !room.take(line.size())) break;
    html += line;
    ++shown;
  }
  return html + "</ul>\n" + html_left_out(report.sources.size() - shown, "source") + "</section>\n";
}

std::string facts_html(const Report& report, HtmlRoom& room) {
  if (report.facts.empty()) return "";
  std::string html = "<dl class=\"facts card\">\n";
  size_t shown = 0;
  for (const Quantity& fact : report.facts) {
    const std::string value = cell_text(fact.value, fact.unit);
    const std::string line = fmt::format("<div{}><dt>{}</dt><dd>{}</dd></div>\n", value.size() > kLongFact ? " class=\"wide\"" : "",
                                         html_text(shown_name(fact.name)), html_text(value, kMostSentenceBytes));
    if (!room.take(line.size())) break;
    html += line;
    ++shown;
  }
  return html + "</dl>\n" + html_left_out(report.facts.size() - shown, "fact");
}

std::string evidence_html(const Evidence& evidence) {
  std::string html = "<li>";
  if (const std::string key = key_text(evidence.key); !key.empty())
    html += fmt::format("<span class=\"place\">{}</span> ", html_text(key));
  for (const Quantity& quantity : evidence.values)
    if (!is_no_count(quantity))
      html += fmt::format("<span class=\"value\"><span class=\"soft\">{}</span> {}</span> ", html_text(shown_name(quantity.name)),
                          html_text(cell_text(quantity.value, quantity.unit)));
  return html + "</li>\n";
}

std::string headline_of(const Finding& finding) { return finding.title.empty() ? "" : finding.title.front().text(); }

std::string checked_html(const Report& report) {
  if (report.checked.empty()) return "";
  return fmt::format("<p class=\"checked\">Checked: {}</p>\n", html_sentence(report.checked.text()));
}

std::string snippets_html(const Finding& finding) {
  std::string html;
  for (const Snippet& snippet : finding.snippets) {
    std::vector<std::string> lines;
    for (const std::string& line : printable_lines(snippet.code)) lines.push_back(html_text(line, kMostSentenceBytes));
    html += fmt::format("<pre class=\"snippet\"><code>{}</code></pre>\n", fmt::join(lines, "\n"));
  }
  return html;
}

std::string finding_html(const Finding& finding, const std::string& after) {
  std::string html = fmt::format("<article class=\"finding {0}\">\n<h3><span class=\"severity\">{0}</span> {1}</h3>\n",
                                 name_of(finding.severity), html_sentence(headline_of(finding)));
  if (const std::string rest = finding.title.from(1).text(); !rest.empty())
    html += fmt::format("<p class=\"what-happened\">{}</p>\n", html_sentence(rest));
  if (!finding.suggestion.empty())
    html += fmt::format("<p class=\"advice\"><strong>What to do.</strong> {}</p>\n", html_sentence(finding.suggestion.text()));
  html += snippets_html(finding);
  if (!finding.evidence.empty()) {
    html += "<ul class=\"evidence\">\n";
    const size_t most = std::min(finding.evidence.size(), kMostEvidence), shown = std::min(most, kShownEvidence);
    for (const Evidence& evidence : std::span(finding.evidence).first(shown)) html += evidence_html(evidence);
    html += "</ul>\n";
    if (most > shown) {
      html += fmt::format("<details><summary>{} more</summary>\n<ul class=\"evidence\">\n", finding.evidence.size() - shown);
      for (const Evidence& evidence : std::span(finding.evidence).first(most).subspan(shown)) html += evidence_html(evidence);
      html += "</ul>\n" + html_left_out(finding.evidence.size() - most, "place") + "</details>\n";
    }
  }
  return html + after + fmt::format("<p class=\"code\"><code>{}</code></p>\n</article>\n", html_text(finding.code));
}

// Findings in their order, as long as there is room.
std::string finding_list(const Report& report, const std::vector<size_t>& places, HtmlRoom& room) {
  std::string html;
  for (size_t i = 0; i < places.size(); ++i) {
    const std::string one = finding_html(report.findings[places[i]], "");
    if (!room.take(one.size())) return html + html_left_out(places.size() - i, "finding");
    html += one;
  }
  return html;
}

std::string folded(const std::string& summary, const std::string& inside) {
  return inside.empty() ? "" : fmt::format("<details class=\"folded\"><summary>{}</summary>\n{}</details>\n", summary, inside);
}

// Causes, each with what came of it; then what has no part in the verdict. Without a verdict, all findings.
std::string findings_html(const Report& report, HtmlRoom& room) {
  std::string causes;
  std::vector<bool> told(report.findings.size());
  for (size_t i = 0; i < report.causes.size(); ++i) {
    const Cause& cause = report.causes[i];
    told[cause.finding] = true;
    for (const size_t of_it : cause.consequences) told[of_it] = true;
    std::string after;
    if (!cause.consequences.empty())
      after = folded(fmt::format("then: {}", count_of(cause.consequences.size(), "finding")),
                     finding_list(report, cause.consequences, room));
    const std::string one = finding_html(report.findings[cause.finding], after);
    if (!room.take(one.size())) {
      causes += html_left_out(report.causes.size() - i, "cause");
      break;
    }
    causes += one;
  }
  std::vector<size_t> others, notes;
  for (size_t i = 0; i < report.findings.size(); ++i) {
    if (told[i]) continue;
    (report.verdict && report.findings[i].severity == Severity::info ? notes : others).push_back(i);
  }
  std::string html;
  if (!causes.empty())
    html += fmt::format("<section id=\"causes\">\n<h2>{}</h2>\n{}</section>\n", report.causes.size() == 1 ? "The cause" : "Causes",
                        causes);
  const std::string rest = finding_list(report, others, room) +
                           folded(count_of(notes.size(), "note"), notes.empty() ? "" : finding_list(report, notes, room));
  if (!rest.empty())
    html +=
        fmt::format("<section id=\"findings\">\n<h2>{}</h2>\n{}</section>\n", causes.empty() ? "Findings" : "Other findings", rest);
  return html;
}

std::string pictures_html(const Report& report) {
  if (report.plots.empty()) return "";
  HtmlRoom room(kPlotBytes);
  std::string html = "<section id=\"pictures\">\n<h2>Pictures</h2>\n<div class=\"pictures\">\n";
  const size_t shown = std::min(report.plots.size(), kMostPlots);
  for (size_t i = 0; i < shown; ++i) html += plot_html(report.plots[i], i, room);
  return html + "</div>\n" + html_not_drawn(report.plots.size() - shown, "picture") + "</section>\n";
}

std::string tables_html(const Report& report) {
  if (report.tables.empty()) return "";
  HtmlRoom room(kTableBytes);
  std::string html = "<section id=\"tables\">\n<h2>Tables</h2>\n";
  const size_t shown = std::min(report.tables.size(), kMostTables);
  for (size_t i = 0; i < shown; ++i) html += table_html(report.tables[i], i, room);
  return html + html_left_out(report.tables.size() - shown, "table") + "</section>\n";
}

std::string head_html(const Report& report) {
  // Nothing is fetched, and nothing runs but the style and the script that stand below, by their hashes.
  const std::string policy =
      fmt::format("default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
                  sha256_base64(html_style()), sha256_base64(html_script()));
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<meta name=\"color-scheme\" content=\"light "
      "dark\"/>\n"
      "<meta name=\"generator\" content=\"ulpscope {}\"/>\n<title>{}{}</title>\n<style>{}</style>\n</head>\n",
      policy, ULPSCOPE_VERSION, report.verdict ? std::string(verdict_word(*report.verdict)) + ": " : "", html_text(report.title),
      html_style());
}

std::string bar_html(const Report& report, const std::string& body) {
  std::string html = "<header class=\"bar\">\n<a class=\"brand\" href=\"#top\">ulpscope</a>\n";
  if (report.verdict)
    html += fmt::format("<span class=\"badge {}\">{}</span>\n", name_of(*report.verdict), verdict_word(*report.verdict));
  html += fmt::format("<span class=\"what\">{}</span>\n<nav aria-label=\"Sections\">", html_text(report.title));
  static constexpr std::pair<const char*, const char*> kSections[] = {
      {"causes", "Causes"}, {"findings", "Findings"}, {"pictures", "Pictures"}, {"tables", "Tables"}, {"sources", "Sources"}};
  for (const auto& [id, name] : kSections)
    if (body.find(fmt::format("<section id=\"{}\">", id)) != std::string::npos)
      html += fmt::format("<a href=\"#{}\">{}</a>", id, name);
  return html + "</nav>\n<button type=\"button\" id=\"theme\" class=\"needs-script\">Dark</button>\n</header>\n";
}

}  // namespace

std::string render_html(const Report& report) {
  HtmlRoom facts(kFactBytes), findings(kFindingBytes);
  std::string body = "<main id=\"top\">\n";
  if (report.verdict)
    body += fmt::format("<section class=\"verdict {}\">\n<p class=\"word\">{}</p>\n<p class=\"sentence\">{}</p>\n{}</section>\n",
                        name_of(*report.verdict), verdict_word(*report.verdict), html_sentence(report.verdict_text.text()),
                        checked_html(report));
  body += fmt::format("<h1>{}</h1>\n", html_text(report.title, kMostSentenceBytes));
  if (!report.complete) body += "<p class=\"stopped\">Stopped early: not all rows were read.</p>\n";
  body += facts_html(report, facts) + findings_html(report, findings) + pictures_html(report) + tables_html(report) +
          sources_html(report, facts);
  body += "</main>\n";
  return head_html(report) + "<body>\n" + bar_html(report, body) + body +
         fmt::format("<footer>Made by ulpscope {}: <code>ulpscope {}</code></footer>\n", ULPSCOPE_VERSION,
                     html_text(report.analysis)) +
         fmt::format("<script>{}</script>\n</body>\n</html>\n", html_script());
}

}  // namespace ulpscope
