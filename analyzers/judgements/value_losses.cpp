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

// The values of one name in passes from a step on, in their order.
std::vector<double> values_of(const Passes& passes, size_t name, uint64_t from) {
  std::vector<double> values;
  for (const auto& [pass, measured] : passes)
    if (measured[name] && std::get<0>(pass) >= from) values.push_back(*measured[name]);
  return values;
}

// The loss that one name measures; nothing where it was not measured.
std::optional<ValueLoss> loss_of(uint32_t tensor, const Passes& passes, size_t name, uint64_t from) {
  const std::vector<double> values = values_of(passes, name, from);
  if (values.empty()) return std::nullopt;
  ValueLoss loss{.tensor = tensor, .share = median(values)};
  std::set<uint64_t> steps;
  std::optional<uint64_t> first_felt;
  for (const auto& [pass, measured] : passes) {
    if (!measured[name]) continue;
    if (!first_felt && *measured[name] >= ValueLoss::kFelt) first_felt = std::get<0>(pass);
    if (std::get<0>(pass) >= from) steps.insert(std::get<0>(pass));
  }
  loss.steps = steps.size();
  loss.first_step = first_felt.value_or(*steps.begin());
  return loss;
}

// Where the last half of the steps begins that have measures.
uint64_t last_half(const Passes& passes) {
  const uint64_t first = std::get<0>(passes.begin()->first), last = std::get<0>(passes.rbegin()->first);
  return first + (last - first + 1) / 2;
}

bool reads_one(const Snapshot& trace, const GraphEdge& use) {
  const std::span<const GraphEdge> inputs = trace.graph().inputs(use.consumer);
  return std::all_of(inputs.begin(), inputs.end(), [&](const GraphEdge& each) { return each.producer == use.producer; });
}

// The op hands on what it reads, or what was cut off or scaled of it; `left`: of what is that large a constant takes the place, or
// is added.
bool hands_on(const Snapshot& trace, const GraphEdge& use, double left) {
  const OpInfo& op = trace.ops()[use.consumer];
  switch (op.function) {
    case OpFunction::cast:
    case OpFunction::copy:
    case OpFunction::abs:
    case OpFunction::neg:
    case OpFunction::relu:
    case OpFunction::scale:
      return true;
    case OpFunction::maximum:
    case OpFunction::minimum:
    case OpFunction::masked_fill:
      return true;
    case OpFunction::where:
      return use.input > 0;
    case OpFunction::clamp:
      return attribute(op, "min").value_or(0) < left;
    case OpFunction::mul:
    case OpFunction::div:
      return use.input == 0 && reads_one(trace, use);
    case OpFunction::add:
    case OpFunction::sub:
      return reads_one(trace, use) && std::abs(attribute(op, "other").value_or(0)) < left;
    default:
      return op.name == "nan_to_num";
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

// The first op that is found among those that read a tensor, through ops that go on with it.
template <typename GoesOn, typename Found>
std::optional<uint32_t> reader_of(const Snapshot& trace, uint32_t tensor, const GoesOn& goes_on, const Found& is_found) {
  std::vector<std::pair<uint32_t, std::optional<uint32_t>>> reached{{trace.tensors()[tensor].op, trace.tensors()[tensor].slot}};
  for (size_t i = 0; i < reached.size(); ++i) {
    const auto [op, slot] = reached[i];
    for (const GraphEdge& use : trace.graph().uses(op)) {
      if ((slot && use.slot != *slot) || !trace.graph().is_within_step(use)) continue;
      if (is_found(trace.ops()[use.consumer], use.input)) return use.consumer;
      const auto is_it = [&](const auto& one) { return one.first == use.consumer; };
      if (goes_on(use) && std::none_of(reached.begin(), reached.end(), is_it)) reached.push_back({use.consumer, std::nullopt});
    }
  }
  return std::nullopt;
}

// What the loss does not depend on is nobody's.
bool reaches_loss(const Snapshot& trace, uint32_t op) {
  std::set<uint32_t> losses, seen{op};
  for (const TensorInfo& tensor : trace.tensors())
    if (tensor.role == Role::loss) losses.insert(tensor.op);
  std::vector<uint32_t> open{op};
  while (!open.empty()) {
    const uint32_t next = open.back();
    open.pop_back();
    if (losses.contains(next)) return true;
    for (const GraphEdge& use : trace.graph().uses(next))
      if (trace.graph().is_within_step(use) && trace.ops()[use.consumer].phase != Phase::backward &&
          seen.insert(use.consumer).second)
        open.push_back(use.consumer);
  }
  return losses.empty();
}

std::optional<uint32_t> root_of(const Snapshot& trace, uint32_t tensor, double left) {
  const auto reader = reader_of(
      trace, tensor, [&](const GraphEdge& use) { return hands_on(trace, use, left); }, depends_on_relative_error);
  return reader && reaches_loss(trace, *reader) ? reader : std::nullopt;
}

bool makes_angles(const Snapshot& trace, uint32_t tensor) {
  const auto goes_on = [&](const GraphEdge& use) {
    const OpInfo& op = trace.ops()[use.consumer];
    return op.kind == OpKind::elementwise || op.kind == OpKind::cast || op.kind == OpKind::product ||
           op.function == OpFunction::cat || op.function == OpFunction::copy;
  };
  const auto is_angle = [](const OpInfo& op, uint32_t) { return op.function == OpFunction::sin || op.function == OpFunction::cos; };
  return reader_of(trace, tensor, goes_on, is_angle).has_value();
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
  enum Measure : size_t { addend_lost, addend_size, cancelled, cancelled_size, whole_numbers, neighbours, features, feature };
  const MeasuresOfPasses outputs =
      measures_of_passes(facts.context, {kAddendLost, kAddendSize, kCancelled, kCancelledSize, kWholeNumbersRounded,
                                         kNeighboursMerged, kFeaturesMerged, kMergedFeature});
  const Snapshot& trace = facts.context.trace;
  ValueLosses losses;
  for (const auto& [tensor, passes] : outputs) {
    const TensorInfo& made = trace.tensors()[tensor];
    const uint64_t from = last_half(passes);
    const auto lost = [&](Measure name) { return loss_of(tensor, passes, name, from); };
    const auto other = [&](Measure name) {
      const std::vector<double> values = values_of(passes, name, from);
      return values.empty() ? 0 : median(values);
    };
    if (const auto loss = lost(addend_lost))
      if (made.role == Role::activation && made.shape.size() > 1 && !adds_terms_of_function(trace, made.op))
        losses.addends.push_back({*loss, other(addend_size)});
    if (const auto loss = lost(cancelled); loss && loss->share >= ValueLoss::kFelt)
      if (const auto reader = root_of(trace, tensor, other(cancelled_size))) losses.cancellations.push_back({*loss, *reader});
    const auto of_data = lost(features);
    if (of_data && of_data->share > 0)
      losses.features.push_back({*of_data, static_cast<uint64_t>(values_of(passes, feature, from).front())});
    else if (const auto loss = lost(whole_numbers))
      losses.whole_numbers.push_back({*loss, other(neighbours), makes_angles(trace, tensor)});
  }
  sort_by_share(losses.addends, [](const AddendLoss& each) { return each.loss.share; });
  sort_by_share(losses.cancellations, [](const Cancellation& each) { return each.loss.share; });
  sort_by_share(losses.whole_numbers, [](const WholeNumbersLoss& each) { return each.merged_pairs; });
  sort_by_share(losses.features, [](const FeaturesLoss& each) { return each.loss.share; });
  return losses;
}

}  // namespace ulpscope
