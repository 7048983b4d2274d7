#include "ulpscope/studies/op_check_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <span>

#include "ulpscope/base/file.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/data/npy_file.h"

namespace ulpscope {

namespace {

using cases::Case;
using cases::HostTensor;

std::span<const WorstElement> shown(const OpCheck& check, size_t limit) {
  return std::span(check.worst).first(limit == 0 ? check.worst.size() : std::min(limit, check.worst.size()));
}

std::string inputs_text(const WorstElement& each) {
  std::vector<std::string> shapes;
  for (const cases::TensorSpec& input : each.of->inputs)
    shapes.push_back(input.shape.empty() ? "a number" : fmt::format("{}", fmt::join(input.shape, " x ")));
  return shapes.empty() ? "none" : fmt::format("{}, {}", name_of(each.input_class), join_words(shapes, "and"));
}

Cell accumulation_cell(const CheckedOp& op) {
  return op.accumulation == nullptr ? Cell(NotApplicable{}) : Cell(std::string(op.accumulation->name));
}

Table worst_table(const OpCheck& check, std::span<const WorstElement> rows) {
  Table table{
      "worst",
      "The largest error over its bound",
      {{"op", ColumnKind::text},
       {"type", ColumnKind::text},
       {"accumulate", ColumnKind::text},
       {"output"},
       {"error_over_bound"},
       {"error_ulps"},
       {"bound_ulps"},
       {"largest_ulps"},
       {"inputs", ColumnKind::text},
       {"element"},
       {"calls", ColumnKind::number, Unit::count},
       {"elements", ColumnKind::number, Unit::count},
       {"unknown", ColumnKind::number, Unit::count}},
      {},
      check.worst.size() - rows.size(),
      "Errors in ulps of the output at the exact value. The largest of all is where terms cancel, and seldom where the bound is "
      "nearest."};
  for (const WorstElement& each : rows) {
    const CheckedOp& op = check.ops[each.op];
    const bool has_any = each.of != nullptr, has_ulps = std::isfinite(each.ulps) && each.error > 0;
    const auto number = [&](Cell value) { return has_any ? std::move(value) : Cell(Unknown{}); };
    table.rows.push_back(
        {{},
         {op.op, std::string(info(op.type).name), accumulation_cell(op), count_cell(each.slot), number(each.over_bound),
          number(each.ulps), has_ulps ? Cell(each.bound.bound * (each.ulps / each.error)) : Cell(NotApplicable{}),
          number(each.largest_ulps), has_any ? Cell(inputs_text(each)) : Cell(Unknown{}),
          number(count_cell(static_cast<uint64_t>(each.element))), count_cell(op.calls), count_cell(each.elements),
          count_cell(each.unknown)}});
  }
  return table;
}

Table bounds_table(const OpCheck& check, std::span<const WorstElement> rows) {
  Table table{"bounds",
              "What the bounds are made of there",
              {{"op", ColumnKind::text},
               {"type", ColumnKind::text},
               {"accumulate", ColumnKind::text},
               {"output"},
               {"element"},
               {"bound"},
               {"before_the_store"},
               {"error"},
               {"stored"},
               {"exact"},
               {"formula", ColumnKind::text}},
              {},
              check.worst.size() - rows.size(),
              "The formula is of the bound before the store, which adds half an ulp of the output's type where that is narrower; "
              "docs/numerics.md derives it (\"Bounds\"). gamma_k(u) = k u / (1 - k u)."};
  for (const WorstElement& each : rows) {
    if (each.of == nullptr) continue;
    const CheckedOp& op = check.ops[each.op];
    const CheckedCall before(op, *each.of, each.inputs);
    std::string formula = bound_formula(before.call(), static_cast<int>(each.slot), each.element);
    table.rows.push_back({{},
                          {op.op, std::string(info(op.type).name), accumulation_cell(op), count_cell(each.slot),
                           count_cell(static_cast<uint64_t>(each.element)), each.bound.bound, each.bound.computed, each.error,
                           each.stored, each.bound.exact, std::move(formula)}});
  }
  return table;
}

void save_array(const std::string& path, const HostTensor& tensor) {
  const TensorView view = tensor.view();
  const auto bytes = static_cast<size_t>(info(view.dtype).size);
  std::string numbers;
  for (int64_t e = 0; e < view.size(); ++e)
    numbers.append(view.as<const char>() + offset_of(view, e) * static_cast<int64_t>(bytes), bytes);
  const bool has_type = view.dtype == DType::f64 || view.dtype == DType::f32 || view.dtype == DType::f16;
  const bool is_signed = view.dtype == DType::i64 || view.dtype == DType::i32;
  write_npy_file(path,
                 {has_type    ? 'f'
                  : is_signed ? 'i'
                              : 'u',
                  bytes, false},
                 {view.shape.begin(), view.shape.begin() + view.rank}, numbers);
}

void save(const OpCheck& check, const WorstElement& each, const std::string& start, Backend& backend) {
  const CheckedOp& op = check.ops[each.op];
  std::string text = fmt::format("op {}\ntype {}\n", op.op, info(op.type).name);
  if (op.accumulation != nullptr) text += fmt::format("accumulate {}\n", op.accumulation->name);
  for (const Attributes::Item& item : each.of->attributes) text += fmt::format("{} = {}\n", item.name, item.value);
  for (size_t i = 0; i < each.inputs.size(); ++i) {
    const TensorView view = each.inputs[i].view();
    text += fmt::format("input{}: {}\n", i, info(view.dtype).name);
    save_array(fmt::format("{}.input{}.npy", start, i), each.inputs[i]);
  }
  const CheckedCall made(op, *each.of, each.inputs);
  const TensorView view = made.call().outputs[each.slot];
  text += fmt::format("output {}: {}; element {} is {}, exactly {} + {}, with a bound of {}\n", each.slot, info(view.dtype).name,
                      each.element, each.stored, each.bound.exact, each.bound.rest, each.bound.bound);
  std::string exact;
  for (const ElementBound& bound : bounds_of(made.call(), static_cast<int>(each.slot)))
    exact.append(reinterpret_cast<const char*>(&bound.exact), sizeof bound.exact);
  write_npy_file(start + ".exact.npy", {'f', sizeof(double), false}, {view.shape.begin(), view.shape.begin() + view.rank}, exact);
  run(backend, made.call());
  save_array(start + ".output.npy", made.result().outputs[each.slot]);
  atomic_write_file(start + ".txt", text);
}

}  // namespace

Report op_check_report(const OpCheck& check, size_t limit, bool explains) {
  Report report;
  report.analysis = "opcheck";
  report.title = "Errors of ops beside their bounds";
  std::set<std::string> names;
  for (const CheckedOp& op : check.ops) names.insert(op.op);
  report.add_fact("ops", count_cell(names.size()), Unit::count);
  report.add_fact("calls", count_cell(check.calls), Unit::count);
  report.add_fact("elements", count_cell(check.elements), Unit::count);
  report.add_fact("unknown", count_cell(check.unknown), Unit::count);
  report.add_fact("broken", count_cell(check.broken), Unit::count);
  if (check.not_called > 0) report.add_fact("not_called", count_cell(check.not_called), Unit::count);
  const std::span<const WorstElement> rows = shown(check, limit);
  report.tables.push_back(worst_table(check, rows));
  if (explains) report.tables.push_back(bounds_table(check, rows));
  return report;
}

void save_op_check(const OpCheck& check, size_t limit, const std::string& folder, Backend& backend) {
  for (const WorstElement& each : shown(check, limit))
    if (each.of != nullptr)
      save(check, each, (std::filesystem::path(folder) / fmt::format("{}.{}", check.ops[each.op].name(), each.slot)).string(),
           backend);
}

}  // namespace ulpscope
