#include "samples/field_account.h"

#include <numeric>
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
    for (const std::string& name : before.fields)
      exchange_.moves(field_of(program_.graph, name), needed, before.members);
  }
}

std::vector<SampleRows> FieldAccount::needed_in(const Exchange& exchange, int64_t step) {
  if (!exchange.shared()) return rows_.read_by_rank(exchange.consumer, step, exchange.part);
  SampleRows all(rows_.samples());
  std::iota(all.begin(), all.end(), 0);
  return std::vector<SampleRows>(exchange_.ranks(), all);
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
    for (const std::string& name : exchange.fields) {
      const Field& field = field_of(program_.graph, name);
      exchange_.start(entry, field, exchange_.moves(field, needed, exchange.members));
    }
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
  if (audit.on()) audit.expect(listed(shared, needed_in(shared, step)));
  {
    const TransferAudit::Counting counting(audit);
    for (const std::string& name : shared.fields) {
      const Field& field = field_of(program_.graph, name);
      BRAID_TRY(field.type == FieldType::kCount ? exchange_.share_counts(field)
                                                : exchange_.share(field));
    }
  }
  audit.settle(cat("the share of ", program_.graph.calls[shared.producer.value].name));
  return ok_status();
}

// By the rule of exchanges on an account of its own. Each row has one first holder of a count, so
// that a sum over all ranks is it.
TransferCounts FieldAccount::listed(const Exchange& exchange,
                                    const std::vector<SampleRows>& needed) const {
  const DeviceId self{static_cast<int32_t>(exchange_.rank())};
  FieldHoldings holdings = exchange_.holdings();
  TransferCounts out;
  for (const std::string& name : exchange.fields) {
    const Field& field = field_of(program_.graph, name);
    if (!holdings.knows(name)) continue;
    if (exchange.shared() && field.type == FieldType::kCount) {
      const auto samples = static_cast<int64_t>(rows_.samples());
      ++out[{Transfer::kAllReduce, "everyone", -1, -1, kCountBytes * samples}];
      continue;
    }
    const std::vector<int64_t> numbers = exchange_.value_counts(field);
    const auto members = exchange.shared() ? std::vector<DeviceId>() : exchange.members;
    add_listed(messages_of(holdings.bring(name, needed, numbers, members), numbers, self),
               kFieldChannel, &out);
  }
  return out;
}

}  // namespace braid::inline samples
