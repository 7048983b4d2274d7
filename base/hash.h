// 64-bit hashes that are the same on every machine and in every run: ids in traces are made of them.
#pragma once

#include <cstdint>
#include <string_view>

namespace ulpscope {

// FNV-1a.
constexpr uint64_t hash_text(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  return hash;
}

// The finaliser of SplitMix64 over both words: depends on their order.
constexpr uint64_t hash_combine(uint64_t left, uint64_t right) {
  uint64_t z = (left ^ (right * 0x9E3779B97F4A7C15)) + 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace ulpscope
