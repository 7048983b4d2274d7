// The loss functions that an experiment can name, a row of the table in loss.cpp each.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "ulpscope/core/data/dataset.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

enum class LossFunction : uint8_t { cross_entropy, nll, mse, l1, huber, bce_with_logits, binary_cross_entropy, kl_div };

struct LossSettings {
  LossFunction function = LossFunction::cross_entropy;
  double factor = 1.0;                    // the loss is multiplied by it
  double label_smoothing = 0.0;           // cross_entropy
  int64_t ignore_index = kIgnoredTarget;  // cross_entropy, nll
  double delta = 1.0;                     // huber

  std::optional<int64_t> ignored_label() const;  // nothing: targets are values
  bool operator==(const LossSettings&) const = default;
};

struct LossType {
  const char* name;
  TargetKind targets;
  Tensor (*compute)(const Tensor& output, const Tensor& target, const LossSettings& settings);  // a scalar
  std::span<const std::string_view> keys = {};  // of the settings, those that not all take and this one does
  // What becomes of it where a target lies beyond 0 and 1; nullptr: any target will do.
  const char* beyond_probabilities = nullptr;
};

// Logits [N, ..., C] and labels [N, ...] as [M, C] and [M].
std::pair<Tensor, Tensor> as_rows(const Tensor& logits, const Tensor& labels);

std::span<const LossType> loss_types();  // in the order of LossFunction
inline const LossType& type_of(LossFunction function) { return loss_types()[static_cast<size_t>(function)]; }
inline const char* name_of(LossFunction function) { return type_of(function).name; }

}  // namespace ulpscope
