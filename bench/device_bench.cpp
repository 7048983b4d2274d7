// What a device takes for reading, for statistics and for products, as JSON lines.
//
//   device_bench [DEVICE]     of tensors of --elements elements, and of square products of --extent rows
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bench_options.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/devices.h"

namespace {

using namespace ulpscope;
using Clock = std::chrono::steady_clock;

// A tensor of a device, of normal numbers or of such between 1 and 2.
class DeviceTensor {
 public:
  DeviceTensor(Backend& backend, DType dtype, const std::vector<int64_t>& shape, bool one_binade = false) : backend_(backend) {
    view_.dtype = dtype;
    for (const int64_t extent : shape) view_.shape[view_.rank++] = extent;
    view_ = contiguous(view_);
    bytes_ = static_cast<size_t>(view_.size()) * info(dtype).size;
    view_.data = backend.allocate(bytes_);
    std::vector<std::byte> values(bytes_);
    const Philox random(7, 1);
    for (int64_t i = 0; i < view_.size(); ++i) {
      const float uniform = static_cast<float>(random.below(static_cast<uint64_t>(i), 1 << 20)) * 0x1p-20f;
      const float value = one_binade ? 1 + uniform : (uniform - 0.5f) * (i % 7 == 0 ? 64.0f : 1.0f);
      if (dtype == DType::f32) {
        std::memcpy(values.data() + 4 * i, &value, sizeof(value));
      } else {
        const uint16_t encoding = round_to_f16(value);
        std::memcpy(values.data() + 2 * i, &encoding, sizeof(encoding));
      }
    }
    backend.copy_from_host(values.data(), view_.data, bytes_);
  }
  DeviceTensor(const DeviceTensor&) = delete;
  ~DeviceTensor() { backend_.release(view_.data, bytes_); }
  const TensorView& view() const { return view_; }
  size_t bytes() const { return bytes_; }

 private:
  Backend& backend_;
  TensorView view_;
  size_t bytes_;
};

// The median time of the call in ms, of rounds of 10 that are waited for together.
double median_ms(Backend& backend, const OpCall& call) {
  constexpr int kRounds = 9, kCalls = 10;
  run(backend, call);
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < kCalls; ++i) backend.submit(call);
    backend.complete();
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count() / kCalls);
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

void measure_statistics(Backend& backend, int64_t elements) {
  const Attributes none;
  const auto print = [](const char* name, double ms, size_t bytes) {
    fmt::print("{{\"name\":\"{}\",\"ms\":{:.4f},\"gigabytes_per_second\":{:.1f}}}\n", name, ms,
               static_cast<double>(bytes) / ms / 1e6);
  };
  const DeviceTensor wide(backend, DType::f32, {elements}), narrow(backend, DType::f16, {elements});
  const DeviceTensor binade(backend, DType::f32, {elements}, true);
  const DeviceTensor to(backend, DType::f32, {elements});
  const TensorView from_view = wide.view(), to_view = to.view();
  print("copy f32", median_ms(backend, {"copy", {&from_view, 1}, {&to_view, 1}, &none, {}}), 2 * wide.bytes());
  for (const auto& [name, tensor] :
       {std::pair{"statistics f32", &wide}, {"statistics f16", &narrow}, {"statistics f32 of one binade", &binade}}) {
    const TensorView view = tensor->view();
    OutputRecord record;
    record.wanted = StatisticsLevel::values;
    OutputRecord* const records[] = {&record};
    print(name, median_ms(backend, {"source", {}, {&view, 1}, &none, records}), tensor->bytes());
  }
}

void measure_products(Backend& backend, int64_t extent, std::string_view gpu) {
  const Attributes none;
  const DeviceTensor a(backend, DType::f16, {extent, extent}), b(backend, DType::f16, {extent, extent});
  const DeviceTensor c(backend, DType::f16, {extent, extent});
  const TensorView inputs[] = {a.view(), b.view()}, outputs[] = {c.view()};
  for (const std::string_view accumulate : {accumulations()[0].name, gpu}) {
    const Arithmetic how{find_accumulation(accumulate)};
    if (how.accumulation == nullptr) continue;
    OpCall call{"matmul", inputs, outputs, &none, {}};
    call.arithmetic = &how;
    const double ms = median_ms(backend, call), work = 2.0 * static_cast<double>(extent) * static_cast<double>(extent * extent);
    fmt::print("{{\"name\":\"matmul f16 {}, sums as {}\",\"ms\":{:.4f},\"teraflops\":{:.2f}}}\n", extent, accumulate, ms,
               work / ms / 1e9);
  }
}

int run(int argc, char** argv) {
  const BenchOptions given(argc, argv, "device_bench [DEVICE] [--elements N] [--extent N]");
  const std::string device = given.word().empty() ? "cuda" : given.word();
  const auto make = maker_of_device(device);
  if (!make) throw usage_error("{}: expected cuda, cuda:N, emulated or emulated:GPU", device);
  const std::unique_ptr<Backend> backend = make();
  measure_statistics(*backend, given.number("--elements", int64_t{1} << 26));
  measure_products(*backend, given.number("--extent", int64_t{4096}), gpu_of_device(device));
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return ulpscope::run_bench("device_bench", run, argc, argv); }
