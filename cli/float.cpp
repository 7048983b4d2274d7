#include <algorithm>

#include "ulpscope/analyzers/verbs/float_explanation.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/verbs.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::cli {

namespace {

// The formats of an option that takes `words` beside them; "all" is all formats.
std::vector<const FloatFormat*> formats_of(const std::vector<std::string>& names, const std::vector<std::string>& words) {
  std::vector<const FloatFormat*> formats;
  for (const std::string& given : names) {
    const std::string name = lower_case(given);
    if (name == "all") {
      formats.insert(formats.end(), kFormats.begin(), kFormats.end());
    } else if (std::find(words.begin(), words.end(), name) == words.end()) {
      const auto nearest = find_format(name) == nullptr ? nearest_name(name, words) : std::nullopt;
      if (nearest) throw usage_error("format '{}': did you mean '{}'?", one_line(given), *nearest);
      formats.push_back(&parse_format(given));
    }
  }
  return formats;
}

int run_float(const Arguments& arguments) {
  if (arguments.has("--table")) {
    if (!arguments.positionals().empty())
      throw usage_error("float --table prints formats; expected no value, got '{}'", arguments.positional(0));
    return finish(describe_formats(formats_of(arguments.list("--table"), {"all"})), arguments);
  }
  if (arguments.positionals().empty()) throw usage_error("float needs VALUE or --table; `ulpscope float --help` shows how");
  FloatQuestion question;
  question.formats = formats_of(arguments.list("--format"), {"all", "text", "json", "html"});
  question.rounding.mode = parse_rounding_mode(arguments.text("--round", "rne"));
  if (arguments.has("--saturate")) question.rounding.overflow = Overflow::saturate;
  if (arguments.has("--flush")) question.rounding.subnormals = SubnormalResults::flush;
  question.seed = static_cast<uint64_t>(arguments.integer("--seed", 0).value_or(0));
  return finish(explain_floats(arguments.positionals(), question), arguments);
}

std::vector<OptionSpec> float_options() {
  std::vector<std::string> modes;
  for (const RoundingModeName& mode : rounding_modes()) modes.emplace_back(mode.name);
  return join(
      {{{"--round", "", "MODE", "how numbers are rounded", "rne", modes},
        {"--saturate", "", "", "what is beyond the largest number becomes that, not Inf or NaN"},
        {"--flush", "", "", "subnormal results become zero"},
        {"--seed", "", "N", "of stochastic rounding", "0"},
        {"--table", "", "FORMAT", "print the limits of these formats instead; all: of every format that has a name", "", {}, true}},
       number_options(
           "formats: names such as fp16, bf16, e4m3, or texts such as e5m7, e4m3fn:bias=11; all; and text, json or html, "
           "how to print",
           "those in wide use, and text", {"--limit", "--fail-on"})});
}

}  // namespace

Verb float_verb() {
  return {"float",
          "what formats make of a number: bits, exact value, neighbours, error",
          "Decimal and hexadecimal numbers (0.1, -6e-8, 0x1.8p-3, inf, nan) are rounded to each format, once.\n"
          "Encodings (0x3C00: hexadecimal, without a power of two) are read in each.",
          {{"VALUE", "a number or an encoding", true, {}, true, true}},
          float_options(),
          {{"ulpscope float 0.1", "0.1 in every format in wide use"},
           {"ulpscope float 65520 --format fp16 --round rz", "all about one value in one format"},
           {"ulpscope float 0x7E00", "an encoding of 16 bits, read as FP16 and as BF16"},
           {"ulpscope float --table all", "the limits of all formats"}},
          run_float};
}

}  // namespace ulpscope::cli
