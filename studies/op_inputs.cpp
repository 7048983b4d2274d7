#include "ulpscope/studies/op_inputs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "ulpscope/base/philox.h"

namespace ulpscope {

namespace {

struct Row {
  InputClass input_class;
  std::string_view name;
};
constexpr Row kRows[] = {{InputClass::uniform, "uniform"},
                         {InputClass::positive, "positive"},
                         {InputClass::nearly_equal, "nearly equal"},
                         {InputClass::cancelling, "cancelling"},
                         {InputClass::stagnating, "stagnating"},
                         {InputClass::halfway, "halfway"},
                         {InputClass::large, "large"},
                         {InputClass::wide, "wide"},
                         {InputClass::tiny, "tiny"},
                         {InputClass::mutated, "mutated"}};
constexpr auto kMade = [] {
  std::array<InputClass, std::size(kRows) - 1> made{};
  for (size_t i = 0; i < made.size(); ++i) made[i] = kRows[i].input_class;
  return made;
}();

// Whether an input's numbers are searched: others are indices, masks, constants or given one by one.
bool is_searched(const cases::TensorSpec& spec, const TensorView& view) {
  return is_float(view.dtype) && spec.integers == 0 && spec.values.empty() && spec.low < spec.high;
}

// A number where the op takes it.
double within_range(const cases::TensorSpec& spec, double x) {
  if (spec.low < 0) return x;
  const double size = std::fabs(x);
  const bool is_share = spec.low > 0 && spec.high < 1;
  return is_share ? std::clamp(size / (1 + size), spec.low, spec.high) : size;
}

// Uniform numbers of one element.
class Draws {
 public:
  Draws(const Philox& random, int64_t e) : random_(random), at_(static_cast<uint64_t>(e) * kMost) {}
  double uniform() { return random_.uniform(at_++); }
  double between(double low, double high) { return low + (high - low) * uniform(); }
  int below(int count) { return static_cast<int>(random_.below(at_++, static_cast<uint32_t>(count))); }
  double sign() { return below(2) == 0 ? 1 : -1; }

 private:
  static constexpr uint64_t kMost = 8;
  const Philox& random_;
  uint64_t at_;
};

double number_of(InputClass input_class, const cases::TensorSpec& spec, const FloatFormat& format, const Philox& random,
                 int64_t e) {
  Draws draw(random, e);
  const double ulp = format.epsilon();
  // These draw one number for all elements of the tensor, and one for a pair of them.
  Draws of_tensor(random, -1), of_pair(random, -2 - e / 2);
  switch (input_class) {
    case InputClass::positive:
      return draw.between(0.5, 1);
    case InputClass::nearly_equal:
      return of_tensor.sign() * of_tensor.between(0.5, 2) * (1 + ulp * draw.below(4));
    case InputClass::cancelling: {
      const double size = of_pair.between(0.5, 2) * std::exp2(of_pair.below(8));
      return e % 2 == 0 ? size : -size * (1 + ulp * draw.below(4));
    }
    case InputClass::stagnating:
      return e % 64 == 0 ? 1 : draw.between(0.25, 1) * binary32.epsilon();
    case InputClass::halfway:
      return draw.sign() * (1 + ulp * (2 * draw.below(1 << std::min(format.fraction_bits - 1, 12)) + 1));
    case InputClass::large:
      return draw.between(-100, 100);
    case InputClass::wide:
      return draw.sign() * std::exp2(draw.between(-12, 12));
    case InputClass::tiny:
      return draw.between(-4, 4) * format.smallest_normal();
    case InputClass::uniform:
    case InputClass::mutated:
      break;
  }
  return draw.between(spec.low, spec.high);
}

}  // namespace

std::string_view name_of(InputClass input_class) { return kRows[static_cast<size_t>(input_class)].name; }
std::span<const InputClass> made_input_classes() { return kMade; }

std::vector<cases::HostTensor> make_inputs(const cases::Case& what, DType type, InputClass input_class, uint64_t seed) {
  cases::Instance instance(what, type, seed);
  std::vector<cases::HostTensor>& inputs = instance.inputs();
  if (input_class == InputClass::uniform) return std::move(inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorView view = inputs[i].view();
    if (!is_searched(what.inputs[i], view)) continue;
    const Philox random(seed, i + 1);
    for (int64_t e = 0; e < view.size(); ++e)
      inputs[i].set(e, within_range(what.inputs[i], number_of(input_class, what.inputs[i], *info(view.dtype).format, random, e)));
  }
  return std::move(inputs);
}

void mutate_inputs(const cases::Case& what, std::vector<cases::HostTensor>& inputs, uint64_t seed) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorView view = inputs[i].view();
    if (!is_searched(what.inputs[i], view) || view.size() == 0) continue;
    const FloatFormat& format = *info(view.dtype).format;
    const Philox random(seed, i + 1);
    Draws of_tensor(random, -1);
    const double share = std::exp2(-of_tensor.below(7));
    for (int64_t e = 0; e < view.size(); ++e) {
      Draws draw(random, e);
      if (draw.uniform() >= share) continue;
      double x = inputs[i].get(e);
      switch (draw.below(4)) {
        case 0:
          x *= 1 + format.epsilon() * (draw.below(9) - 4);
          break;
        case 1:
          x = -x;
          break;
        case 2:
          x = std::ldexp(x, draw.below(5) - 2);
          break;
        default:
          x *= draw.between(0.5, 2);
      }
      inputs[i].set(e, within_range(what.inputs[i], x));
    }
  }
}

}  // namespace ulpscope
