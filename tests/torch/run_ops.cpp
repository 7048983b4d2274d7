// The half of compare_ops.py that is ours: runs the op calls that a file describes, with gradients, on the CPU backend.
//
//   run_ops CASES.h5 RESULTS.h5   prints a line "CASE: MESSAGE" for each call that is refused
//   run_ops --list                prints the op names, each followed by "gradient" where it has one
//
// compare_ops.py says what is in the files.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "tests/torch/engine_program.h"
#include "tests/torch/results.h"
#include "ulpscope/base/error.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {
namespace {

// What C++ code calls by a function: the view ops, and what is made of several ops. Lists of extents or dimensions are d0, d1, ...
using Function = Tensors (*)(std::span<const Tensor>, const Attributes&);

template <typename T>
std::vector<T> list(const Attributes& attributes) {
  constexpr std::string_view kNames[kMaxRank] = {"d0", "d1", "d2", "d3", "d4", "d5"};
  std::vector<T> items;
  for (int i = 0; i < static_cast<int>(attributes["rank"]); ++i) items.push_back(static_cast<T>(attributes[kNames[i]]));
  return items;
}
int dim(const Attributes& attributes) { return static_cast<int>(attributes["dim"]); }
int64_t whole(const Attributes& attributes, std::string_view name) { return static_cast<int64_t>(attributes[name]); }

const std::map<std::string, Function, std::less<>>& functions() {
  using In = std::span<const Tensor>;
  using A = const Attributes&;
  static const std::map<std::string, Function, std::less<>> table{
      {"permute", [](In in, A a) { return Tensors{permute(in[0], list<int>(a))}; }},
      {"transpose", [](In in, A) { return Tensors{transpose(in[0])}; }},
      {"reshape", [](In in, A a) { return Tensors{reshape(in[0], list<int64_t>(a))}; }},
      {"expand", [](In in, A a) { return Tensors{expand(in[0], list<int64_t>(a))}; }},
      {"slice", [](In in, A a) { return Tensors{slice(in[0], dim(a), whole(a, "start"), whole(a, "extent"), whole(a, "step"))}; }},
      {"split", [](In in, A a) { return split(in[0], whole(a, "parts"), dim(a)); }},
      {"cast", [](In in, A a) { return Tensors{cast(in[0], static_cast<DType>(a["dtype"]))}; }},
      {"conv1d",
       [](In in, A a) {
         const Window window{1, whole(a, "stride_x"), whole(a, "padding_x"), whole(a, "dilation_x")};
         return Tensors{conv1d(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), window, whole(a, "groups"))};
       }},
      {"index_select", [](In in, A a) { return Tensors{index_select(in[0], dim(a), in[1])}; }},
      {"softmax_along", [](In in, A a) { return Tensors{softmax(in[0], dim(a))}; }},
      {"log_softmax_along", [](In in, A a) { return Tensors{log_softmax(in[0], dim(a))}; }},
      {"attention",
       [](In in, A a) {
         const AttentionOptions options{.kind = static_cast<AttentionKind>(whole(a, "kind")),
                                        .masked = in.size() > 3 ? in[3] : Tensor()};
         return Tensors{scaled_dot_product_attention(in[0], in[1], in[2], options)};
       }},
  };
  return table;
}

Tensors run(const std::string& op, std::span<const Tensor> inputs, const Attributes& attributes) {
  const auto function = functions().find(op);
  return function != functions().end() ? function->second(inputs, attributes) : dispatch(find_op(op), inputs, attributes);
}

// A tensor of the file of cases: a row of `tensors`, in this order.
struct StoredTensor {
  int64_t number, slot, is_gradient, dtype, requires_grad;  // number: of the case
  int64_t first, length, offset, rank;                      // of its memory within `memory`; of its first element within that
  int64_t shape[kMaxRank], strides[kMaxRank];

  Tensor load(Backend& backend, std::span<const double> memory) const {
    const Tensor block = from_host(backend, static_cast<DType>(dtype), {&length, 1},
                                   memory.subspan(static_cast<size_t>(first), static_cast<size_t>(length)));
    return make_view(block, {shape, static_cast<size_t>(rank)}, {strides, static_cast<size_t>(rank)}, offset);
  }
};

template <typename T>
std::vector<T> read(const hdf5::File& file, const std::string& name, ElementType type) {
  const hdf5::Dataset data = file.open_dataset(name, type);
  uint64_t count = 1;
  for (const uint64_t extent : data.shape()) count *= extent;
  std::vector<T> values(count * size_of(type) / sizeof(T));
  data.read_all(values.data());
  return values;
}

// The sum of the outputs' elements, each times the gradient that is to arrive there: in its layout, which is dense.
Tensor weigh(const Tensor& output, const Tensor& gradient) {
  std::vector<int> order(static_cast<size_t>(gradient.rank()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return gradient.view().strides[a] > gradient.view().strides[b]; });
  return sum(mul(permute(output, order), permute(gradient, order)));
}

void run_case(const std::string& op, int64_t number, std::span<const StoredTensor> tensors, std::span<const double> memory,
              const Attributes& attributes, Results& results) {
  Backend& backend = *context().backend;
  std::vector<Tensor> inputs;
  for (const StoredTensor& stored : tensors) {
    if (stored.is_gradient != 0) continue;
    inputs.push_back(stored.load(backend, memory));
    inputs.back().set_requires_grad(stored.requires_grad != 0);
  }
  const Tensors outputs = run(op, inputs, attributes);
  for (size_t slot = 0; slot < outputs.size(); ++slot) results.add(number, slot, false, outputs[slot]);
  Tensor root;
  for (const StoredTensor& stored : tensors) {
    if (stored.is_gradient == 0) continue;
    const Tensor term = weigh(outputs[static_cast<size_t>(stored.slot)], stored.load(backend, memory));
    root = root ? add(root, term) : term;
  }
  if (!root) return;
  backward(root);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].grad()) results.add(number, i, true, inputs[i].grad());
}

void run_file(const std::string& cases, const std::string& path) {
  const hdf5::File file = hdf5::File::open(cases, cases);
  const auto text = [&](const std::string& name) {
    const auto found = file.text_attribute("/", name);
    return found ? *found : throw unreadable_error("{}: expected a text of fixed length in the attribute '{}'", cases, name);
  };
  const std::string op = text("op"), listed = text("attributes");  // "a b c"
  const auto tensors = read<StoredTensor>(file, "tensors", ElementType::i64);
  const auto memory = read<double>(file, "memory", ElementType::f64), values = read<double>(file, "attributes", ElementType::f64);
  std::vector<const std::string*> names;
  for (size_t begin = 0; begin < listed.size();) {
    const size_t end = std::min(listed.find(' ', begin), listed.size());
    if (end > begin) names.push_back(intern(listed.substr(begin, end - begin)));
    begin = end + 1;
  }
  const auto of_case = [](const StoredTensor& tensor, int64_t number) { return tensor.number < number; };
  Results results;
  const size_t width = std::max<size_t>(1, names.size());
  for (size_t number = 0; number < values.size() / width; ++number) {
    const auto begin = std::lower_bound(tensors.begin(), tensors.end(), static_cast<int64_t>(number), of_case);
    const auto end = std::lower_bound(begin, tensors.end(), static_cast<int64_t>(number) + 1, of_case);
    Attributes attributes;
    for (size_t i = 0; i < names.size(); ++i) {
      const double value = values[number * width + i];
      if (!std::isnan(value)) attributes.set(*names[i], value);
    }
    context().begin_step(number);
    try {
      run_case(op, static_cast<int64_t>(number), {begin, end}, memory, attributes, results);
    } catch (const Error& error) {
      fmt::print("{}: {}\n", number, error.what());
    }
  }
  results.write(path, {});
}

}  // namespace
}  // namespace ulpscope

int main(int argc, char** argv) {
  using namespace ulpscope;
  if (argc == 2 && std::string_view(argv[1]) == "--list") {
    for (const Op* op : all_ops()) fmt::print("{}{}\n", op->name, op->backward ? " gradient" : "");
    return 0;
  }
  if (argc != 3) {
    fmt::print(stderr, "usage: run_ops CASES.h5 RESULTS.h5, or run_ops --list\n");
    return 2;
  }
  return run_with_engine("run_ops", [&] { run_file(argv[1], argv[2]); });
}
