// What is in a trace: where it comes from, how far it got, how large it is. Input: the step table and the small tables; no tensor
// row is read where there is no FP8. Facts: schema_version, writer, steps, first_loss, final_loss, test_loss and test_accuracy
// where there are some, ops, tensor_rows, bytes_per_row, backend, precision, skipped_steps, peak_memory_bytes and more. Tables: the
// metrics of the run, what the device's library multiplied, the quantization scales of FP8 tensors.
#pragma once

#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope {

Report analyze_info(const Snapshot& reader, const AnalysisOptions& options = {});
// Without tables, and of the facts only those that a reader of findings needs.
Report info_for_report(const AnalysisContext& context, const StepFacts& steps);

}  // namespace ulpscope
