// Checks the rows of a large data set that its loading left, on a thread of its own and with little
// of the machine, while training goes on. The data set is only read. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "data/dataset.h"

namespace braid::inline data {

struct BadRow {
  int64_t index = 0;    // of DataSet::record()
  std::string message;  // begins with the place
};

class DataCheck {
 public:
  // Begins at once. REQUIRES: `data` outlives this, and has no other one.
  explicit DataCheck(const DataSet& data);
  // Stops it.
  ~DataCheck();
  DataCheck(const DataCheck&) = delete;
  DataCheck& operator=(const DataCheck&) = delete;

  // The bad rows that were found since the last call; of more than 100 in all the others are only
  // counted.
  std::vector<BadRow> take_bad_rows();
  int64_t bad_rows() const { return bad_rows_; }

  // All rows were looked at.
  bool done() const { return done_; }
  // DataSet::sha256() as loading would have found it; "" before the end and where a row is bad.
  std::string sha256() const;

 private:
  void run();
  Status check_rest();
  Status check(std::string_view line, int64_t index, const std::string& where);

  const DataSet& data_;
  RowForms forms_;
  std::atomic<bool> stopping_{false}, done_{false};
  std::atomic<int64_t> bad_rows_{0};
  mutable std::mutex mutex_;  // of what follows
  std::vector<BadRow> new_bad_rows_;
  std::string sha256_;
  std::thread thread_;  // last: begins when all else is there
};

}  // namespace braid::inline data
