#include "ulpscope/core/engine/arithmetic.h"

#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/base/error.h"
#include "ulpscope/base/hash.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

ArithmeticChange ArithmeticChange::to(const Arithmetic& arithmetic) {
  return {arithmetic.accumulation, arithmetic.rounding, arithmetic.subnormals, arithmetic.tf32};
}

ArithmeticChange ArithmeticChange::between(const Arithmetic& from, const Arithmetic& to) {
  ArithmeticChange change = ArithmeticChange::to(to);
  const auto drop = [](auto& value, const auto& unchanged) {
    if (value == unchanged) value.reset();
  };
  drop(change.accumulation, from.accumulation);
  drop(change.rounding, from.rounding);
  drop(change.subnormals, from.subnormals);
  drop(change.tf32, from.tf32);
  return change;
}

Arithmetic ArithmeticChange::applied_to(Arithmetic arithmetic) const {
  arithmetic.accumulation = accumulation.value_or(arithmetic.accumulation);
  arithmetic.rounding = rounding.value_or(arithmetic.rounding);
  arithmetic.subnormals = subnormals.value_or(arithmetic.subnormals);
  arithmetic.tf32 = tf32.value_or(arithmetic.tf32);
  return arithmetic;
}

std::string describe(const ArithmeticPolicy& policy) {
  std::string text;
  const auto add = [&](const std::string& of, const ArithmeticChange& change) {
    const auto set = [&](std::string_view key, std::string_view value) {
      text += fmt::format("{}{}{}={}", text.empty() ? "" : " ", of, key, value);
    };
    if (change.accumulation) set("accumulate", (*change.accumulation)->name);
    if (change.tf32) set("tf32", *change.tf32 ? "true" : "false");
    if (change.rounding) set("rounding", name_of(*change.rounding));
    if (change.subnormals) set("subnormals", name_of(*change.subnormals));
  };
  add("", ArithmeticChange::between({}, policy.run));
  for (const auto& [op, change] : policy.ops) add(fmt::format("ops.{}.", op), change);
  for (const auto& [module, change] : policy.modules) add(fmt::format("modules.{}.", module), change);
  return text;
}

bool accumulates_in_16_bits(const ArithmeticPolicy& policy) {
  const auto is_narrow = [](const Accumulation& accumulation) { return accumulation.accumulator == Accumulator::narrow; };
  const auto changes = [&](const auto& named) { return named.second.accumulation && is_narrow(**named.second.accumulation); };
  return is_narrow(*policy.run.accumulation) || std::any_of(policy.ops.begin(), policy.ops.end(), changes) ||
         std::any_of(policy.modules.begin(), policy.modules.end(), changes);
}

ArithmeticRules::ArithmeticRules(ArithmeticPolicy policy) : policy_(std::move(policy)) {
  for (const auto& [name, change] : policy_.ops) {
    const Op& op = find_op(name);
    if (op.is_view || only_moves(op.name)) throw usage_error("'{}' moves elements and computes nothing", name);
    if ((change.accumulation || change.tf32) && !is_product(op.name)) {
      const auto products = arithmetic_products();
      throw usage_error("'{}' multiplies no matrices, so accumulate and tf32 have no effect on it; expected {}", name,
                        join_words(std::vector<std::string>(products.begin(), products.end()), "or"));
    }
  }
}

Arithmetic ArithmeticRules::resolve(const Op& op, const Op* forward, const std::string& module) const {
  Arithmetic arithmetic = policy_.run;
  for (const Op* named : {forward, &op}) {
    if (named == nullptr) continue;
    if (const auto found = policy_.ops.find(named->name); found != policy_.ops.end())
      arithmetic = found->second.applied_to(arithmetic);
  }
  for (const auto& [pattern, change] : policy_.modules) {
    if (glob_match(pattern, module)) return change.applied_to(arithmetic);
  }
  return arithmetic;
}

const Arithmetic* ArithmeticRules::of(const Op& op, const Op* forward, const std::string* module) {
  const auto [entry, added] = resolved_.try_emplace({&op, forward, module});
  if (added) {
    const Arithmetic arithmetic = resolve(op, forward, *module);
    if (arithmetic != Arithmetic{}) entry->second = arithmetic;
  }
  return entry->second ? &*entry->second : nullptr;
}

size_t ArithmeticRules::Hash::operator()(const Key& key) const {
  const auto bits = [](const void* pointer) { return reinterpret_cast<uint64_t>(pointer); };
  return hash_combine(hash_combine(bits(key.op), bits(key.forward)), bits(key.module));
}

}  // namespace ulpscope
