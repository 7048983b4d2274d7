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
  EXPECT_EQ(did_you_mean("foo", Words{"f16"}), "") << "two of three";
  EXPECT_EQ(did_you_mean("abcdef", Words{"badcef"}), "; did you mean 'badcef'?");
}

TEST(DidYouMean, KnowsAbbreviations) {
  const Words keys{"type", "learning_rate", "weight_decay", "eps", "beta1"};
  EXPECT_EQ(did_you_mean("lr", keys), "; did you mean 'learning_rate'?");
  EXPECT_EQ(did_you_mean("wd", keys), "; did you mean 'weight_decay'?");
  EXPECT_EQ(did_you_mean("weight_grad", Words{"weight", "weight_cast", "weight_gradient"}), "; did you mean 'weight_gradient'?");
  EXPECT_EQ(did_you_mean("wei", Words{"weights_one", "weights_two"}), "") << "it could be either";
}

TEST(DidYouMean, ReadsNamesInAnyCase) {
  EXPECT_EQ(lower_case("E4M3-fn \xC3\x84"), "e4m3-fn \xC3\x84");
  EXPECT_EQ(did_you_mean("BF61", Words{"fp32", "bf16"}), "; did you mean 'bf16'?");
  EXPECT_EQ(did_you_mean("lr", Words{"Learning_Rate"}), "; did you mean 'Learning_Rate'?");
}

// Where names differ in their digits by more than one edit, what stands there is another name and no misspelling.
TEST(DidYouMean, TakesDigitsAtTheirWord) {
  const Words precisions{"fp32", "fp16", "bf16"};
  for (const char* other : {"fp8", "e4m3", "fp71", "fp64"}) EXPECT_EQ(did_you_mean(other, precisions), "") << other;
  EXPECT_EQ(did_you_mean("fp61", precisions), "; did you mean 'fp16'?");
  EXPECT_EQ(did_you_mean("fp17", precisions), "; did you mean 'fp16'?");
  EXPECT_EQ(did_you_mean("a1000", Words{"v100", "a100"}), "; did you mean 'a100'?");
  EXPECT_EQ(did_you_mean("v101", Words{"h100", "v100"}), "; did you mean 'v100'?");
  EXPECT_EQ(did_you_mean("b16", Words{"b17", "bf16"}), "; did you mean 'bf16'?") << "it has the digits";
  EXPECT_EQ(did_you_mean("bf1", Words{"bf16"}), "; did you mean 'bf16'?");
  EXPECT_EQ(did_you_mean("conv", Words{"conv2d"}), "; did you mean 'conv2d'?");
}

TEST(DidYouMean, ListsWhatThereIsWhereNothingIsNear) {
  EXPECT_EQ(did_you_mean_or_expected("tain", Words{"train", "report"}), "; did you mean 'train'?");
  EXPECT_EQ(did_you_mean_or_expected("x7", Words{"a", "b", "c"}), "; expected a, b or c");
  EXPECT_EQ(did_you_mean_or_expected("x7", Words{}), "");
  EXPECT_EQ(did_you_mean_or_expected("x7", Words(19, "a")),
            "; expected a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a or one of 3 more");
}

TEST(JoinWords, ReadsAsAList) {
  EXPECT_EQ(join_words(Words{}), "");
  EXPECT_EQ(join_words(Words{"a"}), "a");
  EXPECT_EQ(join_words(Words{"a", "b"}), "a and b");
  EXPECT_EQ(join_words(Words{"a", "b", "c"}, "or"), "a, b or c");
}

TEST(CountOf, OneIsSingular) {
  EXPECT_EQ(count_of(0, "step"), "0 steps");
  EXPECT_EQ(count_of(1, "gradient tensor"), "1 gradient tensor");
  EXPECT_EQ(count_of(UINT64_MAX, "row"), "18446744073709551615 rows");
}

TEST(OneLine, ShowsControlCharactersAndNoOther) {
  EXPECT_EQ(one_line("a\tb\r\n"), "a\\u0009b\\u000D\\u000A");
  EXPECT_EQ(one_line("\x1B[31m\x7F"), "\\u001B[31m\\u007F");
  EXPECT_EQ(one_line("\xC2\x80\xC2\x9F"), "\\u0080\\u009F");
  // A no-break space, an e with an acute accent, an em dash, and half a character: none is a control character.
  for (const char* text : {"", "plain \\ text", "\xC2\xA0", "\xC3\xA9", "\xE2\x80\x94", "\xC2"}) EXPECT_EQ(one_line(text), text);
  EXPECT_EQ(one_line("\xC2\x1F"), "\xC2\\u001F");
  EXPECT_EQ(one_line(std::string_view("a\0b", 3)), "a\\u0000b");
}

}  // namespace
}  // namespace ulpscope
