// The frame of a program that runs our engine for a comparison: one thread, and a line and exit code 4 for an Error.
#pragma once

#include <fmt/format.h>

#include <cstdio>

#include "ulpscope/base/error.h"
#include "ulpscope/core/engine/context.h"
#include "ulpscope/kernels/backend.h"

namespace ulpscope {

template <typename Body>
int run_with_engine(const char* program, Body&& body) {
  const auto backend = make_cpu_backend({.threads = 1, .isa = ""});
  Context engine;
  engine.backend = backend.get();
  const ContextScope scope(engine);
  try {
    body();
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return 4;
  }
  return 0;
}

}  // namespace ulpscope
