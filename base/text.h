// Small helpers for messages.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ulpscope {

// With small letters for the capitals of ASCII: names of formats, modes and GPUs are read in any case.
std::string lower_case(std::string_view text);
// With capitals for the small letters of ASCII: "FP16".
std::string upper_case(std::string_view text);
// `part` stands somewhere in `text`, in any case.
bool contains_in_any_case(std::string_view text, std::string_view part);

// What `wrong` was probably meant to be: the candidate that it abbreviates (its beginning, or the first letters of its words: lr
// for learning_rate), else the nearest by edit distance, in any case, else nothing. Digits tell names apart (fp8 is no misspelling
// of fp32), so a candidate has those of `wrong`, in any order, or is a single edit away (v101, bf17).
std::optional<std::string> nearest_name(std::string_view wrong, std::span<const std::string> candidates);
// "; did you mean 'NAME'?", or "" where nothing is near.
std::string did_you_mean(std::string_view wrong, std::span<const std::string> candidates);
// The same, but where none is near "; expected a, b or c"; of many candidates the first few.
std::string did_you_mean_or_expected(std::string_view wrong, std::span<const std::string> candidates);

// "a, b and c".
std::string join_words(std::span<const std::string> words, std::string_view conjunction = "and");

// "65504.5" as "65,504.5": of the digits that a number begins with, behind its sign.
std::string grouped_digits(std::string_view digits);
// "1 step", "2,000 steps": of nouns whose plural ends in s.
std::string count_of(uint64_t count, std::string_view noun);

// "linear in head (forward)", "add (loss)": what users call an op.
std::string op_place(std::string_view op, std::string_view module, std::string_view phase);

// Control characters, which move a terminal's cursor or begin its sequences, as \uXXXX: those below U+0020, U+007F, and in UTF-8
// U+0080 to U+009F.
std::string one_line(std::string_view text);

// With U+FFFD, the replacement character, for each byte that belongs to no well-formed character of UTF-8.
std::string valid_utf8(std::string_view text);
bool is_utf8(std::string_view text);

// What a POSIX shell reads as this one word, for commands that are told to users: in single quotes, but where every shell takes it
// as it is.
std::string shell_word(std::string_view text);

// True iff all of `text` matches `pattern`, in which * stands for any characters (dots too) and ? for one.
bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace ulpscope
