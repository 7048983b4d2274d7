// A program that has no engine and records with ulpscope: it squares a number until FP32 is full. usage: small_producer TRACE
#include <cstdio>

#include "ulpscope/base/error.h"
#include "ulpscope/recorder/recorder.h"

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  ulpscope::RunInfo run;
  run.producer = "small_producer";
  const auto sink = ulpscope::create_trace(argv[1], run);
  ulpscope::Recorder recorder(*sink, {});
  float values[4] = {0.0f, -1.0f, 3.0f, 1e-20f};
  ulpscope::TensorView view;
  view.data = values;
  view.rank = 1;
  view.shape = {4};
  view.strides = {1};
  ulpscope::OutputDescription output;
  output.view = view;
  for (uint64_t step = 0; step < 8; ++step) {
    recorder.begin_step(step);
    const ulpscope::ValueKey input{1, 0};
    ulpscope::OpDescription op;
    op.name = "square";
    op.module = "loop";
    op.id = 1;
    op.inputs = {&input, 1};
    op.outputs = {&output, 1};
    const auto records = recorder.before(op);
    for (float& value : values) value *= value;
    for (ulpscope::OutputRecord* record : records) ulpscope::collect_statistics(view, *record);
    recorder.after();
    recorder.end_step({});
  }
  return sink->close() ? 0 : 4;
} catch (const ulpscope::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 4;
}
