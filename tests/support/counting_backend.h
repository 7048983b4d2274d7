// A second backend: counts the calls of each op and leaves the computing to another one.
#pragma once

#include <map>
#include <string>

#include "ulpscope/kernels/backend.h"

namespace ulpscope {

class CountingBackend : public Backend {
 public:
  explicit CountingBackend(Backend& inner) : inner_(inner) {}
  std::string name() const override { return "counting"; }
  std::string description() const override { return "counts calls, computes on " + inner_.description(); }
  std::vector<std::string_view> ops() const override { return inner_.ops(); }
  void run(const OpCall& call) override {
    ++calls[std::string(call.op)];
    inner_.run(call);
  }
  ElementCapture capture_nonfinite(const OpCall& call, int slot) override { return inner_.capture_nonfinite(call, slot); }
  ElementCapture capture_element(const OpCall& call, int slot, int64_t element) override {
    return inner_.capture_element(call, slot, element);
  }
  void* allocate(size_t bytes) override { return inner_.allocate(bytes); }
  void release(void* memory, size_t bytes) override { inner_.release(memory, bytes); }
  size_t allocated_bytes() const override { return inner_.allocated_bytes(); }
  size_t peak_bytes() const override { return inner_.peak_bytes(); }
  void reset_peak() override { inner_.reset_peak(); }
  void synchronize() override { inner_.synchronize(); }

  std::map<std::string, int> calls;

 private:
  Backend& inner_;
};

}  // namespace ulpscope
