// What findings on runs whose loss was not scaled share.
#pragma once

#include "ulpscope/analyzers/report/sentence.h"

namespace ulpscope {

class RunFacts;

namespace findings {

// "For fp16, the smallest fitting scale is 8 and the largest 1024.", or nothing.
Sentence scales_that_would_fit(const RunFacts& facts);

}  // namespace findings
}  // namespace ulpscope
