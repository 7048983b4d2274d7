#include "ulpscope/analyzers/judgements/run_memory.h"

#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope {

void RunMemory::follow(const AnalysisContext& context) {
  if (context.tables() == tables_) return;
  tables_ = context.tables();
  beginnings = {};
  data = {};
  steps = {};
  first_large.reset();
}

}  // namespace ulpscope
