#include "base/rng.h"

#include <cmath>
#include <numbers>

namespace braid::inline base {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;

std::array<uint32_t, 4> words_at(uint64_t seed, uint64_t stream, uint64_t index) {
  return philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                 static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

uint64_t word64(uint32_t high, uint32_t low) { return (uint64_t{high} << 32) | low; }
double unit_of(uint64_t word) { return static_cast<double>(word >> 11) * 0x1.0p-53; }

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

uint64_t random_u64(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto words = words_at(seed, stream, index);
  return word64(words[0], words[1]);
}

double random_unit(uint64_t seed, uint64_t stream, uint64_t index) {
  return unit_of(random_u64(seed, stream, index));
}

double random_normal(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto words = words_at(seed, stream, index);
  const double radius = std::sqrt(-2 * std::log(1 - unit_of(word64(words[0], words[1]))));
  return radius * std::cos(2 * std::numbers::pi * unit_of(word64(words[2], words[3])));
}

uint64_t mix_seed(uint64_t a, uint64_t b) { return random_u64(a, b, 0x5bd1e995); }

uint64_t RandomStream::below(uint64_t bound) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>((*this)()) * bound) >> 64);
}

}  // namespace braid::inline base
