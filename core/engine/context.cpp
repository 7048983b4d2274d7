#include "ulpscope/core/engine/context.h"

#include "ulpscope/base/error.h"
#include "ulpscope/base/hash.h"

namespace ulpscope {

namespace {
Context* current = nullptr;
}

void Context::begin_step(uint64_t number) {
  step = number;
  begin_pass(0, 0);
}

void Context::begin_pass(uint32_t micro_batch_number, uint8_t loss_number) {
  micro_batch = micro_batch_number;
  loss_index = loss_number;
  counters.reset();
  records.begin_pass(backend != nullptr && backend->runs_behind());
}

Context& context() {
  if (current == nullptr) throw failed_error("no engine context: expected a ContextScope");
  return *current;
}

std::string in_module() {
  const std::string& module = *context().module;
  return module.empty() ? "" : " in module '" + module + "'";
}

ContextScope::ContextScope(Context& context) : previous_(current) { current = &context; }
ContextScope::~ContextScope() { current = previous_; }

ModuleScope::ModuleScope(const std::string* path) : previous_(context().module), previous_hash_(context().module_hash) {
  context().module = path;
  context().module_hash = path->empty() ? 0 : hash_text(*path);
}
ModuleScope::~ModuleScope() {
  context().module = previous_;
  context().module_hash = previous_hash_;
}

AutocastScope::AutocastScope(Autocast* autocast) : previous_(context().autocast) { context().autocast = autocast; }
AutocastScope::~AutocastScope() {
  if (context().autocast) context().autocast->clear_cache();
  context().autocast = previous_;
}

}  // namespace ulpscope
