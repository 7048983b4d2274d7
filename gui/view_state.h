// What a window shows of its traces: a small value with a text form, the options of `ulpscope view` and `ulpscope screenshot`. A
// view is drawn from it and from what was read, so the same state is the same picture.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/analyzers/history/plots.h"

namespace ulpscope::gui {

enum class View : uint8_t { overview, ranges, timeline, why_nan, step, updates, compare, number };
inline constexpr int kViews = 8;
const char* name_of(View view);   // "why-nan", as options have it
const char* title_of(View view);  // "Why NaN"
const std::vector<std::string>& view_names();

struct ViewState {
  View view = View::overview;
  StepRange steps;               // that views show; all of them where none were chosen
  std::optional<uint64_t> step;  // the selected one
  std::string tensor;            // the selected one, by its name; ""; none
  std::string module;            // that is selected instead, among rows of modules; "": none
  Measured quantity = Measured::flushed;
  TensorOrder order = TensorOrder::worst;
  bool is_flat = false;          // tensors without the modules that they lie in
  std::set<std::string> folded;  // modules that are folded, or unfolded where there are so many tensors that all are folded
  std::string filter;            // a glob pattern, or a part, of tensors' names
  std::string format;            // whose limits are drawn; "": that of the tensor
  bool is_true = false;          // values without the loss scale
  std::optional<int> scale;      // k of the loss scale 2^k that is tried; values are shown without theirs then
  std::string number = "0.1";    // of View::number: a number, an encoding, or one of a format as "fp16:0x3C00"
  bool is_light = false;

  bool operator==(const ViewState&) const = default;
};

// The names of the options that make a state, without their dashes, and what they take.
struct StateOption {
  const char* name;
  const char* argument;  // "" for a flag
  const char* meaning;
  bool is_list = false;  // may be given several times
};
std::span<const StateOption> state_options();

// Sets what `option` stands for. Throws Error (usage) for a value that it does not take.
void set(ViewState& state, std::string_view option, const std::string& value);
// The options of what is not as a new state has it: "--view ranges --tensor 'head linear gradient'".
std::string to_options(const ViewState& state);

// Instead of what was selected.
void select_tensor(ViewState& state, const std::string& tensor);
// What of a tensor and a step the key names.
void select_place(ViewState& state, const RowKey& key);
// All steps are shown where it is not among those that are.
void select_step(ViewState& state, uint64_t step);
void toggle_fold(ViewState& state, const std::string& module);

// True iff the name matches the filter.
bool passes(const ViewState& state, std::string_view name);

// States that came one after another, walked back and forth.
class ViewHistory {
 public:
  // Remembers the state where it is another than the last one.
  void add(const ViewState& state);
  // The state before, or after, the current one; nullptr where there is none.
  const ViewState* undo();
  const ViewState* redo();

 private:
  std::vector<ViewState> states_;
  size_t current_ = 0;
};

}  // namespace ulpscope::gui
