#include "ulpscope/recorder/new_run.h"

#include <fmt/chrono.h>

#include <ctime>
#include <random>

namespace ulpscope {

std::string new_run_id() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", device());
  return id;
}

std::string utc_now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

}  // namespace ulpscope
