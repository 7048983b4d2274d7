// Tensors and arguments of PyTorch's ops as ulpscope_aten.h describes them, and what is known of an overload.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKeySet.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <typeinfo>
#include <vector>

#include "ulpscope_aten.h"

namespace {

// Tests take tensors of the host as those of a device are.
bool takes_host_as_device = false;

// ---- tensors

constexpr c10::DispatchKeySet kWrappers({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                                         c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper,
                                         c10::DispatchKey::BatchedNestedTensor, c10::DispatchKey::FuncTorchVmapMode,
                                         c10::DispatchKey::Functionalize});
constexpr c10::DispatchKeySet kUnusual =
    kWrappers | c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor});

const char* name_of_type(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return "uint8";
    case at::kChar:
      return "int8";
    case at::kShort:
      return "int16";
    case at::kInt:
      return "int32";
    case at::kLong:
      return "int64";
    case at::kHalf:
      return "float16";
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kBool:
      return "bool";
    case at::kBFloat16:
      return "bfloat16";
    case at::kComplexHalf:
      return "complex32";
    case at::kComplexFloat:
      return "complex64";
    case at::kComplexDouble:
      return "complex128";
    case at::kFloat8_e4m3fn:
      return "float8_e4m3fn";
    case at::kFloat8_e5m2:
      return "float8_e5m2";
    case at::kFloat8_e4m3fnuz:
      return "float8_e4m3fnuz";
    case at::kFloat8_e5m2fnuz:
      return "float8_e5m2fnuz";
    default:
      return c10::toString(type);
  }
}

bool is_read(at::ScalarType type) {
  switch (type) {
    case at::kByte:
    case at::kChar:
    case at::kShort:
    case at::kInt:
    case at::kLong:
    case at::kHalf:
    case at::kFloat:
    case at::kDouble:
    case at::kBool:
    case at::kBFloat16:
      return true;
    default:
      return false;
  }
}

// Why a tensor's memory is not read, in a word; nullptr: it is.
const char* why_unreadable(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (impl.key_set().has_any(kUnusual)) {
    if (impl.key_set().has_any(kWrappers)) return impl.key_set().has(c10::DispatchKey::Python) ? "subclass" : "wrapped";
    return tensor.is_conj() ? "complex" : "wrapped";
  }
  if (tensor.is_nested()) return "nested";
  if (tensor.layout() != at::kStrided) return tensor.is_sparse() || tensor.is_sparse_csr() ? "sparse" : "other layout";
  if (tensor.is_meta()) return "meta";
  if (tensor.is_quantized()) return "quantized";
  if (tensor.is_complex()) return "complex";
  if (!is_read(tensor.scalar_type())) return name_of_type(tensor.scalar_type());
  if (!impl.has_storage()) return "opaque";
  return nullptr;
}

void describe(const at::Tensor& tensor, ulpscope_aten_tensor& to) {
  std::memset(&to, 0, sizeof to);
  if (!tensor.defined()) return;
  to.is_present = 1;
  to.handle = reinterpret_cast<uint64_t>(tensor.unsafeGetTensorImpl());
  to.unreadable = why_unreadable(tensor);
  if (to.unreadable != nullptr) {
    to.requires_grad = !tensor.unsafeGetTensorImpl()->key_set().has_any(kWrappers) && tensor.requires_grad();
    return;
  }
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  to.storage = reinterpret_cast<uint64_t>(storage);
  to.storage_bytes = storage->nbytes();
  to.storage_data = storage->data();
  to.data = tensor.const_data_ptr();
  to.shape = tensor.sizes().data();
  to.strides = tensor.strides().data();
  to.rank = static_cast<int32_t>(tensor.dim());
  to.type = static_cast<int32_t>(tensor.scalar_type());
  to.is_on_host = tensor.is_cpu() && !takes_host_as_device;
  to.requires_grad = tensor.requires_grad();
  to.is_view = tensor.is_view();
}

// A node that a program defined, or a compiled region: its type lies in a library that this one does not link.
bool is_python(const torch::autograd::Node& node) { return std::strstr(typeid(node).name(), "PyNode") != nullptr; }

// ---- overloads

struct Overload {
  bool is_composite = false;   // its kernel calls others, which are told
  c10::DispatchKeySet leaves;  // of a composite: keys for which it has a kernel that does not
  bool writes = false;         // or may write buffers: it is looked at before it runs, too
  bool returns = false;
  c10::DispatchKeySet autocast;  // keys for which autocast wraps it
  std::vector<uint8_t> is_type;  // by argument: a number of a ScalarType
  uint32_t number = 0;
};

void argument_of(const c10::IValue& value, bool is_type, ulpscope_aten_argument& to, std::vector<ulpscope_aten_tensor>& tensors,
                 std::vector<std::unique_ptr<int64_t[]>>& integers) {
  std::memset(&to, 0, sizeof to);
  const auto add_integers = [&](size_t count) {
    integers.push_back(std::make_unique<int64_t[]>(count + 1));
    to.kind = ULPSCOPE_ATEN_INTEGERS;
    to.count = static_cast<uint32_t>(count);
    to.integers = integers.back().get();
    return integers.back().get();
  };
  if (value.isNone()) {
    to.kind = ULPSCOPE_ATEN_NOTHING;
  } else if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    // A number of Python, which the dispatcher has as a tensor.
    if (tensor.defined() && tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      const at::ScalarType type = tensor.scalar_type();
      if (type == at::kDouble || type == at::kFloat) {
        to.kind = ULPSCOPE_ATEN_REAL;
        to.real = type == at::kDouble ? *tensor.const_data_ptr<double>() : static_cast<double>(*tensor.const_data_ptr<float>());
        return;
      }
      if (type == at::kLong || type == at::kBool) {
        to.kind = ULPSCOPE_ATEN_INTEGER;
        to.integer = type == at::kLong ? *tensor.const_data_ptr<int64_t>() : static_cast<int64_t>(*tensor.const_data_ptr<bool>());
        return;
      }
    }
    to.kind = ULPSCOPE_ATEN_TENSOR;
    to.first = static_cast<uint32_t>(tensors.size());
    to.count = 1;
    describe(tensor, tensors.emplace_back());
  } else if (value.isInt() && is_type) {
    to.kind = ULPSCOPE_ATEN_TEXT;
    to.text = name_of_type(static_cast<at::ScalarType>(value.toInt()));
  } else if (value.isInt()) {
    to.kind = ULPSCOPE_ATEN_INTEGER;
    to.integer = value.toInt();
  } else if (value.isBool()) {
    to.kind = ULPSCOPE_ATEN_INTEGER;
    to.integer = value.toBool();
  } else if (value.isDouble()) {
    to.kind = ULPSCOPE_ATEN_REAL;
    to.real = value.toDouble();
  } else if (value.isString()) {
    to.kind = ULPSCOPE_ATEN_TEXT;
    to.text = value.toStringRef().c_str();
  } else if (value.isTensorList()) {
    to.kind = ULPSCOPE_ATEN_TENSORS;
    to.first = static_cast<uint32_t>(tensors.size());
    for (const c10::IValue& each : value.toListRef()) describe(each.toTensor(), tensors.emplace_back());
    to.count = static_cast<uint32_t>(tensors.size()) - to.first;
  } else if (value.isIntList()) {
    const auto list = value.toIntVector();
    std::copy(list.begin(), list.end(), add_integers(list.size()));
  } else if (value.isBoolList()) {
    const auto list = value.toBoolList();
    int64_t* const to_list = add_integers(list.size());
    for (size_t i = 0; i < list.size(); ++i) to_list[i] = list[i];
  } else if (value.isOptionalTensorList()) {
    to.kind = ULPSCOPE_ATEN_TENSORS;
    to.first = static_cast<uint32_t>(tensors.size());
    for (const c10::IValue& each : value.toListRef())
      describe(each.isTensor() ? each.toTensor() : at::Tensor(), tensors.emplace_back());
    to.count = static_cast<uint32_t>(tensors.size()) - to.first;
  } else if (value.isList() && !value.toListRef().empty() && value.toListRef()[0].isTensorList()) {  // as of all-gathers
    to.kind = ULPSCOPE_ATEN_TENSORS;
    to.first = static_cast<uint32_t>(tensors.size());
    for (const c10::IValue& list : value.toListRef())
      for (const at::Tensor& each : list.toTensorVector()) describe(each, tensors.emplace_back());
    to.count = static_cast<uint32_t>(tensors.size()) - to.first;
  } else {
    to.kind = ULPSCOPE_ATEN_OTHER;
  }
}

}  // namespace
