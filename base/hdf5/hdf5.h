// A thin layer over the HDF5 C library: identifiers are closed with their objects, every return code is checked, and a failure is
// an Error: of a failed system call with the system's words, else, when writing, with HDF5's innermost message, and when reading
// with the word "damaged", since that is what HDF5's many messages mean then. HDF5 prints nothing on its own. Files that are
// created use the 1.10 file format, whose metadata is checksummed, and can be read while they are written (SWMR). HDF5's own file
// locks are not used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulpscope/base/hdf5/element_type.h"

namespace ulpscope::hdf5 {

// An HDF5 identifier (hid_t), or -1.
class Handle {
 public:
  Handle() = default;
  explicit Handle(int64_t id) : id_(id) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept : id_(other.id_) { other.id_ = -1; }
  Handle& operator=(Handle&& other) noexcept;
  int64_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
  void reset();
  // Gives up the identifier without closing it.
  int64_t release() { return std::exchange(id_, -1); }

 private:
  int64_t id_ = -1;
};

// A dataset of one column, or an array of fixed shape.
class Dataset {
 public:
  Dataset() = default;
  Dataset(Handle handle, std::string name, ElementType type) : handle_(std::move(handle)), name_(std::move(name)), type_(type) {}
  explicit operator bool() const { return static_cast<bool>(handle_); }
  const std::string& name() const { return name_; }
  ElementType type() const { return type_; }

  std::vector<uint64_t> shape() const;
  uint64_t chunk_rows() const;  // 0: contiguous
  // Of a column. Never shrink one.
  void set_rows(uint64_t rows);
  void write_rows(uint64_t first, uint64_t count, const void* values);
  void read_rows(uint64_t first, uint64_t count, void* values) const;
  // All of it, row-major.
  void write_all(const void* values);
  void read_all(void* values) const;
  // Of a column: how many chunks were written.
  uint64_t chunk_count() const;
  // Of a column: whether the chunk that row `row` is in was ever written. Rows of it can be read.
  bool has_chunk(uint64_t row) const;
  // Forgets what was cached of the dataset, so that a reader sees how far a writer in another process has got.
  void refresh();
  // Where a contiguous dataset lies in its file.
  uint64_t file_offset() const;

 private:
  Handle handle_;
  std::string name_;
  ElementType type_ = ElementType::u8;
};

struct ColumnLayout {
  ElementType type = ElementType::u8;
  uint64_t chunk_rows = 1;
  bool compress = true;  // shuffle and gzip-1; a checksum always
  double fill = 0;       // what chunks contain that were never written
};

// Whether the index of a column gets another block for the chunk of this number: one that none of the chunks before has its place
// in.
bool begins_index_block(uint64_t chunk);

class File {
 public:
  File() = default;
  // Creates `path`, which must not exist. Messages call it `name`.
  static File create(const std::string& path, const std::string& name);
  // Opens `path` for reading, whether it is being written, was closed or was left behind by a killed writer. Messages call it
  // `name`.
  static File open(const std::string& path, const std::string& name);
  explicit operator bool() const { return static_cast<bool>(handle_); }

  // The names of a group's members, and where they are, lie together with it, however many they are.
  void create_group(const std::string& name);
  // The index of its chunks is made with it: a file whose end is missing still tells where the chunks before are.
  Dataset create_column(const std::string& name, const ColumnLayout& layout);
  // Contiguous, space reserved at once, contents undefined.
  Dataset create_fixed(const std::string& name, ElementType type, const std::vector<uint64_t>& shape);
  // What is written next takes its space. No Dataset of it may be left.
  void remove(const std::string& name);
  // Space that was removed, and that nothing has taken yet.
  uint64_t free_bytes() const;
  // With checksums; `shape` has one extent at least, and none is 0.
  Dataset create_array(const std::string& name, ElementType type, const std::vector<uint64_t>& shape);
  // `object` is a path, "/" for the file.
  void set_attribute(const std::string& object, const std::string& name, uint64_t value);
  void set_attribute(const std::string& object, const std::string& name, double value);
  void set_attribute(const std::string& object, const std::string& name, const std::string& text);

  bool exists(const std::string& name) const;
  // The names of what a group holds, sorted. Throws where one is a link to elsewhere.
  std::vector<std::string> members(const std::string& group) const;
  // Whether it is a dataset with such elements.
  bool holds(const std::string& name, ElementType type) const;
  // Throws where it is missing, which is said, or has other elements.
  Dataset open_dataset(const std::string& name, ElementType type) const;
  // Nothing where there is none, or none of that type.
  // One beyond int64_t is its nearest value.
  std::optional<int64_t> signed_attribute(const std::string& object, const std::string& name) const;
  std::optional<double> real_attribute(const std::string& object, const std::string& name) const;
  std::optional<std::string> text_attribute(const std::string& object, const std::string& name) const;

  // From here on readers may open the file. Everything must have been created before.
  void start_swmr();
  // Hands all data over to the operating system, in an order that leaves the file readable if the process is killed.
  void flush();
  // Throws where the last writes fail. Close datasets first.
  void close();
  // After a failed write: all that HDF5 still writes, until the file is closed and then, goes to /dev/null. HDF5 knows no other way
  // to let go of a file without writing its metadata.
  void disconnect() noexcept;
  // Of the open file.
  int descriptor() const;

 private:
  // `stored`, `given`: HDF5's types of the attribute and of what `value` points to.
  void write_attribute(const std::string& object, const std::string& name, int64_t stored, int64_t given, const void* value);
  // Positive: there is something of this name, 0: there is nothing, negative: that cannot be read. Throws Error (failed) where a
  // group does not keep its links in its header.
  int find(const std::string& name) const;

  Handle handle_;
  std::string name_;
};

// True iff the file begins as HDF5 files of ours do, or is empty, as a killed writer may leave it. It need not be one that can be
// opened.
bool may_be_hdf5(const std::string& path);

// The sizes that a file has and that it had when it was closed.
struct Truncation {
  uint64_t bytes = 0, expected = 0;
};
// Throws Error (unreadable) where `path` cannot be opened, or cannot be an HDF5 file of ours, in words that HDF5 does not have.
// `what`: what the file should be. Returns how it is truncated, where it is; of a file that was never closed that is not known.
std::optional<Truncation> check_signature(const std::string& path, std::string_view what);

}  // namespace ulpscope::hdf5
