#include "tests/support/deferred_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ulpscope {
namespace {

// Two ranges of addresses of one size: those that the host gets, which fault, and those of the memory itself.
class Addresses {
 public:
  Addresses() : device_(reserve(PROT_NONE)), memory_(reserve(PROT_READ | PROT_WRITE)) {}
  ~Addresses() {
    munmap(device_, kBytes);
    munmap(memory_, kBytes);
  }
  Addresses(const Addresses&) = delete;

  void* take(size_t bytes) {
    std::vector<std::byte*>& free = free_[rounded(bytes)];
    if (!free.empty()) {
      std::byte* const taken = free.back();
      free.pop_back();
      return taken;
    }
    if (used_ + rounded(bytes) > kBytes) throw std::bad_alloc();
    std::byte* const taken = device_ + used_;
    used_ += rounded(bytes);
    return taken;
  }
  void give_back(void* device, size_t bytes) {
    std::memset(memory_of(device), 0xCB, rounded(bytes));
    free_[rounded(bytes)].push_back(static_cast<std::byte*>(device));
  }
  std::byte* memory_of(const void* device) const {
    return device == nullptr ? nullptr : memory_ + (static_cast<const std::byte*>(device) - device_);
  }

 private:
  static constexpr size_t kBytes = size_t{16} << 30, kAlignment = 64;  // of addresses, which take no memory before they are used

  static std::byte* reserve(int protection) {
    void* const range = mmap(nullptr, kBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) throw std::bad_alloc();
    return static_cast<std::byte*>(range);
  }
  static size_t rounded(size_t bytes) { return (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment; }

  std::byte* device_;
  std::byte* memory_;
  size_t used_ = 0;
  std::unordered_map<size_t, std::vector<std::byte*>> free_;  // by their rounded size
};

// A call that owns all of what it points to but records, fingerprints and tensors.
class OwnedCall {
 public:
  OwnedCall(const OpCall& call, const Addresses& addresses)
      : call_(call), inputs_(translated(call.inputs, addresses)), outputs_(translated(call.outputs, addresses)) {
    if (call.attributes != nullptr) attributes_ = *call.attributes;
    if (call.arithmetic != nullptr) arithmetic_ = *call.arithmetic;
    records_.assign(call.records.begin(), call.records.end());
    fingerprints_.assign(call.input_fingerprints.begin(), call.input_fingerprints.end());
  }

  // Valid while the object stays where it is.
  OpCall call() const {
    OpCall owned = call_;
    owned.inputs = inputs_;
    owned.outputs = outputs_;
    if (call_.attributes != nullptr) owned.attributes = &attributes_;
    if (call_.arithmetic != nullptr) owned.arithmetic = &arithmetic_;
    owned.records = records_;
    owned.input_fingerprints = fingerprints_;
    return owned;
  }

 private:
  static std::vector<TensorView> translated(std::span<const TensorView> views, const Addresses& addresses) {
    std::vector<TensorView> result(views.begin(), views.end());
    for (TensorView& view : result) view.data = addresses.memory_of(view.data);
    return result;
  }

  OpCall call_;
  std::vector<TensorView> inputs_, outputs_;
  Attributes attributes_;
  Arithmetic arithmetic_;
  std::vector<OutputRecord*> records_;
  std::vector<Fingerprint*> fingerprints_;
};

class DeferredBackend final : public Backend {
 public:
  explicit DeferredBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  std::string name() const override { return inner_->name(); }
  std::string description() const override { return inner_->description(); }
  std::vector<std::string_view> ops() const override { return inner_->ops(); }

  void submit(const OpCall& call) override {
    queue_.emplace_back([this, owned = OwnedCall(call, addresses_)] { inner_->submit(owned.call()); });
  }
  bool runs_behind() const override { return true; }
  void complete() override {
    waits_ += !queue_.empty();
    std::exception_ptr error;
    while (!queue_.empty()) {
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      try {
        work();
      } catch (...) {
        if (!error) error = std::current_exception();
      }
    }
    if (error) std::rethrow_exception(error);
  }

  const void* host_address(const void*) const override { return nullptr; }
  void copy_to_host(const void* from, void* to, size_t bytes) override {
    complete();
    if (bytes > 0) std::memcpy(to, addresses_.memory_of(from), bytes);
  }
  void copy_from_host(const void* from, void* to, size_t bytes) override {
    if (bytes == 0) return;
    const auto* begin = static_cast<const std::byte*>(from);
    queue_.emplace_back([to = addresses_.memory_of(to), kept = std::vector<std::byte>(begin, begin + bytes)] {
      std::memcpy(to, kept.data(), kept.size());
    });
  }

  ElementCapture capture_nonfinite(const OpCall& call, int slot) override {
    complete();
    return inner_->capture_nonfinite(OwnedCall(call, addresses_).call(), slot);
  }
  ElementCapture capture_element(const OpCall& call, int slot, int64_t element) override {
    complete();
    return inner_->capture_element(OwnedCall(call, addresses_).call(), slot, element);
  }

  void* allocate(size_t bytes) override {
    void* const memory = addresses_.take(bytes);
    in_use_ += bytes;
    peak_ = std::max(peak_, in_use_);
    return memory;
  }
  void release(void* memory, size_t bytes) override {
    in_use_ -= bytes;
    queue_.emplace_back([this, memory, bytes] { addresses_.give_back(memory, bytes); });
  }
  size_t allocated_bytes() const override { return in_use_; }
  size_t peak_bytes() const override { return peak_; }
  void reset_peak() override { peak_ = in_use_; }
  uint64_t waits() const { return waits_; }

 private:
  std::unique_ptr<Backend> inner_;
  Addresses addresses_;
  std::deque<std::function<void()>> queue_;
  size_t in_use_ = 0, peak_ = 0;
  uint64_t waits_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_deferred_backend(std::unique_ptr<Backend> inner) {
  return std::make_unique<DeferredBackend>(std::move(inner));
}

uint64_t waits_of(const Backend& deferred) { return dynamic_cast<const DeferredBackend&>(deferred).waits(); }

// The linker puts this in the place of make_cpu_backend (ulpscope_test_deferred in cmake/UlpscopeTargets.cmake).
extern "C" std::unique_ptr<Backend> __real__ZN8ulpscope16make_cpu_backendERKNS_10CpuOptionsE(const CpuOptions& options);
extern "C" std::unique_ptr<Backend> __wrap__ZN8ulpscope16make_cpu_backendERKNS_10CpuOptionsE(const CpuOptions& options) {
  std::unique_ptr<Backend> backend = __real__ZN8ulpscope16make_cpu_backendERKNS_10CpuOptionsE(options);
  return std::getenv("ULPSCOPE_TEST_DEFERRED") != nullptr ? make_deferred_backend(std::move(backend)) : std::move(backend);
}

}  // namespace ulpscope
