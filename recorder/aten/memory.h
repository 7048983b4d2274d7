// Which op made what memory holds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ulpscope/recorder/aten/measures.h"
#include "ulpscope/recorder/aten/tensor.h"

namespace ulpscope::aten {

using Name = ulpscope_name;

inline constexpr ulpscope_value kNothing{0, 0};  // in the place of an output that was not recorded
inline bool is_same(const ulpscope_value& a, const ulpscope_value& b) { return a.op == b.op && a.slot == b.slot; }

struct Prepared;
struct Overwritten;

// An output of an op that was recorded, or one that may be told later.
struct Made {
  ulpscope_op op = 0;  // of its step
  ulpscope_value value = {};
  int64_t step = -1;
  Phase phase = Phase::forward;
  Name module = 0;
  OpFunction function = OpFunction::other;
  Role role = Role::activation;
  Name parameter = 0, name = 0;
  double scale = 1;
  std::shared_ptr<Made> source;         // behind a cast: what was cast; behind a scaled loss: the loss
  std::optional<Number> unscaled_loss;  // behind a scaled loss
  std::optional<double> divisor;        // where it is a quotient by a number
  bool has_gradient_of = false;
  uint64_t order = 0;                  // how many were told before it
  int64_t node = -1;                   // of autograd, in which it ran
  Name returned_by = 0;                // the node that a program defined and that handed it on
  uint64_t forward_id = 0;             // of that node
  std::shared_ptr<Prepared> prepared;  // an op outside of any step, where what it made was not finite
  bool is_own_output = false;          // of that op, and not of one that read it
  bool is_sum = false;                 // something was added to it in place
};
using MadePointer = std::shared_ptr<Made>;

// Memory that no recorded op made: constants, and memory that may hold anything.
const MadePointer& constant();
const MadePointer& unmade();
inline bool is_recorded(const MadePointer& made) { return made != nullptr && made->step >= 0; }
// Gradients, and what lives from step to step.
inline bool is_kept(Role role) {
  return is_gradient(role) || role == Role::weight || role == Role::buffer || role == Role::optimizer_state;
}

struct Makers {
  MadePointer last;                 // wrote last
  std::vector<MadePointer> others;  // wrote parts of it
  bool is_complete = false;         // all that it holds has a maker that is known

  // Where the last one is no recorded op, as of a part that is a constant, the one of another part takes its place.
  void prefer_recorded();
};

class Memory {
 public:
  explicit Memory(const ulpscope_aten_adapter& adapter) : adapter_(adapter) {}
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // An op made all that the tensor holds.
  void write(const Tensor& tensor, const MadePointer& made);
  // It holds what several ops made, put together. is_complete: nothing else.
  void join(const Tensor& tensor, std::span<const MadePointer> made, bool is_complete);
  // An op made it that was not recorded.
  void forget(const Tensor& tensor);
  Makers find(const Tensor& tensor) const;
  MadePointer last(const Tensor& tensor) const { return find(tensor).last; }
  MadePointer last_recorded(const Tensor& tensor) const {
    Makers makers = find(tensor);
    makers.prefer_recorded();
    return makers.last;
  }
  // Forgets all memory so.
  void clear();
  // Drops memory that was freed.
  void prune();

 private:
  struct Part {
    Extent extent;
    MadePointer made;
  };
  struct Storage {
    MadePointer whole;
    std::vector<Part> parts;
  };
  ulpscope_aten_adapter adapter_;
  std::unordered_map<uint64_t, Storage> storages_;
};

}  // namespace ulpscope::aten
