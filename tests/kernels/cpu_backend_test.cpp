// What the CPU backend promises beside values: counts of roundings, memory, instruction sets, captures, errors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "cpu_support.h"
#include "ulpscope/base/error.h"
#include "ulpscope/kernels/reference/plain.h"

namespace ulpscope::testing_support {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
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
    const Result result = instance.run(*backend, StatisticsLevel::full);
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
  for (const StatisticsLevel level : {StatisticsLevel::health, StatisticsLevel::full}) {
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
  record.wanted = StatisticsLevel::full;
  record.samples_wanted = 4;
  OutputRecord* records[] = {&record};
  const TensorView inputs[] = {x.view()}, outputs[] = {y.view()};
  const Attributes attributes;
  backend->run({"neg", inputs, outputs, &attributes, records});
  ASSERT_EQ(record.samples, 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(record.sample_elements[static_cast<size_t>(i)], 25 * i);
    EXPECT_EQ(record.sample_values[static_cast<size_t>(i)], -25.0 * i);
  }
}

// Runs a call and captures. Outputs that are in place of an input overwrite it.
ElementCapture capture(Backend& backend, const Case& what, const std::vector<HostTensor>& inputs, DType dtype, int slot = 0,
                       const Arithmetic* arithmetic = nullptr) {
  std::vector<TensorView> in, out;
  std::vector<HostTensor> outputs;
  for (const HostTensor& tensor : inputs) in.push_back(tensor.view());
  for (const OutputSpec& spec : what.outputs) outputs.emplace_back(spec.shape, spec.dtype.value_or(dtype), spec.lay);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int input = what.outputs[i].in_place_of;
    out.push_back(input >= 0 ? in[static_cast<size_t>(input)] : outputs[i].view());
    if (what.outputs[i].record_only) out.back().data = nullptr;
  }
  Attributes attributes;
  for (const auto& item : what.attributes) attributes.set(item.name, item.value);
  OpCall call{what.op, in, out, &attributes, {}};
  call.arithmetic = arithmetic;
  backend.run(call);
  return backend.capture_nonfinite(call, slot);
}

TEST(CpuCapture, ElementwiseOperandsOfTheFirstNonfiniteElement) {
  const auto backend = make_cpu_backend();
  const Case what{"div", {{{2, 3}}, {{2, 3}}}, {{{2, 3}}}};
  Instance instance(what, DType::f32);
  instance.inputs()[1].set(4, 0);
  const ElementCapture found = capture(*backend, what, instance.inputs(), DType::f32);
  EXPECT_EQ(found.element, 4);
  EXPECT_TRUE(std::isinf(found.value));
  ASSERT_EQ(found.operands.size(), 2u);
  EXPECT_EQ(found.operands[0].value, instance.inputs()[0].get(4));
  EXPECT_EQ(found.operands[1].element, 4);
  EXPECT_EQ(found.operands[1].value, 0);
}

TEST(CpuCapture, NothingWhereAllIsFinite) {
  const auto backend = make_cpu_backend();
  const Case what{"neg", {{{5}}}, {{{5}}}};
  Instance instance(what, DType::f32);
  EXPECT_EQ(capture(*backend, what, instance.inputs(), DType::f32).element, -1);
}

// Row 1 of a holds 1e38 throughout: the FP32 sum of the products with ones breaks at the fourth term.
TEST(CpuCapture, TheTermAtWhichASumBreaks) {
  const auto backend = make_cpu_backend();
  const int64_t k = 100;
  const Case what{"matmul", {{{2, k}}, {{k, 3}}}, {{{2, 3}}}};
  Instance instance(what, DType::f32);
  for (int64_t i = 0; i < k; ++i) instance.inputs()[0].set(k + i, 1e38);
  for (int64_t i = 0; i < 3 * k; ++i) instance.inputs()[1].set(i, 1);
  const ElementCapture found = capture(*backend, what, instance.inputs(), DType::f32);
  EXPECT_EQ(found.element, 3);
  EXPECT_EQ(found.terms, k);
  EXPECT_EQ(found.broke_at, 3);
  EXPECT_EQ(found.partial_sum, static_cast<double>(1e38f + 1e38f + 1e38f));
  ASSERT_EQ(found.operands.size(), 128u);
  EXPECT_EQ(found.operands[6].input, 0);
  EXPECT_EQ(found.operands[6].element, k + 3);
  EXPECT_EQ(found.operands[7].input, 1);
  EXPECT_EQ(found.operands[7].element, 3 * 3);
}

// 40 products of 3000: the 22nd takes an FP16 sum beyond 65520, an FP32 or FP64 sum holds all of them.
TEST(CpuCapture, ASumBreaksInWhatTheProductsAccumulateIn) {
  const auto backend = make_cpu_backend();
  const int64_t k = 40;
  const Case what{"matmul", {{{1, k}}, {{k, 1}}}, {{{1, 1}}}};
  Instance instance(what, DType::f16);
  for (int64_t i = 0; i < k; ++i) {
    instance.inputs()[0].set(i, 3000);
    instance.inputs()[1].set(i, 1);
  }
  const auto captured = [&](std::string_view name) {
    const Arithmetic how{.accumulation = find_accumulation(name)};
    return capture(*backend, what, instance.inputs(), DType::f16, 0, &how);
  };
  const ElementCapture in_fp16 = captured("fp16");
  EXPECT_EQ(in_fp16.value, kInfinity);
  EXPECT_EQ(in_fp16.broke_at, 21);
  EXPECT_NEAR(in_fp16.partial_sum, 63000, 21 * 16) << "each addition rounds by half an ulp, 16 at most";
  for (const char* name : {"fp32", "fp64", "exact", "a100"}) {
    const ElementCapture wide = captured(name);
    EXPECT_EQ(wide.value, kInfinity) << name << ": only the output's type does not hold it";
    EXPECT_EQ(wide.broke_at, -1) << name;
    EXPECT_EQ(wide.partial_sum, 120000) << name;
  }
}

TEST(CpuCapture, ARoundingThatOverflowsBreaksNoSum) {
  const auto backend = make_cpu_backend();
  const Case what{"sum", {{{4}}}, {{{}}}, {{"dims", 1}, {"keep", 0}}};
  Instance instance(what, DType::f16);
  for (int64_t i = 0; i < 4; ++i) instance.inputs()[0].set(i, 60000);
  const ElementCapture found = capture(*backend, what, instance.inputs(), DType::f16);
  EXPECT_EQ(found.value, kInfinity);
  EXPECT_EQ(found.broke_at, -1);
  EXPECT_EQ(found.partial_sum, 240000) << "which FP16 does not hold";
  EXPECT_EQ(found.terms, 4);
  EXPECT_EQ(found.operands.size(), 4u);
}

// The target's logit of row 2 is -Inf: the row's log_sum_exp is finite, its term is not.
TEST(CpuCapture, CrossEntropyNamesTheRowWhoseTermIsNotFinite) {
  const auto backend = make_cpu_backend();
  const Case what{"cross_entropy", {{{4, 3}}, {{4}, Lay::contiguous, DType::i64, 3}}, {{{}}, {{4}}}};
  Instance instance(what, DType::f32);
  for (int64_t row = 0; row < 4; ++row) instance.inputs()[1].set(row, 1);
  instance.inputs()[0].set(2 * 3 + 1, -kInfinity);
  const ElementCapture found = capture(*backend, what, instance.inputs(), DType::f32);
  EXPECT_EQ(found.value, kInfinity);
  ASSERT_EQ(found.operands.size(), 3u);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(found.operands[static_cast<size_t>(i)].element, 2 * 3 + i);
    EXPECT_EQ(found.operands[static_cast<size_t>(i)].value, instance.inputs()[0].get(2 * 3 + i));
  }
}

// Every term is finite; the sum of rows 0 and 1 is not.
TEST(CpuCapture, CrossEntropyNamesTheRowAtWhichTheSumOverflows) {
  const auto backend = make_cpu_backend();
  const Case what{"cross_entropy", {{{3, 2}}, {{3}, Lay::contiguous, DType::i64, 2}}, {{{}}, {{3}}}};
  Instance instance(what, DType::f32);
  for (int64_t row = 0; row < 3; ++row) {
    instance.inputs()[0].set(2 * row, row < 2 ? 3e38 : 0);
    instance.inputs()[0].set(2 * row + 1, 0);
    instance.inputs()[1].set(row, 1);
  }
  const ElementCapture found = capture(*backend, what, instance.inputs(), DType::f32);
  EXPECT_EQ(found.value, kInfinity);
  ASSERT_EQ(found.operands.size(), 2u);
  EXPECT_EQ(found.operands[0].element, 2);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases = elementwise_cases({37});
  for (const Case& what : other_cases()) cases.push_back(what);
  return cases;
}

// A value that an in-place op has overwritten must not be reported as what went in.
TEST(CpuCapture, OverwrittenOperandsAreMarked) {
  const auto backend = make_cpu_backend();
  int overwriting = 0;
  for (const Case& what : all_cases()) {
    if (what.op == "source") continue;  // ASourceOverwritesNothing
    const auto is_overwritten = [&](int input) {
      return std::any_of(what.outputs.begin(), what.outputs.end(),
                         [&](const OutputSpec& output) { return output.in_place_of == input; });
    };
    if (std::none_of(what.outputs.begin(), what.outputs.end(), [](const OutputSpec& out) { return out.in_place_of >= 0; }))
      continue;
    for (size_t bad = 0; bad < what.inputs.size(); ++bad) {
      Instance instance(what, DType::f32);
      if (instance.inputs()[bad].view().size() == 0) continue;
      instance.inputs()[bad].set(0, kNan);
      std::vector<HostTensor> before;
      for (const HostTensor& input : instance.inputs()) before.push_back(input.copy());
      const ElementCapture found = capture(*backend, what, instance.inputs(), DType::f32);
      bool named = false;
      for (const auto& operand : found.operands) {
        EXPECT_EQ(operand.overwritten, is_overwritten(operand.input)) << what.name();
        const auto& tensors = operand.overwritten ? instance.inputs() : before;
        const double expected = tensors[static_cast<size_t>(operand.input)].get(operand.element);
        EXPECT_TRUE(operand.value == expected || (std::isnan(operand.value) && std::isnan(expected))) << what.name();
        named = named || operand.input == static_cast<int>(bad);
      }
      if (found.element < 0) continue;
      EXPECT_TRUE(named) << what.name() << " input " << bad;
      ++overwriting;
    }
  }
  EXPECT_GT(overwriting, 30);
}

// Of the gradients of weights [4, 1, 2, 1] over 7 x 2 pixels with a pixel of padding on the left and the right, oneDNN multiplies
// the padding by g as well: so the NaN in g's first column is in gradients of which no term holds it.
TEST(CpuCapture, AFactorThatOnlyPaddingMeetsIsNamed) {
  const auto backend = make_cpu_backend({.threads = 1});
  const Case what{"conv2d_backward_weight",
                  {{{1, 4, 6, 4}, Lay::channels_last}, {{1, 1, 7, 2}, Lay::channels_last}},
                  {{{4, 1, 2, 1}}},
                  {{"stride_y", 1}, {"stride_x", 1}, {"padding_y", 0}, {"padding_x", 1}}};
  Instance instance(what, DType::f32);
  instance.inputs()[0].set(0, kNan);
  const ElementCapture found = capture(*backend, what, instance.inputs(), DType::f32);
  if (found.element < 0) GTEST_SKIP() << "this oneDNN does not multiply padding";
  EXPECT_EQ(found.broke_at, -1);
  ASSERT_FALSE(found.operands.empty());
  EXPECT_EQ(found.operands.back().input, 0);
  EXPECT_EQ(found.operands.back().element, 0);
  EXPECT_TRUE(std::isnan(found.operands.back().value));
}

// Initial weights are what they are: a source gives its input back.
TEST(CpuCapture, ASourceOverwritesNothing) {
  const auto backend = make_cpu_backend();
  OutputSpec itself{{5}};
  itself.in_place_of = 0;
  const Case what{"source", {{{5}}}, {itself}};
  Instance instance(what, DType::f32);
  instance.inputs()[0].set(3, kInfinity);
  const ElementCapture found = capture(*backend, what, instance.inputs(), DType::f32);
  ASSERT_EQ(found.operands.size(), 1u);
  EXPECT_EQ(found.operands[0].element, 3);
  EXPECT_EQ(found.operands[0].value, kInfinity);
  EXPECT_FALSE(found.operands[0].overwritten);
}

// Every op explains itself: an output that is NaN names at least one operand that is not finite.
TEST(CpuCapture, EveryOpNamesTheNonfiniteOperand) {
  const auto backend = make_cpu_backend();
  std::set<std::string> explained;
  for (const Case& what : all_cases()) {
    for (size_t input = 0; input < what.inputs.size(); ++input) {
      if (!is_float(what.inputs[input].dtype.value_or(DType::f32)) || what.op == "correct_count") continue;
      Instance instance(what, DType::f32);
      HostTensor& tensor = instance.inputs()[input];
      if (tensor.view().size() == 0) continue;
      tensor.set(std::min<int64_t>(1, tensor.view().size() - 1), kNan);
      const ElementCapture found = capture(*backend, what, instance.inputs(), DType::f32);
      if (found.element < 0) continue;  // strides can pass an element by, and so can a maximum
      bool named = false;
      for (const auto& operand : found.operands)
        named = named || (operand.input == static_cast<int>(input) && !std::isfinite(operand.value));
      EXPECT_TRUE(named) << what.name() << " input " << input;
      explained.insert(what.op);
    }
  }
  for (const std::string_view op : backend->ops()) {
    if (op == "fill" || op == "correct_count") continue;  // no inputs; no output that could be NaN
    EXPECT_TRUE(explained.contains(std::string(op))) << op << " has no row in tests/kernels/cpu_support.cpp whose output is NaN";
  }
}

}  // namespace
}  // namespace ulpscope::testing_support
