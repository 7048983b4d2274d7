// What a training step does to gradients and weights, in place, in one pass by blocks.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <optional>
#include <type_traits>

#include "ulpscope/kernels/cpu/block_output.h"
#include "ulpscope/kernels/cpu/parallel.h"
#include "ulpscope/kernels/cpu/reader.h"
#include "ulpscope/kernels/cpu/update_kernels.h"
#include "ulpscope/kernels/fingerprint.h"
#include "ulpscope/kernels/output_rounding.h"
#include "ulpscope/kernels/plain/plain.h"
#include "ulpscope/kernels/updates.h"

namespace ulpscope::cpu {
namespace {

void unscale(Context& context, const OpCall& call) {
  const TensorView& g = call.inputs[0];
  if (!same_layout(g, call.outputs[0])) return run_plain(call);
  const auto factor = static_cast<float>(call.attribute("inverse_scale"));
  const Reader reader(g, call.outputs[0]);
  BlockOutput out(context, call, 0);
  std::atomic<bool> nonfinite = false;
  parallel_for(context, blocks_of(out.size(), kStatisticsBlock), out.size() >= kParallelElements, [&](int64_t block) {
    const int64_t begin = block * kStatisticsBlock, n = std::min(kStatisticsBlock, out.size() - begin);
    alignas(64) float wide[kStatisticsBlock];
    float* to = out.place(begin) != nullptr ? out.place(begin) : wide;
    if (unscale_block(reader.read(begin, n, wide), factor, to, n)) nonfinite.store(true, std::memory_order_relaxed);
    out.put(begin, to, n);
  });
  out.finish();
  if (nonfinite) *call.outputs[1].as<float>() = 1;
  record_stored(call, 1);
}

constexpr int kMostStates = lanes::Updates::kMostStates;

template <class Rule>
DecayTerm decay_term(const Attributes& attributes) {
  const Rule rule(attributes);
  return {rule.adds_decay(), lanes::adds_some_decay(rule)};
}

// What became of an update whose weights are rounded as the call's arithmetic says, and by whoever gave the call FP32 outputs:
// the kernel knows other roundings only. Replaces what it said of them.
void count_rounded(const OutputRounding& rounding, DType stored, const float* old, const UpdateBlock& block, int64_t first,
                   bool with_decay, UpdateTotals& totals) {
  alignas(64) std::array<std::byte, kStatisticsBlock * sizeof(float)> elements;  // of any type up to FP32
  alignas(64) std::array<float, kStatisticsBlock> weights, others;
  const auto round = [&](const float* values, float* rounded) {
    rounding.round(values, first, block.n, elements.data());
    widen_run(elements.data(), stored, 0, 1, block.n, rounded);
  };
  round(block.weight, weights.data());
  totals.counts.lost = totals.counts.lost_to_decay = 0;
  for (int64_t i = 0; i < block.n; ++i) {
    const bool lost = block.d[i] != 0 && weights[static_cast<size_t>(i)] == old[i];
    totals.counts.lost += lost;
    totals.counts.lost_to_decay += lost && block.gradient_share[i] == 0;
  }
  if (!with_decay) return;
  round(block.without_decay, others.data());
  auto& lanes = totals.sums.lanes[UpdateSums::decay_applied];
  std::fill(std::begin(lanes), std::end(lanes), 0.0);
  for (size_t i = 0; i < static_cast<size_t>(block.n); ++i)
    lanes[i % kSumLanes] += lanes::sign_of(block.decay[i]) * (static_cast<double>(weights[i]) - static_cast<double>(others[i]));
}

// The fingerprints of what an update reads and overwrites, and of what it writes, taken by blocks, which are in cache.
class UpdateFingerprints {
 public:
  // Those of a call whose arithmetic flushes or rounds apart are taken of the whole tensors, before it and after it.
  UpdateFingerprints(const OpCall& call, int slots) {
    if (call.arithmetic != nullptr) return;
    for (size_t input = 0; input < call.input_fingerprints.size(); ++input)
      if (Fingerprint* const to = call.input_fingerprints[input]; to->wanted) read_.add(*to, call.inputs[input]);
    for (size_t slot = 0; !call.records.empty() && slot < static_cast<size_t>(slots); ++slot)
      if (OutputRecord* const record = call.records[slot]; record != nullptr && record->fingerprint.wanted)
        written_.add(record->fingerprint, call.outputs[slot]);
  }

  // Of a block: before the kernel, and after it when all is stored.
  void before(int64_t begin, int64_t n) { read_.take(begin, n); }
  void after(int64_t begin, int64_t n) { written_.take(begin, n); }
  void finish() {
    read_.finish();
    written_.finish();
  }

 private:
  class All {
   public:
    void add(Fingerprint& to, const TensorView& view) {
      One& one = ones_[count_++];
      one.to = &to;
      one.data = view.as<const char>();
      one.element_bytes = info(view.dtype).size;
    }
    void take(int64_t begin, int64_t n) {
      for (size_t i = 0; i < count_; ++i) {
        const char* const elements = ones_[i].data + begin * static_cast<int64_t>(ones_[i].element_bytes);
        ones_[i].sum.fetch_add(fingerprint_of(elements, n, ones_[i].element_bytes), std::memory_order_relaxed);
      }
    }
    void finish() {
      for (size_t i = 0; i < count_; ++i) *ones_[i].to = {true, true, ones_[i].sum};
    }

   private:
    struct One {
      Fingerprint* to = nullptr;
      const char* data = nullptr;
      size_t element_bytes = 0;
      std::atomic<uint64_t> sum = 0;
    };
    std::array<One, kMostStates + 2> ones_;  // as many as there are inputs
    size_t count_ = 0;
  };

  All read_, written_;
};

// UpdateCounters to which many threads add.
struct CountersOfThreads {
  void add(const UpdateCounters& more) {
    const auto count = [](std::atomic<uint64_t>& to, uint64_t n) { to.fetch_add(n, std::memory_order_relaxed); };
    count(nonzero, more.nonzero);
    count(lost, more.lost);
    count(lost_to_decay, more.lost_to_decay);
    count(nan, more.nan);
    count(positive_infinity, more.positive_infinity);
    count(negative_infinity, more.negative_infinity);
  }
  UpdateTallies tallies() const { return {nonzero, lost, lost_to_decay}; }
  // The record of `size` updates at level health. A NaN is not zero.
  void describe(OutputRecord& record, int64_t size) const {
    record.clear();
    record.known = StatisticsLevel::health;
    record.statistics.count = static_cast<uint64_t>(size);
    record.statistics.nan = nan;
    record.statistics.positive_infinity = positive_infinity;
    record.statistics.negative_infinity = negative_infinity;
    record.statistics.zeros = static_cast<uint64_t>(size) - nonzero;
  }

  std::atomic<uint64_t> nonzero = 0, lost = 0, lost_to_decay = 0, nan = 0, positive_infinity = 0, negative_infinity = 0;
};

// Inputs w, g and the states; outputs w, the states, d; dense and laid out alike.
void update(Context& context, const OpCall& call, int index, DecayTerm decay) {
  const auto states = static_cast<int>(call.inputs.size()) - 2;
  const TensorView& weight = call.outputs[0];
  for (const TensorView& view : call.inputs) {
    if (!is_dense(view) || !same_layout(view, weight)) return run_plain(call);
  }
  const TensorView& d_view = call.outputs[static_cast<size_t>(states) + 1];
  if (d_view.data != nullptr && !same_layout(d_view, weight)) return run_plain(call);
  OutputRecord* record = wanted_record(call, states + 1);
  const bool with_update = record != nullptr || d_view.data != nullptr;
  const bool stepwise = weight.dtype != DType::f32 && call.attributes->value_or("stepwise", 0) != 0;
  const OutputRounding rounding(call, 0, call.inputs[0].dtype);
  const bool recounted = record != nullptr && rounding.is_special();
  // At level health the kernel counts all that is wanted of d, which then is not even stored.
  const bool counted = record != nullptr && record->wanted == StatisticsLevel::health && d_view.data == nullptr && !recounted;
  const UpdateKernel kernel = update_kernel(index, weight.dtype, stepwise);
  UpdateFingerprints fingerprints(call, states + 1);

  std::optional<BlockOutput> outputs[kMostStates + 2];  // the last is d
  std::optional<StepwiseOutput> stepwise_outputs[kMostStates + 1];
  Reader readers[kMostStates + 1];
  bool in_place = true, wide = false;
  for (int slot = 0; slot <= states; ++slot) {
    readers[slot] = Reader(call.inputs[slot == 0 ? 0 : static_cast<size_t>(slot) + 1], weight);
    if (stepwise) {
      wide = stepwise_outputs[slot].emplace(call, slot).recorded() || wide;
    } else {
      outputs[slot].emplace(context, call, slot);
    }
    in_place = in_place && call.outputs[slot].dtype == DType::f32;
  }
  const Reader gradients(call.inputs[1], weight);
  if (with_update && !counted) outputs[states + 1].emplace(context, call, states + 1);

  const int64_t size = weight.size(), blocks = blocks_of(size, kStatisticsBlock);
  const bool parallel = size >= kParallelElements / 2;
  // Of a block: d, the gradient, and the weight and states, as they become and without roundings; the old weight, the gradient's
  // share of d, the decay, and the weight without it.
  const int buffered = 2 + (in_place ? 0 : states + 1) + (wide ? states + 1 : 0) + (recounted ? 4 : 0);
  const ThreadScratch buffers(context.allocator, parallel ? context.threads : 1, bytes_of(buffered * kStatisticsBlock));
  const Scratch block_sums(context.allocator, static_cast<size_t>(blocks * UpdateSums::kSums) * sizeof(double));
  CountersOfThreads counts;
  parallel_for(context, blocks, parallel, [&](int64_t block) {
    const int64_t begin = block * kStatisticsBlock, n = std::min(kStatisticsBlock, size - begin);
    float* const first_buffer = buffers.of(parallel ? omp_get_thread_num() : 0);
    float *d = with_update && !counted ? first_buffer : nullptr, *buffer = first_buffer + kStatisticsBlock;
    const float* gradient = gradients.read(begin, n, buffer);
    float *places[kMostStates + 1] = {}, *wide_places[kMostStates + 1] = {};
    for (int slot = 0; slot <= states; ++slot) {
      places[slot] = stepwise ? nullptr : outputs[slot]->place(begin);
      if (places[slot] == nullptr) {
        places[slot] = buffer += kStatisticsBlock;
        readers[slot].read(begin, n, places[slot]);
      }
    }
    if (wide) {
      for (int slot = 0; slot <= states; ++slot) wide_places[slot] = buffer += kStatisticsBlock;
    }
    float* old = nullptr;
    UpdateBlock of_block{places[0], gradient, places + 1, d, n, wide ? wide_places : nullptr};
    if (recounted) {
      old = buffer += kStatisticsBlock;
      std::copy_n(places[0], n, old);
      of_block.gradient_share = buffer += kStatisticsBlock;
      of_block.decay = buffer += kStatisticsBlock;
      of_block.without_decay = buffer += kStatisticsBlock;
    }
    UpdateTotals totals;
    fingerprints.before(begin, n);
    kernel(*call.attributes, of_block, record != nullptr ? &totals : nullptr);
    if (recounted) count_rounded(rounding, call.inputs[0].dtype, old, of_block, begin, decay.is_some, totals);
    for (int slot = 0; slot <= states; ++slot) {
      if (stepwise) {
        stepwise_outputs[slot]->put(block, places[slot], wide_places[slot], n);
      } else {
        outputs[slot]->put(begin, places[slot], n);
      }
    }
    fingerprints.after(begin, n);
    if (d != nullptr) outputs[states + 1]->put(begin, d, n);
    if (record == nullptr) return;
    counts.add(totals.counts);
    for (int sum = 0; sum < UpdateSums::kSums; ++sum) {
      add_lanes(totals.sums.lanes[sum]);
      block_sums.as<double>()[sum * blocks + block] = totals.sums.lanes[sum][0];
    }
  });
  for (auto& out : stepwise_outputs) {
    if (out) out->finish();
  }
  for (auto& out : outputs) {
    if (out) out->finish();
  }
  fingerprints.finish();
  if (record == nullptr) return;
  if (counted) counts.describe(*record, size);
  describe_update(*record, counts.tallies(), block_sums.as<double>(), blocks, call.attribute("lr"), decay);
}

template <class... U>
void add_updates(lanes::UpdateList<U...>, std::vector<NamedKernel>& kernels) {
  int next = 0;
  const auto kernel = [&]<class Rule>(std::type_identity<Rule>) {
    return [index = next++](Context& context, const OpCall& call) {
      update(context, call, index, decay_term<Rule>(*call.attributes));
    };
  };
  (kernels.push_back({U::kName, kernel(std::type_identity<U>()), true}), ...);
}

}  // namespace

std::vector<NamedKernel> training_ops() {
  std::vector<NamedKernel> kernels{{"unscale", unscale}};
  add_updates(lanes::Updates{}, kernels);
  return kernels;
}

}  // namespace ulpscope::cpu
