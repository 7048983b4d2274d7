// The text form of what a window shows: it leads back to the same state, whatever names hold.
#include "ulpscope/gui/view_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ulpscope/base/error.h"

namespace ulpscope::gui {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// Words as a POSIX shell takes them apart, of what to_options uses of it.
std::vector<std::string> shell_words(const std::string& line) {
  std::vector<std::string> words{""};
  bool in_quotes = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\'') {
      in_quotes = !in_quotes;
    } else if (line[i] == '\\' && !in_quotes) {
      words.back() += line[++i];
    } else if (line[i] == ' ' && !in_quotes) {
      words.emplace_back();
    } else {
      words.back() += line[i];
    }
  }
  return words;
}

ViewState read(const std::string& options) {
  ViewState state;
  const std::vector<std::string> words = shell_words(options);
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string name = words[i].substr(2);
    const bool is_flag = name == "true" || name == "light" || name == "flat";
    set(state, name, is_flag ? "" : words.at(i + 1));
    i += is_flag ? 0 : 1;
  }
  return state;
}

TEST(ViewState, ItsTextLeadsBackToIt) {
  for (const char* tensor :
       {"head linear gradient", "it's", "a'b''c", "$(rm)", "`x`", "\"q\"", "--view", "a\\b", "ümlaut", "x*y"}) {
    ViewState state;
    state.view = View::ranges;
    state.steps = {10, 300};
    state.step = 17;
    state.tensor = state.filter = tensor;
    state.number = "fp16:0x3C00";
    state.quantity = Measured::largest_exponent;
    state.order = TensorOrder::execution;
    state.format = "e4m3";
    state.is_true = state.is_light = state.is_flat = true;
    state.module = tensor;
    state.folded = {tensor, "features.0"};
    state.scale = -12;
    const ViewState back = read(to_options(state));
    EXPECT_EQ(to_options(back), to_options(state));
    EXPECT_EQ(back.tensor, tensor);
    EXPECT_EQ(back.steps.last, 300u);
    EXPECT_EQ(back.scale, -12);
  }
  EXPECT_EQ(to_options(ViewState()), "--view overview");
}

// As all commands take them: both ends included.
TEST(ViewState, StepsAreThoseOfOtherCommands) {
  ViewState state;
  set(state, "steps", "3..7");
  EXPECT_EQ(state.steps.first, 3u);
  EXPECT_EQ(state.steps.last, 8u);
  EXPECT_THAT(to_options(state), HasSubstr("--steps 3..7"));
  for (const char* open : {"3..", "..7"}) {
    set(state, "steps", open);
    EXPECT_THAT(to_options(state), EndsWith(std::string("--steps ") + open));
  }
  for (const char* all : {"..", "0.."}) {
    set(state, "steps", all);
    EXPECT_EQ(to_options(state), "--view overview");
  }
  set(state, "steps", "5");
  EXPECT_THAT(to_options(state), HasSubstr("--steps 5..5"));
}

TEST(ViewState, EachOptionChangesTheText) {
  const std::map<std::string, std::string> values{
      {"view", "step"},       {"steps", "3..9"}, {"step", "4"},         {"module", "features.0"}, {"flat", ""},
      {"fold", "features.0"}, {"tensor", "t"},   {"quantity", "zeros"}, {"order", "execution"},   {"filter", "f"},
      {"limits", "bf16"},     {"true", ""},      {"scale", "2^3"},      {"number", "0.5"},        {"light", ""}};
  for (const StateOption& option : state_options()) {
    ViewState state;
    ASSERT_TRUE(values.contains(option.name)) << option.name;
    set(state, option.name, values.at(option.name));
    EXPECT_THAT(to_options(state), HasSubstr("--" + std::string(option.name))) << "two states would be taken for one";
  }
}

TEST(ViewState, WhatIsNoValueIsSaid) {
  ViewState state;
  const std::vector<std::pair<std::string, std::string>> wrong{
      {"view", "rages"}, {"steps", "9..3"},    {"steps", "x"},    {"steps", "3..x"},  {"step", "-1"},
      {"step", "1e3"},   {"quantity", "nope"}, {"order", "best"}, {"limits", "fp17"}, {"scale", "12"},
      {"scale", "2^99"}, {"scale", "2^"},      {"number", "six"}};
  for (const auto& [option, value] : wrong) {
    try {
      set(state, option, value);
      ADD_FAILURE() << option << " took " << value;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_THAT(error.what(), HasSubstr(value));
    }
  }
  EXPECT_EQ(state, ViewState()) << "nothing was changed by what was refused";
}

TEST(ViewHistory, WalksBackAndForth) {
  ViewHistory history;
  EXPECT_EQ(history.undo(), nullptr);
  ViewState state;
  history.add(state);
  for (uint64_t step = 1; step <= 3; ++step) {
    state.step = step;
    history.add(state);
    history.add(state);  // the same again is nothing new
  }
  EXPECT_EQ(history.undo()->step, 2u);
  EXPECT_EQ(history.undo()->step, 1u);
  EXPECT_EQ(history.redo()->step, 2u);
  state.step = 9;
  history.add(state);
  EXPECT_EQ(history.redo(), nullptr) << "what had come after is gone";
  EXPECT_EQ(history.undo()->step, 2u);
}

}  // namespace
}  // namespace ulpscope::gui
