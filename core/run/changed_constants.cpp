#include "ulpscope/core/run/changed_constants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "ulpscope/base/philox.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

namespace {

// How an optimizer updates some of its parameters.
struct UpdateType {
  const FloatFormat* format;  // of the weights and states
  bool rounds_every_step;
  Rounding rounding;
  bool operator==(const UpdateType& other) const {
    const auto all = [](const UpdateType& type) {
      return std::tuple(type.format, type.rounds_every_step, type.rounding.mode, type.rounding.subnormals);
    };
    return all(*this) == all(other);
  }
};

Rounding rounding_of(const Arithmetic* arithmetic) {
  if (arithmetic == nullptr) return {};
  return {.mode = arithmetic->rounding,
          .subnormals = flushes_outputs(arithmetic->subnormals) ? SubnormalResults::flush : SubnormalResults::keep};
}

// Whether the value is `expected` after rounding, whatever the random bits are.
bool always_becomes(const FloatFormat& format, const Rounding& rounding, float value, float expected) {
  return round_to_format(format, value, rounding, 0) == expected &&
         round_to_format(format, value, rounding, UINT32_MAX) == expected;
}

// Of how many of the format's significands `product`, rounded, gives the number back that it was made of.
struct Kept {
  uint64_t kept = 0, all = 0;
  bool most() const { return 2 * kept > all; }
  std::string values() const { return kept == all ? "every value" : fmt::format("{} of {} significands", kept, all); }
};
Kept kept_by(const UpdateType& type, bool has_signs, const std::function<float(float)>& product) {
  const FloatFormat& format = *type.format;
  const auto is_kept = [&](float value) {
    return always_becomes(format, type.rounding, product(value), value) &&
           (!has_signs || always_becomes(format, type.rounding, product(-value), -value));
  };
  // Of FP32 the least and the largest significand stand for all: the ulp is that of both, and the change of no other is larger than
  // that of the largest; below the least it is halved.
  if (format.fraction_bits > 10) return {is_kept(1.0F) && is_kept(std::nextafter(2.0F, 1.0F)) ? 1U : 0U, 1};
  Kept kept{0, uint64_t{1} << format.fraction_bits};
  for (uint64_t i = 0; i < kept.all; ++i) kept.kept += is_kept(1.0F + std::ldexp(static_cast<float>(i), -format.fraction_bits));
  return kept;
}

class ChangedConstants {
 public:
  ChangedConstants(std::string table, std::vector<std::string>& found) : table_(std::move(table)), found_(found) {}

  // One that an operation takes in the type of the weights.
  void add_scalar(std::string_view name, double value, const FloatFormat& format, std::string_view of_zero,
                  std::string_view of_infinity) {
    const float rounded = round_to_format(format, round_to_f32(value));
    if (value == 0 || !std::isfinite(value)) return;
    if (rounded == 0) {
      add("{} is 0 in {} (smallest number {:.3g}): {}{}", named(name, value), upper_case(format.name), least(format), of_zero,
          way_out(format));
    } else if (std::isinf(rounded)) {
      add("{} is Inf in {} (largest number {:.6g}): {}{}", named(name, value), upper_case(format.name), format.largest_finite(),
          of_infinity, way_out(format));
    }
  }
  // The share of an old value that an average keeps.
  void add_share(std::string_view name, double value, std::string_view average, const UpdateType& type, bool has_signs,
                 const std::function<float(float)>& product) {
    if (!(value > 0 && value < 1)) return;
    const Kept kept = kept_by(type, has_signs, product);
    if (!kept.most()) return;
    add("{} acts as 1 in {}: {} times it rounds back to itself, for {}, and never decays{}", named(name, value),
        upper_case(type.format->name), average, kept.values(), way_out(*type.format));
  }
  void add_decay(double rate, double decay, const UpdateType& type) {
    const float factor = round_to_f32(1 - rate * decay);
    if (!(rate * decay > 0)) return;
    const Kept kept = kept_by(type, true, [&](float weight) { return factor * weight; });
    if (!kept.most()) return;
    add("1 - {}learning_rate {}weight_decay = 1 - {:g} acts as 1 in {}: a weight times it rounds back to itself, for {}{}", table_,
        table_, rate * decay, upper_case(type.format->name), kept.values(), way_out(*type.format));
  }
  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    std::string text = fmt::format(format, std::forward<Arguments>(arguments)...);
    if (std::find(found_.begin(), found_.end(), text) == found_.end()) found_.push_back(std::move(text));
  }

 private:
  std::string named(std::string_view name, double value) const { return fmt::format("{}{} = {}", table_, name, value); }
  static double least(const FloatFormat& format) { return value_of(format, 1); }

  std::string way_out(const FloatFormat& format) const {
    return format.fraction_bits > 10 ? "" : fmt::format(" ({}master_weights = true updates in FP32)", table_);
  }

  std::string table_;  // "optimizer."
  std::vector<std::string>& found_;
};

constexpr std::string_view kNoUpdate = "gradients change no weight", kNoDecay = "weights do not decay",
                           kInfiniteWeights = "weights become Inf", kInfiniteGradients = "gradients become Inf";

void check_sgd(const Attributes& a, const UpdateType& type, const FloatFormat& scalars, ChangedConstants& changed) {
  changed.add_scalar("learning_rate", a["lr"], scalars, kNoUpdate, kInfiniteWeights);
  changed.add_scalar("weight_decay", a["weight_decay"], scalars, kNoDecay, kInfiniteGradients);
  if (a["momentum"] == 0) return;
  const float momentum = round_to_f32(a["momentum"]);
  changed.add_share("momentum", a["momentum"], "the momentum", type, true, [=](float old) { return momentum * old; });
}

void check_adam(const Attributes& a, const UpdateType& type, const FloatFormat& scalars, ChangedConstants& changed) {
  changed.add_scalar("learning_rate", a["lr"], binary32, kNoUpdate, kInfiniteWeights);
  changed.add_scalar("eps", a["eps"], scalars, "an update whose second moment is 0 divides by 0", "every update is 0");
  // An average is a lerp from the old value to the new one.
  const float step = round_to_f32(1 - a["beta1"]), share = round_to_f32(a["beta2"]);
  changed.add_share("beta1", a["beta1"], "the first moment", type, true, [=](float old) { return std::fma(step, -old, old); });
  changed.add_share("beta2", a["beta2"], "the second moment", type, false, [=](float old) { return share * old; });
  if (a["decoupled"] == 0) {
    changed.add_scalar("weight_decay", a["weight_decay"], scalars, kNoDecay, kInfiniteGradients);
  } else if (type.rounds_every_step) {
    changed.add_decay(a["lr"], a["weight_decay"], type);
  }
}

void check_lion(const Attributes& a, const UpdateType& type, const FloatFormat& scalars, ChangedConstants& changed) {
  changed.add_scalar("learning_rate", a["lr"], scalars, kNoUpdate, kInfiniteWeights);
  const float share = round_to_f32(a["beta2"]);
  changed.add_share("beta2", a["beta2"], "the momentum", type, true, [=](float old) { return share * old; });
  if (type.rounds_every_step) changed.add_decay(a["lr"], a["weight_decay"], type);
}

void check(const Optimizer& optimizer, const UpdateType& type, ChangedConstants& changed) {
  const Attributes attributes = optimizer.attributes(1);
  const FloatFormat& scalars = type.rounds_every_step ? *type.format : binary32;
  switch (optimizer.op().function) {
    case OpFunction::sgd_update:
      return check_sgd(attributes, type, scalars, changed);
    case OpFunction::adam_update:
      return check_adam(attributes, type, scalars, changed);
    case OpFunction::lion_update:
      return check_lion(attributes, type, scalars, changed);
    default:
      return;
  }
}

// Elements of gradients are kept within +-value, in their own type.
void check_clipping(double value, const FloatFormat& format, const Rounding& rounding, ChangedConstants& changed) {
  const float limit = round_to_f32(value);
  if (value == 0) return;
  if (always_becomes(format, rounding, limit, 0)) {
    changed.add("clipping.value = {} is 0 in {}: every gradient becomes 0", value, upper_case(format.name));
  } else if (always_becomes(format, rounding, limit, INFINITY)) {
    changed.add("clipping.value = {} is Inf in {}: gradients of Inf stay Inf", value, upper_case(format.name));
  }
}

// The gradient of a scaled loss is the scale, in the type of the loss.
void check_scale(const Experiment& experiment, ArithmeticRules* arithmetic, ChangedConstants& changed) {
  const PrecisionRow& row = row_of(experiment.precision);
  if (!row.narrow_loss || !experiment.scaler_enabled()) return;
  const FloatFormat& format = *info(row.dtype).format;
  const Op& scale = find_op("scale");
  const Rounding rounding = rounding_of(arithmetic == nullptr ? nullptr : arithmetic->of(scale, &scale, intern("")));
  const LossScaleRule rule = experiment.scaler_rule();
  if (!always_becomes(format, rounding, round_to_f32(rule.initial), INFINITY)) return;
  changed.add("scaler.initial = {} is Inf in {}, the type of the loss, whose gradient it is: {}", rule.initial,
              upper_case(format.name), rule.dynamic ? "steps are skipped until the scale has come down" : "every step is skipped");
}

// Masks are added to scores of the precision's type, unless something asks for another type.
void check_masks(const Experiment& experiment, const std::vector<LayerSpec>& layers, const std::string& path,
                 ChangedConstants& changed) {
  const FloatFormat& format = *info(row_of(experiment.precision).dtype).format;
  for (const LayerSpec& layer : layers) {
    const std::string name = path + layer.name;
    for (const std::vector<LayerSpec>& within : layer.lists) check_masks(experiment, within, name + '.', changed);
    if (layer.type->name != "attention" || !layer.has("mask_value") || layer.dtype) continue;
    const double value = layer.number("mask_value");
    const bool is_safe = attention_kind(layer, row_of(experiment.precision).attention) == AttentionKind::sdpa;
    if (is_safe && value < 0) continue;
    if (std::isfinite(value) && std::isinf(round_to_format(format, round_to_f32(value))))
      changed.add("mask_value = {:g} of {} is Inf in {} (largest number {:.6g}): softmax gives NaN for a row in which {} masked",
                  value, name, upper_case(format.name), format.largest_finite(), value < 0 ? "every place is" : "a place is");
  }
}

// How many equal terms a sum takes that is rounded to nearest: to twice its first 2^p-1 and so to 2^p of them, p its significant
// bits. One more lies half-way to the next number, and is rounded away.
int64_t most_equal_terms(const FloatFormat& format) { return int64_t{1} << (format.fraction_bits + 1); }
// How far such a sum of independent terms of both signs is off, over its own size: measured of normally distributed ones.
double likely_error_of_sum(const FloatFormat& format, int64_t terms) {
  constexpr uint64_t kSums = 16;
  constexpr int64_t kMostMeasured = int64_t{1} << 16;  // of more it grows as their root: so much is told of these
  double errors = 0, sums = 0;
  for (uint64_t sum = 0; sum < kSums; ++sum) {
    const Philox random(0, sum);
    double exact = 0;
    float rounded = 0;
    for (int64_t i = 0; i < std::min(terms, kMostMeasured); ++i) {
      const float term = round_to_f32(random.normal(static_cast<uint64_t>(i)));
      exact += term;
      rounded = round_to_format(format, rounded + term);
    }
    errors += (rounded - exact) * (rounded - exact);
    sums += exact * exact;
  }
  return std::sqrt(errors / sums);
}
std::string loss_of_terms(const FloatFormat& format, int64_t terms) {
  const int64_t most = most_equal_terms(format);
  return fmt::format("of equal ones {} arrive, and {:.0f}% is lost; of random ones likely {:.2g}%", most,
                     100 * (1 - static_cast<double>(most) / static_cast<double>(terms)), 100 * likely_error_of_sum(format, terms));
}

// Gradients of micro-batches are added up in the type of the weights.
void check_micro_batches(const Experiment& experiment, std::span<const std::unique_ptr<Optimizer>> optimizers,
                         ArithmeticRules* arithmetic, ChangedConstants& changed) {
  const int64_t terms = experiment.training.accumulation;
  const Op& accumulate = find_op("accumulate");
  std::set<DType> said;
  for (const std::unique_ptr<Optimizer>& optimizer : optimizers) {
    for (const OptimizedParameter& parameter : optimizer->parameters()) {
      const DType dtype = (parameter.model ? parameter.model : parameter.tensor).dtype();
      const Rounding rounding =
          rounding_of(arithmetic == nullptr ? nullptr : arithmetic->of(accumulate, nullptr, parameter.module));
      if ((dtype != DType::f16 && dtype != DType::bf16) || rounding.mode != RoundingMode::nearest_even) continue;
      const FloatFormat& format = *info(dtype).format;
      if (terms > most_equal_terms(format) && said.insert(dtype).second)
        changed.add("training.accumulation = {} adds up gradients in {}: {}", terms, upper_case(format.name),
                    loss_of_terms(format, terms));
    }
  }
}

// Products add up their terms in the accumulator: in forward passes as many as a weight has for an output, and for the gradient of
// a weight one for each sample, at least.
void check_accumulators(const Experiment& experiment, std::span<const std::unique_ptr<Optimizer>> optimizers,
                        ArithmeticRules* arithmetic, ChangedConstants& changed) {
  if (arithmetic == nullptr) return;
  const int64_t samples = experiment.training.batch_size;
  // What the sums are of, by the accumulator's name and the number of terms.
  std::map<std::pair<std::string_view, int64_t>, std::vector<std::string>> sums;
  for (const std::unique_ptr<Optimizer>& optimizer : optimizers) {
    for (const OptimizedParameter& parameter : optimizer->parameters()) {
      const auto shape = parameter.tensor.shape();
      if (shape.size() < 2) continue;
      const Op& product = find_op(shape.size() == 4 ? "conv2d" : "linear");
      const Arithmetic* const how = arithmetic->of(product, &product, parameter.module);
      if (how == nullptr || how->accumulation->accumulator != Accumulator::narrow) continue;
      const int64_t most = most_equal_terms(*how->accumulation->narrow),
                    terms = parameter.tensor.size() / std::max<int64_t>(shape[0], 1);
      if (terms > most) sums[{how->accumulation->name, terms}].push_back(fmt::format("results of {}", *parameter.name));
      if (samples > most) sums[{how->accumulation->name, samples}].push_back(fmt::format("gradient of {}", *parameter.name));
    }
  }
  for (const auto& [sum, of] : sums) {
    const auto& [name, terms] = sum;
    const std::string others = of.size() > 1 ? fmt::format(" and {} more", of.size() - 1) : "";
    changed.add("accumulate = {}: sums of at least {} terms ({}{}): {}", name, terms, of.front(), others,
                loss_of_terms(*find_accumulation(name)->narrow, terms));
  }
}

}  // namespace

std::vector<std::string> changed_constants(const Experiment& experiment, std::span<const std::unique_ptr<Optimizer>> optimizers,
                                           ArithmeticRules* arithmetic) {
  std::vector<std::string> found;
  const Op& clamp = find_op("clamp");
  const size_t others = experiment.optimizers.size();
  for (size_t i = 0; i < optimizers.size(); ++i) {
    const Optimizer& optimizer = *optimizers[i];
    const bool is_default = i == 0 && optimizers.size() > others;
    ChangedConstants changed(is_default ? "optimizer." : fmt::format("optimizers[{}].", i - (optimizers.size() - others)), found);
    std::vector<UpdateType> seen;
    for (const OptimizedParameter& parameter : optimizer.parameters()) {
      const auto rounding = [&](const Op& op) {
        return rounding_of(arithmetic == nullptr ? nullptr : arithmetic->of(op, nullptr, parameter.module));
      };
      const FloatFormat& format = *info(parameter.tensor.dtype()).format;
      const bool rounds = optimizer.rounds_every_step(parameter);
      // FP32 results are rounded by FP32 arithmetic.
      const UpdateType type{&format, rounds, rounds || format.fraction_bits > 10 ? Rounding{} : rounding(optimizer.op())};
      check_clipping(experiment.clipping.value, format, format.fraction_bits > 10 ? Rounding{} : rounding(clamp), changed);
      if (std::find(seen.begin(), seen.end(), type) != seen.end()) continue;
      seen.push_back(type);
      check(optimizer, type, changed);
    }
  }
  ChangedConstants of_run("", found);
  check_scale(experiment, arithmetic, of_run);
  check_micro_batches(experiment, optimizers, arithmetic, of_run);
  check_accumulators(experiment, optimizers, arithmetic, of_run);
  if (experiment.autocast.modules.empty() && experiment.autocast.ops.empty())
    check_masks(experiment, experiment.model.layers, "", of_run);
  return found;
}

}  // namespace ulpscope
