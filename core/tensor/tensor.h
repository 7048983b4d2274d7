// Tensors: strided views of reference-counted storage. Copying a Tensor shares its elements. Nothing here computes: values are made
// by dispatch() alone, but for host data that enters through from_host().
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulpscope/kernels/backend.h"
#include "ulpscope/kernels/op_call.h"
#include "ulpscope/kernels/view.h"

namespace ulpscope {

// What the tape hangs on a tensor (engine/tape.h).
class GraphNode {
 public:
  virtual ~GraphNode() = default;
  int references = 0;
};

// Counts references without atomics: tensors belong to the one engine thread.
template <typename T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* pointer) : pointer_(pointer) { retain(); }
  Ref(const Ref& other) : pointer_(other.pointer_) { retain(); }
  Ref(Ref&& other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(pointer_, other.pointer_);
    return *this;
  }
  ~Ref() {
    if (pointer_ && --pointer_->references == 0) delete pointer_;
  }
  T* get() const { return pointer_; }
  T* operator->() const { return pointer_; }
  T& operator*() const { return *pointer_; }
  explicit operator bool() const { return pointer_ != nullptr; }

 private:
  void retain() {
    if (pointer_) ++pointer_->references;
  }
  T* pointer_ = nullptr;
};

class Storage;

// Sees a storage die without keeping it alive. Where somebody keeps what it held, the watch takes the memory over then, as it is.
class StorageWatch {
 public:
  explicit StorageWatch(const Storage& storage) : storage_(&storage) {}
  ~StorageWatch() { release(); }
  StorageWatch(const StorageWatch&) = delete;

  // Whether the memory holds what it held at that version of the storage.
  bool holds(uint32_t version) const;
  // Once for each that keeps it.
  void keep() { ++keepers_; }
  void let_go();

  int references = 0;

 private:
  friend class Storage;
  void release();

  const Storage* storage_;  // nullptr once it is gone
  int keepers_ = 0;
  // What was taken over, and from whom; none: no memory.
  Backend* backend_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
  uint32_t version_ = 0;
};

// Memory of one backend. The backend outlives it.
class Storage {
 public:
  Storage(Backend& backend, size_t bytes);
  ~Storage();
  Storage(const Storage&) = delete;

  Backend& backend() const { return backend_; }
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  uint64_t serial() const { return serial_; }  // never reused
  const Ref<StorageWatch>& watch();
  uint32_t version = 0;  // raised by every in-place op
  int references = 0;

 private:
  Backend& backend_;
  void* data_;
  size_t bytes_;
  uint64_t serial_;
  Ref<StorageWatch> watch_;  // made when it is first asked for
};

struct TensorBody;

class Tensor {
 public:
  Tensor() = default;

  bool defined() const { return static_cast<bool>(body_); }
  explicit operator bool() const { return defined(); }

  DType dtype() const;
  int rank() const;
  std::span<const int64_t> shape() const;
  int64_t shape(int dimension) const;  // negative counts from the end
  int64_t size() const;                // number of elements
  bool is_contiguous() const;
  const TensorView& view() const;  // the address is current
  Storage& storage() const;
  std::string describe() const;  // "f32 [64, 10]"

  // Gradients. A leaf that requires a gradient gets it added to grad() by backward().
  bool requires_grad() const;
  Tensor& set_requires_grad(bool value);
  bool is_leaf() const;  // no op on the tape made it
  const Tensor& grad() const;
  void set_grad(Tensor grad);
  Tensor detach() const;  // the same elements, off the tape

  TensorBody* body() const { return body_.get(); }
  explicit Tensor(TensorBody* body) : body_(body) {}
  bool same_as(const Tensor& other) const { return body_.get() == other.body_.get(); }

 private:
  Ref<TensorBody> body_;
};

// What a Tensor refers to. The engine fills in the fields below the view.
struct TensorBody {
  int references = 0;
  Ref<Storage> storage;
  TensorView view;

  bool requires_grad = false;
  Tensor grad;
  Ref<GraphNode> node;  // the tape's node that made it, and which of its outputs it is
  int node_slot = 0;

  ValueKey value;           // the op output that it is, a view of it included
  double loss_scale = 1.0;  // the loss scale that the values contain
  // Autocast gives it the lower precision, or would if it were on. Of a gradient: it is rounded to that, at once or by the cast
  // that hands it on.
  bool lowered = false;
  // An op that autocast keeps in FP32 made it, through any number of ops whose type is inferred (AutocastClass::inferred).
  bool kept_fp32 = false;
  // The name of the parameter that it is, or is cast from, and the module that this belongs to; interned, or nullptr.
  const std::string* parameter = nullptr;
  const std::string* module = nullptr;
};

// Memory layouts of a new tensor.
enum class Layout : uint8_t {
  contiguous,
  channels_last,  // rank 4 only: NCHW shape, C fastest in memory
};

// A tensor with undefined elements.
Tensor empty(Backend& backend, DType dtype, std::span<const int64_t> shape, Layout layout = Layout::contiguous);
// A tensor with the elements of `values` in row-major order, rounded to `dtype` (f64, f32, and the integer types).
Tensor from_host(Backend& backend, DType dtype, std::span<const int64_t> shape, std::span<const float> values,
                 Layout layout = Layout::contiguous);
Tensor from_host(Backend& backend, DType dtype, std::span<const int64_t> shape, std::span<const double> values,
                 Layout layout = Layout::contiguous);
Tensor from_host(Backend& backend, std::span<const int64_t> shape, std::span<const int64_t> labels);
// What a tensor's memory holds, for the host: where the backend has it no other way, a copy. Waits for what was submitted before.
class HostView {
 public:
  explicit HostView(const Tensor& tensor);
  HostView(const HostView&) = delete;

  const TensorView& view() const { return view_; }
  // In memory order, of a dense tensor. Throws a usage Error for another.
  std::span<const std::byte> bytes() const;

 private:
  TensorView view_;
  std::vector<std::byte> copy_;
};

// All elements in row-major order. For tests, checkpoints and reports: a training step reads scalars through read_scalars
// (engine/dispatch.h). Waits, as HostView does.
std::vector<double> to_host(const Tensor& tensor);
// Overwrites the stored bytes of a dense tensor, in memory order: as many as it has. Throws a usage Error otherwise.
void set_stored_bytes(const Tensor& tensor, std::span<const std::byte> bytes);

// The same elements seen in another shape, from the one at `offset` on. `strides` and `offset` in elements; no checks.
Tensor make_view(const Tensor& tensor, std::span<const int64_t> shape, std::span<const int64_t> strides, int64_t offset = 0);

// One copy of each distinct text, never freed: parameter names and module paths.
const std::string* intern(std::string_view text);

std::string describe_shape(std::span<const int64_t> shape);  // "[64, 10]"

}  // namespace ulpscope
