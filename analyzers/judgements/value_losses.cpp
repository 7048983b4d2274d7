#include "ulpscope/analyzers/judgements/value_losses.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <tuple>

#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/trend.h"
#include "ulpscope/analyzers/totals/measures_of_passes.h"
#include "ulpscope/trace/measure_names.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope {

namespace {

using Passes = MeasuresOfPasses::mapped_type;

// The values of one name, in the order of passes.
std::vector<double> values_of(const Passes& passes, size_t name) {
  std::vector<double> values;
  for (const auto& [pass, measured] : passes)
    if (measured[name]) values.push_back(*measured[name]);
  return values;
}

// The loss that one name measures; nothing where it was not measured.
std::optional<ValueLoss> loss_of(uint32_t tensor, const Passes& passes, size_t name) {
  const std::vector<double> values = values_of(passes, name);
  if (values.empty()) return std::nullopt;
  ValueLoss loss{.tensor = tensor, .share = median(values)};
  std::set<uint64_t> steps;
  std::optional<uint64_t> first_felt;
  for (const auto& [pass, measured] : passes) {
    if (!measured[name]) continue;
    steps.insert(std::get<0>(pass));
    if (!first_felt && *measured[name] >= ValueLoss::kFelt) first_felt = std::get<0>(pass);
  }
  loss.steps = steps.size();
  loss.first_step = first_felt.value_or(*steps.begin());
  return loss;
}

// The op hands on what it reads, or what was cut off or scaled of it; an addition does where it adds a number.
bool hands_on(const Snapshot& trace, const GraphEdge& use) {
  switch (trace.ops()[use.consumer].function) {
    case OpFunction::cast:
    case OpFunction::copy:
    case OpFunction::abs:
    case OpFunction::relu:
    case OpFunction::clamp:
    case OpFunction::scale:
      return true;
    case OpFunction::add: {
      const std::span<const GraphEdge> inputs = trace.graph().inputs(use.consumer);
      return std::all_of(inputs.begin(), inputs.end(), [&](const GraphEdge& each) { return each.producer == use.producer; });
    }
    default:
      return false;
  }
}

// A relative error of what it reads there is one of its result, however small that is.
bool depends_on_relative_error(const OpInfo& op, uint32_t input) {
  switch (op.function) {
    case OpFunction::sqrt:
    case OpFunction::rsqrt:
    case OpFunction::log:
    case OpFunction::reciprocal:
      return input == 0;
    case OpFunction::div:
      return input == 1;
    case OpFunction::pow: {
      const std::optional<double> exponent = attribute(op, "exponent");
      return input == 0 && exponent && (*exponent < 0 || *exponent != std::trunc(*exponent));
    }
    default:
      return false;
  }
}

// Through any number of ops that hand it on.
template <typename Found>
std::optional<uint32_t> reader_of(const Snapshot& trace, uint32_t tensor, const Found& is_found) {
  std::vector<std::pair<uint32_t, std::optional<uint32_t>>> reached{{trace.tensors()[tensor].op, trace.tensors()[tensor].slot}};
  for (size_t i = 0; i < reached.size(); ++i) {
    const auto [op, slot] = reached[i];
    for (const GraphEdge& use : trace.graph().uses(op)) {
      if ((slot && use.slot != *slot) || !trace.graph().is_within_step(use)) continue;
      if (is_found(trace.ops()[use.consumer], use.input)) return use.consumer;
      const auto is_it = [&](const auto& one) { return one.first == use.consumer; };
      if (hands_on(trace, use) && std::none_of(reached.begin(), reached.end(), is_it))
        reached.push_back({use.consumer, std::nullopt});
    }
  }
  return std::nullopt;
}

// A mask is added to what they read: where it is large, the other operand is meant to be lost.
bool is_masked(const OpInfo& op, uint32_t) {
  switch (op.function) {
    case OpFunction::softmax:
    case OpFunction::log_softmax:
    case OpFunction::logsumexp:
    case OpFunction::cross_entropy:
    case OpFunction::max:
      return true;
    default:
      return false;
  }
}

// The ops that are not elementwise and that a value comes from through such as are.
std::set<uint32_t> sources_of(const Snapshot& trace, uint32_t op) {
  std::set<uint32_t> seen{op}, sources;
  std::vector<uint32_t> open{op};
  while (!open.empty()) {
    const uint32_t next = open.back();
    open.pop_back();
    const OpKind kind = trace.ops()[next].kind;
    const std::span<const GraphEdge> inputs = trace.graph().inputs(next);
    if ((kind != OpKind::elementwise && kind != OpKind::cast) || inputs.empty()) sources.insert(next);
    if (sources.contains(next)) continue;
    for (const GraphEdge& read : inputs)
      if (trace.graph().is_within_step(read) && seen.insert(read.producer).second) open.push_back(read.producer);
  }
  return sources;
}

// Both addends are functions of the same values, element by element, as those of a polynomial are: of a small x nothing is lost
// where x + c x^3 is x.
bool adds_terms_of_function(const Snapshot& trace, uint32_t op) {
  std::vector<std::set<uint32_t>> sources;
  for (const GraphEdge& read : trace.graph().inputs(op)) sources.push_back(sources_of(trace, read.producer));
  return sources.size() < 2 || std::all_of(sources.begin(), sources.end(), [&](const auto& each) { return each == sources[0]; });
}

template <typename Loss, typename Share>
void sort_by_share(std::vector<Loss>& losses, const Share& share) {
  std::stable_sort(losses.begin(), losses.end(), [&](const Loss& a, const Loss& b) { return share(a) > share(b); });
}

}  // namespace

ValueLosses value_losses_of(const RunFacts& facts) {
  enum Measure : size_t { addend_lost, cancelled, whole_numbers, neighbours, features, feature };
  const MeasuresOfPasses outputs = measures_of_passes(
      facts.context, {kAddendLost, kCancelled, kWholeNumbersRounded, kNeighboursMerged, kFeaturesMerged, kMergedFeature});
  const Snapshot& trace = facts.context.trace;
  ValueLosses losses;
  for (const auto& [tensor, passes] : outputs) {
    const TensorInfo& made = trace.tensors()[tensor];
    if (const auto lost = loss_of(tensor, passes, addend_lost))
      if (made.role == Role::activation && made.shape.size() > 1 && !reader_of(trace, tensor, is_masked) &&
          !adds_terms_of_function(trace, made.op))
        losses.addends.push_back(*lost);
    if (const auto lost = loss_of(tensor, passes, cancelled); lost && lost->share >= ValueLoss::kFelt)
      if (const auto reader = reader_of(trace, tensor, depends_on_relative_error)) losses.cancellations.push_back({*lost, *reader});
    if (const auto lost = loss_of(tensor, passes, whole_numbers))
      losses.whole_numbers.push_back({*lost, median(values_of(passes, neighbours))});
    if (const auto lost = loss_of(tensor, passes, features)) {
      const std::vector<double> first = values_of(passes, feature);
      losses.features.push_back({*lost, first.empty() ? 0 : static_cast<uint64_t>(first.front())});
    }
  }
  sort_by_share(losses.addends, [](const ValueLoss& each) { return each.share; });
  sort_by_share(losses.cancellations, [](const Cancellation& each) { return each.loss.share; });
  sort_by_share(losses.whole_numbers, [](const WholeNumbersLoss& each) { return each.merged_pairs; });
  sort_by_share(losses.features, [](const FeaturesLoss& each) { return each.loss.share; });
  return losses;
}

}  // namespace ulpscope
