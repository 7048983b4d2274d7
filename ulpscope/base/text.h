// Small helpers for messages.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ulpscope {

// "; did you mean 'NAME'?" for the candidate nearest to `wrong` by edit distance, or "" where none is near.
std::string did_you_mean(std::string_view wrong, std::span<const std::string> candidates);

// "a, b and c".
std::string join_words(std::span<const std::string> words, std::string_view conjunction = "and");

}  // namespace ulpscope
