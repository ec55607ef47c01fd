// Counter-based random numbers: a value is a pure function of (seed, stream, index), so results do
// not depend on the order in which they are drawn. Philox4x32-10 (Salmon et al., SC'11, "Parallel
// random numbers: as easy as 1, 2, 3").
#pragma once

#include <array>
#include <cstdint>

namespace braid::inline base {

// Four 32-bit words for a 128-bit counter under a 64-bit key.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Uniform 64-bit word of (seed, stream, index).
uint64_t random_u64(uint64_t seed, uint64_t stream, uint64_t index);
// Uniform double in [0, 1) with 53 random bits.
double random_unit(uint64_t seed, uint64_t stream, uint64_t index);
// Standard normal by Box-Muller on the words of one counter.
double random_normal(uint64_t seed, uint64_t stream, uint64_t index);

// Well-mixed combination of two words, for deriving one seed from another.
uint64_t mix_seed(uint64_t a, uint64_t b);

// A sequential view of one stream: the i-th call returns the value of index i. Satisfies
// UniformRandomBitGenerator.
class RandomStream {
 public:
  using result_type = uint64_t;
  RandomStream(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~uint64_t{0}; }
  uint64_t operator()() { return random_u64(seed_, stream_, index_++); }
  double unit() { return random_unit(seed_, stream_, index_++); }
  double normal() { return random_normal(seed_, stream_, index_++); }
  // Uniform in [0, bound); bound > 0. The bias of the multiply-shift is below bound / 2^64.
  uint64_t below(uint64_t bound);
  uint64_t index() const { return index_; }
  void seek(uint64_t index) { index_ = index; }

 private:
  uint64_t seed_;
  uint64_t stream_;
  uint64_t index_ = 0;
};

}  // namespace braid::inline base
