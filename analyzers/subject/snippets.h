// Code that does what advice says, in the words of the program that wrote the trace.
#pragma once

#include <span>
#include <vector>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/analyzers/subject/words/words.h"

namespace ulpscope {

// One for each change of a setting and each sentence that code is known of, in their order.
std::vector<Snippet> snippets_of(const Sentences& advice, std::span<const SettingChange> changes, const ProducerWords& words,
                                 const Program& program);

}  // namespace ulpscope
