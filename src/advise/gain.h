// When a configuration that a user already runs is left alone. Pure.
#pragma once

namespace braid::inline advise {

inline constexpr double kNothingToGain = 0.03;  // of the best step

// Whether a step of `given_s` is as good as the best known, of `best_s`.
inline bool nothing_to_gain(double given_s, double best_s) {
  return given_s <= best_s * (1 + kNothingToGain);
}

}  // namespace braid::inline advise
