#include "ulpscope/studies/tensor_core_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "ulpscope/base/text.h"
#include "ulpscope/emulation/number_text.h"

namespace ulpscope {
namespace {

std::string_view generation_of(std::string_view gpu) {
  const TensorCoreGpu* const row = find_tensor_core_gpu(gpu);
  return row == nullptr ? "" : row->generation;
}

std::string inputs_of(const TensorCoreModel& model) {
  std::vector<std::string> names;
  for (const FloatFormat* input : model.inputs) names.emplace_back(input->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Report report_on(const DescribedDevice& device, std::string_view title) {
  Report report;
  report.analysis = "gpu";
  report.title = fmt::format("{} {}", title, device.name);
  report.add_fact("device", device.name);
  report.add_fact("description", device.description);
  report.add_fact("gpu", text_or_none(device.gpu));
  report.add_fact("generation", text_or_none(std::string(generation_of(device.gpu))));
  return report;
}

const FloatFormat& sums_format(const ProbedInstruction& probed) { return *info(probed.instruction.sums).format; }

// "fp16", "e4m3 x e5m2".
std::string factors_of(const MatrixInstruction& instruction) {
  const std::string_view a = factor_format(instruction.a).name, b = factor_format(instruction.b).name;
  return instruction.a == instruction.b ? std::string(a) : fmt::format("{} x {}", a, b);
}
// What tables of instructions begin with.
std::vector<Column> with_instruction(std::initializer_list<Column> more) {
  std::vector<Column> columns{{"instruction", ColumnKind::text}, {"factors", ColumnKind::text}, {"output", ColumnKind::text}};
  columns.insert(columns.end(), more);
  return columns;
}
// Between `first` and the others what a row of the table of matrix units says of how it adds, and a row's cells of that.
std::vector<Column> with_model(const Column& first, std::initializer_list<Column> others) {
  std::vector<Column> columns = with_instruction({first,
                                                  {"products", ColumnKind::number, Unit::count},
                                                  {"passes", ColumnKind::number, Unit::count},
                                                  {"fraction_bits", ColumnKind::number, Unit::count},
                                                  {"zero_exponent", ColumnKind::number},
                                                  {"conversion", ColumnKind::text},
                                                  {"adds_c_last", ColumnKind::flag}});
  columns.insert(columns.end(), others);
  return columns;
}
void add_model(TableRow& row, const TensorCoreModel& model) {
  row.cells.insert(row.cells.end(), {int64_t{model.products}, int64_t{model.passes}, int64_t{model.fraction_bits},
                                     int64_t{model.zero_exponent}, conversion_of(model), model.adds_c_last});
}

TableRow row_of(const ProbedInstruction& probed, std::initializer_list<Cell> more) {
  TableRow row{
      {}, {std::string(name_of(probed.instruction.family)), factors_of(probed.instruction), std::string(sums_format(probed).name)}};
  row.cells.insert(row.cells.end(), more);
  return row;
}

std::string names_of(const ProbedBehaviour& behaviour) { return fmt::format("{}", fmt::join(behaviour.rows, ", ")); }
// "hopper and blackwell (16 products, 25 fraction bits)".
std::string text_of(const ProbedBehaviour& behaviour) {
  return fmt::format("{} ({} products, {} fraction bits)", join_words(behaviour.rows), behaviour.core.model->products,
                     behaviour.core.model->fraction_bits);
}

// The row that a difference is shown against: the closest one where none explains the results, else the GPU's own; nullptr where
// that explains them.
const ProbedBehaviour* compared_row(const ProbedInstruction& probed) {
  if (probed.is_missing || probed.own().explains()) return nullptr;
  return probed.closest().explains() ? &probed.own() : &probed.closest();
}

std::string verdict_of(const ProbedInstruction& probed, std::string_view gpu) {
  if (probed.is_missing) return fmt::format("not probed: this program has no such kernel for {}", gpu);
  std::vector<std::string> explaining;
  for (const ProbedBehaviour& behaviour : probed.behaviours)
    if (behaviour.explains()) explaining.push_back(text_of(behaviour));
  const ProbedBehaviour& closest = probed.closest();
  if (explaining.empty())
    return fmt::format("explained by no row; {} of {} results differ from the closest, {}",
                       closest.made_differ + closest.random_differ, probed.made + closest.random, text_of(closest));
  const std::string text = "explained by " + join_words(explaining);
  if (probed.own().explains()) return text;
  return fmt::format("{}, not by the own row of {}, {}, which has {}", text, gpu, text_of(probed.own()),
                     join_words(differences_of(*probed.own().core.model, *closest.core.model)));
}

LongText value_text(const FloatFormat& format, uint32_t encoding) {
  const Number number = decode(format, encoding);
  return {exact_decimal(number), leading_digits(number, format)};
}

int64_t missing_of(std::span<const ProbedInstruction> probed) {
  return std::count_if(probed.begin(), probed.end(), [](const ProbedInstruction& each) { return each.is_missing; });
}

bool has_narrower(std::string_view gpu) {
  const auto models = tensor_core_models();
  return std::any_of(models.begin(), models.end(), [&](const TensorCoreModel& model) {
    return model.generation == generation_of(gpu) && (model.scales != BlockScales::none || model.takes(e2m1, e2m1));
  });
}

Cell explained_cell(const ProbedInstruction& probed) {
  if (probed.is_missing) return NotApplicable{};
  return probed.own().explains();
}

Table instructions_table(std::span<const ProbedInstruction> probed, std::string_view gpu) {
  Table table{"instructions",
              "Sums of products, and what explains them",
              with_instruction({{"made", ColumnKind::number, Unit::count},
                                {"random", ColumnKind::number, Unit::count},
                                {"explained", ColumnKind::flag},
                                {"verdict", ColumnKind::text}}),
              {},
              0,
              std::string("explained: by the GPU's own row") +
                  (has_narrower(gpu) ? "; scales and factors of fewer than 8 bits, which the GPU has too, are not probed" : "")};
  for (const ProbedInstruction& each : probed) {
    table.rows.push_back(
        row_of(each, {count_cell(each.made), count_cell(each.random), explained_cell(each), verdict_of(each, gpu)}));
  }
  return table;
}

Table behaviours_table(std::span<const ProbedInstruction> probed) {
  Table table{
      "rows",
      "Results that differ from what rows of the table predict",
      with_model({"rows", ColumnKind::text}, {{"own", ColumnKind::flag},
                                              {"made_differ", ColumnKind::number, Unit::count},
                                              {"random", ColumnKind::number, Unit::count},
                                              {"random_differ", ColumnKind::number, Unit::count}}),
      {},
      0,
      "own: the row of the GPU, which all sums are compared with. Others are compared with all made sums, the first 100,000 "
      "random ones, and those beside one that the own row does not explain."};
  for (const ProbedInstruction& each : probed) {
    for (const ProbedBehaviour& behaviour : each.behaviours) {
      TableRow row = row_of(each, {names_of(behaviour)});
      add_model(row, *behaviour.core.model);
      row.cells.insert(row.cells.end(), {behaviour.is_own, count_cell(behaviour.made_differ), count_cell(behaviour.random),
                                         count_cell(behaviour.random_differ)});
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

// Of all instructions together.
Table shown_table(std::span<const ProbedInstruction> probed) {
  Table table{"made",
              "Made sums of all instructions, and how many differ from the GPU's own rows",
              {{"shows", ColumnKind::text}, {"sums", ColumnKind::number, Unit::count}, {"differ", ColumnKind::number, Unit::count}},
              {},
              0,
              ""};
  std::vector<ShownCount> all;
  for (const ProbedInstruction& each : probed) {
    for (const ShownCount& shown : each.shown) {
      auto same = std::find_if(all.begin(), all.end(), [&](const ShownCount& known) { return known.shows == shown.shows; });
      if (same == all.end()) same = all.insert(same, ShownCount{shown.shows});
      same->sums += shown.sums;
      same->differ += shown.differ;
    }
  }
  for (const ShownCount& shown : all)
    table.rows.push_back({{}, {std::string(shown.shows), count_cell(shown.sums), count_cell(shown.differ)}});
  return table;
}

Table shown_differences_table(std::span<const ProbedInstruction> probed) {
  Table table{
      "made_that_differ",
      "What made sums show that differ from the GPU's own row",
      with_instruction(
          {{"shows", ColumnKind::text}, {"sums", ColumnKind::number, Unit::count}, {"differ", ColumnKind::number, Unit::count}}),
      {},
      0,
      ""};
  for (const ProbedInstruction& each : probed)
    for (const ShownCount& shown : each.shown)
      if (shown.differ > 0)
        table.rows.push_back(row_of(each, {std::string(shown.shows), count_cell(shown.sums), count_cell(shown.differ)}));
  return table;
}

Table differences_table(std::span<const ProbedInstruction> probed) {
  Table table{"differences",
              "The first sums that differ",
              with_instruction({{"row", ColumnKind::text},
                                {"shows", ColumnKind::text},
                                {"terms", ColumnKind::number, Unit::count},
                                {"begins_with", ColumnKind::text},
                                {"result", ColumnKind::text},
                                {"encoding", ColumnKind::text},
                                {"predicted", ColumnKind::text},
                                {"predicted_encoding", ColumnKind::text}}),
              {},
              0,
              "row: whose prediction it is, the GPU's own where another row explains the results, else the closest"};
  for (const ProbedInstruction& each : probed) {
    const ProbedBehaviour* const row = compared_row(each);
    if (row == nullptr) continue;
    const ProbedDifference& first = *row->first;
    const FloatFormat& format = sums_format(each);
    table.rows.push_back(
        row_of(each, {names_of(*row), text_or_none(std::string(first.shows)), count_cell(first.a.size()),
                      value_text(format, first.c), value_text(format, first.result), hexadecimal_encoding(format, first.result),
                      value_text(format, first.predicted), hexadecimal_encoding(format, first.predicted)}));
  }
  return table;
}

Table terms_table(const ProbedInstruction& probed, const ProbedDifference& difference, size_t limit) {
  const MatrixInstruction& instruction = probed.instruction;
  const FloatFormat &of_a = *info(instruction.a).format, &of_b = *info(instruction.b).format;
  const std::string_view family = name_of(instruction.family), output = sums_format(probed).name;
  Table table{fmt::format("terms_{}_{}_{}_{}", family, of_a.name, of_b.name, output),
              fmt::format("Terms of that sum of {} products by {} in {}", factors_of(instruction), family, output),
              {{"k", ColumnKind::number},
               {"a", ColumnKind::text},
               {"a_encoding", ColumnKind::text},
               {"b", ColumnKind::text},
               {"b_encoding", ColumnKind::text}},
              {},
              0,
              "terms that are not there are +0 times +0"};
  for (size_t k = 0; k < difference.a.size(); ++k) {
    const uint32_t a = difference.a[k], b = difference.b[k];
    if (a == 0 && b == 0) continue;
    if (limit > 0 && table.rows.size() == limit) {
      ++table.rows_left_out;
      continue;
    }
    table.rows.push_back(
        {{},
         {count_cell(k), value_text(of_a, a), hexadecimal_encoding(of_a, a), value_text(of_b, b), hexadecimal_encoding(of_b, b)}});
  }
  return table;
}

}  // namespace

Report describe_device(const DescribedDevice& device) {
  Report report = report_on(device, "Device");
  Table table{"rows",
              "How its matrix units add, as the table has it",
              with_model({"scales", ColumnKind::text}, {{"compared_with_hardware", ColumnKind::flag}}),
              {},
              0,
              "runs multiply with mma"};
  for (const TensorCoreModel& model : tensor_core_models()) {
    if (model.generation != generation_of(device.gpu)) continue;
    TableRow& row = table.rows.emplace_back(
        TableRow{{},
                 {std::string(name_of(model.family)), inputs_of(model), std::string(model.output->name),
                  model.scales == BlockScales::none ? Cell(NotApplicable{}) : Cell(std::string(name_of(model.scales)))}});
    add_model(row, model);
    row.cells.emplace_back(model.has_hardware_data);
  }
  if (table.rows.empty()) {
    std::vector<std::string_view> names;
    for (const TensorCoreGpu& gpu : tensor_core_gpus()) names.push_back(gpu.name);
    table.note = fmt::format("it is none of the GPUs that the table knows: {}", fmt::join(names, ", "));
  }
  report.tables.push_back(std::move(table));
  return report;
}

bool is_explained(std::span<const ProbedInstruction> probed) {
  return missing_of(probed) < static_cast<int64_t>(probed.size()) &&
         std::all_of(probed.begin(), probed.end(),
                     [](const ProbedInstruction& each) { return each.is_missing || each.own().explains(); });
}

Report describe_probe(const DescribedDevice& device, std::span<const ProbedInstruction> probed, size_t limit) {
  Report report = report_on(device, "Matrix units of");
  const int64_t missing = missing_of(probed);
  report.add_fact("probed", static_cast<int64_t>(probed.size()) - missing, Unit::count);
  report.add_fact("not_probed", missing, Unit::count);
  report.add_fact("explained", is_explained(probed));
  report.tables = {instructions_table(probed, device.gpu), shown_table(probed)};
  for (Table table : std::array{shown_differences_table(probed), differences_table(probed)})
    if (!table.rows.empty()) report.tables.push_back(std::move(table));
  for (const ProbedInstruction& each : probed)
    if (const ProbedBehaviour* const row = compared_row(each)) report.tables.push_back(terms_table(each, *row->first, limit));
  report.tables.push_back(behaviours_table(probed));
  return report;
}

std::string csv_of(const MatrixInstruction& instruction, const ProbedSum& sum) {
  const auto encodings = [](std::span<const uint32_t> values, DType dtype) {
    std::string text;
    for (const uint32_t value : values) text += fmt::format("{}{:0{}x}", text.empty() ? "" : " ", value, 2 * info(dtype).size);
    return text;
  };
  return fmt::format("{},{},{},{},{},{},{},{},{}\n", name_of(instruction.family), factor_format(instruction.a).name,
                     factor_format(instruction.b).name, info(instruction.sums).format->name, sum.shows,
                     encodings(sum.a, instruction.a), encodings(sum.b, instruction.b), encodings({&sum.c, 1}, instruction.sums),
                     encodings({&sum.result, 1}, instruction.sums));
}

}  // namespace ulpscope
