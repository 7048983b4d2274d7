// Computes op calls on one device, which may run behind the host. cpu/ computes wide and stores the real 16-bit encodings, rounding
// once.
//
// What the host submits runs in that order: calls, copies, and releases of memory. The host reads and writes the memory of tensors
// through copies alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/kernels/op_call.h"

namespace ulpscope {

class MatrixInstructions;  // matrix_instructions.h

// A product that the library of a device multiplied: its shape, and types and places of its factors.
struct LibraryProduct {
  std::string product;    // equal texts: the library is asked for the same
  std::string algorithm;  // as the library tells it apart from others
  uint64_t calls = 0;
  bool operator==(const LibraryProduct&) const = default;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;         // "cpu"
  virtual std::string description() const = 0;  // machine, instruction set, threads, library versions: what bit-equality depends on

  virtual std::vector<std::string_view> ops() const = 0;  // that it computes, by name
  // Whether calls may still have to run when submit() returns; else records are filled in by then.
  virtual bool runs_behind() const = 0;
  // A backend that computes nothing, and throws an Error (usage) for a call that this one would throw it for, whatever its values.
  // Its memory reads as zeros. nullptr: this one takes every call.
  virtual std::unique_ptr<Backend> plan() const { return nullptr; }
  // Of the calls that are submitted so far, in order of first use; none where the backend has no such library. Valid
  // until the next call.
  virtual std::span<const LibraryProduct> library_products() const { return {}; }
  // Computes the call, at once or by the next complete(). Shapes and dtypes were checked by the op's shape rule. Views may have any
  // non-negative strides. Of the call only records, fingerprints and the memory of tensors have to stay till then.
  virtual void submit(const OpCall& call) = 0;
  // Waits until all that was submitted has run. Records and fingerprints are filled in then. Throws what a call found where
  // submit() did not: Error (failed) of an index that is out of range.
  virtual void complete() = 0;

  // Those of a GPU's matrix units, which are the backend's; nullptr: it has none.
  virtual MatrixInstructions* matrix_instructions() { return nullptr; }

  // Where the host itself may read this memory, once all is complete; nullptr: nowhere, it is to be copied.
  virtual const void* host_address(const void* memory) const = 0;
  // After all that was submitted before, for which it waits.
  virtual void copy_to_host(const void* from, void* to, size_t bytes) = 0;
  // In order with the calls; `from` is read before it returns.
  virtual void copy_from_host(const void* from, void* to, size_t bytes) = 0;

  // The first element of output `slot` (in logical order) that is not finite, with its operands. After the call, inputs unchanged;
  // waits for it.
  virtual ElementCapture capture_nonfinite(const OpCall& call, int slot) = 0;
  // The same of a given element.
  virtual ElementCapture capture_element(const OpCall& call, int slot, int64_t element) = 0;

  virtual void* allocate(size_t bytes) = 0;  // 64-byte aligned; never nullptr
  // In order with the calls.
  virtual void release(void* memory, size_t bytes) = 0;
  virtual size_t allocated_bytes() const = 0;  // in use now, scratch included
  virtual size_t peak_bytes() const = 0;       // the largest of that since reset_peak
  virtual void reset_peak() = 0;
};

// Computes the call and waits for it.
inline void run(Backend& backend, const OpCall& call) {
  backend.submit(call);
  backend.complete();
}

struct CpuOptions {
  int threads = 0;       // 0: all cores
  std::string isa = {};  // "" the best there is; "sse4", "avx2", "avx512": our kernels and oneDNN are held to it
};
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options = {});

}  // namespace ulpscope
