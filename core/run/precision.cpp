#include "ulpscope/core/run/precision.h"

namespace ulpscope {

namespace {

using Class = AutocastClass;
using Row = AutocastLists::Row;

// Lists give each class of PyTorch's what the library makes of it, and then the ops that it treats otherwise than the others of
// their class.

// A layer computes in its dtype, FP16, softmax too; layers that normalize widen their input and round their output, which here the
// next op does. A loss has a dtype of its own, FP32.
constexpr Row kKerasOps[] = {{"layer_norm", Class::fp32}, {"rms_norm", Class::fp32}, {"group_norm", Class::fp32}};
constexpr AutocastLists kKeras{.input_type = Class::lower_precision,
                               .lower_precision = Class::lower_precision,
                               .fp32 = Class::lower_precision,
                               .fp32_unless_dtype = Class::lower_precision,
                               .loss = Class::loss,
                               .forbidden = Class::loss,
                               .ops = kKerasOps,
                               .casts_once = false};

// Like PyTorch's, which came from it; what it has no name for runs in the type of its inputs.
constexpr Row kApexOps[] = {
    {"logsumexp", Class::input_type}, {"rms_norm", Class::input_type}, {"huber", Class::input_type}, {"var", Class::fp32}};
constexpr AutocastLists kApex{.input_type = Class::input_type,
                              .lower_precision = Class::lower_precision,
                              .fp32 = Class::fp32,
                              .fp32_unless_dtype = Class::fp32,
                              .loss = Class::loss,
                              .forbidden = Class::forbidden,
                              .ops = kApexOps};

// Allow: products. Deny: exp, pow, mean, sum, and what is made of them. All else is inferred, as are some that PyTorch keeps in
// FP32. rsqrt is on no list, so it stays FP32.
constexpr Row kTensorFlowOps[] = {{"softmax", Class::inferred},
                                  {"masked_softmax", Class::inferred},
                                  {"log_softmax", Class::inferred},
                                  {"softplus", Class::inferred},
                                  {"log", Class::inferred},
                                  {"reciprocal", Class::inferred},
                                  {"mean", Class::fp32},
                                  {"var", Class::fp32},
                                  {"gelu_tanh", Class::fp32}};
constexpr AutocastLists kTensorFlow{.input_type = Class::inferred,
                                    .lower_precision = Class::lower_precision,
                                    .fp32 = Class::fp32,
                                    .fp32_unless_dtype = Class::fp32,
                                    .loss = Class::loss,
                                    .forbidden = Class::loss,
                                    .ops = kTensorFlowOps};

// Layers of products only; a product of two activations takes the widest type.
constexpr Row kMxnetOps[] = {{"matmul", Class::input_type}, {"mean", Class::fp32}, {"var", Class::fp32}};
constexpr AutocastLists kMxnet{.input_type = Class::input_type,
                               .lower_precision = Class::lower_precision,
                               .fp32 = Class::fp32,
                               .fp32_unless_dtype = Class::fp32,
                               .loss = Class::loss,
                               .forbidden = Class::loss,
                               .ops = kMxnetOps};

// Nothing is cast: the types of parameters and inputs decide.
constexpr AutocastLists kNone{.input_type = Class::input_type,
                              .lower_precision = Class::input_type,
                              .fp32 = Class::input_type,
                              .fp32_unless_dtype = Class::input_type,
                              .loss = Class::input_type,
                              .forbidden = Class::input_type};

constexpr PrecisionRow kRows[] = {
    {.name = "fp32", .meaning = "nothing is cast"},
    {.name = "fp64",
     .meaning = "all in FP64, to hold others against",
     .dtype = DType::f64,
     .lists = &kNone,
     .casts_model = true,
     .batch_norm_fp32 = false},
    {.name = "fp16", .meaning = "PyTorch's autocast and GradScaler", .dtype = DType::f16, .scaler = "pytorch"},
    {.name = "bf16", .meaning = "PyTorch's autocast", .dtype = DType::bf16},
    {.name = "mixed_float16",
     .meaning = "Keras",
     .dtype = DType::f16,
     .lists = &kKeras,
     .scaler = "keras",
     .attention = AttentionKind::mha},
    {.name = "mixed_bfloat16", .meaning = "Keras", .dtype = DType::bf16, .lists = &kKeras, .attention = AttentionKind::mha},
    {.name = "apex_o0", .meaning = "Apex O0: nothing is cast", .attention = AttentionKind::mha},
    {.name = "apex_o1",
     .meaning = "Apex O1: functions cast",
     .dtype = DType::f16,
     .lists = &kApex,
     .scaler = "apex",
     .attention = AttentionKind::mha},
    {.name = "apex_o2",
     .meaning = "Apex O2: an FP16 model with FP32 master weights",
     .dtype = DType::f16,
     .lists = &kNone,
     .casts_model = true,
     .master_weights = true,
     .output_fp32 = true,
     .scaler = "apex",
     .attention = AttentionKind::mha},
    {.name = "apex_o3",
     .meaning = "Apex O3: an FP16 model",
     .dtype = DType::f16,
     .lists = &kNone,
     .casts_model = true,
     .batch_norm_fp32 = false,
     .output_fp32 = true,
     .attention = AttentionKind::mha},
    {.name = "tf_auto_mixed",
     .meaning = "TensorFlow's graph rewrite",
     .dtype = DType::f16,
     .lists = &kTensorFlow,
     .scaler = "tensorflow",
     .attention = AttentionKind::mha},
    {.name = "mxnet",
     .meaning = "MXNet's AMP",
     .dtype = DType::f16,
     .lists = &kMxnet,
     .scaler = "mxnet",
     .attention = AttentionKind::mha},
    {.name = "pure_fp16",
     .meaning = "all in FP16",
     .dtype = DType::f16,
     .lists = &kNone,
     .casts_model = true,
     .batch_norm_fp32 = false,
     .narrow_loss = true},
    {.name = "pure_bf16",
     .meaning = "all in BF16",
     .dtype = DType::bf16,
     .lists = &kNone,
     .casts_model = true,
     .batch_norm_fp32 = false,
     .narrow_loss = true},
    {.name = "fp8",
     .meaning = "linear layers as Transformer Engine's, in FP8; all else as `bf16`",
     .dtype = DType::bf16,
     .fp8 = true},
};

}  // namespace

std::span<const PrecisionRow> precision_rows() { return kRows; }

ParameterTypes PrecisionRow::parameter_types() const {
  if (!casts_model) return {};
  return {.of_batch_norm = batch_norm_fp32 ? DType::f32 : dtype, .others = dtype};
}

}  // namespace ulpscope
