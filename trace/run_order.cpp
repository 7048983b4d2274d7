#include "ulpscope/trace/run_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "ulpscope/base/error.h"

namespace ulpscope::trace_detail {

namespace {

uint64_t first_step(const RunInfo& run) { return static_cast<uint64_t>(std::max<int64_t>(0, run.parent_step)); }

std::optional<size_t> find_run(std::span<const RunTrace> traces, const std::string& run_id) {
  for (size_t i = 0; i < traces.size(); ++i)
    if (traces[i].run.run_id == run_id) return i;
  return std::nullopt;
}

// The index of the run that did not resume from another of them.
size_t find_first_run(const std::string& name, std::span<const RunTrace> traces) {
  const auto several = [&](const std::string& why) {
    return usage_error("'{}' is a folder with {} traces, and one is read at a time: '{}', for example; {}", name, traces.size(),
                       traces.front().path, why);
  };
  std::optional<size_t> first;
  for (size_t i = 0; i < traces.size(); ++i) {
    const RunInfo& run = traces[i].run;
    const std::string& path = traces[i].path;
    if (run.world_size > 1) throw several(fmt::format("'{}' is of rank {} of {}", path, run.rank, run.world_size));
    if (const size_t other = *find_run(traces, run.run_id); other != i)
      throw several(fmt::format("'{}' and '{}' are of the same run", traces[other].path, path));
    if (find_run(traces, run.parent_run)) continue;
    if (first) throw several(fmt::format("neither '{}' nor '{}' was resumed from another of them", traces[*first].path, path));
    first = i;
  }
  if (!first) throw several("each was resumed from another of them");
  return *first;
}

}  // namespace

std::vector<RunPlace> order_runs(const std::string& name, std::span<const RunTrace> traces) {
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
  std::vector<RunPlace> places;
  uint64_t end = UINT64_MAX;
  for (auto trace = order.rbegin(); trace != order.rend(); ++trace) {
    const uint64_t first = *trace == order.front() ? 0 : first_step(traces[*trace].run);
    if (first < end) places.push_back({*trace, {first, end}});
    end = std::min(end, first);
  }
  std::reverse(places.begin(), places.end());
  return places;
}

}  // namespace ulpscope::trace_detail
