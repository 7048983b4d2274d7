// Names of a trace's things as sentences have them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "ulpscope/analyzers/report/sentence.h"
#include "ulpscope/analyzers/subject/selection.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/format.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {

// The trace's path, as a shell takes it.
inline Name trace_name(const Snapshot& trace) { return {NameKind::file, shell_word(trace.path())}; }
inline Name tensor_name(const Selection& selection, uint32_t tensor) { return {NameKind::tensor, selection.name(tensor)}; }
// A weight's parameter; the tensor, where it is none.
inline Name parameter_name(const Selection& selection, uint32_t tensor) {
  return {NameKind::parameter, selection.parameter_name(tensor)};
}
inline Name format_name(const FloatFormat& format) { return {NameKind::format, upper_case(format.name)}; }

// The formats of tensors in floating point, each once, by their names.
class FormatNames {
 public:
  void add(DType dtype) {
    const Name name = format_name(*info(dtype).format);
    names_.emplace(name.text, name);
  }
  Value list() const {
    Value::List names;
    for (const auto& [unused, name] : names_) names.push_back(name);
    return Value::list(std::move(names));
  }

 private:
  std::map<std::string, Name> names_;
};

}  // namespace ulpscope
