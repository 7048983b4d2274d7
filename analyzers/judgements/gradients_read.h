// In which state optimizers read gradients: with the loss scale still in them, divided by one that they never had, or on top of
// those of steps that were over. Judged by the first steps that were taken, of the first rank.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ulpscope {

class RunFacts;

struct GradientsRead {
  // Updates of that step read gradients that nothing had divided by the loss scale.
  struct Scaled {
    uint64_t step = 0;
    double scale = 1;
    std::vector<uint32_t> gradients;
  };
  // Gradients were added to those of a step whose update had read them.
  struct Kept {
    uint64_t first_step = 0, steps = 0;
    std::vector<uint32_t> gradients;
  };
  // The scaler divided gradients by the scale of the step, and no loss that they are of had been multiplied by it.
  struct NeverScaled {
    uint64_t first_step = 0, steps = 0;
    double scale = 1;
    bool is_all = true;  // else others of the step had it
    std::vector<uint32_t> gradients;
  };
  uint64_t steps = 0;  // that were looked at
  std::optional<Scaled> scaled;
  std::optional<NeverScaled> never_scaled;
  std::optional<Kept> kept;
};
GradientsRead gradients_read(const RunFacts& facts);

}  // namespace ulpscope
