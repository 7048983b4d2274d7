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

std::string html_sentence(std::string_view text) {
  std::string html;
  const std::string safe = html_text(text, kMostSentenceBytes);
  for (std::string_view rest = safe;;) {
    const size_t begin = rest.find('`'), end = begin == std::string_view::npos ? begin : rest.find('`', begin + 1);
    if (end == std::string_view::npos) return html.append(rest);
    html.append(rest.substr(0, begin)).append("<code>").append(rest.substr(begin + 1, end - begin - 1)).append("</code>");
    rest.remove_prefix(end + 1);
  }
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

std::string html_not_drawn(uint64_t count, std::string_view noun) {
  if (count == 0) return "";
  return fmt::format("<p class=\"left-out\">and {} more that {} not drawn</p>\n", count_of(count, noun), count == 1 ? "is" : "are");
}

}  // namespace ulpscope
