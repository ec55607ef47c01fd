// Follows a program's table of exchanges through a step: who has written and who holds which rows
// when a rank comes to an entry, and what that moves. One walk for the runtime, which has the
// samples, and for the simulator and emulated devices, which draw them. Not thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "program/exchange.h"
#include "program/rows_by_rank.h"

namespace braid::inline program {

// REQUIRES: a call writes it.
const Field& field_of(const Graph& graph, const std::string& name);
std::vector<Field> fields_of(const Graph& graph, const Exchange& exchange);

class ExchangeWalk {
 public:
  // Of some fields those that move, with the numbers that each row has of them.
  using NumbersOf = std::function<std::vector<MovedField>(const std::vector<Field>&)>;
  // Of the calls that work so many steps ahead; none said: of all. `holdings` is the account that
  // the walk writes. REQUIRES: all outlive this.
  ExchangeWalk(const Program& program, RowsByRank& rows, FieldHoldings& holdings, NumbersOf numbers,
               std::optional<int64_t> steps_ahead = {});

  // Of new samples: nothing is written.
  void begin();
  // Whether the samples of an exchange are those of this walk.
  bool follows(const Exchange& exchange) const;
  // What a call has written is on the ranks that it was computed on. Once for each call, or part of
  // its samples; false where there is nothing to note. Of what a call made in an earlier step the
  // account is there already.
  bool note_written(CallId call, int64_t step, SamplePart part = SamplePart::kAll);
  // All exchanges before an entry count as made.
  void come_to(int32_t entry, int64_t step);
  // An entry that all ranks have made together.
  void pass(int32_t entry) { next_ = entry + 1; }

  // What an exchange that was come to moves.
  struct Moves {
    std::vector<MovedField> fields;
    std::vector<FieldMove> moves;  // that give every rank what it needs and lacks
  };
  // The moves count as made.
  Moves make(int32_t entry, int64_t step);
  // Those that make() would return.
  Moves listed(int32_t entry, int64_t step);

 private:
  // What the producer of an exchange has written by then.
  void note_given(const Exchange& exchange, int64_t step);
  Moves moves_in(const Exchange& exchange, int64_t step, FieldHoldings* holdings);

  const Program& program_;
  RowsByRank& rows_;
  FieldHoldings& holdings_;
  const NumbersOf numbers_;
  const std::optional<int64_t> steps_ahead_;
  int32_t next_ = 0;                                 // entry that is not made
  std::set<std::pair<CallId, SamplePart>> written_;  // whose results the account has
};

}  // namespace braid::inline program
