// Layers that change the shape of samples and no value.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "ulpscope/core/nn/layers.h"

namespace ulpscope {

namespace {

int64_t elements_of_sample(const SampleShape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

class Identity : public Layer {
 public:
  explicit Identity(const LayerArguments& a) : Layer(a) { set_output_shape(a.input); }

 private:
  Tensor forward(const Tensor& x, bool) override { return x; }
};

class Flatten : public Layer {
 public:
  explicit Flatten(const LayerArguments& a) : Layer(a) { set_output_shape({elements_of_sample(a.input)}); }

 private:
  Tensor forward(const Tensor& x, bool) override {
    const int64_t shape[] = {x.shape(0), -1};
    return reshape(x, shape);
  }
};

// The elements of a sample in another shape, of which one extent may be left to them.
class Reshape : public Layer {
 public:
  explicit Reshape(const LayerArguments& a) : Layer(a) {
    SampleShape shape = a.spec.integers("shape");
    if (std::count(shape.begin(), shape.end(), -1) > 1)
      throw usage_error("shape: expected at most one extent that is -1, found {}", describe_shape(shape));
    const auto open = std::find(shape.begin(), shape.end(), -1);
    const int64_t elements = elements_of_sample(a.input);
    double known = 1;  // a double, since hostile extents overflow integers
    for (const int64_t extent : shape) known *= extent == -1 ? 1.0 : static_cast<double>(extent);
    const bool left = open != shape.end() && known > 0 && std::fmod(static_cast<double>(elements), known) == 0;
    if (left) *open = elements / static_cast<int64_t>(known);
    const bool fits = left || (open == shape.end() && known == static_cast<double>(elements));
    if (!fits || shape.empty() || shape.size() >= kMaxRank)
      throw a.mismatch(fmt::format("a sample with the elements of {}", describe_shape(a.spec.integers("shape"))));
    set_output_shape(std::move(shape));
  }

 private:
  Tensor forward(const Tensor& x, bool) override {
    std::vector<int64_t> shape{x.shape(0)};
    shape.insert(shape.end(), output_shape().begin(), output_shape().end());
    return reshape(x, shape);
  }
};

// The dimensions of a sample in another order.
class Permute : public Layer {
 public:
  explicit Permute(const LayerArguments& a) : Layer(a) {
    const std::vector<int64_t>& order = a.spec.integers("order");
    std::vector<int64_t> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
      throw usage_error("order: expected each dimension once, found {} twice or more in {}", *twice, describe_shape(order));
    std::vector<int64_t> all(a.input.size());
    std::iota(all.begin(), all.end(), 0);
    if (sorted != all) throw a.mismatch(fmt::format("samples of the {} dimensions of order = {}", order.size(), order));
    SampleShape shape;
    order_.push_back(0);
    for (const int64_t dimension : order) {
      shape.push_back(a.input[static_cast<size_t>(dimension)]);
      order_.push_back(static_cast<int>(dimension) + 1);
    }
    set_output_shape(std::move(shape));
  }

 private:
  Tensor forward(const Tensor& x, bool) override { return permute(x, order_); }

  std::vector<int> order_;  // with the batch
};

}  // namespace

std::vector<LayerType> shape_layers() {
  return {{"flatten", {}, make_layer<Flatten>},
          {"reshape", {integer_list("shape", -1, "of a sample; one extent may be -1: what is left for it")}, make_layer<Reshape>},
          {"permute", {integer_list("order", 0, "the dimensions of a sample, from 0, in the new order")}, make_layer<Permute>},
          {"identity", {}, make_layer<Identity>}};
}

}  // namespace ulpscope
