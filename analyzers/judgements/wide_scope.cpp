#include "ulpscope/analyzers/judgements/wide_scope.h"

#include <algorithm>
#include <set>
#include <vector>

#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope {

namespace {

constexpr Template kKeepOrBf16{"advice.keep_modules_wide",
                               "Keep `{modules}` in FP32{setting:brackets}, or train in BF16{precision:brackets}."};
constexpr Template kTrainWide{"advice.train_wide", "Train in BF16 or FP32{precision:brackets}."};
constexpr Template kCastBefore{
    "advice.cast_before", "Cast what `{op}` reads to FP32: the program itself makes it {format}, whatever the run's precision is."};
constexpr Template kLeaveCastOut{
    "advice.leave_cast_out", "Scale the values before they are cast to {format}, or leave that cast out: the run itself is FP32."};
constexpr Template kKeepModule{"advice.keep_module_in_fp32", "Keep `{module}` in FP32{setting:brackets}"};
constexpr Template kTrainInFp32{"advice.train_in_fp32", "Train in FP32{precision:brackets}"};
constexpr Template kOrKeepModule{"advice.or_keep_module_in_fp32", ", or keep `{module}` in FP32{setting:brackets}"};
constexpr Template kOrTrainInFp32{"advice.or_train_in_fp32", ", or train in FP32{precision:brackets}"};

// However large that input is, the result is not; or it is the loss, which hands nothing on.
bool bounds(const OpInfo& op, uint32_t input) {
  const bool is_bounded = has_trait(op.function, kBounded) && attribute(op, "training") != 0.0;
  return op.kind == OpKind::loss || is_bounded || reads_as(op.function, input, Meaning::divisor);
}

// Of all ops that hand the value on, those whose results are narrow.
std::set<std::string> narrow_modules(const RunFacts& facts, uint32_t tensor) {
  const std::vector<OpInfo>& ops = facts.context.trace.ops();
  const uint32_t first = facts.selection.tensor(tensor).op;
  const bool is_evaluation = ops[first].phase == Phase::evaluation;
  std::set<std::string> modules;
  std::set<uint32_t> seen{first};
  std::vector<uint32_t> open{first};
  while (!open.empty()) {
    const uint32_t op = open.back();
    open.pop_back();
    const auto made = facts.context.graph.made_by(op);
    if (std::any_of(made.begin(), made.end(), [&](uint32_t i) { return is_narrow(facts.selection.tensor(i).dtype); }))
      modules.insert(ops[op].module);
    for (const GraphEdge& edge : facts.context.trace.graph().uses(op)) {
      const OpInfo& consumer = ops[edge.consumer];
      const bool is_of_pass = computes_forward(consumer.phase) && (consumer.phase == Phase::evaluation) == is_evaluation;
      if (is_of_pass && !bounds(consumer, edge.input) && seen.insert(edge.consumer).second) open.push_back(edge.consumer);
    }
  }
  return modules;
}

// The path that all of them have in common, in whole parts: "stack" of "stack.2.block" and "stack.3.block.inner".
std::string common_path(const std::set<std::string>& modules) {
  // Of names in order the first and the last have the least in common.
  const std::string &first = *modules.begin(), &last = *modules.rbegin();
  const auto end = static_cast<size_t>(std::mismatch(first.begin(), first.end(), last.begin(), last.end()).first - first.begin());
  const auto is_whole = [end](const std::string& name) { return name.size() == end || name[end] == '.'; };
  if (is_whole(first) && is_whole(last)) return first.substr(0, end);
  const size_t dot = end == 0 ? std::string::npos : first.rfind('.', end - 1);
  return dot == std::string::npos ? "" : first.substr(0, dot);
}

}  // namespace

std::string modules_to_widen(const RunFacts& facts, uint32_t tensor) {
  if (!facts.precision().casts_weights) return "";
  const std::set<std::string> modules = narrow_modules(facts, tensor);
  if (modules.empty() || modules.contains("")) return "";
  if (modules.size() == 1) return *modules.begin();
  const std::string path = common_path(modules);
  if (path.empty()) return "";
  return path + (modules.contains(path) ? "*" : ".*");
}

Advice widen(const RunFacts& facts, uint32_t tensor) {
  const SettingNames& settings = facts.context.settings;
  const std::string modules = modules_to_widen(facts, tensor);
  Advice advice;
  const auto train_in = [&](std::string_view type) { advice.note({.kind = SettingKind::precision, .value = std::string(type)}); };
  const TensorInfo& made = facts.selection.tensor(tensor);
  if (modules.empty() && facts.context.trace.run().precision == "fp32" && !facts.precision().casts_weights) {
    const Value format = format_name(*info(made.dtype).format);
    if (facts.selection.op(tensor).kind == OpKind::cast) {
      advice.text = kLeaveCastOut({{"format", format}});
      return advice;
    }
    advice.text = kCastBefore(
        {{"op", Name{NameKind::op, facts.selection.op(tensor).name}}, {"format", format_name(*info(made.dtype).format)}});
    return advice;
  }
  if (modules.empty()) {
    train_in(settings.words().bf16);
    train_in(settings.words().fp32);
    advice.text = kTrainWide({{"precision", settings.now(SettingKind::precision)}});
    return advice;
  }
  const Setting setting = advice.set(settings.of_modules(modules), std::string(settings.words().fp32), modules);
  train_in(settings.words().bf16);
  advice.text = kKeepOrBf16(
      {{"modules", Name{NameKind::module, modules}}, {"setting", setting}, {"precision", settings.now(SettingKind::precision)}});
  return advice;
}

Sentence keep_in_fp32(const RunFacts& facts, uint32_t tensor, Clause clause, Advice& advice) {
  const SettingNames& settings = facts.context.settings;
  const std::string& module = facts.selection.op(tensor).module;
  const std::string fp32(settings.words().fp32);
  const bool begins = clause == Clause::first;
  if (module.empty() || !facts.precision().casts_weights) {
    advice.note({.kind = SettingKind::precision, .value = fp32});
    return (begins ? kTrainInFp32 : kOrTrainInFp32)({{"precision", settings.now(SettingKind::precision)}});
  }
  const Setting setting = advice.set(settings.of_modules(module), fp32, module);
  return (begins ? kKeepModule : kOrKeepModule)({{"module", Name{NameKind::module, module}}, {"setting", setting}});
}

}  // namespace ulpscope
