// Which op computes the loss that training minimizes: what backward began from, by the roles of tensors.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope {

// The ops whose first output is a loss of training, by number.
std::vector<uint32_t> loss_ops(const AnalysisContext& context);
// The only op that computes a loss, where it is one of these functions and gives the mean; nullopt: the loss is computed otherwise,
// by hand or from several.
std::optional<uint32_t> mean_loss_op(const AnalysisContext& context, std::initializer_list<OpFunction> functions);
// The tensors that the op reads as `meaning`; none where the trace does not say, or the op reads no such thing.
std::span<const uint32_t> tensors_read_as(const AnalysisContext& context, uint32_t op, Meaning meaning);
// The first backward op that belongs to the forward op; nullopt: the loss does not depend on it.
std::optional<uint32_t> backward_op_of(const AnalysisContext& context, uint32_t forward);
// Casts and copies keep values but for their rounding: these are the tensors before them.
std::span<const uint32_t> sources_read_as(const AnalysisContext& context, uint32_t op, Meaning meaning);

}  // namespace ulpscope
