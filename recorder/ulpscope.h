/* The recorder for programs that are not written in C++: a C interface, in a shared library that needs no engine.
 * docs/c_interface.md shows a program that uses it.
 *
 *   ulpscope_open(&run, &options, &recorder);
 *   for each step:  ulpscope_begin_step(recorder, number);
 *     for each pass:  ulpscope_begin_pass(recorder, phase, micro_batch, loss);
 *       for each op:  ulpscope_begin_op(recorder, &call, &op, &id);  compute;
 *                     ulpscope_output(recorder, op, slot, &tensor, &label, NULL) for each output;  ulpscope_end_op(recorder, op);
 *     ulpscope_end_step(recorder, &step);
 *   ulpscope_close(recorder);
 *
 * Rows are written when their step ends. Until then labels, statistics and what a gradient belongs to may still be told.
 *
 * Every call returns ULPSCOPE_OK or one of the codes below, and then ulpscope_last_error() has one line of it. Nothing throws, and
 * nothing ends the program. A call that is refused leaves the recording as it was. Calls may come from several threads; they wait
 * for each other. Texts are UTF-8: bytes that are not become U+FFFD, the replacement character. Structs begin with their size, as
 * sizeof gives it, so that later versions can append members: those that a program built before does not have are zero, and one
 * that asks for what the library does not know is refused. Make them zero first: members that are zero have their default, but for
 * enumerations, whose default is -1 where they have one, and for ulpscope_update.learning_rate. Pointers need not stay valid after
 * the call. Texts have at most 1 MiB, calls at most 8,192 outputs.
 *
 * Enumerations (phases, roles, functions, kinds, data types) have the numbers and names of docs/trace_format.md; the functions
 * ulpscope_phase ... ulpscope_dtype return the number of a name.
 */
#ifndef ULPSCOPE_H
#define ULPSCOPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ULPSCOPE_ABI 1

#if defined(__GNUC__)
#define ULPSCOPE_EXPORT __attribute__((visibility("default")))
#else
#define ULPSCOPE_EXPORT
#endif

enum {
  ULPSCOPE_OK = 0,
  ULPSCOPE_REFUSED = 1, /* the call says something that cannot be */
  ULPSCOPE_FAILED = 2   /* the file cannot be written, or memory ran out */
};

typedef struct ulpscope_recorder ulpscope_recorder;
typedef uint32_t ulpscope_text; /* of ulpscope_intern; 0: the empty text */
typedef uint64_t ulpscope_op;   /* a call that began; 0: none */

/* Output `slot` of the op with the id `op`. */
typedef struct {
  uint64_t op;
  uint32_t slot;
} ulpscope_value;

/* A run. NULL texts are empty. */
typedef struct {
  uint32_t size;
  const char *run_id;           /* at most 64 letters and digits; NULL: a new one of 32 hexadecimal digits */
  const char *producer;         /* the program that records: "torch" */
  const char *producer_version; /* its version: "2.13.0" */
  const char *name;             /* of the run */
  const char *precision;        /* "fp32", "fp16", "bf16" */
  const char *backend;          /* what computes: "cpu" */
  const char *machine;          /* the machine, its instruction set and libraries */
  uint64_t seed;
  int32_t rank, world_size; /* world_size 0: one process */
  /* Filled in where a gradient scaler adapts the loss scale. */
  uint8_t dynamic_loss_scale;
  double growth_factor, backoff_factor; /* 0: not known */
  int64_t growth_interval;              /* clean steps; 0: not known */
} ulpscope_run;

typedef struct {
  uint32_t size;
  const char *path;
  const char *level;                  /* "health", "stats" (NULL: this one) or "full"; "stats,bits": with a hash of outputs' bits */
  int64_t every;                      /* histograms every so many steps; 0: 1 */
  const char *modules, *ops, *phases; /* glob patterns and names of phases, separated by commas; NULL: all */
  uint64_t max_bytes;                 /* 0: no limit */
  const char *stop_on;                /* "nan", "overflow" or "backoff"; NULL: never */
  uint8_t overwrite;                  /* 0: a file that exists is an error */
  /* A flight recorder: rows of so many steps, the last ones, are held in memory, and written when something of `on` happens, with
   * those of `after` steps behind it. Rows of other steps are dropped, but for the first's; what stands in `steps` and `events` is
   * kept of all. 0: all rows are written. */
  int64_t keep_last, after;
  const char *on; /* "nan", "skips:8", "grad_norm:10x" (docs/pytorch.md), separated by commas; NULL: ulpscope_trigger alone */
} ulpscope_options;

typedef struct {
  uint32_t size;
  uint8_t failed; /* recording stopped, for `why` */
  uint8_t stop;   /* what options.stop_on names has happened, and `why` says it */
  uint64_t bytes, committed_steps, tensor_rows;
  uint64_t refused; /* calls that were refused so far */
  double queue_fill;
  char why[512];
} ulpscope_status;

ULPSCOPE_EXPORT uint32_t ulpscope_abi(void);        /* ULPSCOPE_ABI of the library */
ULPSCOPE_EXPORT const char *ulpscope_version(void); /* "0.1.0" */
ULPSCOPE_EXPORT const char *ulpscope_last_error(
    void); /* of this thread's last call that did not return ULPSCOPE_OK, until the next that does not; or "" */

/* The number of a name, or -1. */
ULPSCOPE_EXPORT int32_t ulpscope_phase(const char *name);
ULPSCOPE_EXPORT int32_t ulpscope_role(const char *name);
ULPSCOPE_EXPORT int32_t ulpscope_function(const char *name);
ULPSCOPE_EXPORT int32_t ulpscope_kind(const char *name);
ULPSCOPE_EXPORT int32_t ulpscope_setting_kind(const char *name);
ULPSCOPE_EXPORT int32_t ulpscope_metric_kind(const char *name);
ULPSCOPE_EXPORT int32_t ulpscope_dtype(const char *name);

ULPSCOPE_EXPORT int ulpscope_open(const ulpscope_run *run, const ulpscope_options *options, ulpscope_recorder **recorder);
/* Ends the recording; a step that did not end is left out. The recorder is gone, whatever is returned. NULL is no error. */
ULPSCOPE_EXPORT int ulpscope_close(ulpscope_recorder *recorder);
ULPSCOPE_EXPORT int ulpscope_get_status(ulpscope_recorder *recorder, ulpscope_status *status);
/* Waits until every step that ended, and is not held, can be read from the file. */
ULPSCOPE_EXPORT int ulpscope_flush(ulpscope_recorder *recorder);

/* A text that calls may refer to as long as the recorder is open: the same text has the same number. */
ULPSCOPE_EXPORT int ulpscope_intern(ulpscope_recorder *recorder, const char *text, size_t bytes, ulpscope_text *number);

/* A setting of the run, before its first step ends; kind: ulpscope_setting_kind; given 0: a default. */
ULPSCOPE_EXPORT int ulpscope_setting(ulpscope_recorder *recorder, const char *name, const char *value, int32_t kind, int given);
/* Where the samples of a data set lie (docs/trace_format.md, Samples): several have one number where it has several files, or
 * parts. NULL texts are empty. */
typedef struct {
  uint32_t size;
  uint32_t number;     /* of the data set, by which ulpscope_batch names it */
  const char *name;    /* of the data set: "train" */
  const char *part;    /* "inputs", "targets"; NULL: a row is both */
  const char *file;    /* NULL: in none, or it is not known */
  const char *inside;  /* the data set within an HDF5 file, or what generates the samples */
  const char *columns; /* those that are read, with commas; NULL: all */
  uint64_t first_sample, samples;
  uint64_t first_row, row_step;   /* row_step 0: samples are no rows */
  uint64_t first_byte, byte_step; /* byte_step 0: not known */
} ulpscope_data;
ULPSCOPE_EXPORT int ulpscope_source(ulpscope_recorder *recorder, const ulpscope_data *data);
/* The samples of the pass that goes on, by their numbers in data set `source`, in the order in which inputs have them as rows. Of
 * an input that has them otherwise the op says so in its attributes: samples=unordered, or samples=none where it is of no batch. */
ULPSCOPE_EXPORT int ulpscope_batch(ulpscope_recorder *recorder, uint32_t source, const int64_t *samples, size_t count);
ULPSCOPE_EXPORT int ulpscope_metric(ulpscope_recorder *recorder, const char *name, int32_t kind, double value);
ULPSCOPE_EXPORT int ulpscope_note(ulpscope_recorder *recorder, const char *text);
ULPSCOPE_EXPORT int ulpscope_warning(ulpscope_recorder *recorder, const char *text);

/* Steps have growing numbers. */
ULPSCOPE_EXPORT int ulpscope_begin_step(ulpscope_recorder *recorder, uint64_t number);
/* Ops of the step that goes on are left out: of the step only the row and events are recorded. */
ULPSCOPE_EXPORT int ulpscope_leave_out_ops(ulpscope_recorder *recorder);
/* The step that goes on, or the next one, makes a flight recorder write, for that reason; also one that is not armed. */
ULPSCOPE_EXPORT int ulpscope_trigger(ulpscope_recorder *recorder, const char *why);
/* A pass over the model: ops that begin from here on have this phase unless their call says another, and how often an op was
 * called in its module is counted anew. */
ULPSCOPE_EXPORT int ulpscope_begin_pass(ulpscope_recorder *recorder, int32_t phase, uint32_t micro_batch, uint32_t loss);

/* These say which members of a step are known. */
enum {
  ULPSCOPE_KNOWS_LOSS = 1,
  ULPSCOPE_KNOWS_LEARNING_RATE = 2,
  ULPSCOPE_KNOWS_SCALE = 4, /* both of them; else they are 1 */
  ULPSCOPE_KNOWS_NORM = 8   /* both of them */
};
typedef struct {
  uint32_t size;
  uint32_t known; /* ULPSCOPE_KNOWS_..., added */
  double loss;    /* unscaled; where it is not known, and an op whose output was a loss before gave NaN or Inf, that is it */
  double learning_rate;
  double scale_before, scale_after;            /* the loss scale; it may be 0 or infinite */
  double gradient_norm, clipped_gradient_norm; /* of the unscaled gradients, before and after clipping */
  double seconds;
  uint64_t peak_memory; /* bytes */
  uint8_t skipped;      /* weights were left as they were */
} ulpscope_step;
/* Writes the step. Calls that began and did not end make it refused, in a line that names the first; they are left out then, and
 * the step is written. */
ULPSCOPE_EXPORT int ulpscope_end_step(ulpscope_recorder *recorder, const ulpscope_step *step);

typedef struct {
  uint32_t size;
  ulpscope_text name;           /* as the producer calls the op: "addmm" */
  ulpscope_text module;         /* "encoder.layers.0"; 0: top level */
  ulpscope_text attributes;     /* "stride=1 padding=1" */
  ulpscope_text location;       /* where it stands in the user's source: "train.py:41" */
  ulpscope_text parameter;      /* where it is given, the id is made from it in the place of forward_id and module */
  int32_t phase;                /* -1: that of the pass */
  int32_t function;             /* ulpscope_function, or -1: other */
  int32_t kind;                 /* ulpscope_kind, or -1: that of the function */
  uint64_t id;                  /* 0: by the rule of docs/trace_format.md */
  uint64_t forward_id;          /* of an op of backward: the id of its forward op, or 0 */
  const ulpscope_value *inputs; /* as the function counts them; op 0: no recorded output stands there, and it keeps its place */
  uint32_t inputs_count;
  uint8_t inputs_unknown; /* 1: the op reads what is not among the inputs, so that nothing is said of where its values came from */
  const int64_t *product; /* of a matrix product, five numbers: M, N, K, how many products, 1 where M is padded on a GPU; NULL */
} ulpscope_call;
/* May be nested, and several threads may each have calls that began. Calls are numbered as they begin. `id`, where not NULL, is the
 * op's id, by which others name its outputs. */
ULPSCOPE_EXPORT int ulpscope_begin_op(ulpscope_recorder *recorder, const ulpscope_call *call, ulpscope_op *op, uint64_t *id);
ULPSCOPE_EXPORT int ulpscope_end_op(ulpscope_recorder *recorder, ulpscope_op op);
/* Leaves the call out. Its id was counted: what a producer records nothing of, as a view, still has one. */
ULPSCOPE_EXPORT int ulpscope_drop_op(ulpscope_recorder *recorder, ulpscope_op op);

/* A tensor of the host's memory. `data` NULL with statistics given: only those are recorded. */
typedef struct {
  uint32_t size;
  const void *data;
  int32_t dtype; /* ulpscope_dtype */
  int32_t rank;  /* any */
  const int64_t *shape;
  const int64_t *strides; /* in elements; NULL: contiguous */
} ulpscope_tensor;

typedef struct {
  uint32_t size;
  int32_t role;            /* ulpscope_role, or -1: activation */
  ulpscope_text parameter; /* whose values or gradient it holds */
  ulpscope_text name;      /* what the op calls the output, or 0 */
  double scale;            /* the loss scale that its values contain; 0: 1 */
} ulpscope_label;

/* Counts of a tensor (docs/numerics.md). */
typedef struct {
  uint32_t size;
  uint8_t known;           /* 0: nothing, 1: up to zeros, 2: up to above_range */
  uint8_t before_rounding; /* 1: of the values before they were rounded to the tensor's type, 0: as stored */
  uint8_t rounding_known;  /* 1: flushed to saturated are counted */
  uint64_t count, nan, positive_infinity, negative_infinity, zeros, negatives;
  double smallest, largest, sum, sum_of_squares;
  uint64_t bins[255], below_range, above_range;
  uint64_t flushed, subnormal, inexact_subnormal, overflowed, rescued, saturated;
} ulpscope_statistics;

/* Output `slot` of a call, once. statistics NULL: taken now, of the tensor's memory. label NULL: an activation. Outputs that are
 * not told have no rows, and may still be inputs of others. */
ULPSCOPE_EXPORT int ulpscope_output(ulpscope_recorder *recorder, ulpscope_op op, uint32_t slot, const ulpscope_tensor *tensor,
                                    const ulpscope_label *label, const ulpscope_statistics *statistics);
/* How much of the call's outputs is recorded: 0 nothing, 1 counts up to zeros, 2 all of ulpscope_statistics. More may be told. */
ULPSCOPE_EXPORT int ulpscope_wants_statistics(ulpscope_recorder *recorder, ulpscope_op op, uint8_t *level);
/* Until the step ends, of an output that was told: another label; other statistics; the value that it is the gradient of, and
 * through which input of that value's reader it came (-1: not told). */
ULPSCOPE_EXPORT int ulpscope_set_label(ulpscope_recorder *recorder, ulpscope_op op, uint32_t slot, const ulpscope_label *label);
ULPSCOPE_EXPORT int ulpscope_fill(ulpscope_recorder *recorder, ulpscope_op op, uint32_t slot,
                                  const ulpscope_statistics *statistics);
ULPSCOPE_EXPORT int ulpscope_set_gradient_of(ulpscope_recorder *recorder, ulpscope_op op, uint32_t slot, ulpscope_value value,
                                             int32_t input);

/* Statistics of memory, without a recorder. level: 1 or 2, as `known` has it. */
ULPSCOPE_EXPORT int ulpscope_take_statistics(const ulpscope_tensor *tensor, int level, ulpscope_statistics *statistics);
/* Counts what the rounding did, exactly, where `to` holds the values of `from` cast to a narrower type. Both have one
 * shape; scale: the loss scale that the values contain. */
ULPSCOPE_EXPORT int ulpscope_take_cast(const ulpscope_tensor *from, const ulpscope_tensor *to, double scale,
                                       ulpscope_statistics *statistics);

/* An update of a parameter by d. All tensors have one shape. */
typedef struct {
  uint32_t size;
  double learning_rate;            /* of this parameter; NaN: not known */
  const ulpscope_tensor *before;   /* its stored values before the update ... */
  const ulpscope_tensor *after;    /* ... and after it */
  const ulpscope_tensor *gradient; /* what the update read, without the loss scale; NULL: not known, and so is the product g . d */
  const ulpscope_tensor *update;   /* d as it was asked for, in FP32 or FP64; NULL: after - before, of which none can be lost */
} ulpscope_update;
/* Counts what became of the update whose weight is output `slot` of the call, until the step ends. */
ULPSCOPE_EXPORT int ulpscope_set_update(ulpscope_recorder *recorder, ulpscope_op op, uint32_t slot, const ulpscope_update *update);
/* Counts of an update, where the producer took them. */
typedef struct {
  uint32_t size;
  double learning_rate;                  /* NaN: not known */
  uint64_t nonzero, lost;                /* elements of d that are not 0; those of them that left the stored weight as it was */
  double weight_squares, update_squares; /* sums of squares, of the weight before and of d */
  double gradient_dot_update;            /* the product g . d; NaN: not known */
} ulpscope_update_counts;
/* As ulpscope_set_update. */
ULPSCOPE_EXPORT int ulpscope_fill_update(ulpscope_recorder *recorder, ulpscope_op op, uint32_t slot,
                                         const ulpscope_update_counts *counts);

/* A term b that was added to a running sum a: a' = round(a + factor b). All tensors have one shape. */
typedef struct {
  uint32_t size;
  double factor;                 /* 1: b as it is */
  const ulpscope_tensor *before; /* a */
  const ulpscope_tensor *addend; /* b */
  const ulpscope_tensor *after;  /* a' as it is stored */
} ulpscope_addition;
/* Counts what became of a term that the call added to its output `slot`, a sum in FP16 or BF16, until the step ends. Of more than
 * 4,096 elements so many are looked at. */
ULPSCOPE_EXPORT int ulpscope_set_addition(ulpscope_recorder *recorder, ulpscope_op op, uint32_t slot,
                                          const ulpscope_addition *addition);

/* Another measure of output `slot`, a finite number by its name, until the step ends. `name` is an interned text. */
ULPSCOPE_EXPORT int ulpscope_set_measure(ulpscope_recorder *recorder, ulpscope_op op, uint32_t slot, ulpscope_text name,
                                         double value);

/* Whether output `slot` holds NaN or Inf that none of the call's inputs had, as far as they are known and of this step. */
ULPSCOPE_EXPORT int ulpscope_wants_capture(ulpscope_recorder *recorder, ulpscope_op op, uint32_t slot, uint8_t *wanted);
/* Whether output `slot` was told with statistics that have no NaN and no Inf: where its memory holds some now, something that was
 * not told has written to it. */
ULPSCOPE_EXPORT int ulpscope_was_finite(ulpscope_recorder *recorder, ulpscope_op op, uint32_t slot, uint8_t *was_finite);

/* A node of how such an element came about: node 0 is the element, the others are what it was computed from. */
typedef struct {
  uint32_t size;
  int32_t operand;        /* the input of the op that it is an element of, as the op counts them; -1 of node 0 */
  int64_t parent;         /* the node, one before it, that it is an operand of; -1 of node 0 */
  int64_t term;           /* where the parent is a sum, which of its terms it belongs to; -1: to none */
  int64_t terms;          /* of a sum, how many there are; else 0 */
  ulpscope_value made_by; /* the output that it is an element of; op 0: not known, and of node 0 the call's own */
  const int64_t *shape;   /* of its tensor, in the call */
  int32_t rank;
  uint8_t overwritten; /* 1: the op wrote over it, and `value` is the one after the call */
  int64_t element;     /* logical index: with the last dimension running fastest */
  double value;
} ulpscope_node;
/* Tells how the first such element of output `slot` came about: 1 to 1,024 nodes. The recorder keeps it where it wants it when the
 * step ends: of the first origins of a step, and of an output that is one again and again less and less often. */
ULPSCOPE_EXPORT int ulpscope_set_capture(ulpscope_recorder *recorder, ulpscope_op op, uint32_t slot, const ulpscope_node *nodes,
                                         uint32_t count);

#ifdef __cplusplus
}
#endif

#endif
