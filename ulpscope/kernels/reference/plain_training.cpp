#include <cmath>

#include "ulpscope/kernels/reference/plain_access.h"
#include "ulpscope/kernels/updates.h"

namespace ulpscope::plain {
namespace {

template <typename C>
void unscale(const OpCall& call) {
  const C factor = static_cast<C>(call.attribute("inverse_scale"));
  bool nonfinite = false;
  Output<C> out(call, 0);
  for (int64_t i = 0; i < call.outputs[0].size(); ++i) {
    const C g = at<C>(call.inputs[0], i);
    nonfinite |= !std::isfinite(g);
    out[i] = g * factor;
  }
  out.store();
  if (nonfinite) *call.outputs[1].as<float>() = 1;
  record_stored(call, 1);
}

// Inputs w, g and the states; outputs w, the states in place, and the update d.
template <typename C, typename Update>
void update(const OpCall& call) {
  const Update rule(*call.attributes);
  const auto states = static_cast<int>(call.inputs.size()) - 2;
  const int update_slot = states + 1;
  std::vector<Output<C>> outputs;
  for (int slot = 0; slot <= update_slot; ++slot) outputs.emplace_back(call, slot);
  std::vector<C> old_weights, shares;
  const int64_t size = call.outputs[0].size();
  for (int64_t i = 0; i < size; ++i) {
    const C w = at<C>(call.inputs[0], i);
    C old[Update::kStates] = {};
    for (int k = 0; k < states; ++k) old[k] = at<C>(call.inputs[k + 2], i);
    const auto updated = rule.template operator()<C>(w, at<C>(call.inputs[1], i), old);
    outputs[0][i] = updated.weight;
    for (int k = 0; k < states; ++k) outputs[k + 1][i] = updated.state[k];
    outputs[update_slot][i] = updated.update;
    old_weights.push_back(w);
    shares.push_back(updated.gradient_share);
  }
  for (int slot = 0; slot < update_slot; ++slot) outputs[slot].store();
  OutputRecord* record = wanted_record(call, update_slot);
  if (record == nullptr && call.outputs[update_slot].data == nullptr) return;
  outputs[update_slot].store();
  if (record == nullptr) return;
  record->update = {};
  for (int64_t i = 0; i < size; ++i) {
    if (outputs[update_slot][i] == 0) continue;
    const bool lost = at<C>(call.outputs[0], i) == old_weights[i];
    ++record->update.nonzero;
    record->update.lost += lost;
    record->update.lost_to_decay += lost && shares[i] == 0;
  }
  record->update_known = true;
}

template <class... U>
void add_updates(lanes::UpdateList<U...>, std::vector<NamedKernel>& kernels) {
  (kernels.push_back({U::kName, update<float, U>, update<double, U>, capture::elementwise}), ...);
}

}  // namespace

std::vector<NamedKernel> training_kernels() {
  std::vector<NamedKernel> kernels{{"unscale", unscale<float>, unscale<double>, capture::elementwise}};
  add_updates(lanes::Updates{}, kernels);
  return kernels;
}

}  // namespace ulpscope::plain
