#include "ulpscope/core/observe/profile.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "ulpscope/core/engine/dispatch.h"

namespace ulpscope {

double Profile::computing_seconds() const {
  double seconds = 0;
  for (const ProfileEntry& entry : entries) seconds += entry.seconds;
  return seconds;
}

double Profile::share_of(const ProfileEntry& entry) const {
  const double computing = computing_seconds();
  return computing > 0 ? entry.seconds / computing : 0;
}

namespace {

// Entries of equal `key` added up, those that took longest first.
template <typename Key>
std::vector<ProfileEntry> group(const std::vector<ProfileEntry>& entries, Key key) {
  std::vector<ProfileEntry> groups;
  for (const ProfileEntry& entry : entries) {
    const ProfileEntry named = key(entry);
    auto found = std::find_if(groups.begin(), groups.end(), [&](const ProfileEntry& g) {
      return std::tie(g.op, g.phase, g.module) == std::tie(named.op, named.phase, named.module);
    });
    if (found == groups.end()) found = groups.insert(groups.end(), named);
    found->calls += entry.calls;
    found->seconds += entry.seconds;
    found->flop += entry.flop;
    found->bytes += entry.bytes;
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const ProfileEntry& a, const ProfileEntry& b) { return a.seconds > b.seconds; });
  return groups;
}

// What a call reads or writes of a tensor. An element that strides repeat is there once.
double bytes_of(const Tensor& tensor) {
  const TensorView& view = tensor.view();
  if (view.data == nullptr) return 0;
  double bytes = static_cast<double>(info(view.dtype).size);
  for (int i = 0; i < view.rank; ++i)
    if (view.strides[i] != 0) bytes *= static_cast<double>(view.shape[i]);
  return bytes;
}

double flop_of(const OpEvent& event, const std::optional<ProductShape>& product) {
  if (product) return product->flop();
  if (event.op.flops) return event.op.flops(event.inputs, event.outputs);
  return event.outputs.empty() ? 0 : static_cast<double>(event.outputs[0].size());
}

// Seconds of the fastest of some calls.
template <typename Body>
double fastest(Backend& backend, Body body) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 4; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    backend.complete();
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return least;
}

}  // namespace

std::vector<ProfileEntry> Profile::by_op() const {
  return group(entries, [](const ProfileEntry& entry) { return ProfileEntry{.op = entry.op, .phase = entry.phase}; });
}

std::vector<ProfileEntry> Profile::by_module() const {
  return group(entries, [](const ProfileEntry& entry) { return ProfileEntry{.module = entry.module}; });
}

double Roofline::share_reached(const ProfileEntry& entry) const {
  const double least_seconds = std::max(entry.flop / flop_per_second, entry.bytes / bytes_per_second);
  return least_seconds / entry.seconds;
}

Roofline measure_roofline(Backend& backend) {
  const ContextGuard<&Context::observers> unobserved({});
  const NoGrad no_grad;
  constexpr int64_t kSide = 1024, kElements = int64_t{1} << 24;
  const auto filled = [&](std::initializer_list<int64_t> shape) {
    const int64_t size = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    const std::vector<float> ones(static_cast<size_t>(size), 1.0f);
    return from_host(backend, DType::f32, std::span(shape.begin(), shape.size()), ones);
  };
  Roofline roofline;
  {
    const Tensor a = filled({kSide, kSide}), b = filled({kSide, kSide});
    roofline.flop_per_second = 2.0 * kSide * kSide * kSide / fastest(backend, [&] { call("matmul", {a, b}); });
  }
  const Tensor a = filled({kElements}), b = filled({kElements});
  roofline.bytes_per_second = 3.0 * sizeof(float) * kElements / fastest(backend, [&] { call("add", {a, b}); });
  return roofline;
}

double Profiler::lap() {
  const auto now = Clock::now();
  return std::chrono::duration<double>(now - std::exchange(moment_, now)).count();
}

void Profiler::First::before(const OpEvent&, std::span<OutputRecord* const>) { owner.lap(); }

void Profiler::Last::before(const OpEvent&, std::span<OutputRecord* const>) { owner.recording_seconds_ += owner.lap(); }

void Profiler::First::after(const OpEvent& event) {
  backend.complete();
  ProfileEntry& entry = owner.entries_[{&event.op, event.phase, &event.module}];
  ++entry.calls;
  entry.seconds += owner.lap();
  const std::optional<ProductShape> product = event.product();
  entry.flop += flop_of(event, product);
  for (const std::span<const Tensor> tensors : {event.inputs, event.outputs})
    for (const Tensor& tensor : tensors) entry.bytes += bytes_of(tensor);
  if (product && event.phase == Phase::forward) ++owner.products_[{&event.op, &event.module, event.inputs[0].dtype(), *product}];
}

void Profiler::Last::after(const OpEvent&) { owner.recording_seconds_ += owner.lap(); }

std::vector<Observer*> Profiler::around(const std::vector<Observer*>& observers) {
  std::vector<Observer*> all{&first_};
  all.insert(all.end(), observers.begin(), observers.end());
  all.push_back(&last_);
  return all;
}

Profile Profiler::profile() const {
  Profile profile{{}, recording_seconds_, total_seconds_, {}, roofline_};
  for (const auto& [key, measured] : entries_) {
    ProfileEntry entry = measured;
    entry.op = std::get<0>(key)->name;
    entry.phase = std::get<1>(key);
    entry.module = *std::get<2>(key);
    profile.entries.push_back(entry);
  }
  std::stable_sort(profile.entries.begin(), profile.entries.end(),
                   [](const ProfileEntry& a, const ProfileEntry& b) { return a.seconds > b.seconds; });
  for (const auto& [key, calls] : products_) {
    const auto& [op, module, dtype, shape] = key;
    profile.products.push_back({op->name, *module, dtype, shape, calls});
  }
  const auto flop = [](const ProfiledProduct& product) { return static_cast<double>(product.calls) * product.shape.flop(); };
  std::stable_sort(profile.products.begin(), profile.products.end(),
                   [&](const ProfiledProduct& a, const ProfiledProduct& b) { return flop(a) > flop(b); });
  return profile;
}

}  // namespace ulpscope
