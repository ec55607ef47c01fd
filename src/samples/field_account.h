// Executes the exchanges of a step: who holds which rows of which field is the same account on all
// ranks, because each of them notes every exchange of the program before the one that it is at. Not
// thread-safe.
#pragma once

#include <map>
#include <vector>

#include "comm/transfer_count.h"
#include "program/exchange_walk.h"
#include "samples/field_exchange.h"

namespace braid::inline samples {

class FieldAccount {
 public:
  // Of the calls that work so many steps ahead. REQUIRES: all outlive this.
  FieldAccount(const Program& program, RowsByRank& rows, FieldExchange& exchange,
               int64_t steps_ahead = 0)
      : program_(program),
        rows_(rows),
        exchange_(exchange),
        walk_(
            program, rows, exchange.holdings(),
            [&exchange](const std::vector<Field>& fields) { return exchange.known(fields); },
            steps_ahead) {}

  // Of new samples: nothing is written.
  void begin();
  // Whether the samples of an exchange are those of this account.
  bool has_samples_of(const Exchange& exchange) const { return walk_.follows(exchange); }
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
  void note_written(CallId call, int64_t step, SamplePart part = SamplePart::kAll) {
    walk_.note_written(call, step, part);
  }

 private:
  // What this rank gives and receives in an exchange.
  TransferCounts listed(int32_t entry, int64_t step);
  // Likewise in the collective of a share.
  TransferCounts listed_share(const Exchange& shared) const;
  // The rows of which each rank says what the model of a reward call gave, [rank].
  std::vector<Rows> tellers_of(CallId call, int64_t step);
  const Call& producer_of(const Exchange& exchange) const {
    return program_.graph.calls[exchange.producer.value];
  }

  const Program& program_;
  RowsByRank& rows_;
  FieldExchange& exchange_;
  ExchangeWalk walk_;
};

}  // namespace braid::inline samples
