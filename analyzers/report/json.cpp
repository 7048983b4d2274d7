#include "ulpscope/analyzers/report/json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace ulpscope {

namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

struct CellToJson {
  Json operator()(Unknown) const { return nullptr; }
  Json operator()(NotApplicable) const { return nullptr; }
  Json operator()(bool value) const { return value; }
  Json operator()(int64_t value) const { return value; }
  Json operator()(double value) const { return number(value); }
  Json operator()(const Interval& value) const { return {{"lower", number(value.lower)}, {"upper", number(value.upper)}}; }
  Json operator()(const std::string& value) const { return value; }
  Json operator()(const LongText& value) const { return value.text; }
};

Json cell_json(const Cell& cell) { return std::visit(CellToJson(), cell); }

Json key_json(const RowKey& key) {
  Json json = Json::object();
  if (!key.run.empty()) json["run"] = key.run;
  if (key.rank) json["rank"] = *key.rank;
  if (key.step) json["step"] = *key.step;
  if (key.micro_batch) json["micro_batch"] = *key.micro_batch;
  if (key.loss_index) json["loss_index"] = *key.loss_index;
  if (!key.phase.empty()) json["phase"] = key.phase;
  if (key.op) json["op"] = fmt::format("{:016x}", *key.op);
  if (!key.op_name.empty()) json["op_name"] = key.op_name;
  if (!key.location.empty()) json["location"] = key.location;
  if (!key.module.empty()) json["module"] = key.module;
  if (key.slot) json["slot"] = *key.slot;
  if (!key.role.empty()) json["role"] = key.role;
  if (!key.parameter.empty()) json["parameter"] = key.parameter;
  if (key.element) json["element"] = *key.element;
  if (!key.name.empty()) json["name"] = key.name;
  return json;
}

Json change_json(const SettingChange& change) {
  Json json{{"setting", change.name.empty() ? name_of(change.kind) : change.name}, {"way", name_of(change.way)}};
  if (change.way == SettingChange::Way::set) json["value"] = change.value;
  if (!change.module.empty()) json["module"] = change.module;
  if (change.now) json["now"] = number(*change.now);
  return json;
}

Json sentence_json(const Sentence& sentence);

Json value_json(const Value& value) {
  if (const auto* const number = value.find<Value::Number>())
    return {{"value", cell_json(number->cell)}, {"unit", name_of(number->unit)}};
  if (const auto* const name = value.find<Name>()) return {{name_of(name->kind), name->text}};
  if (const auto* const setting = value.find<Setting>()) {
    Json json{{"setting", setting->name}};
    if (!setting->now.empty()) json["now"] = setting->now;
    if (!setting->is.empty()) json["is"] = setting->is;
    if (!setting->to.empty()) json["to"] = setting->to;
    return json;
  }
  if (const auto* const list = value.find<Value::List>()) {
    Json json = Json::array();
    for (const Value& each : *list) json.push_back(value_json(each));
    return json;
  }
  if (const auto* const phrase = value.find<Value::Phrase>()) return sentence_json(phrase->front());
  return nullptr;
}

Json sentence_json(const Sentence& sentence) {
  Json json{{"id", sentence.id()}, {"text", sentence.text()}, {"values", Json::object()}};
  for (const Argument& argument : sentence.arguments()) json["values"][std::string(argument.name)] = value_json(argument.value);
  return json;
}

Json sentences_json(const Sentences& sentences) {
  Json json = Json::array();
  for (const Sentence& each : sentences) json.push_back(sentence_json(each));
  return json;
}

Json snippets_json(const std::vector<Snippet>& snippets) {
  Json json = Json::array();
  for (const Snippet& snippet : snippets) json.push_back({{"does", snippet.does}, {"code", snippet.code}});
  return json;
}

Json finding_json(const Finding& finding) {
  Json json{{"code", finding.code}, {"severity", name_of(finding.severity)}, {"title", finding.title.text()}};
  json["title_sentences"] = sentences_json(finding.title);
  json["evidence"] = Json::array();
  for (const Evidence& evidence : finding.evidence) {
    Json values = Json::object();
    for (const Quantity& quantity : evidence.values) {
      values[quantity.name] = {{"value", cell_json(quantity.value)}, {"unit", name_of(quantity.unit)}};
    }
    json["evidence"].push_back({{"key", key_json(evidence.key)}, {"values", std::move(values)}});
  }
  json["suggestion"] = finding.suggestion.text();
  json["suggestion_sentences"] = sentences_json(finding.suggestion);
  json["changes"] = Json::array();
  for (const SettingChange& change : finding.changes) json["changes"].push_back(change_json(change));
  json["snippets"] = snippets_json(finding.snippets);
  return json;
}

// What a reader asks first of a cause: where and when it was, how much, and what to do.
Json cause_json(const Report& report, const Cause& cause) {
  const Finding& finding = report.findings[cause.finding];
  Json json{{"code", finding.code}, {"severity", name_of(finding.severity)}, {"title", finding.title.text()}};
  const Evidence none, &worst = finding.evidence.empty() ? none : finding.evidence.front();
  json["module"] = finding.module;
  json["op"] = worst.key.op_name;
  json["location"] = worst.key.location;
  json["step"] = finding.extent.first_step ? Json(*finding.extent.first_step) : worst.key.step ? Json(*worst.key.step) : Json();
  json["steps"] = finding.extent.steps ? Json(*finding.extent.steps) : Json();
  json["value"] = Json::object();
  const Quantity* const value = finding.extent.value   ? &*finding.extent.value
                                : worst.values.empty() ? nullptr
                                                       : &worst.values.front();
  if (value != nullptr) json["value"] = {{"name", value->name}, {"value", cell_json(value->value)}, {"unit", name_of(value->unit)}};
  json["advice"] = finding.suggestion.text();
  json["snippets"] = snippets_json(finding.snippets);
  json["consequences"] = Json::array();
  for (const size_t i : cause.consequences) json["consequences"].push_back(report.findings[i].code);
  return json;
}

Json table_json(const Table& table) {
  static constexpr const char* kKinds[] = {"text", "number", "flag"};
  Json json{{"name", table.name}, {"title", table.title}};
  json["columns"] = Json::array();
  for (const Column& column : table.columns) {
    json["columns"].push_back(
        {{"name", column.name}, {"kind", kKinds[static_cast<size_t>(column.kind)]}, {"unit", name_of(column.unit)}});
  }
  json["rows"] = Json::array();
  for (const TableRow& row : table.rows) {
    Json values = Json::object();
    for (size_t i = 0; i < row.cells.size(); ++i) values[table.columns[i].name] = cell_json(row.cells[i]);
    json["rows"].push_back({{"key", key_json(row.key)}, {"values", std::move(values)}});
    if (row.unit != Unit::none) json["rows"].back()["unit"] = name_of(row.unit);
  }
  json["rows_left_out"] = table.rows_left_out;
  json["note"] = table.note;
  return json;
}

Json axis_json(const Axis& axis) { return {{"name", axis.name}, {"unit", name_of(axis.unit)}}; }

Json graph_json(const Plot& plot) {
  Json json{{"nodes", Json::array()}, {"links", Json::array()}};
  for (const PlotNode& node : plot.nodes)
    json["nodes"].push_back({{"name", node.name}, {"detail", node.detail}, {"key", key_json(node.key)}, {"marked", node.marked}});
  for (const PlotLink& link : plot.links) json["links"].push_back({{"from", link.from}, {"to", link.to}, {"marked", link.marked}});
  return json;
}

Json series_json(const Series& series, PlotKind kind) {
  Json x = Json::array(), y = Json::array();
  for (const double value : series.x) x.push_back(number(value));
  for (const double value : series.y) y.push_back(kind == PlotKind::heatmap && std::isnan(value) ? Json() : number(value));
  Json json{{"name", series.name}, {"key", key_json(series.key)}, {"x", std::move(x)}, {"y", std::move(y)}};
  if (kind == PlotKind::histogram) {
    json["below"] = number(series.below);
    json["above"] = number(series.above);
  }
  return json;
}

Json plot_json(const Plot& plot) {
  Json json{{"name", plot.name}, {"title", plot.title}, {"kind", name_of(plot.kind)}};
  if (plot.kind == PlotKind::graph) {
    json.update(graph_json(plot));
    return json;
  }
  json["x"] = axis_json(plot.x);
  json["y"] = axis_json(plot.y);
  if (!std::isnan(plot.x_end)) json["x_end"] = number(plot.x_end);
  if (plot.kind == PlotKind::heatmap) {
    json["rows"] = axis_json(plot.rows);
    if (plot.has_exponent_rows()) json["first_exponent"] = plot.first_exponent;
  }
  json["limits"] = Json::array();
  for (const Limit& limit : plot.limits) json["limits"].push_back({{"name", limit.name}, {"exponent", limit.exponent}});
  if (!plot.marks.empty()) json["marks"] = Json::array();
  for (const Mark& mark : plot.marks)
    json["marks"].push_back(
        {{"from", number(mark.from)}, {"to", number(mark.to)}, {"text", mark.text}, {"severity", name_of(mark.severity)}});
  json["series"] = Json::array();
  json["series_left_out"] = plot.series_left_out;
  for (const Series& series : plot.series) json["series"].push_back(series_json(series, plot.kind));
  return json;
}

}  // namespace

std::string render_json(const Report& report) {
  Json json{{"report_version", kReportVersion}, {"analysis", report.analysis}, {"title", report.title}};
  json["sources"] = Json::array();
  for (const ReportSource& source : report.sources) {
    json["sources"].push_back({{"path", source.path}, {"run", source.run}, {"rank", source.rank}});
  }
  json["complete"] = report.complete;
  if (report.verdict) {
    json["verdict"] = name_of(*report.verdict);
    json["verdict_text"] = report.verdict_text.text();
    json["verdict_sentences"] = sentences_json(report.verdict_text);
    json["checked"] = report.checked.text();
    json["checked_sentences"] = sentences_json(report.checked);
    json["causes"] = Json::array();
    for (const Cause& cause : report.causes) json["causes"].push_back(cause_json(report, cause));
  }
  for (const Quantity& fact : report.facts) json[fact.name] = cell_json(fact.value);
  json["findings"] = Json::array();
  for (const Finding& finding : report.findings) json["findings"].push_back(finding_json(finding));
  json["tables"] = Json::array();
  for (const Table& table : report.tables) json["tables"].push_back(table_json(table));
  json["plots"] = Json::array();
  for (const Plot& plot : report.plots)
    if (!plot.only_pictured) json["plots"].push_back(plot_json(plot));
  // Names in a trace may hold any bytes: what is not UTF-8 is replaced.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string verdict_json(const Report& report, uint64_t steps) {
  Json json{{"steps", steps}, {"verdict", name_of(*report.verdict)}, {"verdict_text", report.verdict_text.text()}};
  json["causes"] = Json::array();
  for (const Cause& cause : report.causes) json["causes"].push_back(report.findings[cause.finding].code);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ulpscope
