#include "ulpscope/cli/verbs.h"

namespace ulpscope::cli {

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> all = [] {
    std::vector<Verb> list{demo_verb(),   train_verb(),      replay_verb(),   info_verb(),    report_verb(),    nan_verb(),
                           ranges_verb(), scale_verb(),      whatif_verb(),   updates_verb(), errors_verb(),    compare_verb(),
                           view_verb(),   screenshot_verb(), findings_verb(), export_verb(),  recover_verb(),   float_verb(),
                           diff_verb(),   opcheck_verb(),    dot_verb(),      gpu_verb(),     completion_verb()};
    std::vector<std::string> names{"man"};
    for (const Verb& verb : list) names.push_back(verb.name);
    list.push_back(man_verb(std::move(names)));
    return list;
  }();
  return all;
}

}  // namespace ulpscope::cli
