// Outputs of which every element was zero to the end, while what went in was not: no rounding made them so. Of ops of one input,
// where nothing else can be the reason.
#pragma once

#include <cstdint>
#include <vector>

namespace ulpscope {

struct AnalysisContext;
class RangeJudgement;

class SilentOutputs {
 public:
  SilentOutputs(const AnalysisContext& context, const RangeJudgement& ranges);

  std::vector<uint32_t> dead;      // tensors of activation functions
  std::vector<uint32_t> dropped;   // of dropouts
  bool loss_sees_nothing = false;  // of the batch but through dead ones
};

}  // namespace ulpscope
