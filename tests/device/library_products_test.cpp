// Products of a training step, by a device's library and by its matrix units.
#include "ulpscope/studies/library_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/counting_backend.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/usage_error.h"
#include "ulpscope/analyzers/verbs/info.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/core/engine/context.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/emulation/tensor_core_product.h"
#include "ulpscope/kernels/device/emulated_backend.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::unique_ptr<Backend> emulated(std::string_view gpu = "h100") { return make_emulated_device_backend(0, gpu); }

// How often a step calls each product, as its trace on the CPU tells.
std::map<std::string, uint64_t> calls_recorded(const Experiment& experiment) {
  constexpr std::array kNames{"matmul", "linear", "conv2d", "conv2d_backward_input", "conv2d_backward_weight"};
  const TemporaryFolder folder;
  TrainerOptions options;
  options.trace_path = folder.file("step.h5");
  Trainer trainer(experiment, options);
  trainer.step();
  trainer.finish();
  const Snapshot trace(options.trace_path);
  std::map<std::string, uint64_t> calls;
  trace.visit_rows({}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      const TensorInfo& tensor = trace.tensors()[row.tensor];
      const std::string& op = trace.ops()[tensor.op].name;
      if (tensor.slot == 0 && std::find(kNames.begin(), kNames.end(), op) != kNames.end()) ++calls[op];
    }
    return true;
  });
  return calls;
}

TEST(LibraryProducts, AreThoseThatATraceHas) {
  using Overrides = std::vector<Override>;
  for (const auto& [preset, overrides] : {std::pair<const char*, Overrides>{"mlp", {"precision=fp16"}},
                                          {"fashion_cnn", {"precision=bf16", "training.batch_size=2"}},
                                          {"resnet20", {"training.batch_size=2"}},
                                          {"gpt_mini", {"precision=fp16", "training.batch_size=1", "training.accumulation=2"}}}) {
    Overrides all = overrides;
    all.emplace_back("training.steps=1");
    all.emplace_back("training.evaluation=never");
    const Experiment experiment = named_experiment(preset, all);
    std::map<std::string, uint64_t> calls;
    const std::vector<StepProduct> products = products_of_step(experiment, *emulated());
    for (const StepProduct& product : products) calls[std::string(product.op)] += product.calls;
    EXPECT_EQ(calls, calls_recorded(experiment)) << preset;
  }
}

// Of three layers the second and third have equal shapes: their products are one, called twice.
TEST(LibraryProducts, ThatAreAlikeAreOne) {
  Experiment experiment = *find_preset("mlp");
  int64_t features = 128;
  for (LayerSpec& layer : experiment.model.layers) {
    if (layer.type->name != "linear") continue;
    layer.set("in_features", std::exchange(features, 10));
    layer.set("out_features", int64_t{10});
  }
  std::vector<uint64_t> calls;
  for (const StepProduct& product : products_of_step(experiment, *emulated()))
    if (product.op == "linear") calls.push_back(product.calls);
  EXPECT_THAT(calls, ElementsAre(1, 2));
}

StepProduct matmul(DType factors, DType output, int64_t rows, int64_t terms, int64_t columns) {
  const auto view = [](DType dtype, int64_t lines, int64_t line) {
    TensorView made;
    made.dtype = dtype;
    made.rank = 2;
    made.shape = {lines, line};
    return contiguous(made);
  };
  // Places that products are alike by; nothing is behind these addresses.
  StepProduct product{"matmul", {view(factors, rows, terms), view(factors, terms, columns)}, {view(output, rows, columns)}, {}, {},
                      1};
  product.inputs[0].data = std::bit_cast<void*>(uintptr_t{4096 + 6});
  product.outputs[0].data = std::bit_cast<void*>(uintptr_t{8192});
  return product;
}

TEST(LibraryProducts, OfOneTermHaveTheBitsOfMatrixUnits) {
  const auto device = emulated();
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const ComparedProduct compared = compare_product(*device, "h100", matmul(dtype, dtype, 19, 1, 23), 3);
    ASSERT_TRUE(compared.sums && compared.stored);
    EXPECT_EQ(compared.sums->elements, 19u * 23u);
    EXPECT_EQ(compared.sums->differ, 0u);
    EXPECT_EQ(compared.stored->differ, 0u);
    EXPECT_FALSE(compared.differs());
    EXPECT_THAT(compared.algorithms, ElementsAre(HasSubstr("order of the terms")));
  }
}

// The same sums by the table itself, and by a chain in FP32.
TEST(LibraryProducts, ThatDifferAreCounted) {
  constexpr int64_t kRows = 21, kTerms = 70, kColumns = 37;
  constexpr uint64_t kSeed = 11;
  std::array<std::vector<uint16_t>, 2> factors{std::vector<uint16_t>(kRows * kTerms), std::vector<uint16_t>(kTerms * kColumns)};
  for (size_t i = 0; i < 2; ++i)
    for (size_t k = 0; k < factors[i].size(); ++k) factors[i][k] = round_to_f16(2 * Philox(kSeed, i).uniform(k) - 1);
  for (const char* gpu : {"h100", "a100", "v100"}) {
    std::vector<float> predicted(kRows * kColumns);
    multiply(*library_tensor_core(gpu, binary16, binary16), {factors[0].data(), kTerms}, {factors[1].data(), kColumns}, {},
             predicted.data(), kRows, kColumns, kTerms);
    uint64_t differ = 0, stored = 0;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t column = 0; column < kColumns; ++column) {
        float sum = 0;
        for (int64_t term = 0; term < kTerms; ++term)
          sum += f16_to_float(factors[0][row * kTerms + term]) * f16_to_float(factors[1][term * kColumns + column]);
        const float other = predicted[row * kColumns + column];
        differ += std::bit_cast<uint32_t>(sum) != std::bit_cast<uint32_t>(other);
        stored += round_to_f16(sum) != round_to_f16(other);
      }
    }
    ASSERT_GT(differ, 0u);
    const auto device = emulated(gpu);
    const ComparedProduct compared = compare_product(*device, gpu, matmul(DType::f16, DType::f16, kRows, kTerms, kColumns), kSeed);
    EXPECT_EQ(compared.sums->differ, differ) << gpu;
    EXPECT_EQ(compared.stored->differ, stored) << gpu;
    EXPECT_TRUE(compared.differs());
    EXPECT_EQ(std::vector({compared.batches, compared.rows, compared.columns, compared.terms}),
              std::vector<int64_t>({1, kRows, kColumns, kTerms}));
  }
}

// Notes where the tensors of each call lie, and how it adds.
class NotingDevice final : public CountingBackend {
 public:
  using CountingBackend::CountingBackend;
  void submit(const OpCall& call) override {
    const auto place = [](const TensorView& view) { return reinterpret_cast<uintptr_t>(view.data) % kPlaceBytes; };
    places.push_back({place(call.inputs[0]), place(call.inputs[1]), place(call.outputs[0])});
    accumulated.push_back(std::string(call.arithmetic->accumulation->name) + " " + std::string(info(call.outputs[0].dtype).name));
    CountingBackend::submit(call);
  }
  // Of the alignment that GPUs have.
  void* allocate(size_t bytes) override {
    auto* const memory = static_cast<std::byte*>(CountingBackend::allocate(bytes + kPlaceBytes));
    const uintptr_t skipped = -reinterpret_cast<uintptr_t>(memory) % kPlaceBytes;
    skipped_[memory + skipped] = skipped;
    return memory + skipped;
  }
  void release(void* memory, size_t bytes) override {
    CountingBackend::release(static_cast<std::byte*>(memory) - skipped_.extract(memory).mapped(), bytes + kPlaceBytes);
  }

  std::vector<std::array<uintptr_t, 3>> places;
  std::vector<std::string> accumulated;

 private:
  std::map<void*, uintptr_t> skipped_;
};

TEST(LibraryProducts, LieAsThoseOfTheStep) {
  const auto device = emulated();
  NotingDevice noting(*device);
  StepProduct product = matmul(DType::f16, DType::f16, 4, 8, 4);
  product.inputs[1].data = std::bit_cast<void*>(uintptr_t{4096 + 254});
  compare_product(noting, "h100", product, 1);
  EXPECT_THAT(noting.accumulated, ElementsAre("fp32 f16", "h100 f16", "fp32 f32", "h100 f32"));
  EXPECT_THAT(noting.places, Each(ElementsAre(6, 254, 0)));
  noting.accumulated.clear();
  compare_product(noting, "h100", matmul(DType::f16, DType::f32, 4, 8, 4), 1);
  EXPECT_THAT(noting.accumulated, ElementsAre("fp32 f32", "h100 f32"));
}

TEST(LibraryProducts, ThatMatrixUnitsTakeOtherwiseAreNotPredicted) {
  const auto device = emulated("v100");
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const ComparedProduct compared = compare_product(*device, "v100", matmul(dtype, dtype, 4, 8, 4), 1);
    EXPECT_FALSE(compared.sums || compared.stored || compared.differs());
    EXPECT_FALSE(compared.algorithms.empty());
  }
  const ComparedProduct as_tf32 = compare_product(*emulated(), "h100", matmul(DType::f32, DType::f32, 4, 8, 4), 1);
  EXPECT_FALSE(as_tf32.sums);
  const Experiment experiment = named_experiment("mlp", std::vector<Override>{"precision=fp8", "training.steps=1"});
  const auto fp8 = products_of_step(experiment, *emulated());
  ASSERT_FALSE(fp8.empty());
  EXPECT_EQ(fp8[0].op, "scaled_matmul");
  EXPECT_FALSE(compare_product(*emulated(), "h100", fp8[0], 1).sums);
}

TEST(LibraryProducts, OfAnotherDeviceAreRefused) {
  const auto refused = [](std::vector<Override> overrides) {
    return usage_error_of([&] { products_of_step(named_experiment("mlp", overrides), *emulated()); });
  };
  EXPECT_THAT(refused({"precision=fp64"}), HasSubstr("does not compute in FP64"));
  EXPECT_THAT(refused({"arithmetic.accumulate=a100"}), HasSubstr("expected fp32 or h100"));
  EXPECT_EQ(refused({"arithmetic.accumulate=h100"}), "no error");
}

BitDifference between(const std::vector<float>& a, const std::vector<float>& b, TensorView view = {}) {
  if (view.rank == 0) {
    view.rank = 1;
    view.shape[0] = static_cast<int64_t>(a.size());
    view.strides[0] = 1;
  }
  return difference_between(view, reinterpret_cast<const std::byte*>(a.data()), reinterpret_cast<const std::byte*>(b.data()));
}

TEST(LibraryProducts, DifferencesAreOfBitsAndInNumbersOfTheType) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const float most = std::numeric_limits<float>::max(), least = std::numeric_limits<float>::denorm_min();
  const auto told = [](const BitDifference& difference) {
    return std::array{difference.elements, difference.differ, difference.largest_ulps};
  };
  using Told = std::array<uint64_t, 3>;
  EXPECT_EQ(told(between({1, 2, 3}, {1, 2, 3})), (Told{3, 0, 0}));
  EXPECT_EQ(told(between({1, 2, 3}, {1, std::nextafter(2.0f, 3.0f), 3})), (Told{3, 1, 1}));
  EXPECT_EQ(told(between({2}, {std::nextafter(2.0f, 1.0f)})), (Told{1, 1, 1}));
  EXPECT_EQ(told(between({1, 4}, {2, 4})), (Told{2, 1, 1 << 23}));
  EXPECT_EQ(told(between({0.0f}, {-0.0f})), (Told{1, 1, 0}));
  EXPECT_EQ(told(between({least}, {-least})), (Told{1, 1, 2}));
  EXPECT_EQ(told(between({most}, {infinity})), (Told{1, 1, 1}));
  EXPECT_EQ(told(between({nan, nan, 1}, {-nan, 1, nan})), (Told{3, 2, 0}));
  EXPECT_EQ(told(between({}, {})), (Told{0, 0, 0}));
  // Columns of 2 of 3: what lies between them is none of the tensor.
  TensorView gaps;
  gaps.rank = 2;
  gaps.shape = {2, 2};
  gaps.strides = {3, 1};
  EXPECT_EQ(told(between({1, 2, 7, 3, 4}, {1, 2, 8, 3, 6}, gaps)), (Told{4, 1, 1 << 22}));
  // A change in the narrower type.
  TensorView narrow;
  narrow.dtype = DType::bf16;
  narrow.rank = 1;
  narrow.shape[0] = narrow.strides[0] = 1;
  const uint16_t one = round_to_bf16(1.0f), more = one + 3;
  EXPECT_EQ(told(difference_between(narrow, reinterpret_cast<const std::byte*>(&one), reinterpret_cast<const std::byte*>(&more))),
            (Told{1, 1, 3}));
}

TEST(LibraryProducts, ADeviceCountsWhatItsLibraryMultiplied) {
  const auto device = emulated();
  EXPECT_THAT(device->library_products(), IsEmpty());
  const auto compare = [&](int64_t terms) {
    return compare_product(*device, "h100", matmul(DType::f16, DType::f32, 4, terms, 8), 1);
  };
  compare(16);
  compare(32);
  compare(16);
  const auto products = device->library_products();
  ASSERT_EQ(products.size(), 2u);
  EXPECT_THAT(products[0].product, HasSubstr("m 4, n 8, k 16, a f16"));
  EXPECT_THAT(products[1].product, HasSubstr("m 4, n 8, k 32, a f16"));
  EXPECT_EQ(products[0].calls, 2u);
  EXPECT_EQ(products[1].calls, 1u);
  EXPECT_EQ(products[0].algorithm, products[1].algorithm);
  EXPECT_THAT(device->plan()->library_products(), IsEmpty());
  EXPECT_THAT(make_cpu_backend()->library_products(), IsEmpty());
}

// Those of the evaluation too, whose batches are others.
TEST(LibraryProducts, AreInTheTraceOfARun) {
  const TemporaryFolder folder;
  const Experiment experiment = named_experiment(
      "mlp", std::vector<Override>{"precision=fp16", "training.steps=2", "data.train_size=64", "data.test_size=48"});
  const auto run = [&](const char* name, std::function<std::unique_ptr<Backend>()> make_backend) {
    TrainerOptions options;
    options.trace_path = folder.file(name);
    options.make_backend = std::move(make_backend);
    Trainer trainer(experiment, options);
    while (!trainer.finished()) trainer.step();
    std::vector<ProductInfo> used;
    for (const LibraryProduct& product : trainer.context().backend->library_products())
      used.push_back({product.product, product.algorithm});
    trainer.finish();
    return std::pair(Snapshot(options.trace_path), used);
  };
  const auto [trace, used] = run("device.h5", [] { return emulated(); });
  EXPECT_GE(used.size(), 11u);
  EXPECT_EQ(trace.products(), used);
  const Report report = analyze_info(trace, {});
  EXPECT_EQ(find_fact<int64_t>(report, "library_products"), static_cast<int64_t>(used.size()));
  const auto table =
      std::find_if(report.tables.begin(), report.tables.end(), [](const Table& each) { return each.name == "products"; });
  ASSERT_NE(table, report.tables.end());
  EXPECT_EQ(std::get<std::string>(table->rows.at(0).cells.at(0)), used[0].product);
  const Snapshot of_cpu = run("cpu.h5", {}).first;
  EXPECT_THAT(of_cpu.products(), IsEmpty());
  EXPECT_EQ(find_fact<int64_t>(analyze_info(of_cpu, {}), "library_products"), std::nullopt);
}

TEST(LibraryProducts, AReportCountsThem) {
  const std::vector<StepProduct> products(3, matmul(DType::f16, DType::f16, 4, 8, 4));
  std::vector<ComparedProduct> compared(3);
  for (ComparedProduct& each : compared) each.algorithms = {"one way", "another"};
  compared[0].sums = compared[0].stored = BitDifference{16, 5, 2};
  compared[1].sums = compared[1].stored = BitDifference{16, 0, 0};
  const Report report = describe_products({"cuda:0", "a GPU", "h100"}, *find_preset("mlp"), products, compared, 2);
  for (const auto& [fact, count] :
       {std::pair{"calls", 3}, {"different_products", 3}, {"predicted", 2}, {"equal", 1}, {"differ", 1}})
    EXPECT_EQ(find_fact<int64_t>(report, fact), count) << fact;
  const Table& table = report.tables.at(0);
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows_left_out, 1u);
  EXPECT_EQ(std::get<std::string>(table.rows[0].cells[8]), "differs");
  EXPECT_EQ(std::get<std::string>(table.rows[1].cells[8]), "equal");
  EXPECT_EQ(std::get<std::string>(table.rows[0].cells.back()), "one way; another");
}

}  // namespace
}  // namespace ulpscope
