// The op calls of a pass, and how an element of an output came about over several of them. Tensors die as without it; of the last
// ones that died a few stay in memory. A call counts as gone once what it read or wrote holds other values, or is no longer there.
#pragma once

#include <optional>
#include <vector>

#include "ulpscope/core/engine/observer.h"
#include "ulpscope/recorder/recorder.h"

namespace ulpscope {

class CallLog {
 public:
  CallLog() = default;
  ~CallLog() { begin_pass(); }
  CallLog(const CallLog&) = delete;

  // What came before is forgotten. `has_forgotten`: there were calls in this pass that are not added.
  void begin_pass(bool has_forgotten = false);
  // After the call.
  void add(const OpEvent& event);

  // How the first nonfinite element of output `slot` of the last call came about, with the operands of the calls that made its
  // operands, and of those that made these. Casts and copies count for none of the two. At most kMostFollowed elements are followed
  // from each op to the one before, nonfinite ones first, then the term at which a sum broke, then terms and values of the largest
  // magnitude; of each at most kMostOperands operands are kept, of the origin kMostOfOrigin.
  std::vector<CaptureNode> capture(Backend& backend, int slot) const { return capture(backend, calls_.size() - 1, slot); }
  // The same of the call with this id, once other calls have run. Nothing where it is gone.
  std::vector<CaptureNode> capture_earlier(Backend& backend, uint64_t id, int slot) const;

  static constexpr size_t kMostFollowed = 8;
  static constexpr size_t kMostOperands = 16;
  static constexpr size_t kMostOfOrigin = 160;  // 64 pairs of a dot product, and room for a bias and the like
  static constexpr int kMostOpsUp = 2;
  // When there are so many in a pass, what came before is forgotten.
  static constexpr size_t kMostCalls = size_t{1} << 16;
  // Of storages no larger than the first, the last to be read or written stay, together no more than the second: what an op of the
  // backward pass read is else free by the time the next one overflows. More of them would be memory that is no longer in a cache.
  static constexpr size_t kMostBytesOfOne = size_t{1} << 20, kMostBytesKept = size_t{8} << 20;

 private:
  struct LoggedView {
    TensorView view;
    ValueKey value;
    Ref<StorageWatch> watch;  // none: the output has no memory
    uint32_t version = 0;     // of the storage, once the call is done
    size_t kept_bytes = 0;    // of memory that the watch is asked to keep
  };
  struct LoggedCall {
    const Op* op = nullptr;
    uint64_t id = 0;
    Attributes attributes;
    const Arithmetic* arithmetic = nullptr;
    uint64_t seed = 0, stream = 0;
    uint32_t first_view = 0, inputs = 0, outputs = 0;  // in views_: the inputs, then the outputs
  };
  // An element of an input of a call.
  struct Operand {
    size_t call;
    int input;
    int64_t element;
  };
  // An element of an output.
  struct Made {
    size_t call;
    int slot;
    int64_t element;
  };
  class Tree;

  std::vector<CaptureNode> capture(Backend& backend, size_t call, int slot) const;
  std::span<const LoggedView> inputs_of(const LoggedCall& call) const { return {views_.data() + call.first_view, call.inputs}; }
  std::span<const LoggedView> outputs_of(const LoggedCall& call) const {
    return {views_.data() + call.first_view + call.inputs, call.outputs};
  }
  // Lets go of memory until no more than `most` bytes are kept, that of the first views first.
  void keep_at_most(size_t most);
  bool is_gone(const LoggedCall& call) const;
  // The element of an output that the operand is, or why it is not to be had.
  std::optional<Made> maker_of(const Operand& operand, CaptureFollow& why_not) const;

  std::vector<LoggedCall> calls_;
  std::vector<LoggedView> views_;
  size_t first_kept_ = 0, bytes_kept_ = 0;  // of views_: those before keep nothing
  bool has_forgotten_ = false;              // calls of this pass
};

}  // namespace ulpscope
