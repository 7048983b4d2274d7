// Which samples of a data loader's batch memory holds, from where it was handed over to where a model reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "ulpscope/recorder/aten/tensor.h"

namespace ulpscope::aten {

// `count` samples of a batch, from its sample `first` on.
struct BatchPart {
  uint32_t batch = 0;  // a number that the session gave
  int64_t first = 0, count = 0;
  bool is_in_rows = false;  // row i along the first dimension is of sample first + i; else which element is of which is not known
};

class Batches {
 public:
  explicit Batches(const ulpscope_aten_adapter& adapter) : adapter_(adapter) {}
  ~Batches();
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;

  void deliver(const Tensor& tensor, const BatchPart& part);
  // An op that prepares data read these, and made the others. `keeps_rows`: each row of a result is computed from that row alone.
  void follow(std::span<const Tensor* const> reads, std::span<const Tensor* const> results, bool keeps_rows);
  // The part of a batch that a tensor holds, as far as it holds nothing else.
  std::optional<BatchPart> find(const Tensor& tensor) const;
  // Drops memory that was freed.
  void prune();

 private:
  struct Held {
    BatchPart part;
    Extent extent;
    int64_t elements = 0, row = 0;  // row: the bytes from one to the next, along the first dimension
  };
  void forget(const Tensor& tensor);

  ulpscope_aten_adapter adapter_;
  std::unordered_map<uint64_t, Held> held_;  // by storage
};

}  // namespace ulpscope::aten
