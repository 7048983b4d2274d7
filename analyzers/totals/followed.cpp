#include "ulpscope/analyzers/totals/followed.h"

#include "ulpscope/analyzers/subject/step_losses.h"

namespace ulpscope {

namespace {

// Below, a thread costs more than it saves.
constexpr uint64_t kRowsForThreads = 65536;

}  // namespace

std::vector<std::vector<PartSteps>> StepCursor::advance(const AnalysisContext& context, StepFacts& facts, size_t pieces) {
  const StepRange asked = context.options.steps;
  std::vector<PartSteps> fresh;  // of consecutive steps each
  uint64_t count = 0;
  next_.resize(context.parts.size());
  for (size_t part = 0; part < context.parts.size(); ++part) {
    const StepRange steps = context.parts[part].steps;
    visit_steps_with_losses(context.trace.of_part(part), {std::max(next_[part], steps.first), steps.last},
                            [&](std::span<const StepRow> rows) {
                              for (const StepRow& row : rows) {
                                facts.add(context.parts[part], row, context.is_fitted(row));
                                next_[part] = row.step + 1;
                                if (row.step < asked.first || row.step >= asked.last) continue;
                                ++count;
                                if (fresh.empty() || fresh.back().part != part || fresh.back().steps.last != row.step)
                                  fresh.push_back({part, {row.step, row.step}});
                                fresh.back().steps.last = row.step + 1;
                              }
                              return !context.options.cancelled();
                            });
  }
  const uint64_t rows = context.trace.tensor_row_count();
  if (rows < rows_ + kRowsForThreads) pieces = 1;
  rows_ = rows;
  std::vector<std::vector<PartSteps>> shared;
  const uint64_t share = (count + pieces - 1) / std::max<size_t>(1, pieces);
  uint64_t room = 0;
  for (const auto& [part, steps] : fresh) {
    for (uint64_t first = steps.first; first < steps.last;) {
      if (room == 0) {
        shared.emplace_back();
        room = share;
      }
      const uint64_t last = first + std::min(room, steps.last - first);
      std::vector<PartSteps>& piece = shared.back();
      if (piece.empty() || piece.back().part != part) {
        piece.push_back({part, {first, last}});
      } else {
        piece.back().steps.last = last;
      }
      room -= last - first;
      first = last;
    }
  }
  return shared;
}

}  // namespace ulpscope
