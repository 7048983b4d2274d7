// The errors that ops make by themselves, as the shadow measures them: beside products formed anew in FP64 and rounded by
// themselves.
#include "ulpscope/core/observe/shadow.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>

#include "ulpscope/base/error.h"
#include "ulpscope/core/engine/context.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/trace/measure_names.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {
namespace {

using Place = std::tuple<uint64_t, uint64_t, uint32_t>;  // step, the op's id, slot

// Keeps the operands and results of matrix products, transposed ones and with a bias as they come.
class Products : public Observer {
 public:
  struct Product {
    std::string op;
    std::vector<double> a, b, bias, stored;
    std::vector<int64_t> shape_a, shape_b;
    DType type;
  };
  void after(const OpEvent& event) override {
    if (event.phase == Phase::evaluation || (event.op.name != "linear" && event.op.name != "matmul")) return;
    Product product{std::string(event.op.name),
                    to_host(event.inputs[0]),
                    to_host(event.inputs[1]),
                    {},
                    to_host(event.outputs[0]),
                    {event.inputs[0].shape().begin(), event.inputs[0].shape().end()},
                    {event.inputs[1].shape().begin(), event.inputs[1].shape().end()},
                    event.outputs[0].dtype()};
    if (event.inputs.size() > 2) product.bias = to_host(event.inputs[2]);
    of[{context().step, event.id, 0}] = std::move(product);
  }
  std::map<Place, Product> of;
};

// In FP64: linear is x [M, K] by weight [N, K] and a bias, matmul a [M, K] by b [K, N].
struct Exact {
  std::vector<double> sums, magnitudes;  // and the sums of the magnitudes of terms
  int64_t terms;
};
Exact exact(const Products::Product& product) {
  const bool is_linear = product.op == "linear";
  const int64_t k = product.shape_a.back(), n = is_linear ? product.shape_b[0] : product.shape_b.back();
  const int64_t m = static_cast<int64_t>(product.a.size()) / k;
  Exact result{{}, {}, k + 1};
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = product.bias.empty() ? 0 : product.bias[static_cast<size_t>(j)], magnitude = std::abs(sum);
      for (int64_t t = 0; t < k; ++t) {
        const double term =
            product.a[static_cast<size_t>(i * k + t)] * product.b[static_cast<size_t>(is_linear ? j * k + t : t * n + j)];
        sum += term;
        magnitude += std::abs(term);
      }
      result.sums.push_back(sum);
      result.magnitudes.push_back(magnitude);
    }
  }
  return result;
}

class Shadow : public testing::Test {
 protected:
  Shadow() : trace_(testing::TempDir() + "ulpscope_shadow_" + std::to_string(getpid()) + ".h5") {}
  ~Shadow() override { std::filesystem::remove(trace_); }

  static Experiment experiment(const char* accumulate, const std::vector<Override>& more = {}) {
    std::vector<Override> overrides{"training.steps=3", "training.batch_size=48",
                                    std::string("arithmetic.accumulate=") + accumulate};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return parse_experiment(R"(
precision = "fp16"
[model]
layers = [
  { type = "linear", name = "first", out_features = 40 },
  { type = "layer_norm", name = "norm" },
  { type = "dropout", name = "dropout", p = 0.25 },
  { type = "gelu", name = "activation" },
  { type = "linear", name = "head", out_features = 8 },
]
[data]
kind = "random_classification"
shape = [300]
classes = 8
train_size = 96
test_size = 16
[training]
evaluation = "never"
)",
                            "shadow.toml", overrides);
  }
  std::map<std::string, std::map<Place, double>> measures() const {
    const Snapshot trace(trace_);
    std::map<std::string, std::map<Place, double>> found;
    trace.visit_measures({}, [&](std::span<const MeasureRow> rows) {
      for (const MeasureRow& row : rows) {
        const TensorInfo& tensor = trace.tensors()[row.tensor];
        found[row.name][{row.step, trace.ops()[tensor.op].id, tensor.slot}] = row.value;
      }
      return true;
    });
    return found;
  }
  TrainerOptions options() const {
    TrainerOptions options;
    options.cpu.threads = 2;
    options.trace_path = trace_;
    options.overwrite = true;
    return options;
  }

  std::string trace_;
};

TEST_F(Shadow, MeasuresTheErrorsOfProductsAndOfOneRounding) {
  for (const auto& [accumulate, type] : {std::pair("fp16", "fp64"), {"fp32", "fp64"}, {"fp16", "fp32"}}) {
    Products products;
    {
      Trainer trainer(experiment(accumulate, {"shadow.every=1", std::string("shadow.as=") + type}), options());
      trainer.context().observers.push_back(&products);
      while (!trainer.finished()) trainer.step();
    }
    const auto found = measures();
    size_t compared = 0;
    double largest_over_floor = 0;
    for (const auto& [place, product] : products.of) {
      if (product.type != DType::f16) continue;
      const auto [wide, magnitudes, terms] = exact(product);
      double signal = 0, injected = 0, floor = 0, magnitude = 0;
      for (size_t i = 0; i < wide.size(); ++i) {
        signal += wide[i] * wide[i];
        injected += std::pow(product.stored[i] - wide[i], 2);
        floor += std::pow(round_to_format(binary16, wide[i]) - wide[i], 2);
        magnitude += magnitudes[i] * magnitudes[i];
      }
      if (signal == 0) continue;
      ASSERT_TRUE(found.at(std::string(kInjectedError)).contains(place)) << product.op;
      // The wide sums err by gamma_k of their terms' magnitudes, in any order, and so do ours in FP64.
      const double unit = std::string(type) == "fp32" ? 0x1p-24 : 0x1p-52;
      const double bound = 2 * static_cast<double>(terms) * unit * std::sqrt(magnitude / signal);
      EXPECT_NEAR(found.at(std::string(kInjectedError)).at(place), std::sqrt(injected / signal), bound) << product.op;
      EXPECT_NEAR(found.at(std::string(kRoundingFloor)).at(place), std::sqrt(floor / signal), bound + 0x1p-11 * bound)
          << product.op;
      if (floor > 0) largest_over_floor = std::max(largest_over_floor, std::sqrt(injected / floor));
      ++compared;
    }
    EXPECT_GE(compared, 12u) << accumulate;
    // FP32 sums of 300 products round once to FP16, nearly: 300 2^-24 beside 2^-11.
    if (std::string(accumulate) == "fp32") {
      EXPECT_LT(largest_over_floor, 1.1);
    } else {
      EXPECT_GT(largest_over_floor, 3);
    }
  }
}

// FP32 results of sums in BF16 have an error, and no rounding of their own.
TEST_F(Shadow, MeasuresSumsInSixteenBitsOfFp32Runs) {
  Products products;
  {
    Trainer trainer(experiment("bf16", {"shadow.every=1", "shadow.as=fp64", "precision=fp32"}), options());
    trainer.context().observers.push_back(&products);
    while (!trainer.finished()) trainer.step();
  }
  const auto found = measures();
  size_t compared = 0;
  for (const auto& [place, product] : products.of) {
    const auto [wide, magnitudes, terms] = exact(product);
    double signal = 0, injected = 0;
    for (size_t i = 0; i < wide.size(); ++i) {
      signal += wide[i] * wide[i];
      injected += std::pow(product.stored[i] - wide[i], 2);
    }
    if (signal == 0) continue;
    const double error = found.at(std::string(kInjectedError)).at(place);
    EXPECT_NEAR(error, std::sqrt(injected / signal), 1e-12) << product.op;
    EXPECT_LE(found.at(std::string(kRoundingFloor)).at(place), 0x1p-24) << product.op;
    EXPECT_GT(error, 0x1p-10) << product.op;
    ++compared;
  }
  EXPECT_GE(compared, 12u);
  EXPECT_EQ(found.at(std::string(kInjectedError)).size(), compared) << "other ops round to FP32 alone";
}

// Dropout draws the same mask, norms and functions round once.
TEST_F(Shadow, OpsThatRoundOnceAreAtTheirFloor) {
  train(experiment("fp32", {"shadow.every=1", "shadow.as=fp64", "precision=pure_bf16"}), options());
  const auto found = measures();
  const Snapshot trace(trace_);
  std::set<std::string> ops;
  for (const auto& [place, injected] : found.at(std::string(kInjectedError))) {
    const double floor = found.at(std::string(kRoundingFloor)).at(place);
    const auto op =
        std::find_if(trace.ops().begin(), trace.ops().end(), [&](const OpInfo& each) { return each.id == std::get<1>(place); });
    ops.insert(op->name);
    EXPECT_LE(injected, 1.1 * floor + 1e-7) << op->name;
  }
  for (const char* op : {"linear", "matmul", "layer_norm", "dropout", "gelu", "gelu_backward"}) EXPECT_TRUE(ops.contains(op)) << op;
}

TEST_F(Shadow, ChangesNoBitAndLooksWhereItIsAskedTo) {
  const auto trained = [&](const std::vector<Override>& more) {
    return train(experiment("fp16", more), options()).weights_fingerprint;
  };
  const uint64_t without = trained({"shadow.enabled=false"});
  EXPECT_FALSE(measures().contains(std::string(kInjectedError)));
  EXPECT_EQ(trained({"shadow.every=1"}), without);
  const auto steps_and_ops = [&] {
    const Snapshot trace(trace_);
    const auto measured = measures();
    std::pair<std::set<uint64_t>, std::set<std::string>> found;
    for (const auto& [place, value] : measured.at(std::string(kInjectedError))) {
      found.first.insert(std::get<0>(place));
      for (const OpInfo& op : trace.ops())
        if (op.id == std::get<1>(place)) found.second.insert(op.name);
    }
    return found;
  };
  EXPECT_EQ(steps_and_ops().first, (std::set<uint64_t>{0, 1, 2}));
  EXPECT_EQ(trained({"shadow.every=2", "shadow.ops=mat*"}), without);
  EXPECT_EQ(steps_and_ops(), std::pair(std::set<uint64_t>{0, 2}, std::set<std::string>{"matmul"}));
  // Sums in FP16 are looked at unless that is switched off: in eight steps of the run, the first and the last among them.
  EXPECT_EQ(train(experiment("fp16", {"training.steps=200"}), options()).steps, 200u);
  EXPECT_EQ(steps_and_ops().first, (std::set<uint64_t>{0, 1, 4, 9, 20, 43, 93, 199}));
  train(experiment("fp32"), options());
  EXPECT_FALSE(measures().contains(std::string(kInjectedError)));
}

}  // namespace
}  // namespace ulpscope
