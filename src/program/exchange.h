// Which fields of samples move between ranks, and the rule that says which rows: one for the
// runtime, which knows the samples, and for the simulator and emulated devices, which draw them.
// Pure.
//
// What a call found that decides which samples there are and who works on them (how long rows of
// the data are, lengths, rewards and who is dropped, the state of an algorithm) goes to all ranks
// in a share, which stands before the first call that waits for it: calls that do not pass beside
// it, over the samples as they were. What a fetch has read is shared at once: before that a step
// has no samples. What else a call writes goes to the ranks of each call that reads it: an exchange
// for each reader, as soon as the rows of that reader are settled, which runs beside what ranks
// compute; the reader waits for it. A rank reads what it needs of the data, so that nothing else of
// a fetch moves.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "program/partition.h"
#include "program/program.h"

namespace braid::inline program {

// A call of the graph that ends with a share.
bool ends_with_share(const Call& call);
// The fields that it shares: counts, which responses were cut, rewards.
std::vector<std::string> shared_fields(const Call& call);

// Numbers that the rank which has read a row of the data tells all others in the share of a fetch:
// how long its prompt and its responses are, and what else decides which samples there are.
// `samples`: of a prompt, where responses are generated.
int64_t told_numbers(const Call& fetch, int64_t samples);
// How many each rank tells there, [rank], of `prompts` rows, of which each has read an even share:
// words_beside() it, then those of its rows.
std::vector<int64_t> told_by_ranks(const Call& fetch, int64_t prompts, int64_t samples,
                                   int64_t ranks);
// The collective in which they do, and its bytes; none for one rank.
struct ToldByAll {
  OpKind kind = OpKind::kAllGather;
  int64_t bytes = 0;
};
std::optional<ToldByAll> told_in_fetch(const Call& fetch, int64_t prompts, int64_t samples,
                                       int64_t ranks);
// Whether what all ranks say is summed, each in its place, and not gathered in rooms of the longest
// piece: in a ring a sum passes each byte twice.
inline bool sums_pieces(int64_t total, int64_t longest, int64_t ranks) {
  return 2 * total < ranks * longest;
}

// The calls that a call waits for, in order: those of dependencies() and the shares before it,
// which settle what samples there are.
std::vector<std::vector<CallId>> waited_for(const Graph& graph);
// The calls whose shares stand before each place of an order of calls, and after its end: [place].
std::vector<std::vector<CallId>> shares_before(const Graph& graph,
                                               const std::vector<CallId>& order);
// By call, in the graph's order: the call before which its share stands, at most their number.
std::vector<int32_t> shared_before(const Graph& graph);
// The first share of a fetch among a program's exchanges; -1: it has none.
int32_t share_of_fetch(const Program& program);

// The fields of `producer` that come to `consumer` in an exchange; none where nothing does. Beside
// what the consumer reads these are what runs record of samples and compare.
std::vector<std::string> exchanged_fields(const Graph& graph, CallId producer, CallId consumer);
// The call after which that exchange stands: after its share, where it has one; of what was made in
// an earlier step, the first call. `shared`: shared_before().
CallId exchanged_after(const Graph& graph, const std::vector<int32_t>& shared, CallId producer,
                       CallId consumer);
// Ranks of both calls, ascending.
std::vector<DeviceId> exchange_members(const Program& program, CallId producer, CallId consumer);

// Rows that each rank works on in a call, [rank]: of `samples` rows, those that its data-parallel
// rank owns, `owned`. Generation: the prompts of its replica. Calls without a model own nothing:
// all rows on each of their ranks.
std::vector<SampleRows> rows_by_rank(const Program& program, CallId call, int64_t samples,
                                     std::vector<SampleRows> owned);
// What each data-parallel rank of a call owns, [dp rank], on the rank that speaks for it, [rank].
std::vector<SampleRows> on_heads(const Program& program, CallId call,
                                 const std::vector<SampleRows>& owned);

// The call beside whose samples a reward call asks its list: itself, where it has a model, else the
// generation.
CallId asked_beside(const Graph& graph, CallId reward);
// The rows about which each rank asks the list of rewards, [rank]. A group stays together, since a
// reward may compare its samples, where its first sample is: on the rank that speaks for the
// data-parallel rank which owns that, `owned`, in the call that the list is asked beside. Where the
// list compares all samples of a step, or nobody owns any, the first rank of the reward call has
// them all. `groups`: by row.
std::vector<SampleRows> scored_by_rank(const Program& program, CallId reward,
                                       const std::vector<int64_t>& groups,
                                       const std::vector<SampleRows>& owned);

// Of the rows that it works on those whose results a rank has at the end: of a pipeline the last
// stage, of a reward call those about which it asks the list, `scored`.
std::vector<SampleRows> written_by_rank(const Program& program, CallId call,
                                        std::vector<SampleRows> rows,
                                        const std::vector<SampleRows>& scored);
// The rows that each rank must have of what a call reads: of a reward call those about which it
// asks the list, `scored`, beside what its model is given.
std::vector<SampleRows> read_by_rank(const Program& program, CallId call,
                                     std::vector<SampleRows> rows,
                                     const std::vector<SampleRows>& scored);

// Numbers that each rank says of itself in the share of a call, beside its fields: whether it has
// failed; of a reward also how many samples had no answer in time or an error, of a compute call
// that needs sums of the step its own sums. None where a call shares what has been agreed on.
inline constexpr int64_t kWordsOfSums = 31;
int64_t words_beside(const Call& call);
// Whether the ranks of a reward call tell all what its model gave, before they ask the list.
bool tells_scores(const Call& call);

// A field that moves, and the numbers that each row has of it.
struct MovedField {
  std::string name;
  std::vector<int64_t> numbers;
};

// What one rank sends to another in one message: rows of each field, [field]; no two moves have the
// same ranks.
struct FieldMove {
  int32_t from = 0, to = 0;
  std::vector<SampleRows> rows;
  friend bool operator==(const FieldMove&, const FieldMove&) = default;
};

// Which rank holds which rows of which fields. Whoever is told the same in the same order says the
// same. Not thread-safe.
class FieldHoldings {
 public:
  explicit FieldHoldings(size_t ranks) : ranks_(ranks) {}

  void clear() { written_.clear(), held_.clear(); }
  // These rows of a field were written, [rank], of so many.
  void note(const std::string& field, const std::vector<SampleRows>& written, size_t rows);
  // All ranks have all of so many rows of a field.
  void note_everywhere(const std::string& field, size_t rows);
  bool knows(const std::string& field) const { return held_.count(field) > 0; }
  // Which of the ranks that have a row says it to all, [row]: the one that says least so far; -1:
  // none has it. Of samples, all fields that a call writes have the same.
  std::vector<int32_t> speakers(const std::string& field) const;
  // Drops the rows that are not marked: those behind them move up.
  void retain(const std::vector<bool>& kept);
  // The rows of another account, of samples that follow this one's, which are `rows`.
  void append(const FieldHoldings& other, size_t rows);
  // Moves that give every rank the rows of some fields that it needs, [rank], and lacks, in one
  // order for all ranks. What the same members (none given: all ranks) have written comes to a rank
  // from one of them: the one that sends least so far. A row that none of them has written is left
  // out. They count as made. REQUIRES: knows() each field.
  std::vector<FieldMove> bring(const std::vector<MovedField>& fields,
                               const std::vector<SampleRows>& needed,
                               const std::vector<DeviceId>& members);

 private:
  size_t ranks_;
  // Ascending; null: none. Rows that the same ranks have share them: of a field that all have, the
  // account grows with the rows alone.
  using Ranks = std::shared_ptr<const std::vector<int32_t>>;
  using RanksByRow = std::vector<Ranks>;  // [row]
  class Additions;
  // Rows of each field, [field], by (from, to).
  using MovesByRanks = std::map<std::pair<int32_t, int32_t>, std::vector<SampleRows>>;
  std::vector<FieldMove> made(const std::vector<MovedField>& fields, MovesByRanks moves);
  std::map<std::string, RanksByRow> written_, held_;  // held: also what is on its way
};

}  // namespace braid::inline program
