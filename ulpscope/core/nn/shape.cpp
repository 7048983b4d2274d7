// Layers that change the shape and no value.
#include <functional>
#include <numeric>

#include "ulpscope/core/nn/layers.h"

namespace ulpscope {

namespace {

class Flatten : public Layer {
 public:
  explicit Flatten(const LayerArguments& a) : Layer(a) {
    set_output_shape({std::accumulate(a.input.begin(), a.input.end(), int64_t{1}, std::multiplies<>())});
  }

 private:
  Tensor forward(const Tensor& x, bool) override {
    const int64_t shape[] = {x.shape(0), -1};
    return reshape(x, shape);
  }
};

}  // namespace

std::vector<LayerType> shape_layers() { return {{"flatten", {}, make_layer<Flatten>}}; }

}  // namespace ulpscope
