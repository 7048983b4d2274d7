// The values of an enum by their names, as the choices of a key: of an enum whose enumerators begin at 0 and lie together, and
// whose name_of names each.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/base/error.h"

namespace ulpscope {

// GCC and Clang write a value here as "ulpscope::Switch::on", and one that no enumerator has as "(ulpscope::Switch)3".
template <auto value>
constexpr bool is_enumerator() {
  constexpr std::string_view text = __PRETTY_FUNCTION__, before = "value = ";
  return text[text.find(before) + before.size()] != '(';
}

// How many enumerators there are: no list of them that one could be missing from.
template <typename Enum, size_t n = 0>
constexpr size_t count_enumerators() {
  if constexpr (is_enumerator<static_cast<Enum>(n)>()) {
    return count_enumerators<Enum, n + 1>();
  } else {
    return n;
  }
}

template <typename Enum>
std::vector<std::string> enumerator_names() {
  std::vector<std::string> names;
  for (size_t i = 0; i < count_enumerators<Enum>(); ++i) names.emplace_back(name_of(static_cast<Enum>(i)));
  return names;
}

// An internal error where none is called so: check_value (option.h) lets only names pass.
template <typename Enum>
Enum find_enumerator(std::string_view name) {
  for (size_t i = 0; i < count_enumerators<Enum>(); ++i) {
    if (name == name_of(static_cast<Enum>(i))) return static_cast<Enum>(i);
  }
  throw failed_error("internal: no choice is called '{}'", name);
}

}  // namespace ulpscope
