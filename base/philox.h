// Philox4x32-10, the counter-based random generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
// Every number is a pure function of (seed, stream, element): changing or recomputing one consumer moves no other's numbers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ulpscope {

// What a round multiplies the first and the third word by, and what is added to each word of the key after a round.
inline constexpr std::array<uint32_t, 2> kPhiloxMultipliers{0xD2511F53, 0xCD9E8D57}, kPhiloxKeySteps{0x9E3779B9, 0xBB67AE85};

// Philox4x32 on `counter` under `key`. Ten rounds are what is called Philox4x32-10; seven are the least that the authors found no
// test of TestU01's BigCrush to fail (table 2).
template <int kRounds = 10>
constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kPhiloxMultipliers[0]} * counter[0];
    const uint64_t product1 = uint64_t{kPhiloxMultipliers[1]} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    // By numbers that are constants, as device code has to be: it does not have the host's arrays, nor an address of its registers.
    key[0] += kPhiloxKeySteps[0];
    key[1] += kPhiloxKeySteps[1];
  }
  return counter;
}

// The numbers of one (seed, stream). A stream names what the numbers are for: a parameter, a step of a dataset, an op's id.
template <int kRounds>
class PhiloxStream {
 public:
  constexpr PhiloxStream(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}

  // 32 uniform bits for `element`.
  constexpr uint32_t bits(uint64_t element) const {
    const std::array<uint32_t, 4> words = four_bits(element >> 2);
    const bool is_later = (element & 2) != 0;
    const uint32_t even = is_later ? words[2] : words[0], odd = is_later ? words[3] : words[1];
    return (element & 1) != 0 ? odd : even;
  }

  // Those of the elements 4 * block to 4 * block + 3, at the cost of one.
  constexpr std::array<uint32_t, 4> four_bits(uint64_t block) const {
    return philox4x32<kRounds>({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(stream_),
                                static_cast<uint32_t>(stream_ >> 32)},
                               {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
  }

  // Uniform in [0, 1), a multiple of 2^-24, so exact in FP32.
  constexpr float uniform(uint64_t element) const { return uniform_of(bits(element)); }
  static constexpr float uniform_of(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

  // Standard normal, by Box and Muller from the numbers 2*element and 2*element + 1.
  double normal(uint64_t element) const;

  // Uniform integer in [0, bound), bound > 0. The bias is below bound / 2^32.
  constexpr uint32_t below(uint64_t element, uint32_t bound) const {
    return static_cast<uint32_t>((uint64_t{bits(element)} * bound) >> 32);
  }

 private:
  uint64_t seed_, stream_;
};

extern template class PhiloxStream<10>;
using Philox = PhiloxStream<10>;

}  // namespace ulpscope
