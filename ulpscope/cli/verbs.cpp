#include "ulpscope/cli/verbs.h"

namespace ulpscope::cli {

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> all{train_verb(),   info_verb(),   report_verb(),  ranges_verb(),    scale_verb(),
                                     compare_verb(), export_verb(), recover_verb(), completion_verb()};
  return all;
}

}  // namespace ulpscope::cli
