// All that a trace says, as text, but what differs from run to run: its name, its start, and times.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/analyzers/verbs/export.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {

// One text for each table of export_tables(), without the keys `other`, given as "\"key\":", too.
inline std::vector<std::string> trace_contents(const std::string& path, std::initializer_list<std::string_view> other = {}) {
  const Snapshot reader(path);
  std::vector<std::string_view> keys{"\"seconds\":", "\"run_id\":", "\"started\":"};
  keys.insert(keys.end(), other);
  std::vector<std::string> tables;
  for (const std::string& table : export_tables()) {
    std::string text;
    export_table(reader, table, ExportFormat::json, {}, [&](std::string_view piece) {
      text += piece;
      return true;
    });
    for (const std::string_view key : keys) {
      for (size_t at = 0; (at = text.find(key, at)) != std::string::npos;) text.erase(at, text.find_first_of(",}", at) - at);
    }
    tables.push_back(text);
  }
  return tables;
}

}  // namespace ulpscope
