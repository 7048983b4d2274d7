#include "ulpscope/base/hdf5/number_array.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ulpscope/base/error.h"
#include "ulpscope/base/hdf5/checked.h"
#include "ulpscope/base/text.h"

namespace ulpscope::hdf5 {

namespace {

Handle open_file(const std::string& path) {
  prepare();
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw unreadable_error("cannot open '{}': {}", path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) throw unreadable_error("'{}' is not a file, expected HDF5 data", path);
  if (status.st_size == 0) throw unreadable_error("'{}' is empty, expected HDF5 data", path);
  if (H5Fis_hdf5(path.c_str()) <= 0) throw unreadable_error("'{}' is not an HDF5 file", path);
  const Handle access(H5Pcreate(H5P_FILE_ACCESS));
  Handle file;
  if (access && H5Pset_file_locking(access.get(), false, true) >= 0)
    file = Handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()));
  if (!file) throw unreadable_error("cannot open '{}': {}", path, innermost_error().text);
  return file;
}

std::vector<std::string> dataset_names(const Handle& file) {
  std::vector<std::string> names;
  // In the order in which they are found: for another one HDF5 fills a table of the size that the group claims to need.
  H5Ovisit2(
      file.get(), H5_INDEX_NAME, H5_ITER_NATIVE,
      [](hid_t, const char* name, const H5O_info_t* object, void* found) -> herr_t {
        if (object->type == H5O_TYPE_DATASET) static_cast<std::vector<std::string>*>(found)->emplace_back(name);
        return 0;
      },
      &names, H5O_INFO_BASIC);
  std::sort(names.begin(), names.end());
  return names;
}

Handle open_dataset(const Handle& file, const std::string& path, const std::string& name, const Handle& access) {
  Handle object(H5Oopen(file.get(), name.c_str(), H5P_DEFAULT));
  if (!object) {
    const std::string why = innermost_error().text;
    if (H5Lexists(file.get(), name.c_str(), H5P_DEFAULT) > 0)
      throw unreadable_error("'{}': cannot open '{}': {}", path, one_line(name), why);
  }
  const H5I_type_t kind = object ? H5Iget_type(object.get()) : H5I_BADID;
  H5Eclear2(H5E_DEFAULT);
  if (kind != H5I_DATASET) {
    const std::vector<std::string> names = dataset_names(file);
    throw usage_error("'{}' has no data set '{}'{}{}", path, one_line(name), kind == H5I_GROUP ? ", but a group of that name" : "",
                      did_you_mean_or_expected(name, names));
  }
  return Handle(H5Dopen2(file.get(), name.c_str(), access.get()));
}

constexpr const char* kClasses[] = {"integers",      "numbers",   "times",      "texts",        "bit fields",
                                    "opaque values", "compounds", "references", "enumerations", "lists of varying length",
                                    "arrays"};

void check_type(const Handle& dataset, const std::string& label) {
  const Handle type(H5Dget_type(dataset.get()));
  const H5T_class_t kind = type ? H5Tget_class(type.get()) : H5T_NO_CLASS;
  if (kind == H5T_INTEGER || kind == H5T_FLOAT) return;
  throw unreadable_error("{}: expected integers or floating-point numbers, found {}", label,
                         kind >= 0 && kind < H5T_NCLASSES ? kClasses[kind] : "an unknown type");
}

// A filter that the library lacks would show only when the data are read.
void check_filters(const Handle& properties, const std::string& label) {
  const int filters = H5Pget_nfilters(properties.get());
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0, config = 0;
    size_t values = 0;
    char name[64] = "";
    const H5Z_filter_t filter =
        H5Pget_filter2(properties.get(), static_cast<unsigned>(i), &flags, &values, nullptr, sizeof(name), name, &config);
    if (filter >= 0 && H5Zfilter_avail(filter) <= 0) {
      throw unreadable_error(
          "{}: compressed with the filter '{}' ({}), which the HDF5 library does not have; expected gzip or none", label,
          one_line(name), filter);
    }
  }
}

// HDF5 reads numbers of another file as fill values where that file is missing.
void check_place(const Handle& properties, const std::string& label) {
  const bool is_virtual = H5Pget_layout(properties.get()) == H5D_VIRTUAL;
  if (!is_virtual && H5Pget_external_count(properties.get()) == 0) return;
  throw unreadable_error("{}: expected numbers in this file, found {}", label,
                         is_virtual ? "a virtual data set, of numbers that are in others" : "external storage, in other files");
}

// What was never written would be read all the same, as fill values, as if there were no end of them. No filter makes less of
// numbers than deflate can, about a thousandth.
void check_written(const Handle& dataset, const std::vector<int64_t>& shape, const std::string& label) {
  constexpr double kMostCompressed = 1100, kSmall = 1 << 20;
  const Handle type(H5Dget_type(dataset.get()));
  double bytes = static_cast<double>(H5Tget_size(type.get()));
  for (const int64_t extent : shape) bytes *= static_cast<double>(extent);
  const hsize_t stored = H5Dget_storage_size(dataset.get());
  const bool is_written = stored > 0 && bytes <= kSmall + kMostCompressed * static_cast<double>(stored);
  if (bytes == 0 || is_written) return;
  throw unreadable_error("{}: expected {} numbers, found {} bytes of them in the file", label, fmt::join(shape, " x "), stored);
}

}  // namespace

std::vector<std::string> data_set_names(const std::string& path) { return dataset_names(open_file(path)); }

NumberArray::NumberArray(const std::string& path, const std::string& name) : label_(path + ": " + name) {
  file_ = open_file(path);
  const auto failed = [&] { return unreadable_error("{}: {}", label_, innermost_error().text); };
  const auto opened = [&](const Handle& access) {
    Handle dataset = open_dataset(file_, path, name, access);
    if (!dataset) throw failed();
    return dataset;
  };
  Handle access(H5Pcreate(H5P_DATASET_ACCESS));
  dataset_ = opened(access);
  check_type(dataset_, label_);
  const Handle element(H5Dget_type(dataset_.get()));
  bits_ = static_cast<int>(8 * H5Tget_size(element.get()));
  if (H5Tget_class(element.get()) == H5T_INTEGER)
    kind_ = H5Tget_sign(element.get()) == H5T_SGN_NONE ? NumberKind::unsigned_integer : NumberKind::signed_integer;
  const Handle space(H5Dget_space(dataset_.get())), properties(H5Dget_create_plist(dataset_.get()));
  if (!space || !properties) throw failed();
  hsize_t extents[H5S_MAX_RANK] = {}, chunk[H5S_MAX_RANK] = {};
  const int rank = H5Sget_simple_extent_dims(space.get(), extents, nullptr);
  if (rank < 1) throw unreadable_error("{}: expected an array, found {}", label_, rank == 0 ? "a single value" : "nothing");
  for (int i = 0; i < rank; ++i) {
    if (extents[i] > INT64_MAX) throw unreadable_error("{}: extent {} is {}, expected less than 2^63", label_, i, extents[i]);
  }
  shape_.assign(extents, extents + rank);
  check_filters(properties, label_);
  check_place(properties, label_);
  check_written(dataset_, shape_, label_);
  if (H5Pget_layout(properties.get()) != H5D_CHUNKED || H5Pget_chunk(properties.get(), rank, chunk) < 0) return;

  chunk_rows_ = static_cast<int64_t>(std::clamp<hsize_t>(chunk[0], 1, std::max<hsize_t>(1, extents[0])));
  // The cache holds what lies across one row of chunks: rows that are read one after another are decompressed once.
  constexpr double kLeast = 1 << 20, kMost = 1 << 26;
  const Handle type(H5Dget_type(dataset_.get()));
  double bytes = static_cast<double>(H5Tget_size(type.get())) * static_cast<double>(chunk[0]);
  for (int i = 1; i < rank; ++i) bytes *= static_cast<double>((extents[i] + chunk[i] - 1) / chunk[i] * chunk[i]);
  constexpr size_t kSlots = 12421;  // a prime, as HDF5 asks for
  if (H5Pset_chunk_cache(access.get(), kSlots, static_cast<size_t>(std::clamp(bytes, kLeast, kMost)), 1.0) < 0) throw failed();
  dataset_.reset();
  dataset_ = opened(access);
}

void NumberArray::read_rows(int64_t first, int64_t count, double* values) const {
  if (count == 0) return;
  prepare();
  std::vector<hsize_t> start(shape_.size(), 0), size(shape_.begin(), shape_.end());
  start[0] = static_cast<hsize_t>(first);
  size[0] = static_cast<hsize_t>(count);
  const Handle space(H5Dget_space(dataset_.get())), memory(H5Screate_simple(static_cast<int>(size.size()), size.data(), nullptr));
  const bool is_read = space && memory &&
                       H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, size.data(), nullptr) >= 0 &&
                       H5Dread(dataset_.get(), H5T_NATIVE_DOUBLE, memory.get(), space.get(), H5P_DEFAULT, values) >= 0;
  if (!is_read)
    throw unreadable_error("{}: samples {} to {} cannot be read: {}", label_, first, first + count - 1, innermost_error().text);
}

}  // namespace ulpscope::hdf5
