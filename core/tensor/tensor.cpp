#include "ulpscope/core/tensor/tensor.h"

#include <fmt/format.h>

#include <cstring>
#include <set>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/narrow_format.h"

namespace ulpscope {

namespace {

uint64_t next_serial() {
  static uint64_t serial = 0;
  return ++serial;
}

void write_element(const TensorView& view, int64_t offset, double value) {
  switch (view.dtype) {
    case DType::f64:
      view.as<double>()[offset] = value;
      break;
    case DType::f32:
      view.as<float>()[offset] = static_cast<float>(value);
      break;
    case DType::f16:
    case DType::bf16:
    case DType::f8_e4m3:
    case DType::f8_e5m2:
      narrow_format(*info(view.dtype).format).round_at(value, view.data, offset);
      break;
    case DType::i64:
      view.as<int64_t>()[offset] = static_cast<int64_t>(value);
      break;
    case DType::i32:
      view.as<int32_t>()[offset] = static_cast<int32_t>(value);
      break;
    case DType::u8:
      view.as<uint8_t>()[offset] = static_cast<uint8_t>(value);
      break;
    case DType::boolean:
      view.as<uint8_t>()[offset] = value != 0;
      break;
  }
}

// How many bytes lie from the first element of the view to its last.
size_t extent_of(const TensorView& view) {
  if (view.size() == 0) return 0;
  int64_t last = 0;
  for (int i = 0; i < view.rank; ++i) last += (view.shape[i] - 1) * view.strides[i];
  return static_cast<size_t>(last + 1) * info(view.dtype).size;
}

template <typename T>
Tensor copy_from_host(Backend& backend, DType dtype, std::span<const int64_t> shape, std::span<const T> values, Layout layout) {
  Tensor tensor = empty(backend, dtype, shape, layout);
  TensorView view = tensor.view();
  if (static_cast<int64_t>(values.size()) != view.size())
    throw usage_error("tensor: shape {} needs {} values, {} came", describe_shape(shape), view.size(), values.size());
  void* const device = view.data;
  const size_t size = extent_of(view);
  if (std::is_same_v<T, float> && dtype == DType::f32 && tensor.is_contiguous()) {
    backend.copy_from_host(values.data(), device, size);
    return tensor;
  }
  std::vector<std::byte> stored(size);
  view.data = stored.data();
  if (std::is_same_v<T, float> && dtype == DType::f32 && view.rank == 4) {
    // A batch of images on its way to channels-last.
    const int64_t images = view.shape[0], channels = view.shape[1], pixels = view.shape[2] * view.shape[3];
    auto* out = view.as<float>();
    for (int64_t n = 0; n < images; ++n)
      for (int64_t c = 0; c < channels; ++c)
        for (int64_t p = 0; p < pixels; ++p)
          out[(n * pixels + p) * channels + c] = static_cast<float>(values[static_cast<size_t>((n * channels + c) * pixels + p)]);
  } else {
    for (int64_t i = 0; i < view.size(); ++i) write_element(view, offset_of(view, i), static_cast<double>(values[i]));
  }
  backend.copy_from_host(stored.data(), device, size);
  return tensor;
}

}  // namespace

Storage::Storage(Backend& backend, size_t bytes)
    : backend_(backend), data_(backend.allocate(bytes)), bytes_(bytes), serial_(next_serial()) {}

bool StorageWatch::holds(uint32_t version) const {
  return storage_ != nullptr ? storage_->version == version : backend_ != nullptr && version_ == version;
}

void StorageWatch::let_go() {
  if (--keepers_ == 0) release();
}

void StorageWatch::release() {
  if (backend_ != nullptr) backend_->release(data_, bytes_);
  backend_ = nullptr;
}

Storage::~Storage() {
  if (!watch_ || watch_->keepers_ == 0) {
    backend_.release(data_, bytes_);
  } else {
    watch_->backend_ = &backend_;
    watch_->data_ = data_;
    watch_->bytes_ = bytes_;
    watch_->version_ = version;
  }
  if (watch_) watch_->storage_ = nullptr;
}

const Ref<StorageWatch>& Storage::watch() {
  if (!watch_) watch_ = Ref<StorageWatch>(new StorageWatch(*this));
  return watch_;
}

DType Tensor::dtype() const { return body_->view.dtype; }
int Tensor::rank() const { return body_->view.rank; }
std::span<const int64_t> Tensor::shape() const { return {body_->view.shape.data(), static_cast<size_t>(body_->view.rank)}; }
int64_t Tensor::shape(int dimension) const { return body_->view.shape[dimension < 0 ? dimension + rank() : dimension]; }
int64_t Tensor::size() const { return body_->view.size(); }
bool Tensor::is_contiguous() const { return ulpscope::is_contiguous(body_->view); }
const TensorView& Tensor::view() const { return body_->view; }
Storage& Tensor::storage() const { return *body_->storage; }
std::string Tensor::describe() const {
  return defined() ? fmt::format("{} {}", info(dtype()).name, describe_shape(shape())) : "undefined";
}

bool Tensor::requires_grad() const { return body_->requires_grad; }
Tensor& Tensor::set_requires_grad(bool value) {
  if (value && !is_float(dtype())) throw usage_error("requires_grad: expected a floating-point tensor, got {}", describe());
  body_->requires_grad = value;
  return *this;
}
bool Tensor::is_leaf() const { return !body_->node; }
const Tensor& Tensor::grad() const { return body_->grad; }
void Tensor::set_grad(Tensor grad) { body_->grad = std::move(grad); }

Tensor Tensor::detach() const {
  auto* body = new TensorBody(*body_);
  body->references = 0;  // the copy's own count
  Tensor result(body);
  result.body_->requires_grad = false;
  result.body_->grad = Tensor();
  result.body_->node = Ref<GraphNode>();
  return result;
}

Tensor empty(Backend& backend, DType dtype, std::span<const int64_t> shape, Layout layout) {
  if (shape.size() > static_cast<size_t>(kMaxRank))
    throw usage_error("tensor: expected at most {} dimensions, got {}", kMaxRank, describe_shape(shape));
  auto* body = new TensorBody;
  Tensor tensor(body);
  TensorView& view = body->view;
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  int64_t count = 1;
  for (int i = 0; i < view.rank; ++i) {
    if (shape[i] < 0 || __builtin_mul_overflow(count, std::max<int64_t>(shape[i], 1), &count))
      throw usage_error("tensor: shape {} is not valid", describe_shape(shape));
    view.shape[i] = shape[i];
  }
  if (layout == Layout::channels_last && view.rank == 4) {
    view.strides = {view.shape[1] * view.shape[2] * view.shape[3], 1, view.shape[1] * view.shape[3], view.shape[1]};
  } else {
    int64_t stride = 1;
    for (int i = view.rank - 1; i >= 0; --i) {
      view.strides[i] = stride;
      stride *= view.shape[i];
    }
  }
  body->storage = Ref<Storage>(new Storage(backend, static_cast<size_t>(view.size()) * info(dtype).size));
  view.data = body->storage->data();
  return tensor;
}

Tensor from_host(Backend& backend, DType dtype, std::span<const int64_t> shape, std::span<const float> values, Layout layout) {
  return copy_from_host(backend, dtype, shape, values, layout);
}

Tensor from_host(Backend& backend, DType dtype, std::span<const int64_t> shape, std::span<const double> values, Layout layout) {
  return copy_from_host(backend, dtype, shape, values, layout);
}

Tensor from_host(Backend& backend, std::span<const int64_t> shape, std::span<const int64_t> labels) {
  return copy_from_host(backend, DType::i64, shape, labels, Layout::contiguous);
}

HostView::HostView(const Tensor& tensor) : view_(tensor.view()) {
  if (view_.data == nullptr) return;
  Backend& backend = tensor.storage().backend();
  backend.complete();
  if (const void* address = backend.host_address(view_.data)) {
    view_.data = const_cast<void*>(address);  // which is read only
    return;
  }
  copy_.resize(extent_of(view_));
  backend.copy_to_host(view_.data, copy_.data(), copy_.size());
  view_.data = copy_.data();
}

std::span<const std::byte> HostView::bytes() const {
  if (!is_dense(view_))
    throw usage_error("stored bytes: expected a dense tensor, got {} {}", info(view_.dtype).name,
                      describe_shape({view_.shape.data(), static_cast<size_t>(view_.rank)}));
  return {view_.as<const std::byte>(), extent_of(view_)};
}

std::vector<double> to_host(const Tensor& tensor) {
  const HostView host(tensor);
  std::vector<double> values(static_cast<size_t>(tensor.size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = read_element(host.view(), static_cast<int64_t>(i));
  return values;
}

void set_stored_bytes(const Tensor& tensor, std::span<const std::byte> bytes) {
  const TensorView& view = tensor.view();
  if (!is_dense(view) || bytes.size() != extent_of(view))
    throw usage_error("stored bytes: expected those of a dense tensor, got {} for {}",
                      count_of(static_cast<uint64_t>(bytes.size()), "byte"), tensor.describe());
  tensor.storage().backend().copy_from_host(bytes.data(), view.data, bytes.size());
}

Tensor make_view(const Tensor& tensor, std::span<const int64_t> shape, std::span<const int64_t> strides, int64_t offset) {
  Tensor result = tensor.detach();
  TensorView& view = result.body()->view;
  view.rank = static_cast<int>(shape.size());
  view.shape = {};
  view.strides = {};
  std::copy(shape.begin(), shape.end(), view.shape.begin());
  std::copy(strides.begin(), strides.end(), view.strides.begin());
  if (offset != 0) view.data = view.as<std::byte>() + offset * static_cast<int64_t>(info(view.dtype).size);
  return result;
}

const std::string* intern(std::string_view text) {
  static std::set<std::string, std::less<>> texts;
  const auto found = texts.find(text);
  return found != texts.end() ? &*found : &*texts.emplace(text).first;
}

std::string describe_shape(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace ulpscope
