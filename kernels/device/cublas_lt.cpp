#include "ulpscope/kernels/device/cublas_lt.h"

#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/kernels/device/used_products.h"

namespace ulpscope::device {
namespace {

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) throw failed_error("cuBLASLt: {}: {}", what, cublasLtGetStatusString(status));
}

// Descriptors by the functions that destroy them.
template <auto destroy>
struct Destroy {
  void operator()(auto* descriptor) const { destroy(descriptor); }
};
template <typename Descriptor, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Descriptor>, Destroy<destroy>>;
using Product = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

template <typename T>
void set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof(value)), "describing a product");
}
template <typename T>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
  check(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof(value)), "describing a matrix");
}
template <typename T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)), "asking for an algorithm");
}

template <typename T>
T get(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  size_t written = 0;
  check(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof(value), &written),
        "asking what an algorithm is");
  return value;
}

bool splits_sums(const cublasLtMatmulAlgo_t& algorithm) {
  return get<int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) > 1 ||
         get<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) != CUBLASLT_REDUCTION_SCHEME_NONE;
}
// "algorithm 66, tile 18, stages 36, cluster 5, inner shape 0, swizzling 0, option 0", by the library's numbers.
std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text =
      fmt::format("algorithm {}, tile {}, stages {}", get<int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_ID),
                  get<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID), get<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID));
#if CUBLAS_VERSION >= 111103  // of CUDA 11.8
  text += fmt::format(", cluster {}", get<uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
#endif
  return fmt::format(
      "{}, inner shape {}, swizzling {}, option {}", text, get<uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
      get<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING), get<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION));
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f8_e4m3:
      return CUDA_R_8F_E4M3;
    case DType::f8_e5m2:
      return CUDA_R_8F_E5M2;
    default:
      return CUDA_R_32F;
  }
}

Layout layout_of(cudaDataType_t type, int64_t rows, int64_t columns, int64_t column_stride, int64_t batches, int64_t batch_stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), column_stride),
        "describing a matrix");
  Layout owned(layout);
  set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batches));
  set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, batch_stride);
  return owned;
}

// Matrices of the library have columns whose elements follow each other: terms of a line, or lines of a term.
bool has_columns_of_lines(const GemmFactor& factor, int64_t lines, int64_t terms) {
  return (factor.term_stride == 1 || terms == 1) && (factor.line_stride >= terms || lines == 1);
}
int64_t column_stride(const GemmFactor& factor, int64_t lines, int64_t terms) {
  return has_columns_of_lines(factor, lines, terms) ? std::max(factor.line_stride, terms) : std::max(factor.term_stride, lines);
}
Layout layout_of(const GemmFactor& factor, int64_t lines, int64_t terms, int64_t batches) {
  const bool of_lines = has_columns_of_lines(factor, lines, terms);
  return layout_of(type_of(factor.dtype), of_lines ? terms : lines, of_lines ? lines : terms, column_stride(factor, lines, terms),
                   batches, factor.batch_stride);
}

// The largest power of two that the addresses of all columns are multiples of, of those that algorithms ask for.
uint32_t alignment_of(const void* data, DType dtype, int64_t column_stride, int64_t batch_stride) {
  const uintptr_t strides = static_cast<uintptr_t>(column_stride | batch_stride) * info(dtype).size;
  const uintptr_t places = reinterpret_cast<uintptr_t>(data) | strides;
  uint32_t alignment = 256;
  while (places % alignment != 0) alignment /= 2;
  return alignment;
}
uint32_t alignment_of(const GemmFactor& factor, int64_t lines, int64_t terms) {
  return alignment_of(factor.data, factor.dtype, column_stride(factor, lines, terms), factor.batch_stride);
}
uint32_t alignment_of_sums(const Gemm& gemm) {
  return alignment_of(gemm.sums, DType::f32, gemm.columns, gemm.batches > 1 ? gemm.rows * gemm.columns : 0);
}

// A product as the library is asked for it, whatever the addresses.
struct Plan {
  Product product;
  Layout a, b, sums;  // a: of the gemm's b, since its sums are row-major: the transpose of what the library computes
  cublasLtMatmulAlgo_t algorithm;
};

}  // namespace

struct CublasLt::State {
  cublasLtHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  UsedProducts products;
  std::vector<Plan> plans;  // of the products

  ~State() {
    if (handle != nullptr) cublasLtDestroy(handle);
  }
  void choose_algorithm(const Alignment& alignment, std::string_view text, Plan& plan) const;
  LibraryProduct add_plan(const Gemm& gemm, const Alignment& alignment);
};

CublasLt::CublasLt(CUstream_st* stream) : state_(std::make_unique<State>()) {
  state_->stream = stream;
  check(cublasLtCreate(&state_->handle), "starting the library");
}
CublasLt::CublasLt(CublasLt&&) noexcept = default;
CublasLt::~CublasLt() = default;

std::string CublasLt::version() const {
  const size_t version = cublasLtGetVersion();
  return fmt::format("cuBLASLt {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

const std::vector<LibraryProduct>& CublasLt::products() const { return state_->products.products(); }

// The first of those that the library recommends which splits no sum.
void CublasLt::State::choose_algorithm(const Alignment& alignment, std::string_view text, Plan& plan) const {
  cublasLtMatmulPreference_t made = nullptr;
  check(cublasLtMatmulPreferenceCreate(&made), "asking for an algorithm");
  const Preference preference(made);
  set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
  const auto [of_a, of_b, of_sums] = alignment;
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, of_b);
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, of_a);
  for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set(made, attribute, of_sums);
  constexpr int kAsked = 16;
  std::array<cublasLtMatmulHeuristicResult_t, kAsked> found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, plan.product.get(), plan.a.get(), plan.b.get(), plan.sums.get(), plan.sums.get(), made, kAsked, found.data(), &count);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "asking for an algorithm");
  const auto chosen = std::find_if(found.begin(), found.begin() + count, [](const cublasLtMatmulHeuristicResult_t& each) {
    return each.state == CUBLAS_STATUS_SUCCESS && !splits_sums(each.algo);
  });
  if (chosen == found.begin() + count)
    throw failed_error("cuBLASLt has no algorithm for a product of {}{}", text,
                       count > 0 ? fmt::format(" without split-k among the {} that it recommends", count) : "");
  plan.algorithm = chosen->algo;
}

LibraryProduct CublasLt::State::add_plan(const Gemm& gemm, const Alignment& alignment) {
  const auto [of_a, of_b, of_sums] = alignment;
  const std::string text =
      fmt::format("{}, sums aligned to {}",
                  describe_gemm(gemm, fmt::format(", aligned to {}", of_a), fmt::format(", aligned to {}", of_b)), of_sums);
  cublasLtMatmulDesc_t made = nullptr;
  check(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
  Plan plan{Product(made),
            layout_of(gemm.b, gemm.columns, gemm.terms, gemm.batches),
            layout_of(gemm.a, gemm.rows, gemm.terms, gemm.batches),
            layout_of(CUDA_R_32F, gemm.columns, gemm.rows, gemm.columns, gemm.batches, gemm.rows * gemm.columns),
            {}};
  set(made, CUBLASLT_MATMUL_DESC_TRANSA, has_columns_of_lines(gemm.b, gemm.columns, gemm.terms) ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(made, CUBLASLT_MATMUL_DESC_TRANSB, has_columns_of_lines(gemm.a, gemm.rows, gemm.terms) ? CUBLAS_OP_N : CUBLAS_OP_T);
  if (is_quantized(gemm.a.dtype)) set(made, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
  choose_algorithm(alignment, text, plan);
  std::string algorithm = text_of(plan.algorithm);
  plans.push_back(std::move(plan));
  return {text, std::move(algorithm)};
}

void CublasLt::multiply(const Gemm& gemm, void* workspace) {
  const Alignment alignment{alignment_of(gemm.a, gemm.rows, gemm.terms), alignment_of(gemm.b, gemm.columns, gemm.terms),
                            alignment_of_sums(gemm)};
  const Plan& plan = state_->plans[state_->products.use(gemm, alignment, [&] { return state_->add_plan(gemm, alignment); })];
  const float one = 1, kept = gemm.continues ? 1 : 0;
  check(cublasLtMatmul(state_->handle, plan.product.get(), &one, gemm.b.data, plan.a.get(), gemm.a.data, plan.b.get(), &kept,
                       gemm.sums, plan.sums.get(), gemm.sums, plan.sums.get(), &plan.algorithm, workspace, kWorkspaceBytes,
                       state_->stream),
        "multiplying");
}

}  // namespace ulpscope::device
