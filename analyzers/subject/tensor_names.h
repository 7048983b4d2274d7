// What the tensors of a trace are called: by module and by what they are. "head linear", "head.weight (FP16)", "head.weight
// gradient", "blocks.3.attention.heads softmax gradient (FP16)". Each name is one tensor's, and the same in every run and precision
// that has the op: casts and copies are named after what they hold, and nothing is numbered across them.
//
//   value            MODULE OP [OUTPUT], a parameter's or a buffer's name, or OP loss
//   cast, quantized  that of the value, and the type; a quantization's scales by what they are
//   gradient         of a value or a parameter: its name and "gradient". Of several of one value, the sum has that name; what each
//                    op hands on is the gradient of that op's input
//
// Where several would still be called the same, what tells them apart is added, in this order: the evaluation, the start of the
// run, the op, the module, the type, and which of them in order of execution it is, as a word.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/trace/snapshot.h"

namespace ulpscope {

struct TensorName {
  std::string tensor;
  std::string output;  // of all tensors that are this output of its op, whatever their types and arithmetic
  bool tells_phase;    // both do, of the op: the loss is of the phase loss, a gradient of the backward pass
};
// Of all tensors. Takes n log n.
std::vector<TensorName> tensor_names(const Snapshot& trace);

// Whether a name begins with that word to say which of several it is: "first", "11th".
bool is_ordinal(std::string_view word);

// "FP16", "E4M3", "i64"
std::string type_text(DType dtype);

}  // namespace ulpscope
