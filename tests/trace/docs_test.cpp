// docs/trace_format.md has the tables and columns that the code declares.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/project_files.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/hash.h"
#include "ulpscope/trace/schema.h"

namespace ulpscope {
namespace {

const std::string kDocs = project_file("docs/trace_format.md");

TEST(TraceFormatDocs, HaveTheDeclaredTables) {
  const std::string docs = read_file(kDocs), tables = schema_markdown();
  const size_t begin = docs.find("## Tables\n");
  ASSERT_NE(begin, std::string::npos) << kDocs << " has no section Tables";
  if (std::getenv("ULPSCOPE_UPDATE_DOCS") != nullptr) write_file(kDocs, docs.substr(0, begin + 10) + tables);
  EXPECT_EQ(read_file(kDocs).substr(begin + 10), tables) << "run this test with ULPSCOPE_UPDATE_DOCS=1";
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
  constexpr uint64_t kMajor = 14, kMinor = 0, kHash = 0x1a553fee4ec2a6ab;
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
