#include "ulpscope/recorder/ulpscope_aten.h"

#include <algorithm>
#include <exception>
#include <memory>

#include "ulpscope/recorder/aten/tracker.h"

using namespace ulpscope;

struct ulpscope_aten {
  aten::Tracker tracker;
};

namespace {

// Runs `body` alone, with ops that it causes left out. A failure ends the recording.
template <typename Body>
void guarded(ulpscope_aten* aten, const Body& body) noexcept {
  aten::Tracker& tracker = aten->tracker;
  const std::lock_guard lock(tracker);
  ++tracker.state().muted;
  const ulpscope_aten_session& session = tracker.session();
  try {
    body(tracker);
  } catch (const std::exception& error) {
    session.failed(session.context, error.what());
  } catch (...) {
    session.failed(session.context, "an unknown error");
  }
  --tracker.state().muted;
}

template <typename Value>
std::span<const Value> span_of(const Value* values, uint32_t count) {
  return {values, count};
}

int entry_of(const std::map<std::string, uint64_t>& counts, uint32_t index, const char** kind, uint64_t* count) {
  if (index >= counts.size()) return 0;
  const auto at = std::next(counts.begin(), index);
  *kind = at->first.c_str();
  *count = at->second;
  return 1;
}

}  // namespace

uint32_t ulpscope_aten_interface() { return ULPSCOPE_ATEN_INTERFACE; }

int ulpscope_aten_open(const ulpscope_aten_adapter* adapter, const ulpscope_aten_session* session, const ulpscope_aten_calls* calls,
                       ulpscope_aten** aten) {
  if (adapter == nullptr || session == nullptr || aten == nullptr) return ULPSCOPE_REFUSED;
  try {
    *aten = new ulpscope_aten{{*adapter, *session, calls == nullptr ? ulpscope_aten_calls{} : *calls}};
    return ULPSCOPE_OK;
  } catch (...) {
    return ULPSCOPE_FAILED;
  }
}

void ulpscope_aten_close(ulpscope_aten* aten) { delete aten; }
ulpscope_aten_state* ulpscope_aten_state_of(ulpscope_aten* aten) { return &aten->tracker.state(); }
void ulpscope_aten_record(ulpscope_aten* aten, ulpscope_recorder* recorder) { aten->tracker.record(recorder); }
void ulpscope_aten_lock(ulpscope_aten* aten) { aten->tracker.lock(); }
int ulpscope_aten_try_lock(ulpscope_aten* aten) { return aten->tracker.try_lock(); }
void ulpscope_aten_unlock(ulpscope_aten* aten) { aten->tracker.unlock(); }

ulpscope_name ulpscope_aten_name(ulpscope_aten* aten, const char* text) {
  ulpscope_name name = 0;
  guarded(aten, [&](aten::Tracker& tracker) { name = tracker.name(text); });
  return name;
}

uint32_t ulpscope_aten_add_schema(ulpscope_aten* aten, const ulpscope_aten_schema* schema) {
  uint32_t number = 0;
  guarded(aten, [&](aten::Tracker& tracker) { number = tracker.add_schema(*schema); });
  return number;
}

void ulpscope_aten_name_parameter(ulpscope_aten* aten, uint64_t handle, ulpscope_name name, ulpscope_name module) {
  guarded(aten, [&](aten::Tracker& tracker) { tracker.name_parameter(handle, name, module); });
}

int ulpscope_aten_is_named(ulpscope_aten* aten, uint64_t handle) { return aten->tracker.is_named(handle); }
void ulpscope_aten_fail(ulpscope_aten* aten, const char* why) {
  guarded(aten, [&](aten::Tracker& tracker) { tracker.session().failed(tracker.session().context, why); });
}

void ulpscope_aten_before(ulpscope_aten* aten, const ulpscope_aten_op* op) {
  guarded(aten, [&](aten::Tracker& tracker) { tracker.before(*op); });
}
void ulpscope_aten_after(ulpscope_aten* aten, const ulpscope_aten_op* op) {
  guarded(aten, [&](aten::Tracker& tracker) { tracker.after(*op); });
}

void ulpscope_aten_begin_pass(ulpscope_aten* aten, int is_evaluation) {
  guarded(aten, [&](aten::Tracker& tracker) { tracker.begin_pass(is_evaluation != 0); });
}
void ulpscope_aten_end_step(ulpscope_aten* aten) {
  guarded(aten, [](aten::Tracker& tracker) { tracker.end_step(); });
}

void ulpscope_aten_forget(ulpscope_aten* aten) {
  guarded(aten, [](aten::Tracker& tracker) { tracker.forget_all(); });
}
void ulpscope_aten_settle(ulpscope_aten* aten) {
  guarded(aten, [](aten::Tracker& tracker) { tracker.settle_devices(); });
}
double ulpscope_aten_loss(ulpscope_aten* aten, uint32_t later) {
  double loss = 0;
  guarded(aten, [&](aten::Tracker& tracker) { loss = tracker.loss(later); });
  return loss;
}
uint64_t ulpscope_aten_waits(ulpscope_aten* aten) { return aten->tracker.measures().waits(); }
uint64_t ulpscope_aten_lost(ulpscope_aten* aten) { return aten->tracker.measures().lost(); }

void ulpscope_aten_begin_module(ulpscope_aten* aten, ulpscope_name name, int is_evaluating, int is_compiled, int64_t task) {
  guarded(aten, [&](aten::Tracker& tracker) { tracker.stack().push_back({name, is_evaluating != 0, is_compiled != 0, task}); });
}
int ulpscope_aten_begin_inner_module(ulpscope_aten* aten, ulpscope_name name, int is_compiled, int64_t task, int may_repeat) {
  int begun = ULPSCOPE_ATEN_OUTER;
  guarded(aten, [&](aten::Tracker& tracker) {
    auto& entries = tracker.stack();
    if (entries.empty()) return;
    const auto is_same = [&](const auto& entry) { return entry.name == name && entry.task == task; };
    if (may_repeat == 0 && std::any_of(entries.begin(), entries.end(), is_same)) {
      begun = ULPSCOPE_ATEN_REPEATED;
      return;
    }
    entries.push_back({name, entries.back().is_evaluating, is_compiled != 0, task});
    begun = ULPSCOPE_ATEN_INNER;
  });
  return begun;
}
void ulpscope_aten_leave_modules(ulpscope_aten* aten) {
  guarded(aten, [](aten::Tracker& tracker) { tracker.stack().clear(); });
}
void ulpscope_aten_end_module(ulpscope_aten* aten, ulpscope_name name) {
  guarded(aten, [&](aten::Tracker& tracker) {
    auto& entries = tracker.stack();
    // A module that raised left those inside of it behind.
    size_t depth = entries.size();
    while (depth > 0 && entries[depth - 1].name != name) --depth;
    if (depth > 0) entries.resize(depth - 1);
  });
}
int ulpscope_aten_depth(ulpscope_aten* aten) {
  int depth = 0;
  guarded(aten, [&](aten::Tracker& tracker) { depth = static_cast<int>(tracker.stack().size()); });
  return depth;
}

int ulpscope_aten_has_maker(ulpscope_aten* aten, const ulpscope_aten_tensor* tensor) {
  int has_maker = 0;
  guarded(aten, [&](aten::Tracker& tracker) { has_maker = tracker.has_maker(*tensor); });
  return has_maker;
}

void ulpscope_aten_source(ulpscope_aten* aten, const ulpscope_aten_tensor* tensor, int32_t role, ulpscope_name parameter,
                          ulpscope_name module, ulpscope_name name, int later) {
  guarded(aten, [&](aten::Tracker& tracker) {
    if (later)
      tracker.source_later(*tensor, parameter, module, name);
    else
      tracker.source(*tensor, static_cast<Role>(role), parameter, module, name);
  });
}

void ulpscope_aten_inputs(ulpscope_aten* aten, const ulpscope_aten_tensor* tensors, uint32_t count) {
  guarded(aten, [&](aten::Tracker& tracker) { tracker.inputs(span_of(tensors, count)); });
}

void ulpscope_aten_unsharded(ulpscope_aten* aten, const ulpscope_aten_tensor* tensor, const ulpscope_aten_tensor* part) {
  guarded(aten, [&](aten::Tracker& tracker) { tracker.unsharded(*tensor, *part); });
}

void ulpscope_aten_delivered(ulpscope_aten* aten, const ulpscope_aten_tensor* tensors, uint32_t count, uint32_t batch,
                             int64_t samples, int is_in_rows) {
  guarded(aten, [&](aten::Tracker& tracker) { tracker.delivered(span_of(tensors, count), batch, samples, is_in_rows != 0); });
}

int ulpscope_aten_begin_function(ulpscope_aten* aten, const char* name, int64_t sequence, int64_t task,
                                 const ulpscope_aten_tensor* inputs, uint32_t inputs_count) {
  bool is_of_step = false;
  guarded(aten, [&](aten::Tracker& tracker) {
    is_of_step = tracker.begin_function(name, sequence, task, span_of(inputs, inputs_count));
  });
  return is_of_step;
}
void ulpscope_aten_end_function(ulpscope_aten* aten) {
  guarded(aten, [](aten::Tracker& tracker) { tracker.end_function(); });
}

void ulpscope_aten_opaque(ulpscope_aten* aten, ulpscope_name module, ulpscope_name class_name, int64_t task,
                          const ulpscope_aten_tensor* inputs, uint32_t inputs_count, const ulpscope_aten_tensor* outputs,
                          const int64_t* nodes, const uint32_t* slots, uint32_t outputs_count) {
  guarded(aten, [&](aten::Tracker& tracker) {
    tracker.opaque(module, class_name, task, span_of(inputs, inputs_count), span_of(outputs, outputs_count), nodes, slots);
  });
}
int ulpscope_aten_is_opaque(ulpscope_aten* aten, const ulpscope_aten_tensor* outputs, uint32_t count) {
  bool is_opaque = false;
  guarded(aten, [&](aten::Tracker& tracker) { is_opaque = tracker.is_opaque(span_of(outputs, count)); });
  return is_opaque;
}

void ulpscope_aten_observe(ulpscope_aten* aten, ulpscope_name name, double scale, int64_t task,
                           const ulpscope_aten_tensor* tensor) {
  guarded(aten, [&](aten::Tracker& tracker) { tracker.observe(name, scale, task, *tensor); });
}

void ulpscope_aten_begin_backward(ulpscope_aten* aten, const ulpscope_aten_tensor* roots, uint32_t count, int takes_losses,
                                  ulpscope_aten_backward* backward) {
  guarded(aten, [&](aten::Tracker& tracker) { *backward = tracker.begin_backward(span_of(roots, count), takes_losses != 0); });
}

void ulpscope_aten_handed_on(ulpscope_aten* aten, int64_t node, const char* name, const ulpscope_aten_edge* edges,
                             const ulpscope_aten_tensor* gradients, uint32_t count, const ulpscope_aten_tensor* arrived,
                             uint32_t arrived_count) {
  guarded(aten, [&](aten::Tracker& tracker) {
    tracker.handed_on(node, name, span_of(edges, count), span_of(gradients, count), span_of(arrived, arrived_count));
  });
}
void ulpscope_aten_end_backward(ulpscope_aten* aten) {
  guarded(aten, [](aten::Tracker& tracker) { tracker.end_backward(); });
}

void ulpscope_aten_keep(ulpscope_aten* aten, const ulpscope_aten_tensor* pairs, uint32_t count, int changes_gradients) {
  guarded(aten, [&](aten::Tracker& tracker) { tracker.keep(span_of(pairs, 2 * count), changes_gradients != 0); });
}
void ulpscope_aten_updated(ulpscope_aten* aten, const ulpscope_aten_update* update, int is_skipped, double* before, double* after) {
  guarded(aten, [&](aten::Tracker& tracker) { tracker.updated(*update, is_skipped != 0, *before, *after); });
}
void ulpscope_aten_clear_norms(ulpscope_aten* aten) {
  guarded(aten, [](aten::Tracker& tracker) { tracker.clear_norms(); });
}

int ulpscope_aten_not_read(ulpscope_aten* aten, uint32_t index, const char** kind, uint64_t* count) {
  return entry_of(aten->tracker.not_read(), index, kind, count);
}
int ulpscope_aten_unmapped(ulpscope_aten* aten, uint32_t index, const char** kind, uint64_t* count) {
  return entry_of(aten->tracker.unmapped(), index, kind, count);
}
void ulpscope_aten_coverage_of(ulpscope_aten* aten, ulpscope_aten_coverage* coverage) {
  guarded(aten, [&](aten::Tracker& tracker) {
    const aten::Cost& cost = tracker.cost();
    *coverage = {tracker.calls(), cost.steps(), cost.seconds(), cost.recording()};
  });
}
