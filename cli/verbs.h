// The verbs, one file each.
#pragma once

#include "ulpscope/cli/verb.h"

namespace ulpscope::cli {

Verb demo_verb();
Verb train_verb();
Verb replay_verb();
Verb info_verb();
Verb report_verb();
Verb ranges_verb();
Verb scale_verb();
Verb whatif_verb();
Verb updates_verb();
Verb errors_verb();
Verb view_verb();
Verb screenshot_verb();
Verb compare_verb();
Verb findings_verb();
Verb export_verb();
Verb recover_verb();
Verb float_verb();
Verb diff_verb();
Verb opcheck_verb();
Verb dot_verb();
Verb gpu_verb();
Verb completion_verb();
Verb nan_verb();
Verb man_verb(std::vector<std::string> commands);

}  // namespace ulpscope::cli
