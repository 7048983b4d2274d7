// Autocast: which type an op's inputs are cast to in forward and loss. The lists are the ops' own classes; a policy overrides them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ulpscope/core/engine/op.h"

namespace ulpscope {

struct AutocastPolicy {
  DType dtype = DType::f16;  // the lower precision: f16 or bf16
  // Types that inputs are cast to instead of what the op's class says: by op name, and by module path (a glob, "features.*"), as
  // inside custom_fwd(cast_inputs=...). A module's override comes before an op's; of several that fit, the first decides.
  std::map<std::string, DType, std::less<>> ops;
  std::vector<std::pair<std::string, DType>> modules;
};

// The policy in force, with the casts of parameters made since it was entered.
class Autocast {
 public:
  explicit Autocast(AutocastPolicy policy);

  // The type that the floating-point inputs of `op` are cast to in the module with the interned path `module`; nothing: the widest
  // of their own. `asked` is the type that the caller asked the op for.
  std::optional<DType> input_type(const Op& op, const std::string* module, std::optional<DType> asked);

  // Casts of parameters are made once per forward pass, so that a weight used twice has one cast.
  const Tensor* cached_cast(const Tensor& parameter, DType dtype) const;
  void remember_cast(const Tensor& parameter, const Tensor& cast);
  void clear_cache() { cache_.clear(); }

 private:
  struct Cast {
    Tensor parameter;  // kept, so that its storage is not reused
    uint32_t version;
    Tensor cast;
  };
  AutocastPolicy policy_;
  std::unordered_map<uint64_t, Cast> cache_;  // by storage serial
  std::unordered_map<const std::string*, std::optional<DType>> module_overrides_;
};

}  // namespace ulpscope
