// The backend of a machine that runs kernels of blocks (launcher-inl.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/kernels/backend.h"
#include "ulpscope/kernels/device/indexing-inl.h"
#include "ulpscope/kernels/device/launcher-inl.h"
#include "ulpscope/kernels/device/losses-inl.h"
#include "ulpscope/kernels/device/matrix_instructions-inl.h"
#include "ulpscope/kernels/device/moved_call.h"
#include "ulpscope/kernels/device/normalization-inl.h"
#include "ulpscope/kernels/device/ops-inl.h"
#include "ulpscope/kernels/device/planning_machine.h"
#include "ulpscope/kernels/device/pooling-inl.h"
#include "ulpscope/kernels/device/products-inl.h"
#include "ulpscope/kernels/device/quantization-inl.h"
#include "ulpscope/kernels/device/training-inl.h"
#include "ulpscope/kernels/plain/plain.h"

namespace ulpscope::device {

template <class Machine>
class DeviceBackend final : public Backend {
 public:
  explicit DeviceBackend(Machine machine) : launcher_(std::move(machine)) {
    add_ops(kernels_);
    add_indexing(kernels_);
    add_losses(kernels_);
    add_normalization(kernels_);
    add_pooling(kernels_);
    add_products(kernels_);
    add_quantization(kernels_);
    add_training(kernels_);
  }

  std::string name() const override { return launcher_.machine().name(); }
  std::string description() const override { return launcher_.machine().description(); }
  std::vector<std::string_view> ops() const override {
    std::vector<std::string_view> names;
    for (const auto& [op, kernel] : kernels_) names.push_back(op);
    std::sort(names.begin(), names.end());
    return names;
  }

  bool runs_behind() const override { return true; }
  MatrixInstructions* matrix_instructions() override {
    if constexpr (std::is_same_v<Machine, PlanningMachine>) {
      return nullptr;
    } else {
      if (!instructions_) instructions_ = std::make_unique<DeviceMatrixInstructions<Machine>>(launcher_);
      return instructions_.get();
    }
  }
  std::unique_ptr<Backend> plan() const override {
    if constexpr (std::is_same_v<Machine, PlanningMachine>) {
      return nullptr;
    } else {
      return std::make_unique<DeviceBackend<PlanningMachine>>(PlanningMachine(launcher_.machine()));
    }
  }
  std::span<const LibraryProduct> library_products() const override { return launcher_.machine().library_products(); }
  void submit(const OpCall& call) override {
    const auto found = kernels_.find(call.op);
    if (found == kernels_.end()) throw usage_error("{}: the device {} has no such op", call.op, name());
    if (computes_in_double(call)) throw usage_error("{}: the device {} does not compute in FP64", call.op, name());
    for (size_t i = 0; i < call.input_fingerprints.size(); ++i)
      if (call.input_fingerprints[i]->wanted) launcher_.sum_bits(call.inputs[i], *call.input_fingerprints[i]);
    launcher_.count_flushed(call);
    found->second(launcher_, call);
    launcher_.hash_outputs(call);
  }
  void complete() override { launcher_.complete(); }

  const void* host_address(const void*) const override { return nullptr; }
  void copy_to_host(const void* from, void* to, size_t bytes) override {
    complete();
    launcher_.machine().to_host(from, to, bytes);
  }
  void copy_from_host(const void* from, void* to, size_t bytes) override { launcher_.machine().from_host(from, to, bytes); }

  ElementCapture capture_nonfinite(const OpCall& call, int slot) override {
    const TensorView& view = call.outputs[static_cast<size_t>(slot)];
    if (view.data == nullptr) return {};
    complete();
    OutputRecord record;
    record.wanted = StatisticsLevel::health;
    int64_t element = -1;
    launcher_.count_stored(view, record, nullptr, [&](const Output&, const void* memory) { element = first_nonfinite(memory); });
    complete();
    return element < 0 ? ElementCapture{} : capture_element(call, slot, element);
  }
  ElementCapture capture_element(const OpCall& call, int slot, int64_t element) override {
    complete();
    std::deque<std::vector<std::byte>> copies;
    const MovedCall on_host(call, [&](const void* data, size_t bytes) {
      std::vector<std::byte>& copy = copies.emplace_back(bytes);
      launcher_.machine().to_host(data, copy.data(), bytes);
      return copy.data();
    });
    return ulpscope::capture_element(on_host.call(), slot, element);
  }

  void* allocate(size_t bytes) override { return launcher_.allocate(bytes); }
  void release(void* memory, size_t bytes) override { launcher_.release(memory, bytes); }
  size_t allocated_bytes() const override { return launcher_.in_use(); }
  size_t peak_bytes() const override { return launcher_.peak(); }
  void reset_peak() override { launcher_.reset_peak(); }

 private:
  Launcher<Machine> launcher_;
  Kernels<Launcher<Machine>> kernels_;
  std::unique_ptr<MatrixInstructions> instructions_;
};

}  // namespace ulpscope::device
