// Storage, views and host transfers.
#include <gmock/gmock.h>

#include "tests/support/engine_fixture.h"
#include "ulpscope/base/error.h"

namespace ulpscope {
namespace {

using ::testing::ElementsAre;

class TensorTest : public EngineTest {};

TEST_F(TensorTest, HostValuesComeBackInRowMajorOrderFromEveryLayout) {
  std::vector<double> values(2 * 3 * 4 * 5);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i32})
    for (const Layout layout : {Layout::contiguous, Layout::channels_last})
      EXPECT_EQ(to_host(tensor(dtype, {2, 3, 4, 5}, values, layout)), values) << info(dtype).name;
}

TEST_F(TensorTest, ChannelsLastPutsChannelsNextToEachOther) {
  const std::vector<float> values{0, 1, 2, 3, 4, 5, 6, 7};  // two channels of 2x2
  const int64_t shape[] = {1, 2, 2, 2};
  const Tensor x = from_host(*backend_, DType::f32, shape, values, Layout::channels_last);
  const HostView host(x);
  const auto* memory = host.view().as<float>();
  EXPECT_THAT(std::vector<float>(memory, memory + 8), ElementsAre(0, 4, 1, 5, 2, 6, 3, 7));
  EXPECT_THAT(to_host(x), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_F(TensorTest, CopiesShareElementsAndStoragesAreNeverTheSame) {
  const Tensor x = random(DType::f32, {4});
  const Tensor same = x;  // NOLINT(performance-unnecessary-copy-initialization): what the test is about
  EXPECT_EQ(x.storage().serial(), same.storage().serial());
  const uint64_t serial = random(DType::f32, {4}).storage().serial();
  EXPECT_GT(random(DType::f32, {4}).storage().serial(), serial);
}

TEST_F(TensorTest, MemoryIsReturnedWithTheLastReference) {
  const size_t before = backend_->allocated_bytes();
  {
    const Tensor x = random(DType::f32, {1000});
    const Tensor view = transpose(reshape(x, std::vector<int64_t>{10, 100}));
    EXPECT_GE(backend_->allocated_bytes(), before + 4000);
  }
  EXPECT_EQ(backend_->allocated_bytes(), before);
}

TEST_F(TensorTest, InPlaceOpsRaiseTheVersion) {
  const Tensor x = random(DType::f32, {4});
  const uint32_t before = x.storage().version;
  call("accumulate", {x, x});
  EXPECT_GT(x.storage().version, before);
  EXPECT_EQ(to_host(x), to_host(scale(random(DType::f32, {4}), 2)));
}

TEST_F(TensorTest, ShapesThatCannotBeAreErrors) {
  EXPECT_THROW(empty(*backend_, DType::f32, std::vector<int64_t>{-1}), Error);
  EXPECT_THROW(empty(*backend_, DType::f32, std::vector<int64_t>{int64_t{1} << 40, int64_t{1} << 40}), Error);
  EXPECT_THROW(empty(*backend_, DType::f32, std::vector<int64_t>{1, 1, 1, 1, 1, 1, 1}), Error);
  EXPECT_THROW(tensor(DType::f32, {3}, {1, 2}), Error);
}

}  // namespace
}  // namespace ulpscope
