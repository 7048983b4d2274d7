// Fingerprints against sums of the bits of one element after another.
#include "ulpscope/kernels/fingerprint.h"

#include <fmt/format.h>

#include <bit>
#include <thread>

#include "cpu_support.h"

namespace ulpscope::testing_support {
namespace {

constexpr DType kTypes[] = {DType::u8, DType::f8_e4m3, DType::f16, DType::bf16, DType::f32, DType::i32, DType::f64, DType::i64};

TEST(Fingerprint, IsTheSumOfAllBitPatterns) {
  for (const std::string& isa : instruction_sets()) {
    const auto backend = make_cpu_backend({.isa = isa});  // which sets the process's
    for (const DType dtype : kTypes) {
      for (const int64_t n : {0, 1, 3, 63, 64, 65, 127, 129, 1000, 8192, 40001, 100000}) {
        for (const int64_t shift : {0, 1, 5}) {
          const ArbitraryBits bits(dtype, n, shift);
          const uint64_t expected = sum_of_bits(bits.view);
          const std::string where = fmt::format("{} {} of {} from {}", isa, n, info(dtype).name, shift);
          EXPECT_EQ(fingerprint_of(bits.view), expected) << where;
          EXPECT_EQ(fingerprint_of(bits.view.data, n, info(dtype).size), expected) << where;
          EXPECT_EQ(reference_fingerprint(bits.view), expected) << where;
        }
      }
    }
  }
}

// Lanes of 32 bits hold sums of 2^16 elements of 16 bits, and no more.
TEST(Fingerprint, ManyLargeElementsDoNotCarryOver) {
  std::vector<uint16_t> halves(size_t{40} << 20, 0xFFFF);
  EXPECT_EQ(fingerprint_of(halves.data(), static_cast<int64_t>(halves.size()), 2), halves.size() * uint64_t{0xFFFF});
  std::vector<uint32_t> words(size_t{1} << 20, 0xFFFFFFFF);
  EXPECT_EQ(fingerprint_of(words.data(), static_cast<int64_t>(words.size()), 4), words.size() * uint64_t{0xFFFFFFFF});
}

TEST(Fingerprint, DoesNotDependOnTheLayoutOrOnThreads) {
  const auto on_threads = [](int64_t n, const std::function<void(int64_t)>& body) {
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < n; ++i) threads.emplace_back([&body, i] { body(i); });
    for (std::thread& thread : threads) thread.join();
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    ArbitraryBits bits(dtype, 3 * 41 * 1000);
    const uint64_t sum = sum_of_bits(bits.view);
    EXPECT_EQ(fingerprint_of(bits.view, on_threads), sum);
    TensorView view = bits.view;
    view.rank = 3;
    view.shape = {1000, 3, 41};
    view.strides = {1, 41000, 1000};  // turned round, and dense
    EXPECT_EQ(fingerprint_of(view, on_threads), sum);
    // A column of it, and that column repeated.
    view.rank = 2;
    view.shape = {41, 7};
    view.strides = {3000, 0};
    EXPECT_EQ(fingerprint_of(view), sum_of_bits(view));
    view.shape[1] = 1;
    EXPECT_EQ(fingerprint_of(view), sum_of_bits(view));
    EXPECT_NE(fingerprint_of(view), sum);
  }
}

TEST(Fingerprint, EveryBitOfAnyElementChangesIt) {
  for (const DType dtype : kTypes) {
    ArbitraryBits bits(dtype, 300);
    const uint64_t before = fingerprint_of(bits.view);
    for (size_t bit = 0; bit < 8 * bits.bytes.size(); ++bit) {
      char& byte = bits.bytes[bit / 8];
      const bool was_set = (byte >> (bit % 8) & 1) != 0;
      byte = static_cast<char>(byte ^ (1 << (bit % 8)));
      const uint64_t place = uint64_t{1} << bit % (8 * info(dtype).size), change = fingerprint_of(bits.view) - before;
      ASSERT_EQ(change, was_set ? -place : place) << info(dtype).name << " bit " << bit;
      byte = static_cast<char>(byte ^ (1 << (bit % 8)));
    }
  }
}

}  // namespace
}  // namespace ulpscope::testing_support
