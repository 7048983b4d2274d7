#include "ulpscope/analyzers/verbs/trace_difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <type_traits>
#include <vector>

#include "ulpscope/analyzers/subject/selection.h"

namespace ulpscope {

namespace {

// A field of two rows; NaNs are equal to themselves, and zeros of different signs are not.
struct FieldDifference {
  std::string what, first, second;
};
class Fields {
 public:
  template <typename T>
  Fields& add(const char* name, const T& first, const T& second) {
    if (found_ || is_same(first, second)) return *this;
    if constexpr (std::is_same_v<T, ExponentHistogram>) {
      int bin = 0;
      while (bin + 1 < ExponentHistogram::kBins && first.bins[static_cast<size_t>(bin)] == second.bins[static_cast<size_t>(bin)])
        ++bin;
      const auto at = static_cast<size_t>(bin);
      found_ = {fmt::format("{} at 2^{}", name, ExponentHistogram::exponent(bin)), fmt::format("{}", first.bins[at]),
                fmt::format("{}", second.bins[at])};
    } else {
      found_ = {name, fmt::format("{}", first), fmt::format("{}", second)};
    }
    return *this;
  }
  const std::optional<FieldDifference>& found() const { return found_; }

 private:
  template <typename T>
  static bool is_same(const T& first, const T& second) {
    if constexpr (std::is_same_v<T, double>)
      return std::bit_cast<uint64_t>(first) == std::bit_cast<uint64_t>(second);
    else
      return first == second;
  }
  std::optional<FieldDifference> found_;
};

std::optional<FieldDifference> difference(const TensorRow& a, const TensorRow& b) {
  Fields fields;
  const StatisticsLevel known = std::min(a.known, b.known);
  const TensorStatistics &x = a.statistics, &y = b.statistics;
  if (known >= StatisticsLevel::health) {
    fields.add("count", x.count, y.count).add("NaN", x.nan, y.nan).add("+Inf", x.positive_infinity, y.positive_infinity);
    fields.add("-Inf", x.negative_infinity, y.negative_infinity).add("zeros", x.zeros, y.zeros);
  }
  if (known >= StatisticsLevel::values) {
    fields.add("largest", x.largest, y.largest).add("smallest", x.smallest, y.smallest).add("negatives", x.negatives, y.negatives);
    fields.add("sum", x.sum, y.sum).add("sum of squares", x.sum_of_squares, y.sum_of_squares);
    fields.add("histogram", x.histogram, y.histogram);
  }
  if (a.rounding_known && b.rounding_known) {
    const RoundingCounts &r = a.rounding, &s = b.rounding;
    fields.add("flushed", r.flushed, s.flushed).add("subnormal", r.subnormal, s.subnormal);
    fields.add("inexact subnormal", r.inexact_subnormal, s.inexact_subnormal).add("overflowed", r.overflowed, s.overflowed);
    fields.add("rescued", r.rescued, s.rescued).add("saturated", r.saturated, s.saturated);
  }
  fields.add("inputs read as zero", a.input.flushed, b.input.flushed).add("nonzero inputs", a.input.nonzero, b.input.nonzero);
  fields.add("loss scale", a.scale, b.scale).add("quantization scale", a.quantization_scale, b.quantization_scale);
  return fields.found();
}

std::optional<FieldDifference> difference(const ParameterRow& a, const ParameterRow& b) {
  Fields fields;
  fields.add("learning rate", a.learning_rate, b.learning_rate).add("|w|", a.weight_norm, b.weight_norm);
  fields.add("|d|", a.update_norm, b.update_norm).add("g . d", a.gradient_dot_update, b.gradient_dot_update);
  fields.add("decay asked", a.decay_asked, b.decay_asked).add("decay applied", a.decay_applied, b.decay_applied);
  fields.add("nonzero updates", a.nonzero, b.nonzero).add("lost updates", a.lost, b.lost);
  return fields.found();
}

std::optional<FieldDifference> difference(const FingerprintRow& a, const FingerprintRow& b) {
  return Fields().add("sum of the bits", a.written, b.written).found();
}

std::optional<FieldDifference> difference(const SumRow& a, const SumRow& b) {
  const SumCounts &x = a.counts, &y = b.counts;
  Fields fields;
  fields.add("additions", a.additions, b.additions).add("addends", x.addends, y.addends).add("absorbed", x.absorbed, y.absorbed);
  fields.add("asked", x.asked, y.asked).add("arrived", x.arrived, y.arrived).add("magnitude", x.magnitude, y.magnitude);
  return fields.found();
}

std::optional<FieldDifference> difference(const BitsRow& a, const BitsRow& b) {
  return Fields().add("hash of the bits", a.hash, b.hash).found();
}

std::optional<FieldDifference> difference(const StepRow& a, const StepRow& b) {
  Fields fields;
  if (a.loss_known && b.loss_known) fields.add("loss", a.loss, b.loss);
  fields.add("learning rate", a.learning_rate, b.learning_rate).add("loss scale", a.scale_before, b.scale_before);
  if (a.norm_known && b.norm_known) {
    fields.add("gradient norm", a.gradient_norm, b.gradient_norm);
    fields.add("clipped gradient norm", a.clipped_gradient_norm, b.clipped_gradient_norm);
  }
  fields.add("skipped", a.skipped, b.skipped).add("next loss scale", a.scale_after, b.scale_after);
  return fields.found();
}

// What a row is of, in either trace: the micro-batch, the loss and the output.
struct RowPlace {
  OutputId output;
  uint32_t micro_batch = 0;
  uint8_t loss_index = 0;
  auto operator<=>(const RowPlace&) const = default;  // NOLINT(modernize-use-nullptr): of Clang 14's own making
};

template <typename Row>
RowPlace place_of(const Selection& selection, const Row& row) {
  if constexpr (std::is_same_v<Row, TensorRow> || std::is_same_v<Row, BitsRow>)
    return {selection.output(row.tensor), row.micro_batch, row.loss_index};
  return {selection.output(row.tensor), 0, 0};
}

template <typename Row>
std::vector<Row> rows_of_step(const Snapshot& trace, const Selection& selection, uint64_t step) {
  std::vector<Row> rows;
  const auto add = [&](std::span<const Row> more) {
    for (const Row& row : more)
      if (selection.contains(row.tensor)) rows.push_back(row);  // and so the trace has that tensor
    return true;
  };
  const StepRange range{step, step + 1};
  if constexpr (std::is_same_v<Row, TensorRow>) trace.visit_rows(range, add);
  if constexpr (std::is_same_v<Row, ParameterRow>) trace.visit_parameters(range, add);
  if constexpr (std::is_same_v<Row, FingerprintRow>) trace.visit_fingerprints(range, add);
  if constexpr (std::is_same_v<Row, SumRow>) trace.visit_sums(range, add);
  if constexpr (std::is_same_v<Row, BitsRow>) trace.visit_bits(range, add);
  return rows;
}

// In which steps a trace may lack rows of what ran.
class Unrecorded {
 public:
  // Filters that both have leave out the same.
  Unrecorded(const Snapshot& trace, const Snapshot& other)
      : is_filtered_(!trace.run().filters.empty() && trace.run().filters != other.run().filters) {
    // A size limit is that of one file: what resumed the run has its own.
    const std::vector<TracePart> parts = trace.parts();
    for (const EventRow& event : trace.events()) {
      if (event.kind != EventKind::cut_short) continue;
      for (const TracePart& part : parts)
        if (event.step >= part.steps.first && event.step < part.steps.last) cut_.push_back({event.step, part.steps.last});
    }
  }
  bool in(uint64_t step) const {
    return is_filtered_ ||
           std::any_of(cut_.begin(), cut_.end(), [&](const StepRange& cut) { return step >= cut.first && step < cut.last; });
  }

 private:
  bool is_filtered_;
  std::vector<StepRange> cut_;
};

class Comparison {
 public:
  Comparison(const Snapshot& first, const Snapshot& second)
      : first_(first),
        second_(second),
        a_(first, {}),
        b_(second, {}),
        not_in_a_(first, second),
        not_in_b_(second, first),
        both_have_sums_(both_have("sums")),
        both_have_bits_(both_have("bits")) {}

  TraceDifference run() {
    std::optional<uint64_t> begin;
    second_.visit_steps({}, [&](std::span<const StepRow> steps) {
      for (const StepRow& step : steps) {
        if (!begin) begin = step.step;
        if (!compare(step, step.step == *begin)) return false;
      }
      return true;
    });
    return std::move(result_);
  }

 private:
  bool both_have(std::string_view table) const { return first_.row_count(table) > 0 && second_.row_count(table) > 0; }
  // False where something differs.
  bool compare(const StepRow& second, bool is_first) {
    std::optional<StepRow> first;
    first_.visit_steps({second.step, second.step + 1}, [&](std::span<const StepRow> rows) {
      first = rows.front();
      return false;
    });
    if (!first) {
      if (result_.missing_steps++ == 0) result_.first_missing_step = second.step;
      return true;
    }
    const bool may_begin = is_first && !second_.run().parent_run.empty();
    if ((both_have_bits_ && !compare_rows<BitsRow>(second.step, may_begin)) || !compare_rows<TensorRow>(second.step, may_begin) ||
        !compare_rows<ParameterRow>(second.step, false) || (both_have_sums_ && !compare_rows<SumRow>(second.step, false)) ||
        !compare_rows<FingerprintRow>(second.step, may_begin)) {
      return false;
    }
    if (const auto differs = difference(*first, second)) {
      result_.difference =
          TraceDifference::First{key_of_step(second_, second.step), "", differs->what, differs->first, differs->second};
      return false;
    }
    ++result_.steps;
    return true;
  }

  template <typename Row>
  bool compare_rows(uint64_t step, bool may_begin) {
    const std::vector<Row> recorded = rows_of_step<Row>(first_, a_, step);
    // Rows of one place, if there are several, are those of each other in their order.
    std::map<RowPlace, std::vector<size_t>> left;
    for (size_t i = recorded.size(); i-- > 0;) left[place_of(a_, recorded[i])].push_back(i);
    size_t matched = 0;
    for (const Row& row : rows_of_step<Row>(second_, b_, step)) {
      std::vector<size_t>& same = left[place_of(b_, row)];
      if (same.empty()) {
        if (may_begin && is_initial(row.tensor)) continue;
        if (not_in_a_.in(step)) {
          ++result_.unrecorded_rows;
          continue;
        }
        return differ(b_, row, {"", "not there", "there"});
      }
      ++matched;
      ++result_.rows;
      if (const auto differs = difference(recorded[same.back()], row)) return differ(b_, row, *differs);
      same.pop_back();
    }
    if (matched == recorded.size()) return true;
    if (not_in_b_.in(step)) {
      result_.unrecorded_rows += recorded.size() - matched;
      return true;
    }
    size_t first = recorded.size();
    for (const auto& [place, rows] : left)
      if (!rows.empty()) first = std::min(first, rows.back());
    return differ(a_, recorded[first], {"", "there", "not there"});
  }

  bool is_initial(uint32_t tensor) const {
    return b_.op(tensor).function == OpFunction::source && b_.tensor(tensor).role != Role::input;
  }

  template <typename Row>
  bool differ(const Selection& selection, const Row& row, const FieldDifference& differs) {
    RowKey key;
    if constexpr (std::is_same_v<Row, TensorRow>) {
      key = selection.key(row.tensor, position_of(row, 0));
    } else {
      key = selection.key(row.tensor);
      key.step = row.step;
    }
    result_.difference =
        TraceDifference::First{std::move(key), selection.name(row.tensor), differs.what, differs.first, differs.second};
    return false;
  }

  const Snapshot &first_, &second_;
  Selection a_, b_;
  Unrecorded not_in_a_, not_in_b_;
  const bool both_have_sums_;  // which devices do not record, and older versions
  const bool both_have_bits_;
  TraceDifference result_;
};

}  // namespace

TraceDifference find_difference(const Snapshot& first, const Snapshot& second) { return Comparison(first, second).run(); }

}  // namespace ulpscope
