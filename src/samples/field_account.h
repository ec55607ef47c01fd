// Executes the exchanges of a step: who holds which rows of which field is the same account on all
// ranks, because each of them notes every exchange of the program before the one that it is at. Not
// thread-safe.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "comm/transfer_count.h"
#include "program/program.h"
#include "samples/field_exchange.h"
#include "samples/rows_by_rank.h"

namespace braid::inline samples {

class FieldAccount {
 public:
  // Of the calls that work so many steps ahead. REQUIRES: all outlive this.
  FieldAccount(const Program& program, RowsByRank& rows, FieldExchange& exchange,
               int64_t steps_ahead = 0)
      : program_(program), rows_(rows), exchange_(exchange), steps_ahead_(steps_ahead) {}

  // Of new samples: nothing is written.
  void begin();
  // What this rank sends and receives in an exchange or a share of the program that is next.
  TransferCounts transfers(int32_t entry, int64_t step);
  // Begins the moves of an exchange of the program in step `step`.
  Status begin_exchange(int32_t entry, int64_t step);
  // An exchange that all ranks have made together.
  void note_shared(int32_t entry, int64_t step);
  // Gives all rows of the fields of a share to all ranks; what each of them says beside, [rank]:
  // zeros where this one is given no words for it.
  Result<std::vector<std::vector<int32_t>>> share(const Exchange& shared, int64_t step,
                                                  SaidBeside beside = {});
  // The rows of which this rank says in a share what the call has found.
  Rows said_in(const Exchange& shared, int64_t step);
  // What the model of a reward call gave, by row, on all ranks, before its share. `mine`: of the
  // rows of this rank (RowsByRank::told_by_rank()). REQUIRES: tells_scores(its call).
  Result<std::map<size_t, double>> tell_scores(const Exchange& shared, int64_t step,
                                               const std::map<size_t, double>& mine);
  // What a call has written is on the ranks that it was computed on. Once for each call, or part of
  // its samples. Of what a call made in an earlier step the account is there already.
  void note_written(CallId call, int64_t step, SamplePart part = SamplePart::kAll);

 private:
  // All of the program's exchanges before an entry.
  void account(int32_t entry, int64_t step);
  // Whether the samples of an exchange are those of this account.
  bool has_samples_of(const Exchange& exchange) const;
  // The rows that each rank must have when an exchange has ended.
  std::vector<SampleRows> needed_in(const Exchange& exchange, int64_t step) {
    return rows_.read_by_rank(exchange.consumer, step, exchange.part);
  }
  // What this rank gives and receives for that.
  TransferCounts listed(const Exchange& exchange, const std::vector<SampleRows>& needed) const;
  // Likewise in the collective of a share.
  TransferCounts listed_share(const Exchange& shared) const;
  const Call& producer_of(const Exchange& exchange) const {
    return program_.graph.calls[exchange.producer.value];
  }

  const Program& program_;
  RowsByRank& rows_;
  FieldExchange& exchange_;
  const int64_t steps_ahead_;
  int32_t accounted_ = 0;                            // exchanges of the step that the account has
  std::set<std::pair<CallId, SamplePart>> written_;  // whose results it has
};

}  // namespace braid::inline samples
