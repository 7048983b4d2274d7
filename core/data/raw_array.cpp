#include "ulpscope/core/data/raw_array.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "ulpscope/base/error.h"
#include "ulpscope/core/data/sources.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

namespace {

using Convert = void (*)(const uint8_t* bytes, bool reversed, size_t count, double* values);

// Elements of type T, of which value(T) gives the number.
template <typename T, auto value>
void convert(const uint8_t* bytes, bool reversed, size_t count, double* values) {
  for (size_t i = 0; i < count; ++i, bytes += sizeof(T)) {
    uint8_t element[sizeof(T)];
    std::memcpy(element, bytes, sizeof(T));
    if (reversed) std::reverse(element, element + sizeof(T));
    T stored;
    std::memcpy(&stored, element, sizeof(T));
    values[i] = value(stored);
  }
}

template <typename T>
constexpr Convert kPlain = convert<T, [](T number) { return static_cast<double>(number); }>;

struct TypeRow {
  char kind;
  size_t bytes;
  Convert convert;
};
constexpr TypeRow kTypes[] = {
    {'f', 4, kPlain<float>},
    {'f', 8, kPlain<double>},
    {'f', 2, convert<uint16_t, [](uint16_t bits) { return double{f16_to_float(bits)}; }>},
    {'u', 1, kPlain<uint8_t>},
    {'u', 2, kPlain<uint16_t>},
    {'u', 4, kPlain<uint32_t>},
    {'u', 8, kPlain<uint64_t>},
    {'i', 1, kPlain<int8_t>},
    {'i', 2, kPlain<int16_t>},
    {'i', 4, kPlain<int32_t>},
    {'i', 8, kPlain<int64_t>},
    {'b', 1, convert<uint8_t, [](uint8_t truth) { return truth != 0 ? 1.0 : 0.0; }>},
};

const TypeRow* find_type(const NumberType& type) {
  const auto row = std::find_if(std::begin(kTypes), std::end(kTypes),
                                [&](const TypeRow& r) { return r.kind == type.kind && r.bytes == type.bytes; });
  return row == std::end(kTypes) ? nullptr : row;
}

}  // namespace

bool is_readable(const NumberType& type) { return find_type(type) != nullptr; }

RawArray::RawArray(std::shared_ptr<const RandomAccessFile> file, std::string name, size_t offset, NumberType type,
                   std::vector<int64_t> shape, std::optional<SourceInfo> source)
    : file_(std::move(file)),
      name_(std::move(name)),
      offset_(offset),
      type_(type),
      shape_(std::move(shape)),
      source_(std::move(source)) {
  if (!is_readable(type_)) throw failed_error("internal: {}: numbers of an unknown type", name_);
  for (auto extent = shape_.begin() + 1; extent != shape_.end(); ++extent) row_ *= static_cast<size_t>(*extent);
}

SourceInfo RawArray::source() const {
  if (source_) return *source_;
  SourceInfo source = source_in(name_);
  source.first_byte = offset_;
  source.byte_step = row_ * type_.bytes;
  return source;
}

void RawArray::read(int64_t first, int64_t count, double* values) const {
  const size_t numbers = static_cast<size_t>(count) * row_;
  bytes_.resize(numbers * type_.bytes);
  file_->read(offset_ + static_cast<size_t>(first) * row_ * type_.bytes, bytes_);
  const bool reversed = type_.big_endian != (std::endian::native == std::endian::big);
  find_type(type_)->convert(bytes_.data(), reversed, numbers, values);
}

}  // namespace ulpscope
