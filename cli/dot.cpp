#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/verbs.h"
#include "ulpscope/core/data/dot_products.h"
#include "ulpscope/emulation/arithmetic.h"
#include "ulpscope/emulation/number_text.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/emulation/tensor_core.h"

namespace ulpscope::cli {

namespace {

template <typename Rows, typename Name>
std::vector<std::string> names(const Rows& rows, Name name) {
  std::vector<std::string> all;
  for (const auto& row : rows) {
    if (std::string text(name(row)); std::find(all.begin(), all.end(), text) == all.end()) all.push_back(std::move(text));
  }
  return all;
}

std::vector<std::string> gpu_names() {
  return names(tensor_core_gpus(), [](const TensorCoreGpu& gpu) { return gpu.name; });
}
std::vector<std::string> family_names() {
  return names(tensor_core_models(), [](const TensorCoreModel& model) { return name_of(model.family); });
}
std::vector<std::string> scale_names() {
  return names(tensor_core_models(), [](const TensorCoreModel& model) { return name_of(model.scales); });
}
std::vector<std::string> output_names() {
  return names(tensor_core_models(), [](const TensorCoreModel& model) { return model.output->name; });
}
std::vector<std::string> input_names() {
  std::vector<const FloatFormat*> formats;
  for (const TensorCoreModel& model : tensor_core_models()) formats.insert(formats.end(), model.inputs.begin(), model.inputs.end());
  return names(formats, [](const FloatFormat* format) { return format->name; });
}

TensorCore asked_core(const Arguments& arguments) {
  for (const char* needed : {"--gpu", "--input"}) {
    if (!arguments.has(needed))
      throw usage_error("dot needs {}: {}", needed, join_words(needed == std::string("--gpu") ? gpu_names() : input_names(), "or"));
  }
  const std::vector<std::string> inputs = arguments.list("--input");
  if (inputs.size() > 2) throw usage_error("--input takes the format of a, or those of a and b, not {}", inputs.size());
  return find_tensor_core(arguments.text("--gpu"), *find_format(inputs.front()), *find_format(inputs.back()),
                          *find_format(arguments.text("--output", "fp32")),
                          parse_instruction_family(arguments.text("--instruction", "mma")),
                          parse_block_scales(arguments.text("--scales", "none")));
}

// The encodings of numbers that a file has as FP32.
class Operands {
 public:
  Operands(const TensorCore& core, const DotProduct& row) : row_(row) {
    const auto read = [&](const char* name, const FloatFormat& format, const std::vector<uint32_t>& bits) {
      std::vector<uint32_t> encodings;
      for (size_t i = 0; i < bits.size(); ++i) encodings.push_back(exactly(name, i, format, bits[i]));
      return encodings;
    };
    a = read("a", *core.a, row.a);
    b = read("b", *core.b, row.b);
    c = static_cast<uint32_t>(convert(binary32, *core.model->output, row.c));
  }

  std::vector<uint32_t> a, b;
  uint32_t c;
  ScaleFactors scales() const { return {row_.a_scales, row_.b_scales}; }

 private:
  uint32_t exactly(const char* name, size_t index, const FloatFormat& format, uint32_t bits) const {
    if (&format == &tensor_float32) return bits;
    const auto encoding = static_cast<uint32_t>(convert(binary32, format, bits));
    const double given = value_of(binary32, bits), value = value_of(format, encoding);
    if (given != value && !(std::isnan(given) && std::isnan(value)))
      throw unreadable_error("{}: {}[{}]: expected a number of {}, found {:08x}, {}", row_.place, name, index, format.name, bits,
                             given);
    return encoding;
  }

  const DotProduct& row_;
};

// As the file would have it: its NaN may have another payload.
bool is_result(const FloatFormat& output, uint32_t result, uint32_t expected) {
  const auto bits = static_cast<uint32_t>(convert(output, binary32, result));
  return bits == expected || (std::isnan(value_of(binary32, bits)) && std::isnan(value_of(binary32, expected)));
}

// "-01.0110|11": what is kept of a term, and what is cut off.
std::string aligned_bits(const TensorCoreTerm& term, int unit, int fraction_bits) {
  const uint64_t kept = static_cast<uint64_t>(std::abs(term.kept));
  std::string text = fmt::format("{}{:0{}b}", term.value.negative ? '-' : '+', kept, fraction_bits + 2);
  text.insert(text.size() - static_cast<size_t>(fraction_bits), ".");
  text += '|';
  constexpr int kShown = 40;
  for (int exponent = unit - 1; exponent >= unit - kShown && exponent >= term.value.exponent; --exponent) {
    const int place = exponent - term.value.exponent;
    text += place < 64 && ((term.value.significand >> place) & 1) != 0 ? '1' : '0';
  }
  while (text.back() == '0') text.pop_back();
  return text;
}

std::string term_name(const TensorCoreTerm& term, const TensorCoreModel& model) {
  if (term.element == TensorCoreTerm::kAccumulator) return "accumulator";
  if (model.scales == BlockScales::mxf4 || model.scales == BlockScales::nvf4)
    return fmt::format("a b [{}..{}]", term.element, term.element + 15);
  return fmt::format("a b [{}]", term.element);
}

// Of a term, or of what was cut off.
LongText value_text(const Number& number) { return {exact_decimal(number), leading_digits(number, binary64)}; }

LongText result_text(const FloatFormat& format, uint64_t encoding) {
  const Number number = decode(format, encoding);
  return {exact_decimal(number), leading_digits(number, format)};
}

// An expected result as the output's encoding, or as the FP32 bit pattern that it is where it is no number of the output.
std::string expected_encoding(const FloatFormat& output, uint32_t expected) {
  const uint64_t encoding = convert(binary32, output, expected);
  return is_result(output, static_cast<uint32_t>(encoding), expected) ? hexadecimal_encoding(output, encoding)
                                                                      : hexadecimal_encoding(binary32, expected);
}

Table explain(const TensorCoreModel& model, const TensorCoreSum& sum, size_t index) {
  const bool is_special = std::any_of(sum.terms.begin(), sum.terms.end(), [](const TensorCoreTerm& term) {
    return term.value.kind == Number::Kind::nan || term.value.kind == Number::Kind::infinite;
  });
  Table table{fmt::format("sum_{}", index), "", {}, {}, 0, ""};
  const std::string is =
      fmt::format("{} ({})", result_text(*model.output, sum.result).brief, hexadecimal_encoding(*model.output, sum.result));
  if (sum.is_addition || is_special) {
    table.title =
        fmt::format("Sum {}: {}{}", index, sum.is_addition ? "C is added, to nearest even: " : "not of finite numbers only: ", is);
    table.columns = {{"term", ColumnKind::text}, {"value", ColumnKind::text}};
    for (const TensorCoreTerm& term : sum.terms) table.rows.push_back({{}, {term_name(term, model), value_text(term.value)}});
    return table;
  }
  const int unit = sum.max_exponent - model.fraction_bits;
  table.title = fmt::format("Sum {}: the largest exponent is {}, so terms are cut off below 2^{}", index, sum.max_exponent, unit);
  table.note = fmt::format("their sum {} * 2^{} becomes {}", sum.sum, unit, is);
  table.columns = {{"term", ColumnKind::text},
                   {"value", ColumnKind::text},
                   {"exponent", ColumnKind::number, Unit::exponent},
                   {"shift", ColumnKind::number, Unit::bits},
                   {"bits", ColumnKind::text},
                   {"cut_off", ColumnKind::text}};
  for (const TensorCoreTerm& term : sum.terms) {
    // Of the value's leading bits, so the difference is exact.
    const Number kept{term.kept == 0 ? Number::Kind::zero : Number::Kind::finite, term.value.negative, false, unit,
                      static_cast<uint64_t>(std::abs(term.kept))};
    table.rows.push_back(
        {{},
         {term_name(term, model), value_text(term.value), int64_t{term.exponent}, int64_t{sum.max_exponent - term.exponent},
          aligned_bits(term, unit, model.fraction_bits), value_text(subtract(term.value, kept))}});
  }
  return table;
}

int run(const Arguments& arguments) {
  const TensorCore core = asked_core(arguments);
  const TensorCoreModel& model = *core.model;
  const FloatFormat& output = *model.output;
  const bool check = arguments.has("--check");
  const std::optional<int64_t> explained = arguments.integer("--explain", 0);
  const auto limit = static_cast<uint64_t>(arguments.integer("--limit", 0).value_or(10));
  const std::string& path = arguments.positional(0);

  Table results{"results",
                check ? "Results that are not the file's" : "Results",
                {{"row", ColumnKind::number, Unit::count}, {"result", ColumnKind::text}, {"encoding", ColumnKind::text}},
                {},
                0,
                ""};
  if (check) {
    results.columns.push_back({"expected", ColumnKind::text});
    results.columns.push_back({"expected_encoding", ColumnKind::text});
  }
  std::vector<Table> sums;
  int64_t rows = 0, mismatches = 0;
  read_dot_products(path, core, [&](const DotProduct& row) {
    const Operands operands(core, row);
    if (check && !row.result) throw usage_error("{} has no results to compare with: --check needs them", row.place);
    const uint32_t result = at_place(row.place, [&] { return dot(core, operands.a, operands.b, operands.c, operands.scales()); });
    const bool mismatch = check && !is_result(output, result, *row.result);
    mismatches += mismatch;
    if (!check || mismatch) {
      if (limit > 0 && results.rows.size() == limit) {
        ++results.rows_left_out;
      } else {
        std::vector<Cell> cells{rows, result_text(output, result), hexadecimal_encoding(output, result)};
        if (check) {
          cells.emplace_back(result_text(binary32, *row.result));
          cells.emplace_back(expected_encoding(output, *row.result));
        }
        results.rows.push_back({{}, std::move(cells)});
      }
    }
    if (explained == rows) {
      for (const TensorCoreSum& sum : explain_dot(core, operands.a, operands.b, operands.c, operands.scales()))
        sums.push_back(explain(model, sum, sums.size()));
    }
    ++rows;
  });
  if (explained && *explained >= rows) throw usage_error("--explain {}: {} has the rows 0 to {}", *explained, path, rows - 1);

  Report report;
  report.analysis = "dot";
  report.title = fmt::format("Dot products of {}", path);
  report.add_fact("gpu", arguments.text("--gpu"));
  report.add_fact("generation", std::string(model.generation));
  report.add_fact("instruction", std::string(name_of(model.family)));
  report.add_fact("input", core.a == core.b ? std::string(core.a->name) : fmt::format("{} by {}", core.a->name, core.b->name));
  report.add_fact("output", std::string(output.name));
  if (model.scales != BlockScales::none) report.add_fact("scales", std::string(name_of(model.scales)));
  report.add_fact("compared_with_hardware", model.has_hardware_data);
  report.add_fact("rows", rows, Unit::count);
  if (check) report.add_fact("mismatches", mismatches, Unit::count);
  report.tables = std::move(sums);
  if (!explained || check) report.tables.push_back(std::move(results));
  print(report, arguments);
  return mismatches > 0 ? kFindings : kClean;
}

}  // namespace

Verb dot_verb() {
  return {"dot",
          "dot products as tensor cores compute them, bit for bit",
          "FILE has a row for each dot product: CSV with a, b, c and perhaps the result d as FP32 bit patterns in\n"
          "hexadecimal (gzip too, or a pipe; - is standard input), or HDF5 with data sets a, b, c and perhaps d:\n"
          "floating-point values, or unsigned integers that are encodings of the formats of --input and --output.\n"
          "c, a number that FP32 holds, is rounded to the output's format.",
          {{"FILE", "CSV or HDF5 with vectors"}},
          join({{{"--gpu", "", "NAME", "whose tensor cores", "", gpu_names()},
                 {"--input", "", "FORMAT", "of a and b, or of each", "", input_names(), true},
                 {"--output", "", "FORMAT", "of c and the results", "fp32", output_names()},
                 {"--instruction", "", "FAMILY", "which instructions", "mma", family_names()},
                 {"--scales", "", "KIND", "of blocks: HDF5 data sets a_scale and b_scale", "none", scale_names()},
                 {"--explain", "", "ROW", "each term's alignment, and the bits cut off; rows count from 0"},
                 {"--check", "", "", "compare with the file's results; exit with 1 where one differs"}},
                print_options()}),
          {{"ulpscope dot --gpu h100 --input fp16 vectors.csv", "FP16 vectors, FP32 results"},
           {"ulpscope dot --gpu a100 --input bf16 - --check", "from standard input"},
           {"ulpscope dot --gpu rtx4090 --input e4m3 vectors.csv.gz --check", "is the file's d what the model says?"}},
          run};
}

}  // namespace ulpscope::cli
