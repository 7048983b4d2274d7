#include "ulpscope/analyzers/subject/snippets.h"

#include <algorithm>
#include <string>

namespace ulpscope {

namespace {

// Calls visit(sentence) for it and for the phrases in it.
template <typename Visit>
void visit_phrases(const Sentence& sentence, const Visit& visit) {
  visit(sentence);
  for (const Argument& argument : sentence.arguments()) {
    if (const auto* const phrase = argument.value.find<Value::Phrase>()) visit_phrases(phrase->front(), visit);
  }
}

}  // namespace

std::vector<Snippet> snippets_of(const Sentences& advice, std::span<const SettingChange> changes, const ProducerWords& words,
                                 const Program& program) {
  std::vector<Snippet> snippets;
  const auto add = [&](std::string_view does, std::string code) {
    Snippet snippet{std::string(does), std::move(code)};
    const bool is_there =
        std::any_of(snippets.begin(), snippets.end(), [&](const Snippet& one) { return one.code == snippet.code; });
    if (!snippet.code.empty() && !is_there) snippets.push_back(std::move(snippet));
  };
  if (words.code_of_sentence != nullptr)
    for (const Sentence& sentence : advice)
      visit_phrases(sentence, [&](const Sentence& each) { add(each.id(), words.code_of_sentence(each, program)); });
  if (words.code_of_change != nullptr)
    for (const SettingChange& change : changes) add(name_of(change.kind), words.code_of_change(change, advice, program));
  return snippets;
}

}  // namespace ulpscope
