#include "ulpscope/analyzers/judgements/domain_advice.h"

#include <cmath>

#include "ulpscope/analyzers/judgements/cause_text.h"
#include "ulpscope/analyzers/judgements/origin_facts.h"

namespace ulpscope {

Sentences domain_advice(const OriginFacts& origin, NonfiniteCause cause) {
  const OpFunction function = origin.function();
  const auto of_function = [&](const Template& words) {
    return words({{"function", Name{NameKind::op, std::string(name_of(function))}}});
  };
  switch (cause) {
    case NonfiniteCause::log_of_zero:
      return of_function(cause_words::kKeepArgument);
    case NonfiniteCause::log_of_negative:
    case NonfiniteCause::sqrt_of_negative:
      return of_function(cause_words::kKeepPositive);
    case NonfiniteCause::overflow_of_exp:
      return cause_words::kClampExponent({{"limit", static_cast<int64_t>(std::log(origin.format().largest_finite()))}});
    case NonfiniteCause::division_by_zero:
    case NonfiniteCause::zero_over_zero:
      switch (function) {
        case OpFunction::log:
        case OpFunction::sqrt:
        case OpFunction::rsqrt:
          return of_function(cause_words::kKeepArgument);
        case OpFunction::pow:
          return of_function(cause_words::kKeepBase);
        default:
          return cause_words::kKeepDivisor();
      }
    default:
      return {};
  }
}

}  // namespace ulpscope
