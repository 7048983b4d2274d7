#include <utility>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/findings/silence.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/silent_outputs.h"

namespace ulpscope::findings {

namespace {

constexpr Template kDeadOutput{"model.dead_output",
                               "{activation} is dead: from step {step} to the end it gives only zeros for inputs that are not "
                               "all zero."};
constexpr Template kDeadOutputs{"model.dead_output.several",
                                "{activations:count activation} are dead: they give only zeros to the end, the first from step "
                                "{step} on, for inputs that are not all zero."};
constexpr Template kNothingLearns{"model.dead_output.nothing_learns",
                                  "No rounding made these zeros, and nothing before them learns through them."};
constexpr Template kLookAtSign{"advice.look_at_sign_of_inputs",
                               "Check the sign of its inputs: a bias far below 0, or an update that threw it there, leaves a relu "
                               "nothing to pass on."};
constexpr Template kLowerRateKeepsAlive{"advice.lower_rate_keeps_alive", "A lower learning rate{rate:brackets} keeps it alive."};

void find_dead_outputs(const RunFacts& facts, Findings& found) {
  const Suspects dead = silent_suspects(facts, facts.silent().dead);
  if (dead.empty()) return;
  const Value step = ordinal(*dead.extent().first_step);
  Sentences title = dead.size() == 1 ? kDeadOutput({{"activation", silent_place(facts, dead.worst_tensor())}, {"step", step}})
                                     : kDeadOutputs({{"activations", dead.size()}, {"step", step}});
  title += kNothingLearns();
  Advice advice = kLookAtSign();
  // In step 0 no update had been made.
  if (dead.extent().first_step > 0u) advice.text += kLowerRateKeepsAlive({{"rate", advice.lower(learning_rate_now(facts))}});
  // Where the loss sees nothing of the batch but through them, the run is broken.
  found.add_judged(facts.silent().loss_sees_nothing ? Severity::error : Severity::warning, std::move(title), dead.worst(),
                   std::move(advice), dead.extent());
}

}  // namespace

extern constinit const FindingRule model_dead_output{
    .code = "model.dead_output",
    .part = Part::ranges,
    .raised = "An activation function gave only zeros for ten rows or more, to the end, for inputs that were not all zero.",
    .meaning = "Layers before it get no gradient through it, and do not learn.",
    .help = "Check the sign of its inputs: a bias far below 0, or a learning rate that threw it there, leaves a relu nothing.",
    .explains = {"run.no_better_than_guessing", "run.loss_rose", "run.loss_stayed"},
    .shown_by = "experiments/failures/dead_relu.toml",
    .find_start = find_dead_outputs,
};

}  // namespace ulpscope::findings
