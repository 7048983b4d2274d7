#include "ulpscope/analyzers/judgements/gradients_read.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>

#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope {

namespace {

constexpr uint64_t kMostStepsLookedAt = 16;
constexpr double kLeastScaleTold = 4;  // below it, a norm with the scale in it is not told from one without

// The rows of one tensor in a step, of gradients or of weights.
struct TensorRows {
  uint32_t first_sequence = 0;
  uint64_t count = 0;
  double scale = 1, sum_of_squares = NAN;  // of the last one
  double first_sum_of_squares = NAN;
};

class LookedAtStep {
 public:
  LookedAtStep(const RunFacts& facts, const StepRow& step) : facts_(facts), step_(step) {}

  const StepRow& row() const { return step_; }
  void add(const TensorRow& row) {
    const auto [at, is_new] = rows_.try_emplace(row.tensor);
    TensorRows& rows = at->second;
    rows.sum_of_squares = row.known == StatisticsLevel::values ? row.statistics.sum_of_squares : NAN;
    if (is_new || row.sequence < rows.first_sequence) {
      rows.first_sequence = row.sequence;
      rows.first_sum_of_squares = rows.sum_of_squares;
    }
    ++rows.count;
    rows.scale = row.scale;
  }

  // The gradients that updates of the step read; nothing where one is not known.
  std::optional<std::vector<uint32_t>> read_by_updates() const {
    std::vector<uint32_t> found;
    for (const uint32_t weight : updated()) {
      const size_t before = found.size();
      for_each_gradient(tensor(weight).op, [&](uint32_t gradient, const TensorRows&) { found.push_back(gradient); });
      if (found.size() != before + 1) return std::nullopt;
    }
    return found;
  }

  // The loss scale in them, where the norm that the step has of them shows that no update divided them by it.
  std::optional<double> scale_in(const std::vector<uint32_t>& gradients) const {
    if (gradients.empty() || !step_.norm_known || !std::isfinite(step_.clipped_gradient_norm)) return std::nullopt;
    const double scale = rows_.at(gradients.front()).scale;
    double squares = 0;
    for (const uint32_t gradient : gradients) {
      const TensorRows& rows = rows_.at(gradient);
      if (rows.scale != scale) return std::nullopt;
      squares += rows.sum_of_squares;
    }
    if (!std::all_of(gradients.begin(), gradients.end(), [&](uint32_t each) { return keeps_scale(each); })) return std::nullopt;
    const bool is_in_norm = step_.clipped_gradient_norm > std::sqrt(squares / scale);
    return scale >= kLeastScaleTold && squares > 0 && std::isfinite(squares) && is_in_norm ? std::optional(scale) : std::nullopt;
  }

  // Gradients that were unscaled in a step whose scale was put on some loss, and that have none of it.
  struct Unscaled {
    std::vector<uint32_t> never_scaled;
    bool is_all = true;  // no gradient of the step has it
  };
  Unscaled unscaled() const {
    Unscaled found;
    if (!has_loss_with_scale()) return found;
    for (const auto& [made, rows] : rows_) {
      if (is_gradient(tensor(made).role) && rows.scale != 1) found.is_all = false;
      if (facts_.selection.op(made).function != OpFunction::unscale || tensor(made).role != Role::unscaled_gradient) continue;
      if (reads_values_without_scale(tensor(made).op)) found.never_scaled.push_back(made);
    }
    return found;
  }

  // Gradients of parameters that an update had read before, which began with what was made in a step before this one.
  std::vector<uint32_t> began_with_earlier(const std::set<std::string>& updated_before) const {
    std::vector<uint32_t> found;
    for (const auto& [sum, rows] : rows_) {
      const TensorInfo& info = tensor(sum);
      if (!is_sum(sum) || !updated_before.contains(info.parameter)) continue;
      const std::set<uint32_t> sums = sums_of(info.parameter);
      const bool is_kept = count_of(sums) > 1 ? all_were_added(sums) : read_earlier(info, rows);
      if (is_kept && is_updated_by(sum)) found.push_back(sum);
    }
    return found;
  }

  std::set<std::string> updated_parameters() const {
    std::set<std::string> names;
    for (const uint32_t weight : updated()) names.insert(tensor(weight).parameter);
    names.erase("");
    return names;
  }

 private:
  // It is as a backward pass left it, or was clipped once. What a program multiplies gradients by otherwise may be the inverse
  // scale.
  bool keeps_scale(uint32_t gradient) const {
    constexpr double kSame = 0.01;
    if (facts_.selection.op(gradient).phase == Phase::backward) return true;
    const double before = step_.gradient_norm, after = step_.clipped_gradient_norm;
    bool is_clipped = !(std::abs(before - after) <= kSame * before);
    for_each_gradient(tensor(gradient).op, [&](uint32_t read, const auto&) {
      is_clipped = is_clipped && facts_.selection.op(read).phase == Phase::backward;
    });
    return is_clipped;
  }

  const TensorInfo& tensor(uint32_t index) const { return facts_.selection.tensor(index); }

  bool is_of_optimizer(const GraphEdge& edge) const { return facts_.context.trace.ops()[edge.producer].phase == Phase::optimizer; }

  // A loss of the step was multiplied by the scale, and nothing was made of it but what backward passes began at: the scale of what
  // else is made of a scaled loss is not told.
  bool has_loss_with_scale() const {
    if (step_.scale_before < kLeastScaleTold) return false;
    bool has_loss = false;
    for (const auto& [made, rows] : rows_) {
      if (tensor(made).role != Role::loss || rows.scale != step_.scale_before) continue;
      has_loss = true;
      for (const GraphEdge& use : facts_.context.trace.graph().uses(tensor(made).op, step_.graph))
        if (use.slot == tensor(made).slot && facts_.context.trace.ops()[use.consumer].phase != Phase::backward) return false;
    }
    return has_loss;
  }

  // The op reads gradients that are not all 0, of which none has a scale, nor has one that sums on the way added up.
  bool reads_values_without_scale(uint32_t op) const {
    bool reads_values = false, reads_scaled = false;
    std::set<uint32_t> seen;
    std::vector<uint32_t> ops{op};
    for (size_t i = 0; i < ops.size(); ++i) {
      for_each_gradient(ops[i], [&](uint32_t gradient, const TensorRows& read) {
        reads_values = reads_values || (std::isfinite(read.sum_of_squares) && read.sum_of_squares > 0);
        reads_scaled = reads_scaled || read.scale != 1;
        if (is_sum(gradient) && seen.insert(gradient).second) ops.push_back(tensor(gradient).op);
      });
    }
    return reads_values && !reads_scaled;
  }

  bool is_sum(uint32_t made) const { return facts_.selection.op(made).function == OpFunction::accumulate; }

  // Edges are those of all calls of the step, so that of several sums of a parameter it is not known which read what. Where the
  // first gradient of the step began anew there are fewer sums than gradients, and where it was added to zeros the sum is what it
  // was.
  bool all_were_added(const std::set<uint32_t>& sums) const {
    std::set<uint32_t> gradients;
    for (const uint32_t sum : sums) {
      for (const GraphEdge& edge : facts_.context.trace.graph().inputs(tensor(sum).op, step_.graph)) {
        if (is_of_optimizer(edge)) return false;
        for (const uint32_t made : facts_.context.graph.made_by(edge.producer, edge.slot))
          if (rows_.contains(made) && !is_sum(made) && is_gradient(tensor(made).role)) gradients.insert(made);
      }
    }
    if (gradients.empty()) return false;
    const auto first = [&](const std::set<uint32_t>& made) {
      return rows_
          .at(*std::min_element(made.begin(), made.end(),
                                [&](uint32_t a, uint32_t b) { return rows_.at(a).first_sequence < rows_.at(b).first_sequence; }))
          .first_sum_of_squares;
    };
    // The same values may lie in another order in memory, which is that of the sums of squares.
    constexpr double kSame = 1e-9;
    const double sum = first(sums), gradient = first(gradients);
    return count_of(sums) >= count_of(gradients) && std::isfinite(gradient) && std::abs(sum - gradient) > kSame * gradient;
  }

  std::set<uint32_t> sums_of(const std::string& parameter) const {
    std::set<uint32_t> sums;
    for (const auto& [made, rows] : rows_)
      if (is_sum(made) && is_gradient(tensor(made).role) && tensor(made).parameter == parameter) sums.insert(made);
    return sums;
  }
  uint64_t count_of(const std::set<uint32_t>& tensors) const {
    return std::accumulate(tensors.begin(), tensors.end(), uint64_t{0},
                           [&](uint64_t sum, uint32_t made) { return sum + rows_.at(made).count; });
  }

  // The one sum of the step began with what an earlier step had made.
  bool read_earlier(const TensorInfo& sum, const TensorRows& rows) const {
    const auto edges = facts_.context.trace.graph().inputs(sum.op, step_.graph);
    return std::any_of(edges.begin(), edges.end(), [&](const GraphEdge& edge) { return is_of_earlier_step(edge, sum, rows); });
  }

  // The sum read a gradient of its parameter along the edge that was made in a step before. Passes of several losses have the same
  // ops, whose outputs may be several tensors: it read the last one before it, where there is one.
  bool is_of_earlier_step(const GraphEdge& edge, const TensorInfo& sum, const TensorRows& rows) const {
    if (is_of_optimizer(edge)) return false;
    bool is_of_parameter = false, is_of_step = false;
    for (const uint32_t made : facts_.context.graph.made_by(edge.producer, edge.slot)) {
      const auto at = rows_.find(made);
      if (at == rows_.end() || !is_gradient(tensor(made).role)) continue;
      is_of_parameter = is_of_parameter || tensor(made).parameter == sum.parameter;
      is_of_step = is_of_step || (edge.producer != sum.op && at->second.first_sequence < rows.first_sequence);
    }
    return is_of_parameter && !is_of_step;
  }

  // An update of its parameter read the gradient, or what was made of it by unscaling, clipping and casts: one that is set to zero
  // before, as that of a GAN's critic behind the generator's backward pass, does no harm.
  bool is_updated_by(uint32_t gradient) const {
    std::set<uint32_t> seen;
    std::vector<uint32_t> pending;
    const auto follow = [&](uint32_t op) {
      for_each_gradient(op, [&](uint32_t read, const TensorRows&) {
        if (tensor(read).parameter == tensor(gradient).parameter && seen.insert(read).second) pending.push_back(read);
      });
    };
    for (const uint32_t weight : updated())
      if (tensor(weight).parameter == tensor(gradient).parameter) follow(tensor(weight).op);
    while (!pending.empty() && !seen.contains(gradient)) {
      const uint32_t read = pending.back();
      pending.pop_back();
      follow(tensor(read).op);
    }
    return seen.contains(gradient);
  }

  std::vector<uint32_t> updated() const {
    std::vector<uint32_t> weights;
    for (const auto& [i, rows] : rows_)
      if (facts_.selection.op(i).kind == OpKind::update &&
          (tensor(i).role == Role::weight || tensor(i).role == Role::master_weight))
        weights.push_back(i);
    return weights;
  }

  // Visits the gradients that the op read in the graph of the step, and that have rows in it.
  template <typename Visit>
  void for_each_gradient(uint32_t op, const Visit& visit) const {
    for (const GraphEdge& edge : facts_.context.trace.graph().inputs(op, step_.graph))
      for (const uint32_t made : facts_.context.graph.made_by(edge.producer, edge.slot))
        if (const auto at = rows_.find(made); at != rows_.end() && is_gradient(tensor(made).role)) visit(made, at->second);
  }

  const RunFacts& facts_;
  StepRow step_;
  std::map<uint32_t, TensorRows> rows_;  // by tensor
};

std::vector<LookedAtStep> first_taken_steps(const RunFacts& facts) {
  std::vector<LookedAtStep> steps;
  const std::vector<int32_t> ranks = facts.context.trace.ranks();
  if (ranks.empty()) return steps;
  const Snapshot trace = facts.context.trace.of_rank(ranks.front());
  const StepRange range = facts.judged_range();
  uint64_t last = range.first;
  trace.visit_steps(range, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) {
      if (steps.size() == kMostStepsLookedAt) return false;
      last = row.step + 1;
      if (!row.skipped && row.level != RecordLevel::off) steps.emplace_back(facts, row);
    }
    return true;
  });
  trace.visit_rows_without_histograms({range.first, last}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      if (!facts.selection.contains(row)) continue;
      const auto at =
          std::find_if(steps.begin(), steps.end(), [&](const LookedAtStep& step) { return step.row().step == row.step; });
      if (at != steps.end()) at->add(row);
    }
    return true;
  });
  return steps;
}

}  // namespace

GradientsRead gradients_read(const RunFacts& facts) {
  GradientsRead read;
  GradientsRead::Kept kept;
  GradientsRead::NeverScaled never_scaled;
  std::set<std::string> updated;
  for (const LookedAtStep& step : first_taken_steps(facts)) {
    ++read.steps;
    if (!read.scaled)
      if (auto gradients = step.read_by_updates())
        if (const auto scale = step.scale_in(*gradients)) read.scaled = {step.row().step, *scale, std::move(*gradients)};
    if (LookedAtStep::Unscaled unscaled = step.unscaled(); !unscaled.never_scaled.empty()) {
      if (never_scaled.steps++ == 0)
        never_scaled = {step.row().step, 1, step.row().scale_before, unscaled.is_all, std::move(unscaled.never_scaled)};
    }
    if (std::vector<uint32_t> earlier = step.began_with_earlier(updated); !earlier.empty()) {
      if (kept.steps++ == 0) kept = {step.row().step, 1, std::move(earlier)};
    }
    updated.merge(step.updated_parameters());
  }
  if (kept.steps > 0) read.kept = std::move(kept);
  if (never_scaled.steps > 0) read.never_scaled = std::move(never_scaled);
  return read;
}

}  // namespace ulpscope
