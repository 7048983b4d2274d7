#include "ulpscope/trace/run_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"

namespace ulpscope::trace_detail {

namespace {

uint64_t first_step(const RunInfo& run) { return static_cast<uint64_t>(std::max<int64_t>(0, run.parent_step)); }

std::optional<size_t> find_run(std::span<const RunTrace> traces, const std::string& run_id) {
  // A producer that names no runs has none that others resumed from.
  for (size_t i = 0; i < traces.size() && !run_id.empty(); ++i)
    if (traces[i].run.run_id == run_id) return i;
  return std::nullopt;
}

// That several traces are no one run.
Error several(const std::string& name, std::span<const RunTrace> traces, const std::string& why) {
  return usage_error("'{}' is a folder with {}, and one is read at a time: '{}', for example; {}", name,
                     count_of(traces.size(), "trace"), traces.front().path, why);
}

// The index of the run that did not resume from another of them.
size_t find_first_run(const std::string& name, std::span<const RunTrace> traces) {
  std::optional<size_t> first;
  for (size_t i = 0; i < traces.size(); ++i) {
    if (find_run(traces, traces[i].run.parent_run)) continue;
    if (first) {
      throw several(name, traces,
                    fmt::format("neither '{}' nor '{}' was resumed from another of them", traces[*first].path, traces[i].path));
    }
    first = i;
  }
  if (!first && traces.size() == 1) throw usage_error("'{}' says that its run was resumed from itself", traces.front().path);
  if (!first) throw several(name, traces, "each was resumed from another of them");
  return *first;
}

// The traces of one rank, by step.
RunOrder order_in_time(const std::string& name, std::span<const RunTrace> traces) {
  // From the earliest to the latest. A run comes after the one that it resumed from, whatever the clock of its machine said.
  std::vector<size_t> order{find_first_run(name, traces)};
  const auto is_placed = [&](size_t trace) { return std::find(order.begin(), order.end(), trace) != order.end(); };
  const auto age = [&](size_t trace) {
    const RunInfo& run = traces[trace].run;
    return std::tuple(run.started, run.parent_step, traces[trace].path);
  };
  while (order.size() < traces.size()) {
    std::optional<size_t> next;
    for (size_t i = 0; i < traces.size(); ++i) {
      if (is_placed(i) || !is_placed(find_run(traces, traces[i].run.parent_run).value_or(i))) continue;
      if (!next || age(i) < age(*next)) next = i;
    }
    if (!next) throw usage_error("'{}' has traces that were resumed from each other in a circle", name);
    order.push_back(*next);
  }
  RunOrder in_time;
  for (auto trace = order.rbegin(); trace != order.rend(); ++trace) {
    const uint64_t first = *trace == order.front() ? 0 : first_step(traces[*trace].run);
    if (in_time.places.empty()) {
      in_time.places.push_back({*trace, {first, UINT64_MAX}});
      continue;
    }
    const RunPlace& next = in_time.places.back();
    if (first < next.steps.first)
      in_time.places.push_back({*trace, {first, next.steps.first}});
    else
      in_time.replaced.push_back({*trace, next.trace});
  }
  std::reverse(in_time.places.begin(), in_time.places.end());
  return in_time;
}

// All ranks, each once or as often as the run was resumed, must have the traces of the same runs.
void check_ranks(const std::string& name, std::span<const RunTrace> traces, const std::map<int32_t, std::vector<size_t>>& ranks) {
  const RunTrace& first = traces[ranks.begin()->second.front()];
  const int32_t world = first.run.world_size;
  for (const RunTrace& trace : traces) {
    if (trace.run.world_size != world) {
      throw usage_error("'{}': '{}' is of a run of {}, and '{}' of one of {}; expected traces of one run", name, trace.path,
                        count_of(trace.run.world_size, "rank"), first.path, count_of(world, "rank"));
    }
  }
  for (int32_t rank = 0; rank < world; ++rank) {
    if (ranks.contains(rank)) continue;
    throw usage_error(
        "'{}': the trace of rank {} of {} is missing; the ranks that are there can be read one by one: '{}', for example", name,
        rank, world, first.path);
  }
  for (const auto& [rank, members] : ranks) {
    for (const size_t member : members) {
      if (traces[member].run.run_id.empty())
        throw usage_error("'{}': '{}' does not tell which run it is of; expected traces of one run", name, traces[member].path);
      const auto same_run = [&](size_t other) { return traces[other].run.run_id == traces[member].run.run_id; };
      const auto without = std::find_if(ranks.begin(), ranks.end(), [&](const auto& other) {
        return std::none_of(other.second.begin(), other.second.end(), same_run);
      });
      if (without == ranks.end()) continue;
      throw usage_error("'{}': '{}' is of run {}, of which rank {} has no trace; expected traces of one run", name,
                        traces[member].path, traces[member].run.run_id, without->first);
    }
  }
}

void check_each_once(const std::string& name, std::span<const RunTrace> traces, bool is_parallel) {
  for (size_t i = 0; i < traces.size(); ++i) {
    for (size_t other = 0; other < i; ++other) {
      const RunTrace &one = traces[other], &two = traces[i];
      if (one.run.run_id.empty() || one.run.run_id != two.run.run_id || one.run.rank != two.run.rank) continue;
      const std::string same = fmt::format("'{}' and '{}' are of the same run", one.path, two.path);
      if (!is_parallel) throw several(name, traces, same);
      throw usage_error("'{}': {}, of rank {}; expected each rank once", name, same, two.run.rank);
    }
  }
}

}  // namespace

RunOrder order_runs(const std::string& name, std::span<const RunTrace> traces) {
  std::map<int32_t, std::vector<size_t>> ranks;
  for (size_t i = 0; i < traces.size(); ++i) ranks[traces[i].run.rank].push_back(i);
  const bool is_parallel =
      std::any_of(traces.begin(), traces.end(), [](const RunTrace& trace) { return trace.run.world_size > 1; });
  check_each_once(name, traces, is_parallel);
  if (!is_parallel) return order_in_time(name, traces);
  check_ranks(name, traces, ranks);
  RunOrder order;
  for (const auto& [rank, members] : ranks) {
    std::vector<RunTrace> of_rank;
    for (const size_t member : members) of_rank.push_back(traces[member]);
    const RunOrder in_time = order_in_time(name, of_rank);
    for (const RunPlace& place : in_time.places) order.places.push_back({members[place.trace], place.steps});
    for (const ReplacedPart& one : in_time.replaced) order.replaced.push_back({members[one.trace], members[one.by]});
  }
  return order;
}

}  // namespace ulpscope::trace_detail
