#include "ulpscope/base/text.h"

#include <gtest/gtest.h>

#include <cstdio>

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
  EXPECT_EQ(did_you_mean("nope", Words{"copy"}), "") << "two of four";
  EXPECT_EQ(did_you_mean("abcdef", Words{"badcef"}), "; did you mean 'badcef'?");
}

TEST(DidYouMean, KnowsAbbreviations) {
  const Words keys{"type", "learning_rate", "weight_decay", "eps", "beta1"};
  EXPECT_EQ(did_you_mean("lr", keys), "; did you mean 'learning_rate'?");
  EXPECT_EQ(did_you_mean("wd", keys), "; did you mean 'weight_decay'?");
  EXPECT_EQ(did_you_mean("weight_grad", Words{"weight", "weight_cast", "weight_gradient"}), "; did you mean 'weight_gradient'?");
  EXPECT_EQ(did_you_mean("wei", Words{"weights_one", "weights_two"}), "") << "it could be either";
}

TEST(Contains, TextInAnyCase) {
  EXPECT_TRUE(contains_in_any_case("Head linear gradient", "LINEAR"));
  EXPECT_TRUE(contains_in_any_case("relu", "relu"));
  EXPECT_TRUE(contains_in_any_case("", ""));
  EXPECT_FALSE(contains_in_any_case("relu", "relu6"));
  EXPECT_FALSE(contains_in_any_case("", "a"));
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
  EXPECT_EQ(count_of(1234567, "step"), "1,234,567 steps");
  for (const auto& [digits, grouped] : {std::pair{"999", "999"},
                                        {"65504.5", "65,504.5"},
                                        {"-1234567", "-1,234,567"},
                                        {"0.12345", "0.12345"},
                                        {"1.482e+04", "14,820"},
                                        {"1e+09", "1,000,000,000"},
                                        {"1e+10", "1e+10"},
                                        {"1e-05", "1e-05"},
                                        {"nan", "nan"},
                                        {"", ""}})
    EXPECT_EQ(grouped_digits(digits), grouped);
  EXPECT_EQ(count_of(1, "gradient tensor"), "1 gradient tensor");
  EXPECT_EQ(count_of(UINT64_MAX, "row"), "18,446,744,073,709,551,615 rows");
}

// By the rule of the standard, not by its table: decode, and see whether encoding gives the same bytes.
std::string encoded(uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  std::string bytes(1, static_cast<char>((0xFF00 >> (more + 1) & 0xFF) | code >> 6 * more));
  for (int i = more - 1; i >= 0; --i) bytes += static_cast<char>(0x80 | (code >> 6 * i & 0x3F));
  return bytes;
}

TEST(ValidUtf8, EveryCharacterStays) {
  for (uint32_t code = 0; code < 0x110000; ++code) {
    const std::string text = "a" + encoded(code) + "b";
    const bool is_surrogate = code >= 0xD800 && code < 0xE000;
    ASSERT_EQ(is_utf8(text), !is_surrogate) << code;
    ASSERT_EQ(valid_utf8(text) == text, !is_surrogate) << code;
  }
}

TEST(ValidUtf8, EachByteThatIsPartOfNoCharacterIsReplaced) {
  const std::string replacement = "\xEF\xBF\xBD";
  EXPECT_EQ(valid_utf8("\xFF"
                       "a\xC3"),
            replacement + "a" + replacement);
  EXPECT_EQ(valid_utf8("\xC3\xA9\xA9"), "\xC3\xA9" + replacement);
  EXPECT_EQ(valid_utf8("\xE2\x80\""), replacement + replacement + "\"");
  EXPECT_EQ(valid_utf8("\xC0\x80"), replacement + replacement);                                      // U+0000 in two bytes
  EXPECT_EQ(valid_utf8("\xF4\x90\x80\x80"), replacement + replacement + replacement + replacement);  // U+110000
  // Of two bytes, all of them.
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text{static_cast<char>(first), static_cast<char>(second)};
      ASSERT_TRUE(is_utf8(valid_utf8(text))) << first << ' ' << second;
      ASSERT_EQ(is_utf8(text), valid_utf8(text) == text) << first << ' ' << second;
    }
  }
}

// Held against what /bin/sh makes of it.
TEST(ShellWord, IsWhatAShellReadsAsThisOneWord) {
  const Words words{"",
                    "runs/m-16.h5",
                    "my run's.h5",
                    "'",
                    "''a''",
                    "two\nlines\n",
                    " ",
                    "a\tb",
                    "\xC3\xBCmlaut \xE2\x80\x94 x",
                    "\xFF",
                    "-o",
                    "--view=x",
                    "-",
                    "=ls",
                    "a=b:c,d@e+f",
                    "$(x).h5",
                    "`x`",
                    "\"q\"",
                    "a\\b\\",
                    "*?[x]",
                    "~",
                    "#x",
                    "a;b&c|d<e>f(g)!",
                    "{a,b}",
                    "%s\\n",
                    "last\\\nline"};
  std::string command = "printf '%s\\0'", expected;
  for (const std::string& word : words) {
    command += " " + shell_word(word);
    expected += word + '\0';
  }
  FILE* const shell = ::popen(command.c_str(), "r");
  ASSERT_NE(shell, nullptr);
  std::string read(expected.size() + 1, '?');
  read.resize(std::fread(read.data(), 1, read.size(), shell));
  EXPECT_EQ(::pclose(shell), 0);
  EXPECT_EQ(read, expected);

  for (const char* plain : {"runs/m-16.h5", "\xC3\xBCmlaut", "a=b:c,d@e+f"}) EXPECT_EQ(shell_word(plain), plain);
  EXPECT_EQ(shell_word("my run's.h5"), "'my run'\\''s.h5'");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("-o"), "'-o'");
  EXPECT_EQ(shell_word("=ls"), "'=ls'");
  EXPECT_EQ(shell_word("two\nlines"), "'two\nlines'");
}

TEST(OneLine, ShowsControlCharactersAndNoOther) {
  EXPECT_EQ(one_line("a\tb\r\n"), "a\\u0009b\\u000D\\u000A");
  EXPECT_EQ(one_line("\x1B[31m\x7F"), "\\u001B[31m\\u007F");
  EXPECT_EQ(one_line("\xC2\x80\xC2\x9F"), "\\u0080\\u009F");
  // A no-break space, an e with an acute accent, an em dash, and half a character: none is a control character.
  for (const char* text : {"", "plain \\ text", "\xC2\xA0", "\xC3\xA9", "\xE2\x80\x94", "\xC2"}) EXPECT_EQ(one_line(text), text);
  EXPECT_EQ(one_line("\xC2\x1F"), "\xC2\\u001F");
  EXPECT_EQ(one_line("a\u202Eb\u2069\u200F"), "a\\u202Eb\\u2069\\u200F");
  EXPECT_EQ(one_line(std::string_view("a\0b", 3)), "a\\u0000b");
}

}  // namespace
}  // namespace ulpscope
