#include "ulpscope/kernels/cpu/gemm.h"

#include "ulpscope/base/hash.h"
#include "ulpscope/kernels/cpu/onednn.h"

namespace ulpscope::cpu {

uint64_t GemmShape::hash() const {
  uint64_t hash = (bias ? 2 : 0) + (accumulate ? 1 : 0);
  for (const int64_t value : {m, n, k, a.row, a.column, b.row, b.column, c_row})
    hash = hash_combine(hash, static_cast<uint64_t>(value));
  return hash;
}

struct Gemm::State {
  PlannedPrimitive primitive;
  size_t scratch_bytes = 0;
  bool bias = false;
};

Gemm::Gemm(const GemmShape& shape, int slots) : state_(std::make_unique<State>()) {
  planned("matrix product", [&] {
    const ThreadsForPlanning one(1);
    using dnnl::memory;
    const auto f32 = memory::data_type::f32;
    const memory::desc a({shape.m, shape.k}, f32, memory::dims{shape.a.row, shape.a.column});
    const memory::desc b({shape.k, shape.n}, f32, memory::dims{shape.b.row, shape.b.column});
    const memory::desc c({shape.m, shape.n}, f32, memory::dims{shape.c_row, 1});
    const memory::desc bias({1, shape.n}, f32, memory::dims{shape.n, 1});
    dnnl::primitive_attr attributes = user_scratchpad();
    if (shape.accumulate) {
      dnnl::post_ops add;
      add.append_sum(1.0f);
      attributes.set_post_ops(add);
    }
    const dnnl::matmul::desc description = shape.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    const dnnl::matmul::primitive_desc plan(description, attributes, onednn_engine());
    std::vector<PlannedPrimitive::Argument> arguments{
        {DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}, {DNNL_ARG_SCRATCHPAD, plan.scratchpad_desc()}};
    if (shape.bias) arguments.push_back({DNNL_ARG_BIAS, bias});
    state_->primitive = PlannedPrimitive(dnnl::matmul(plan), arguments, slots);
    state_->scratch_bytes = plan.scratchpad_desc().get_size();
  });
}

Gemm::~Gemm() = default;

size_t Gemm::scratch_bytes() const { return state_->scratch_bytes; }

void Gemm::run(int slot, const float* a, const float* b, const float* bias, float* c, void* scratch) const {
  state_->primitive.run(slot, {a, b, c, scratch, bias});
}

}  // namespace ulpscope::cpu
