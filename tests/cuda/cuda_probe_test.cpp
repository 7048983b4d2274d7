// The matrix units of a GPU add as its row of the table says.
#include <gtest/gtest.h>

#include "tests/cuda/device.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/kernels/devices.h"
#include "ulpscope/studies/tensor_core_report.h"

namespace ulpscope {
namespace {

TEST(CudaProbe, IsExplainedByTheRowOfTheGpu) {
  if (const std::string why = why_no_device(); !why.empty()) GTEST_SKIP() << "skipped: " << why;
  const std::string gpu = gpu_of_device("cuda");
  if (gpu.empty()) GTEST_SKIP() << "skipped: the table knows no such GPU";
  const auto device = maker_of_device("cuda")();
  const auto probed = probe_tensor_cores(*device->matrix_instructions(), gpu, 1000000);
  EXPECT_TRUE(is_explained(probed)) << render_text(describe_probe({"cuda", device->description(), gpu}, probed, 10), {});
}

}  // namespace
}  // namespace ulpscope
