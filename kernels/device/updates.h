// Unscaling of gradients, and the updates of optimizers (updates.h of the folder above): a kernel reads each operand once, and all
// outputs leave it through the output path.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "ulpscope/kernels/device/elementwise.h"
#include "ulpscope/kernels/update_sums.h"
#include "ulpscope/kernels/updates.h"

namespace ulpscope::device {

// g times the factor; the flag becomes 1 where an element of g is not finite.
struct Unscale {
  float factor;
  ElementwiseTensors tensors;
  float* flag;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    bool nonfinite = false;
    put_values(block, tensors.output, [&](int64_t i) {
      const float g = read<Block>(tensors.inputs[0], i);
      nonfinite |= !(g - g == 0);
      return g * factor;
    });
    if (block.ballot(nonfinite) != 0 && block.lane() == 0) *flag = 1;
  }
};

// `stored` (updates.h) of a type; FP32 is not rounded.
template <class Block, DType type>
struct RoundedIntermediates {
  static constexpr bool kRounds = type != DType::f32;
  ULPSCOPE_DEVICE float operator()(float value) const {
    if constexpr (type == DType::f16) {
      return Block::from_f16(Block::to_f16(value));
    } else if constexpr (type == DType::bf16) {
      return bf16_to_float(Block::to_bf16(value));
    } else {
      return value;
    }
  }
};

// The lanes of the sums of UpdateSums, between the parts of a tile.
struct SumsOfUpdate {
  using Element = double;
  static constexpr int kSize = (UpdateSums::kSums + 1) * kSumLanes;  // whole warps
  static constexpr const char* kName = "sums of an update";
};

struct UpdateTensors {
  static constexpr int kMostStates = lanes::Updates::kMostStates;
  Input weight, gradient, states[kMostStates];
  int brought;                      // states
  Output outputs[kMostStates + 2];  // the weight, the states, d
  bool has_wide;                    // stepwise, and weight or states are counted
  bool has_decay;                   // some, as a term of its own
  UpdateTallies* tallies;           // nullptr: not counted
  double* sums;                     // for each of UpdateSums those of all tiles
};

// All in place. `rounded`: the type that every operation rounds to, or FP32.
template <class Rule, DType rounded>
struct Update {
  static constexpr int kStates = Rule::kStates, kOutputs = kStates + 2;
  static constexpr bool kRounds = rounded != DType::f32;
  static constexpr int kBlocksAtOnce = 2;  // that share the registers of a multiprocessor: an update and its outputs need many
  // What a part of a tile leaves in shared memory for each of its elements: the outputs, what the sums are of, and weight and
  // states as they are without roundings on the way.
  enum Place { kWeight, kUpdate = kStates + 1, kOld, kGradient, kDecay, kStored, kWithout, kWide };
  static constexpr int kPlaces = kWide + (kRounds ? kStates + 1 : 0);
  static constexpr int kPart = Tile::kSize / kPlaces / kMostThreads * kMostThreads;
  static_assert(kPart > 0 && kPart % kSumLanes == 0);

  Rule rule;
  UpdateTensors tensors;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    const Output& weight = tensors.outputs[0];
    const int64_t tile_begin = block.block() * weight.tile, tile_end = tile_begin + weight.tile;
    const int64_t end = tile_end < weight.size ? tile_end : weight.size;
    Counts counts;
    for (int64_t begin = tile_begin; begin < end; begin += kPart) {
      const int n = static_cast<int>(end - begin < kPart ? end - begin : kPart);
      for (int i = block.thread(); i < n; i += block.threads())
        compute(block, begin, i, counts, std::make_index_sequence<kStates>());
      put_outputs(block, begin, n, std::make_index_sequence<kOutputs>());
      if (tensors.tallies != nullptr) add_up_update(block, n, begin == tile_begin, begin + n == end);
      block.barrier();
    }
    if (tensors.tallies == nullptr) return;
    add(block, counts.nonzero, tensors.tallies->nonzero);
    add(block, counts.lost, tensors.tallies->lost);
    add(block, counts.lost_to_decay, tensors.tallies->lost_to_decay);
  }

 private:
  struct Counts {
    uint32_t nonzero = 0, lost = 0, lost_to_decay = 0;
  };

  template <class Block, size_t... state>
  ULPSCOPE_DEVICE void compute(Block& block, int64_t begin, int i, Counts& counts, std::index_sequence<state...>) const {
    const auto tile = block.template shared<Tile>();
    const auto write = [&](int place, float value) { tile.write(place * kPart + i, value); };
    const int64_t index = begin + i;
    const float w = read<Block>(tensors.weight, index), g = read<Block>(tensors.gradient, index);
    const float old[] = {static_cast<int>(state) < tensors.brought ? read<Block>(tensors.states[state], index) : 0.0F ...};
    if (kRounds && tensors.has_wide) {
      const auto wide = rule(w, g, old, lanes::WideIntermediates());
      write(kWide, wide.weight);
      (write(kWide + 1 + state, wide.state[state]), ...);
    }
    const auto updated = rule(w, g, old, RoundedIntermediates<Block, rounded>());
    write(kWeight, updated.weight);
    (write(kWeight + 1 + state, updated.state[state]), ...);
    write(kUpdate, updated.update);
    if (kRounds && tensors.has_wide) {
      // What became NaN counts as NaN.
      const auto count_as = [&](int place, float value) {
        if (lanes::is_nan(value)) write(place, value);
      };
      count_as(kWide, updated.weight);
      (count_as(kWide + 1 + state, updated.state[state]), ...);
    }
    if (tensors.tallies == nullptr) return;
    const float stored = stored_weight<Block>(index, updated.weight);
    const bool nonzero = !(updated.update == 0), lost = nonzero && stored == w;
    counts.nonzero += nonzero;
    counts.lost += lost;
    counts.lost_to_decay += lost && updated.gradient_share == 0;
    write(kOld, w);
    write(kGradient, g);
    if (!tensors.has_decay) return;
    write(kDecay, updated.decay);
    write(kStored, stored);
    write(kWithout, stored_weight<Block>(index, updated.without_decay));
  }

  // What a new weight is once it is stored. In steps it is rounded already.
  template <class Block>
  ULPSCOPE_DEVICE float stored_weight(int64_t index, float value) const {
    if constexpr (kRounds) return value;
    const Output& output = tensors.outputs[0];
    const uint32_t encoding = encoding_of<Block>(output, index, value);
    if (output.dtype == DType::f16) return Block::from_f16(static_cast<uint16_t>(encoding));
    if (output.dtype == DType::bf16) return bf16_to_float(static_cast<uint16_t>(encoding));
    return std::bit_cast<float>(encoding);
  }

  template <class Block, size_t... number>
  ULPSCOPE_DEVICE void put_outputs(Block& block, int64_t begin, int n, std::index_sequence<number...>) const {
    (put_one(block, tensors.outputs[number], begin, n, static_cast<int>(number)), ...);
  }
  template <class Block>
  ULPSCOPE_DEVICE static void put_one(Block& block, const Output& output, int64_t begin, int n, int number) {
    if (output.data == nullptr && output.counts == nullptr) return;
    const int counted_at = kRounds && number < kUpdate && output.counts != nullptr ? kWide + number : number;
    put_part(block, output, begin, n, number * kPart, counted_at * kPart, number);
  }

  // Behind a barrier: half a warp for each sum.
  template <class Block>
  ULPSCOPE_DEVICE void add_up_update(Block& block, int n, bool is_first, bool is_last) const {
    const auto kept = block.template shared<SumsOfUpdate>();
    for (int pair = block.warp(); 2 * pair < UpdateSums::kSums; pair += block.warps()) {
      const int sum = 2 * pair + block.lane() / kSumLanes, lane = pair * kWarpThreads + block.lane();
      double total = is_first ? 0 : kept.read(lane);
      if (sum < UpdateSums::decay_asked || (tensors.has_decay && sum < UpdateSums::kSums)) {
        for (int i = block.lane() % kSumLanes; i < n; i += kSumLanes) total += term(block, sum, i);
      }
      kept.write(lane, total);
      if (!is_last) continue;
      for (int width = kSumLanes / 2; width > 0; width /= 2) total += shuffle_down(block, total, width);
      if (block.lane() % kSumLanes == 0 && sum < UpdateSums::kSums) tensors.sums[sum * block.blocks() + block.block()] = total;
    }
  }
  template <class Block>
  ULPSCOPE_DEVICE static double term(Block& block, int sum, int i) {
    const auto tile = block.template shared<Tile>();
    const auto at = [&](int place) { return static_cast<double>(tile.read(place * kPart + i)); };
    switch (sum) {
      case UpdateSums::weight_squares:
        return at(kOld) * at(kOld);
      case UpdateSums::update_squares:
        return at(kUpdate) * at(kUpdate);
      case UpdateSums::gradient_dot_update:
        return at(kGradient) * at(kUpdate);
      case UpdateSums::decay_asked:
        return lanes::magnitude(at(kDecay));
      default:
        return lanes::sign_of(at(kDecay)) * (at(kStored) - at(kWithout));
    }
  }

  template <class Block>
  ULPSCOPE_DEVICE static void add(Block& block, uint32_t count, uint64_t& total) {
    const uint32_t of_warp = block.sum(count);
    if (block.lane() == 0 && of_warp > 0) block.add(&total, uint64_t{of_warp});
  }
};

}  // namespace ulpscope::device
