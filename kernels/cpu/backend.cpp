// The CPU backend: finds the kernel of an op call by name. FP64 calls run as plain twins (plain/): they serve checks, not
// training.
#include "ulpscope/kernels/backend.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "ulpscope/kernels/bit_hash.h"
#include "ulpscope/kernels/cpu/arithmetic.h"
#include "ulpscope/kernels/cpu/context.h"
#include "ulpscope/kernels/cpu/parallel.h"
#include "ulpscope/kernels/fingerprint.h"
#include "ulpscope/kernels/plain/plain.h"
#include "ulpscope/kernels/store.h"

namespace ulpscope {
namespace {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuOptions& options) : context_(options) {
    for (const auto& family : {cpu::elementwise_ops(), cpu::product_ops(), cpu::convolution_ops(), cpu::pooling_ops(),
                               cpu::normalization_ops(), cpu::row_ops(), cpu::indexing_ops(), cpu::reduction_ops(), cpu::loss_ops(),
                               cpu::quantization_ops(), cpu::training_ops()}) {
      for (const cpu::NamedKernel& kernel : family) kernels_.emplace(kernel.op, kernel);
    }
  }

  std::string name() const override { return "cpu"; }
  std::string description() const override { return context_.description(); }
  std::vector<std::string_view> ops() const override {
    std::vector<std::string_view> names = plain_ops();
    for (const auto& [op, kernel] : kernels_) names.push_back(op);
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }

  bool runs_behind() const override { return false; }
  void submit(const OpCall& call) override {
    const auto found = kernels_.find(call.op);
    const bool in_double = computes_in_double(call);
    const bool is_plain = found == kernels_.end() || in_double;
    const cpu::Kernel& kernel = is_plain ? plain_ : found->second.run;
    const ParallelFor shares = [&](int64_t n, const std::function<void(int64_t)>& body) {
      cpu::parallel_for(context_, n, true, body);
    };
    if (is_plain || call.arithmetic != nullptr || !found->second.takes_fingerprints) sum_inputs(call, shares);
    if (call.arithmetic == nullptr || in_double) {
      kernel(context_, call);
    } else {
      run_with_arithmetic(context_, call, kernel);
    }
    sum_outputs(call, shares);
    hash_outputs(call, shares);
    for (size_t slot = 0; slot < call.records.size(); ++slot) {
      OutputRecord* record = call.records[slot];
      if (record != nullptr && record->samples_wanted > 0 && call.outputs[slot].data != nullptr) {
        collect_samples(call.outputs[slot], *record);
      }
    }
  }

  void complete() override {}

  const void* host_address(const void* memory) const override { return memory; }
  void copy_to_host(const void* from, void* to, size_t bytes) override { copy(from, to, bytes); }
  void copy_from_host(const void* from, void* to, size_t bytes) override { copy(from, to, bytes); }

  ElementCapture capture_nonfinite(const OpCall& call, int slot) override { return ulpscope::capture_nonfinite(call, slot); }
  ElementCapture capture_element(const OpCall& call, int slot, int64_t element) override {
    return ulpscope::capture_element(call, slot, element);
  }

  void* allocate(size_t bytes) override { return context_.allocator.allocate(bytes); }
  void release(void* memory, size_t bytes) override { context_.allocator.release(memory, bytes); }
  size_t allocated_bytes() const override { return context_.allocator.in_use(); }
  size_t peak_bytes() const override { return context_.allocator.peak(); }
  void reset_peak() override { context_.allocator.reset_peak(); }

 private:
  static void copy(const void* from, void* to, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  cpu::Context context_;
  std::unordered_map<std::string_view, cpu::NamedKernel> kernels_;
  const cpu::Kernel plain_ = [](cpu::Context&, const OpCall& call) { run_plain(call); };
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) { return std::make_unique<CpuBackend>(options); }

}  // namespace ulpscope
