// Tables of numbers as text, separated by commas or another character. They are read once, checked, and kept as FP64 in scratch
// files: so samples are found wherever they stand, and memory does not grow with the table.
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/data/csv_rows.h"
#include "ulpscope/core/data/raw_array.h"
#include "ulpscope/core/data/sources.h"

namespace ulpscope {

namespace {

// FP64 numbers in a file without a name.
class Scratch {
 public:
  Scratch() {
    const char* given = std::getenv("TMPDIR");
    folder_ = given != nullptr && *given != '\0' ? given : "/tmp";
    std::string path = folder_ + "/ulpscope-csv-XXXXXX";
    file_ = ::mkstemp(path.data());
    if (file_ < 0) fail();
    ::unlink(path.c_str());
  }
  Scratch(const Scratch&) = delete;
  ~Scratch() {
    if (file_ >= 0) ::close(file_);
  }

  void add(double number) {
    buffer_.push_back(number);
    if (buffer_.size() == kBuffered) flush();
  }
  // All that was added. Nothing more can be.
  std::shared_ptr<const RandomAccessFile> take() {
    flush();
    return std::make_shared<const RandomAccessFile>(std::exchange(file_, -1), "the scratch file for CSV data");
  }

 private:
  static constexpr size_t kBuffered = 8192;

  [[noreturn]] void fail() const {
    throw failed_error("cannot write a scratch file for CSV data in '{}': {}; TMPDIR names another folder", folder_,
                       std::strerror(errno));
  }
  void flush() {
    const auto* bytes = reinterpret_cast<const char*>(buffer_.data());
    for (size_t left = buffer_.size() * sizeof(double); left > 0;) {
      const ssize_t written = ::write(file_, bytes, left);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail();
      bytes += written;
      left -= static_cast<size_t>(written);
    }
    buffer_.clear();
  }

  std::string folder_;
  int file_ = -1;
  std::vector<double> buffer_;
};

std::optional<double> parse_number(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Reads a table into two arrays.
class TableReader {
 public:
  TableReader(const std::string& path, const DataSettings& settings, const DataUse& use)
      : path_(path), settings_(settings), labels_{settings.classes, use.ignored_label} {}

  ArrayPair read() {
    read_csv_rows(path_, settings_.delimiter[0], [&](int64_t line, const CsvFields& fields) { take(line, fields); });
    if (rows_ == 0)
      throw unreadable_error("{}: expected rows of numbers{}, found none", path_, settings_.header ? " below the header" : "");
    const auto array = [&](Scratch& scratch, const std::vector<size_t>& columns, const char* what) {
      std::vector<int64_t> shape{rows_};
      if (columns.size() > 1 || &columns == &inputs_) shape.push_back(static_cast<int64_t>(columns.size()));
      SourceInfo source = source_in(path_);
      source.columns = fmt::format("{}", fmt::join(columns, ","));
      return std::make_shared<RawArray>(scratch.take(), fmt::format("{}: {}", path_, what), 0, NumberType{}, std::move(shape),
                                        source);
    };
    return {array(input_numbers_, inputs_, "inputs"), array(target_numbers_, targets_, "targets")};
  }

 private:
  void take(int64_t line, const CsvFields& fields) {
    if (width_ == 0) {
      width_ = fields.size();
      if (settings_.header) read_names(line, fields);
      choose_columns();
      if (settings_.header) return;
    }
    if (fields.size() != width_)
      throw unreadable_error("{}:{}: expected {} as in the first line, found {}", path_, line, count_of(width_, "field"),
                             fields.size());
    for (const size_t column : inputs_) input_numbers_.add(number(line, fields, column));
    for (const size_t column : targets_) {
      const double target = number(line, fields, column);
      if (settings_.target_kind == TargetKind::labels && !labels_.contains(target))
        fail(line, column, fmt::format("the label is {}, expected {}", fields[column], labels_.text()));
      target_numbers_.add(target);
    }
    ++rows_;
  }
  void read_names(int64_t line, const CsvFields& fields) {
    names_.assign(fields.begin(), fields.end());
    if (std::all_of(fields.begin(), fields.end(), [](std::string_view field) { return parse_number(field).has_value(); }))
      throw unreadable_error(
          "{}:{}: expected the names of the columns, found numbers; data.header = false says that there are no names", path_, line);
  }
  void choose_columns() {
    targets_ = settings_.target_columns.empty() ? std::vector<size_t>{width_ - 1}
                                                : find_columns("data.target_columns", settings_.target_columns);
    inputs_ = find_columns("data.input_columns", settings_.input_columns);
    const auto is_target = [&](size_t column) { return std::find(targets_.begin(), targets_.end(), column) != targets_.end(); };
    for (size_t column = 0; settings_.input_columns.empty() && column < width_; ++column)
      if (!is_target(column)) inputs_.push_back(column);
    // A model that gets the target as an input learns to hand it on.
    for (size_t i = 0; i < settings_.input_columns.size(); ++i) {
      if (is_target(inputs_[i]))
        throw usage_error("data.input_columns: column '{}' of {} is a target as well", one_line(settings_.input_columns[i]), path_);
    }
    if (inputs_.empty())
      throw unreadable_error("{}: expected a column beside the targets, found {}", path_, count_of(width_, "column"));
  }
  std::vector<size_t> find_columns(const char* key, const std::vector<std::string>& wanted) const {
    std::vector<size_t> columns;
    for (const std::string& name : wanted) {
      const size_t column = find_column(key, name);
      if (std::find(columns.begin(), columns.end(), column) != columns.end())
        throw usage_error("{}: column '{}' of {} stands twice", key, one_line(name), path_);
      columns.push_back(column);
    }
    return columns;
  }
  // By name, else by index, which counts from the end where it is negative.
  size_t find_column(const char* key, const std::string& name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found != names_.end()) {
      if (std::find(found + 1, names_.end(), name) != names_.end())
        throw usage_error("{}: two columns of {} are called '{}'; expected an index", key, path_, one_line(name));
      return static_cast<size_t>(found - names_.begin());
    }
    int64_t index = 0;
    const auto width = static_cast<int64_t>(width_);
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    if (error == std::errc() && end == name.data() + name.size()) {
      if (index < -width || index >= width)
        throw usage_error("{}: column {} is none of {}, expected {} to {}", key, index, path_, -width, width - 1);
      return static_cast<size_t>(index < 0 ? index + width : index);
    }
    throw usage_error("{}: {} has no column '{}'{}", key, path_, one_line(name), did_you_mean_or_expected(name, names_));
  }
  double number(int64_t line, const CsvFields& fields, size_t column) const {
    if (const auto number = parse_number(fields[column])) return *number;
    fail(line, column,
         fields[column].empty()
             ? "expected a number, found nothing"
             : fmt::format("expected a number that FP64 holds, found '{}'", one_line(fields[column].substr(0, 40))));
  }
  [[noreturn]] void fail(int64_t line, size_t column, const std::string& what) const {
    const std::string name = names_.empty() ? "" : fmt::format("column '{}': ", one_line(names_[column]));
    throw unreadable_error("{}:{}:{}: {}{}", path_, line, column + 1, name, what);
  }

  const std::string& path_;
  const DataSettings& settings_;
  const LabelRange labels_;
  size_t width_ = 0;  // fields of every row
  std::vector<std::string> names_;
  std::vector<size_t> inputs_, targets_;  // columns
  Scratch input_numbers_, target_numbers_;
  int64_t rows_ = 0;
};

}  // namespace

DataSplits open_csv(const DataSettings& settings, const DataUse& use) {
  ArrayPair train = TableReader(settings.path, settings, use).read(), test;
  if (!settings.test_path.empty()) test = TableReader(settings.test_path, settings, use).read();
  return open_arrays(settings, use, std::move(train), std::move(test));
}

}  // namespace ulpscope
