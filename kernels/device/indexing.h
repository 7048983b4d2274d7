// Ops that look elements up by index, and sums into the elements that indices name: in the order of the indices, which are sorted
// for that, so that no two threads add to one element.
#pragma once

#include <cstdint>

#include "ulpscope/kernels/along.h"
#include "ulpscope/kernels/device/elementwise.h"
#include "ulpscope/kernels/device/indices.h"

namespace ulpscope::device {

// Stored bits, to where another view has its elements.
struct CopyElements {
  Input from;  // in logical order
  void* to;
  ElementOrder places;
  int64_t size;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    for (int64_t i = block.block() * block.threads() + block.thread(); i < size; i += block.blocks() * block.threads())
      copy(from.elements.offset_of(i), places.offset_of(i));
  }

 private:
  ULPSCOPE_DEVICE void copy(int64_t source, int64_t target) const {
    if (size_of(from.dtype) == sizeof(uint16_t)) {
      static_cast<uint16_t*>(to)[target] = from.at<uint16_t>(source);
    } else {
      static_cast<uint32_t*>(to)[target] = from.at<uint32_t>(source);
    }
  }
};

struct SliceGradient {
  Along out, in_slice;
  int64_t start, step;
  Input gradient;  // in logical order
  Output output;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    put_values(block, output, [&](int64_t i) {
      const int64_t e = output.logical.offset_of(i), from = out.at(e) - start;
      if (from < 0 || from % step != 0 || from / step >= in_slice.extent) return 0.0f;
      return read<Block>(gradient, out.moved(e, in_slice, from / step));
    });
  }
};

// Element e of the output is that of x at places(e / run) + stride index(e / run), and e % run further on.
struct LookUp {
  Input x;  // in logical order
  Indices indices;
  ElementOrder places;
  int64_t stride, run;
  Output output;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    put_values(block, output, [&](int64_t i) {
      const int64_t e = output.logical.offset_of(i), at = e / run, index = indices.at<Block>(at);
      if (index == Indices::kNone) return 0.0f;
      return read<Block>(x, (places.offset_of(at) + stride * index) * run + e % run);
    });
  }
};

// What is added up, as it is sorted: value `order[i]` belongs to the element or row keys[i], and equal keys keep their order.
struct Sorted {
  uint32_t *keys, *order;
};

struct MakeKeys {
  Indices indices;
  ElementOrder places;
  int64_t stride;
  uint32_t none;  // the key of an index that is out of range: behind all others
  Sorted out;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    for (int64_t i = block.block() * block.threads() + block.thread(); i < indices.size; i += block.blocks() * block.threads()) {
      const int64_t index = indices.at<Block>(i);
      out.keys[i] = index == Indices::kNone ? none : static_cast<uint32_t>(places.offset_of(i) + stride * index);
      out.order[i] = static_cast<uint32_t>(i);
    }
  }
};

// A stable sort by one digit of the keys after another: a warp for each chunk counts its digits, all counts are added up in the
// order of digits and then of chunks, and the warps put their keys where these say.
struct DigitCounts {
  using Element = uint32_t;
  static constexpr int kBits = 8, kSize = 1 << kBits;
  static constexpr const char* kName = "digits";
};

struct SortByDigit {
  Sorted in, out;
  int64_t n, chunk;
  int shift;
  uint32_t* places;  // of each digit those of all chunks

  ULPSCOPE_DEVICE int digit(uint32_t key) const { return static_cast<int>(key >> shift) & (DigitCounts::kSize - 1); }
  ULPSCOPE_DEVICE int64_t end_of(int64_t begin) const { return begin + chunk < n ? begin + chunk : n; }
};

struct CountDigits : SortByDigit {
  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    const auto counts = block.template shared<DigitCounts>();
    for (int d = block.thread(); d < DigitCounts::kSize; d += block.threads()) counts.write(d, 0);
    block.barrier();
    const int64_t begin = block.block() * chunk, end = end_of(begin);
    for (int64_t i = begin + block.thread(); i < end; i += block.threads()) counts.add(digit(in.keys[i]), 1);
    block.barrier();
    for (int d = block.thread(); d < DigitCounts::kSize; d += block.threads())
      places[d * block.blocks() + block.block()] = counts.read(d);
  }
};

struct CountsOfThreads {
  using Element = uint32_t;
  static constexpr int kSize = kMostThreads;
  static constexpr const char* kName = "counts of threads";
};

// One block: each count becomes the sum of those before it.
struct AddCounts {
  uint32_t* counts;
  int64_t n;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    const auto of_threads = block.template shared<CountsOfThreads>();
    const int64_t share = (n + block.threads() - 1) / block.threads(), begin = block.thread() * share;
    const int64_t end = begin + share < n ? begin + share : n;
    uint32_t total = 0;
    for (int64_t i = begin; i < end; ++i) total += counts[i];
    of_threads.write(block.thread(), total);
    block.barrier();
    uint32_t before = 0;
    for (int thread = 0; thread < block.thread(); ++thread) before += of_threads.read(thread);
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t count = counts[i];
      counts[i] = before;
      before += count;
    }
  }
};

struct PutDigits : SortByDigit {
  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    const auto next = block.template shared<DigitCounts>();
    for (int d = block.lane(); d < DigitCounts::kSize; d += kWarpThreads) next.write(d, places[d * block.blocks() + block.block()]);
    block.sync_warp();
    const int64_t begin = block.block() * chunk, end = end_of(begin);
    for (int64_t first = begin; first < end; first += kWarpThreads) {
      const int64_t i = first + block.lane();
      const bool is_there = i < end;
      const uint32_t key = is_there ? in.keys[i] : 0;
      const int d = digit(key);
      uint32_t alike = block.ballot(is_there);
      for (int bit = 0; bit < DigitCounts::kBits; ++bit) {
        const bool is_set = (d >> bit & 1) != 0;
        const uint32_t set = block.ballot(is_set);
        alike &= is_set ? set : ~set;
      }
      const uint32_t before = count_of(alike & ((uint32_t{1} << block.lane()) - 1)), at = next.read(d);
      block.sync_warp();
      if (is_there) {
        out.keys[at + before] = key;
        out.order[at + before] = in.order[i];
        if (before == 0) next.write(d, at + count_of(alike));
      }
      block.sync_warp();
    }
  }

 private:
  ULPSCOPE_DEVICE static uint32_t count_of(uint32_t bits) {
    uint32_t count = 0;
    for (; bits != 0; bits &= bits - 1) ++count;
    return count;
  }
};

// firsts[key] = 1 + the first place of a key among the sorted ones; it was zero.
struct FindFirsts {
  const uint32_t* keys;
  int64_t n, limit;
  uint32_t* firsts;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    for (int64_t i = block.block() * block.threads() + block.thread(); i < n; i += block.blocks() * block.threads())
      if (keys[i] < limit && (i == 0 || keys[i - 1] != keys[i])) firsts[keys[i]] = static_cast<uint32_t>(i + 1);
  }
};

// Element e of the output: `start`, where there is one, and then value i run + e % run for each i whose key is e / run.
struct AddValues {
  bool has_start;
  Input start, values;  // in logical order
  Sorted sorted;
  int64_t n, run;
  const uint32_t* firsts;
  Output output;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    put_values(block, output, [&](int64_t i) {
      const int64_t e = output.logical.offset_of(i);
      const auto key = static_cast<uint32_t>(e / run);
      float total = has_start ? read<Block>(start, e) : 0.0f;
      const uint32_t first = firsts[key];
      if (first == 0) return total;
      for (int64_t k = first - 1; k < n && sorted.keys[k] == key; ++k)
        total += read<Block>(values, sorted.order[k] * run + e % run);
      return total;
    });
  }
};

}  // namespace ulpscope::device
