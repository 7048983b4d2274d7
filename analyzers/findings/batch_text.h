// Words that findings on batches share.
#pragma once

#include "ulpscope/analyzers/report/sentence.h"

namespace ulpscope::findings {

inline constexpr Template kExportListsBatch{"advice.export_lists_batch",
                                            "`ulpscope export {trace} --table batches --step {step}` lists the batch."};

}  // namespace ulpscope::findings
