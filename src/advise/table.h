// Tables of text, and what stands in them. Pure.
#pragma once

#include <string>
#include <vector>

namespace braid::inline advise {

// Columns as wide as their longest cell, two blanks apart; the last column is not padded. REQUIRES:
// at least one row, all of the length of `to_the_right`.
std::string aligned_table(const std::vector<std::vector<std::string>>& rows,
                          const std::vector<bool>& to_the_right);

// "17.477 s": as many digits as a prediction can mean, in one unit.
std::string step_text(double seconds);

}  // namespace braid::inline advise
