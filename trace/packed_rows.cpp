#include "ulpscope/trace/packed_rows.h"

#include <bit>
#include <stdexcept>
#include <type_traits>

#include "ulpscope/trace/columns.h"
#include "ulpscope/trace/histogram_code.h"

namespace ulpscope {

namespace {

using trace_detail::for_each_column;
using trace_detail::Table;

// A row is the number of its table, and then its columns: bytes and enumerators as they are, whole numbers as LEB128, signed ones
// with the sign in the lowest bit, real ones with their bytes turned around, so that few significant bits are few bytes; a text, a
// shape and a histogram as its length and what it has.
class Packer {
 public:
  explicit Packer(std::vector<uint8_t>& bytes) : bytes_(bytes) {}

  template <typename Row>
  void add(const Row& row) {
    bytes_.push_back(static_cast<uint8_t>(Table<Row>::id));
    for_each_column<Row>([&](const auto& column, auto) { put(column.get(row)); });
  }

 private:
  void put_number(uint64_t number) {
    for (; number >= 0x80; number >>= 7) bytes_.push_back(static_cast<uint8_t>(number | 0x80));
    bytes_.push_back(static_cast<uint8_t>(number));
  }
  template <typename Field>
  void put(const Field& field) {
    if constexpr (std::is_enum_v<Field> || sizeof(Field) == 1) {
      bytes_.push_back(static_cast<uint8_t>(field));
    } else if constexpr (std::is_floating_point_v<Field>) {
      put_number(__builtin_bswap64(std::bit_cast<uint64_t>(field)));
    } else if constexpr (std::is_unsigned_v<Field>) {
      put_number(field);
    } else {
      const auto number = int64_t{field};
      put_number(static_cast<uint64_t>(number) << 1 ^ static_cast<uint64_t>(number >> 63));
    }
  }
  void put(const std::string& text) {
    put_number(text.size());
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  void put(const std::vector<int64_t>& shape) {
    put_number(shape.size());
    for (const int64_t extent : shape) put(extent);
  }
  void put(const ExponentHistogram& histogram) {
    uint8_t code[kLargestHistogram];
    const size_t size = encode_histogram(histogram, code);
    put_number(size);
    bytes_.insert(bytes_.end(), code, code + size);
  }

  std::vector<uint8_t>& bytes_;
};

// Reads the bytes that a Packer wrote.
class Unpacker {
 public:
  explicit Unpacker(const std::vector<uint8_t>& bytes) : at_(bytes.data()), end_(at_ + bytes.size()) {}

  bool has_more() const { return at_ != end_; }
  TableId table() { return static_cast<TableId>(*at_++); }
  template <typename Row>
  Row row() {
    Row row;
    for_each_column<Row>([&](const auto& column, auto) { get(column.get(row)); });
    return row;
  }

 private:
  uint64_t number() {
    uint64_t number = *at_ & 0x7F;
    for (unsigned shift = 7; (*at_++ & 0x80) != 0; shift += 7) number |= uint64_t{*at_ & 0x7Fu} << shift;
    return number;
  }
  template <typename Field>
  void get(Field& field) {
    if constexpr (std::is_enum_v<Field> || sizeof(Field) == 1) {
      field = static_cast<Field>(*at_++);
    } else if constexpr (std::is_floating_point_v<Field>) {
      field = std::bit_cast<double>(__builtin_bswap64(number()));
    } else if constexpr (std::is_unsigned_v<Field>) {
      field = static_cast<Field>(number());
    } else {
      const uint64_t folded = number();
      field = static_cast<Field>(folded >> 1 ^ (~(folded & 1) + 1));
    }
  }
  void get(std::string& text) {
    const uint64_t size = number();
    text.assign(at_, at_ + size);
    at_ += size;
  }
  void get(std::vector<int64_t>& shape) {
    shape.resize(number());
    for (int64_t& extent : shape) get(extent);
  }
  void get(ExponentHistogram& histogram) {
    const uint64_t size = number();
    decode_histogram({at_, size}, histogram);
    at_ += size;
  }

  const uint8_t* at_;
  const uint8_t* end_;
};

}  // namespace

void PackedRows::add(const TensorRow& row) {
  Packer(bytes_).add(row);
  ++rows_.tensors;
  rows_.histograms += row.known == StatisticsLevel::values;
}
void PackedRows::add(const BatchRow& row) {
  Packer(bytes_).add(row);
  ++rows_.batches;
}
void PackedRows::add(const ParameterRow& row) {
  Packer(bytes_).add(row);
  ++rows_.parameters;
}
void PackedRows::add(const FingerprintRow& row) {
  Packer(bytes_).add(row);
  ++rows_.fingerprints;
}
void PackedRows::add(const CaptureRow& row) { Packer(bytes_).add(row); }
void PackedRows::add(const SampleRow& row) {
  Packer(bytes_).add(row);
  ++rows_.samples;
}
void PackedRows::add(const MeasureRow& row) {
  Packer(bytes_).add(row);
  ++rows_.measures;
}
void PackedRows::add(const SumRow& row) {
  Packer(bytes_).add(row);
  ++rows_.sums;
}
void PackedRows::add(const BitsRow& row) {
  Packer(bytes_).add(row);
  ++rows_.bits;
}

void PackedRows::write(TraceSink& sink) const {
  for (Unpacker from(bytes_); from.has_more();) {
    switch (from.table()) {
      case TableId::stats:
        sink.add_row(from.row<TensorRow>());
        break;
      case TableId::batches:
        sink.add_batch(from.row<BatchRow>());
        break;
      case TableId::parameters:
        sink.add_parameter(from.row<ParameterRow>());
        break;
      case TableId::fingerprints:
        sink.add_fingerprint(from.row<FingerprintRow>());
        break;
      case TableId::captures:
        sink.add_capture(from.row<CaptureRow>());
        break;
      case TableId::samples:
        sink.add_sample(from.row<SampleRow>());
        break;
      case TableId::measures:
        sink.add_measure(from.row<MeasureRow>());
        break;
      case TableId::sums:
        sink.add_sum(from.row<SumRow>());
        break;
      case TableId::bits:
        sink.add_bits(from.row<BitsRow>());
        break;
      default:
        throw std::logic_error("rows of this table are not packed");
    }
  }
}

}  // namespace ulpscope
