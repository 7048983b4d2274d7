// Changes closed traces into what programs of other minor versions of the schema write, with HDF5 and zlib alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ulpscope::trace_test {

// CRC-32 of bytes behind those that have the checksum `crc`.
uint64_t crc_of(uint64_t crc, const void* bytes, size_t size);
void set_minor(const std::string& path, int64_t minor);
void remove_minor(const std::string& path);
// A column of 32-bit numbers behind those of the table, with as many rows, of which the tail holds as many as the others' do.
void add_column(const std::string& path, const std::string& table, const std::string& name);
// A table behind all others, whose rows are said to be so many.
void add_table(const std::string& path, const std::string& name, uint64_t rows);
// Removes a dataset or a group.
void remove_object(const std::string& path, const std::string& name);
// Nothing is written where `text` is empty.
void replace_text_attribute(const std::string& path, const std::string& object, const std::string& name, const std::string& text);
std::string read_text_attribute(const std::string& path, const std::string& object, const std::string& name);
// Both commit records become what `change` makes of the newer one, which it gets without its checksum.
void change_commit(const std::string& path, const std::function<void(std::vector<uint64_t>&)>& change);
// Where the three numbers of a table begin in a commit record.
size_t place_in_commit(const std::string& path, const std::string& table);

}  // namespace ulpscope::trace_test
