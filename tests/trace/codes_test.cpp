// The encodings inside a trace, at their edges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ulpscope/trace/commit.h"
#include "ulpscope/trace/encode.h"

namespace ulpscope::trace_detail {
namespace {

std::vector<uint8_t> encoded(const ExponentHistogram& histogram) {
  std::vector<uint8_t> bytes(kLargestHistogram);
  bytes.resize(encode_histogram(histogram, bytes.data()));
  return bytes;
}

TEST(HistogramCode, HasTheDocumentedBytes) {
  ExponentHistogram histogram;
  EXPECT_TRUE(encoded(histogram).empty());
  histogram.bins[3] = 1;
  histogram.bins[5] = 300;  // 0b10'0101100
  EXPECT_THAT(encoded(histogram), testing::ElementsAre(3, 5, 1, 0, 0xAC, 0x02));
}

TEST(HistogramCode, KeepsEveryPairOfEndsAndTheLargestCounts) {
  for (size_t first = 0; first < ExponentHistogram::kBins; ++first) {
    for (size_t last = first; last < ExponentHistogram::kBins; ++last) {
      ExponentHistogram histogram, decoded;
      histogram.bins[first] = first + 1;
      histogram.bins[last] = UINT64_MAX - last;
      ASSERT_TRUE(decode_histogram(encoded(histogram), decoded));
      ASSERT_EQ(decoded, histogram) << first << " " << last;
    }
  }
  ExponentHistogram full, decoded;
  full.bins.fill(UINT64_MAX);
  EXPECT_EQ(encoded(full).size(), kLargestHistogram);
  EXPECT_TRUE(decode_histogram(encoded(full), decoded));
  EXPECT_EQ(decoded, full);
}

TEST(HistogramCode, RefusesWhatIsNone) {
  const std::vector<std::vector<uint8_t>> wrong = {
      {3},
      {3, 3},
      {5, 3, 1},
      {3, 255, 1},
      {3, 4, 1},                                                           // a bin is missing
      {3, 3, 1, 1},                                                        // one too many
      {3, 3, 0x80},                                                        // ends within a count
      {3, 3, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02},  // 2^64
      {3, 3, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00},
  };
  for (const auto& bytes : wrong) {
    ExponentHistogram histogram;
    EXPECT_FALSE(decode_histogram(bytes, histogram)) << testing::PrintToString(bytes);
  }
}

TEST(ShapeText, IsKeptAndChecked) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {0}, {64, 1, 28, 28}, {INT64_MAX}}) {
    std::vector<int64_t> parsed{99};
    EXPECT_TRUE(parse_shape(shape_text(shape), parsed));
    EXPECT_EQ(parsed, shape);
  }
  for (const char* text : {",", "1,", ",1", "1,,2", "-1", "x", "1x", "1 2", "9223372036854775808"}) {
    std::vector<int64_t> parsed;
    EXPECT_FALSE(parse_shape(text, parsed)) << text;
  }
}

TEST(Checksum, IsTheCrc32OfZlib) {
  const std::string text = "123456789";
  EXPECT_EQ(crc32(std::as_bytes(std::span(text))), 0xCBF43926u);
  const std::string longer = "The quick brown fox jumps over the lazy dog";
  EXPECT_EQ(crc32(std::as_bytes(std::span(longer))), 0x414FA339u);
  EXPECT_EQ(crc32(std::as_bytes(std::span(longer).subspan(11)), crc32(std::as_bytes(std::span(longer).first(11)))), 0x414FA339u);
}

TEST(CommitRecords, TheNewerWholeOneIsTaken) {
  CommitRecord older, newer;
  older.generation = 6;
  newer.generation = 7;
  newer.state = RecordingState::stopped;
  newer[TableId::stats] = {10, 8, 5};
  std::vector<uint64_t> words;
  for (const CommitRecord& record : {newer, older}) {
    const CommitWords one = encode(record);
    words.insert(words.end(), one.begin(), one.end());
  }
  const auto record = decode(words);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->generation, 7u);
  EXPECT_EQ(record->state, RecordingState::stopped);
  EXPECT_EQ(record->tables, newer.tables);
  // One flipped bit anywhere in the newer one, and the older one is taken; in both, none.
  for (size_t bit = 0; bit < kCommitWords * 64; ++bit) {
    auto damaged = words;
    damaged[bit / 64] ^= uint64_t{1} << (bit % 64);
    ASSERT_EQ(decode(damaged)->generation, 6u) << bit;
    damaged[kCommitWords] ^= 1;
    ASSERT_FALSE(decode(damaged)) << bit;
  }
  EXPECT_FALSE(decode(std::vector<uint64_t>(2 * kCommitWords)));
}

// A program that knows more tables or fewer wrote them: the tables that both know are in the same places.
TEST(CommitRecords, OfMoreOrFewerTablesAreRead) {
  CommitRecord record;
  record.generation = 7;
  for (size_t i = 0; i < kTables; ++i) record.tables[i] = {10 * i + 5, 10 * i, static_cast<uint32_t>(i)};
  const auto with_tables = [&](size_t tables) {
    const CommitWords known = encode(record);
    std::vector<uint64_t> words(known.begin(), known.end() - 1);
    words.resize(2 + 3 * tables);
    // Every other one of those that are not known has rows.
    for (size_t i = kTables; i < tables; i += 2) words[2 + 3 * i] = 1;
    words.push_back(crc32(std::as_bytes(std::span(words))));
    std::vector<uint64_t> two(words.size(), 1);  // none, and the record
    two.insert(two.end(), words.begin(), words.end());
    return decode(two);
  };
  ASSERT_TRUE(with_tables(kTables));
  EXPECT_EQ(with_tables(kTables)->unknown_tables, 0u);
  for (const size_t more : {1, 2, 3, 100}) {
    const auto read = with_tables(kTables + more);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->generation, 7u);
    EXPECT_EQ(read->tables, record.tables);
    EXPECT_EQ(read->unknown_tables, (more + 1) / 2);
  }
  const auto read = with_tables(kTables - 2);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->unknown_tables, 0u);
  for (size_t i = 0; i < kTables; ++i) EXPECT_EQ(read->tables[i], i < kTables - 2 ? record.tables[i] : CommitRecord::Table());
}

}  // namespace
}  // namespace ulpscope::trace_detail
