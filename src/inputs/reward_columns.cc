#include "inputs/reward_columns.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "reward/needed_columns.h"

namespace braid {
namespace {

constexpr int64_t kRowsLookedAt = 16;  // rows of a file may have other columns

}  // namespace

Status check_columns(const std::vector<std::unique_ptr<Reward>>& rewards,
                     const std::vector<RewardOptions>& options, const DataSet& data) {
  std::set<std::string> there;
  for (int64_t position = 0; position < std::min(kRowsLookedAt, data.size()); ++position) {
    BRAID_ASSIGN(const DataRecord record, data.at(position));
    for (const auto& item : record.extra.items()) there.insert(item.key());
  }
  for (size_t i = 0; i < rewards.size(); ++i) {
    const auto* const reader = dynamic_cast<const NeedsColumns*>(rewards[i].get());
    if (reader == nullptr) continue;
    for (const std::string& column : reader->needed_columns()) {
      if (there.count(column) > 0) continue;
      const std::vector<std::string> names(there.begin(), there.end());
      return invalid_input(
          cat("reward '", reward_name(options[i]), "': the parameter '", column,
              "' of the function has no default, and the data have no column of that name",
              did_you_mean(column, names), " (columns beside the prompt: ",
              names.empty() ? "none" : join(names, ", "), "); add it, or give it in kwargs"));
    }
  }
  return ok_status();
}

}  // namespace braid
