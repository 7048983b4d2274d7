#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "ulpscope/base/error.h"
#include "ulpscope/base/file.h"
#include "ulpscope/cli/output.h"
#include "ulpscope/cli/progress.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/verbs.h"
#include "ulpscope/kernels/devices.h"
#include "ulpscope/studies/library_products.h"
#include "ulpscope/studies/tensor_core_report.h"

namespace ulpscope::cli {

namespace {

constexpr int64_t kSums = 100000;

// Of --products, whose options change what it says of the experiment.
Experiment experiment_of(const Arguments& arguments) {
  const std::vector<std::string> assignments = arguments.list("--set");
  std::vector<Override> overrides(assignments.begin(), assignments.end());
  if (const std::string precision = arguments.text("--precision"); !precision.empty())
    overrides.emplace_back("precision=" + precision, "--precision " + precision);
  return named_experiment(arguments.text("--products"), overrides);
}

Report compare_products(Backend& backend, const DescribedDevice& device, const Experiment& experiment, size_t limit) {
  const std::vector<StepProduct> products = products_of_step(experiment, backend);
  std::vector<ComparedProduct> compared;
  Progress progress;
  for (const StepProduct& product : products) {
    const size_t done = compared.size();
    progress.work(fmt::format("product {} of {}", done + 1, products.size()),
                  static_cast<double>(done) / static_cast<double>(products.size()));
    compared.push_back(compare_product(backend, device.gpu, product, done));
  }
  progress.finish();
  return describe_products(device, experiment, products, compared, limit);
}

// The file of --results. It takes its place when it is closed: what came back of a device that fails is kept.
class ResultsFile {
 public:
  explicit ResultsFile(const std::string& path) : path_(path), replacement_(path), out_(replacement_.path(), std::ios::binary) {
    out_ << kProbedSumColumns;
  }
  void write(const MatrixInstruction& instruction, const ProbedSum& sum) {
    out_ << csv_of(instruction, sum);
    check();
  }
  void close() {
    out_.close();
    check();
    replacement_.commit();
  }

 private:
  void check() const {
    if (!out_) throw failed_error("cannot write '{}': {}", path_, std::generic_category().message(errno));
  }
  const std::string path_;
  Replacement replacement_;
  std::ofstream out_;
};

int probe(const Arguments& arguments, Backend& backend, const DescribedDevice& device, uint64_t sums, uint64_t seed, size_t limit) {
  Progress progress;
  ProbeObserver observer{[&](double share) { progress.work("sums through the matrix units", share); }, {}};
  std::optional<ResultsFile> results;
  if (arguments.has("--results")) {
    results.emplace(arguments.text("--results"));
    observer.sum = [&](const MatrixInstruction& instruction, const ProbedSum& sum) { results->write(instruction, sum); };
  }
  std::vector<ProbedInstruction> probed;
  try {
    probed = probe_tensor_cores(*backend.matrix_instructions(), device.gpu, sums, seed, observer);
  } catch (const Error&) {
    if (results) results->close();
    throw;
  }
  progress.finish();
  if (results) results->close();
  print(describe_probe(device, probed, limit), arguments);
  return is_explained(probed) ? kClean : kFindings;
}

int run_gpu(const Arguments& arguments) {
  const size_t limit = analysis_options(arguments).limit;
  const bool probes = arguments.has("--probe"), has_products = arguments.has("--products");
  const auto sums = static_cast<uint64_t>(arguments.integer("--sums", 1).value_or(kSums));
  const auto seed = static_cast<uint64_t>(arguments.integer("--seed", 0).value_or(0));
  for (const char* option : {"--sums", "--seed", "--results"})
    if (arguments.has(option) && !probes) throw usage_error("{}: expected with --probe only", option);
  if (arguments.has("--force") && !arguments.has("--results")) throw usage_error("--force: expected with --results only");
  if (arguments.has("--results")) check_replaceable(arguments.text("--results"), arguments.has("--force"));
  if (probes && has_products) throw usage_error("--probe and --products exclude each other");
  for (const char* option : {"--set", "--precision"})
    if (arguments.has(option) && !has_products) throw usage_error("{}: expected with --products only", option);
  std::optional<Experiment> experiment;
  if (has_products) experiment = experiment_of(arguments);
  const std::string name = arguments.text("--device", "cuda");
  const auto make_backend = maker_of_device(name);
  if (!make_backend)
    throw usage_error("--device {}: it has no matrix units of a GPU, expected cuda, cuda:N, emulated or emulated:GPU", name);
  const std::unique_ptr<Backend> backend = make_backend();
  const DescribedDevice device{name, backend->description(), gpu_of_device(name)};
  if (!probes && !has_products) {
    print(describe_device(device), arguments);
    return kClean;
  }
  if (device.gpu.empty())
    throw failed_error("{}: {}: the table knows no such GPU, and a device computes as the GPUs of the table only", name,
                       device.description);
  if (has_products) {
    print(compare_products(*backend, device, *experiment, limit), arguments);
    return kClean;
  }
  return probe(arguments, *backend, device, sums, seed, limit);
}

}  // namespace

Verb gpu_verb() {
  return {"gpu",
          "how the matrix units of a GPU add, and whether that is what the table of them says",
          "--probe multiplies FP16, BF16, TF32 and FP8 numbers there, with mma and wgmma where the GPU and this program have\n"
          "them, and compares each sum, bit for bit, with what the rows of the table predict (docs/emulation.md). It exits\n"
          "with 1 where the GPU's own rows do not explain all that were probed.\n"
          "--products runs each different matrix product and convolution of a training step, forward and backward, with sums\n"
          "of the library and with those of the matrix units, and tells which have equal bits.",
          {},
          join({{{"--device", "", "DEVICE",
                  "cuda or cuda:N, a GPU; emulated or emulated:GPU, the kernels of GPUs on the CPU, slowly", "cuda"},
                 {"--probe", "", "", "send sums through the matrix units, and say what explains them"},
                 {"--sums", "", "N", "random ones for each instruction, beside those that are made", std::to_string(kSums)},
                 {"--seed", "", "N", "of the random ones: each has others", "0"},
                 {"--results", "", "FILE", "write every sum and what came back as CSV, as encodings in hexadecimal"},
                 {"--force", "", "", "replace FILE where it exists"},
                 {"--products", "", "EXPERIMENT", "compare the products of a step of it, a TOML file or a preset"},
                 {"--precision", "", "NAME", "of that step", "the experiment's", experiment_choices("precision")},
                 {"--set", "", "KEY=VALUE", "change a key of the experiment: training.batch_size=4; may be repeated", ""}},
                print_options()}),
          {{"ulpscope gpu", "the first GPU, and what the table says of it"},
           {"ulpscope gpu --probe --device cuda:1", "does the second one add like that?"},
           {"ulpscope gpu --probe --device emulated:a100 --sums 1000", "the same of the kernels on the CPU"},
           {"ulpscope gpu --products mlp --precision fp16", "which products of a step does cuBLASLt add as the matrix units do?"}},
          run_gpu};
}

}  // namespace ulpscope::cli
