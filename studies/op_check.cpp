#include "ulpscope/studies/op_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "ulpscope/base/clock.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/floating_point_mode.h"
#include "ulpscope/base/hash.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/error_measures.h"
#include "ulpscope/kernels/cases/op_cases.h"
#include "ulpscope/kernels/product_arithmetic.h"

namespace ulpscope {

namespace {

using cases::Case;
using cases::HostTensor;

constexpr int64_t kMostInputs = 4096, kMostWork = 60000, kMostElements = 256;

int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  return size;
}

bool is_small(const Case& what) {
  int64_t largest = 0, work = 0;
  for (const cases::TensorSpec& input : what.inputs) {
    const int64_t size = elements_of(input.shape);
    if (size == 0) return false;
    largest = std::max(largest, size);
  }
  for (const cases::OutputSpec& output : what.outputs)
    work += std::min(elements_of(output.shape), kMostElements) * std::max<int64_t>(1, what.terms);
  return largest <= kMostInputs && work <= kMostWork;
}

// The small case with the most numbers, that with the fewest, and one between them.
std::vector<const Case*> chosen(std::vector<const Case*> all) {
  const auto size = [](const Case* what) {
    int64_t sum = what->terms;
    for (const cases::TensorSpec& input : what->inputs) sum += elements_of(input.shape);
    return sum;
  };
  std::stable_sort(all.begin(), all.end(), [&](const Case* a, const Case* b) { return size(a) > size(b); });
  if (all.size() <= 3) return all;
  return {all.front(), all[all.size() / 2], all.back()};
}

const std::vector<Case>& all_cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> list = cases::elementwise_cases({64});
    for (Case& each : cases::other_cases()) list.push_back(std::move(each));
    return list;
  }();
  return all;
}

// The search for the worst inputs of one op.
class Search {
 public:
  Search(const CheckedOp& op, size_t number, const OpCheckOptions& options, Backend& backend, std::function<bool()> ended)
      : op_(op), number_(number), options_(options), backend_(backend), ended_(std::move(ended)) {}

  void run() {
    const FloatingPointMode mode;
    const uint64_t seed = hash_combine(options_.seed, hash_text(op_.op));
    for (const Case* what : op_.cases) {
      double best = -1;
      std::vector<HostTensor> inputs;
      for (const InputClass input_class : made_input_classes()) {
        if (calls_ > 0 && ended_()) return;
        std::vector<HostTensor> made = make_inputs(*what, op_.type, input_class, seed);
        const double score = call(*what, made, input_class);
        if (score <= best) continue;
        best = score;
        inputs = std::move(made);
      }
      for (int round = 0; round < options_.rounds && best >= 0; ++round) {
        if (ended_()) return;
        std::vector<HostTensor> changed;
        for (const HostTensor& input : inputs) changed.push_back(input.copy());
        mutate_inputs(*what, changed, seed + static_cast<uint64_t>(round) + 1);
        const double score = call(*what, changed, InputClass::mutated);
        if (score <= best) continue;
        best = score;
        inputs = std::move(changed);
      }
    }
  }

  uint64_t calls() const { return calls_; }
  std::vector<WorstElement>& worst() { return worst_; }

 private:
  // The largest error over its bound; -1: nothing is known.
  double call(const Case& what, const std::vector<HostTensor>& inputs, InputClass input_class) {
    const CheckedCall made(op_, what, inputs), before(op_, what, inputs);
    ulpscope::run(backend_, made.call());
    const cases::Result result = made.result();
    double largest = -1;
    // Further outputs of a product, the gradients of biases, have no accumulator: they are looked at once.
    const bool is_first = op_.accumulation == nullptr || op_.accumulation == options_.accumulations.front();
    for (size_t slot = 0; slot < (is_first ? what.outputs.size() : 1); ++slot)
      if (!what.outputs[slot].record_only)
        largest = std::max(largest, compare(what, inputs, input_class, before.call(), slot, result.outputs[slot]));
    ++calls_;
    return largest;
  }

  double compare(const Case& what, const std::vector<HostTensor>& inputs, InputClass input_class, const OpCall& call, size_t slot,
                 const HostTensor& output) {
    const int64_t size = call.outputs[slot].size(), step = (size + kMostElements - 1) / kMostElements;
    std::vector<int64_t> elements;
    for (int64_t e = 0; e < size; e += step) elements.push_back(e);
    const std::vector<ElementBound> bounds = bounds_of(call, static_cast<int>(slot), elements);
    if (bounds.empty()) return -1;
    WorstElement& kept = of_slot(slot);
    const FloatFormat& format = *info(call.outputs[slot].dtype).format;
    double largest = -1;
    bool is_new = false;
    for (size_t i = 0; i < bounds.size(); ++i) {
      ++kept.elements;
      kept.unknown += !bounds[i].is_known();
      if (!bounds[i].is_known()) continue;
      const double stored = output.get(elements[i]), error = bounds[i].error_of(stored);
      const double over = bounds[i].bound > 0 ? error / bounds[i].bound : error > 0 ? HUGE_VAL : 0;
      const double ulps = std::isfinite(error) && error > 0 ? error / ulp(format, bounds[i].exact) : error;
      kept.largest_ulps = std::max(kept.largest_ulps, ulps);
      kept.broken += over > 1;
      largest = std::max(largest, over);
      if (over <= kept.over_bound) continue;
      is_new = true;
      kept.element = elements[i];
      kept.stored = stored;
      kept.error = error;
      kept.ulps = ulps;
      kept.bound = bounds[i];
      kept.over_bound = over;
    }
    if (!is_new) return largest;
    kept.of = &what;
    kept.input_class = input_class;
    kept.inputs.clear();
    for (const HostTensor& input : inputs) kept.inputs.push_back(input.copy());
    return largest;
  }

  WorstElement& of_slot(size_t slot) {
    for (WorstElement& each : worst_)
      if (each.slot == slot) return each;
    worst_.emplace_back();
    worst_.back().op = number_;
    worst_.back().slot = slot;
    return worst_.back();
  }

  const CheckedOp& op_;
  size_t number_;
  const OpCheckOptions& options_;
  Backend& backend_;
  std::function<bool()> ended_;
  uint64_t calls_ = 0;
  std::vector<WorstElement> worst_;
};

// The ops that give numbers and make them, in the order of the cases.
std::vector<std::string> checked_names() {
  std::vector<std::string> names;
  for (const Case& what : all_cases()) {
    const bool gives_numbers = std::any_of(what.outputs.begin(), what.outputs.end(), [](const cases::OutputSpec& output) {
      return is_float(output.dtype.value_or(DType::f32));
    });
    if (what.op != "source" && gives_numbers && std::find(names.begin(), names.end(), what.op) == names.end())
      names.push_back(what.op);
  }
  return names;
}

// Whether products of the op are summed as its accumulation says; a GPU multiplies factors that its tensor cores do not take as
// `fp32` does.
bool is_emulated(const CheckedOp& op) {
  if (op.accumulation == nullptr || op.accumulation->accumulator == Accumulator::fp32) return true;
  cases::Instance instance(*op.cases.front(), op.type);
  return accumulated_product(CheckedCall(op, *op.cases.front(), instance.inputs()).call()).has_value();
}

std::vector<CheckedOp> ops_of(const OpCheckOptions& options) {
  const std::vector<std::string> names = checked_names();
  for (const std::string& pattern : options.ops)
    if (std::none_of(names.begin(), names.end(), [&](const std::string& op) { return glob_match(pattern, op); }))
      throw usage_error("--op: no op is named '{}'{}", one_line(pattern), did_you_mean(pattern, names));
  std::vector<CheckedOp> ops;
  for (const std::string& op : names) {
    const bool is_asked_for =
        options.ops.empty() ||
        std::any_of(options.ops.begin(), options.ops.end(), [&](const std::string& pattern) { return glob_match(pattern, op); });
    if (!is_asked_for) continue;
    std::vector<const Case*> of_op;
    for (const Case& what : all_cases())
      if (what.op == op && is_small(what)) of_op.push_back(&what);
    of_op = chosen(std::move(of_op));
    for (const DType type : options.types) {
      const bool has_accumulator = is_product(op) && type != DType::f64;
      if (!has_accumulator) ops.push_back({op, type, nullptr, of_op});
      for (const Accumulation* accumulation : options.accumulations)
        if (const CheckedOp product{op, type, accumulation, of_op}; has_accumulator && is_emulated(product)) ops.push_back(product);
    }
  }
  return ops;
}

// Broken outputs first, by how far they are beyond their bounds; then the largest errors in ulps. A result that is off by more than
// itself, as one that is exactly 0, has no last place to count in.
bool is_worse(const WorstElement& a, const WorstElement& b) {
  const auto key = [](const WorstElement& each) {
    const double ulps = each.error <= std::fabs(each.bound.exact) ? each.ulps : 0;
    return std::tuple(each.broken > 0, each.broken > 0 ? each.over_bound : ulps, each.over_bound);
  };
  return key(a) > key(b);
}

}  // namespace

std::string CheckedOp::name() const {
  const std::string text = fmt::format("{}.{}", op, info(type).name);
  return accumulation == nullptr ? text : fmt::format("{}.{}", text, accumulation->name);
}

CheckedCall::CheckedCall(const CheckedOp& op, const Case& what, const std::vector<HostTensor>& inputs)
    : prepared_(what, inputs, op.type, StatisticsLevel::none), call_(prepared_.call()) {
  if (op.accumulation != nullptr) arithmetic_.accumulation = op.accumulation;
  call_.arithmetic = &arithmetic_;
}

OpCheck check_ops(const OpCheckOptions& options) {
  OpCheck check;
  std::vector<CheckedOp> ops = ops_of(options);
  std::vector<std::vector<WorstElement>> found(ops.size());
  std::vector<std::unique_ptr<Backend>> backends;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
    backends.push_back(options.backend ? options.backend() : make_cpu_backend({.threads = 1}));

  const auto begin = Clock::now();
  std::atomic<size_t> next = 0, done = 0;
  std::atomic<bool> failed = false;
  std::exception_ptr problem;
  std::mutex problem_mutex;
  const auto stopped = [&] { return failed || (options.stopped && options.stopped()); };
  const auto work = [&](Backend& backend, bool tells) {
    try {
      for (size_t i = next++; i < ops.size() && !stopped(); i = next++) {
        if (tells && options.progress) options.progress(ops[i].op, static_cast<double>(done) / static_cast<double>(ops.size()));
        // Each op has its part of the time that is left for all.
        const double spent = seconds_since(begin),
                     left = static_cast<double>(ops.size() - i) / static_cast<double>(backends.size());
        const double until = spent + std::max(0.0, options.budget - spent) / std::max(1.0, left);
        Search search(ops[i], i, options, backend,
                      [&] { return stopped() || (options.budget > 0 && seconds_since(begin) > until); });
        search.run();
        ops[i].calls = search.calls();
        found[i] = std::move(search.worst());
        ++done;
      }
    } catch (...) {
      const std::lock_guard lock(problem_mutex);
      problem = std::current_exception();
      failed = true;
    }
  };
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < backends.size(); ++i) others.emplace_back([&, i] { work(*backends[i], false); });
    work(*backends[0], true);
  }
  if (problem) std::rethrow_exception(problem);

  check.not_called = ops.size() - done;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].calls == 0) continue;
    check.calls += ops[i].calls;
    for (WorstElement& each : found[i]) {
      each.op = check.ops.size();
      check.elements += each.elements;
      check.unknown += each.unknown;
      check.broken += each.broken;
      check.worst.push_back(std::move(each));
    }
    check.ops.push_back(std::move(ops[i]));
  }
  std::stable_sort(check.worst.begin(), check.worst.end(), is_worse);
  return check;
}

}  // namespace ulpscope
