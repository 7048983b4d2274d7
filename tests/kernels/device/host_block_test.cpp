// The host's runner of blocks: what its operations give, and that it finds what a GPU leaves undefined, in any order of threads.
#include "ulpscope/kernels/device/host_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <numeric>
#include <set>

#include "ulpscope/base/error.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::device {
namespace {

constexpr uint64_t kSeeds = 20;

struct Numbers {
  using Element = uint32_t;
  static constexpr int kSize = 128;
  static constexpr const char* kName = "numbers";
};

// What the runner says of a kernel of 64 threads, which is the same whatever the seed but for the threads it names.
std::string error_of(const std::function<void(HostBlock&)>& kernel, uint64_t seed) {
  try {
    run_on_host({.blocks = 2, .threads = 64}, kernel, seed);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
void expect_error(const std::function<void(HostBlock&)>& kernel, const std::string& pattern) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed)
    EXPECT_THAT(error_of(kernel, seed), testing::MatchesRegex(pattern)) << "seed " << seed;
}
void expect_none(const std::function<void(HostBlock&)>& kernel) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) EXPECT_EQ(error_of(kernel, seed), "") << "seed " << seed;
}

TEST(HostBlock, RunsEveryThreadOfEveryBlockOnce) {
  std::multiset<std::pair<int64_t, int>> seen;
  run_on_host({.blocks = 3, .threads = 96}, [&](HostBlock& block) {
    seen.emplace(block.block(), block.thread());
    EXPECT_EQ(block.blocks(), 3);
    EXPECT_EQ(block.threads(), 96);
    EXPECT_EQ(block.warps(), 3);
    EXPECT_EQ(block.warp() * kWarpThreads + block.lane(), block.thread());
  });
  EXPECT_EQ(seen.size(), 3u * 96);
  EXPECT_EQ((std::set<std::pair<int64_t, int>>(seen.begin(), seen.end()).size()), 3u * 96);
}

TEST(HostBlock, OperationsOfAWarpGiveWhatTheySay) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    run_on_host(
        {.blocks = 1, .threads = 64},
        [](HostBlock& block) {
          const auto lane = static_cast<uint32_t>(block.lane()), base = static_cast<uint32_t>(block.warp()) * 100;
          EXPECT_EQ(block.shuffle(base + lane, (block.lane() + 5) % 32), base + (lane + 5) % 32);
          EXPECT_EQ(block.shuffle(static_cast<float>(lane) / 4, 3), 0.75f);
          EXPECT_EQ(block.shuffle_down(base + lane, 16), base + (lane < 16 ? lane + 16 : lane));
          EXPECT_EQ(block.ballot(lane % 3 == 1), 0b10010010010010010010010010010010u);
          EXPECT_EQ(block.ballot(false), 0u);
          EXPECT_EQ(block.sum(lane + base), 31 * 16 + 32 * base);
          EXPECT_EQ(block.smallest(40 - lane), 9u);
          EXPECT_EQ(block.largest(lane ^ 21), 31u);
        },
        seed);
  }
}

// A tree over shared memory, in which every step needs its barrier.
void tree(HostBlock& block, int step_without_barrier, std::vector<uint32_t>& sums) {
  const auto numbers = block.shared<Numbers>();
  numbers.write(block.thread(), static_cast<uint32_t>(block.thread() + block.block()));
  for (int width = block.threads() / 2; width > 0; width /= 2) {
    if (width != step_without_barrier) block.barrier();
    if (block.thread() < width) numbers.write(block.thread(), numbers.read(block.thread()) + numbers.read(block.thread() + width));
  }
  if (block.thread() == 0) sums[static_cast<size_t>(block.block())] = numbers.read(0);
}

TEST(HostBlock, ATreeNeedsABarrierAtEveryStep) {
  std::vector<uint32_t> sums(2);
  expect_none([&](HostBlock& block) { tree(block, 0, sums); });
  EXPECT_EQ(sums, (std::vector<uint32_t>{63 * 32, 63 * 32 + 64}));
  for (int width = 32; width > 0; width /= 2)
    expect_error([&](HostBlock& block) { tree(block, width, sums); },
                 "numbers\\[[0-9]+\\]: thread [0-9]+ ((reads|writes) what thread [0-9]+ uses, without a barrier between|"
                 "reads what no thread of the block wrote)");
}

TEST(HostBlock, FindsEachKindOfConflict) {
  // A write and a read.
  expect_error(
      [](HostBlock& block) {
        const auto numbers = block.shared<Numbers>();
        if (block.thread() == 3) numbers.write(7, 1);
        block.barrier();
        if (block.thread() == 40) numbers.write(7, 2);
        if (block.thread() == 5) numbers.read(7);
      },
      "numbers\\[7\\]: thread (5 reads what thread 40|40 writes what thread 5) uses, without a barrier between");
  // Two writes, of the same value even.
  expect_error(
      [](HostBlock& block) {
        if (block.thread() == 3 || block.thread() == 33) block.shared<Numbers>().write(0, 1);
      },
      "numbers\\[0\\]: thread (3 writes what thread 33|33 writes what thread 3) uses, .*");
  // A write after many reads, that of one of the readers too.
  expect_error(
      [](HostBlock& block) {
        const auto numbers = block.shared<Numbers>();
        if (block.thread() == 0) numbers.write(0, 1);
        block.barrier();
        numbers.read(0);
        block.sync_warp();
        if (block.thread() == 9) numbers.write(0, 2);
      },
      "numbers\\[0\\]: thread [0-9]+ (reads|writes) what thread [0-9]+ uses, .*");
  // An addition beside a read, in either order.
  for (const int adder : {2, 50}) {
    expect_error(
        [&](HostBlock& block) {
          const auto numbers = block.shared<Numbers>();
          if (block.thread() == 0) numbers.write(0, 1);
          block.barrier();
          if (block.thread() == adder) numbers.add(0, 1);
          if (block.thread() == 20) numbers.read(0);
        },
        "numbers\\[0\\]: thread (20 reads|[0-9]+ adds to) what thread [0-9]+ uses, .*");
  }
  // A read of another warp that comes behind additions which the first reader was in order with.
  expect_error(
      [](HostBlock& block) {
        const auto numbers = block.shared<Numbers>();
        if (block.thread() == 0) numbers.write(0, 1);
        block.barrier();
        if (block.warp() == 0) numbers.add(0, 1);
        block.sync_warp();
        numbers.read(0);
      },
      "numbers\\[0\\]: thread [0-9]+ (adds to|reads) what thread [0-9]+ uses, .*");
}

TEST(HostBlock, LetsAdditionsMeetAndOthersReadTogether) {
  expect_none([](HostBlock& block) {
    const auto numbers = block.shared<Numbers>();
    numbers.write(block.thread(), 0);
    block.barrier();
    numbers.add(block.thread() % 3, 1);
    block.barrier();
    EXPECT_EQ(numbers.read(0) + numbers.read(1) + numbers.read(2), 64u);
    block.barrier();
    numbers.write(block.thread(), numbers.read(block.thread()) + 1);
  });
}

TEST(HostBlock, LanesOfAWarpNeedASyncOfTheWarpAndNoShuffleDoes) {
  const auto pass_on = [](HostBlock& block, bool syncs) {
    const auto numbers = block.shared<Numbers>();
    numbers.write(block.thread(), static_cast<uint32_t>(block.thread()));
    block.shuffle(0u, 0);
    if (syncs) block.sync_warp();
    EXPECT_EQ(numbers.read(block.thread() ^ 1), static_cast<uint32_t>(block.thread() ^ 1));
  };
  expect_none([&](HostBlock& block) { pass_on(block, true); });
  expect_error([&](HostBlock& block) { pass_on(block, false); },
               "numbers\\[[0-9]+\\]: thread [0-9]+ reads what thread [0-9]+ uses, without a barrier between");
  // It is none between warps.
  expect_error(
      [](HostBlock& block) {
        const auto numbers = block.shared<Numbers>();
        numbers.write(block.thread(), 1);
        block.sync_warp();
        numbers.read(block.thread() ^ 32);
      },
      "numbers\\[[0-9]+\\]: thread [0-9]+ reads what (thread [0-9]+ uses, without a barrier between|no thread of the block wrote)");
}

TEST(HostBlock, SharedMemoryIsUndefinedAtFirstAndHasAnEnd) {
  // The second block has nothing of what the first wrote.
  expect_error(
      [](HostBlock& block) {
        const auto numbers = block.shared<Numbers>();
        if (block.block() == 0) numbers.write(block.thread(), 1);
        numbers.read(block.thread());
      },
      "numbers\\[[0-9]+\\]: thread [0-9]+ reads what no thread of the block wrote");
  expect_error([](HostBlock& block) { block.shared<Numbers>().add(block.thread(), 1); },
               "numbers\\[[0-9]+\\]: thread [0-9]+ reads what no thread of the block wrote");
  expect_error([](HostBlock& block) { block.shared<Numbers>().write(block.thread() + 65, 1); },
               "numbers\\[128\\]: thread 63 uses shared memory beyond its 128 elements");
}

TEST(HostBlock, AllThreadsReachABarrierAndAllLanesAnOperation) {
  expect_error(
      [](HostBlock& block) {
        if (block.thread() != 17) block.barrier();
      },
      "thread 0 is at the barrier of line [0-9]+, but thread 17 has returned");
  expect_error(
      [](HostBlock& block) {
        if (block.warp() == 0) {
          block.barrier();
        } else {
          block.barrier();
        }
      },
      "thread 0 is at the barrier of line [0-9]+, but thread 32 is at the barrier of line [0-9]+");
  expect_error(
      [](HostBlock& block) {
        if (block.lane() < 31) block.ballot(true);
      },
      "thread (0|32) waits at ballot for thread (31|63) of its warp, which has returned");
  expect_error(
      [](HostBlock& block) {
        if (block.lane() == 4) block.sync_warp();
        block.sum(1);
      },
      "thread (0|32) waits at sum for thread (4|36) of its warp, which is at sync_warp");
  expect_error([](HostBlock& block) { block.shuffle(1u, 32); }, "shuffle: a warp has no lane 32");
  EXPECT_THROW(run_on_host({.blocks = 1, .threads = 33}, [](HostBlock&) {}), Error);
}

// Where the elements of a fragment lie is what the PTX instruction set says of mma with 16 rows and 8 columns, and the same of a
// warp of wgmma: group = lane / 4 and number = lane % 4. Elements are small whole numbers, so that sums are exact.
constexpr MatrixInstruction instruction_of(DType factors, DType sums = DType::f32,
                                           InstructionFamily family = InstructionFamily::mma) {
  return {family, factors, factors, sums};
}

template <MatrixInstruction instruction, int words = kWholeWords>
void expect_products(const char* gpu) {
  constexpr int kOfWord = static_cast<int>(sizeof(uint32_t) / info(instruction.a).size), kTerms = words * kOfWord;
  const auto element = [](int line, int term, int odd) {
    return (line * 7 + term * odd) % 5 == 0 ? 0.0f : 1.0f + static_cast<float>((line + term) % 3);
  };
  const auto encoding = [](DType dtype, float value) {
    return static_cast<uint32_t>(round_to_encoding(*info(dtype).format, value));
  };
  const auto begins_with = [](int row, int column) { return static_cast<float>(row * kColumnsOfProduct + column); };
  float sums[kRowsOfProduct][kColumnsOfProduct];
  const auto kernel = [&](HostBlock& block) {
    const int group = block.lane() / 4, number = block.lane() % 4;
    uint32_t a[words / 2] = {}, b[words / 4] = {};
    const auto put = [&](uint32_t& word, DType dtype, int line, int first, int odd) {
      for (int i = 0; i < kOfWord; ++i) word |= encoding(dtype, element(line, kOfWord * first + i, odd)) << (32 / kOfWord * i % 32);
    };
    put(a[0], instruction.a, group, number, 3);
    put(a[1], instruction.a, group + 8, number, 3);
    put(b[0], instruction.b, group, number, 11);
    if constexpr (words == kWholeWords) {
      put(a[2], instruction.a, group, number + 4, 3);
      put(a[3], instruction.a, group + 8, number + 4, 3);
      put(b[1], instruction.b, group, number + 4, 11);
    }
    using Sums = SumsOfThread<instruction>;
    typename Sums::Element of_lane[Sums::kSize] = {};
    for (int i = 0; i < 4; ++i) {
      const float value = begins_with(group + (i < 2 ? 0 : 8), number * 2 + i % 2);
      if constexpr (instruction.sums == DType::f16) {
        of_lane[i / 2] |= static_cast<uint32_t>(round_to_f16(value)) << (i % 2 * 16);
      } else {
        of_lane[i] = value;
      }
    }
    block.multiply_add<instruction>(of_lane, a, b);
    for (int i = 0; i < 4; ++i) {
      const int row = group + (i < 2 ? 0 : 8), column = number * 2 + i % 2;
      float sum;
      if constexpr (instruction.sums == DType::f16) {
        sum = f16_to_float(static_cast<uint16_t>(of_lane[i / 2] >> (i % 2 * 16)));
      } else {
        sum = of_lane[i];
      }
      sums[row][column] = sum - begins_with(row, column);
    }
  };
  for (uint64_t seed = 0; seed < 3; ++seed) {
    constexpr bool kIsOfGroup = instruction.family == InstructionFamily::wgmma;
    run_on_host({.blocks = 1, .threads = kIsOfGroup ? 128 : 32}, kernel, seed, MatrixUnits(gpu));
    for (int row = 0; row < kRowsOfProduct; ++row) {
      for (int column = 0; column < kColumnsOfProduct; ++column) {
        float expected = 0;
        for (int term = 0; term < kTerms; ++term) expected += element(row, term, 3) * element(column, term, 11);
        EXPECT_EQ(sums[row][column], expected) << row << " " << column;
      }
    }
  }
}

TEST(HostBlock, MultipliesFragmentsAsPtxHasThem) {
  constexpr InstructionFamily kWgmma = InstructionFamily::wgmma;
  for (const char* gpu : {"h100", "a100"}) {
    expect_products<instruction_of(DType::f16)>(gpu);
    expect_products<instruction_of(DType::f16), kShortWords>(gpu);
    expect_products<instruction_of(DType::f16, DType::f16)>(gpu);
    expect_products<instruction_of(DType::f16, DType::f16), kShortWords>(gpu);
    expect_products<instruction_of(DType::bf16)>(gpu);
    expect_products<instruction_of(DType::bf16), kShortWords>(gpu);
    expect_products<instruction_of(DType::f32)>(gpu);
    expect_products<instruction_of(DType::f32), kShortWords>(gpu);
  }
  expect_products<instruction_of(DType::f8_e4m3)>("rtx4090");
  expect_products<instruction_of(DType::f8_e5m2, DType::f16)>("rtx4090");
  expect_products<instruction_of(DType::f16, DType::f32, kWgmma)>("h100");
  expect_products<instruction_of(DType::f32, DType::f32, kWgmma)>("h100");
  expect_products<MatrixInstruction{kWgmma, DType::f8_e4m3, DType::f8_e5m2, DType::f16}>("h100");
}

TEST(HostBlock, AllLanesMultiplyTheSame) {
  const auto with = [](const char* gpu, const std::function<void(HostBlock&)>& kernel, int threads = 32) -> std::string {
    try {
      run_on_host({.blocks = 1, .threads = threads}, kernel, 0, MatrixUnits(gpu));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto multiply = [](HostBlock& block) {
    float sums[4] = {};
    const uint32_t a[2] = {}, b[1] = {};
    if (block.lane() == 5) {
      block.multiply_add<instruction_of(DType::bf16)>(sums, a, b);
    } else {
      block.multiply_add<instruction_of(DType::f16)>(sums, a, b);
    }
  };
  EXPECT_EQ(with("h100", multiply), "multiply_add: lanes 5 and 0 ask for different ones");
  EXPECT_EQ(with("t4",
                 [](HostBlock& block) {
                   float sums[4] = {};
                   const uint32_t a[4] = {}, b[2] = {};
                   block.multiply_add<instruction_of(DType::f16)>(sums, a, b);
                   block.multiply_add<instruction_of(DType::bf16)>(sums, a, b);
                 }),
            "multiply_add: the GPU has no matrix units for such factors");
  // wgmma is of four warps, all of which have to be there.
  const auto by_group = [](int warps) {
    return [=](HostBlock& block) {
      float sums[4] = {};
      const uint32_t a[4] = {}, b[2] = {};
      if (block.warp() < warps) block.multiply_add<instruction_of(DType::f16, DType::f32, InstructionFamily::wgmma)>(sums, a, b);
    };
  };
  EXPECT_EQ(with("h100", by_group(4), 128), "");
  EXPECT_THAT(with("h100", by_group(3), 128), ::testing::HasSubstr("has returned"));
  // Columns are those of the group, and so of all its warps.
  EXPECT_EQ(with(
                "h100",
                [](HostBlock& block) {
                  float sums[4] = {};
                  const uint32_t a[4] = {}, b[2] = {block.thread() == 70 ? 1u : 0, 0};
                  block.multiply_add<instruction_of(DType::f16, DType::f32, InstructionFamily::wgmma)>(sums, a, b);
                },
                128),
            "multiply_add: thread 70 has other columns than thread 6 of the first warp");
  EXPECT_EQ(with("h100", by_group(1)), "multiply_add: wgmma is of 4 warps, which are the block, and this one has 1");
}

}  // namespace
}  // namespace ulpscope::device
