#include "samples/field_account.h"

#include <string>
#include <vector>

#include "base/text.h"
#include "comm/transfer_audit.h"
#include "program/listed_messages.h"
#include "samples/listed_counts.h"

namespace braid::inline samples {
namespace {

// In the account of who holds what: what the model of a reward call gave, which is no field.
std::string scores_of(const Call& call) { return cat("scores of ", call.name); }

}  // namespace

void FieldAccount::begin() {
  exchange_.begin();
  walk_.begin();
}

TransferCounts FieldAccount::transfers(int32_t entry, int64_t step) {
  walk_.come_to(entry, step);
  const Exchange& exchange = program_.exchanges[entry];
  if (!exchange.shared()) return listed(entry, step);
  note_written(exchange.producer, step);
  TransferCounts out = listed_share(exchange);
  if (tells_scores(producer_of(exchange)))
    for (const auto& [kind, count] : exchange_.listed_numbers(tellers_of(exchange.producer, step)))
      out[kind] += count;
  return out;
}

Status FieldAccount::begin_exchange(int32_t entry, int64_t step) {
  walk_.come_to(entry, step);
  return audited(
      cat("exchange ", entry), [&] { return listed(entry, step); },
      [&] {
        exchange_.start(entry, fields_of(program_.graph, program_.exchanges[entry]),
                        walk_.make(entry, step).moves);
        return ok_status();
      });
}

void FieldAccount::note_shared(int32_t entry, int64_t step) {
  if (exchange_.ranks() > 1) walk_.come_to(entry, step);
  walk_.pass(entry);
}

Result<std::vector<std::vector<int32_t>>> FieldAccount::share(const Exchange& shared, int64_t step,
                                                              SaidBeside beside) {
  if (exchange_.ranks() == 1) return std::vector<std::vector<int32_t>>{std::move(beside.words)};
  note_written(shared.producer, step);
  beside.words.resize(words_beside(producer_of(shared)), 0);
  std::vector<std::vector<int32_t>> out;
  BRAID_TRY(audited(
      cat("the share of ", producer_of(shared).name), [&] { return listed_share(shared); },
      [&]() -> Status {
        BRAID_ASSIGN(out, exchange_.share(fields_of(program_.graph, shared), beside));
        return ok_status();
      }));
  return out;
}

Rows FieldAccount::said_in(const Exchange& shared, int64_t step) {
  note_written(shared.producer, step);
  return exchange_.said_by_rank(shared.fields.front())[exchange_.rank()];
}

// They are in the account as rows of a field are, so that of the ranks that have one the same says
// it.
std::vector<Rows> FieldAccount::tellers_of(CallId id, int64_t step) {
  const std::string scores = scores_of(program_.graph.calls[id.value]);
  if (!exchange_.holdings().knows(scores))
    exchange_.holdings().note(scores, rows_.told_by_rank(id, step), rows_.samples());
  return exchange_.said_by_rank(scores);
}

Result<std::map<size_t, double>> FieldAccount::tell_scores(const Exchange& shared, int64_t step,
                                                           const std::map<size_t, double>& mine) {
  const std::vector<Rows> said = tellers_of(shared.producer, step);
  std::map<size_t, double> out;
  BRAID_TRY(audited(
      cat("the scores of ", producer_of(shared).name),
      [&] { return exchange_.listed_numbers(said); },
      [&]() -> Status {
        BRAID_ASSIGN(out, exchange_.gather_numbers(said, mine, "scores"));
        return ok_status();
      }));
  return out;
}

TransferCounts FieldAccount::listed_share(const Exchange& shared) const {
  return exchange_.listed_share(fields_of(program_.graph, shared),
                                words_beside(producer_of(shared)));
}

// By the rule of exchanges on an account of its own.
TransferCounts FieldAccount::listed(int32_t entry, int64_t step) {
  const ExchangeWalk::Moves expected = walk_.listed(entry, step);
  const DeviceId self{static_cast<int32_t>(exchange_.rank())};
  TransferCounts out;
  add_listed(messages_of(expected.moves, expected.fields, self), kFieldChannel, &out);
  return out;
}

}  // namespace braid::inline samples
