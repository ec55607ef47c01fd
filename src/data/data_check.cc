#include "data/data_check.h"

#include <sys/resource.h>
#include <unistd.h>

#include <exception>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "host/progress.h"

namespace braid::inline data {
namespace {

constexpr int64_t kReportedRows = 100;
constexpr int kNiceness = 10;  // training comes first

}  // namespace

DataCheck::DataCheck(const DataSet& data)
    : data_(data), forms_(data.forms_), thread_([this] { run(); }) {}

DataCheck::~DataCheck() {
  stopping_ = true;
  thread_.join();
}

std::vector<BadRow> DataCheck::take_bad_rows() {
  const std::lock_guard lock(mutex_);
  return std::exchange(new_bad_rows_, {});
}

std::string DataCheck::sha256() const {
  const std::lock_guard lock(mutex_);
  return sha256_;
}

Status DataCheck::check(std::string_view line, int64_t index, const std::string& where) {
  const auto record = data_.parse_checked(line, where);
  if (record.ok()) {
    DataSet::add_to_sum(line, *record, *data_.open_sum_);
    if (const std::string odd = forms_.note(*record, where); !odd.empty()) log_warning(odd);
    return ok_status();
  }
  if (++bad_rows_ > kReportedRows) return ok_status();
  const std::lock_guard lock(mutex_);
  new_bad_rows_.push_back({index, record.status().message()});
  return ok_status();
}

Status DataCheck::check_rest() {
  int64_t index = data_.checked_;
  BRAID_TRY(
      data_.rows_.for_each([&](std::string_view line, int64_t place, const std::string& where) {
        if (stopping_) return Status(Code::kStopped, "the data set is no longer needed");
        const bool wanted = index < data_.size() && place == data_.places_[index];
        return wanted ? check(trim(line), index++, where) : ok_status();
      }));
  if (index == data_.size()) return ok_status();
  return {Code::kDataLoss, cat(data_.rows_.describe(data_.places_[index]),
                               ": it was changed since the data was loaded")};
}

void DataCheck::run() {
  work_beside();
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNiceness);
  Status checked;
  try {
    checked = check_rest();
  } catch (const std::exception& error) {  // memory
    checked = {Code::kOutOfMemory, error.what()};
  }
  if (stopping_) return;
  const std::lock_guard lock(mutex_);
  if (checked.ok() && bad_rows_ == 0) sha256_ = data_.open_sum_->hex();
  if (!checked.ok()) log_warning(cat("data.train: not all rows are checked: ", checked.message()));
  done_ = true;
}

}  // namespace braid::inline data
