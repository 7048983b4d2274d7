// --device, --threads and --isa, of the verbs that compute.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ulpscope/base/error.h"
#include "ulpscope/cli/verb.h"
#include "ulpscope/core/run/capsule.h"
#include "ulpscope/kernels/backend.h"
#include "ulpscope/kernels/devices.h"

namespace ulpscope::cli {

// What computes, as TrainerOptions and Trial have it.
struct DeviceArguments {
  std::function<std::unique_ptr<Backend>()> make_backend;
  CpuOptions cpu;  // threads 0: one a core, or what a capsule had
};

// Throws Error (usage).
inline DeviceArguments device_of(const Arguments& arguments) {
  const int64_t threads = arguments.integer("--threads", 0).value_or(0);
  if (threads > kMostThreads) throw usage_error("--threads: expected at most {}, got {}", kMostThreads, threads);
  DeviceArguments device{maker_of_device(arguments.text("--device", "cpu")), {static_cast<int>(threads), arguments.text("--isa")}};
  const char* of_cpu = threads > 0 ? "--threads" : arguments.has("--isa") ? "--isa" : nullptr;
  if (device.make_backend && of_cpu != nullptr) throw usage_error("{}: expected with --device cpu only", of_cpu);
  return device;
}

}  // namespace ulpscope::cli
