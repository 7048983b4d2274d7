#include "ulpscope/analyzers/subject/captured_sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

constexpr std::string_view kSamples = "samples";  // an attribute of a source: how the samples of the batch lie in what it gave

// The samples of the batch, in its order.
std::vector<BatchRow> samples_in(const Snapshot& of_rank, bool is_evaluation, const CaptureRow& node) {
  std::vector<BatchRow> samples;
  of_rank.visit_batches({node.step, node.step + 1}, [&](std::span<const BatchRow> rows) {
    for (const BatchRow& row : rows)
      if (row.micro_batch == node.micro_batch && (row.phase == Phase::evaluation) == is_evaluation) samples.push_back(row);
    return true;
  });
  return samples;
}

// A slice has fewer elements than the batch.
bool is_whole(const Snapshot& of_rank, uint32_t tensor, const CaptureRow& node, int64_t elements) {
  bool is_whole = false;
  of_rank.visit_history(tensor, {node.step, node.step + 1}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows)
      is_whole |= row.micro_batch == node.micro_batch && row.statistics.count == static_cast<uint64_t>(elements);
    return true;
  });
  return is_whole;
}

}  // namespace

std::string sample_text(const FoundSample& sample) {
  constexpr std::string_view kFromZero = " (from 0)";
  std::string text;
  bool is_counted = false;
  for (const SamplePlace& place : sample.places) {
    std::string one = place.text();
    if (one.empty()) continue;
    if (const size_t at = one.find(kFromZero); at != std::string::npos) {
      one.erase(at, kFromZero.size());
      is_counted = true;
    }
    text += (text.empty() ? "" : "; ") + one;
  }
  if (is_counted) text += ", counted from 0";
  if (!sample.problem.empty()) text += (text.empty() ? "" : "; ") + sample.problem;
  return one_line(text.empty() ? sample.name : fmt::format("{} ({})", sample.name, text));
}

bool is_of_batch(const OpInfo& source) { return attribute_text(source, kSamples) != "none"; }

std::string sample_of(const Snapshot& of_rank, uint32_t tensor, const CaptureRow& node) {
  if (node.element < 0 || node.shape.empty()) return "";
  const std::string_view order = attribute_text(of_rank.ops()[of_rank.tensors()[tensor].op], kSamples);
  if (!order.empty() && order != "rows") return "";
  const bool is_evaluation = of_rank.ops()[of_rank.tensors()[tensor].op].phase == Phase::evaluation;
  const std::vector<BatchRow> samples = samples_in(of_rank, is_evaluation, node);
  int64_t elements = 1;
  for (const int64_t extent : node.shape)
    if (__builtin_mul_overflow(elements, extent, &elements)) return "";
  const auto count = static_cast<int64_t>(samples.size());
  if (count == 0 || elements <= 0 || elements % count != 0 || node.element >= elements) return "";
  // Samples stand first: [samples, ...], or [samples x places, features].
  const bool leads = node.shape[0] % count == 0 && std::find(node.shape.begin() + 1, node.shape.end(), count) == node.shape.end();
  const bool is_view = node.node != 0;
  if (is_view && !(leads && is_whole(of_rank, tensor, node, elements))) return "";
  const int64_t of_sample = elements / count, element = node.element % of_sample;
  const FoundSample sample = find_sample(of_rank, samples[static_cast<size_t>(node.element / of_sample)]);
  return fmt::format("element {} of {}", element,
                     sample_text(sample.narrowed_to(static_cast<uint64_t>(element), static_cast<uint64_t>(of_sample))));
}

}  // namespace ulpscope
