// How much of the matrix products of a mixed-precision run stays in FP32, and what casts cost.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/matrix_products.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/base/text.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::findings {

namespace {

constexpr Template kCoverage{"autocast.coverage",
                             "{share} of the forward pass's matmul FLOPs stay in {wide} in a run in {format}: {places}."};
constexpr Template kModule{"autocast.coverage.module", "`{module}`"};
constexpr Template kOp{"autocast.coverage.op", "`{op}`"};
constexpr Template kMorePlaces{"autocast.coverage.more", "{more} more"};
constexpr Template kCasts{"autocast.coverage.casts", "Casts read and write {bytes} per step{rank}."};
constexpr Template kAndRank{"autocast.coverage.and_rank", " and rank"};
constexpr Template kComputeNarrow{
    "advice.compute_products_narrow",
    "Where they do not need {wide}, compute them in {format}{setting:brackets}: tensor cores multiply "
    "it several times faster."};

// Calls of an op, and elements of their outputs, in the steps that are asked for.
struct Calls {
  uint64_t count = 0, elements = 0;
};
Calls calls_of(const RunFacts& facts, uint32_t tensor) {
  const RangeJudgement::Tensor* const rows = facts.ranges().find(tensor);
  if (rows == nullptr) return {};
  Calls calls{rows->judged.totals.rows, rows->judged.totals.elements};
  if (rows->broken != nullptr) {
    calls.count += rows->broken->totals.rows;
    calls.elements += rows->broken->totals.elements;
  }
  return calls;
}

// The wide products of a module, or of an op outside of all.
struct Place {
  uint32_t tensor = 0;  // of the product with most of them
  double flop = 0, most = 0;
  uint64_t calls = 0;
};

// The softmax of PyTorch's math path of attention, which computes in FP32 whatever autocast says.
bool is_safe_softmax(const OpInfo& op) {
  return has_trait(op.function, kWeighsRow) && (op.name == "_safe_softmax" || attribute(op, "safe").value_or(0) != 0);
}

// Such a softmax reads the product, with a mask added or not, or the product reads what that gave.
bool is_of_math_path(const RunFacts& facts, uint32_t product) {
  const Snapshot& trace = facts.context.trace;
  const auto inputs = trace.graph().inputs(product), uses = trace.graph().uses(product);
  const auto is_safe = [&](uint32_t op) { return is_safe_softmax(trace.ops()[op]); };
  const auto is_read = [&](const GraphEdge& use) {
    const auto behind = trace.graph().uses(use.consumer);
    return is_safe(use.consumer) ||
           (trace.ops()[use.consumer].function == OpFunction::add &&
            std::any_of(behind.begin(), behind.end(), [&](const GraphEdge& each) { return is_safe(each.consumer); }));
  };
  return std::any_of(inputs.begin(), inputs.end(), [&](const GraphEdge& edge) { return is_safe(edge.producer); }) ||
         std::any_of(uses.begin(), uses.end(), is_read);
}

// The bytes that casts read and wrote.
double bytes_of_casts(const RunFacts& facts) {
  double bytes = 0;
  for (uint32_t i = 0; i < facts.selection.size(); ++i) {
    const TensorInfo& made = facts.selection.tensor(i);
    const OpInfo& op = facts.selection.op(i);
    if (op.kind != OpKind::cast || made.slot != 0 || op.phase == Phase::evaluation || op.phase == Phase::data) continue;
    const std::span<const uint32_t> read = facts.context.graph.tensors_read_by(made.op, 0);
    if (read.empty()) continue;
    const DType from = facts.selection.tensor(read.front()).dtype;
    bytes += static_cast<double>(calls_of(facts, i).elements) * static_cast<double>(info(from).size + info(made.dtype).size);
  }
  return bytes;
}

Sentence casts_sentence(const RunFacts& facts) {
  const double bytes = bytes_of_casts(facts);
  const size_t ranks = facts.context.trace.ranks().size();
  if (bytes == 0 || facts.steps().count == 0) return {};
  return kCasts({{"bytes", {bytes / static_cast<double>(facts.steps().count * ranks), Unit::bytes}},
                 {"rank", ranks > 1 ? kAndRank() : Sentence()}});
}

Value name_of_place(const OpInfo& op) {
  if (op.module.empty()) return kOp({{"op", Name{NameKind::op, op.name}}});
  return kModule({{"module", Name{NameKind::module, op.module}}});
}

void find_coverage(const RunFacts& facts, Findings& found) {
  constexpr double kLeast = 0.01;  // at an eighth of the speed that is 7% of the time of the products
  constexpr size_t kNamed = 3;
  const Selection& selection = facts.selection;
  std::map<DType, double> narrow, wide;
  std::map<std::string, Place> places;
  double all = 0, all_wide = 0;
  for (const MatrixProduct& product : forward_products(facts.context)) {
    if (product.shape.k == ProductShape::kUnknown) continue;
    const TensorInfo& made = selection.tensor(product.tensor);
    const uint64_t calls = calls_of(facts, product.tensor).count;
    const double flop = static_cast<double>(calls) * flop_of(facts.context, product);
    all += flop;
    if (is_of_math_path(facts, made.op)) continue;
    (is_narrow(made.dtype) ? narrow : wide)[made.dtype] += flop;
    if (is_narrow(made.dtype) || flop == 0) continue;
    all_wide += flop;
    const OpInfo& op = selection.op(product.tensor);
    Place& place = places[op.module.empty() ? " " + op.name : op.module];
    place.flop += flop;
    place.calls += calls;
    if (flop > place.most) {
      place.most = flop;
      place.tensor = product.tensor;
    }
  }
  if (narrow.empty() || all_wide == 0 || all_wide < kLeast * all) return;
  const auto most_of = [](const std::map<DType, double>& types) {
    return std::max_element(types.begin(), types.end(), [](const auto& a, const auto& b) { return a.second < b.second; })->first;
  };
  const Name format = format_name(*info(most_of(narrow)).format), wide_format = format_name(*info(most_of(wide)).format);
  std::vector<Place> sorted;
  for (const auto& [unused, place] : places) sorted.push_back(place);
  std::stable_sort(sorted.begin(), sorted.end(), [](const Place& a, const Place& b) { return a.flop > b.flop; });
  Value::List names;
  Suspects suspects(selection);
  for (const Place& place : sorted) {
    if (names.size() < kNamed) names.push_back(name_of_place(selection.op(place.tensor)));
    suspects.add(place.flop, place.tensor,
                 {{"share_of_flops", place.flop / all, Unit::share}, {"products", count_cell(place.calls), Unit::count}});
  }
  if (sorted.size() > kNamed) names.push_back(kMorePlaces({{"more", sorted.size() - kNamed}}));
  Sentences title = kCoverage({{"share", {all_wide / all, Unit::share}},
                               {"wide", wide_format},
                               {"format", format},
                               {"places", Value::list(std::move(names))}});
  title += casts_sentence(facts);
  found.add(
      Severity::info, std::move(title), suspects.worst(),
      kComputeNarrow(
          {{"wide", wide_format}, {"format", format}, {"setting", facts.context.settings.now(SettingKind::precision_of_modules)}}));
}

}  // namespace

extern constinit const FindingRule autocast_coverage{
    .code = "autocast.coverage",
    .part = Part::tensor_cores,
    .raised =
        "A run multiplied matrices in 16 bits or FP8 in its forward pass, and at least 1% of its matmul FLOPs in a wider type. The "
        "math "
        "path of attention, which computes in FP32 on purpose, is left out.",
    .meaning = "Tensor cores multiply 16 bits 8 to 16 times as fast as FP32, so that 1% of the FLOPs may take 7% of the time.",
    .help = "Call these modules under autocast, unless they need the wider type.",
    .is_about_run = false,
    .shown_by = "experiments/failures/loss_scale_too_large.toml --set autocast.modules.first=fp32",
    .find = find_coverage,
};

}  // namespace ulpscope::findings
