#include "ulpscope/kernels/statistics.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <memory>
#include <optional>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/base/floating_point_mode.h"
#include "ulpscope/emulation/narrow_format.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/statistics_kernel.h"
#include "ulpscope/kernels/statistics_reference.h"
#include "ulpscope/kernels/sum_order.h"

namespace ulpscope {

namespace {

int64_t block_count(int64_t elements) { return (elements + kStatisticsBlock - 1) / kStatisticsBlock; }

// Threads beyond this many share places.
constexpr unsigned kPlaces = 32;

}  // namespace

void OutputRecord::clear() {
  // Most of a record is its histogram, and level health touches nothing but its counts.
  if (known == StatisticsLevel::values) {
    statistics = {};
  } else {
    statistics.health() = {};
  }
  known = StatisticsLevel::none;
  before_rounding = rounding_known = update_known = false;
  quantization_scale = 1.0;
  samples = 0;
  rounding = {};
  input = {};
  update = {};
  fingerprint = {.wanted = fingerprint.wanted};
  bits = {.wanted = bits.wanted};
}

// Counts are integers, so any thread may add them in any order: each has a place of its own. Sums are kept by block.
struct StatisticsCollector::State {
  struct alignas(64) Place {
    std::atomic<bool> taken = false;
    BlockCounts counts;
  };

  StatisticsLevel level;
  std::optional<RoundingThresholds> thresholds;
  CountAndRound count_and_round;
  double scale;
  std::vector<BlockSums> sums;
  std::array<Place, kPlaces> places;
  std::atomic<uint32_t> used;  // a bit for each place: a small tensor touches one

  // The place that the calling thread holds while it counts a block.
  class Hold {
   public:
    explicit Hold(State& state) {
      static std::atomic<unsigned> threads = 0;
      thread_local const unsigned first = threads.fetch_add(1, std::memory_order_relaxed);
      unsigned i = first % kPlaces;
      while (state.places[i].taken.exchange(true, std::memory_order_acquire)) i = (i + 1) % kPlaces;
      place_ = &state.places[i];
      const uint32_t bit = uint32_t{1} << i;
      if (state.used.load(std::memory_order_relaxed) & bit) return;
      if (state.level == StatisticsLevel::values) {
        place_->counts = {};
      } else {  // what level health counts is a small part
        place_->counts.statistics.health() = {};
        place_->counts.rounding = {};
      }
      state.used.fetch_or(bit, std::memory_order_relaxed);
    }
    ~Hold() { place_->taken.store(false, std::memory_order_release); }
    Hold(const Hold&) = delete;
    BlockCounts& counts() { return place_->counts; }

   private:
    Place* place_;
  };

  // States are kept for the next tensor, so that a steady step allocates nothing.
  static std::vector<std::unique_ptr<State>>& spare() {
    thread_local std::vector<std::unique_ptr<State>> states;
    return states;
  }
  static State* take() {
    if (spare().empty()) return new State;
    State* state = spare().back().release();
    spare().pop_back();
    return state;
  }
  static void give_back(State* state) { spare().emplace_back(state); }

  const RoundingThresholds* rounding() const { return thresholds ? &*thresholds : nullptr; }

  void count(int64_t block, const float* values, int64_t n, bool streamed) {
    const FloatingPointMode mode;
    Hold hold(*this);
    const BlockSums block_sums = count_block(values, n, level, rounding(), streamed, hold.counts());
    if (level == StatisticsLevel::values) sums[block] = block_sums;
  }

  void count_health_and_round(const float* values, int64_t n, uint16_t* out) {
    const FloatingPointMode mode;
    Hold hold(*this);
    count_and_round(values, n, *thresholds, out, hold.counts());
  }

  void count(int64_t block, const FloatFormat& stored, const void* encodings, int64_t n) {
    const NarrowFormat& narrow = narrow_format(stored);
    if (level == StatisticsLevel::values || narrow.size != sizeof(uint16_t)) {
      alignas(64) thread_local float wide[kStatisticsBlock];
      narrow.widen_all(encodings, wide, n);
      return count(block, wide, n, false);
    }
    Hold hold(*this);
    count_health(stored, static_cast<const uint16_t*>(encodings), n, hold.counts().statistics);
  }

  // FP64 is for checking, not for training: the plain twin does.
  void count(int64_t block, const double* values, int64_t n, const FloatFormat* format) {
    const FloatingPointMode mode;
    Hold hold(*this);
    const TensorStatistics counted = reference_statistics(values, n);
    TensorStatistics& statistics = hold.counts().statistics;
    if (level == StatisticsLevel::values) {
      statistics.merge(counted);
    } else {
      statistics.health().merge(counted);
    }
    if (format) hold.counts().rounding.merge(reference_rounding(*format, values, n, scale));
    if (level == StatisticsLevel::values) sums[block] = {counted.sum, counted.sum_of_squares};
  }
};

StatisticsCollector::StatisticsCollector(OutputRecord& record, int64_t count, const FloatFormat* format)
    : record_(record), count_(count), format_(format), narrow_(format && is_narrow(*format) ? &narrow_format(*format) : nullptr) {
  if (record.wanted == StatisticsLevel::none) return;
  const FloatingPointMode mode;
  state_ = State::take();
  state_->level = record.wanted;
  state_->scale = record.scale;
  state_->thresholds.reset();
  if (format) state_->thresholds.emplace(*format, record.scale);
  state_->count_and_round = narrow_ ? count_health_and_round(*format) : nullptr;
  if (record.wanted == StatisticsLevel::values) state_->sums.resize(block_count(count));
  state_->used.store(0, std::memory_order_relaxed);
}

StatisticsCollector::~StatisticsCollector() {
  if (state_) State::give_back(state_);
}

void StatisticsCollector::add(int64_t block, const float* values, int64_t n) {
  if (state_) state_->count(block, values, n, block * kStatisticsBlock + n < count_);
}

void StatisticsCollector::add(int64_t block, const double* values, int64_t n) {
  if (state_) state_->count(block, values, n, format_);
}

void StatisticsCollector::add(int64_t block, const FloatFormat& stored, const void* encodings, int64_t n) {
  if (state_) state_->count(block, stored, encodings, n);
}

void StatisticsCollector::add_and_encode(int64_t block, const float* values, int64_t n, void* encodings) {
  if (state_ && state_->level == StatisticsLevel::health && state_->count_and_round != nullptr)
    return state_->count_health_and_round(values, n, static_cast<uint16_t*>(encodings));
  if (state_) state_->count(block, values, n, false);
  narrow_->round_all(values, encodings, n);
}

void StatisticsCollector::add_and_encode(int64_t block, const double* values, int64_t n, void* encodings) {
  add(block, values, n);
  for (int64_t i = 0; i < n; ++i) narrow_->round_at(values[i], encodings, i);
}

void StatisticsCollector::add_and_round(int64_t block, const double* values, int64_t n, float* out) {
  add(block, values, n);
  for (int64_t i = 0; i < n; ++i) out[i] = round_to_f32(values[i]);
}

void StatisticsCollector::finish() {
  if (!state_) return;
  const FloatingPointMode mode;
  const bool is_full = state_->level == StatisticsLevel::values;
  record_.before_rounding = record_.rounding_known = format_ != nullptr;
  BlockCounts* total = nullptr;
  for (uint32_t used = state_->used.load(std::memory_order_relaxed); used != 0; used &= used - 1) {
    BlockCounts& counts = state_->places[std::countr_zero(used)].counts;
    if (total) {
      if (is_full)
        total->statistics.merge(counts.statistics);
      else
        total->statistics.health().merge(counts.statistics.health());
      total->rounding.merge(counts.rounding);
    } else {
      total = &counts;
    }
  }
  if (is_full || record_.known == StatisticsLevel::values)
    record_.statistics = total && is_full ? total->statistics : TensorStatistics();
  if (!is_full) record_.statistics.health() = total ? total->statistics.health() : HealthCounts();
  record_.known = state_->level;
  record_.rounding = total ? total->rounding : RoundingCounts();
  record_.statistics.count = count_;
  if (is_full) {
    std::vector<BlockSums>& sums = state_->sums;
    merge_by_tree(sums.data(), static_cast<int64_t>(sums.size()), [](const BlockSums& a, const BlockSums& b) {
      return BlockSums{a.sum + b.sum, a.sum_of_squares + b.sum_of_squares};
    });
    const BlockSums total_sums = sums.empty() ? BlockSums{} : sums[0];
    record_.statistics.sum = total_sums.sum;
    record_.statistics.sum_of_squares = total_sums.sum_of_squares;
  }
}

}  // namespace ulpscope
