// What the first nonfinite element of an output was made of. Reads elements one by one, so it serves any backend whose memory the
// host reads.
#pragma once

#include <span>

#include "ulpscope/kernels/op_call.h"
#include "ulpscope/kernels/row_call.h"

namespace ulpscope {

class Capture;

// Names the operands of the element that is captured. Each op's row in reference/ has one of these.
using CaptureOperands = void(Capture&);

// The first element of output `slot` (in logical order) that is not finite, with its operands as they are after the call.
ElementCapture capture_nonfinite(const OpCall& call, int slot, CaptureOperands& operands);

namespace capture {

// The same element of every input.
CaptureOperands elementwise;
// Terms in the order of the op's sum.
CaptureOperands reduction, matmul, linear, scaled_matmul, average_pooling, average_pooling_backward;
// Convolutions by what they make: a map, an image, or the gradient of a weight (reference/plain_windows.cpp).
CaptureOperands convolution_map, convolution_image, conv2d_weight, conv_transpose2d_weight;
// The first nonfinite element of each input.
CaptureOperands whole_tensors;
// The element and its scale, or what made a scale.
CaptureOperands quantize;
// What the element was chosen from.
CaptureOperands max_pooling, max_pool2d_backward, adaptive_max_pool2d_backward;
// The element, its channel's parameters, and what made the channel's statistics nonfinite.
CaptureOperands batch_norm, batch_norm_backward;
// The element, its channel's parameters, its group's statistics, and what made these nonfinite.
CaptureOperands group_norm, group_norm_backward;
// The element of each row, the values of its row and place, and what made the row nonfinite.
void rows(Capture& capture, std::span<const RowOperand> inputs);
// Of an op on rows whose places do not mix: the values of the element's row and place, in every part of every input.
void places(Capture& capture, std::span<const RowOperand> inputs, std::span<const RowOperand> outputs);
CaptureOperands normalization_weight;
// Where the element was copied from, or the terms that were added up for it.
CaptureOperands cat, slice_backward, embedding, embedding_backward, gather, gather_backward, scatter_add;
CaptureOperands cross_entropy, cross_entropy_backward, nll_backward;

}  // namespace capture
}  // namespace ulpscope
