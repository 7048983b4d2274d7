// Ids of ops: the same in every step, precision and run of an experiment. An id comes from the phase, the module path (of an op of
// backward: the id of its forward op), the op's name and how often that op was called there in this pass.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ulpscope/base/hash.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

// Counts the calls of one op in one module within one forward pass: what makes ids stable.
class CallCounters {
 public:
  // A question and its answer.
  struct Call {
    uint64_t key;
    uint32_t count;
  };
  CallCounters();
  // Counters that answer these calls, in their order, as they were answered.
  explicit CallCounters(std::span<const Call> calls);

  // How often `key` was asked for since the last reset, before this time.
  uint32_t next(uint64_t key);
  // The last answer about `key` does not count.
  void take_back(uint64_t key) { --count_of(key); }
  void reset() { ++generation_; }

  // Notes every call within its lifetime; those within another's belong to both.
  class Notes {
   public:
    Notes(CallCounters& counters, std::vector<Call>& calls) : counters_(counters), outer_(std::exchange(counters.noted_, &calls)) {}
    ~Notes();
    Notes(const Notes&) = delete;

   private:
    CallCounters& counters_;
    std::vector<Call>* outer_;
  };

 private:
  struct Entry {
    uint64_t key = 0;
    uint32_t generation = 0;
    uint32_t count = 0;
  };
  uint32_t& count_of(uint64_t key);
  void grow();
  std::vector<Entry> entries_;  // open addressing, a power of two
  uint32_t generation_ = 1;
  uint32_t used_ = 0;
  std::vector<Call>* noted_ = nullptr;
};

constexpr uint64_t op_key(Phase phase, uint64_t place, uint64_t op) {
  constexpr uint64_t kPhaseSalt = hash_text("phase");
  return hash_combine(hash_combine(hash_combine(kPhaseSalt, static_cast<uint64_t>(phase)), place), op);
}
// The next id of an op with the name's hash `op`, called in `place`: the id of its forward op, or the module path's hash.
inline uint64_t next_op_id(CallCounters& counters, Phase phase, uint64_t place, uint64_t op) {
  const uint64_t key = op_key(phase, place, op);
  return hash_combine(key, counters.next(key));
}
// As if next_op_id had not been asked.
inline void take_back_op_id(CallCounters& counters, Phase phase, uint64_t place, uint64_t op) {
  counters.take_back(op_key(phase, place, op));
}

}  // namespace ulpscope
