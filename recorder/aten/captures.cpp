#include "ulpscope/recorder/aten/captures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace ulpscope::aten {
namespace {

constexpr size_t kMostTerms = 8;  // of a sum: the largest

using Index = std::vector<int64_t>;

bool is_product(std::string_view base) { return base == "mm" || base == "addmm" || base == "bmm" || base == "baddbmm"; }

Index index_of(int64_t element, std::span<const int64_t> shape) {
  Index index(shape.size());
  for (size_t i = shape.size(); i-- > 0; element /= shape[i]) index[i] = element % shape[i];
  return index;
}

int64_t element_of(const Index& index, std::span<const int64_t> shape) {
  int64_t element = 0;
  for (size_t i = 0; i < index.size(); ++i) element = element * shape[i] + index[i];
  return element;
}

// The index into a tensor that is broadcast to the one of `index`; nothing where it is not.
std::optional<Index> broadcast(const Index& index, std::span<const int64_t> shape) {
  if (shape.size() > index.size()) return std::nullopt;
  const size_t skipped = index.size() - shape.size();
  Index at(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) {
    at[i] = shape[i] == 1 ? 0 : index[skipped + i];
    if (at[i] >= shape[i]) return std::nullopt;
  }
  return at;
}

ulpscope_node node_of(std::span<const int64_t> shape, int64_t element, double value) {
  ulpscope_node node{};
  node.size = sizeof node;
  node.shape = shape.data();
  node.rank = static_cast<int32_t>(shape.size());
  node.element = element;
  node.value = value;
  node.term = -1;
  return node;
}

ulpscope_node operand(const ReadValues& read, const Index& at, int64_t term = -1) {
  const Tensor& tensor = *read.read.tensor;
  ulpscope_node node = node_of(shape_of(tensor), element_of(at, shape_of(tensor)), element_at(tensor, read.data, at));
  node.operand = static_cast<int32_t>(read.read.number);
  node.made_by = read.made_by;
  node.overwritten = read.is_overwritten;
  node.term = term;
  return node;
}

// The largest of the products whose sum an element is, and those that are not finite, in their order.
std::vector<int64_t> largest_terms(const ReadValues& first, const ReadValues& second, Index row, Index column, int64_t terms) {
  std::vector<std::pair<double, int64_t>> sizes;
  for (int64_t term = 0; term < terms; ++term) {
    row.back() = column[column.size() - 2] = term;
    const double product = element_at(*first.read.tensor, first.data, row) * element_at(*second.read.tensor, second.data, column);
    sizes.emplace_back(std::isfinite(product) ? std::fabs(product) : std::numeric_limits<double>::infinity(), term);
  }
  const auto is_larger = [](const auto& a, const auto& b) { return a.first > b.first; };
  const size_t kept = std::min(kMostTerms, sizes.size());
  std::partial_sort(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(kept), sizes.end(), is_larger);
  std::vector<int64_t> largest;
  for (size_t i = 0; i < kept; ++i) largest.push_back(sizes[i].second);
  std::sort(largest.begin(), largest.end());
  return largest;
}

}  // namespace

bool is_explained(const Schema& schema) {
  return is_product(schema.base()) || schema.is_pointwise() || schema.base() == "_to_copy";
}

std::vector<ulpscope_node> nonfinite_element(const Tensor& tensor, const void* data) {
  const int64_t elements = count_of_elements(tensor);
  int64_t flat = 0;
  while (flat < elements && std::isfinite(element_at(tensor, data, index_of(flat, shape_of(tensor))))) ++flat;
  if (flat == elements) return {};
  ulpscope_node element = node_of(shape_of(tensor), flat, element_at(tensor, data, index_of(flat, shape_of(tensor))));
  element.parent = element.operand = -1;
  return {element};
}

std::vector<ulpscope_node> explain(const Schema& schema, const Bound& bound, const Tensor& output, const void* data,
                                   std::span<const ReadValues> reads) {
  // Operands have weights then, which nodes have no place for.
  for (const char* const weight : {"alpha", "beta"})
    if (schema.find(weight) && schema.number(bound, weight) != 1.0) return {};
  if ((schema.base() == "addcmul" || schema.base() == "addcdiv") && schema.number(bound, "value").value_or(1) != 1) return {};
  std::vector<ulpscope_node> nodes = nonfinite_element(output, data);
  if (nodes.empty()) return {};
  const Index index = index_of(nodes[0].element, shape_of(output));
  if (is_product(schema.base())) {
    if (reads.size() < 2 || index.size() < 2) return {};
    const Tensor& first = *reads[0].read.tensor;
    if (shape_of(first).size() != index.size() || shape_of(*reads[1].read.tensor).size() != index.size()) return {};
    const int64_t terms = first.shape[index.size() - 1];
    Index row = index, column = index;
    nodes[0].terms = terms;
    for (const int64_t term : largest_terms(reads[0], reads[1], row, column, terms)) {
      row.back() = column[column.size() - 2] = term;
      nodes.push_back(operand(reads[0], row, term));
      nodes.push_back(operand(reads[1], column, term));
    }
  }
  if (const auto first = schema.number(bound, "self")) {  // as the base of 2.0 ** x
    ulpscope_node number = node_of({}, 0, *first);
    number.operand = 0;
    nodes.push_back(number);
  }
  for (const ReadValues& read : reads.subspan(is_product(schema.base()) ? 2 : 0)) {
    const auto at = broadcast(index, shape_of(*read.read.tensor));
    if (!at) return {};
    nodes.push_back(operand(read, *at));
  }
  const auto other = schema.number(bound, "other");
  if (reads.size() == 1 && other && !is_product(schema.base())) {
    ulpscope_node number = node_of({}, 0, *other);
    number.operand = 1;
    nodes.push_back(number);
  }
  return nodes;
}

}  // namespace ulpscope::aten
