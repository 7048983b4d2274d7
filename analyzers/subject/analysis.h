// What every analyzer takes besides its traces: which rows are asked for, and how far it may go.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {

struct AnalysisOptions {
  StepRange steps;
  // Glob patterns (base/text.h) and names; an empty list lets everything pass. A module's pattern also matches everything inside
  // it.
  std::vector<std::string> modules;
  std::vector<std::string> ops;
  std::vector<Phase> phases;
  std::vector<Role> roles;
  size_t limit = 10;            // rows of a table, series of a plot; 0: all
  double flushed_limit = 0.01;  // the share of a gradient that may be flushed before that is a finding

  const std::atomic<bool>* cancel = nullptr;  // set from any thread: the analyzer returns what it has, marked incomplete
  std::function<void(double)> progress;       // share of the rows seen, 0 to 1

  bool asks_for(uint64_t step) const { return steps.contains(step); }
  bool restricts_steps() const { return steps.first > 0 || steps.last < UINT64_MAX; }
  bool restricts_tensors() const { return !modules.empty() || !ops.empty() || !phases.empty() || !roles.empty(); }
  bool selects() const { return restricts_steps() || restricts_tensors(); }
  // The same of all rows.
  AnalysisOptions of_all() const;
  bool cancelled() const { return cancel && cancel->load(std::memory_order_relaxed); }
};

// "7", "3..7", "3..", "..7": first and last step, both included. Throws Error (usage), which names the option, for other texts.
StepRange parse_step_range(std::string_view option, const std::string& text);
std::optional<Phase> find_phase(std::string_view name);
std::optional<Role> find_role(std::string_view name);

// Throws Error (usage) where a pattern matches no module or op of any of the traces, or none of them has a step in the range: what
// comes of a misspelling should not look like an answer.
void check_asked_for(std::initializer_list<const Snapshot*> readers, const AnalysisOptions& options);

ReportSource source_of(const Snapshot& reader);
// Of a trace of one rank, its number; nothing where rows of several add up.
std::optional<int32_t> only_rank(const Snapshot& reader);
RowKey key_of_step(const Snapshot& reader, uint64_t step);

}  // namespace ulpscope
