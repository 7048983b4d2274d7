#include "tests/support/copying_backend.h"

#include <deque>
#include <utility>
#include <vector>

#include "ulpscope/kernels/device/moved_call.h"

namespace ulpscope {
namespace {

class CopyingBackend final : public Backend {
 public:
  explicit CopyingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}
  ~CopyingBackend() override { forget(); }

  std::string name() const override { return inner_->name(); }
  std::string description() const override { return inner_->description(); }
  std::vector<std::string_view> ops() const override { return inner_->ops(); }

  bool runs_behind() const override { return true; }
  void submit(const OpCall& call) override {
    const size_t before = copies_.size();
    try {
      inner_->submit(moved(call));
    } catch (...) {
      for (; copies_.size() > before; copies_.pop_back()) inner_->release(copies_.back().memory, copies_.back().bytes);
      throw;
    }
  }
  void complete() override {
    try {
      inner_->complete();
    } catch (...) {
      forget();
      throw;
    }
    for (const Copy& copy : copies_)
      if (copy.is_output) inner_->copy_to_host(copy.memory, copy.host, copy.bytes);
    forget();
  }

  const void* host_address(const void*) const override { return nullptr; }
  void copy_to_host(const void* from, void* to, size_t bytes) override { inner_->copy_to_host(from, to, bytes); }
  void copy_from_host(const void* from, void* to, size_t bytes) override { inner_->copy_from_host(from, to, bytes); }

  ElementCapture capture_nonfinite(const OpCall& call, int slot) override {
    const ElementCapture capture = inner_->capture_nonfinite(moved(call), slot);
    complete();
    return capture;
  }
  ElementCapture capture_element(const OpCall& call, int slot, int64_t element) override {
    const ElementCapture capture = inner_->capture_element(moved(call), slot, element);
    complete();
    return capture;
  }

  void* allocate(size_t bytes) override { return inner_->allocate(bytes); }
  void release(void* memory, size_t bytes) override { inner_->release(memory, bytes); }
  size_t allocated_bytes() const override { return inner_->allocated_bytes(); }
  size_t peak_bytes() const override { return inner_->peak_bytes(); }
  void reset_peak() override { inner_->reset_peak(); }

 private:
  struct Copy {
    void* host;
    void* memory;
    size_t bytes;
    bool is_output;
  };

  void forget() {
    for (const Copy& copy : copies_) inner_->release(copy.memory, copy.bytes);
    copies_.clear();
    calls_.clear();
  }
  const OpCall& moved(const OpCall& call) {
    return calls_
        .emplace_back(call,
                      [&](void* data, size_t bytes) {
                        bool is_output = false;
                        for (const TensorView& output : call.outputs) is_output = is_output || output.data == data;
                        copies_.push_back({data, inner_->allocate(bytes), bytes, is_output});
                        inner_->copy_from_host(data, copies_.back().memory, bytes);
                        return copies_.back().memory;
                      })
        .call();
  }

  std::unique_ptr<Backend> inner_;
  std::vector<Copy> copies_;
  std::deque<device::MovedCall> calls_;
};

}  // namespace

std::unique_ptr<Backend> make_copying_backend(std::unique_ptr<Backend> inner) {
  return std::make_unique<CopyingBackend>(std::move(inner));
}

}  // namespace ulpscope
