// Tensors as an adapter of PyTorch describes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ulpscope/recorder/call_recorder.h"
#include "ulpscope/recorder/ulpscope_aten.h"

namespace ulpscope::aten {

using Tensor = ulpscope_aten_tensor;

// The numbers of c10::ScalarType that have statistics, or are read as numbers.
enum class ScalarType : int32_t { u8 = 0, i8 = 1, i16 = 2, i32 = 3, i64 = 4, f16 = 5, f32 = 6, f64 = 7, boolean = 11, bf16 = 15 };

// The trace's type; nothing: values of this type have no statistics.
std::optional<DType> dtype_of(const Tensor& tensor);
// Whether its dimensions, those that lie behind each other as one, are as many as a view has at most.
bool is_foldable(const Tensor& tensor);
// The integer type of the trace that has as many bytes as integers or truth values take; nothing: it has none.
std::optional<DType> integer_type_of(const Tensor& tensor);
inline bool has_statistics(const Tensor& tensor) { return dtype_of(tensor).has_value() && is_foldable(tensor); }
inline bool is_readable(const Tensor& tensor) { return tensor.unreadable == nullptr && has_statistics(tensor); }
// In bytes; 0 where the type is none of ScalarType.
int64_t element_size(const Tensor& tensor);
int64_t count_of_elements(const Tensor& tensor);
inline std::span<const int64_t> shape_of(const Tensor& tensor) { return {tensor.shape, static_cast<size_t>(tensor.rank)}; }
inline std::span<const int64_t> strides_of(const Tensor& tensor) { return {tensor.strides, static_cast<size_t>(tensor.rank)}; }
bool have_one_shape(const Tensor& a, const Tensor& b);

// The bytes that a tensor spans in its memory, and whether its elements fill them.
struct Extent {
  uint64_t begin = 0, end = 0;
  bool is_dense = false;
};
Extent extent_of(const Tensor& tensor);

// The element at an index, as FP64; `data`: its tensor's memory on the host.
double element_at(const Tensor& tensor, const void* data, std::span<const int64_t> index);

// Memory that is used again, and is not cleared before.
class Room {
 public:
  std::byte* of(size_t bytes) {
    if (bytes > size_) *this = Room(bytes);
    return bytes_.get();
  }
  const std::byte* data() const { return bytes_.get(); }
  // Gives back what is large: copies of all weights of a large model are not to stay from step to step.
  void trim() {
    if (size_ > kStays) *this = Room();
  }
  Room() = default;

 private:
  static constexpr size_t kStays = size_t{1} << 20;
  explicit Room(size_t bytes) : bytes_(std::make_unique_for_overwrite<std::byte[]>(bytes)), size_(bytes) {}

  std::unique_ptr<std::byte[]> bytes_;
  size_t size_ = 0;
};

// A tensor's values, kept. Strides are its own where its elements fill the memory that it spans, else they lie one behind the
// other.
struct KeptTensor {
  Room room;
  std::vector<int64_t> shape, strides;
  DType dtype = DType::f32;

  void keep(const Tensor& tensor, const void* data);
  HostTensor view() const { return {room.data(), dtype, shape, strides}; }
};

// A tensor that is looked at later.
struct KeptDescription {
  explicit KeptDescription(const Tensor& described)
      : shape(shape_of(described).begin(), shape_of(described).end()),
        strides(strides_of(described).begin(), strides_of(described).end()),
        tensor(described) {}
  Tensor described() const {
    Tensor of = tensor;
    of.shape = shape.data();
    of.strides = strides.data();
    return of;
  }
  std::vector<int64_t> shape, strides;
  Tensor tensor;
};

// As the recorder takes it; `data`: its memory on the host. A copy from a device lies in the logical order.
HostTensor host_tensor(const Tensor& tensor, const void* data);
ulpscope_tensor told_tensor(const Tensor& tensor, const void* data);
ulpscope_tensor told_tensor(const HostTensor& tensor);

// Whether there are NaN among the values, and infinities.
struct Nonfinite {
  bool nan = false, infinity = false;
};
Nonfinite nonfinite_in(const HostTensor& tensor);
// The square of the Euclidean norm, summed in FP64.
double square_of_norm_of(const HostTensor& tensor);

}  // namespace ulpscope::aten
