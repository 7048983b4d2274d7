#include "ulpscope/trace/commit.h"

#include <cstring>

namespace ulpscope::trace_detail {

namespace {

// kCrcTables[k][b]: the CRC of byte b followed by k zero bytes, so that eight bytes are looked up at once.
constexpr auto kCrcTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0xEDB88320u : 0u);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xFF];
  }
  return tables;
}();

}  // namespace

uint32_t crc32(std::span<const std::byte> bytes, uint32_t crc) {
  crc = ~crc;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    word ^= crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kCrcTables[7 - k][(word >> (8 * k)) & 0xFF];
  }
  for (; left > 0; ++at, --left) crc = (crc >> 8) ^ kCrcTables[0][(crc ^ static_cast<uint32_t>(*at)) & 0xFF];
  return ~crc;
}

CommitWords encode(const CommitRecord& record) {
  CommitWords words{};
  words[0] = record.generation;
  words[1] = static_cast<uint64_t>(record.state);
  for (size_t i = 0; i < kTables; ++i) {
    words[2 + 3 * i] = record.tables[i].rows;
    words[3 + 3 * i] = record.tables[i].main_rows;
    words[4 + 3 * i] = record.tables[i].tail_checksum;
  }
  words.back() = crc32(std::as_bytes(std::span(words).first(kCommitWords - 1)));
  return words;
}

std::optional<CommitRecord> decode(std::span<const uint64_t> two_records) {
  std::optional<CommitRecord> newest;
  const size_t size = two_records.size() / 2;
  for (size_t slot = 0; slot < 2; ++slot) {
    const auto words = two_records.subspan(slot * size, size);
    if (words.back() != crc32(std::as_bytes(words.first(size - 1)))) continue;
    if (newest && newest->generation > words[0]) continue;
    CommitRecord record;
    record.generation = words[0];
    record.state = static_cast<RecordingState>(words[1]);
    for (size_t i = 0; commit_words(i) < size; ++i) {
      if (i < kTables)
        record.tables[i] = {words[2 + 3 * i], words[3 + 3 * i], static_cast<uint32_t>(words[4 + 3 * i])};
      else if (words[2 + 3 * i] > 0)
        ++record.unknown_tables;
    }
    newest = record;
  }
  return newest;
}

}  // namespace ulpscope::trace_detail
