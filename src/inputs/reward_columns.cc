#include "inputs/reward_columns.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "reward/needed_columns.h"

namespace braid::inline inputs {
namespace {

// Most data have a column in every row; only where one is missing in the first are more read.
constexpr int64_t kRowsReadFirst = 16;
constexpr int64_t kRowsReadAtMost = 100000;

// The columns beside the prompt that rows have, as far as they were read.
class SeenColumns {
 public:
  explicit SeenColumns(const DataSet& data) : data_(data) {}

  // Reads on until a row has the column, or enough were read.
  Result<bool> has(const std::string& column) {
    BRAID_TRY(read(kRowsReadFirst));
    while (names_.count(column) == 0 && read_ < std::min(kRowsReadAtMost, data_.size()))
      BRAID_TRY(read(read_ + 1));
    return names_.count(column) > 0;
  }
  bool read_all() const { return read_ == data_.size(); }
  std::vector<std::string> names() const { return {names_.begin(), names_.end()}; }

 private:
  Status read(int64_t rows) {
    for (; read_ < std::min(rows, data_.size()); ++read_) {
      BRAID_ASSIGN(const DataRecord record, data_.at(read_));
      for (const auto& item : record.extra.items()) names_.insert(item.key());
    }
    return ok_status();
  }

  const DataSet& data_;
  int64_t read_ = 0;
  std::set<std::string> names_;
};

}  // namespace

Status check_columns(const std::vector<std::unique_ptr<Reward>>& rewards,
                     const std::vector<RewardOptions>& options, const DataSet& data) {
  SeenColumns seen(data);
  for (size_t i = 0; i < rewards.size(); ++i) {
    const auto* const reader = dynamic_cast<const NeedsColumns*>(rewards[i].get());
    if (reader == nullptr) continue;
    for (const std::string& column : reader->needed_columns()) {
      BRAID_ASSIGN(const bool there, seen.has(column));
      if (there || !seen.read_all()) continue;
      const std::vector<std::string> names = seen.names();
      return invalid_input(
          cat("reward '", reward_name(options[i]), "': the parameter '", column,
              "' of the function has no default, and the data have no column of that name",
              did_you_mean(column, names), " (columns beside the prompt: ",
              names.empty() ? "none" : join(names, ", "), "); add it, or give it in kwargs"));
    }
  }
  return ok_status();
}

}  // namespace braid::inline inputs
