#include "ulpscope/analyzers/subject/analysis.h"

#include <algorithm>
#include <set>

#include "ulpscope/analyzers/subject/selection.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/parse_number.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

template <typename Enum>
std::optional<Enum> find_name(std::string_view name, int count) {
  for (int i = 0; i < count; ++i) {
    if (name == name_of(static_cast<Enum>(i))) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

AnalysisOptions AnalysisOptions::of_all() const {
  AnalysisOptions all = *this;
  all.steps = {};
  all.modules.clear();
  all.ops.clear();
  all.phases.clear();
  all.roles.clear();
  return all;
}

StepRange parse_step_range(std::string_view option, const std::string& text) {
  const size_t dots = text.find("..");
  const std::string first = text.substr(0, dots), last = dots == std::string::npos ? first : text.substr(dots + 2);
  const bool is_range = dots != std::string::npos;
  const auto number = [&](const std::string& part) {
    const auto value = part.empty() && is_range ? std::optional<int64_t>(0) : parse_number<int64_t>(part);
    if (!value || *value < 0)
      throw usage_error("{} takes a step or a range like 3..7, 3.. or ..7, not '{}'", option, one_line(text));
    return static_cast<uint64_t>(*value);
  };
  StepRange range{number(first), UINT64_MAX};
  if (!last.empty() || !is_range) range.last = number(last) + 1;
  if (range.last <= range.first) throw usage_error("{} {} ends before it begins", option, one_line(text));
  return range;
}

std::optional<Phase> find_phase(std::string_view name) { return find_name<Phase>(name, kPhases); }
std::optional<Role> find_role(std::string_view name) { return find_name<Role>(name, kRoles); }

std::optional<int32_t> only_rank(const Snapshot& reader) {
  const std::vector<int32_t> ranks = reader.ranks();
  return ranks.size() == 1 ? std::optional(ranks.front()) : std::nullopt;
}

RowKey key_of_step(const Snapshot& reader, uint64_t step) {
  RowKey key;
  key.run = reader.run_at(step).run_id;
  key.rank = only_rank(reader);
  key.step = step;
  return key;
}

void check_asked_for(std::initializer_list<const Snapshot*> readers, const AnalysisOptions& options) {
  std::set<std::string> modules, ops;
  std::optional<uint64_t> first, last;
  bool any_step = false;
  for (const Snapshot* reader : readers) {
    for (const OpInfo& op : reader->ops()) {
      if (!op.module.empty()) modules.insert(op.module);
      ops.insert(op.name);
    }
    if (!options.restricts_steps()) continue;
    reader->visit_steps(options.steps, [&](std::span<const StepRow> rows) {
      any_step = any_step || !rows.empty();
      return !any_step;
    });
    if (any_step) continue;
    reader->visit_steps({}, [&](std::span<const StepRow> rows) {
      for (const StepRow& row : rows) {
        first = std::min(first.value_or(row.step), row.step);
        last = std::max(last.value_or(row.step), row.step);
      }
      return true;
    });
  }
  const auto check = [](const char* what, const std::vector<std::string>& patterns, const std::set<std::string>& known,
                        auto&& matches) {
    const std::vector<std::string> names(known.begin(), known.end());
    for (const std::string& pattern : patterns) {
      if (std::any_of(names.begin(), names.end(), [&](const std::string& name) { return matches(pattern, name); })) continue;
      throw usage_error("no {} of the trace matches '{}'{}", what, pattern, did_you_mean_or_expected(pattern, names));
    }
  };
  // Names without a module are at top level, which "*" takes too.
  check("module", options.modules, modules, [](const std::string& pattern, const std::string& name) {
    return module_matches(pattern, name) || glob_match(pattern, "");
  });
  check("op", options.ops, ops, [](const std::string& pattern, const std::string& name) { return glob_match(pattern, name); });
  if (options.restricts_steps() && !any_step && first) {
    throw usage_error("no step of the trace is in what --step asks for; expected one of {} to {}", *first, *last);
  }
}

ReportSource source_of(const Snapshot& reader) { return {reader.path(), reader.run().run_id, reader.run().rank}; }

}  // namespace ulpscope
