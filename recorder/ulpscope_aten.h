/* The meaning of PyTorch's ops to the recorder: an adapter tells of each op of ATen as PyTorch ran it, with the memory that it read
 * and wrote, and from that come calls with phases, roles, inputs and labels (docs/pytorch.md). Two adapters tell the same:
 * callbacks in C++, which need no Python for an op, and a dispatch mode in Python.
 *
 *   ulpscope_aten_open(&adapter, &session, &calls, &aten);      calls NULL: those of ulpscope.h
 *   ulpscope_aten_record(aten, recorder);                       once the file is open
 *   for each op:  ulpscope_aten_before(aten, &op);  the op runs;  ulpscope_aten_after(aten, &op);
 *   ulpscope_aten_close(aten);
 *
 * The session is what follows the training loop: hooks on modules and optimizers tell it of steps and passes, and it writes down in
 * the state, which it shares with this library, where the loop is. Nothing here throws. Where the recorder fails, the session is
 * told, and nothing more is recorded. Pointers in structs need to live until the function returns.
 */
#ifndef ULPSCOPE_ATEN_H
#define ULPSCOPE_ATEN_H

#include "ulpscope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The number of this interface and of that which the callbacks compiled beside PyTorch export. It is raised with every change,
 * since these structs have no sizes of their own, and since Python declares them again. */
#define ULPSCOPE_ATEN_INTERFACE 8
ULPSCOPE_EXPORT uint32_t ulpscope_aten_interface(void);

typedef struct ulpscope_aten ulpscope_aten;
typedef uint32_t ulpscope_name; /* of ulpscope_aten_name; 0: the empty text */

/* A tensor as PyTorch has it. */
typedef struct {
  uint64_t storage;         /* a number for the memory that it is a view of; 0: it has none */
  uint64_t storage_bytes;   /* how large that is */
  const void *storage_data; /* where it begins */
  uint64_t handle;          /* by which the adapter knows the tensor */
  const void *data;         /* its first element */
  const int64_t *shape;
  const int64_t *strides; /* in elements */
  const char *unreadable; /* why its memory is not read, in a word; NULL: it is */
  int32_t type;           /* number of its c10::ScalarType */
  int32_t rank;
  uint8_t is_present; /* 0: no tensor stands in this place */
  uint8_t is_on_host, requires_grad, is_view;
} ulpscope_aten_tensor;

enum {
  ULPSCOPE_ATEN_NOTHING = 0,
  ULPSCOPE_ATEN_TENSOR = 1,   /* tensors[first] */
  ULPSCOPE_ATEN_TENSORS = 2,  /* a list: `count` from tensors[first] on */
  ULPSCOPE_ATEN_INTEGER = 3,  /* `integer`; a boolean is 0 or 1 */
  ULPSCOPE_ATEN_REAL = 4,     /* `real` */
  ULPSCOPE_ATEN_INTEGERS = 5, /* `count` of `integers` */
  ULPSCOPE_ATEN_TEXT = 6,     /* `text`; a type, as "float16" */
  ULPSCOPE_ATEN_OTHER = 7     /* what a trace has no text for */
};
typedef struct {
  int32_t kind;
  uint32_t first, count;
  int64_t integer;
  double real;
  const int64_t *integers;
  const char *text;
} ulpscope_aten_argument;

/* An argument of an overload. */
typedef struct {
  const char *name;
  uint8_t is_tensor;  /* or a list of them */
  uint8_t is_written; /* the op changes it */
  uint8_t is_keyword; /* it is given by name only */
  ulpscope_aten_argument default_value;
} ulpscope_aten_parameter;

typedef struct {
  const char *name; /* with its namespace: "aten::addmm" */
  const ulpscope_aten_parameter *parameters;
  uint32_t parameters_count;
  uint8_t returns_alias; /* a result is an argument or a view of one */
  uint8_t is_pointwise;  /* the overload has the tag pointwise */
} ulpscope_aten_schema;

/* Nodes of autograd have sequence numbers, which each thread counts. Above these bits stands the thread that made a node; 0 is the
 * one that records. */
enum { ULPSCOPE_ATEN_SEQUENCE_BITS = 44 };

/* A call of an overload. */
typedef struct {
  uint32_t schema;                         /* of ulpscope_aten_add_schema */
  const ulpscope_aten_argument *arguments; /* as many as the overload has */
  const ulpscope_aten_tensor *tensors;     /* that arguments refer to */
  const ulpscope_aten_tensor *results;     /* after it ran: tensors, also those in lists, in their order */
  uint32_t results_count;
  uint8_t grad_enabled;
  uint8_t is_accumulate_grad; /* the node of autograd that goes on adds to a parameter's gradient */
  int64_t task;               /* the graph task that goes on, or -1 */
  int64_t node;               /* the sequence number of the node of autograd that goes on, or -1 */
  int64_t made_node;          /* the sequence number of the newest node after it ran: that of the op, if it has one */
  const char *node_name;      /* of the node that goes on, or NULL */
  uint64_t variable;          /* of a node that adds to a parameter's gradient: the parameter's handle */
} ulpscope_aten_op;

/* A call of a torch.autograd.Function, or of a region that torch.compile made, by the node of autograd that it made. */
typedef struct {
  int64_t sequence; /* the number of the node */
  const char *name; /* of the node, until the adapter is asked again */
  uint32_t slot;    /* which of its outputs a tensor is */
} ulpscope_aten_function;

/* A measure that an adapter takes of a tensor on its device, without waiting for it: a row of integers of 64 bits, which are 0 at
 * first. Of a large tensor there may be several rows, each of a part of it.
 *
 * Statistics (kind 1, and of level 1 the counts alone): how many values, as FP64, have so many `edges` below them, where a NaN has
 * all below it; from ULPSCOPE_ATEN_REALS on, as the bits of FP64, the sum of the finite values, that of their squares, the largest
 * magnitude of them, and the smallest that is not 0 (infinity: there is none). Where the tensor holds the values of `cast_from` in
 * another type, those are counted, and from ULPSCOPE_ATEN_ROUNDINGS on how many finite ones have a magnitude with so many
 * `rounding_edges` below it: twice that number, and 1 more where the cast changed the value.
 * A number (kind 2): the first element, in the place of the sum. A square (kind 3): the sum of the squares of all values, in that
 * place. An update (kind 4) of the tensor, whose values were `before`: how many elements of `update` (NULL: of the difference) are
 * not 0, and how many of those left the tensor as it was; in the places of the reals the sums of the squares of `before` and of
 * `update`, and of the products of `gradient`, divided by `factor`, and `update`. */
enum { ULPSCOPE_ATEN_STATISTICS = 1, ULPSCOPE_ATEN_NUMBER = 2, ULPSCOPE_ATEN_SQUARE = 3, ULPSCOPE_ATEN_COUNTS_OF_UPDATE = 4 };
enum {
  ULPSCOPE_ATEN_EDGES = 517,
  ULPSCOPE_ATEN_ROUNDING_EDGES = 5,
  ULPSCOPE_ATEN_ROUNDINGS = 518, /* where these begin in a row */
  ULPSCOPE_ATEN_REALS = 530,
  ULPSCOPE_ATEN_ROW = 534
};
typedef struct {
  int32_t kind;
  uint8_t level;
  const ulpscope_aten_tensor *tensor;
  const double *edges;                   /* they ascend, and stay where they are */
  const ulpscope_aten_tensor *cast_from; /* NULL: none */
  const double *rounding_edges;
  const ulpscope_aten_tensor *before, *update, *gradient; /* gradient NULL: not known */
  double factor;
} ulpscope_aten_measure;
typedef struct {
  uint64_t first; /* a number of the adapter's; that of the next row is one more */
  uint32_t count;
} ulpscope_aten_rows;

/* An update that a rule of torch.optim asks for, on a device: d of w + d, in FP32, or in FP64 for a weight in FP64, as
 * aten/update_rule.cpp computes it, from the weight and the gradient that a step read, and what it left. NULL: there is none. */
struct ulpscope_aten_update;
typedef struct {
  const struct ulpscope_aten_update *rule;
  const ulpscope_aten_tensor *weight, *gradient;
  const ulpscope_aten_tensor *first, *second; /* the momentum; the first and the second moment */
  const ulpscope_aten_tensor *steps;          /* how many there were, one element; NULL: `count` */
  double count;
} ulpscope_aten_asked;

/* The adapter's ways with memory. An entry for a storage is kept from retain to release, and its number is no other's until
 * then. */
typedef struct {
  void *context;
  void (*retain)(void *context, uint64_t storage);
  int (*is_expired)(void *context, uint64_t storage);
  void (*release)(void *context, uint64_t storage);
  /* Whether a graph of the tensor's device is being captured, so that nothing may be computed there or waited for. */
  int (*is_capturing)(void *context, const ulpscope_aten_tensor *tensor);
  /* Takes rows, which are there after the next `wait`; 0: it failed, and said so. */
  int (*measure)(void *context, const ulpscope_aten_measure *measure, ulpscope_aten_rows *rows);
  /* Waits for all rows, which stay until the next `measure`; 0: it cannot just now, and they are lost. */
  int (*wait)(void *context);
  const int64_t *(*row)(void *context, uint64_t number);
  /* A copy of a tensor on its device, and the update that a rule asks for there, until they are let go; 0: it failed. */
  int (*keep)(void *context, const ulpscope_aten_tensor *tensor, ulpscope_aten_tensor *copy);
  int (*ask)(void *context, const ulpscope_aten_asked *asked, ulpscope_aten_tensor *update);
  void (*let_go)(void *context, uint64_t handle);
  /* 1: such a call returned the tensor. NULL: the adapter sees none. */
  int (*function_of)(void *context, const ulpscope_aten_tensor *tensor, ulpscope_aten_function *function);
} ulpscope_aten_adapter;

/* Where the training loop is; the session writes it. */
enum { ULPSCOPE_ATEN_IDLE = 0, ULPSCOPE_ATEN_FORWARD = 1, ULPSCOPE_ATEN_BACKWARD = 2, ULPSCOPE_ATEN_ENDED = 3 };
typedef struct {
  int64_t step;        /* the number of the step */
  int64_t passes;      /* how many began */
  int32_t state;       /* ULPSCOPE_ATEN_IDLE ... */
  int32_t optimizing;  /* how many calls of an optimizer's step are going on, one in another */
  int32_t muted;       /* above 0: ops are not looked at */
  int32_t paused;      /* above 0: what ops write is forgotten */
  uint8_t is_open;     /* a step is open */
  uint8_t is_stopped;  /* nothing more is recorded, for good; any thread may set it */
  uint8_t hashes_bits; /* the recorder's level has bits: integers are told as well, whose bits are all that is known of them */
} ulpscope_aten_state;

typedef struct {
  uint8_t is_found;  /* a call of backward() or grad() goes on */
  uint8_t is_nested; /* in another */
  uint8_t is_new;    /* it began since the last question, and `scale` is that of its gradients */
  double scale;
} ulpscope_aten_start;

/* The questions to the session, and the news for it. */
typedef struct {
  void *context;
  void (*enter)(void *context, int is_evaluating); /* the model is called, from outside of its modules */
  void (*backward)(void *context, int makes_gradient, ulpscope_aten_start *start);
  void (*backward_ended)(void *context);
  int (*scale_of_call)(void *context, double *scale); /* 1: a gradient scaler multiplies a loss just now */
  int (*unscaled)(void *context, int overflowed); /* a scaler looked at gradients; 1: it unscaled them; overflowed -1: not known */
  void (*scaler_updated)(void *context, double scale); /* NaN: it is told later */
  void (*scale_told)(void *context, double scale);     /* that of the scaler's last update in the step, before the step ends */
  void (*norms)(void *context, double before, double after); /* squares of the norms of gradients */
  /* The pass reads samples `first` to first + count of a batch that was delivered; 1: they are the samples of the pass, and told.
   */
  int (*batch)(void *context, uint32_t batch, int64_t first, int64_t count);
  ulpscope_name (*line)(void *context); /* the line of the user's program that runs */
  void (*refused)(void *context, const char *why);
  void (*failed)(void *context, const char *why);
} ulpscope_aten_session;

/* The functions of the recorder that are called. */
typedef struct {
  int (*intern)(ulpscope_recorder *, const char *, size_t, ulpscope_text *);
  int (*begin_op)(ulpscope_recorder *, const ulpscope_call *, ulpscope_op *, uint64_t *);
  int (*end_op)(ulpscope_recorder *, ulpscope_op);
  int (*drop_op)(ulpscope_recorder *, ulpscope_op);
  int (*output)(ulpscope_recorder *, ulpscope_op, uint32_t, const ulpscope_tensor *, const ulpscope_label *,
                const ulpscope_tensor *cast_from);
  int (*set_label)(ulpscope_recorder *, ulpscope_op, uint32_t, const ulpscope_label *);
  int (*set_gradient_of)(ulpscope_recorder *, ulpscope_op, uint32_t, ulpscope_value, int32_t);
  int (*set_update)(ulpscope_recorder *, ulpscope_op, uint32_t, const ulpscope_update *);
  int (*set_addition)(ulpscope_recorder *, ulpscope_op, uint32_t, const ulpscope_addition *);
  int (*set_measure)(ulpscope_recorder *, ulpscope_op, uint32_t, ulpscope_text, double);
  int (*wants_capture)(ulpscope_recorder *, ulpscope_op, uint32_t, uint8_t *);
  int (*was_finite)(ulpscope_recorder *, ulpscope_op, uint32_t, uint8_t *);
  int (*set_capture)(ulpscope_recorder *, ulpscope_op, uint32_t, const ulpscope_node *, uint32_t);
  /* An output of a device, whose statistics come later or never; how much of it is wanted; and these statistics. */
  int (*output_later)(ulpscope_recorder *, ulpscope_op, uint32_t, const ulpscope_tensor *, const ulpscope_label *);
  int (*wants_statistics)(ulpscope_recorder *, ulpscope_op, uint8_t *);
  int (*fill)(ulpscope_recorder *, ulpscope_op, uint32_t, const ulpscope_statistics *);
  int (*fill_update)(ulpscope_recorder *, ulpscope_op, uint32_t, const ulpscope_update_counts *);
  const char *(*last_error)(void);
} ulpscope_aten_calls;

ULPSCOPE_EXPORT int ulpscope_aten_open(const ulpscope_aten_adapter *adapter, const ulpscope_aten_session *session,
                                       const ulpscope_aten_calls *calls, ulpscope_aten **aten);
ULPSCOPE_EXPORT void ulpscope_aten_close(ulpscope_aten *aten);
ULPSCOPE_EXPORT ulpscope_aten_state *ulpscope_aten_state_of(ulpscope_aten *aten);
/* From here on, calls are told to the recorder; NULL: to none. */
ULPSCOPE_EXPORT void ulpscope_aten_record(ulpscope_aten *aten, ulpscope_recorder *recorder);
/* One thread at a time is between these, and in the functions below. try_lock: 0: another thread is, and it is not waited for. */
ULPSCOPE_EXPORT void ulpscope_aten_lock(ulpscope_aten *aten);
ULPSCOPE_EXPORT int ulpscope_aten_try_lock(ulpscope_aten *aten);
ULPSCOPE_EXPORT void ulpscope_aten_unlock(ulpscope_aten *aten);

ULPSCOPE_EXPORT ulpscope_name ulpscope_aten_name(ulpscope_aten *aten, const char *text);
ULPSCOPE_EXPORT uint32_t ulpscope_aten_add_schema(ulpscope_aten *aten, const ulpscope_aten_schema *schema);
/* The parameter of that handle has a name, and a module. */
ULPSCOPE_EXPORT void ulpscope_aten_name_parameter(ulpscope_aten *aten, uint64_t handle, ulpscope_name name, ulpscope_name module);
ULPSCOPE_EXPORT int ulpscope_aten_is_named(ulpscope_aten *aten, uint64_t handle);
/* An adapter failed: the session is told, and nothing more is recorded. */
ULPSCOPE_EXPORT void ulpscope_aten_fail(ulpscope_aten *aten, const char *why);

ULPSCOPE_EXPORT void ulpscope_aten_before(ulpscope_aten *aten, const ulpscope_aten_op *op);
ULPSCOPE_EXPORT void ulpscope_aten_after(ulpscope_aten *aten, const ulpscope_aten_op *op);

/* Steps and passes, as the session sees them. Before a step ends it is settled: what devices took is waited for, and told to the
 * recorder and the session. */
ULPSCOPE_EXPORT void ulpscope_aten_settle(ulpscope_aten *aten);
ULPSCOPE_EXPORT double ulpscope_aten_loss(ulpscope_aten *aten, uint32_t later);
/* How often a device was waited for, of how many outputs the statistics are not known. */
ULPSCOPE_EXPORT uint64_t ulpscope_aten_waits(ulpscope_aten *aten);
ULPSCOPE_EXPORT uint64_t ulpscope_aten_lost(ulpscope_aten *aten);
ULPSCOPE_EXPORT void ulpscope_aten_begin_pass(ulpscope_aten *aten, int is_evaluation); /* ops are counted anew */
ULPSCOPE_EXPORT void ulpscope_aten_end_step(ulpscope_aten *aten);

/* Ops ran that were not told, and may have written anywhere: who made what memory holds is not known any more. */
ULPSCOPE_EXPORT void ulpscope_aten_forget(ulpscope_aten *aten);

/* Modules that this thread is in. `task`: the graph task in which it was called, or -1. Of code that torch.compile made, some
 * kernels are no ops, and may write over what others made: inputs of the ops in it are not known. */
ULPSCOPE_EXPORT void ulpscope_aten_begin_module(ulpscope_aten *aten, ulpscope_name name, int is_evaluating, int is_compiled,
                                                int64_t task);
/* A module begins inside of another, and evaluates as that does. It does not begin where this thread is in none, or is in this one
 * already: that calls itself, which the caller then says with `may_repeat`, or an exception left it. */
enum { ULPSCOPE_ATEN_OUTER = 0, ULPSCOPE_ATEN_INNER = 1, ULPSCOPE_ATEN_REPEATED = 2 };
ULPSCOPE_EXPORT int ulpscope_aten_begin_inner_module(ulpscope_aten *aten, ulpscope_name name, int is_compiled, int64_t task,
                                                     int may_repeat);
ULPSCOPE_EXPORT void ulpscope_aten_end_module(ulpscope_aten *aten, ulpscope_name name);
/* An exception left all modules that this thread was in. */
ULPSCOPE_EXPORT void ulpscope_aten_leave_modules(ulpscope_aten *aten);
ULPSCOPE_EXPORT int ulpscope_aten_depth(ulpscope_aten *aten);

/* Tensors that no op made. A source row is made at once; `later`: once an op reads the memory. */
ULPSCOPE_EXPORT int ulpscope_aten_has_maker(ulpscope_aten *aten, const ulpscope_aten_tensor *tensor);
ULPSCOPE_EXPORT void ulpscope_aten_source(ulpscope_aten *aten, const ulpscope_aten_tensor *tensor, int32_t role,
                                          ulpscope_name parameter, ulpscope_name module, ulpscope_name name, int later);
/* The arguments of the model: those that nobody made are inputs. */
ULPSCOPE_EXPORT void ulpscope_aten_inputs(ulpscope_aten *aten, const ulpscope_aten_tensor *tensors, uint32_t count);
/* A data loader handed these over: a batch of so many samples, by a number of the session's. is_in_rows: of tensors with as many
 * rows, along the first dimension, row i is of its sample i. */
ULPSCOPE_EXPORT void ulpscope_aten_delivered(ulpscope_aten *aten, const ulpscope_aten_tensor *tensors, uint32_t count,
                                             uint32_t batch, int64_t samples, int is_in_rows);

/* `tensor` is a parameter that is put together from the parts that processes have; `part` is this one's. It is so again each time
 * an op of FSDP's writes that memory. */
ULPSCOPE_EXPORT void ulpscope_aten_unsharded(ulpscope_aten *aten, const ulpscope_aten_tensor *tensor,
                                             const ulpscope_aten_tensor *part);

/* Kernels that PyTorch does not dispatch cannot be looked into, in calls of torch.autograd.Function, in compiled regions, or
 * anywhere. Memory that no op wrote is an output of an op of kind opaque.
 *
 * A call of a torch.autograd.Function begins and ends in this thread, where the adapter sees that; 0: it is none of a step's. */
ULPSCOPE_EXPORT int ulpscope_aten_begin_function(ulpscope_aten *aten, const char *name, int64_t sequence, int64_t task,
                                                 const ulpscope_aten_tensor *inputs, uint32_t inputs_count);
ULPSCOPE_EXPORT void ulpscope_aten_end_function(ulpscope_aten *aten);
/* A module of that class returned these: outputs that no op made, and no such call, are outputs of one op of the class's name.
 * `inputs`: what that may have read. `nodes`: for each output the sequence number of its node of autograd, or -1, and `slots` which
 * output of that node's op it is. */
ULPSCOPE_EXPORT void ulpscope_aten_opaque(ulpscope_aten *aten, ulpscope_name module, ulpscope_name class_name, int64_t task,
                                          const ulpscope_aten_tensor *inputs, uint32_t inputs_count,
                                          const ulpscope_aten_tensor *outputs, const int64_t *nodes, const uint32_t *slots,
                                          uint32_t outputs_count);
/* Whether there is something to tell of these. */
ULPSCOPE_EXPORT int ulpscope_aten_is_opaque(ulpscope_aten *aten, const ulpscope_aten_tensor *outputs, uint32_t count);
/* The program hands in a tensor that it alone sees. `scale`: that its values contain. */
ULPSCOPE_EXPORT void ulpscope_aten_observe(ulpscope_aten *aten, ulpscope_name name, double scale, int64_t task,
                                           const ulpscope_aten_tensor *tensor);

/* Backward passes. The loss is the sum of the roots that have one element. */
typedef struct {
  double scale;   /* that the gradients contain */
  double loss;    /* unscaled */
  double divisor; /* by which it was divided as a last step; 1: by none, as one op made it; NaN: not known */
  uint32_t later; /* not 0: what ulpscope_aten_loss gives for it once the step is settled, in the place of `loss` */
  uint8_t has_loss;
} ulpscope_aten_backward;
ULPSCOPE_EXPORT void ulpscope_aten_begin_backward(ulpscope_aten *aten, const ulpscope_aten_tensor *roots, uint32_t count,
                                                  int takes_losses, ulpscope_aten_backward *backward);
/* A node ended, and handed gradients on: to the named parameter, or to input `slot` of the node with the sequence number. `name`:
 * of a node that a program defined, else NULL; gradients that no op made are then outputs of one op of that name, which read those
 * that arrived. */
typedef struct {
  uint8_t exists;       /* 0: the gradient goes nowhere */
  uint8_t to_parameter; /* to a node that adds to a parameter's gradient */
  uint64_t handle;      /* of that parameter */
  int64_t sequence;
  int32_t slot;
} ulpscope_aten_edge;
ULPSCOPE_EXPORT void ulpscope_aten_handed_on(ulpscope_aten *aten, int64_t node, const char *name, const ulpscope_aten_edge *edges,
                                             const ulpscope_aten_tensor *gradients, uint32_t count,
                                             const ulpscope_aten_tensor *arrived, uint32_t arrived_count);
ULPSCOPE_EXPORT void ulpscope_aten_end_backward(ulpscope_aten *aten); /* its nodes hand nothing on any more */

/* An optimizer's update of parameters by the same rule and numbers. */
enum { ULPSCOPE_ATEN_SGD = 0, ULPSCOPE_ATEN_ADAM = 1, ULPSCOPE_ATEN_UNKNOWN_RULE = 2 };
typedef struct ulpscope_aten_update {
  int32_t rule;
  ulpscope_name optimizer; /* its class */
  double learning_rate, weight_decay, momentum, first_decay, second_decay, epsilon;
  uint8_t maximize, nesterov, decoupled; /* decoupled weight decay */
  uint8_t is_stepwise;                   /* each operation of the rule is rounded to the type of the parameter */
  double factor;                         /* the loss scale in the gradients; 1: none */
  /* For each parameter, one behind the other: itself, its gradient, and its states. The state "step" is how many steps the
   * optimizer took for it; others whose shape is not the parameter's are left out. */
  const ulpscope_aten_tensor *tensors;
  uint32_t count; /* of parameters */
  uint32_t states_count;
  const ulpscope_name *state_names;
} ulpscope_aten_update;
/* Keeps what a step is going to change: of each of `count` pairs the parameter, and the gradient where the step
 * `changes_gradients`. A gradient that is not there comes later, in a closure. What was kept before is forgotten. */
ULPSCOPE_EXPORT void ulpscope_aten_keep(ulpscope_aten *aten, const ulpscope_aten_tensor *pairs, uint32_t count,
                                        int changes_gradients);
/* Tells of the updates of parameters that were kept, where they were not skipped; adds up squares of the norms of their gradients,
 * before and after clipping. */
ULPSCOPE_EXPORT void ulpscope_aten_updated(ulpscope_aten *aten, const ulpscope_aten_update *update, int is_skipped, double *before,
                                           double *after);

/* Squares of norms that gradients had before they were clipped are forgotten. */
ULPSCOPE_EXPORT void ulpscope_aten_clear_norms(ulpscope_aten *aten);

/* Counts that the trace tells at its end: how many ops were left out since tensors were `kind`, and how many backward ops of `kind`
 * have no known forward op. 0: there is no entry `index`. */
ULPSCOPE_EXPORT int ulpscope_aten_not_read(ulpscope_aten *aten, uint32_t index, const char **kind, uint64_t *count);
ULPSCOPE_EXPORT int ulpscope_aten_unmapped(ulpscope_aten *aten, uint32_t index, const char **kind, uint64_t *count);
/* How many calls of ops were told to the recorder, and what that took: of every eighth step the seconds from its end to that of the
 * step before, and how many of these were spent between `lock` and `unlock`, and in the functions here. */
typedef struct {
  uint64_t calls, timed_steps;
  double timed_seconds, recording_seconds;
} ulpscope_aten_coverage;
ULPSCOPE_EXPORT void ulpscope_aten_coverage_of(ulpscope_aten *aten, ulpscope_aten_coverage *coverage);

#ifdef __cplusplus
}
#endif

#endif
