// The declaration of the trace's schema: for each row struct, its columns and the field that each of them holds. Everything else
// about columns is derived from this. For trace/, and for what shows whole tables.
#pragma once

#include <cmath>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "ulpscope/trace/op_semantics.h"
#include "ulpscope/trace/records.h"
#include "ulpscope/trace/schema.h"

namespace ulpscope::trace_detail {

enum class Packing : uint8_t {
  gzip,
  plain,  // bytes that do not compress
};

// What a column's values stand for: rows of a table, where -1 is none if the column is signed, or ids of ops, where 0 is none.
enum class Refers : uint8_t { nothing, ops, tensors, op_ids };

struct Always {
  template <typename Row>
  constexpr bool operator()(const Row&) const {
    return true;
  }
};

// `get` returns a reference to the field of a row, const or not.
template <typename Get, typename Known = Always>
struct Column {
  const char* name;
  const char* unit;
  const char* meaning;
  Get get;
  Packing packing = Packing::gzip;
  Refers refers = Refers::nothing;
  double fill = 0;
  uint64_t first_minor = 0;

  // This column, which came with that minor version of the schema: the default of its field must mean that it is not known.
  constexpr Column since(uint64_t minor) const {
    Column column = *this;
    column.first_minor = minor;
    return column;
  }
  // The same column, whose values mean something only in rows of which `condition` holds.
  template <typename Condition>
  constexpr Column<Get, Condition> known_if(Condition) const {
    return {name, unit, meaning, get, packing, refers, fill, first_minor};
  }
  template <typename Row>
  static bool known(const Row& row) {
    return Known()(row);
  }
};

// For Clang before 17, which deduces nothing from an aggregate's members.
template <typename Get, typename... Rest>
Column(const char*, const char*, const char*, Get, Rest...) -> Column<Get>;

template <typename Row, typename Get>
using FieldOf = std::remove_cvref_t<std::invoke_result_t<Get, Row&>>;

// The columns of one row struct, and its place in the schema. Rows of the tables strings, string_bytes and histograms have no
// struct.
template <typename Row>
struct Table;

#define FIELD(path) ([](auto& row) -> auto& { return row.path; })
#define WHERE(condition) ([](const auto& row) { return (condition); })

template <>
struct Table<RunInfo> {
  static constexpr TableId id = TableId::run;
  static constexpr auto columns = std::make_tuple(
      Column{"run_id", "", "32 hexadecimal digits", FIELD(run_id)},
      Column{"parent_run", "", "the run that this one resumed from, or empty", FIELD(parent_run)},
      Column{"parent_step", "", "the step that it resumed at, or -1", FIELD(parent_step)}.known_if(WHERE(row.parent_step >= 0)),
      Column{"producer", "", "the program that wrote the trace", FIELD(producer)},
      Column{"producer_version", "", "its version", FIELD(producer_version)},
      Column{"rank", "", "this process among those of the run, from 0", FIELD(rank)},
      Column{"world_size", "", "processes of the run", FIELD(world_size)},
      Column{"mesh_position", "", "the rank's coordinates in the device mesh, or empty", FIELD(mesh_position)},
      Column{"experiment", "", "the experiment as TOML, overrides applied", FIELD(experiment)},
      Column{"experiment_name", "", "its name", FIELD(experiment_name)}, Column{"seed", "", "seed of all randomness", FIELD(seed)},
      Column{"precision", "", "precision policy, as fp32, fp16 or apex_o2", FIELD(precision)},
      Column{"backend", "", "what computed: cpu", FIELD(backend)},
      Column{"machine", "", "the machine, its instruction set and libraries", FIELD(machine)},
      Column{"dtypes", "", "data types in use, comma-separated", FIELD(dtypes)},
      Column{"level", "", "recording level asked for", FIELD(level)},
      Column{"every", "steps", "histograms are taken every so many steps", FIELD(every)},
      Column{"filters", "", "filters as given, or empty", FIELD(filters)},
      Column{"dynamic_loss_scale", "", "a gradient scaler adapts the loss scale", FIELD(dynamic_loss_scale)},
      Column{"growth_interval", "steps", "of that scaler: steps without overflow after which the scale grows; 0: not known",
             FIELD(growth_interval)}
          .known_if(WHERE(row.growth_interval > 0)),
      Column{"growth_factor", "", "of that scaler: by which the scale grows; 0: not known", FIELD(growth_factor)}.known_if(
          WHERE(row.growth_factor > 0)),
      Column{"backoff_factor", "", "of that scaler: by which it shrinks after an overflow; 0: not known", FIELD(backoff_factor)}
          .known_if(WHERE(row.backoff_factor > 0)),
      Column{"started", "", "UTC, ISO 8601", FIELD(started)},
      Column{"arithmetic", "",
             "what differs from FP32 sums, one rounding to nearest even, and subnormals kept, as accumulate=a100 rounding=sr",
             FIELD(arithmetic)});
};

template <>
struct Table<SettingInfo> {
  static constexpr TableId id = TableId::settings;
  static constexpr auto columns = std::make_tuple(Column{"name", "", "what the producer calls it", FIELD(name)},
                                                  Column{"value", "", "as the producer would read it", FIELD(value)},
                                                  Column{"kind", "", "what it is", FIELD(kind)},
                                                  Column{"given", "", "1: it was asked for, 0: a default", FIELD(given)});
};

template <>
struct Table<SourceInfo> {
  static constexpr TableId id = TableId::sources;
  static constexpr auto in_rows = WHERE(!row.file.empty() && row.row_step > 0);
  static constexpr auto columns = std::make_tuple(
      Column{"source", "", "number of the data set: what batches refer to", FIELD(source)},
      Column{"name", "", "of the data set, as train or test", FIELD(name)},
      Column{"part", "", "inputs or targets; empty where a row of the file is both", FIELD(part)},
      Column{"file", "", "path as given; empty of generated data", FIELD(file)},
      Column{"inside", "", "the data set within an HDF5 file, the generator's name, or empty", FIELD(inside)},
      Column{"columns", "", "those of a row that are read, with commas; empty: all", FIELD(columns)},
      Column{"first_sample", "", "the first sample i that is there", FIELD(first_sample)},
      Column{"samples", "", "how many are", FIELD(samples)},
      Column{"first_row", "", "the row of the file, from 0, that has the first of them", FIELD(first_row)}.known_if(in_rows),
      Column{"row_step", "rows", "from one sample to the next; 0: the file has no rows", FIELD(row_step)}.known_if(in_rows),
      Column{"first_byte", "bytes", "where in the file the first of them begins", FIELD(first_byte)}.known_if(
          WHERE(row.byte_step > 0)),
      Column{"byte_step", "bytes", "from one sample to the next; 0: not known", FIELD(byte_step)}.known_if(
          WHERE(row.byte_step > 0)));
};

template <>
struct Table<ProductInfo> {
  static constexpr TableId id = TableId::products;
  static constexpr auto columns = std::make_tuple(
      Column{"product", "", "its shape, and types, strides and places of its factors, as the backend writes them", FIELD(product)},
      Column{"algorithm", "", "which one the library took, as the backend writes it", FIELD(algorithm)});
};

template <>
struct Table<OpInfo> {
  static constexpr TableId id = TableId::ops;
  static constexpr auto columns = std::make_tuple(
      Column{"id", "", "stable id: the same in every step, precision and run of an experiment", FIELD(id), Packing::gzip,
             Refers::op_ids},
      Column{"forward_id", "", "of a backward op: the id of its forward op; else 0", FIELD(forward_id), Packing::gzip,
             Refers::op_ids},
      Column{"name", "", "op name", FIELD(name)}, Column{"module", "", "module path; empty at top level", FIELD(module)},
      Column{"phase", "", "phase of the step", FIELD(phase)}, Column{"kind", "", "what the op is, whatever its name", FIELD(kind)},
      Column{"function", "", "which function it computes", FIELD(function)},
      Column{"attributes", "", "as name=value, separated by spaces; name=varies where calls differ", FIELD(attributes)},
      Column{
          "product", "",
          "of matrix products, M x K by K x N, as first seen: M, N, K, how many, 1 where M is padded (0: M counts pixels), and the "
          "multiple that extents are padded to, 8, or 16 of FP8 factors (missing: 8); with commas; empty where the op is none, or "
          "not "
          "known",
          FIELD(product)},
      Column{"inputs_told", "", "1: edges has all that it reads, 0: its producer does not know some of it", FIELD(inputs_told)},
      Column{"location", "", "where it stands in the user's source, as train.py:41, or empty", FIELD(location)},
      Column{"first_step", "", "the step in which it first ran; -1: not known", FIELD(first_step)}.since(2).known_if(
          WHERE(row.first_step >= 0)),
      Column{"first_sequence", "", "its order of execution within that step, as stats/sequence", FIELD(first_sequence)}
          .since(2)
          .known_if(WHERE(row.first_step >= 0)));
};

template <>
struct Table<TensorInfo> {
  static constexpr TableId id = TableId::tensors;
  static constexpr auto columns = std::make_tuple(
      Column{"op", "", "row in ops: the op that made it", FIELD(op), Packing::gzip, Refers::ops},
      Column{"slot", "", "which output of the op", FIELD(slot)}, Column{"role", "", "what the tensor is for", FIELD(role)},
      Column{"dtype", "", "data type as stored", FIELD(dtype)},
      Column{"stays_wide", "",
             "1: autocast to a 16-bit type leaves it in this type, 0: rounds it, or what is made of it; not known",
             FIELD(stays_wide)},
      Column{"parameter", "", "name of its parameter, or empty", FIELD(parameter)},
      Column{"shape", "",
             "global shape as first seen, with commas, empty for a scalar; a smaller batch shows in the count of stats",
             FIELD(shape)},
      Column{"shard_offset", "", "where this rank's part begins, in each dimension; empty where it is not sharded",
             FIELD(shard_offset)},
      Column{"replicated", "", "every rank holds the same values", FIELD(replicated)},
      Column{"name", "", "what the op calls the output, as exp_avg, or empty", FIELD(name)},
      Column{
          "gradient_of", "",
          "of a gradient without a parameter: the id of the op that made the value that it is the gradient of, or of the one that "
          "made what that is a view or a part of; else 0",
          FIELD(gradient_of), Packing::gzip, Refers::op_ids},
      Column{"gradient_slot", "", "which output of that op", FIELD(gradient_slot)},
      Column{"gradient_input", "",
             "of a gradient that one op hands on: which input of that op's forward op it belongs to; -1: a sum over several, or "
             "not told",
             FIELD(gradient_input)},
      Column{"rounding", "", "the mode in which its op rounds it to that type", FIELD(rounding)},
      Column{"flushes_results", "", "1: its op makes results that are subnormal in that type zero", FIELD(flushes_results)},
      Column{"flushes_inputs", "", "1: its op reads subnormals of an input's type as zero", FIELD(flushes_inputs)},
      Column{
          "flushes_narrow_products", "",
          "1: its op is a product that makes FP16 and BF16 factors and results that are subnormal zero, whatever types it has here",
          FIELD(flushes_narrow_products)});
};

template <>
struct Table<GraphEdge> {
  static constexpr TableId id = TableId::edges;
  static constexpr auto columns =
      std::make_tuple(Column{"graph", "", "the graph that the edge belongs to", FIELD(graph)},
                      Column{"consumer", "", "row in ops: the op that reads", FIELD(consumer), Packing::gzip, Refers::ops},
                      Column{"input", "", "which input of it", FIELD(input)},
                      Column{"producer", "", "row in ops: the op that made the value", FIELD(producer), Packing::gzip, Refers::ops},
                      Column{"slot", "", "which output of it", FIELD(slot)});
};

template <>
struct Table<StepRow> {
  static constexpr TableId id = TableId::steps;
  static constexpr auto columns = std::make_tuple(
      Column{"step", "", "number of the step, increasing", FIELD(step)}, Column{"graph", "", "its graph in edges", FIELD(graph)},
      Column{"loss", "", "unscaled", FIELD(loss), Packing::plain}.known_if(WHERE(row.loss_known)),
      Column{"loss_known", "", "1: loss was measured, even if it is NaN", FIELD(loss_known)},
      Column{"learning_rate", "", "in force during the step", FIELD(learning_rate)}.known_if(WHERE(!std::isnan(row.learning_rate))),
      Column{"scale_before", "", "loss scale in force during the step", FIELD(scale_before)},
      Column{"scale_after", "", "loss scale after the update of the scaler", FIELD(scale_after)},
      Column{"skipped", "", "1: the optimizer step was skipped", FIELD(skipped)},
      Column{"gradient_norm", "", "of the unscaled gradients, before clipping", FIELD(gradient_norm), Packing::plain}.known_if(
          WHERE(row.norm_known)),
      Column{"clipped_gradient_norm", "", "after clipping; equal where nothing was clipped", FIELD(clipped_gradient_norm)}.known_if(
          WHERE(row.norm_known)),
      Column{"norm_known", "", "1: the norms were measured, even if they are NaN", FIELD(norm_known)},
      Column{"seconds", "s", "wall time", FIELD(seconds), Packing::plain},
      Column{"peak_memory", "bytes", "largest amount of tensor memory in use", FIELD(peak_memory)},
      Column{"level", "", "recording level in force", FIELD(level)});
};

template <>
struct Table<TensorRow> {
  static constexpr TableId id = TableId::stats;
  static constexpr auto counted = WHERE(row.known != StatisticsLevel::none);
  static constexpr auto measured = WHERE(row.known == StatisticsLevel::values);
  static constexpr auto seen = WHERE(row.rounding_known);
  static constexpr auto columns = std::make_tuple(
      Column{"step", "", "number of the step", FIELD(step)},
      Column{"micro_batch", "", "which micro-batch of the step", FIELD(micro_batch)},
      Column{"loss_index", "", "which loss", FIELD(loss_index)},
      Column{"sequence", "", "order of execution within the step", FIELD(sequence)},
      Column{"tensor", "", "row in tensors", FIELD(tensor), Packing::gzip, Refers::tensors},
      Column{"scale", "", "the loss scale that the values contain", FIELD(scale), Packing::gzip, Refers::nothing, 1.0},
      Column{"quantization_scale", "",
             "what the values were multiplied by before they were rounded to FP8, apart from the loss scale; statistics and counts "
             "are of the products; else 1",
             FIELD(quantization_scale), Packing::gzip, Refers::nothing, 1.0},
      Column{"known", "", "which statistics were taken; the others are 0 and mean nothing", FIELD(known)},
      Column{"before_rounding", "", "1: statistics of the values before they were rounded to the stored type, 0: as stored",
             FIELD(before_rounding)}
          .known_if(counted),
      Column{"rounding_known", "", "1: the rounding counts, from flushed to saturated, were taken; 0: unknown",
             FIELD(rounding_known)},
      Column{"count", "elements", "all", FIELD(statistics.count)}.known_if(counted),
      Column{"nan", "elements", "NaN", FIELD(statistics.nan)}.known_if(counted),
      Column{"positive_infinity", "elements", "+Inf", FIELD(statistics.positive_infinity)}.known_if(counted),
      Column{"negative_infinity", "elements", "-Inf", FIELD(statistics.negative_infinity)}.known_if(counted),
      Column{"zeros", "elements", "+0 or -0", FIELD(statistics.zeros)}.known_if(counted),
      Column{"negatives", "elements", "finite, nonzero, sign set", FIELD(statistics.negatives)}.known_if(measured),
      Column{"smallest", "", "smallest magnitude of a finite nonzero value; 0 where there is none", FIELD(statistics.smallest),
             Packing::plain}
          .known_if(measured),
      Column{"largest", "", "largest magnitude of a finite value", FIELD(statistics.largest), Packing::plain}.known_if(measured),
      Column{"sum", "", "of the finite values", FIELD(statistics.sum), Packing::plain}.known_if(measured),
      Column{"sum_of_squares", "", "of the finite values", FIELD(statistics.sum_of_squares), Packing::plain}.known_if(measured),
      Column{"histogram", "", "exponent histogram", FIELD(statistics.histogram)}.known_if(measured),
      Column{"below_range", "elements", "FP64 values below FP32's range, in no bin", FIELD(statistics.histogram.below_range)}
          .known_if(measured),
      Column{"above_range", "elements", "FP64 values above FP32's range, in no bin", FIELD(statistics.histogram.above_range)}
          .known_if(measured),
      Column{"flushed", "elements", "nonzero before rounding, zero after", FIELD(rounding.flushed)}.known_if(seen),
      Column{"subnormal", "elements", "nonzero after rounding, below the smallest normal", FIELD(rounding.subnormal)}.known_if(
          seen),
      Column{"inexact_subnormal", "elements", "those of them that rounding changed", FIELD(rounding.inexact_subnormal)}.known_if(
          seen),
      Column{"overflowed", "elements", "finite before rounding, Inf after, or saturated", FIELD(rounding.overflowed)}.known_if(
          seen),
      Column{"rescued", "elements", "finite and nonzero after rounding, while the same value without the loss scale rounds to zero",
             FIELD(rounding.rescued)}
          .known_if(seen),
      Column{"saturated", "elements",
             "those that overflowed of which a directed rounding mode made the largest finite value; in FP8, where all do, not "
             "counted",
             FIELD(rounding.saturated)}
          .known_if(seen),
      Column{
          "input_nonzero", "elements",
          "finite and nonzero in that input of the op which lost the largest share of them because subnormals were read as zero; "
          "0 where they were read as they are",
          FIELD(input.nonzero)},
      Column{"input_flushed", "elements", "those of them that were read as zero", FIELD(input.flushed)});
};

template <>
struct Table<BatchRow> {
  static constexpr TableId id = TableId::batches;
  static constexpr auto columns = std::make_tuple(Column{"step", "", "number of the step", FIELD(step)},
                                                  Column{"micro_batch", "", "which micro-batch of the step", FIELD(micro_batch)},
                                                  Column{"phase", "", "forward: of training; evaluation", FIELD(phase)},
                                                  Column{"source", "", "number of the data set, in sources", FIELD(source)},
                                                  Column{"sample", "", "which sample of it, from 0", FIELD(sample)});
};

template <>
struct Table<ParameterRow> {
  static constexpr TableId id = TableId::parameters;
  static constexpr auto decay = WHERE(row.decay_known);
  static constexpr auto columns = std::make_tuple(
      Column{"step", "", "number of the step", FIELD(step)},
      Column{"tensor", "", "row in tensors: the weight w that was updated", FIELD(tensor), Packing::gzip, Refers::tensors},
      Column{"learning_rate", "", "of this parameter", FIELD(learning_rate)}.known_if(WHERE(!std::isnan(row.learning_rate))),
      Column{"weight_norm", "", "Euclidean norm of w before the update", FIELD(weight_norm)},
      Column{"update_norm", "", "Euclidean norm of the update d", FIELD(update_norm)},
      Column{"gradient_dot_update", "", "sum of g d, g the gradient that the update read", FIELD(gradient_dot_update)},
      Column{"decay_known", "", "1: weight decay c is a part of d of its own", FIELD(decay_known)},
      Column{"decay_asked", "", "sum of the magnitudes of c", FIELD(decay_asked)}.known_if(decay),
      Column{"decay_applied", "", "sum of sign(c) (stored weight - the one that is stored without c): what of it arrived",
             FIELD(decay_applied)}
          .known_if(decay),
      Column{"nonzero", "elements", "updates that are not zero", FIELD(nonzero)},
      Column{"lost", "elements", "those of them that left the stored weight unchanged", FIELD(lost)},
      Column{"lost_to_decay", "elements", "those lost whose update came from weight decay alone", FIELD(lost_to_decay)});
};

template <>
struct Table<FingerprintRow> {
  static constexpr TableId id = TableId::fingerprints;
  static constexpr auto columns = std::make_tuple(
      Column{"step", "", "number of the step in which it was written", FIELD(step)},
      Column{"tensor", "", "row in tensors: a weight or an optimizer state", FIELD(tensor), Packing::gzip, Refers::tensors},
      Column{"written", "", "sum modulo 2^64 of the elements' bits as unsigned integers", FIELD(written), Packing::plain});
};

template <>
struct Table<EventRow> {
  static constexpr TableId id = TableId::events;
  static constexpr auto columns = std::make_tuple(
      Column{"step", "", "number of the step", FIELD(step)}, Column{"kind", "", "what happened", FIELD(kind)},
      Column{"tensor", "", "row in tensors, or -1", FIELD(tensor), Packing::gzip, Refers::tensors},
      Column{"micro_batch", "", "of the tensor, which micro-batch of the step", FIELD(micro_batch)}.known_if(
          WHERE(row.tensor >= 0)),
      Column{"loss_index", "", "of the tensor, which loss", FIELD(loss_index)}.known_if(WHERE(row.tensor >= 0)),
      Column{"count", "", "how many elements were concerned; of memory_changed, the step that wrote the tensor", FIELD(count)},
      Column{"value", "", "the new loss scale, or the value of a metric", FIELD(value)},
      Column{"text", "", "name of a metric, or a sentence", FIELD(text)},
      Column{"metric", "", "what a metric is, whatever its name", FIELD(metric)}.known_if(WHERE(row.kind == EventKind::metric)));
};

template <>
struct Table<CaptureRow> {
  static constexpr TableId id = TableId::captures;
  static constexpr auto of_operand = WHERE(row.parent >= 0);
  static constexpr auto of_row = WHERE(row.row.count > 0);
  static constexpr auto followed = WHERE(row.follow == CaptureFollow::followed);
  static constexpr auto columns = std::make_tuple(
      Column{"step", "", "number of the step", FIELD(step)},
      Column{"micro_batch", "", "which micro-batch of the step", FIELD(micro_batch)},
      Column{"loss_index", "", "which loss", FIELD(loss_index)},
      Column{"tensor", "", "row in tensors: the output that was not finite, of all nodes of a capture", FIELD(tensor),
             Packing::gzip, Refers::tensors},
      Column{"node", "", "number within the capture; 0: the element that was not finite", FIELD(node)},
      Column{"parent", "", "the node that this one is an operand of, or -1", FIELD(parent)}.known_if(of_operand),
      Column{"operand", "", "which input of the op that made the parent, or -1", FIELD(operand)}.known_if(of_operand),
      Column{"term", "", "of the sum that the parent is, the term that it belongs to; -1: to none", FIELD(term)}.known_if(
          WHERE(row.term >= 0)),
      Column{"made_by", "", "row in tensors: the tensor that the value is an element of; -1: not known", FIELD(made_by),
             Packing::gzip, Refers::tensors}
          .known_if(WHERE(row.made_by >= 0)),
      Column{"element", "", "logical index, row-major; -1: of many elements, or not known", FIELD(element)}.known_if(
          WHERE(row.element >= 0)),
      Column{"shape", "", "of its tensor, as the call had it; sizes separated by commas, empty for a scalar", FIELD(shape)},
      Column{"value", "", "the value there", FIELD(value)}.known_if(WHERE(row.row.count == 0)),
      Column{"overwritten", "", "1: the op wrote its output over this operand, and value is the one after the call",
             FIELD(overwritten)}
          .known_if(of_operand),
      Column{"follow", "",
             "none: what it was made of is not looked for; followed: it is in the rows whose parent is this node; gone: what it "
             "was made of is no longer in memory; given: it was there when the pass began",
             FIELD(follow)},
      Column{"terms", "", "of what is followed: terms of its dot product or sum", FIELD(terms)}.known_if(followed),
      Column{"broke_at", "", "of what is followed: the term at which the sum became nonfinite, or -1", FIELD(broke_at)}.known_if(
          WHERE(row.broke_at >= 0)),
      Column{
          "partial_sum", "",
          "of what is followed: the sum before that term, in FP32 or what the run accumulates in; where there is none, all of it, "
          "before it was rounded",
          FIELD(partial_sum)}
          .known_if(WHERE(!std::isnan(row.partial_sum))),
      Column{"attributes", "", "of the call that made what is followed, as name=value, separated by spaces", FIELD(attributes)}
          .known_if(followed),
      Column{"row_first", "", "of many elements of an input: the first", FIELD(row.first)}.known_if(of_row),
      Column{"row_count", "elements", "how many; 0: the row is of one element", FIELD(row.count)}.known_if(of_row),
      Column{"row_run", "elements", "how many of them lie together", FIELD(row.run)}.known_if(of_row),
      Column{"row_step", "elements", "from these to the next so many", FIELD(row.step)}.known_if(of_row),
      Column{"row_largest", "", "the largest of them that is no NaN", FIELD(row.largest)}.known_if(of_row),
      Column{"row_smallest", "", "the smallest of them that is no NaN", FIELD(row.smallest)}.known_if(of_row),
      Column{"row_sum", "", "of all of them, in FP64", FIELD(row.sum)}.known_if(of_row),
      Column{"row_sum_of_squares", "", "of all of them, in FP64", FIELD(row.sum_of_squares)}.known_if(of_row),
      Column{"row_nonfinite", "elements", "those that are NaN or infinite", FIELD(row.nonfinite)}.known_if(of_row));
};

template <>
struct Table<SampleRow> {
  static constexpr TableId id = TableId::samples;
  static constexpr auto columns = std::make_tuple(
      Column{"step", "", "number of the step", FIELD(step)},
      Column{"micro_batch", "", "which micro-batch of the step", FIELD(micro_batch)},
      Column{"loss_index", "", "which loss", FIELD(loss_index)},
      Column{"tensor", "", "row in tensors", FIELD(tensor), Packing::gzip, Refers::tensors},
      Column{"element", "", "logical index, row-major", FIELD(element)}, Column{"value", "", "the value there", FIELD(value)});
};

template <>
struct Table<MeasureRow> {
  static constexpr TableId id = TableId::measures;
  static constexpr auto columns =
      std::make_tuple(Column{"step", "", "number of the step", FIELD(step)},
                      Column{"micro_batch", "", "which micro-batch of the step", FIELD(micro_batch)},
                      Column{"loss_index", "", "which loss", FIELD(loss_index)},
                      Column{"tensor", "", "row in tensors", FIELD(tensor), Packing::gzip, Refers::tensors},
                      Column{"name", "", "what was measured", FIELD(name)}, Column{"value", "", "its value", FIELD(value)});
};

template <>
struct Table<SumRow> {
  static constexpr TableId id = TableId::sums;
  static constexpr auto columns = std::make_tuple(
      Column{"step", "", "number of the step", FIELD(step)},
      Column{"tensor", "", "row in tensors: the sum a", FIELD(tensor), Packing::gzip, Refers::tensors},
      Column{"additions", "", "how many terms b the step added to the whole tensor", FIELD(additions)},
      Column{"elements", "elements", "those that were looked at and finite, over all additions", FIELD(counts.elements)},
      Column{"addends", "elements", "those of them where b is not 0", FIELD(counts.addends)},
      Column{"absorbed", "elements", "those of the addends that left the stored sum as it was", FIELD(counts.absorbed)},
      Column{"asked", "", "sum of the magnitudes of b", FIELD(counts.asked)},
      Column{"arrived", "", "sum of sign(b) (a' - a), a' the stored sum behind the addition: what of it arrived",
             FIELD(counts.arrived)},
      Column{"magnitude", "", "sum of the magnitudes of the sum behind the step's last addition", FIELD(counts.magnitude)});
};

template <>
struct Table<BitsRow> {
  static constexpr TableId id = TableId::bits;
  static constexpr auto columns =
      std::make_tuple(Column{"step", "", "number of the step", FIELD(step)},
                      Column{"micro_batch", "", "which micro-batch of the step", FIELD(micro_batch)},
                      Column{"loss_index", "", "which loss", FIELD(loss_index)},
                      Column{"tensor", "", "row in tensors", FIELD(tensor), Packing::gzip, Refers::tensors},
                      Column{"hash", "", "of the elements' bits and places", FIELD(hash), Packing::plain});
};

#undef FIELD
#undef WHERE

// The row structs of all tables that have one, in the order of the tables.
using RowStructs =
    std::tuple<RunInfo, SettingInfo, SourceInfo, ProductInfo, OpInfo, TensorInfo, GraphEdge, StepRow, BatchRow, TensorRow,
               ParameterRow, FingerprintRow, EventRow, CaptureRow, SampleRow, MeasureRow, SumRow, BitsRow>;

// What a field is stored as.
template <typename T>
struct Storage;
template <>
struct Storage<bool> {
  using Type = uint8_t;
  static constexpr ValueKind kind = ValueKind::boolean;
};
template <typename T>
requires std::is_arithmetic_v<T>
struct Storage<T> {
  using Type = T;
  static constexpr ValueKind kind = ValueKind::number;
};
template <typename T>
requires std::is_enum_v<T>
struct Storage<T> {
  using Type = uint8_t;
  static constexpr ValueKind kind = ValueKind::enumeration;
};
template <>
struct Storage<std::string> {
  using Type = uint32_t;
  static constexpr ValueKind kind = ValueKind::text;
};
template <>
struct Storage<std::vector<int64_t>> : Storage<std::string> {};
template <>
struct Storage<ExponentHistogram> {
  using Type = uint64_t;
  static constexpr ValueKind kind = ValueKind::histogram;
};

template <typename T>
constexpr ElementType element_type() {
  if constexpr (std::is_same_v<T, uint8_t>)
    return ElementType::u8;
  else if constexpr (std::is_same_v<T, uint32_t>)
    return ElementType::u32;
  else if constexpr (std::is_same_v<T, int32_t>)
    return ElementType::i32;
  else if constexpr (std::is_same_v<T, uint64_t>)
    return ElementType::u64;
  else if constexpr (std::is_same_v<T, int64_t>)
    return ElementType::i64;
  else {
    static_assert(std::is_same_v<T, double>);
    return ElementType::f64;
  }
}

// Enumerators are 0 .. size - 1.
template <typename Enum>
constexpr int enumerators() {
  if constexpr (std::is_same_v<Enum, Phase>)
    return kPhases;
  else if constexpr (std::is_same_v<Enum, Role>)
    return kRoles;
  else if constexpr (std::is_same_v<Enum, RecordLevel>)
    return 4;
  else if constexpr (std::is_same_v<Enum, StatisticsLevel>)
    return 3;
  else if constexpr (std::is_same_v<Enum, DType>)
    return static_cast<int>(kDTypes.size());
  else if constexpr (std::is_same_v<Enum, RoundingMode>)
    return kRoundingModes;
  else if constexpr (std::is_same_v<Enum, OpKind>)
    return kOpKinds;
  else if constexpr (std::is_same_v<Enum, OpFunction>)
    return kOpFunctions;
  else if constexpr (std::is_same_v<Enum, SettingKind>)
    return kSettingKinds;
  else if constexpr (std::is_same_v<Enum, CaptureFollow>)
    return kCaptureFollows;
  else if constexpr (std::is_same_v<Enum, MetricKind>)
    return kMetricKinds;
  else {
    static_assert(std::is_same_v<Enum, EventKind>);
    return kEventKinds;
  }
}

// Calls body(column, index) for each column of `Row`.
template <typename Row, typename Body>
constexpr void for_each_column(Body&& body) {
  [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    (body(std::get<kIndex>(Table<Row>::columns), std::integral_constant<size_t, kIndex>()), ...);
  }
  (std::make_index_sequence<std::tuple_size_v<decltype(Table<Row>::columns)>>());
}

}  // namespace ulpscope::trace_detail
