// Layers that turn indices into vectors, and that tell places apart.
#include "ulpscope/core/nn/layers.h"

namespace ulpscope {

namespace {

// Row i of the weight for index i; the weight begins as in PyTorch, standard normal.
class Embedding : public Layer {
 public:
  explicit Embedding(const LayerArguments& a) : Layer(a) {
    const int64_t rows = a.spec.integer("num_embeddings"), features = a.spec.integer("features");
    if (a.indices == 0) throw a.mismatch("indices, as text has them");
    if (rows < a.indices)
      throw usage_error("expected num_embeddings of at least {}, a row for each index of the data, got {}", a.indices, rows);
    add_parameter(weight_, "weight", {rows, features}, InitialValues::normal(1));
    SampleShape output = a.input;
    output.push_back(features);
    set_output_shape(std::move(output));
  }

 private:
  Tensor forward(const Tensor& x, bool) override { return embedding(weight_, x); }

  Tensor weight_;
};

// Adds a row of the weight, that of its place, to each vector of a sequence.
class PositionEmbedding : public Layer {
 public:
  explicit PositionEmbedding(const LayerArguments& a) : Layer(a) {
    if (a.input.size() != 2) throw a.mismatch("samples of [places, features]");
    add_parameter(weight_, "weight", a.input, InitialValues::normal(1));
    set_output_shape(a.input);
  }

 private:
  Tensor forward(const Tensor& x, bool) override { return add(x, weight_); }

  Tensor weight_;
};

}  // namespace

std::vector<LayerType> embedding_layers() {
  LayerType embedding{"embedding", {output_extent("num_embeddings"), output_extent("features")}, make_layer<Embedding>};
  embedding.takes_indices = true;
  return {std::move(embedding), {"position_embedding", {}, make_layer<PositionEmbedding>}};
}

}  // namespace ulpscope
