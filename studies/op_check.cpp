#include "ulpscope/studies/op_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "ulpscope/base/clock.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/floating_point_mode.h"
#include "ulpscope/base/hash.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/data/npy_file.h"
#include "ulpscope/emulation/error_measures.h"
#include "ulpscope/kernels/bounds.h"
#include "ulpscope/kernels/cases/op_cases.h"
#include "ulpscope/studies/op_inputs.h"

namespace ulpscope {

namespace {

using cases::Case;
using cases::HostTensor;

// An op in one type and arithmetic, and the calls of it that are made.
struct Item {
  std::string op;
  DType type;
  const Accumulation* accumulation;
  std::vector<const Case*> cases;
};

// An element, and how far it is from its exact value.
struct Place {
  size_t slot = 0;
  int64_t element = 0;
  double stored = 0, error = 0, ulps = 0;
  ElementBound bound;
  double over_bound = -1;  // error / bound; nothing is exact and off by nothing at 0
};

struct Found {
  Place worst;
  const Case* of = nullptr;
  InputClass input_class = InputClass::uniform;
  std::vector<HostTensor> inputs;
  double largest_ulps = 0;
  uint64_t calls = 0, elements = 0, unknown = 0, broken = 0;
};

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

// Of the small cases of an op that with the fewest numbers, that with the most, and one between them.
std::vector<const Case*> chosen(std::vector<const Case*> all) {
  const auto size = [](const Case* what) {
    int64_t sum = what->terms;
    for (const cases::TensorSpec& input : what->inputs) sum += elements_of(input.shape);
    return sum;
  };
  std::stable_sort(all.begin(), all.end(), [&](const Case* a, const Case* b) { return size(a) < size(b); });
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

class ItemCheck {
 public:
  ItemCheck(const Item& item, const OpCheckOptions& options, std::function<bool()> ended)
      : item_(item),
        options_(options),
        ended_(std::move(ended)),
        backend_(options.backend ? options.backend() : make_cpu_backend({.threads = 1})) {
    arithmetic_.accumulation = item.accumulation;
  }

  Found run() {
    const FloatingPointMode mode;
    const uint64_t seed = hash_combine(options_.seed, hash_text(item_.op));
    for (const Case* what : item_.cases) {
      double best = -1;
      std::vector<HostTensor> inputs;
      for (const InputClass input_class : made_input_classes()) {
        if (found_.calls > 0 && ended_()) return std::move(found_);
        std::vector<HostTensor> made = make_inputs(*what, item_.type, input_class, seed);
        const double score = call(*what, made, input_class);
        if (score <= best) continue;
        best = score;
        inputs = std::move(made);
      }
      for (int round = 0; round < options_.rounds && best >= 0; ++round) {
        if (ended_()) return std::move(found_);
        std::vector<HostTensor> changed;
        for (const HostTensor& input : inputs) changed.push_back(input.copy());
        mutate_inputs(*what, changed, seed + static_cast<uint64_t>(round) + 1);
        const double score = call(*what, changed, InputClass::mutated);
        if (score <= best) continue;
        best = score;
        inputs = std::move(changed);
      }
    }
    return std::move(found_);
  }

  // The call of some inputs, and what it gives.
  cases::Result outputs(const Case& what, const std::vector<HostTensor>& inputs) const {
    const cases::CaseCall prepared(what, inputs, item_.type, StatisticsLevel::none);
    OpCall call = prepared.call();
    call.arithmetic = &arithmetic_;
    ulpscope::run(*backend_, call);
    return prepared.result();
  }
  // With the call as it is before it is made.
  template <class Body>
  void before(const Case& what, const std::vector<HostTensor>& inputs, Body body) const {
    const cases::CaseCall prepared(what, inputs, item_.type, StatisticsLevel::none);
    OpCall call = prepared.call();
    call.arithmetic = &arithmetic_;
    body(call);
  }

 private:
  // The largest error over its bound.
  double call(const Case& what, const std::vector<HostTensor>& inputs, InputClass input_class) {
    const cases::Result result = outputs(what, inputs);
    std::optional<Place> worst;
    bool broken = false;
    before(what, inputs, [&](const OpCall& call) {
      for (size_t slot = 0; slot < what.outputs.size(); ++slot) {
        if (what.outputs[slot].record_only) continue;
        const int64_t size = call.outputs[slot].size(), step = (size + kMostElements - 1) / kMostElements;
        std::vector<int64_t> elements;
        for (int64_t e = 0; e < size; e += step) elements.push_back(e);
        const std::vector<ElementBound> bounds = bounds_of(call, static_cast<int>(slot), elements);
        const FloatFormat* const format = info(call.outputs[slot].dtype).format;
        for (size_t i = 0; i < bounds.size(); ++i) {
          const Place place = measured(slot, elements[i], result.outputs[slot].get(elements[i]), bounds[i], *format);
          ++found_.elements;
          if (!(place.bound.bound < HUGE_VAL)) {
            ++found_.unknown;
            continue;
          }
          broken = broken || place.over_bound > 1;
          found_.largest_ulps = std::max(found_.largest_ulps, place.ulps);
          if (!worst || place.over_bound > worst->over_bound) worst = place;
        }
      }
    });
    ++found_.calls;
    found_.broken += broken;
    if (!worst) return -1;
    if (worst->over_bound > found_.worst.over_bound) {
      found_.worst = *worst;
      found_.of = &what;
      found_.input_class = input_class;
      found_.inputs.clear();
      for (const HostTensor& input : inputs) found_.inputs.push_back(input.copy());
    }
    return worst->over_bound;
  }

  static Place measured(size_t slot, int64_t element, double stored, const ElementBound& bound, const FloatFormat& format) {
    Place place{slot, element, stored, 0, 0, bound, 0};
    const double exact = bound.exact.value();
    if (!bound.exact.is_finite() || !std::isfinite(stored)) {
      const bool same = stored == exact || (std::isnan(stored) && std::isnan(exact));
      place.error = place.ulps = place.over_bound = same ? 0 : HUGE_VAL;
      return place;
    }
    place.error = std::fabs((Real(stored) - bound.exact).value());
    place.ulps = place.error / ulp(format, exact);
    place.over_bound = bound.bound > 0 ? place.error / bound.bound : place.error > 0 ? HUGE_VAL : 0;
    return place;
  }

  const Item& item_;
  const OpCheckOptions& options_;
  std::function<bool()> ended_;
  std::unique_ptr<Backend> backend_;
  Arithmetic arithmetic_;
  Found found_;
};

bool is_asked_for(const OpCheckOptions& options, std::string_view op) {
  return options.ops.empty() ||
         std::any_of(options.ops.begin(), options.ops.end(), [&](const std::string& pattern) { return glob_match(pattern, op); });
}

std::vector<Item> items_of(const OpCheckOptions& options) {
  // Of ops that give numbers and make them.
  const auto is_checked = [](const Case& what) {
    return what.op != "source" && std::any_of(what.outputs.begin(), what.outputs.end(), [](const cases::OutputSpec& output) {
             return is_float(output.dtype.value_or(DType::f32));
           });
  };
  std::vector<std::string> names;
  for (const Case& what : all_cases())
    if (is_checked(what) && std::find(names.begin(), names.end(), what.op) == names.end()) names.push_back(what.op);
  for (const std::string& pattern : options.ops)
    if (std::none_of(names.begin(), names.end(), [&](const std::string& op) { return glob_match(pattern, op); }))
      throw usage_error("--op: no op is named '{}'{}", one_line(pattern), did_you_mean(pattern, names));
  std::vector<Item> items;
  for (const std::string& op : names) {
    if (!is_asked_for(options, op)) continue;
    std::vector<const Case*> of_op;
    for (const Case& what : all_cases())
      if (what.op == op && is_small(what)) of_op.push_back(&what);
    of_op = chosen(std::move(of_op));
    for (const DType type : options.types) {
      for (size_t i = 0; i < options.accumulations.size(); ++i) {
        // Other ops have no accumulator, and FP64 sums stay what they are.
        if (i > 0 && (!is_product(op) || type == DType::f64)) break;
        items.push_back({op, type, options.accumulations[i], of_op});
      }
    }
  }
  return items;
}

std::string formula(const Item& item, const OpCall& call, size_t slot) {
  const FloatFormat& stored = *info(call.outputs[slot].dtype).format;
  const bool in_double = computes_in_double(call);
  const std::string_view unit = in_double ? "2^-53" : "2^-24";
  if (only_moves(item.op)) return "0: elements are moved";
  const std::string store = stored.fraction_bits < (in_double ? binary64 : binary32).fraction_bits
                                ? fmt::format(" + half an ulp of {}", stored.name)
                                : "";
  if (!is_product(item.op) || slot > 0)
    return fmt::format("running error analysis of the definition: {} of each result, 2^-32 of a function's{}", unit, store);
  switch (item.accumulation->accumulator) {
    case Accumulator::fp32:
      return fmt::format("gamma_k sum|a b|{}, u = {}", store, unit);
    case Accumulator::narrow: {
      const FloatFormat& kept = *item.accumulation->narrow;
      return fmt::format("sum over the terms of 2^-{} (|partial sum| + the error so far) + 2^{}{}", kept.fraction_bits + 1,
                         kept.smallest_exponent() - 1, store);
    }
    case Accumulator::fp64:
      return fmt::format("gamma_k sum|a b|{}, u = 2^-53", store);
    case Accumulator::exact:
      return fmt::format("the rounding of the output{}", store);
    case Accumulator::tensor_core:
      return fmt::format("blocks of {}: each term cut off below e_max, each sum converted once{}", item.accumulation->name, store);
  }
  return {};
}

struct Checked {
  const Item* item;
  Found found;

  std::string name() const {
    std::string text = fmt::format("{}.{}", item->op, info(item->type).name);
    if (is_product(item->op)) text += fmt::format(".{}", item->accumulation->name);
    return text;
  }
};

void save_array(const std::string& path, const HostTensor& tensor) {
  const TensorView view = tensor.view();
  const auto bytes = static_cast<size_t>(info(view.dtype).size);
  std::string numbers;
  const TensorView logical = contiguous(view);
  for (int64_t e = 0; e < logical.size(); ++e)
    numbers.append(view.as<const char>() + offset_of(view, e) * static_cast<int64_t>(bytes), bytes);
  const bool has_type = view.dtype == DType::f64 || view.dtype == DType::f32 || view.dtype == DType::f16;
  const bool is_signed = view.dtype == DType::i64 || view.dtype == DType::i32;
  write_npy_file(path,
                 {has_type    ? 'f'
                  : is_signed ? 'i'
                              : 'u',
                  bytes, false},
                 {view.shape.begin(), view.shape.begin() + view.rank}, numbers);
}

void save(const Checked& checked, const OpCheckOptions& options) {
  const std::filesystem::path start = std::filesystem::path(options.save) / checked.name();
  const Found& found = checked.found;
  const ItemCheck check(*checked.item, options, [] { return false; });
  for (size_t i = 0; i < found.inputs.size(); ++i) save_array(fmt::format("{}.input{}.npy", start.string(), i), found.inputs[i]);
  const HostTensor output = check.outputs(*found.of, found.inputs).outputs[found.worst.slot].copy();
  save_array(start.string() + ".output.npy", output);
  check.before(*found.of, found.inputs, [&](const OpCall& call) {
    const std::vector<ElementBound> bounds = bounds_of(call, static_cast<int>(found.worst.slot));
    std::string exact;
    for (const ElementBound& bound : bounds) {
      const double value = bound.exact.value();
      exact.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    const TensorView& view = call.outputs[found.worst.slot];
    write_npy_file(start.string() + ".exact.npy", {'f', sizeof(double), false},
                   {view.shape.begin(), view.shape.begin() + view.rank}, exact);
  });
}

std::string shapes_text(const Case& what) {
  std::vector<std::string> shapes;
  for (const cases::TensorSpec& input : what.inputs)
    shapes.push_back(input.shape.empty() ? "a number" : fmt::format("{}", fmt::join(input.shape, " x ")));
  return join_words(shapes, "and");
}

Table worst_table(const std::vector<Checked>& rows) {
  Table table{"worst",
              "The largest error over its bound",
              {{"op", ColumnKind::text},
               {"type", ColumnKind::text},
               {"accumulate", ColumnKind::text},
               {"error_over_bound"},
               {"error_ulps"},
               {"bound_ulps"},
               {"largest_ulps"},
               {"inputs", ColumnKind::text},
               {"output"},
               {"element"},
               {"elements", ColumnKind::number, Unit::count},
               {"unknown", ColumnKind::number, Unit::count}},
              {},
              0,
              "Errors in ulps of the output at the exact value; the largest of all is seldom where the bound is nearest."};
  for (const Checked& each : rows) {
    const Found& found = each.found;
    const Place& worst = found.worst;
    const bool has_any = found.of != nullptr;
    const auto number = [&](double value) { return has_any ? Cell(value) : Cell(Unknown{}); };
    const bool has_ulps = std::isfinite(worst.ulps) && worst.error > 0;
    table.rows.push_back(
        {{},
         {each.item->op, std::string(info(each.item->type).name),
          is_product(each.item->op) ? Cell(std::string(each.item->accumulation->name)) : Cell(NotApplicable{}),
          number(worst.over_bound), number(worst.ulps),
          has_ulps ? Cell(worst.bound.bound * (worst.ulps / worst.error)) : Cell(NotApplicable{}), number(found.largest_ulps),
          has_any ? Cell(fmt::format("{}, {}", name_of(found.input_class), shapes_text(*found.of))) : Cell(Unknown{}),
          has_any ? count_cell(worst.slot) : Cell(Unknown{}),
          has_any ? count_cell(static_cast<uint64_t>(worst.element)) : Cell(Unknown{}), count_cell(found.elements),
          count_cell(found.unknown)}});
  }
  return table;
}

Table bounds_table(const std::vector<Checked>& rows, const OpCheckOptions& options) {
  Table table{"bounds",
              "What the bounds are made of there",
              {{"op", ColumnKind::text},
               {"type", ColumnKind::text},
               {"bound"},
               {"before_the_store"},
               {"error"},
               {"stored"},
               {"exact"},
               {"formula", ColumnKind::text}},
              {},
              0,
              "docs/numerics.md derives them (\"Bounds\"). k is the number of terms, gamma_k = k u / (1 - k u)."};
  for (const Checked& each : rows) {
    const Found& found = each.found;
    if (found.of == nullptr) continue;
    const Place& worst = found.worst;
    const ItemCheck check(*each.item, options, [] { return false; });
    std::string text;
    check.before(*found.of, found.inputs, [&](const OpCall& call) { text = formula(*each.item, call, worst.slot); });
    if (found.of->terms > 0) text += fmt::format(", k = {}", found.of->terms);
    table.rows.push_back({{},
                          {each.item->op, std::string(info(each.item->type).name), worst.bound.bound, worst.bound.computed,
                           worst.error, worst.stored, worst.bound.exact.value(), std::move(text)}});
  }
  return table;
}

}  // namespace

OpCheck check_ops(const OpCheckOptions& options) {
  const std::vector<Item> items = items_of(options);
  std::vector<Found> all(items.size());
  const auto begin = Clock::now();
  std::atomic<size_t> next = 0, done = 0;
  std::atomic<bool> failed = false;
  const auto stopped = [&] { return failed || (options.stopped && options.stopped()); };
  const auto ended = [&] { return stopped() || (options.budget > 0 && seconds_since(begin) > options.budget); };
  std::exception_ptr problem;
  std::mutex problem_mutex;
  const auto work = [&](bool tells) {
    for (size_t i = next++; i < items.size() && !stopped(); i = next++) {
      if (tells && options.progress) options.progress(items[i].op, static_cast<double>(done) / static_cast<double>(items.size()));
      try {
        all[i] = ItemCheck(items[i], options, ended).run();
      } catch (...) {
        const std::lock_guard lock(problem_mutex);
        problem = std::current_exception();
        failed = true;
      }
      ++done;
    }
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < std::max(1u, std::thread::hardware_concurrency()); ++i) others.emplace_back(work, false);
  work(true);
  for (std::thread& other : others) other.join();
  if (problem) std::rethrow_exception(problem);

  OpCheck check;
  std::vector<Checked> rows;
  uint64_t calls = 0, elements = 0, unknown = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (all[i].calls == 0) continue;
    check.broken += all[i].broken;
    calls += all[i].calls;
    elements += all[i].elements;
    unknown += all[i].unknown;
    rows.push_back({&items[i], std::move(all[i])});
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Checked& a, const Checked& b) { return a.found.worst.over_bound > b.found.worst.over_bound; });
  const size_t shown = options.limit == 0 ? rows.size() : std::min(options.limit, rows.size());
  const size_t left_out = rows.size() - shown;
  Report& report = check.report;
  report.analysis = "opcheck";
  report.title = "Errors of ops beside their bounds";
  report.complete = rows.size() == items.size() && !ended();
  report.add_fact("ops", count_cell(rows.size()), Unit::count);
  report.add_fact("calls", count_cell(calls), Unit::count);
  report.add_fact("elements", count_cell(elements), Unit::count);
  report.add_fact("without_bound", count_cell(unknown), Unit::count);
  report.add_fact("broken", count_cell(check.broken), Unit::count);
  rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(shown), rows.end());
  report.tables.push_back(worst_table(rows));
  if (options.explain) report.tables.push_back(bounds_table(rows, options));
  for (Table& table : report.tables) table.rows_left_out = left_out;
  if (!options.save.empty()) {
    for (const Checked& each : rows)
      if (each.found.of != nullptr) save(each, options);
  }
  return check;
}

}  // namespace ulpscope
