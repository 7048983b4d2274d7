// docs/trace_format.md has the tables and columns that the code declares.
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "ulpscope/trace/schema.h"

namespace ulpscope {
namespace {

TEST(TraceFormatDocs, HaveTheDeclaredTables) {
  const std::string docs = read_file(TRACE_FORMAT_DOCS), tables = schema_markdown();
  const size_t begin = docs.find("## Tables\n");
  ASSERT_NE(begin, std::string::npos) << TRACE_FORMAT_DOCS << " has no section Tables";
  EXPECT_EQ(docs.substr(begin + 10), tables) << "put this under '## Tables' in " << TRACE_FORMAT_DOCS;
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
