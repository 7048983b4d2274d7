#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "tests/ptx/block.h"
#include "tests/ptx/program.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"

namespace ulpscope::ptx {
namespace {

using ::testing::HasSubstr;

constexpr int kThreads = 64, kBlocks = 3;

class Ptx : public ::testing::Test {
 protected:
  // A kernel that is given the address of an array, in %rd1, and has the number of its thread in %r1.
  Program read(const std::string& body) {
    const std::string path = folder_.file("kernel.ptx");
    std::ofstream(path) << ".version 9.0\n.target sm_90a\n.address_size 64\n\n"
                           ".visible .entry kernel(\n\t.param .align 8 .b8 kernel_param_0[8]\n)\n.maxntid 256, 1, 1\n{\n"
                           "\t.reg .pred %p<9>;\n\t.reg .b32 %r<9>;\n\t.reg .f32 %f<9>;\n\t.reg .b64 %rd<9>;\n"
                           "\t.shared .align 4 .b8 array[256];\n\t.shared .align 4 .b8 other[256];\n"
                           "\tld.param.u64 \t%rd1, [kernel_param_0];\n\tmov.u32 \t%r1, %tid.x;\n"
                        << body << "\n\tret;\n}\n";
    return read_program(path);
  }
  std::vector<uint32_t> run(const std::string& body, bool backwards = false) {
    std::vector<uint32_t> values(kThreads * kBlocks);
    const Program program = read(body);
    uint32_t* const address = values.data();
    ptx::run(program, program.functions[0], {kBlocks, kThreads}, &address, sizeof address, device::MatrixUnits("h100"), backwards);
    return values;
  }
  void expect_error(const std::string& body, const std::string& message) {
    try {
      run(body);
      ADD_FAILURE() << body << ": no error, expected " << message;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(message)) << body;
    }
  }

  TemporaryFolder folder_;
};

// %rd2: the address of the thread's own element.
const std::string kOwnElement = R"(
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mad.lo.s32 %r2, %r2, %r3, %r1;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd2, %rd1, %rd2;
)";

TEST_F(Ptx, WhatThreadsOfAWarpDoTogether) {
  // Of lane 3 what it has from 16 lanes further on, and the sum of the numbers of all threads of the warp.
  const std::string body = kOwnElement + R"(
  mov.u32 %r6, -1;
  shfl.sync.down.b32 %r4|%p1, %r1, 16, 31, %r6;
  shfl.sync.idx.b32 %r4, %r4, 3, 31, %r6;
  redux.sync.add.u32 %r5, %r1, %r6;
  add.s32 %r4, %r4, %r5;
  st.global.u32 [%rd2], %r4;
)";
  for (const bool backwards : {false, true}) {
    const std::vector<uint32_t> values = run(body, backwards);
    for (uint32_t i = 0; i < values.size(); ++i) {
      const uint32_t first = i % kThreads / 32 * 32;
      EXPECT_EQ(values[i], first + 3 + 16 + 32 * first + 31 * 32 / 2) << i;
    }
  }
}

TEST_F(Ptx, SharedMemoryAndBarriersAndBranches) {
  // The number of the thread at the other end of the block, and of odd threads 100 more.
  const std::vector<uint32_t> values = run(kOwnElement + R"(
  mov.u32 %r4, array;
  shl.b32 %r5, %r1, 2;
  add.s32 %r5, %r4, %r5;
  st.shared.u32 [%r5], %r1;
  bar.sync 0;
  sub.s32 %r6, 63, %r1;
  shl.b32 %r6, %r6, 2;
  add.s32 %r6, %r4, %r6;
  ld.shared.u32 %r7, [%r6];
  and.b32 %r8, %r1, 1;
  setp.eq.s32 %p1, %r8, 0;
  @%p1 bra $even;
  add.s32 %r7, %r7, 100;
$even:
  st.global.u32 [%rd2], %r7;
)");
  for (uint32_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], 63 - i % kThreads + i % 2 * 100) << i;
}

TEST_F(Ptx, BitsOfWords) {
  const std::vector<uint32_t> values = run(R"(
  mov.u32 %r2, 305419896;
  bfe.u32 %r3, %r2, 8, 12;
  st.global.u32 [%rd1], %r3;
  prmt.b32 %r3, %r2, -1, 17185;
  st.global.u32 [%rd1+4], %r3;
  mov.u64 %rd3, 1048576;
  clz.b64 %r3, %rd3;
  st.global.u32 [%rd1+8], %r3;
  mov.u64 %rd4, 1;
  bfi.b64 %rd3, %rd4, %rd3, 60, 3;
  shr.u64 %rd3, %rd3, 32;
  cvt.u32.u64 %r3, %rd3;
  st.global.u32 [%rd1+12], %r3;
  shr.s32 %r3, -8, 40;
  st.global.u32 [%rd1+16], %r3;
  shl.b32 %r3, %r2, 32;
  st.global.u32 [%rd1+20], %r3;
)");
  // Of 0x12345678: bits 8 to 19; bytes 1, 2, 3 and 4, of which the last is of -1.
  EXPECT_EQ((std::vector<uint32_t>(values.begin(), values.begin() + 6)),
            (std::vector<uint32_t>{0x456, 0xFF123456, 43, 0x10000000, 0xFFFFFFFF, 0}));
}

TEST_F(Ptx, ComparisonsOfNan) {
  const std::vector<uint32_t> values = run(R"(
  mov.f32 %f1, 0f7FC00000;
  mov.f32 %f2, 0f3F800000;
  setp.ne.f32 %p1, %f1, %f2;
  setp.neu.f32 %p2, %f1, %f2;
  setp.lt.f32 %p3, %f1, %f2;
  setp.geu.f32 %p4, %f1, %f2;
  selp.u32 %r2, 1, 0, %p1;
  selp.u32 %r3, 1, 0, %p2;
  selp.u32 %r4, 1, 0, %p3;
  selp.u32 %r5, 1, 0, %p4;
  st.global.u32 [%rd1], %r2;
  st.global.u32 [%rd1+4], %r3;
  st.global.u32 [%rd1+8], %r4;
  st.global.u32 [%rd1+12], %r5;
)");
  EXPECT_EQ((std::vector<uint32_t>(values.begin(), values.begin() + 4)), (std::vector<uint32_t>{0, 1, 0, 1}));
}

TEST_F(Ptx, WhatAGpuLeavesOpenIsAnError) {
  const std::string only_lane_0 = "setp.ne.s32 %p1, %r1, 0;\n@%p1 bra $end;\n";
  expect_error(only_lane_0 + "bar.warp.sync -1;\n$end:", "not all lanes of a warp are there");
  expect_error("setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $end;\nbar.sync 0;\n$end:", "not all threads of the block are there");
  expect_error("mov.u32 %r6, 1;\nredux.sync.add.u32 %r5, %r1, %r6;", "an operation of some lanes alone");
  expect_error("mov.u32 %r6, -1;\nshfl.sync.idx.b32 %r4, %r1, 3, 7199, %r6;", "a shuffle of part of a warp");
  expect_error("mov.u32 %r4, array;\nld.shared.u32 %r5, [%r4+256];", "where there is no array");
  expect_error("mov.u32 %r4, array;\nld.shared.u32 %r5, [%r4+-4];", "where there is no array");
  expect_error("ld.global.u32 %r5, [%rd1+2];", "at an address that is no multiple");
  expect_error("mov.u64 %rd2, 0;\nld.global.u32 %r5, [%rd2+8];", "an access to address 8");
  expect_error("trap;", "trap");
  expect_error("div.u32 %r2, %r1, 0;", "by 0");
  expect_error("mov.f32 %f1, 0f7F800000;\ncvt.rzi.s64.f32 %rd2, %f1;", "a conversion of inf to an integer of 8 bytes");
  expect_error("bra $end;\n$end:\nwgmma.commit_group.sync.aligned;", "wgmma is not in the order");
  expect_error("wgmma.fence.sync.aligned;", "wgmma was begun and not waited for");
}

TEST_F(Ptx, WhatIsNotKnownIsToldWithItsLine) {
  const auto expect_unknown = [&](const std::string& body, const std::string& message) {
    try {
      read(body);
      ADD_FAILURE() << body;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("kernel.ptx: line 18: " + message)) << body;
    }
  };
  expect_unknown("add.ftz.f32 %f1, %f1, %f1;", "'add.ftz.f32' is an instruction that is not known");
  expect_unknown("mov.u32 %r2, nowhere;", "'nowhere' is no operand");
  expect_unknown("$a: $a:", "'$a' is a label twice");
  expect_unknown("setp.eq.s32 %p1|%p2, %r1, 0;", "'|' is no operand");
}

TEST_F(Ptx, AGridThatNoGpuTakes) {
  const Program program = read("");
  const uint64_t parameter = 0;
  for (const device::Grid& grid :
       {device::Grid{0, 32}, device::Grid{1, 48}, device::Grid{1, 512}, device::Grid{int64_t{1} << 31, 32}})
    EXPECT_THROW(ptx::run(program, program.functions[0], grid, &parameter, sizeof parameter, device::MatrixUnits("h100")), Error);
}

}  // namespace
}  // namespace ulpscope::ptx
