// What the ops of a device are made of: memory, launches, and the records and fingerprints that come back when all is complete.
//
// A Machine has
//
//   name(), description()                     as a Backend's
//   allocate(bytes), release(memory, bytes)   memory of its own, 64-byte aligned
//   clear(memory, bytes)                      all bits zero
//   to_host(from, to, bytes), from_host(from, to, bytes)
//   wait()                                    until all that was asked for is done; to_host() waits, too
//   launch(grid, kernel)                      kernel(block) on every thread; kernels are copied
//   multiply(gemm)                            gemm.h
//   library_products()                        a Backend's, of multiply()
//   multiplies_fp8()                          whether multiply() takes FP8
//   gpu()                                     whose matrix units it has, as tensor_core_gpus() names it, or ""
//   has(instruction)                          whether its blocks multiply_add so (block.h)
//   workspace_bytes()                         for what is computed in parts
//
// all in the order in which they are asked for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/kernels/device/call.h"
#include "ulpscope/kernels/device/elementwise.h"
#include "ulpscope/kernels/device/survey.h"
#include "ulpscope/kernels/fingerprint.h"
#include "ulpscope/kernels/formulas.h"
#include "ulpscope/kernels/output_rounding.h"

namespace ulpscope::device {

template <class Machine>
class Launcher {
 public:
  explicit Launcher(Machine machine) : machine_(std::move(machine)) {}
  Launcher(const Launcher&) = delete;
  ~Launcher() { forget_pending(); }

  Machine& machine() { return machine_; }
  const Machine& machine() const { return machine_; }

  void* allocate(size_t bytes) {
    void* const memory = machine_.allocate(bytes);
    in_use_ += bytes;
    peak_ = std::max(peak_, in_use_);
    return memory;
  }
  void release(void* memory, size_t bytes) {
    in_use_ -= bytes;
    machine_.release(memory, bytes);
  }
  size_t in_use() const { return in_use_; }
  size_t peak() const { return peak_; }
  void reset_peak() { peak_ = in_use_; }

  // Until the calls that are submitted so far have run.
  class Scratch {
   public:
    Scratch(Launcher& launcher, size_t bytes) : launcher_(launcher), bytes_(bytes), memory_(launcher.allocate(bytes)) {}
    ~Scratch() { launcher_.release(memory_, bytes_); }
    Scratch(const Scratch&) = delete;
    template <typename T>
    T* as() const {
      return static_cast<T*>(memory_);
    }

   private:
    Launcher& launcher_;
    size_t bytes_;
    void* memory_;
  };

  // Memory of the device that is zero at first, 64-byte aligned; finish(copy) gets what kernels left there, when all is complete.
  void* pend(size_t bytes, std::function<void(const void*)> finish) {
    constexpr size_t kAlignment = 64, kChunkBytes = 256 << 10;
    const size_t taken = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
    if (chunks_.empty() || chunks_.back().bytes - chunks_.back().used < taken) {
      const size_t all = std::max(taken, kChunkBytes);
      auto* const added = static_cast<std::byte*>(allocate(all));
      chunks_.push_back({added, all});
      machine_.clear(added, all);
    }
    Chunk& chunk = chunks_.back();
    void* const memory = chunk.memory + chunk.used;
    chunk.pending.push_back({chunk.used, std::move(finish)});
    chunk.used += taken;
    return memory;
  }
  // Waits, and finishes what was pended. Throws the first Error that one of them threw, after all.
  void complete() {
    std::exception_ptr error;
    if (chunks_.empty()) machine_.wait();
    for (const Chunk& chunk : chunks_) {
      std::vector<std::byte> copy(chunk.used);
      machine_.to_host(chunk.memory, copy.data(), chunk.used);
      for (const Pending& pending : chunk.pending) {
        try {
          pending.finish(copy.data() + pending.offset);
        } catch (const Error&) {
          if (error == nullptr) error = std::current_exception();
        }
      }
    }
    forget_pending();
    if (error != nullptr) std::rethrow_exception(error);
  }

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

  // What a record asks for of an output that is stored.
  void survey(const OpCall& call, size_t slot) {
    OutputRecord* const record = record_of(call, slot);
    if (record != nullptr && record->fingerprint.wanted) sum_bits(call.outputs[slot], record->fingerprint);
    sample(call, slot);
  }

  static OutputRecord* record_of(const OpCall& call, size_t slot) { return call.records.empty() ? nullptr : call.records[slot]; }

  // Has an output counted, where its record asks for that.
  void count(Output& output, OutputRecord* record) {
    if (record == nullptr || (record->wanted == StatisticsLevel::none && !record->fingerprint.wanted)) return;
    count_into(output, pend(counts_bytes(output), [record, output](const void* copy) { fill_in(*record, output, copy); }));
  }

  // `is_stored`: it is to be counted only.
  template <class K>
  void launch(K& kernel, Output& output, OutputRecord* record, bool is_stored = false) {
    count(output, record);
    if (is_stored) output.data = nullptr;
    const bool has_work = output.data != nullptr || output.counts != nullptr;
    if (output.size > 0 && has_work) machine_.launch(grid_of(output), kernel);
  }

  // Counts a tensor as it is stored: finish(output, counts) when all is complete.
  template <typename Finish>
  void count_stored(const TensorView& view, const OutputRecord& record, const FloatFormat* rounded_to, Finish finish) {
    const TensorView order = is_dense(view) ? view : contiguous(view);
    CountStored kernel{input_of(view, order), counted_output(order, record, rounded_to)};
    Output& output = kernel.output;
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
      if (!flushes_input(call, view.dtype)) continue;
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

  // Queues the hashes that the records of a submitted call want of its outputs.
  void hash_outputs(const OpCall& call) {
    for (size_t slot = 0; slot < call.records.size(); ++slot) {
      const TensorView& view = call.outputs[slot];
      if (call.records[slot] == nullptr || !call.records[slot]->bits.wanted || view.data == nullptr) continue;
      const int64_t bytes = view.size() * static_cast<int64_t>(info(view.dtype).size);
      void* const total = pend(sizeof(uint64_t), [bytes, &bits = call.records[slot]->bits](const void* copy) {
        bits = {true, true, bit_hash_of_total(*static_cast<const uint64_t*>(copy), bytes)};
      });
      if (bytes > 0)
        machine_.launch(grid_over(view.size()), HashBits{input_of(view, contiguous(view)), bytes, static_cast<uint64_t*>(total)});
    }
  }

  void sample(const OpCall& call, size_t slot) {
    OutputRecord* const record = record_of(call, slot);
    const TensorView& view = call.outputs[slot];
    if (record == nullptr || record->samples_wanted == 0 || view.data == nullptr) return;
    const int64_t size = view.size();
    const int count = samples_of(*record, size);
    void* const values = pend(sizeof(double) * OutputRecord::kMaxSamples,
                              [record, size](const void* copy) { fill_in_samples(*record, size, copy); });
    if (count > 0) machine_.launch(Grid{}, TakeSamples{input_of(view), size, count, static_cast<double*>(values)});
  }

 private:
  // What the host does with what lies at an offset, when all is complete.
  struct Pending {
    size_t offset;
    std::function<void(const void* copy)> finish;
  };
  // Memory that kernels count into: cleared at once and copied back at once.
  struct Chunk {
    std::byte* memory;
    size_t bytes, used = 0;
    std::vector<Pending> pending = {};
  };
  void forget_pending() {
    for (const Chunk& chunk : chunks_) release(chunk.memory, chunk.bytes);
    chunks_.clear();
  }

  Machine machine_;
  std::vector<Chunk> chunks_;
  size_t in_use_ = 0, peak_ = 0;
};

}  // namespace ulpscope::device
