#include "ulpscope/core/observe/nonfinite_watch.h"

#include <algorithm>

namespace ulpscope {

void NonfiniteWatch::before(const OpEvent& event, std::span<OutputRecord* const> records) {
  if (event.phase == Phase::evaluation) return;
  for (size_t i = 0; i < event.outputs.size(); ++i) {
    const DType dtype = event.outputs[i].dtype();
    if (!is_float(dtype)) continue;
    records[i]->wanted = std::max(records[i]->wanted, StatisticsLevel::health);
    const OutputLabel& label = event.labels[i];
    outputs_.push_back({records[i], dtype, &event.op, event.id, &event.module, label.parameter, event.phase, label.role,
                        event.micro_batch, static_cast<int>(i)});
  }
}

void NonfiniteWatch::begin_step() {
  outputs_.clear();
  first_.reset();
  first_infinite_.reset();
}

void NonfiniteWatch::end_pass() {
  for (const Output& output : outputs_) {
    const uint64_t nonfinite = stored_nonfinite(*output.record, output.dtype);
    if (nonfinite == 0) continue;
    const uint64_t nan = output.record->statistics.nan;
    const NonfiniteOutput found{output.id,
                                std::string(output.op->name),
                                *output.module,
                                output.parameter ? *output.parameter : "",
                                output.phase,
                                output.role,
                                output.micro_batch,
                                output.slot,
                                nan,
                                nonfinite - nan};
    if (!first_) first_ = found;
    if (!first_infinite_ && found.infinite > 0) first_infinite_ = found;
    if (first_infinite_) break;
  }
  outputs_.clear();
}

}  // namespace ulpscope
