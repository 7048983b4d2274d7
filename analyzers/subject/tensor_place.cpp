#include "ulpscope/analyzers/subject/tensor_place.h"

#include <string>
#include <string_view>

#include "ulpscope/analyzers/subject/selection.h"
#include "ulpscope/analyzers/subject/tensor_names.h"

namespace ulpscope {

namespace {

constexpr Template kPlace{"place.tensor", "`{name}`"};
constexpr Template kPlaceAndWhat{"place.tensor_what", "`{name}` ({what})"};
constexpr Template kPlaceInPass{"place.tensor_pass", "`{name}` ({pass})"};
constexpr Template kPlaceAndWhatInPass{"place.tensor_what_pass", "`{name}` ({what}, {pass})"};

struct Parts {
  Name place;
  std::string what;  // "" where the place says it
};

// "add (FP32)" stands in brackets itself.
std::string without_brackets(std::string_view what) {
  std::string text;
  for (size_t i = 0; i < what.size(); ++i) {
    if (what[i] == '(' && text.ends_with(' ')) {
      text.pop_back();
      if (!text.empty()) text += ", ";
    } else if (what[i] != '(' && what[i] != ')') {
      text += what[i];
    }
  }
  return text;
}

Parts parts_of(const Selection& selection, uint32_t tensor) {
  const std::string& name = selection.name(tensor);
  const auto begins_with = [&](const std::string& part) {
    return !part.empty() && name.starts_with(part) && (name.size() == part.size() || name[part.size()] == ' ');
  };
  const std::string &parameter = selection.tensor(tensor).parameter, &module = selection.op(tensor).module;
  NameKind kind = begins_with(parameter) ? NameKind::parameter : begins_with(module) ? NameKind::module : NameKind::tensor;
  std::string place = kind == NameKind::parameter ? parameter : kind == NameKind::module ? module : name.substr(0, name.find(' '));
  // A gradient may be called after the module whose output it is of, and its op is in none.
  for (uint32_t i = 0; kind == NameKind::tensor && i < selection.size(); ++i)
    if (selection.op(i).module == place) kind = NameKind::module;
  // "first div" is one name: of the ops called so that are in no module, the first.
  if (kind == NameKind::tensor && is_ordinal(place)) place = name.substr(0, name.find(' ', place.size() + 1));
  std::string what = name.size() > place.size() ? without_brackets(std::string_view(name).substr(place.size() + 1)) : "";
  if (what == place) what.clear();
  return {{kind, place}, std::move(what)};
}

}  // namespace

Sentence tensor_place(const Selection& selection, uint32_t tensor) {
  const auto [place, what] = parts_of(selection, tensor);
  if (what.empty()) return kPlace({{"name", place}});
  return kPlaceAndWhat({{"name", place}, {"what", Name{NameKind::part, what}}});
}

Sentence tensor_place_in_pass(const Selection& selection, uint32_t tensor) {
  const Phase phase = selection.op(tensor).phase;
  if (selection.name_tells_phase(tensor) || phase == Phase::data) return tensor_place(selection, tensor);
  const auto [place, what] = parts_of(selection, tensor);
  const Name pass{NameKind::phase, std::string(name_of(phase))};
  if (what.empty()) return kPlaceInPass({{"name", place}, {"pass", pass}});
  return kPlaceAndWhatInPass({{"name", place}, {"what", Name{NameKind::part, what}}, {"pass", pass}});
}

}  // namespace ulpscope
