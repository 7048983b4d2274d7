// The arithmetic of a run: how its ops accumulate, round and treat subnormals, for all of them and by op and module.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ulpscope/core/engine/op.h"
#include "ulpscope/kernels/op_call_arithmetic.h"

namespace ulpscope {

// What differs from the arithmetic around it.
struct ArithmeticChange {
  std::optional<const Accumulation*> accumulation;
  std::optional<RoundingMode> rounding;
  std::optional<Subnormals> subnormals;
  std::optional<bool> tf32;

  static ArithmeticChange to(const Arithmetic& arithmetic);  // all of it
  static ArithmeticChange between(const Arithmetic& from, const Arithmetic& to);
  Arithmetic applied_to(Arithmetic arithmetic) const;
  bool operator==(const ArithmeticChange&) const = default;
};

// Later ones win, key by key: the run's, that of the forward op that a backward op belongs to, that of the op itself, and that of
// the first pattern (a glob) that the module's path fits.
struct ArithmeticPolicy {
  Arithmetic run;
  std::map<std::string, ArithmeticChange, std::less<>> ops;
  std::vector<std::pair<std::string, ArithmeticChange>> modules;

  bool operator==(const ArithmeticPolicy&) const = default;
};
// "accumulate=a100 rounding=sr ops.linear.accumulate=fp16", or "" of the default.
std::string describe(const ArithmeticPolicy& policy);
// Whether some op keeps its sums in FP16 or BF16.
bool accumulates_in_16_bits(const ArithmeticPolicy& policy);

class ArithmeticRules {
 public:
  // Throws a usage Error that names the op where one is not known, computes nothing, or multiplies nothing and is told how to
  // accumulate.
  explicit ArithmeticRules(ArithmeticPolicy policy);

  // What a call is to have: nullptr for the default. `forward`: the op that a backward op belongs to, or nullptr. `module`:
  // interned.
  const Arithmetic* of(const Op& op, const Op* forward, const std::string* module);

 private:
  struct Key {
    const Op* op;
    const Op* forward;
    const std::string* module;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  Arithmetic resolve(const Op& op, const Op* forward, const std::string& module) const;

  ArithmeticPolicy policy_;
  std::unordered_map<Key, std::optional<Arithmetic>, Hash> resolved_;  // nothing: the default
};

}  // namespace ulpscope
