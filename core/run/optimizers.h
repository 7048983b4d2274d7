// The optimizers that an experiment can name, a row of the table in optimizers.cpp each.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ulpscope/core/optim/optimizer.h"

namespace ulpscope {

enum class OptimizerType : uint8_t { sgd, adam, adamw, lion };

// Names and defaults are PyTorch's, and of lion those of its paper.
struct OptimizerSettings {
  OptimizerType type = OptimizerType::adam;
  double learning_rate = 1e-3;
  std::optional<double> weight_decay;      // 0.01 for adamw, else 0
  double momentum = 0.0, dampening = 0.0;  // sgd
  bool nesterov = false;
  double beta1 = 0.9;           // adam, adamw, lion
  std::optional<double> beta2;  // 0.99 for lion, else 0.999
  double eps = 1e-8;            // adam, adamw
  UpdateMath math = UpdateMath::param;
  std::optional<bool> master_weights;  // nothing: as the precision has it

  double effective_weight_decay() const;
  double effective_beta2() const;
  bool operator==(const OptimizerSettings&) const = default;
};

struct OptimizerRow {
  const char* name;
  std::span<const std::string_view> keys;  // of the settings, those that not all take and this one does
  double weight_decay, beta2;              // by default
  std::unique_ptr<Optimizer> (*make)(std::vector<OptimizedParameter> parameters, const OptimizerSettings& settings);
};

std::span<const OptimizerRow> optimizer_rows();  // in the order of OptimizerType
inline const OptimizerRow& row_of(OptimizerType type) { return optimizer_rows()[static_cast<size_t>(type)]; }
inline const char* name_of(OptimizerType type) { return row_of(type).name; }

}  // namespace ulpscope
