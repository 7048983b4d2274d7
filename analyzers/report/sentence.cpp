#include "ulpscope/analyzers/report/sentence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

// The value of openings.
constexpr std::string_view kSaid = "said";

// The rest of a form behind its word: "step" of "count step".
std::string_view behind(std::string_view form, std::string_view word) {
  return form.starts_with(word) && form.size() > word.size() && form[word.size()] == ' ' ? form.substr(word.size() + 1)
                                                                                         : std::string_view();
}

double number_of(const Cell& cell) {
  if (const auto* whole = std::get_if<int64_t>(&cell)) return static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&cell)) return *real;
  throw failed_error("internal: a form of numbers is asked for of what is none");
}

std::string number_text(const Value::Number& number, std::string_view form) {
  if (form.empty()) return cell_text(number.cell, number.unit);
  if (const std::string_view noun = behind(form, "count"); !noun.empty())
    return count_of(static_cast<uint64_t>(std::get<int64_t>(number.cell)), noun);
  if (const std::string_view words = behind(form, "either"); !words.empty()) {
    const size_t bar = words.find('|');
    return std::string(std::get<int64_t>(number.cell) == 1 ? words.substr(0, bar) : words.substr(bar + 1));
  }
  const double value = number_of(number.cell);
  if (form == "special" || !std::isfinite(value)) return std::isnan(value) ? "NaN" : value > 0 ? "Inf" : "-Inf";
  if (form == "%") return fmt::format("{:g}%", 100 * value);
  if (form.ends_with('%')) return fmt::format(fmt::runtime(fmt::format("{{:{}}}%", form.substr(0, form.size() - 1))), 100 * value);
  return grouped_digits(fmt::format(fmt::runtime(fmt::format("{{:{}}}", form)), value));
}

std::string list_text(const Value::List& list, std::string_view form) {
  std::vector<std::string> words;
  for (const Value& value : list) words.push_back(value.text(""));
  if (form == "commas") return fmt::format("{}", fmt::join(words, ", "));
  if (form == "brackets") return words.empty() ? "" : fmt::format(" ({})", fmt::join(words, ", "));
  return join_words(words, form.empty() ? "and" : form);
}

void drop_phrases(Value& value, const Template& form) {
  if (auto* const list = value.find<Value::List>()) {
    for (Value& each : *list) drop_phrases(each, form);
  } else if (auto* const phrase = value.find<Value::Phrase>()) {
    if (phrase->front().id() == form.id)
      value = Value();
    else
      phrase->front().drop(form);
  }
}

void make_value_printable(Value& value) {
  if (auto* const name = value.find<Name>()) name->text = one_line(name->text);
  if (auto* const setting = value.find<Setting>())
    for (std::string* const text : {&setting->name, &setting->now, &setting->is, &setting->to}) *text = one_line(*text);
  if (auto* const list = value.find<Value::List>())
    for (Value& each : *list) make_value_printable(each);
  if (auto* const phrase = value.find<Value::Phrase>()) phrase->front().make_printable();
}

}  // namespace

const char* name_of(NameKind kind) {
  static constexpr const char* kNames[] = {"module",     "op",      "tensor",  "parameter", "phase",    "format", "file",  "data",
                                           "experiment", "machine", "product", "algorithm", "function", "value",  "event", "part"};
  static_assert(std::size(kNames) == static_cast<size_t>(NameKind::part) + 1);
  return kNames[static_cast<size_t>(kind)];
}

std::string Setting::text() const {
  const std::string& value = is.empty() ? to : is;
  const std::string text = value.empty() ? name : fmt::format("{} = {}", name, value);
  return now.empty() ? text : fmt::format("{}, now {}", text, now);
}

Value::Value(Setting setting) {
  if (!setting.empty()) value_ = std::move(setting);
}

Value::Value(Sentence phrase) {
  if (!phrase.empty()) value_.emplace<Phrase>().push_back(std::move(phrase));
}

Value Value::list(List values) {
  std::erase_if(values, [](const Value& value) { return value.empty(); });
  Value list;
  if (!values.empty()) list.value_ = std::move(values);
  return list;
}

std::string Value::text(std::string_view form) const {
  if (const auto* const number = find<Number>()) return number_text(*number, form);
  if (const auto* const list = find<List>()) return list_text(*list, form);
  if (form == "brackets" && !empty()) return fmt::format(" ({})", text(""));
  if (const auto* const name = find<Name>()) return name->text;
  if (const auto* const setting = find<Setting>()) return setting->text();
  if (const auto* const phrase = find<Phrase>()) return phrase->front().text();
  return "";
}

Sentence Template::operator()(std::initializer_list<Argument> arguments) const { return Sentence(*this, arguments); }

Sentence::Sentence(const Template& form, std::vector<Argument> arguments)
    : id_(form.id), form_(form.text), arguments_(std::move(arguments)) {
  std::vector<bool> used(arguments_.size());
  visit_places(
      form_, [](std::string_view) {},
      [&](std::string_view name, std::string_view) {
        bool found = false;
        for (size_t i = 0; i < arguments_.size() && !found; ++i)
          if (arguments_[i].name == name) used[i] = found = true;
        if (!found) throw failed_error("internal: the sentence {} has no value for {}", id_, name);
      });
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i]) throw failed_error("internal: the sentence {} has no place for {}", id_, arguments_[i].name);
}

const Value& Sentence::operator[](std::string_view name) const {
  static const Value kNothing;
  const auto found = std::find_if(arguments_.begin(), arguments_.end(), [&](const Argument& each) { return each.name == name; });
  return found == arguments_.end() ? kNothing : found->value;
}

std::string Sentence::text() const {
  std::string text;
  visit_places(
      form_, [&](std::string_view words) { text += words; },
      [&](std::string_view name, std::string_view form) { text += (*this)[name].text(form); });
  return text;
}

Sentence Sentence::with(std::string_view name, Value value) const {
  Sentence other = *this;
  for (Argument& argument : other.arguments_)
    if (argument.name == name) argument.value = std::move(value);
  return other;
}

void Sentence::drop(const Template& phrase) {
  for (Argument& argument : arguments_) drop_phrases(argument.value, phrase);
}

void Sentence::make_printable() {
  for (Argument& argument : arguments_) make_value_printable(argument.value);
}

Sentences::Sentences(Sentence one) {
  if (!one.empty()) all_.push_back(std::move(one));
}
Sentences::Sentences(std::initializer_list<Sentence> some) {
  for (const Sentence& each : some) *this += each;
}

void Sentences::begin_with(const Template& opening, std::vector<Argument> arguments) {
  if (all_.empty()) return;
  arguments.push_back({kSaid, std::move(all_.front())});
  all_.front() = Sentence(opening, std::move(arguments));
}

Sentences& Sentences::operator+=(const Sentences& others) {
  all_.insert(all_.end(), others.all_.begin(), others.all_.end());
  return *this;
}

Sentences Sentences::from(size_t count) const {
  Sentences rest;
  for (size_t i = count; i < all_.size(); ++i) rest.all_.push_back(all_[i]);
  return rest;
}

void Sentences::drop(const Template& form) {
  std::erase_if(all_, [&](const Sentence& each) { return each.id() == form.id; });
  for (Sentence& each : all_) each.drop(form);
}

void Sentences::make_printable() {
  for (Sentence& each : all_) each.make_printable();
}

std::string Sentences::text() const {
  std::string text;
  for (const Sentence& each : all_) text += (text.empty() ? "" : " ") + each.text();
  return text;
}

}  // namespace ulpscope
