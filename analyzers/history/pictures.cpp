#include "ulpscope/analyzers/history/pictures.h"

#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/analyzers/history/history.h"
#include "ulpscope/analyzers/history/plots.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/analyzers/totals/followed.h"

namespace ulpscope {

namespace {

constexpr size_t kColumns = 256, kExponentPlots = 4;

// Those that lost something at all, the worst first.
std::vector<uint32_t> tensors_that_lost(const History& history, const AnalysisContext& context, Measured measured) {
  std::vector<uint32_t> tensors = ordered_tensors(history, context, measured, TensorOrder::worst);
  std::erase_if(tensors, [&](uint32_t tensor) { return !(history.total(tensor).value(measured) > 0); });
  return tensors;
}

void add_heatmap(const History& history, const AnalysisContext& context, Measured measured, std::vector<uint32_t> tensors,
                 Report& report) {
  if (tensors.empty()) return;
  const size_t all = tensors.size(), limit = context.options.limit;
  if (limit > 0 && all > limit) tensors.resize(limit);
  Plot plot = tensor_heatmap(history, context, measured, tensors);
  plot.title += tensors.size() < all ? fmt::format(", the worst {} of {}", tensors.size(), all) : ", worst first";
  report.plots.push_back(std::move(plot));
}

}  // namespace

void add_pictures(const Snapshot& trace, const AnalysisOptions& options, Report& report) {
  Followed<History> followed([] { return History(kColumns); }, options);
  if (!followed.update(trace)) report.complete = false;
  const History& history = followed.analysis();
  const AnalysisContext& context = followed.context();
  if (history.columns().count == 0) return;
  std::vector<Plot> course = course_plots(history, context);
  report.plots.insert(report.plots.end(), std::make_move_iterator(course.begin()), std::make_move_iterator(course.end()));

  std::vector<uint32_t> worst;  // whose exponents are shown
  for (const Cause& cause : report.causes) {
    const Extent& extent = report.findings[cause.finding].extent;
    if (extent.origin) worst.push_back(*extent.origin);
    if (!extent.tensors.empty()) worst.push_back(extent.tensors.front());
  }
  for (const Measured measured : {Measured::nonfinite, Measured::overflowed, Measured::flushed, Measured::subnormal}) {
    const std::vector<uint32_t> tensors = tensors_that_lost(history, context, measured);
    add_heatmap(history, context, measured, tensors, report);
    if (measured != Measured::nonfinite)
      worst.insert(worst.end(), tensors.begin(), tensors.begin() + static_cast<ptrdiff_t>(std::min<size_t>(2, tensors.size())));
  }
  std::vector<uint32_t> narrow = ordered_tensors(history, context, Measured::headroom, TensorOrder::worst);
  std::erase_if(narrow, [&](uint32_t tensor) { return !is_narrow(context.selection.tensor(tensor).dtype); });
  add_heatmap(history, context, Measured::headroom, std::move(narrow), report);

  std::vector<uint32_t> shown;
  for (const uint32_t tensor : worst) {
    if (shown.size() == kExponentPlots) break;
    if (tensor >= context.selection.size() || !context.selection.contains(tensor)) continue;
    if (std::find(shown.begin(), shown.end(), tensor) != shown.end()) continue;
    const DType dtype = context.selection.tensor(tensor).dtype;
    if (!is_narrow(dtype)) continue;
    Plot plot = exponent_heatmap(context.trace, tensor, context.selection.name(tensor),
                                 {.steps = options.steps, .most_columns = kColumns, .formats = {info(dtype).format}});
    if (plot.series.empty()) continue;
    report.plots.push_back(std::move(plot));
    shown.push_back(tensor);
  }
}

}  // namespace ulpscope
