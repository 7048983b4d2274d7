// Matrix products as tensor cores compute them: every element has the bits of dot() (tensor_core.h), at the speed of vectors.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ulpscope/base/parallel_for.h"
#include "ulpscope/emulation/tensor_core.h"

namespace ulpscope {

struct LaneGroups;

// Encodings in memory: 1 byte each for formats of up to 8 bits, 2 for up to 16, and 4 else, TF32 (as FP32) among them. Strides
// count elements.
struct EncodedMatrix {
  const void* data = nullptr;
  int64_t row_stride = 0, column_stride = 1;
};

// Where factors have them: one byte for each elements_of_scale(), along k.
struct MatrixScales {
  EncodedMatrix a;  // [m, scales of k]
  EncodedMatrix b;  // [scales of k, n]
};

// D = A B + C with a B that is prepared once. Rows of D do not depend on each other: threads may compute different ones at a time.
class TensorCoreProduct {
 public:
  // B is k x n. Nothing of it is needed after the constructor, which may prepare columns side by side. Throws a usage Error for a
  // negative extent, a null pointer to elements that there should be, and for scales that the instruction does not have.
  TensorCoreProduct(const TensorCore& core, const EncodedMatrix& b, int64_t k, int64_t n, const EncodedMatrix& b_scales = {},
                    const ParallelFor& parallel_for = serial_for);

  // The rows [first, last) of D, which is row-major and has rows of n encodings of 2 (fp16) or 4 bytes. A has k columns; C without
  // data is +0, and may be D. Throws as the constructor does.
  void compute(const EncodedMatrix& a, const EncodedMatrix& c, void* d, int64_t first, int64_t last,
               const EncodedMatrix& a_scales = {}) const;

 private:
  struct PackedRows;
  // Factors of models that add groups: a row, or kPanel columns side by side, after another, in the layout of LaneGroups.
  struct PackedGroups {
    void resize(size_t lines, int64_t positions);
    std::vector<int16_t> elements;
    std::vector<float> scales;
    std::vector<int32_t> exponents;
    std::vector<uint32_t> nonzero;
  };
  struct Factors;
  LaneGroups lane_groups(const PackedGroups& groups, int64_t line) const;
  void pack_panel(const EncodedMatrix& b, const EncodedMatrix& scales, int64_t panel);
  void pack_row(const EncodedMatrix& a, const EncodedMatrix& scales, int64_t row, PackedRows& rows, int64_t place) const;
  void pack_groups(const Factors& factors, int64_t first, int64_t count, int64_t lanes, PackedGroups& groups, int64_t place) const;
  void compute_panel(const PackedRows& rows, int64_t place, int count, int64_t panel, uint32_t* accumulators) const;
  int64_t element_at(int64_t position) const;

  TensorCore core_;
  int64_t k_, n_, positions_;
  // Panels of 16 columns, for each position of an instruction's order 16 numbers.
  // These two are not filled before the threads do, each its panels: else one of them takes the page faults of all.
  std::unique_ptr<float[]> significands_;
  std::unique_ptr<int32_t[]> exponents_;
  std::vector<std::vector<float>> specials_;  // of panels with NaN or Inf: the significands, and these
  PackedGroups groups_;                       // instead
};

// All of D, m x n, on this thread.
void multiply(const TensorCore& core, const EncodedMatrix& a, const EncodedMatrix& b, const EncodedMatrix& c, void* d, int64_t m,
              int64_t n, int64_t k, const MatrixScales& scales = {});

}  // namespace ulpscope
