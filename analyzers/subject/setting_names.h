// What advice calls the settings of a run: as its producer does. Which setting is meant follows from what the trace says that it is
// (SettingKind), and where no kind says it, from the name; a setting that the trace does not have is not named.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/analyzers/report/sentence.h"
#include "ulpscope/analyzers/subject/words/words.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

// A setting as words name it, nothing where there is none, with the other value that they give it, if any.
struct SettingMention {
  SettingKind kind;
  Setting words = {};
  std::string value = {};
  std::string name = {};  // the producer's, where others of the kind are not meant

  operator Value() const { return words; }
  bool empty() const { return words.empty(); }
  std::string text() const { return words.text(); }
  bool operator==(std::string_view other) const { return text() == other; }
};

class SettingNames {
 public:
  // `device`: RunInfo::backend.
  explicit SettingNames(std::vector<SettingInfo> settings, const ProducerWords& words = neutral_words, std::string device = "")
      : settings_(std::move(settings)), words_(&words), device_(std::move(device)) {}

  const ProducerWords& words() const { return *words_; }
  const std::vector<SettingInfo>& all() const { return settings_; }

  // Each of these gives nothing where there is none; the first two, and the switch, then give what the producer's users write
  // instead.
  SettingMention name(SettingKind kind) const;                                 // of the first of that kind: "scaler.initial"
  SettingMention name_for(SettingKind kind, const std::string& module) const;  // the same of one for modules
  // "autocast.modules."norm" = "fp32"": what keeps these modules in FP32.
  SettingMention of_modules(const std::string& modules) const;
  // "loss.ignore_index, now -100", of the one that the producer calls so.
  SettingMention now_named(std::string_view name) const;
  // "scaler.dynamic = true", with the value that its own, another one of two, is the opposite of; of other values the name alone.
  SettingMention switched(SettingKind kind, bool on) const;
  bool is_off(SettingKind kind) const;  // its value says so
  // "optimizer.math = "param"", the value that it has.
  SettingMention with_value(SettingKind kind) const;
  // "optimizer.eps, now 1e-8", of one that should have another value.
  SettingMention now(SettingKind kind) const;
  // The same, or where the trace has no such setting, what the producer's users write.
  SettingMention now_or_name(SettingKind kind) const;
  // "fp8.recipe = "current", now "delayed"", of one that should have this value and has another.
  SettingMention proposed(SettingKind kind, std::string_view value) const;
  // As `now`, where there is one of that kind only, and not one for each of several groups of parameters.
  SettingMention only_now(SettingKind kind) const;
  // The same of the only one of that kind whose value is this number, to one in a hundred thousand.
  SettingMention now_where(SettingKind kind, double value) const;
  // The setting is that of the only optimizer, or else of the only one with that value.
  SettingMention now_of(SettingKind kind, double value) const;
  // "schedule.type = "step"" and "schedule.gamma = 0.1": those that were asked for, of the table that the setting of that kind is
  // in.
  Value::List given_beside(SettingKind kind) const;
  std::optional<double> number(SettingKind kind) const;  // of the first of that kind, where its value is a number
  std::vector<double> numbers(SettingKind kind) const;   // of all of that kind, where theirs are
  // "optimizer.math = "fp32"", where its value is `from`.
  SettingMention changed(SettingKind kind, std::string_view from, std::string_view to) const;

  bool has(std::string_view name) const;  // a setting that a producer calls so

 private:
  const SettingInfo* find(SettingKind kind) const;

  std::vector<SettingInfo> settings_;
  const ProducerWords* words_;
  std::string device_;
};

}  // namespace ulpscope
