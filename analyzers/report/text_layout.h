// Text in columns of a fixed width. UTF-8, at one column a code point.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ulpscope {

// The number of columns that the text takes.
size_t text_width(std::string_view text);

// The text filled up with blanks to `width` columns; longer text stays as it is.
std::string pad_text(std::string_view text, size_t width, bool align_right);

// Each text in at most `width` columns. Of a longer one the parts of its path ("encoder.layers.0.query matmul") are cut to their
// first letters, from the left and as far as that is needed ("e.layers.0.query matmul"); where that is not enough, an ellipsis
// replaces its middle, at the place, the same for all, where most of those that differ still do.
std::vector<std::string> shorten_texts(const std::vector<std::string>& texts, size_t width, bool unicode);

// Words in lines of at most `width` columns, all but the first indented by `indent`.
std::string wrap_text(std::string_view text, size_t width, size_t indent);

// The lines of a text in which only line feeds begin a new one: other control characters are made visible.
std::vector<std::string> printable_lines(std::string_view text);

}  // namespace ulpscope
