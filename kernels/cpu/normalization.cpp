// Batch and group normalization over rows of channels. Statistics: each block of rows about its own mean in FP32, twice over
// numbers that are in L2 by then, and the blocks merged in FP64; so the tensor is read once for them.
#include <algorithm>
#include <cmath>

#include "ulpscope/kernels/cpu/block_output.h"
#include "ulpscope/kernels/cpu/parallel.h"
#include "ulpscope/kernels/cpu/reader.h"
#include "ulpscope/kernels/cpu/reductions.h"
#include "ulpscope/kernels/plain/plain.h"

namespace ulpscope::cpu {
namespace {

constexpr unsigned kAllButChannels = ~2u;

// Moments of every channel of a block, or of all blocks: mean and sum of squared deviations.
struct ChannelMoments {
  double* means;
  double* squares;
};

void block_moments(const RowSums& rows, const ReductionKernels& kernels, const ChannelMoments& out) {
  const LaneForm form(rows);
  alignas(64) float sums[LaneForm::kSums], squares[LaneForm::kSums];
  alignas(64) float centers[RowsOfChannels::kStrip], repeated[LaneForm::kNarrow * kSumLanes];
  const auto clear = [&](float* lanes) { std::fill_n(lanes, kSumLanes * rows.columns, 0.0f); };
  clear(sums);
  for (int i = 0; i < form.parts(); ++i) kernels.add(form.part(i), sums);
  form.add_lanes(sums);
  const auto n = static_cast<double>(rows.rows);
  for (int64_t c = 0; c < rows.columns; ++c) centers[c] = static_cast<float>(static_cast<double>(sums[c]) / n);
  clear(sums);
  clear(squares);
  const float* center = form.repeat(centers, repeated);
  for (int i = 0; i < form.parts(); ++i) kernels.add_deviations(form.part(i), center, sums, squares);
  form.add_lanes(sums);
  form.add_lanes(squares);
  for (int64_t c = 0; c < rows.columns; ++c) {
    const Moments moments = Moments::about(centers[c], n, sums[c], squares[c]);
    out.means[c] = moments.mean;
    out.squares[c] = moments.squares;
  }
}

// Those of piece i: strip after strip of block after block.
void piece_moments(const RowsOfChannels& shape, int64_t i, float* buffer, const ChannelMoments& all) {
  const int64_t block = i / shape.strips(), strip = i % shape.strips();
  const int64_t at = block * shape.channels + strip * RowsOfChannels::kStrip;
  block_moments(shape.piece(block, strip, buffer), reduction_kernels(), {all.means + at, all.squares + at});
}

// Moments::merge over blocks by the tree, for all channels at once. `counts` has room for the rows of each block.
void merge_blocks(const ChannelMoments& blocks, double* counts, int64_t channels, int64_t rows) {
  const int64_t n = blocks_of(rows, kReductionBlock);
  for (int64_t i = 0; i < n; ++i) counts[i] = static_cast<double>(std::min(kReductionBlock, rows - i * kReductionBlock));
  merge_by_tree(
      n,
      [&](int64_t to, int64_t left, int64_t right) {
        const double a = counts[left], b = counts[right], count = a + b;
        const double share = b / count, weight = a * (b / count);
        const double *left_mean = blocks.means + left * channels, *right_mean = blocks.means + right * channels;
        const double *left_squares = blocks.squares + left * channels, *right_squares = blocks.squares + right * channels;
        double *mean = blocks.means + to * channels, *squares = blocks.squares + to * channels;
        for (int64_t c = 0; c < channels; ++c) {
          const double delta = right_mean[c] - left_mean[c];
          squares[c] = left_squares[c] + right_squares[c] + delta * delta * weight;
          mean[c] = left_mean[c] + delta * share;
        }
        counts[to] = count;
      },
      [&](int64_t to, int64_t from) {
        std::copy_n(blocks.means + from * channels, channels, blocks.means + to * channels);
        std::copy_n(blocks.squares + from * channels, channels, blocks.squares + to * channels);
        counts[to] = counts[from];
      });
}

// Values for each channel as the kernels want them for rows of a dense piece: narrow rows are taken 16 at a time.
class ChannelValues {
 public:
  ChannelValues(Context& context, int64_t channels)
      : channels_(channels),
        repeats_(channels <= LaneForm::kNarrow ? kSumLanes : 1),
        scratch_(context.allocator, bytes_of(channels * repeats_)) {}
  float& operator[](int64_t channel) { return scratch_.as<float>()[channel]; }
  const float* repeat() {
    for (int64_t i = channels_; i < channels_ * repeats_; ++i) scratch_.as<float>()[i] = scratch_.as<float>()[i - channels_];
    return scratch_.as<float>();
  }

 private:
  int64_t channels_, repeats_;
  Scratch scratch_;
};

// body(long rows) for the whole part and what is left of n values from `x`.
template <typename Body>
void for_each_part(const float* x, int64_t n, int64_t channels, Body body) {
  const int64_t columns = channels <= LaneForm::kNarrow ? channels * kSumLanes : channels;
  const int64_t whole = n / columns;
  if (whole > 0) body(RowSums{x, columns, whole, columns, 1}, int64_t{0});
  if (n % columns != 0) body(RowSums{x + whole * columns, columns, 1, n % columns, 1}, whole * columns);
}

void training_statistics(Context& context, const RowsOfChannels& shape, double* means, double* squares) {
  const int64_t blocks = shape.blocks(), channels = shape.channels;
  const bool parallel = shape.rows * channels >= kParallelElements;
  const int slots = parallel ? context.threads : 1;
  const ThreadScratch wide(context.allocator, slots, shape.view->dtype == DType::f32 ? 0 : bytes_of(RowsOfChannels::kPiece));
  const Scratch parts(context.allocator, static_cast<size_t>(2 * blocks * channels + blocks) * sizeof(double));
  const ChannelMoments all{parts.as<double>(), parts.as<double>() + blocks * channels};
  parallel_for(context, blocks * shape.strips(), parallel,
               [&](int64_t i) { piece_moments(shape, i, wide.of(parallel ? omp_get_thread_num() : 0), all); });
  merge_blocks(all, all.squares + blocks * channels, channels, shape.rows);
  std::copy_n(all.means, channels, means);
  std::copy_n(all.squares, channels, squares);
}

void batch_norm(Context& context, const OpCall& call) {
  const TensorView& x = call.inputs[0];
  if (x.size() == 0 || !RowsOfChannels::fits(x, kAllButChannels) || !same_layout(x, call.outputs[0])) return run_plain(call);
  const RowsOfChannels shape(x, kAllButChannels);
  const int64_t channels = shape.channels;
  const bool training = call.attribute("training") != 0;
  const double eps = call.attribute("eps"), momentum = call.attribute("momentum");
  const auto count = static_cast<double>(shape.rows);
  const Scratch statistics(context.allocator, static_cast<size_t>(2 * channels) * sizeof(double));
  double *means = statistics.as<double>(), *squares = means + channels;
  if (training) training_statistics(context, shape, means, squares);

  const Scratch parameters(context.allocator, bytes_of(8 * channels));
  auto* weight = parameters.as<float>();
  for (int i = 1; i < 5; ++i)
    widen_run(call.inputs[i].data, call.inputs[i].dtype, 0, call.inputs[i].strides[0], channels, weight + (i - 1) * channels);
  float *bias = weight + channels, *running_mean = bias + channels, *running_variance = running_mean + channels;
  float *mean = running_variance + channels, *inverse = mean + channels;
  ChannelValues centers(context, channels), factors(context, channels), biases(context, channels);
  for (int64_t c = 0; c < channels; ++c) {
    double center = running_mean[c], variance = running_variance[c];
    if (training) {
      center = means[c];
      variance = squares[c] / count;
      running_mean[c] = static_cast<float>((1 - momentum) * running_mean[c] + momentum * center);
      running_variance[c] = static_cast<float>((1 - momentum) * running_variance[c] + momentum * (squares[c] / (count - 1)));
    }
    centers[c] = mean[c] = static_cast<float>(center);
    inverse[c] = static_cast<float>(1 / std::sqrt(variance + eps));
    factors[c] = inverse[c] * weight[c];
    biases[c] = bias[c];
  }
  const float *center = centers.repeat(), *factor = factors.repeat(), *offset = biases.repeat();

  const int64_t piece = BlockOutput::rows_of_piece(channels, 8) * channels;
  BlockOutput out(context, call, 0, piece);
  const bool parallel = out.size() >= kParallelElements;
  const int slots = parallel ? context.threads : 1;
  const ThreadScratch wide_x(context.allocator, slots, x.dtype == DType::f32 ? 0 : bytes_of(piece));
  const ThreadTiles tiles(context, out, slots, piece);
  const Reader reader(x, x);
  const auto& kernels = reduction_kernels();
  parallel_for(context, blocks_of(out.size(), piece), parallel, [&](int64_t i) {
    const int slot = parallel ? omp_get_thread_num() : 0;
    const int64_t first = i * piece, n = std::min(piece, out.size() - first);
    float* y = tiles.at(slot, first);
    for_each_part(reader.read(first, n, wide_x.of(slot)), n, channels,
                  [&](const RowSums& rows, int64_t at) { kernels.normalize(rows, center, factor, offset, y + at); });
    out.put(first, y, n);
  });
  out.finish();
  store_output(call, 1, mean);
  store_output(call, 2, inverse);
  if (!training) return;
  store_output(call, 3, running_mean);
  store_output(call, 4, running_variance);
}

// Sums of g and of g * (x - mean) for each channel of piece i, at the place of the piece among those of all. `buffer` has room for
// two pieces.
void piece_sums(const RowsOfChannels& g, const RowsOfChannels& x, int64_t i, float* buffer, const float* means, float* sums,
                float* products) {
  const int64_t block = i / x.strips(), strip = i % x.strips(), column = strip * RowsOfChannels::kStrip;
  RowSums rows = x.piece(block, strip, buffer);
  RowSums gradient = g.piece(block, strip, buffer + RowsOfChannels::kPiece);
  if (rows.stride != gradient.stride) {  // one of them was widened: bring the other beside it
    RowSums& wider = rows.stride > rows.columns ? rows : gradient;
    float* to = &wider == &rows ? buffer : buffer + RowsOfChannels::kPiece;
    for (int64_t r = 0; r < wider.rows; ++r) std::copy_n(wider.x + r * wider.stride, wider.columns, to + r * wider.columns);
    wider.x = to;
    wider.stride = wider.columns;
  }
  const auto& kernels = reduction_kernels();
  const LaneForm form(rows);
  alignas(64) float lanes[LaneForm::kSums], product_lanes[LaneForm::kSums], repeated[LaneForm::kNarrow * kSumLanes];
  std::fill_n(lanes, kSumLanes * rows.columns, 0.0f);
  std::fill_n(product_lanes, kSumLanes * rows.columns, 0.0f);
  const float* center = form.repeat(means + column, repeated);
  for (int part = 0; part < form.parts(); ++part) {
    kernels.add_products(form.part(part), gradient.x + form.offset(part), center, lanes, product_lanes);
  }
  form.add_lanes(lanes);
  form.add_lanes(product_lanes);
  std::copy_n(lanes, rows.columns, sums + block * x.channels + column);
  std::copy_n(product_lanes, rows.columns, products + block * x.channels + column);
}

// The same for each channel of all.
void backward_sums(Context& context, const RowsOfChannels& g, const RowsOfChannels& x, const float* means, float* sums,
                   float* products) {
  const int64_t blocks = x.blocks(), channels = x.channels;
  const bool parallel = x.rows * channels >= kParallelElements;
  const int slots = parallel ? context.threads : 1;
  const ThreadScratch wide(context.allocator, slots, bytes_of(2 * RowsOfChannels::kPiece));
  const Scratch parts(context.allocator, bytes_of(2 * blocks * channels));
  float *of_g = parts.as<float>(), *of_products = of_g + blocks * channels;
  parallel_for(context, blocks * x.strips(), parallel,
               [&](int64_t i) { piece_sums(g, x, i, wide.of(parallel ? omp_get_thread_num() : 0), means, of_g, of_products); });
  add_blocks(of_g, blocks, channels);
  add_blocks(of_products, blocks, channels);
  std::copy_n(of_g, channels, sums);
  std::copy_n(of_products, channels, products);
}

// A gradient as x lies: one that lies otherwise is brought into the layout of x.
class GradientLike {
 public:
  GradientLike(Context& context, const TensorView& g, const TensorView& x)
      : moved_(context.allocator, bytes_of(same_layout(g, x) ? 0 : x.size())), view_(x) {
    view_.data = g.data;
    view_.dtype = g.dtype;
    if (same_layout(g, x)) return;
    read_all(context, g, x, moved_.as<float>());
    view_.data = moved_.as<void>();
    view_.dtype = DType::f32;
  }
  const TensorView& view() const { return view_; }

 private:
  Scratch moved_;
  TensorView view_;
};

void batch_norm_backward(Context& context, const OpCall& call) {
  const TensorView &g_view = call.inputs[0], &x = call.inputs[1];
  if (x.size() == 0 || !RowsOfChannels::fits(x, kAllButChannels) || !same_layout(x, call.outputs[0])) return run_plain(call);
  const GradientLike moved(context, g_view, x);
  const TensorView& g = moved.view();
  const RowsOfChannels shape(x, kAllButChannels), gradients(g, kAllButChannels);
  const int64_t channels = shape.channels;
  const bool training = call.attribute("training") != 0;
  const Scratch parameters(context.allocator, bytes_of(6 * channels));
  auto* weight = parameters.as<float>();
  float *mean = weight + channels, *inverse = mean + channels, *sums = inverse + channels, *products = sums + channels;
  for (int i = 2; i < 5; ++i)
    widen_run(call.inputs[i].data, call.inputs[i].dtype, 0, call.inputs[i].strides[0], channels, weight + (i - 2) * channels);
  backward_sums(context, gradients, shape, mean, sums, products);
  ChannelValues centers(context, channels), offsets(context, channels), slopes(context, channels), factors(context, channels);
  const auto count = static_cast<float>(shape.rows);
  for (int64_t c = 0; c < channels; ++c) {
    products[c] = products[c] * inverse[c];  // the gradient of the weight
    centers[c] = mean[c];
    factors[c] = weight[c] * inverse[c];
    offsets[c] = sums[c] / count;
    slopes[c] = (products[c] * inverse[c]) / count;
  }
  const float *center = centers.repeat(), *offset = offsets.repeat(), *factor = factors.repeat();
  const float* slope = training ? slopes.repeat() : nullptr;

  const int64_t piece = BlockOutput::rows_of_piece(channels, 8) * channels;
  BlockOutput out(context, call, 0, piece);
  const bool parallel = out.size() >= kParallelElements;
  const int slots = parallel ? context.threads : 1;
  const ThreadScratch wide(context.allocator, slots, bytes_of(3 * piece));
  const Reader x_reader(x, x), g_reader(g, g);
  const auto& kernels = reduction_kernels();
  parallel_for(context, blocks_of(out.size(), piece), parallel, [&](int64_t i) {
    float* buffer = wide.of(parallel ? omp_get_thread_num() : 0);
    const int64_t first = i * piece, n = std::min(piece, out.size() - first);
    float* dx = out.place(first) != nullptr ? out.place(first) : buffer + 2 * piece;
    const float* gradient = g_reader.read(first, n, buffer + piece);
    for_each_part(x_reader.read(first, n, buffer), n, channels, [&](const RowSums& rows, int64_t at) {
      kernels.normalize_backward(rows, gradient + at, center, offset, slope, factor, dx + at);
    });
    out.put(first, dx, n);
  });
  out.finish();
  store_output(call, 1, products);
  store_output(call, 2, sums);
}

// The samples of group_norm, each of them rows of channels and handled by one thread.
struct Samples {
  int64_t count, channels, groups, of_group, size, blocks;  // size: values of a sample

  Samples(const TensorView& x, int64_t groups_of_channels)
      : count(x.shape[0]),
        channels(x.shape[1]),
        groups(groups_of_channels),
        of_group(channels / groups),
        size(x.size() / count),
        blocks(blocks_of(size / channels, kReductionBlock)) {}
  static bool fit(const TensorView& x) {
    return x.size() > 0 && RowsOfChannels::fits(x, kAllButChannels) && (x.shape[0] == 1 || x.strides[0] == x.size() / x.shape[0]);
  }
  bool parallel() const { return count * size >= kParallelElements; }
  TensorView sample(TensorView all, int64_t i) const {
    all.shape[0] = 1;
    all.data = all.as<char>() + i * size * static_cast<int64_t>(info(all.dtype).size);
    return all;
  }
};

// Statistics of the groups of one sample. `parts` has room for parts_of(), `buffer` for a piece.
size_t parts_of(const Samples& samples) {
  return static_cast<size_t>(2 * samples.blocks * samples.channels + samples.blocks) * sizeof(double) +
         static_cast<size_t>(samples.of_group) * sizeof(Moments);
}
void group_statistics(const Samples& samples, const TensorView& sample, double eps, float* buffer, double* parts, float* means,
                      float* inverses) {
  const RowsOfChannels shape(sample, kAllButChannels);
  const ChannelMoments all{parts, parts + samples.blocks * samples.channels};
  for (int64_t piece = 0; piece < samples.blocks * shape.strips(); ++piece) piece_moments(shape, piece, buffer, all);
  double* counts = all.squares + samples.blocks * samples.channels;
  merge_blocks(all, counts, samples.channels, shape.rows);
  auto* of_channels = reinterpret_cast<Moments*>(counts + samples.blocks);
  for (int64_t group = 0; group < samples.groups; ++group) {
    for (int64_t i = 0; i < samples.of_group; ++i) {
      const int64_t c = group * samples.of_group + i;
      of_channels[i] = {static_cast<double>(shape.rows), all.means[c], all.squares[c]};
    }
    merge_by_tree(of_channels, samples.of_group, Moments::merge);
    const double variance = of_channels[0].squares / static_cast<double>(shape.rows * samples.of_group);
    means[group] = static_cast<float>(of_channels[0].mean);
    inverses[group] = static_cast<float>(1 / std::sqrt(variance + eps));
  }
}

void group_norm(Context& context, const OpCall& call) {
  const TensorView& x = call.inputs[0];
  if (!Samples::fit(x) || !same_layout(x, call.outputs[0])) return run_plain(call);
  const Samples samples(x, call.outputs[1].shape[1]);
  const int64_t channels = samples.channels, size = samples.size;
  const double eps = call.attribute("eps");
  const Scratch parameters(context.allocator, bytes_of(2 * channels + 2 * samples.count * samples.groups));
  auto* weight = parameters.as<float>();
  float *bias = weight + channels, *means = bias + channels, *inverses = means + samples.count * samples.groups;
  for (int i = 1; i < 3; ++i)
    widen_run(call.inputs[i].data, call.inputs[i].dtype, 0, call.inputs[i].strides[0], channels, weight + (i - 1) * channels);
  BlockOutput out(context, call, 0, size);
  const bool parallel = samples.parallel();
  const int slots = parallel ? context.threads : 1;
  const ThreadScratch pieces(context.allocator, slots, x.dtype == DType::f32 ? 0 : bytes_of(RowsOfChannels::kPiece));
  const ThreadScratch all_parts(context.allocator, slots, parts_of(samples));
  const ThreadScratch wide_x(context.allocator, slots, x.dtype == DType::f32 ? 0 : bytes_of(size));
  const ThreadTiles tiles(context, out, slots, size);
  const ThreadScratch of_channels(context.allocator, slots, bytes_of(2 * channels));
  const Reader reader(x, x);
  parallel_for(context, samples.count, parallel, [&](int64_t i) {
    const int slot = parallel ? omp_get_thread_num() : 0;
    float *mean = means + i * samples.groups, *inverse = inverses + i * samples.groups;
    group_statistics(samples, samples.sample(x, i), eps, pieces.of(slot), reinterpret_cast<double*>(all_parts.of(slot)), mean,
                     inverse);
    float *center = of_channels.of(slot), *factor = center + channels;
    for (int64_t c = 0; c < channels; ++c) {
      center[c] = mean[c / samples.of_group];
      factor[c] = inverse[c / samples.of_group] * weight[c];
    }
    const float* from = reader.read(i * size, size, wide_x.of(slot));
    float* to = tiles.at(slot, i * size);
    reduction_kernels().normalize({from, channels, size / channels, channels, 1}, center, factor, bias, to);
    out.put(i * size, to, size);
  });
  out.finish();
  store_output(call, 1, means);
  store_output(call, 2, inverses);
}

void group_norm_backward(Context& context, const OpCall& call) {
  const TensorView& x = call.inputs[1];
  if (!Samples::fit(x) || !same_layout(x, call.outputs[0])) return run_plain(call);
  const GradientLike moved(context, call.inputs[0], x);
  const TensorView& g = moved.view();
  const Samples samples(x, call.inputs[3].shape[1]);
  const int64_t channels = samples.channels, size = samples.size, statistics = samples.count * samples.groups;
  // Of each sample and channel, the terms of the gradients of weight and bias.
  const Scratch terms(context.allocator, bytes_of(2 * samples.count * channels));
  float *of_weight = terms.as<float>(), *of_bias = of_weight + samples.count * channels;
  const Scratch parameters(context.allocator, bytes_of(channels + 2 * statistics));
  auto* weight = parameters.as<float>();
  float *means = weight + channels, *inverses = means + statistics;
  widen_run(call.inputs[2].data, call.inputs[2].dtype, 0, call.inputs[2].strides[0], channels, weight);
  read_all(context, call.inputs[3], contiguous(call.inputs[3]), means);
  read_all(context, call.inputs[4], contiguous(call.inputs[4]), inverses);
  BlockOutput out(context, call, 0, size);
  const bool parallel = samples.parallel();
  const int slots = parallel ? context.threads : 1;
  const ThreadScratch pieces(context.allocator, slots, bytes_of(2 * RowsOfChannels::kPiece));
  const ThreadScratch all_sums(context.allocator, slots, bytes_of(2 * samples.blocks * channels));
  const ThreadScratch wide(context.allocator, slots, bytes_of(3 * size));
  const ThreadScratch of_channels(context.allocator, slots, bytes_of(4 * channels));
  const Reader x_reader(x, x), g_reader(g, g);
  parallel_for(context, samples.count, parallel, [&](int64_t i) {
    const int slot = parallel ? omp_get_thread_num() : 0;
    const float *mean = means + i * samples.groups, *inverse = inverses + i * samples.groups;
    float *center = of_channels.of(slot), *factor = center + channels, *offset = factor + channels, *slope = offset + channels;
    for (int64_t c = 0; c < channels; ++c) {
      center[c] = mean[c / samples.of_group];
      factor[c] = inverse[c / samples.of_group];
    }
    const TensorView sample = samples.sample(x, i), gradient = samples.sample(g, i);
    const RowsOfChannels rows(sample, kAllButChannels), gradients(gradient, kAllButChannels);
    float *sums = all_sums.of(slot), *products = sums + samples.blocks * channels;
    for (int64_t piece = 0; piece < samples.blocks * rows.strips(); ++piece)
      piece_sums(gradients, rows, piece, pieces.of(slot), center, sums, products);
    add_blocks(sums, samples.blocks, channels);
    add_blocks(products, samples.blocks, channels);
    const auto count = static_cast<float>(size / samples.groups);
    for (int64_t group = 0; group < samples.groups; ++group) {
      const int64_t first = group * samples.of_group;
      float sum = 0, product = 0;
      for (int64_t c = first; c < first + samples.of_group; ++c) {
        of_weight[i * channels + c] = products[c] * inverse[group];
        of_bias[i * channels + c] = sums[c];
        sum += weight[c] * sums[c];
        product += weight[c] * products[c];
      }
      for (int64_t c = first; c < first + samples.of_group; ++c) {
        offset[c] = sum / count;
        slope[c] = product * inverse[group] * inverse[group] / count;
      }
    }
    float* buffer = wide.of(slot);
    const float *from = x_reader.read(i * size, size, buffer), *of_g = g_reader.read(i * size, size, buffer + size);
    float* to = out.place(i * size) != nullptr ? out.place(i * size) : buffer + 2 * size;
    for (int64_t row = 0; row < size; row += channels) {
      for (int64_t c = 0; c < channels; ++c)
        to[row + c] = factor[c] * ((of_g[row + c] * weight[c] - offset[c]) - (from[row + c] - center[c]) * slope[c]);
    }
    out.put(i * size, to, size);
  });
  out.finish();
  // In the order of the samples.
  for (float* total : {of_weight, of_bias}) {
    for (int64_t i = 1; i < samples.count; ++i)
      for (int64_t c = 0; c < channels; ++c) total[c] += total[i * channels + c];
  }
  store_output(call, 1, of_weight);
  store_output(call, 2, of_bias);
}

}  // namespace

std::vector<NamedKernel> normalization_ops() {
  return {{"batch_norm", batch_norm},
          {"batch_norm_backward", batch_norm_backward},
          {"group_norm", group_norm},
          {"group_norm_backward", group_norm_backward}};
}

}  // namespace ulpscope::cpu
