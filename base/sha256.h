// SHA-256 (FIPS 180-4), by which a document names what it may run.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace ulpscope {

std::array<uint8_t, 32> sha256(std::string_view text);

// As content security policies write it: in base 64.
std::string sha256_base64(std::string_view text);

}  // namespace ulpscope
