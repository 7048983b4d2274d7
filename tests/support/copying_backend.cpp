#include "tests/support/copying_backend.h"

#include <deque>
#include <utility>
#include <vector>

#include "ulpscope/kernels/device/moved_call.h"
#include "ulpscope/kernels/forwarding_backend.h"

namespace ulpscope {
namespace {

class CopyingBackend final : public ForwardingBackend {
 public:
  explicit CopyingBackend(std::unique_ptr<Backend> inner) : ForwardingBackend(std::move(inner)) {}
  ~CopyingBackend() override { forget(); }

  bool runs_behind() const override { return true; }
  void submit(const OpCall& call) override {
    const size_t before = copies_.size();
    try {
      inner().submit(moved(call));
    } catch (...) {
      for (; copies_.size() > before; copies_.pop_back()) inner().release(copies_.back().memory, copies_.back().bytes);
      throw;
    }
  }
  void complete() override {
    try {
      inner().complete();
    } catch (...) {
      forget();
      throw;
    }
    for (const Copy& copy : copies_)
      if (copy.is_output) inner().copy_to_host(copy.memory, copy.host, copy.bytes);
    forget();
  }

  const void* host_address(const void*) const override { return nullptr; }
  ElementCapture capture_nonfinite(const OpCall& call, int slot) override {
    const ElementCapture capture = inner().capture_nonfinite(moved(call), slot);
    complete();
    return capture;
  }
  ElementCapture capture_element(const OpCall& call, int slot, int64_t element) override {
    const ElementCapture capture = inner().capture_element(moved(call), slot, element);
    complete();
    return capture;
  }

 private:
  struct Copy {
    void* host;
    void* memory;
    size_t bytes;
    bool is_output;
  };

  void forget() {
    for (const Copy& copy : copies_) inner().release(copy.memory, copy.bytes);
    copies_.clear();
    calls_.clear();
  }
  const OpCall& moved(const OpCall& call) {
    return calls_
        .emplace_back(call,
                      [&](void* data, size_t bytes) {
                        bool is_output = false;
                        for (const TensorView& output : call.outputs) is_output = is_output || output.data == data;
                        copies_.push_back({data, inner().allocate(bytes), bytes, is_output});
                        inner().copy_from_host(data, copies_.back().memory, bytes);
                        return copies_.back().memory;
                      })
        .call();
  }

  std::vector<Copy> copies_;
  std::deque<device::MovedCall> calls_;
};

}  // namespace

std::unique_ptr<Backend> make_copying_backend(std::unique_ptr<Backend> inner) {
  return std::make_unique<CopyingBackend>(std::move(inner));
}

}  // namespace ulpscope
