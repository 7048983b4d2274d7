#include "ulpscope/analyzers/report/text_layout.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

bool begins_code_point(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

// Where code point `index` begins in the text; its size for the one after the last.
size_t offset_of(std::string_view text, size_t index) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (begins_code_point(text[i]) && index-- == 0) return i;
  }
  return text.size();
}

// Numbers stay, and so does the last part.
std::string abbreviate_path(const std::string& text, size_t width) {
  std::string result;
  size_t columns = text_width(text), begin = 0;
  const size_t path_end = std::min(text.find(' '), text.size());
  while (columns > width) {
    const size_t end = text.find('.', begin);
    if (end >= path_end) break;
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    const bool is_number = std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    const std::string_view kept = is_number ? part : part.substr(0, offset_of(part, 1));
    columns -= text_width(part) - text_width(kept);
    result += kept;
    result += '.';
    begin = end + 1;
  }
  return result + text.substr(begin);
}

// The first `head` columns, an ellipsis, and the last ones.
std::string cut_middle(std::string_view text, size_t width, size_t head, bool unicode) {
  const size_t columns = text_width(text);
  if (columns <= width) return std::string(text);
  const size_t tail = width - 1 - head;
  std::string result(text.substr(0, offset_of(text, head)));
  result += unicode ? "…" : "~";
  result += text.substr(offset_of(text, columns - tail));
  return result;
}

// The first `head` columns, an ellipsis, and those from `from` on, with another where they are too many.
std::string cut_to_part(std::string_view text, size_t width, size_t head, size_t from, bool unicode) {
  const size_t columns = text_width(text);
  if (columns <= width || from <= head + 1) return cut_middle(text, width, width - 1, unicode);
  const size_t room = width - head - 1;
  const size_t begin = columns - from <= room ? columns - room : from;
  return cut_middle(text, head + 1, head, unicode) + cut_middle(text.substr(offset_of(text, begin)), room, room - 1, unicode);
}

size_t common_prefix(std::string_view a, std::string_view b) {
  const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return text_width(a.substr(0, static_cast<size_t>(differ.first - a.begin())));
}

// Names that are cut to the same: each with what tells it from the first of the others.
void show_differences(const std::vector<std::string>& names, size_t width, bool unicode, std::vector<std::string>& cut) {
  std::map<std::string, std::vector<size_t>> groups;
  for (size_t i = 0; i < cut.size(); ++i) groups[cut[i]].push_back(i);
  for (const auto& [same, members] : groups) {
    size_t from = SIZE_MAX;
    for (const size_t i : members)
      if (names[i] != names[members.front()]) from = std::min(from, common_prefix(names[i], names[members.front()]));
    if (from == SIZE_MAX) continue;
    for (const size_t i : members) cut[i] = cut_to_part(names[i], width, (width - 1) / 3, from, unicode);
  }
}

}  // namespace

size_t text_width(std::string_view text) { return std::count_if(text.begin(), text.end(), begins_code_point); }

std::string pad_text(std::string_view text, size_t width, bool align_right) {
  const std::string blanks(width - std::min(width, text_width(text)), ' ');
  return align_right ? blanks + std::string(text) : std::string(text) + blanks;
}

std::vector<std::string> shorten_texts(const std::vector<std::string>& texts, size_t width, bool unicode) {
  if (width == 0) return std::vector<std::string>(texts.size());
  std::vector<std::string> abbreviated, best;
  for (const std::string& text : texts) abbreviated.push_back(abbreviate_path(text, width));
  const auto distinct = [](const std::vector<std::string>& all) { return std::set<std::string>(all.begin(), all.end()).size(); };
  const size_t all = distinct(texts);
  size_t most = 0;
  // Names begin with a module's path and end with what was computed there: of both something should stay.
  const size_t preferred = (width - 1) / 3;
  for (const std::vector<std::string>& names : {abbreviated, texts}) {
    for (size_t away = 0; away < width && most < all; ++away) {
      for (const size_t head : {preferred + away, preferred - away}) {
        if (head >= width) continue;  // also below 0
        std::vector<std::string> candidate;
        for (const std::string& name : names) candidate.push_back(cut_middle(name, width, head, unicode));
        const size_t found = distinct(candidate);
        if (found <= most) continue;
        most = found;
        best = std::move(candidate);
      }
    }
  }
  if (most < all) {
    std::vector<std::string> candidate = best;
    show_differences(abbreviated, width, unicode, candidate);
    if (distinct(candidate) > most) return candidate;
  }
  return best;
}

std::string wrap_text(std::string_view text, size_t width, size_t indent) {
  std::string result;
  size_t column = indent;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    const size_t length = text_width(word);
    if (column > indent && column + 1 + length > width) {
      result += '\n';
      result.append(indent, ' ');
      column = indent;
    } else if (column > indent) {
      result += " ";
      ++column;
    }
    result += word;
    column += length;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

std::vector<std::string> printable_lines(std::string_view text) {
  std::vector<std::string> lines;
  for (;;) {
    const size_t end = text.find('\n');
    lines.push_back(one_line(text.substr(0, end)));
    if (end == std::string_view::npos) return lines;
    text.remove_prefix(end + 1);
  }
}

}  // namespace ulpscope
