// Times the op calls of the benchmark workloads on the CPU backend, in each type, bare and with full statistics of every output.
//
//   kernels_bench [--threads=N] [Google Benchmark's options, e.g. --benchmark_filter=conv_sine]
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ulpscope/base/philox.h"
#include "ulpscope/kernels/backend.h"

namespace {

using namespace ulpscope;

std::unique_ptr<Backend> backend;

// A tensor of an op: its shape, channels-last where it has four dimensions and is no weight. FP32 parameters stay FP32.
struct Shape {
  std::vector<int64_t> extents;
  bool fp32 = false;
  bool weight = false;
  bool transposed = false;
  int64_t integers = 0;
  bool record_only = false;
};

struct Item {
  std::string workload, op;
  std::vector<Shape> inputs, outputs;
  std::vector<Attributes::Item> attributes = {};
  std::vector<int> in_place = {};  // the input that each output overwrites
};

TensorView make_view(const Shape& shape, DType dtype) {
  TensorView view;
  view.dtype = shape.integers > 0 ? (shape.extents.size() == 1 ? DType::i64 : DType::u8) : shape.fp32 ? DType::f32 : dtype;
  view.rank = static_cast<int>(shape.extents.size());
  std::copy(shape.extents.begin(), shape.extents.end(), view.shape.begin());
  std::vector<int> order;  // fastest first
  for (int i = view.rank - 1; i >= 0; --i) order.push_back(i);
  if (view.rank == 4 && !shape.weight) order = {1, 3, 2, 0};
  if (shape.transposed) std::reverse(order.begin(), order.end());
  int64_t stride = 1;
  for (const int dimension : order) {
    view.strides[dimension] = stride;
    stride *= view.shape[dimension];
  }
  view.data = backend->allocate(static_cast<size_t>(view.size()) * info(view.dtype).size);
  return view;
}

void fill(const TensorView& view, int64_t integers) {
  const Philox random(1, 2);
  const int64_t n = view.size();
  if (integers > 0) {
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t value = random.below(static_cast<uint64_t>(i), static_cast<uint32_t>(integers));
      if (view.dtype == DType::i64) {
        view.as<int64_t>()[i] = value;
      } else {
        view.as<uint8_t>()[i] = static_cast<uint8_t>(value);
      }
    }
    return;
  }
  std::vector<float> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = random.uniform(static_cast<uint64_t>(i)) * 2 - 1;
  TensorView wide = view;
  wide.dtype = DType::f32;
  wide.data = values.data();
  const Attributes none;
  run(*backend, {"cast", {&wide, 1}, {&view, 1}, &none, {}});
}

void run_item(benchmark::State& state, const Item& item, DType dtype, bool record) {
  std::vector<TensorView> inputs, outputs;
  for (const Shape& shape : item.inputs) {
    inputs.push_back(make_view(shape, dtype));
    fill(inputs.back(), shape.integers);
  }
  std::vector<OutputRecord> records(item.outputs.size());
  std::vector<OutputRecord*> pointers;
  for (size_t i = 0; i < item.outputs.size(); ++i) {
    const bool in_place = i < item.in_place.size() && item.in_place[i] >= 0;
    outputs.push_back(in_place ? inputs[static_cast<size_t>(item.in_place[i])] : make_view(item.outputs[i], dtype));
    if (item.outputs[i].record_only) outputs.back().data = nullptr;
    records[i].wanted = StatisticsLevel::values;
    pointers.push_back(&records[i]);
  }
  Attributes attributes;
  for (const auto& attribute : item.attributes) attributes.set(attribute.name, attribute.value);
  OpCall call{item.op, inputs, outputs, &attributes, {}};
  if (record) call.records = pointers;
  run(*backend, call);
  for ([[maybe_unused]] auto _ : state) run(*backend, call);
}

std::vector<Item> items() {
  std::vector<Item> all;
  const std::vector<Attributes::Item> sum_rows{{"dims", 1}, {"keep", 0}};
  const auto linear = [&](const char* workload, int64_t m, int64_t n, int64_t k) {
    all.push_back({workload, "linear", {{{m, k}}, {{n, k}}, {{n}}}, {{{m, n}}}});
    all.push_back({workload, "matmul", {{{m, n}}, {{n, k}}}, {{{m, k}}}});
    all.push_back({workload, "matmul", {{{n, m}, false, false, true}, {{m, k}}}, {{{n, k}}}});
    all.push_back({workload, "sum", {{{m, n}}}, {{{n}}}, sum_rows});
  };
  const auto relu = [&](const char* workload, const std::vector<int64_t>& shape) {
    all.push_back({workload, "relu", {{shape}}, {{shape}}});
    all.push_back({workload, "relu_backward", {{shape}, {shape}}, {{shape}}});
  };
  const auto convolution = [&](const char* workload, int64_t n, int64_t c, int64_t o, int64_t size, double kernel, double padding) {
    const auto k = static_cast<int64_t>(kernel);
    const Shape x{{n, c, size, size}}, y{{n, o, size, size}}, w{{o, c, k, k}, false, true};
    const std::vector<Attributes::Item> attributes{
        {"stride_y", 1}, {"stride_x", 1}, {"padding_y", padding}, {"padding_x", padding}};
    all.push_back({workload, "conv2d", {x, w, {{o}}}, {y}, attributes});
    all.push_back({workload, "conv2d_backward_input", {y, w}, {x}, attributes});
    all.push_back({workload, "conv2d_backward_weight", {y, x}, {w, {{o}}}, attributes});
  };
  const auto pool = [&](const char* workload, int64_t n, int64_t c, int64_t size) {
    const Shape x{{n, c, size, size}}, y{{n, c, size / 2, size / 2}};
    Shape indices = y;
    indices.integers = 4;
    const std::vector<Attributes::Item> attributes{{"kernel_y", 2}, {"kernel_x", 2},  {"stride_y", 2},
                                                   {"stride_x", 2}, {"padding_y", 0}, {"padding_x", 0}};
    all.push_back({workload, "max_pool2d", {x}, {y, indices}, attributes});
    all.push_back({workload, "max_pool2d_backward", {y, indices}, {x}, attributes});
  };
  const auto norm = [&](const char* workload, const std::vector<int64_t>& shape) {
    const Shape x{shape}, c{{shape[1]}, true};
    all.push_back({workload,
                   "batch_norm",
                   {x, c, c, c, c},
                   {x, c, c, c, c},
                   {{"eps", 1e-5}, {"momentum", 0.1}, {"training", 1}},
                   {-1, -1, -1, 3, 4}});
    all.push_back({workload, "batch_norm_backward", {x, x, c, c, c}, {x, c, c}, {{"training", 1}}});
  };
  const auto adam = [&](const char* workload, int64_t n) {
    const Shape w{{n}, true};
    Shape d = w;
    d.record_only = true;
    all.push_back(
        {workload,
         "adam_update",
         {w, w, w, w},
         {w, w, w, d},
         {{"lr", 1e-3}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0}, {"decoupled", 0}, {"step", 3}},
         {0, 2, 3, -1}});
    all.push_back({workload, "cast", {w}, {{{n}}}});
    all.push_back({workload, "unscale", {w, {{}, true}}, {w, {{}, true}}, {{"inverse_scale", 1}}, {0, 1}});
  };
  const auto classes = [&](const char* workload, int64_t rows) {
    const Shape logits{{rows, 10}}, scalar{{}, true}, row{{rows}, true};
    Shape target{{rows}};
    target.integers = 10;
    all.push_back({workload, "cross_entropy", {logits, target}, {scalar, row}});
    all.push_back({workload, "cross_entropy_backward", {scalar, logits, target, row}, {logits}});
  };

  all.push_back({"tiny", "add", {{{1}}, {{1}}}, {{{1}}}});
  all.push_back({"tiny", "matmul", {{{1, 8}}, {{8, 8}}}, {{{1, 8}}}});

  linear("mlp", 32, 256, 128);
  linear("mlp", 32, 256, 256);
  linear("mlp", 32, 10, 256);
  relu("mlp", {32, 256});
  adam("mlp", 256 * 256);
  classes("mlp", 32);

  linear("mlp_big", 256, 1024, 784);
  linear("mlp_big", 256, 1024, 1024);
  linear("mlp_big", 256, 10, 1024);
  relu("mlp_big", {256, 1024});
  adam("mlp_big", 1024 * 1024);
  classes("mlp_big", 256);

  convolution("conv_sine", 1, 2, 256, 128, 1, 0);
  convolution("conv_sine", 1, 256, 256, 128, 1, 0);
  convolution("conv_sine", 1, 256, 1, 128, 1, 0);
  norm("conv_sine", {1, 256, 128, 128});
  relu("conv_sine", {1, 256, 128, 128});
  const Shape image{{1, 1, 128, 128}}, scalar{{}, true};
  all.push_back({"conv_sine", "mse", {image, image}, {scalar}});
  all.push_back({"conv_sine", "mse_backward", {scalar, image, image}, {image}, {{"factor", 2}}});

  convolution("fashion_cnn", 64, 1, 32, 28, 3, 1);
  relu("fashion_cnn", {64, 32, 28, 28});
  pool("fashion_cnn", 64, 32, 28);
  convolution("fashion_cnn", 64, 32, 64, 14, 3, 1);
  relu("fashion_cnn", {64, 64, 14, 14});
  pool("fashion_cnn", 64, 64, 14);
  Shape flat{{64, 64, 7, 7}};
  flat.weight = true;  // contiguous
  all.push_back({"fashion_cnn", "copy", {{{64, 64, 7, 7}}}, {flat}});
  linear("fashion_cnn", 64, 128, 3136);
  linear("fashion_cnn", 64, 10, 128);
  adam("fashion_cnn", 128 * 3136);
  classes("fashion_cnn", 64);
  return all;
}

std::string describe(const Item& item) {
  std::string text = item.workload + "/" + item.op;
  for (const Shape& shape : item.inputs) text += fmt::format(":{}", fmt::join(shape.extents, "x"));
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  CpuOptions options;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--threads=", 10) == 0) {
      options.threads = std::atoi(argv[i] + 10);
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  backend = make_cpu_backend(options);
  for (const Item& item : items()) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const bool record : {false, true}) {
        const std::string name = fmt::format("{}/{}/{}", describe(item), info(dtype).name, record ? "full" : "off");
        benchmark::RegisterBenchmark(name.c_str(), [item, dtype, record](benchmark::State& state) {
          run_item(state, item, dtype, record);
        })->Unit(benchmark::kMicrosecond);
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("backend", backend->description());
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
