#include "samples/field_account.h"

#include <string>
#include <vector>

#include "base/text.h"
#include "comm/transfer_audit.h"
#include "program/listed_messages.h"
#include "samples/listed_counts.h"

namespace braid::inline samples {
namespace {

const Field& field_of(const Graph& graph, const std::string& name) {
  for (const Call& call : graph.calls)
    for (const Field& field : call.writes)
      if (field.name == name) return field;
  BRAID_CHECK(false, "no call writes field " + name);
}

// In the account of who holds what: what the model of a reward call gave, which is no field.
std::string scores_of(const Call& call) { return cat("scores of ", call.name); }

std::vector<Field> fields_of(const Graph& graph, const Exchange& exchange) {
  std::vector<Field> out;
  for (const std::string& name : exchange.fields) out.push_back(field_of(graph, name));
  return out;
}

}  // namespace

void FieldAccount::begin() {
  exchange_.begin();
  accounted_ = 0;
  written_.clear();
}

bool FieldAccount::has_samples_of(const Exchange& exchange) const {
  const CallId reader = exchange.shared() ? exchange.producer : exchange.consumer;
  return program_.graph.calls[reader.value].steps_ahead == steps_ahead_;
}

void FieldAccount::note_written(CallId id, int64_t step, SamplePart part) {
  const Call& call = program_.graph.calls[id.value];
  if (call.kind == CallKind::kFetch || call.kind == CallKind::kSelect ||
      call.steps_ahead != steps_ahead_ || !written_.insert({id, part}).second)
    return;
  const std::vector<SampleRows> rows = rows_.written_by_rank(id, step, part);
  for (const Field& field : call.writes)
    exchange_.holdings().note(field.name, rows, rows_.samples());
  if (tells_scores(call) && exchange_.ranks() > 1)
    exchange_.holdings().note(scores_of(call), rows_.told_by_rank(id, step), rows_.samples());
}

void FieldAccount::account(int32_t entry, int64_t step) {
  for (; accounted_ < entry; ++accounted_) {
    const Exchange& before = program_.exchanges[accounted_];
    if (!has_samples_of(before)) continue;
    BRAID_CHECK(!before.shared(), "all ranks take part in every share");
    note_written(before.producer, step, before.part);
    const std::vector<SampleRows> needed = needed_in(before, step);
    exchange_.moves(fields_of(program_.graph, before), needed, before.members);
  }
}

TransferCounts FieldAccount::transfers(int32_t entry, int64_t step) {
  account(entry, step);
  const Exchange& exchange = program_.exchanges[entry];
  note_written(exchange.producer, step, exchange.part);
  if (!exchange.shared()) return listed(exchange, needed_in(exchange, step));
  TransferCounts out = listed_share(exchange);
  if (const Call& call = producer_of(exchange); tells_scores(call))
    for (const auto& [kind, count] :
         exchange_.listed_numbers(exchange_.said_by_rank(scores_of(call))))
      out[kind] += count;
  return out;
}

Status FieldAccount::begin_exchange(int32_t entry, int64_t step) {
  account(entry, step);
  const Exchange& exchange = program_.exchanges[entry];
  note_written(exchange.producer, step, exchange.part);
  const std::vector<SampleRows> needed = needed_in(exchange, step);
  BRAID_TRY(audited(
      cat("exchange ", entry), [&] { return listed(exchange, needed); },
      [&] {
        const std::vector<Field> fields = fields_of(program_.graph, exchange);
        exchange_.start(entry, fields, exchange_.moves(fields, needed, exchange.members));
        return ok_status();
      }));
  accounted_ = entry + 1;
  return ok_status();
}

void FieldAccount::note_shared(int32_t entry, int64_t step) {
  if (exchange_.ranks() > 1) account(entry, step);
  accounted_ = entry + 1;
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

Result<std::map<size_t, double>> FieldAccount::tell_scores(const Exchange& shared, int64_t step,
                                                           const std::map<size_t, double>& mine) {
  note_written(shared.producer, step);
  const Call& call = producer_of(shared);
  const std::vector<Rows> said = exchange_.said_by_rank(scores_of(call));
  std::map<size_t, double> out;
  BRAID_TRY(audited(
      cat("the scores of ", call.name), [&] { return exchange_.listed_numbers(said); },
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
TransferCounts FieldAccount::listed(const Exchange& exchange,
                                    const std::vector<SampleRows>& needed) const {
  const std::vector<Field> fields = fields_of(program_.graph, exchange);
  TransferCounts out;
  const DeviceId self{static_cast<int32_t>(exchange_.rank())};
  const std::vector<MovedField> moved = exchange_.known(fields);
  FieldHoldings holdings = exchange_.holdings();
  add_listed(messages_of(holdings.bring(moved, needed, exchange.members), moved, self),
             kFieldChannel, &out);
  return out;
}

}  // namespace braid::inline samples
