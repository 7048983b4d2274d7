// Sentences of tests' own reports, and how sentences are printed where a test fails.
#pragma once

#include <algorithm>
#include <ostream>
#include <string>
#include <string_view>

#include "ulpscope/analyzers/report/sentence.h"

namespace ulpscope {

inline constexpr Template kSaid{"test.said", "{words}"};

// As rules make them: one of each sentence.
inline Sentences said(std::string_view words) {
  Sentences all;
  while (!words.empty()) {
    const size_t stop = words.find(". "), end = stop == std::string_view::npos ? words.size() : stop + 1;
    all += kSaid({{"words", Name{NameKind::event, std::string(words.substr(0, end))}}});
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return all;
}

inline std::ostream& operator<<(std::ostream& out, const Sentences& sentences) { return out << sentences.text(); }

}  // namespace ulpscope
