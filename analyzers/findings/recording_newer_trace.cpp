#include <map>
#include <tuple>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kNewerTrace{"recording.newer_trace", "A newer ulpscope wrote the trace (schema {schema}): {unread} not read."};
constexpr Template kNewerTraces{"recording.newer_traces",
                                "A newer ulpscope wrote {traces:count trace} of the run (schema {schema}; first: '{first}'): "
                                "{unread} not read."};
constexpr Template kUnreadTables{"recording.unread_tables", "{tables:count table} {tables:either was|were}"};
constexpr Template kUnreadColumns{"recording.unread_columns", "{columns:count column} {columns:either was|were}"};
constexpr Template kUnreadBoth{"recording.unread_both", "{tables:count table} and {columns:count column} were"};
constexpr Template kReadWithNewer{"advice.read_with_newer", "Read it with an ulpscope that supports schema {schema}."};

Value unread_of(uint64_t tables, uint64_t columns) {
  if (columns == 0) return kUnreadTables({{"tables", tables}});
  if (tables == 0) return kUnreadColumns({{"columns", columns}});
  return kUnreadBoth({{"tables", tables}, {"columns", columns}});
}

void find_newer_traces(const RunFacts& facts, Findings& found) {
  const Snapshot& trace = facts.context.trace;
  // The ranks of a run have the same ones.
  struct Alike {
    std::string first;
    uint64_t count = 0;
  };
  std::map<std::tuple<std::string, uint64_t, uint64_t>, Alike> traces;
  for (const NewerTrace& newer : trace.newer_traces()) {
    Alike& alike = traces[{newer.schema, newer.tables, newer.columns}];
    if (alike.count++ == 0) alike.first = newer.path;
  }
  for (const auto& [what, alike] : traces) {
    const auto& [version, tables, columns] = what;
    const Name schema{NameKind::value, version};
    const Value unread = unread_of(tables, columns);
    found.add(
        Severity::info,
        facts.context.parts.size() == 1
            ? kNewerTrace({{"schema", schema}, {"unread", unread}})
            : kNewerTraces(
                  {{"traces", alike.count}, {"schema", schema}, {"first", Name{NameKind::file, alike.first}}, {"unread", unread}}),
        {}, kReadWithNewer({{"schema", schema}}));
  }
}

}  // namespace

extern constinit const FindingRule recording_newer_trace{
    .code = "recording.newer_trace",
    .part = Part::recording,
    .raised = "A trace has tables or columns of a minor version of the schema that is newer than this program.",
    .meaning = "They are ignored. All other tables and columns keep their meaning.",
    .help = "Read it with a newer ulpscope.",
    .is_about_run = false,
    .find = find_newer_traces,
};

}  // namespace ulpscope::findings
