// Which rank holds which values of a step's fields, and bringing values to the ranks that need
// them: each once, and only there. Every rank keeps the same account, because all ranks note the
// same writes and ask for the same moves in the same order; nothing is negotiated. Not thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "runtime/sample_store.h"

namespace braid {

// Rows that one rank sends to another.
struct FieldMove {
  int64_t from = 0, to = 0;
  Rows rows;
  friend bool operator==(const FieldMove&, const FieldMove&) = default;
};

// Moves that give every rank the rows that it needs and lacks, in one order for all ranks; of
// several holders the one that sends least so far sends, so that none of them sends all. `sizes`
// are the values of each row. A row that nobody holds is left out. [rank][row] and [rank] of rows.
std::vector<FieldMove> plan_field_moves(const std::vector<std::vector<bool>>& held,
                                        const std::vector<Rows>& needed,
                                        const std::vector<int64_t>& sizes);

class FieldExchange {
 public:
  // `everyone` is the group of all ranks of the job, or null for a job of one rank. REQUIRES: both
  // outlive this.
  FieldExchange(Communicator* everyone, SampleStore& store) : everyone_(everyone), store_(store) {}

  Communicator* everyone() const { return everyone_; }
  int64_t ranks() const { return everyone_ == nullptr ? 1 : everyone_->size(); }
  int64_t rank() const { return everyone_ == nullptr ? 0 : everyone_->index(); }

  // A new step: nobody holds anything.
  void begin();
  // These rows of the field were written, [rank].
  void note(const std::string& field, const std::vector<Rows>& written);
  // Brings rows of the field to the ranks that need them, [rank]. Every rank must call it.
  Status bring(const Field& field, const std::vector<Rows>& needed);
  // All rows to all ranks.
  Status share(const Field& field);
  // As SampleStore::retain, for the account.
  void retain(const std::vector<bool>& kept);

  // A field of counts, from the ranks that have them, to all: what later payloads and the dealing
  // of samples are computed from.
  Status share_counts(const Field& field);
  // The text of every rank, on every rank.
  Result<std::vector<std::string>> gather_text(const std::string& mine, const std::string& what);

 private:
  at::Tensor packed(const Field& field, const Rows& rows) const;
  at::Tensor room(const Field& field, const Rows& rows) const;
  Status put(const Field& field, const Rows& rows, const at::Tensor& values);
  std::vector<int64_t> value_counts(const Field& field) const;

  Communicator* everyone_;
  SampleStore& store_;
  std::map<std::string, std::vector<std::vector<bool>>> held_;  // [rank][row]
};

}  // namespace braid
