// What the users of oneDNN share. Included by source files only.
#pragma once

#include <omp.h>

#include <dnnl.hpp>
#include <vector>

#include "ulpscope/base/error.h"

namespace ulpscope::cpu {

inline const dnnl::engine& onednn_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}
inline const dnnl::stream& onednn_stream() {
  static const dnnl::stream stream(onednn_engine());
  return stream;
}

// oneDNN plans for as many threads as OpenMP would use when a primitive is made.
class ThreadsForPlanning {
 public:
  explicit ThreadsForPlanning(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~ThreadsForPlanning() { omp_set_num_threads(before_); }
  ThreadsForPlanning(const ThreadsForPlanning&) = delete;

 private:
  int before_;
};

inline dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

// Runs a planning step and turns oneDNN's exceptions into ours.
template <typename Plan>
auto planned(const char* what, Plan plan) {
  try {
    return plan();
  } catch (const dnnl::error& error) {
    throw failed_error("oneDNN cannot plan a {}: {}", what, error.what());
  }
}

// A primitive and, for each slot, the memory objects of its arguments: made once, re-pointed at each run.
class PlannedPrimitive {
 public:
  struct Argument {
    int kind;
    dnnl::memory::desc layout;
  };
  PlannedPrimitive() = default;
  PlannedPrimitive(dnnl::primitive primitive, const std::vector<Argument>& arguments, int slots)
      : primitive_(std::move(primitive)) {
    for (int slot = 0; slot < slots; ++slot) {
      for (const Argument& argument : arguments) {
        memories_.push_back(dnnl::memory(argument.layout, onednn_engine(), nullptr));
        arguments_.push_back({argument.kind, memories_.back().get()});
      }
    }
    count_ = arguments.size();
  }

  // One address for each argument, in their order.
  void run(int slot, std::initializer_list<const void*> addresses) const {
    const dnnl_exec_arg_t* arguments = arguments_.data() + static_cast<size_t>(slot) * count_;
    size_t i = 0;
    for (const void* address : addresses) {
      if (i == count_) break;
      dnnl_memory_set_data_handle(arguments[i++].memory, const_cast<void*>(address));
    }
    if (dnnl_primitive_execute(primitive_.get(), onednn_stream().get(), static_cast<int>(count_), arguments) != dnnl_success) {
      throw failed_error("oneDNN could not run a primitive");
    }
  }

 private:
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
  size_t count_ = 0;
};

}  // namespace ulpscope::cpu
