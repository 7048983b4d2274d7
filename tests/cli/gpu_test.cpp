// `ulpscope gpu` as its users run it, on devices whose kernels run on the host.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "child_process.h"
#include "tests/support/probed_sum.h"
#include "tests/support/temporary_folder.h"

namespace ulpscope::cli_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Json = nlohmann::json;

Result gpu(std::vector<std::string> options) {
  options.insert(options.begin(), "gpu");
  return run_program(options);
}
Json report(std::vector<std::string> options) {
  const bool probes = std::find(options.begin(), options.end(), "--probe") != options.end();
  options.emplace_back("--json");
  const Result result = gpu(std::move(options));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, probes ? "sums through the matrix units\n" : "");
  return Json::parse(result.out);
}
std::vector<Json> rows(const Json& report, const std::string& name) {
  std::vector<Json> all;
  for (const Json& table : report["tables"])
    if (table["name"] == name)
      for (const Json& row : table["rows"]) all.push_back(row["values"]);
  return all;
}

TEST(GpuCommand, SaysWhatTheTableHasOfADevice) {
  const Json h100 = report({"--device", "emulated"});
  EXPECT_EQ(h100["device"], "emulated");
  EXPECT_EQ(h100["gpu"], "h100");
  EXPECT_EQ(h100["generation"], "hopper");
  const std::vector<Json> rows_of_h100 = rows(h100, "rows"), rows_of_v100 = rows(report({"--device", "emulated:v100"}), "rows");
  ASSERT_EQ(rows_of_h100.size(), 10u);  // five of mma, and as many of wgmma
  EXPECT_EQ(rows_of_h100[9]["instruction"], "wgmma");
  EXPECT_EQ(rows_of_h100[0]["instruction"], "mma");
  EXPECT_EQ(rows_of_h100[0]["factors"], "fp16, bf16");
  EXPECT_EQ(rows_of_h100[0]["products"], 16);
  EXPECT_EQ(rows_of_h100[0]["fraction_bits"], 25);
  EXPECT_EQ(rows_of_h100[0]["zero_exponent"], -133);
  EXPECT_EQ(rows_of_h100[0]["conversion"], "rz-fp32");
  ASSERT_EQ(rows_of_v100.size(), 2u);
  EXPECT_EQ(rows_of_v100[1]["conversion"], "rne-fp16");
}

TEST(GpuCommand, ProbesTellGpusApart) {
  // FP16 with either result, BF16 and TF32, and on Hopper FP8 in four pairs with either result, all of it by two instructions.
  for (const auto& [device, generation, instructions] : {std::tuple{"h100", "hopper", 24u}, {"a100", "ampere", 4u}}) {
    const Json probed = report({"--device", fmt::format("emulated:{}", device), "--probe", "--sums", "500"});
    EXPECT_EQ(probed["explained"], true) << device;
    const std::vector<Json> all = rows(probed, "instructions");
    ASSERT_EQ(all.size(), instructions);
    for (const Json& row : all) {
      EXPECT_EQ(row["random"], 500);
      EXPECT_GT(row["made"], 1000);
      EXPECT_EQ(row["explained"], true);
      EXPECT_THAT(row["verdict"].get<std::string>(), AllOf(StartsWith("explained by "), HasSubstr(generation)));
    }
    size_t own = 0;
    for (const Json& row : rows(probed, "rows")) {
      const std::string name = row["instruction"] == "mma" ? generation : fmt::format("{} wgmma", generation);
      const std::string names = ", " + row["rows"].get<std::string>() + ",";
      EXPECT_EQ(row["own"], names.find(", " + name + ",") != std::string::npos) << row;
      // FP8 factors that become FP16 do not reach what sets Blackwell's row apart.
      const bool is_alike =
          row["rows"] == "blackwell" && row["instruction"] == "mma" && row["factors"] != "fp16" && row["output"] == "fp16";
      EXPECT_EQ(row["made_differ"] == 0, row["own"] == true || (generation == std::string("hopper") && is_alike)) << row;
      own += row["own"] == true;
    }
    EXPECT_EQ(own, instructions);
    EXPECT_THAT(rows(probed, "differences"), IsEmpty());
    EXPECT_THAT(rows(probed, "made_that_differ"), IsEmpty());
  }
}

// Sums as the table adds them, which the test computes again from the file.
TEST(GpuCommand, WritesWhatCameBackOfEverySum) {
  const TemporaryFolder folder;
  const std::string file = folder.file("sums.csv");
  const std::vector<std::string> options{"--device", "emulated:a100", "--probe", "--sums", "3", "--results", file};
  uint64_t expected = 0;
  for (const Json& row : rows(report(options), "instructions"))
    expected += row["made"].get<uint64_t>() + row["random"].get<uint64_t>();
  std::istringstream lines(read_file(file));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "instruction,a_format,b_format,output,shows,a,b,c,result");
  uint64_t sums = 0, random = 0;
  for (; std::getline(lines, line); ++sums) {
    const ProbedSumLine sum = parse_probed_sum("a100", line);
    random += sum.shows.empty();
    ASSERT_EQ(dot(sum.core, sum.a, sum.b, sum.c), sum.result) << line;
  }
  EXPECT_EQ(sums, expected);
  EXPECT_EQ(random, 4u * 3);

  const std::string before = read_file(file);
  EXPECT_EQ(gpu(options).exit_code, 2) << "it exists";
  std::vector<std::string> other{"--device", "emulated:a100", "--probe", "--sums", "4", "--results", file, "--force"};
  EXPECT_EQ(gpu(other).exit_code, 0);
  EXPECT_GT(read_file(file).size(), before.size());
  EXPECT_THAT(gpu({"--device", "emulated:a100", "--results", file}).err, HasSubstr("--results: expected with --probe only"));
  EXPECT_THAT(gpu({"--device", "emulated:a100", "--probe", "--force"}).err, HasSubstr("--force: expected with --results only"));
}

TEST(GpuCommand, InstructionsWithoutAKernelAreNotProbed) {
  const Json probed = report({"--device", "emulated:b200", "--probe", "--sums", "1"});
  EXPECT_EQ(probed["explained"], true);
  EXPECT_EQ(probed["probed"], 12);
  EXPECT_EQ(probed["not_probed"], 12);
  for (const Json& row : rows(probed, "instructions")) {
    const bool is_missing = row["instruction"] == "tcgen05";
    EXPECT_EQ(row["explained"].is_null(), is_missing) << row;
    EXPECT_EQ(row["made"] == 0, is_missing) << row;
    if (is_missing) {
      EXPECT_EQ(row["verdict"], "not probed: this program has no such kernel for b200");
    }
  }
}

TEST(GpuCommand, TheSameSumsEveryTimeAndOthersWithAnotherSeed) {
  const std::vector<std::string> options{"--device", "emulated:t4", "--probe", "--sums", "3000", "--json"};
  const std::string first = gpu(options).out;
  EXPECT_EQ(gpu(options).out, first);
  std::vector<std::string> others = options;
  others.insert(others.end(), {"--seed", "1"});
  EXPECT_NE(gpu(others).out, first);  // so many results of other rows differ
}

TEST(GpuCommand, ComparesTheProductsOfAStep) {
  const std::vector<std::string> options{"--device", "emulated:a100",         "--products", "mlp", "--precision", "bf16",
                                         "--set",    "training.batch_size=4", "--limit",    "3",   "--json"};
  const Result result = gpu(options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json compared = Json::parse(result.out);
  EXPECT_EQ(compared["experiment"], "mlp");
  EXPECT_EQ(compared["precision"], "bf16");
  EXPECT_EQ(compared["gpu"], "a100");
  // Three linear layers: each of them, two gradients of inputs and three of weights.
  EXPECT_EQ(compared["calls"], 8);
  EXPECT_EQ(compared["predicted"], 8);
  const std::vector<Json> products = rows(compared, "products");
  ASSERT_EQ(products.size(), 3u);
  EXPECT_EQ(products[0]["op"], "linear");
  EXPECT_EQ(products[0]["factors"], "bf16");
  EXPECT_EQ(products[0]["rows"], 4);
  EXPECT_EQ(products[0]["columns"], 256);
  EXPECT_EQ(products[0]["terms"], 128);
  EXPECT_EQ(products[0]["sums"], 4 * 256);
  EXPECT_EQ(products[0]["bits"], "differs");
  EXPECT_GT(products[0]["differ"], 0);
  EXPECT_EQ(products[0]["algorithm"], "a chain in the order of the terms, in FP32");
  const Json wide = Json::parse(gpu({"--device", "emulated", "--products", "mlp", "--json"}).out);
  EXPECT_EQ(wide["precision"], "fp32");
  EXPECT_EQ(wide["predicted"], 0);
  EXPECT_EQ(wide["differ"], 0);
}

TEST(GpuCommand, MistakesAreOneLine) {
  const auto expect_error = [](const std::vector<std::string>& options, int code, const std::string& message) {
    const Result result = gpu(options);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, AllOf(StartsWith("ulpscope: "), HasSubstr(message)));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_THAT(result.out, IsEmpty());
  };
  expect_error({"--device", "cpu"}, 2, "--device cpu: it has no matrix units of a GPU, expected cuda, cuda:N, emulated");
  expect_error({"--device", "gpu"}, 2, "got 'gpu'");
  expect_error({"--device", "emulated:h1000"}, 2, "got 'h1000'");
  expect_error({"--device", "emulated", "--probe", "--sums", "0"}, 2, "--sums takes an integer of at least 1, not '0'");
  expect_error({"--device", "emulated", "--probe", "--seed", "9223372036854775808"}, 2,
               "--seed takes an integer below 2^63, not '9223372036854775808'");
  expect_error({"--device", "emulated", "--probe", "--sums", "many"}, 2, "--sums");
  expect_error({"--device", "emulated", "--sums", "5"}, 2, "--sums: expected with --probe only");
  expect_error({"--device", "cpu", "--products", "mlp"}, 2, "--device cpu: it has no matrix units of a GPU");
  expect_error({"--device", "emulated", "--products", "mpl"}, 2, "'mpl' is neither a file nor a preset; did you mean 'mlp'?");
  expect_error({"--device", "emulated", "--products", "mlp", "--probe"}, 2, "--probe and --products exclude each other");
  expect_error({"--device", "emulated", "--set", "seed=1"}, 2, "--set: expected with --products only");
  expect_error({"--device", "emulated", "--probe", "--precision", "fp16"}, 2, "--precision: expected with --products only");
  expect_error({"--device", "emulated", "--products", "mlp", "--set", "no.key=1"}, 2, "--set no.key=1: unknown key");
  expect_error({"--device", "emulated", "--products", "mlp", "--precision", "fp64"}, 2, "does not compute in FP64");
  expect_error({"--device", "cuda:4096", "--products", "mlp"}, 4, "");
  // A machine has no such GPU, and a build may be without CUDA.
  expect_error({"--device", "cuda:4096"}, 4, "");
  expect_error({"--device", "cuda:4096", "--probe"}, 4, "");
}

}  // namespace
}  // namespace ulpscope::cli_test
