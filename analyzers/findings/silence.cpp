#include "ulpscope/analyzers/findings/silence.h"

#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"

namespace ulpscope::findings {

namespace {

constexpr Template kSilentOp{"place.silent_op", "`{module}` ({op})"};
constexpr Template kSilentTensor{"place.silent_tensor", "{tensor}"};

}  // namespace

Sentence silent_place(const RunFacts& facts, uint32_t tensor) {
  const OpInfo& op = facts.selection.op(tensor);
  if (op.module.empty()) return kSilentTensor({{"tensor", tensor_place(facts.selection, tensor)}});
  return kSilentOp({{"module", Name{NameKind::module, op.module}}, {"op", Name{NameKind::op, op.name}}});
}

Suspects silent_suspects(const RunFacts& facts, std::span<const uint32_t> tensors) {
  Suspects suspects(facts.selection);
  for (const uint32_t i : tensors) {
    const ZeroTail& zeros = facts.ranges().find(i)->judged.zeros;
    suspects.add(static_cast<double>(zeros.rows), i, {{"rows_of_zeros_to_the_end", count_cell(zeros.rows), Unit::count}},
                 RowPosition{*zeros.since, facts.context.trace.run().rank});
  }
  return suspects;
}

}  // namespace ulpscope::findings
