// Rows of a text file, separated by commas or another character; the file may be compressed with gzip.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/core/data/gzip_file.h"

namespace ulpscope {

using CsvFields = std::vector<std::string_view>;

// `take` gets the fields of each row, without their quotes, and the line that it ends in, from 1. Empty lines are passed over.
// Throws Error (unreadable).
void read_csv_rows(GzipFile& file, char delimiter, std::function<void(int64_t line, const CsvFields&)> take);
void read_csv_rows(const std::string& path, char delimiter, std::function<void(int64_t line, const CsvFields&)> take);

}  // namespace ulpscope
