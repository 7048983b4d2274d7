#include "ulpscope/analyzers/judgements/value_losses.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/trend.h"
#include "ulpscope/analyzers/totals/measures_of_passes.h"
#include "ulpscope/trace/measure_names.h"

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

// The middle between the first and the last step that has measures.
uint64_t middle_step(const Passes& passes) {
  const uint64_t first = std::get<0>(passes.begin()->first), last = std::get<0>(passes.rbegin()->first);
  return first + (last - first + 1) / 2;
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

// The magnitude of a number of the op's; infinite where calls differ.
double constant_of(const OpInfo& op, std::string_view name) {
  if (attribute_text(op, name).empty()) return 0;
  return std::abs(attribute(op, name).value_or(INFINITY));
}

// Answers where values of a forward pass come from and go to. Each op is looked at once for each kind of question.
class ForwardGraph {
 public:
  explicit ForwardGraph(const Snapshot& trace) : trace_(trace), ops_(trace.ops()), has_weight_(ops_.size()) {
    std::vector<uint32_t> losses;
    for (const TensorInfo& tensor : trace.tensors()) {
      if (tensor.role == Role::loss) losses.push_back(tensor.op);
      if (tensor.role == Role::weight || tensor.role == Role::weight_cast) has_weight_[tensor.op] = true;
    }
    reaches_loss_.assign(ops_.size(), losses.empty());
    for (const uint32_t op : losses) reaches_loss_[op] = true;
    while (!losses.empty()) {
      const uint32_t op = losses.back();
      losses.pop_back();
      for (const GraphEdge& read : trace.graph().inputs(op))
        if (is_forward(read) && !reaches_loss_[read.producer]) {
          reaches_loss_[read.producer] = true;
          losses.push_back(read.producer);
        }
    }
  }

  // The first op on which the loss depends and which takes a root, a logarithm or a quotient of the tensor, or of what others hand
  // on or cut off of it. `left`: the op does not read noise of that size where a constant as large is added to it, or takes its
  // place.
  std::optional<uint32_t> root_of(uint32_t tensor, double left) const {
    return reader_of(
        tensor, [&](const GraphEdge& use) { return hands_on(use, left); },
        [&](const GraphEdge& use) {
          return reaches_loss_[use.consumer] && depends_on_relative_error(ops_[use.consumer], use.input);
        });
  }

  // Sines or cosines are taken of the tensor, or of multiples of it.
  bool makes_angles(uint32_t tensor) const {
    const auto is_angle = [&](const GraphEdge& use) {
      const OpFunction function = ops_[use.consumer].function;
      return function == OpFunction::sin || function == OpFunction::cos;
    };
    return reader_of(
               tensor, [&](const GraphEdge& use) { return multiplies(use); }, is_angle)
        .has_value();
  }

  // Both addends are functions of the same values, element by element, as those of a polynomial are: of a small x nothing is lost
  // where x + c x^3 is x.
  bool adds_terms_of_function(uint32_t op) {
    std::set<uint32_t> producers;
    for (const GraphEdge& read : trace_.graph().inputs(op)) producers.insert(read.producer);
    if (producers.size() < 2) return true;
    const std::set<uint32_t>& first = sources_of(*producers.begin());
    return std::all_of(producers.begin(), producers.end(), [&](uint32_t producer) { return sources_of(producer) == first; });
  }

 private:
  bool is_forward(const GraphEdge& edge) const {
    return trace_.graph().is_within_step(edge) && ops_[edge.consumer].phase != Phase::backward;
  }
  bool reads_one(const GraphEdge& use) const {
    const std::span<const GraphEdge> inputs = trace_.graph().inputs(use.consumer);
    return std::all_of(inputs.begin(), inputs.end(), [&](const GraphEdge& each) { return each.producer == use.producer; });
  }
  bool reads_weight(const GraphEdge& use) const {
    const std::span<const GraphEdge> inputs = trace_.graph().inputs(use.consumer);
    return std::any_of(inputs.begin(), inputs.end(), [&](const GraphEdge& each) { return has_weight_[each.producer]; });
  }
  bool hands_on(const GraphEdge& use, double left) const {
    const OpInfo& op = ops_[use.consumer];
    switch (op.function) {
      case OpFunction::cast:
      case OpFunction::copy:
      case OpFunction::abs:
      case OpFunction::neg:
      case OpFunction::relu:
      case OpFunction::scale:
      case OpFunction::masked_fill:
        return true;
      case OpFunction::where:
        return use.input > 0;
      case OpFunction::clamp:
        return constant_of(op, "min") < left;
      case OpFunction::mul:
      case OpFunction::div:
        return use.input == 0 && reads_one(use);
      case OpFunction::add:
      case OpFunction::sub:
        return reads_one(use) && constant_of(op, "other") < left;
      default:
        return op.name == "nan_to_num";
    }
  }
  bool multiplies(const GraphEdge& use) const {
    const OpInfo& op = ops_[use.consumer];
    switch (op.function) {
      case OpFunction::cast:
      case OpFunction::copy:
      case OpFunction::neg:
      case OpFunction::scale:
      case OpFunction::cat:
        return true;
      case OpFunction::div:
        return use.input == 0;
      case OpFunction::mul:
        return !reads_weight(use);
      default:
        return op.kind == OpKind::product && !reads_weight(use);
    }
  }

  template <typename GoesOn, typename Found>
  std::optional<uint32_t> reader_of(uint32_t tensor, const GoesOn& goes_on, const Found& is_found) const {
    const uint32_t made_by = trace_.tensors()[tensor].op, slot = trace_.tensors()[tensor].slot;
    std::vector<uint32_t> reached{made_by};
    std::set<uint32_t> seen{made_by};
    for (size_t i = 0; i < reached.size(); ++i)
      for (const GraphEdge& use : trace_.graph().uses(reached[i])) {
        if ((i == 0 && use.slot != slot) || !is_forward(use)) continue;
        if (is_found(use)) return use.consumer;
        if (goes_on(use) && seen.insert(use.consumer).second) reached.push_back(use.consumer);
      }
    return std::nullopt;
  }

  // The ops that are not elementwise and that a value comes from through such as are.
  const std::set<uint32_t>& sources_of(uint32_t op) {
    const auto [place, is_new] = sources_.try_emplace(op);
    std::set<uint32_t>& sources = place->second;
    if (!is_new) return sources;
    std::set<uint32_t> seen{op};
    std::vector<uint32_t> open{op};
    while (!open.empty()) {
      const uint32_t next = open.back();
      open.pop_back();
      const OpKind kind = ops_[next].kind;
      const std::span<const GraphEdge> inputs = trace_.graph().inputs(next);
      if ((kind != OpKind::elementwise && kind != OpKind::cast) || inputs.empty()) {
        sources.insert(next);
        continue;
      }
      for (const GraphEdge& read : inputs)
        if (trace_.graph().is_within_step(read) && seen.insert(read.producer).second) open.push_back(read.producer);
    }
    return sources;
  }

  const Snapshot trace_;
  const std::vector<OpInfo>& ops_;
  std::vector<bool> has_weight_, reaches_loss_;     // by op
  std::map<uint32_t, std::set<uint32_t>> sources_;  // by op, as far as they were asked for
};

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
  ValueLosses losses;
  if (outputs.empty()) return losses;
  const Snapshot& trace = facts.context.trace;
  ForwardGraph graph(trace);
  for (const auto& [tensor, passes] : outputs) {
    const TensorInfo& made = trace.tensors()[tensor];
    if (!is_float(made.dtype)) continue;
    const uint64_t from = middle_step(passes);
    const auto felt = [&](Measure name) {
      const std::optional<ValueLoss> loss = loss_of(tensor, passes, name, from);
      return loss && loss->share >= ValueLoss::kFelt ? loss : std::nullopt;
    };
    const auto other = [&](Measure name) {
      const std::vector<double> values = values_of(passes, name, from);
      return values.empty() ? 0 : median(values);
    };
    if (const auto loss = felt(addend_lost))
      if (made.role == Role::activation && made.shape.size() > 1 && !graph.adds_terms_of_function(made.op))
        losses.addends.push_back({*loss, other(addend_size)});
    if (const auto loss = felt(cancelled))
      if (const auto reader = graph.root_of(tensor, other(cancelled_size))) losses.cancellations.push_back({*loss, *reader});
    if (const auto loss = loss_of(tensor, passes, features, from); loss && loss->share > 0) {
      const std::vector<double> places = values_of(passes, feature, from);
      const bool is_place = !places.empty() && places.front() <= 0x1p48;
      losses.features.push_back({*loss, is_place ? std::optional(static_cast<uint64_t>(places.front())) : std::nullopt});
    } else if (const auto rounded = loss_of(tensor, passes, whole_numbers, from)) {
      losses.whole_numbers.push_back({*rounded, other(neighbours), graph.makes_angles(tensor)});
    }
  }
  sort_by_share(losses.addends, [](const AddendLoss& each) { return each.loss.share; });
  sort_by_share(losses.cancellations, [](const Cancellation& each) { return each.loss.share; });
  sort_by_share(losses.whole_numbers, [](const WholeNumbersLoss& each) { return each.loss.share; });
  sort_by_share(losses.features, [](const FeaturesLoss& each) { return each.loss.share; });
  return losses;
}

}  // namespace ulpscope
