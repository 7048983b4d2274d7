#include "ulpscope/studies/tensor_core_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "ulpscope/base/text.h"
#include "ulpscope/emulation/number_text.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {
namespace {

constexpr InstructionFamily kInstruction = InstructionFamily::mma;  // of the kernels of devices

std::string_view generation_of(std::string_view gpu) {
  for (const TensorCoreGpu& row : tensor_core_gpus())
    if (row.name == gpu) return row.generation;
  return "";
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
  report.add_fact("instruction", std::string(name_of(kInstruction)));
  return report;
}

// "hopper and blackwell (16 products, 25 fraction bits)".
std::string text_of(const ProbedBehaviour& behaviour) {
  const std::vector<std::string> names(behaviour.generations.begin(), behaviour.generations.end());
  return fmt::format("{} ({} products, {} fraction bits)", join_words(names), behaviour.core.model->products,
                     behaviour.core.model->fraction_bits);
}

// The row that a difference is shown against: the closest one where none explains the results, else the GPU's own; nullptr where
// that explains them.
const ProbedBehaviour* compared_row(const ProbedFamily& family) {
  if (family.is_missing || family.own().explains()) return nullptr;
  return family.closest().explains() ? &family.own() : &family.closest();
}

std::string verdict_of(const ProbedFamily& family, std::string_view gpu) {
  if (family.is_missing) return fmt::format("not probed: the table has no {} for {}", family.factors->format->name, gpu);
  std::vector<std::string> explaining;
  for (const ProbedBehaviour& behaviour : family.behaviours)
    if (behaviour.explains()) explaining.push_back(text_of(behaviour));
  const ProbedBehaviour& closest = family.closest();
  if (explaining.empty())
    return fmt::format("explained by no row; {} of {} results differ from the closest, {}",
                       closest.made_differ + closest.random_differ, family.made + family.random, text_of(closest));
  const std::string text = "explained by " + join_words(explaining);
  return family.own().explains() ? text : fmt::format("{}, not by the own row of {}, {}", text, gpu, text_of(family.own()));
}

LongText value_text(const FloatFormat& format, uint32_t encoding) {
  const Number number = decode(format, encoding);
  return {exact_decimal(number), leading_digits(number, format)};
}

Cell explained_cell(const ProbedFamily& family) {
  if (family.is_missing) return NotApplicable{};
  return family.own().explains();
}

Table families_table(std::span<const ProbedFamily> families, std::string_view gpu) {
  Table table{"factors",
              "Sums of products, and what explains them",
              {{"factors", ColumnKind::text},
               {"made", ColumnKind::number, Unit::count},
               {"random", ColumnKind::number, Unit::count},
               {"explained", ColumnKind::flag},
               {"verdict", ColumnKind::text}},
              {},
              0,
              "explained: by the GPU's own row"};
  for (const ProbedFamily& family : families) {
    table.rows.push_back({{},
                          {std::string(family.factors->format->name), count_cell(family.made), count_cell(family.random),
                           explained_cell(family), verdict_of(family, gpu)}});
  }
  return table;
}

Table behaviours_table(std::span<const ProbedFamily> families) {
  Table table{"rows",
              "Results that differ from what rows of the table predict",
              {{"factors", ColumnKind::text},
               {"generations", ColumnKind::text},
               {"products", ColumnKind::number, Unit::count},
               {"fraction_bits", ColumnKind::number, Unit::count},
               {"zero_exponent", ColumnKind::number},
               {"own", ColumnKind::flag},
               {"made_differ", ColumnKind::number, Unit::count},
               {"random_differ", ColumnKind::number, Unit::count}},
              {},
              0,
              "own: the row of the GPU; made sums show one thing each, random ones are of all magnitudes"};
  for (const ProbedFamily& family : families) {
    for (const ProbedBehaviour& behaviour : family.behaviours) {
      const TensorCoreModel& model = *behaviour.core.model;
      table.rows.push_back({{},
                            {std::string(family.factors->format->name), fmt::format("{}", fmt::join(behaviour.generations, ", ")),
                             int64_t{model.products}, int64_t{model.fraction_bits}, int64_t{model.zero_exponent}, behaviour.is_own,
                             count_cell(behaviour.made_differ), count_cell(behaviour.random_differ)}});
    }
  }
  return table;
}

// A row for each thing that sums show, and two columns for each kind of factors.
Table shown_table(std::span<const ProbedFamily> families) {
  Table table{"made", "Made sums, and how many differ from the GPU's own row", {{"shows", ColumnKind::text}}, {}, 0, ""};
  std::vector<std::string_view> names;
  for (const ProbedFamily& family : families) {
    if (family.is_missing) continue;
    const std::string_view factors = family.factors->format->name;
    table.columns.push_back({std::string(factors), ColumnKind::number, Unit::count});
    table.columns.push_back({fmt::format("{}_differ", factors), ColumnKind::number, Unit::count});
    for (const ShownCount& shown : family.shown)
      if (std::find(names.begin(), names.end(), shown.shows) == names.end()) names.push_back(shown.shows);
  }
  for (const std::string_view name : names) {
    TableRow& row = table.rows.emplace_back(TableRow{{}, {std::string(name)}});
    for (const ProbedFamily& family : families) {
      if (family.is_missing) continue;
      const auto shown =
          std::find_if(family.shown.begin(), family.shown.end(), [&](const ShownCount& each) { return each.shows == name; });
      const bool has = shown != family.shown.end();
      row.cells.push_back(has ? count_cell(shown->sums) : Cell(NotApplicable{}));
      row.cells.push_back(has ? count_cell(shown->differ) : Cell(NotApplicable{}));
    }
  }
  return table;
}

Table differences_table(std::span<const ProbedFamily> families) {
  Table table{"differences",
              "The first sums that differ",
              {{"factors", ColumnKind::text},
               {"row", ColumnKind::text},
               {"shows", ColumnKind::text},
               {"terms", ColumnKind::number, Unit::count},
               {"result", ColumnKind::text},
               {"encoding", ColumnKind::text},
               {"predicted", ColumnKind::text},
               {"predicted_encoding", ColumnKind::text}},
              {},
              0,
              "row: whose prediction it is, the GPU's own where another row explains the results, else the closest"};
  for (const ProbedFamily& family : families) {
    const ProbedBehaviour* const row = compared_row(family);
    if (row == nullptr) continue;
    const ProbedDifference& first = *row->first;
    table.rows.push_back({{},
                          {std::string(family.factors->format->name), fmt::format("{}", fmt::join(row->generations, ", ")),
                           text_or_none(std::string(first.shows)), count_cell(first.a.size()), value_text(binary32, first.result),
                           hexadecimal_encoding(binary32, first.result), value_text(binary32, first.predicted),
                           hexadecimal_encoding(binary32, first.predicted)}});
  }
  return table;
}

Table terms_table(const ProbedFamily& family, const ProbedDifference& difference, size_t limit) {
  const FloatFormat& format = *family.factors->stored;
  const std::string_view factors = family.factors->format->name;
  Table table{fmt::format("terms_{}", factors),
              fmt::format("Terms of that sum of {} products", factors),
              {{"k", ColumnKind::number},
               {"a", ColumnKind::text},
               {"a_encoding", ColumnKind::text},
               {"b", ColumnKind::text},
               {"b_encoding", ColumnKind::text}},
              {},
              0,
              "the sum begins with +0; terms that are not there are +0 times +0"};
  for (size_t k = 0; k < difference.a.size(); ++k) {
    const uint32_t a = difference.a[k], b = difference.b[k];
    if (a == 0 && b == 0) continue;
    if (limit > 0 && table.rows.size() == limit) {
      ++table.rows_left_out;
      continue;
    }
    table.rows.push_back({{},
                          {count_cell(k), value_text(format, a), hexadecimal_encoding(format, a), value_text(format, b),
                           hexadecimal_encoding(format, b)}});
  }
  return table;
}

}  // namespace

Report describe_device(const DescribedDevice& device) {
  Report report = report_on(device, "Device");
  Table table{"rows",
              "How its matrix units add, as the table has it",
              {{"factors", ColumnKind::text},
               {"output", ColumnKind::text},
               {"scales", ColumnKind::text},
               {"products", ColumnKind::number, Unit::count},
               {"passes", ColumnKind::number, Unit::count},
               {"fraction_bits", ColumnKind::number, Unit::count},
               {"zero_exponent", ColumnKind::number},
               {"conversion", ColumnKind::text},
               {"adds_c_last", ColumnKind::flag},
               {"compared_with_hardware", ColumnKind::flag}},
              {},
              0,
              ""};
  for (const TensorCoreModel& model : tensor_core_models()) {
    if (model.generation != generation_of(device.gpu) || model.family != kInstruction) continue;
    table.rows.push_back(
        {{},
         {inputs_of(model), std::string(model.output->name),
          model.scales == BlockScales::none ? Cell(NotApplicable{}) : Cell(std::string(name_of(model.scales))),
          int64_t{model.products}, int64_t{model.passes}, int64_t{model.fraction_bits}, int64_t{model.zero_exponent},
          fmt::format("{}-{}", name_of(model.rounding), model.conversion->name), model.adds_c_last, model.has_hardware_data}});
  }
  if (table.rows.empty()) {
    std::vector<std::string_view> names;
    for (const TensorCoreGpu& gpu : tensor_core_gpus()) names.push_back(gpu.name);
    table.note = fmt::format("it is none of the GPUs that the table knows: {}", fmt::join(names, ", "));
  }
  report.tables.push_back(std::move(table));
  return report;
}

bool is_explained(std::span<const ProbedFamily> families) {
  return std::all_of(families.begin(), families.end(),
                     [](const ProbedFamily& family) { return family.is_missing || family.own().explains(); });
}

Report describe_probe(const DescribedDevice& device, std::span<const ProbedFamily> families, size_t limit) {
  Report report = report_on(device, "Matrix units of");
  report.add_fact("explained", is_explained(families));
  report.tables = {families_table(families, device.gpu), behaviours_table(families), shown_table(families)};
  if (Table table = differences_table(families); !table.rows.empty()) report.tables.push_back(std::move(table));
  for (const ProbedFamily& family : families)
    if (const ProbedBehaviour* const row = compared_row(family)) report.tables.push_back(terms_table(family, *row->first, limit));
  return report;
}

}  // namespace ulpscope
