// Ops on rows along the last dimension: softmax and its relatives, layer_norm, rms_norm and recurrent cells. What they do with a
// row is said in rows.h; here rows are read, shared out among threads and stored.
#include <algorithm>
#include <optional>

#include "ulpscope/kernels/cpu/block_output.h"
#include "ulpscope/kernels/cpu/parallel.h"
#include "ulpscope/kernels/cpu/reader.h"
#include "ulpscope/kernels/cpu/reductions.h"
#include "ulpscope/kernels/cpu/row_kernels.h"
#include "ulpscope/kernels/plain/plain.h"
#include "ulpscope/kernels/rows.h"

namespace ulpscope::cpu {
namespace {

struct RowOpShape {
  std::span<const RowOperand> inputs, outputs;
  // The operand whose shape is that of the rows.
  const TensorView& rows(const OpCall& call) const {
    for (size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i] == RowOperand::row) return call.outputs[i];
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] == RowOperand::row) return call.inputs[i];
    return call.inputs[0];
  }
};

// All values of a small operand, widened.
const float* read_whole(const TensorView& view, float* buffer) {
  const TensorView order = contiguous(view);
  return Reader(view, order).read(0, view.size(), buffer);
}

// An operand that is read once, before the rows: a vector, or the scalars of all rows.
class WholeOperand {
 public:
  WholeOperand(Context& context, const TensorView& view)
      : scratch_(context.allocator, bytes_of(view.size())), values_(read_whole(view, scratch_.as<float>())) {}
  const float* values() const { return values_; }

 private:
  Scratch scratch_;
  const float* values_;
};

void row_op(Context& context, const OpCall& call, const RowOpShape& op, int index) {
  const TensorView order = contiguous(op.rows(call));
  if (order.size() == 0 || order.rank == 0) return run_plain(call);
  for (size_t i = 0; i < op.outputs.size(); ++i)
    if (!is_contiguous(call.outputs[i])) return run_plain(call);
  const int64_t n = order.shape[order.rank - 1], rows = order.size() / n, piece = std::min(BlockOutput::rows_of_piece(n, 4), rows);
  const bool parallel = order.size() >= kParallelElements / 4;
  const int slots = parallel ? context.threads : 1;
  const RowKernel kernel = row_kernel(index);

  std::array<Reader, kMaxRowInputs> readers;
  std::array<std::optional<WholeOperand>, kMaxRowInputs> whole;
  std::array<std::optional<BlockOutput>, kMaxRowOutputs> row_outputs;
  std::array<std::optional<Scratch>, kMaxRowOutputs> scalars;
  int64_t buffered = 0;  // operands of a piece that need a buffer, at most
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (op.inputs[i].is_row()) {
      readers[i] = Reader(call.inputs[i], contiguous(call.inputs[i]));
      buffered += op.inputs[i].parts();
    } else {
      whole[i].emplace(context, call.inputs[i]);
    }
  }
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    if (op.outputs[i].is_row()) {
      row_outputs[i].emplace(context, call, static_cast<int>(i), piece * op.outputs[i].stride(n));
      buffered += op.outputs[i].parts();
    } else {
      scalars[i].emplace(context.allocator, bytes_of(rows));
    }
  }
  const ThreadScratch buffers(context.allocator, slots, bytes_of(buffered * piece * n));
  parallel_for(context, blocks_of(rows, piece), parallel, [&](int64_t share) {
    const int64_t first = share * piece, count = std::min(piece, rows - first);
    float* buffer = buffers.of(parallel ? omp_get_thread_num() : 0);
    RowCall<float> row;
    row.n = n;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const int64_t stride = op.inputs[i].stride(n);
      if (op.inputs[i].is_row()) {
        row.inputs[i] = readers[i].read(first * stride, count * stride, buffer);
        buffer += piece * stride;
      } else {
        row.inputs[i] = whole[i]->values() + first * stride;
      }
    }
    std::array<float*, kMaxRowOutputs> begin{};
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const int64_t stride = op.outputs[i].stride(n);
      if (op.outputs[i].is_row()) {
        float* place = row_outputs[i]->place(first * stride);
        row.outputs[i] = begin[i] = place != nullptr ? place : buffer;
        buffer += piece * stride;
      } else {
        row.outputs[i] = scalars[i]->as<float>() + first * stride;
      }
    }
    for (int64_t r = 0; r < count; ++r) {
      kernel(*call.attributes, row);
      for (size_t i = 0; i < op.inputs.size(); ++i) row.inputs[i] += op.inputs[i].stride(n);
      for (size_t i = 0; i < op.outputs.size(); ++i) row.outputs[i] += op.outputs[i].stride(n);
    }
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const int64_t stride = op.outputs[i].stride(n);
      if (row_outputs[i]) row_outputs[i]->put(first * stride, begin[i], count * stride);
    }
  });
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    if (row_outputs[i]) {
      row_outputs[i]->finish();
    } else {
      store_output(call, static_cast<int>(i), scalars[i]->as<float>());
    }
  }
}

// Inputs g, x, [mean,] inverse; outputs dweight[, dbias].
void normalization_weight_gradient(Context& context, const OpCall& call) {
  const TensorView &g = call.inputs[0], &x = call.inputs[1];
  const bool with_mean = call.inputs.size() > 3;
  if (x.size() == 0) return run_plain(call);
  const int64_t n = x.shape[x.rank - 1], rows = x.size() / n;
  TensorView terms = contiguous(x);
  const Scratch scratch(context.allocator, bytes_of(x.size()));
  terms.data = scratch.as<void>();
  terms.dtype = DType::f32;
  const WholeOperand means(context, call.inputs[2]), inverses(context, call.inputs[with_mean ? 3 : 2]);
  const Reader g_reader(g, terms), x_reader(x, terms);
  const bool parallel = x.size() >= kParallelElements / 4;
  const ThreadScratch buffers(context.allocator, parallel ? context.threads : 1, bytes_of(2 * n));
  parallel_for(context, rows, parallel, [&](int64_t row) {
    float* buffer = buffers.of(parallel ? omp_get_thread_num() : 0);
    weight_terms(g_reader.read(row * n, n, buffer), x_reader.read(row * n, n, buffer + n), with_mean ? means.values()[row] : 0.0f,
                 inverses.values()[row], n, scratch.as<float>() + row * n);
  });
  const Scratch sums(context.allocator, bytes_of(n));
  const unsigned all_but_last = (1u << (x.rank - 1)) - 1;
  sum_rows(context, terms, all_but_last, sums.as<float>());
  store_output(call, 0, sums.as<float>());
  if (call.outputs.size() < 2) return;
  sum_rows(context, g, all_but_last, sums.as<float>());
  store_output(call, 1, sums.as<float>());
}

template <class... R>
std::vector<NamedKernel> kernels_of(lanes::RowOpList<R...>) {
  int next = 0;
  const auto kernel = [&](RowOpShape shape) {
    return [index = next++, shape](Context& context, const OpCall& call) { row_op(context, call, shape, index); };
  };
  return {NamedKernel{R::kName, kernel({R::kInputs, R::kOutputs})}...};  // evaluated from left to right
}

}  // namespace

std::vector<NamedKernel> row_ops() {
  std::vector<NamedKernel> kernels = kernels_of(lanes::RowOps{});
  kernels.push_back({"layer_norm_backward_weight", normalization_weight_gradient});
  kernels.push_back({"rms_norm_backward_weight", normalization_weight_gradient});
  return kernels;
}

}  // namespace ulpscope::cpu
