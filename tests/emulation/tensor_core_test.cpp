// Tensor-core dot products against results of real GPUs, and against the rules in big integers (tensor_core_twin.h).
#include "ulpscope/emulation/tensor_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>

#include "tests/emulation/tensor_core_cases.h"
#include "tests/emulation/tensor_core_twin.h"
#include "tests/support/hardware_results.h"
#include "tests/support/probed_sum.h"
#include "tests/support/project_files.h"
#include "tests/support/usage_error.h"

namespace ulpscope {
namespace {

struct HardwareFile {
  const char *gpu, *input, *output;
  int k;
};
constexpr HardwareFile kHardware[] = {
    {"a100", "bf16", "fp32", 8},        {"a100", "fp16", "fp16", 8},        {"a100", "fp16", "fp32", 8},
    {"a100", "tf32", "fp32", 4},        {"h100", "bf16", "fp32", 16},       {"h100", "fp16", "fp16", 16},
    {"h100", "fp16", "fp32", 16},       {"rtx1000ada", "e4m3", "fp16", 32}, {"rtx1000ada", "e4m3", "fp32", 32},
    {"rtx1000ada", "e5m2", "fp16", 32}, {"rtx1000ada", "e5m2", "fp32", 32}, {"v100", "fp16", "fp16", 4},
    {"v100", "fp16", "fp32", 4},
};

TensorCore hardware_core(const HardwareFile& file) {
  const FloatFormat& input = parse_format(file.input);
  return find_tensor_core(file.gpu, input, input, parse_format(file.output));
}

std::string name_of_file(const testing::TestParamInfo<HardwareFile>& file) {
  return std::string(file.param.gpu) + '_' + file.param.input + '_' + file.param.output;
}

class TensorCoreHardware : public testing::TestWithParam<HardwareFile> {};
INSTANTIATE_TEST_SUITE_P(Files, TensorCoreHardware, testing::ValuesIn(kHardware), name_of_file);

// The encoding in `format` of a value that is given as FP32 and that the format has.
uint32_t exactly(const FloatFormat& format, uint32_t bits) {
  if (&format == &tensor_float32) return bits;
  const auto encoding = static_cast<uint32_t>(convert(binary32, format, bits));
  EXPECT_EQ(convert(format, binary32, encoding), bits);
  return encoding;
}

TEST_P(TensorCoreHardware, ResultsAreReproduced) {
  const HardwareFile& file = GetParam();
  const HardwareResults results =
      hardware_results(std::string(file.gpu) + '_' + file.input + '_' + file.output + "_k" + std::to_string(file.k));
  const TensorCore core = hardware_core(file);
  const gzFile input = gzopen(results.path.c_str(), "rb");
  ASSERT_NE(input, nullptr) << results.path;
  std::string line(1 << 14, '\0');
  int rows = 0;
  while (gzgets(input, line.data(), static_cast<int>(line.size())) != nullptr) {
    if (line[0] == '#') continue;
    std::vector<uint32_t> fields;
    for (const char *begin = line.data(), *end = begin + std::strlen(begin); begin < end;) {
      begin = std::from_chars(begin, end, fields.emplace_back(), 16).ptr + 1;
    }
    ASSERT_EQ(fields.size(), 2u * file.k + 2);
    std::vector<uint32_t> a, b;
    for (int i = 0; i < file.k; ++i) {
      a.push_back(exactly(*core.a, fields[i]));
      b.push_back(exactly(*core.b, fields[file.k + i]));
    }
    const FloatFormat& output = *core.model->output;
    const auto c = static_cast<uint32_t>(convert(binary32, output, fields[2 * file.k]));
    ASSERT_EQ(convert(output, binary32, dot(core, a, b, c)), fields.back()) << "row " << rows;
    ++rows;
  }
  gzclose(input);
  EXPECT_EQ(rows, results.rows) << results.path;
}

// Sums that an H200 was probed with, one instruction at a time, those of mma and of wgmma (tests/data/tensorcore/README.md).
std::vector<ProbedSumLine> probed_sums() {
  std::vector<ProbedSumLine> sums;
  const std::string path = project_file("tests/data/tensorcore/h200_probe.csv.gz");
  const gzFile input = gzopen(path.c_str(), "rb");
  if (input == nullptr) throw std::runtime_error("cannot read " + path);
  std::string line(1 << 14, '\0');
  for (bool is_first = true; gzgets(input, line.data(), static_cast<int>(line.size())) != nullptr; is_first = false) {
    if (!is_first) sums.push_back(parse_probed_sum("h200", std::string(line.data(), std::strcspn(line.data(), "\n"))));
  }
  gzclose(input);
  return sums;
}

TEST(TensorCore, SumsThatAGpuWasProbedWithAreReproduced) {
  const std::vector<ProbedSumLine> sums = probed_sums();
  EXPECT_EQ(sums.size(), 5666u);
  for (const ProbedSumLine& sum : sums) {
    ASSERT_EQ(dot(sum.core, sum.a, sum.b, sum.c), sum.result)
        << name_of(sum.core.model->family) << ' ' << sum.core.a->name << ' ' << sum.core.b->name << ' '
        << sum.core.model->output->name << ": " << sum.shows << ": " << testing::PrintToString(sum.a) << " times "
        << testing::PrintToString(sum.b);
  }
}

TEST(TensorCore, RowsSayWhetherThereAreResultsOfHardware) {
  std::set<const TensorCoreModel*> with_data;
  for (const HardwareFile& file : kHardware) with_data.insert(hardware_core(file).model);
  for (const ProbedSumLine& sum : probed_sums()) with_data.insert(sum.core.model);
  for (const TensorCoreModel& model : tensor_core_models())
    EXPECT_EQ(model.has_hardware_data, with_data.count(&model) == 1) << model.generation << ' ' << model.inputs[0]->name;
}

TEST(TensorCore, EveryRowIsWhatTheRulesSay) {
  std::set<const TensorCoreModel*> seen;
  for (const twin::Row& row : twin::rows()) {
    for (const twin::Format* a_format : row.inputs) {
      for (const twin::Format* b_format : row.inputs) {
        // 16-bit formats are not mixed.
        if (a_format != b_format && row.inputs[0] == &twin::kFp16) continue;
        const TensorCore core = core_of(row, *a_format, *b_format);
        seen.insert(core.model);
        RandomCases random(seen.size() * 64 + core.a->storage_bits() * 8 + core.b->storage_bits());
        for (int i = 0; i < 120; ++i) {
          const RandomCase given = random.next(core, 1 + i % 70);
          ASSERT_EQ(dot(core, given.a, given.b, given.c, {given.a_scales, given.b_scales}),
                    twin::dot(row, *a_format, *b_format, given.a, given.b, given.c, given.a_scales, given.b_scales))
              << row.gpu << ' ' << row.family << ' ' << row.scales << ' ' << a_format->name << ' ' << b_format->name << " case "
              << i;
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), tensor_core_models().size());
}

constexpr uint32_t kOne = 0x3F800000, kNegativeZero = 0x80000000;

TEST(TensorCore, GpusAreFoundByWhatDriversCallThem) {
  // Names as nvidia-smi prints them.
  const std::pair<const char*, const char*> names[] = {{"NVIDIA H100 80GB HBM3", "h100"},
                                                       {"NVIDIA H100 NVL", "h100"},
                                                       {"NVIDIA A100-SXM4-80GB", "a100"},
                                                       {"Tesla V100-SXM2-16GB", "v100"},
                                                       {"NVIDIA GeForce RTX 4090", "rtx4090"},
                                                       {"NVIDIA RTX 1000 Ada Generation Laptop GPU", "rtx1000ada"},
                                                       {"NVIDIA GH200 480GB", "gh200"},
                                                       {"NVIDIA L4", "l4"},
                                                       {"NVIDIA RTX A2000", ""},
                                                       {"NVIDIA L40", ""},
                                                       {"", ""}};
  for (const auto& [device, gpu] : names) EXPECT_EQ(tensor_core_gpu_of(device), gpu) << device;
}

TEST(TensorCore, CutsOffWithoutGuardBits) {
  // 2^24 + 1 - 2^24: what the generations make of it is the number of bits that they keep.
  const auto of = [](const char* gpu, uint16_t small) {
    const TensorCore core = find_tensor_core(gpu, binary16, binary16, binary32);
    return dot(core, std::vector<uint32_t>{0x6C00, small, 0xEC00}, std::vector<uint32_t>{0x6C00, 0x3C00, 0x6C00}, 0);
  };
  EXPECT_EQ(of("v100", 0x3C00), 0u);           // 1 is 2^-24 of the largest
  EXPECT_EQ(of("a100", 0x3C00), kOne);         // 24 bits below it
  EXPECT_EQ(of("a100", 0x3BFF), 0u);           // 1 - 2^-11 is cut off to nothing
  EXPECT_EQ(of("h100", 0x3BFF), 0x3F000000u);  // to 0.5
}

TEST(TensorCore, WhatIsCutOffDependsOnTheExponentOfZero) {
  // 2^-25 is half of the smallest FP16 number; 2^-48 above it rounds up, where it is kept.
  const std::vector<uint32_t> a{0x0C00, 0x0001}, b{0x0800, 0x0001};
  const auto of = [&](const char* gpu, InstructionFamily family) {
    return dot(find_tensor_core(gpu, binary16, binary16, binary16, family), a, b, 0);
  };
  EXPECT_EQ(of("h100", InstructionFamily::mma), 0u);
  EXPECT_EQ(of("h100", InstructionFamily::wgmma), 0u);
  EXPECT_EQ(of("b200", InstructionFamily::tcgen05), 1u);
  // 2^-149 less 2^-160, towards zero.
  const std::vector<uint32_t> x{0x0080, 0x8080}, y{0x3400, 0x2E80};
  EXPECT_EQ(dot(find_tensor_core("h100", bfloat16, bfloat16, binary32), x, y, 0), 1u);
}

// What is left of sums that are next to nothing: at the row's exponent of zero the cut is at 2^last.
TEST(TensorCore, TheExponentOfZeroIsExact) {
  struct Row {
    const char* gpu;
    int last;
  };
  // Half of FP16's smallest number, and 2^-24 times 2^(exponent + 24).
  for (const Row& row : {Row{"v100", -43}, Row{"t4", -45}, Row{"a100", -45}, Row{"l40s", -45}, Row{"h100", -46}, Row{"b200", -47},
                         Row{"rtx5090", -47}}) {
    const TensorCore core = find_tensor_core(row.gpu, binary16, binary16, binary16);
    const auto of = [&](int exponent) {
      return dot(core, std::vector<uint32_t>{0x0C00, 0x0001}, std::vector<uint32_t>{0x0800, 1u << (exponent + 48)}, 0);
    };
    EXPECT_EQ(of(row.last), 1u) << row.gpu;
    EXPECT_EQ(of(row.last - 1), 0u) << row.gpu;
  }
  // FP32's smallest number less 2^exponent.
  for (const Row& row : {Row{"a100", -156}, Row{"rtx4090", -156}, Row{"h100", -158}, Row{"b200", -158}, Row{"rtx5090", -158}}) {
    const TensorCore core = find_tensor_core(row.gpu, bfloat16, bfloat16, binary32);
    const auto of = [&](int exponent) {
      const auto second = static_cast<uint32_t>(exponent + 126 + 127) << 7;
      return dot(core, std::vector<uint32_t>{0x0080, 0x8080}, std::vector<uint32_t>{0x3400, second}, 0);
    };
    EXPECT_EQ(of(row.last), 0u) << row.gpu;
    EXPECT_EQ(of(row.last - 1), 1u) << row.gpu;
  }
  const TensorCore mx = find_tensor_core("rtx5090", e5m2, e5m2, binary32, InstructionFamily::mma, BlockScales::mx);
  const std::vector<uint8_t> least{0}, rest{105};  // 2^-127, 2^-22
  const auto of_mx = [&](uint32_t second) {
    return dot(mx, std::vector<uint32_t>{0x3C, second}, std::vector<uint32_t>{0x3C, 0x3C}, 0, {least, rest});
  };
  EXPECT_EQ(of_mx(0x98), 0u);  // -2^-9
  EXPECT_EQ(of_mx(0x94), 1u);
  const TensorCore groups = find_tensor_core("rtx5090", e2m1, e2m1, binary32, InstructionFamily::mma, BlockScales::mxf4);
  std::vector<uint32_t> a(64), b(64, 2);
  a[0] = 2;    // 1
  a[40] = 10;  // -1
  const auto of_groups = [&](uint8_t second) {
    return dot(groups, a, b, 0, {std::vector<uint8_t>{0, 0}, std::vector<uint8_t>{105, second}});
  };
  EXPECT_EQ(of_groups(127 - 174 + 127), 0u);
  EXPECT_EQ(of_groups(127 - 175 + 127), 1u);
}

TEST(TensorCore, Fp8FactorsOfFp16InstructionsAreNormal) {
  // 2^-9 is subnormal in E4M3 and not in FP16: its product with 2^15 has the exponent 6, not 9, so 2^-17 is kept beside it.
  const std::vector<uint32_t> a{0x01, 0x20}, b{0x78, 0x04};
  EXPECT_EQ(dot(find_tensor_core("h100", e4m3, e5m2, binary32), a, b, 0), 0x42800001u);
  EXPECT_EQ(dot(find_tensor_core("rtx5090", e4m3, e5m2, binary32), a, b, 0), 0x42800000u);
}

// Also where every term is -0, and where a negative sum is too small for the result.
TEST(TensorCore, ZerosArePositive) {
  const TensorCore core = find_tensor_core("v100", binary16, binary16, binary32);
  const std::vector<uint32_t> plus{0, 0, 0, 0}, minus(4, 0x8000);
  EXPECT_EQ(dot(core, plus, minus, kNegativeZero), 0u);
  EXPECT_EQ(dot(core, plus, minus, 0), 0u);
  const TensorCore fp16 = find_tensor_core("h100", binary16, binary16, binary16);
  EXPECT_EQ(dot(fp16, std::vector<uint32_t>{0x8001}, std::vector<uint32_t>{0x3800}, 0), 0u);  // -2^-24 / 2
  EXPECT_EQ(dot(fp16, std::vector<uint32_t>{0x8001}, std::vector<uint32_t>{0x3801}, 0), 0x8001u);
  const TensorCore bf16 = find_tensor_core("a100", bfloat16, bfloat16, binary32);
  // Also where negative terms are cut off to nothing.
  EXPECT_EQ(dot(bf16, std::vector<uint32_t>(8, 1), std::vector<uint32_t>(8, 0x8001), kNegativeZero), 0u);
}

TEST(TensorCore, OverflowIsInfAndNanHasOneEncoding) {
  const TensorCore wide = find_tensor_core("h100", bfloat16, bfloat16, binary32);
  const uint32_t large = 0x7F00, inf = 0x7F80, nan = 0x7F81;
  const auto of = [&](uint32_t a, uint32_t b, uint32_t c) {
    return dot(wide, std::vector<uint32_t>{a}, std::vector<uint32_t>{b}, c);
  };
  EXPECT_EQ(of(large, large, 0), 0x7F800000u);
  EXPECT_EQ(of(large, large | 0x8000, 0), 0xFF800000u);
  EXPECT_EQ(of(inf, 0, 0), 0x7FFFFFFFu);
  EXPECT_EQ(of(inf, large, 0xFF800000), 0x7FFFFFFFu);
  EXPECT_EQ(of(inf, large | 0x8000, 0), 0xFF800000u);
  EXPECT_EQ(of(nan | 0x8000, 0, kOne), 0x7FFFFFFFu);
  EXPECT_EQ(of(0, 0, 0xFFC12345), 0x7FFFFFFFu);
  const TensorCore narrow = find_tensor_core("h100", binary16, binary16, binary16);
  EXPECT_EQ(dot(narrow, std::vector<uint32_t>{0x7E00}, std::vector<uint32_t>{0x3C00}, 0), 0x7FFFu);
  EXPECT_EQ(dot(narrow, std::vector<uint32_t>{0x7BFF}, std::vector<uint32_t>{0x3C00}, 0x4C00), 0x7C00u);  // 65504 + 16
}

TEST(TensorCore, ExplanationsAddUp) {
  for (const twin::Row& row : twin::rows()) {
    const TensorCore core = core_of(row, *row.inputs[0], *row.inputs[0]);
    RandomCases random(17);
    for (int i = 0; i < 20; ++i) {
      const RandomCase given = random.next(core, 50);
      const ScaleFactors scales{given.a_scales, given.b_scales};
      const std::vector<TensorCoreSum> sums = explain_dot(core, given.a, given.b, given.c, scales);
      ASSERT_EQ(sums.back().result, dot(core, given.a, given.b, given.c, scales));
      const size_t blocks = (50 + core.model->products_of_instruction() - 1) / core.model->products_of_instruction();
      ASSERT_EQ(sums.size(), blocks * (core.model->passes + (core.model->adds_c_last ? 1 : 0)));
      for (const TensorCoreSum& sum : sums) {
        ASSERT_EQ(sum.terms.back().element, TensorCoreTerm::kAccumulator);
        int64_t kept = 0;
        for (const TensorCoreTerm& term : sum.terms) kept += term.kept;
        ASSERT_EQ(kept, sum.sum);
      }
    }
  }
}

void expect_error(const std::function<void()>& body, const char* message) {
  EXPECT_THAT(usage_error_of(body), testing::HasSubstr(message));
}

TEST(TensorCore, WhatAGpuDoesNotHaveIsSaid) {
  expect_error([] { find_tensor_core("h10", binary16, binary16, binary32); }, "GPU 'h10': expected v100, t4, ");
  expect_error([] { find_tensor_core("b20", binary16, binary16, binary32); }, "did you mean 'b200'?");
  expect_error([] { find_tensor_core("v100", bfloat16, bfloat16, binary32); }, "it has fp16 -> fp32; fp16 -> fp16");
  expect_error([] { find_tensor_core("h100", e4m3, binary16, binary32); }, "h100 has no e4m3 by fp16 -> fp32 with instruction mma");
  expect_error([] { find_tensor_core("h100", binary16, bfloat16, binary32); }, "h100 has no fp16 by bf16 -> fp32");
  expect_error([] { find_tensor_core("a100", binary16, binary16, binary32, InstructionFamily::wgmma); }, "with instruction wgmma");
  expect_error([] { parse_instruction_family("wgma"); }, "expected mma, wgmma or tcgen05; did you mean 'wgmma'?");
  expect_error([] { parse_block_scales("mxfp8"); }, "expected none, mx, mxfp4 or nvfp4");
  const TensorCore plain = find_tensor_core("h100", binary16, binary16, binary32);
  const TensorCore scaled = find_tensor_core("b200", e2m1, e2m1, binary32, InstructionFamily::tcgen05, BlockScales::nvf4);
  const std::vector<uint32_t> three(3), four(4), seventeen(17);
  const std::vector<uint8_t> one(1), two(2);
  expect_error([&] { dot(plain, three, four, 0); }, "a has 3 elements, b has 4");
  expect_error([&] { dot(plain, three, three, 0, {one, one}); }, "expected 0 scales of a for 3 elements, got 1");
  expect_error([&] { dot(scaled, seventeen, seventeen, 0, {two, one}); }, "expected 2 scales of b for 17 elements, got 1");
  EXPECT_EQ(dot(scaled, seventeen, seventeen, kOne, {two, two}), kOne);
  EXPECT_EQ(dot(plain, {}, {}, kOne), kOne);
}

// Every GPU has its libraries' instructions, and for formats of more than 8 bits they add as mma does.
TEST(TensorCore, InstructionsOfLibrariesDifferFromMmaInFp8Only) {
  for (const TensorCoreGpu& gpu : tensor_core_gpus()) {
    for (const TensorCoreModel& mma : tensor_core_models()) {
      if (mma.generation != gpu.generation || mma.family != InstructionFamily::mma || mma.scales != BlockScales::none) continue;
      const FloatFormat& format = *mma.inputs[0];
      const TensorCoreModel& model = *find_tensor_core(gpu.name, format, format, *mma.output, gpu.of_libraries).model;
      if (format.storage_bits() <= 8 || mma.output != &binary32) continue;
      EXPECT_EQ(model.products, mma.products) << gpu.name;
      EXPECT_EQ(model.fraction_bits, mma.fraction_bits) << gpu.name;
      EXPECT_EQ(model.zero_exponent, mma.zero_exponent) << gpu.name;
      EXPECT_EQ(model.conversion, mma.conversion) << gpu.name;
      EXPECT_EQ(model.rounding, mma.rounding) << gpu.name;
    }
  }
  EXPECT_EQ(find_tensor_core("h100", e4m3, e4m3, binary32, InstructionFamily::wgmma).model->conversion, &e8m13);
}

}  // namespace
}  // namespace ulpscope
