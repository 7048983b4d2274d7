// Bit hashes against sums over one byte after another, and what they have to tell apart.
#include "ulpscope/kernels/bit_hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <thread>

#include "cpu_support.h"

namespace ulpscope::testing_support {
namespace {

constexpr DType kTypes[] = {DType::u8, DType::f8_e4m3, DType::f16, DType::bf16, DType::f32, DType::i32, DType::f64, DType::i64};

TEST(BitHash, IsTheSameFromEveryInstructionSet) {
  for (const std::string& isa : instruction_sets()) {
    const auto backend = make_cpu_backend({.isa = isa});  // which sets the process's
    for (const DType dtype : kTypes) {
      for (const int64_t n : {0, 1, 2, 3, 5, 31, 64, 65, 127, 511, 512, 513, 1023, 1024, 1025, 2048, 4097, 40001}) {
        for (const int64_t shift : {0, 1, 5}) {
          const ArbitraryBits bits(dtype, n, shift);
          EXPECT_EQ(bit_hash_of(bits.view), reference_bit_hash(bits.view))
              << fmt::format("{} {} of {} from {}", isa, n, info(dtype).name, shift);
        }
      }
    }
  }
}

// As docs/numerics.md says it, in one expression: the hash of the three bytes 1, 2, 3 as one word.
TEST(BitHash, OfOneWordIsItsProductWithTheFirstCoefficient) {
  uint8_t bytes[] = {1, 2, 3};
  TensorView view;
  view.data = bytes;
  view.dtype = DType::u8;
  view.rank = 1;
  view.shape[0] = 3;
  view.strides[0] = 1;
  const uint64_t coefficient = hash_combine(0x62697473, 0) | 1;
  EXPECT_EQ(bit_hash_of(view), hash_combine(hash_combine(0x030201 * coefficient, 0), 3));
}

TEST(BitHash, DependsOnTheLogicalOrderAndNotOnTheLayoutOrOnThreads) {
  const auto on_threads = [](int64_t n, const std::function<void(int64_t)>& body) {
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < n; ++i) threads.emplace_back([&body, i] { body(i); });
    for (std::thread& thread : threads) thread.join();
  };
  for (const DType dtype : kTypes) {
    constexpr int64_t kRows = 41, kColumns = 3001;
    const ArbitraryBits bits(dtype, kRows * kColumns);
    const auto size = info(dtype).size;
    std::vector<char> turned(bits.bytes.size());
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t column = 0; column < kColumns; ++column)
        std::copy_n(bits.bytes.data() + static_cast<size_t>(row * kColumns + column) * size, size,
                    turned.data() + static_cast<size_t>(column * kRows + row) * size);
    TensorView view = bits.view;
    view.rank = 2;
    view.shape = {kRows, kColumns};
    view.strides = {1, kRows};
    view.data = turned.data();
    EXPECT_EQ(bit_hash_of(view, on_threads), bit_hash_of(bits.view)) << info(dtype).name;
    view.strides = {kColumns, 1};
    EXPECT_NE(bit_hash_of(view), bit_hash_of(bits.view)) << info(dtype).name;  // the same elements elsewhere
    // A column, and that column repeated.
    view.shape = {kRows, 1};
    EXPECT_EQ(bit_hash_of(view), reference_bit_hash(view));
    const uint64_t once = bit_hash_of(view);
    view.shape = {kRows, 7};
    view.strides = {kColumns, 0};
    EXPECT_EQ(bit_hash_of(view), reference_bit_hash(view));
    EXPECT_NE(bit_hash_of(view), once);
  }
}

TEST(BitHash, EveryBitAndEveryExchangeOfTwoElementsChangesIt) {
  for (const DType dtype : kTypes) {
    ArbitraryBits bits(dtype, 1500);
    const auto size = static_cast<int64_t>(info(dtype).size);
    const uint64_t before = bit_hash_of(bits.view);
    for (size_t bit = 0; bit < 8 * bits.bytes.size(); bit += 7) {
      char& byte = bits.bytes[bit / 8];
      byte = static_cast<char>(byte ^ (1 << (bit % 8)));
      ASSERT_NE(bit_hash_of(bits.view), before) << info(dtype).name << " bit " << bit;
      byte = static_cast<char>(byte ^ (1 << (bit % 8)));
    }
    for (int i = 0; i < 2000; ++i) {
      const auto from = static_cast<int64_t>(hash_combine(static_cast<uint64_t>(i), 1) % 1500),
                 to = static_cast<int64_t>(hash_combine(static_cast<uint64_t>(i), 2) % 1500);
      char* const first = bits.bytes.data() + from * size;
      char* const second = bits.bytes.data() + to * size;
      if (std::equal(first, first + size, second)) continue;
      std::swap_ranges(first, first + size, second);
      ASSERT_NE(bit_hash_of(bits.view), before) << info(dtype).name << " " << from << " and " << to;
      std::swap_ranges(first, first + size, second);
    }
  }
}

// A sum of bits misses each of these: a value moved by a power of two up here and down there, rows exchanged, signs of two zeros.
TEST(BitHash, TellsApartWhatSumsOfBitsDoNot) {
  std::vector<float> values(3000, 1.0f);
  TensorView view;
  view.data = values.data();
  view.dtype = DType::f32;
  view.rank = 1;
  view.shape[0] = static_cast<int64_t>(values.size());
  view.strides[0] = 1;
  std::set<uint64_t> hashes{bit_hash_of(view)};
  for (size_t up = 0; up < values.size(); up += 97) {
    for (size_t down = 1; down < values.size(); down += 101) {
      if (up == down) continue;
      values[up] = 2.0f;
      values[down] = 0.5f;
      EXPECT_TRUE(hashes.insert(bit_hash_of(view)).second) << up << " " << down;
      values[up] = values[down] = 1.0f;
    }
  }
}

// Changes of four words by one ulp each, up and down, as an op that rounds otherwise makes them: with coefficients of 32 bits some
// of these cancel.
TEST(BitHash, SmallChangesOfSeveralWordsDoNotCancel) {
  std::set<uint64_t> sums;
  for (int64_t i = 0; i < kBitHashWords; ++i)
    for (int64_t k = 0; k < i; ++k)
      EXPECT_TRUE(sums.insert(bit_hash_coefficient(i) + bit_hash_coefficient(k)).second) << i << " " << k;
}

TEST(BitHash, CoefficientsAreOddAndDiffer) {
  std::set<uint64_t> coefficients;
  for (int64_t word = 0; word < kBitHashWords; ++word) {
    EXPECT_EQ(bit_hash_coefficient(word) & 1, 1u);
    coefficients.insert(bit_hash_coefficient(word));
  }
  EXPECT_EQ(coefficients.size(), static_cast<size_t>(kBitHashWords));
}

}  // namespace
}  // namespace ulpscope::testing_support
