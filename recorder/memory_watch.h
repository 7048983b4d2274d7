// Watches the memory of weights and optimizer states: their fingerprints where they are written, compared with those where they are
// next read. Of each written value the first read in a step is checked, and a change is told once: what was found is believed from
// then on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ulpscope/recorder/identity.h"

namespace ulpscope {

class MemoryWatch {
  struct Sum;

 public:
  // The trace outlives it.
  explicit MemoryWatch(TraceSink& sink) : sink_(sink) {}

  // The fingerprints that were asked for in a pass. Passes end in the order in which they began.
  class Pass {
   public:
    // How many rows end_pass would write.
    uint64_t rows() const { return rows_; }

   private:
    friend class MemoryWatch;
    std::vector<Sum> sums_;  // in order of execution
    uint64_t rows_ = 0;      // of them
  };

  // Asks for the fingerprints that are wanted of an op: `inputs` has one for each input, or none.
  void before(const OpDescription& op, uint32_t entry, const OpTable& ops, uint64_t step, std::span<OutputRecord* const> outputs,
              std::span<Fingerprint* const> inputs, Pass& pass);
  // Those of the pass are known: compares them, and writes events and, where `rows`, rows. The pass is empty then.
  void end_pass(Pass& pass, const OpTable& ops, uint64_t step, bool rows);
  // Without a word. What was written in it is not known.
  void forget(Pass& pass);

 private:
  // The memory at an address.
  struct Place {
    ValueKey value;
    int64_t elements = 0;
    uint64_t checked = kNever;  // the step in which a read of `value` was checked
    // What was written last, as far as it is known.
    bool known = false;
    uint64_t sum = 0;
    uint64_t step = 0;
    uint32_t writer = 0;  // entry of the op
    uint32_t tensor = 0;  // index in the trace's tensor table
    uint32_t micro_batch = 0;
    uint8_t loss_index = 0;
    DType dtype = DType::f32;
  };
  // A fingerprint that was asked for.
  struct Sum {
    const Fingerprint* fingerprint;
    uint32_t place;
    uint32_t entry;   // of the op
    uint32_t tensor;  // that is written, or, of a read, that was written before
    DType dtype;
    uint32_t micro_batch;
    uint8_t loss_index;
    bool is_written;
  };
  static constexpr uint64_t kNever = UINT64_MAX;

  Place& place_of(const void* address, uint32_t& index);
  void say_changed(const Place& place, const Sum& read, uint64_t step, const OpTable& ops);

  TraceSink& sink_;
  std::unordered_map<const void*, uint32_t> by_address_;
  std::vector<Place> places_;
  std::unordered_map<uint32_t, std::string> names_;  // of tensors
  std::unordered_set<std::string> of_models_;        // parameters whose own tensors are narrow
  int events_ = 0;
};

}  // namespace ulpscope
