// The policies of mixed precision that an experiment can name, a row of the table in precision.cpp each: what is kept in which
// type, and how a gradient scaler follows. docs/policies.md is generated from the table.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "ulpscope/core/engine/autocast.h"
#include "ulpscope/core/nn/layer.h"

namespace ulpscope {

enum class Precision : uint8_t {
  fp32,
  fp64,
  fp16,
  bf16,
  mixed_float16,
  mixed_bfloat16,
  apex_o0,
  apex_o1,
  apex_o2,
  apex_o3,
  tf_auto_mixed,
  mxnet,
  pure_fp16,
  pure_bf16,
  fp8,
};

struct PrecisionRow {
  const char* name;
  const char* meaning;
  DType dtype = DType::f32;              // of 16 bits; or f32 or f64: nothing is cast by op
  const AutocastLists* lists = nullptr;  // nullptr: PyTorch's
  // Parameters, and what goes into the model, have `dtype` themselves; else parameters are FP32 and ops cast them.
  bool casts_model = false;
  bool batch_norm_fp32 = true;   // the parameters and statistics of batch_norm stay FP32
  bool master_weights = false;   // the optimizer keeps FP32 parameters, and FP32 gradients, of which the model's are copies
  bool output_fp32 = false;      // the model's output is cast to FP32
  bool fp8 = false;              // linear layers compute in FP8, all else as `dtype` has it
  bool narrow_loss = false;      // the loss and floating-point targets are rounded to `dtype`
  const char* scaler = nullptr;  // the preset of its gradient scaler; nullptr: none
  AttentionKind attention = AttentionKind::sdpa;  // of attention layers that do not say their own

  ParameterTypes parameter_types() const;
};

std::span<const PrecisionRow> precision_rows();  // in the order of Precision
inline const PrecisionRow& row_of(Precision precision) { return precision_rows()[static_cast<size_t>(precision)]; }
inline const char* name_of(Precision precision) { return row_of(precision).name; }
inline DType dtype_of(Precision precision) { return row_of(precision).dtype; }

// docs/policies.md.
std::string policy_reference();

}  // namespace ulpscope
