// Matrix products of tensor cores against their scalar dot product, element by element, on every SIMD target.
#include "ulpscope/emulation/tensor_core_product.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <thread>

#include "tests/emulation/tensor_core_cases.h"
#include "tests/support/simd_targets.h"
#include "tests/support/usage_error.h"

namespace ulpscope {
namespace {

// Encodings as they lie in memory, row-major or column-major.
class Matrix {
 public:
  Matrix(int bytes, int64_t rows, int64_t columns, bool is_transposed = false)
      : bytes_(bytes), rows_(rows), columns_(columns), is_transposed_(is_transposed), data_(rows * columns * bytes) {}

  void set(int64_t row, int64_t column, uint32_t encoding) {
    std::memcpy(data_.data() + index(row, column) * bytes_, &encoding, bytes_);
  }
  uint32_t get(int64_t row, int64_t column) const {
    uint32_t encoding = 0;
    std::memcpy(&encoding, data_.data() + index(row, column) * bytes_, bytes_);
    return encoding;
  }
  EncodedMatrix view() const { return {data_.data(), is_transposed_ ? 1 : columns_, is_transposed_ ? rows_ : 1}; }
  void* data() { return data_.data(); }
  bool operator==(const Matrix& other) const { return data_ == other.data_; }

 private:
  int64_t index(int64_t row, int64_t column) const { return is_transposed_ ? column * rows_ + row : row * columns_ + column; }

  int bytes_;
  int64_t rows_, columns_;
  bool is_transposed_;
  std::vector<uint8_t> data_;
};

int bytes_of(const FloatFormat& format) { return format.storage_bits() <= 8 ? 1 : format.storage_bits() <= 16 ? 2 : 4; }

struct Operands {
  Matrix a, b, c, expected;
  Matrix a_scales{1, 0, 0}, b_scales{1, 0, 0};
  MatrixScales scales() const {
    return a_scales == Matrix(1, 0, 0) ? MatrixScales{} : MatrixScales{a_scales.view(), b_scales.view()};
  }
};

// Rows and columns of different kinds of numbers, and what dot() makes of each pair.
Operands operands(const TensorCore& core, RandomCases& random, int64_t m, int64_t n, int64_t k, bool is_transposed) {
  const int output = bytes_of(*core.model->output), each = elements_of_scale(core.model->scales);
  const int64_t scales = each == 0 ? 0 : (k + each - 1) / each;
  Operands result{
      {bytes_of(*core.a), m, k, is_transposed}, {bytes_of(*core.b), k, n, !is_transposed}, {output, m, n}, {output, m, n}};
  result.a_scales = {1, m, scales};
  result.b_scales = {1, scales, n, is_transposed};
  std::vector<RandomCase> rows, columns;
  for (int64_t i = 0; i < m; ++i) rows.push_back(random.next(core, k));
  for (int64_t j = 0; j < n; ++j) columns.push_back(random.next(core, k));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t l = 0; l < k; ++l) result.a.set(i, l, rows[i].a[l]);
    for (int64_t l = 0; l < scales; ++l) result.a_scales.set(i, l, rows[i].a_scales[l]);
    for (int64_t j = 0; j < n; ++j) {
      const uint32_t c = (i + j) % 2 == 0 ? rows[i].c : columns[j].c;
      result.c.set(i, j, c);
      result.expected.set(i, j, dot(core, rows[i].a, columns[j].b, c, {rows[i].a_scales, columns[j].b_scales}));
    }
  }
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t l = 0; l < k; ++l) result.b.set(l, j, columns[j].b[l]);
    for (int64_t l = 0; l < scales; ++l) result.b_scales.set(l, j, columns[j].b_scales[l]);
  }
  return result;
}

TEST(TensorCoreProduct, EveryRowHasTheBitsOfDotOnEveryTarget) {
  for (const twin::Row& row : twin::rows()) {
    for (const twin::Format* a_format : row.inputs) {
      const twin::Format& b_format = row.inputs[0]->exponent_bits == 4 ? *row.inputs[0] : *a_format;
      const TensorCore core = core_of(row, *a_format, b_format);
      RandomCases random(core.a->storage_bits() + core.model->products);
      int shape = 0;
      for (const auto& [m, n, k] : {std::array<int64_t, 3>{3, 18, 1}, {1, 1, 70}, {17, 5, 33}, {4, 33, 64}, {2, 16, 150}}) {
        const Operands given = operands(core, random, m, n, k, shape++ % 2 == 0);
        on_every_target([&](const std::string& target) {
          Matrix d(bytes_of(*core.model->output), m, n);
          multiply(core, given.a.view(), given.b.view(), given.c.view(), d.data(), m, n, k, given.scales());
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j)
              ASSERT_EQ(d.get(i, j), given.expected.get(i, j))
                  << row.gpu << ' ' << row.family << ' ' << row.scales << ' ' << a_format->name << ' ' << target << ' ' << i << ' '
                  << j << " k " << k;
          }
        });
      }
    }
  }
}

// Sums next to nothing, cancellation, overflow in the middle: many columns of each kind.
TEST(TensorCoreProduct, ManyColumnsHaveTheBitsOfDot) {
  struct Row {
    const char *gpu, *input, *output;
    InstructionFamily family = InstructionFamily::mma;
    BlockScales scales = BlockScales::none;
  };
  for (const Row& row :
       {Row{"h100", "bf16", "fp32"}, Row{"a100", "fp16", "fp16"}, Row{"rtx4090", "e5m2", "fp32"}, Row{"v100", "fp16", "fp32"},
        Row{"h200", "e4m3", "fp16"}, Row{"rtx5090", "e4m3", "fp32", InstructionFamily::mma, BlockScales::mx},
        Row{"b200", "e2m1", "fp32", InstructionFamily::tcgen05, BlockScales::mxf4},
        Row{"b200", "e2m1", "fp32", InstructionFamily::tcgen05, BlockScales::nvf4}}) {
    const FloatFormat &input = parse_format(row.input), &output = parse_format(row.output);
    const TensorCore core = find_tensor_core(row.gpu, input, input, output, row.family, row.scales);
    for (const int64_t k : {48, 200}) {
      RandomCases random(99);
      const Operands given = operands(core, random, 60, 200, k, false);
      on_every_target([&](const std::string& target) {
        Matrix d(bytes_of(*core.model->output), 60, 200);
        multiply(core, given.a.view(), given.b.view(), given.c.view(), d.data(), 60, 200, k, given.scales());
        EXPECT_TRUE(d == given.expected) << row.gpu << ' ' << row.input << ' ' << name_of(row.scales) << ' ' << k << ' ' << target;
      });
    }
  }
}

TEST(TensorCoreProduct, EveryPowerOfTwoStaysBesideZeros) {
  for (const char* gpu : {"v100", "a100", "h100"}) {
    const TensorCore core = find_tensor_core(gpu, binary16, binary16, binary32);
    const int64_t k = core.model->products, n = 2 * 277;
    const std::vector<uint16_t> a(k, 0), b(k * n, 0x3C00);
    std::vector<uint32_t> c;
    for (int exponent = -149; exponent <= 127; ++exponent) {
      c.push_back(exponent < -126 ? 1u << (exponent + 149) : static_cast<uint32_t>(exponent + 127) << 23);
      c.push_back(c.back() | 0x80000000);
    }
    on_every_target([&](const std::string& target) {
      std::vector<uint32_t> d(n);
      multiply(core, {a.data(), k}, {b.data(), n}, {c.data(), n}, d.data(), 1, n, k);
      EXPECT_EQ(d, c) << gpu << ' ' << target;
    });
  }
}

TEST(TensorCoreProduct, ZerosArePositive) {
  const TensorCore core = find_tensor_core("a100", binary16, binary16, binary32);
  const std::vector<uint16_t> a{0x8000, 0, 0, 0, 0, 0, 0, 0};
  std::vector<uint16_t> b(8 * 3, 0x8000);  // 0 * -0, but for -0 times these:
  b[0] = 0x3C00;
  b[1] = 0xBC00;
  b[2] = 0x3C00;
  const std::vector<uint32_t> c{0x80000000, 0x80000000, 0}, expected(3, 0);
  on_every_target([&](const std::string& target) {
    std::vector<uint32_t> d(3);
    multiply(core, {a.data(), 8}, {b.data(), 3}, {c.data(), 3}, d.data(), 1, 3, 8);
    EXPECT_EQ(d, expected) << target;
  });
}

// A group's products may be -0, or their sum negative with a scale of zero.
TEST(TensorCoreProduct, GroupsThatAreZeroArePositive) {
  const TensorCore core = find_tensor_core("rtx5090", e2m1, e2m1, binary32, InstructionFamily::mma, BlockScales::nvf4);
  constexpr int kTerms = 64, kColumns = 4;
  std::vector<uint8_t> a(kTerms, 0), b(kTerms * kColumns, 0x8), a_scales(kTerms / 16, 0x38),
      b_scales(a_scales.size() * kColumns, 0x38);
  a[0] = 0x2;  // 1, by -0, 0, -1 with a scale of zero, and -1
  b[1] = 0x0;
  b[2] = b[3] = 0xA;
  b_scales[2] = 0;
  const std::vector<uint32_t> c(kColumns, 0x80000000), expected{0, 0, 0, 0xBF800000};
  on_every_target([&](const std::string& target) {
    std::vector<uint32_t> d(kColumns);
    multiply(core, {a.data(), kTerms}, {b.data(), kColumns}, {c.data(), kColumns}, d.data(), 1, kColumns, kTerms,
             {{a_scales.data(), 4}, {b_scales.data(), kColumns}});
    EXPECT_EQ(d, expected) << target;
  });
  std::vector<uint32_t> row(a.begin(), a.end()), column;
  std::vector<uint8_t> column_scales;
  for (int i = 0; i < kTerms; ++i) column.push_back(b[i * kColumns + 2]);
  for (int i = 0; i < kTerms / 16; ++i) column_scales.push_back(b_scales[i * kColumns + 2]);
  EXPECT_EQ(dot(core, row, column, c[2], {a_scales, column_scales}), expected[2]);
}

// 16384 + 8 is the middle between two FP16 numbers; its 32nd bit, 2^-17 more, rounds it up.
TEST(TensorCoreProduct, TheLastBitOfALongSumCounts) {
  const TensorCore core = find_tensor_core("rtx5090", e4m3, e4m3, binary16);
  std::vector<uint8_t> a(20, 0x5E), b(20, 0x5E);  // 28 * 28
  for (const auto& [left, right] : {std::pair<uint8_t, uint8_t>{0x5C, 0x58}, {0x5A, 0x58}, {0x40, 0x48}, {0x01, 0x02}}) {
    a.push_back(left);  // 24 * 16, 20 * 16, 2 * 4, 2^-9 * 2^-8
    b.push_back(right);
  }
  on_every_target([&](const std::string& target) {
    uint16_t d = 0;
    multiply(core, {a.data(), 24}, {b.data(), 1}, {}, &d, 1, 1, 24);
    EXPECT_EQ(d, 0x7401) << target;
    multiply(core, {a.data(), 23}, {b.data(), 1}, {}, &d, 1, 1, 23);
    EXPECT_EQ(d, 0x7400) << target;
  });
}

TEST(TensorCoreProduct, ThreadsShareRows) {
  const ParallelFor on_two_threads = [](int64_t n, const std::function<void(int64_t)>& body) {
    const auto half = [&](int64_t first) {
      for (int64_t i = first; i < n; i += 2) body(i);
    };
    std::thread other(half, 1);
    half(0);
    other.join();
  };
  for (const TensorCore& core : {find_tensor_core("h100", binary16, binary16, binary32),
                                 find_tensor_core("b200", e2m1, e2m1, binary32, InstructionFamily::tcgen05, BlockScales::nvf4)}) {
    RandomCases random(5);
    Operands given = operands(core, random, 37, 70, 40, false);
    const TensorCoreProduct product(core, given.b.view(), 40, 70, given.scales().b, on_two_threads);
    Matrix& d = given.c;  // in place
    std::thread other([&] { product.compute(given.a.view(), d.view(), d.data(), 0, 19, given.scales().a); });
    product.compute(given.a.view(), d.view(), d.data(), 19, 37, given.scales().a);
    other.join();
    EXPECT_TRUE(d == given.expected) << name_of(core.model->scales);
  }
}

TEST(TensorCoreProduct, WithoutCItIsZero) {
  const TensorCore core = find_tensor_core("h100", binary16, binary16, binary16);
  const std::vector<uint16_t> a{0x3C00, 0x4000}, b{0x4200, 0x3800};  // 1 2 by 3 0.5
  uint16_t d = 0xFFFF;
  multiply(core, {a.data(), 2}, {b.data(), 1}, {}, &d, 1, 1, 2);
  EXPECT_EQ(d, 0x4400);
  multiply(core, {}, {}, {}, &d, 1, 1, 0);
  EXPECT_EQ(d, 0);
  multiply(core, {}, {}, {}, nullptr, 0, 0, 0);
}

void expect_product_error(const std::function<void()>& body, const char* message) {
  EXPECT_THAT(usage_error_of(body), testing::HasSubstr(message));
}

TEST(TensorCoreProduct, RefusesWhatIsMissing) {
  const TensorCore plain = find_tensor_core("h100", binary16, binary16, binary32);
  const TensorCore scaled = find_tensor_core("rtx5090", e5m2, e5m2, binary32, InstructionFamily::mma, BlockScales::mx);
  const std::vector<uint8_t> bytes(64);
  const EncodedMatrix some{bytes.data(), 2};
  uint32_t d = 0;
  expect_product_error([&] { multiply(plain, some, some, {}, &d, -1, 1, 1); }, "m is -1, expected at least 0");
  expect_product_error([&] { multiply(plain, some, some, {}, &d, 1, 1, -2); }, "k is -2");
  expect_product_error([&] { multiply(plain, {}, some, {}, &d, 1, 1, 1); }, "a is a null pointer");
  expect_product_error([&] { multiply(plain, some, {}, {}, &d, 1, 1, 1); }, "b is a null pointer");
  expect_product_error([&] { multiply(plain, some, some, {}, nullptr, 1, 1, 1); }, "d is a null pointer");
  expect_product_error([&] { multiply(scaled, some, some, {}, &d, 1, 1, 1); }, "the scales of b is a null pointer");
  expect_product_error([&] { multiply(scaled, some, some, {}, &d, 1, 1, 1, {{}, some}); }, "the scales of a is a null pointer");
  expect_product_error(
      [&] {
        multiply(plain, some, some, {}, &d, 1, 1, 1, {some, {}});
      },
      "a has scales, and the instruction has none");
}

}  // namespace
}  // namespace ulpscope
