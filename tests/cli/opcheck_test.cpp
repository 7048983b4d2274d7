// `ulpscope opcheck` as its users run it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "child_process.h"
#include "tests/support/python.h"
#include "tests/support/temporary_folder.h"

namespace ulpscope::cli_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

// A search of the whole table is a matter of minutes; every op is called whatever the budget.
TEST(OpCheckCommand, EveryOpKeepsItsBound) {
  const Result result = run_program({"opcheck", "--budget", "20s", "--limit", "0", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.out;
  const Json report = Json::parse(result.out);
  EXPECT_EQ(report["broken"], 0);
  std::set<std::string> ops;
  for (const Json& row : report["tables"][0]["rows"]) ops.insert(row["values"]["op"].get<std::string>());
  EXPECT_GE(ops.size(), 100u);
  for (const char* op : {"linear", "conv2d_backward_weight", "batch_norm", "adam_update", "cross_entropy", "lstm_cell_backward"})
    EXPECT_TRUE(ops.contains(op)) << op;
}

TEST(OpCheckCommand, ExplainsWhatABoundIsMadeOf) {
  const Result result =
      run_program({"opcheck", "--op", "matmul", "--format", "fp16", "--accumulate", "fp32,bf16,h100", "--explain"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("(2^-24) S, S = sum |terms| = "));
  EXPECT_THAT(result.out, HasSubstr("half an ulp of bf16 at |partial sum| + the error so far"));
  EXPECT_THAT(result.out, HasSubstr(" blocks of 16 products: 17 * 2^("));
}

// NumPy multiplies the saved inputs in FP64, whose roundings are 2^-29 of FP32's.
TEST(OpCheckCommand, SavedArraysAreThoseOfTheTable) {
  const TemporaryFolder folder;
  const Result result =
      run_program({"opcheck", "--op", "matmul", "--format", "fp32", "--accumulate", "fp32", "--save", folder.path()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  write_file(folder.file("check.py"), R"(
import numpy as np, sys
a, b, output, exact = (np.load(f"{sys.argv[1]}/matmul.f32.fp32.0.{name}.npy") for name in ("input0", "input1", "output", "exact"))
assert a.dtype == b.dtype == output.dtype == np.float32 and exact.dtype == np.float64, (a.dtype, exact.dtype)
true, size = np.matmul(a.astype(float), b.astype(float)), np.matmul(abs(a).astype(float), abs(b).astype(float))
assert (abs(exact - true) <= 1e-12 * size).all(), abs(exact - true).max()
assert (abs(output - true) <= a.shape[-1] * 2.0**-23 * size).all()
)");
  const std::string python = find_python("numpy");
  if (python.empty()) GTEST_SKIP() << "no python3 has numpy";
  EXPECT_EQ(std::system(("'" + python + "' '" + folder.file("check.py") + "' '" + folder.path() + "'").c_str()), 0);
  // Files that are there already stay.
  EXPECT_EQ(run_program({"opcheck", "--op", "relu", "--format", "fp32", "--save", folder.path()}).exit_code, 2);
}

TEST(OpCheckCommand, RefusesWhatItDoesNotKnow) {
  const TemporaryFolder folder;
  write_file(folder.file("file"), "x");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"--op", "softmaks"}, "--op: no op is named 'softmaks'; did you mean 'softmax'?"},
      {{"--format", "e4m3"}, "tensors of e4m3 are not checked; expected fp32, fp16, bf16 or fp64"},
      {{"--budget", "2x"}, "--budget takes a time such as 90s, 2m or 1h, not '2x'"},
      {{"--budget", "-1s"}, "not '-1s'"},
      {{"--save", folder.file("file")}, "exists and is no folder: --save names another place"},
      {{"-o", folder.file("file")}, "exists; --force replaces it"},
      {{"run.h5"}, "run.h5"}};
  for (const auto& [options, message] : cases) {
    std::vector<std::string> command{"opcheck"};
    command.insert(command.end(), options.begin(), options.end());
    const Result result = run_program(command);
    EXPECT_EQ(result.exit_code, 2) << message;
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_THAT(result.out, IsEmpty());
  }
}

}  // namespace
}  // namespace ulpscope::cli_test
