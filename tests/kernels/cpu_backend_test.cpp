// What the CPU backend promises beside values: counts of roundings, memory, instruction sets, captures, errors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cpu_support.h"
#include "ulpscope/base/error.h"
#include "ulpscope/kernels/cases/op_cases.h"

namespace ulpscope::testing_support {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Products of 2^-14 and 2^-14, 3 terms: 3 * 2^-28 lies below half the smallest FP16 number, 2^-25.
TEST(CpuBackend, MatmulReportsResultsThatRoundingFlushed) {
  const auto backend = make_cpu_backend({.threads = 2});
  for (const int64_t m : {4, 300}) {
    const int64_t n = m == 4 ? 5 : 200, k = 3;
    const Case what{"matmul", {{{m, k}}, {{k, n}}}, {{{m, n}}}};
    Instance instance(what, DType::f16);
    for (HostTensor& input : instance.inputs()) {
      for (int64_t i = 0; i < input.view().size(); ++i) input.set(i, 0x1p-14);
    }
    const Result result = instance.run(*backend, StatisticsLevel::health);
    const OutputRecord& record = result.records[0];
    EXPECT_TRUE(record.rounding_known);
    EXPECT_EQ(record.statistics.count, static_cast<uint64_t>(m * n));
    EXPECT_EQ(record.rounding.flushed, static_cast<uint64_t>(m * n));
    EXPECT_EQ(record.statistics.zeros, 0u) << "zeros are counted before rounding";
    EXPECT_EQ(result.outputs[0].get(0), 0);
  }
}

TEST(CpuBackend, StatisticsAreThoseOfTheWideValues) {
  const auto backend = make_cpu_backend({.threads = 2});
  for (const Case& what : other_cases()) {
    if (what.terms == 0) continue;
    const Instance instance(what, DType::f16);
    const Result result = instance.run(*backend, StatisticsLevel::values);
    const Result exact = instance.run_exact(), magnitude = instance.run_magnitudes();
    double sum = 0, bound = 0;
    for (int64_t i = 0; i < exact.outputs[0].view().size(); ++i) {
      sum += exact.outputs[0].get(i);
      bound += magnitude.outputs[0].get(i);
    }
    // The values err by FP32 roundings. On top come FP64 roundings: of the recorded sum and of the one here, over all elements, and
    // of the exact values and their magnitudes, over their terms.
    const auto gamma = [](double roundings, double u) { return roundings * u / (1 - roundings * u); };
    const auto terms = static_cast<double>(what.terms), elements = static_cast<double>(exact.outputs[0].view().size());
    const double narrow = gamma(terms, 0x1p-24), wide = gamma(2 * elements + 2 * terms, 0x1p-53);
    EXPECT_TRUE(within(std::fabs(result.records[0].statistics.sum - sum), (narrow + wide * (1 + narrow)) * bound)) << what.name();
    EXPECT_TRUE(result.records[0].before_rounding) << what.name();
  }
}

// Adam in FP16 with a rounding after every operation. 0.001 g^2 is flushed below 2^-25, and eps = 1e-8 always: gradients of 2^-12
// make the weight infinite, gradients of 0 NaN; with the sum in FP32 all are finite. An exp_avg of 0.1 * 2^-14 is subnormal.
TEST(CpuBackend, UpdatesThatRoundEveryStepCountWhatThatLost) {
  const auto backend = make_cpu_backend({.threads = 2});
  const double gradients[] = {0x1p-12, 0, 0x1p-14, 1, 0x1p-2};
  const OutputSpec d{{5}, Lay::contiguous, {}, -1, true};
  const auto in_place = [](int input) { return OutputSpec{{5}, Lay::contiguous, {}, input}; };
  const Case what{"adam_update",
                  {{{5}}, {{5}}, {{5}}, {{5}}},
                  {in_place(0), in_place(2), in_place(3), d},
                  {{"lr", 1e-3},
                   {"beta1", 0.9},
                   {"beta2", 0.999},
                   {"eps", 1e-8},
                   {"weight_decay", 0},
                   {"decoupled", 0},
                   {"step", 1},
                   {"stepwise", 1}}};
  for (const StatisticsLevel level : {StatisticsLevel::health, StatisticsLevel::values}) {
    Instance instance(what, DType::f16);
    for (int64_t i = 0; i < 5; ++i) {
      instance.inputs()[0].set(i, 0.5);
      instance.inputs()[1].set(i, gradients[i]);
      for (const int state : {2, 3}) instance.inputs()[static_cast<size_t>(state)].set(i, 0);
    }
    for (const Result& result : {instance.run(*backend, level), instance.run_plain(level)}) {
      for (int slot = 0; slot < 3; ++slot) {
        EXPECT_TRUE(result.records[static_cast<size_t>(slot)].rounding_known) << slot;
        EXPECT_TRUE(result.records[static_cast<size_t>(slot)].before_rounding) << slot;
      }
      const OutputRecord &weight = result.records[0], &exp_avg = result.records[1], &exp_avg_sq = result.records[2];
      EXPECT_EQ(weight.rounding.overflowed, 2u);
      EXPECT_EQ(weight.statistics.nan, 1u);
      EXPECT_EQ(weight.statistics.infinities(), 0u);
      EXPECT_EQ(exp_avg.rounding.flushed, 0u);
      EXPECT_EQ(exp_avg.rounding.subnormal, 2u);
      EXPECT_EQ(exp_avg.statistics.zeros, 1u);
      EXPECT_EQ(exp_avg_sq.rounding.flushed, 2u);
      EXPECT_EQ(exp_avg_sq.statistics.zeros, 1u);
      EXPECT_EQ(exp_avg_sq.rounding.overflowed, 0u);
      EXPECT_EQ(result.outputs[0].get(0), -kInfinity);
      EXPECT_EQ(result.outputs[2].get(2), 0);
    }
  }
}

// What is planned for a call that one thread computes also serves one that all share.
TEST(CpuBackend, ConvolutionOfFewImagesThenOfMany) {
  const auto convolution = [](int64_t images) {
    return Case{"conv2d",
                {{{images, 1, 28, 28}, Lay::channels_last}, {{12, 1, 3, 3}}},
                {{{images, 12, 28, 28}, Lay::channels_last}},
                {{"stride_y", 1}, {"stride_x", 1}, {"padding_y", 1}, {"padding_x", 1}}};
  };
  const auto backend = make_cpu_backend({.threads = 2});
  for (const int64_t images : {2, 4, 1, 5, 2}) {
    const Instance instance(convolution(images), DType::f32);
    const auto fresh = make_cpu_backend({.threads = 2});
    expect_same(instance.run(*backend).outputs[0], instance.run(*fresh).outputs[0], fmt::format("{} images", images));
  }
}

TEST(CpuBackend, MemoryIsCountedAndReused) {
  const auto backend = make_cpu_backend();
  EXPECT_EQ(backend->allocated_bytes(), 0u);
  void* first = backend->allocate(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
  EXPECT_GE(backend->allocated_bytes(), 1000u);
  EXPECT_LE(backend->allocated_bytes(), 1125u) << "at most an eighth is lost";
  void* second = backend->allocate(size_t{1} << 20);
  backend->release(first, 1000);
  backend->release(second, size_t{1} << 20);
  EXPECT_EQ(backend->allocated_bytes(), 0u);
  EXPECT_GE(backend->peak_bytes(), (size_t{1} << 20) + 1000);
  EXPECT_EQ(backend->allocate(990), first) << "the same size class";
  backend->release(first, 990);
  backend->reset_peak();
  EXPECT_EQ(backend->peak_bytes(), 0u);
}

TEST(CpuBackend, SizeClassesHoldWhatIsAskedFor) {
  const auto backend = make_cpu_backend();
  for (size_t bytes = 0; bytes < 70000; bytes = bytes * 9 / 8 + 1) {
    auto* memory = static_cast<char*>(backend->allocate(bytes));
    for (size_t i = 0; i < bytes; ++i) memory[i] = static_cast<char>(i);
    EXPECT_GE(backend->allocated_bytes(), bytes);
    backend->release(memory, bytes);
  }
}

TEST(CpuBackend, ScratchCountsInThePeak) {
  const auto backend = make_cpu_backend({.threads = 2});
  const Case what{"matmul", {{{256, 512}}, {{512, 256}}}, {{{256, 256}}}};
  const Instance instance(what, DType::f16);
  instance.run(*backend);
  EXPECT_EQ(backend->allocated_bytes(), 0u);
  EXPECT_GE(backend->peak_bytes(), 512u * 256 * sizeof(float)) << "one factor at least is widened";
}

TEST(CpuBackend, TooLargeAnAllocationIsAnErrorThatNamesTheSize) {
  const auto backend = make_cpu_backend();
  try {
    backend->allocate(size_t{1} << 55);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("36028797018963968"), std::string::npos) << error.what();
  }
}

TEST(CpuBackend, UnknownInstructionSetsAreRefused) {
  EXPECT_THROW(make_cpu_backend({.threads = 1, .isa = "avx9"}), Error);
  for (const std::string& isa : instruction_sets()) {
    EXPECT_NE(make_cpu_backend({.threads = 1, .isa = isa})->description().find(isa), std::string::npos);
  }
}

TEST(CpuBackend, TargetsOutsideTheClassesAreRefused) {
  const auto backend = make_cpu_backend();
  for (const Case& what : other_cases()) {
    if (what.op != "cross_entropy" || what.inputs[0].shape[0] == 0) continue;
    Instance instance(what, DType::f32);
    instance.inputs()[1].set(0, static_cast<double>(what.inputs[0].shape[1]));
    EXPECT_THROW(instance.run(*backend), Error);
    instance.inputs()[1].set(0, -1);
    EXPECT_THROW(instance.run(*backend), Error);
  }
}

// An index has seven bits for the place in its window, and a window that lies in the padding alone has no largest element.
TEST(CpuBackend, WindowsThatPoolingCannotTakeAreRefused) {
  const auto backend = make_cpu_backend();
  const auto message = [&](double kernel_y, double kernel_x, double padding, const std::string& by, Lay lay) -> std::string {
    const std::vector<int64_t> x{1, 1, 20, 20}, y{1, 1, 2, 2};
    const Case what{"max_pool2d",
                    {{x, lay}},
                    {{y, lay}, {y, lay, DType::u8}},
                    {{"kernel_y", kernel_y},
                     {"kernel_x", kernel_x},
                     {"stride_y", 1},
                     {"stride_x", 1},
                     {"padding_y", padding},
                     {"padding_x", 0}}};
    const Instance instance(what, DType::f32);
    try {
      by == "cpu" ? instance.run(*backend) : instance.run_plain();
    } catch (const Error& error) {
      return error.what();
    }
    return "taken";
  };
  for (const std::string by : {"cpu", "plain"}) {
    for (const Lay lay : {Lay::channels_last, Lay::contiguous}) {
      EXPECT_EQ(message(16, 8, 8, by, lay), "taken");
      EXPECT_EQ(message(43, 3, 0, by, lay), "max_pool2d: kernel: expected at most 128 elements, found 43 x 3");
      EXPECT_EQ(message(4, 4, 3, by, lay), "max_pool2d: padding: expected at most half the kernel of 4 x 4, found 3 x 0");
    }
  }
}

TEST(CpuBackend, SamplesAreTakenFromTheOutput) {
  const auto backend = make_cpu_backend();
  HostTensor x({100}, DType::f32, Lay::contiguous), y({100}, DType::f32, Lay::contiguous);
  for (int64_t i = 0; i < 100; ++i) x.set(i, static_cast<double>(i));
  OutputRecord record;
  record.wanted = StatisticsLevel::values;
  record.samples_wanted = 4;
  OutputRecord* records[] = {&record};
  const TensorView inputs[] = {x.view()}, outputs[] = {y.view()};
  const Attributes attributes;
  run(*backend, {"neg", inputs, outputs, &attributes, records});
  ASSERT_EQ(record.samples, 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(record.sample_elements[static_cast<size_t>(i)], 25 * i);
    EXPECT_EQ(record.sample_values[static_cast<size_t>(i)], -25.0 * i);
  }
}

}  // namespace
}  // namespace ulpscope::testing_support
