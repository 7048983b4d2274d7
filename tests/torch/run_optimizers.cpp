// The half of compare_optimizers.py that is ours: takes a parameter through updates, and writes what becomes of it.
//
//   run_optimizers OPTIMIZER TYPE [KEY=VALUE]... SIZE INPUT RESULT
//
// OPTIMIZER is sgd, adam, adamw or lion, TYPE f32, f16 or bf16, KEY one of `options` below. INPUT holds rows of SIZE FP32 numbers:
// the weights, then the gradients of each step. RESULT gets, after each step, as such rows, the weights and each of the states.
#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "tests/torch/engine_program.h"
#include "ulpscope/base/error.h"
#include "ulpscope/core/ops/ops.h"
#include "ulpscope/core/optim/optimizer.h"

namespace ulpscope {
namespace {

DType type_called(const std::string& name) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16})
    if (info(type).name == name) return type;
  throw usage_error("expected f32, f16 or bf16, got '{}'", name);
}

std::unique_ptr<Optimizer> optimizer_called(const std::string& name, std::map<std::string, double>& options,
                                            std::vector<OptimizedParameter> parameters) {
  const double rate = options["lr"], decay = options["weight_decay"];
  if (name == "sgd")
    return make_sgd(std::move(parameters), rate, {options["momentum"], options["dampening"], decay, options["nesterov"] != 0});
  if (name == "lion") return make_lion(std::move(parameters), rate, {options["beta1"], options["beta2"], decay});
  if (name == "adam" || name == "adamw")
    return make_adam(std::move(parameters), rate, {options["beta1"], options["beta2"], options["eps"], decay, name == "adamw"});
  throw usage_error("expected sgd, adam, adamw or lion, got '{}'", name);
}

void run(const std::vector<std::string>& arguments) {
  const DType type = type_called(arguments[1]);
  std::map<std::string, double> options;
  for (size_t i = 2; i + 3 < arguments.size(); ++i) {
    const size_t equals = arguments[i].find('=');
    options[arguments[i].substr(0, equals)] = std::stod(arguments[i].substr(equals + 1));
  }
  const auto size = static_cast<size_t>(std::stoll(*(arguments.end() - 3)));
  std::ifstream input(*(arguments.end() - 2), std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(input), {}};
  const std::span values(reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float));
  const auto row = [&](size_t index) {
    const std::vector<double> wide(values.begin() + static_cast<int64_t>(index * size),
                                   values.begin() + static_cast<int64_t>((index + 1) * size));
    const int64_t shape[] = {static_cast<int64_t>(size)};
    return from_host(*context().backend, type, shape, wide);
  };
  std::ofstream result(arguments.back(), std::ios::binary);
  const auto write = [&](const Tensor& tensor) {
    const std::vector<double> wide = to_host(tensor);
    const std::vector<float> narrow(wide.begin(), wide.end());
    result.write(reinterpret_cast<const char*>(narrow.data()), static_cast<std::streamsize>(narrow.size() * sizeof(float)));
  };
  Tensor weights = row(0);
  weights.body()->parameter = intern("w");
  const auto optimizer = optimizer_called(arguments[0], options, {{weights, intern("w"), intern("")}});
  for (size_t step = 1; step < values.size() / size; ++step) {
    weights.set_grad(row(step));
    optimizer->step();
    write(weights);
    for (const Tensor& state : optimizer->states()[0].tensors) write(state);
  }
}

}  // namespace
}  // namespace ulpscope

int main(int argc, char** argv) {
  using namespace ulpscope;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 5) {
    fmt::print(stderr, "usage: run_optimizers OPTIMIZER TYPE [KEY=VALUE]... SIZE INPUT RESULT\n");
    return 2;
  }
  return run_with_engine("run_optimizers", [&] { run(arguments); });
}
