// Pooling: a thread computes an element of the output. That of a gradient adds up what the windows over it give, in their order, so
// that no two threads add to one element.
#pragma once

#include <cstdint>
#include <limits>

#include "ulpscope/kernels/device/input.h"
#include "ulpscope/kernels/device/output.h"
#include "ulpscope/kernels/lanes.h"
#include "ulpscope/kernels/pool_windows.h"

namespace ulpscope::device {

// An element of an image [N, C, H, W], or of a pooled one.
struct ImagePlace {
  int64_t image, channel, y, x;
};

// Where the elements of one lie in memory.
struct ImageStrides {
  int64_t image, channel, row, column;

  ULPSCOPE_DEVICE int64_t offset_of(const ImagePlace& at) const {
    return at.image * image + at.channel * channel + at.y * row + at.x * column;
  }
};

struct ImageInput {
  Input input;
  ImageStrides strides;

  template <class Block, typename T = float>
  ULPSCOPE_DEVICE T at(const ImagePlace& place) const {
    return read_at<Block, T>(input, strides.offset_of(place));
  }
};

struct Pooling {
  PoolAxes axes;
  int64_t channels;
  Output output;

  // Element `i` of the output, which is pooled, or an image.
  ULPSCOPE_DEVICE ImagePlace pooled_place(int64_t i) const { return place(i, axes.y.outputs, axes.x.outputs); }
  ULPSCOPE_DEVICE ImagePlace place_in_image(int64_t i) const { return place(i, axes.y.extent, axes.x.extent); }

  // body(place) for each element of the image that the window of a pooled one covers, in row-major order.
  template <class Body>
  ULPSCOPE_DEVICE static void for_each_covered(const ImagePlace& pooled, const PoolSpan& rows, const PoolSpan& columns,
                                               const Body& body) {
    for (int64_t y = rows.begin; y < rows.end; ++y)
      for (int64_t x = columns.begin; x < columns.end; ++x) body(ImagePlace{pooled.image, pooled.channel, y, x});
  }
  // body(pooled) for each pooled element whose window covers one of the image, likewise.
  template <class Body>
  ULPSCOPE_DEVICE void for_each_covering(const ImagePlace& at, const Body& body) const {
    const auto rows = axes.y.covering(at.y), columns = axes.x.covering(at.x);
    for (int64_t y = rows.first; y < rows.second; ++y)
      for (int64_t x = columns.first; x < columns.second; ++x) body(ImagePlace{at.image, at.channel, y, x});
  }

 private:
  ULPSCOPE_DEVICE ImagePlace place(int64_t i, int64_t height, int64_t width) const {
    const int64_t e = output.logical.offset_of(i), row = e / width, plane = row / height;
    return {plane / channels, plane % channels, row % height, e % width};
  }
};

// The largest element of each window: where it is larger, or the first NaN. Places: PlaceInWindow or PlaceInImage.
template <class Places>
struct MaxPooling : Pooling {
  Places places;
  ImageInput image;
  typename Places::Index* indices;
  ImageStrides of_indices;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    put_values(block, output, [this](int64_t i) {
      const ImagePlace at = pooled_place(i);
      const PoolSpan rows = axes.y.span(at.y), columns = axes.x.span(at.x);
      ImagePlace place{at.image, at.channel, rows.begin, columns.begin};
      float best = image.at<Block>(place);
      for_each_covered(at, rows, columns, [&](const ImagePlace& covered) {
        const float value = image.at<Block>(covered);
        if (!(value > best || (lanes::is_nan(value) && !lanes::is_nan(best)))) return;
        best = value;
        place = covered;
      });
      const int64_t index = places.index(at.y, at.x, place.y, place.x, lanes::is_nan(best));
      indices[of_indices.offset_of(at)] = static_cast<typename Places::Index>(index);
      return best;
    });
  }
};

// Windows whose index names an element that they do not cover give nothing.
template <class Places>
struct MaxPoolingGradient : Pooling {
  Places places;
  ImageInput gradient, indices;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    put_values(block, output, [this](int64_t i) {
      const ImagePlace at = place_in_image(i);
      float total = 0;
      for_each_covering(at, [&](const ImagePlace& pooled) {
        const auto index = indices.at<Block, int64_t>(pooled);
        const auto chosen = places.chosen(pooled.y, pooled.x, index);
        if (chosen.first != at.y || chosen.second != at.x) return;
        total += Places::is_nan(index) ? std::numeric_limits<float>::quiet_NaN() : gradient.at<Block>(pooled);
      });
      return total;
    });
  }
};

struct AveragePooling : Pooling {
  ImageInput image;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    put_values(block, output, [this](int64_t i) {
      const ImagePlace at = pooled_place(i);
      const PoolSpan rows = axes.y.span(at.y), columns = axes.x.span(at.x);
      float total = 0;
      for_each_covered(at, rows, columns, [&](const ImagePlace& covered) { total += image.at<Block>(covered); });
      return total / static_cast<float>(axes.divisor(rows, columns));
    });
  }
};

struct AveragePoolingGradient : Pooling {
  ImageInput gradient;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    put_values(block, output, [this](int64_t i) {
      float total = 0;
      for_each_covering(place_in_image(i), [&](const ImagePlace& pooled) {
        total += gradient.at<Block>(pooled) / static_cast<float>(axes.divisor(axes.y.span(pooled.y), axes.x.span(pooled.x)));
      });
      return total;
    });
  }
};

}  // namespace ulpscope::device
