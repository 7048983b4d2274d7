// Kernels that are made worse on purpose are found, and the backend's own are not.
#include "ulpscope/studies/op_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temporary_folder.h"
#include "ulpscope/analyzers/report/json.h"
#include "ulpscope/base/error.h"
#include "ulpscope/kernels/forwarding_backend.h"
#include "ulpscope/kernels/op_call_arithmetic.h"
#include "ulpscope/studies/array_difference.h"
#include "ulpscope/studies/op_check_report.h"

namespace ulpscope {
namespace {

// The CPU backend with a fault in the calls of one op.
class FaultyBackend final : public ForwardingBackend {
 public:
  using Fault = std::function<void(Backend& inner, const OpCall& call)>;
  FaultyBackend(std::string op, Fault fault)
      : ForwardingBackend(make_cpu_backend({.threads = 1})), op_(std::move(op)), fault_(std::move(fault)) {}

  void submit(const OpCall& call) override {
    if (call.op == op_) {
      fault_(inner(), call);
    } else {
      ForwardingBackend::submit(call);
    }
  }

 private:
  std::string op_;
  Fault fault_;
};

OpCheckOptions quick(std::vector<std::string> ops, std::vector<DType> types) {
  OpCheckOptions options;
  options.ops = std::move(ops);
  options.types = std::move(types);
  options.accumulations = {find_accumulation("fp32")};
  options.rounds = 2;
  return options;
}

std::function<std::unique_ptr<Backend>()> faulty(std::string op, FaultyBackend::Fault fault) {
  return [op, fault] { return std::make_unique<FaultyBackend>(op, fault); };
}

const std::string& op_of_first_row(const OpCheck& check) { return check.ops.at(check.worst.at(0).op).op; }

// The encoding after the one of the first element that is not zero: one ulp away from zero.
void make_worse(const OpCall& call) {
  const TensorView& out = call.outputs[0];
  for (int64_t e = 0; e < out.size(); ++e) {
    const int64_t at = offset_of(out, e);
    if (read_element(out, e) == 0) continue;
    if (info(out.dtype).size == 2) {
      ++out.as<uint16_t>()[at];
    } else {
      ++out.as<uint32_t>()[at];
    }
    return;
  }
}

TEST(OpCheck, OurKernelsKeepTheirBounds) {
  const OpCheck check = check_ops(quick({"softmax", "layer_norm*", "linear", "adam_update", "gelu*"}, {DType::f32, DType::f16}));
  EXPECT_EQ(check.broken, 0u);
  EXPECT_EQ(check.not_called, 0u);
  EXPECT_GE(check.worst.size(), 20u);
}

TEST(OpCheck, FindsAKernelThatIsWorseByOneUlp) {
  const auto worse = [](Backend& inner, const OpCall& call) {
    run(inner, call);
    make_worse(call);
  };
  for (const char* op : {"add", "exp", "softmax", "layer_norm", "linear", "sum"}) {
    for (const DType type : {DType::f16, DType::bf16}) {
      OpCheckOptions options = quick({op}, {type});
      options.backend = faulty(op, worse);
      const OpCheck check = check_ops(options);
      EXPECT_GT(check.broken, 0u) << op << " " << info(type).name;
      EXPECT_EQ(op_of_first_row(check), op);
    }
  }
}

TEST(OpCheck, FindsSumsThatAreKeptInFp16) {
  Arithmetic narrow;
  narrow.accumulation = find_accumulation("fp16");
  OpCheckOptions options = quick({"linear", "matmul"}, {DType::f16});
  options.backend = faulty("linear", [&](Backend& inner, const OpCall& call) {
    OpCall changed = call;
    changed.arithmetic = &narrow;
    run(inner, changed);
  });
  const OpCheck check = check_ops(options);
  EXPECT_GT(check.broken, 0u);
  EXPECT_EQ(op_of_first_row(check), "linear");
  // And they are within the bound of sums in FP16.
  options.backend = nullptr;
  options.accumulations = {find_accumulation("fp16")};
  EXPECT_EQ(check_ops(options).broken, 0u);
}

TEST(OpCheck, FindsFunctionsInLowPrecision) {
  // A tanh of which the last four bits are lost.
  OpCheckOptions options = quick({"tanh"}, {DType::f32});
  options.backend = faulty("tanh", [](Backend& inner, const OpCall& call) {
    run(inner, call);
    const TensorView& out = call.outputs[0];
    for (int64_t e = 0; e < out.size(); ++e) {
      auto& bits = out.as<uint32_t>()[offset_of(out, e)];
      bits &= 0xFFFFFFF0;
    }
  });
  EXPECT_GT(check_ops(options).broken, 0u);
}

TEST(OpCheck, GivesTheSameAgain) {
  const OpCheckOptions options = quick({"softmax_backward", "mul"}, {DType::bf16});
  const auto json = [&] { return render_json(op_check_report(check_ops(options), 0, true)); };
  EXPECT_EQ(json(), json());
}

TEST(OpCheck, StopsWhenAsked) {
  OpCheckOptions options = quick({"relu", "exp"}, {DType::f16});
  options.stopped = [] { return true; };
  EXPECT_EQ(check_ops(options).not_called, 2u);
}

TEST(OpCheck, NamesThatNoOpHasAreRefused) { EXPECT_THROW(check_ops(quick({"softmaxx"}, {DType::f16})), Error); }

TEST(OpCheck, SavesTheWorstForOthersToRun) {
  const TemporaryFolder folder;
  const OpCheckOptions options = quick({"rms_norm"}, {DType::bf16});
  save_op_check(check_ops(options), 0, folder.path(), *make_cpu_backend());
  const NumberArray output(folder.file("rms_norm.bf16.0.output.npy"), &bfloat16),
      exact(folder.file("rms_norm.bf16.0.exact.npy"), nullptr);
  EXPECT_EQ(output.shape(), exact.shape());
  const ArrayDifference difference = compare_arrays(output, exact, nullptr, {&bfloat16, 10});
  EXPECT_EQ(difference.made_nonfinite, 0u);
  EXPECT_LT(difference.candidate_error, 1);
  EXPECT_TRUE(std::filesystem::exists(folder.file("rms_norm.bf16.1.input1.npy")));
}

}  // namespace
}  // namespace ulpscope
