// What a training step does to gradients and weights, in place, in one pass by blocks.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <optional>

#include "ulpscope/kernels/cpu/block_output.h"
#include "ulpscope/kernels/cpu/parallel.h"
#include "ulpscope/kernels/cpu/reader.h"
#include "ulpscope/kernels/cpu/update_kernels.h"
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

// What became of an update whose weights are rounded as the call's arithmetic says, and by whoever gave the call FP32 outputs:
// the kernel knows other roundings only.
UpdateCounts count_lost(const OutputRounding& rounding, DType stored, const float* old, const UpdateBlock& block, int64_t first) {
  alignas(64) std::array<std::byte, kStatisticsBlock * sizeof(float)> elements;  // of any type up to FP32
  alignas(64) std::array<float, kStatisticsBlock> weights;
  rounding.round(block.weight, first, block.n, elements.data());
  widen_run(elements.data(), stored, 0, 1, block.n, weights.data());
  UpdateCounts counts;
  for (int64_t i = 0; i < block.n; ++i) {
    const bool nonzero = block.d[i] != 0, lost = nonzero && weights[static_cast<size_t>(i)] == old[i];
    counts.nonzero += nonzero;
    counts.lost += lost;
    counts.lost_to_decay += lost && block.gradient_share[i] == 0;
  }
  return counts;
}

// Inputs w, g and the states; outputs w, the states, d; dense and laid out alike.
void update(Context& context, const OpCall& call, int index) {
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
  const UpdateKernel kernel = update_kernel(index, weight.dtype, stepwise);

  std::optional<BlockOutput> outputs[kMostStates + 2];  // the last is d
  std::optional<StepwiseOutput> stepwise_outputs[kMostStates + 1];
  Reader readers[kMostStates + 1];
  bool in_place = true, wide = false;
  for (int slot = 0; slot <= states; ++slot) {
    readers[slot] = Reader(call.inputs[slot == 0 ? 0 : slot + 1], weight);
    if (stepwise) {
      wide = stepwise_outputs[slot].emplace(call, slot).recorded() || wide;
    } else {
      outputs[slot].emplace(context, call, slot);
    }
    in_place = in_place && call.outputs[slot].dtype == DType::f32;
  }
  const Reader gradients(call.inputs[1], weight);
  if (with_update) outputs[states + 1].emplace(context, call, states + 1);

  const int64_t size = weight.size();
  const bool parallel = size >= kParallelElements / 2;
  // Of a block: d, the gradient, and the weight and states, as they become and without roundings; the old weight, and the
  // gradient's share of d.
  const int buffered = 2 + (in_place ? 0 : states + 1) + (wide ? states + 1 : 0) + (recounted ? 2 : 0);
  const ThreadScratch buffers(context.allocator, parallel ? context.threads : 1, bytes_of(buffered * kStatisticsBlock));
  std::atomic<uint64_t> nonzero = 0, lost = 0, lost_to_decay = 0;
  parallel_for(context, blocks_of(size, kStatisticsBlock), parallel, [&](int64_t block) {
    const int64_t begin = block * kStatisticsBlock, n = std::min(kStatisticsBlock, size - begin);
    float *d = buffers.of(parallel ? omp_get_thread_num() : 0), *buffer = d + kStatisticsBlock;
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
    UpdateBlock of_block{places[0], gradient, places + 1, with_update ? d : nullptr, n, wide ? wide_places : nullptr};
    float* old = nullptr;
    if (recounted) {
      old = buffer += kStatisticsBlock;
      std::copy_n(places[0], n, old);
      of_block.gradient_share = buffer += kStatisticsBlock;
    }
    UpdateCounts counts = kernel(*call.attributes, of_block);
    if (recounted) counts = count_lost(rounding, call.inputs[0].dtype, old, of_block, begin);
    for (int slot = 0; slot <= states; ++slot) {
      if (stepwise) {
        stepwise_outputs[slot]->put(block, places[slot], wide_places[slot], n);
      } else {
        outputs[slot]->put(begin, places[slot], n);
      }
    }
    if (!with_update) return;
    outputs[states + 1]->put(begin, d, n);
    nonzero.fetch_add(counts.nonzero, std::memory_order_relaxed);
    lost.fetch_add(counts.lost, std::memory_order_relaxed);
    lost_to_decay.fetch_add(counts.lost_to_decay, std::memory_order_relaxed);
  });
  for (auto& out : stepwise_outputs) {
    if (out) out->finish();
  }
  for (auto& out : outputs) {
    if (out) out->finish();
  }
  if (record == nullptr) return;
  record->update = {nonzero, lost, lost_to_decay};
  record->update_known = true;
}

template <class... U>
void add_updates(lanes::UpdateList<U...>, std::vector<NamedKernel>& kernels) {
  int next = 0;
  const auto kernel = [&] { return [index = next++](Context& context, const OpCall& call) { update(context, call, index); }; };
  (kernels.push_back({U::kName, kernel()}), ...);
}

}  // namespace

std::vector<NamedKernel> training_ops() {
  std::vector<NamedKernel> kernels{{"unscale", unscale}};
  add_updates(lanes::Updates{}, kernels);
  return kernels;
}

}  // namespace ulpscope::cpu
