// docs/trace_format.md has the tables and columns that the code declares.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "tests/support/project_files.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/hash.h"
#include "ulpscope/trace/op_semantics.h"
#include "ulpscope/trace/schema.h"

namespace ulpscope {
namespace {

const std::string kDocs = project_file("docs/trace_format.md");

// From where a text begins to where another does, or to the end.
void expect_part(const std::string& begin, const std::string& end, const std::string& part) {
  const std::string docs = read_file(kDocs);
  const size_t at = docs.find(begin);
  ASSERT_NE(at, std::string::npos) << kDocs << " has no " << begin;
  const size_t first = at + begin.size(), last = end.empty() ? docs.size() : docs.find(end, first);
  ASSERT_NE(last, std::string::npos) << kDocs << " has no " << end;
  if (std::getenv("ULPSCOPE_UPDATE_DOCS") != nullptr) write_file(kDocs, docs.substr(0, first) + part + docs.substr(last));
  const std::string now = read_file(kDocs);
  const size_t stop = end.empty() ? now.size() : now.find(end, first);
  EXPECT_EQ(now.substr(first, stop - first), part) << "run this test with ULPSCOPE_UPDATE_DOCS=1";
}

// The table of functions has a row for each.
std::string functions_markdown() {
  const auto words = [](std::span<const Meaning> meanings, size_t optional, bool repeats) {
    std::vector<std::string> named;
    for (size_t i = 0; i < meanings.size(); ++i)
      named.push_back(i + optional < meanings.size() ? name_of(meanings[i]) : fmt::format("[{}]", name_of(meanings[i])));
    if (repeats) named.emplace_back("...");
    return fmt::format("{}", fmt::join(named, ", "));
  };
  std::string text = "| function | inputs | outputs | formed over | attributes |\n|---|---|---|---|---|\n";
  for (int i = static_cast<int>(OpFunction::other) + 1; i < kOpFunctions; ++i) {
    const OpSemantics& semantics = semantics_of(static_cast<OpFunction>(i));
    text +=
        fmt::format("| {} | {} | {} | {} | {} |\n", semantics.name,
                    words(semantics.inputs, semantics.optional_inputs, semantics.last_repeats), words(semantics.outputs, 0, false),
                    semantics.reduces == Reduction::nothing ? "" : name_of(semantics.reduces), semantics.attributes);
  }
  return text;
}

TEST(TraceFormatDocs, HaveTheDeclaredTables) { expect_part("## Tables\n", "", schema_markdown()); }

TEST(TraceFormatDocs, SayWhatEachFunctionReadsAndMakes) {
  expect_part("| function | inputs | outputs |", "\n## Tables",
              functions_markdown().substr(std::string("| function | inputs | outputs |").size()));
}

// Readers of this version know these: a trace of any other tables, chunks, columns or enumerators is of another version, major or
// minor.
TEST(TraceSchema, ItsVersionIsOfTheseTablesColumnsAndEnumerators) {
  std::string known;
  for (const TableSpec& table : trace_schema()) {
    known += fmt::format("{} {} {}:", table.name, table.chunk_rows, table.since);
    for (const ColumnSpec& column : table.columns)
      known += fmt::format(" {} {} {} {} {} [{}]", column.name, static_cast<int>(column.type), static_cast<int>(column.kind),
                           column.refers_to, column.since, fmt::join(column.values, ","));
    known += '\n';
  }
  constexpr uint64_t kMajor = 14, kMinor = 4, kHash = 0x2f419c34486e239e;
  EXPECT_TRUE(kSchemaMajor == kMajor && kSchemaMinor == kMinor && hash_text(known) == kHash)
      << "version " << schema_version_text(kSchemaMinor) << ", hash " << fmt::format("{:#x}", hash_text(known))
      << ": raise kSchemaMinor for an addition and kSchemaMajor for another change, and state them here with the hash\n"
      << known;
}

TEST(TraceFormatDocs, StateTheVersion) {
  EXPECT_NE(read_file(kDocs).find(
                fmt::format("`schema_version` of the file is {}, and `schema_minor` is {}.", kSchemaMajor, kSchemaMinor)),
            std::string::npos);
}

TEST(TraceSchema, NamesAreUniqueAndEveryColumnIsExplained) {
  for (const TableSpec& table : trace_schema()) {
    EXPECT_EQ(find_table(table.name), &table);
    EXPECT_EQ(&spec(table.id), &table);
    EXPECT_FALSE(table.meaning.empty()) << table.name;
    for (const ColumnSpec& column : table.columns) {
      EXPECT_EQ(
          std::count_if(table.columns.begin(), table.columns.end(), [&](const ColumnSpec& c) { return c.name == column.name; }), 1);
      for (const std::string& value : column.values) EXPECT_EQ(value.find(','), std::string::npos);
      EXPECT_FALSE(column.meaning.empty()) << table.name << "/" << column.name;
    }
  }
}

}  // namespace
}  // namespace ulpscope
