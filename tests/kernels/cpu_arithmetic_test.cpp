// Op calls whose arithmetic is not the default: every op's outputs against scalar roundings of what it gives in FP32, products
// against scalar dot products term by term, and records against counts by hand.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>

#include "cpu_support.h"
#include "tests/support/usage_error.h"
#include "ulpscope/base/hash.h"
#include "ulpscope/emulation/exact_sum.h"
#include "ulpscope/emulation/round_array.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/emulation/summation.h"
#include "ulpscope/emulation/tensor_core.h"
#include "ulpscope/kernels/cases/op_cases.h"
#include "ulpscope/kernels/windows.h"

namespace ulpscope::testing_support {
namespace {

Arithmetic accumulated(std::string_view name, RoundingMode rounding = RoundingMode::nearest_even,
                       Subnormals subnormals = Subnormals::keep) {
  return {find_accumulation(name), rounding, subnormals};
}

double flushed(DType dtype, double value) {
  return std::abs(value) < info(dtype).format->smallest_normal() ? std::copysign(0.0, value) : value;
}

// What `value` becomes as element `place` in memory of output `slot`.
uint64_t stored_encoding(double value, DType dtype, const Arithmetic& how, int slot, int64_t place) {
  const FloatFormat& format = *info(dtype).format;
  const Rounding rounding{.mode = how.rounding,
                          .subnormals = flushes_outputs(how.subnormals) ? SubnormalResults::flush : SubnormalResults::keep};
  const RandomStream random{kCallSeed, hash_combine(kCallStream, static_cast<uint64_t>(slot))};
  return round_to_encoding(format, value, rounding, random_bits_of(random, static_cast<uint64_t>(place)));
}
double stored_value(double value, DType dtype, const Arithmetic& how, int slot, int64_t place) {
  return value_of(*info(dtype).format, stored_encoding(value, dtype, how, slot, place));
}

// What rounding these values into those did, element by element.
RoundingCounts count_by_hand(const HostTensor& wide, const HostTensor& stored, const Arithmetic& how, int slot, double scale) {
  const DType dtype = stored.view().dtype;
  RoundingCounts counts;
  for (int64_t i = 0; i < wide.view().size(); ++i) {
    const double was = wide.get(i), is = stored.get(i);
    if (was == 0 || !std::isfinite(was)) continue;
    counts.flushed += is == 0;
    // Beyond the largest number by a step: kept at it, or infinite.
    const FloatFormat& format = *info(dtype).format;
    const double step = std::ldexp(1.0, format.largest_exponent() - format.fraction_bits);
    const bool saturated = std::abs(is) == format.largest_finite() && std::abs(was) >= format.largest_finite() + step;
    counts.saturated += saturated;
    counts.overflowed += saturated || std::isinf(is);
    const bool subnormal = is != 0 && std::abs(is) < info(dtype).format->smallest_normal();
    counts.subnormal += subnormal;
    counts.inexact_subnormal += subnormal && is != was;
    const double unscaled = stored_value(was / scale, dtype, how, slot, offset_of(stored.view(), i));
    counts.rescued += is != 0 && std::isfinite(is) && unscaled == 0;
  }
  return counts;
}

// Of every op but the products, whose FP32 bits need not be those of 16-bit factors.
std::vector<Case> rounded_cases() {
  std::vector<Case> cases;
  for (const auto& all : {elementwise_cases({3, 5, 129}), other_cases()}) {
    for (const Case& what : all) {
      double elements = 0;
      for (const TensorSpec& input : what.inputs) {
        double size = 1;
        for (const int64_t extent : input.shape) size *= static_cast<double>(extent);
        elements += size;
      }
      const auto stepwise = [](const Attributes::Item& item) { return item.name == "stepwise" && item.value != 0; };
      const auto quantized = [](const OutputSpec& output) { return output.dtype && is_quantized(*output.dtype); };
      if (std::any_of(what.outputs.begin(), what.outputs.end(), quantized)) continue;  // tests/core/fp8_test.cpp
      if (!is_product(what.op) && elements < 20000 && std::none_of(what.attributes.begin(), what.attributes.end(), stepwise))
        cases.push_back(what);
    }
  }
  return cases;
}

// The same inputs, each 16-bit one as FP32, flushed where the arithmetic flushes inputs.
std::vector<HostTensor> widened(const std::vector<HostTensor>& inputs, const Arithmetic& how) {
  std::vector<HostTensor> wide;
  for (const HostTensor& input : inputs) {
    const DType dtype = input.view().dtype;
    wide.push_back(is_float(dtype) ? input.as(DType::f32) : input.copy());
    if (!is_float(dtype) || !flushes_inputs(how.subnormals)) continue;
    for (int64_t i = 0; i < input.view().size(); ++i) wide.back().set(i, flushed(dtype, input.get(i)));
  }
  return wide;
}

TEST(CpuArithmetic, RoundsTheOutputsOfEveryOp) {
  const auto backend = make_cpu_backend({.threads = 2});
  std::set<std::string> seen;
  size_t turn = 0;
  for (Case what : rounded_cases()) {
    for (const double magnitude : {1.0, 0x1p-14}) {
      for (TensorSpec& input : what.inputs) {
        input.low *= magnitude;
        input.high *= magnitude;
      }
      for (const DType dtype : {DType::f16, DType::bf16}) {
        // Over all cases every pair of a mode and a treatment of subnormals comes up often.
        const Arithmetic how = accumulated("fp32", static_cast<RoundingMode>(turn % 7), static_cast<Subnormals>(turn / 7 % 4));
        ++turn;
        const std::string where =
            fmt::format("{} {} {} {}", what.name(), info(dtype).name, name_of(how.rounding), name_of(how.subnormals));
        Instance instance(what, dtype);
        const CaseCall prepared = instance.prepare(StatisticsLevel::values);
        const Result actual = run(prepared, *backend, how);
        const CaseCall twin(what, widened(instance.inputs(), how), DType::f32, StatisticsLevel::values);
        run(*backend, twin.call());
        const Result wide = twin.result();
        const Result unrecorded = run(instance.prepare(), *backend, how);
        for (size_t slot = 0; slot < what.outputs.size(); ++slot) {
          const std::string output = fmt::format("{} output {}", where, slot);
          const HostTensor& stored = actual.outputs[slot];
          if (what.outputs[slot].record_only || stored.view().dtype != dtype) continue;
          expect_same(unrecorded.outputs[slot], stored, output + " without recording");
          if (only_moves(what.op)) {
            expect_same(stored, instance.run(*backend).outputs[slot], output);
            std::set<double> moved{0};  // where there was no element
            for (const HostTensor& input : instance.inputs())
              for (int64_t i = 0; i < input.view().size(); ++i) moved.insert(input.get(i));
            for (int64_t i = 0; i < stored.view().size(); ++i) EXPECT_EQ(moved.count(stored.get(i)), 1u) << output << " " << i;
            continue;
          }
          HostTensor expected = stored.copy();
          for (int64_t i = 0; i < stored.view().size(); ++i)
            expected.set(i,
                         stored_value(wide.outputs[slot].get(i), dtype, how, static_cast<int>(slot), offset_of(stored.view(), i)));
          expect_same(stored, expected, output);
          const OutputRecord& record = actual.records[slot];
          EXPECT_TRUE(record.before_rounding && record.rounding_known) << output;
          EXPECT_EQ(record.statistics, wide.records[slot].statistics) << output;
          EXPECT_EQ(record.rounding, count_by_hand(wide.outputs[slot], stored, how, static_cast<int>(slot), record.scale))
              << output;
        }
        seen.insert(what.op);
      }
    }
  }
  EXPECT_GT(seen.size(), 100u);
}

// FP32 outputs are not rounded, whatever the mode, but flushed.
TEST(CpuArithmetic, FlushesFp32) {
  const auto backend = make_cpu_backend({.threads = 2});
  const Case what{"mul",
                  {{{40003}, Lay::contiguous, {}, 0, -0x1p-62, 0x1p-62}, {{40003}, Lay::contiguous, {}, 0, -0x1p-62, 0x1p-62}},
                  {{{40003}}}};
  for (const Subnormals subnormals : {Subnormals::flush_inputs, Subnormals::flush_outputs, Subnormals::flush}) {
    Instance instance(what, DType::f32);
    instance.inputs()[0].set(0, 0x1p-130);
    instance.inputs()[1].set(0, -0x1p20);
    const Arithmetic how = accumulated("fp32", RoundingMode::toward_zero, subnormals);
    const Result actual = run(instance.prepare(StatisticsLevel::values), *backend, how);
    const OutputRecord& record = actual.records[0];
    RoundingCounts expected_counts;
    for (int64_t i = 0; i < 40003; ++i) {
      const bool flush_input = flushes_inputs(subnormals);
      const double x = instance.inputs()[0].get(i), y = instance.inputs()[1].get(i);
      const auto product =
          static_cast<float>((flush_input ? flushed(DType::f32, x) : x) * (flush_input ? flushed(DType::f32, y) : y));
      const double expected = flushes_outputs(subnormals) ? flushed(DType::f32, product) : product;
      expected_counts.flushed += expected == 0 && product != 0;
      // Without the loss scale it would be a subnormal that is flushed.
      expected_counts.rescued += expected != 0 && std::abs(product) < record.scale * 0x1p-126;
      ASSERT_EQ(actual.outputs[0].get(i), expected) << i;
      ASSERT_EQ(std::signbit(actual.outputs[0].get(i)), std::signbit(expected)) << i;
    }
    EXPECT_EQ(record.rounding_known, flushes_outputs(subnormals));
    if (!record.rounding_known) continue;
    EXPECT_EQ(record.rounding, expected_counts);
    EXPECT_GT(record.rounding.flushed, 0u);
    EXPECT_GT(record.rounding.rescued, 0u);
  }
}

// By hand for SGD without momentum, where the gradient's share of the update is the gradient. A gradient in another order than the
// weights is left to the plain twin.
TEST(CpuArithmetic, CountsLostUpdatesAsTheyAreRounded) {
  const auto backend = make_cpu_backend({.threads = 2});
  for (const Lay lay : {Lay::contiguous, Lay::transposed}) {
    const Case what{
        "sgd_update",
        {{{90, 100}}, {{90, 100}, lay, {}, 0, -1, 1}},
        {{{90, 100}, Lay::contiguous, {}, 0}, {{90, 100}, Lay::contiguous, DType::f32}},
        {{"lr", 0.01}, {"momentum", 0}, {"dampening", 0}, {"weight_decay", 1e-3}, {"nesterov", 0}, {"first", 1}, {"stepwise", 0}}};
    for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
      for (const RoundingMode mode : {RoundingMode::toward_zero, RoundingMode::stochastic}) {
        const std::string where = fmt::format("{} {} {}", what.name(), info(dtype).name, name_of(mode));
        Instance instance(what, dtype);
        for (int64_t i = 0; i < 9000; i += 3) instance.inputs()[1].set(i, 0);
        if (dtype == DType::f32) instance.inputs()[0].set(1, 0x1p-140);
        const Arithmetic how = accumulated("fp32", mode, dtype == DType::f32 ? Subnormals::flush_outputs : Subnormals::keep);
        const Result actual = run(instance.prepare(StatisticsLevel::health), *backend, how);
        UpdateCounts expected;
        for (int64_t i = 0; i < 9000; ++i) {
          const bool nonzero = actual.outputs[1].get(i) != 0,
                     lost = nonzero && actual.outputs[0].get(i) == instance.inputs()[0].get(i);
          expected.nonzero += nonzero;
          expected.lost += lost;
          expected.lost_to_decay += lost && instance.inputs()[1].get(i) == 0;
        }
        ASSERT_TRUE(actual.records[1].update_known) << where;
        const UpdateCounts& counted = actual.records[1].update;
        EXPECT_EQ(counted.nonzero, expected.nonzero) << where;
        EXPECT_EQ(counted.lost, expected.lost) << where;
        EXPECT_EQ(counted.lost_to_decay, expected.lost_to_decay) << where;
        if (dtype != DType::f32) {
          EXPECT_GT(counted.lost, counted.lost_to_decay) << where;
        }
      }
    }
  }
}

TEST(CpuArithmetic, RefusesUpdatesThatRoundEveryOperation) {
  const auto backend = make_cpu_backend({.threads = 1});
  const Case what{
      "sgd_update",
      {{{9}}, {{9}}},
      {{{9}, Lay::contiguous, {}, 0}, {{9}, Lay::contiguous, {}, -1, true}},
      {{"lr", 0.01}, {"momentum", 0}, {"dampening", 0}, {"weight_decay", 0}, {"nesterov", 0}, {"first", 1}, {"stepwise", 1}}};
  for (const Arithmetic& how :
       {accumulated("fp32", RoundingMode::stochastic), accumulated("fp32", RoundingMode::nearest_even, Subnormals::flush)}) {
    EXPECT_EQ(
        usage_error_of([&] { run(Instance(what, DType::bf16).prepare(), *backend, how); }),
        "sgd_update: an update of bf16 parameters that rounds after every operation rounds to nearest even and keeps "
        "subnormals; expected optimizer.math = \"fp32\", which rounds once, or rounding = \"rne\" and subnormals = \"keep\" for "
        "sgd_update");
    EXPECT_EQ(usage_error_of([&] { run(Instance(what, DType::f32).prepare(), *backend, how); }), "no error");
  }
  EXPECT_EQ(usage_error_of([&] { run(Instance(what, DType::bf16).prepare(), *backend, accumulated("a100")); }), "no error");
}

// Each sum of a million is off by less than 5 standard deviations of the sum of so many roundings.
TEST(CpuArithmetic, StochasticRoundingIsUnbiased) {
  const auto backend = make_cpu_backend({.threads = 2});
  constexpr int64_t kCount = 1 << 20;
  const Arithmetic how = accumulated("fp32", RoundingMode::stochastic);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const double ulp = dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
    for (const double part : {0.001, 0.25, 0.5, 0.9}) {
      const double value = static_cast<float>(1 + part * ulp), up = (value - 1) / ulp;
      const Case what{"cast", {{{kCount}, Lay::contiguous, DType::f32, 0, value, value}}, {{{kCount}}}};
      const Result actual = run(Instance(what, dtype).prepare(), *backend, how);
      double rounded_up = 0;
      for (int64_t i = 0; i < kCount; ++i) {
        const double is = actual.outputs[0].get(i);
        ASSERT_TRUE(is == 1 || is == 1 + ulp);
        rounded_up += is > 1;
      }
      EXPECT_LE(std::abs(rounded_up - up * kCount), 5 * std::sqrt(kCount * up * (1 - up)));
    }
  }
}

TEST(CpuArithmetic, GivesTheSameBitsOnAnyThreadsAndInstructionSets) {
  std::vector<Case> cases{{"cast", {{{40003}, Lay::contiguous, DType::f32}}, {{{40003}}}},
                          {"linear", {{{70, 129}}, {{67, 129}}, {{67}}}, {{{70, 67}}}},
                          {"matmul", {{{5, 33, 40}}, {{5, 40, 19}}}, {{{5, 33, 19}}}}};
  for (const Case& what : cases) {
    for (const std::string_view name : {"fp16", "bf16", "fp64", "exact", "v100", "h100"}) {
      const Arithmetic how = accumulated(name, RoundingMode::stochastic);
      std::optional<HostTensor> first;
      for (const std::string& isa : instruction_sets()) {
        for (const int threads : {1, 2, 3}) {
          const auto backend = make_cpu_backend({.threads = threads, .isa = isa});
          const Result result = run(Instance(what, DType::bf16).prepare(), *backend, how);
          if (!first) first.emplace(result.outputs[0].copy());
          expect_same(result.outputs[0], *first, fmt::format("{} {} {} {}", what.name(), name, isa, threads));
        }
      }
      const auto backend = make_cpu_backend({.threads = 2});
      const Result other = run(Instance(what, DType::bf16).prepare(), *backend, how, kCallStream + 1);
      int differences = 0;
      for (int64_t i = 0; i < other.outputs[0].view().size(); ++i) differences += other.outputs[0].get(i) != first->get(i);
      // A sum that is a BF16 number leaves nothing to round.
      const bool is_rounded = name != "bf16" || what.op != "matmul";
      EXPECT_EQ(differences > 0, is_rounded) << name << " " << what.op;
    }
  }
}

// The factors of each term of an output element, by their logical indices; -1: a zero of the padding.
struct Term {
  int64_t a, b;
};
using Terms = std::vector<Term>;

int64_t index_of(const TensorView& view, std::initializer_list<int64_t> place) {
  int64_t index = 0;
  int dimension = 0;
  for (const int64_t at : place) index = index * view.shape[dimension++] + at;
  return index;
}

Terms terms_of(const OpCall& call, int64_t element) {
  const TensorView &a = call.inputs[0], &b = call.inputs[1], &out = call.outputs[0];
  Terms terms;
  if (call.op == "matmul" || call.op == "linear") {
    const int64_t m = out.shape[out.rank - 2], n = out.shape[out.rank - 1], k = a.shape[a.rank - 1];
    const int64_t i = element / n % m, j = element % n, batch = element / (m * n);
    for (int64_t l = 0; l < k; ++l)
      terms.push_back({(batch * m + i) * k + l, call.op == "linear" ? j * k + l : (batch * k + l) * n + j});
    return terms;
  }
  const bool of_weight = call.op.ends_with("_weight");
  const bool transposed = call.op.starts_with("conv_transpose2d");
  const TensorView& weight = of_weight ? out : b;
  const Windows windows = Windows::of(*call.attributes, weight.shape[2], weight.shape[3]);
  const int64_t groups = groups_of(*call.attributes), channels = weight.shape[1], filters = weight.shape[0] / groups;
  const int64_t places[] = {element / (out.shape[1] * out.shape[2] * out.shape[3]),
                            element / (out.shape[2] * out.shape[3]) % out.shape[1], element / out.shape[3] % out.shape[2],
                            element % out.shape[3]};
  const auto inside = [](const TensorView& view, int64_t y, int64_t x) {
    return y >= 0 && y < view.shape[2] && x >= 0 && x < view.shape[3];
  };
  if (of_weight) {
    const TensorView &map = transposed ? b : a, &image = transposed ? a : b;
    const int64_t o = places[0], c = o / filters * channels + places[1];
    for (int64_t n = 0; n < map.shape[0]; ++n)
      for (int64_t y = 0; y < map.shape[2]; ++y)
        for (int64_t x = 0; x < map.shape[3]; ++x) {
          const int64_t iy = windows.y.input(y, places[2]), ix = windows.x.input(x, places[3]);
          const int64_t in_map = index_of(map, {n, o, y, x}),
                        in_image = inside(image, iy, ix) ? index_of(image, {n, c, iy, ix}) : -1;
          terms.push_back(transposed ? Term{in_image, in_map} : Term{in_map, in_image});
        }
    return terms;
  }
  const bool makes_map = call.op == "conv2d" || call.op == "conv_transpose2d_backward_input";
  const int64_t group = places[1] / (makes_map ? filters : channels);
  for (int64_t ky = 0; ky < weight.shape[2]; ++ky)
    for (int64_t kx = 0; kx < weight.shape[3]; ++kx)
      for (int64_t i = 0; i < (makes_map ? channels : filters); ++i) {
        if (makes_map) {
          const int64_t iy = windows.y.input(places[2], ky), ix = windows.x.input(places[3], kx);
          terms.push_back({inside(a, iy, ix) ? index_of(a, {places[0], group * channels + i, iy, ix}) : -1,
                           index_of(weight, {places[1], i, ky, kx})});
        } else {
          const int64_t oy = windows.y.output(places[2], ky, a.shape[2]), ox = windows.x.output(places[3], kx, a.shape[3]);
          terms.push_back({oy >= 0 && ox >= 0 ? index_of(a, {places[0], group * filters + i, oy, ox}) : -1,
                           index_of(weight, {group * filters + i, places[1] % channels, ky, kx})});
        }
      }
  return terms;
}

uint64_t encoding_in(const FloatFormat& format, const HostTensor& tensor, int64_t index) {
  return index < 0 ? 0 : round_to_encoding(format, tensor.get(index));
}

// What factors are multiplied as: FP32 holds every other type.
DType factor_type_of(DType a, DType b) { return a == b ? a : DType::f32; }

// The element as its type stores it, by scalar routines.
double expected_element(const Case& what, const OpCall& call, const std::vector<HostTensor>& inputs, const Arithmetic& how,
                        int64_t element) {
  const DType dtype = call.outputs[0].dtype, factor_type = factor_type_of(call.inputs[0].dtype, call.inputs[1].dtype);
  const FloatFormat &format = *info(dtype).format, &factor_format = *info(factor_type).format;
  const Terms terms = terms_of(call, element);
  std::vector<uint32_t> a, b;
  for (const Term& term : terms) {
    a.push_back(static_cast<uint32_t>(encoding_in(factor_format, inputs[0], term.a)));
    b.push_back(static_cast<uint32_t>(encoding_in(factor_format, inputs[1], term.b)));
  }
  const auto bias_at = [&](const TensorView& out) {
    return out.rank == 4 ? element / (out.shape[2] * out.shape[3]) % out.shape[1] : element % out.shape[1];
  };
  const bool with_bias = what.inputs.size() > 2;
  const float bias = with_bias ? static_cast<float>(inputs[2].get(bias_at(call.outputs[0]))) : 0.0f;
  const EncodedArray a_array(factor_format, std::span<const uint32_t>(a)), b_array(factor_format, std::span<const uint32_t>(b));
  double wide = 0;
  switch (how.accumulation->accumulator) {
    case Accumulator::tensor_core: {
      const FloatFormat& factors = factor_type == DType::f32 ? tensor_float32 : factor_format;
      const TensorCore core = find_tensor_core(how.accumulation->name, factors, factors, binary32);
      wide = value_of(binary32, dot(core, a, b, 0));
      break;
    }
    case Accumulator::narrow:
      wide = value_of(*how.accumulation->narrow,
                      dot(a_array, b_array, {.order = SumOrder::sequential, .accumulator = how.accumulation->narrow}));
      break;
    case Accumulator::fp64:
      wide = value_of(binary64, dot(a_array, b_array, {.order = SumOrder::sequential, .accumulator = &binary64}));
      if (with_bias) wide += bias;
      break;
    case Accumulator::exact: {
      ExactSum sum;
      for (size_t i = 0; i < a.size(); ++i) sum.add_product(decode(factor_format, a[i]), decode(factor_format, b[i]));
      if (with_bias) sum.add(static_cast<double>(bias));
      const Rounding rounding{.mode = how.rounding,
                              .subnormals = flushes_outputs(how.subnormals) ? SubnormalResults::flush : SubnormalResults::keep};
      const RandomStream random{kCallSeed, hash_combine(kCallStream, 0)};
      const auto place = static_cast<uint64_t>(offset_of(call.outputs[0], element));
      return value_of(format, encode(format, sum.total(how.rounding), rounding, random_bits_of(random, place)));
    }
    case Accumulator::fp32:
      ADD_FAILURE();
  }
  const bool in_float = how.accumulation->accumulator != Accumulator::fp64;
  if (with_bias && in_float) wide = static_cast<float>(wide) + bias;
  return stored_value(wide, dtype, how, 0, offset_of(call.outputs[0], element));
}

std::vector<Case> product_cases() {
  std::vector<Case> cases;
  for (const Lay a : {Lay::contiguous, Lay::transposed, Lay::strided})
    for (const Lay b : {Lay::contiguous, Lay::transposed}) cases.push_back({"matmul", {{{5, 37}, a}, {{37, 19}, b}}, {{{5, 19}}}});
  cases.push_back({"matmul", {{{3, 2, 4, 9}}, {{3, 2, 9, 5}, Lay::broadcast}}, {{{3, 2, 4, 5}}}});
  cases.push_back({"matmul", {{{1, 1}}, {{1, 1}}}, {{{1, 1}}}});
  for (const DType second : {DType::f16, DType::bf16})
    cases.push_back({"matmul", {{{20, 20}}, {{20, 20}, Lay::transposed, second}}, {{{20, 20}}}});
  cases.push_back({"linear", {{{35, 41}}, {{10, 41}}, {{10}}}, {{{35, 10}}}});
  cases.push_back({"linear", {{{7, 16}, Lay::transposed}, {{33, 16}}}, {{{7, 33}}}});
  struct Shape {
    int64_t images, channels, filters, y, x, kernel_y, kernel_x, stride, padding, dilation, groups;
  };
  for (const Shape& s : {Shape{2, 3, 5, 6, 5, 3, 3, 1, 1, 1, 1}, Shape{2, 4, 6, 7, 6, 3, 2, 2, 1, 1, 2},
                         Shape{1, 2, 2, 6, 7, 2, 3, 1, 0, 2, 1}, Shape{3, 4, 7, 3, 2, 1, 1, 1, 0, 1, 1}}) {
    const Window y{s.kernel_y, s.stride, s.padding, s.dilation}, x{s.kernel_x, s.stride, s.padding, s.dilation};
    const auto number = [](int64_t value) { return static_cast<double>(value); };
    const std::vector<Attributes::Item> attributes{{"stride_y", number(s.stride)},     {"stride_x", number(s.stride)},
                                                   {"padding_y", number(s.padding)},   {"padding_x", number(s.padding)},
                                                   {"dilation_y", number(s.dilation)}, {"dilation_x", number(s.dilation)},
                                                   {"groups", number(s.groups)}};
    const std::vector<int64_t> image{s.images, s.channels, s.y, s.x}, map{s.images, s.filters, y.outputs(s.y), x.outputs(s.x)};
    const std::vector<int64_t> weight{s.filters, s.channels / s.groups, s.kernel_y, s.kernel_x};
    for (const Lay lay : {Lay::contiguous, Lay::channels_last}) {
      cases.push_back({"conv2d", {{image, lay}, {weight}, {{s.filters}}}, {{map, Lay::channels_last}}, attributes});
      cases.push_back({"conv2d_backward_input", {{map, lay}, {weight}}, {{image, Lay::channels_last}}, attributes});
      cases.push_back({"conv2d_backward_weight", {{map, lay}, {image, lay}}, {{weight}, {{s.filters}}}, attributes});
      cases.push_back({"conv_transpose2d", {{map, lay}, {weight}, {{s.channels}}}, {{image, Lay::channels_last}}, attributes});
      cases.push_back({"conv_transpose2d_backward_input", {{image, lay}, {weight}}, {{map, Lay::channels_last}}, attributes});
      cases.push_back({"conv_transpose2d_backward_weight", {{image, lay}, {map, lay}}, {{weight}, {{s.channels}}}, attributes});
    }
  }
  return cases;
}

void check_product(const Case& what, DType dtype, const Arithmetic& how, Backend& backend, bool special) {
  const std::string where = fmt::format("{} {} {} {} {}", what.name(), info(dtype).name, how.accumulation->name,
                                        name_of(how.rounding), name_of(how.subnormals));
  Instance instance(what, dtype);
  if (special) {
    instance.inputs()[0].set(0, -INFINITY);
    instance.inputs()[1].set(1, NAN);
    instance.inputs()[0].set(3, -0.0);
  }
  const CaseCall prepared = instance.prepare(StatisticsLevel::values);
  const OpCall& call = prepared.call();
  const Result actual = run(prepared, backend, how);
  std::vector<HostTensor> inputs;
  for (const HostTensor& input : instance.inputs()) {
    inputs.push_back(input.copy());
    for (int64_t i = 0; flushes_inputs(how.subnormals) && i < input.view().size(); ++i)
      inputs.back().set(i, flushed(input.view().dtype, input.get(i)));
  }
  HostTensor expected = actual.outputs[0].copy();
  for (int64_t i = 0; i < expected.view().size(); ++i) expected.set(i, expected_element(what, call, inputs, how, i));
  expect_same(actual.outputs[0], expected, where);
}

bool has_tensor_core(std::string_view gpu, const FloatFormat& format) {
  try {
    find_tensor_core(gpu, format, format, binary32);
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(CpuArithmetic, ProductsAccumulateAsTheScalarRoutines) {
  const auto backend = make_cpu_backend({.threads = 2});
  std::set<std::string> seen;
  size_t turn = 0;
  for (const Case& what : product_cases()) {
    seen.insert(what.op);
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
      for (const std::string_view name : {"fp16", "bf16", "fp64", "exact", "v100", "t4", "a100", "h100"}) {
        const DType factor_type = factor_type_of(what.inputs[0].dtype.value_or(dtype), what.inputs[1].dtype.value_or(dtype));
        const FloatFormat& factors = factor_type == DType::f32 ? tensor_float32 : *info(factor_type).format;
        if (find_accumulation(name)->accumulator == Accumulator::tensor_core && !has_tensor_core(name, factors)) {
          // As the GPU's other cores: what the default gives.
          expect_same(run(Instance(what, dtype).prepare(), *backend, accumulated(name)).outputs[0],
                      Instance(what, dtype).run(*backend).outputs[0], what.name());
          continue;
        }
        check_product(what, dtype, accumulated(name), *backend, false);
        check_product(what, dtype, accumulated(name), *backend, true);
        ++turn;
        check_product(what, dtype,
                      accumulated(name, static_cast<RoundingMode>(1 + turn % 6), static_cast<Subnormals>(turn / 6 % 4)), *backend,
                      turn % 2 == 0);
      }
    }
  }
  std::set<std::string> all(arithmetic_products().begin(), arithmetic_products().end());
  all.erase("scaled_matmul");  // tests/core/fp8_test.cpp
  EXPECT_EQ(seen, all);
}

// Without TF32, FP32 products are those of the default.
TEST(CpuArithmetic, LeavesFp32AloneWithoutTf32) {
  const auto backend = make_cpu_backend({.threads = 2});
  const Case what{"linear", {{{35, 41}}, {{10, 41}}, {{10}}}, {{{35, 10}}}};
  Arithmetic how = accumulated("a100");
  how.tf32 = false;
  expect_same(run(Instance(what, DType::f32).prepare(), *backend, how).outputs[0],
              Instance(what, DType::f32).run(*backend).outputs[0], "fp32");
  check_product(what, DType::f16, how, *backend, false);
}

// Sums in 16 bits overflow, cancel and lose what is small in the same places as the scalar routine's.
TEST(CpuArithmetic, NarrowAccumulatorsMeetTheirLimits) {
  for (const std::string& isa : instruction_sets()) {
    const auto backend = make_cpu_backend({.threads = 1, .isa = isa});
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
      for (const double magnitude : {0x1p-14, 0x1p-9, 0x1p-3, 1.0, 0x1p5, 0x1p8}) {
        const TensorSpec a{{9, 70}, Lay::contiguous, {}, 0, -magnitude, magnitude},
            b{{70, 21}, Lay::contiguous, {}, 0, -magnitude, magnitude};
        check_product({"matmul", {a, b}, {{{9, 21}}}}, dtype, accumulated("fp16"), *backend, false);
      }
      if (dtype == DType::f16) continue;
      for (const double magnitude : {0x1p-66, 0x1p-61, 1.0, 0x1p62}) {
        const TensorSpec a{{9, 70}, Lay::contiguous, {}, 0, -magnitude, magnitude},
            b{{70, 21}, Lay::contiguous, {}, 0, -magnitude, magnitude};
        check_product({"matmul", {a, b}, {{{9, 21}}}}, dtype, accumulated("bf16"), *backend, false);
      }
    }
  }
}

// Sums a little below the middle of two FP16 numbers, by less than FP64 shows beside them: rounded to FP64 first they would be the
// middle, which ties upwards.
TEST(CpuArithmetic, SumsAreNotRoundedTwice) {
  for (const std::string& isa : instruction_sets()) {
    const auto backend = make_cpu_backend({.threads = 1, .isa = isa});
    const auto sum = [&](DType dtype, std::string_view name, const std::vector<double>& a, const std::vector<double>& b) {
      const auto terms = static_cast<int64_t>(a.size());
      Instance instance({"matmul", {{{1, terms}}, {{terms, 1}}}, {{{1, 1}}}}, dtype);
      for (int64_t i = 0; i < terms; ++i) {
        instance.inputs()[0].set(i, a[static_cast<size_t>(i)]);
        instance.inputs()[1].set(i, b[static_cast<size_t>(i)]);
      }
      return run(instance.prepare(), *backend, accumulated(name)).outputs[0].get(0);
    };
    // 1 + 2^-10 + 2^-11 - 2^-55
    EXPECT_EQ(sum(DType::f32, "fp16", {1 + 0x1p-10, 0x1p-11 * (1 + 0x1p-22)}, {1, 1 - 0x1p-22}), 1 + 0x1p-10) << isa;
    // 4100 + 2 - 2^-48
    EXPECT_EQ(sum(DType::f16, "exact", {64.0625, 2, 0x1p-24}, {64, 1, -0x1p-24}), 4100) << isa;
  }
}

// AMD's MI200: 16-bit products flush their subnormal factors and results, and nothing else is flushed.
TEST(CpuArithmetic, Mi200FlushesSubnormalsOfNarrowProducts) {
  const auto backend = make_cpu_backend({.threads = 1});
  const Arithmetic how = accumulated("mi200");
  const auto product = [&](DType dtype, double x, double y) {
    const Case what{"matmul", {{{1, 1}, Lay::contiguous, {}, 0, x, x}, {{1, 1}, Lay::contiguous, {}, 0, y, y}}, {{{1, 1}}}};
    return run(Instance(what, dtype).prepare(), *backend, how).outputs[0].get(0);
  };
  EXPECT_EQ(product(DType::f16, 0x1p-15, 0x1p10), 0);       // a subnormal factor
  EXPECT_EQ(product(DType::f16, 0x1p-14, 0x1p10), 0x1p-4);  // the smallest normal one
  EXPECT_EQ(product(DType::f16, 0x1p-8, 0x1p-7), 0);        // a subnormal result
  EXPECT_TRUE(std::signbit(product(DType::f16, 0x1p-8, -0x1p-7)));
  EXPECT_EQ(product(DType::f16, 0x1p-7, 0x1p-7), 0x1p-14);
  EXPECT_EQ(product(DType::bf16, 0x1p-127, 0x1p10), 0);
  EXPECT_EQ(product(DType::f32, 0x1p-127, 0x1p10), 0x1p-117);
  const Case other{"mul", {{{1}, Lay::contiguous, {}, 0, 0x1p-15, 0x1p-15}, {{1}, Lay::contiguous, {}, 0, 1, 1}}, {{{1}}}};
  EXPECT_EQ(run(Instance(other, DType::f16).prepare(), *backend, how).outputs[0].get(0), 0x1p-15);
  // The gradient of a convolution's weight is a product, that of its bias a sum.
  const std::vector<Attributes::Item> attributes{{"stride_y", 1}, {"stride_x", 1}, {"padding_y", 0}, {"padding_x", 0}};
  const std::vector<int64_t> one{1, 1, 1, 1};
  const Case gradients{"conv2d_backward_weight",
                       {{one, Lay::contiguous, {}, 0, 0x1p-15, 0x1p-15}, {one, Lay::contiguous, {}, 0, 1, 1}},
                       {{one}, {{1}}},
                       attributes};
  const Result actual = run(Instance(gradients, DType::f16).prepare(), *backend, how);
  EXPECT_EQ(actual.outputs[0].get(0), 0);
}

// GPUs differ from each other and from FP32, each agrees with itself.
TEST(CpuArithmetic, GpusDiffer) {
  const auto backend = make_cpu_backend({.threads = 2});
  const Case what{"matmul", {{{40, 300}}, {{300, 30}}}, {{{40, 30}, Lay::contiguous, DType::f32}}};
  std::map<std::string_view, std::vector<double>> results;
  for (const std::string_view name : {"fp32", "v100", "t4", "h100"}) {
    const Result once = run(Instance(what, DType::f16).prepare(), *backend, accumulated(name));
    expect_same(run(Instance(what, DType::f16).prepare(), *backend, accumulated(name)).outputs[0], once.outputs[0],
                std::string(name));
    for (int64_t i = 0; i < 1200; ++i) results[name].push_back(once.outputs[0].get(i));
    for (const auto& [other, values] : results) EXPECT_EQ(values == results[name], other == name) << other << " and " << name;
  }
}

}  // namespace
}  // namespace ulpscope::testing_support
