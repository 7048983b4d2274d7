#include "ulpscope/kernels/device/host_block.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/context/fiber.hpp>
#include <boost/context/preallocated.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/tensor_core_product.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace ulpscope::device {
namespace {

using Access = HostBlock::Access;
using Operation = HostBlock::Operation;

constexpr std::string_view kOperations[] = {"sync_warp", "shuffle", "ballot", "sum", "smallest", "largest", "multiply_add"};
constexpr size_t kStackBytes = 256 << 10;

// When a thread of a block did something: how many barriers its block, of all that run one after the other, and how many
// sync_warp()s its warp had passed.
struct Moment {
  int32_t thread = -1;
  uint32_t barriers = 0, warp_barriers = 0;

  bool conflicts_with(const Moment& earlier) const {
    if (earlier.thread < 0 || earlier.thread == thread || earlier.barriers != barriers) return false;
    return warp() != earlier.warp() || warp_barriers == earlier.warp_barriers;
  }
  int32_t warp() const { return thread / kWarpThreads; }
};

// Who used an element of shared memory.
class History {
 public:
  // Notes that the element is used now. Gives the thread that this is in conflict with, or -1.
  int note(Access access, const Moment& now) {
    if (now.conflicts_with(changed_)) return changed_.thread;
    if (user_.barriers != now.barriers) user_ = beside_ = elsewhere_ = {};
    const bool is_other_use = access == Access::write || (user_.thread >= 0 && access != use_);
    if (is_other_use) {
      for (const Moment* earlier : {&user_, &beside_, &elsewhere_})
        if (now.conflicts_with(*earlier)) return earlier->thread;
      // All earlier uses come before this one: what is in order with the last of them is in order with all.
      changed_ = access == Access::write ? now : user_;
      user_ = beside_ = elsewhere_ = {};
    }
    if (access == Access::write) return -1;
    use_ = access;
    if (user_.thread >= 0 && user_.warp() != now.warp()) {
      elsewhere_ = user_;
      beside_ = {};
    } else if (user_.warp_barriers != now.warp_barriers) {
      beside_ = {};
    } else if (user_.thread != now.thread) {
      beside_ = user_;
    }
    user_ = now;
    return -1;
  }
  // Whether it was written since the block had passed so many barriers.
  bool is_defined(uint32_t since) const { return changed_.thread >= 0 && changed_.barriers >= since; }

 private:
  Moment changed_;
  // Of those that read it, or added to it, since it changed: the last, another lane of that warp at the same time, and one of
  // another warp.
  Moment user_, beside_, elsewhere_;
  Access use_ = Access::read;
};

// Keeps stacks for the threads of later blocks.
class Stacks {
 public:
  ~Stacks() {
    for (auto& stack : free_) source_.deallocate(stack);
  }
  boost::context::stack_context take() {
    if (free_.empty()) return source_.allocate();
    const auto stack = free_.back();
    free_.pop_back();
    return stack;
  }
  void give_back(const boost::context::stack_context& stack) { free_.push_back(stack); }

 private:
  boost::context::protected_fixedsize_stack source_{kStackBytes};
  std::vector<boost::context::stack_context> free_;
};

// Tells AddressSanitizer which stack is in use.
#if defined(__SANITIZE_ADDRESS__)
class Switch {
 public:
  Switch() = default;
  void leave_for(const Switch& other, bool for_good = false) {
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_, other.bottom_, other.size_);
  }
  // `from`: what was left.
  void arrive_from(Switch& from) { __sanitizer_finish_switch_fiber(fake_, &from.bottom_, &from.size_); }
  void lies_in(const boost::context::stack_context& stack) {
    bottom_ = static_cast<char*>(stack.sp) - stack.size;
    size_ = stack.size;
    fake_ = nullptr;
    ASAN_UNPOISON_MEMORY_REGION(bottom_, size_);
  }

 private:
  const void* bottom_ = nullptr;
  size_t size_ = 0;
  void* fake_ = nullptr;
};
#else
struct Switch {
  void leave_for(const Switch&, bool = false) {}
  void arrive_from(Switch&) {}
  void lies_in(const boost::context::stack_context&) {}
};
#endif

// Thrown in threads that are not to go on.
struct Stopped {};

// What a lane brings to a product of its warp.
struct ProductOfLane {
  MatrixInstruction instruction;
  void* sums = nullptr;
  std::span<const uint32_t> a, b;
};

// The product of a warp, from what its lanes have of it and into that.
void multiply_add(const MatrixUnits& units, std::span<const ProductOfLane> lanes) {
  const auto& [instruction, unused, a, b] = lanes[0];
  const TensorCore* const core = units.find(instruction);
  if (core == nullptr) throw failed_error("multiply_add: the GPU has no matrix units for such factors");
  const auto words = static_cast<int>(2 * a.size());
  std::array<uint32_t, kRowsOfProduct * kWholeWords> rows;
  std::array<uint32_t, kColumnsOfProduct * kWholeWords> columns;
  const size_t sum_bytes = info(instruction.sums).size;
  std::array<std::byte, sizeof(float) * kRowsOfProduct * kColumnsOfProduct> sums{};
  // body(sums of the lane, the same in memory) for each of its pairs, which are neighbours in both.
  const auto for_pairs = [&](size_t lane, const auto& body) {
    for (size_t i = 0; i < 2; ++i) {
      const size_t place = (lane / 4 + 8 * i) * kColumnsOfProduct + lane % 4 * 2;
      body(static_cast<std::byte*>(lanes[lane].sums) + 2 * i * sum_bytes, sums.data() + place * sum_bytes);
    }
  };
  const auto width = static_cast<size_t>(words);
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    const ProductOfLane& has = lanes[lane];
    if (!(has.instruction == instruction) || has.a.size() != a.size())
      throw failed_error("multiply_add: lanes {} and 0 ask for different ones", lane);
    for (size_t i = 0; i < a.size(); ++i) rows[(lane / 4 + 8 * (i % 2)) * width + lane % 4 + 4 * (i / 2)] = has.a[i];
    for (size_t i = 0; i < b.size(); ++i) columns[lane / 4 * width + lane % 4 + 4 * i] = has.b[i];
    for_pairs(lane, [&](const std::byte* of_lane, std::byte* place) { std::memcpy(place, of_lane, 2 * sum_bytes); });
  }
  const auto terms = words * static_cast<int64_t>(sizeof(uint32_t) / info(instruction.a).size);
  const EncodedMatrix c{sums.data(), kColumnsOfProduct};
  multiply(*core, {rows.data(), terms}, {columns.data(), 1, terms}, c, sums.data(), kRowsOfProduct, kColumnsOfProduct, terms);
  for (size_t lane = 0; lane < lanes.size(); ++lane)
    for_pairs(lane, [&](std::byte* of_lane, const std::byte* place) { std::memcpy(of_lane, place, 2 * sum_bytes); });
}

// Where Boost gives the stack back.
struct StackOf {
  Stacks* stacks;
  void deallocate(boost::context::stack_context& stack) const { stacks->give_back(stack); }
};

// The numbers 0, ..., n - 1 in an order that depends on the seed.
class Orders {
 public:
  Orders(uint64_t seed, uint64_t stream) : random_(seed, stream) {}
  void shuffle(std::vector<int>& numbers) {
    for (size_t i = numbers.size(); i > 1; --i)
      std::swap(numbers[i - 1], numbers[random_.below(next_++, static_cast<uint32_t>(i))]);
  }
  int below(int bound) { return static_cast<int>(random_.below(next_++, static_cast<uint32_t>(bound))); }

 private:
  Philox random_;
  uint64_t next_ = 0;
};

std::vector<int> numbers_to(int n) {
  std::vector<int> numbers(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) numbers[static_cast<size_t>(i)] = i;
  return numbers;
}

}  // namespace

MatrixUnits::MatrixUnits(std::string_view gpu) {
  for (const InstructionFamily family : {InstructionFamily::mma, InstructionFamily::wgmma})
    for (const auto& [a, b, sums] : kProductTypes)
      if (const MatrixInstruction each{family, a, b, sums}; const auto core = tensor_core_of(gpu, each))
        cores_.emplace_back(each, *core);
}
const TensorCore* MatrixUnits::find(const MatrixInstruction& instruction) const {
  for (const auto& [known, core] : cores_)
    if (known == instruction) return &core;
  return nullptr;
}

class HostShared {
 public:
  HostShared(const void* key, std::string_view name, int size, size_t element_bytes)
      : key_(key),
        name_(name),
        element_bytes_(element_bytes),
        bytes_(static_cast<size_t>(size) * element_bytes),
        elements_(static_cast<size_t>(size)) {}

  bool is(const void* key) const { return key_ == key; }
  void* use(Access access, int index, const Moment& now, uint32_t block_began) {
    if (index < 0 || index >= static_cast<int>(elements_.size()))
      throw failed_error("{}[{}]: thread {} uses shared memory beyond its {} elements", name_, index, now.thread, elements_.size());
    History& history = elements_[static_cast<size_t>(index)];
    if (access != Access::write && !history.is_defined(block_began))
      throw failed_error("{}[{}]: thread {} reads what no thread of the block wrote", name_, index, now.thread);
    if (const int other = history.note(access, now); other >= 0)
      throw failed_error("{}[{}]: thread {} {} what thread {} uses, without a barrier between", name_, index, now.thread,
                         access == Access::read    ? "reads"
                         : access == Access::write ? "writes"
                                                   : "adds to",
                         other);
    return bytes_.data() + static_cast<size_t>(index) * element_bytes_;
  }

 private:
  const void* key_;
  std::string_view name_;
  size_t element_bytes_;
  std::vector<std::byte> bytes_;
  std::vector<History> elements_;
};

class HostBlockRunner {
 public:
  HostBlockRunner(const Grid& grid, const std::function<void(HostBlock&)>& kernel, uint64_t seed, const MatrixUnits& units,
                  Stacks& stacks)
      : grid_(grid),
        kernel_(kernel),
        orders_(seed, 0),
        units_(units),
        stacks_(stacks),
        threads_(static_cast<size_t>(grid.threads)) {}

  ~HostBlockRunner() {
    is_stopping_ = true;
    for (Thread& thread : threads_)
      if (thread.state != State::finished) resume(thread);
  }

  void run(int64_t block) {
    began_ = ++barriers_;
    for (int i = 0; i < grid_.threads; ++i) start(block, i);
    std::vector<int> warps = numbers_to(grid_.threads / kWarpThreads);
    do {
      orders_.shuffle(warps);
      for (const int warp : warps) run_warp(warp);
    } while (pass_barrier());
  }

  // Called by threads.
  void barrier(int thread, const std::source_location& place) {
    Thread& at = threads_[static_cast<size_t>(thread)];
    at.barrier = place;
    wait(at, State::at_barrier);
  }
  uint32_t at_warp(int thread, Operation operation, uint32_t value, int lane) {
    Thread& at = threads_[static_cast<size_t>(thread)];
    at.operation = operation;
    at.value = value;
    at.from = lane;
    wait(at, State::at_operation);
    return at.value;
  }
  // The columns of a group's product, which all of its warps have, are those of its first.
  void share_columns(int thread, std::span<const uint32_t> words) {
    const auto lane = static_cast<size_t>(thread % kWarpThreads);
    if (thread < kWarpThreads) std::copy(words.begin(), words.end(), columns_[lane].begin());
    barrier(thread, std::source_location::current());
    if (!std::equal(words.begin(), words.end(), columns_[lane].begin()))
      throw failed_error("multiply_add: thread {} has other columns than thread {} of the first warp", thread, lane);
  }
  void multiply_add(int thread, const ProductOfLane& product) {
    Thread& at = threads_[static_cast<size_t>(thread)];
    at.operation = Operation::multiply_add;
    at.product = product;
    wait(at, State::at_operation);
  }
  HostShared& shared_memory(const void* key, std::string_view name, int size, size_t element_bytes) {
    for (const auto& array : shared_)
      if (array->is(key)) return *array;
    return *shared_.emplace_back(std::make_unique<HostShared>(key, name, size, element_bytes));
  }
  void* use(int thread, HostShared& memory, Access access, int index) {
    return memory.use(access, index, {thread, barriers_, threads_[static_cast<size_t>(thread)].warp_barriers}, began_);
  }

 private:
  enum class State : uint8_t { ready, at_operation, at_barrier, finished };
  struct Thread {
    boost::context::fiber self, runner;
    Switch stack;
    State state = State::finished;
    Operation operation = Operation::sync;
    uint32_t value = 0;
    int from = 0;
    ProductOfLane product;
    uint32_t warp_barriers = 0;
    std::source_location barrier;
  };

  void start(int64_t block, int index) {
    Thread& thread = threads_[static_cast<size_t>(index)];
    thread.state = State::ready;
    const auto stack = stacks_.take();
    thread.stack.lies_in(stack);
    thread.self = boost::context::fiber(std::allocator_arg, boost::context::preallocated(stack.sp, stack.size, stack),
                                        StackOf{&stacks_}, [this, &thread, block, index](boost::context::fiber&& runner) {
                                          thread.stack.arrive_from(runner_);
                                          thread.runner = std::move(runner);
                                          run_thread(block, index);
                                          thread.state = State::finished;
                                          thread.stack.leave_for(runner_, true);
                                          return std::move(thread.runner);
                                        });
  }
  void run_thread(int64_t block, int index) {
    try {
      if (is_stopping_) return;
      HostBlock view(*this, grid_, block, index);
      kernel_(view);
    } catch (const Error&) {
      error_ = std::current_exception();
    } catch (const Stopped&) {
    }
  }
  void resume(Thread& thread) {
    runner_.leave_for(thread.stack);
    thread.self = std::move(thread.self).resume();
    runner_.arrive_from(thread.stack);
  }
  void wait(Thread& thread, State state) {
    thread.state = state;
    thread.stack.leave_for(runner_);
    thread.runner = std::move(thread.runner).resume();
    thread.stack.arrive_from(runner_);
    if (is_stopping_) throw Stopped();
  }

  // All lanes to the next barrier or to their end.
  void run_warp(int warp) {
    const size_t first = static_cast<size_t>(warp) * kWarpThreads;
    for (;;) {
      const int turn = orders_.below(kWarpThreads);
      for (int i = 0; i < kWarpThreads; ++i) {
        Thread& thread = threads_[first + static_cast<size_t>((i + turn) % kWarpThreads)];
        if (thread.state != State::ready) continue;
        resume(thread);
        if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
      }
      const std::span lanes(&threads_[first], kWarpThreads);
      const auto waiting =
          std::find_if(lanes.begin(), lanes.end(), [](const Thread& lane) { return lane.state == State::at_operation; });
      if (waiting == lanes.end()) return;
      const Operation operation = waiting->operation;
      for (const Thread& lane : lanes)
        if (lane.state != State::at_operation || lane.operation != operation)
          throw failed_error("thread {} waits at {} for thread {} of its warp, which {}", &*waiting - threads_.data(),
                             kOperations[static_cast<size_t>(operation)], &lane - threads_.data(), whereabouts(lane));
      operate(operation, lanes);
    }
  }

  void operate(Operation operation, std::span<Thread> lanes) {
    if (operation == Operation::multiply_add) {
      std::array<ProductOfLane, kWarpThreads> products;
      for (size_t i = 0; i < products.size(); ++i) products[i] = lanes[i].product;
      device::multiply_add(units_, products);
      for (Thread& lane : lanes) lane.state = State::ready;
      return;
    }
    std::array<uint32_t, kWarpThreads> values;
    for (size_t i = 0; i < values.size(); ++i) values[i] = lanes[i].value;
    uint32_t common = values[0];
    for (size_t i = 1; i < values.size(); ++i) {
      if (operation == Operation::ballot) common |= values[i] << i;
      if (operation == Operation::sum) common += values[i];
      if (operation == Operation::smallest) common = std::min(common, values[i]);
      if (operation == Operation::largest) common = std::max(common, values[i]);
    }
    for (Thread& lane : lanes) {
      if (operation == Operation::shuffle && (lane.from < 0 || lane.from >= kWarpThreads))
        throw failed_error("shuffle: a warp has no lane {}", lane.from);
      lane.value = operation == Operation::shuffle ? values[static_cast<size_t>(lane.from)] : common;
      lane.warp_barriers += operation == Operation::sync;
      lane.state = State::ready;
    }
  }

  // False: all threads are done.
  bool pass_barrier() {
    const auto waiting =
        std::find_if(threads_.begin(), threads_.end(), [](const Thread& thread) { return thread.state == State::at_barrier; });
    if (waiting == threads_.end()) return false;
    for (const Thread& thread : threads_)
      if (thread.state != State::at_barrier || thread.barrier.line() != waiting->barrier.line() ||
          thread.barrier.file_name() != waiting->barrier.file_name())
        throw failed_error("thread {} {}, but thread {} {}", &*waiting - threads_.data(), whereabouts(*waiting),
                           &thread - threads_.data(), whereabouts(thread));
    ++barriers_;
    for (Thread& thread : threads_) thread.state = State::ready;
    return true;
  }

  static std::string whereabouts(const Thread& thread) {
    if (thread.state == State::finished) return "has returned";
    if (thread.state == State::at_operation) return fmt::format("is at {}", kOperations[static_cast<size_t>(thread.operation)]);
    return fmt::format("is at the barrier of line {}", thread.barrier.line());
  }

  const Grid& grid_;
  const std::function<void(HostBlock&)>& kernel_;
  Orders orders_;
  const MatrixUnits& units_;
  std::vector<std::unique_ptr<HostShared>> shared_;
  Stacks& stacks_;
  std::vector<Thread> threads_;
  std::array<std::array<uint32_t, kWholeWords / 4>, kWarpThreads> columns_{};
  uint32_t barriers_ = 0, began_ = 0;
  std::exception_ptr error_;
  bool is_stopping_ = false;
  Switch runner_;
};

void HostBlock::barrier(std::source_location place) { runner_.barrier(thread_, place); }
uint32_t HostBlock::at_warp(Operation operation, uint32_t value, int lane) {
  return runner_.at_warp(thread_, operation, value, lane);
}
void HostBlock::multiply_add(const MatrixInstruction& instruction, void* sums, std::span<const uint32_t> a,
                             std::span<const uint32_t> b) {
  // All warps of a group are there, as on a GPU, where what they have of b lies in shared memory that they then use again.
  const bool is_of_group = instruction.family != InstructionFamily::mma;
  if (is_of_group && warps() != kWarpsOfGroup)
    throw failed_error("multiply_add: {} is of {} warps, which are the block, and this one has {}", name_of(instruction.family),
                       kWarpsOfGroup, warps());
  if (is_of_group) runner_.share_columns(thread_, b);
  runner_.multiply_add(thread_, {instruction, sums, a, b});
  if (is_of_group) barrier();
}
HostShared& HostBlock::shared_memory(const void* key, std::string_view name, int size, size_t element_bytes) {
  return runner_.shared_memory(key, name, size, element_bytes);
}
void* HostBlock::use(HostShared& memory, Access access, int index) { return runner_.use(thread_, memory, access, index); }

void check_grid(const Grid& grid) {
  if (grid.threads <= 0 || grid.threads % kWarpThreads != 0 || grid.threads > kMostThreads)
    throw failed_error("a block of {} threads: expected whole warps of {}, at most {} threads", grid.threads, kWarpThreads,
                       kMostThreads);
  constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;
  if (grid.blocks <= 0 || grid.blocks > kMostBlocks)
    throw failed_error("a grid of {} blocks: expected 1 to {}, as a GPU does", grid.blocks, kMostBlocks);
}

void run_on_host(const Grid& grid, const std::function<void(HostBlock&)>& kernel, uint64_t seed, const MatrixUnits& units) {
  check_grid(grid);
  thread_local Stacks stacks;
  HostBlockRunner runner(grid, kernel, seed, units, stacks);
  for (int64_t block = 0; block < grid.blocks; ++block) runner.run(block);
}

}  // namespace ulpscope::device
