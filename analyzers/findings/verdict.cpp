#include "ulpscope/analyzers/findings/verdict.h"

#include <algorithm>
#include <memory>

#include "ulpscope/analyzers/findings/all.h"

namespace ulpscope {

namespace {

// Which ops the recorded edges lead to from others.
class Reached {
 public:
  Reached(const Snapshot& trace, std::span<const uint32_t> tensors) : ops_(trace.ops().size(), kNever) {
    std::vector<uint32_t> open;
    const auto reach = [&](uint32_t op, When when) {
      if (op >= ops_.size() || ops_[op] >= when) return;
      ops_[op] = when;
      open.push_back(op);
    };
    for (const uint32_t tensor : tensors) reach(trace.tensors()[tensor].op, kSameStep);
    while (!open.empty()) {
      const uint32_t op = open.back();
      open.pop_back();
      for (const GraphEdge& edge : trace.graph().uses(op))
        reach(edge.consumer, trace.graph().is_within_step(edge) ? ops_[op] : kLater);
    }
  }
  bool in_same_step(uint32_t op) const { return ops_[op] == kSameStep; }
  bool at_all(uint32_t op) const { return ops_[op] != kNever; }

 private:
  enum When : uint8_t { kNever, kLater, kSameStep };
  std::vector<When> ops_;
};

class Causes {
 public:
  Causes(const Snapshot& trace, const std::vector<Finding>& findings) : trace_(trace), findings_(findings) {
    reached_.resize(findings.size());
    for (const Finding& finding : findings) rules_.push_back(&finding_rule(finding.code));
    parent_.assign(findings.size(), kNone);
    for (size_t i = 0; i < findings.size(); ++i) {
      for (size_t j = 0; j < findings.size(); ++j) {
        if (parent_[i] == kNone && i != j && leads(j, i) && !(leads(i, j) && rank(i) < rank(j))) parent_[i] = j;
      }
    }
  }

  // The finding that it came of in the end; itself where it is a cause. Of some that came of each other in turn, the first in rank.
  size_t root(size_t finding) const {
    std::vector<size_t> way;
    while (parent_[finding] != kNone) {
      const auto seen = std::find(way.begin(), way.end(), finding);
      if (seen != way.end()) return *std::min_element(seen, way.end(), [&](size_t a, size_t b) { return rank(a) < rank(b); });
      way.push_back(finding);
      finding = parent_[finding];
    }
    return finding;
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  // Of findings with one code, the first one's is the smaller.
  std::pair<size_t, size_t> rank(size_t finding) const {
    const std::span<const FindingRule* const> all = finding_rules();
    return {std::find(all.begin(), all.end(), rules_[finding]) - all.begin(), finding};
  }

  bool leads(size_t from, size_t to) {
    // What does no harm is the cause of none.
    if (findings_[from].severity == Severity::info && findings_[to].severity > Severity::info) return false;
    const Extent &cause = findings_[from].extent, &effect = findings_[to].extent;
    // What made the loss scale fall is behind what came of that.
    const bool by_scale = effect.since_scale_fell && rules_[from]->explains.contain("scale.backoffs");
    // Zeros in place of activations lead to what zeros in place of gradients do.
    const bool by_zeros = cause.gives_zeros && finding_rule("range.gradients_vanish").explains.contain(findings_[to].code);
    if (!by_scale && !by_zeros && !rules_[from]->explains.contain(findings_[to].code)) return false;
    if (cause.first_step && effect.first_step && *effect.first_step < *cause.first_step) return false;
    if (effect.tensors.empty() || by_scale) return true;  // every gradient is a multiple of the scale
    if (cause.tensors.empty()) return false;
    // That the updates of one parameter were lost does not take the decay of another.
    if (rules_[from]->part == Part::updates && rules_[to]->part == Part::updates && are_weights(cause) && are_weights(effect))
      return has_all(cause, effect);
    if (!reached_[from]) reached_[from] = std::make_unique<Reached>(trace_, first_of(cause));
    const bool later = !cause.first_step || !effect.first_step || *effect.first_step > *cause.first_step;
    const std::span<const uint32_t> wanted = first_of(effect);
    return std::any_of(wanted.begin(), wanted.end(), [&](uint32_t tensor) {
      const uint32_t op = trace_.tensors()[tensor].op;
      return later ? reached_[from]->at_all(op) : reached_[from]->in_same_step(op);
    });
  }
  bool are_weights(const Extent& extent) const {
    return std::all_of(extent.tensors.begin(), extent.tensors.end(), [&](uint32_t tensor) {
      const Role role = trace_.tensors()[tensor].role;
      return role == Role::weight || role == Role::master_weight;
    });
  }
  static bool has_all(const Extent& all, const Extent& some) {
    return std::all_of(some.tensors.begin(), some.tensors.end(), [&](uint32_t tensor) {
      return std::find(all.tensors.begin(), all.tensors.end(), tensor) != all.tensors.end();
    });
  }
  static std::span<const uint32_t> first_of(const Extent& extent) {
    return extent.origin ? std::span(&*extent.origin, 1) : std::span(extent.tensors);
  }

  const Snapshot& trace_;
  const std::vector<Finding>& findings_;
  std::vector<const FindingRule*> rules_;
  std::vector<std::unique_ptr<Reached>> reached_;  // from each, once it was asked for
  std::vector<size_t> parent_;
};

bool counts(const Finding& finding) { return finding.severity > Severity::info && finding_rule(finding.code).is_about_run; }

// What became of the run, which its user saw first: told where it is not the cause itself.
constexpr std::string_view kOutcomes[] = {"updates.none_applied",        "scale.no_step_taken", "run.loss_nonfinite",
                                          "run.test_loss_nonfinite",     "run.diverged",        "run.update_leapt",
                                          "run.no_better_than_guessing", "run.loss_rose",       "run.loss_stayed"};

// The outcome for the run, of several the first of the worst, where that is another finding, and then the first sentence on the
// cause.
Sentences first_cause(const Report& report) {
  const Cause& cause = report.causes.front();
  const Finding* worst = nullptr;
  for (const std::string_view outcome : kOutcomes)
    for (const size_t i : cause.consequences)
      if (const Finding& found = report.findings[i];
          found.code == outcome && (worst == nullptr || found.severity > worst->severity))
        worst = &found;
  const Sentence of_cause = report.findings[cause.finding].title.front();
  return worst == nullptr ? Sentences(of_cause) : Sentences{worst->title.front(), of_cause};
}

}  // namespace

void add_verdict(const Snapshot& trace, Report& report, const Sentences& nothing_found) {
  std::vector<Finding>& findings = report.findings;
  sort_by_severity(findings);
  const Causes causes(trace, findings);
  std::vector<size_t> roots(findings.size());
  std::vector<bool> comes_first(findings.size());  // of those that are as severe: where it may all have begun
  for (size_t i = 0; i < findings.size(); ++i) {
    roots[i] = causes.root(i);
    Finding& root = findings[roots[i]];
    if (!counts(findings[i]) || root.severity >= findings[i].severity) continue;
    root.severity = findings[i].severity;
    const FindingRule& rule = finding_rule(root.code);
    comes_first[roots[i]] = rule.find_start != nullptr && rule.find == nullptr;
  }
  std::vector<size_t> order(findings.size()), place(findings.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(findings[a].severity, bool{comes_first[a]}) > std::pair(findings[b].severity, bool{comes_first[b]});
  });
  std::vector<Finding> sorted;
  for (size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    sorted.push_back(std::move(findings[order[i]]));
  }
  findings = std::move(sorted);
  report.causes.clear();
  for (const size_t i : order) {
    if (roots[i] != i || !counts(findings[place[i]])) continue;
    Cause& cause = report.causes.emplace_back();
    cause.finding = place[i];
    for (const size_t j : order)
      if (j != i && roots[j] == i) cause.consequences.push_back(place[j]);
  }
  report.verdict = Verdict::ok;
  for (const Cause& cause : report.causes) {
    const bool is_error = findings[cause.finding].severity == Severity::error;
    report.verdict = std::max(*report.verdict, is_error ? Verdict::broken : Verdict::warning);
  }
  report.verdict_text = report.causes.empty() ? nothing_found : first_cause(report);
}

Matter Matter::of(Part part, Sentence nothing_found) {
  return {std::move(nothing_found), [part](const Finding& finding) { return finding_rule(finding.code).part == part; }};
}

void add_verdict_on(const Matter& matter, const Snapshot& trace, Report& report) {
  if (trace.step_count() == 0) return;
  add_verdict(trace, report, matter.nothing_found);
  const bool is_healthy = report.causes.empty();
  const Sentences first = is_healthy ? Sentences() : first_cause(report);
  std::vector<bool> keeps(report.findings.size());
  const auto is_on_it = [&](size_t finding) { return matter.has(report.findings[finding]); };
  for (size_t i = 0; i < keeps.size(); ++i) keeps[i] = is_on_it(i);
  const size_t first_finding = is_healthy ? 0 : report.causes.front().finding;
  std::erase_if(report.causes, [&](const Cause& cause) {
    if (!is_on_it(cause.finding) && std::none_of(cause.consequences.begin(), cause.consequences.end(), is_on_it)) return true;
    keeps[cause.finding] = true;
    for (const size_t i : cause.consequences) keeps[i] = true;
    return false;
  });
  std::vector<Finding> kept;
  std::vector<size_t> place(keeps.size());
  for (size_t i = 0; i < keeps.size(); ++i) {
    place[i] = kept.size();
    if (keeps[i]) kept.push_back(std::move(report.findings[i]));
  }
  report.findings = std::move(kept);
  for (Cause& cause : report.causes) {
    cause.finding = place[cause.finding];
    for (size_t& i : cause.consequences) i = place[i];
  }
  if (is_healthy) return;
  report.verdict_text = first;
  if (report.causes.empty())
    report.verdict_text += matter.nothing_found;
  else if (!keeps[first_finding])
    report.verdict_text += first_cause(report);
}

}  // namespace ulpscope
