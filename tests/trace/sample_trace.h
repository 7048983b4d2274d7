// A made-up recording whose every value is a function of (seed, step, row), and rows as lines of text, to compare what was written
// with what was read by whatever means.
#pragma once

#include <string>
#include <vector>

#include "ulpscope/trace/sink.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope::trace_test {

struct Step {
  std::vector<TensorRow> rows;
  std::vector<BatchRow> batches;
  std::vector<ParameterRow> parameters;
  std::vector<FingerprintRow> fingerprints;
  std::vector<EventRow> events;
  std::vector<CaptureRow> captures;
  std::vector<SampleRow> samples;
  std::vector<MeasureRow> measures;
  std::vector<SumRow> sums;
  std::vector<BitsRow> bits;
  StepRow row;
};

RunInfo sample_run(uint64_t seed);
std::vector<SettingInfo> sample_settings(uint64_t seed);
std::vector<SourceInfo> sample_sources(uint64_t seed);
std::vector<ProductInfo> sample_products(uint64_t seed);
std::vector<OpInfo> sample_ops(uint64_t seed);
std::vector<TensorInfo> sample_tensors(uint64_t seed);
std::vector<GraphEdge> sample_edges(uint64_t seed);
// With extreme values: NaN, Inf, -0, counts of 64 bits, empty and full histograms.
Step sample_step(uint64_t seed, uint64_t step);

void add_start(TraceSink& sink, uint64_t seed);
void add_step(TraceSink& sink, uint64_t seed, uint64_t step);

// The rows of one table, one line each: "column=value" in the order of the column names, floating-point numbers as their bits,
// texts percent-encoded, enumerators as numbers, a histogram as bin:count of its nonzero bins.
using Lines = std::vector<std::string>;
struct TraceLines {
  Lines run, settings, sources, products, ops, tensors, edges, steps, batches, stats, parameters, fingerprints, events, captures,
      samples, measures, sums, bits;
  bool operator==(const TraceLines&) const = default;
};
TraceLines expected_lines(uint64_t seed, uint64_t steps);
TraceLines read_lines(const Snapshot& reader);
// As dump_trace.py prints them: "table line".
Lines flat(const TraceLines& lines);

std::string line(const TensorRow& row);
std::string line(const StepRow& row);

}  // namespace ulpscope::trace_test
