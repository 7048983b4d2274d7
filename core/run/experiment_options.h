// The tables of keys of an experiment file.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulpscope/core/run/experiment.h"
#include "ulpscope/core/settings/option.h"

namespace ulpscope {

// All keys but model.layers, optimizers, inject, and the free names under autocast.ops, autocast.modules, arithmetic.ops and
// arithmetic.modules, in the order in which they are documented and written; keys without a dot come first.
const std::vector<Option<Experiment>>& experiment_options();
// nullptr where there is none.
const Option<Experiment>* find_option(std::string_view key);

// The keys of each of `inject`.
const std::vector<Option<InjectedFault>>& fault_options();
// Those with other values than by default: keys and values, as TOML.
std::vector<std::pair<std::string, std::string>> given_values(const InjectedFault& fault);

// The keys of `arithmetic`, arithmetic.ops.NAME and arithmetic.modules.NAME.
const std::vector<Option<ArithmeticChange>>& arithmetic_options();

// The tables whose keys are names of ops or patterns of modules.
inline constexpr std::string_view kAutocastOps = "autocast.ops", kAutocastModules = "autocast.modules",
                                  kArithmeticOps = "arithmetic.ops", kArithmeticModules = "arithmetic.modules";
struct NamedTable {
  std::string name;
  std::vector<std::pair<std::string, std::string>> members;  // keys and values, as TOML
  SettingKind kind = SettingKind::other;                     // what traces say that it is

  std::string text() const;  // in braces
};
std::vector<NamedTable> named_tables(const Experiment& experiment);

// Values of autocast.ops.NAME, autocast.modules.NAME and a layer's dtype.
const OptionType& precision_type();
Precision find_precision(std::string_view name);

}  // namespace ulpscope
