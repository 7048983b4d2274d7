#include "ulpscope/base/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <numeric>

namespace ulpscope {

namespace {

// Edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

bool has_digits_of(std::string_view text, std::string_view wrong) {
  for (char digit = '0'; digit <= '9'; ++digit) {
    if (std::count(text.begin(), text.end(), digit) < std::count(wrong.begin(), wrong.end(), digit)) return false;
  }
  return true;
}

// Whether `text` is the beginning of `name`, or the first letters of its words.
bool abbreviates(std::string_view text, std::string_view name) {
  constexpr size_t kBeginning = 3;  // fewer letters begin too many names
  if (text.size() >= kBeginning && name.starts_with(text)) return true;
  std::string initials;
  for (size_t i = 0; i < name.size(); ++i) {
    if (i == 0 || name[i - 1] == '_' || name[i - 1] == '-') initials += name[i];
  }
  return initials.size() > 1 && text == initials;
}

char lower_letter(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = lower_letter(c);
  return lower;
}

std::string upper_case(std::string_view text) {
  std::string upper(text);
  for (char& c : upper)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return upper;
}

bool contains_in_any_case(std::string_view text, std::string_view part) {
  return std::search(text.begin(), text.end(), part.begin(), part.end(),
                     [](char a, char b) { return lower_letter(a) == lower_letter(b); }) != text.end() ||
         part.empty();
}

std::optional<std::string> nearest_name(std::string_view given, std::span<const std::string> candidates) {
  const std::string wrong = lower_case(given);
  const auto abbreviated = [&](const std::string& candidate) { return abbreviates(wrong, lower_case(candidate)); };
  if (std::count_if(candidates.begin(), candidates.end(), abbreviated) == 1) {
    return *std::find_if(candidates.begin(), candidates.end(), abbreviated);
  }
  // Of short names two letters are half. Of two that are as near, the one with the digits is nearer.
  const size_t most = wrong.size() <= 5 ? 1 : std::max<size_t>(2, wrong.size() / 3);
  size_t best = SIZE_MAX;
  const std::string* nearest = nullptr;
  for (const std::string& candidate : candidates) {
    const std::string name = lower_case(candidate);
    const size_t distance = edit_distance(wrong, name);
    const bool has_digits = has_digits_of(candidate, wrong), is_begun = wrong.size() > 3 && name.starts_with(wrong);
    // One letter of a name as short as x7 is half of it.
    const size_t limit = !has_digits ? (wrong.size() > 3 ? 1 : 0) : is_begun ? std::max<size_t>(2, most) : most;
    if (distance > limit) continue;
    if (const size_t rank = 2 * distance + (has_digits ? 0 : 1); rank < best) {
      best = rank;
      nearest = &candidate;
    }
  }
  return nearest ? std::optional(*nearest) : std::nullopt;
}

std::string did_you_mean(std::string_view wrong, std::span<const std::string> candidates) {
  const auto nearest = nearest_name(wrong, candidates);
  return nearest ? fmt::format("; did you mean '{}'?", *nearest) : std::string();
}

std::string did_you_mean_or_expected(std::string_view wrong, std::span<const std::string> candidates) {
  constexpr size_t kShown = 16;
  if (const std::string nearest = did_you_mean(wrong, candidates); !nearest.empty() || candidates.empty()) return nearest;
  if (candidates.size() <= kShown) return fmt::format("; expected {}", join_words(candidates, "or"));
  std::vector<std::string> words(candidates.begin(), candidates.begin() + kShown);
  words.push_back(fmt::format("one of {} more", candidates.size() - kShown));
  return fmt::format("; expected {}", join_words(words, "or"));
}

std::string op_place(std::string_view op, std::string_view module, std::string_view phase) {
  return fmt::format("{}{}{} ({})", op, module.empty() ? "" : " in ", module, phase);
}

std::string join_words(std::span<const std::string> words, std::string_view conjunction) {
  std::string joined;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) joined += i + 1 == words.size() ? fmt::format(" {} ", conjunction) : std::string(", ");
    joined += words[i];
  }
  return joined;
}

std::string grouped_digits(std::string_view digits) {
  // 1.482e+04 is 14,820; from 10^9 on the exponent is easier to read than the digits.
  if (digits.find("e+0") != std::string_view::npos)
    return grouped_digits(fmt::format("{:.0f}", std::strtod(std::string(digits).c_str(), nullptr)));
  const size_t first = digits.starts_with('-') ? 1 : 0;
  const size_t end = std::min(digits.find_first_not_of("0123456789", first), digits.size());
  std::string grouped;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > first && i < end && (end - i) % 3 == 0) grouped += ',';
    grouped += digits[i];
  }
  return grouped;
}

std::string count_of(uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", grouped_digits(fmt::format("{}", count)), noun, count == 1 ? "" : "s");
}

namespace {

// The length of the well-formed character that `text` begins with (the Unicode Standard, table 3-7), or 0.
size_t character_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  // No character has two encodings, none is a surrogate, and the last is U+10FFFF.
  const unsigned least = first == 0xE0   ? 0xA0
                         : first == 0xF0 ? 0x90
                                         : 0x80,
                 most = first == 0xED   ? 0x9F
                        : first == 0xF4 ? 0x8F
                                        : 0xBF;
  if (byte(1) < least || byte(1) > most) return 0;
  for (size_t i = 2; i < length; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  return length;
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const size_t length = character_length(text);
    valid += length > 0 ? text.substr(0, length) : "\xEF\xBF\xBD";
    text.remove_prefix(std::max<size_t>(1, length));
  }
  return valid;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = character_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

namespace {

// The second and third byte, behind E2, of marks that let text run from right to left, so that what stands there reads otherwise.
bool turns_direction(unsigned second, unsigned third) {
  return (second == 0x80 && (third == 0x8E || third == 0x8F || (third >= 0xAA && third <= 0xAE))) ||
         (second == 0x81 && third >= 0xA6 && third <= 0xA9);
}

}  // namespace

std::string one_line(std::string_view text) {
  std::string line;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte_at = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
    const unsigned c = byte_at(i), next = byte_at(i + 1);
    if (c < 0x20 || c == 0x7F) {
      line += fmt::format("\\u{:04X}", c);
    } else if (c == 0xC2 && next >= 0x80 && next < 0xA0) {
      line += fmt::format("\\u{:04X}", next);
      ++i;
    } else if (c == 0xE2 && turns_direction(next, byte_at(i + 2))) {
      line += fmt::format("\\u{:04X}", 0x2000 + (next - 0x80) * 0x40 + (byte_at(i + 2) - 0x80));
      i += 2;
    } else {
      line += text[i];
    }
  }
  return line;
}

std::string shell_word(std::string_view text) {
  // At the beginning a dash looks like an option, and zsh looks for a command behind an equals sign.
  const bool plain =
      !text.empty() && text.front() != '-' && text.front() != '=' && std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return std::isalnum(c) || c >= 0x80 || std::string_view("_-./+=:,@").find(static_cast<char>(c)) != std::string_view::npos;
      });
  if (plain) return std::string(text);
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

bool glob_match(std::string_view pattern, std::string_view text) {
  // Greedy with one point of return, the last star: linear but for pathological patterns.
  size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace ulpscope
