// The order of sums, seen by adding names instead of numbers; twins share it, so they cannot tell.
#include "ulpscope/kernels/sum_order.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ulpscope/kernels/view.h"

namespace ulpscope {
namespace {

struct Name {
  std::string text;
  Name& operator+=(const Name& other) {
    text = fmt::format("({}+{})", text, other.text);
    return *this;
  }
};

// Lane i once `count` lanes are left.
std::string lane(int i, int count) {
  if (count == 16) return std::to_string(i);
  return fmt::format("({}+{})", lane(i, 2 * count), lane(i + count, 2 * count));
}

TEST(SumOrder, LanesAreHalved) {
  std::vector<Name> lanes(16);
  for (int i = 0; i < 16; ++i) lanes[i].text = std::to_string(i);
  add_lanes(lanes.data());
  EXPECT_EQ(lanes[0].text, lane(0, 1));
  EXPECT_EQ(lanes[0].text.substr(0, 12), "((((0+8)+(4+");
}

TEST(SumOrder, ColumnsAreAddedEachByItself) {
  std::vector<Name> lanes(16 * 3);
  for (int i = 0; i < 16 * 3; ++i) lanes[i].text = std::to_string(i / 3);
  lanes[3 * 5 + 1].text = std::string("x");
  add_lanes(lanes.data(), 3);
  EXPECT_EQ(lanes[0].text, lane(0, 1));
  EXPECT_NE(lanes[1].text.find("(x+13)"), std::string::npos) << lanes[1].text;
  EXPECT_EQ(lanes[2].text, lane(0, 1));
}

TEST(SumOrder, BlocksAreMergedAsNeighbors) {
  const char* const expected[] = {
      "0", "(0+1)", "((0+1)+2)", "((0+1)+(2+3))", "(((0+1)+(2+3))+4)", "(((0+1)+(2+3))+(4+5))", "(((0+1)+(2+3))+((4+5)+6))"};
  for (int n = 1; n <= 7; ++n) {
    std::vector<Name> blocks(n);
    for (int i = 0; i < n; ++i) blocks[i].text = std::to_string(i);
    merge_by_tree(blocks.data(), n, [](Name a, const Name& b) { return a += b; });
    EXPECT_EQ(blocks[0].text, expected[n - 1]);
  }
  std::vector<Name> none;
  merge_by_tree(none.data(), 0, [](Name a, const Name& b) { return a += b; });
}

TEST(MemoryOrder, IsThatOfTheStrides) {
  TensorView view;
  view.rank = 4;  // NCHW, laid out channels-last
  view.shape = {2, 3, 1, 5};
  view.strides = {15, 1, 15, 3};
  const auto order = [&](unsigned mask) {
    const DimensionList list = dimensions_in_memory_order(view, mask);
    return std::vector<int>(list.dimensions.begin(), list.dimensions.begin() + list.count);
  };
  EXPECT_EQ(order(~0u), (std::vector<int>{0, 2, 3, 1})) << "equal strides by position";
  EXPECT_EQ(order(0b1010), (std::vector<int>{3, 1}));
  EXPECT_EQ(order(0), std::vector<int>{});
}

}  // namespace
}  // namespace ulpscope
