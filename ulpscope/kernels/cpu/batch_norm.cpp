// Batch normalisation over rows of channels. Statistics: each block of rows about its own mean in FP32, twice over numbers that are
// in L2 by then, and the blocks merged in FP64; so the tensor is read once for them.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ulpscope/kernels/cpu/block_output.h"
#include "ulpscope/kernels/cpu/parallel.h"
#include "ulpscope/kernels/cpu/reader.h"
#include "ulpscope/kernels/cpu/reductions.h"
#include "ulpscope/kernels/reference/plain.h"

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

// Rows that a thread normalises at a time: whole blocks of statistics where their number is not too large.
int64_t rows_of_piece(int64_t channels) {
  const int64_t aligned = kStatisticsBlock / std::gcd(kStatisticsBlock, channels);
  if (aligned * channels <= 8 * kStatisticsBlock) return aligned;
  return blocks_of(kStatisticsBlock, channels);
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
  const auto& kernels = reduction_kernels();
  parallel_for(context, blocks * shape.strips(), parallel, [&](int64_t i) {
    const int64_t block = i / shape.strips(), strip = i % shape.strips();
    const int64_t at = block * channels + strip * RowsOfChannels::kStrip;
    block_moments(shape.piece(block, strip, wide.of(parallel ? omp_get_thread_num() : 0)), kernels,
                  {all.means + at, all.squares + at});
  });
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

  const int64_t piece = rows_of_piece(channels) * channels;
  BlockOutput out(context, call, 0, piece);
  const bool parallel = out.size() >= kParallelElements;
  const int slots = parallel ? context.threads : 1;
  const ThreadScratch wide_x(context.allocator, slots, x.dtype == DType::f32 ? 0 : bytes_of(piece));
  const ThreadScratch wide_y(context.allocator, slots, out.place(0) != nullptr ? 0 : bytes_of(piece));
  const Reader reader(x, x);
  const auto& kernels = reduction_kernels();
  parallel_for(context, blocks_of(out.size(), piece), parallel, [&](int64_t i) {
    const int slot = parallel ? omp_get_thread_num() : 0;
    const int64_t first = i * piece, n = std::min(piece, out.size() - first);
    float* y = out.place(first) != nullptr ? out.place(first) : wide_y.of(slot);
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

// Sums of g and of g * (x - mean) for each channel.
void backward_sums(Context& context, const RowsOfChannels& g, const RowsOfChannels& x, const float* means, float* sums,
                   float* products) {
  const int64_t blocks = x.blocks(), channels = x.channels;
  const bool parallel = x.rows * channels >= kParallelElements;
  const int slots = parallel ? context.threads : 1;
  const ThreadScratch wide(context.allocator, slots, bytes_of(2 * RowsOfChannels::kPiece));
  const Scratch parts(context.allocator, bytes_of(2 * blocks * channels));
  const auto& kernels = reduction_kernels();
  parallel_for(context, blocks * x.strips(), parallel, [&](int64_t i) {
    const int64_t block = i / x.strips(), strip = i % x.strips(), column = strip * RowsOfChannels::kStrip;
    float* buffer = wide.of(parallel ? omp_get_thread_num() : 0);
    RowSums rows = x.piece(block, strip, buffer);
    RowSums gradient = g.piece(block, strip, buffer + RowsOfChannels::kPiece);
    if (rows.stride != gradient.stride) {  // one of them was widened: bring the other beside it
      RowSums& wider = rows.stride > rows.columns ? rows : gradient;
      float* to = &wider == &rows ? buffer : buffer + RowsOfChannels::kPiece;
      for (int64_t r = 0; r < wider.rows; ++r) std::copy_n(wider.x + r * wider.stride, wider.columns, to + r * wider.columns);
      wider.x = to;
      wider.stride = wider.columns;
    }
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
    std::copy_n(lanes, rows.columns, parts.as<float>() + block * channels + column);
    std::copy_n(product_lanes, rows.columns, parts.as<float>() + (blocks + block) * channels + column);
  });
  add_blocks(parts.as<float>(), blocks, channels);
  add_blocks(parts.as<float>() + blocks * channels, blocks, channels);
  std::copy_n(parts.as<float>(), channels, sums);
  std::copy_n(parts.as<float>() + blocks * channels, channels, products);
}

void batch_norm_backward(Context& context, const OpCall& call) {
  const TensorView &g_view = call.inputs[0], &x = call.inputs[1];
  if (x.size() == 0 || !RowsOfChannels::fits(x, kAllButChannels) || !same_layout(x, call.outputs[0])) return run_plain(call);
  // A gradient that lies otherwise is brought into the layout of x first.
  const bool same = same_layout(g_view, x);
  const Scratch moved(context.allocator, bytes_of(same ? 0 : x.size()));
  TensorView g = x;
  g.data = g_view.data;
  g.dtype = g_view.dtype;
  if (!same) {
    read_all(context, g_view, x, moved.as<float>());
    g.data = moved.as<void>();
    g.dtype = DType::f32;
  }
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

  const int64_t piece = rows_of_piece(channels) * channels;
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

}  // namespace

std::vector<NamedKernel> normalization_ops() { return {{"batch_norm", batch_norm}, {"batch_norm_backward", batch_norm_backward}}; }

}  // namespace ulpscope::cpu
