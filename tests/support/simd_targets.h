// Runs a body on every SIMD instruction set that the library was compiled for and the CPU has.
#pragma once

#include <functional>
#include <string>

#include "hwy/highway.h"

namespace ulpscope {

inline void on_every_target(const std::function<void(const std::string&)>& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
    body(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

}  // namespace ulpscope
