// Faults that an experiment injects into its own training, so that it can be seen what comes of them: one element of a parameter,
// of a sample, or of what an op reads is changed in memory, as a flipped bit or a foreign write would change it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/core/data/dataset.h"
#include "ulpscope/core/engine/context.h"
#include "ulpscope/core/settings/option.h"

namespace ulpscope {

class Model;

struct InjectedFault {
  // Where; one of the three: a parameter, before the step; a sample of the training data, in each of the step's batches that has
  // it; or what an op reads, just before it does.
  std::string parameter, op;
  std::optional<int64_t> sample;
  std::string module = "*";  // of the op, as a pattern
  Phase phase = Phase::forward;
  int64_t input = 0;    // of the op, by position
  int64_t call = 0;     // which of the step's calls that fit
  int64_t element = 0;  // in row-major order
  // When: in so many steps from one on; 0: in all of them.
  int64_t step = 0, steps = 1;
  // What the element becomes; one of the three, and rounded to the type of the tensor.
  std::optional<double> set, scale;
  std::optional<int64_t> flip_bit;  // of the encoding, the lowest is 0
  Place place{"inject"};

  bool is_due(uint64_t in_step) const;
  bool operator==(const InjectedFault& other) const;  // a NaN is one
};

class FaultInjector : public Observer {
 public:
  // `faults` and `backend` outlive it. Throws Error (usage): a fault whose element, bit, parameter or step is not there. Of data
  // whose samples are indices no sample can be changed.
  FaultInjector(const std::vector<InjectedFault>& faults, Backend& backend, const Model& model, const Dataset& data,
                uint64_t total_steps);

  bool watches_ops() const;  // else it need not be shown any
  void begin_step(uint64_t step, const Model& model);
  void change(Batch& batch);
  // What an op reads is looked for in every phase, in evaluation as well.
  void before(const OpEvent& event, std::span<OutputRecord* const> records) override;
  // Throws Error (usage) where the step had not the op that a fault is for; one that is skipped has no update.
  void end_step(bool skipped);
  // What has been changed since the last call, a sentence each; of a fault that is injected again and again, the first time.
  std::vector<std::string> take_notes();
  // At the end: what was never changed, since no batch of its steps had the sample.
  std::vector<std::string> never_met() const;

 private:
  struct State {
    int64_t calls = 0;                       // of this step that fit
    std::set<std::string_view> others = {};  // ops of this step in the module and phase
    bool noted = false;
  };
  void change(size_t fault, const Tensor& tensor, const std::string& what);
  void note(size_t fault, const std::string& what, double before, double after);

  const std::vector<InjectedFault>& faults_;
  Backend& backend_;
  std::vector<State> states_;  // one for each fault
  std::vector<std::string> notes_;
  uint64_t step_ = 0;
};

}  // namespace ulpscope
