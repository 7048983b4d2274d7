#include "ulpscope/analyzers/findings/recording_text.h"

#include <fmt/format.h>

#include <set>

#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

void tell_events(const RunFacts& facts, EventKind kind, Severity severity, const std::string& suggestion, Findings& found) {
  const AnalysisContext& context = facts.context;
  uint64_t times = 0;
  std::string title;
  std::vector<Evidence> evidence;
  std::set<std::string> told;  // a run that goes on says the same again
  for (const EventRow& event : context.trace.events()) {
    if (event.kind != kind || !context.options.asks_for(event.step) || !told.insert(std::string(event.text)).second) continue;
    if (times++ == 0) title = event.text;
    if (evidence.size() < kMostEvidence)
      evidence.push_back({facts.selection.key_of_step(event.step, event.rank), {{"text", event.text}}});
  }
  if (times == 0) return;
  if (times > 1) {
    title += fmt::format(" (and {} more)", times - 1);
  } else {
    evidence.front().values.clear();
  }
  found.add(severity, std::move(title), std::move(evidence), suggestion);
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
