#include "ulpscope/analyzers/subject/words/torch_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>

#include "ulpscope/base/parse_number.h"

namespace ulpscope {

namespace {

using Kind = SettingKind;
using Way = SettingChange::Way;

// ---- words of Python

// Powers of two are what scales are.
std::string python_number(double value) {
  int exponent = 0;
  if (value >= 16 && std::frexp(value, &exponent) == 0.5) return fmt::format("2.0**{}", exponent - 1);
  return fmt::format("{:.12g}", value);
}

// Names in a trace may hold any bytes.
std::string python_text(std::string_view text) {
  std::string literal = "\"";
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\')
      literal += {'\\', letter};
    else if (byte < 0x20 || byte == 0x7F)
      literal += fmt::format("\\x{:02x}", byte);
    else
      literal += letter;
  }
  return literal + "\"";
}

// ---- what the program has

std::string_view device_of(std::string_view device) { return device.empty() ? "cuda" : device; }

const SettingInfo* find(const Program& program, Kind kind, std::string_view name = "") {
  const auto found = std::find_if(program.settings.begin(), program.settings.end(), [&](const SettingInfo& setting) {
    return setting.kind == kind && (name.empty() || setting.name == name);
  });
  return found == program.settings.end() ? nullptr : &*found;
}

std::optional<double> number(const SettingInfo* setting) {
  return setting == nullptr ? std::nullopt : parse_number<double>(setting->value);
}

// A module by its name in the trace, which of several models begins with what tells which one: models["critic"], models[0].
std::string module_named(const Program& program, std::string_view name) {
  for (const SettingInfo& setting : program.settings) {
    std::string_view prefix = setting.name;
    if (setting.kind != Kind::other || !prefix.starts_with("models[") || !prefix.ends_with(']')) continue;
    prefix.remove_prefix(7);
    prefix.remove_suffix(1);
    if (prefix.size() > 1 && prefix.front() == '"') prefix = prefix.substr(1, prefix.size() - 2);
    if (name == prefix) return setting.name;
    if (name.starts_with(prefix) && name.substr(prefix.size()).starts_with('.'))
      return fmt::format("{}.get_submodule({})", setting.name, python_text(name.substr(prefix.size() + 1)));
  }
  return fmt::format("model.get_submodule({})", python_text(name));
}

// The number that a sentence of that id has under the name, or a phrase in it.
std::optional<double> number_in(const Sentence& sentence, std::string_view id, std::string_view name) {
  if (sentence.id() == id) {
    const auto* const number = sentence[name].find<Value::Number>();
    const auto* const value = number == nullptr ? nullptr : std::get_if<double>(&number->cell);
    return value == nullptr ? std::nullopt : std::optional(*value);
  }
  for (const Argument& argument : sentence.arguments())
    if (const auto* const phrase = argument.value.find<Value::Phrase>())
      if (const auto found = number_in(phrase->front(), id, name)) return found;
  return std::nullopt;
}

std::optional<double> number_in(const Sentences& advice,
                                std::initializer_list<std::pair<std::string_view, std::string_view>> places) {
  for (const auto& [id, name] : places)
    for (const Sentence& sentence : advice)
      if (const auto found = number_in(sentence, id, name)) return found;
  return std::nullopt;
}

// ---- the gradient scaler

struct ScalerArgument {
  Kind kind;
  std::string_view name;
  double usual;  // PyTorch's own
};
constexpr ScalerArgument kScalerArguments[] = {{Kind::scale_initial, "init_scale", 65536},
                                               {Kind::scale_growth_factor, "growth_factor", 2},
                                               {Kind::scale_backoff_factor, "backoff_factor", 0.5},
                                               {Kind::scale_growth_interval, "growth_interval", 2000}};

// One that is as the run's was but for that argument.
std::string scaler_with(const Program& program, Kind kind, double value) {
  std::string code = fmt::format("scaler = torch.amp.GradScaler({}", python_text(device_of(program.device)));
  for (const ScalerArgument& argument : kScalerArguments) {
    const bool is_new = argument.kind == kind;
    const double set = is_new ? value : number(find(program, argument.kind)).value_or(argument.usual);
    if (!is_new && set == argument.usual) continue;
    const std::string text = argument.kind == Kind::scale_growth_interval ? fmt::format("{:.0f}", set) : python_number(set);
    code += fmt::format(", {}={}", argument.name, text);
  }
  return code + ")";
}

double growth_interval(const SettingChange& change, const Program& program) {
  constexpr double kUsual = 2000, kFactor = 10;
  if (change.way != Way::lower) return kUsual;
  return std::max(1.0, std::floor(number(find(program, change.kind)).value_or(kUsual) / kFactor));
}

std::string new_scaler(const Program& program) {
  return fmt::format(R"(scaler = torch.amp.GradScaler({})

# in each step:
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update())",
                     python_text(device_of(program.device)));
}

std::string cap_of_scale(double largest) {
  return fmt::format(R"(# behind scaler.update():
if scaler.get_scale() > {0}:
    scaler.update({0}))",
                     python_number(largest));
}

// One that sentences say fits.
std::optional<double> fitting_scale(bool is_lower, const Sentences& advice) {
  if (!is_lower)
    return number_in(advice, {{"advice.scale_keeps_gradients", "scale"},
                              {"advice.gradients_need_scale_of_at_least", "scale"},
                              {"advice.here_to_at_least", "scale"}});
  const auto at_most = number_in(advice, {{"advice.scale_at_most", "largest"}, {"advice.smaller_or_dynamic_scale", "largest"}});
  if (at_most) return at_most;
  const auto below = number_in(advice, {{"advice.scale_below", "largest"}, {"advice.much_smaller_or_dynamic_scale", "largest"}});
  return below ? std::optional(*below / 2) : std::nullopt;
}

// Where none is said to: PyTorch's own, where the run's is above, or one that trials would take (studies/setting_changes.cpp).
std::string begin_scale(const SettingChange& change, const Sentences& advice, const Program& program) {
  constexpr double kFar = 16, kUsual = 65536;
  const double now = number(find(program, Kind::scale_initial)).value_or(kUsual);
  const bool is_lower = change.way == Way::lower;
  const double guessed = !is_lower ? now * kFar : now > kUsual ? kUsual : now / kFar;
  const double told = fitting_scale(is_lower, advice).value_or(guessed);
  const bool is_other_way = is_lower ? told >= now : told <= now;
  return scaler_with(program, Kind::scale_initial, is_other_way ? guessed : told);
}

// ---- types

std::string in_fp32(const Program& program, std::string_view modules) {
  const bool is_group = modules.ends_with('*'), is_without_path = modules.ends_with(".*");
  std::string_view path = modules;
  while (path.ends_with('*') || path.ends_with('.')) path.remove_suffix(1);
  std::string code = fmt::format(R"(def in_fp32(module):
    class InFp32(type(module)):
        def forward(self, *inputs, **named):
            def wide(x):
                is_float = torch.is_tensor(x) and x.is_floating_point()
                return x.float() if is_float else x

            named = {{name: wide(x) for name, x in named.items()}}
            with torch.autocast({}, enabled=False):
                return super().forward(*map(wide, inputs), **named)

    module.__class__ = InFp32


)",
                                 python_text(device_of(program.device)));
  if (!is_group) return code + fmt::format("in_fp32({})", module_named(program, path));
  code += fmt::format("for name, module in {}.named_modules():\n", module_named(program, path));
  return code + (is_without_path ? "    if name:\n        in_fp32(module)" : "    in_fp32(module)");
}

std::string op_in_fp32(const Program& program, std::string_view op) {
  return fmt::format(R"(with torch.autocast({}, enabled=False):
    ...  # {} alone, with .float() on what it reads)",
                     python_text(device_of(program.device)), op);
}

std::string train_in(const Program& program, std::string_view type) {
  const bool is_fp32 = type == "torch.float32";
  const std::string device = python_text(device_of(program.device));
  if (!program.casts_weights) return fmt::format("# before the optimizer is made, and of inputs, too:\nmodel.to({})", type);
  std::string code = program.scales_loss ? fmt::format("scaler = torch.amp.GradScaler({}, enabled=False)\n", device) : "";
  return code + fmt::format("with torch.autocast({}, {}):\n    ...  # the forward pass and the loss, as before", device,
                            is_fp32 ? "enabled=False" : type);
}

std::string master_weights(const Program& program) {
  const SettingInfo* const precision = find(program, Kind::precision);
  const bool is_fp16 = precision != nullptr && precision->value == "fp16";
  return fmt::format(R"(# in place of .half() or .to(), before the optimizer is made:
model.float()
with torch.autocast({}, {}):
    ...  # the forward pass and the loss, of FP32 inputs)",
                     python_text(device_of(program.device)), is_fp16 ? "torch.float16" : "torch.bfloat16");
}

// ---- optimizers

// "for group in ...", or the one group that a setting is of, which is then named as `optimizer` has it.
std::string in_groups(const SettingInfo* setting, std::string_view key, std::string_view assigned) {
  if (setting != nullptr && setting->name.starts_with("param_groups["))
    return fmt::format("optimizer.{} {}", setting->name, assigned);
  if (setting != nullptr && setting->name.starts_with("optimizers[")) return fmt::format("{} {}", setting->name, assigned);
  return fmt::format("for group in optimizer.param_groups:\n    group[{}] {}", python_text(key), assigned);
}

// A factor of what the run had.
std::string times(const SettingChange& change, const Program& program, std::string_view key) {
  constexpr double kFactor = 10;
  const auto count = std::count_if(program.settings.begin(), program.settings.end(),
                                   [&](const SettingInfo& setting) { return setting.kind == change.kind; });
  const SettingInfo* const setting = count == 1 || !change.name.empty() ? find(program, change.kind, change.name) : nullptr;
  const std::optional<double> now = number(setting);
  const bool is_lower = change.way == Way::lower;
  if (!now || *now == 0) return in_groups(nullptr, key, is_lower ? "/= 10" : "*= 10");
  return in_groups(setting, key, fmt::format("= {}", python_number(is_lower ? *now / kFactor : *now * kFactor)));
}

// A schedule raised the rate: it is held where it went wrong less.
std::string capped_rate(double largest) {
  return fmt::format(
      "# behind each scheduler.step():\nfor group in optimizer.param_groups:\n    group[\"lr\"] = min(group[\"lr\"], {:.3g})",
      largest / 10);
}

std::string epsilon(const SettingChange& change, const Program& program) {
  constexpr double kUsual = 1e-8, kRaised = 1e-6;  // PyTorch's; and one that BF16 and FP16 hold
  if (!change.module.empty()) return "";           // a constant of the module's code
  const SettingInfo* const setting = find(program, Kind::epsilon, change.name);
  const double now = number(setting).value_or(kUsual);
  const double other = change.way == Way::raise ? (now < kUsual ? kUsual : kRaised) : now > kUsual ? kUsual : now / 100;
  return in_groups(setting, "eps", fmt::format("= {}", python_number(other)));
}

std::string momentum(const Program& program) {
  const SettingInfo* const setting = find(program, Kind::momentum);
  const bool is_beta = setting != nullptr && setting->name.starts_with("betas");
  return is_beta ? in_groups(nullptr, "betas", "= (0.9, group[\"betas\"][1])") : in_groups(setting, "momentum", "= 0.9");
}

std::string clipping(const Program& program, double norm) {
  return fmt::format("# between backward() and step():\n{}torch.nn.utils.clip_grad_norm_(model.parameters(), {:.1f})",
                     program.scales_loss ? "scaler.unscale_(optimizer)\n" : "", norm);
}

std::string divided_loss(const Program& program) {
  const std::optional<double> factor = number(find(program, Kind::loss_factor));
  return factor ? fmt::format("loss = loss / {:.12g}  # of each micro-batch, before backward()", *factor) : "";
}

constexpr std::string_view kWarmup = R"(warmup = torch.optim.lr_scheduler.LinearLR(
    optimizer, start_factor=0.01, total_iters=100
)
warmup.step()  # behind each optimizer.step())";

// ---- what no setting does

struct Lines {
  std::string_view advice, code;
};
constexpr Lines kLines[] = {
    {"advice.log_softmax", "x = torch.log_softmax(x, dim=-1)  # in place of torch.log(torch.softmax(x, dim=-1))"},
    {"advice.log_softmax_or_cross_entropy", "loss = torch.nn.functional.cross_entropy(logits, targets)"},
    {"advice.end_with_sigmoid", "loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)"},
    // Half of the largest number leaves room for what is added to it.
    {"advice.leave_one_value", "x = x.masked_fill(mask, torch.finfo(x.dtype).min / 2)  # in place of -Inf"},
    {"advice.fill_finite", "x = x.masked_fill(mask, torch.finfo(x.dtype).min / 2)  # max / 2 in place of Inf"},
    {"advice.keep_divisor", "x = x / y.clamp_min(torch.finfo(x.dtype).eps)  # where y is not negative"},
    {"advice.standardize_targets", "y = (y - mean) / deviation  # of the targets of all training data"},
    {"advice.leave_targets", R"(counted = targets != -100
loss = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
loss = loss / counted.sum().clamp_min(1))"},
    {"advice.keep_batches_with_targets", R"(counted = targets != -100
loss = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
loss = loss / counted.sum().clamp_min(1))"},
};

std::string text_of(const Sentence& advice, std::string_view name) {
  const auto* const found = advice[name].find<Name>();
  return found == nullptr ? "" : found->text;
}

// Code for an argument that has to stay above 0.
std::string clamped(std::string_view function) {
  return fmt::format("x = torch.{}(x.clamp_min(torch.finfo(x.dtype).eps){})", function, function == "pow" ? ", exponent" : "");
}

}  // namespace

std::string torch_words_for(SettingKind kind, std::string_view module, std::string_view device) {
  const std::string name = python_text(device_of(device));
  // A group of modules is one itself.
  while (module.ends_with('*') || module.ends_with('.')) module.remove_suffix(1);
  switch (kind) {
    case Kind::scale_enabled:
    case Kind::scale_dynamic:
      return fmt::format("torch.amp.GradScaler({})", name);
    case Kind::scale_initial:
      return fmt::format("torch.amp.GradScaler({}, init_scale=...)", name);
    case Kind::scale_growth_interval:
      return fmt::format("torch.amp.GradScaler({}, growth_interval=...)", name);
    case Kind::master_weights:
      return "model.float()";
    case Kind::clip_norm:
      return "torch.nn.utils.clip_grad_norm_";
    case Kind::precision_of_modules:
      // Inside of it nothing is cast any more, so that FP16 from outside would meet FP32 weights.
      return module.empty() ? ""
                            : fmt::format("torch.autocast({}, enabled=False) around {}, and .float() on its inputs", name, module);
    default:
      return "";
  }
}

std::string torch_code_of_change(const SettingChange& change, const Sentences& advice, const Program& program) {
  switch (change.kind) {
    case Kind::scale_enabled:
    case Kind::scale_dynamic:
      return new_scaler(program);
    case Kind::scale_initial:
      return change.way == Way::set ? "" : begin_scale(change, advice, program);
    case Kind::scale_growth_interval:
      return scaler_with(program, change.kind, growth_interval(change, program));
    case Kind::scale_growth_factor:
      return scaler_with(program, change.kind, 2);
    case Kind::scale_backoff_factor:
      return scaler_with(program, change.kind, 0.5);
    case Kind::scale_cap: {
      const std::optional<double> cap = parse_number<double>(change.value);
      return cap ? cap_of_scale(*cap) : "";
    }
    case Kind::learning_rate:
      if (const auto most = number_in(advice, {{"advice.lower_risen_rate", "largest"}})) return capped_rate(*most);
      return "# before a scheduler is made, which goes by the rate that it finds:\n" + times(change, program, "lr");
    case Kind::weight_decay:
      return times(change, program, "weight_decay");
    case Kind::epsilon:
      return epsilon(change, program);
    case Kind::momentum:
      return momentum(program);
    case Kind::master_weights:
      return master_weights(program);
    case Kind::loss_factor:
      return change.way == Way::lower ? divided_loss(program) : "";
    case Kind::clip_norm:
      return change.way == Way::set ? clipping(program, parse_number<double>(change.value).value_or(1)) : "";
    case Kind::warmup:
      return change.way == Way::raise ? std::string(kWarmup) : "";
    case Kind::precision:
      return train_in(program, change.value);
    case Kind::precision_of_modules:
      return in_fp32(program, change.module);
    case Kind::precision_of_ops:
      return op_in_fp32(program, change.module);
    default:
      return "";
  }
}

std::string torch_code_of_sentence(const Sentence& advice, const Program& program) {
  const std::string_view id = advice.id();
  for (const Lines& lines : kLines)
    if (id == lines.advice) return std::string(lines.code);
  if (id == "advice.compute_products_narrow")
    return fmt::format("with torch.autocast({}, {}):\n    ...  # the calls of these modules",
                       python_text(device_of(program.device)),
                       text_of(advice, "format") == "FP16" ? "torch.float16" : "torch.bfloat16");
  if (id == "advice.unscale_first") return clipping(program, 1);
  if (id == "advice.keep_argument" || id == "advice.keep_positive") return clamped(text_of(advice, "function"));
  if (id == "advice.keep_base") return clamped("pow");
  if (id == "advice.larger_epsilon_of_norm") return fmt::format("{}.eps = 1e-5", module_named(program, text_of(advice, "module")));
  if (id == "advice.wide_statistics") return fmt::format("{}.float()", module_named(program, text_of(advice, "module")));
  if (id == "advice.subtract_largest")
    return "x = torch.exp(x - x.amax(dim=dim, keepdim=True))  # dim: over which it is divided by the sum";
  for (const auto& [one, tensor] : {std::pair{"advice.normalize_inputs", 'x'}, {"advice.standardize_these_targets", 'y'}}) {
    const auto mean = number_in(advice, one, "mean"), deviation = number_in(advice, one, "deviation");
    if (mean && deviation) return fmt::format("{0} = ({0} - {1:.3g}) / {2:.3g}", tensor, *mean, *deviation);
  }
  return "";
}

}  // namespace ulpscope
