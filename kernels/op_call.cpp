#include "ulpscope/kernels/op_call.h"

#include <algorithm>

#include "ulpscope/base/error.h"

namespace ulpscope {

Attributes::Attributes(std::initializer_list<Item> constant) {
  for (const Item& item : constant) set(item.name, item.value);
}

Attributes::Attributes(std::initializer_list<Item> constant, std::initializer_list<Item> varying) : Attributes(constant) {
  const int first = size_;
  for (const Item& item : varying) set(item.name, item.value);
  for (int i = first; i < size_; ++i) varying_ = static_cast<uint16_t>(varying_ | 1u << i);
}

void Attributes::set(std::string_view name, double value) {
  const auto end = items_.begin() + size_;
  const auto known = std::find_if(items_.begin(), end, [&](const Item& item) { return item.name == name; });
  if (known != end) {
    known->value = value;
    return;
  }
  if (size_ == kCapacity) throw failed_error("attribute '{}': an op call has at most {} attributes", name, kCapacity);
  items_[size_++] = {name, value};
}

double Attributes::operator[](std::string_view name) const {
  for (const Item& item : items()) {
    if (item.name == name) return item.value;
  }
  throw failed_error("an op call has no attribute '{}'", name);
}

double Attributes::value_or(std::string_view name, double otherwise) const {
  for (const Item& item : items()) {
    if (item.name == name) return item.value;
  }
  return otherwise;
}

bool computes_in_double(const OpCall& call) {
  for (const TensorView& view : call.inputs) {
    if (view.dtype == DType::f64) return true;
  }
  for (const TensorView& view : call.outputs) {
    if (view.dtype == DType::f64) return true;
  }
  return false;
}

}  // namespace ulpscope
