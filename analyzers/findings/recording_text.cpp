#include "ulpscope/analyzers/findings/recording_text.h"

#include <set>
#include <utility>

#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/base/text.h"

namespace ulpscope::findings {

namespace {

constexpr Template kEvent{"recording.event", "{event}"};
constexpr Template kEventAndMore{"recording.event_and_more", "{event} (and {more} more)"};
constexpr Template kRecover{"advice.recover",
                            "`ulpscope recover {trace} recovered.h5` copies its committed steps into a closed trace."};

}  // namespace

Name event_name(std::string text) {
  if (text.ends_with('.')) text.pop_back();
  return {NameKind::event, std::move(text)};
}

Sentence recover(const std::string& path) { return kRecover({{"trace", Name{NameKind::file, shell_word(path)}}}); }

void tell_events(const RunFacts& facts, EventKind kind, Severity severity, const Advice& advice, Findings& found) {
  const AnalysisContext& context = facts.context;
  uint64_t times = 0;
  Name first{NameKind::event, ""};
  std::vector<Evidence> evidence;
  std::set<std::string> told;  // a run that goes on says the same again
  for (const EventRow& event : context.trace.events()) {
    if (event.kind != kind || !context.options.asks_for(event.step) || !told.insert(std::string(event.text)).second) continue;
    if (times++ == 0) first.text = event.text;
    if (evidence.size() < kMostEvidence)
      evidence.push_back({facts.selection.key_of_step(event.step, event.rank), {{"text", event.text}}});
  }
  if (times == 0) return;
  if (times == 1) evidence.front().values.clear();
  found.add(severity, times > 1 ? kEventAndMore({{"event", first}, {"more", times - 1}}) : kEvent({{"event", first}}),
            std::move(evidence), advice);
}

std::vector<const EventRow*> ends(const RunFacts& facts, EventKind kind) {
  constexpr int kMost = 5;
  std::vector<const EventRow*> of_kind;
  int told = 0;
  for (const EventRow& event : facts.context.trace.events()) {
    if (event.kind != EventKind::cut_short && event.kind != EventKind::stopped) continue;
    if (!facts.context.options.asks_for(event.step) || told++ >= kMost) continue;
    if (event.kind == kind) of_kind.push_back(&event);
  }
  return of_kind;
}

}  // namespace ulpscope::findings
