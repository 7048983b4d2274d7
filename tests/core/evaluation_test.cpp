// What the test split is measured by: its loss, and the accuracy of labels, over the targets that count.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/support/temporary_folder.h"
#include "ulpscope/core/nn/model.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {
namespace {

constexpr double kU = 0x1p-24;  // of FP32

class EvaluationTest : public ::testing::Test {
 protected:
  // Trains on one table of x and y for three epochs in batches of 2, and evaluates on another after each.
  TestResult evaluated(const std::string& train, const std::string& test, const std::string& layers,
                       const std::vector<Override>& overrides) {
    write_file(folder_.file("train.csv"), "x,y\n" + train);
    write_file(folder_.file("test.csv"), "x,y\n" + test);
    const std::string text = fmt::format(
        "[data]\nkind = \"csv\"\npath = \"{}\"\ntest_path = \"{}\"\n[model]\nlayers = [{}]\n"
        "[training]\nbatch_size = 2\nepochs = 3\nevaluation = \"epoch\"\n[recording]\nlevel = \"health\"\n",
        folder_.file("train.csv"), folder_.file("test.csv"), layers);
    TrainerOptions options;
    options.cpu.threads = 1;
    options.trace_path = folder_.file("trace.h5");
    options.overwrite = true;
    Trainer trainer(parse_experiment(text, "test", overrides), options);
    std::optional<TestResult> last;
    while (!trainer.finished()) {
      const StepResult step = trainer.step();
      if (step.test) last = step.test;
    }
    weights_.clear();
    for (const NamedTensor& parameter : trainer.model().parameters()) weights_.push_back(to_host(parameter.tensor));
    trainer.finish();
    return last.value();
  }
  std::map<std::string, std::vector<double>> metrics() const {
    std::map<std::string, std::vector<double>> values;
    const Snapshot reader(folder_.file("trace.h5"));
    for (const EventRow& event : reader.events())
      if (event.kind == EventKind::metric) values[event.text].push_back(event.value);
    return values;
  }

  TemporaryFolder folder_;
  std::vector<std::vector<double>> weights_;
};

// In FP64 from the weights that the run ended with. The last batch, of one row, counts as much as any row of the others.
TEST_F(EvaluationTest, ValuesHaveALossThatCountsEveryTargetOnce) {
  const std::vector<std::pair<double, double>> test{{1, 2}, {-2, 5}, {3, -7}};
  std::string rows;
  for (const auto& [x, y] : test) rows += fmt::format("{},{}\n", x, y);
  const TestResult result = evaluated("1,1\n2,3\n3,1\n", rows, "{ type = \"linear\", out_features = 1 }",
                                      {"data.target_kind=values", "loss.function=mse", "loss.factor=4"});
  ASSERT_EQ(weights_.size(), 2u);
  const double weight = weights_[0][0], bias = weights_[1][0];
  double loss = 0, bound = 0;
  for (const auto& [x, y] : test) {
    const double difference = weight * x + bias - y;
    // Three roundings of the difference; one each of the square, the sum over a batch, the division and the factor.
    const double error = 3 * kU * (std::abs(weight * x) + std::abs(bias) + std::abs(y));
    loss += 4 * difference * difference / 3;
    bound += 4 * (2 * std::abs(difference) * error + error * error + 4 * kU * difference * difference) / 3;
  }
  EXPECT_LE(std::abs(result.loss - loss), bound);
  EXPECT_GT(loss, 1);
  EXPECT_FALSE(result.accuracy);
  const auto recorded = metrics();
  EXPECT_EQ(recorded.size(), 1u);
  ASSERT_EQ(recorded.at("test_loss").size(), 3u);  // of each epoch
  EXPECT_EQ(recorded.at("test_loss").back(), result.loss);
}

// In batches of one, so that the sums are the same; -100 is the default, 1 one of the classes.
TEST_F(EvaluationTest, IgnoredTargetsCountAsIfTheyWereNotThere) {
  const auto measure = [&](const std::string& test, const std::string& function, int ignored) {
    return evaluated("1,0\n2,1\n3,2\n4,0\n", test, "{ type = \"linear\", out_features = 3 }",
                     {"data.classes=3", "training.evaluation_batch_size=1", "loss.function=" + function,
                      fmt::format("loss.ignore_index={}", ignored)});
  };
  for (const char* function : {"cross_entropy", "nll"}) {
    for (const int ignored : {-100, 1, 7}) {
      const std::string label = std::to_string(ignored);
      const TestResult whole = measure("1," + label + "\n2,0\n3,2\n4," + label + "\n5,0\n", function, ignored);
      const TestResult rest = measure("2,0\n3,2\n5,0\n", function, ignored);
      EXPECT_EQ(whole.loss, rest.loss) << function << ignored;
      EXPECT_EQ(whole.accuracy, rest.accuracy) << function << ignored;
      EXPECT_EQ(metrics().at("test_accuracy").size(), 3u);
    }
  }
  const TestResult nothing = measure("1,-100\n", "cross_entropy", -100);
  EXPECT_TRUE(std::isnan(nothing.loss));
  EXPECT_FALSE(nothing.accuracy);
}

// The model gives every row the same logits, and has learnt that class 2 is right.
TEST_F(EvaluationTest, AccuracyIsOfTheTargetsThatCount) {
  const TestResult result = evaluated("0,2\n0,2\n", "0,2\n0,1\n0,1\n0,2\n0,0\n", "{ type = \"linear\", out_features = 3 }",
                                      {"data.classes=3", "loss.ignore_index=1", "optimizer.learning_rate=1"});
  EXPECT_EQ(result.accuracy, 2.0 / 3);
}

}  // namespace
}  // namespace ulpscope
