#include "ulpscope/kernels/cpu/context.h"

#include <fmt/format.h>
#include <omp.h>

#include <charconv>
#include <dnnl.hpp>
#include <fstream>
#include <utility>

#include "hwy/base.h"
#include "hwy/targets.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/kernels/cpu/convolution.h"
#include "ulpscope/kernels/cpu/crowd.h"
#include "ulpscope/kernels/cpu/product.h"

namespace ulpscope::cpu {
namespace {

struct InstructionSet {
  std::string_view name;
  int64_t target;  // Highway's
  int64_t and_narrower;
  dnnl::cpu_isa onednn;
};
constexpr InstructionSet kInstructionSets[] = {
    {"avx512", HWY_AVX3, HWY_AVX3 | HWY_AVX2 | HWY_SSE4, dnnl::cpu_isa::avx512_core},
    {"avx2", HWY_AVX2, HWY_AVX2 | HWY_SSE4, dnnl::cpu_isa::avx2},
    {"sse4", HWY_SSE4, HWY_SSE4, dnnl::cpu_isa::sse41},
};

void use_instruction_set(std::string_view name) {
  hwy::SetSupportedTargetsForTest(0);
  if (name.empty()) return;
  for (const InstructionSet& set : kInstructionSets) {
    if (set.name != name) continue;
    if ((HWY_TARGETS & set.target) == 0)
      throw usage_error("this ulpscope was built for one instruction set, which is not '{}'", name);
    if ((hwy::SupportedTargets() & set.target) == 0) throw usage_error("this CPU does not have the instruction set '{}'", name);
    hwy::SetSupportedTargetsForTest(set.and_narrower);
    dnnl::set_max_cpu_isa(set.onednn);
    return;
  }
  throw usage_error("unknown instruction set '{}'; known are sse4, avx2 and avx512", name);
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

// oneDNN keeps the instruction set of the process's first backend, which need not be this one's.
std::string_view onednn_instruction_set() {
  static constexpr std::pair<dnnl::cpu_isa, std::string_view> kNames[] = {
      {dnnl::cpu_isa::sse41, "sse4"},
      {dnnl::cpu_isa::avx, "avx"},
      {dnnl::cpu_isa::avx2, "avx2"},
      {dnnl::cpu_isa::avx2_vnni, "avx2_vnni"},
      {dnnl::cpu_isa::avx512_core, "avx512"},
      {dnnl::cpu_isa::avx512_core_vnni, "avx512_vnni"},
      {dnnl::cpu_isa::avx512_core_bf16, "avx512_bf16"},
      {dnnl::cpu_isa::avx512_core_amx, "avx512_amx"},
  };
  const dnnl::cpu_isa effective = dnnl::get_effective_cpu_isa();
  for (const auto& [isa, name] : kNames) {
    if (isa == effective) return name;
  }
  return "another instruction set";
}

std::string_view instruction_set_in_use() {
  for (const InstructionSet& set : kInstructionSets) {
    if ((hwy::SupportedTargets() & set.target) != 0) return set.name;
  }
  return "none";
}

}  // namespace

Context::Context(const CpuOptions& options) {
  use_instruction_set(options.isa);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  threads = options.threads > 0 ? options.threads : omp_get_num_procs();
  omp_set_num_threads(threads);
  crowd = Crowd::watched_for(threads);
  gemms = std::make_unique<GemmCache>(threads);
  convolutions = std::make_unique<ConvolutionCache>(threads);
}

Context::~Context() = default;

std::string Context::description() const {
  const dnnl_version_t* onednn = dnnl_version();
  return fmt::format("{}, {}, {}, oneDNN {}.{}.{} on {}", cpu_model(), instruction_set_in_use(),
                     count_of(static_cast<uint64_t>(threads), "thread"), onednn->major, onednn->minor, onednn->patch,
                     onednn_instruction_set());
}

}  // namespace ulpscope::cpu

namespace ulpscope {

bool is_in_use(std::string_view isa) {
  for (const cpu::InstructionSet& set : cpu::kInstructionSets)
    if (set.name == isa) return (hwy::SupportedTargets() & set.target) != 0;
  return false;
}

// "MODEL, ISA, N threads, oneDNN ...", where a model may have commas too.
std::optional<CpuOptions> cpu_options_of(std::string_view description) {
  const size_t end = description.rfind(" thread");
  if (end == std::string_view::npos) return std::nullopt;
  const size_t comma = description.rfind(", ", end);
  if (comma == std::string_view::npos) return std::nullopt;
  CpuOptions options;
  const char* const number = description.data() + comma + 2;
  const auto [stop, error] = std::from_chars(number, description.data() + end, options.threads);
  if (error != std::errc() || stop != description.data() + end || options.threads < 1) return std::nullopt;
  const size_t before = description.rfind(", ", comma - 1);
  const size_t begin = before == std::string_view::npos ? 0 : before + 2;
  options.isa = description.substr(begin, comma - begin);
  for (const cpu::InstructionSet& set : cpu::kInstructionSets)
    if (set.name == options.isa) return options;
  return std::nullopt;
}

CpuOptions cpu_options_in_use() { return {omp_get_max_threads(), std::string(cpu::instruction_set_in_use())}; }

}  // namespace ulpscope
