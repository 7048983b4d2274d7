#include "ulpscope/core/engine/context.h"

#include <bit>

#include "ulpscope/base/error.h"
#include "ulpscope/base/hash.h"

namespace ulpscope {

namespace {
Context* current = nullptr;
}

CallCounters::CallCounters() : entries_(1024) {}

CallCounters::CallCounters(std::span<const Call> calls) : entries_(std::bit_ceil(2 * calls.size() + 16)) {
  for (size_t i = calls.size(); i > 0; --i) count_of(calls[i - 1].key) = calls[i - 1].count;  // the first call of a key counts
}

uint32_t CallCounters::next(uint64_t key) {
  const uint32_t count = count_of(key)++;
  if (noted_ != nullptr) noted_->push_back({key, count});
  return count;
}

CallCounters::Notes::~Notes() {
  if (outer_ != nullptr) outer_->insert(outer_->end(), counters_.noted_->begin(), counters_.noted_->end());
  counters_.noted_ = outer_;
}

uint32_t& CallCounters::count_of(uint64_t key) {
  if (2 * used_ > entries_.size()) grow();
  const size_t mask = entries_.size() - 1;
  for (size_t i = key & mask;; i = (i + 1) & mask) {
    Entry& entry = entries_[i];
    if (entry.generation == 0) {
      entry = {key, generation_, 0};
      ++used_;
      return entry.count;
    }
    if (entry.key != key) continue;
    if (entry.generation != generation_) entry = {key, generation_, 0};
    return entry.count;
  }
}

void CallCounters::grow() {
  std::vector<Entry> old(entries_.size() * 2);
  std::swap(old, entries_);
  const size_t mask = entries_.size() - 1;
  for (const Entry& entry : old) {
    if (entry.generation == 0) continue;
    size_t i = entry.key & mask;
    while (entries_[i].generation != 0) i = (i + 1) & mask;
    entries_[i] = entry;
  }
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
