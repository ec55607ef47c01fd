// Tables of text. Pure.
#pragma once

#include <string>
#include <vector>

namespace braid::inline advise {

// Columns as wide as their longest cell, two blanks apart; the last column is not padded. REQUIRES:
// at least one row, all of the length of `to_the_right`.
std::string aligned_table(const std::vector<std::vector<std::string>>& rows,
                          const std::vector<bool>& to_the_right);

}  // namespace braid::inline advise
