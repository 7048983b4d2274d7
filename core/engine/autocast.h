// Autocast: which type an op's inputs are cast to in forward and loss. PyTorch's lists are the ops' own classes; a policy may have
// other lists, and overrides.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ulpscope/core/engine/op.h"

namespace ulpscope {

// The lists of another library: what it makes of each class of ops, and of single ops.
struct AutocastLists {
  struct Row {
    std::string_view op;
    AutocastClass autocast;
  };
  // By the ops' own classes.
  AutocastClass input_type, lower_precision, fp32, fp32_unless_dtype, loss, forbidden;
  std::span<const Row> ops = {};
  bool casts_once =
      true;  // a parameter in a forward pass; else at each use, so that the gradients of its uses add up in its own type

  AutocastClass of_class(AutocastClass own) const;
  AutocastClass class_of(const Op& op) const;
};

struct AutocastPolicy {
  DType dtype = DType::f16;              // the lower precision: f16 or bf16
  const AutocastLists* lists = nullptr;  // nullptr: PyTorch's
  // Types that inputs are cast to instead of what the op's class says: by op name, and by module path (a glob, "features.*"), as
  // inside custom_fwd(cast_inputs=...). A module's override comes before an op's; of several that fit, the first decides.
  std::map<std::string, DType, std::less<>> ops;
  std::vector<std::pair<std::string, DType>> modules;
};

// The policy in force, with the casts of parameters made since it was entered.
class Autocast {
 public:
  explicit Autocast(AutocastPolicy policy);
  const AutocastPolicy& policy() const { return policy_; }

  // The type that the floating-point ones of `inputs` of `op` are cast to in the current module; nothing: the widest of their own.
  // `asked` is the type that the caller asked the op for.
  std::optional<DType> input_type(const Op& op, std::span<const Tensor> inputs, std::optional<DType> asked);
  AutocastClass class_of(const Op& op) const { return policy_.lists != nullptr ? policy_.lists->class_of(op) : op.autocast; }
  bool casts_once() const { return policy_.lists == nullptr || policy_.lists->casts_once; }
  // Whether an output of `op` counts as kept in FP32 for ops whose type is inferred.
  bool keeps_fp32(const Op& op, std::span<const Tensor> inputs) const;

  // Where lists cast once, a weight used twice has one cast in a forward pass.
  const Tensor* cached_cast(const Tensor& parameter, DType dtype) const;
  void remember_cast(const Tensor& parameter, const Tensor& cast);
  void clear_cache() { cache_.clear(); }

 private:
  struct Cast {
    Tensor parameter;  // kept, so that its storage is not reused
    uint32_t version;
    Tensor cast;
  };
  // Of the module, by the policy's patterns or else by the layer itself.
  std::optional<DType> module_type();

  AutocastPolicy policy_;
  std::unordered_map<uint64_t, Cast> cache_;  // by storage serial
  std::unordered_map<const std::string*, std::optional<DType>> module_overrides_;
};

}  // namespace ulpscope
