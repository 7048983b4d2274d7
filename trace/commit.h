// The commit record: how many rows of each table a reader may see, and where they are. Internal to trace/.
//
// It lies in the file twice, and the two are written in turn, so that one of them is always whole. Rows below `main_rows` are in
// the column's dataset, the others in its tail, from the tail's beginning. A writer overwrites a tail only after it has written a
// record with a larger main_rows for that table: a reader that finds main_rows unchanged after it has read the tail has read it
// right.
//
// Tables have their places in a record for good, and new ones come at its end. A file of another minor version of the schema may
// have more of them than this program, or fewer, which then have no rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ulpscope/trace/schema.h"

namespace ulpscope::trace_detail {

enum class RecordingState : uint64_t {
  open,     // being written, or the writer was killed
  closed,   // complete, all rows in the columns' datasets
  stopped,  // an I/O error ended it; closing_note says which
};
inline constexpr uint64_t kRecordingStates = 3;

struct CommitRecord {
  struct Table {
    uint64_t rows = 0;
    uint64_t main_rows = 0;
    uint32_t tail_checksum = 0;  // CRC-32 of the tail's rows, column after column; of a closed trace, 0: the tail holds none
    bool operator==(const Table&) const = default;
  };
  uint64_t generation = 0;                      // counts the records; the newer of the two is valid
  RecordingState state = RecordingState::open;  // as it stands there
  std::array<Table, kTables> tables{};
  uint64_t unknown_tables = 0;  // those behind the tables of this program that have rows

  Table& operator[](TableId id) { return tables[static_cast<size_t>(id)]; }
  const Table& operator[](TableId id) const { return tables[static_cast<size_t>(id)]; }
};

// generation, state, (rows, main_rows, tail checksum) for each table, CRC-32 of the words before.
constexpr size_t commit_words(size_t tables) { return 3 + 3 * tables; }
inline constexpr size_t kCommitWords = commit_words(kTables);
// No trace has more.
inline constexpr size_t kMostTables = 1024;
using CommitWords = std::array<uint64_t, kCommitWords>;

CommitWords encode(const CommitRecord& record);
// The newer of the two records that is whole; nothing where neither is. Both have the same number of tables.
std::optional<CommitRecord> decode(std::span<const uint64_t> two_records);

// CRC-32 as zlib has it; `crc` is that of the bytes before.
uint32_t crc32(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace ulpscope::trace_detail
