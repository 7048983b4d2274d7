// Against the examples of FIPS 180-4 and NIST, and lengths around that of a block.
#include "ulpscope/base/sha256.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace ulpscope {
namespace {

std::string hexadecimal(std::string_view text) {
  std::string digits;
  for (const uint8_t byte : sha256(text)) digits += fmt::format("{:02x}", byte);
  return digits;
}

TEST(Sha256, IsThatOfTheStandard) {
  EXPECT_EQ(hexadecimal(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hexadecimal("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hexadecimal("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hexadecimal(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(sha256_base64("abc"), "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
}

}  // namespace
}  // namespace ulpscope
