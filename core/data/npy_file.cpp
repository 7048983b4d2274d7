// A magic string, a version, the length of a header, the header, a literal of a Python dictionary, and the numbers.
#include "ulpscope/core/data/npy_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

constexpr std::string_view kNpyMagic("\x93NUMPY", 6);
constexpr size_t kLengthAt = 8;  // behind the magic string and two bytes of version

struct Header {
  std::string type;  // "<f4"
  bool column_major = false;
  std::vector<int64_t> shape;
};

// Reads the one form in which NumPy writes headers: {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 784), }
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  Header parse() {
    Header header;
    int members = 0;
    expect('{');
    while (!take('}')) {
      const std::string key = parse_text();
      expect(':');
      if (key == "descr") {
        if (next() != '\'' && next() != '"')
          throw unreadable_error("{}: expected an array of numbers, found one of records", path_);
        header.type = parse_text();
      } else if (key == "fortran_order") {
        header.column_major = parse_truth();
      } else if (key == "shape") {
        header.shape = parse_shape();
      } else {
        fail();
      }
      ++members;
      if (!take(',') && next() != '}') fail();
    }
    if (members != 3) fail();
    return header;
  }

 private:
  [[noreturn]] void fail() const { throw unreadable_error("{}: damaged header {}", path_, one_line(text_.substr(0, 80))); }
  char next() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (next() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail();
  }
  std::string parse_text() {
    const char quote = next();
    if (quote != '\'' && quote != '"') fail();
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail();
    const std::string_view text = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return std::string(text);
  }
  bool parse_truth() {
    next();
    for (const auto& [word, truth] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return truth;
    }
    fail();
  }
  std::vector<int64_t> parse_shape() {
    std::vector<int64_t> shape;
    expect('(');
    while (!take(')')) {
      next();
      int64_t extent = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), extent);
      if (error != std::errc() || extent < 0) fail();
      at_ = static_cast<size_t>(end - text_.data());
      shape.push_back(extent);
      if (!take(',') && next() != ')') fail();
    }
    return shape;
  }

  std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
};

}  // namespace

std::optional<NumberType> parse_number_type(std::string_view text) {
  const bool known_order = !text.empty() && std::string_view("<>|=").find(text[0]) != std::string_view::npos;
  // Other kinds, as texts, have a number that is none of bytes.
  const bool is_in_bytes = text.size() == 3 && std::string_view("fiubcV").find(text[1]) != std::string_view::npos;
  if (!known_order || !is_in_bytes || text[2] < '1' || text[2] > '9') return {};
  return NumberType{text[1], static_cast<size_t>(text[2] - '0'), text[0] == '>'};
}

NpyFile open_npy_file(const std::string& path) {
  auto file = std::make_shared<const RandomAccessFile>(path);
  const auto read = [&](size_t begin, size_t size) {
    std::vector<uint8_t> bytes(size);
    file->read(begin, bytes);
    return bytes;
  };
  if (file->size() == 0) throw unreadable_error("{}: empty, expected a file of numpy.save", path);
  const std::vector<uint8_t> start = read(0, std::min<size_t>(file->size(), kLengthAt + 4));
  const std::string_view magic(reinterpret_cast<const char*>(start.data()), start.size());
  if (!magic.starts_with(kNpyMagic)) {
    throw unreadable_error("{}: not a file of numpy.save{}", path,
                           magic.starts_with("PK") ? ", but an archive (.npz): save each array alone" : "");
  }
  const size_t length_bytes = magic.size() > kNpyMagic.size() && start[kNpyMagic.size()] == 1 ? 2 : 4;
  const size_t header_at = kLengthAt + length_bytes;
  size_t length = 0;
  for (size_t i = header_at; i-- > kLengthAt && header_at <= start.size();) length = length << 8 | start[i];
  if (header_at + length > file->size()) throw unreadable_error("{}: truncated in its header", path);
  const std::vector<uint8_t> bytes = read(header_at, length);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());

  const Header header = HeaderParser(text, path).parse();
  if (header.column_major && header.shape.size() > 1) {
    throw unreadable_error(
        "{}: in Fortran order, in which the numbers of a row lie apart; expected C order, as numpy.ascontiguousarray gives it",
        path);
  }
  const size_t offset = header_at + length;
  const std::optional<NumberType> type = parse_number_type(header.type);
  double expected = type ? static_cast<double>(type->bytes) : 0;
  for (const int64_t extent : header.shape) expected *= static_cast<double>(extent);
  if (type && expected != static_cast<double>(file->size() - offset)) {
    throw unreadable_error("{}: expected {} bytes of numbers for the shape {}, found {}", path, expected,
                           fmt::join(header.shape, " x "), file->size() - offset);
  }
  return {std::move(file), header.type, header.shape, offset};
}

void write_npy_file(const std::string& path, const NumberType& type, const std::vector<int64_t>& shape, std::string_view numbers) {
  // A tuple of one dimension has a comma behind it.
  std::string header = fmt::format("{{'descr': '{}{}{}', 'fortran_order': False, 'shape': ({}{}), }}", type.bytes == 1 ? '|' : '<',
                                   type.kind, type.bytes, fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  constexpr size_t kNumbersAt = 64;  // a multiple of it
  const size_t before = kLengthAt + 2 + header.size() + 1;
  header.append((kNumbersAt - before % kNumbersAt) % kNumbersAt, ' ');
  header += '\n';
  std::string file(kNpyMagic);
  file += {'\x01', '\0', static_cast<char>(header.size() & 0xFF), static_cast<char>(header.size() >> 8)};
  file += header;
  file += numbers;
  atomic_write_file(path, file);
}

}  // namespace ulpscope
