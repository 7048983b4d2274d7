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

// Inputs w, g and one or two states; outputs w, the states in place, and the update d.
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
    const lanes::Updated<C> updated = rule.template operator()<C>(
        w, at<C>(call.inputs[1], i), states > 0 ? at<C>(call.inputs[2], i) : C{0}, states > 1 ? at<C>(call.inputs[3], i) : C{0});
    outputs[0][i] = updated.weight;
    if (states > 0) outputs[1][i] = updated.first;
    if (states > 1) outputs[2][i] = updated.second;
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

}  // namespace

std::vector<NamedKernel> training_kernels() {
  return {{"unscale", unscale<float>, unscale<double>, capture::elementwise},
          {"sgd_update", update<float, lanes::SgdUpdate>, update<double, lanes::SgdUpdate>, capture::elementwise},
          {"adam_update", update<float, lanes::AdamUpdate>, update<double, lanes::AdamUpdate>, capture::elementwise}};
}

}  // namespace ulpscope::plain
