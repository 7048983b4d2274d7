#include "ulpscope/base/error.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/verbs.h"
#include "ulpscope/kernels/devices.h"
#include "ulpscope/studies/tensor_core_report.h"

namespace ulpscope::cli {

namespace {

constexpr int64_t kSums = 100000;

int run(const Arguments& arguments) {
  const std::optional<int64_t> sums = arguments.integer("--sums", 1);
  if (sums && !arguments.has("--probe")) throw usage_error("--sums: expected with --probe only");
  const std::string name = arguments.text("--device", "cuda");
  const auto make_backend = maker_of_device(name);
  if (!make_backend)
    throw usage_error("--device {}: it has no matrix units of a GPU, expected cuda, cuda:N, emulated or emulated:GPU", name);
  const std::unique_ptr<Backend> backend = make_backend();
  const DescribedDevice device{name, backend->description(), gpu_of_device(name)};
  if (!arguments.has("--probe")) {
    print(describe_device(device), arguments);
    return kClean;
  }
  if (device.gpu.empty())
    throw failed_error("{}: {}: the table knows no such GPU, and a device computes as the GPUs of the table only", name,
                       device.description);
  const auto probed = probe_tensor_cores(*backend->matrix_instructions(), device.gpu, static_cast<uint64_t>(sums.value_or(kSums)));
  print(describe_probe(device, probed, analysis_options(arguments).limit), arguments);
  return is_explained(probed) ? kClean : kFindings;
}

}  // namespace

Verb gpu_verb() {
  return {"gpu",
          "how the matrix units of a GPU add, and whether that is what the table of them says",
          "--probe multiplies FP16, BF16, TF32 and FP8 numbers there, with every instruction mma and wgmma that the GPU has,\n"
          "and compares each sum, bit for bit, with what the rows of the table predict (docs/emulation.md). It exits with 1\n"
          "where the GPU's own rows do not explain all of them.",
          {},
          join({{{"--device", "", "DEVICE",
                  "cuda or cuda:N, a GPU; emulated or emulated:GPU, the kernels of GPUs on the CPU, slowly", "cuda"},
                 {"--probe", "", "", "send sums through the matrix units, and say what explains them"},
                 {"--sums", "", "N", "random ones for each instruction, beside those that are made", std::to_string(kSums)}},
                print_options()}),
          {{"ulpscope gpu", "the first GPU, and what the table says of it"},
           {"ulpscope gpu --probe --device cuda:1", "does the second one add like that?"},
           {"ulpscope gpu --probe --device emulated:a100 --sums 1000", "the same of the kernels on the CPU"}},
          run};
}

}  // namespace ulpscope::cli
