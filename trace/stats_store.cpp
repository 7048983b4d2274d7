#include "ulpscope/trace/stats_store.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

#include "ulpscope/trace/decode.h"

namespace ulpscope::trace_detail {

namespace {

const TableSpec& stats() { return spec(TableId::stats); }

// The column of a field of TensorRow.
size_t column_index(std::string_view name) {
  const auto& columns = stats().columns;
  const auto found = std::find_if(columns.begin(), columns.end(), [&](const ColumnSpec& column) { return column.name == name; });
  return static_cast<size_t>(found - columns.begin());
}
size_t step_column() { return static_cast<size_t>(stats().step_column); }
size_t tensor_column() {
  static const size_t index = column_index("tensor");
  return index;
}

// Rows of a segment that a file has.
uint64_t segment_rows(const TraceFile& file, uint64_t segment) {
  return std::min(StatsStore::kSegmentRows, file.rows(TableId::stats) - segment * StatsStore::kSegmentRows);
}

template <typename Stored, typename T, typename Of>
void store(std::span<const T> values, PackedColumn& packed, Of&& of) {
  packed.width = sizeof(Stored);
  packed.offsets = std::make_unique_for_overwrite<std::byte[]>(values.size() * sizeof(Stored));
  std::transform(values.begin(), values.end(), reinterpret_cast<Stored*>(packed.offsets.get()), of);
}

template <typename T>
bool all_equal(std::span<const T> values) {
  return std::all_of(values.begin(), values.end(), [&](T value) { return value == values.front(); });
}

// Values of type T, which is unsigned, as base and offsets. There are some.
template <typename T>
void pack(std::span<const T> values, PackedColumn& packed) {
  packed.base = values.front();
  if (all_equal(values)) return;
  const auto [smallest, largest] = std::minmax_element(values.begin(), values.end());
  const uint64_t range = static_cast<uint64_t>(*largest) - static_cast<uint64_t>(*smallest);
  const T base = *smallest;
  packed.base = base;
  const auto store_as = [&](auto offset) {
    using Offset = decltype(offset);
    store<Offset>(values, packed, [base](T value) { return static_cast<Offset>(value - base); });
  };
  if (range > UINT32_MAX) {
    store_as(uint64_t{});
  } else if (range > UINT16_MAX) {
    store_as(uint32_t{});
  } else if (range > UINT8_MAX) {
    store_as(uint16_t{});
  } else {
    store_as(uint8_t{});
  }
}

uint64_t as_double(float value) { return std::bit_cast<uint64_t>(static_cast<double>(value)); }
float as_float(uint64_t bits) { return static_cast<float>(std::bit_cast<double>(bits)); }

// Bits of FP64 as they are, or where FP32 holds all of them, as magnitudes of its tensors, in FP32. There are some.
void pack_reals(std::span<const uint64_t> values, PackedColumn& packed) {
  packed.base = values.front();
  if (all_equal(values)) return;
  packed.base = 0;
  packed.is_single = std::all_of(values.begin(), values.end(), [](uint64_t bits) { return as_double(as_float(bits)) == bits; });
  packed.is_single ? store<float>(values, packed, as_float) : store<uint64_t>(values, packed, std::identity());
}

// Calls body with what values of so many bytes are, unsigned.
template <typename Body>
void with_type_of_size(size_t size, Body&& body) {
  switch (size) {
    case 1:
      return body(uint8_t{});
    case 2:
      return body(uint16_t{});
    case 4:
      return body(uint32_t{});
    default:
      return body(uint64_t{});
  }
}

// Writes the values of rows row(0) to row(count - 1), `size` bytes each.
template <typename RowOf>
void unpack(const PackedColumn& packed, size_t size, size_t count, RowOf&& row, std::byte* values) {
  with_type_of_size(size, [&](auto value) {
    using Value = decltype(value);
    auto* const out = reinterpret_cast<Value*>(values);
    const auto base = static_cast<Value>(packed.base);
    if (packed.width == 0) {
      std::fill_n(out, count, base);
      return;
    }
    if (packed.is_single) {
      const auto* const singles = reinterpret_cast<const float*>(packed.offsets.get());
      for (size_t i = 0; i < count; ++i) out[i] = static_cast<Value>(as_double(singles[row(i)]));
      return;
    }
    with_type_of_size(packed.width, [&](auto offset) {
      using Offset = decltype(offset);
      const auto* const offsets = reinterpret_cast<const Offset*>(packed.offsets.get());
      for (size_t i = 0; i < count; ++i) out[i] = static_cast<Value>(base + static_cast<Value>(offsets[row(i)]));
    });
  });
}

}  // namespace

std::span<const uint16_t> SegmentIndex::rows_of(uint32_t tensor) const {
  const auto found = std::lower_bound(tensors.begin(), tensors.end(), tensor);
  if (found == tensors.end() || *found != tensor) return {};
  const size_t i = static_cast<size_t>(found - tensors.begin());
  return std::span(order).subspan(begin[i], begin[i + 1] - begin[i]);
}

std::shared_ptr<const PackedColumn> StatsStore::column(const TraceFile& file, size_t index, uint64_t segment) {
  const uint64_t count = segment_rows(file, segment);
  return cache_->get<PackedColumn>({part_, static_cast<uint32_t>(index), segment}, count, [&] {
    const ElementType type = stats().columns[index].type;
    const auto values = std::make_unique_for_overwrite<uint64_t[]>(count);
    file.read_column(TableId::stats, index, segment * kSegmentRows, count, reinterpret_cast<std::byte*>(values.get()));
    auto packed = std::make_shared<PackedColumn>();
    packed->rows = count;
    if (type == ElementType::f64) {
      pack_reals({values.get(), count}, *packed);
    } else {
      with_type_of_size(size_of(type), [&](auto value) {
        pack(std::span(reinterpret_cast<const decltype(value)*>(values.get()), count), *packed);
      });
    }
    packed->bytes = sizeof(PackedColumn) + count * packed->width;
    return packed;
  });
}

std::shared_ptr<const SegmentIndex> StatsStore::index(const TraceFile& file, uint64_t segment) {
  const uint64_t count = segment_rows(file, segment);
  const auto item = static_cast<uint32_t>(stats().columns.size());
  return cache_->get<SegmentIndex>({part_, item, segment}, count, [&] {
    std::vector<uint32_t> tensors(count);
    read_column(file, tensor_column(), segment * kSegmentRows, count, reinterpret_cast<std::byte*>(tensors.data()));
    auto made = std::make_shared<SegmentIndex>();
    made->rows = count;
    made->order.resize(count);
    std::iota(made->order.begin(), made->order.end(), uint16_t{0});
    std::stable_sort(made->order.begin(), made->order.end(), [&](uint16_t a, uint16_t b) { return tensors[a] < tensors[b]; });
    for (size_t i = 0; i < count; ++i) {
      const uint32_t tensor = tensors[made->order[i]];
      if (!made->tensors.empty() && made->tensors.back() == tensor) continue;
      made->tensors.push_back(tensor);
      made->begin.push_back(static_cast<uint16_t>(i));
    }
    made->begin.push_back(static_cast<uint16_t>(count));
    made->bytes = sizeof(SegmentIndex) + made->tensors.capacity() * 4 + made->begin.capacity() * 2 + made->order.capacity() * 2;
    return made;
  });
}

std::shared_ptr<const HistogramBytes> StatsStore::histogram_bytes(const TraceFile& file, uint64_t segment) {
  const uint64_t first = segment * kSegmentRows, count = segment_rows(file, segment);
  const auto item = static_cast<uint32_t>(stats().columns.size() + 1);
  return cache_->get<HistogramBytes>({part_, item, segment}, count, [&] {
    auto made = std::make_shared<HistogramBytes>();
    made->rows = count;
    if (segment > 0) made->begin = column(file, kHistogramColumn, segment - 1)->bits(kSegmentRows - 1);
    const auto ends = column(file, kHistogramColumn, segment);
    uint64_t end = made->begin;
    for (size_t row = 0; row < count; ++row) {
      const uint64_t next = ends->bits(row);
      file.check_histogram(first + row, end, next);
      end = next;
    }
    made->bytes_of_rows.resize(end - made->begin);
    file.read_column(TableId::histograms, 0, made->begin, end - made->begin,
                     reinterpret_cast<std::byte*>(made->bytes_of_rows.data()));
    made->bytes = sizeof(HistogramBytes) + made->bytes_of_rows.size();
    return made;
  });
}

void StatsStore::read_column(const TraceFile& file, size_t index, uint64_t first, size_t count, std::byte* values) {
  const size_t size = size_of(stats().columns[index].type);
  while (count > 0) {
    const size_t begin = first % kSegmentRows, some = std::min(count, static_cast<size_t>(kSegmentRows - begin));
    const auto packed = column(file, index, first / kSegmentRows);
    unpack(
        *packed, size, some, [&](size_t i) { return begin + i; }, values);
    first += some;
    count -= some;
    values += some * size;
  }
}

void StatsStore::gather_column(const TraceFile& file, size_t index, uint64_t segment, std::span<const uint16_t> rows,
                               std::byte* values) {
  unpack(
      *column(file, index, segment), size_of(stats().columns[index].type), rows.size(), [&](size_t i) { return rows[i]; }, values);
}

// Of the rows of one segment, so that a block's rows need not be neighbours: their histograms' bytes are put one after the other.
void StatsStore::gather(const TraceFile& file, uint64_t segment, std::span<const uint16_t> rows, bool histograms, Block& block) {
  block.table = &stats();
  block.first = segment * kSegmentRows;
  block.places.assign(rows.begin(), rows.end());
  block.rows = rows.size();
  block.columns.resize(stats().columns.size());
  block.histograms.clear();
  block.histograms_begin = 0;
  for (size_t i = 0; i < block.columns.size(); ++i) {
    block.columns[i].resize(i == kHistogramColumn && !histograms ? 0 : rows.size() * size_of(stats().columns[i].type));
    if (i != kHistogramColumn) gather_column(file, i, segment, rows, block.columns[i].data());
  }
  if (!histograms) return;
  const auto ends = column(file, kHistogramColumn, segment);
  const auto bytes = histogram_bytes(file, segment);
  for (size_t i = 0; i < rows.size(); ++i) {
    const uint64_t begin = rows[i] == 0 ? bytes->begin : ends->bits(rows[i] - 1u), end = ends->bits(rows[i]);
    const uint8_t* const at = bytes->bytes_of_rows.data() + (begin - bytes->begin);
    block.histograms.insert(block.histograms.end(), at, at + (end - begin));
    const uint64_t size = block.histograms.size();
    std::memcpy(block.columns[kHistogramColumn].data() + i * sizeof(size), &size, sizeof(size));
  }
}

void StatsStore::read(const TraceFile& file, uint64_t first, size_t count, bool histograms, Block& block) {
  block.table = &stats();
  block.first = first;
  block.places.clear();
  block.rows = count;
  block.columns.resize(stats().columns.size());
  block.histograms.clear();
  block.histograms_begin = 0;
  for (size_t i = 0; i < block.columns.size(); ++i) {
    block.columns[i].resize(i == kHistogramColumn && !histograms ? 0 : count * size_of(stats().columns[i].type));
    if (!block.columns[i].empty()) read_column(file, i, first, count, block.columns[i].data());
  }
  if (!histograms || count == 0) return;
  for (uint64_t segment = first / kSegmentRows; segment * kSegmentRows < first + count; ++segment) {
    const auto bytes = histogram_bytes(file, segment);
    const auto ends = column(file, kHistogramColumn, segment);
    const uint64_t begins_at = segment * kSegmentRows;
    const uint64_t begin = first > begins_at ? ends->bits(first - begins_at - 1) : bytes->begin;
    const uint64_t end = ends->bits(std::min(first + count - begins_at, kSegmentRows) - 1);
    if (block.histograms.empty() && begins_at <= first) block.histograms_begin = begin;
    const uint8_t* const at = bytes->bytes_of_rows.data() + (begin - bytes->begin);
    block.histograms.insert(block.histograms.end(), at, at + (end - begin));
  }
}

uint64_t StatsStore::step_at(const TraceFile& file, uint64_t row) {
  const auto steps = column(file, step_column(), row / kSegmentRows);
  return steps->width == 0 ? steps->base : steps->bits(row % kSegmentRows);
}

std::pair<uint64_t, uint64_t> StatsStore::rows_of(const TraceFile& file, StepRange range) {
  const uint64_t all = file.rows(TableId::stats);
  const auto lower_bound = [&](uint64_t step, uint64_t low, uint64_t high) {
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      if (step_at(file, middle) < step)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  };
  const uint64_t first = range.first == 0 ? 0 : lower_bound(range.first, 0, all);
  return {first, range.last == UINT64_MAX ? all : lower_bound(range.last, first, all)};
}

void StatsStore::load(const TraceFile& file) {
  for (uint64_t segment = 0; segment * kSegmentRows < file.rows(TableId::stats); ++segment) {
    if (cache_->bytes() * 10 > cache_->most_bytes() * 9) return;
    for (size_t i = 0; i < stats().columns.size(); ++i) column(file, i, segment);
    index(file, segment);
    histogram_bytes(file, segment);
  }
}

}  // namespace ulpscope::trace_detail
