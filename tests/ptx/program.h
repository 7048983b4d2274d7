// A program in PTX, as nvcc makes it of kernels: what an interpreter needs of it (block.h). Of the instruction set (NVIDIA, PTX
// ISA 9.0) it knows what kernels here are made of; another instruction is an error where the program is read.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <typeinfo>
#include <vector>

#include "ulpscope/kernels/matrix_instructions.h"

namespace ulpscope::ptx {

// A register, of any type: its low bits.
using Word = uint64_t;

enum class Kind : uint8_t {
  plain,  // what is computed of a thread's registers: Instruction::compute
  branch,
  call,
  leave,
  trap,
  load,
  store,
  add_to_memory,
  largest_to_memory,
  // Of wgmma: that what was stored to shared memory is seen, that registers are its own from here to where it is waited for.
  proxy_fence,
  wgmma_fence,
  wgmma_commit,
  wgmma_wait,
  // What all lanes of a warp do together:
  warp_barrier,
  shuffle,
  shuffle_down,
  ballot,
  sum,
  smallest,
  largest,
  mma,
  // What all threads of a block do together:
  barrier,
  wgmma,
};

struct Instruction {
  using Compute = void (*)(Word* registers, const Instruction& instruction);
  static constexpr int kMostOperands = 16;

  Kind kind = Kind::plain;
  bool unless = false;  // it is left out where `guard` is true, not where it is false
  bool is_shared = false, is_signed = false;
  int bytes = 0;   // of an element of memory
  int guard = -1;  // the register of a predicate, or none
  Compute compute = nullptr;
  // Registers as they are written: of a vector and a matrix one after the other, of an address its base, whose offset is apart. Of
  // a call: where the arguments are in the frame.
  std::array<int, kMostOperands> operands{};
  int count = 0;
  int64_t offset = 0;
  int target = -1;  // of a branch the number of an instruction, of a call that of a function
  int result = -1;  // of a call: where in the frame
  MatrixInstruction matrix{InstructionFamily::mma, DType::f16, DType::f16, DType::f32};
  int line = 0;
};

// What a register holds from the start: numbers, addresses, and which thread it is.
struct Constant {
  enum class Kind : uint8_t { number, shared, frame, kernel, thread, threads, block, blocks };
  Kind kind;
  Word value;  // the number, or an offset in shared memory, the frame or the kernel
  auto operator<=>(const Constant&) const = default;
};

struct Function {
  struct Parameter {
    int offset, bytes;  // in the frame
  };
  std::string name;
  bool is_kernel = false;
  std::vector<Parameter> parameters, results;
  int frame_bytes = 0;
  int registers = 0;  // behind which the constants are
  std::vector<Constant> constants;
  std::vector<Instruction> code;
};

struct Program {
  std::vector<Function> functions;
  std::vector<bool> shared_bytes;  // of shared memory, which are of an array: there are some between

  // The instance of run_on_gpu for a kernel of that type. Throws Error (failed) where there is none.
  const Function& kernel(const std::type_info& type) const;
};

// Throws Error (failed) where the file cannot be read or has what is not known, with the line.
Program read_program(const std::string& path);

}  // namespace ulpscope::ptx
