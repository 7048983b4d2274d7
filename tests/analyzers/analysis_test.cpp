// However the steps of a run come to its analyses, they say the same: in one go, in pieces that are merged, over ranks, and while
// the trace grows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <set>

#include "report_access.h"
#include "synthetic_trace.h"
#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/analyzers/findings/followed_run.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/run_memory.h"
#include "ulpscope/analyzers/report/json.h"
#include "ulpscope/analyzers/tables/scale_tables.h"
#include "ulpscope/analyzers/tables/update_tables.h"
#include "ulpscope/analyzers/tables/what_if_tables.h"
#include "ulpscope/analyzers/totals/fitting_scale.h"
#include "ulpscope/analyzers/totals/followed.h"
#include "ulpscope/analyzers/totals/range_facts.h"
#include "ulpscope/analyzers/totals/update_facts.h"
#include "ulpscope/analyzers/verbs/all_findings.h"
#include "ulpscope/analyzers/verbs/info.h"
#include "ulpscope/analyzers/verbs/ranges.h"
#include "ulpscope/analyzers/verbs/scale.h"
#include "ulpscope/analyzers/verbs/updates.h"
#include "ulpscope/analyzers/verbs/what_if_report.h"
#include "ulpscope/base/error.h"
#include "ulpscope/trace/run_set.h"

namespace ulpscope::analyzers_test {
namespace {

using All = Together<FittingScale, RangeFacts, UpdateFacts, UpdateHistory, WhatIfFacts>;

WhatIfOptions what_if_options() {
  WhatIfOptions options;
  options.limit = 0;
  options.formats = {&binary16, &e4m3};
  options.exponents = parse_scale_exponents("--scale", std::vector<std::string>{"2^-2..2^20"});
  options.scalings = {parse_scaling("dynamic:growth_interval=3"), parse_scaling("static:2^12")};
  return options;
}

All make_all() {
  const WhatIfOptions options = what_if_options();
  return All(FittingScale(0.01), RangeFacts(std::vector{&binary16, &bfloat16}), UpdateFacts(), UpdateHistory(),
             WhatIfFacts(options.formats, options.exponents, replayed_exponents(options.scalings)));
}

AnalysisOptions every_row(StepRange steps = {}) {
  AnalysisOptions options;
  options.steps = steps;
  options.limit = 0;
  return options;
}

// Gives every number that the analyses say. `memory`: of the same trace when it was shorter.
std::string analyzed(const AnalysisContext& context, const StepFacts& steps, const All& all, RunMemory& memory) {
  Report report = info_for_report(context, steps);
  const FittingScales fitting = all.get<FittingScale>().result();
  const RunFacts facts(context, steps, {&all.get<RangeFacts>(), &fitting, &all.get<UpdateFacts>()}, memory);
  find_all(kPartsOnRun, facts, report);
  RangeTables(context, {}, all.get<RangeFacts>(), facts.ranges()).add_to(report);
  ScaleTables(context, facts.steps(), facts.scale(), fitting).add_to(report);
  UpdateTables(facts, all.get<UpdateHistory>()).add_to(report);
  const WhatIfOptions options = what_if_options();
  const std::vector<int> replayed = replayed_exponents(options.scalings);
  WhatIfTables(context, options, replayed, all.get<WhatIfFacts>().whole(), steps.whole()).add_to(report);
  return render_json(report);
}

std::string analyzed(const AnalysisContext& context, const StepFacts& steps, const All& all) {
  RunMemory memory;
  return analyzed(context, steps, all, memory);
}

std::string analyzed(const Snapshot& trace, size_t threads = 1) {
  Followed<All> seen(make_all, every_row(), threads);
  EXPECT_TRUE(seen.update(trace));
  return analyzed(seen.context(), seen.steps(), seen.analysis());
}

// A run of FP16, FP8 and FP32 tensors with everything that analyses tell apart by what came before or after: losses that are
// nonfinite, skipped steps, scales that change, first rows without a history, rows of several micro-batches, and steps without
// rows.
class RandomRun {
 public:
  explicit RandomRun(uint32_t seed, int rank = 0, int ranks = 1) : trace(run_of(rank, ranks)), random_(seed) {
    loss_gradient_ = add("", "cross_entropy_backward", 0, Role::activation_gradient, DType::f16);
    tensors_ = {add("a", "linear", 0, Role::activation, DType::f16, Phase::forward),
                add("a", "quantize", 0, Role::activation, DType::f8_e4m3, Phase::forward),
                loss_gradient_,
                add("b", "linear_backward", 0, Role::activation_gradient, DType::f16),
                add("b", "linear_backward", 1, Role::weight_gradient, DType::f16),
                add("b", "sum", 0, Role::weight_gradient, DType::f32),
                add("c", "unscale", 0, Role::unscaled_gradient, DType::f32, Phase::scaling),
                add("c", "amax_history_update", 0, Role::buffer, DType::f32, Phase::optimizer),
                add("d", "relu", 0, Role::activation, DType::bf16, Phase::forward),
                add("", "source", 0, Role::input, DType::f32, Phase::data)};
    trace.sink().add_edge({0, 3, 0, 2, 0});
    trace.sink().add_edge({0, 4, 0, 3, 0});
  }

  static RunInfo run_of(int rank, int ranks) {
    RunInfo run;
    run.run_id = "0123456789abcdef0123456789abcdef";
    run.producer = "test";
    run.precision = "fp16";
    run.rank = rank;
    run.world_size = ranks;
    run.dynamic_loss_scale = true;
    return run;
  }

  void add_step(double loss) {
    const auto one_in = [&](int n) { return random_() % static_cast<uint32_t>(n) == 0; };
    StepRow row = SyntheticTrace::default_step(loss, scale_);
    row.loss_known = !one_in(9);
    row.skipped = one_in(4);
    row.learning_rate = one_in(3) ? 0 : 1e-3;
    row.seconds = 1e-6 * static_cast<double>(random_() % 1000000);
    if (row.skipped) scale_ /= 2;
    if (one_in(6)) scale_ *= 4;
    row.scale_after = scale_;
    for (uint32_t micro_batch = 0; micro_batch < 1 + random_() % 2 && !one_in(7); ++micro_batch) {
      for (const uint32_t tensor : tensors_) {
        if (!one_in(5)) trace.add(tensor, random_row(tensor, micro_batch, one_in(12)));
      }
    }
    const uint64_t nonzero = random_() % 100, lost = random_() % (nonzero + 1);
    trace.add_update(loss_gradient_, nonzero, lost, random_() % (lost + 1));
    if (row.skipped) trace.add_event(EventKind::scale_backoff, loss_gradient_, 1 + random_() % 5, scale_);
    losses.push_back(row);
    trace.end_step(row);
  }

  SyntheticTrace trace;
  std::vector<StepRow> losses;

 private:
  uint32_t add(const char* module, const char* op, uint32_t slot, Role role, DType dtype, Phase phase = Phase::backward) {
    OpInfo made_by;
    made_by.id = 1 + (slot == 0 ? next_op_++ : next_op_ - 1);
    made_by.name = op;
    made_by.module = module;
    made_by.phase = phase;
    TensorInfo tensor;
    tensor.slot = slot;
    tensor.role = role;
    tensor.dtype = dtype;
    tensor.shape = {20};
    types_.push_back(dtype);
    return trace.add_output(made_by, tensor);
  }

  TensorRow random_row(uint32_t tensor, uint32_t micro_batch, bool nonfinite) {
    const DType dtype = types_[tensor];
    std::vector<double> values =
        lognormal(random_, static_cast<double>(random_() % 40) - 28, 1 + static_cast<double>(random_() % 8), 20);
    if (nonfinite) values[random_() % values.size()] = random_() % 2 ? NAN : INFINITY;
    if (is_quantized(dtype)) {
      TensorRow row = make_row(values, DType::f16, 1.0);
      row.quantization_scale = random_() % 3 == 0 ? 0.25 : 1.0;
      row.micro_batch = micro_batch;
      return row;
    }
    TensorRow row = random_() % 6 == 0 ? make_health_row(values, dtype, scale_) : make_row(values, dtype, scale_);
    row.micro_batch = micro_batch;
    return row;
  }

  std::mt19937 random_;
  double scale_ = 65536;
  uint64_t next_op_ = 0;
  uint32_t loss_gradient_ = 0;
  std::vector<uint32_t> tensors_;
  std::vector<DType> types_;
};

// Finite, then NaN, then finite again, and so on.
double loss_of(uint64_t step, const std::vector<uint64_t>& turns) {
  return (std::upper_bound(turns.begin(), turns.end(), step) - turns.begin()) % 2 == 1 ? NAN : 1.0;
}

struct Piece {
  StepFacts steps;
  All all = make_all();
};

// What one analysis sees of the steps [first, last) of a part.
Piece see(const AnalysisContext& context, size_t part, StepRange steps) {
  Piece piece;
  piece.all.begin(context);
  context.trace.of_part(part).visit_steps(steps, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) piece.steps.add(context.parts[part], row, context.is_fitted(row));
    return true;
  });
  EXPECT_TRUE(visit_blocks(
      context, {part, steps}, piece.all.reads(), [&](const Block& block) { piece.all.update(block); },
      [](size_t) { return true; }));
  return piece;
}

// Merges neighbours, in any order, until one is left.
Piece merge_all(std::vector<Piece> pieces, std::mt19937& random) {
  while (pieces.size() > 1) {
    const size_t i = random() % (pieces.size() - 1);
    const bool backwards = random() % 2 == 0;
    Piece &into = pieces[i + backwards], &from = pieces[i + !backwards];
    into.steps.merge(std::move(from.steps));
    into.all.merge(std::move(from.all));
    pieces.erase(pieces.begin() + static_cast<ptrdiff_t>(i + !backwards));
  }
  return std::move(pieces.front());
}

TEST(Analysis, MergesOfRandomSplitsAreTheWhole) {
  const std::vector<std::vector<uint64_t>> turns = {
      {}, {25}, {7, 9, 20, 24, 33}, {0, 3}, {0}, {10, 11, 12, 13, 14, 15, 16, 17}, {7, 9, 39}, {3, 4, 8, 9, 39}};
  for (uint32_t seed = 0; seed < 32; ++seed) {
    RandomRun run(seed);
    for (uint64_t step = 0; step < 40; ++step) run.add_step(loss_of(step, turns[seed % turns.size()]));
    const Snapshot trace = run.trace.read();
    const AnalysisContext context(trace, every_row());
    std::mt19937 random(seed);
    for (int round = 0; round < 4; ++round) {
      std::vector<uint64_t> cuts{0, 40};
      for (uint32_t i = 0; i < 1 + random() % 8; ++i) cuts.push_back(random() % 40);
      std::sort(cuts.begin(), cuts.end());
      std::vector<Piece> pieces;
      for (size_t i = 1; i < cuts.size(); ++i) pieces.push_back(see(context, 0, {cuts[i - 1], cuts[i]}));
      const Piece merged = merge_all(std::move(pieces), random);
      ASSERT_EQ(analyzed(context, merged.steps, merged.all), analyzed(trace)) << "seed " << seed << ", round " << round;
    }
  }
}

TEST(Analysis, PiecesThatStepsLieBetweenAreNotMerged) {
  RandomRun run(1);
  for (int step = 0; step < 9; ++step) run.add_step(1.0);
  const Snapshot trace = run.trace.read();
  const AnalysisContext context(trace, {});
  Piece around = see(context, 0, {0, 3});
  around.steps.merge(see(context, 0, {6, 9}).steps);
  EXPECT_THROW(around.steps.merge(see(context, 0, {3, 6}).steps), Error);
}

// Steps in two pieces, cut anywhere, against all of them by counting.
TEST(Analysis, PeaksAndClippingOfPiecesAreThoseOfTheWhole) {
  std::mt19937 random(5);
  std::vector<StepRow> rows;
  for (uint64_t step = 0; step < 30; ++step) {
    StepRow row = SyntheticTrace::default_step(static_cast<double>(random() % 7));
    row.step = step;
    row.loss_known = step % 4 != 1;
    if (step % 11 == 3) row.loss = INFINITY;
    row.norm_known = step % 5 != 2;
    row.skipped = step % 6 == 4;
    row.gradient_norm = step % 9 == 7 ? INFINITY : 1.0 + static_cast<double>(random() % 50);
    row.clipped_gradient_norm = step % 9 == 7 ? INFINITY : row.gradient_norm / (2.0 + static_cast<double>(random() % 3));
    rows.push_back(row);
  }
  std::optional<LossPeak> peak;
  double least = INFINITY, lowest = INFINITY, highest = 0;
  uint64_t clipped = 0;
  for (const StepRow& row : rows) {
    if (row.loss_known && std::isfinite(row.loss) && (!peak || row.loss > peak->loss)) peak = {row.loss, row.step};
    if (!row.norm_known || row.skipped || std::isinf(row.gradient_norm)) continue;
    ++clipped;
    least = std::min(least, row.gradient_norm / row.clipped_gradient_norm);
    lowest = std::min(lowest, row.gradient_norm);
    highest = std::max(highest, row.gradient_norm);
  }
  for (size_t cut = 0; cut <= rows.size(); ++cut) {
    StepTotals first, second;
    for (size_t i = 0; i < rows.size(); ++i) (i < cut ? first : second).add(rows[i], false);
    first.append(second);
    ASSERT_TRUE(first.peak);
    EXPECT_EQ(first.peak->loss, peak->loss) << cut;
    EXPECT_EQ(first.peak->step, peak->step) << cut;
    EXPECT_EQ(first.clipping.steps, clipped) << cut;
    EXPECT_EQ(first.clipping.least, least) << cut;
    EXPECT_EQ(first.clipping.least_norm, lowest) << cut;
    EXPECT_EQ(first.clipping.largest_norm, highest) << cut;
  }
}

// However the steps come: in one go, in two pieces, or in three.
TEST(Analysis, TheLowestLossesAreThoseOfAllPieces) {
  constexpr size_t kSteps = LowestLosses::kSteps;
  std::minstd_rand random(3);
  std::vector<std::pair<uint64_t, double>> losses;
  for (uint64_t step = 7; step < 7 + 6 * kSteps; ++step)
    if (step != 51) losses.emplace_back(step, step == 93 ? NAN : 1.0 + static_cast<double>(random() % 1000) / 500);
  std::optional<LossBlock> lowest;
  for (uint64_t number = 1; number < 6; ++number) {
    std::vector<double> block;
    for (const auto& [step, loss] : losses)
      if (step / kSteps == number && std::isfinite(loss)) block.push_back(loss);
    if (block.size() < kSteps) continue;
    std::sort(block.begin(), block.end());
    const double middle = (block[kSteps / 2 - 1] + block[kSteps / 2]) / 2;
    if (!lowest || middle < lowest->median) lowest = {number * kSteps, middle, block};
  }
  ASSERT_TRUE(lowest);
  for (size_t cut = 0; cut <= losses.size(); ++cut) {
    for (const size_t second_cut : {cut, cut + 1, cut + kSteps, cut + 2 * kSteps + 3}) {
      std::array<LowestLosses, 3> pieces;
      for (size_t i = 0; i < losses.size(); ++i) pieces[(i >= cut) + (i >= second_cut)].add(losses[i].first, losses[i].second);
      pieces[1].append(pieces[2]);
      pieces[0].append(pieces[1]);
      ASSERT_TRUE(pieces[0].block());
      EXPECT_EQ(pieces[0].block()->first_step, lowest->first_step) << cut << " " << second_cut;
      EXPECT_EQ(pieces[0].block()->median, lowest->median) << cut;
      EXPECT_EQ(pieces[0].block()->losses, lowest->losses) << cut;
    }
  }
}

// A trace that is read between steps while it grows, against one that is read as it then is, by a new analysis.
TEST(Analysis, FollowsAGrowingTrace) {
  RandomRun run(5);
  const std::vector<uint64_t> turns{8, 12, 21, 22, 30};
  run.add_step(1.0);
  ASSERT_TRUE(run.trace.sink().flush());
  RunSet live(run.trace.path());
  Followed<All> followed(make_all, every_row());
  RunMemory memory;
  for (uint64_t step = 1; step < 40; ++step) {
    run.add_step(loss_of(step, turns));
    if (step % 3 == 1) continue;  // two steps at once, now and then
    ASSERT_TRUE(run.trace.sink().flush());
    ASSERT_TRUE(live.refresh());
    for (int again = 0; again < 2; ++again) {  // then nothing is new
      ASSERT_TRUE(followed.update(live.snapshot()));
      ASSERT_EQ(analyzed(followed.context(), followed.steps(), followed.analysis(), memory), analyzed(live.snapshot()))
          << "step " << step;
    }
  }
}

// What is judged at any moment: the steps before those since which every loss was NaN, by counting.
TEST(Analysis, SegmentsAreRevisedWhileARunGoesOn) {
  SyntheticTrace trace;
  const uint32_t tensor = trace.add_tensor("a", "linear", Phase::forward, Role::activation, DType::f16);
  constexpr double kNone = -1;  // not known
  const std::vector<double> losses{1, NAN, INFINITY, 2, NAN, kNone, NAN, NAN, 3, 3, NAN, -INFINITY, NAN};
  for (size_t step = 0; step < losses.size(); ++step) {
    trace.add(tensor, make_row(std::vector<double>(step + 1, 1e-9), DType::f16));  // all flushed
    StepRow row = SyntheticTrace::default_step(losses[step]);
    row.loss_known = losses[step] != kNone;
    row.scale_before = row.scale_after = std::ldexp(1.0, static_cast<int>(step));
    trace.end_step(row);
  }
  const Snapshot reader = trace.read();
  for (uint64_t end = 1; end <= losses.size(); ++end) {
    uint64_t broken_from = end;
    for (uint64_t step = end; step-- > 0;) {
      if (losses[step] == kNone) continue;  // it ends nothing
      if (std::isfinite(losses[step])) break;
      broken_from = step;
    }
    uint64_t judged = 0, broken = 0, nonfinite = 0;
    for (uint64_t step = 0; step < end; ++step) (step < broken_from ? judged : broken) += step + 1;
    for (uint64_t step = 0; step < end; ++step) nonfinite += losses[step] != kNone && !std::isfinite(losses[step]);
    Followed<RangeFacts> seen([] { return RangeFacts(); }, every_row({0, end}));
    ASSERT_TRUE(seen.update(reader));
    EXPECT_EQ(seen.steps().broken_from(), broken_from == end ? UINT64_MAX : broken_from) << end;
    EXPECT_EQ(seen.steps().whole().nonfinite_losses.size(), nonfinite);
    EXPECT_EQ(seen.steps().whole().last.scale_after, std::ldexp(1.0, static_cast<int>(end) - 1));
    EXPECT_EQ(seen.steps().judged().last.scale_after, broken_from == 0 ? 1.0 : std::ldexp(1.0, static_cast<int>(broken_from) - 1));
    RunRanges room;
    const TensorRanges* of_judged = seen.analysis().ranges().judged(room).tensors.find(tensor);
    EXPECT_EQ(of_judged ? of_judged->totals.seen.flushed.lower : 0, judged) << end;
    const TensorRanges* of_broken = seen.analysis().ranges().broken(room).tensors.find(tensor);
    EXPECT_EQ(of_broken ? of_broken->totals.seen.flushed.lower : 0, broken) << end;
  }
}

// A run that had got over NaN goes on behind one more step that was skipped for it, as far as is known.
TEST(Analysis, OneMoreSkippedStepBreaksNoRun) {
  const auto broken_from = [](const std::vector<double>& losses, size_t taken) {
    SyntheticTrace trace;
    for (size_t step = 0; step < losses.size(); ++step) {
      StepRow row = SyntheticTrace::default_step(losses[step]);
      row.skipped = !std::isfinite(losses[step]) && step != taken;
      trace.end_step(row);
    }
    const Snapshot reader = trace.read();
    Followed<RangeFacts> seen([] { return RangeFacts(); }, every_row());
    EXPECT_TRUE(seen.update(reader));
    EXPECT_EQ(
        seen.steps().judged().count + (seen.steps().broken_from() == UINT64_MAX ? 0 : losses.size() - seen.steps().broken_from()),
        losses.size());
    return seen.steps().broken_from();
  };
  constexpr size_t kNone = 99;
  EXPECT_EQ(broken_from({1, NAN, 1, NAN}, kNone), UINT64_MAX);
  EXPECT_EQ(broken_from({1, NAN, 1, NAN}, 3), 3u);    // it was taken
  EXPECT_EQ(broken_from({1, 1, 1, NAN}, kNone), 3u);  // nothing says that it will
  EXPECT_EQ(broken_from({1, NAN, 1, NAN, NAN}, kNone), 3u);
}

TEST(Analysis, TwoThreadsSayWhatOneSays) {
  SyntheticTrace trace;
  const uint32_t gradient = trace.add_tensor("a", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  std::mt19937 random(3);
  std::vector<TensorRow> rows;
  for (int i = 0; i < 50; ++i) rows.push_back(make_row(lognormal(random, -20, 6, 30), DType::f16, 1024.0));
  constexpr uint64_t kRows = 70000;  // more than those for which one thread is enough
  for (uint64_t i = 0; i < kRows; ++i) {
    trace.add(gradient, rows[random() % rows.size()]);
    if (i % 100 != 99) continue;
    StepRow row = SyntheticTrace::default_step(i > 60000 ? NAN : 1.0, 1024.0);
    row.skipped = random() % 3 == 0;
    trace.end_step(row);
  }
  const Snapshot reader = trace.read();
  EXPECT_EQ(analyzed(reader, 2), analyzed(reader, 1));
}

// Ranks side by side: what they add up to is the sum, and a row's key has its rank.
TEST(Analysis, RanksAddUp) {
  std::vector<std::unique_ptr<RandomRun>> ranks;
  std::vector<std::string> paths;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::make_unique<RandomRun>(100 + rank, rank, 3));
    for (uint64_t step = 0; step < 30; ++step) ranks.back()->add_step(loss_of(step, {9, 12, 20}));
    ASSERT_TRUE(ranks.back()->trace.sink().close());
    paths.push_back(ranks.back()->trace.path());
  }
  const Snapshot all("run", paths);
  Followed<All> seen(make_all, every_row());
  ASSERT_TRUE(seen.update(all));
  RunRanges room;
  const RunRanges& judged = seen.analysis().get<RangeFacts>().ranges().judged(room);
  const AnalysisContext& context = seen.context();
  for (uint32_t i = 0; i < context.selection.size(); ++i) {
    uint64_t rows = 0, nonfinite = 0, flushed = 0;
    std::optional<RowPosition> first;
    for (const TracePart& part : context.parts) {
      const Snapshot alone(part.path);
      Followed<All> one(make_all, every_row());
      ASSERT_TRUE(one.update(alone));
      RunRanges its_room;
      const TensorRanges* its = one.analysis().get<RangeFacts>().ranges().judged(its_room).tensors.find(i);
      if (its == nullptr) continue;
      rows += its->totals.rows;
      nonfinite += its->nonfinite.rows;
      flushed += its->totals.seen.flushed.lower;
      if (its->nonfinite.first && (!first || *its->nonfinite.first < *first)) first = its->nonfinite.first;
    }
    const TensorRanges* together = judged.tensors.find(i);
    ASSERT_NE(together, nullptr);
    EXPECT_EQ(together->totals.rows, rows);
    EXPECT_EQ(together->nonfinite.rows, nonfinite);
    EXPECT_EQ(together->totals.seen.flushed.lower, flushed);
    ASSERT_EQ(together->nonfinite.first.has_value(), first.has_value());
    if (!first) continue;
    EXPECT_EQ(*together->nonfinite.first, *first);
    EXPECT_EQ(context.selection.key(i, *first).rank, first->rank);
  }
  EXPECT_EQ(seen.steps().whole().count, 30u);
  EXPECT_EQ(analyzed(all, 2), analyzed(all, 1));

  // In pieces, of ranks and steps in any order.
  std::mt19937 random(1);
  std::vector<Piece> by_rank;
  for (size_t part = 0; part < 3; ++part) {
    std::vector<Piece> pieces;
    for (uint64_t first = 0; first < 30; first += 6) pieces.push_back(see(context, part, {first, first + 6}));
    by_rank.push_back(merge_all(std::move(pieces), random));
  }
  const Piece merged = merge_all(std::move(by_rank), random);
  EXPECT_EQ(analyzed(context, merged.steps, merged.all), analyzed(all));
}

// Steps as they come, one by one, in ranges that touch or overlap.
TEST(Analysis, StepSetsHoldWhatASetHolds) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    StepSet some[2], all;
    std::set<uint64_t> plain;
    for (int i = 0; i < 30; ++i) {
      const uint64_t step = random() % 50;
      some[random() % 2].add(step);
      plain.insert(step);
    }
    for (const StepSet& each : some) all.add(each);
    ASSERT_EQ(all.size(), plain.size());
    EXPECT_EQ(all.first(), *plain.begin());
    EXPECT_EQ(all.last(), *plain.rbegin());
    for (uint64_t step = 0; step < 52; ++step) ASSERT_EQ(all.contains(step), plain.contains(step)) << step;
  }
}

// A run may skip every second step: what is asked of each would take a minute if it went through all of them.
TEST(Analysis, AskingAStepSetDoesNotGoThroughIt) {
  constexpr uint64_t kRanges = 200000;
  StepSet set;
  EXPECT_FALSE(set.contains(0));
  for (uint64_t i = 0; i < kRanges; ++i) set.add(2 * i);
  uint64_t held = 0;
  for (uint64_t step = 0; step < 2 * kRanges; ++step) held += set.contains(step);
  EXPECT_EQ(held, kRanges);
}

TEST(Analysis, AGapNoLongerThanWhatCameBeforeItDividesNoBout) {
  const auto first_of = [](std::initializer_list<uint64_t> steps) {
    StepSet set;
    for (const uint64_t step : steps) set.add(step);
    return set.first_of_last_bout();
  };
  EXPECT_EQ(first_of({5}), 5u);
  EXPECT_EQ(first_of({20, 21, 22, 24, 25}), 20u);
  EXPECT_EQ(first_of({20, 21, 24, 25}), 20u);
  EXPECT_EQ(first_of({20, 21, 25, 26}), 25u);
  EXPECT_EQ(first_of({0, 20, 22, 23, 24}), 20u);  // 20 and the gap behind it are as long
}

// 10^5 tensors that are all NaN: work that grows with the square of their number would take minutes.
TEST(Analysis, AHundredThousandTensorsCanAllBeNaN) {
  constexpr uint32_t kTensors = 100000;
  SyntheticTrace trace;
  TensorRow row;
  row.known = StatisticsLevel::health;
  row.statistics.count = row.statistics.nan = 4;
  std::vector<uint32_t> tensors;
  for (uint32_t i = 0; i < kTensors; ++i) {
    tensors.push_back(i % 2 == 0 ? trace.add_tensor("a", "relu", Phase::forward, Role::activation, DType::f16)
                                 : trace.add_tensor("", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16));
  }
  for (const uint32_t tensor : tensors) trace.add(tensor, row);
  trace.end_step(SyntheticTrace::default_step(NAN));
  const Snapshot reader = trace.read();
  RangeOptions options;
  const Report report = analyze_ranges(reader, options);
  const Finding* nonfinite = find_finding(report, "range.nonfinite");
  ASSERT_NE(nonfinite, nullptr);
  const Sentence* const all = sentence_of(nonfinite->title, "nonfinite.tensors");
  ASSERT_NE(all, nullptr) << nonfinite->title;
  EXPECT_EQ((*all)["tensors"].text(""), "100,000");
  EXPECT_EQ(nonfinite->evidence.front().key.name, "a first relu");
  EXPECT_EQ(cell(table(report, "recorded"), 0, "tensor"), Cell(std::string("a first relu")));
}

// A trace that is followed from before its first op: what was concluded from the absence of ops does not stand.
TEST(Followed, ATraceMayBeginWithoutOps) {
  SyntheticTrace trace;
  trace.sink().flush();
  RunSet run(trace.path());
  ReportAnalysis report({});
  RangeAnalysis ranges({});
  ScaleAnalysis scale({});
  UpdateAnalysis updates({});
  EXPECT_FALSE(report.report(run.snapshot()).verdict) << "nothing was looked at";
  EXPECT_FALSE(ranges.report(run.snapshot()).verdict);
  EXPECT_FALSE(scale.report(run.snapshot()).verdict);
  EXPECT_FALSE(updates.report(run.snapshot()).verdict);
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  trace.add(gradient, make_row({1.0, 1e-9}, DType::f16));
  trace.end_step();
  trace.sink().flush();
  ASSERT_TRUE(run.refresh());
  const Snapshot grown = run.snapshot();
  EXPECT_EQ(render_json(report.report(grown)), render_json(analyze_all(grown)));
  EXPECT_EQ(render_json(ranges.report(grown)), render_json(analyze_ranges(grown)));
  EXPECT_EQ(render_json(scale.report(grown)), render_json(analyze_scale(grown)));
  EXPECT_EQ(render_json(updates.report(grown)), render_json(analyze_updates(grown)));
}

// As where a row is damaged: what was seen of the other rows is not given for the whole afterwards.
TEST(Followed, FailsForGoodWhereRowsCannotBeRead) {
  class Failing {
   public:
    void begin(const AnalysisContext&) {}
    void update(const Block& block) {
      if (block.step.step == 2) throw unreadable_error("step 2 is damaged");
    }
    void merge(Failing&&) {}
    TablesRead reads() const { return {}; }
  };
  SyntheticTrace trace;
  const uint32_t tensor = trace.add_tensor("a", "relu", Phase::forward, Role::activation, DType::f32);
  for (int step = 0; step < 4; ++step) {
    trace.add(tensor, make_row({1.0}, DType::f32));
    trace.end_step();
  }
  const Snapshot read = trace.read();
  Followed<Failing> seen([] { return Failing(); });
  EXPECT_THROW(seen.update(read), Error);
  EXPECT_THROW(seen.update(read), Error);
}

}  // namespace
}  // namespace ulpscope::analyzers_test
