// Files of results that real GPUs gave (tests/data/tensorcore/README.md).
#pragma once

#include <filesystem>
#include <string>

#include "tests/support/project_files.h"

namespace ulpscope {

struct HardwareResults {
  std::string path;
  int rows;
};

// Of the GPU and formats in `name`, "a100_bf16_fp32_k8": the full set where it lies beside the project, else the sample.
inline HardwareResults hardware_results(const std::string& name) {
  const std::string full = project_file("../shared/data/tensorcore/" + name + ".csv.gz");
  if (std::filesystem::exists(full)) return {full, 5000};
  return {project_file("tests/data/tensorcore/" + name + ".csv.gz"), 200};
}

}  // namespace ulpscope
