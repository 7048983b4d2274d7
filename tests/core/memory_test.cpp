// Whole runs whose memory is watched: runs in which nothing goes wrong say nothing, and a bit that flips between two steps is
// named.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>

#include "tests/support/temporary_folder.h"
#include "ulpscope/core/nn/model.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Where the inputs of updates lie, by their parameter.
class UpdateSpy : public Observer {
 public:
  void before(const OpEvent& event, std::span<OutputRecord* const>) override {
    if (event.phase != Phase::optimizer || event.labels.empty() || event.labels.back().role != Role::update) return;
    std::vector<TensorView>& views = inputs[*event.labels[0].parameter];
    views.assign(event.call.inputs.begin(), event.call.inputs.end());
  }
  std::map<std::string, std::vector<TensorView>> inputs;  // weight, gradient and states
};

class MemoryTest : public ::testing::Test {
 protected:
  static Experiment small(int64_t steps) {
    Experiment experiment = *find_preset("mlp");
    experiment.data.train_size = 96;
    experiment.data.test_size = 32;
    experiment.training.batch_size = 16;
    experiment.training.steps = steps;
    experiment.training.evaluation = Evaluation::epoch;
    experiment.recording.level = RecordLevel::health;
    return experiment;
  }
  TrainerOptions options() {
    TrainerOptions options;
    options.cpu.threads = 2;
    options.overwrite = true;
    options.trace_path = trace_;
    return options;
  }
  std::vector<EventRow> changes() {
    std::vector<EventRow> found;
    const Snapshot trace(trace_);
    for (const EventRow& event : trace.events())
      if (event.kind == EventKind::memory_changed) found.push_back(event);
    return found;
  }
  // Trains, and calls `between` before each step but the first.
  void train_and(const Experiment& experiment, const std::function<void(uint64_t step, Trainer&, UpdateSpy&)>& between) {
    Trainer trainer(experiment, options());
    UpdateSpy spy;
    trainer.context().observers.push_back(&spy);
    for (uint64_t step = trainer.first_step(); !trainer.finished(); ++step) {
      if (step > trainer.first_step()) between(step, trainer, spy);
      trainer.step();
    }
    trainer.finish();
  }
  std::vector<FingerprintRow> fingerprints() {
    std::vector<FingerprintRow> rows;
    Snapshot(trace_).visit_fingerprints({}, [&](std::span<const FingerprintRow> some) {
      rows.insert(rows.end(), some.begin(), some.end());
      return true;
    });
    return rows;
  }

  TemporaryFolder folder_;
  std::string trace_ = folder_.file("trace.h5");
};

uint64_t sum_of_bits(std::span<const std::byte> bytes, size_t element) {
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes.size(); i += element) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + i, element);
    sum += bits;
  }
  return sum;
}

struct OptimizerCase {
  const char* name;
  size_t states;
  std::function<void(OptimizerSettings&)> set;
};
std::vector<OptimizerCase> optimizers() {
  return {{"sgd", 0, [](OptimizerSettings& s) { s.type = OptimizerType::sgd; }},
          {"momentum", 1,
           [](OptimizerSettings& s) {
             s.type = OptimizerType::sgd;
             s.momentum = 0.9;
             s.weight_decay = 0.01;
           }},
          {"adam", 2, [](OptimizerSettings& s) { s.type = OptimizerType::adam; }},
          {"adamw", 2, [](OptimizerSettings& s) { s.type = OptimizerType::adamw; }},
          {"lion", 1, [](OptimizerSettings& s) {
             s.type = OptimizerType::lion;
             s.weight_decay = 0.01;
           }}};
}

// With accumulation, evaluations in between, steps that the scaler skips, master weights, casts, and updates that round otherwise.
// A row says what the memory holds.
TEST_F(MemoryTest, HealthyRunsSayNothing) {
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16, Precision::apex_o2, Precision::pure_bf16}) {
    for (const OptimizerCase& optimizer : optimizers()) {
      Experiment experiment = small(8);
      experiment.precision = precision;
      optimizer.set(experiment.optimizer);
      experiment.training.accumulation = 2;
      if (precision == Precision::fp16) experiment.scaler.initial = 0x1p24;  // too large for FP16 at first
      if (precision == Precision::pure_bf16) {
        experiment.optimizer.math = UpdateMath::fp32;
        experiment.arithmetic.run.rounding = RoundingMode::stochastic;
      }
      const std::string where = fmt::format("{} {}", name_of(precision), optimizer.name);
      Trainer trainer(experiment, options());
      UpdateSpy spy;
      trainer.context().observers.push_back(&spy);
      uint64_t updated = 0;
      while (!trainer.finished()) updated += !trainer.step().skipped;
      trainer.evaluate();
      trainer.finish();
      EXPECT_EQ(changes().size(), 0u) << where << ": " << changes().front().text;
      if (precision == Precision::fp16) {
        EXPECT_LT(updated, 8u) << where;
        EXPECT_GT(updated, 0u) << where;
      }

      const Snapshot trace(trace_);
      std::map<uint32_t, uint64_t> last;
      std::map<std::string, uint64_t> rows;  // by role and op
      for (const FingerprintRow& row : fingerprints()) {
        const TensorInfo& tensor = trace.tensors()[row.tensor];
        ++rows[fmt::format("{} {}", name_of(tensor.role), trace.ops()[tensor.op].name == "source" ? "source" : "written")];
        last[row.tensor] = row.written;
      }
      constexpr uint64_t kParameters = 6;
      const bool masters = precision == Precision::apex_o2;
      const char* const kept = precision == Precision::pure_bf16 ? "weight" : "master_weight";
      EXPECT_EQ(rows[fmt::format("{} written", kept)], kParameters * updated) << where;
      EXPECT_EQ(rows["optimizer_state written"], kParameters * optimizer.states * (updated + 1)) << where;  // and filled with zeros
      if (masters) {
        EXPECT_EQ(rows["weight written"], kParameters * updated) << where;
      }
      for (const auto& [parameter, views] : spy.inputs) {
        for (size_t input = 0; input < views.size(); ++input) {
          if (input == 1) continue;
          const TensorView& view = views[input];
          const size_t element = info(view.dtype).size;
          std::vector<std::byte> bytes(static_cast<size_t>(view.size()) * element);
          trainer.context().backend->copy_to_host(view.data, bytes.data(), bytes.size());
          const uint64_t sum = sum_of_bits(bytes, element);
          const bool found = std::any_of(last.begin(), last.end(), [&, parameter = parameter](const auto& row) {
            return row.second == sum && trace.tensors()[row.first].parameter == parameter;
          });
          EXPECT_TRUE(found) << where << ": " << parameter << " input " << input;
        }
      }
    }
  }
}

// Models with buffers, tied and embedded weights, recomputed layers, FP8 and clipping.
TEST_F(MemoryTest, HealthyModelsSayNothing) {
  for (const char* preset : {"resnet20", "gpt_mini", "lstm_text", "gru_text", "checkpointing", "clipping", "several_optimizers",
                             "transformer_seq2seq", "scaler_mlp"}) {
    Experiment experiment = *find_preset(preset);
    experiment.training.steps = 3;
    experiment.training.batch_size = 4;
    experiment.training.evaluation = Evaluation::never;
    experiment.data.train_size = 16;
    experiment.data.test_size = 4;
    experiment.recording.level = RecordLevel::health;
    train(experiment, options());
    EXPECT_EQ(changes().size(), 0u) << preset << ": " << changes().front().text;
    EXPECT_GT(fingerprints().size(), 0u) << preset;
  }
  Experiment experiment = small(4);
  experiment.precision = Precision::fp8;
  train(experiment, options());
  EXPECT_EQ(changes().size(), 0u) << changes().front().text;
}

TEST_F(MemoryTest, ResumedRunsBeginWithTheirOwnValues) {
  const std::string checkpoint = folder_.file("checkpoint");
  {
    Trainer trainer(small(6), options());
    for (int i = 0; i < 3; ++i) trainer.step();
    trainer.save_checkpoint(checkpoint);
    trainer.finish();
  }
  TrainerOptions resumed = options();
  resumed.resume_from = checkpoint;
  train(small(6), resumed);
  EXPECT_EQ(changes().size(), 0u);
  const std::vector<FingerprintRow> rows = fingerprints();
  const Snapshot trace(trace_);
  EXPECT_EQ(std::count_if(rows.begin(), rows.end(),
                          [&](const FingerprintRow& row) { return trace.ops()[trace.tensors()[row.tensor].op].name == "source"; }),
            6 * 3);
}

void flip(Trainer& trainer, const TensorView& view, int64_t element, int bit) {
  Backend& backend = *trainer.context().backend;
  auto* const at = view.as<unsigned char>() + element * static_cast<int64_t>(info(view.dtype).size) + bit / 8;
  unsigned char byte = 0;
  backend.copy_to_host(at, &byte, 1);
  byte = static_cast<unsigned char>(byte ^ (1 << (bit % 8)));
  backend.copy_from_host(&byte, at, 1);
}

TEST_F(MemoryTest, AFlippedBitOfAWeightIsNamed) {
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::apex_o2, Precision::pure_bf16}) {
    Experiment experiment = small(6);
    experiment.precision = precision;
    experiment.training.accumulation = 2;
    train_and(experiment, [](uint64_t step, Trainer& trainer, UpdateSpy&) {
      if (step == 4) flip(trainer, trainer.model().parameters()[2].tensor.view(), 77, 3);
    });
    ASSERT_EQ(changes().size(), 1u) << name_of(precision);
    const EventRow change = changes()[0];
    const Snapshot trace(trace_);
    EXPECT_EQ(change.step, 4u);
    EXPECT_EQ(change.count, 3u);
    EXPECT_EQ(trace.tensors()[static_cast<size_t>(change.tensor)].parameter, "2.weight") << name_of(precision);
    EXPECT_THAT(change.text, HasSubstr("by 2^3, as where bit 3 of one element is ")) << change.text;
    EXPECT_THAT(change.text, StartsWith("2.weight changed between ")) << change.text;
  }
}

TEST_F(MemoryTest, AFlippedBitOfAStateIsNamed) {
  for (const size_t state : {size_t{2}, size_t{3}}) {
    train_and(small(5), [&](uint64_t step, Trainer& trainer, UpdateSpy& spy) {
      if (step == 3) flip(trainer, spy.inputs.at("4.bias")[state], 9, 30);
    });
    ASSERT_EQ(changes().size(), 1u);
    const EventRow change = changes()[0];
    EXPECT_EQ(change.step, 3u);
    EXPECT_EQ(change.count, 2u);
    const Snapshot trace(trace_);
    const TensorInfo& tensor = trace.tensors()[static_cast<size_t>(change.tensor)];
    EXPECT_EQ(tensor.role, Role::optimizer_state);
    EXPECT_EQ(tensor.name, state == 2 ? "exp_avg" : "exp_avg_sq");
    EXPECT_THAT(change.text, HasSubstr(fmt::format("{} of 4.bias changed between adam_update in 4 in step 2, which wrote it, and "
                                                   "adam_update in 4 in step 3, which read it",
                                                   tensor.name)));
    EXPECT_THAT(change.text, HasSubstr("2^30"));
  }
}

TEST_F(MemoryTest, AForeignWriteIsNoFlippedBit) {
  train_and(small(5), [](uint64_t step, Trainer& trainer, UpdateSpy&) {
    if (step != 2) return;
    float values[10];
    for (int i = 0; i < 10; ++i) values[i] = 0.1f * static_cast<float>(i);
    trainer.context().backend->copy_from_host(values, trainer.model().parameters()[0].tensor.view().data, sizeof values);
  });
  ASSERT_EQ(changes().size(), 1u);
  EXPECT_EQ(changes()[0].step, 2u);
  EXPECT_THAT(changes()[0].text,
              HasSubstr("0.weight changed between adam_update in 0 in step 1, which wrote it, and linear in 0 in "
                        "step 2, which read it"));
  EXPECT_THAT(changes()[0].text, ::testing::Not(HasSubstr("as where bit")));
}

}  // namespace
}  // namespace ulpscope
