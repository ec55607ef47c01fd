#include "advise/table.h"

#include <algorithm>

#include "base/text.h"

namespace braid::inline advise {

std::string aligned_table(const std::vector<std::vector<std::string>>& rows,
                          const std::vector<bool>& to_the_right) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      if (to_the_right[i]) out += space;
      out += row[i];
      if (i + 1 < row.size()) out += (to_the_right[i] ? "" : space) + "  ";
    }
    out += "\n";
  }
  return out;
}

std::string step_text(double seconds) { return cat(fixed_text(seconds, 3), " s"); }

}  // namespace braid::inline advise
