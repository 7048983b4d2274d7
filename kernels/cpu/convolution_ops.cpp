// Convolutions, transposed ones and their backward ops. A 1x1 convolution is a matrix product over its pixels; others go through
// oneDNN in small groups of images, so that widening, convolving, rounding and counting find the numbers in cache.
#include <algorithm>
#include <optional>

#include "ulpscope/kernels/cpu/block_output.h"
#include "ulpscope/kernels/cpu/convolution.h"
#include "ulpscope/kernels/cpu/images.h"
#include "ulpscope/kernels/cpu/parallel.h"
#include "ulpscope/kernels/cpu/product.h"
#include "ulpscope/kernels/cpu/reductions.h"
#include "ulpscope/kernels/plain/plain.h"

namespace ulpscope::cpu {
namespace {

// FP32 values of one group's images, in and out: what a core's L2 holds beside the weights.
constexpr int64_t kGroupValues = 160 * 1024;

// Of a convolution that makes a map of an image, or the other way round.
ConvolutionShape shape_of(const OpCall& call, Pass pass, const TensorView& image, const TensorView& map, const TensorView& weight) {
  return {.pass = pass,
          .images = image.shape[0],
          .channels = image.shape[1],
          .height = image.shape[2],
          .width = image.shape[3],
          .filters = map.shape[1],
          .out_height = map.shape[2],
          .out_width = map.shape[3],
          .groups = groups_of(*call.attributes),
          .windows = Windows::of(*call.attributes, weight.shape[2], weight.shape[3])};
}

// What oneDNN takes: it expects a map of all windows that fit. A transposed convolution's image can be larger than that of its map.
bool is_planned(const ConvolutionShape& s) {
  const auto& [y, x] = s.windows;
  return s.images > 0 && s.input_image() > 0 && s.output_image() > 0 && s.weights() > 0 && y.outputs(s.height) == s.out_height &&
         x.outputs(s.width) == s.out_width;
}

// Windows of one pixel, with gaps between them or without.
bool is_pointwise(const ConvolutionShape& s) {
  const auto& [y, x] = s.windows;
  return s.groups == 1 && y.kernel == 1 && x.kernel == 1 && y.padding == 0 && x.padding == 0;
}

bool is_product(const ConvolutionShape& s) { return is_pointwise(s) && s.windows.y.stride == 1 && s.windows.x.stride == 1; }

// The pixels of an image that pointwise windows lie on.
TensorView pixels_under(const ConvolutionShape& s, TensorView image) {
  image.shape[2] = s.out_height, image.shape[3] = s.out_width;
  image.strides[2] *= s.windows.y.stride, image.strides[3] *= s.windows.x.stride;
  return image;
}

// Multiplications below which a second thread costs more than it brings.
constexpr int64_t kSerialTerms = 1 << 18;

// How the images are shared out: groups of equal size, but for the last; each is run by one thread. With fewer images than threads,
// oneDNN shares out the one group itself.
struct Groups {
  int64_t images = 0, count = 0;
  bool parallel = false;
  int planned_threads = 1;  // of each group

  Groups(const ConvolutionShape& s, int threads) {
    const bool large = s.images * s.output_image() * s.terms() >= kSerialTerms;
    parallel = large && s.images >= threads && threads > 1;
    if (!parallel) {
      if (large) planned_threads = threads;
      images = s.images;
      count = 1;
      return;
    }
    const int64_t fitting = std::max<int64_t>(1, kGroupValues / (s.input_image() + s.output_image()));
    const int64_t at_least = blocks_of(blocks_of(s.images, fitting), threads) * threads;
    images = blocks_of(s.images, at_least);
    count = blocks_of(s.images, images);
  }
};

// The planned convolutions of whole groups and of a last smaller one.
struct GroupPlans {
  const Convolution* whole;
  const Convolution* last;
  size_t scratch_bytes;
  int slots;

  GroupPlans(Context& context, ConvolutionShape shape, const Groups& groups) : slots(groups.parallel ? context.threads : 1) {
    shape.threads = groups.planned_threads;
    const int64_t all = shape.images;
    shape.images = groups.images;
    whole = &context.convolutions->find(shape);
    shape.images = all - (groups.count - 1) * groups.images;
    last = &context.convolutions->find(shape);
    scratch_bytes = std::max(whole->scratch_bytes(), last->scratch_bytes());
  }
  const Convolution& of(int64_t group, int64_t count) const { return group + 1 < count ? *whole : *last; }
};

// Weights [O, C / groups, KH, KW] of any type and strides, widened, then as oneDNN wants them. Groups of different sizes could want
// different layouts, so each plan has its own.
class Weights {
 public:
  Weights(Context& context, const TensorView& w, const Convolution& plan)
      : wide_(context.allocator, bytes_of(w.size())),
        ordered_(context.allocator, plan.weight_bytes()),
        scratch_(context.allocator, plan.scratch_bytes()) {
    TensorView plain = w;
    for (int64_t i = w.rank - 1, stride = 1; i >= 0; --i) {
      plain.strides[i] = stride;
      stride *= w.shape[i];
    }
    const float* values = Reader(w, plain).read(0, w.size(), wide_.as<float>());
    plan.reorder_weights(0, values, ordered_.as<void>(), scratch_.as<void>());
  }
  const void* get() const { return ordered_.as<void>(); }

 private:
  Scratch wide_, ordered_, scratch_;
};

// bias[c] added to each pixel of n values.
void add_bias(const float* bias, int64_t channels, int64_t n, float* values) {
  for (int64_t i = 0; i < n; i += channels)
    for (int64_t c = 0; c < channels; ++c) values[i + c] += bias[c];
}

// Forward and backward_input: images in, images out. oneDNN has a bias for the forward pass only.
void convolve(Context& context, const OpCall& call, const ConvolutionShape& shape, const float* bias) {
  const bool forward = shape.pass == Pass::forward;
  const int64_t in_image = forward ? shape.input_image() : shape.output_image();
  const int64_t out_image = forward ? shape.output_image() : shape.input_image();
  const Groups groups(shape, context.threads);
  const GroupPlans plans(context, shape, groups);
  const Images in(context, call.inputs[0]);
  const Weights weights(context, call.inputs[1], *plans.whole);
  std::optional<Weights> last_weights;
  if (plans.last != plans.whole) last_weights.emplace(context, call.inputs[1], *plans.last);
  BlockOutput out(context, call, 0, groups.images * out_image);
  const ThreadScratch inner(context.allocator, plans.slots, plans.scratch_bytes);
  const ThreadScratch wide_in(context.allocator, plans.slots, in.direct() ? 0 : bytes_of(groups.images * in_image));
  const ThreadTiles tiles(context, out, plans.slots, groups.images * out_image);
  parallel_for(context, groups.count, groups.parallel, [&](int64_t group) {
    const int slot = groups.parallel ? omp_get_thread_num() : 0;
    const int64_t first = group * groups.images, n = std::min(groups.images, shape.images - first);
    const Convolution& plan = plans.of(group, groups.count);
    float* to = tiles.at(slot, first * out_image);
    const float* from = in.read(first * in_image, n * in_image, wide_in.of(slot));
    plan.run(slot, from, (&plan == plans.whole ? weights : *last_weights).get(), to, forward ? bias : nullptr, inner.of(slot));
    if (!forward && bias != nullptr) add_bias(bias, shape.channels, n * out_image, to);
    out.put(first * out_image, to, n * out_image);
  });
  out.finish();
}

// Input 2 of the call as FP32, where there is one.
class Bias {
 public:
  Bias(Context& context, const OpCall& call)
      : scratch_(context.allocator, bytes_of(call.inputs.size() > 2 ? call.inputs[2].size() : 0)) {
    if (call.inputs.size() < 3) return;
    const TensorView& bias = call.inputs[2];
    values_ = scratch_.as<float>();
    widen_run(bias.data, bias.dtype, 0, bias.strides[0], bias.size(), scratch_.as<float>());
  }
  const float* values() const { return values_; }

 private:
  Scratch scratch_;
  const float* values_ = nullptr;
};

// Inputs image and weight, and a bias or none; output map: conv2d, and the gradient of a transposed convolution's input.
void map_of_image(Context& context, const OpCall& call) {
  const TensorView &x = call.inputs[0], &w = call.inputs[1], &y = call.outputs[0];
  ConvolutionShape shape = shape_of(call, Pass::forward, x, y, w);
  if (!is_channels_last(y) || !is_planned(shape)) return run_plain(call);
  const Bias bias(context, call);
  shape.bias = bias.values() != nullptr;
  if (!is_product(shape)) return convolve(context, call, shape, bias.values());
  const int64_t rows = shape.images * shape.height * shape.width;
  const Images in(context, x);
  multiply(context, call, in.pixels(rows, shape.channels),
           Matrix(w.data, w.dtype, shape.channels, shape.filters, w.strides[1], w.strides[0]), bias.values());
}

// Inputs map and weight, and a bias or none; output image: the gradient of a convolution's input, and conv_transpose2d.
void image_of_map(Context& context, const OpCall& call) {
  const TensorView &map = call.inputs[0], &w = call.inputs[1], &image = call.outputs[0];
  const ConvolutionShape shape = shape_of(call, Pass::backward_input, image, map, w);
  if (!is_channels_last(image) || !is_planned(shape)) return run_plain(call);
  const Bias bias(context, call);
  if (!is_product(shape)) return convolve(context, call, shape, bias.values());
  const int64_t rows = shape.images * shape.height * shape.width;
  const Images in(context, map);
  multiply(context, call, in.pixels(rows, shape.filters),
           Matrix(w.data, w.dtype, shape.filters, shape.channels, w.strides[0], w.strides[1]), bias.values());
}

// Each thread adds up the gradients of its groups, the threads' sums are added in their order.
void weight_gradient(Context& context, const OpCall& call, const ConvolutionShape& shape, const Images& x, const Images& g) {
  const Groups groups(shape, context.threads);
  const GroupPlans plans(context, shape, groups);
  const int64_t x_image = shape.input_image(), g_image = shape.output_image(), size = shape.weights();
  const ThreadScratch inner(context.allocator, plans.slots, plans.scratch_bytes);
  const ThreadScratch wide_x(context.allocator, plans.slots, x.direct() ? 0 : bytes_of(groups.images * x_image));
  const ThreadScratch wide_g(context.allocator, plans.slots, g.direct() ? 0 : bytes_of(groups.images * g_image));
  const size_t weight_bytes = std::max(plans.whole->weight_bytes(), plans.last->weight_bytes());
  const ThreadScratch part(context.allocator, plans.slots, weight_bytes);
  const ThreadScratch sums(context.allocator, plans.slots, bytes_of(size));
  const ThreadScratch plain_part(context.allocator, plans.slots, bytes_of(size));
  const auto shares = std::min<int64_t>(plans.slots, groups.count);
  parallel_for(context, shares, groups.parallel, [&](int64_t share) {
    const int slot = static_cast<int>(share);
    const int64_t begin = groups.count * share / shares, end = groups.count * (share + 1) / shares;
    for (int64_t group = begin; group < end; ++group) {
      const int64_t first = group * groups.images, n = std::min(groups.images, shape.images - first);
      const Convolution& plan = plans.of(group, groups.count);
      plan.run(slot, x.read(first * x_image, n * x_image, wide_x.of(slot)), g.read(first * g_image, n * g_image, wide_g.of(slot)),
               part.of(slot), nullptr, inner.of(slot));
      float* plain = group == begin ? sums.of(slot) : plain_part.of(slot);
      plan.reorder_weights(slot, part.of(slot), plain, inner.of(slot));
      if (group == begin) continue;
      for (int64_t i = 0; i < size; ++i) sums.of(slot)[i] += plain[i];
    }
  });
  float* total = sums.of(0);
  for (int64_t share = 1; share < shares; ++share) {
    for (int64_t i = 0; i < size; ++i) total[i] += sums.of(static_cast<int>(share))[i];
  }
  store_output(call, 0, total);
}

// Inputs the gradient and what the forward op got, one of them the map and one the image; outputs the gradient of the weight and,
// where there is a bias, of it.
template <bool transposed>
void gradient_of_weight(Context& context, const OpCall& call) {
  const TensorView &g = call.inputs[0], &dw = call.outputs[0];
  const TensorView &map = call.inputs[transposed ? 1 : 0], &image = call.inputs[transposed ? 0 : 1];
  const ConvolutionShape shape = shape_of(call, Pass::backward_weight, image, map, dw);
  if (!is_contiguous(dw) || !is_planned(shape)) return run_plain(call);
  const int64_t rows = shape.images * shape.out_height * shape.out_width;
  // oneDNN 2.7 writes beyond its scratch where pixels have gaps between them and fewer channels than a vector has lanes.
  constexpr int64_t kLanes = 16;
  const bool gathers = is_pointwise(shape) && shape.channels < kLanes;
  const Images from_map(context, map), from_image(context, gathers ? pixels_under(shape, image) : image);
  if (gathers || is_product(shape)) {
    multiply(context, call, from_map.transposed_pixels(rows, shape.filters), from_image.pixels(rows, shape.channels), nullptr);
  } else {
    weight_gradient(context, call, shape, from_image, from_map);
  }
  if (call.outputs.size() < 2) return;
  const Scratch sums(context.allocator, bytes_of(g.shape[1]));
  sum_rows(context, g, ~2u, sums.as<float>());
  store_output(call, 1, sums.as<float>());
}

}  // namespace

std::vector<NamedKernel> convolution_ops() {
  return {{"conv2d", map_of_image},
          {"conv2d_backward_input", image_of_map},
          {"conv2d_backward_weight", gradient_of_weight<false>},
          {"conv_transpose2d", image_of_map},
          {"conv_transpose2d_backward_input", map_of_image},
          {"conv_transpose2d_backward_weight", gradient_of_weight<true>}};
}

}  // namespace ulpscope::cpu
