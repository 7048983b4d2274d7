#include <algorithm>
#include <cmath>
#include <optional>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/findings/overflow_text.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"

namespace ulpscope::findings {

namespace {

constexpr Template kCutOff{"range.gradients_cut_off",
                           "{format} underflow of gradients: {zeros} of {tensor} is 0, and {share} of the rest is the smallest "
                           "number there is, {smallest}."};
constexpr Template kCutOffInOthers{
    "range.gradients_cut_off.others",
    "{tensors} of {all} gradient tensors end there in more than {limit:%} of their nonzero elements, which their norms feel."};
constexpr Template kAllZero{"range.gradients_cut_off.all_zero",
                            "{tensors:count more gradient tensor} {tensors:either is|are} 0 "
                            "throughout: {tensor}{others}."};
constexpr Template kNotCounted{"range.gradients_cut_off.not_counted",
                               "The trace does not count what its roundings flushed to zero; all up to {flushed} is."};
constexpr Template kScaleOrBf16{"advice.scale_or_bf16_for_cut_off", "{said}, or train in BF16, whose range is that of FP32."};

// From a tenth of the nonzero elements at the smallest number on, the distribution does not end there by itself; and what may have
// been zeroed then has to be felt by the norm, as where it was counted (docs/numerics.md, flushing that matters).
constexpr double kLeastAtBottom = 0.1, kFelt = 0.01;

struct Bottom {
  double share = 0;  // of the nonzero elements, those that are the smallest number
  double zeros = 0;  // of all
};

// What lies at the bottom of a gradient whose roundings nobody counted; nothing where that is not known, or is as it should be.
std::optional<Bottom> bottom_of(const RangeTotals& totals, const FloatFormat& format) {
  if (totals.rows_unseen == 0 || totals.rows_seen > 0 || !totals.histogram || totals.zeros == 0) return std::nullopt;
  const int smallest = format.smallest_normal_exponent() - format.fraction_bits;
  const auto nonzero = static_cast<double>(totals.histogram->total());
  const auto at_bottom = static_cast<double>(totals.histogram->bins[static_cast<size_t>(smallest + ExponentHistogram::kBias)]);
  if (!(at_bottom > kLeastAtBottom * nonzero)) return std::nullopt;
  // The squares of the elements of a bin are at least those of its lower edge, and what is zero was at most half the smallest
  // number.
  double squares = 0;
  for (size_t bin = 0; bin < totals.histogram->bins.size(); ++bin)
    squares +=
        static_cast<double>(totals.histogram->bins[bin]) * std::ldexp(1.0, 2 * ExponentHistogram::exponent(static_cast<int>(bin)));
  const double lost = static_cast<double>(totals.zeros) * std::ldexp(1.0, 2 * (smallest - 1));
  if (!(lost > kFelt * kFelt * squares)) return std::nullopt;
  return Bottom{at_bottom / nonzero, static_cast<double>(totals.zeros) / static_cast<double>(totals.elements)};
}

void find_cut_off(const RunFacts& facts, Findings& found) {
  Suspects suspects(facts.selection);
  size_t all = 0;
  std::vector<uint32_t> zero;
  std::optional<Bottom> worst;
  for (const auto& [i, judged, unused] : facts.ranges().tensors()) {
    const TensorInfo& tensor = facts.selection.tensor(i);
    if (!is_gradient(tensor.role) || tensor.dtype != DType::f16) continue;
    ++all;
    if (judged.totals.rows_with_values > 0 && judged.totals.elements > 0 && judged.totals.zeros == judged.totals.elements)
      zero.push_back(i);
    const std::optional<Bottom> bottom = bottom_of(judged.totals, *info(tensor.dtype).format);
    if (!bottom) continue;
    suspects.add(bottom->share, i, {{"at_smallest_number", bottom->share, Unit::share}, {"zero", bottom->zeros, Unit::share}});
    if (!worst || bottom->share > worst->share) worst = bottom;
  }
  if (!worst) return;
  const FloatFormat& format = *info(DType::f16).format;
  Advice advice = scaling_advice(facts.precision(), facts.context.settings);
  advice.note({.kind = SettingKind::precision, .value = std::string(facts.context.settings.words().bf16)});
  advice.text.begin_with(kScaleOrBf16);
  Sentences title{kCutOff({{"format", format_name(format)},
                           {"tensor", tensor_place(facts.selection, suspects.worst_tensor())},
                           {"share", {worst->share, Unit::share}},
                           {"zeros", {worst->zeros, Unit::share}},
                           {"smallest", {format.smallest_positive(), Unit::power_of_two}}})};
  if (suspects.size() > 1)
    title += kCutOffInOthers({{"limit", {kLeastAtBottom, Unit::share}}, {"tensors", suspects.size()}, {"all", all}});
  if (!zero.empty())
    title += kAllZero(
        {{"tensors", zero.size()}, {"tensor", tensor_place(facts.selection, zero.front())}, {"others", and_others(zero.size())}});
  title += kNotCounted({{"flushed", {std::ldexp(format.smallest_positive(), -1), Unit::power_of_two}}});
  found.add_judged(Severity::warning, std::move(title), suspects.worst(), std::move(advice), suspects.extent());
}

}  // namespace

extern constinit const FindingRule range_gradients_cut_off{
    .code = "range.gradients_cut_off",
    .part = Part::ranges,
    .raised =
        "More than a tenth of an FP16 gradient's nonzero elements are FP16's smallest number, in a trace that does not count "
        "what its roundings flushed to zero.",
    .meaning = "Smaller gradients became zero, up to a share of the norm that training feels.",
    .help = "Loss scaling, or BF16.",
    .picture = Picture::flushed,
    .explains = kOfLostGradients,
    .find = find_cut_off,
};

}  // namespace ulpscope::findings
