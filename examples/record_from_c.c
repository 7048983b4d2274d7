/* A C99 program that records with ulpscope: one weight, trained to double numbers in FP32, by hand. usage: record_from_c TRACE */
#include <stdio.h>
#include <string.h>

#include "ulpscope/recorder/ulpscope.h"

static ulpscope_recorder *recorder;

static int check(int code) {
  if (code != ULPSCOPE_OK) fprintf(stderr, "%s\n", ulpscope_last_error());
  return code;
}
static ulpscope_text text(const char *name) {
  ulpscope_text number = 0;
  check(ulpscope_intern(recorder, name, strlen(name), &number));
  return number;
}

/* One op with one output of `n` numbers; returns its id. */
static uint64_t op(const char *name, const char *phase, const ulpscope_value *inputs, uint32_t count, const float *values,
                   int64_t n, const char *role) {
  ulpscope_call call = {sizeof call};
  ulpscope_tensor tensor = {sizeof tensor};
  ulpscope_label label = {sizeof label};
  ulpscope_op token;
  uint64_t id = 0;
  call.name = text(name);
  call.phase = ulpscope_phase(phase);
  call.function = ulpscope_function(name);
  call.kind = -1;
  call.inputs = inputs;
  call.inputs_count = count;
  tensor.data = values;
  tensor.dtype = ulpscope_dtype("f32");
  tensor.rank = 1;
  tensor.shape = &n;
  label.role = ulpscope_role(role);
  if (check(ulpscope_begin_op(recorder, &call, &token, &id))) return 0;
  check(ulpscope_output(recorder, token, 0, &tensor, &label, NULL));
  check(ulpscope_end_op(recorder, token));
  return id;
}

int main(int argc, char **argv) {
  ulpscope_run run = {sizeof run};
  ulpscope_options options = {sizeof options};
  float x[4] = {1, 2, 3, 4}, product[4], difference[4], w = 0, gradient, loss;
  uint64_t step, i;
  if (argc != 2 || ulpscope_abi() != ULPSCOPE_ABI) return 2;
  run.producer = "record_from_c";
  run.precision = "fp32";
  options.path = argv[1];
  options.overwrite = 1;
  if (check(ulpscope_open(&run, &options, &recorder))) return 1;
  for (step = 0; step < 20; ++step) {
    ulpscope_step end = {sizeof end};
    ulpscope_value ids[4] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}};
    for (i = 0, loss = gradient = 0; i < 4; ++i) {
      product[i] = w * x[i];
      difference[i] = product[i] - 2 * x[i];
      loss += difference[i] * difference[i] / 4;
      gradient += difference[i] * x[i] / 2;
    }
    check(ulpscope_begin_step(recorder, step));
    check(ulpscope_begin_pass(recorder, ulpscope_phase("forward"), 0, 0));
    ids[0].op = op("source", "data", NULL, 0, x, 4, "input");
    ids[1].op = op("mul", "forward", ids, 1, product, 4, "activation");
    ids[2].op = op("mse", "loss", ids + 1, 1, &loss, 1, "loss");
    ids[3].op = op("mse_backward", "backward", ids, 2, &gradient, 1, "weight_gradient");
    w -= 0.05f * gradient;
    op("sgd_update", "optimizer", ids + 3, 1, &w, 1, "weight");
    end.known = ULPSCOPE_KNOWS_LOSS | ULPSCOPE_KNOWS_LEARNING_RATE;
    end.loss = loss;
    end.learning_rate = 0.05;
    check(ulpscope_end_step(recorder, &end));
  }
  return check(ulpscope_close(recorder));
}
