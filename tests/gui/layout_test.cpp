// What a window remembers: written and read again, and as good as nothing where the file is broken, foreign or not to be written.
#include "ulpscope/gui/layout.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/support/temporary_folder.h"
#include "tests/support/variable_scope.h"

namespace ulpscope::gui {
namespace {

class LayoutTest : public ::testing::Test {
 protected:
  void write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  const TemporaryFolder folder_;
  const std::filesystem::path path_ = std::filesystem::path(folder_.path()) / "state" / "window";
};

TEST_F(LayoutTest, IsReadAsItWasWritten) {
  Layout layout;
  layout.width = 1000;
  layout.height = 640;
  layout.state.view = View::timeline;
  layout.state.quantity = Measured::headroom;
  layout.state.order = TensorOrder::execution;
  layout.state.format = "bf16";
  layout.state.is_flat = layout.state.is_true = layout.state.is_light = true;
  Layout of_a_trace = layout;
  of_a_trace.state.tensor = "head linear";
  of_a_trace.state.step = 7;
  of_a_trace.state.steps = {3, 9};
  write_layout(path_, of_a_trace);
  const Layout read = read_layout(path_);
  EXPECT_EQ(read.state, layout.state) << "what is of a trace is left out";
  EXPECT_EQ(read.width, 1000);
  EXPECT_EQ(read.height, 640);
  write_layout(path_, {});
  EXPECT_EQ(read_layout(path_).state, ViewState());
}

TEST_F(LayoutTest, WhatHasNoMeaningIsAsInANewWindow) {
  EXPECT_EQ(read_layout(path_).width, 1280) << "there is none";
  EXPECT_EQ(read_layout({}).width, 1280);
  std::filesystem::create_directories(path_.parent_path());
  write("width 100000000000\nheight -3\nview nowhere\nquantity\nlight\nstep 4\nlimits fp17\n\nwidth\n");
  Layout read = read_layout(path_);
  EXPECT_EQ(read.width, 1280);
  EXPECT_EQ(read.height, 800);
  EXPECT_EQ(read.state.view, View::overview);
  EXPECT_EQ(read.state.format, "");
  EXPECT_FALSE(read.state.step);
  EXPECT_TRUE(read.state.is_light) << "what has a meaning counts";
  write(std::string("\0\xFF\n\n width 7 7\nview", 20) + std::string(100000, 'x'));
  EXPECT_EQ(read_layout(path_).state, ViewState());
  std::filesystem::remove(path_);
  std::filesystem::create_directories(path_);
  EXPECT_EQ(read_layout(path_).width, 1280) << "a folder";
}

TEST_F(LayoutTest, WhereItCannotBeWrittenNothingHappens) {
  write_layout({}, {});
  std::filesystem::create_directories(path_.parent_path());
  write("");
  write_layout(path_ / "below" / "a file", {});
  EXPECT_EQ(std::filesystem::file_size(path_), 0u);
}

TEST_F(LayoutTest, LiesWhereStateOfProgramsDoes) {
  const std::string state = folder_.path();
  const VariableScope home("HOME", "/home/someone"), states("XDG_STATE_HOME", state);
  EXPECT_EQ(layout_path(), std::filesystem::path(state) / "ulpscope" / "window");
  setenv("XDG_STATE_HOME", "relative", 1);
  EXPECT_EQ(layout_path(), "/home/someone/.local/state/ulpscope/window");
  unsetenv("XDG_STATE_HOME");
  unsetenv("HOME");
  EXPECT_EQ(layout_path(), "");
}

}  // namespace
}  // namespace ulpscope::gui
