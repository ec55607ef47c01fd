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

std::vector<SampleRows> FieldAccount::needed_in(const Exchange& exchange, int64_t step) {
  if (exchange.shared()) return {};
  return rows_.read_by_rank(exchange.consumer, step, exchange.part);
}

TransferCounts FieldAccount::transfers(int32_t entry, int64_t step) {
  account(entry, step);
  const Exchange& exchange = program_.exchanges[entry];
  note_written(exchange.producer, step, exchange.part);
  return listed(exchange, needed_in(exchange, step));
}

Status FieldAccount::begin_exchange(int32_t entry, int64_t step) {
  account(entry, step);
  const Exchange& exchange = program_.exchanges[entry];
  note_written(exchange.producer, step, exchange.part);
  const std::vector<SampleRows> needed = needed_in(exchange, step);
  TransferAudit audit = TransferAudit::begin();
  if (audit.on()) audit.expect(listed(exchange, needed));
  {
    const TransferAudit::Counting counting(audit);
    const std::vector<Field> fields = fields_of(program_.graph, exchange);
    exchange_.start(entry, fields, exchange_.moves(fields, needed, exchange.members));
  }
  audit.settle(cat("exchange ", entry));
  accounted_ = entry + 1;
  return ok_status();
}

void FieldAccount::note_shared(int32_t entry, int64_t step) {
  if (exchange_.ranks() > 1) account(entry, step);
  accounted_ = entry + 1;
}

Status FieldAccount::share(const Exchange& shared, int64_t step) {
  if (exchange_.ranks() == 1) return ok_status();
  note_written(shared.producer, step);
  TransferAudit audit = TransferAudit::begin();
  if (audit.on()) audit.expect(listed(shared, {}));
  {
    const TransferAudit::Counting counting(audit);
    BRAID_TRY(exchange_.share(fields_of(program_.graph, shared)));
  }
  audit.settle(cat("the share of ", program_.graph.calls[shared.producer.value].name));
  return ok_status();
}

// By the rule of exchanges on an account of its own.
TransferCounts FieldAccount::listed(const Exchange& exchange,
                                    const std::vector<SampleRows>& needed) const {
  const std::vector<Field> fields = fields_of(program_.graph, exchange);
  TransferCounts out;
  if (exchange.shared()) {
    if (const int64_t bytes = exchange_.shared_bytes(fields); bytes > 0)
      ++out[{Transfer::kAllGather, "everyone", -1, -1, bytes}];
    return out;
  }
  const DeviceId self{static_cast<int32_t>(exchange_.rank())};
  const std::vector<MovedField> moved = exchange_.known(fields);
  FieldHoldings holdings = exchange_.holdings();
  add_listed(messages_of(holdings.bring(moved, needed, exchange.members), moved, self),
             kFieldChannel, &out);
  return out;
}

}  // namespace braid::inline samples
