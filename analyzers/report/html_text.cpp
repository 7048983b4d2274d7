#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/analyzers/report/html_parts.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// U+FFFE and U+FFFF are well-formed UTF-8, and no characters that a document may hold.
bool is_no_character(std::string_view at) { return at.starts_with("\xEF\xBF\xBE") || at.starts_with("\xEF\xBF\xBF"); }

}  // namespace

std::string html_text(std::string_view text, size_t most_bytes) {
  const bool is_cut = text.size() > most_bytes;
  if (is_cut) {
    size_t end = most_bytes;
    for (size_t back = 0; back < 3 && end > 0 && continues_character(text[end]); ++back) --end;
    text = text.substr(0, end);
  }
  const std::string plain = one_line(valid_utf8(text));
  std::string html;
  html.reserve(plain.size() + 16);
  for (size_t i = 0; i < plain.size(); ++i) {
    switch (plain[i]) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        if (is_no_character(std::string_view(plain).substr(i))) {
          html += "\xEF\xBF\xBD";
          i += 2;
        } else {
          html += plain[i];
        }
    }
  }
  return is_cut ? html + "…" : html;
}

bool HtmlRoom::take(size_t bytes) {
  if (bytes > left_) {
    left_ = 0;
    return false;
  }
  left_ -= bytes;
  return true;
}

std::string html_left_out(uint64_t count, std::string_view noun) {
  if (count == 0) return "";
  return fmt::format("<p class=\"left-out\">and {} more: <code>--limit 0 --json</code> has all</p>\n", count_of(count, noun));
}

}  // namespace ulpscope
