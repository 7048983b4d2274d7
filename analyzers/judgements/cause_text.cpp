#include "ulpscope/analyzers/judgements/cause_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/subject/sentence_names.h"

namespace ulpscope {

namespace {

constexpr Template kAtIndices{"cause.at_indices", "Element [{indices:commas}]: "};
constexpr Template kAtNumber{"cause.at_number", "Element {number}: "};
constexpr Template kOnlyElement{"cause.only_element", "Its only element: "};
constexpr Template kIndices{"cause.element_by_indices", "element [{indices:commas}]"};
constexpr Template kNumber{"cause.element_by_number", "element {number}"};
constexpr Template kExceeds{"cause.exceeds", "exceeds {largest} ({format} max)"};
constexpr Template kIsBelow{"cause.is_below", "is below {least} ({format} min)"};

// Of an element in its tensor; nothing where its shape is not known to hold it.
Value::List indices_of(const CaptureRow& element) {
  std::vector<int64_t> indices;
  int64_t rest = element.element;
  for (size_t i = element.shape.size(); i-- > 0;) {
    if (element.shape[i] <= 0) return {};
    indices.push_back(rest % element.shape[i]);
    rest /= element.shape[i];
  }
  if (rest != 0 || element.element < 0) return {};
  Value::List values;
  for (size_t i = indices.size(); i-- > 0;) values.push_back(ordinal(indices[i]));
  return values;
}

}  // namespace

Sentence at_element(const CaptureRow& element) {
  const auto is_one = [](int64_t extent) { return extent == 1; };
  if (!element.shape.empty() && std::all_of(element.shape.begin(), element.shape.end(), is_one)) return kOnlyElement();
  Value::List indices = indices_of(element);
  return indices.empty() ? kAtNumber({{"number", ordinal(element.element)}})
                         : kAtIndices({{"indices", Value::list(std::move(indices))}});
}

Sentence element_name(const CaptureRow& element) {
  Value::List indices = indices_of(element);
  return indices.empty() ? kNumber({{"number", ordinal(element.element)}})
                         : kIndices({{"indices", Value::list(std::move(indices))}});
}

Sentence too_large(double value, const FloatFormat& format) {
  if (value < 0) return kIsBelow({{"least", -format.largest_finite()}, {"format", format_name(format)}});
  return kExceeds({{"largest", format.largest_finite()}, {"format", format_name(format)}});
}

}  // namespace ulpscope
