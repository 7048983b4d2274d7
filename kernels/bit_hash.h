// The bit hash of a tensor: which bits it has, and where. The bytes of its elements in logical (row-major) order are cut into
// blocks of kBitHashBytes, the last one filled up with zeros, and these into little-endian words of 32 bits. Word w of a block
// times a coefficient of its own, summed modulo 2^64, is the block's sum; the sums are mixed with the blocks' numbers and added up,
// modulo 2^64 too, and the total is mixed with the number of bytes. Any order gives the same hash, so neither layout nor threads
// matter.
//
// Coefficients are odd numbers of 64 bits, so that a change of one word changes the hash. Changes of several words, whose sum of
// coefficients times changes would have to vanish, cancel once in 2^64; where all of them are multiples of 2^k, as of BF16 numbers
// in the upper halves of words, once in 2^(64-k). It is no cryptographic hash.
#pragma once

#include <cstdint>

#include "ulpscope/base/hash.h"
#include "ulpscope/base/parallel_for.h"
#include "ulpscope/kernels/op_call.h"
#include "ulpscope/kernels/view.h"

namespace ulpscope {

inline constexpr int64_t kBitHashBytes = 4096;
inline constexpr int64_t kBitHashWords = kBitHashBytes / 4;

// The coefficient of word `word` of a block.
constexpr uint64_t bit_hash_coefficient(int64_t word) { return hash_combine(0x62697473, static_cast<uint64_t>(word)) | 1; }
// The term that a block adds to the total.
constexpr uint64_t bit_hash_of_block(int64_t block, uint64_t sum) { return hash_combine(sum, static_cast<uint64_t>(block)); }
constexpr uint64_t bit_hash_of_total(uint64_t total, int64_t bytes) { return hash_combine(total, static_cast<uint64_t>(bytes)); }

uint64_t bit_hash_of(const TensorView& view, const ParallelFor& parallel_for = serial_for);
// Hashes element by element, as a plain twin.
uint64_t reference_bit_hash(const TensorView& view);

// Computes the hashes that a call wants of its outputs and that are not known yet, after it.
void hash_outputs(const OpCall& call, const ParallelFor& parallel_for = serial_for);

}  // namespace ulpscope
