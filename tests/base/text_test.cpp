#include "ulpscope/base/text.h"

#include <gtest/gtest.h>

namespace ulpscope {
namespace {

using Words = std::vector<std::string>;

TEST(DidYouMean, NamesTheNearestCandidate) {
  const Words verbs{"train", "info", "ranges", "scale", "report"};
  EXPECT_EQ(did_you_mean("trian", verbs), "; did you mean 'train'?");
  EXPECT_EQ(did_you_mean("range", verbs), "; did you mean 'ranges'?");
  EXPECT_EQ(did_you_mean("sclae", verbs), "; did you mean 'scale'?");
}

TEST(DidYouMean, SaysNothingWhereNothingIsNear) {
  EXPECT_EQ(did_you_mean("quux", Words{"train", "report"}), "");
  EXPECT_EQ(did_you_mean("x", Words{}), "");
  // Three edits for six letters are too many; a swap of neighbours is one.
  EXPECT_EQ(did_you_mean("abcdef", Words{"abcxyz"}), "");
  EXPECT_EQ(did_you_mean("abcdef", Words{"badcef"}), "; did you mean 'badcef'?");
}

TEST(JoinWords, ReadsAsAList) {
  EXPECT_EQ(join_words(Words{}), "");
  EXPECT_EQ(join_words(Words{"a"}), "a");
  EXPECT_EQ(join_words(Words{"a", "b"}), "a and b");
  EXPECT_EQ(join_words(Words{"a", "b", "c"}, "or"), "a, b or c");
}

}  // namespace
}  // namespace ulpscope
