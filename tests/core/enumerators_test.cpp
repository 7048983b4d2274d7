#include "ulpscope/core/settings/enumerators.h"

#include <gmock/gmock.h>

#include "ulpscope/base/error.h"

namespace ulpscope {
namespace {

enum class Season : uint8_t { spring, summer, autumn, winter };
const char* name_of(Season season) {
  static constexpr const char* kNames[] = {"spring", "summer", "autumn", "winter"};
  return kNames[static_cast<size_t>(season)];
}

static_assert(is_enumerator<Season::winter>());
static_assert(!is_enumerator<static_cast<Season>(4)>());
static_assert(count_enumerators<Season>() == 4);

TEST(Enumerators, AreFoundByTheirNames) {
  EXPECT_THAT(enumerator_names<Season>(), ::testing::ElementsAre("spring", "summer", "autumn", "winter"));
  EXPECT_EQ(find_enumerator<Season>("winter"), Season::winter);
  EXPECT_THROW(find_enumerator<Season>("monsoon"), Error);
}

}  // namespace
}  // namespace ulpscope
