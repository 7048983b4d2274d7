// What a finding is: what raises it, what it means and what helps, and which others may come of it. Each file of this folder that
// is named after a code defines that finding; all.h has the list.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/analyzers/subject/advice.h"

namespace ulpscope {

struct ComparedRuns;
struct FindingRule;
class RunFacts;

// What a finding is a part of, and which verbs ask for it.
enum class Part : uint8_t { recording, run, ranges, scale, updates, errors, tensor_cores, compare };
const char* name_of(Part part);

// Codes of findings, as a constant; with a '*' at its end a code stands for all that begin so.
class Codes {
 public:
  consteval Codes(std::initializer_list<std::string_view> codes) {
    for (const std::string_view code : codes) codes_[count_++] = code;
  }
  consteval Codes operator+(const Codes& others) const {
    Codes all = *this;
    for (const std::string_view code : others) all.codes_[all.count_++] = code;
    return all;
  }
  constexpr const std::string_view* begin() const { return codes_.data(); }
  constexpr const std::string_view* end() const { return codes_.data() + count_; }
  bool contain(std::string_view code) const;

 private:
  std::array<std::string_view, 32> codes_ = {};  // more do not compile
  size_t count_ = 0;
};

// Where a rule's findings go: some say something several times, of what is harmful and of what is not.
class Findings {
 public:
  // `broken_from`: the step from which on the run is broken; UINT64_MAX: it is not.
  Findings(const FindingRule& rule, uint64_t broken_from, Report& report)
      : rule_(rule), broken_from_(broken_from), report_(report) {}
  void add(Severity severity, Sentences title, std::vector<Evidence> evidence = {}, Advice advice = {}, Extent extent = {});
  // The same of what was judged by the steps before the run broke only, which the title then says.
  void add_judged(Severity severity, Sentences title, std::vector<Evidence> evidence = {}, Advice advice = {}, Extent extent = {});

 private:
  const FindingRule& rule_;
  uint64_t broken_from_;
  Report& report_;
};

struct FindingRule {
  std::string_view code;
  Part part = Part::run;
  std::string_view raised;              // the condition, a sentence
  std::string_view meaning = "";        // for the run
  std::string_view help = "";           // what to do
  std::optional<Picture> picture = {};  // none: that of its part
  Codes explains = {};  // findings that come of it where the recorded graph leads from its tensors to theirs (verdict.h)
  // False: it says how the recording went or what might be, and has no part in the verdict on the run.
  bool is_about_run = true;
  // What `ulpscope train` is given for a run that shows it: "experiments/failures/dead_relu.toml".
  std::string_view shown_by = "";
  // What it finds in a run, or in two. `find_start`: told before what other rules of the part find that is as severe, for it may be
  // where all of that began.
  void (*find_start)(const RunFacts& facts, Findings& found) = nullptr;
  void (*find)(const RunFacts& facts, Findings& found) = nullptr;
  void (*compare)(const ComparedRuns& runs, Findings& found) = nullptr;
};

}  // namespace ulpscope
