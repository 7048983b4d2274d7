// Timelines of parts that are merged are those of all steps, and broken is what lies behind the last finite loss, from the first
// loss on that is not.
#include "ulpscope/analyzers/subject/timeline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace ulpscope {
namespace {

struct Numbers {
  std::vector<uint64_t> steps;
  void append(const Numbers& later) { steps.insert(steps.end(), later.steps.begin(), later.steps.end()); }
};

StepRow step_of(uint64_t number, char kind) {
  StepRow row;
  row.step = number;
  row.loss_known = kind != '?';
  row.loss = kind == 'n' || kind == 's' ? NAN : 1.0;
  row.skipped = kind == 's';
  return row;
}

// Kinds of steps: f, a finite loss; n, NaN; s, NaN and skipped; ?, not known.
Timeline<Numbers> timeline_of(const std::string& kinds, size_t first, size_t end) {
  Timeline<Numbers> timeline;
  for (size_t i = first; i < end; ++i) timeline.at(step_of(i, kinds[i])).steps.push_back(i);
  return timeline;
}

void expect_right(const Timeline<Numbers>& timeline, const std::string& kinds) {
  const size_t last_finite = kinds.rfind('f'),
               first_bad = kinds.find_first_of("ns", last_finite == std::string::npos ? 0 : last_finite);
  const bool recovered = last_finite != std::string::npos && kinds.find_first_of("ns") < last_finite;
  const std::string tail = first_bad == std::string::npos ? "" : kinds.substr(first_bad);
  const auto bad = std::count(tail.begin(), tail.end(), 'n') + std::count(tail.begin(), tail.end(), 's');
  const bool goes_on = recovered && bad == 1 && tail.find('s') != std::string::npos;
  const size_t broken_from = first_bad == std::string::npos || goes_on ? kinds.size() : first_bad;
  Numbers room;
  const std::vector<uint64_t> judged = timeline.judged(room).steps;
  Numbers other_room;
  const std::vector<uint64_t> broken = timeline.broken(other_room).steps;
  EXPECT_EQ(judged.size(), broken_from) << kinds;
  EXPECT_EQ(broken.size(), kinds.size() - broken_from) << kinds;
  std::vector<uint64_t> all = judged;
  all.insert(all.end(), broken.begin(), broken.end());
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], i) << kinds;
  EXPECT_EQ(timeline.whole().steps, all) << kinds;
  EXPECT_EQ(timeline.broken_from(), broken_from == kinds.size() ? std::nullopt : std::optional<uint64_t>(broken_from)) << kinds;
}

TEST(Timeline, AStepWhoseLossIsNotKnownEndsNothing) {
  for (const char* kinds : {"ffnn?", "ffn?n??", "?f?n?", "??nn", "fn?f?", "????", "fnfs?", "fnf?s"})
    expect_right(timeline_of(kinds, 0, std::string(kinds).size()), kinds);
}

TEST(Timeline, PartsThatAreMergedAreTheWhole) {
  std::mt19937 random(3);
  const auto below = [&](size_t n) { return random() % n; };
  for (int round = 0; round < 3000; ++round) {
    std::string kinds;
    for (size_t i = 0, size = 1 + below(9); i < size; ++i) kinds += "fns?"[below(4)];
    std::vector<Timeline<Numbers>> parts;
    for (size_t first = 0; first < kinds.size();) {
      const size_t end = first + 1 + below(kinds.size() - first);
      parts.push_back(timeline_of(kinds, first, end));
      first = end;
    }
    while (parts.size() > 1) {  // neighbours, in any order
      const size_t i = below(parts.size() - 1);
      const bool forward = below(2) == 0;
      parts[forward ? i : i + 1].merge(std::move(parts[forward ? i + 1 : i]));
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(forward ? i + 1 : i));
    }
    expect_right(parts.front(), kinds);
  }
}

}  // namespace
}  // namespace ulpscope
