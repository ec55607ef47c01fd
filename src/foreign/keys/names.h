// What TRL, verl, OpenRLHF and papers call algorithms, and what each is here. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "foreign/keys/key_values.h"

namespace braid::inline foreign_keys {

// The lines that say a foreign name of an algorithm here, or why nothing does (kNothing); kNone for
// a name that nobody uses, and for one whose algorithm is not among `algorithms`.
ForeignAdvice algorithm_advice(const std::string& name, const std::vector<std::string>& algorithms);

// What an error adds behind an unknown name: "; write 'algorithm.name: dpo' and
// 'algorithm.preference_loss: ipo'", why it has no counterpart, the nearest name, or nothing.
std::string algorithm_hint(const std::string& name, const std::vector<std::string>& algorithms);

}  // namespace braid::inline foreign_keys
