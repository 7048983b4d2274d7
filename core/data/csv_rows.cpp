#include "ulpscope/core/data/csv_rows.h"

#include <csv.h>

#include <cstring>
#include <utility>

#include "ulpscope/base/error.h"

namespace ulpscope {

namespace {

class Splitter {
 public:
  Splitter(GzipFile& file, char delimiter, std::function<void(int64_t line, const CsvFields&)> take)
      : file_(file), take_(std::move(take)) {
    if (csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI) != 0) throw failed_error("{}: no memory to read it", file.name());
    csv_set_delim(&parser_, static_cast<unsigned char>(delimiter));
  }
  Splitter(const Splitter&) = delete;
  ~Splitter() { csv_free(&parser_); }

  void split() {
    std::vector<uint8_t> buffer(size_t{1} << 16);
    for (bool first = true; const size_t size = file_.read(buffer.data(), buffer.size()); first = false) {
      const uint8_t *begin = buffer.data(), *const end = begin + size;
      constexpr uint8_t kByteOrderMark[] = {0xEF, 0xBB, 0xBF};
      if (first && size >= 3 && std::memcmp(begin, kByteOrderMark, 3) == 0) begin += 3;
      // Line by line, so that places are known.
      while (begin < end) {
        const void* newline = std::memchr(begin, '\n', static_cast<size_t>(end - begin));
        const uint8_t* next = newline ? static_cast<const uint8_t*>(newline) + 1 : end;
        const auto length = static_cast<size_t>(next - begin);
        if (csv_parse(&parser_, begin, length, on_field, on_row, this) != length) fail();
        take_rows();
        if (newline) ++line_;
        begin = next;
      }
    }
    if (csv_fini(&parser_, on_field, on_row, this) != 0) fail();
    take_rows();
  }

 private:
  [[noreturn]] void fail() {
    const int error = csv_error(&parser_);
    throw unreadable_error("{}:{}: {}", file_.name(), line_,
                           error == CSV_EPARSE ? "a quote within a field, or one that is not closed" : csv_strerror(error));
  }
  // Both are called from C, through which no exception may pass; memory that runs out ends the program.
  static void on_field(void* text, size_t size, void* self) noexcept {
    auto& splitter = *static_cast<Splitter*>(self);
    splitter.text_.append(static_cast<const char*>(text), size);
    splitter.ends_.push_back(splitter.text_.size());
  }
  static void on_row(int, void* self) noexcept {
    auto& splitter = *static_cast<Splitter*>(self);
    splitter.rows_.push_back(splitter.ends_.size());
  }
  void take_rows() {
    if (rows_.empty()) return;
    size_t field = 0, begin = 0;
    for (const size_t end_of_row : rows_) {
      fields_.clear();
      for (; field < end_of_row; ++field) {
        fields_.push_back(std::string_view(text_).substr(begin, ends_[field] - begin));
        begin = ends_[field];
      }
      take_(line_, fields_);
    }
    // A row goes on behind them only where lines end otherwise than all do today.
    text_.erase(0, begin);
    ends_.erase(ends_.begin(), ends_.begin() + static_cast<std::ptrdiff_t>(field));
    for (size_t& end : ends_) end -= begin;
    rows_.clear();
  }

  GzipFile& file_;
  std::function<void(int64_t, const CsvFields&)> take_;
  csv_parser parser_;
  int64_t line_ = 1;
  std::string text_;          // of the fields that were read and not taken
  std::vector<size_t> ends_;  // of each field in it
  std::vector<size_t> rows_;  // how many fields had been read at the end of each row
  CsvFields fields_;
};

}  // namespace

void read_csv_rows(GzipFile& file, char delimiter, std::function<void(int64_t line, const CsvFields&)> take) {
  Splitter(file, delimiter, std::move(take)).split();
}

void read_csv_rows(const std::string& path, char delimiter, std::function<void(int64_t line, const CsvFields&)> take) {
  GzipFile file(path, "CSV data");
  read_csv_rows(file, delimiter, std::move(take));
}

}  // namespace ulpscope
