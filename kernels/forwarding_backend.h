// A backend that another one computes for: what stands around one derives from it, and says what it does otherwise.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulpscope/kernels/backend.h"

namespace ulpscope {

// It forwards what every backend has; a plan, products of a library and matrix instructions it has none.
class ForwardingBackend : public Backend {
 public:
  std::string name() const override { return inner_->name(); }
  std::string description() const override { return inner_->description(); }
  std::vector<std::string_view> ops() const override { return inner_->ops(); }
  bool runs_behind() const override { return inner_->runs_behind(); }
  void submit(const OpCall& call) override { inner_->submit(call); }
  void complete() override { inner_->complete(); }
  const void* host_address(const void* memory) const override { return inner_->host_address(memory); }
  void copy_to_host(const void* from, void* to, size_t bytes) override { inner_->copy_to_host(from, to, bytes); }
  void copy_from_host(const void* from, void* to, size_t bytes) override { inner_->copy_from_host(from, to, bytes); }
  ElementCapture capture_nonfinite(const OpCall& call, int slot) override { return inner_->capture_nonfinite(call, slot); }
  ElementCapture capture_element(const OpCall& call, int slot, int64_t element) override {
    return inner_->capture_element(call, slot, element);
  }
  void* allocate(size_t bytes) override { return inner_->allocate(bytes); }
  void release(void* memory, size_t bytes) override { inner_->release(memory, bytes); }
  size_t allocated_bytes() const override { return inner_->allocated_bytes(); }
  size_t peak_bytes() const override { return inner_->peak_bytes(); }
  void reset_peak() override { inner_->reset_peak(); }

 protected:
  explicit ForwardingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}
  Backend& inner() { return *inner_; }

 private:
  std::unique_ptr<Backend> inner_;
};

}  // namespace ulpscope
