// Python that does what advice says to a program that trains with PyTorch. It takes the names that such programs have: `model`,
// `optimizer`, `scaler`, `loss`; and where a name of its own is meant, x for what an op reads. Comments say where it goes.
#pragma once

#include "ulpscope/analyzers/subject/words/words.h"

namespace ulpscope {

// As the members of ProducerWords of these names.
std::string torch_words_for(SettingKind kind, std::string_view module, std::string_view device);
std::string torch_code_of_change(const SettingChange& change, const Sentences& advice, const Program& program);
std::string torch_code_of_sentence(const Sentence& advice, const Program& program);

}  // namespace ulpscope
