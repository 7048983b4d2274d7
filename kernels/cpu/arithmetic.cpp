#include "ulpscope/kernels/cpu/arithmetic.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <vector>

#include "ulpscope/kernels/cpu/accumulated_product.h"
#include "ulpscope/kernels/cpu/parallel.h"
#include "ulpscope/kernels/cpu/reader.h"
#include "ulpscope/kernels/output_rounding.h"
#include "ulpscope/kernels/store.h"

namespace ulpscope::cpu {
namespace {

// How many finite nonzero elements a view has, and how many of them are subnormal.
InputFlushCounts count_subnormals(Context& context, const TensorView& view) {
  OutputRecord record;
  record.wanted = StatisticsLevel::values;
  collect_statistics(view, record, [&](int64_t n, const std::function<void(int64_t)>& body) {
    parallel_for(context, n, view.size() >= kParallelElements, body);
  });
  return flush_counts(*info(view.dtype).format, record.statistics);
}

// A call with copies of what has to be flushed or rounded apart.
class ArithmeticCall {
 public:
  ArithmeticCall(Context& context, const OpCall& call)
      : context_(context),
        call_(call),
        inputs_(call.inputs.begin(), call.inputs.end()),
        outputs_(call.outputs.begin(), call.outputs.end()) {}

  void run(const Kernel& kernel) {
    const auto product = accumulated_product(call_);
    flush_inputs();
    for (size_t slot = 0; slot < outputs_.size(); ++slot) redirect(slot, product && slot == 0 && sums_in_double(*product));
    OpCall inner = call_;
    inner.inputs = inputs_;
    inner.outputs = outputs_;
    if (product) {
      multiply_accumulated(context_, inner, *product);
    } else {
      kernel(context_, inner);
    }
    for (size_t slot = 0; slot < outputs_.size(); ++slot) finish(slot);
    for (size_t slot = 0; slot < outputs_.size(); ++slot)
      if (OutputRecord* record = wanted_record(call_, static_cast<int>(slot))) record->input = input_;
  }

 private:
  bool overwrites_input(const TensorView& output) const {
    return std::any_of(call_.inputs.begin(), call_.inputs.end(),
                       [&](const TensorView& input) { return input.data == output.data; });
  }
  bool is_stored(size_t slot) const { return call_.outputs[slot].data != nullptr && is_float(call_.outputs[slot].dtype); }

  // What an output overwrites is flushed where it lies, and everything else in a copy with the same strides.
  void flush_inputs() {
    bool is_recorded = false;
    for (size_t slot = 0; slot < outputs_.size(); ++slot)
      is_recorded = is_recorded || wanted_record(call_, static_cast<int>(slot)) != nullptr;
    for (TensorView& view : inputs_) {
      if (!flushes_input(call_, view.dtype)) continue;
      if (is_recorded) {
        if (const InputFlushCounts counts = count_subnormals(context_, view); lost_more(counts, input_)) input_ = counts;
      }
      const int64_t size = span_of(view);
      const bool in_place = std::any_of(call_.outputs.begin(), call_.outputs.end(),
                                        [&](const TensorView& output) { return output.data == view.data; });
      if (!in_place) {
        const size_t bytes = static_cast<size_t>(size) * info(view.dtype).size;
        void* copy = scratch_.emplace_back(context_.allocator, bytes).as<void>();
        std::copy_n(view.as<const char>(), bytes, static_cast<char*>(copy));
        view.data = copy;
      }
      for_blocks(size, [&](int64_t begin, int64_t n) {
        flush_subnormals(view.dtype, view.as<char>() + begin * static_cast<int64_t>(info(view.dtype).size), n);
      });
    }
  }

  // An output that the kernel would round by itself is computed as FP32, or as FP64, and rounded by finish(). Kernels that update
  // FP32 in place, or a part of it, expect the input's values there. quantize rounds by itself, since its scale depends on the
  // type.
  void redirect(size_t slot, bool in_double) {
    TensorView& view = outputs_[slot];
    const OutputRounding rounding(call_, static_cast<int>(slot), is_float(view.dtype) ? view.dtype : DType::f32);
    if (!is_stored(slot) || is_quantized(view.dtype) || !rounding.is_special() || (view.dtype == DType::f32 && !in_double)) return;
    const TensorView stored = view;
    view.dtype = in_double ? DType::f64 : DType::f32;
    view.data = scratch_.emplace_back(context_.allocator, static_cast<size_t>(view.size()) * info(view.dtype).size).as<void>();
    if (overwrites_input(stored)) read_all(context_, stored, stored, view.as<float>());
  }

  void finish(size_t slot) {
    if (!is_stored(slot)) return;
    const TensorView &wide = outputs_[slot], &stored = call_.outputs[slot];
    const OutputRounding rounding(call_, static_cast<int>(slot), stored.dtype);
    const bool redirected = wide.data != stored.data;
    if (!redirected && !(stored.dtype == DType::f32 && rounding.flushes())) return;
    OutputRecord* record = wanted_record(call_, static_cast<int>(slot));
    RoundingCounts counts;
    std::mutex mutex;
    const auto round = [&]<typename C>(const C* values) {
      for_blocks(stored.size(), [&](int64_t begin, int64_t n) {
        char* elements = stored.as<char>() + begin * static_cast<int64_t>(info(stored.dtype).size);
        const C* of_block = values + begin;
        std::vector<C> kept;  // of a block that is flushed where it lies
        if (record != nullptr && !redirected) {
          kept.assign(of_block, of_block + n);
          of_block = kept.data();
        }
        rounding.round(of_block, begin, n, elements);
        if (record == nullptr) return;
        const RoundingCounts counted = rounding.count(of_block, begin, n, elements, record->scale);
        const std::lock_guard lock(mutex);
        counts.merge(counted);
      });
    };
    if (wide.dtype == DType::f64) {
      round(wide.as<const double>());
    } else {
      round(wide.as<const float>());
    }
    if (record == nullptr) return;
    record->before_rounding = record->rounding_known = true;
    record->rounding.merge(counts);
  }

  // body(begin, n) for blocks of so many elements.
  template <typename Body>
  void for_blocks(int64_t size, Body body) {
    parallel_for(context_, blocks_of(size, kStatisticsBlock), size >= kParallelElements, [&](int64_t block) {
      const int64_t begin = block * kStatisticsBlock;
      body(begin, std::min(kStatisticsBlock, size - begin));
    });
  }

  Context& context_;
  const OpCall& call_;
  std::vector<TensorView> inputs_, outputs_;
  std::deque<Scratch> scratch_;
  InputFlushCounts input_;
};

}  // namespace

void run_with_arithmetic(Context& context, const OpCall& call, const Kernel& kernel) {
  if (only_moves(call.op)) return kernel(context, call);
  check_stepwise(call);
  ArithmeticCall(context, call).run(kernel);
}

}  // namespace ulpscope::cpu
