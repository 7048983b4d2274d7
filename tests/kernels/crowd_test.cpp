// What the watch for other processes decides by; that threads sleep where it finds them is libgomp's part.
#include "ulpscope/kernels/cpu/crowd.h"

#include <gtest/gtest.h>

#include "tests/support/variable_scope.h"

namespace ulpscope::cpu {
namespace {

TEST(Crowd, ReadsWhatAThreadRanAndWaited) {
  const auto read = Scheduled::of("2100000000 300000000 41\n");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->ran, 2.1e9);
  EXPECT_EQ(read->waited, 3e8);
  for (const char* damaged : {"", "12", "x y z"}) EXPECT_FALSE(Scheduled::of(damaged)) << damaged;
}

// Shares of the time in which two threads could run that they waited for a core: measured on an idle machine 0.03 for threads that
// spin and up to 0.2 for threads that sleep and are woken; beside a busy process on each core 0.5.
TEST(Crowd, IsThereWhereThreadsWaitForCores) {
  const auto crowded = [](bool before, double share) { return is_crowded(before, {1e8 * (1 - share), 1e8 * share}); };
  EXPECT_FALSE(crowded(false, 0.03));
  EXPECT_TRUE(crowded(false, 0.5));
  EXPECT_TRUE(crowded(false, 0.25)) << "one busy process on two cores";
  EXPECT_FALSE(crowded(true, 0.2)) << "else a crowd would never end";
  EXPECT_TRUE(crowded(true, 0.5));
}

TEST(Crowd, IsNotFoundWhereNothingRan) {
  EXPECT_FALSE(is_crowded(false, {0, 0}));
  EXPECT_FALSE(is_crowded(true, {0, 0}));
  EXPECT_FALSE(is_crowded(false, {-1e9, 0})) << "a thread ended, and its time left the sum";
  EXPECT_FALSE(is_crowded(true, {-1e9, -1e8}));
}

TEST(Crowd, LeavesWaitingToTheEnvironment) {
  {
    const VariableScope waits("OMP_WAIT_POLICY", "active");
    EXPECT_EQ(Crowd::watched_for(2), nullptr);
  }
  EXPECT_EQ(Crowd::watched_for(1), nullptr);
}

TEST(Crowd, EndsWhileItWatches) {
  for (int i = 0; i < 3; ++i) Crowd watch(2);
}

}  // namespace
}  // namespace ulpscope::cpu
