#include "tests/ptx/block.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/emulation/format.h"
#include "ulpscope/emulation/tensor_core_product.h"

namespace ulpscope::ptx {
namespace {

using device::kWarpThreads;

constexpr Word kNearNull = 65536;
constexpr uint32_t kSharedBegins = 1024;  // the address of its first byte in shared memory
constexpr uint32_t kAllLanes = ~0u;
constexpr uint32_t kLastLane = kWarpThreads - 1;

// A call that is not over.
struct Frame {
  const Function* function = nullptr;
  size_t next = 0;
  std::vector<Word> registers, memory;

  char* bytes() { return reinterpret_cast<char*>(memory.data()); }
  Word& operand(const Instruction& in, size_t i) { return registers[static_cast<size_t>(in.operands[i])]; }
};

// Where a thread is with wgmma: registers that it takes part with are not to be used before the end.
enum class Group : uint8_t { none, fenced, runs, committed };

// How far a thread is.
struct Progress {
  size_t depth = 0;                    // of calls
  const Instruction* waits = nullptr;  // for other threads
  Group group = Group::none;
  // Whether it stored to shared memory what wgmma may not see yet; how many barriers it had passed when it fenced that.
  bool has_unfenced = false;
  int64_t fenced_at = -1;
};

struct Thread : Progress {
  std::vector<Frame> frames;

  Frame& frame() { return frames[depth - 1]; }
  bool is_done() const { return depth == 0; }
};

// Bits of a word, an element of a matrix in memory.
struct Element {
  size_t operand;
  int first_bit;
  int row, column;
};

// What a lane has of the matrices of an instruction, as the figures of PTX ISA 9.0, 9.7.14 ("Matrix Fragments for mma") have it: an
// element of FP32 and TF32 is a word, of narrower types a part of one.
class Fragments {
 public:
  // `words`: of a thread, of A.
  Fragments(const MatrixInstruction& instruction, int words)
      : of_a_(words),
        factor_bytes_(static_cast<int>(info(instruction.a).size)),
        sum_bytes_(static_cast<int>(info(instruction.sums).size)) {}

  int factor_bytes() const { return factor_bytes_; }
  int sum_bytes() const { return sum_bytes_; }
  int terms() const { return 4 * in_word() * of_a_ / 2; }
  // Operands: D, A, and of mma B and C.
  size_t first_a() const { return sum_bytes_ == 4 ? 4 : 2; }
  size_t first_b() const { return first_a() + static_cast<size_t>(of_a_); }
  size_t first_c() const { return first_b() + static_cast<size_t>(of_a_) / 2; }

  // Row lane / 4 and that + 8, in turns; the terms of lane % 4, and those 4 threads further on.
  template <typename Body>
  void each_of_a(int lane, const Body& body) const {
    for (int i = 0; i < of_a_; ++i)
      for (int k = 0; k < in_word(); ++k)
        body(Element{first_a() + static_cast<size_t>(i), 8 * factor_bytes_ * k, lane / 4 + 8 * (i % 2),
                     in_word() * (lane % 4) + k + 4 * in_word() * (i / 2)});
  }
  // Column lane / 4, which is the row here.
  template <typename Body>
  void each_of_b(int lane, const Body& body) const {
    for (int i = 0; i < of_a_ / 2; ++i)
      for (int k = 0; k < in_word(); ++k)
        body(Element{first_b() + static_cast<size_t>(i), 8 * factor_bytes_ * k, lane / 4,
                     in_word() * (lane % 4) + k + 4 * in_word() * i});
  }
  // Two columns of row lane / 4, and two of the row 8 further on; of FP16 both are in a word.
  template <typename Body>
  void each_sum(int lane, size_t first, const Body& body) const {
    for (int i = 0; i < 4; ++i) {
      const size_t word = static_cast<size_t>(sum_bytes_ == 4 ? i : i / 2);
      body(Element{first + word, sum_bytes_ == 4 ? 0 : 16 * (i % 2), lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2});
    }
  }

 private:
  int in_word() const { return 4 / factor_bytes_; }

  int of_a_, factor_bytes_, sum_bytes_;
};

class Matrix {
 public:
  Matrix(int rows, int columns, int bytes) : columns_(columns), bytes_(bytes), data_(static_cast<size_t>(rows * columns * bytes)) {}
  char* at(int row, int column) { return data_.data() + (row * columns_ + column) * bytes_; }
  void set(const Element& element, Word word) {
    word >>= element.first_bit;
    std::memcpy(at(element.row, element.column), &word, static_cast<size_t>(bytes_));
  }
  Word get(const Element& element) {
    Word word = 0;
    std::memcpy(&word, at(element.row, element.column), static_cast<size_t>(bytes_));
    return word << element.first_bit;
  }

 private:
  int columns_, bytes_;
  std::vector<char> data_;
};

class Block {
 public:
  Block(const Program& program, const Function& function, const device::Grid& grid, const void* kernel,
        const device::MatrixUnits& units)
      : program_(program),
        function_(function),
        grid_(grid),
        kernel_(kernel),
        units_(units),
        threads_(static_cast<size_t>(grid.threads)),
        shared_(program.shared_bytes.size() / sizeof(Word) + 1) {}

  // `backwards`: the last thread of the last warp first.
  void run(int64_t block, bool backwards) {
    block_ = block;
    backwards_ = backwards;
    barriers_ = 0;
    std::fill(shared_.begin(), shared_.end(), ~Word{0});  // NaN, as nobody wrote it
    for (size_t i = 0; i < threads_.size(); ++i) {
      static_cast<Progress&>(threads_[i]) = {};
      enter(i, function_);
    }
    const size_t warps = threads_.size() / kWarpThreads;
    while (!is_done()) {
      for (size_t i = 0; i < warps; ++i) run_warp(in_order(i, warps) * kWarpThreads);
      meet();
    }
  }

 private:
  [[noreturn]] void fail(const Instruction& in, std::string_view what) const {
    throw failed_error("{}, block {}, line {} of the PTX: {}", function_.name, block_, in.line, what);
  }
  bool is_done() const { return threads_[0].is_done(); }
  size_t in_order(size_t i, size_t n) const { return backwards_ ? n - 1 - i : i; }
  char* shared() { return reinterpret_cast<char*>(shared_.data()); }

  void enter(size_t number, const Function& function) {
    Thread& thread = threads_[number];
    if (thread.frames.size() == thread.depth) thread.frames.emplace_back();
    Frame& frame = thread.frames[thread.depth++];
    frame.next = 0;
    frame.memory.resize(static_cast<size_t>(function.frame_bytes) / sizeof(Word) + 1);
    frame.registers.resize(static_cast<size_t>(function.registers) + function.constants.size());
    frame.function = &function;
    Word* value = frame.registers.data() + function.registers;
    for (const Constant& constant : function.constants) *value++ = value_of(constant, number, frame);
  }
  Word value_of(const Constant& constant, size_t thread, Frame& frame) const {
    switch (constant.kind) {
      case Constant::Kind::number:
        return constant.value;
      case Constant::Kind::shared:
        return kSharedBegins + constant.value;
      case Constant::Kind::frame:
        return std::bit_cast<Word>(frame.bytes()) + constant.value;
      case Constant::Kind::kernel:
        return std::bit_cast<Word>(kernel_) + constant.value;
      case Constant::Kind::thread:
        return thread;
      case Constant::Kind::threads:
        return static_cast<Word>(grid_.threads);
      case Constant::Kind::block:
        return static_cast<Word>(block_);
      case Constant::Kind::blocks:
        return static_cast<Word>(grid_.blocks);
    }
    return 0;
  }

  // Its lanes to where they wait for other warps, or to the end.
  void run_warp(size_t first) {
    const std::span<Thread> lanes = std::span(threads_).subspan(first, kWarpThreads);
    for (;;) {
      for (size_t i = 0; i < lanes.size(); ++i) run_thread(first + in_order(i, lanes.size()));
      const Instruction* const waits = lanes[0].waits;
      for (const Thread& lane : lanes) {
        if (lane.waits == waits) continue;  // or both have ended
        fail(waits != nullptr ? *waits : *lane.waits, "not all lanes of a warp are there");
      }
      if (waits == nullptr || waits->kind == Kind::barrier || waits->kind == Kind::wgmma) return;
      do_together(lanes, *waits);
      for (Thread& lane : lanes) lane.waits = nullptr;
    }
  }
  // What all warps wait for.
  void meet() {
    const Instruction* const waits = threads_[0].waits;
    for (const Thread& thread : threads_)
      if (thread.waits != waits) fail(waits != nullptr ? *waits : *thread.waits, "not all threads of the block are there");
    if (waits == nullptr) return;
    if (waits->kind == Kind::wgmma) {
      multiply_by_group(*waits);
    } else if (waits->count != 1 || threads_[0].frame().operand(*waits, 0) != 0) {
      fail(*waits, "a barrier of some threads, or another than the first");
    } else {
      ++barriers_;
    }
    for (Thread& thread : threads_) thread.waits = nullptr;
  }

  // To where it waits or ends.
  void run_thread(size_t number) {
    Thread& thread = threads_[number];
    while (!thread.is_done() && thread.waits == nullptr) run_frame(number, thread.frame());
  }
  // To where it waits, calls or ends.
  void run_frame(size_t number, Frame& frame) {
    Word* const r = frame.registers.data();
    const Instruction* const begin = frame.function->code.data();
    const Instruction* in = begin + frame.next;
    try {
      for (;; ++in) {
        if (in->guard >= 0 && ((r[in->guard] & 1) != 0) == in->unless) continue;
        switch (in->kind) {
          case Kind::plain:
            in->compute(r, *in);
            break;
          case Kind::branch:
            in = begin + in->target - 1;
            break;
          case Kind::load:
            load(frame, *in);
            break;
          case Kind::store:
            store(frame, *in);
            if (in->is_shared) threads_[number].has_unfenced = true;
            break;
          case Kind::proxy_fence:
            threads_[number].has_unfenced = false;
            threads_[number].fenced_at = barriers_;
            break;
          case Kind::wgmma_fence:
            go_on_with(number, Group::none, Group::fenced);
            break;
          case Kind::wgmma_commit:
            go_on_with(number, Group::runs, Group::committed);
            break;
          case Kind::wgmma_wait:
            if (frame.operand(*in, 0) != 0) throw failed_error("wgmma is not waited for");
            go_on_with(number, Group::committed, Group::none);
            break;
          case Kind::add_to_memory:
            change(frame, *in, [](Word old, Word value) { return old + value; });
            break;
          case Kind::largest_to_memory:
            change(frame, *in, [](Word old, Word value) { return std::max(old, value); });
            break;
          case Kind::trap:
            throw failed_error("trap");
          case Kind::leave:
            check_not_in_group(number);
            return leave(threads_[number]);
          case Kind::call:
            frame.next = static_cast<size_t>(in - begin) + 1;
            return call(number, *in);
          default:
            if (in->kind == Kind::wgmma) {
              go_on_with(number, Group::fenced, Group::runs);
            } else {
              check_not_in_group(number);
            }
            frame.next = static_cast<size_t>(in - begin) + 1;
            threads_[number].waits = in;
            return;
        }
      }
    } catch (const Error& error) {
      fail(*in, fmt::format("thread {}: {}", number, error.what()));
    }
  }

  // Between an instruction of a group and its end there is nothing else that threads do together.
  void check_not_in_group(size_t number) const {
    if (threads_[number].group != Group::none) throw failed_error("wgmma was begun and not waited for");
  }
  void go_on_with(size_t number, Group from, Group to) {
    if (threads_[number].group != from) throw failed_error("wgmma is not in the order fence, product, commit, wait");
    threads_[number].group = to;
  }

  void call(size_t number, const Instruction& in) {
    const Function& function = program_.functions[static_cast<size_t>(in.target)];
    enter(number, function);
    Thread& thread = threads_[number];
    Frame& caller = thread.frames[thread.depth - 2];
    for (size_t i = 0; i < function.parameters.size(); ++i)
      std::memcpy(thread.frame().bytes() + function.parameters[i].offset, caller.bytes() + in.operands[i],
                  static_cast<size_t>(function.parameters[i].bytes));
  }
  void leave(Thread& thread) {
    Frame& callee = thread.frame();
    if (--thread.depth == 0) return;
    Frame& caller = thread.frame();
    const Instruction& in = caller.function->code[caller.next - 1];
    if (in.result < 0) return;
    const Function::Parameter& result = callee.function->results[0];
    std::memcpy(caller.bytes() + in.result, callee.bytes() + result.offset, static_cast<size_t>(result.bytes));
  }

  // Where so many bytes of one array are.
  char* shared_at(uint32_t address, Word bytes) {
    const uint32_t offset = address - kSharedBegins;
    const Word end = offset + bytes - 1;
    const std::vector<bool>& there = program_.shared_bytes;
    if (end >= there.size() || !there[offset] || !there[end])
      throw failed_error("an access to shared memory at {}, where there is no array", static_cast<int32_t>(offset));
    return shared() + offset;
  }
  // Of `elements` from operand `base` on.
  char* place(Frame& frame, const Instruction& in, size_t base, int elements) {
    Word address = frame.operand(in, base) + static_cast<Word>(in.offset);
    const auto bytes = static_cast<Word>(in.bytes * elements);
    if (in.is_shared) address = std::bit_cast<Word>(shared_at(static_cast<uint32_t>(address), bytes));
    if (address < kNearNull) throw failed_error("an access to address {}", address);
    if (address % bytes != 0) throw failed_error("an access to {} bytes at an address that is no multiple", bytes);
    return std::bit_cast<char*>(address);
  }
  void load(Frame& frame, const Instruction& in) {
    const int elements = in.count - 1;
    const char* from = place(frame, in, static_cast<size_t>(elements), elements);
    for (size_t i = 0; i < static_cast<size_t>(elements); ++i, from += in.bytes) {
      Word value = 0;
      std::memcpy(&value, from, static_cast<size_t>(in.bytes));
      const int unused = 64 - 8 * in.bytes;
      if (in.is_signed) value = static_cast<Word>(static_cast<int64_t>(value << unused) >> unused);
      frame.operand(in, i) = value;
    }
  }
  void store(Frame& frame, const Instruction& in) {
    const int elements = in.count - 1;
    char* to = place(frame, in, 0, elements);
    for (size_t i = 1; i <= static_cast<size_t>(elements); ++i, to += in.bytes)
      std::memcpy(to, &frame.operand(in, i), static_cast<size_t>(in.bytes));
  }
  template <typename Change>
  void change(Frame& frame, const Instruction& in, const Change& changed) {
    char* const at = place(frame, in, 1, 1);
    const auto bytes = static_cast<size_t>(in.bytes);
    Word old = 0, value = 0;
    std::memcpy(&old, at, bytes);
    std::memcpy(&value, &frame.operand(in, 2), bytes);
    const Word now = changed(old, value);
    std::memcpy(at, &now, bytes);
    frame.operand(in, 0) = old;
  }

  void do_together(std::span<Thread> lanes, const Instruction& in) {
    if (in.kind == Kind::mma) return multiply(lanes, in);
    const auto value_of_lane = [&](size_t lane, size_t operand) {
      return static_cast<uint32_t>(lanes[lane].frame().operand(in, operand));
    };
    uint32_t ballot = 0, sum = 0, smallest = ~0u, largest = 0;
    std::array<uint32_t, kWarpThreads> values{};
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      // Which lanes take part comes last.
      if (value_of_lane(lane, static_cast<size_t>(in.count) - 1) != kAllLanes) fail(in, "an operation of some lanes alone");
      if (in.kind == Kind::warp_barrier) continue;
      const uint32_t value = values[lane] = value_of_lane(lane, 1);
      ballot |= (value & 1) << lane;
      sum += value;
      smallest = std::min(smallest, value);
      largest = std::max(largest, value);
    }
    const bool is_shuffle = in.kind == Kind::shuffle || in.kind == Kind::shuffle_down;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      Word& result = lanes[lane].frame().operand(in, 0);
      if (is_shuffle && (value_of_lane(lane, 2) > kLastLane || value_of_lane(lane, 3) != kLastLane))
        fail(in, "a shuffle of part of a warp, or by more than it has");
      switch (in.kind) {
        case Kind::ballot:
          result = ballot;
          break;
        case Kind::sum:
          result = sum;
          break;
        case Kind::smallest:
          result = smallest;
          break;
        case Kind::largest:
          result = largest;
          break;
        case Kind::shuffle:
          result = values[value_of_lane(lane, 2)];
          break;
        case Kind::shuffle_down: {
          const size_t from = lane + value_of_lane(lane, 2);
          result = values[from < kWarpThreads ? from : lane];
          break;
        }
        default:
          break;
      }
    }
  }

  const TensorCore& core_of(const Instruction& in) const {
    const TensorCore* const core = units_.find(in.matrix);
    if (core == nullptr) fail(in, "the GPU has no matrix units for it");
    return *core;
  }
  // D = A B + C, of the 16 rows of a warp. `first_c`: the operand.
  void multiply_rows(const Instruction& in, std::span<Thread> lanes, const Fragments& fragments, Matrix& b, size_t first_c) {
    const int terms = fragments.terms();
    Matrix a(device::kRowsOfProduct, terms, fragments.factor_bytes());
    Matrix sums(device::kRowsOfProduct, device::kColumnsOfProduct, fragments.sum_bytes());
    for (int lane = 0; lane < kWarpThreads; ++lane) {
      Frame& frame = lanes[static_cast<size_t>(lane)].frame();
      fragments.each_of_a(lane, [&](const Element& element) { a.set(element, frame.operand(in, element.operand)); });
      fragments.each_sum(lane, first_c, [&](const Element& element) { sums.set(element, frame.operand(in, element.operand)); });
    }
    ulpscope::multiply(core_of(in), {a.at(0, 0), terms}, {b.at(0, 0), 1, terms},
                       EncodedMatrix{sums.at(0, 0), device::kColumnsOfProduct}, sums.at(0, 0), device::kRowsOfProduct,
                       device::kColumnsOfProduct, terms);
    for (int lane = 0; lane < kWarpThreads; ++lane) {
      Frame& frame = lanes[static_cast<size_t>(lane)].frame();
      fragments.each_sum(lane, 0, [&](const Element& element) {
        Word& word = frame.operand(in, element.operand);
        word = element.first_bit == 0 ? sums.get(element) : word | sums.get(element);
      });
    }
  }
  void multiply(std::span<Thread> lanes, const Instruction& in) {
    const int of_sums = in.matrix.sums == DType::f32 ? 4 : 2;
    const Fragments fragments(in.matrix, (in.count - 2 * of_sums) * 2 / 3);
    Matrix b(device::kColumnsOfProduct, fragments.terms(), fragments.factor_bytes());
    for (int lane = 0; lane < kWarpThreads; ++lane) {
      Frame& frame = lanes[static_cast<size_t>(lane)].frame();
      fragments.each_of_b(lane, [&](const Element& element) { b.set(element, frame.operand(in, element.operand)); });
    }
    multiply_rows(in, lanes, fragments, b, fragments.first_c());
  }
  // wgmma.mma_async d, a, descriptor, adds, 1, 1: 16 rows a warp, of the same columns, in shared memory where the descriptor says
  // ("Matrix Descriptor Format", not swizzled): parts of 8 columns by 16 bytes that follow each other, so many bytes apart.
  void multiply_by_group(const Instruction& in) {
    if (threads_.size() != device::kWarpsOfGroup * kWarpThreads) fail(in, "a block of another size than a group of warps");
    const Fragments fragments(in.matrix, 4);
    const size_t operand = fragments.first_b();
    const Word descriptor = threads_[0].frame().operand(in, operand);
    for (Thread& thread : threads_) {
      if (thread.frame().operand(in, operand) != descriptor) fail(in, "threads have other columns");
      if ((thread.frame().operand(in, operand + 1) & 1) == 0) fail(in, "it does not add to what was there");
      // The signs of A and B, and of some types whether B is transposed.
      for (size_t i = operand + 2; i < static_cast<size_t>(in.count); ++i)
        if (thread.frame().operand(in, i) != (i <= operand + 3 ? 1u : 0u)) fail(in, "it is no plain sum of products");
      if (thread.has_unfenced || thread.fenced_at >= barriers_)
        fail(in, "what threads stored to shared memory has no fence, or no barrier behind that");
    }
    if (descriptor >> 62 != 0 || (descriptor >> 49 & 7) != 0) fail(in, "columns are swizzled");
    const auto bytes_at = [&](int bit) { return (descriptor >> bit & 0x3FFF) << 4; };
    constexpr int kPartBytes = 16;
    Matrix b(device::kColumnsOfProduct, fragments.terms(), fragments.factor_bytes());
    for (int column = 0; column < device::kColumnsOfProduct; ++column) {
      for (int part = 0; part < fragments.terms() * fragments.factor_bytes() / kPartBytes; ++part) {
        const auto address =
            static_cast<uint32_t>(bytes_at(0) + static_cast<Word>(part) * bytes_at(16) + static_cast<Word>(column * kPartBytes));
        std::memcpy(b.at(column, part * kPartBytes / fragments.factor_bytes()), shared_at(address, kPartBytes), kPartBytes);
      }
    }
    for (size_t first = 0; first < threads_.size(); first += kWarpThreads)
      multiply_rows(in, std::span(threads_).subspan(first, kWarpThreads), fragments, b, 0);
  }

  const Program& program_;
  const Function& function_;
  const device::Grid& grid_;
  const void* kernel_;
  const device::MatrixUnits& units_;
  std::vector<Thread> threads_;
  std::vector<Word> shared_;
  int64_t block_ = 0, barriers_ = 0;
  bool backwards_ = false;
};

}  // namespace

void run(const Program& program, const Function& function, const device::Grid& grid, const void* kernel, size_t bytes,
         const device::MatrixUnits& units, bool backwards) {
  device::check_grid(grid);
  if (function.parameters.size() != 1 || static_cast<size_t>(function.parameters[0].bytes) != bytes)
    throw failed_error("{}: a kernel of {} bytes is not what it expects", function.name, bytes);
  Block block(program, function, grid, kernel, units);
  for (int64_t i = 0; i < grid.blocks; ++i) block.run(backwards ? grid.blocks - 1 - i : i, backwards);
}

}  // namespace ulpscope::ptx
