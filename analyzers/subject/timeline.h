// What the rows of a run add up to, rank by rank and in time, so that what was seen of some rows joins exactly with what was seen
// of others. A `Total` is a struct that starts empty and has
//   append(later)   the same rank's steps that came after its own
//   beside(other)   another rank's
// both of a const Total&.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {

// The first of both, where there are some.
template <typename Place>
void keep_first(std::optional<Place>& into, const std::optional<Place>& other) {
  if (other && (!into || *other < *into)) into = other;
}

// A loss that is known, and is NaN or infinite.
bool has_nonfinite_loss(const StepRow& step);

// Steps, kept as ranges of them.
class StepSet {
 public:
  void add(uint64_t step);
  void add(const StepSet& other);
  uint64_t size() const;
  bool empty() const { return ranges_.empty(); }
  bool contains(uint64_t step) const;
  bool is_within(const StepSet& other) const;
  // Of one that is not empty.
  uint64_t first() const { return ranges_.front().first; }
  uint64_t last() const { return ranges_.back().last; }
  // Where the last stretch of steps began, with those before it that lie no further apart than the one before was long: what goes
  // away for a step or two has not ended. Of one that is not empty.
  uint64_t first_of_last_bout() const;

 private:
  struct Range {
    uint64_t first, last;  // both inside
  };
  void add(Range range);
  std::vector<Range> ranges_;  // ascending, with steps between them
};

// One rank's total, in segments of steps. From where on a run is broken, every loss to its end NaN or infinite, only its end tells.
// So the steps since the last finite loss are an open segment, which a finite loss adds to the others: at any moment `judged` is of
// the steps before the run broke, as far as is known, and `broken` of those from there on. A step whose loss is not known, as that
// in which a program ended, tells nothing, and goes with the steps before it. A run that got over such steps before, and whose last
// one alone was skipped for it, goes on: it did not break.
template <typename Total>
class Timeline {
 public:
  // Where to add what a step holds, which does not come before one that was asked for earlier.
  Total& at(const StepRow& step) {
    if (is_empty_) first_ = step.step;
    is_empty_ = false;
    last_ = step.step;
    if (!step.loss_known) return broken_from_ ? broken_ : is_judged_ ? judged_ : unknown();
    if (!has_nonfinite_loss(step)) {
      close_segment();
      take_unknown();
      is_judged_ = true;
      return judged_;
    }
    if (!broken_from_) broken_from_ = step.step;
    ++open_steps_;
    was_skipped_ = step.skipped;
    return broken_;
  }

  // Of all steps.
  Total whole() const {
    Total all;
    all.append(unknown_);
    all.append(judged_);
    all.append(broken_);
    return all;
  }
  // `room` is where segments are added up, where that is needed.
  const Total& judged(Total& room) const {
    if (goes_on()) return room = whole();
    if (!has_unknown_) return judged_;
    room = Total();
    room.append(unknown_);  // nothing is in judged_
    return room;
  }
  const Total& broken(Total& room) const { return goes_on() ? room = Total() : broken_; }
  std::optional<uint64_t> broken_from() const { return goes_on() ? std::nullopt : broken_from_; }

  // Steps that come all after these, or all before them.
  void merge(Timeline&& other) {
    if (other.is_empty_) return;
    if (!is_empty_ && other.first_ < first_) std::swap(*this, other);
    if (!is_empty_ && other.first_ <= last_) throw Error(ErrorKind::failed, "analyses of steps between each other's were merged");
    if (is_empty_) first_ = other.first_;
    is_empty_ = false;
    last_ = other.last_;
    if (other.has_unknown_) (broken_from_ ? broken_ : is_judged_ ? judged_ : unknown()).append(other.unknown_);
    if (other.is_judged_) {
      close_segment();
      take_unknown();
      judged_.append(other.judged_);
      is_judged_ = true;
      got_over_ = got_over_ || other.got_over_;
    }
    if (!other.broken_from_) return;
    broken_.append(other.broken_);
    if (!broken_from_) broken_from_ = other.broken_from_;
    open_steps_ += other.open_steps_;
    was_skipped_ = other.was_skipped_;
  }

 private:
  Total& unknown() {
    has_unknown_ = true;
    return unknown_;
  }
  // Once a finite loss was seen, what came before the first known one belongs to the judged steps.
  void take_unknown() {
    if (!has_unknown_) return;
    Total all = std::move(unknown_);
    all.append(judged_);
    judged_ = std::move(all);
    unknown_ = Total();
    has_unknown_ = false;
  }
  void close_segment() {
    if (!broken_from_) return;
    judged_.append(broken_);
    broken_ = Total();
    broken_from_.reset();
    open_steps_ = 0;
    got_over_ = true;
  }
  bool goes_on() const { return got_over_ && open_steps_ == 1 && was_skipped_; }

  Total unknown_, judged_, broken_;
  bool has_unknown_ = false;                  // steps before the first known loss, which belong to what came before these
  bool is_empty_ = true, is_judged_ = false;  // no step was seen; one with a finite loss was
  uint64_t first_ = 0, last_ = 0;
  std::optional<uint64_t> broken_from_;
  uint64_t open_steps_ = 0;   // since the last finite loss
  bool was_skipped_ = false;  // the last of them
  bool got_over_ = false;     // a finite loss came behind others
};

// The ranks of a run, each with its timeline.
template <typename Total>
class ByRank {
 public:
  Total& at(int rank, const StepRow& step) { return ranks_[rank].at(step); }
  void merge(ByRank&& other) {
    for (auto& [rank, timeline] : other.ranks_) ranks_[rank].merge(std::move(timeline));
  }

  // Of all ranks side by side; `room` is where they are added up, where there are several.
  const Total& judged(Total& room) const {
    return add_up(room, [](const auto& timeline, Total& of_rank) -> const Total& { return timeline.judged(of_rank); });
  }
  const Total& broken(Total& room) const {
    return add_up(room, [](const auto& timeline, Total& of_rank) -> const Total& { return timeline.broken(of_rank); });
  }
  // Of all steps.
  Total whole() const {
    Total all;
    for (const auto& [rank, timeline] : ranks_) all.beside(timeline.whole());
    return all;
  }
  // From where on every loss of a rank was NaN or infinite to its end, the earliest of such.
  std::optional<uint64_t> broken_from() const {
    std::optional<uint64_t> earliest;
    for (const auto& [rank, timeline] : ranks_) keep_first(earliest, timeline.broken_from());
    return earliest;
  }
  // Those ranks.
  std::vector<int> broken_ranks() const {
    std::vector<int> broken;
    for (const auto& [rank, timeline] : ranks_)
      if (timeline.broken_from()) broken.push_back(rank);
    return broken;
  }

 private:
  template <typename Part>
  const Total& add_up(Total& room, Part&& part) const {
    if (ranks_.size() == 1) return part(ranks_.begin()->second, room);
    room = Total();
    for (const auto& [rank, timeline] : ranks_) {
      Total of_rank;
      room.beside(part(timeline, of_rank));
    }
    return room;
  }

  std::map<int, Timeline<Total>> ranks_;
};

// A Total for each tensor, by its index.
template <typename Total>
class PerTensor {
 public:
  Total& operator[](uint32_t tensor) {
    if (tensor >= totals_.size()) totals_.resize(std::max<size_t>(tensor + 1, 2 * totals_.size()));
    if (!totals_[tensor]) {
      totals_[tensor] = std::make_unique<Total>();
      present_.push_back(tensor);
    }
    return *totals_[tensor];
  }
  const Total* find(uint32_t tensor) const { return tensor < totals_.size() ? totals_[tensor].get() : nullptr; }
  // Those that have one, in the order in which they came.
  const std::vector<uint32_t>& tensors() const { return present_; }

  void append(const PerTensor& later) {
    for (const uint32_t tensor : later.present_) (*this)[tensor].append(*later.totals_[tensor]);
  }
  void beside(const PerTensor& other) {
    for (const uint32_t tensor : other.present_) (*this)[tensor].beside(*other.totals_[tensor]);
  }

 private:
  std::vector<std::unique_ptr<Total>> totals_;
  std::vector<uint32_t> present_;
};

}  // namespace ulpscope
