#include "other_minor.h"

#include <hdf5.h>
#include <zlib.h>

#include <algorithm>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "ulpscope/base/hdf5/hdf5.h"

namespace ulpscope::trace_test {

namespace {

using hdf5::Handle;

int64_t must(int64_t id) {
  if (id < 0) throw std::runtime_error("a call of HDF5 failed");
  return id;
}

Handle open_to_change(const std::string& path) { return Handle(must(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT))); }

std::vector<hsize_t> shape_of(const Handle& dataset) {
  const Handle space(must(H5Dget_space(dataset.get())));
  std::vector<hsize_t> shape(static_cast<size_t>(must(H5Sget_simple_extent_ndims(space.get()))));
  must(H5Sget_simple_extent_dims(space.get(), shape.data(), nullptr));
  return shape;
}

std::vector<std::string> split(const std::string& names) {
  std::vector<std::string> parts;
  std::istringstream text(names);
  for (std::string part; std::getline(text, part, ',');) parts.push_back(part);
  return parts;
}

}  // namespace

uint64_t crc_of(uint64_t crc, const void* bytes, size_t size) {
  return ::crc32(static_cast<uLong>(crc), static_cast<const Bytef*>(bytes), static_cast<uInt>(size));
}

void remove_minor(const std::string& path) {
  const Handle file = open_to_change(path);
  must(H5Adelete(file.get(), "schema_minor"));
}

void set_minor(const std::string& path, int64_t minor) {
  remove_minor(path);
  const Handle file = open_to_change(path), space(must(H5Screate(H5S_SCALAR)));
  const Handle attribute(must(H5Acreate2(file.get(), "schema_minor", H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  must(H5Awrite(attribute.get(), H5T_NATIVE_INT64, &minor));
}

std::string read_text_attribute(const std::string& path, const std::string& object, const std::string& name) {
  const Handle file = open_to_change(path);
  const Handle attribute(must(H5Aopen_by_name(file.get(), object.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT)));
  const Handle type(must(H5Aget_type(attribute.get())));
  std::string text(H5Tget_size(type.get()), '\0');
  must(H5Aread(attribute.get(), type.get(), text.data()));
  return text;
}

void replace_text_attribute(const std::string& path, const std::string& object, const std::string& name, const std::string& text) {
  const Handle file = open_to_change(path);
  must(H5Adelete_by_name(file.get(), object.c_str(), name.c_str(), H5P_DEFAULT));
  if (text.empty()) return;
  const Handle type(must(H5Tcopy(H5T_C_S1))), space(must(H5Screate(H5S_SCALAR)));
  must(H5Tset_size(type.get(), text.size()));
  must(H5Tset_strpad(type.get(), H5T_STR_NULLPAD));
  const Handle attribute(must(
      H5Acreate_by_name(file.get(), object.c_str(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
  must(H5Awrite(attribute.get(), type.get(), text.data()));
}

void remove_object(const std::string& path, const std::string& name) {
  const Handle file = open_to_change(path);
  must(H5Ldelete(file.get(), name.c_str(), H5P_DEFAULT));
}

size_t place_in_commit(const std::string& path, const std::string& table) {
  const std::vector<std::string> tables = split(read_text_attribute(path, "commit", "tables"));
  return 2 + 3 * static_cast<size_t>(std::find(tables.begin(), tables.end(), table) - tables.begin());
}

void change_commit(const std::string& path, const std::function<void(std::vector<uint64_t>&)>& change) {
  const std::string tables = read_text_attribute(path, "commit", "tables");
  {
    const Handle file = open_to_change(path);
    std::vector<uint64_t> record;
    {
      const Handle commit(must(H5Dopen2(file.get(), "commit", H5P_DEFAULT)));
      const size_t size = shape_of(commit).at(1);
      std::vector<uint64_t> records(2 * size);
      must(H5Dread(commit.get(), H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, records.data()));
      const auto newer = records.begin() + static_cast<ptrdiff_t>(records[0] > records[size] ? 0 : size);
      record.assign(newer, newer + static_cast<ptrdiff_t>(size) - 1);
    }
    ++record[0];
    change(record);
    record.push_back(crc_of(0, record.data(), record.size() * 8));
    const hsize_t shape[] = {2, record.size()};
    record.insert(record.end(), record.begin(), record.begin() + static_cast<ptrdiff_t>(shape[1]));
    must(H5Ldelete(file.get(), "commit", H5P_DEFAULT));
    const Handle space(must(H5Screate_simple(2, shape, nullptr)));
    const Handle commit(must(H5Dcreate2(file.get(), "commit", H5T_STD_U64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
    must(H5Dwrite(commit.get(), H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, record.data()));
    const Handle type(must(H5Tcopy(H5T_C_S1))), scalar(must(H5Screate(H5S_SCALAR)));
    must(H5Tset_size(type.get(), tables.size()));
    const Handle attribute(must(H5Acreate2(commit.get(), "tables", type.get(), scalar.get(), H5P_DEFAULT, H5P_DEFAULT)));
    must(H5Awrite(attribute.get(), type.get(), tables.data()));
  }
}

void add_column(const std::string& path, const std::string& table, const std::string& name) {
  const std::string columns = read_text_attribute(path, table, "columns"), first = split(columns).front();
  std::vector<uint32_t> tail;
  hsize_t rows = 0;
  {
    const Handle file = open_to_change(path);
    const Handle other(must(H5Dopen2(file.get(), (table + "/" + first).c_str(), H5P_DEFAULT)));
    const Handle create(must(H5Dget_create_plist(other.get())));
    hsize_t chunk = 0;
    must(H5Pget_chunk(create.get(), 1, &chunk));
    rows = shape_of(other).at(0);
    const hsize_t unlimited = H5S_UNLIMITED;
    const Handle space(must(H5Screate_simple(1, &rows, &unlimited))), layout(must(H5Pcreate(H5P_DATASET_CREATE)));
    must(H5Pset_chunk(layout.get(), 1, &chunk));
    const Handle column(must(
        H5Dcreate2(file.get(), (table + "/" + name).c_str(), H5T_STD_U32LE, space.get(), H5P_DEFAULT, layout.get(), H5P_DEFAULT)));
    std::vector<uint32_t> values(rows);
    std::iota(values.begin(), values.end(), 1u);
    if (rows > 0) must(H5Dwrite(column.get(), H5T_NATIVE_UINT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
    tail.assign(values.end() - static_cast<ptrdiff_t>(rows % chunk), values.end());
    std::vector<uint32_t> stored = tail;
    stored.resize(chunk);
    const Handle tail_space(must(H5Screate_simple(1, &chunk, nullptr)));
    const Handle in_tail(must(H5Dcreate2(file.get(), ("tail/" + table + "/" + name).c_str(), H5T_STD_U32LE, tail_space.get(),
                                         H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
    must(H5Dwrite(in_tail.get(), H5T_NATIVE_UINT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, stored.data()));
  }
  replace_text_attribute(path, table, "columns", columns + "," + name);
  const size_t place = place_in_commit(path, table);
  change_commit(path, [&](std::vector<uint64_t>& record) {
    if (record[place + 2] != 0) record[place + 2] = crc_of(record[place + 2], tail.data(), tail.size() * 4);
  });
}

void add_table(const std::string& path, const std::string& name, uint64_t rows) {
  replace_text_attribute(path, "commit", "tables", read_text_attribute(path, "commit", "tables") + "," + name);
  change_commit(path, [&](std::vector<uint64_t>& record) { record.insert(record.end(), {rows, rows, uint64_t{0}}); });
}

}  // namespace ulpscope::trace_test
