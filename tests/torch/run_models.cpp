// The half of compare_models.py that is ours: takes one step of an experiment, and writes what went in and came out.
//
//   run_models EXPERIMENT.toml RESULTS.h5 [KEY=VALUE]...
//
// compare_models.py says what is in the file.
#include <fmt/format.h>

#include "tests/torch/results.h"
#include "ulpscope/base/error.h"
#include "ulpscope/core/nn/model.h"
#include "ulpscope/core/run/trainer.h"

namespace ulpscope {
namespace {

enum Number : int64_t { kParameter, kBuffer, kBatch, kLoss };

// Sees the batch enter, and parameters and their gradients as the optimizer gets them.
class Spy : public Observer {
 public:
  Spy(const std::vector<NamedTensor>& parameters, Results& results) : parameters_(parameters), results_(results) {}

  void before(const OpEvent& event, std::span<OutputRecord* const>) override {
    if (event.op.name == "source" && event.labels[0].role == Role::input)
      results_.add(kBatch, batch_tensors_++, false, event.inputs[0]);
    if (!event.op.name.ends_with("_update")) return;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i].tensor.storage().serial() != event.inputs[0].storage().serial()) continue;
      results_.add(kParameter, i, false, event.inputs[0]);
      results_.add(kParameter, i, true, event.inputs[1]);
    }
  }

 private:
  const std::vector<NamedTensor>& parameters_;
  Results& results_;
  size_t batch_tensors_ = 0;
};

std::string names_of(const std::vector<NamedTensor>& tensors) {
  std::string names;
  for (const NamedTensor& named : tensors) names += *named.name + " ";
  return names;
}

void run(const std::string& path, const std::string& results_path, std::span<const Override> overrides) {
  Experiment experiment = load_experiment(path, overrides);
  experiment.recording.level = RecordLevel::off;
  experiment.training.evaluation = Evaluation::never;
  TrainerOptions options;
  options.cpu.threads = 1;
  Trainer trainer(experiment, options);
  const auto parameters = trainer.model().parameters(), buffers = trainer.model().buffers();
  Results results;
  Spy spy(parameters, results);
  trainer.context().observers.push_back(&spy);
  const StepResult step = trainer.step();
  for (size_t i = 0; i < buffers.size(); ++i) results.add(kBuffer, i, false, buffers[i].tensor);
  results.add(kLoss, 0, false, from_host(*trainer.context().backend, DType::f64, {}, std::vector{step.loss}));
  results.write(results_path,
                {{"experiment", to_toml(experiment)}, {"parameters", names_of(parameters)}, {"buffers", names_of(buffers)}});
}

}  // namespace
}  // namespace ulpscope

int main(int argc, char** argv) {
  using namespace ulpscope;
  if (argc < 3) {
    fmt::print(stderr, "usage: run_models EXPERIMENT.toml RESULTS.h5 [KEY=VALUE]...\n");
    return 2;
  }
  try {
    run(argv[1], argv[2], std::vector<Override>(argv + 3, argv + argc));
  } catch (const Error& error) {
    fmt::print(stderr, "run_models: {}\n", error.what());
    return 4;
  }
  return 0;
}
