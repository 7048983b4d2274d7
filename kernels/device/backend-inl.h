// The backend of a machine that runs kernels of blocks: what it computes, in which order, and how records come back.
//
// A Machine has
//
//   name(), description()                     as a Backend's
//   allocate(bytes), release(memory, bytes)   memory of its own, 64-byte aligned
//   clear(memory, bytes)                      all bits zero
//   to_host(from, to, bytes), from_host(from, to, bytes)
//   launch(grid, kernel)                      kernel(block) on every thread; kernels are copied
//
// all in the order in which they are asked for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/kernels/backend.h"
#include "ulpscope/kernels/device/call.h"
#include "ulpscope/kernels/device/elementwise.h"
#include "ulpscope/kernels/device/moved_call.h"
#include "ulpscope/kernels/device/survey.h"
#include "ulpscope/kernels/fingerprint.h"
#include "ulpscope/kernels/formulas.h"
#include "ulpscope/kernels/output_rounding.h"
#include "ulpscope/kernels/plain/plain.h"
#include "ulpscope/kernels/rows.h"

namespace ulpscope::device {

template <class Machine>
class DeviceBackend final : public Backend {
 public:
  explicit DeviceBackend(Machine machine) : machine_(std::move(machine)) {
    add_formulas(lanes::Formulas());
    add_row_ops(lanes::RowOps());
    kernels_.emplace("dropout", &DeviceBackend::dropout);
    kernels_.emplace("source", &DeviceBackend::source);
    kernels_.emplace("sum", &DeviceBackend::sum);
    kernels_.emplace("mean", &DeviceBackend::mean);
    kernels_.emplace("var", &DeviceBackend::variance);
    kernels_.emplace("max", &DeviceBackend::largest);
    kernels_.emplace("norm", &DeviceBackend::norm);
  }
  ~DeviceBackend() override { forget_pending(); }

  std::string name() const override { return machine_.name(); }
  std::string description() const override { return machine_.description(); }
  std::vector<std::string_view> ops() const override {
    std::vector<std::string_view> names;
    for (const auto& [op, kernel] : kernels_) names.push_back(op);
    std::sort(names.begin(), names.end());
    return names;
  }

  bool runs_behind() const override { return true; }
  void submit(const OpCall& call) override {
    const auto found = kernels_.find(call.op);
    if (found == kernels_.end() || computes_in_double(call))
      throw usage_error("{}: no kernel of {} computes such a call", call.op, name());
    for (size_t i = 0; i < call.input_fingerprints.size(); ++i)
      if (call.input_fingerprints[i]->wanted) sum_bits(call.inputs[i], *call.input_fingerprints[i]);
    count_flushed(call);
    (this->*found->second)(call);
  }
  void complete() override {
    for (const Pending& pending : pending_) {
      std::vector<std::byte> memory(pending.bytes);
      machine_.to_host(pending.memory, memory.data(), pending.bytes);
      pending.finish(memory.data());
    }
    forget_pending();
  }

  const void* host_address(const void*) const override { return nullptr; }
  void copy_to_host(const void* from, void* to, size_t bytes) override {
    complete();
    machine_.to_host(from, to, bytes);
  }
  void copy_from_host(const void* from, void* to, size_t bytes) override { machine_.from_host(from, to, bytes); }

  ElementCapture capture_nonfinite(const OpCall& call, int slot) override {
    const TensorView& view = call.outputs[static_cast<size_t>(slot)];
    if (view.data == nullptr) return {};
    complete();
    OutputRecord record;
    record.wanted = StatisticsLevel::health;
    int64_t element = -1;
    count_stored(view, record, nullptr, [&](const Output&, const void* memory) { element = first_nonfinite(memory); });
    complete();
    return element < 0 ? ElementCapture{} : capture_element(call, slot, element);
  }
  ElementCapture capture_element(const OpCall& call, int slot, int64_t element) override {
    complete();
    std::deque<std::vector<std::byte>> copies;
    const MovedCall on_host(call, [&](const void* data, size_t bytes) {
      std::vector<std::byte>& copy = copies.emplace_back(bytes);
      machine_.to_host(data, copy.data(), bytes);
      return copy.data();
    });
    return ulpscope::capture_element(on_host.call(), slot, element);
  }

  void* allocate(size_t bytes) override {
    in_use_ += bytes;
    peak_ = std::max(peak_, in_use_);
    return machine_.allocate(bytes);
  }
  void release(void* memory, size_t bytes) override {
    in_use_ -= bytes;
    machine_.release(memory, bytes);
  }
  size_t allocated_bytes() const override { return in_use_; }
  size_t peak_bytes() const override { return peak_; }
  void reset_peak() override { peak_ = in_use_; }

 private:
  using Kernel = void (DeviceBackend::*)(const OpCall&);

  // Memory that the device writes, and what the host does with it when all is complete.
  struct Pending {
    void* memory;
    size_t bytes;
    std::function<void(const void* copy)> finish;
  };
  void* pend(size_t bytes, std::function<void(const void*)> finish) {
    void* const memory = allocate(bytes);
    machine_.clear(memory, bytes);
    pending_.push_back({memory, bytes, std::move(finish)});
    return memory;
  }
  void forget_pending() {
    for (const Pending& pending : pending_) release(pending.memory, pending.bytes);
    pending_.clear();
  }

  // Until the calls that are submitted so far have run.
  class Scratch {
   public:
    Scratch(DeviceBackend& backend, size_t bytes) : backend_(backend), bytes_(bytes), memory_(backend.allocate(bytes)) {}
    ~Scratch() { backend_.release(memory_, bytes_); }
    Scratch(const Scratch&) = delete;
    template <typename T>
    T* as() const {
      return static_cast<T*>(memory_);
    }

   private:
    DeviceBackend& backend_;
    size_t bytes_;
    void* memory_;
  };

  template <class... R>
  void add_row_ops(lanes::RowOpList<R...>) {
    (kernels_.emplace(R::kName, &DeviceBackend::row_op<R>), ...);
  }

  template <class... F>
  void add_formulas(lanes::FormulaList<F...>) {
    static_assert(((F::kInputs <= kMaxInputs) && ...));
    (kernels_.emplace(F::kName, &DeviceBackend::elementwise<F>), ...);
  }

  template <class F>
  void elementwise(const OpCall& call) {
    if (!is_float(call.outputs[0].dtype)) return integers<F>(call);
    Elementwise<F> kernel{F(*call.attributes), elementwise_tensors(call)};
    launch(kernel, kernel.tensors.output, record_of(call, 0));
    sample(call, 0);
  }

  template <class F>
  void integers(const OpCall& call) {
    if constexpr (std::is_base_of_v<lanes::Copy, F> || std::is_same_v<F, lanes::Fill>) {
      const TensorView& view = call.outputs[0];
      const Input input = F::kInputs == 0 ? Input{} : input_of(call.inputs[0]);
      ElementwiseIntegers<F> kernel{F(*call.attributes),     input,  view.data, view.dtype, view.size(),
                                    input_of(view).elements, nullptr};
      if (OutputRecord* const record = record_of(call, 0); record != nullptr && record->wanted != StatisticsLevel::none) {
        void* const zeros = pend(sizeof(uint64_t), [record, size = kernel.size](const void* copy) {
          fill_in_integers(*record, size, *static_cast<const uint64_t*>(copy));
        });
        kernel.zeros = static_cast<uint64_t*>(zeros);
      }
      if (kernel.size > 0) machine_.launch(grid_over(kernel.size), kernel);
      survey(call, 0);
    } else {
      throw usage_error("{}: no kernel of {} gives {}", call.op, name(), info(call.outputs[0].dtype).name);
    }
  }

  void dropout(const OpCall& call) {
    DropOut kernel{Dropout(*call.attributes), elementwise_tensors(call)};
    launch(kernel, kernel.tensors.output, record_of(call, 0));
    sample(call, 0);
  }

  template <class R>
  void row_op(const OpCall& call) {
    RowKernel<R> kernel{R(*call.attributes), row_tensors(call, R::kInputs, R::kOutputs)};
    RowTensors& tensors = kernel.tensors;
    if (tensors.rows * tensors.n == 0) return put_zeros(call);
    const Grid grid = grid_of(tensors);
    const Scratch scratch(*this, sizeof(float) * static_cast<size_t>(grid.blocks * tensors.scratch_of_block));
    tensors.scratch = scratch.template as<float>();
    std::deque<Scratch> wide;
    for (size_t slot = 0; slot < call.outputs.size(); ++slot) tensors.outputs[slot].values = wide_output(call, slot, wide);
    machine_.launch(grid, kernel);
    for (size_t slot = 0; slot < call.outputs.size(); ++slot) put(call, slot, tensors.outputs[slot].values);
  }
  template <class Op>
  void reduce(const OpCall& call, const Op& op) {
    Reduction<Op> kernel{op, reduction_tensors(call)};
    std::deque<Scratch> wide;
    for (size_t slot = 0; slot < call.outputs.size(); ++slot) kernel.tensors.values[slot] = wide_output(call, slot, wide);
    if (kernel.tensors.outputs > 0) machine_.launch(grid_of(kernel.tensors), kernel);
    for (size_t slot = 0; slot < call.outputs.size(); ++slot) put(call, slot, kernel.tensors.values[slot]);
  }
  void sum(const OpCall& call) { reduce(call, SumOfTerms{false}); }
  void mean(const OpCall& call) { reduce(call, SumOfTerms{true}); }
  void variance(const OpCall& call) { reduce(call, VarianceOfTerms{call.attribute("correction")}); }
  void largest(const OpCall& call) { reduce(call, LargestOfTerms()); }
  void norm(const OpCall& call) { reduce(call, NormOfTerms()); }

  // Where a kernel leaves the FP32 values of an output in logical order: where they are stored, or in scratch.
  float* wide_output(const OpCall& call, size_t slot, std::deque<Scratch>& scratch) {
    if (float* const stored = stored_values(call, static_cast<int>(slot))) return stored;
    return scratch.emplace_back(*this, sizeof(float) * static_cast<size_t>(call.outputs[slot].size())).template as<float>();
  }

  // Of rows without values come zeros, where anything does.
  void put_zeros(const OpCall& call) {
    for (size_t slot = 0; slot < call.outputs.size(); ++slot) {
      Elementwise<lanes::Fill> kernel{{}, {{}, output_of(call, static_cast<int>(slot))}};
      launch(kernel, kernel.tensors.output, record_of(call, slot));
      sample(call, slot);
    }
  }

  // Output `slot` from FP32 values in logical order, which may be where they are to be stored.
  void put(const OpCall& call, size_t slot, const void* values) {
    TensorView wide = contiguous(call.outputs[slot]);
    wide.data = const_cast<void*>(values);
    wide.dtype = DType::f32;
    Elementwise<lanes::Copy> kernel{{}, {{input_of(wide, call.outputs[slot])}, output_of(call, static_cast<int>(slot))}};
    launch(kernel, kernel.tensors.output, record_of(call, slot), values == call.outputs[slot].data);
    sample(call, slot);
  }

  // Nothing to compute: the output is there.
  void source(const OpCall& call) {
    OutputRecord* const record = record_of(call, 0);
    if (record == nullptr) return;
    const TensorView& view = call.outputs[0];
    const FloatFormat* format = info(view.dtype).format;
    if (record->wanted != StatisticsLevel::none) {
      count_stored(view, *record, is_dense(view) && is_narrow(*format) ? format : nullptr,
                   [record](const Output& output, const void* counts) { fill_in(*record, output, counts); });
    }
    survey(call, 0);
  }

  // What a record asks for of an output that is stored.
  void survey(const OpCall& call, size_t slot) {
    OutputRecord* const record = record_of(call, slot);
    if (record != nullptr && record->fingerprint.wanted) sum_bits(call.outputs[slot], record->fingerprint);
    sample(call, slot);
  }

  static OutputRecord* record_of(const OpCall& call, size_t slot) { return call.records.empty() ? nullptr : call.records[slot]; }

  // `is_stored`: it is to be counted only.
  template <class K>
  void launch(K& kernel, Output& output, OutputRecord* record, bool is_stored = false) {
    if (record != nullptr && (record->wanted != StatisticsLevel::none || record->fingerprint.wanted)) {
      void* const counts = pend(counts_bytes(output), [record, output](const void* copy) { fill_in(*record, output, copy); });
      count_into(output, counts);
    }
    if (is_stored) output.data = nullptr;
    const bool has_work = output.data != nullptr || output.counts != nullptr;
    if (output.size > 0 && has_work) machine_.launch(grid_of(output), kernel);
  }

  // Counts a tensor as it is stored: finish(output, counts) when all is complete.
  template <typename Finish>
  void count_stored(const TensorView& view, const OutputRecord& record, const FloatFormat* rounded_to, Finish finish) {
    const TensorView order = is_dense(view) ? view : contiguous(view);
    Elementwise<lanes::Copy> kernel{{}, {{input_of(view, order)}, counted_output(order, record, rounded_to)}};
    Output& output = kernel.tensors.output;
    count_into(output, pend(counts_bytes(output), [finish, output](const void* copy) { finish(output, copy); }));
    if (output.size > 0) machine_.launch(grid_of(output), kernel);
  }

  // What the call reads as zero of the input that loses most so, for its records.
  void count_flushed(const OpCall& call) {
    std::vector<OutputRecord*> records;
    for (OutputRecord* record : call.records)
      if (record != nullptr && record->wanted != StatisticsLevel::none) records.push_back(record);
    if (records.empty() || call.arithmetic == nullptr) return;
    for (OutputRecord* record : records) record->input = {};
    for (const TensorView& view : call.inputs) {
      if (!flushes_input(call, view)) continue;
      OutputRecord stored;
      stored.wanted = StatisticsLevel::values;
      count_stored(view, stored, nullptr, [records, format = info(view.dtype).format](const Output& output, const void* counts) {
        OutputRecord counted;
        fill_in(counted, output, counts);
        const InputFlushCounts flushed = flush_counts(*format, counted.statistics);
        for (OutputRecord* record : records)
          if (lost_more(flushed, record->input)) record->input = flushed;
      });
    }
  }

  void sum_bits(const TensorView& repeated, Fingerprint& fingerprint) {
    const TensorView view = without_repeats(repeated);
    const int64_t size = view.size();
    void* const sum = pend(sizeof(uint64_t), [&fingerprint](const void* copy) {
      fingerprint = {true, true, *static_cast<const uint64_t*>(copy)};
    });
    if (size > 0) machine_.launch(grid_over(size), SumBits{input_of(view), size, static_cast<uint64_t*>(sum)});
  }

  void sample(const OpCall& call, size_t slot) {
    OutputRecord* const record = record_of(call, slot);
    const TensorView& view = call.outputs[slot];
    if (record == nullptr || record->samples_wanted == 0) return;
    const int64_t size = view.size();
    const int count = samples_of(*record, size);
    void* const values = pend(sizeof(double) * OutputRecord::kMaxSamples,
                              [record, size](const void* copy) { fill_in_samples(*record, size, copy); });
    if (count > 0) machine_.launch(Grid{}, TakeSamples{input_of(view), size, count, static_cast<double*>(values)});
  }

  Machine machine_;
  std::unordered_map<std::string_view, Kernel> kernels_;
  std::vector<Pending> pending_;
  size_t in_use_ = 0, peak_ = 0;
};

}  // namespace ulpscope::device
