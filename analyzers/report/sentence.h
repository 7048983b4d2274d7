// A sentence of a report as data: a template, and the values that it names. Renderers make text of it, programs read the values,
// and nothing has to read a text back.
//
//   constexpr Template kSkipped{"scale.skipped", "{skipped} of {steps:count step} {skipped:either was|were} skipped."};
//   kSkipped({{"skipped", 3}, {"steps", 40}}).text()   // "3 of 40 steps were skipped."
//
// A template holds all the words; a value is a number with its unit, a name of a closed kind, a setting, a list of such, or a
// phrase, which is a template with values of its own. A place in a template is "{name}" or "{name:form}", where form is one of
//   .3g, g and other forms of fmt   of a number;
//   %, .3g%, +.1f% and such         of a share, in percent: "12.5%", "+12.5%";
//   count NOUN                      of a count: "1 step", "40 steps";
//   either ONE|OTHERS               of a count: the first word of 1, the second of all others, without the number;
//   special                         of a number that is none: "NaN", "Inf", "-Inf";
//   and, or, commas                 of a list: "a, b and c", "a, b or c", "a, b, c";
//   brackets                        of a list, or of one that may be nothing: " (a, b, c)".
// Without a form a number is as its unit has it (text.h, cell_text), and a list is joined by "and". Nothing becomes "".
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ulpscope/analyzers/report/cell.h"

namespace ulpscope {

// The kinds of things that have names in sentences.
enum class NameKind : uint8_t {
  module,
  op,
  tensor,  // as the selection calls it: "features.0 conv2d gradient"
  parameter,
  phase,
  format,  // "fp16"
  file,    // a path
  data,    // a set of samples, its columns, or what stands in them
  experiment,
  machine,
  product,  // a matrix product, and the algorithm that a library takes for it
  algorithm,
  function,  // of a layer or a loss
  value,     // an identifier that happens to be a number, as a seed
  event,     // what a producer recorded as a text
  part,      // what a tensor is in its module, or of its parameter: "linear gradient, FP16"
};
const char* name_of(NameKind kind);

struct Name {
  NameKind kind = NameKind::module;
  std::string text;
  bool operator==(const Name&) const = default;
};

// A setting as its producer calls it, with the value that it has, one that it is to have, or both: "optimizer.eps, now 1e-8",
// "scaler.dynamic = true", "fp8.recipe = "current", now "delayed"". "": there is none.
struct Setting {
  std::string name;
  std::string now = {};  // ", now 1e-8"
  std::string is = {};   // the value that it has, too, as " = 1e-8"
  std::string to = {};   // one that it is to have: " = true"

  bool empty() const { return name.empty(); }
  std::string text() const;
  bool operator==(const Setting&) const = default;
};

class Sentence;

class Value {
 public:
  struct Number {
    Cell cell;
    Unit unit = Unit::none;
  };
  using List = std::vector<Value>;
  using Phrase = std::vector<Sentence>;  // one

  Value() = default;  // nothing
  Value(Cell cell, Unit unit) : value_(Number{std::move(cell), unit}) {}
  Value(double number, Unit unit = Unit::none) : value_(Number{number, unit}) {}
  Value(bool) = delete;
  template <std::integral T>
  requires(!std::same_as<T, bool>) Value(T count, Unit unit = Unit::count) : value_(Number{static_cast<int64_t>(count), unit}) {}
  Value(Name name) : value_(std::move(name)) {}
  Value(Setting setting);  // nothing, where it is empty
  Value(Sentence phrase);
  // A list of those of the values that are something; nothing, where none is.
  static Value list(List values);

  bool empty() const { return std::holds_alternative<std::monostate>(value_); }
  template <typename T>
  const T* find() const {
    return std::get_if<T>(&value_);
  }
  template <typename T>
  T* find() {
    return std::get_if<T>(&value_);
  }
  std::string text(std::string_view form) const;

 private:
  std::variant<std::monostate, Number, Name, Setting, List, Phrase> value_;
};

// The number of something in an order, as of a step or an element, which counts nothing.
template <std::integral T>
Value ordinal(T place) {
  return Value(place, Unit::none);
}

struct Argument {
  std::string_view name;  // of a literal
  Value value;
};

// Calls words(text) for what a template says between two places, and place(name, form) for each place.
template <typename Words, typename Place>
constexpr void visit_places(std::string_view text, Words&& words, Place&& place) {
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t brace = text.find('{', begin);
    if (brace != begin) words(text.substr(begin, brace == std::string_view::npos ? brace : brace - begin));
    if (brace == std::string_view::npos) return;
    const size_t end = text.find('}', brace);
    const std::string_view inside = text.substr(brace + 1, end - brace - 1);
    const size_t colon = inside.find(':');
    place(inside.substr(0, colon), colon == std::string_view::npos ? std::string_view() : inside.substr(colon + 1));
    begin = end + 1;
  }
}

// Where a template does not say what it has to, it does not compile.
struct Template {
  consteval Template(std::string_view template_id, std::string_view words) : id(template_id), text(words) { check(); }
  // Throws Error (failed) where a place has no value, or a value no place.
  Sentence operator()(std::initializer_list<Argument> arguments = {}) const;

  std::string_view id;  // stable, for programs
  std::string_view text;

 private:
  constexpr void check() const;
};

class Sentence {
 public:
  Sentence() = default;  // "", as a phrase that is left out
  Sentence(const Template& form, std::vector<Argument> arguments);

  bool empty() const { return form_.empty(); }
  std::string_view id() const { return id_; }
  const std::vector<Argument>& arguments() const { return arguments_; }
  const Value& operator[](std::string_view name) const;  // nothing, where there is none
  std::string text() const;
  bool operator==(const Sentence& other) const { return id_ == other.id_ && text() == other.text(); }
  // A copy in which the value of that name is another one.
  Sentence with(std::string_view name, Value value) const;

  // Empties phrases of that template, in phrases too.
  void drop(const Template& phrase);
  // Makes control characters visible in names and settings, which may hold any bytes.
  void make_printable();

 private:
  std::string_view id_, form_;
  std::vector<Argument> arguments_;
};

// Sentences in their order.
class Sentences {
 public:
  Sentences() = default;
  Sentences(Sentence one);
  Sentences(std::initializer_list<Sentence> some);

  bool empty() const { return all_.empty(); }
  size_t size() const { return all_.size(); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  const Sentence& front() const { return all_.front(); }
  // Those behind the first `count`.
  Sentences from(size_t count) const;
  // The first one as a phrase of `opening`, which calls it `said`: "Of what was asked for: {said}".
  void begin_with(const Template& opening, std::vector<Argument> arguments = {});
  Sentences& operator+=(const Sentences& others);
  friend Sentences operator+(Sentences some, const Sentences& others) { return std::move(some += others); }
  // Leaves out sentences of that template, and phrases of it.
  void drop(const Template& form);
  void make_printable();

  std::string text() const;  // with a blank between two
  operator std::string() const { return text(); }
  bool operator==(const Sentences&) const = default;
  bool operator==(std::string_view words) const { return text() == words; }

 private:
  std::vector<Sentence> all_;
};

// ---- of Template, which is checked where it is compiled

constexpr bool is_form(std::string_view form) {
  for (const std::string_view one : {"", "%", "special", "and", "or", "commas", "brackets"})
    if (form == one) return true;
  if (form.starts_with("count ")) return form.size() > 6;
  if (form.starts_with("either ")) return form.find('|') != std::string_view::npos;
  // Digits and a presentation type of fmt, and of a share '%' behind them.
  if (form.size() > 1 && form.back() == '%') form.remove_suffix(1);
  if (!form.empty() && form.front() == '+') form.remove_prefix(1);
  if (!form.empty() && form.front() == '.') form.remove_prefix(1);
  while (form.size() > 1 && form.front() >= '0' && form.front() <= '9') form.remove_prefix(1);
  return form == "g" || form == "f" || form == "e";
}

constexpr void Template::check() const {
  const auto fail_unless = [](bool holds, const char* what) {
    if (!holds) throw what;
  };
  fail_unless(!id.empty() && !text.empty(), "a template has an id and words");
  int open = 0;
  for (const char letter : text) {
    open += letter == '{' ? 1 : letter == '}' ? -1 : 0;
    fail_unless(open == 0 || open == 1, "braces stand for places");
  }
  fail_unless(open == 0, "braces stand for places");
  visit_places(
      text, [](std::string_view) {},
      [&](std::string_view name, std::string_view form) {
        fail_unless(!name.empty(), "a place has a name");
        for (const char letter : name)
          fail_unless((letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9') || letter == '_',
                      "names are whole words");
        fail_unless(is_form(form), "a form is one of those above");
      });
}

}  // namespace ulpscope
