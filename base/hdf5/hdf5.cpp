#include "ulpscope/base/hdf5/hdf5.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ulpscope/base/error.h"
#include "ulpscope/base/file.h"
#include "ulpscope/base/hdf5/checked.h"
#include "ulpscope/base/text.h"

#ifdef __SANITIZE_ADDRESS__
// HDF5 1.10 does not free an object header that it finds damaged.
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5\n"; }
extern "C" const char* __lsan_default_options() { return "print_suppressions=0"; }
#endif

namespace ulpscope::hdf5 {

namespace {

constexpr std::string_view kSignature("\x89HDF\r\n\x1a\n", 8);
constexpr char kSuperblock = 3;  // the version, behind the signature, which came with the file format that our files use

hid_t file_type(ElementType type) {
  switch (type) {
    case ElementType::u8:
      return H5T_STD_U8LE;
    case ElementType::u32:
      return H5T_STD_U32LE;
    case ElementType::i32:
      return H5T_STD_I32LE;
    case ElementType::u64:
      return H5T_STD_U64LE;
    case ElementType::i64:
      return H5T_STD_I64LE;
    case ElementType::f32:
      return H5T_IEEE_F32LE;
    default:
      return H5T_IEEE_F64LE;
  }
}

hid_t memory_type(ElementType type) {
  switch (type) {
    case ElementType::u8:
      return H5T_NATIVE_UINT8;
    case ElementType::u32:
      return H5T_NATIVE_UINT32;
    case ElementType::i32:
      return H5T_NATIVE_INT32;
    case ElementType::u64:
      return H5T_NATIVE_UINT64;
    case ElementType::i64:
      return H5T_NATIVE_INT64;
    case ElementType::f32:
      return H5T_NATIVE_FLOAT;
    default:
      return H5T_NATIVE_DOUBLE;
  }
}

Handle access_properties(const std::string& name) {
  Handle access = checked(H5Pcreate(H5P_FILE_ACCESS), "open", name);
  check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110), "open", name);
  check(H5Pset_file_locking(access.get(), false, true), "open", name);
  check(H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG), "open", name);
  // A buffer between contiguous datasets and the file would hide from a reader what a writer has changed.
  check(H5Pset_sieve_buf_size(access.get(), 0), "open", name);
  // Columns are read in whole chunks, of 64 KiB at most, and what was read of them is kept elsewhere: by default 1 MiB of each
  // column would be.
  check(H5Pset_cache(access.get(), 0, 17, size_t{1} << 16, 1.0), "open", name);
  // With the default, a reader of a damaged file hangs for half a minute.
  check(H5Pset_metadata_read_attempts(access.get(), 20), "open", name);
  return access;
}

// Links and attributes stay in the object's header, which HDF5 reads one message after another. Of more than 8 it would make a heap
// and a tree later and elsewhere: they are lost with a file's end, and where they are damaged HDF5 writes beyond its buffers.
void keep_compact(const Handle& properties, bool is_group, const std::string& name) {
  constexpr unsigned kMost = 65535;
  if (is_group) check(H5Pset_link_phase_change(properties.get(), kMost, 0), "create", name);
  check(H5Pset_attr_phase_change(properties.get(), kMost, 0), "create", name);
}

void check_compact(const H5G_info_t& links, const std::string& group) {
  if (links.storage_type == H5G_STORAGE_TYPE_COMPACT) return;
  throw failed_error("group '{}' is damaged or made otherwise: expected the links to its members in its header", group);
}

// HDF5's extensible arrays, as it makes them for chunks: these stand in the index itself, so many in its first block.
constexpr uint64_t kChunksInIndex = 4, kChunksInBlock = 16;

// What an attribute in a header can have at most.
constexpr size_t kMostAttributeBytes = 65535;

// An attribute with one element of the class `expected`, or nothing.
struct ScalarAttribute {
  ScalarAttribute(const Handle& file, const std::string& object, const std::string& name, H5T_class_t expected) {
    prepare();
    if (H5Aexists_by_name(file.get(), object.c_str(), name.c_str(), H5P_DEFAULT) <= 0) return;
    Handle opened(H5Aopen_by_name(file.get(), object.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT));
    if (!opened) return;
    type = Handle(H5Aget_type(opened.get()));
    const Handle space(H5Aget_space(opened.get()));
    if (type && space && H5Tget_class(type.get()) == expected && H5Sget_simple_extent_npoints(space.get()) == 1)
      attribute = std::move(opened);
  }
  explicit operator bool() const { return static_cast<bool>(attribute); }

  // HDF5 takes a number that T cannot hold for the nearest that it can.
  template <typename T>
  std::optional<T> value(hid_t memory) const {
    T number = 0;
    if (!attribute || H5Aread(attribute.get(), memory, &number) < 0) return std::nullopt;
    return number;
  }

  Handle type, attribute;
};

}  // namespace

Handle& Handle::operator=(Handle&& other) noexcept {
  if (this != &other) {
    reset();
    id_ = other.id_;
    other.id_ = -1;
  }
  return *this;
}

void Handle::reset() {
  if (id_ < 0) return;
  prepare();
  if (H5Iis_valid(id_) > 0) H5Idec_ref(id_);
  id_ = -1;
}

std::vector<uint64_t> Dataset::shape() const {
  prepare();
  const Handle space = checked(H5Dget_space(handle_.get()), "read", name_);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank < 0 || rank > H5S_MAX_RANK) fail("read", name_);
  std::vector<hsize_t> extent(static_cast<size_t>(rank));
  check(H5Sget_simple_extent_dims(space.get(), extent.data(), nullptr), "read", name_);
  return {extent.begin(), extent.end()};
}

uint64_t Dataset::chunk_rows() const {
  prepare();
  const Handle properties = checked(H5Dget_create_plist(handle_.get()), "read", name_);
  if (H5Pget_layout(properties.get()) != H5D_CHUNKED) return 0;
  hsize_t chunk[H5S_MAX_RANK] = {};
  check(H5Pget_chunk(properties.get(), H5S_MAX_RANK, chunk), "read", name_);
  return chunk[0];
}

void Dataset::set_rows(uint64_t rows) {
  prepare();
  const hsize_t extent = rows;
  check(H5Dset_extent(handle_.get(), &extent), "extend", name_);
}

void Dataset::write_rows(uint64_t first, uint64_t count, const void* values) {
  prepare();
  const hsize_t start = first, size = count;
  const Handle space = checked(H5Dget_space(handle_.get()), "write", name_);
  check(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, &start, nullptr, &size, nullptr), "write", name_);
  const Handle memory = checked(H5Screate_simple(1, &size, nullptr), "write", name_);
  check(H5Dwrite(handle_.get(), memory_type(type_), memory.get(), space.get(), H5P_DEFAULT, values), "write", name_);
}

void Dataset::read_rows(uint64_t first, uint64_t count, void* values) const {
  if (count == 0) return;
  prepare();
  const hsize_t start = first, size = count;
  const Handle space = checked(H5Dget_space(handle_.get()), "read", name_);
  check(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, &start, nullptr, &size, nullptr), "read", name_);
  const Handle memory = checked(H5Screate_simple(1, &size, nullptr), "read", name_);
  if (H5Dread(handle_.get(), memory_type(type_), memory.get(), space.get(), H5P_DEFAULT, values) < 0)
    fail("read", name_, fmt::format(", rows {} to {}", first, first + count - 1));
}

void Dataset::write_all(const void* values) {
  prepare();
  check(H5Dwrite(handle_.get(), memory_type(type_), H5S_ALL, H5S_ALL, H5P_DEFAULT, values), "write", name_);
}

void Dataset::read_all(void* values) const {
  prepare();
  check(H5Dread(handle_.get(), memory_type(type_), H5S_ALL, H5S_ALL, H5P_DEFAULT, values), "read", name_);
}

uint64_t Dataset::chunk_count() const {
  prepare();
  const Handle space = checked(H5Dget_space(handle_.get()), "read", name_);
  hsize_t count = 0;
  check(H5Dget_num_chunks(handle_.get(), space.get(), &count), "read", name_);
  return count;
}

bool Dataset::has_chunk(uint64_t row) const {
  const uint64_t chunk = chunk_rows();
  const hsize_t first = row - row % chunk;
  hsize_t bytes = 0;
  // It fails where there is none.
  return H5Dget_chunk_storage_size(handle_.get(), &first, &bytes) >= 0 && bytes > 0;
}

void Dataset::refresh() {
  prepare();
  check(H5Drefresh(handle_.get()), "read", name_);
}

uint64_t Dataset::file_offset() const {
  prepare();
  const haddr_t offset = H5Dget_offset(handle_.get());
  if (offset == HADDR_UNDEF) fail("create", name_);
  return offset;
}

File File::create(const std::string& path, const std::string& name) {
  prepare();
  const Handle access = access_properties(name);
  // Chunks go to the file when they are written. Columns are created so as well, but HDF5 forgets that when SWMR starts.
  check(H5Pset_cache(access.get(), 0, 1, 0, 1.0), "create", name);
  // No holes between small datasets, which small chunks would be put into.
  check(H5Pset_small_data_block_size(access.get(), 0), "create", name);
  File file;
  file.name_ = name;
  const Handle properties = checked(H5Pcreate(H5P_FILE_CREATE), "create", name);
  keep_compact(properties, true, name);
  file.handle_ = checked(H5Fcreate(path.c_str(), H5F_ACC_EXCL, properties.get(), access.get()), "create", name);
  return file;
}

File File::open(const std::string& path, const std::string& name) {
  prepare();
  const Handle access = access_properties(name);
  File file;
  file.name_ = name;
  file.handle_ = checked(H5Fopen(path.c_str(), H5F_ACC_RDONLY | H5F_ACC_SWMR_READ, access.get()), "open", name);
  return file;
}

void File::create_group(const std::string& name) {
  prepare();
  const Handle properties = checked(H5Pcreate(H5P_GROUP_CREATE), "create", name);
  keep_compact(properties, true, name);
  checked(H5Gcreate2(handle_.get(), name.c_str(), H5P_DEFAULT, properties.get(), H5P_DEFAULT), "create", name);
}

Dataset File::create_column(const std::string& name, const ColumnLayout& layout) {
  prepare();
  const Handle create = checked(H5Pcreate(H5P_DATASET_CREATE), "create", name);
  const Handle access = checked(H5Pcreate(H5P_DATASET_ACCESS), "create", name);
  const hsize_t chunk = layout.chunk_rows, none = 0, unlimited = H5S_UNLIMITED;
  check(H5Pset_chunk(create.get(), 1, &chunk), "create", name);
  check(H5Pset_fill_value(create.get(), H5T_NATIVE_DOUBLE, &layout.fill), "create", name);
  if (layout.compress) {
    if (size_of(layout.type) > 1) check(H5Pset_shuffle(create.get()), "create", name);
    check(H5Pset_deflate(create.get(), 1), "create", name);
  }
  check(H5Pset_fletcher32(create.get()), "create", name);
  // Each chunk is written once and whole: no cache in between.
  check(H5Pset_chunk_cache(access.get(), 1, 0, 1.0), "create", name);
  const Handle space = checked(H5Screate_simple(1, &none, &unlimited), "create", name);
  Dataset column(
      checked(H5Dcreate2(handle_.get(), name.c_str(), file_type(layout.type), space.get(), H5P_DEFAULT, create.get(), access.get()),
              "create", name),
      name, layout.type);
  // HDF5 makes the index with the first chunk, and a block of it with the first one that has its place there. They stay where the
  // chunks are taken away again.
  const uint64_t nothing = 0;
  for (const uint64_t place : {uint64_t{0}, kChunksInIndex, kChunksInIndex + kChunksInBlock}) {
    const uint64_t row = place * layout.chunk_rows;
    column.set_rows(row + 1);
    column.write_rows(row, 1, &nothing);
  }
  column.set_rows(0);
  return column;
}

bool begins_index_block(uint64_t chunk) {
  uint64_t begin = kChunksInIndex;
  for (unsigned level = 0; begin <= chunk; ++level) {
    const uint64_t blocks = uint64_t{1} << (level / 2), chunks = kChunksInBlock << ((level + 1) / 2);
    if (chunk < begin + blocks * chunks) return (chunk - begin) % chunks == 0;
    begin += blocks * chunks;
  }
  return false;
}

Dataset File::create_fixed(const std::string& name, ElementType type, const std::vector<uint64_t>& shape) {
  prepare();
  const Handle create = checked(H5Pcreate(H5P_DATASET_CREATE), "create", name);
  check(H5Pset_layout(create.get(), H5D_CONTIGUOUS), "create", name);
  check(H5Pset_alloc_time(create.get(), H5D_ALLOC_TIME_EARLY), "create", name);
  check(H5Pset_fill_time(create.get(), H5D_FILL_TIME_NEVER), "create", name);
  const std::vector<hsize_t> extent(shape.begin(), shape.end());
  const Handle space = checked(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), "create", name);
  return Dataset(
      checked(H5Dcreate2(handle_.get(), name.c_str(), file_type(type), space.get(), H5P_DEFAULT, create.get(), H5P_DEFAULT),
              "create", name),
      name, type);
}

void File::remove(const std::string& name) {
  prepare();
  check(H5Ldelete(handle_.get(), name.c_str(), H5P_DEFAULT), "remove", name);
}

uint64_t File::free_bytes() const {
  prepare();
  const hssize_t bytes = H5Fget_freespace(handle_.get());
  check(bytes < 0 ? -1 : 0, "measure", name_);
  return static_cast<uint64_t>(bytes);
}

Dataset File::create_array(const std::string& name, ElementType type, const std::vector<uint64_t>& shape) {
  prepare();
  const Handle create = checked(H5Pcreate(H5P_DATASET_CREATE), "create", name);
  const Handle access = checked(H5Pcreate(H5P_DATASET_ACCESS), "create", name);
  const std::vector<hsize_t> extent(shape.begin(), shape.end());
  // Checksums belong to chunks: some rows of about a megabyte together.
  std::vector<hsize_t> chunk = extent;
  size_t row_bytes = size_of(type);
  for (size_t i = 1; i < extent.size(); ++i) row_bytes *= extent[i];
  chunk[0] = std::clamp<hsize_t>((1 << 20) / row_bytes, 1, extent[0]);
  const int rank = static_cast<int>(extent.size());
  check(H5Pset_chunk(create.get(), rank, chunk.data()), "create", name);
  check(H5Pset_fill_time(create.get(), H5D_FILL_TIME_NEVER), "create", name);
  check(H5Pset_fletcher32(create.get()), "create", name);
  // Each chunk is written once and whole: with a cache in between, a write could fail unnoticed when the dataset is closed.
  check(H5Pset_chunk_cache(access.get(), 1, 0, 1.0), "create", name);
  const Handle space = checked(H5Screate_simple(rank, extent.data(), nullptr), "create", name);
  return Dataset(
      checked(H5Dcreate2(handle_.get(), name.c_str(), file_type(type), space.get(), H5P_DEFAULT, create.get(), access.get()),
              "create", name),
      name, type);
}

void File::write_attribute(const std::string& object, const std::string& name, int64_t stored, int64_t given, const void* value) {
  const Handle space = checked(H5Screate(H5S_SCALAR), "write attribute", name);
  const Handle attribute = checked(
      H5Acreate_by_name(handle_.get(), object.c_str(), name.c_str(), stored, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
      "write attribute", name);
  check(H5Awrite(attribute.get(), given, value), "write attribute", name);
}

void File::set_attribute(const std::string& object, const std::string& name, uint64_t value) {
  prepare();
  write_attribute(object, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, &value);
}

void File::set_attribute(const std::string& object, const std::string& name, double value) {
  prepare();
  write_attribute(object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value);
}

void File::set_attribute(const std::string& object, const std::string& name, const std::string& text) {
  prepare();
  const Handle type = checked(H5Tcopy(H5T_C_S1), "write attribute", name);
  check(H5Tset_size(type.get(), text.empty() ? 1 : text.size()), "write attribute", name);
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8), "write attribute", name);
  check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), "write attribute", name);
  write_attribute(object, name, type.get(), type.get(), text.c_str());
}

int File::find(const std::string& name) const {
  prepare();
  std::string group = "/";
  for (size_t end = name.find('/', 1);; end = name.find('/', end + 1)) {
    H5G_info_t links;
    if (H5Gget_info_by_name(handle_.get(), group.c_str(), &links, H5P_DEFAULT) < 0) return -1;
    check_compact(links, group);
    group = name.substr(0, end);
    if (const htri_t found = H5Lexists(handle_.get(), group.c_str(), H5P_DEFAULT); found <= 0) return found;
    H5L_info_t link;
    if (H5Lget_info(handle_.get(), group.c_str(), &link, H5P_DEFAULT) < 0 || link.type != H5L_TYPE_HARD) return -1;
    if (end == std::string::npos) return 1;
  }
}

bool File::exists(const std::string& name) const { return find(name) > 0; }

namespace {

bool has_elements(const Handle& dataset, ElementType type, const std::string& name) {
  const Handle stored = checked(H5Dget_type(dataset.get()), "open", name);
  return H5Tequal(stored.get(), file_type(type)) > 0;
}

}  // namespace

bool File::holds(const std::string& name, ElementType type) const {
  if (find(name) <= 0) return false;
  const Handle handle(H5Dopen2(handle_.get(), name.c_str(), H5P_DEFAULT));
  return handle && has_elements(handle, type, name);
}

Dataset File::open_dataset(const std::string& name, ElementType type) const {
  const int found = find(name);
  if (found == 0) throw failed_error("dataset '{}' is missing", name);
  if (found < 0) fail("open", name);
  Handle handle = checked(H5Dopen2(handle_.get(), name.c_str(), H5P_DEFAULT), "open", name);
  if (!has_elements(handle, type, name)) throw failed_error("'{}' does not hold elements of type {}", name, name_of(type));
  return Dataset(std::move(handle), name, type);
}

std::vector<std::string> File::members(const std::string& group) const {
  if (find(group) <= 0) fail("open", group);
  const Handle handle = checked(H5Gopen2(handle_.get(), group.c_str(), H5P_DEFAULT), "open", group);
  H5G_info_t links;
  check(H5Gget_info(handle.get(), &links), "read", group);
  check_compact(links, group);
  struct Found {
    std::vector<std::string> names;
    std::string link;  // that leads elsewhere
  } found;
  const auto add = [](hid_t, const char* name, const H5L_info_t* link, void* result) -> herr_t {
    auto& [names, elsewhere] = *static_cast<Found*>(result);
    names.emplace_back(name);
    if (link->type != H5L_TYPE_HARD) elsewhere = name;
    return 0;
  };
  check(H5Literate(handle.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, add, &found), "list", group);
  if (!found.link.empty())
    throw failed_error("group '{}' is damaged or made otherwise: its member '{}' is a link to elsewhere", group,
                       one_line(found.link));
  return std::move(found.names);
}

std::optional<int64_t> File::signed_attribute(const std::string& object, const std::string& name) const {
  return ScalarAttribute(handle_, object, name, H5T_INTEGER).value<int64_t>(H5T_NATIVE_INT64);
}

std::optional<double> File::real_attribute(const std::string& object, const std::string& name) const {
  return ScalarAttribute(handle_, object, name, H5T_FLOAT).value<double>(H5T_NATIVE_DOUBLE);
}

std::optional<std::string> File::text_attribute(const std::string& object, const std::string& name) const {
  const ScalarAttribute found(handle_, object, name, H5T_STRING);
  const size_t size = found ? H5Tget_size(found.type.get()) : 0;
  if (size == 0 || size > kMostAttributeBytes || H5Tis_variable_str(found.type.get()) != 0) return std::nullopt;
  std::string text(size, '\0');
  if (H5Aread(found.attribute.get(), found.type.get(), text.data()) < 0) return std::nullopt;
  text.resize(text.find_last_not_of('\0') + 1);
  return text;
}

void File::start_swmr() {
  prepare();
  check(H5Fstart_swmr_write(handle_.get()), "start writing", name_);
  // From here on HDF5 reads metadata up to a hundred times, with pauses that double: where it was cut away, for ever. So all that
  // it has read or made stays in memory (some bytes a chunk), and it reads nothing again.
  H5AC_cache_config_t cache;
  cache.version = H5AC__CURR_CACHE_CONFIG_VERSION;
  check(H5Fget_mdc_config(handle_.get(), &cache), "start writing", name_);
  cache.evictions_enabled = false;
  cache.incr_mode = H5C_incr__off;
  cache.flash_incr_mode = H5C_flash_incr__off;
  cache.decr_mode = H5C_decr__off;
  check(H5Fset_mdc_config(handle_.get(), &cache), "start writing", name_);
}

void File::flush() {
  prepare();
  check(H5Fflush(handle_.get(), H5F_SCOPE_GLOBAL), "write", name_);
}

void File::close() {
  if (!handle_) return;
  prepare();
  // Even where it fails, the identifier is gone.
  check(H5Fclose(handle_.release()), "close", name_);
}

void File::disconnect() noexcept {
  if (!handle_) return;
  prepare();
  void* pointer = nullptr;
  if (H5Fget_vfd_handle(handle_.get(), H5P_DEFAULT, &pointer) < 0 || !pointer) return;
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return;
  ::dup2(null, *static_cast<int*>(pointer));
  ::close(null);
}

int File::descriptor() const {
  prepare();
  void* pointer = nullptr;
  check(H5Fget_vfd_handle(handle_.get(), H5P_DEFAULT, &pointer), "open", name_);
  return *static_cast<int*>(pointer);
}

bool may_be_hdf5(const std::string& path) {
  const std::string bytes = first_bytes(path, kSignature.size() + 1);
  if (bytes.empty()) return true;
  return bytes.starts_with(kSignature) && (bytes.size() == kSignature.size() || bytes.back() >= kSuperblock);
}

std::optional<Truncation> check_signature(const std::string& path, std::string_view what) {
  // The superblock of version 3, which came with the file format that our files use, as far as the file's size in it.
  constexpr size_t kVersion = 8, kWriting = 11, kFileBytes = 28;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) throw unreadable_error("cannot open '{}': {}", path, std::strerror(errno));
  struct stat status {};
  uint8_t bytes[kFileBytes + 8] = {};
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  const ssize_t count = regular ? ::pread(descriptor, bytes, sizeof(bytes), 0) : 0;
  ::close(descriptor);
  if (!regular) throw unreadable_error("'{}' is not a file", path);
  if (count == 0) throw unreadable_error("'{}' is empty", path);
  if (count <= static_cast<ssize_t>(kVersion) || std::memcmp(bytes, kSignature.data(), kSignature.size()) != 0)
    throw unreadable_error("'{}' is not a {}: not an HDF5 file", path, what);
  if (bytes[kVersion] < 3) {
    throw unreadable_error("'{}' is not a {}: its HDF5 superblock has version {}, expected 3 (file format 1.10)", path, what,
                           bytes[kVersion]);
  }
  uint64_t expected = 0;
  std::memcpy(&expected, bytes + kFileBytes, sizeof(expected));
  const auto found = static_cast<uint64_t>(status.st_size);
  if (bytes[kWriting] != 0 || found >= expected) return std::nullopt;
  return Truncation{found, expected};
}

}  // namespace ulpscope::hdf5
